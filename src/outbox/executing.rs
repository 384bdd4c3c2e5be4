//! A plan of several calls under way: each call is an operation of its own, this record tells of the whole. Pure.

use crate::error::{Code, codes};
use crate::ids::{ApprovalId, CommandId};
use crate::intents::{AckLevel, CallState, CallUndo, Command, CommandKind, Decided, Deed, PlanCall, ResultKind, Status, UndoState};

use super::orders::ordered_by;
use super::record::{Derived, OperationRecord, Role, Stage};
use super::returns::ack_of;
use super::turn::{DeadLetter, Output, Turn, Why};

/// How many commands wait for the end of a plan; more are answered at once.
const UNANSWERED: usize = 32;

impl Turn<'_> {
    /// Takes over what the ledgers' owners have said of calls, and of what undoes them.
    pub fn fold_calls(&mut self) {
        let (calls, derived) = (&mut self.record.calls, &self.record.derived);
        for call in calls.iter_mut().filter(|c| c.state == CallState::Begun) {
            call.end = derived.iter().find(|d| d.operation_id == call.operation_id).and_then(|d| d.end);
            if call.end.is_some() {
                call.state = CallState::Ended;
            }
        }
        self.fold_undos();
    }

    /// A call's intent is written.
    pub fn call_begun(&mut self, call: usize) {
        if let Some(call) = self.record.calls.get_mut(call) {
            call.state = CallState::Begun;
        }
    }

    /// Ends a call that has not begun: nothing of it left. It has no owner, so this record writes its one state.
    pub fn end_call(&mut self, call: usize, status: Status, why: Why) {
        let Some(call) = self.record.calls.get_mut(call).filter(|c| c.waits()) else { return };
        (call.state, call.end) = (CallState::Ended, Some(status));
        (call.code, call.detail) = (Some(why.code.to_string()), Some(why.words));
        let call = call.clone();
        let mut result = self.result(ResultKind::State, None);
        (result.operation_id, result.version, result.calls, result.undo) = (call.operation_id, Some(1), None, None);
        (result.status, result.ack_level, result.code, result.detail) = (status, AckLevel::Approved, call.code, call.detail);
        self.out.push(Output::Result(Box::new(result)));
    }

    /// Ends all calls that have not begun.
    pub fn end_waiting_calls(&mut self, status: Status, why: impl Fn(&PlanCall) -> Why) {
        for i in 0..self.record.calls.len() {
            let why = why(&self.record.calls[i]);
            self.end_call(i, status, why);
        }
    }

    /// Tells how the plan goes, while calls are under way.
    pub fn tell_progress(&mut self) {
        let words = tally(&self.record);
        self.told(Status::Dispatched, AckLevel::Dispatched, None, Some(words));
    }

    /// All calls have ended, and so has what undoes them: their common end, or `partial`. `by_answer`: of which contracts' calls the
    /// answer confirms.
    pub fn end_of_plan(&mut self, by_answer: impl Fn(&PlanCall) -> bool) {
        let status = common_end(&self.record);
        let reached = self.record.calls.iter().filter_map(|c| Some(ack_of(c.end?, by_answer(c)))).min();
        let ack = match status {
            Status::Partial => self.record.ack_level,
            _ => reached.unwrap_or(AckLevel::Received).max(self.record.ack_level),
        };
        let code = code_of(status, &self.record).map(|c| c.to_string());
        self.told(status, ack, code, Some(tally(&self.record)));
        self.record.stage = Stage::Ended;
        self.bury_undone();
        self.shed();
        let undone = each(&self.record).any(|(c, undo)| {
            matches!(c.end, Some(Status::Cancelled | Status::Superseded | Status::Denied)) || undo.is_some_and(|u| is_undone(u))
        });
        for id in std::mem::take(&mut self.record.unanswered) {
            let too_late = || Why::new(codes::COMMAND_REFUSED, format!("it ended as {}", status.word()));
            self.answer_command(&id, (!undone).then(too_late));
        }
    }

    /// A plan that came to nothing, all of it undone, is a dead letter: its request can go back. Not where a person called it off: that was
    /// wanted.
    fn bury_undone(&mut self) {
        let called_off = self.record.decisions.iter().any(|d| matches!(d.deed, Deed::Cancel | Deed::Revoke));
        if self.record.code.as_deref() == Some(codes::PLAN_UNDONE.to_string().as_str()) && !called_off {
            let why = Why::new(codes::PLAN_UNDONE, self.record.detail.clone().unwrap_or_default());
            self.out.push(Output::DeadLetter(Box::new(DeadLetter::of_record(&self.record, why))));
        }
    }

    /// A command for the whole while calls are under way.
    pub(super) fn command_while_executing(&mut self, command: &Command) {
        let id = &command.command_id;
        match command.kind {
            CommandKind::Query => self.answer(id.as_str(), None),
            CommandKind::Cancel => {
                self.stop_calls(command, Status::Cancelled, ordered_by(command, codes::CANCELLED));
            }
            CommandKind::Revoke => match &command.approval {
                Some(approval) => {
                    self.revoke_held(&approval.approval_id);
                    if self.record.spent.as_ref().is_some_and(|s| s.id == approval.approval_id) {
                        self.stop_calls(command, Status::Denied, ordered_by(command, codes::DENIED));
                    } else {
                        self.keep(Decided::by_command(command, self.now));
                        self.answer_command(id, None);
                    }
                }
                None => self.answer_command(id, Some(Why::new(codes::COMMAND_REFUSED, "a revoke names an approval"))),
            },
            CommandKind::Resolve | CommandKind::Force | CommandKind::ReleaseLane | CommandKind::ApproveLate => {
                let words = "its calls are under way, each an operation of its own: name the one that is meant";
                self.answer_command(id, Some(Why::new(codes::COMMAND_REFUSED, words)));
            }
        }
    }

    /// Ends what has not begun, sends the order on to the owners of what has, and answers at the end of the plan.
    fn stop_calls(&mut self, command: &Command, status: Status, why: Why) {
        if self.record.unanswered.contains(&command.command_id) {
            return;
        }
        self.keep(Decided::by_command(command, self.now));
        self.stop();
        let approval = self.record.spent.as_ref().map(|s| s.id.clone());
        self.send_to_calls(&command.command_id, command.kind, &why.words, approval.as_ref(), command);
        self.end_waiting_calls(status, |_| why.clone());
        if self.record.unanswered.len() < UNANSWERED {
            self.record.unanswered.push(command.command_id.clone());
        } else {
            self.answer_command(&command.command_id, Some(Why::new(codes::COMMAND_REFUSED, "too many commands wait for its end")));
        }
    }

    /// Takes the approval back that a plan under way has spent: what has not begun is denied, what has begun is its owner's to say.
    pub fn revoke_spent(&mut self, command: &Command) {
        if let Some(spent) = self.record.spent.as_ref().map(|s| s.id.clone()) {
            let why = ordered_by(command, codes::DENIED);
            self.keep(Decided::by_command(command, self.now));
            self.revoke_held(&spent);
            self.stop();
            self.send_to_calls(&command.command_id, CommandKind::Revoke, &why.words, Some(&spent), command);
            self.end_waiting_calls(Status::Denied, |_| why.clone());
        }
    }

    fn send_to_calls(&mut self, id: &CommandId, kind: CommandKind, words: &str, spent: Option<&ApprovalId>, given: &Command) {
        let open = |d: &&Derived| d.role == Role::Call && d.end.is_none();
        for to in self.record.derived.iter().filter(open).cloned().collect::<Vec<_>>() {
            let id = CommandId::from(format!("{id}/{}", to.operation_id));
            let mut command = self.own(id, kind, &to, words.to_owned());
            command.approval = given
                .approval
                .clone()
                .map(|a| crate::intents::Approval { approval_id: spent.cloned().unwrap_or(a.approval_id.clone()), ..a });
            self.forward(&to, command);
        }
    }

    /// A command for a call that has not begun, which nobody else knows yet; whether it was one.
    pub(super) fn command_for_waiting_call(&mut self, command: &Command) -> bool {
        let of = |c: &PlanCall| c.operation_id == command.operation_id && c.waits();
        let Some(call) = self.record.calls.iter().position(of).filter(|_| self.record.stage == Stage::Executing) else {
            return false;
        };
        let id = &command.command_id;
        if self.answer_repeat(id) {
            return true;
        }
        match command.kind {
            CommandKind::Query => self.answer(id.as_str(), None),
            CommandKind::Cancel => {
                self.keep(Decided::by_command(command, self.now));
                self.end_call(call, Status::Cancelled, ordered_by(command, codes::CANCELLED));
                self.answer_command(id, None);
            }
            _ => self.answer_command(id, Some(Why::new(codes::COMMAND_REFUSED, "it has not begun, so there is nothing to decide"))),
        }
        true
    }
}

