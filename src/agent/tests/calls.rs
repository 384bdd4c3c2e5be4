//! Plans of several calls: each begins when what it needs has happened, under the one approval of the whole.

use std::collections::BTreeMap;

use super::*;

/// A model proposes orders and the order among them; above 500 in total a person approves.
pub(super) fn several() -> Pipeline {
    let plain = plain();
    let Does::One(order) = plain.effect.does else { panic!("one call") };
    let parameters: ViewFn<Parameters> =
        Arc::new(|v| Ok(Parameters(v.arguments.and_then(|a| a.as_object()).cloned().ok_or("no arguments")?)));
    let order = CallRules { parameters, ..order };
    let invoice = CallRules { contract: ContractName::new("billing"), ..order.clone() };
    let tools = BTreeMap::from([("order".to_owned(), order), ("invoice".to_owned(), invoice)]);
    let list: ViewFn<Value> = Arc::new(|v| Ok(v.plan.map_or(Value::Null, |p| p["calls"].clone())));
    let does = Does::Proposed(ToolRules { list, most: 4, tools, on_partial: OnPartial::Leave });
    let mut gated = gated();
    if let Some(plan) = &mut gated.plan {
        plan.proposal_schema = json!({"type": "object", "required": ["calls"]}).to_string();
    }
    Pipeline { effect: EffectRules { does, ..plain.effect }, ..gated }
}

pub(super) fn call(id: &str, needs: &[&str]) -> Value {
    json!({"id": id, "tool": "order", "arguments": {"sku": format!("SKU-{id}")}, "needs": needs})
}

/// `a`, then `b` and `c`, then `d`, which needs both.
pub(super) fn diamond(total: f64) -> String {
    json!({"total": total, "calls": [call("a", &[]), call("b", &["a"]), call("c", &["a"]), call("d", &["b", "c"])]}).to_string()
}

fn planned_with(total: f64, weakened: Option<Rule>) -> Bed {
    let mut bed = Bed::without(several(), weakened);
    bed.ask(request("{}"));
    bed.plan(&diamond(total));
    bed
}

/// The diamond under way: `a` has begun.
fn under_way() -> Bed {
    let mut bed = planned_with(700.0, None);
    let yes = approval("a-1", &bed.plan_hash(), Decision::Approve);
    bed.send(Event::Approval(yes));
    assert_eq!(bed.stage(), Some(Stage::Executing));
    bed
}

impl Bed {
    pub(super) fn call_closed(&mut self, n: u32, end: Status) -> Vec<Output> {
        let (hash, at) = (self.hash(), self.now);
        let id = format!("op-1.{n}");
        self.send(Event::Return(Return { at, ..back(ReturnKind::Closed, &id, "place-order", hash, Some(end), 3, None) }))
    }
    pub(super) fn ends(&self) -> Vec<Option<Status>> {
        self.record.as_ref().expect("a record").calls.iter().map(|c| c.end).collect()
    }
    pub(super) fn last(&self) -> &ResultRecord {
        results(&self.all).into_iter().rfind(|r| r.operation_id.as_str() == "op-1").expect("a result")
    }
    pub(super) fn begun(&self) -> Vec<String> {
        effects(&self.all).iter().map(|i| i.operation_id.to_string()).collect()
    }
}

fn ids(out: &[Output]) -> Vec<&str> {
    effects(out).iter().map(|i| i.operation_id.as_str()).collect()
}

/// effects.md 22, life.md 10: if this broke, a call would be sent before what it needs, or a part of the plan would be lost.
#[test]
fn calls_begin_when_what_they_need_has_happened() {
    let mut bed = under_way();
    assert_eq!(bed.begun(), ["op-1.1"]);
    let first = effects(&bed.all)[0].clone();
    assert_eq!((first.version, first.plan_hash.clone(), first.action.as_str()), (0, Some(bed.plan_hash()), "order"));
    assert_eq!(first.approval.as_ref().map(|a| a.id.as_str()), Some("a-1"), "all of the plan is under the one approval");
    assert_eq!(ids(&bed.call_closed(1, Status::Confirmed)), ["op-1.2", "op-1.3"]);
    assert!(ids(&bed.call_closed(2, Status::Confirmed)).is_empty(), "d needs c, too");
    assert_eq!(ids(&bed.call_closed(3, Status::Confirmed)), ["op-1.4"]);
    let out = bed.call_closed(4, Status::Confirmed);
    assert_eq!(states(&out), [Status::Confirmed]);
    assert_eq!((bed.stage(), bed.last().ack_level), (Some(Stage::Ended), AckLevel::Confirmed));
    assert_eq!(bed.last().detail.as_deref(), Some("4 done: a, b, c, d"));
    assert_eq!(bed.last().calls.as_ref().map(Vec::len), Some(4));
}

