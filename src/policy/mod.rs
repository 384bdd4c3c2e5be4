//! Cedar policies, approvals, deadlines: may this be sent now? Pure; asked by the agent steps at the gate and by the effect unit
//! right before every send.

mod approval;
mod cedar;
mod send;

pub use approval::{ApprovalFault, Uses, approval_fault};
pub use cedar::{Ask, PolicySet, Verdict};
pub use send::{May, Refusal, SendFacts, may_send};
