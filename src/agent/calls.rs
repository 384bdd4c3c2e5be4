//! A plan of several calls on its way: each call begins when what it needs has happened, and everything that must hold is asked for it
//! anew. Pure.

use crate::error::codes;
use crate::intents::{ApprovalUse, Status, UndoState};
use crate::outbox::{Rule, Stage, Why};

use super::dag::{self, Next};
use super::desk::{Made, Part, Ready, Seen};
use super::reverse;
use super::step::Step;

impl Step<'_> {
    /// Spends the approval, once and for the whole, and begins what needs nothing.
    pub(super) fn begin_calls(&mut self, plan: (Made, Seen), approval: Option<ApprovalUse>) {
        self.turn.record.spent = approval;
        self.turn.record.stage = Stage::Executing;
        self.rendered = Some(plan);
        self.go_through();
    }

    /// Takes over what calls have come to, begins what may begin, leaves out what may not, has undone what is to be undone, and ends
    /// the whole with the last of them.
    pub(super) fn go_through(&mut self) {
        if self.turn.record.stage != Stage::Executing {
            return;
        }
        let before = (self.turn.record.calls.clone(), self.turn.record.undo.clone());
        self.turn.fold_calls();
        loop {
            if let Some(because) = self.turn.spoiled_by() {
                self.turn.give_up(because);
            }
            match self.next() {
                Some(Next::Begin(call)) => self.begin_call(call),
                Some(Next::LeaveOut { call, because }) => self.leave_out(call, because),
                None => break,
            }
        }
        while let Some(call) = self.next_undo() {
            self.turn.order_undo(call);
        }
        let (calls, undo) = (&self.turn.record.calls, &self.turn.record.undo);
        let undone = undo.iter().flat_map(|u| &u.calls).all(|u| u.state != UndoState::Ordered);
        if undone && calls.iter().all(|c| c.end.is_some()) {
            let renderer = &self.desk.renderer;
            self.turn.end_of_plan(|c| renderer.confirms_by_answer(&c.contract, &c.call));
        } else if before.0 != *calls || before.1 != *undo {
            if !calls.iter().any(|c| c.waits()) {
                match self.turn.record.undo {
                    Some(_) => self.turn.shed_gate(),
                    None => self.turn.shed(),
                }
            }
            self.turn.tell_progress();
        }
    }

    fn next(&self) -> Option<Next> {
        let calls = &self.turn.record.calls;
        match self.turn.settings.on(Rule::NeedsFirst) {
            true => dag::next(calls),
            false => calls.iter().position(|c| c.waits()).map(Next::Begin),
        }
    }

    fn next_undo(&self) -> Option<usize> {
        let r = &self.turn.record;
        let undoing = r.undo.as_ref()?;
        match self.turn.settings.on(Rule::UndoReversed) {
            true => reverse::next(&r.calls, undoing),
            false => reverse::next_of_any(&r.calls, undoing),
        }
    }

    fn leave_out(&mut self, call: usize, because: usize) {
        let Some(first) = self.turn.record.calls.get(because) else { return };
        let end = first.end.map_or("unknown", Status::word);
        let words = format!("it needs {} ({}), which ended as {end}", first.id, first.operation_id);
        self.turn.end_call(call, Status::Cancelled, Why::new(codes::CALL_LEFT_OUT, words));
    }

    /// All that must hold is looked at as of now: the plan as it was approved, the approval itself, policy. The deadline was looked at
    /// before, the target's version is looked at by the effect unit right before the send.
    fn begin_call(&mut self, call: usize) {
        match self.part(call) {
            Ok(part) => {
                let approval = self.turn.record.spent.clone();
                self.turn.intend(part.ready.call, part.ready.rendered, approval);
                self.turn.call_begun(call);
            }
            Err(why) => self.turn.end_call(call, Status::Denied, why),
        }
    }

    fn part(&mut self, call: usize) -> Result<Part, Why> {
        let denied = |words: String| Why::new(codes::DENIED, words);
        let (made, seen) = self.effect().map_err(|words| denied(format!("it can't be rendered any more: {words}")))?;
        let as_approved = self.turn.record.plan_hash.as_ref() == Some(&self.hash_of(&made));
        let part = match &made {
            Made::Plan(parts) => parts.get(call).cloned(),
            Made::One(_) => None,
        };
        let allowed = part.as_ref().map(|part| self.allowed(&part.ready, &seen));
        self.rendered = Some((made, seen));
        if let Some(part) = part.filter(|_| as_approved || !self.turn.settings.on(Rule::PlanHolds)) {
            return allowed.unwrap_or(Ok(())).map(|()| part);
        }
        Err(denied("rendered again: a call or its contract changed since the plan was decided on".to_owned()))
    }

    fn allowed(&self, ready: &Ready, seen: &Seen) -> Result<(), Why> {
        let denied = |words: String| Err(Why::new(codes::DENIED, words));
        let r = &self.turn.record;
        match &r.spent {
            Some(approval) if r.is_revoked(&approval.id) => return denied("the approval was taken back".to_owned()),
            Some(approval) if self.turn.now >= approval.expires_at => {
                return denied(format!("approval {} has expired", approval.id));
            }
            Some(_) => {}
            None => {
                let gate = self.bench.and_then(|b| b.pipeline.gate.as_ref());
                match gate.map(|g| (g.required)(&seen.view(r))) {
                    None | Some(Ok(false)) => {}
                    Some(Ok(true)) => return denied("it needs an approval by now".to_owned()),
                    Some(Err(words)) => return denied(words),
                }
            }
        }
        self.policy(ready, seen, r.spent.as_ref()).map_or(Ok(()), Err)
    }

    /// The deadline of the whole: what has not begun never will. What has begun is its owner's.
    pub(super) fn deadline_of_calls(&mut self) {
        let open: Vec<String> =
            self.turn.record.calls.iter().filter(|c| c.end.is_none() && !c.waits()).map(|c| c.id.clone()).collect();
        self.turn.end_waiting_calls(Status::Expired, |call| {
            let waited: Vec<&str> = call.needs.iter().filter(|id| open.contains(id)).map(String::as_str).collect();
            let words = match waited.is_empty() {
                true => "the deadline passed before it began".to_owned(),
                false => format!("the deadline passed while it waited for {}", waited.join(", ")),
            };
            Why::new(codes::EXPIRED, words)
        });
    }
}