/// If this broke, a redelivered request, return or approval would make a call of a plan a second time.
#[test]
fn nothing_that_comes_again_makes_a_call_again() {
    let mut bed = under_way();
    let yes = approval("a-1", &bed.plan_hash(), Decision::Approve);
    bed.call_closed(1, Status::Confirmed);
    let begun = bed.begun();
    for event in [
        Event::Intake(Box::new(intake(request("{}"))), vec![]),
        Event::Approval(yes),
        Event::Due,
        Event::Return(back(ReturnKind::PlanAnswer, "op-1.plan", "plan", bed.hash(), None, 2, Some(&diamond(700.0)))),
    ] {
        bed.send(event);
        bed.call_closed(1, Status::Confirmed);
    }
    assert_eq!(bed.begun(), begun);
    let second = approval("a-2", &bed.plan_hash(), Decision::Approve);
    let out = bed.send(Event::Approval(second));
    assert_eq!(answers(&out)[0].code.as_deref(), Some("RB0240"), "an approval is spent once, by the parent");
}

/// If this broke, what was built on a call that never happened would be made, or nobody would learn why it was not.
#[test]
fn what_needs_a_call_that_did_not_happen_is_left_out() {
    for not in [Status::Refused, Status::Denied, Status::Expired, Status::Cancelled, Status::Superseded, Status::ResolvedNotApplied]
    {
        let mut bed = under_way();
        bed.call_closed(1, Status::Confirmed);
        assert!(ids(&bed.call_closed(2, not)).is_empty());
        let d = bed.record.as_ref().expect("a record").calls[3].clone();
        let words = format!("it needs b (op-1.2), which ended as {}", not.word());
        assert_eq!((d.end, d.code.as_deref(), d.detail), (Some(Status::Cancelled), Some("RB0713"), Some(words.clone())), "{not:?}");
        let told = results(&bed.all).into_iter().find(|r| r.operation_id.as_str() == "op-1.4").expect("its own result");
        assert_eq!((told.status, told.version, told.detail.as_deref()), (Status::Cancelled, Some(1), Some(words.as_str())));
        let out = bed.call_closed(3, Status::Confirmed);
        assert_eq!(states(&out), [Status::Partial], "{not:?}");
        assert_eq!(bed.last().code.as_deref(), Some("RB0714"));
        assert!(bed.last().detail.as_deref().is_some_and(|d| d.starts_with("2 done: a, c")), "{:?}", bed.last().detail);
    }
}

/// If this broke, a plan of which nothing was done would be called partly done, and could not be asked for again.
#[test]
fn a_plan_whose_first_call_is_refused_ends_as_refused() {
    let mut bed = under_way();
    let out = bed.call_closed(1, Status::Refused);
    assert_eq!(bed.ends(), [Some(Status::Refused), Some(Status::Cancelled), Some(Status::Cancelled), Some(Status::Cancelled)]);
    assert_eq!(states(&out).last(), Some(&Status::Refused));
    assert!(bed.last().detail.as_deref().is_some_and(|d| d.starts_with("4 not done: a (refused), b (cancelled)")));
}

/// If this broke, an unknown call would set its successors free, or they would wait for ever.
#[test]
fn behind_an_unknown_call_one_waits_until_the_deadline() {
    let mut bed = under_way();
    assert_eq!(bed.record.as_ref().and_then(|r| r.due(&bed.desk.settings)), Some(DEADLINE));
    assert!(bed.at(WallTime(DEADLINE.0 - 1)).is_empty());
    let out = bed.at(DEADLINE);
    assert!(ids(&out).is_empty());
    assert_eq!(bed.ends(), [None, Some(Status::Expired), Some(Status::Expired), Some(Status::Expired)]);
    let b = &bed.record.as_ref().expect("a record").calls[1];
    assert_eq!(b.detail.as_deref(), Some("the deadline passed while it waited for a"));
    assert_eq!(bed.stage(), Some(Stage::Executing), "a may have happened, so the whole has no end yet");
    bed.call_closed(1, Status::ResolvedApplied);
    assert_eq!(bed.last().status, Status::Partial);
    assert_eq!(
        bed.last().detail.as_deref(),
        Some("1 done: a (resolved applied) · 3 not done: b (expired), c (expired), d (expired)")
    );
}

