//! What people have decided about an operation, as its records keep it: who, when, why, and by which way their word came. Pure.

use serde::{Deserialize, Serialize};

use crate::ids::ApprovalId;
use crate::time::WallTime;

use super::{Approval, Command, CommandKind, Decision, Resolution};

/// Characters of a reason that are kept beside a decision; what is longer is cut.
pub const REASON_KEPT: usize = 500;
/// Characters of a name, or of what was looked at, that are kept.
const NAME_KEPT: usize = 200;
/// Decisions that one record keeps; then the oldest go.
pub const DECISIONS_KEPT: usize = 32;

/// By which way a person's word came, and with it whether their name was proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// The console, its pages or its API: they had signed in.
    Console,
    /// The command line: the name was given, and nobody has verified it.
    CommandLine,
    /// The approvals topic: whoever may write to it has given the name.
    ApprovalsTopic,
}

impl Via {
    /// What stands beside a name that came this way; `None`: it is not recorded how.
    pub fn beside(via: Option<Via>) -> &'static str {
        match via {
            Some(Via::Console) => "signed in",
            Some(Via::CommandLine) => "given on the command line, not verified",
            Some(Via::ApprovalsTopic) => "given on the approvals topic, not verified",
            None => "not verified",
        }
    }
}

/// What was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// The plan may be executed.
    Approve,
    /// It may not.
    Deny,
    /// An approval is taken back.
    Revoke,
    /// No further send.
    Cancel,
    /// The effect exists.
    ResolveApplied,
    /// It does not.
    ResolveNotApplied,
    /// One more send.
    Force,
    /// The operations behind it go on.
    ReleaseLane,
}

impl Deed {
    /// What a command orders; `None` where it only asks.
    pub fn of(command: &Command) -> Option<Deed> {
        Some(match (command.kind, command.resolution, command.approval.as_ref().map(|a| a.decision)) {
            (CommandKind::Cancel, ..) => Deed::Cancel,
            (CommandKind::Resolve, Some(Resolution::NotApplied), _) => Deed::ResolveNotApplied,
            (CommandKind::Resolve, ..) => Deed::ResolveApplied,
            (CommandKind::Force, ..) => Deed::Force,
            (CommandKind::ReleaseLane, ..) => Deed::ReleaseLane,
            (CommandKind::ApproveLate, _, Some(Decision::Deny)) => Deed::Deny,
            (CommandKind::ApproveLate, ..) => Deed::Approve,
            (CommandKind::Revoke, ..) => Deed::Revoke,
            (CommandKind::Query, ..) => return None,
        })
    }
    /// As people call it where it was done.
    pub fn done(self) -> &'static str {
        match self {
            Deed::Approve => "approved",
            Deed::Deny => "denied",
            Deed::Revoke => "the approval was taken back",
            Deed::Cancel => "cancelled",
            Deed::ResolveApplied => "resolved as applied",
            Deed::ResolveNotApplied => "resolved as not applied",
            Deed::Force => "sent once more by order",
            Deed::ReleaseLane => "lane released",
        }
    }
    /// As it is ordered.
    pub fn word(self) -> &'static str {
        match self {
            Deed::Approve => "approve",
            Deed::Deny => "deny",
            Deed::Revoke => "revoke",
            Deed::Cancel => "cancel",
            Deed::ResolveApplied | Deed::ResolveNotApplied => "resolve",
            Deed::Force => "force",
            Deed::ReleaseLane => "release-lane",
        }
    }
}

/// One decision, kept beside what came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decided {
    /// When it was taken in.
    pub at: WallTime,
    /// What.
    pub deed: Deed,
    /// Who; empty = the operation's own record, which says in its reason on whose word.
    pub by: String,
    /// The second person, where there was one.
    pub second: Option<String>,
    /// By which way; none: it is not recorded, and the name is not verified.
    pub via: Option<Via>,
    /// Why; at most [`REASON_KEPT`] characters.
    pub reason: String,
    /// What was looked at.
    pub evidence: Option<String>,
    /// Which approval, for a decision about one.
    pub approval: Option<ApprovalId>,
}

