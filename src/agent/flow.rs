//! The way from an admitted request to its intent: plan, gate, authorize. Pure.

use crate::error::codes;
use crate::ids::PlanHash;
use crate::intents::{
    AckLevel, Approval, ApprovalUse, Command, CommandKind, Decided, PolicyWord, RenderedRequest, Return, Status, Via,
};
use crate::outbox::{Ask, Does, Planning, Rule, Stage, Why, cut};

use super::desk::{Made, Ready, Seen};
use super::gate::{self, Standing};
use super::proposal::plan_hash;
use super::step::Step;

impl Step<'_> {
    // ---- plan ----

    pub(super) fn plan(&mut self) {
        let Some(bench) = self.bench else { return self.no_pipeline() };
        match self.desk.plan_call(bench, &self.turn.record) {
            Ok(Some(ready)) => {
                self.turn.record.planning = bench.pipeline.plan.as_ref().map(|rules| Planning {
                    asked_at: self.turn.now,
                    model: model_of(&ready.rendered.request),
                    prompt: rules.prompt_version.clone(),
                    cost: None,
                });
                self.turn.intend(ready.call, ready.rendered, None);
            }
            Ok(None) => self.planned(),
            Err(words) => self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words)),
        }
    }

    fn no_pipeline(&mut self) {
        let words = format!("the topology has no effect step {} any more", self.turn.record.step);
        self.turn.end(Status::PlanFailed, Why::new(codes::UNKNOWN_REFERENCE, words));
    }

    pub(super) fn plan_answer(&mut self, back: &Return) -> bool {
        let waits = self.turn.record.stage == Stage::Planning
            || (self.turn.record.stage == Stage::Waiting && !self.turn.settings.on(Rule::FirstPlanWins));
        if !waits {
            return true;
        }
        let Some((rules, schema)) = self.bench.and_then(|b| Some((b.pipeline.plan.as_ref()?, b.proposal.as_ref()?))) else {
            self.no_pipeline();
            return true;
        };
        if let Some(planning) = &mut self.turn.record.planning {
            planning.cost = Some(back.cost);
        }
        match schema.read(back.body.as_deref(), rules.max) {
            Ok(proposal) => {
                self.turn.record.proposal = Some(proposal);
                self.planned();
            }
            Err(why) => {
                self.turn.end(Status::PlanFailed, why);
                return self.turn.settings.on(Rule::PlanFailedUsesId);
            }
        }
        true
    }

    /// The arguments are known: where the step compares meanings, that comes before anybody is asked to approve.
    fn planned(&mut self) {
        let Some(bench) = self.bench else { return self.no_pipeline() };
        let Some(rules) = &bench.pipeline.effect.duplicates else { return self.go_on() };
        match self.effect() {
            Ok((made, seen)) => self.compare(rules, &made, &seen),
            Err(words) => self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words)),
        }
    }

    /// Renders the effect, which makes the plan: proposal, bytes and hash.
    pub(super) fn go_on(&mut self) {
        let Some(bench) = self.bench else { return self.no_pipeline() };
        let alone = self.turn.record.earlier().is_none() && matches!(bench.pipeline.effect.does, Does::One(_));
        if bench.pipeline.plan.is_none() && bench.pipeline.gate.is_none() && alone {
            return match self.effect() {
                Ok((made, seen)) => self.authorize(made, seen, None),
                Err(words) => self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words)),
            };
        }
        self.gate();
    }

    pub(super) fn effect(&mut self) -> Result<(Made, Seen), String> {
        if let Some(rendered) = self.rendered.take() {
            return Ok(rendered);
        }
        let bench = self.bench.ok_or("the effect step is gone")?;
        let seen = Seen::of(&self.turn.record);
        Ok((self.desk.effect(bench, &self.turn.record, &seen)?, seen))
    }

    // ---- gate ----

    /// Where a plan stands: rendered anew each time, so that a changed tool, contract or target makes another plan, for which
    /// earlier approvals are void.
    fn gate(&mut self) {
        let Some(bench) = self.bench else { return self.no_pipeline() };
        let failed = |words| Why::new(codes::PLAN_FAILED, words);
        let (made, seen) = match self.effect() {
            Ok(made) => made,
            Err(words) => return self.turn.end(Status::PlanFailed, failed(words)),
        };
        let hash = self.hash_of(&made);
        let before = self.turn.record.plan_hash.replace(hash.clone());
        if before.as_ref() != Some(&hash) {
            let why = before
                .map(|_| Why::new(codes::DENIED, "rendered again: the call or its contract changed, earlier approvals are void"))
                .or_else(|| self.looks_like());
            self.turn.record.stage = Stage::Planning;
            self.turn.record.calls = made.calls();
            self.turn.record.undo = self.desk.undoing(bench, &made);
            self.turn.record.planned_at = Some(self.turn.now);
            self.turn.state(Status::Planned, AckLevel::Planned, why);
        }
        let required = match &bench.pipeline.gate {
            Some(gate) => match (gate.required)(&seen.view(&self.turn.record)) {
                Ok(required) => required,
                Err(words) => return self.turn.end(Status::PlanFailed, failed(words)),
            },
            None => false,
        };
        let required = required || self.turn.record.earlier().is_some();
        match gate::standing(&self.turn, bench.pipeline.gate.as_ref()) {
            Standing::Denied(words) => self.turn.end(Status::Denied, Why::new(codes::DENIED, words)),
            Standing::Granted(approval) if required => self.approved(made, seen, Some(approval)),
            _ if !required => self.approved(made, seen, None),
            _ => self.wait(),
        }
    }

    /// The plan's hash as all that it is made of stands now.
    pub(super) fn hash_of(&self, made: &Made) -> PlanHash {
        let model = self.bench.and_then(|b| b.pipeline.plan.as_ref().zip(b.proposal.as_ref()));
        let compensates = self.bench.is_some_and(|b| b.pipeline.effect.compensates());
        plan_hash(&self.turn.record, made, model, compensates)
    }

    fn wait(&mut self) {
        if self.turn.record.stage == Stage::Waiting {
            return;
        }
        let expires = self.bench.map(|b| b.pipeline.waits_for_a_person()).unwrap_or_default();
        self.turn.record.stage = Stage::Waiting;
        self.turn.record.waiting_until = Some(self.turn.now.plus(expires));
        let why = self.looks_like();
        self.turn.state(Status::AwaitingApproval, AckLevel::Planned, why);
    }

    fn approved(&mut self, made: Made, seen: Seen, approval: Option<ApprovalUse>) {
        self.turn.record.approved_at = Some(self.turn.now);
        let said = approval.as_ref().and_then(|a| self.turn.record.decided(&a.id)).map(Decided::words);
        self.turn.told(Status::Approved, AckLevel::Approved, None, said);
        self.authorize(made, seen, approval);
    }

    /// A decision from the approvals topic; one that can't be used is answered with the reason.
    pub(super) fn approval(&mut self, approval: &Approval) {
        if let Some(why) = self.decided(approval, Some(Via::ApprovalsTopic)) {
            self.turn.answer(approval.approval_id.as_str(), Some(why));
        }
    }

    /// Takes a decision that came this way, or says why not.
    fn decided(&mut self, approval: &Approval, via: Option<Via>) -> Option<Why> {
        let gate = self.bench.and_then(|b| b.pipeline.gate.as_ref());
        match self.turn.record.stage {
            Stage::Ended => {
                let words = format!("it ended as {}", self.turn.record.status.word());
                return Some(Why::new(codes::COMMAND_REFUSED, words));
            }
            Stage::HandedOver => gate::after_hand_over(&mut self.turn, approval),
            Stage::Executing => return gate::while_executing(&mut self.turn, approval),
            Stage::Fetching | Stage::Planning | Stage::Comparing | Stage::Waiting => {
                if let Err(why) = gate::take(&mut self.turn, gate, approval, via) {
                    return Some(why);
                }
                if self.turn.record.stage == Stage::Waiting {
                    self.gate();
                } else if let Standing::Denied(words) = gate::standing(&self.turn, gate) {
                    self.turn.end(Status::Denied, Why::new(codes::DENIED, words));
                }
            }
        }
        None
    }

    pub(super) fn command(&mut self, command: &Command) {
        let here = command.operation_id == self.turn.record.request.operation_id
            && !matches!(self.turn.record.stage, Stage::HandedOver | Stage::Executing | Stage::Ended);
        let id = &command.command_id;
        match (&command.approval, command.kind) {
            (Some(approval), CommandKind::ApproveLate) if here => {
                if self.turn.answer_repeat(id) {
                    return;
                }
                let why = match command.seen {
                    Some(seen) if seen != self.turn.record.version => Some(self.turn.stale(seen)),
                    _ => self.decided(approval, command.via),
                };
                self.turn.answer_command(id, why);
            }
            _ => self.turn.command(command),
        }
    }

    // ---- authorize ----

    /// Deadline and policy as of now; then the intent, in the same transaction. The effect unit asks again before every send. Of a plan
    /// of several calls all are asked before the first begins: what would be denied later is denied while nothing was done.
    fn authorize(&mut self, made: Made, seen: Seen, approval: Option<ApprovalUse>) {
        if self.turn.now >= self.turn.record.request.deadline {
            return self.turn.end(Status::Expired, Why::new(codes::EXPIRED, "the deadline passed before it was authorized"));
        }
        let no = made.all().into_iter().find_map(|ready| self.policy(ready, &seen, approval.as_ref()));
        self.turn.record.policy = self.asked().map(|version| PolicyWord { at: self.turn.now, version, allowed: no.is_none() });
        if let Some(why) = no {
            return self.turn.end(Status::Denied, why);
        }
        match made {
            Made::One(ready) => self.turn.intend(ready.call, ready.rendered, approval),
            plan @ Made::Plan(_) => self.begin_calls((plan, seen), approval),
        }
    }

    /// The version of the policy that is asked; none where nobody asks.
    fn asked(&self) -> Option<Option<String>> {
        let policy = self.bench?.pipeline.effect.policy.as_deref()?;
        Some(self.desk.policy.version(policy))
    }

    /// Why policy forbids a call now; `None` = it does not.
    pub(super) fn policy(&self, ready: &Ready, seen: &Seen, approval: Option<&ApprovalUse>) -> Option<Why> {
        let policy = self.bench?.pipeline.effect.policy.as_deref()?;
        let (record, now) = (&self.turn.record, self.turn.now);
        let approver = approval.map(|a| a.approver.as_str());
        let (request, action) = (&record.request, ready.call.action.as_str());
        let ask = Ask { request, action, plan: seen.plan(), parameters: &ready.parameters, approver, now };
        self.desk.policy.allows(policy, &ask).err().map(|words| Why::new(codes::DENIED, words))
    }
}

/// The model that a request names, as chat interfaces have it. Of a request without one nobody knows.
fn model_of(request: &RenderedRequest) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(request.body.as_deref()?).ok()?;
    body.get("model")?.as_str().map(cut)
}