/// effects.md 22: if this broke, an approval would cover other bytes than were shown: another call, another order, another tool.
#[test]
fn the_plans_hash_is_over_every_call_and_what_it_needs() {
    let hash = |body: String| {
        let mut bed = Bed::new(several());
        bed.ask(request("{}"));
        bed.plan(&body);
        bed.plan_hash()
    };
    let plan = |calls: Value| json!({"total": 700, "calls": calls}).to_string();
    let mut all = vec![
        hash(plan(json!([call("a", &[]), call("b", &[])]))),
        hash(plan(json!([call("a", &[]), call("b", &["a"])]))),
        hash(plan(json!([call("b", &[]), call("a", &[])]))),
        hash(plan(json!([call("a", &[])]))),
    ];
    let mut invoice = call("b", &[]);
    invoice["tool"] = json!("invoice");
    all.push(hash(plan(json!([call("a", &[]), invoice]))));
    let mut other = call("b", &[]);
    other["arguments"]["sku"] = json!("SKU-9");
    all.push(hash(plan(json!([call("a", &[]), other]))));
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
    let waiting = planned_with(700.0, None);
    let shown = waiting.last().calls.as_ref().expect("all calls are shown to whoever approves");
    assert_eq!(shown.iter().map(|c| c.operation_id.as_str()).collect::<Vec<_>>(), ["op-1.1", "op-1.2", "op-1.3", "op-1.4"]);
    assert!(effects(&waiting.all).is_empty());
}

/// If this broke, a deploy in the middle of a plan would send what nobody approved.
#[test]
fn a_changed_tool_voids_what_has_not_begun() {
    let story = |off: Option<Rule>| {
        let mut bed = planned_with(700.0, off);
        let yes = approval("a-1", &bed.plan_hash(), Decision::Approve);
        bed.send(Event::Approval(yes));
        *bed.fill.definition.lock().expect("no panic") = "another".into();
        bed.call_closed(1, Status::Confirmed);
        bed
    };
    let bed = story(None);
    assert_eq!(bed.begun(), ["op-1.1"]);
    assert_eq!(bed.ends(), [Some(Status::Confirmed), Some(Status::Denied), Some(Status::Denied), Some(Status::Cancelled)]);
    assert_eq!(bed.last().status, Status::Partial);
    assert_ne!(story(Some(Rule::PlanHolds)).begun(), ["op-1.1"], "the rule is what holds it back");
    assert_eq!(planned_with(10.0, Some(Rule::NeedsFirst)).begun().len(), 4, "without the other rule all begin at once");
}

/// If this broke, a call would begin on an approval that has run out or was taken back, or that policy forbids by now.
#[test]
fn approval_and_policy_are_asked_again_for_each_call() {
    let mut late = under_way();
    late.now = WallTime(1_000 + 120_000);
    assert!(ids(&late.call_closed(1, Status::Confirmed)).is_empty(), "the gate gave it 120 s");
    assert_eq!(late.ends()[1], Some(Status::Denied));

    let mut forbidden = under_way();
    *forbidden.forbid.0.lock().expect("no panic") = Some("policy: closed".into());
    assert!(ids(&forbidden.call_closed(1, Status::Confirmed)).is_empty());
    assert_eq!(forbidden.record.as_ref().and_then(|r| r.calls[1].detail.as_deref()), Some("policy: closed"));

    let mut revoked = under_way();
    let back = approval("a-1", &revoked.plan_hash(), Decision::Revoke);
    let out = revoked.send(Event::Approval(back));
    assert_eq!(
        forwarded(&out).iter().map(|c| (c.kind, c.operation_id.as_str())).collect::<Vec<_>>(),
        [(CommandKind::Revoke, "op-1.1")]
    );
    assert_eq!(revoked.ends(), [None, Some(Status::Denied), Some(Status::Denied), Some(Status::Denied)]);
    assert!(ids(&revoked.call_closed(1, Status::Confirmed)).is_empty());
    assert_eq!(revoked.last().status, Status::Partial);
}

/// If this broke, a plan would begin of which a later call is forbidden already.
#[test]
fn what_policy_forbids_now_is_denied_while_nothing_was_done() {
    let mut bed = planned_with(700.0, None);
    *bed.forbid.0.lock().expect("no panic") = Some("policy: closed".into());
    let yes = approval("a-1", &bed.plan_hash(), Decision::Approve);
    bed.send(Event::Approval(yes));
    assert_eq!((bed.last().status, bed.begun().len()), (Status::Denied, 0));
    assert!(bed.last().calls.iter().flatten().all(|c| c.end == Some(Status::Denied)));
}