/// Each call, with how it is undone where the step chose that.
fn each(r: &OperationRecord) -> impl Iterator<Item = (&PlanCall, Option<&CallUndo>)> {
    r.calls.iter().enumerate().map(|(i, call)| (call, r.undo.as_ref().and_then(|u| u.calls.get(i))))
}

/// Whether a call is undone, or going to be.
fn is_undone(undo: &CallUndo) -> bool {
    matches!(undo.state, UndoState::Ordered | UndoState::Undone)
}

/// What all calls that were not left out for another's sake have come to; `partial` where they differ. One that happened and was undone has
/// come to the same as one that was cancelled too late.
fn common_end(r: &OperationRecord) -> Status {
    let left_out = codes::CALL_LEFT_OUT.to_string();
    let end = |(call, undo): (&PlanCall, Option<&CallUndo>)| match undo {
        Some(undo) if call.happened() && is_undone(undo) => Some(Status::Superseded),
        _ => call.end,
    };
    let mut ends = each(r).filter(|(c, _)| c.code.as_ref() != Some(&left_out)).filter_map(end);
    let first = ends.next().unwrap_or(Status::Cancelled);
    if ends.all(|end| end == first) { first } else { Status::Partial }
}

/// What has become of a call, for whoever reads of the whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Done,
    Stays,
    ToBeUndone,
    BeingUndone,
    Undone,
    UndoingOrdered,
    NotDone,
    NotKnown,
    UnderWay,
    Waiting,
}

