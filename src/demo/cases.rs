//! What the demo asks for and what is broken on purpose: one case an operation, all drawn from the seed.

use std::time::Duration;

use crate::ids::{MessageId, OperationId, Resource, Tenant};
use crate::intents::{Cost, Input, WorkRequest, WrittenFor};
use crate::time::WallTime;

use super::rng::Rng;

/// What the target does to the first call of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Applies and answers.
    None,
    /// Applies, then the connection breaks without an answer.
    AnswerLost,
    /// The connection breaks before anything is applied.
    RequestLost,
    /// Applies, then answers 500.
    ErrorAfterApplying,
    /// Applies, then answers later than the client waits.
    LateAnswer,
    /// Applies after the client has gone.
    AppliedAfterLeaving,
    /// 429 with Retry-After; applies nothing.
    TooManyRequests,
    /// As `AnswerLost`, and every readback of this order stays incomplete: nobody can decide.
    UndecidableApplied,
    /// As `RequestLost`, and every readback of this order stays incomplete: nobody can decide.
    UndecidableAbsent,
}

impl Fault {
    /// The key in the JSON report and the word on the screen.
    pub fn label(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::AnswerLost => "answers_lost",
            Fault::RequestLost => "requests_lost",
            Fault::ErrorAfterApplying => "errors_after_applying",
            Fault::LateAnswer => "late_answers",
            Fault::AppliedAfterLeaving => "applied_after_leaving",
            Fault::TooManyRequests => "too_many_requests",
            Fault::UndecidableApplied | Fault::UndecidableAbsent => "readbacks_incomplete",
        }
    }
    /// Whether nobody can decide what happened.
    pub fn undecidable(self) -> bool {
        matches!(self, Fault::UndecidableApplied | Fault::UndecidableAbsent)
    }
}

/// How an operation is meant to go, faults aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Placed without a person.
    Plain,
    /// Dear enough to need an approval, which comes.
    Approved,
    /// Needs an approval; the approver says no.
    DeniedByApprover,
    /// The policy says no.
    DeniedByPolicy,
    /// Needs an approval that never comes before the deadline.
    Expires,
    /// Approved, and refused by the target for its content.
    Refused,
}

/// One operation of the demo.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its number.
    pub index: usize,
    /// How it is meant to go.
    pub class: Class,
    /// What is broken.
    pub fault: Fault,
    /// How many pieces are ordered.
    pub quantity: i64,
}

/// Above this the target refuses (422).
pub const REFUSED_FROM: i64 = 900;
/// A piece costs so much; above 500 in total the topology asks for an approval.
pub const PRICE: i64 = 10;
/// The tenant that the policy forbids.
pub const BLOCKED_TENANT: &str = "blocked";

impl Case {
    /// `op-0137`.
    pub fn operation(&self) -> OperationId {
        OperationId::from(format!("op-{:04}", self.index))
    }
    /// `SKU-0137`: what the target's books name it by.
    pub fn sku(&self) -> String {
        format!("SKU-{:04}", self.index)
    }
    /// The request, with its deadline counted from `now`.
    pub fn request(&self, now: WallTime, message: u32) -> WorkRequest {
        let tenant =
            if self.class == Class::DeniedByPolicy { BLOCKED_TENANT } else { ["acme", "globex", "initech"][self.index % 3] };
        let input = serde_json::json!({ "want": self.sku(), "pieces": self.quantity });
        let patience = if self.class == Class::Expires { Duration::from_secs(25) } else { Duration::from_secs(600) };
        WorkRequest {
            operation_id: self.operation(),
            message_id: MessageId::from(format!("msg-{:04}-{message}", self.index)),
            attempt_id: None,
            tenant: Tenant::new(tenant),
            requester: "agent:buyer".into(),
            resource: Resource::from(format!("order/A-{:04}", self.index)),
            resource_version: Some("1".into()),
            action: "order.create".into(),
            input: Input { media_type: "application/json".into(), inline: Some(input.to_string()), locator: None, sha256: None },
            deadline: now.plus(patience),
            required_permissions: vec!["orders:create".into()],
            approval_ref: None,
            cost_estimate: Cost { tokens: 800, bytes: 2_048, tool_calls: 1 },
            written_for: WrittenFor { topology: Some("3".into()), prompt: Some("buyer.v7".into()), tools: None },
            traceparent: None,
        }
    }
}

/// Draws `n` cases from `seed`: classes and faults in fixed shares, in seeded order.
pub fn draw(seed: u64, n: usize) -> Vec<Case> {
    let mut rng = Rng::new(seed);
    let share = |per_thousand: usize| (n * per_thousand).div_ceil(1_000);
    let mut order: Vec<usize> = (0..n).collect();
    rng.shuffle(&mut order);
    let mut cases: Vec<Case> =
        (0..n).map(|index| Case { index, class: Class::Plain, fault: Fault::None, quantity: 1 + rng.below(40) as i64 }).collect();
    let mut next = order.into_iter();
    let mut give = |count: usize, class: Class, fault: Fault| {
        for i in next.by_ref().take(count) {
            cases[i].class = class;
            cases[i].fault = fault;
        }
    };
    give(share(38), Class::Refused, Fault::None);
    give(share(18), Class::DeniedByPolicy, Fault::None);
    give(share(16), Class::DeniedByApprover, Fault::None);
    give(share(30), Class::Expires, Fault::None);
    give(share(80), Class::Approved, Fault::None);
    for (per_thousand, fault) in [
        (10, Fault::UndecidableApplied),
        (6, Fault::UndecidableAbsent),
        (42, Fault::AnswerLost),
        (20, Fault::RequestLost),
        (24, Fault::ErrorAfterApplying),
        (18, Fault::LateAnswer),
        (12, Fault::AppliedAfterLeaving),
        (62, Fault::TooManyRequests),
    ] {
        give(share(per_thousand), Class::Plain, fault);
    }
    for case in &mut cases {
        case.quantity = match case.class {
            Class::Refused => 1_000,
            Class::Approved | Class::DeniedByApprover | Class::Expires => 51 + rng.below(30) as i64,
            Class::Plain | Class::DeniedByPolicy => case.quantity,
        };
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, `--seed N` would not repeat the same faults.
    #[test]
    fn a_seed_repeats_itself() {
        let of = |seed| draw(seed, 500).into_iter().map(|c| (c.fault, c.quantity)).collect::<Vec<_>>();
        assert_eq!(of(11), of(11));
        assert_ne!(of(11), of(12));
    }

    /// If this broke, some fault of the story would silently not happen.
    #[test]
    fn every_fault_and_class_is_there() {
        let cases = draw(11, 500);
        assert_eq!(cases.len(), 500);
        for fault in [
            Fault::AnswerLost,
            Fault::RequestLost,
            Fault::ErrorAfterApplying,
            Fault::LateAnswer,
            Fault::AppliedAfterLeaving,
            Fault::TooManyRequests,
        ] {
            assert!(cases.iter().filter(|c| c.fault == fault).count() >= 5, "{fault:?}");
        }
        assert_eq!(cases.iter().filter(|c| c.fault.undecidable()).count(), 8);
        for class in [Class::Plain, Class::Approved, Class::DeniedByApprover, Class::DeniedByPolicy, Class::Expires, Class::Refused]
        {
            assert!(cases.iter().any(|c| c.class == class), "{class:?}");
        }
    }
}
