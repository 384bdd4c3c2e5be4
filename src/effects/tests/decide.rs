//! Every row of the table in `src/docs/decide.md`, on the pure functions.

use super::bench::{command, intent, now, rules, said, sec};
use crate::contract::{Completion, Confirm, Retention};
use crate::effects::{
    Action, AttemptState, Denial, Event, Facts, LedgerRecord, Outcome, Phase, Rules, Seen, Stamp, Verdict, WarrantKind, apply,
    decide, fold, journal,
};
use crate::error::codes;
use crate::intents::{AckLevel, AnswerClass, CommandKind, Flag, Hearsay, Resolution, Status};
use crate::time::WallTime;

pub(super) fn facts() -> Facts {
    Facts { lane_free: true, permit: true, read_permit: true, reading: false, drift: false, denied: None }
}

pub(super) fn t(seconds: u64) -> WallTime {
    now().wall.plus(sec(seconds))
}

pub(super) fn queued() -> LedgerRecord {
    LedgerRecord::queued(&intent("op-1"), 1)
}

pub(super) fn out(n: i32, class: AnswerClass) -> Event {
    Event::Finished(Outcome { said: said(n, &format!("t-{n}"), class), retry_at: None })
}

pub(super) fn send(r: &mut LedgerRecord, rules: &Rules, at: WallTime) {
    let Action::Journal(w) = decide(r, &facts(), rules, at) else { panic!("{:?}", decide(r, &facts(), rules, at)) };
    let token = format!("t-{}", r.attempts.len() + 1).into();
    journal(r, w, Stamp { epoch: "e".into(), token, at }, rules);
}

/// Decides and applies until there is something for the stage to do.
pub(super) fn rest(r: &mut LedgerRecord, rules: &Rules, at: WallTime) -> Action {
    for _ in 0..8 {
        let action = decide(r, &facts(), rules, at);
        if !matches!(action, Action::Settle | Action::Park(..) | Action::End(_)) {
            return action;
        }
        apply(r, &action, at);
    }
    panic!("never at rest")
}

pub(super) fn run(rules: &Rules, events: &[(u64, Event)]) -> LedgerRecord {
    let mut r = queued();
    send(&mut r, rules, t(0));
    for (at, e) in events {
        fold(&mut r, e.clone(), rules, t(*at));
        rest(&mut r, rules, t(*at));
    }
    r
}

pub(super) fn read(at: u64, verdict: Verdict) -> (u64, Event) {
    (at, Event::Read { at: t(at), verdict, digest: None })
}

pub(super) fn one() -> Verdict {
    Verdict::One { reference: None }
}

/// If this broke, a queued operation would be sent without its lane, permit or permission, or end wrongly.
#[test]
fn queued_rows() {
    let (mut r, rules) = (queued(), rules());
    assert_eq!(decide(&r, &facts(), &rules, t(0)), Action::Journal(vec![]));
    assert!(matches!(decide(&r, &Facts { lane_free: false, ..facts() }, &rules, t(0)), Action::Wait(Some(_))));
    assert!(matches!(decide(&r, &Facts { permit: false, ..facts() }, &rules, t(0)), Action::WaitForPermit(Some(_))));
    let no = Denial { code: codes::DENIED, detail: "policy".into() };
    let Action::End(e) = decide(&r, &Facts { denied: Some(no), ..facts() }, &rules, t(0)) else { panic!() };
    assert_eq!(e.status, Status::Denied);
    let Action::End(e) = decide(&r, &facts(), &rules, t(901)) else { panic!() };
    assert_eq!(e.status, Status::Expired);
    r.cancelled = true;
    let Action::End(e) = decide(&r, &facts(), &rules, t(0)) else { panic!() };
    assert_eq!(e.status, Status::Cancelled);
}

/// If this broke, answers would end operations that the contract wants read back, or the reverse.
#[test]
fn in_flight_rows() {
    let answer = Rules { confirm: Confirm::Answer, ..rules() };
    let r = run(&answer, &[(1, out(1, AnswerClass::Applied))]);
    assert_eq!((r.end, r.ack), (Some(Status::Confirmed), AckLevel::Answered));
    let later = Rules { completion: Completion::Poll, ..answer.clone() };
    assert_eq!(run(&later, &[(1, out(1, AnswerClass::Applied))]).phase, Phase::Unknown, "202 is not an effect");
    let r = run(&rules(), &[(1, out(1, AnswerClass::Applied))]);
    assert_eq!((r.phase, r.read_at), (Phase::Unknown, Some(t(1))));
    assert_eq!(run(&rules(), &[(1, out(1, AnswerClass::Rejected))]).end, Some(Status::Refused));
    assert_eq!(run(&rules(), &[(1, out(1, AnswerClass::NotSent))]).phase, Phase::Queued);
    assert_eq!(run(&rules(), &[(1, out(1, AnswerClass::RetryLater))]).phase, Phase::Queued);
    assert_eq!(run(&rules(), &[(1, out(1, AnswerClass::MaybeSent))]).phase, Phase::Unknown);
    let over = Event::TakeOver { burned: vec![], held: vec![] };
    assert_eq!(run(&rules(), &[(1, over)]).attempts[0].state, AttemptState::Maybe);
    let burned = Event::TakeOver { burned: vec![1], held: vec![] };
    assert_eq!(run(&rules(), &[(1, burned)]).attempts[0].state, AttemptState::Unsent);
    let copies = Rules { no_intermediaries: false, ..rules() };
    assert_eq!(run(&copies, &[(1, out(1, AnswerClass::RetryLater))]).phase, Phase::Unknown, "a copy may still be applied");
}

