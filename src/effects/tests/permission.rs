//! What is asked again before every send: approval, target version, and what people may still order.

use super::bench::{Bench, command, intent, now, rules, sec};
use super::decide::{facts, one, out, queued, read, rest, run, send, t};
use crate::contract::Parameters;
use crate::effects::permission::{Forbidden, forbidden, last_look};
use crate::effects::{
    Action, AttemptState, Denial, Event, Facts, LedgerRecord, Phase, Rules, Unguarded, Verdict, VersionState, WarrantKind, decide,
    fold,
};
use crate::error::{Code, codes};
use crate::intents::{AnswerClass, Approval, ApprovalUse, Command, CommandKind, Decision, Intent, Status};
use crate::time::WallTime;

// ---- approvals ----

/// An operation that spent an approval until `t(60)`.
fn approved() -> LedgerRecord {
    let mut r = queued();
    r.approval = Some(ApprovalUse {
        id: "a-0".into(),
        approver: "approver".into(),
        plan_hash: "plan-1".into(),
        expires_at: t(60),
        policy_version: "2".into(),
    });
    r
}

/// An approval as the topic brings it.
fn approve(id: &str, seen: Option<i64>, expires_at: WallTime) -> Command {
    let mut c = command(CommandKind::ApproveLate, "op-1", id);
    c.seen = seen;
    c.approval = Some(Approval {
        approval_id: id.into(),
        tenant: "acme".into(),
        operation_id: "op-1".into(),
        plan_hash: "plan-1".into(),
        approver: "approver".into(),
        decision: Decision::Approve,
        expires_at,
        policy_version: "2".into(),
        reason: None,
    });
    c
}

fn said(r: &mut LedgerRecord, c: Command) -> Option<Code> {
    fold(r, Event::Command { command: Box::new(c), burned: vec![] }, &rules(), t(0)).expect("answered").code
}

/// C20: an approval for another plan, or one that has run out since the hand-over, must not let a further send go.
#[test]
fn the_spent_approval_is_asked_again_at_each_send() {
    let look =
        |r: &LedgerRecord, at| last_look(&mut r.clone(), &Parameters::default(), &Unguarded, &rules(), at).err().map(|d| d.detail);
    assert_eq!(look(&queued(), t(0)), None, "none was needed");
    let mut r = approved();
    assert_eq!(look(&r, t(59)), None);
    assert!(look(&r, t(60)).is_some_and(|d| d.contains("expired")));
    r.plan_hash = Some("plan-2".into());
    assert!(look(&r, t(0)).is_some_and(|d| d.contains("another plan")));
}

/// C20, C21: whatever was taken away between the hand-over and the send must be seen; cancel and deadline end it as such.
#[test]
fn what_the_record_forbids() {
    assert_eq!(forbidden(&queued(), t(0)), None);
    assert_eq!(forbidden(&LedgerRecord { cancelled: true, revoked: true, ..queued() }, t(901)), Some(Forbidden::Cancelled));
    assert_eq!(forbidden(&LedgerRecord { revoked: true, ..queued() }, t(901)), Some(Forbidden::Expired));
    assert!(matches!(forbidden(&LedgerRecord { revoked: true, ..approved() }, t(0)), Some(Forbidden::Denied(_))));
}

/// If this broke, an approval from the topic, which knows a plan and no version, would never be taken after the hand-over; or one
/// by hand would be taken although the operation has changed since; or one for another plan would release these bytes (C20).
#[test]
fn late_approvals_are_bound_by_plan_and_where_named_by_version() {
    let mut r = approved();
    assert_eq!(said(&mut r, approve("a-1", None, t(90))), None);
    assert_eq!(r.approval.as_ref().map(|a| (a.id.as_str(), a.expires_at)), Some(("a-1", t(90))));
    let stale = r.version - 1;
    assert_eq!(said(&mut r, approve("a-2", Some(stale), t(90))), Some(codes::STALE_VERSION));
    assert_eq!(said(&mut r, approve("a-3", None, t(0))), Some(codes::COMMAND_REFUSED), "it has expired");
    let mut other = approve("a-4", None, t(90));
    other.approval.as_mut().expect("one").plan_hash = "plan-2".into();
    assert_eq!(said(&mut r, other), Some(codes::COMMAND_REFUSED));
    assert_eq!(r.approval.as_ref().map(|a| a.id.as_str()), Some("a-1"));
    assert_eq!(said(&mut queued(), approve("a-5", None, t(60))), Some(codes::COMMAND_REFUSED), "nothing to renew");
}

