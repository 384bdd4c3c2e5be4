//! What people order about operations: the approval of the plan that was shown, and the command on its way to the topic. Shared by
//! `readback ops` and the console.

use std::time::Duration;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, ApprovalId, OperationKey, PlanHash, partition_of};
use crate::intents::{Approval, Command, Decision, Switch, headers, topics};
use crate::kafka::Cluster;
use crate::outbox::commands::{self, CommandRecord, Order};
use crate::record::{Headers, OutRecord};
use crate::runtime::unreached;
use crate::time::WallTime;

use super::views::Seen;

/// Who decides about a plan, why, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Who.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Until when an approval may be used.
    pub expires_at: WallTime,
}

/// The hash of the plan as it stands: what a decision binds to.
pub fn plan_hash(seen: &Seen) -> Option<PlanHash> {
    let plan = seen.record.as_ref().and_then(|r| r.plan_hash.clone());
    plan.or_else(|| seen.ledger.as_ref()?.plan_hash.clone())
}

/// A decision about the plan as it stands; the version that was seen refuses it where that is no longer what was shown.
///
/// # Errors
/// `COMMAND_REFUSED` where there is no plan.
pub fn approval(key: &OperationKey, seen: &Seen, decision: Decision, terms: &Terms<'_>) -> Result<Approval> {
    let plan_hash = plan_hash(seen).ok_or_else(|| {
        Error::new(codes::COMMAND_REFUSED, Fault::Verdict, format!("approving {}: there is no plan to approve", key.operation))
            .next("`readback ops show` says where it stands")
    })?;
    Ok(Approval {
        approval_id: ApprovalId::from(uuid::Uuid::new_v4().to_string()),
        tenant: key.tenant.clone(),
        operation_id: key.operation.clone(),
        plan_hash,
        approver: terms.by.to_owned(),
        decision,
        expires_at: terms.expires_at,
        policy_version: String::new(),
        reason: Some(terms.reason.to_owned()),
    })
}

/// The command of a decision about the plan as it stands. Before the hand-over a denial ends the operation; after it, it takes back what
/// was spent.
///
/// # Errors
/// `COMMAND_REFUSED` where there is no plan, or nothing to take back.
pub fn decision(order: Order, key: &OperationKey, seen: &Seen, decision: Decision, expires_at: WallTime) -> Result<Command> {
    let approval = approval(key, seen, decision, &Terms { by: &order.by, reason: &order.reason, expires_at })?;
    let spent = seen.ledger.as_ref().and_then(|l| l.approval.as_ref());
    match (decision, &seen.ledger, spent) {
        (Decision::Deny, Some(_), Some(spent)) => {
            Ok(commands::revoke(order, Approval { approval_id: spent.id.clone(), decision: Decision::Revoke, ..approval }))
        }
        (Decision::Deny, Some(_), None) => {
            Err(Error::new(codes::COMMAND_REFUSED, Fault::Verdict, format!("denying {}", key.operation))
                .because("it was handed over without an approval")
                .next("cancel it"))
        }
        _ => Ok(commands::approve(order, approval)),
    }
}

/// Takes an approval back: the one that is named, or else the one in use, or else the one that is held.
///
/// # Errors
/// `COMMAND_REFUSED` where none is named and none is known.
pub fn revocation(key: &OperationKey, seen: &Seen, named: Option<&str>, terms: &Terms<'_>) -> Result<Approval> {
    let used = seen.ledger.as_ref().and_then(|l| l.approval.as_ref()).or_else(|| seen.record.as_ref()?.spent.as_ref());
    let held = seen.record.as_ref().and_then(|r| r.approvals.iter().rfind(|a| !a.deny));
    let known = used.map(|a| &a.id).or_else(|| held.map(|a| &a.id)).cloned();
    let approval_id = named.map(ApprovalId::new).or(known).ok_or_else(|| {
        let doing = format!("taking back an approval of {}: none is held or in use", key.operation);
        Error::new(codes::COMMAND_REFUSED, Fault::Verdict, doing).next("name one that may still come with --approval")
    })?;
    Ok(Approval {
        approval_id,
        tenant: key.tenant.clone(),
        operation_id: key.operation.clone(),
        plan_hash: plan_hash(seen).unwrap_or_else(|| PlanHash::new("")),
        approver: terms.by.to_owned(),
        decision: Decision::Revoke,
        expires_at: terms.expires_at,
        policy_version: String::new(),
        reason: Some(terms.reason.to_owned()),
    })
}

