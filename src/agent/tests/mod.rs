//! Tests of the operation record: the pure step by the numbers of `life.md`, and the task around it.

mod approvals;
mod calls;
mod cases;
mod commands;
mod hand_over;
mod identity;
mod like;
mod orders;
mod task;
mod undo;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::contract::Parameters;
use crate::ids::*;
use crate::intents::*;
use crate::outbox::*;
use crate::time::WallTime;

use super::*;

pub(super) const DEADLINE: WallTime = WallTime(600_000);
pub(super) const AUDIT: Duration = Duration::from_secs(3_600);

/// A contract that renders parameters as they are; its definition can be changed between calls.
#[derive(Default)]
pub(super) struct Fill {
    pub definition: Mutex<String>,
}

impl Renderer for Fill {
    fn render(
        &self,
        contract: &ContractName,
        _: &CallName,
        key: &OperationKey,
        p: &Parameters,
        _: Option<&str>,
    ) -> Result<Rendered, String> {
        if p.0.get("sku").is_some_and(|s| s == "bad") {
            return Err("sku does not match its pattern".into());
        }
        let body = Value::Object(p.0.clone()).to_string();
        Ok(Rendered {
            contract_version: 3,
            wire_key: WireKey::from(format!("key-{}", key.joined())),
            request: RenderedRequest {
                method: "POST".into(),
                path: format!("/{contract}"),
                body: Some(body.into_bytes()),
                ..Default::default()
            },
            look_at: None,
            definition: self.definition.lock().expect("no panic").clone(),
        })
    }
    fn confirms_by_answer(&self, _: &ContractName, _: &CallName) -> bool {
        false
    }
    fn undone_by(&self, contract: &ContractName, _: &CallName) -> Option<CallName> {
        (contract.as_str() == "orders").then(|| CallName::new("cancel"))
    }
}

/// A policy that forbids what it is told to.
#[derive(Default)]
pub(super) struct Forbid(pub Mutex<Option<String>>);

impl PolicyCheck for Forbid {
    fn allows(&self, _: &str, _: &Ask<'_>) -> Result<(), String> {
        self.0.lock().expect("no panic").clone().map_or(Ok(()), Err)
    }
}

pub(super) fn admit_rules() -> AdmitRules {
    AdmitRules {
        remember: AUDIT,
        max_input: 1_000,
        types: vec!["application/json".into()],
        locator_hosts: vec!["files.test".into()],
        max_deadline: Duration::from_secs(7_200),
        budgets: vec![],
    }
}

/// An effect alone.
pub(super) fn plain() -> Pipeline {
    Pipeline {
        step: StepName::new("place-order"),
        admit: admit_rules(),
        plan: None,
        gate: None,
        effect: EffectRules {
            does: Does::One(CallRules {
                contract: ContractName::new("orders"),
                call: CallName::new("create"),
                parameters: Arc::new(|v| {
                    let from = v.plan.or(v.input).cloned().unwrap_or(Value::Null);
                    Ok(Parameters(from.as_object().cloned().ok_or("no object")?))
                }),
                order_by: None,
            }),
            policy: Some("orders".into()),
            duplicates: None,
        },
    }
}

/// A model's plan, then the effect.
pub(super) fn planned() -> Pipeline {
    let schema = json!({"type": "object", "required": ["sku"], "additionalProperties": false,
        "properties": {"sku": {"type": "string"}, "total": {"type": "number"}}});
    let plan = PlanRules {
        step: StepName::new("plan"),
        contract: ContractName::new("model"),
        call: CallName::new("chat"),
        prompt_version: "buyer.v7".into(),
        prompt: "Buy well.".into(),
        proposal_schema: schema.to_string(),
        max: 1_000,
        parameters: Arc::new(|_| Ok(Parameters::default())),
    };
    Pipeline { plan: Some(plan), ..plain() }
}

/// A model's plan, a person's approval above 500, then the effect.
pub(super) fn gated() -> Pipeline {
    let gate = GateRules {
        step: StepName::new("gate"),
        required: Arc::new(|v| Ok(v.plan.and_then(|p| p["total"].as_f64()).unwrap_or(1e9) > 500.0)),
        expires: Duration::from_secs(120),
        other_than_requester: true,
    };
    Pipeline { gate: Some(gate), ..planned() }
}

pub(super) fn request(content: &str) -> WorkRequest {
    WorkRequest {
        operation_id: OperationId::new("op-1"),
        message_id: MessageId::new("m-1"),
        attempt_id: None,
        tenant: Tenant::new("acme"),
        requester: "agent:buyer".into(),
        resource: Resource::new("order/A-1"),
        resource_version: None,
        action: "order.create".into(),
        input: Input { media_type: "application/json".into(), inline: Some(content.into()), ..Default::default() },
        deadline: DEADLINE,
        required_permissions: vec![],
        approval_ref: None,
        cost_estimate: Cost { tokens: 100, bytes: 0, tool_calls: 1 },
        written_for: WrittenFor::default(),
        traceparent: None,
    }
}

pub(super) fn intake(request: WorkRequest) -> Intake {
    Intake { request, step: StepName::new("place-order"), ordering_key: None, origin: "requests/0/7".into() }
}

/// One operation under test.
pub(super) struct Bed {
    pub desk: Desk,
    pub fill: Arc<Fill>,
    pub forbid: Arc<Forbid>,
    pub record: Option<OperationRecord>,
    pub purse: Purse,
    pub now: WallTime,
    pub all: Vec<Output>,
}

