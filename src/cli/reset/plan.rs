//! What a reset would do, and what speaks against it. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::ids::{GroupId, TopicName, Tp};
use crate::offset::NextOffset;

/// A position that moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub tp: Tp,
    pub from: Option<NextOffset>,
    pub to: NextOffset,
    /// Whether records that may have been read are read again.
    pub again: bool,
}

/// What is known of the operations whose records would go.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Operations {
    /// Those that have not ended, by status.
    pub open: BTreeMap<String, usize>,
    /// Ended ones whose deadline is ahead: read again, they would be sent again.
    pub due: usize,
    /// Whether requests wait that were taken from their sources, and that nobody has admitted.
    pub waiting: bool,
    /// Whether the ledger that should be there can't be read.
    pub unreadable: bool,
}

/// Everything that a reset would do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    pub application: String,
    pub directories: Vec<PathBuf>,
    pub moves: Vec<Move>,
    pub topics: Vec<(TopicName, u32)>,
    /// Topics under the application's name that are left alone.
    pub left: Vec<TopicName>,
    pub groups: Vec<GroupId>,
    /// Who is a member now.
    pub members: Vec<(GroupId, String)>,
    pub operations: Operations,
}

impl Plan {
    /// What forbids it, each in a sentence. A person may take the loss of operations upon themselves, nothing else.
    pub fn refusals(&self, forget: bool) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(alive(&self.members));
        if forget {
            return all;
        }
        let open = &self.operations.open;
        if !open.is_empty() {
            let each: Vec<_> = open.iter().map(|(status, n)| format!("{n} {status}")).collect();
            all.push(format!(
                "operations are open ({}): without the ledger nobody knows what was sent for them, and a second effect is possible. \
                 See them closed (`readback ops list`), or take it upon you: --forget-operations --reason",
                each.join(", ")
            ));
        }
        if self.operations.due > 0 && self.goes_back() {
            all.push(format!(
                "{} ended operations have a deadline ahead and their requests would be read again: each could be sent a second time. \
                 Wait for the deadlines, use --to-latest, or take it upon you: --forget-operations --reason",
                self.operations.due
            ));
        }
        if self.operations.waiting {
            all.push(
                "requests wait in the intake, taken from their sources and not yet admitted: they would be gone. \
                 Let members work them off, or take it upon you: --forget-operations --reason"
                    .into(),
            );
        }
        if self.operations.unreadable {
            all.push(
                "the ledger is not there, so nobody can say what is open; look at the target, then: --forget-operations --reason"
                    .into(),
            );
        }
        all
    }

    /// Whether anything is read a second time.
    fn goes_back(&self) -> bool {
        self.moves.iter().any(|m| m.again)
    }
}

/// That members are alive, where there are any.
pub(super) fn alive(members: &[(GroupId, String)]) -> Option<String> {
    let who: Vec<_> = members.iter().map(|(group, member)| format!("{member} of {group}")).collect();
    (!who.is_empty()).then(|| {
        format!("members are alive: {}. Stop all; one that was stopped stays listed for a session timeout", who.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(from: i64, to: i64) -> Plan {
        let moves = vec![Move { tp: Tp::new("requests", 0), from: Some(NextOffset(from)), to: NextOffset(to), again: to < from }];
        Plan { moves, ..Plan::default() }
    }

    /// If this broke, a reset would forget what was sent, and every request that is read again would be a second effect.
    #[test]
    fn what_may_double_is_refused_until_a_person_takes_it_upon_them() {
        assert!(plan(5, 0).refusals(false).is_empty(), "without operations nothing can double");
        let mut open = plan(5, 5);
        open.operations.open.insert("parked".into(), 1);
        assert!(open.refusals(false)[0].contains("1 parked"), "{:?}", open.refusals(false));
        assert!(open.refusals(true).is_empty());
        let due = |to| Plan { operations: Operations { due: 2, ..Operations::default() }, ..plan(5, to) };
        assert_eq!((due(0).refusals(false).len(), due(5).refusals(false).len(), due(9).refusals(false).len()), (1, 0, 0));
        let blind = Plan { operations: Operations { unreadable: true, ..Operations::default() }, ..plan(0, 0) };
        assert_eq!((blind.refusals(false).len(), blind.refusals(true).len()), (1, 0));
    }

    /// If this broke, topics would be deleted under a member that is at work.
    #[test]
    fn live_members_are_never_overruled() {
        let alive = Plan { members: vec![("shop".into(), "shop-000".into())], ..plan(5, 0) };
        assert!(alive.refusals(true)[0].contains("shop-000 of shop"), "{:?}", alive.refusals(true));
    }
}