/// If this broke, who asked for an effect could keep it going by a late approval of their own.
#[test]
fn a_late_approval_is_not_the_requesters() {
    let own = |id: &str| {
        let mut c = approve(id, None, t(90));
        c.approval.as_mut().expect("one").approver = "agent:buyer".into();
        c
    };
    let mut r = approved();
    assert_eq!(said(&mut r, own("a-1")), Some(codes::COMMAND_REFUSED));
    assert_eq!(r.approval.as_ref().map(|a| a.id.as_str()), Some("a-0"));
    r.other_approver = false;
    assert_eq!(said(&mut r, own("a-2")), None, "the gate says that it may be");
}

/// If this broke, taking back an approval that was never used, or was replaced, would void the one that a person stands by; or
/// one that was taken back would be good again when it is redelivered.
#[test]
fn a_revoke_takes_back_the_approval_that_it_names_for_good() {
    let revoke = |named: &str, id: &str| {
        let mut c = approve(named, None, t(60));
        (c.kind, c.command_id) = (CommandKind::Revoke, id.into());
        c
    };
    let mut r = approved();
    said(&mut r, approve("a-1", None, t(60)));
    assert_eq!(said(&mut r, revoke("a-0", "v-0")), Some(codes::COMMAND_REFUSED));
    assert!(!r.revoked);
    assert_eq!(said(&mut r, revoke("a-1", "v-1")), None);
    assert!(r.revoked);
    let mut again = approve("a-1", None, t(60));
    again.command_id = "again".into();
    assert_eq!(said(&mut r, again), Some(codes::COMMAND_REFUSED));
    let Action::End(e) = decide(&r, &facts(), &rules(), t(0)) else { panic!() };
    assert_eq!(e.status, Status::Denied);
    assert_eq!(said(&mut r, approve("a-2", None, t(60))), None, "another one may be given");
    assert!(!r.revoked);
}

// ---- target version ----

fn failed(n: i32) -> Event {
    out(n, AnswerClass::PreconditionFailed)
}

/// If this broke, an effect would be repeated on a resource that has changed since its plan was made: the target said so.
#[test]
fn a_changed_resource_refuses_and_is_not_tried_again() {
    let r = run(&rules(), &[(1, failed(1))]);
    assert_eq!((r.end, r.code), (Some(Status::Refused), Some(i32::from(codes::PRECONDITION_FAILED.0))));
    assert_eq!(r.attempts.len(), 1);
}

/// If this broke, "it has changed" after a lost answer would be believed, although it was our own first send that changed it; or
/// it would raise a contradiction that is none; or be sent once more.
#[test]
fn it_has_changed_after_a_lost_answer_is_read_back() {
    let rules = Rules { refuses_copies: true, ..rules() };
    let twice = |events: &[(u64, Event)]| {
        let mut r = run(&rules, &[(2, out(1, AnswerClass::MaybeSent))]);
        send(&mut r, &rules, t(3));
        assert_eq!(r.attempts[1].warrants[0].kind, WarrantKind::TargetFence);
        for (at, e) in events {
            fold(&mut r, e.clone(), &rules, t(*at));
            rest(&mut r, &rules, t(*at));
        }
        r
    };
    let r = twice(&[(4, failed(2))]);
    assert_eq!((r.phase, r.attempts.len()), (Phase::Unknown, 2), "its own attempt only, and no third one");
    let r = twice(&[(4, failed(2)), read(5, one())]);
    assert_eq!((r.end, r.flags.len()), (Some(Status::Confirmed), 0));
    let r = twice(&[(4, failed(2)), read(30, Verdict::Absent)]);
    assert_eq!((r.end, r.code), (Some(Status::Refused), Some(i32::from(codes::PRECONDITION_FAILED.0))));
}

