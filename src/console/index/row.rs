//! The row of one operation, and how lists show it.

use crate::admin::evidence::{changed_at, resource, why};
use crate::admin::views::{Half, Seen};
use crate::ids::OperationKey;
use crate::intents::{Cost, Flag, Status};
use crate::time::WallTime;

/// Where a record stands in its changelog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
}

/// What one half of an operation shows in lists.
pub(super) struct Glance {
    pub place: Place,
    /// `None`: only commands came so far.
    pub status: Option<Status>,
    pub version: i64,
    pub changed: WallTime,
    pub code: Option<Box<str>>,
    pub detail: Option<Box<str>>,
}

impl Glance {
    pub fn of(seen: &Seen, place: Place) -> Self {
        let status = seen.status();
        let (code, detail) = why(seen);
        let live = status.is_none_or(|s| !s.is_end());
        Self {
            place,
            status,
            version: seen.version(),
            changed: changed_at(seen),
            code: code.map(Into::into),
            detail: detail.filter(|_| live).map(|d| crate::outbox::cut(&d).into()),
        }
    }
}

/// One operation, as small as it can be: there may be millions.
#[derive(Default)]
pub(super) struct Row {
    pub operation: Box<str>,
    pub resource: Box<str>,
    pub tenant: u32,
    pub step: u32,
    pub target: u32,
    /// One bit a flag, and whether it was ever sent.
    pub flags: u8,
    pub record: Option<Glance>,
    pub ledger: Option<Glance>,
    /// What is charged for it and not settled; most have nothing.
    pub charged: Option<Box<Cost>>,
    /// Where its exact request stands, in the partition of its ledger record; negative: nowhere.
    pub body: i64,
}

impl Row {
    pub fn status(&self) -> Option<Status> {
        let of = |g: &Option<Glance>| g.as_ref().and_then(|g| g.status);
        of(&self.ledger).or_else(|| of(&self.record))
    }
    pub fn changed(&self) -> WallTime {
        let of = |g: &Option<Glance>| g.as_ref().map(|g| g.changed).filter(|at| at.0 > 0);
        of(&self.ledger).or_else(|| of(&self.record)).unwrap_or_default()
    }
    pub fn why(&self) -> (Option<&str>, Option<&str>) {
        let handed_over = self.ledger.as_ref().is_some_and(|g| g.status.is_some());
        let ledger = self.ledger.as_ref().filter(|g| g.code.is_some() || g.detail.is_some());
        // Words without a code from before the hand-over were about another status.
        let record = self.record.as_ref().filter(|g| !handed_over || g.code.is_some());
        ledger.or(record).map_or((None, None), |g| (g.code.as_deref(), g.detail.as_deref()))
    }
    pub fn half(&mut self, half: Half) -> &mut Option<Glance> {
        match half {
            Half::Ledger => &mut self.ledger,
            Half::Record => &mut self.record,
        }
    }
    /// Whether it is a model's call: the separator of its name is reserved, so no request has such an ID.
    pub fn proposal(&self) -> bool {
        self.operation.ends_with(".plan")
    }
    /// Whether neither half says anything: it stands under no facet.
    pub fn is_blank(&self) -> bool {
        self.record.is_none() && self.ledger.is_none()
    }
    /// The flags that are raised.
    pub fn raised(&self) -> impl Iterator<Item = Flag> + use<> {
        let flags = self.flags;
        FLAGS.into_iter().filter(move |f| flags & bit(*f) != 0)
    }
}

/// Every flag.
pub const FLAGS: [Flag; 3] = [Flag::DuplicateSuspected, Flag::Contradiction, Flag::CancelTooLate];

/// The bit of an operation that has an attempt.
pub(super) const SENT: u8 = 1 << 7;

/// A flag's bit.
pub(super) fn bit(flag: Flag) -> u8 {
    1 << flag as u8
}

/// A flag's word, as searches and metrics have it.
pub fn flag_word(flag: Flag) -> &'static str {
    match flag {
        Flag::DuplicateSuspected => "duplicate_suspected",
        Flag::Contradiction => "contradiction",
        Flag::CancelTooLate => "cancel_too_late",
    }
}

/// One operation as lists show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Which.
    pub key: OperationKey,
    /// `orders#create`; empty before the hand-over.
    pub target: String,
    /// What it acts on.
    pub resource: String,
    /// Where it stands; `None`: only commands came so far.
    pub status: Option<Status>,
    /// The version to compare and set on.
    pub version: i64,
    /// Why it stands there.
    pub code: Option<String>,
    /// In words; not kept for operations that have ended.
    pub detail: Option<String>,
    /// What must not pass silently.
    pub flags: Vec<Flag>,
    /// When it last changed.
    pub changed_at: WallTime,
    /// Where its operation record stands.
    pub record: Option<Place>,
    /// Where its ledger record stands.
    pub ledger: Option<Place>,
    /// Where its exact request stands.
    pub body: Option<Place>,
}

impl Listed {
    /// As it would be listed, of somebody who has both halves at hand.
    pub fn of(key: &OperationKey, seen: &Seen) -> Self {
        let ledger = seen.ledger.as_ref();
        let (code, detail) = why(seen);
        Self {
            key: key.clone(),
            target: ledger.filter(|l| !l.contract.is_empty()).map(|l| format!("{}#{}", l.contract, l.call)).unwrap_or_default(),
            resource: resource(seen).0,
            status: seen.status(),
            version: seen.version(),
            code,
            detail,
            flags: FLAGS.into_iter().filter(|f| ledger.is_some_and(|l| l.flags.contains(f))).collect(),
            changed_at: changed_at(seen),
            record: None,
            ledger: None,
            body: None,
        }
    }
    /// The word of its status.
    pub fn word(&self) -> &'static str {
        self.status.map_or("held", Status::word)
    }
}
