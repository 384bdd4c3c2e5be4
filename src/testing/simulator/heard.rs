//! What people asked for, and whether what they were told about it was true: every command is answered, other content under a known
//! ID is a conflict, and an approval that was taken back in time sets nothing free.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::codes;
use crate::ids::{OperationId, WireKey};
use crate::intents::{Command, ResultKind, ResultRecord, Status};
use crate::testing::checkers::{BookEntry, Intended, Seen};
use crate::time::WallTime;

/// Clocks of members may be wrong by that much against each other.
const SKEW: Duration = Duration::from_secs(2);

/// What was written to the topics of people.
#[derive(Default)]
pub(super) struct Heard {
    /// Which contents came under an operation's ID: the first, another.
    contents: BTreeMap<OperationId, BTreeSet<bool>>,
    commands: Vec<(String, OperationId, WallTime)>,
    /// Approvals that were taken back, by the name of the answer.
    revoked: BTreeMap<String, OperationId>,
}

impl Heard {
    /// A request came.
    pub(super) fn requested(&mut self, op: OperationId, other: bool) {
        self.contents.entry(op).or_default().insert(other);
    }

    /// A command was given.
    pub(super) fn commanded(&mut self, c: &Command) {
        self.commands.push((c.command_id.to_string(), c.operation_id.clone(), c.issued_at));
    }

    /// An approval was taken back; the answer comes under this name.
    pub(super) fn revoked(&mut self, answer: impl Into<String>, op: OperationId) {
        self.revoked.insert(answer.into(), op);
    }

    /// Whether everybody has an answer.
    pub(super) fn all_answered(&self, results: &[Seen]) -> bool {
        self.unanswered(results).next().is_none() && self.unseen(results).next().is_none()
    }

    /// Operations that came with two contents, and nobody was told.
    fn unseen<'a>(&'a self, results: &'a [Seen]) -> impl Iterator<Item = &'a OperationId> {
        let both = self.contents.iter().filter(|(_, contents)| contents.len() == 2).map(|(op, _)| op);
        let told = |op: &OperationId| results.iter().any(|s| s.record.operation_id == *op && s.record.status == Status::Conflict);
        both.filter(move |op| !told(op))
    }

    fn unanswered<'a>(&'a self, results: &'a [Seen]) -> impl Iterator<Item = &'a str> {
        let answered: BTreeSet<&str> = results.iter().filter_map(|s| s.record.answers.as_deref()).collect();
        self.commands.iter().map(|(id, _, _)| id.as_str()).filter(move |id| !answered.contains(id))
    }

    /// What is not as it was told.
    pub(super) fn wrong(&self, results: &[Seen], books: &[BookEntry], intents: &[Intended]) -> Vec<String> {
        let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
        let mut wrong: Vec<String> = self.unanswered(results).map(|id| format!("nobody answered command {id}")).collect();
        wrong.extend(self.unseen(results).map(|op| format!("other content under {op} went unseen")));
        wrong.extend(records.iter().filter_map(|r| self.denied(r, &records)));
        let held: BTreeSet<&WireKey> = books.iter().map(|b| &b.wire_key).collect();
        let applied = |op: &OperationId| intents.iter().any(|i| i.operation.1.root() == *op && held.contains(&i.wire_key));
        let voided: BTreeSet<&OperationId> = records.iter().filter_map(|r| self.voided(r)).collect();
        wrong.extend(voided.into_iter().filter(|op| applied(op)).map(|op| format!("{op} was applied on an approval taken back")));
        wrong
    }

    /// A command whose operation nobody is said to know, although it had shown itself before.
    fn denied(&self, r: &ResultRecord, all: &[&ResultRecord]) -> Option<String> {
        let (id, op, at) = self.commands.iter().find(|(id, _, _)| Some(id.as_str()) == r.answers.as_deref())?;
        let unknown = r.code.as_deref() == Some(codes::UNKNOWN_OPERATION.to_string().as_str());
        let known = |s: &&&ResultRecord| s.kind == ResultKind::State && s.operation_id == *op && s.at.plus(SKEW) < *at;
        (unknown && all.iter().any(|s| known(&s))).then(|| format!("command {id} was told that nobody knows {op}"))
    }

    /// The operation whose approval was taken back before anything was sent.
    fn voided(&self, r: &ResultRecord) -> Option<&OperationId> {
        let op = self.revoked.get(r.answers.as_deref()?)?;
        let waits = matches!(r.status, Status::Accepted | Status::Planned | Status::AwaitingApproval | Status::Approved);
        (r.kind == ResultKind::Answer && r.code.is_none() && r.attempts == 0 && waits).then_some(op)
    }
}