/// If this broke, the second of two copies that a proxy made would speak for the first: refused, although it was applied.
#[test]
fn behind_a_proxy_a_failed_precondition_is_no_proof() {
    let rules = Rules { no_intermediaries: false, ..rules() };
    let r = run(&rules, &[(1, failed(1))]);
    assert_eq!((r.phase, r.attempts[0].state), (Phase::Unknown, AttemptState::Maybe));
    assert_eq!(run(&rules, &[(1, failed(1)), read(2, one())]).end, Some(Status::Confirmed));
    let r = run(&rules, &[(1, failed(1)), read(30, Verdict::Absent)]);
    assert_eq!((r.end, r.attempts.len()), (Some(Status::Refused), 1), "settled, and still not tried again");
}

/// If this broke, a target that refuses every copy but one would hold back its lane for nothing.
#[test]
fn copies_that_are_refused_hold_back_nobody() {
    let mut r = run(&rules(), &[(2, out(1, AnswerClass::MaybeSent)), read(30, Verdict::Absent)]);
    (r.phase, r.end) = (Phase::Ended, Some(Status::Expired));
    assert!(rules().lane_opens_at(&r).is_some_and(|at| at > t(0)));
    let fenced = Rules { refuses_copies: true, ..rules() };
    assert!(fenced.lane_opens_at(&r).is_some_and(|at| at <= t(0)));
}

fn versioned() -> LedgerRecord {
    LedgerRecord { resource_version: Some("4".into()), ..queued() }
}

fn reads_version() -> Rules {
    Rules { version_read: true, ..rules() }
}

fn shown(r: &mut LedgerRecord, at: u64, what: Result<Option<&str>, &str>) {
    fold(r, Event::VersionAsked, &reads_version(), t(at));
    let shown = what.map(|v| v.map(str::to_owned)).map_err(str::to_owned);
    fold(r, Event::Version { at: t(at), shown }, &reads_version(), t(at));
}

/// If this broke, a call would be sent without a look at the version that its plan was made on, or on an old look.
#[test]
fn the_version_is_read_right_before_each_send() {
    let (rules, mut r) = (reads_version(), versioned());
    assert_eq!(decide(&r, &facts(), &rules, t(0)), Action::AskVersion);
    assert!(matches!(decide(&r, &Facts { reading: true, ..facts() }, &rules, t(0)), Action::Wait(Some(_))));
    assert!(matches!(decide(&r, &Facts { read_permit: false, ..facts() }, &rules, t(0)), Action::WaitForPermit(Some(_))));
    shown(&mut r, 0, Err("status 503"));
    assert!(matches!(decide(&r, &facts(), &rules, t(0)), Action::Wait(Some(_))), "later again");
    shown(&mut r, 1, Ok(Some("\"4\"")));
    assert_eq!(decide(&r, &facts(), &rules, t(2)), Action::Journal(vec![]));
    assert_eq!(decide(&r, &facts(), &rules, t(7)), Action::AskVersion, "that was too long ago");
    send(&mut r, &rules, t(2));
    fold(&mut r, out(1, AnswerClass::RetryLater), &rules, t(3));
    assert_eq!(decide(&r, &facts(), &rules, t(4)), Action::AskVersion, "each attempt asks anew");
}

/// If this broke, an approval given for version 4 would change version 5; or a changed version would be taken for a proof that an
/// earlier attempt did nothing (rule 10).
#[test]
fn another_version_forbids_and_proves_nothing() {
    let (rules, mut r) = (reads_version(), versioned());
    shown(&mut r, 0, Ok(Some("5")));
    let Action::End(e) = decide(&r, &facts(), &rules, t(0)) else { panic!() };
    assert_eq!((e.status, e.code), (Status::Denied, Some(codes::PRECONDITION_FAILED)));
    assert!(e.detail.is_some_and(|d| d.contains("version 4") && d.contains("version 5")));
    let mut gone = versioned();
    shown(&mut gone, 0, Ok(None));
    assert_eq!(gone.version_read.as_ref().map(|v| v.state), Some(VersionState::Other));

    let keyed = Rules { dedupe: Some(crate::contract::Retention::Forever), ..rules };
    let mut r = versioned();
    shown(&mut r, 0, Ok(Some("4")));
    send(&mut r, &keyed, t(0));
    fold(&mut r, out(1, AnswerClass::MaybeSent), &keyed, t(2));
    shown(&mut r, 3, Ok(Some("5")));
    assert_eq!(rest(&mut r, &keyed, t(3)), Action::Read, "no further send, and it goes on reading");
    assert_eq!((r.phase, r.end), (Phase::Unknown, None));
}

