//! The people around a run: who approves, who cancels, and an operator who decides on what is parked by looking at the target's
//! books, truthfully. They know only what stands on topics and in the books.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::demo::rng::Rng;
use crate::ids::{ApplicationId, ApprovalId, CommandId, OperationId, Partition, PlanHash, TopicName};
use crate::intents::{
    Approval, Command, CommandKind, Decision, Intent, IntentKind, Resolution, ResultKind, ResultRecord, Status, headers, topics,
};
use crate::kafka::Isolation;
use crate::kafka::memory::MemoryCluster;
use crate::outbox::commands::CommandRecord;
use crate::serdes::internal;
use crate::testing::checkers::{BookEntry, Intended, OpKey, Seen, last_states};
use crate::testing::shop::{Cancelled, digest_of};
use crate::time::{MonoTime, Now};

use super::schedule::{Afterthought, Class, Planned};

/// Before a person tries again what did not come of the first time.
const PATIENCE: Duration = Duration::from_secs(12);
/// The hash of a plan that nobody has.
const OTHER_PLAN: &str = "of-another-plan";
/// After so many refusals a second person is asked.
const SECOND_PERSON: u32 = 6;

/// What people write.
pub(super) enum Said {
    /// An approval.
    Approval(Box<Approval>),
    /// A command.
    Command(Box<Command>, Box<CommandRecord>),
}

/// The target's books, for whoever must decide.
pub(super) struct Books {
    pub(super) orders: Vec<BookEntry>,
    pub(super) cancelled: Vec<Cancelled>,
}

/// What people know of.
pub(super) struct People {
    app: ApplicationId,
    results: TopicName,
    partitions: u32,
    rng: Rng,
    answered: BTreeSet<OperationId>,
    /// Commands on parked operations: how many, and when the last was given.
    tried: BTreeMap<OpKey, (u32, MonoTime)>,
    commands: u32,
    seen: Arc<Vec<Seen>>,
}

impl People {
    pub(super) fn new(app: ApplicationId, results: TopicName, partitions: u32, seed: u64) -> Self {
        let rng = Rng::new(seed ^ 0x7065_6f70_6c65);
        Self { app, results, partitions, rng, answered: BTreeSet::new(), tried: BTreeMap::new(), commands: 0, seen: Arc::default() }
    }

    /// Every result so far, in the order of each partition.
    pub(super) fn results(&mut self, cluster: &MemoryCluster) -> Arc<Vec<Seen>> {
        let seen = |r: crate::record::InRecord| {
            let ce_id = r.headers.text(headers::CE_ID).map(str::to_owned);
            let record = internal::decode(&r.value.unwrap_or_default()).expect("a result is decodable");
            Seen { ce_id, record }
        };
        let all = cluster.records(&self.results, Isolation::Committed);
        if all.len() != self.seen.len() {
            self.seen = Arc::new(all.into_iter().map(seen).collect());
        }
        self.seen.clone()
    }

    /// Every intent of an effect.
    pub(super) fn intents(&self, cluster: &MemoryCluster) -> Vec<Intended> {
        let intent = |r: crate::record::InRecord| internal::decode::<Intent>(&r.value?).ok();
        let effects = cluster.records(&topics::outbox(&self.app), Isolation::Committed).into_iter().filter_map(intent);
        effects
            .filter(|i| i.kind == IntentKind::Effect)
            .map(|i| Intended {
                operation: (i.tenant, i.operation_id),
                digest: i.request.body.as_deref().and_then(digest_of),
                wire_key: i.wire_key,
                lane: i.ordering_key,
            })
            .collect()
    }

    /// Whether everything that was asked for has come to its end.
    pub(super) fn settled(planned: &[Planned], results: &[Seen]) -> bool {
        let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
        let heard = |p: &Planned| records.iter().any(|r| r.operation_id == p.id() && r.kind != ResultKind::Answer);
        planned.iter().all(heard) && last_states(&records).values().all(|r| r.status.is_end())
    }

    /// Looks at results and books, and says what is to be said.
    pub(super) fn look(&mut self, planned: &[Planned], cluster: &MemoryCluster, books: &Books, now: Now) -> Vec<Said> {
        let results = self.results(cluster);
        let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
        let mut said = Vec::new();
        for (op, last) in last_states(&records) {
            match last.status {
                Status::AwaitingApproval => said.extend(self.approve(planned, last, now)),
                Status::Parked => {
                    let of = op.1.undoes().unwrap_or_else(|| op.1.clone());
                    let mut intents = self.intents(cluster).into_iter().filter(|i| i.operation == (op.0.clone(), of.clone()));
                    let present = intents.any(|i| match op.1.is_undo() {
                        true => books.cancelled.iter().any(|c| c.order == i.wire_key),
                        false => books.orders.iter().any(|b| b.wire_key == i.wire_key),
                    });
                    said.extend(self.decide(op, last, present, now));
                }
                _ => {}
            }
        }
        said
    }

