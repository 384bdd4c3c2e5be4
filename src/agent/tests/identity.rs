//! life.md 2, 4, 5, 18 and admission.

use super::*;
use crate::error::codes;

/// If this broke, an effect without model and person would take more steps than admit, authorize, intent.
#[test]
fn a_plain_effect_is_accepted_and_handed_over_in_one_step() {
    let mut bed = Bed::new(plain());
    let out = bed.ask(request(INPUT));
    assert_eq!(states(&out), [Status::Accepted]);
    let intent = effects(&out)[0];
    assert_eq!((intent.version, intent.operation_id.as_str(), intent.plan_hash.clone()), (1, "op-1", None));
    assert_eq!(intent.ordering_key.as_str(), "op-1");
    assert_eq!(bed.stage(), Some(Stage::HandedOver));
    assert_eq!(results(&out)[0].ce_id(), format!("op-1/{}/1", &bed.hash().as_str()[..12]));
}

/// Rule 4: if identity were not looked up first, a repeated request beyond the budget would be throttled as if it were new.
#[test]
fn life_04_identity_comes_before_budget() {
    needed(Rule::IdentityFirst, |off| {
        let mut pipeline = planned();
        pipeline.admit.budgets = vec![BudgetRule { of: "tokens".into(), amount: 400, per: Duration::from_secs(3_600) }];
        let mut bed = Bed::without(pipeline, off);
        bed.ask(request(INPUT));
        let out = bed.ask(WorkRequest { message_id: MessageId::new("m-2"), ..request(INPUT) });
        !states(&out).is_empty() || answers(&out).len() != 1
    });
}

/// Rule 4: if a throttled or invalid message used up the ID, its requester could never come again.
#[test]
fn life_04_messages_leave_no_record() {
    let mut pipeline = plain();
    pipeline.admit.budgets = vec![BudgetRule { of: "tokens".into(), amount: 200, per: Duration::from_secs(3_600) }];
    let mut bed = Bed::new(pipeline);
    let out = bed.ask(request(INPUT));
    let throttled = answers(&out)[0];
    assert_eq!((throttled.status, throttled.version, throttled.ce_id().as_str()), (Status::Throttled, None, "op-1/m/m-1"));
    assert_eq!(throttled.topic_key(), "op-1/m/m-1");
    assert!(bed.record.is_none() && dead(&out).is_empty());

    let cheap = WorkRequest { cost_estimate: Cost { tokens: 10, bytes: 0, tool_calls: 1 }, ..request(INPUT) };
    assert_eq!(states(&bed.ask(cheap)), [Status::Accepted]);
}