/// If this broke, a readback would be believed too early, too much, or not at all.
#[test]
fn readback_rows() {
    let lost = (2, out(1, AnswerClass::MaybeSent));
    let r = run(&rules(), &[lost.clone(), read(3, one())]);
    assert_eq!((r.end, r.ack, r.flags.len()), (Some(Status::Confirmed), AckLevel::Confirmed, 0));
    let r = run(&rules(), &[lost.clone(), read(3, Verdict::Two)]);
    assert_eq!((r.end, r.flags), (Some(Status::Confirmed), vec![Flag::DuplicateSuspected]));
    let r = run(&rules(), &[lost.clone(), read(3, Verdict::OtherContent)]);
    assert_eq!((r.phase, r.code), (Phase::Parked, Some(i32::from(codes::EFFECT_CONFLICT.0))));
    // Window 5 + cut 2 + P 2 + L 5 + V 1 + 2ε 1 = 16.
    assert_eq!(rules().settle_at(&r), Some(t(16)));
    let r = run(&rules(), &[lost.clone(), read(15, Verdict::Absent)]);
    assert_eq!(r.phase, Phase::Unknown, "too early");
    assert!(r.read_at.is_some_and(|at| t(15) < at && at <= t(16)), "read again, at settle at the latest");
    let mut r = run(&rules(), &[lost.clone(), read(16, Verdict::Absent)]);
    assert_eq!(r.attempts[0].state, AttemptState::SettledAbsent);
    send(&mut r, &rules(), t(16));
    assert_eq!(r.attempts[1].warrants[0].kind, WarrantKind::SettledAbsent);
    let r = run(&rules(), &[(2, out(1, AnswerClass::Applied)), read(16, Verdict::Absent)]);
    assert_eq!((r.phase, r.code), (Phase::Parked, Some(i32::from(codes::CONTRADICTION.0))));
    let r = run(&Rules { in_flight: None, ..rules() }, &[lost.clone(), read(16, Verdict::Absent)]);
    assert_eq!((r.phase, r.code), (Phase::Parked, Some(i32::from(codes::UNPROVABLE.0))), "nothing bounds arrival");
    let mut r = run(&rules(), &[lost]);
    rest(&mut r, &rules(), t(603));
    assert_eq!(r.code, Some(i32::from(codes::UNKNOWN_TOO_LONG.0)));
}

/// If this broke, a drifting clock would settle absence or trust a key (rule 26).
#[test]
fn drift_suspends_what_rests_on_time() {
    let keyed = Rules { dedupe: Some(Retention::For(sec(1_000))), ..rules() };
    let mut r = run(&keyed, &[(2, out(1, AnswerClass::MaybeSent))]);
    assert!(matches!(decide(&r, &facts(), &keyed, t(20)), Action::Journal(_)));
    r.absent_at = Some(t(20));
    let drift = Facts { drift: true, ..facts() };
    assert!(!matches!(decide(&r, &drift, &keyed, t(20)), Action::Journal(_) | Action::Settle));
}

/// If this broke, a keyed re-send would be made with an expired key, or with the send breaker closed nothing would be read.
#[test]
fn keyed_rows() {
    let keyed = Rules { dedupe: Some(Retention::For(sec(60))), ..rules() };
    let mut r = run(&keyed, &[(2, out(1, AnswerClass::MaybeSent))]);
    assert!(matches!(decide(&r, &facts(), &keyed, t(43)), Action::Journal(_)), "43 + 5 + 2 + 2 + 5 + 1 + 1 < 60");
    assert!(!matches!(decide(&r, &facts(), &keyed, t(45)), Action::Journal(_)));
    r.read_at = Some(t(3));
    assert_eq!(decide(&r, &Facts { permit: false, ..facts() }, &keyed, t(10)), Action::Read);
}

