//! What people order about operations: the approval of the plan that was shown, and the command on its way to the topic. Shared by
//! `readback ops` and the console.

use std::time::Duration;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, ApprovalId, OperationKey, PlanHash};
use crate::intents::{Approval, Command, Decision, topics};
use crate::kafka::Cluster;
use crate::outbox::commands::CommandRecord;
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

/// Writes a command to the commands topic of `app`.
///
/// # Errors
/// `BROKER_UNREACHABLE`, `TOPIC_MISSING`.
pub fn publish<C: Cluster>(cluster: &C, app: &ApplicationId, command: &Command) -> Result<()> {
    let unreachable = |fault| {
        Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, format!("writing command {}", command.command_id)).because(fault)
    };
    let topic = topics::commands(app);
    let info = cluster.admin().and_then(|a| a.topic(&topic)).map_err(unreachable)?;
    let partitions = info.map(|t| t.partitions).ok_or_else(|| {
        Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("writing a command: no topic {topic}")).next("check --app")
    })?;
    let message = CommandRecord::new(app, partitions, command)?;
    cluster.publish(&[message.as_record()], Duration::from_secs(20)).map_err(unreachable)?;
    Ok(())
}
