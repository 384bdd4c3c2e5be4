//! Commands and repeated requests on an operation record. Pure.

use crate::error::codes;
use crate::ids::CommandId;
use crate::intents::{Command, CommandKind, Intake, Status};
use crate::time::WallTime;

use super::record::{Derived, Role, Stage};
use super::rules::Rule;
use super::turn::{DeadLetter, Output, Turn, Why, message};

impl Turn<'_> {
    /// A request under this record's ID: a duplicate is answered (by the owner once the intent is out), other content is a
    /// conflict for a person, and the first goes on.
    pub fn again(&mut self, intake: &Intake, longest: WallTime) {
        if intake.request.identity() != self.record.identity_hash && self.settings.on(Rule::OneContent) {
            return self.conflict(intake, longest);
        }
        let id = intake.request.message_id.to_string();
        match self.owner() {
            Some(owner) => {
                let query = self.query(&owner, CommandId::from(id));
                self.forward(&owner, query);
            }
            None => self.answer(&id, None),
        }
    }

    fn conflict(&mut self, intake: &Intake, longest: WallTime) {
        let request = &intake.request;
        let why = Why::new(codes::REQUEST_CONFLICT, "this operation ID is taken by a request with other content");
        let step = self.record.step.clone();
        self.out.push(message(request, &step, Status::Conflict, &why, self.now));
        self.out.push(Output::DeadLetter(Box::new(DeadLetter::of(intake, why))));
        self.record.conflicts = self.record.conflicts.saturating_add(1);
        if self.settings.on(Rule::ConflictProlongs) {
            let until = request.deadline.min(longest);
            self.record.conflict_deadline = Some(self.record.conflict_deadline.map_or(until, |d| d.max(until)));
        }
    }

    /// The effect's ledger owner, while the operation lives there.
    fn owner(&self) -> Option<Derived> {
        match self.record.stage {
            Stage::HandedOver => self.record.derived(Role::Effect).cloned(),
            _ => None,
        }
    }

    fn query(&self, owner: &Derived, id: CommandId) -> Command {
        Command {
            command_id: id,
            kind: CommandKind::Query,
            tenant: self.record.request.tenant.clone(),
            operation_id: owner.operation_id.clone(),
            step: Some(owner.step.clone()),
            seen: None,
            by: self.record.request.requester.clone(),
            second: None,
            reason: "duplicate".into(),
            evidence: None,
            resolution: None,
            approval: None,
            issued_at: self.now,
            not_after: self.hold_until(),
        }
    }

    /// A command for this operation or one derived of it. Approvals (`ApproveLate` before the hand-over) are the gate's.
    pub fn command(&mut self, command: &Command) {
        if command.operation_id != self.record.request.operation_id {
            return self.command_for_derived(command);
        }
        if self.answer_repeat(&command.command_id) {
            return;
        }
        match self.record.stage {
            Stage::Executing => self.command_while_executing(command),
            Stage::HandedOver => self.command_after_hand_over(command),
            Stage::Ended => self.command_after_end(command),
            Stage::Fetching | Stage::Planning | Stage::Comparing | Stage::Waiting => self.command_before_hand_over(command),
        }
    }

    fn command_for_derived(&mut self, command: &Command) {
        let known = self.record.derived.iter().find(|d| d.operation_id == command.operation_id).cloned();
        let undo = self.record.derived.iter().find(|d| command.operation_id == d.operation_id.undo()).cloned();
        let to = known.or_else(|| undo.map(|e| Derived { role: Role::Undo, operation_id: command.operation_id.clone(), ..e }));
        if self.command_for_waiting_call(command) {
            return;
        }
        match to {
            Some(d) if !d.gone && self.settings.on(Rule::RootRoutes) => self.forward(&d, command.clone()),
            _ => {
                let why = Why::new(codes::UNKNOWN_OPERATION, format!("nothing of {} is live", command.operation_id));
                self.answer_command(&command.command_id, Some(why));
            }
        }
    }

    fn command_before_hand_over(&mut self, command: &Command) {
        let id = &command.command_id;
        match command.kind {
            CommandKind::Cancel => {
                self.end(Status::Cancelled, cancelled_by(command));
                self.answer_command(id, None);
            }
            CommandKind::Revoke => {
                if let Some(approval) = &command.approval {
                    self.revoke_held(&approval.approval_id);
                    self.answer_command(id, None);
                } else {
                    self.answer_command(id, Some(Why::new(codes::COMMAND_REFUSED, "a revoke names an approval")));
                }
            }
            CommandKind::Query => self.answer(id.as_str(), None),
            CommandKind::Resolve | CommandKind::Force | CommandKind::ReleaseLane | CommandKind::ApproveLate => {
                let why = match command.seen {
                    Some(seen) if seen != self.record.version => self.stale(seen),
                    _ => Why::new(codes::COMMAND_REFUSED, "nothing was sent yet, so there is nothing to decide"),
                };
                self.answer_command(id, Some(why));
            }
        }
    }

    /// Takes an approval back that nothing was sent on: at once, and for good.
    pub fn revoke_held(&mut self, approval: &crate::ids::ApprovalId) {
        self.record.approvals.retain(|a| a.id != *approval);
        if self.settings.on(Rule::RevokedStays) && !self.record.is_revoked(approval) {
            self.record.revoked.push(approval.clone());
        }
    }

    fn command_after_hand_over(&mut self, command: &Command) {
        if command.kind == CommandKind::Revoke && !self.settings.on(Rule::RevokeForwarded) {
            return self.answer_command(&command.command_id, None);
        }
        if let Some(owner) = self.record.derived(Role::Effect).cloned() {
            self.forward(&owner, command.clone());
        }
    }

    fn command_after_end(&mut self, command: &Command) {
        if !self.settings.on(Rule::CommandsAnswered) {
            return;
        }
        let words = format!("it ended as {}", self.record.status.word());
        match command.kind {
            CommandKind::Query => self.answer(command.command_id.as_str(), None),
            CommandKind::Cancel if self.record.status == Status::Cancelled => self.answer_command(&command.command_id, None),
            _ => self.answer_command(&command.command_id, Some(Why::new(codes::COMMAND_REFUSED, words))),
        }
    }

    /// The answer to a command made on another version than the current one.
    pub fn stale(&self, seen: i64) -> Why {
        Why::new(codes::STALE_VERSION, format!("made on version {seen}, it stands at {}", self.record.version))
    }
}

/// Who cancelled it, and why.
pub(super) fn cancelled_by(command: &Command) -> Why {
    Why::new(codes::CANCELLED, format!("cancelled by {}: {}", cut(&command.by), cut(&command.reason)))
}

/// At most 200 characters of what a person wrote.
pub fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}