impl Bed {
    pub fn new(pipeline: Pipeline) -> Self {
        Self::without(pipeline, None)
    }
    /// With one rule switched off.
    pub fn without(pipeline: Pipeline, weakened: Option<Rule>) -> Self {
        let (fill, forbid) = (Arc::new(Fill::default()), Arc::new(Forbid::default()));
        let mut settings = Settings::new(4, Duration::from_millis(500));
        settings.weakened = weakened;
        let desk = Desk::new(settings, vec![pipeline], fill.clone(), forbid.clone()).expect("a good pipeline");
        Self { desk, fill, forbid, record: None, purse: Purse::default(), now: WallTime(1_000), all: vec![] }
    }
    pub fn send(&mut self, event: Event) -> Vec<Output> {
        let advanced = advance(self.record.take(), event, &self.desk, &mut self.purse, self.now);
        self.record = advanced.record;
        self.all.extend(advanced.out.iter().cloned());
        advanced.out
    }
    pub fn ask(&mut self, request: WorkRequest) -> Vec<Output> {
        self.send(Event::Intake(Box::new(intake(request)), vec![]))
    }
    pub fn at(&mut self, now: WallTime) -> Vec<Output> {
        self.now = now;
        self.send(Event::Due)
    }
    pub fn hash(&self) -> IdentityHash {
        self.record.as_ref().expect("a record").identity_hash.clone()
    }
    pub fn plan_hash(&self) -> PlanHash {
        self.record.as_ref().and_then(|r| r.plan_hash.clone()).expect("a plan")
    }
    pub fn stage(&self) -> Option<Stage> {
        self.record.as_ref().map(|r| r.stage)
    }
    pub fn plan(&mut self, body: &str) -> Vec<Output> {
        let hash = self.hash();
        self.send(Event::Return(back(ReturnKind::PlanAnswer, "op-1.plan", "plan", hash, None, 2, Some(body))))
    }
    pub fn closed(&mut self, end: Status, version: i64) -> Vec<Output> {
        let hash = self.hash();
        let at = self.now;
        self.send(Event::Return(Return { at, ..back(ReturnKind::Closed, "op-1", "place-order", hash, Some(end), version, None) }))
    }
    pub fn gone(&mut self, operation: &str, step: &str) -> Vec<Output> {
        let hash = self.hash();
        self.send(Event::Return(back(ReturnKind::Gone, operation, step, hash, None, 9, None)))
    }
    pub fn cancel(&mut self, id: &str) -> Vec<Output> {
        self.send(Event::Command(command(id, CommandKind::Cancel)))
    }
}

pub(super) fn back(
    kind: ReturnKind,
    operation: &str,
    step: &str,
    identity_hash: IdentityHash,
    end: Option<Status>,
    version: i64,
    body: Option<&str>,
) -> Return {
    Return {
        kind,
        tenant: Tenant::new("acme"),
        operation_id: OperationId::new(operation),
        step: StepName::new(step),
        identity_hash,
        end,
        version,
        body: body.map(str::to_owned),
        cost: Cost::default(),
        at: WallTime(2_000),
    }
}

pub(super) fn command(id: &str, kind: CommandKind) -> Command {
    Command {
        command_id: CommandId::new(id),
        kind,
        tenant: Tenant::new("acme"),
        operation_id: OperationId::new("op-1"),
        step: None,
        seen: None,
        by: "approver".into(),
        second: None,
        reason: "wrong order".into(),
        evidence: None,
        resolution: None,
        approval: None,
        issued_at: WallTime(1_000),
        not_after: WallTime(50_000),
        via: None,
    }
}

pub(super) fn approval(id: &str, plan: &PlanHash, decision: Decision) -> Approval {
    Approval {
        approval_id: ApprovalId::new(id),
        tenant: Tenant::new("acme"),
        operation_id: OperationId::new("op-1"),
        plan_hash: plan.clone(),
        approver: "approver".into(),
        decision,
        expires_at: WallTime(500_000),
        policy_version: "v2".into(),
        reason: None,
    }
}

pub(super) fn results(out: &[Output]) -> Vec<&ResultRecord> {
    out.iter().filter_map(|o| if let Output::Result(r) = o { Some(&**r) } else { None }).collect()
}
pub(super) fn states(out: &[Output]) -> Vec<Status> {
    results(out).iter().filter(|r| r.kind == ResultKind::State).map(|r| r.status).collect()
}
pub(super) fn answers(out: &[Output]) -> Vec<&ResultRecord> {
    results(out).into_iter().filter(|r| r.kind != ResultKind::State).collect()
}
pub(super) fn intents(out: &[Output]) -> Vec<&Intent> {
    out.iter().filter_map(|o| if let Output::Intent(i, _) = o { Some(&**i) } else { None }).collect()
}
pub(super) fn effects(out: &[Output]) -> Vec<&Intent> {
    intents(out).into_iter().filter(|i| i.kind == IntentKind::Effect).collect()
}
pub(super) fn forwarded(out: &[Output]) -> Vec<&Command> {
    out.iter().filter_map(|o| if let Output::Control(c, _) = o { c.command.as_ref() } else { None }).collect()
}
pub(super) fn dead(out: &[Output]) -> Vec<&DeadLetter> {
    out.iter().filter_map(|o| if let Output::DeadLetter(d) = o { Some(&**d) } else { None }).collect()
}

/// The story must not go wrong, and must go wrong where the rule is switched off.
pub(super) fn needed(rule: Rule, goes_wrong: impl Fn(Option<Rule>) -> bool) {
    assert!(!goes_wrong(None), "went wrong with all rules on");
    assert!(goes_wrong(Some(rule)), "{rule:?} prevents nothing here");
}

pub(super) const BIG: &str = r#"{"sku":"A","total":700}"#;
pub(super) const SMALL: &str = r#"{"sku":"A","total":70}"#;
pub(super) const INPUT: &str = r#"{"sku":"A"}"#;
