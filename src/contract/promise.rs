//! What may be promised of a call, and why it holds.

use std::time::Duration;

use crate::time::show_duration;

/// What may be printed for a call; follows from the contract, never chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// At most one, automatic: dedupe for ever.
    AtMostOneKeyed,
    /// At most one, automatic while the key is remembered, then readback, then a person.
    AtMostOneKeyedWhile(Duration),
    /// At most one, automatic: the request names a version that never comes again.
    AtMostOneConditional,
    /// At most one, automatic: the target makes one thing under an ID of ours, and refuses a second one.
    AtMostOneCreated,
    /// At most one, automatic once the target refuses what may still be on its way: complete readback, bounded age.
    AtMostOneFenced(Duration),
    /// At most one, automatic after settle: complete readback, bounded L and V.
    AtMostOneReadback,
    /// At most one; absent goes to a person: complete readback, unbounded L.
    AtMostOneReadbackPerson,
    /// At most one; ambiguous goes to a person: nothing provable.
    AtMostOnePerson,
    /// Duplicates accepted and counted.
    DuplicatesCounted,
}

impl Promise {
    /// Whether an attempt that may have been sent is settled without a person and without a duplicate.
    pub fn resolves_itself(self) -> bool {
        match self {
            Promise::AtMostOneKeyed
            | Promise::AtMostOneKeyedWhile(_)
            | Promise::AtMostOneConditional
            | Promise::AtMostOneCreated
            | Promise::AtMostOneFenced(_)
            | Promise::AtMostOneReadback => true,
            Promise::AtMostOneReadbackPerson | Promise::AtMostOnePerson | Promise::DuplicatesCounted => false,
        }
    }

    /// Whether calls may be streams among others in HTTP/2: where the target itself sees to it that a copy is no second effect. Whether
    /// a request that is written among others has left, and when, is known less well; a readback needs to know it.
    pub fn may_share_streams(self) -> bool {
        match self {
            Promise::AtMostOneKeyed
            | Promise::AtMostOneKeyedWhile(_)
            | Promise::AtMostOneConditional
            | Promise::AtMostOneCreated
            | Promise::AtMostOneFenced(_) => true,
            Promise::AtMostOneReadback
            | Promise::AtMostOneReadbackPerson
            | Promise::AtMostOnePerson
            | Promise::DuplicatesCounted => false,
        }
    }

    /// The promise as people read it.
    pub fn words(self) -> &'static str {
        match self {
            Promise::DuplicatesCounted => "may happen more than once, counted",
            _ => "at most one effect per operation",
        }
    }
    /// Why it holds.
    pub fn because(self) -> String {
        match self {
            Promise::AtMostOneKeyed => "the target drops a known key, for ever".into(),
            Promise::AtMostOneKeyedWhile(window) => {
                format!(
                    "the target drops a known key for {}; after that it is read back, then a person decides",
                    show_duration(window)
                )
            }
            Promise::AtMostOneConditional => {
                "the request names the version that was seen, which never comes again: the target refuses every copy but one".into()
            }
            Promise::AtMostOneCreated => {
                "the target makes one thing under an ID of ours, for ever: sent again; a taken ID is read back".into()
            }
            Promise::AtMostOneFenced(age) => format!(
                "complete readback; the target refuses a request older than {}: a new attempt only when absent after that",
                show_duration(age)
            ),
            Promise::AtMostOneReadback => "complete readback; re-send only when absent after the settle time".into(),
            Promise::AtMostOneReadbackPerson => {
                "complete readback; what stays absent goes to a person, since a request may arrive at any time".into()
            }
            Promise::AtMostOnePerson => "nothing can be proved; what is ambiguous goes to a person".into(),
            Promise::DuplicatesCounted => {
                "the contract accepts duplicates: what nothing proves is sent again, and each such send is counted".into()
            }
        }
    }
}
