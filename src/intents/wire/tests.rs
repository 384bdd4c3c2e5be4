//! The embedded schemas against the records.

use super::*;
use crate::ids::{IdentityHash, OperationId, StepName, Tenant};
use crate::intents::*;
use crate::serdes::internal::{decode, encode};
use crate::serdes::{Limits, ParsedSchema, avro};
use crate::time::WallTime;

fn back<T: Wire + PartialEq + std::fmt::Debug>(record: &T) {
    let bytes = encode(record).expect(T::SCHEMA);
    assert_eq!(&decode::<T>(&bytes).expect(T::SCHEMA), record);
    let schema = ParsedSchema::parse(T::AVSC).expect("a schema");
    let value = avro::decode_bare(&bytes, &schema, &schema, &Limits::default()).expect("the generic decoder reads it too");
    assert_eq!(avro::encode_bare(&value, &schema).expect("and writes it"), bytes, "{value}");
    // What is cut off is an error, but where an earlier version of it would have ended: those are still read.
    let earlier: Vec<_> = T::EARLIER.iter().map(|(_, avsc)| ParsedSchema::parse(avsc).expect("a schema")).collect();
    for cut in 0..bytes.len() {
        let whole = |s: &ParsedSchema| avro::decode_bare(&bytes[..cut], s, s, &Limits::default()).is_ok();
        assert!(decode::<T>(&bytes[..cut]).is_err() || earlier.iter().any(whole), "{} cut at {cut}", T::SCHEMA);
    }
}

fn some<T: Clone>(full: bool, value: T) -> Option<T> {
    full.then_some(value)
}

fn text(full: bool, value: &str) -> Option<String> {
    full.then(|| value.to_owned())
}

fn request(full: bool) -> WorkRequest {
    WorkRequest {
        operation_id: "op-1".into(),
        message_id: "m-1".into(),
        attempt_id: text(full, "2"),
        tenant: "acme".into(),
        requester: "agent:buyer".into(),
        resource: "order/7".into(),
        resource_version: text(full, "v3"),
        action: "order.create".into(),
        input: Input {
            media_type: "application/json".into(),
            inline: text(full, "{\"a\":\"ü\"}"),
            locator: None,
            sha256: text(full, "00"),
        },
        deadline: WallTime(if full { -7_001 } else { 1_700_000_000_000 }),
        required_permissions: if full { vec!["a".into(), "b".into()] } else { vec![] },
        approval_ref: some(full, "ap-1".into()),
        cost_estimate: Cost { tokens: i64::MAX, bytes: -1, tool_calls: 0 },
        written_for: WrittenFor { topology: text(full, "3"), prompt: None, tools: text(full, "1") },
        traceparent: text(full, "00-ab-cd-01"),
    }
}

fn approval(full: bool) -> Approval {
    Approval {
        approval_id: "ap-1".into(),
        tenant: "acme".into(),
        operation_id: "op-1".into(),
        plan_hash: "ff".into(),
        approver: "kim".into(),
        decision: Decision::Revoke,
        expires_at: WallTime(5),
        policy_version: "p1".into(),
        reason: text(full, "why"),
    }
}

fn command(full: bool, kind: CommandKind) -> Command {
    Command {
        command_id: "c-1".into(),
        kind,
        tenant: "".into(),
        operation_id: "op-1".into(),
        step: some(full, "pay".into()),
        seen: some(full, 4),
        by: "kim".into(),
        second: text(full, "lee"),
        reason: "r".into(),
        evidence: text(full, "looked"),
        resolution: some(full, Resolution::NotApplied),
        approval: some(full, approval(true)),
        issued_at: WallTime(1),
        not_after: WallTime(2),
        via: some(full, Via::Console),
    }
}

fn call(full: bool) -> PlanCall {
    PlanCall {
        id: "desk".into(),
        operation_id: "op-1.1".into(),
        tool: "order".into(),
        contract: "orders".into(),
        call: "create".into(),
        needs: if full { vec!["lamp".into()] } else { vec![] },
        state: if full { CallState::Ended } else { CallState::Waiting },
        end: some(full, Status::Cancelled),
        code: text(full, "RB0713"),
        detail: text(full, "it needs lamp"),
    }
}