/// If this broke, a request that breaks a rule of the envelope would be worked on, or would vanish without a reason.
#[test]
fn invalid_requests_go_to_the_dead_letters_with_a_code() {
    let wrong: Vec<(&str, WorkRequest)> = vec![
        ("separator", WorkRequest { operation_id: OperationId::new("op-1.plan"), ..request(INPUT) }),
        ("no tenant", WorkRequest { tenant: Tenant::new(""), ..request(INPUT) }),
        ("control", WorkRequest { tenant: Tenant::new("a\u{1f}b"), ..request(INPUT) }),
        ("far deadline", WorkRequest { deadline: WallTime(90_000_000), ..request(INPUT) }),
        ("size", request(&format!("{{\"sku\":\"{}\"}}", "A".repeat(2_000)))),
        ("type", WorkRequest { input: Input { media_type: "text/html".into(), ..request(INPUT).input }, ..request(INPUT) }),
        ("no input", WorkRequest { input: Input { inline: None, ..request(INPUT).input }, ..request(INPUT) }),
        ("parameters", request(r#"{"sku":"bad"}"#)),
        ("host", by_locator("https://evil.test/a")),
        ("scheme", by_locator("file:///etc/passwd")),
        ("credentials", by_locator("https://u:p@files.test/a")),
        ("cost", WorkRequest { cost_estimate: Cost { tokens: -1, bytes: 0, tool_calls: 0 }, ..request(INPUT) }),
    ];
    for (what, request) in wrong {
        let mut bed = Bed::new(plain());
        let out = bed.ask(request);
        assert!(bed.record.is_none(), "{what}");
        assert_eq!(answers(&out).iter().map(|r| r.status).collect::<Vec<_>>(), [Status::Invalid], "{what}");
        assert_eq!(dead(&out).iter().map(|d| d.code).collect::<Vec<_>>(), [codes::REQUEST_INVALID], "{what}");
    }
}

fn by_locator(locator: &str) -> WorkRequest {
    let input =
        Input { media_type: "application/json".into(), inline: None, locator: Some(locator.into()), sha256: Some("0".repeat(64)) };
    WorkRequest { input, ..request("") }
}

/// If this broke, an input by locator would be used before its bytes were proved, or a wrong one would use up the ID.
#[test]
fn an_input_by_locator_is_fetched_before_it_is_accepted() {
    let mut bed = Bed::new(plain());
    let out = bed.ask(by_locator("https://files.test/a.json"));
    assert!(states(&out).is_empty() && intents(&out).is_empty());
    assert!(out.iter().any(|o| matches!(o, Output::Fetch(_, 1_000))));
    let out = bed.send(Event::Fetched(Fetched::Text(INPUT.into())));
    assert_eq!(states(&out), [Status::Accepted]);
    assert_eq!(effects(&out).len(), 1);
    assert_eq!(effects(&out)[0].identity_hash, by_locator("https://files.test/a.json").identity());

    let mut bed = Bed::new(plain());
    bed.ask(by_locator("https://files.test/a.json"));
    let out = bed.send(Event::Fetched(Fetched::Unusable("other bytes".into())));
    assert_eq!(dead(&out)[0].code, codes::INPUT_MISMATCH);
    assert!(bed.record.is_none() && states(&out).is_empty());
}

/// Rule 5 (shortest trace 5): if an old request were only `expired`, one that had run before its record was deleted would be
/// told that it had not.
#[test]
fn life_05_older_than_its_record_is_stale() {
    needed(Rule::Stale, |off| {
        let mut bed = Bed::without(plain(), off);
        bed.now = DEADLINE.plus(AUDIT).plus(Duration::from_secs(1));
        let out = bed.ask(request(INPUT));
        let stale = answers(&out).iter().any(|r| r.status == Status::Stale) && dead(&out)[0].code == codes::REQUEST_STALE;
        !stale || bed.record.is_some()
    });
    let mut bed = Bed::new(plain());
    bed.now = DEADLINE.plus(Duration::from_secs(1));
    let out = bed.ask(request(INPUT));
    assert_eq!(states(&out), [Status::Expired], "in between it is expired");
    assert_eq!(dead(&out)[0].code, codes::REQUEST_EXPIRED);
    assert!(bed.record.is_some(), "and uses up its ID");
}

/// Rule 5 (shortest trace 6): if a conflict did not prolong the record's life, the conflicting request would come again after
/// it and run as new.
#[test]
fn life_05_a_conflict_prolongs_the_record() {
    needed(Rule::ConflictProlongs, |off| {
        let mut bed = Bed::without(planned(), off);
        bed.ask(request(INPUT));
        bed.cancel("c-1");
        bed.gone("op-1.plan", "plan");
        let later = WorkRequest { deadline: WallTime(5_000_000), ..request(r#"{"sku":"B"}"#) };
        bed.ask(later.clone());
        bed.at(DEADLINE.plus(AUDIT).plus(Duration::from_secs(2)));
        bed.ask(later);
        intents(&bed.all).iter().any(|i| i.identity_hash != request(INPUT).identity())
    });
}

/// Rule 5: if an absurd deadline of a conflicting request counted, anyone could keep a record for ever.
#[test]
fn a_conflict_prolongs_within_bounds() {
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    bed.ask(WorkRequest { deadline: WallTime(i64::MAX), ..request(r#"{"sku":"B"}"#) });
    let record = bed.record.expect("a record");
    assert_eq!(record.conflict_deadline, Some(WallTime(1_000 + 7_200_000)));
}

/// Rule 6: if the deadline came from arrival, a redelivery would have another hash or a fresh life.
#[test]
fn life_06_the_deadline_is_under_the_hash() {
    let later = WorkRequest { deadline: WallTime(700_000), ..request(INPUT) };
    assert_ne!(later.identity(), request(INPUT).identity());
    let mut bed = Bed::new(plain());
    bed.ask(request(INPUT));
    assert_eq!(answers(&bed.ask(later))[0].status, Status::Conflict);
}

/// Rule 18: unseen content under an ID whose record has expired is a new operation: an assumption that is printed.
#[test]
fn life_18_after_its_life_an_id_is_new() {
    let mut bed = Bed::new(planned());
    bed.ask(request(INPUT));
    bed.cancel("c-1");
    bed.gone("op-1.plan", "plan");
    bed.at(DEADLINE.plus(AUDIT).plus(Duration::from_secs(2)));
    assert!(bed.record.is_none());
    let out = bed.ask(WorkRequest { deadline: WallTime(6_000_000), ..request(INPUT) });
    assert_eq!(states(&out), [Status::Accepted]);
}

/// If this broke, what a cancelled operation did not use would stay charged, and its tenant would starve.
#[test]
fn budgets_settle_when_all_has_closed() {
    let mut pipeline = planned();
    pipeline.admit.budgets = vec![BudgetRule { of: "tokens".into(), amount: 400, per: Duration::from_secs(3_600) }];
    let mut bed = Bed::new(pipeline);
    bed.ask(request(INPUT));
    assert_eq!(bed.purse.buckets[0].left, 0);
    bed.cancel("c-1");
    let hash = bed.hash();
    let closed = back(ReturnKind::Closed, "op-1.plan", "plan", hash, Some(Status::Cancelled), 3, None);
    bed.send(Event::Return(Return { cost: Cost { tokens: 30, bytes: 0, tool_calls: 1 }, ..closed }));
    assert_eq!(bed.purse.buckets[0].left, 70);
}
