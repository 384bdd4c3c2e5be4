//! Settings of the pure core, and the rules by name, so that a test can switch one off and see what it prevents.

use std::time::Duration;

/// A rule whose absence a test shows. In the program all of them hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// life.md 2: a record of another partition's operation is forwarded.
    OnePlace,
    /// life.md 4: identity is looked up before validity and budget.
    IdentityFirst,
    /// effects.md 9: other content under a known ID is a conflict.
    OneContent,
    /// life.md 4: a failed plan uses up the ID.
    PlanFailedUsesId,
    /// life.md 4: a plan answer under another identity hash is ignored.
    PlanHashChecked,
    /// life.md 5: a conflict prolongs the record's life.
    ConflictProlongs,
    /// life.md 5: an unknown request older than deadline + audit is stale.
    Stale,
    /// life.md 7: the intent carries the record's version.
    OneCounter,
    /// life.md 7: no state result and no deadline of its own after the hand-over.
    SilentAfterHandOver,
    /// life.md 8: the record is deleted only after `gone` from all.
    GoneFirst,
    /// life.md 9: the root's record routes for what is derived of it.
    RootRoutes,
    /// life.md 11: every command is answered, on ended records too.
    CommandsAnswered,
    /// life.md 14: after the hand-over only the owner answers a revoke.
    RevokeForwarded,
    /// life.md 14: a revoked approval stays revoked.
    RevokedStays,
    /// effects.md 22: an approval counts for the plan hash that it names only.
    ApprovalBinds,
    /// effects.md 22: the first committed plan wins.
    FirstPlanWins,
    /// life.md 15: an approval is spent by the hand-over.
    SpentOnce,
    /// effects.md 22: a call of a plan is written only when all that it needs has happened.
    NeedsFirst,
    /// effects.md 22: what is rendered otherwise than it was approved is not begun.
    PlanHolds,
    /// What a call stands on is undone after it, and not before it is known whether it happened.
    UndoReversed,
    /// What means the same as an earlier operation waits for a person.
    OneMeaning,
}

/// What the pure core must know besides the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Partitions of outbox, control and operations.
    pub partitions: u32,
    /// ε: wall-clock error declared for a host.
    pub clock_error: Duration,
    #[cfg(any(test, feature = "test-util"))]
    /// The rule that a test has switched off.
    pub weakened: Option<Rule>,
}

impl Settings {
    /// With every rule on.
    pub fn new(partitions: u32, clock_error: Duration) -> Self {
        Self {
            partitions,
            clock_error,
            #[cfg(any(test, feature = "test-util"))]
            weakened: None,
        }
    }

    /// Whether a rule holds.
    #[cfg(any(test, feature = "test-util"))]
    pub fn on(&self, rule: Rule) -> bool {
        self.weakened != Some(rule)
    }

    /// Whether a rule holds: always.
    #[cfg(not(any(test, feature = "test-util")))]
    pub fn on(&self, _rule: Rule) -> bool {
        true
    }
}
