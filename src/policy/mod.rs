//! Cedar policies and approvals. Pure; asked by the agent steps at the gate and by the effect unit right before every send.

mod approval;
mod cedar;

pub use approval::{ApprovalFault, Uses, approval_fault};
pub use cedar::{Ask, PolicySet, Verdict};
