//! life.md 11–13: every command is answered, once, by the one who knows.

use super::*;
use crate::error::codes;

/// Rule 11 (shortest trace 13): if a command on an ended operation were not answered, its sender would wait for ever.
#[test]
fn life_11_ended_operations_answer() {
    needed(Rule::CommandsAnswered, |off| {
        let mut bed = Bed::without(plain(), off);
        bed.ask(request(INPUT));
        bed.closed(Status::Confirmed, 4);
        let out = bed.cancel("c-1");
        let ok = answers(&out).iter().any(|r| r.status == Status::Confirmed && r.version == Some(4));
        !ok
    });
}

/// Rule 11: if a repeat got another answer than the first, its sender could not tell what happened.
#[test]
fn life_11_a_repeat_gets_the_same_answer() {
    let mut bed = Bed::new(planned());
    bed.ask(request(INPUT));
    let out = bed.send(Event::Command(command("c-1", CommandKind::Resolve)));
    let first = answers(&out)[0].clone();
    bed.plan("nonsense");
    let out = bed.send(Event::Command(command("c-1", CommandKind::Resolve)));
    let again = answers(&out)[0];
    assert_eq!((again.ce_id(), again.status, &again.code), (first.ce_id(), first.status, &first.code));
    assert_eq!(first.ce_id(), "op-1/1/c-1");
}

/// Rule 11: a stale command is answered as such; a cancel carries no version, since it only forbids.
#[test]
fn life_11_a_stale_version_is_answered() {
    let mut bed = Bed::new(planned());
    bed.ask(request(INPUT));
    let out = bed.send(Event::Command(Command { seen: Some(7), ..command("c-1", CommandKind::Force) }));
    assert_eq!(answers(&out)[0].code, Some(codes::STALE_VERSION.to_string()));
    let out = bed.send(Event::Command(Command { seen: Some(7), ..command("c-2", CommandKind::Cancel) }));
    assert_eq!(states(&out), [Status::Cancelled]);
}

/// Rule 12 (shortest trace 6): a cancel that came before its request ends it before the model or the target is asked.
#[test]
fn life_12_a_held_cancel_meets_its_request() {
    let mut bed = Bed::new(planned());
    let held = vec![Signal::Command(command("c-1", CommandKind::Cancel))];
    let out = bed.send(Event::Intake(Box::new(intake(request(INPUT))), held));
    assert_eq!(states(&out), [Status::Accepted, Status::Cancelled]);
    assert_eq!(answers(&out)[0].answers.as_deref(), Some("c-1"));
    assert!(intents(&bed.all).is_empty());
}

/// Rule 12: held revocations count before held approvals, whichever came first.
#[test]
fn life_12_held_signals_are_taken_in_a_safe_order() {
    let mut bed = Bed::new(gated());
    bed.ask(request(INPUT));
    bed.plan(BIG);
    let hash = bed.plan_hash();
    let held = vec![
        Signal::Approval(approval("a-1", &hash, Decision::Approve)),
        Signal::Approval(approval("a-1", &hash, Decision::Revoke)),
    ];
    let mut bed = Bed::new(gated());
    bed.send(Event::Intake(Box::new(intake(request(INPUT))), held));
    bed.plan(BIG);
    assert!(effects(&bed.all).is_empty());
}

/// Rule 13: after the hand-over a cancel is the owner's to answer: here nobody knows whether it was in time.
#[test]
fn life_13_after_the_hand_over_a_cancel_is_forwarded() {
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    let out = bed.cancel("c-1");
    assert!(results(&out).is_empty());
    let Some(Output::Control(control, partition)) = out.first() else { panic!("a control record") };
    assert_eq!(*partition, partition_of(b"op-1", 4));
    assert_eq!((control.deadline, control.operation_id.as_str()), (DEADLINE, "op-1"));
}

/// C103: a cancel before anything was sent cancels; after the hand-over its outcome follows; after the end it is told the end.
#[test]
fn c103_a_cancel_never_says_more_than_is_known() {
    let mut bed = Bed::new(gated());
    bed.ask(request(INPUT));
    bed.plan(BIG);
    assert_eq!(states(&bed.cancel("c-1")), [Status::Cancelled]);
    assert!(effects(&bed.all).is_empty());

    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    assert!(states(&bed.cancel("c-1")).is_empty());
    bed.closed(Status::Confirmed, 4);
    let out = bed.cancel("c-2");
    assert_eq!(
        (answers(&out)[0].status, answers(&out)[0].code.clone()),
        (Status::Confirmed, Some(codes::COMMAND_REFUSED.to_string()))
    );
}

/// If this broke, people's commands would land in another partition than their operation.
#[test]
fn commands_go_to_the_partition_of_the_root() {
    use crate::outbox::commands::{CommandRecord, Order, cancel};
    let order = Order {
        tenant: None,
        operation_id: OperationId::new("op-1.undo"),
        step: None,
        seen: None,
        by: "approver".into(),
        second: None,
        via: None,
        reason: "why not".into(),
        evidence: None,
        at: WallTime(1),
        hold: Duration::from_secs(60),
    };
    let record = CommandRecord::new(&ApplicationId::new("orders"), 4, &cancel(order)).expect("encodes");
    assert_eq!(record.partition, partition_of(b"op-1", 4));
    assert_eq!(record.topic.as_str(), "orders-commands");
    assert_eq!(record.headers.text(headers::SCHEMA), Some("command/2"));
}
