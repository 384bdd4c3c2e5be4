//! Public cases about identity, expiry and repeats. Approvals and cancels have theirs beside their rules.

use super::*;
use crate::error::codes;

fn other() -> WorkRequest {
    WorkRequest { message_id: MessageId::new("m-2"), ..request(r#"{"sku":"B"}"#) }
}

/// C088: the same operation ID with other content must not get the first one's success, whether the first runs or has ended.
#[test]
fn c088_other_content_is_a_conflict_and_the_first_goes_on() {
    let running = |bed: &mut Bed| {
        bed.ask(request(INPUT));
    };
    let finished = |bed: &mut Bed| {
        bed.ask(request(INPUT));
        bed.closed(Status::Confirmed, 4);
    };
    for first in [&running as &dyn Fn(&mut Bed), &finished] {
        let mut bed = Bed::new(plain());
        first(&mut bed);
        let out = bed.ask(other());
        assert_eq!(answers(&out)[0].status, Status::Conflict);
        assert_eq!(answers(&out)[0].ce_id(), "op-1/m/m-2");
        assert_eq!((dead(&out)[0].code, dead(&out)[0].request.message_id.as_str()), (codes::REQUEST_CONFLICT, "m-2"));
        assert!(forwarded(&out).is_empty(), "nothing of it reaches the owner");
        assert_eq!(effects(&bed.all).len(), 1);
    }
}

/// C089: a resubmitted, finished operation must be answered at once from its stored end, not wait for a signal long given.
#[test]
fn c089_a_finished_operation_answers_at_once() {
    let mut bed = Bed::new(gated());
    bed.ask(request(INPUT));
    bed.plan(BIG);
    bed.send(Event::Approval(approval("a-1", &PlanHash::new(""), Decision::Deny)));
    for n in 0..3 {
        bed.now = WallTime(3_600_000);
        let again = WorkRequest { message_id: MessageId::from(format!("m-{n}")), ..request(INPUT) };
        let out = bed.ask(again);
        assert_eq!(answers(&out)[0].status, Status::Denied);
        assert_eq!(answers(&out)[0].ce_id(), format!("op-1/4/m-{n}"));
        assert_eq!(out.len(), 1);
    }
}

/// C091: work that expires while it waits must say so in a result of its own, with the reason.
#[test]
fn c091_expired_work_says_what_it_waited_for() {
    let mut bed = Bed::new(planned());
    bed.ask(request(INPUT));
    let out = bed.at(DEADLINE);
    assert_eq!(states(&out), [Status::Expired]);
    assert_eq!(results(&out)[0].code, Some(codes::EXPIRED.to_string()));
    assert_eq!(results(&out)[0].detail.as_deref(), Some("the deadline passed while it waited for its plan"));
    assert!(effects(&bed.all).is_empty());
}

/// C098: a retry under the same business key with a fresh call ID must not double the effect; re-worded arguments are held up
/// as a conflict for a person.
#[test]
fn c098_a_fresh_call_id_does_not_double_the_effect() {
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    let fresh = WorkRequest {
        message_id: MessageId::new("m-2"),
        attempt_id: Some("call-77".into()),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..request(INPUT)
    };
    let out = bed.ask(fresh);
    let query = forwarded(&out)[0];
    assert_eq!((query.kind, query.command_id.as_str()), (CommandKind::Query, "m-2"));
    assert_eq!(answers(&bed.ask(other()))[0].status, Status::Conflict);
    assert_eq!(effects(&bed.all).len(), 1);
}
