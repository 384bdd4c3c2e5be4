//! Every row of the table in `src/docs/decide.md`, on the pure functions.

use super::bench::{command, intent, now, rules, sec};
use crate::contract::{Completion, Confirm, Retention};
use crate::effects::{
    Action, AttemptState, Denial, Event, Facts, LedgerRecord, Outcome, Phase, Rules, Seen, Stamp, Verdict, WarrantKind, apply,
    decide, fold, journal,
};
use crate::error::codes;
use crate::intents::{AckLevel, AnswerClass, CommandKind, Flag, Resolution, Status};
use crate::time::WallTime;

fn facts() -> Facts {
    Facts { lane_free: true, permit: true, read_permit: true, reading: false, drift: false, denied: None }
}

fn t(seconds: u64) -> WallTime {
    now().wall.plus(sec(seconds))
}

fn queued() -> LedgerRecord {
    LedgerRecord::queued(&intent("op-1"), 1)
}

fn out(n: i32, class: AnswerClass) -> Event {
    let token = format!("t-{n}").into();
    Event::Finished(Outcome { attempt: n, token, class, status: None, digest: None, reference: None, retry_at: None })
}

fn send(r: &mut LedgerRecord, rules: &Rules, at: WallTime) {
    let Action::Journal(w) = decide(r, &facts(), rules, at) else { panic!("{:?}", decide(r, &facts(), rules, at)) };
    let token = format!("t-{}", r.attempts.len() + 1).into();
    journal(r, w, Stamp { epoch: "e".into(), token, at }, rules);
}

/// Decides and applies until there is something for the stage to do.
fn rest(r: &mut LedgerRecord, rules: &Rules, at: WallTime) -> Action {
    for _ in 0..8 {
        let action = decide(r, &facts(), rules, at);
        if !matches!(action, Action::Settle | Action::Park(..) | Action::End(_)) {
            return action;
        }
        apply(r, &action, at);
    }
    panic!("never at rest")
}

fn run(rules: &Rules, events: &[(u64, Event)]) -> LedgerRecord {
    let mut r = queued();
    send(&mut r, rules, t(0));
    for (at, e) in events {
        fold(&mut r, e.clone(), rules, t(*at));
        rest(&mut r, rules, t(*at));
    }
    r
}

fn read(at: u64, verdict: Verdict) -> (u64, Event) {
    (at, Event::Read { at: t(at), verdict, digest: None })
}

fn one() -> Verdict {
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
        Event::Hearsay(Outcome {
            attempt: 1,
            token,
            class: AnswerClass::Applied,
            status: None,
            digest: None,
            reference: None,
            retry_at: None,
        })
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

/// If this broke, an approval given for one plan would release another's bytes (C20, research h).
#[test]
fn approvals_bind_to_the_plan() {
    let mut r = queued();
    let mut c = command(CommandKind::ApproveLate, "op-1", "a-1");
    c.seen = Some(r.version);
    c.approval = Some(crate::intents::Approval {
        approval_id: "ap".into(),
        tenant: "acme".into(),
        operation_id: "op-1".into(),
        plan_hash: "another-plan".into(),
        approver: "approver".into(),
        decision: crate::intents::Decision::Approve,
        expires_at: t(60),
        policy_version: "2".into(),
        reason: None,
    });
    let said = |r: &mut LedgerRecord, c: &crate::intents::Command| {
        fold(r, Event::Command { command: Box::new(c.clone()), burned: vec![] }, &rules(), t(0)).expect("answered").code
    };
    assert_eq!(said(&mut r, &c), Some(codes::COMMAND_REFUSED));
    assert_eq!(r.approval, None);
    c.command_id = "a-2".into();
    c.approval.as_mut().expect("set above").plan_hash = "plan-1".into();
    assert_eq!(said(&mut r, &c), None);
    c.kind = CommandKind::Revoke;
    c.command_id = "v-1".into();
    said(&mut r, &c);
    let Action::End(e) = decide(&r, &facts(), &rules(), t(0)) else { panic!() };
    assert_eq!(e.status, Status::Denied);
}

/// An approval as the topic brings it.
fn approve(id: &str, seen: Option<i64>, expires_at: WallTime) -> crate::intents::Command {
    let mut c = command(CommandKind::ApproveLate, "op-1", id);
    c.seen = seen;
    c.approval = Some(crate::intents::Approval {
        approval_id: id.into(),
        tenant: "acme".into(),
        operation_id: "op-1".into(),
        plan_hash: "plan-1".into(),
        approver: "approver".into(),
        decision: crate::intents::Decision::Approve,
        expires_at,
        policy_version: "2".into(),
        reason: None,
    });
    c
}

/// If this broke, an approval from the topic, which knows a plan and no version, would never be taken after the hand-over; or one
/// by hand would be taken although the operation has changed since.
#[test]
fn late_approvals_are_bound_by_plan_and_where_named_by_version() {
    let said = |r: &mut LedgerRecord, c: crate::intents::Command| {
        fold(r, Event::Command { command: Box::new(c), burned: vec![] }, &rules(), t(0)).expect("answered").code
    };
    let mut r = queued();
    assert_eq!(said(&mut r, approve("a-1", None, t(60))), None);
    assert_eq!(r.approval.as_ref().map(|a| a.id.as_str()), Some("a-1"));
    let stale = r.version - 1;
    assert_eq!(said(&mut r, approve("a-2", Some(stale), t(60))), Some(codes::STALE_VERSION));
    assert_eq!(said(&mut r, approve("a-3", None, t(0))), Some(codes::COMMAND_REFUSED), "it has expired");
    assert_eq!(r.approval.as_ref().map(|a| a.id.as_str()), Some("a-1"));
}

/// If this broke, taking back an approval that was never used, or was replaced, would void the one that a person stands by.
#[test]
fn a_revoke_takes_back_the_approval_that_it_names() {
    let said = |r: &mut LedgerRecord, c: crate::intents::Command| {
        fold(r, Event::Command { command: Box::new(c), burned: vec![] }, &rules(), t(0)).expect("answered").code
    };
    let revoke = |named: &str, id: &str| {
        let mut c = approve(named, None, t(60));
        (c.kind, c.command_id) = (CommandKind::Revoke, id.into());
        c
    };
    let mut r = queued();
    said(&mut r, approve("a-1", None, t(60)));
    assert_eq!(said(&mut r, revoke("a-0", "v-0")), Some(codes::COMMAND_REFUSED));
    assert!(!r.revoked);
    assert_eq!(said(&mut r, revoke("a-1", "v-1")), None);
    assert!(r.revoked);
}

/// C20: an approval for another plan, or one that has run out since the hand-over, must not let a further send go.
#[test]
fn the_spent_approval_is_asked_again_at_each_send() {
    use crate::effects::stage::approval_over;
    let mut r = queued();
    assert_eq!(approval_over(&r, t(0)), None, "none was needed");
    fold(&mut r, Event::Command { command: Box::new(approve("a-1", None, t(60))), burned: vec![] }, &rules(), t(0));
    assert_eq!(approval_over(&r, t(59)), None);
    assert!(approval_over(&r, t(60)).is_some_and(|d| d.detail.contains("expired")));
    r.plan_hash = Some("plan-2".into());
    assert!(approval_over(&r, t(0)).is_some_and(|d| d.detail.contains("another plan")));
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