/// life.md 13: if this broke, a cancelled plan would go on, or the order would never be answered.
#[test]
fn a_cancel_ends_what_is_clean_and_is_answered_at_the_end() {
    let mut bed = under_way();
    let out = bed.cancel("c-1");
    assert!(answers(&out).is_empty(), "what becomes of a is not known yet");
    let sent = forwarded(&out);
    assert_eq!(
        sent.iter().map(|c| (c.kind, c.operation_id.as_str(), c.by.as_str())).collect::<Vec<_>>(),
        [(CommandKind::Cancel, "op-1.1", "")]
    );
    assert_eq!(bed.ends(), [None, Some(Status::Cancelled), Some(Status::Cancelled), Some(Status::Cancelled)]);
    assert!(forwarded(&bed.cancel("c-1")).is_empty(), "a repeat orders nothing new");
    let out = bed.call_closed(1, Status::Cancelled);
    assert_eq!(states(&out), [Status::Cancelled]);
    let told = answers(&out);
    assert_eq!((told.len(), told[0].answers.as_deref(), told[0].status), (1, Some("c-1"), Status::Cancelled));

    let mut last = under_way();
    for n in 1..=3 {
        last.call_closed(n, Status::Confirmed);
    }
    last.cancel("c-2");
    let out = last.call_closed(4, Status::Confirmed);
    assert_eq!(states(&out), [Status::Confirmed]);
    assert_eq!(answers(&out)[0].code.as_deref(), Some("RB0710"), "it came too late, and that is said");
}

/// If this broke, a person could not stop one call that waits, or an order to it would get no answer.
#[test]
fn commands_reach_each_call_by_its_own_id() {
    let mut bed = under_way();
    let to = |id: &str, kind, op: &str| Event::Command(Command { operation_id: OperationId::new(op), ..command(id, kind) });
    let out = bed.send(to("c-1", CommandKind::Query, "op-1.1"));
    assert_eq!(forwarded(&out).len(), 1, "its owner answers");
    let out = bed.send(to("c-2", CommandKind::Resolve, "op-1.2"));
    assert_eq!(answers(&out)[0].code.as_deref(), Some("RB0710"));
    let out = bed.send(to("c-3", CommandKind::Cancel, "op-1.2"));
    assert_eq!(answers(&out).len(), 1);
    assert_eq!(bed.ends(), [None, Some(Status::Cancelled), None, Some(Status::Cancelled)], "d needs b");
    let out = bed.send(to("c-4", CommandKind::Resolve, "op-1"));
    assert!(answers(&out)[0].detail.as_deref().is_some_and(|d| d.contains("name the one")), "the whole has no outcome of its own");
    let out = bed.send(to("c-5", CommandKind::Cancel, "op-1.9"));
    assert_eq!(answers(&out)[0].code.as_deref(), Some("RB0708"));
}

/// If this broke, a plan that is no graph would wait for an approval, and then for ever.
#[test]
fn a_proposal_that_is_no_graph_fails_its_plan() {
    let failed = |calls: Value| {
        let mut bed = Bed::new(several());
        bed.ask(request("{}"));
        bed.plan(&json!({"total": 700, "calls": calls}).to_string());
        let last = bed.last();
        assert_eq!((last.status, last.code.as_deref()), (Status::PlanFailed, Some("RB0706")));
        last.detail.clone().unwrap_or_default()
    };
    assert!(failed(json!([call("a", &["b"]), call("b", &["a"])])).contains("needs itself"));
    assert!(failed(json!([{"id": "a", "tool": "drop-tables"}])).contains("a tool that is not declared"));
    let mut bad = call("b", &[]);
    bad["arguments"]["sku"] = json!("bad");
    assert!(failed(json!([call("a", &[]), bad])).contains("call b: sku does not match its pattern"));
}

/// If this broke, the parent's record would go while a call's answer could still come, and the call would be unknown to commands.
#[test]
fn the_parent_outlives_its_calls() {
    let mut bed = under_way();
    for n in 1..=4 {
        bed.call_closed(n, Status::Confirmed);
    }
    let life = WallTime(DEADLINE.0 + 100 * 60_000 * 1_000);
    bed.gone("op-1.plan", "plan");
    for n in 1..=3 {
        bed.gone(&format!("op-1.{n}"), "place-order");
    }
    bed.at(life);
    assert!(bed.record.is_some(), "op-1.4 is in the ledger");
    bed.gone("op-1.4", "place-order");
    bed.at(life);
    assert!(bed.record.is_none());
}