/// Writes a command to the commands topic of `app`.
///
/// # Errors
/// `BROKER_UNREACHABLE`, `TOPIC_MISSING`.
pub fn publish<C: Cluster>(cluster: &C, app: &ApplicationId, command: &Command) -> Result<()> {
    let unreachable = |fault| unreached(format!("writing command {}", command.command_id), "check --brokers", fault);
    let topic = topics::commands(app);
    let info = cluster.admin().and_then(|a| a.topic(&topic)).map_err(unreachable)?;
    let partitions = info.map(|t| t.partitions).ok_or_else(|| {
        Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("writing a command: no topic {topic}")).next("check --app")
    })?;
    let message = CommandRecord::new(app, partitions, command)?;
    cluster.publish(&[message.as_record()], Duration::from_secs(20)).map_err(unreachable)?;
    Ok(())
}

/// Writes an order to pause or to go on to the commands topic of `app`.
///
/// # Errors
/// `BROKER_UNREACHABLE`, `TOPIC_MISSING`.
pub fn publish_switch<C: Cluster>(cluster: &C, app: &ApplicationId, order: &Switch) -> Result<()> {
    let unreachable = |fault| unreached("writing an order to pause", "check --brokers", fault);
    let topic = topics::commands(app);
    let info = cluster.admin().and_then(|a| a.topic(&topic)).map_err(unreachable)?;
    let partitions = info.map(|t| t.partitions).ok_or_else(|| {
        Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("writing an order: no topic {topic}")).next("check --app")
    })?;
    let (key, names) = (order.key(), Headers::new().with(headers::SCHEMA, Switch::SCHEMA));
    let value = serde_json::to_vec(order).map_err(|e| Error::new(codes::BUG, Fault::Bug, "writing an order as JSON").because(e))?;
    let record = OutRecord {
        topic: &topic,
        partition: Some(partition_of(key.root().as_str().as_bytes(), partitions)),
        timestamp: None,
        key: Some(key.as_str().as_bytes()),
        value: Some(&value),
        headers: Some(&names),
    };
    cluster.publish(&[record], Duration::from_secs(20)).map_err(unreachable)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::LedgerRecord;
    use crate::intents::ApprovalUse;

    /// If this broke, a yes that was taken back would still send, because another one than the one in use was named.
    #[test]
    fn the_approval_in_use_is_the_one_that_is_taken_back() {
        let key = OperationKey { tenant: "acme".into(), operation: "op-1".into(), step: "ask".into() };
        let mut ledger = LedgerRecord::held(key.clone(), WallTime(9));
        let terms = Terms { by: "person@acme", reason: "left", expires_at: WallTime(1) };
        let taken = |ledger: &LedgerRecord, named| {
            let seen = Seen { record: None, ledger: Some(ledger.clone()) };
            revocation(&key, &seen, named, &terms).map(|a| (a.approval_id.to_string(), a.decision))
        };
        assert_eq!(taken(&ledger, None).expect_err("none is known").code, codes::COMMAND_REFUSED);
        assert_eq!(taken(&ledger, Some("a-7")).expect("one that may still come"), ("a-7".to_owned(), Decision::Revoke));
        ledger.approval = Some(ApprovalUse {
            id: "a-1".into(),
            approver: "approver@acme".into(),
            plan_hash: PlanHash::new("p"),
            expires_at: WallTime(9),
            policy_version: String::new(),
        });
        assert_eq!(taken(&ledger, None).expect("the one in use").0, "a-1");
        assert_eq!(taken(&ledger, Some("a-7")).expect("as named").0, "a-7");
    }
}