fn undo(full: bool) -> CallUndo {
    CallUndo {
        id: "desk".into(),
        operation_id: "op-1.1.undo".into(),
        by: some(full, "cancel".into()),
        state: if full { UndoState::Stays } else { UndoState::NotOrdered },
        detail: text(full, "its ledger record is gone"),
    }
}

fn intent(full: bool) -> Intent {
    Intent {
        tenant: "acme".into(),
        operation_id: "op-1".into(),
        step: "pay".into(),
        identity_hash: "aa".into(),
        version: 3,
        kind: if full { IntentKind::Proposal } else { IntentKind::Effect },
        contract: "orders".into(),
        contract_version: 2,
        call: "create".into(),
        ordering_key: "k".into(),
        wire_key: "w".into(),
        request: RenderedRequest {
            method: "POST".into(),
            path: "/orders".into(),
            query: "".into(),
            headers: vec![Pair { name: "a".into(), value: "b".into() }],
            body: some(full, vec![0, 255, 7]),
        },
        parameters: "{}".into(),
        deadline: WallTime(9),
        created_at: WallTime(8),
        requester: "r".into(),
        action: "a".into(),
        resource: "x".into(),
        resource_version: None,
        required_permissions: vec![],
        plan_hash: some(full, "ff".into()),
        approval: some(
            full,
            ApprovalUse {
                id: "ap".into(),
                approver: "kim".into(),
                plan_hash: "ff".into(),
                expires_at: WallTime(7),
                policy_version: "p".into(),
            },
        ),
        other_approver: true,
        cost: Cost::default(),
        look_at: None,
        traceparent: None,
    }
}

/// If this broke, a record would not come back from its topic as it was written: each type, with all optional fields and none.
#[test]
fn every_record_comes_back() {
    let (tenant, operation_id, step) = (Tenant::new("acme"), OperationId::new("op-1"), StepName::new("pay"));
    for full in [true, false] {
        back(&request(full));
        back(&Intake { request: request(full), step: step.clone(), ordering_key: some(full, "k".into()), origin: "t/0/1".into() });
        back(&approval(full));
        back(&intent(full));
        let hearsay = Hearsay {
            attempt: 2,
            token: "t".into(),
            class: AnswerClass::KeyConflict,
            status: some(full, 409),
            digest: text(full, "d"),
            reference: None,
            seen_at: WallTime(3),
        };
        back(&Control {
            kind: ControlKind::Hearsay,
            tenant: tenant.clone(),
            operation_id: operation_id.clone(),
            step: step.clone(),
            deadline: WallTime(1),
            command: some(full, command(true, CommandKind::Force)),
            hearsay: some(full, hearsay),
            contract: some(full, "orders".into()),
            identity_hash: some(full, "aa".into()),
        });
        back(&Return {
            kind: ReturnKind::Gone,
            tenant: tenant.clone(),
            operation_id: operation_id.clone(),
            step: step.clone(),
            identity_hash: IdentityHash::new("aa"),
            end: some(full, Status::ResolvedNotApplied),
            version: 7,
            body: text(full, "plan"),
            cost: Cost::default(),
            at: WallTime(4),
        });
        back(&ResultRecord {
            kind: ResultKind::OrphanHearsay,
            tenant: tenant.clone(),
            operation_id: operation_id.clone(),
            step: some(full, step.clone()),
            resource: some(full, "x".into()),
            status: Status::AwaitingApproval,
            ack_level: AckLevel::Confirmed,
            version: some(full, 1),
            identity_hash: some(full, "aa".into()),
            code: text(full, "RB0231"),
            detail: None,
            flags: if full { vec![Flag::CancelTooLate, Flag::DuplicateSuspected] } else { vec![] },
            attempts: 1,
            evidence: None,
            reference: text(full, "order-9"),
            plan_hash: None,
            calls: full.then(|| vec![call(true), call(false)]),
            answers: text(full, "m-1"),
            at: WallTime(1),
            undo: full.then(|| vec![undo(true), undo(false)]),
        });
    }
    for kind in [CommandKind::Cancel, CommandKind::Resolve, CommandKind::ReleaseLane, CommandKind::ApproveLate, CommandKind::Query]
    {
        back(&command(kind == CommandKind::Resolve, kind));
    }
}