/// If this broke, an unknown would stay unread for as long as its resource shows no version, although its effect is there to see.
#[test]
fn a_version_that_is_not_shown_keeps_nobody_from_reading() {
    let keyed = Rules { dedupe: Some(crate::contract::Retention::Forever), ..reads_version() };
    let mut r = versioned();
    shown(&mut r, 0, Ok(Some("4")));
    send(&mut r, &keyed, t(0));
    fold(&mut r, out(1, AnswerClass::MaybeSent), &keyed, t(2));
    shown(&mut r, 3, Err("status 503"));
    assert_eq!(decide(&r, &facts(), &keyed, t(3)), Action::Read);
    fold(&mut r, read(3, one()).1, &keyed, t(3));
    rest(&mut r, &keyed, t(3));
    assert_eq!(r.end, Some(Status::Confirmed));
}

/// If this broke, the read of a version would be skipped by the stage, or a resource that has changed would be written to.
#[test]
fn the_stage_reads_the_version_first() {
    let versioned = || Intent { resource_version: Some("4".into()), ..intent("op-1") };
    let mut b = Bench::new(reads_version());
    b.outbox(&versioned());
    b.commit();
    assert_eq!(b.network.seen(), ["GET /resource"]);
    b.network.answer(0, 200, "4");
    b.step();
    assert_eq!(b.network.seen(), ["GET /resource", "POST /orders"]);

    let mut b = Bench::new(reads_version());
    b.outbox(&versioned());
    b.commit();
    b.network.answer(0, 503, "");
    b.step();
    b.replace(true);
    b.after(sec(2));
    assert_eq!(b.network.seen(), ["GET /resource", "GET /resource"], "a new owner asks again");
    b.network.answer(1, 200, "5");
    b.step();
    let r = b.ledger("op-1").unwrap();
    assert_eq!((r.end, r.code), (Some(Status::Denied), Some(i32::from(codes::PRECONDITION_FAILED.0))));
    b.after(sec(60));
    assert_eq!(b.network.posts(), 0);
}

// ---- force ----

fn parked() -> LedgerRecord {
    let nothing = Rules { lag: None, in_flight: None, ..rules() };
    let r = run(&nothing, &[(2, out(1, AnswerClass::MaybeSent))]);
    assert_eq!(r.phase, Phase::Parked);
    r
}

fn force(r: &mut LedgerRecord, at: WallTime) -> Option<Code> {
    let mut c = command(CommandKind::Force, "op-1", "f-1");
    (c.seen, c.second) = (Some(r.version), Some("second".into()));
    fold(r, Event::Command { command: Box::new(c), burned: vec![] }, &rules(), at).expect("answered").code
}

/// If this broke, a person could order what nobody may send any more, or would never learn that it was not sent.
#[test]
fn what_may_not_be_sent_may_not_be_forced() {
    assert_eq!(force(&mut parked(), t(3)), None);
    assert_eq!(force(&mut parked(), t(901)), Some(codes::COMMAND_REFUSED), "its deadline is over");
    assert_eq!(force(&mut LedgerRecord { cancelled: true, ..parked() }, t(3)), Some(codes::COMMAND_REFUSED));
    let mut r = parked();
    force(&mut r, t(3));
    let denied = Some(Denial { code: codes::DENIED, detail: "policy".into() });
    let action = decide(&r, &Facts { denied, ..facts() }, &rules(), t(3));
    assert!(matches!(action, Action::Park(codes::COMMAND_REFUSED, _)), "{action:?}");
    crate::effects::apply(&mut r, &action, now().wall);
    assert_eq!(r.forced_by, None, "it does not wait to be sent behind everybody's back");
}