impl Decided {
    /// What a command decides, taken in at `at`; none where it only asks.
    pub fn by_command(c: &Command, at: WallTime) -> Option<Self> {
        Some(Self {
            at,
            deed: Deed::of(c)?,
            by: first(&c.by, NAME_KEPT),
            second: c.second.as_deref().filter(|s| !s.is_empty()).map(|s| first(s, NAME_KEPT)),
            via: c.via,
            reason: first(c.reason.trim(), REASON_KEPT),
            evidence: c.evidence.as_deref().map(|e| first(e, NAME_KEPT)),
            approval: c.approval.as_ref().map(|a| a.approval_id.clone()),
        })
    }
    /// What an approver's word decides, taken in at `at`.
    pub fn by_approval(a: &Approval, via: Option<Via>, at: WallTime) -> Self {
        Self {
            at,
            deed: match a.decision {
                Decision::Approve => Deed::Approve,
                Decision::Deny => Deed::Deny,
                Decision::Revoke => Deed::Revoke,
            },
            by: first(&a.approver, NAME_KEPT),
            second: None,
            via,
            reason: first(a.reason.as_deref().unwrap_or_default().trim(), REASON_KEPT),
            evidence: None,
            approval: Some(a.approval_id.clone()),
        }
    }

    /// Who, both where there were two.
    pub fn who(&self) -> String {
        match &self.second {
            Some(second) => format!("{} and {second}", self.by),
            None => self.by.clone(),
        }
    }
    /// Done by whom and why, as a detail: `cancelled by olga@acme: the customer withdrew`.
    pub fn words(&self) -> String {
        if self.by.is_empty() && !self.reason.is_empty() {
            return self.reason.clone();
        }
        let of = if self.deed == Deed::Force { "of" } else { "by" };
        let by = if self.by.is_empty() { String::new() } else { format!(" {of} {}", self.who()) };
        let why = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        format!("{}{by}{why}", self.deed.done())
    }
    /// About how many bytes it takes where it is kept.
    pub fn weight(&self) -> usize {
        let texts = [&self.second, &self.evidence].into_iter().flatten().map(String::len).sum::<usize>();
        let approval = self.approval.as_ref().map_or(0, |a| a.as_str().len());
        32 + self.by.len() + self.reason.len() + texts + approval
    }
}

/// Keeps a decision; beyond [`DECISIONS_KEPT`] the oldest goes.
pub fn keep(kept: &mut Vec<Decided>, decided: Decided) {
    if kept.len() >= DECISIONS_KEPT {
        kept.remove(0);
    }
    kept.push(decided);
}

/// What policy said when it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyWord {
    /// When.
    pub at: WallTime,
    /// The version of the policy: a hash of its text.
    pub version: Option<String>,
    /// Whether it allowed the effect.
    pub allowed: bool,
}

/// At most so many characters of a text.
fn first(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(reason: &str) -> Decided {
        let approval = Approval {
            approval_id: "a-1".into(),
            tenant: "acme".into(),
            operation_id: "op-1".into(),
            plan_hash: "p-1".into(),
            approver: "mira@acme".into(),
            decision: Decision::Deny,
            expires_at: WallTime(9),
            policy_version: String::new(),
            reason: Some(reason.to_owned()),
        };
        Decided::by_approval(&approval, Some(Via::Console), WallTime(7))
    }

    /// If this broke, one person could fill the record of an operation with a reason, until nothing of it may be sent any more.
    #[test]
    fn a_reason_is_kept_up_to_a_stated_length_and_so_are_decisions() {
        let long = said(&"ä".repeat(REASON_KEPT + 100));
        assert_eq!(long.reason.chars().count(), REASON_KEPT);
        let mut kept = vec![said("the first")];
        (0..DECISIONS_KEPT).for_each(|_| keep(&mut kept, said("later")));
        assert_eq!((kept.len(), kept[0].reason.as_str()), (DECISIONS_KEPT, "later"));
    }

    /// If this broke, whoever decided or why would be missing where the decision is read.
    #[test]
    fn a_decision_says_who_and_why() {
        assert_eq!(said(" too dear ").words(), "denied by mira@acme: too dear");
        let two = Decided { second: Some("otto@acme".into()), deed: Deed::Force, reason: String::new(), ..said("x") };
        assert_eq!(two.words(), "sent once more by order of mira@acme and otto@acme");
        let own = Decided { by: String::new(), deed: Deed::Cancel, ..said("its operation ended as expired") };
        assert_eq!(own.words(), "its operation ended as expired");
    }
}
