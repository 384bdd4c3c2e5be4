//! What the API takes and answers, as JSON; the OpenAPI document is made of these types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::act::Wanted;
use super::second::Waiting;
use super::shown::Row;

/// How far the operations are read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Reading {
    /// Whether everything that was there at the start is read: before that, lists are not whole.
    pub whole: bool,
    /// Records that could not be read.
    pub unreadable: u64,
    /// Operations that have ended and were left out for room.
    pub left_out: u64,
    /// Why reading does not go on, where it does not.
    pub problem: Option<String>,
}

/// A page of operations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Operations {
    /// `readback.operations/1`.
    pub schema: String,
    /// The entries; a page may have fewer than the limit, or none, and still have a next one.
    pub operations: Vec<Row>,
    /// The `cursor` of the next page, where there may be one.
    pub next: Option<String>,
    /// How far the operations are read.
    pub reading: Reading,
}

/// How many operations stand where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Overview {
    /// `readback.overview/1`.
    pub schema: String,
    /// Whose operations.
    pub application: String,
    /// By status.
    pub by_status: BTreeMap<String, usize>,
    /// By target and status.
    pub by_target: BTreeMap<String, BTreeMap<String, usize>>,
    /// What is unknown for the longest time.
    pub oldest_unknown: Option<Row>,
    /// What is parked for the longest time.
    pub oldest_parked: Option<Row>,
    /// What waits longest for an approval.
    pub oldest_awaiting_approval: Option<Row>,
    /// What may not be sent for now.
    pub paused: Vec<Paused>,
    /// How far the operations are read.
    pub reading: Reading,
}

/// An order that holds back what it is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Paused {
    /// `everything`, `target/<contract>`, `target/<contract>#<call>`, `tenant/<tenant>`, `step/<step>`.
    pub scope: String,
    /// Who ordered it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When: milliseconds since 1970 in UTC.
    pub at: i64,
    /// How many partitions of the effect unit have taken it.
    pub partitions: usize,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Session {
    /// The name that stands beside decisions; `None`: nobody can sign in, it is read-only.
    pub name: Option<String>,
    /// The roles.
    pub roles: Vec<String>,
    /// What they may order.
    pub may: Vec<String>,
}

/// The answer to an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct CommandAnswer {
    /// `readback.command/1`.
    pub schema: String,
    /// The command.
    pub command: String,
    /// Whether the member that owns the operation has answered. Without that the order stands in the topic and is not done (202).
    pub answered: bool,
    /// Until when it waits for a second person, where it does: milliseconds since 1970 in UTC. Then nothing is ordered yet (202).
    pub waits_until: Option<i64>,
    /// The answer in words.
    pub detail: String,
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Its tenant, where the ID is not unique.
            #[serde(default)]
            pub tenant: Option<String>,
            /// Its step, where the ID is not unique.
            #[serde(default)]
            pub step: Option<String>,
            /// The version that was shown; compulsory but for `cancel` and `release-lane`.
            #[serde(default)]
            pub seen: Option<i64>,
            /// Why; kept for ever beside the decision.
            pub reason: String,
            /// What was looked at: a link or reference.
            #[serde(default)]
            pub evidence: Option<String>,
            /// The command's ID, chosen by the caller: a repeat is answered as the first one was.
            #[serde(default)]
            pub command: Option<String>,
            $($(#[$fdoc])* pub $field: $type,)*
        }

        impl $name {
            pub(super) fn common(&self, operation: &str) -> Wanted {
                Wanted {
                    operation: operation.to_owned(),
                    tenant: self.tenant.clone(),
                    step: self.step.clone(),
                    seen: self.seen,
                    reason: self.reason.clone(),
                    evidence: self.evidence.clone(),
                    command: self.command.clone(),
                    ..Wanted::default()
                }
            }
        }
    )*};
}

bodies! {
    /// An order.
    OrderBody {
        /// The second person's own token, where one is needed: before settle.
        #[serde(default)]
        second_token: Option<String>,
        /// Without it: let the order wait for a second person who confirms it.
        #[serde(default)]
        ask_second: bool,
    }
    /// What happened.
    ResolveBody {
        /// What was found at the target.
        resolution: Found,
        /// The second person's own token, where one is needed: `not_applied` before settle.
        #[serde(default)]
        second_token: Option<String>,
        /// Without it: let the order wait for a second person who confirms it.
        #[serde(default)]
        ask_second: bool,
    }
    /// A decision about a plan.
    DecideBody {
        /// The hash of the plan that was shown.
        plan_hash: String,
        /// How long an approval may be used: `30m`; a gate may allow less.
        #[serde(default)]
        expires: Option<String>,
    }
}

/// A second person's word for an order that waits.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmBody {
    /// The command that waits.
    pub command: String,
    /// Why; kept for ever beside the decision.
    pub reason: String,
}

/// Orders that wait for a second person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct WaitingOrders {
    /// `readback.waiting/1`.
    pub schema: String,
    /// The orders.
    pub orders: Vec<Waiting>,
}

/// What was found at the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The effect exists.
    Applied,
    /// It does not.
    NotApplied,
}