const TOLD: [(Told, &str); 10] = [
    (Told::Done, "done"),
    (Told::Stays, "stays done"),
    (Told::ToBeUndone, "to be undone"),
    (Told::BeingUndone, "being undone"),
    (Told::Undone, "undone"),
    (Told::UndoingOrdered, "done, and its undoing ordered"),
    (Told::NotDone, "not done"),
    (Told::NotKnown, "not known"),
    (Told::UnderWay, "under way"),
    (Told::Waiting, "waiting"),
];

fn told(call: &PlanCall, undo: Option<&CallUndo>, stopped: bool) -> Told {
    let superseded = call.end == Some(Status::Superseded);
    match (call.state, call.end, undo) {
        (CallState::Waiting, ..) => Told::Waiting,
        (CallState::Begun, ..) => Told::UnderWay,
        (_, Some(Status::Stale | Status::Conflict), _) => Told::NotKnown,
        (_, _, Some(undo)) if superseded || (call.happened() && stopped) => match undo.state {
            UndoState::Ordered => Told::BeingUndone,
            UndoState::Undone => Told::Undone,
            UndoState::NotOrdered if undo.is_due() => Told::ToBeUndone,
            UndoState::NotOrdered | UndoState::Stays => Told::Stays,
        },
        _ if superseded => Told::UndoingOrdered,
        _ if call.happened() => Told::Done,
        _ => Told::NotDone,
    }
}

fn stopped(r: &OperationRecord) -> bool {
    r.undo.as_ref().is_some_and(|u| u.stopped)
}

/// What was done, what was not, what is undone, what nobody knows, and what is still to come.
fn tally(r: &OperationRecord) -> String {
    let kind = |(kind, word): &(Told, &str)| {
        let of: Vec<_> = each(r).filter(|(c, u)| told(c, *u, stopped(r)) == *kind).map(|(c, u)| named(c, u)).collect();
        (!of.is_empty()).then(|| format!("{} {word}: {}", of.len(), of.join(", ")))
    };
    TOLD.iter().filter_map(kind).collect::<Vec<_>>().join(" · ")
}

fn named(call: &PlanCall, undo: Option<&CallUndo>) -> String {
    let end = match call.end {
        Some(Status::Confirmed) | None => None,
        // How it is undone tells more.
        Some(Status::Superseded) if undo.is_some() => None,
        Some(end) => Some(end.word().replace('_', " ")),
    };
    let why = undo.filter(|u| u.state == UndoState::Stays).and_then(|u| u.detail.clone());
    match end.into_iter().chain(why).collect::<Vec<_>>().join(": ") {
        words if words.is_empty() => call.id.clone(),
        words => format!("{} ({words})", call.id),
    }
}

fn code_of(end: Status, r: &OperationRecord) -> Option<Code> {
    let mut all: Vec<Told> = each(r).map(|(call, undo)| told(call, undo, stopped(r))).collect();
    all.retain(|told| *told != Told::NotDone);
    match end {
        Status::Partial if !all.is_empty() && all.iter().all(|told| *told == Told::Undone) => Some(codes::PLAN_UNDONE),
        Status::Partial => Some(codes::PLAN_PARTIAL),
        Status::Refused => Some(codes::TARGET_REFUSED),
        Status::Denied => Some(codes::DENIED),
        Status::Expired => Some(codes::EXPIRED),
        Status::Cancelled => Some(codes::CANCELLED),
        Status::Stale => Some(codes::STALE_INTENT),
        Status::Conflict => Some(codes::REQUEST_CONFLICT),
        _ => None,
    }
}
