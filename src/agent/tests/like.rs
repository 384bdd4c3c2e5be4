//! Operations that mean the same: the second one waits for a person.

use super::*;
use crate::error::codes;

const WITHIN: Duration = Duration::from_secs(300);

fn guarded(pipeline: Pipeline) -> Pipeline {
    let duplicates = Some(DuplicateRules { within: WITHIN, wait: Duration::from_secs(60), by: None });
    Pipeline { effect: EffectRules { duplicates, ..pipeline.effect }, ..pipeline }
}

/// Operations and the keeper of their meanings, as the task joins them.
struct Meeting {
    off: Option<Rule>,
    pipeline: fn() -> Pipeline,
    beds: Vec<(String, Bed)>,
    keeper: std::collections::BTreeMap<String, Claims>,
    now: WallTime,
}

impl Meeting {
    fn of(pipeline: fn() -> Pipeline, off: Option<Rule>) -> Self {
        Self { off, pipeline, beds: vec![], keeper: Default::default(), now: WallTime(1_000) }
    }
    fn bed(&mut self, id: &str) -> &mut Bed {
        &mut self.beds.iter_mut().find(|(i, _)| i == id).expect("was asked").1
    }
    fn asks(&mut self, id: &str, change: impl Fn(&mut WorkRequest)) -> Vec<Output> {
        if !self.beds.iter().any(|(i, _)| i == id) {
            self.beds.push((id.into(), Bed::without(guarded((self.pipeline)()), self.off)));
        }
        let mut asked = WorkRequest { operation_id: OperationId::new(id), ..request(BIG) };
        change(&mut asked);
        self.happens(id, Event::Intake(Box::new(intake(asked)), vec![]))
    }
    fn happens(&mut self, id: &str, event: Event) -> Vec<Output> {
        let now = self.now;
        self.bed(id).now = now;
        let mut out = self.bed(id).send(event);
        let claims: Vec<Claim> =
            out.iter().filter_map(|o| if let Output::Claim(c) = o { Some((**c).clone()) } else { None }).collect();
        for claim in claims {
            out.extend(self.claims(&claim));
        }
        out
    }
    fn claims(&mut self, claim: &Claim) -> Vec<Output> {
        let kept = self.keeper.entry(claim.meaning.clone()).or_default();
        if claim.kind != ClaimKind::Claim {
            kept.ended(claim, self.now);
            return vec![];
        }
        let (earlier, hash) = (kept.claim(claim, self.now), claim.identity_hash.clone());
        let id = claim.operation_id.to_string();
        let body = earlier.as_ref().map(|e| e.as_str());
        let answer = back(ReturnKind::Compared, &id, "place-order", hash, None, 0, body);
        self.happens(&id, Event::Return(answer))
    }
    fn ends(&mut self, id: &str, end: Status) {
        let hash = self.bed(id).hash();
        let at = self.now;
        let closed = back(ReturnKind::Closed, id, "place-order", hash, Some(end), 9, None);
        self.happens(id, Event::Return(Return { at, ..closed }));
    }
    fn decides(&mut self, id: &str, decision: Decision) -> Vec<Output> {
        let hash = self.bed(id).plan_hash();
        let said = Approval { operation_id: OperationId::new(id), ..approval(&format!("a-{id}"), &hash, decision) };
        self.happens(id, Event::Approval(said))
    }
    fn sent(&self) -> usize {
        self.beds.iter().map(|(_, b)| effects(&b.all).len()).sum()
    }
}

/// If this broke, an agent that asks for the same order under a second ID would get two orders, and nobody would be asked.
#[test]
fn what_means_the_same_waits_for_a_person() {
    needed(Rule::OneMeaning, |off| {
        let mut m = Meeting::of(plain, off);
        m.asks("op-1", |_| ());
        m.asks("op-2", |_| ());
        m.sent() != 1
    });
    let mut m = Meeting::of(plain, None);
    m.asks("op-1", |_| ());
    let out = m.asks("op-2", |_| ());
    assert_eq!(states(&out), [Status::Accepted, Status::Planned, Status::AwaitingApproval]);
    let told = results(&out).pop().expect("a result");
    assert_eq!(told.code.as_deref(), Some(codes::SAME_MEANING.to_string().as_str()));
    assert!(told.detail.as_deref().is_some_and(|d| d.contains("op-1")), "the evidence: {told:?}");
    assert_eq!(states(&m.decides("op-2", Decision::Approve)), [Status::Approved]);
    assert_eq!(m.sent(), 2, "a person meant both");
}

/// If this broke, a denied one would be sent all the same, or would stand in the way of the next.
#[test]
fn a_denied_one_is_nobodys_earlier_operation() {
    let mut m = Meeting::of(plain, None);
    m.asks("op-1", |_| ());
    m.asks("op-2", |_| ());
    assert_eq!(states(&m.decides("op-2", Decision::Deny)), [Status::Denied]);
    m.ends("op-1", Status::Refused);
    m.asks("op-3", |_| ());
    assert_eq!(m.sent(), 2, "the first came to nothing, the second was denied: the third stands alone");
}