/// If this broke, evidence after the end would change it, or pass in silence (C13, C14).
#[test]
fn an_end_never_changes() {
    let mut r = run(&rules(), &[(1, out(1, AnswerClass::Rejected))]);
    fold(&mut r, out(1, AnswerClass::Applied), &rules(), t(2));
    assert_eq!((r.end, r.flags.clone()), (Some(Status::Refused), vec![Flag::Contradiction]));
    let before = r.clone();
    fold(&mut r, out(1, AnswerClass::MaybeSent), &rules(), t(3));
    assert_eq!(r, before);
    let reply = fold(
        &mut r,
        Event::Command { command: Box::new(command(CommandKind::Cancel, "op-1", "c")), burned: vec![] },
        &rules(),
        t(4),
    );
    assert_eq!(reply.expect("answered with the end").code, Some(codes::COMMAND_REFUSED));
    assert_eq!(r.end, Some(Status::Refused));
    assert!(matches!(decide(&r, &facts(), &rules(), t(5)), Action::Wait(Some(_))));
    assert_eq!(decide(&r, &facts(), &rules(), t(3_000)), Action::Forget);
}

/// If this broke, a parked operation would move by itself, or not at all by people and evidence.
#[test]
fn parked_rows() {
    let nothing = Rules { lag: None, in_flight: None, ..rules() };
    let parked = run(&nothing, &[(2, out(1, AnswerClass::MaybeSent))]);
    assert_eq!(decide(&parked, &facts(), &nothing, t(99)), Action::Wait(None));
    let hear = |token: &str| {
        let token = token.into();
        Event::Hearsay(Hearsay { token, ..said(1, "", AnswerClass::Applied) })
    };
    let answer = Rules { confirm: Confirm::Answer, ..nothing };
    let mut r = parked.clone();
    fold(&mut r, hear("forged"), &answer, t(3));
    assert_eq!(r.phase, Phase::Parked);
    fold(&mut r, hear("t-1"), &answer, t(3));
    rest(&mut r, &answer, t(3));
    assert_eq!(r.end, Some(Status::Confirmed));
    let mut r = parked;
    let mut c = command(CommandKind::Resolve, "op-1", "r");
    (c.seen, c.resolution) = (Some(r.version), Some(Resolution::Applied));
    fold(&mut r, Event::Command { command: Box::new(c), burned: vec![] }, &answer, t(3));
    assert_eq!(r.end, Some(Status::ResolvedApplied), "one person suffices for applied");
}

/// If this broke, the ledger's schema and its record would part, and a restore would fail.
#[test]
fn the_record_survives_its_schema() {
    let lost = (2, out(1, AnswerClass::MaybeSent));
    let mut r = run(&rules(), &[lost, read(3, Verdict::Absent), read(16, Verdict::Absent)]);
    send(&mut r, &rules(), t(16));
    r.seen = Seen::Nothing;
    let c = command(CommandKind::Cancel, "op-1", "c");
    r.held.push(c.clone());
    fold(&mut r, Event::Command { command: Box::new(c), burned: vec![] }, &rules(), t(17));
    let bytes = crate::serdes::internal::encode(&r).expect("encodes");
    assert_eq!(crate::serdes::internal::decode::<LedgerRecord>(&bytes).expect("decodes"), r);
    use crate::serdes::internal::Wire;
    for text in [LedgerRecord::AVSC, crate::effects::LedgerBody::AVSC] {
        let schema = apache_avro::Schema::parse_str(text).expect("a valid schema");
        if text == LedgerRecord::AVSC {
            let v = apache_avro::to_value(&r).and_then(|v| v.resolve(&schema)).expect("the record fits its schema");
            let back: LedgerRecord = apache_avro::from_value(&v).expect("and comes back");
            assert_eq!(back, r);
        }
    }
}

/// If this broke, a record could grow beyond what a broker takes, and the write that is refused would end the unit for all.
#[test]
fn a_record_beyond_its_limit_is_parked_and_sends_nothing_more() {
    let rules = rules();
    let mut r = run(&rules, &[(1, out(1, AnswerClass::MaybeSent))]);
    r.reference = Some("x".repeat(super::super::status::RECORD_BYTES));
    let Action::Park(code, _) = decide(&r, &facts(), &rules, t(2)) else { panic!("{:?}", decide(&r, &facts(), &rules, t(2))) };
    assert_eq!(code, codes::LEDGER_TOO_LARGE);
    rest(&mut r, &rules, t(2));
    r.forced_by = Some("somebody".into());
    assert!(!matches!(decide(&r, &facts(), &rules, t(3)), Action::Journal(_)), "not by force either");

    let mut held = LedgerRecord::held(queued().key(), t(900));
    let mut long = command(CommandKind::Cancel, "op-1", "c-1");
    long.reason = "x".repeat(super::super::status::COMMAND_BYTES);
    let reply = fold(&mut held, Event::Command { command: Box::new(long), burned: vec![] }, &rules, t(1)).expect("an answer");
    assert_eq!((reply.code, held.held.len()), (Some(codes::COMMAND_REFUSED), 0));
    for n in 0..40 {
        let mut command = command(CommandKind::Cancel, "op-1", &format!("c-{n}"));
        command.reason = "x".repeat(15_000);
        fold(&mut held, Event::Command { command: Box::new(command), burned: vec![] }, &rules, t(1));
    }
    assert!(held.held.len() > 10 && held.weight() <= super::super::status::RECORD_BYTES, "{}", held.held.len());
}
