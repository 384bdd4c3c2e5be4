//! The ledger beside the target's books. Pure: judged from the results topic, the cases and the books alone.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ids::OperationId;
use crate::intents::{ResultKind, ResultRecord, Status};

use super::cases::{Case, Class};
use super::target::Books;

/// One line of the table: an outcome in the ledger and what the target holds for those operations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// The outcome.
    pub outcome: String,
    /// Operations with it.
    pub ledger: usize,
    /// Effects that the target holds for them.
    pub at_target: usize,
}

/// The verdict of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// Operations asked for.
    pub operations: usize,
    /// Effects that the target really holds.
    pub effects_at_target: usize,
    /// Operations without any end or person to decide, or called confirmed without an effect, or called absent with one.
    pub lost: usize,
    /// Effects beyond the first of an operation.
    pub doubled: usize,
    /// Operations handed to a person.
    pub unknown: usize,
    /// Operations that nobody can decide, by the target's own schedule.
    pub undecidable: usize,
    /// Whether the unknown ones are exactly the undecidable ones.
    pub unknown_is_undecidable: bool,
    /// Per outcome.
    pub rows: Vec<Row>,
    /// Operations that are not as they must be: for the person who looks.
    pub wrong: Vec<String>,
}

impl Verdict {
    /// Whether ledger and books agree.
    pub fn holds(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.unknown_is_undecidable && self.wrong.is_empty()
    }
}

/// The last status of each root operation, from records in topic order.
pub fn last_status(records: &[ResultRecord]) -> BTreeMap<OperationId, ResultRecord> {
    let mut last: BTreeMap<OperationId, ResultRecord> = BTreeMap::new();
    for r in records.iter().filter(|r| r.kind == ResultKind::State && !r.operation_id.is_derived()) {
        let newer = last.get(&r.operation_id).is_none_or(|had| had.version <= r.version);
        if newer {
            last.insert(r.operation_id.clone(), r.clone());
        }
    }
    last
}

/// Whether every case has reached an end or a person.
pub fn settled(cases: &[Case], last: &BTreeMap<OperationId, ResultRecord>) -> usize {
    let at_rest = |r: &ResultRecord| r.status.is_end() || r.status == Status::Parked;
    cases.iter().filter(|c| last.get(&c.operation()).is_some_and(at_rest)).count()
}

/// How a case must end.
fn expected(case: &Case) -> Status {
    match case.class {
        _ if case.fault.undecidable() => Status::Parked,
        Class::Plain | Class::Approved => Status::Confirmed,
        Class::DeniedByApprover | Class::DeniedByPolicy => Status::Denied,
        Class::Expires => Status::Expired,
        Class::Refused => Status::Refused,
    }
}

/// Judges a run.
pub fn judge(cases: &[Case], records: &[ResultRecord], books: &Books) -> Verdict {
    let last = last_status(records);
    let mut rows: BTreeMap<&'static str, (usize, usize)> = BTreeMap::new();
    let (mut lost, mut doubled, mut unknown, mut wrong) = (0, 0, 0, Vec::new());
    let mut unknown_is_undecidable = true;
    for case in cases {
        let effects = books.count(&case.sku());
        let status = last.get(&case.operation()).map(|r| r.status);
        doubled += effects.saturating_sub(1);
        let parked = status == Some(Status::Parked);
        unknown += usize::from(parked);
        unknown_is_undecidable &= parked == case.fault.undecidable();
        let agrees = match status {
            Some(Status::Confirmed | Status::ResolvedApplied) => effects == 1,
            Some(Status::Parked) => effects <= 1,
            Some(s) if s.is_end() => effects == 0,
            _ => false,
        };
        if !agrees {
            lost += usize::from(effects <= 1);
            wrong.push(format!(
                "{}: {} in the ledger, {effects} at the target",
                case.operation(),
                status.map_or("nothing", Status::word)
            ));
        } else if status != Some(expected(case)) {
            let why = last.get(&case.operation()).and_then(|r| r.detail.clone()).unwrap_or_default();
            let found = status.map_or("nothing", Status::word);
            wrong.push(format!("{}: {found} instead of {} {why}", case.operation(), expected(case).word()));
        }
        let row = rows.entry(status.map_or("nothing", Status::word)).or_default();
        row.0 += 1;
        row.1 += effects;
    }
    Verdict {
        operations: cases.len(),
        effects_at_target: books.orders.len(),
        lost,
        doubled,
        unknown,
        undecidable: cases.iter().filter(|c| c.fault.undecidable()).count(),
        unknown_is_undecidable,
        rows: rows.into_iter().map(|(o, (ledger, at_target))| Row { outcome: o.into(), ledger, at_target }).collect(),
        wrong,
    }
}