/// If this broke, the window would be none, or one without an end; what is under way would count for no longer than what is done.
#[test]
fn the_earlier_one_counts_while_it_is_under_way_and_a_while_after() {
    let mut m = Meeting::of(plain, None);
    m.asks("op-1", |_| ());
    m.now = WallTime(400_000);
    m.asks("op-2", |r| r.deadline = WallTime(5_000_000));
    assert_eq!(m.bed("op-2").stage(), Some(Stage::Waiting), "the first is still under way, beyond the window");
    m.decides("op-2", Decision::Deny);
    m.ends("op-1", Status::Confirmed);
    m.now = WallTime(699_999);
    m.asks("op-3", |r| r.deadline = WallTime(5_000_000));
    assert_eq!(m.bed("op-3").stage(), Some(Stage::Waiting));
    m.decides("op-3", Decision::Deny);
    m.now = WallTime(700_000);
    m.asks("op-4", |r| r.deadline = WallTime(5_000_000));
    assert_eq!(m.bed("op-4").stage(), Some(Stage::HandedOver));
}

/// If this broke, a redelivered request or a claim that is folded again after a crash would be its own duplicate.
#[test]
fn nothing_is_its_own_duplicate() {
    let mut m = Meeting::of(plain, None);
    m.asks("op-1", |_| ());
    m.asks("op-1", |r| r.message_id = MessageId::new("m-2"));
    assert_eq!((m.sent(), m.bed("op-1").stage()), (1, Some(Stage::HandedOver)));
    let claim = m.bed("op-1").all.iter().find_map(|o| if let Output::Claim(c) = o { Some((**c).clone()) } else { None });
    let kept = m.keeper.values_mut().next().expect("a meaning");
    assert_eq!(kept.claim(&claim.expect("a claim"), WallTime(2_000)), None);
    assert_eq!(kept.entries.len(), 1);
}

/// If this broke, other work would wait for nothing, or the same work in other spelling would pass.
#[test]
fn meanings_differ_by_tenant_resource_action_and_arguments_alone() {
    let differ: [fn(&mut WorkRequest); 5] = [
        |r| r.tenant = Tenant::new("other"),
        |r| r.resource = Resource::new("order/A-2"),
        |r| r.action = "order.change".into(),
        |r| r.input.inline = Some(r#"{"sku":"B","total":700}"#.into()),
        |r| r.input.inline = Some(r#"{"sku":"A","total":701}"#.into()),
    ];
    for (n, change) in differ.into_iter().enumerate() {
        let mut m = Meeting::of(plain, None);
        m.asks("op-1", |_| ());
        m.asks("op-2", change);
        assert_eq!(m.sent(), 2, "{n}");
    }
    let same: [fn(&mut WorkRequest); 3] = [
        |r| r.input.inline = Some(r#"{ "total": 700.0, "sku": " A " }"#.into()),
        |r| r.requester = "agent:other".into(),
        |r| r.input.inline = Some(r#"{"sku":"A","total":700,"note":null}"#.into()),
    ];
    for (n, change) in same.into_iter().enumerate() {
        let mut m = Meeting::of(plain, None);
        m.asks("op-1", |_| ());
        m.asks("op-2", change);
        assert_eq!(m.sent(), 1, "{n}");
    }
}

/// If an approval that was given before the likeness was seen counted, nobody would have looked at the earlier operation.
#[test]
fn an_approval_says_of_this_earlier_one_that_both_are_meant() {
    let mut m = Meeting::of(gated, None);
    for id in ["op-1", "op-2"] {
        m.asks(id, |r| r.input.inline = Some(INPUT.into()));
    }
    let plan = |m: &mut Meeting, id: &str| {
        let hash = m.bed(id).hash();
        let plan = back(ReturnKind::PlanAnswer, &format!("{id}.plan"), "plan", hash, None, 2, Some(BIG));
        m.happens(id, Event::Return(plan))
    };
    let alone = {
        let mut alone = Meeting::of(gated, None);
        alone.asks("op-2", |r| r.input.inline = Some(INPUT.into()));
        plan(&mut alone, "op-2");
        alone.bed("op-2").plan_hash()
    };
    let early = Approval { operation_id: OperationId::new("op-2"), ..approval("a-0", &alone, Decision::Approve) };
    m.happens("op-2", Event::Approval(early));
    plan(&mut m, "op-1");
    plan(&mut m, "op-2");
    assert_eq!((m.sent(), m.bed("op-2").stage()), (0, Some(Stage::Waiting)));
    m.decides("op-2", Decision::Approve);
    assert_eq!(m.sent(), 1);
}

/// If this broke, an operation that nobody decides on, or that is cancelled or late while it is compared, would stay for ever.
#[test]
fn waiting_and_comparing_end() {
    let mut m = Meeting::of(plain, None);
    m.asks("op-1", |_| ());
    m.asks("op-2", |_| ());
    m.now = WallTime(61_001);
    let out = m.happens("op-2", Event::Due);
    assert_eq!(results(&out)[0].detail.as_deref(), Some("nobody approved it within 1 min"));
    let mut bed = Bed::new(guarded(plain()));
    bed.ask(request(BIG));
    assert_eq!(bed.stage(), Some(Stage::Comparing));
    assert_eq!(states(&bed.at(DEADLINE)), [Status::Expired]);
    let mut bed = Bed::new(guarded(plain()));
    bed.ask(request(BIG));
    let out = bed.cancel("c-1");
    assert_eq!(states(&out), [Status::Cancelled]);
    assert!(out.iter().any(|o| matches!(o, Output::Claim(c) if c.kind == ClaimKind::Void)), "its claim is given back");
}
