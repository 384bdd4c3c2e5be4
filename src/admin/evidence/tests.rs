//! What the version before has left in the changelogs is still evidence.

use crate::effects::LedgerRecord;
use crate::ids::OperationKey;
use crate::intents::{
    AckLevel, CallUndo, Command, CommandKind, Control, ControlKind, Cost, Decided, Deed, Input, ResultRecord, Status, UndoState,
    Via, WorkRequest, WrittenFor,
};
use crate::outbox::{OperationRecord, Output, Settings, Turn, Undoing};
use crate::serdes::internal::{Wire, decode, encode};
use crate::serdes::{Limits, ParsedSchema, avro};
use crate::time::WallTime;

/// A record as the version before would have written it: without what has been added since.
fn before<T: Wire>(record: &T) -> Vec<u8> {
    written_by(T::EARLIER[0].1, record)
}

/// A record as it was written under a schema that was released.
fn released<T: Wire>(copy: &str, record: &T) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas").join(copy);
    written_by(&std::fs::read_to_string(path).expect("a copy"), record)
}

fn written_by<T: Wire>(avsc: &str, record: &T) -> Vec<u8> {
    let schema = |avsc| ParsedSchema::parse(avsc).expect("a schema");
    let (now, earlier) = (schema(T::AVSC), schema(avsc));
    let bytes = encode(record).expect("encodes");
    let value = avro::decode_bare(&bytes, &now, &earlier, &Limits::default()).expect("the newer is read as the earlier");
    avro::encode_bare(&value, &earlier).expect("encodes")
}

fn command(id: &str) -> Command {
    Command {
        command_id: id.into(),
        kind: CommandKind::Cancel,
        tenant: "acme".into(),
        operation_id: "op-1".into(),
        step: None,
        seen: None,
        by: "mira@acme".into(),
        second: None,
        reason: "withdrawn".into(),
        evidence: None,
        resolution: None,
        approval: None,
        issued_at: WallTime(1),
        not_after: WallTime(2),
        via: Some(Via::Console),
    }
}

/// If this broke, an upgrade would stop at the first operation that the version before has left: its ledger could not be read.
#[test]
fn records_of_the_version_before_are_read() {
    let key = OperationKey { tenant: "acme".into(), operation: "op-1".into(), step: "pay".into() };
    let held = |commands: &[&str]| {
        let mut l = LedgerRecord::held(key.clone(), WallTime(9_000));
        l.held = commands.iter().map(|id| command(id)).collect();
        l.decisions.extend(Decided::by_command(&command("c-1"), WallTime(3)));
        l.handed_over_at = Some(WallTime(7));
        l
    };
    // Commands that overtook their operation are kept inside, and have grown as well.
    for commands in [&[][..], &["c-1"], &["c-1", "3f2a9d10-8c31-4f6e-9a53-4a4c0c0f4a11"]] {
        let new = held(commands);
        assert_eq!(decode::<LedgerRecord>(&encode(&new).expect("encodes")).expect("the newest"), new);
        assert_eq!(new.decisions[0].deed, Deed::Cancel);
        let mut old = new.clone();
        (old.decisions, old.handed_over_at) = (vec![], None);
        old.held.iter_mut().for_each(|c| c.via = None);
        assert_eq!(decode::<LedgerRecord>(&before(&new)).expect("the one before"), old, "{commands:?}");
    }
    let old = decode::<Command>(&before(&command("c-1"))).expect("the one before");
    assert_eq!(old, Command { via: None, ..command("c-1") }, "whoever gave it is not verified");
}

/// If this broke, an upgrade would stop at the first plan under way: at its record, an order on its way to an owner, or a result.
#[test]
fn plans_of_the_version_before_are_read() {
    let undo = CallUndo {
        id: "desk".into(),
        operation_id: "op-1.1.undo".into(),
        by: Some("cancel".into()),
        state: UndoState::Undone,
        detail: None,
    };
    let mut record = OperationRecord::admitted(request(), "pay".into(), None, "t/0/1".into(), WallTime(3));
    record.undo = Some(Undoing { stopped: true, calls: vec![undo.clone()] });
    assert_eq!(decode::<OperationRecord>(&encode(&record).expect("encodes")).expect("the newest"), record);
    let old = decode::<OperationRecord>(&released("operation-2.avsc", &record)).expect("the one before");
    assert_eq!(old, OperationRecord { undo: None, ..record }, "what was done of it stays, as was approved");

    let control = Control {
        kind: ControlKind::Command,
        tenant: "acme".into(),
        operation_id: "op-1".into(),
        step: "pay".into(),
        deadline: WallTime(9),
        command: Some(command("c-1")),
        hearsay: None,
        contract: None,
        identity_hash: None,
    };
    assert_eq!(decode::<Control>(&released("control-2.avsc", &control)).expect("the one before"), control);

    let settings = Settings::new(1, std::time::Duration::ZERO);
    let result = ResultRecord { undo: Some(vec![undo]), ..told(Turn::new(old, WallTime(4), &settings)) };
    let old = decode::<ResultRecord>(&released("result-1.avsc", &result)).expect("the one before");
    assert_eq!(old, ResultRecord { undo: None, ..result });
}

/// A state as the results topic has it.
fn told(mut turn: Turn<'_>) -> ResultRecord {
    turn.state(Status::Approved, AckLevel::Approved, None);
    match turn.out.pop() {
        Some(Output::Result(result)) => *result,
        other => panic!("no result: {other:?}"),
    }
}

fn request() -> WorkRequest {
    WorkRequest {
        operation_id: "op-1".into(),
        message_id: "m-1".into(),
        attempt_id: None,
        tenant: "acme".into(),
        requester: "agent:buyer".into(),
        resource: "order/7".into(),
        resource_version: None,
        action: "order.create".into(),
        input: Input::default(),
        deadline: WallTime(1_000),
        required_permissions: vec![],
        approval_ref: None,
        cost_estimate: Cost::default(),
        written_for: WrittenFor::default(),
        traceparent: None,
    }
}

/// If this broke, what is read as a version that it is not would be garbage, silently.
#[test]
fn the_earlier_schemas_are_those_that_were_released() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |p: std::path::PathBuf| std::fs::read_to_string(&p).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
    for file in std::fs::read_dir(root.join("schemas/earlier")).expect("is there").flatten() {
        let copy = root.join("tests/schemas").join(file.file_name());
        assert_eq!(read(file.path()), read(copy), "{:?}", file.file_name());
    }
}
