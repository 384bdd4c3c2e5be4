//! Rows of targets that refuse by themselves, and of those whose contract accepts duplicates.

use super::bench::{rules, sec};
use super::decide::{facts, one, out, read, rest, run, send, t};
use crate::contract::Confirm;
use crate::effects::{Action, Facts, Phase, Rules, Verdict, WarrantKind, decide, fold};
use crate::error::codes;
use crate::intents::{AnswerClass, Status};

fn creates() -> Rules {
    Rules { creates_once: true, in_flight: None, ..rules() }
}

/// If this broke, a lost answer of a conditional create would wait for a person, or "the ID is taken" would be believed, retried or
/// called a refusal instead of being read back.
#[test]
fn a_conditional_create_is_sent_again_and_a_taken_id_is_read_back() {
    let rules = creates();
    let mut r = run(&rules, &[(2, out(1, AnswerClass::MaybeSent))]);
    send(&mut r, &rules, t(3));
    assert_eq!(r.attempts[1].warrants[0].kind, WarrantKind::TargetFence);
    r.read_at = Some(t(50));
    fold(&mut r, out(2, AnswerClass::KeyConflict), &rules, t(4));
    rest(&mut r, &rules, t(4));
    assert_eq!((r.phase, decide(&r, &facts(), &rules, t(4))), (Phase::Unknown, Action::Read), "asked at once");
    for (verdict, end, code) in [
        (one(), Some(Status::Confirmed), None),
        (Verdict::OtherContent, None, Some(codes::EFFECT_CONFLICT)),
        (Verdict::Absent, None, Some(codes::EFFECT_CONFLICT)),
    ] {
        let mut r = r.clone();
        fold(&mut r, read(60, verdict.clone()).1, &rules, t(60));
        rest(&mut r, &rules, t(60));
        assert_eq!((r.end, r.code), (end, code.map(|c| i32::from(c.0))), "{verdict:?}");
        assert_eq!(r.attempts.len(), 2, "{verdict:?}: no third one");
    }
}

/// If this broke, the lane behind a create whose thing is not there yet would open, and an old copy could still make it.
#[test]
fn a_lane_opens_when_the_id_is_taken() {
    let rules = creates();
    let lost = (2, out(1, AnswerClass::MaybeSent));
    assert_eq!(rules.lane_opens_at(&run(&rules, std::slice::from_ref(&lost))), None, "only a person can know");
    assert!(rules.lane_opens_at(&run(&rules, &[lost, read(3, one())])).is_some_and(|at| at < t(0)));
}

/// If this broke, an attempt under an age limit would go to a person although the target refuses it by now; or be followed by another
/// one before that; or by a warrant that does not say what it rests on.
#[test]
fn an_age_limit_settles_what_nothing_else_bounds() {
    let rules = Rules { max_age: Some(sec(60)), in_flight: None, ..rules() };
    // Journalled at 0, refused from 60 on, shown by 61, clocks wrong by 2 x 0.5.
    let r = run(&rules, &[(2, out(1, AnswerClass::MaybeSent)), read(61, Verdict::Absent)]);
    assert_eq!((r.phase, r.attempts.len()), (Phase::Unknown, 1));
    let drift = Facts { drift: true, ..facts() };
    let mut r = run(&rules, &[(2, out(1, AnswerClass::MaybeSent))]);
    fold(&mut r, read(62, Verdict::Absent).1, &rules, t(62));
    assert!(!matches!(decide(&r, &drift, &rules, t(62)), Action::Settle | Action::Journal(_)), "rule 26");
    rest(&mut r, &rules, t(62));
    send(&mut r, &rules, t(63));
    assert_eq!(r.attempts[1].warrants[0].kind, WarrantKind::TargetFence);
    let sooner = Rules { in_flight: Some(sec(5)), ..rules };
    let mut r = run(&sooner, &[(2, out(1, AnswerClass::MaybeSent))]);
    fold(&mut r, read(16, Verdict::Absent).1, &sooner, t(16));
    assert_eq!(decide(&r, &facts(), &sooner, t(16)), Action::Settle, "whichever comes first");
}

/// If this broke, a contract that accepts duplicates would send again what a readback can still prove, or not tell how often it sent.
#[test]
fn duplicates_are_accepted_only_where_nothing_proves_the_outcome() {
    let blind = Rules { duplicates: true, lag: None, in_flight: None, confirm: Confirm::Answer, ..rules() };
    let mut r = run(&blind, &[(2, out(1, AnswerClass::MaybeSent))]);
    send(&mut r, &blind, t(3));
    assert_eq!(r.attempts[1].warrants[0].kind, WarrantKind::DuplicatesAccepted);
    fold(&mut r, out(2, AnswerClass::Applied), &blind, t(4));
    rest(&mut r, &blind, t(4));
    assert_eq!(r.end, Some(Status::Confirmed));
    assert!(r.detail.as_deref().is_some_and(|d| d.starts_with("sent 2 times")), "{:?}", r.detail);

    let sighted = Rules { duplicates: true, in_flight: None, ..rules() };
    let r = run(&sighted, &[(2, out(1, AnswerClass::MaybeSent))]);
    assert!(!matches!(decide(&r, &facts(), &sighted, t(5)), Action::Journal(_)), "it is read back first");
    let r = run(&sighted, &[(2, out(1, AnswerClass::MaybeSent)), read(16, Verdict::Absent)]);
    assert!(matches!(decide(&r, &facts(), &sighted, t(17)), Action::Journal(_)), "absent, and nothing bounds arrival");
    let never = Rules { duplicates: false, ..sighted };
    let r = run(&never, &[(2, out(1, AnswerClass::MaybeSent)), read(16, Verdict::Absent)]);
    assert_eq!(r.code, Some(i32::from(codes::UNPROVABLE.0)), "never by default");
}