    /// The decision was written.
    pub(super) fn wrote(&mut self, approval: &Approval) {
        if approval.plan_hash.as_str() != OTHER_PLAN {
            self.answered.insert(approval.operation_id.clone());
        }
    }

    fn approve(&self, planned: &[Planned], last: &ResultRecord, now: Now) -> Option<Said> {
        let op = &last.operation_id;
        let class = planned.iter().find(|p| p.id() == *op)?.class;
        let decision = match class {
            Class::DeniedByPerson => Decision::Deny,
            Class::Unanswered => return None,
            _ => Decision::Approve,
        };
        if self.answered.contains(op) {
            return None;
        }
        let key = (last.tenant.clone(), op.clone());
        Some(Said::Approval(Box::new(approval(&key, last.plan_hash.clone()?, decision, now))))
    }

    /// What an approver does besides deciding; `None` where there is nothing to think of yet.
    pub(super) fn think_again(&mut self, planned: &Planned, thought: Afterthought, results: &[Seen], now: Now) -> Option<Said> {
        let op = (planned.tenant(), planned.id());
        let plan = results.iter().rev().filter(|s| s.record.operation_id == op.1).find_map(|s| s.record.plan_hash.clone());
        let decided = self.answered.contains(&op.1);
        let again = if planned.class == Class::DeniedByPerson { Decision::Deny } else { Decision::Approve };
        let said = match thought {
            Afterthought::Again if decided => approval(&op, plan?, again, now),
            Afterthought::Again => return None,
            Afterthought::OtherPlan => {
                let other = approval(&op, PlanHash::new(OTHER_PLAN), Decision::Approve, now);
                Approval { approval_id: ApprovalId::from(format!("o-{}", op.1)), ..other }
            }
            Afterthought::Revoke | Afterthought::RevokeByCommand => approval(&op, plan?, Decision::Revoke, now),
        };
        if thought != Afterthought::RevokeByCommand {
            return Some(Said::Approval(Box::new(said)));
        }
        let command = self.command(&op, CommandKind::Revoke, now);
        self.said(Command { approval: Some(said), ..command })
    }

    /// On a parked operation: what the books say, or once more where they have nothing.
    fn decide(&mut self, op: OpKey, last: &ResultRecord, present: bool, now: Now) -> Option<Said> {
        let (tries, at) = self.tried.get(&op).copied().unwrap_or((0, MonoTime(0)));
        if tries > 0 && now.mono.since(at) < PATIENCE {
            return None;
        }
        self.tried.insert(op.clone(), (tries + 1, now.mono));
        let again = !present && tries == 0 && self.rng.percent(30);
        let mut command = self.command(&op, if again { CommandKind::Force } else { CommandKind::Resolve }, now);
        command.seen = last.version;
        command.resolution = (!again).then_some(if present { Resolution::Applied } else { Resolution::NotApplied });
        command.second = (tries >= SECOND_PERSON).then(|| "second@acme".to_owned());
        self.said(command)
    }

    /// Cancels an operation.
    pub(super) fn cancel(&mut self, planned: &Planned, now: Now) -> Option<Said> {
        let command = self.command(&(planned.tenant(), planned.id()), CommandKind::Cancel, now);
        self.said(command)
    }

    fn command(&mut self, op: &OpKey, kind: CommandKind, now: Now) -> Command {
        self.commands += 1;
        Command {
            command_id: CommandId::from(format!("c-{}", self.commands)),
            kind,
            tenant: op.0.clone(),
            operation_id: op.1.clone(),
            step: None,
            seen: None,
            by: "operator@acme".into(),
            second: None,
            reason: "looked at the books".into(),
            evidence: Some("books".into()),
            resolution: None,
            approval: None,
            issued_at: now.wall,
            not_after: now.wall.plus(Duration::from_secs(60)),
            via: None,
        }
    }

    /// Now and then a tool writes a command to another partition than its operation's.
    fn said(&mut self, command: Command) -> Option<Said> {
        let mut record = CommandRecord::new(&self.app, self.partitions, &command).ok()?;
        if self.rng.percent(15) {
            record.partition = Partition(self.rng.below(u64::from(self.partitions)) as i32);
        }
        Some(Said::Command(Box::new(command), Box::new(record)))
    }
}

fn approval(op: &OpKey, plan_hash: PlanHash, decision: Decision, now: Now) -> Approval {
    Approval {
        approval_id: ApprovalId::from(format!("a-{}", op.1)),
        tenant: op.0.clone(),
        operation_id: op.1.clone(),
        plan_hash,
        approver: "approver@acme".into(),
        decision,
        expires_at: now.wall.plus(Duration::from_secs(300)),
        policy_version: "1".into(),
        reason: None,
    }
}
