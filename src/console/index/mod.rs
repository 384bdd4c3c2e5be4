//! What is listed of operations: a small row for each, under facets in the order of change. Evidence stays in Kafka and is read when
//! somebody looks. Pure.
//!
//! Memory: a row takes about 480 bytes with its facets and names (`a_page_of_a_million_operations_looks_at_few_rows` measures it); beyond
//! [`MOST_ROWS`] those that ended first are left out.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use crate::admin::evidence::resource;
use crate::admin::views::{Half, Seen};
use crate::agent::Purse;
use crate::ids::{OperationKey, Tenant};
use crate::intents::{Cost, Flag, Status, Switch};
use crate::time::WallTime;

use super::facets::{Facet, Names, SPOT};
use row::{Glance, Row, SENT, bit};

pub use page::{LOOKED_AT, Page};
pub use row::{FLAGS, Listed, Place, flag_word};

mod page;
mod row;

/// Rows that are held at most; an operation that still lives is never left out.
pub const MOST_ROWS: usize = 4_000_000;

/// What the operations of a tenant hold of its budgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spend {
    /// Operations that are charged and not settled.
    pub operations: usize,
    /// What they are charged.
    pub charged: Cost,
}

/// All operations that a tail has seen.
#[derive(Default)]
pub struct Index {
    rows: Vec<Row>,
    free: Vec<u32>,
    facets: BTreeSet<u128>,
    names: Names,
    hash: RandomState,
    counts: BTreeMap<(u32, u32), usize>,
    flagged: [usize; FLAGS.len()],
    spends: BTreeMap<u32, Spend>,
    purses: BTreeMap<(u32, i32), Purse>,
    paused: BTreeMap<(String, i32), Switch>,
    /// Raised by each change.
    pub changes: u64,
    /// Operations that ended and were left out for room.
    pub left_out: u64,
}

fn number(status: Option<Status>) -> u32 {
    status.map_or(255, |s| s as u32)
}

impl Index {
    /// How many operations are held.
    pub fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what one half's record says; `seen` holds that half only. Answers the statuses that the operation has come to since: those
    /// that it has passed without being looked at are told by what it has now.
    pub fn put(&mut self, key: &OperationKey, half: Half, seen: &Seen, place: Place) -> Vec<Status> {
        let row = self.row(key).unwrap_or_else(|| self.add(key));
        self.leave(row);
        let before = self.rows[row as usize].status();
        let mut came = Vec::new();
        let target = seen.ledger.as_ref().filter(|l| !l.contract.is_empty()).map(|l| format!("{}#{}", l.contract, l.call));
        let target = target.map(|t| self.names.number(&t));
        let r = &mut self.rows[row as usize];
        r.target = target.unwrap_or(r.target);
        let (resource, _) = resource(seen);
        if !resource.is_empty() {
            r.resource = resource.into();
        }
        if let Some(l) = &seen.ledger {
            let sent = if l.attempts.is_empty() { 0 } else { SENT };
            if r.ledger.is_none() {
                came.push(Status::Approved);
            }
            if sent > r.flags & SENT {
                came.push(Status::Dispatched);
            }
            r.flags = l.flags.iter().fold(sent, |bits, f| bits | bit(*f));
        }
        if let Some(o) = &seen.record {
            if r.record.is_none() {
                came.push(Status::Accepted);
            }
            r.charged = (!o.settled && o.charged != Cost::default()).then(|| Box::new(o.charged));
        }
        *r.half(half) = Some(Glance::of(seen, place));
        let after = r.status();
        came.extend(after.filter(|status| after != before && !came.contains(status)));
        self.enter(row);
        self.make_room();
        came
    }

    /// The exact request of an operation stands there, in the partition of its ledger record; `None`: nowhere any more. It comes
    /// before the record that lists the operation.
    pub fn put_body(&mut self, key: &OperationKey, offset: Option<i64>) {
        let row = match (self.row(key), offset) {
            (Some(row), _) => row,
            (None, Some(_)) => self.add(key),
            (None, None) => return,
        };
        self.leave(row);
        self.rows[row as usize].body = offset.unwrap_or(-1);
        self.put_back(row);
    }

    /// What is left of a tenant's budgets in a partition; `None`: it is kept no more.
    pub fn put_purse(&mut self, tenant: &Tenant, partition: i32, purse: Option<Purse>) {
        let place = (self.names.number(tenant.as_str()), partition);
        self.changes += 1;
        match purse {
            Some(purse) => drop(self.purses.insert(place, purse)),
            None => drop(self.purses.remove(&place)),
        }
    }

    /// A partition of the effect unit has taken an order to pause a scope; `None`: to go on.
    pub fn put_switch(&mut self, scope: String, partition: i32, switch: Option<Switch>) {
        self.changes += 1;
        match switch {
            Some(switch) => drop(self.paused.insert((scope, partition), switch)),
            None => drop(self.paused.remove(&(scope, partition))),
        }
    }

    /// What is paused: the latest order for each scope, and how many partitions have taken one.
    pub fn paused(&self) -> Vec<(&Switch, usize)> {
        let mut all: Vec<(&Switch, usize)> = Vec::new();
        for ((scope, _), switch) in &self.paused {
            match all.last_mut().filter(|(of, _)| of.scope.to_string() == *scope) {
                Some((latest, partitions)) => {
                    *partitions += 1;
                    *latest = if switch.at > latest.at { switch } else { latest };
                }
                None => all.push((switch, 1)),
            }
        }
        all
    }

    /// A record was deleted; an operation that neither half keeps any more is gone.
    pub fn forget(&mut self, key: &OperationKey, half: Half) {
        let Some(row) = self.row(key) else { return };
        self.leave(row);
        let r = &mut self.rows[row as usize];
        *r.half(half) = None;
        match half {
            Half::Record => r.charged = None,
            Half::Ledger => r.flags = 0,
        }
        self.put_back(row);
    }

    /// Puts a row back under its facets, or lets it go where nothing of it is left.
    fn put_back(&mut self, row: u32) {
        let r = &self.rows[row as usize];
        match r.is_blank() && r.body < 0 {
            true => self.drop_row(row),
            false => self.enter(row),
        }
    }

    /// The operations under an ID, of a tenant and at a step where they are named.
    pub fn find(&self, operation: &str, tenant: Option<&str>, step: Option<&str>) -> Vec<Listed> {
        let rows = self.under(operation).filter(|row| !self.rows[*row as usize].is_blank()).map(|row| self.listed(row));
        let fits = |l: &Listed| tenant.is_none_or(|t| l.key.tenant.as_str() == t) && step.is_none_or(|s| l.key.step.as_str() == s);
        rows.filter(fits).collect()
    }

    /// How many operations stand where.
    pub fn by_status(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for ((_, status), count) in &self.counts {
            *counts.entry(word(*status)).or_default() += count;
        }
        counts
    }

    /// How many operations of each target stand where; before the hand-over they have none.
    pub fn by_target(&self) -> BTreeMap<String, BTreeMap<&'static str, usize>> {
        let mut counts: BTreeMap<String, BTreeMap<&'static str, usize>> = BTreeMap::new();
        for ((target, status), count) in self.counts.iter().filter(|((target, _), _)| *target != 0) {
            counts.entry(self.names.text(*target).to_owned()).or_default().insert(word(*status), *count);
        }
        counts
    }

    /// How many operations have this flag.
    pub fn flagged(&self, flag: Flag) -> usize {
        self.flagged[flag as usize]
    }

    /// What operations under way hold of budgets, by tenant.
    pub fn spends(&self) -> BTreeMap<&str, Spend> {
        self.spends.iter().map(|(tenant, spend)| (self.names.text(*tenant), *spend)).collect()
    }

    /// The budgets of tenants that have some, one for each partition that has charged them.
    pub fn purses(&self) -> BTreeMap<&str, Vec<&Purse>> {
        let mut found: BTreeMap<&str, Vec<&Purse>> = BTreeMap::new();
        for ((tenant, _), purse) in &self.purses {
            found.entry(self.names.text(*tenant)).or_default().push(purse);
        }
        found
    }

    /// The operation that has stood longest in this status.
    pub fn oldest(&self, status: Status) -> Option<Listed> {
        let base = Facet::Status(number(Some(status))).base();
        self.facets.range(base..=base | SPOT).next().map(|e| self.listed(*e as u32))
    }

    fn listed(&self, row: u32) -> Listed {
        let r = &self.rows[row as usize];
        let (code, detail) = r.why();
        let halves = [&r.record, &r.ledger].into_iter().flatten();
        Listed {
            key: OperationKey {
                tenant: self.names.text(r.tenant).into(),
                operation: crate::ids::OperationId::new(&r.operation),
                step: self.names.text(r.step).into(),
            },
            target: self.names.text(r.target).to_owned(),
            resource: r.resource.to_string(),
            status: r.status(),
            version: halves.map(|g| g.version).max().unwrap_or_default(),
            code: code.map(str::to_owned),
            detail: detail.map(str::to_owned),
            flags: r.raised().collect(),
            changed_at: r.changed(),
            record: r.record.as_ref().map(|g| g.place),
            ledger: r.ledger.as_ref().map(|g| g.place),
            body: r.ledger.as_ref().filter(|_| r.body >= 0).map(|g| Place { offset: r.body, ..g.place }),
        }
    }

    fn short_hash(&self, text: &str) -> u32 {
        self.hash.hash_one(text) as u32
    }

    /// Rows under an operation ID.
    fn under(&self, operation: &str) -> impl Iterator<Item = u32> {
        let base = Facet::Operation(self.short_hash(operation)).base();
        let rows = self.facets.range(base..=base | SPOT).map(|e| *e as u32);
        rows.filter(move |row| *self.rows[*row as usize].operation == *operation)
    }

    fn row(&self, key: &OperationKey) -> Option<u32> {
        let names = (self.names.known(key.tenant.as_str())?, self.names.known(key.step.as_str())?);
        self.under(key.operation.as_str()).find(|row| (self.rows[*row as usize].tenant, self.rows[*row as usize].step) == names)
    }

    fn add(&mut self, key: &OperationKey) -> u32 {
        let row = Row {
            operation: key.operation.as_str().into(),
            tenant: self.names.number(key.tenant.as_str()),
            step: self.names.number(key.step.as_str()),
            body: -1,
            ..Row::default()
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.rows.push(Row::default());
            self.rows.len() as u32 - 1
        });
        self.rows[at as usize] = row;
        at
    }

    fn drop_row(&mut self, row: u32) {
        self.rows[row as usize] = Row::default();
        self.free.push(row);
    }

    /// Where a row stands. One that has nothing but its request is found by its ID only.
    fn entries(&self, row: u32) -> Vec<u128> {
        let r = &self.rows[row as usize];
        let mut entries = vec![Facet::Operation(self.short_hash(&r.operation)).entry(WallTime(0), row)];
        if !r.is_blank() {
            let facets = [
                Facet::All,
                Facet::Status(number(r.status())),
                Facet::Tenant(r.tenant),
                Facet::Target(r.target),
                Facet::Resource(self.short_hash(&r.resource)),
            ];
            let flags = r.raised().map(|f| Facet::Flag(f as u32));
            entries.extend(facets.into_iter().chain(flags).map(|f| f.entry(r.changed(), row)));
        }
        entries
    }

    /// Puts a row under its facets.
    fn enter(&mut self, row: u32) {
        let entries = self.entries(row);
        self.facets.extend(entries);
        self.count(row, 1);
    }

    /// Takes a row from under its facets, before it changes.
    fn leave(&mut self, row: u32) {
        for entry in self.entries(row) {
            self.facets.remove(&entry);
        }
        self.count(row, -1);
    }

    /// Counts a row in, or out where `by` is negative. A row that is new counts for nothing.
    fn count(&mut self, row: u32, by: i64) {
        self.changes += 1;
        let r = &self.rows[row as usize];
        if r.is_blank() {
            return;
        }
        let place = (r.target, number(r.status()));
        let counted = self.counts.entry(place).or_default();
        *counted = counted.saturating_add_signed(by as isize);
        if *counted == 0 {
            self.counts.remove(&place);
        }
        for flag in r.raised() {
            let counted = &mut self.flagged[flag as usize];
            *counted = counted.saturating_add_signed(by as isize);
        }
        if let Some(cost) = &r.charged {
            let spend = self.spends.entry(r.tenant).or_default();
            spend.operations = spend.operations.saturating_add_signed(by as isize);
            spend.charged.tokens += by * cost.tokens;
            spend.charged.bytes += by * cost.bytes;
            spend.charged.tool_calls += by * cost.tool_calls;
            if spend.operations == 0 {
                self.spends.remove(&r.tenant);
            }
        }
    }

    fn make_room(&mut self) {
        while self.len() > MOST_ROWS {
            let ended = self.counts.keys().map(|(_, n)| *n).filter(|n| of(*n).is_some_and(Status::is_end));
            let first = |n: u32| {
                let base = Facet::Status(n).base();
                self.facets.range(base..=base | SPOT).next().map(|e| *e & SPOT)
            };
            let Some(entry) = ended.filter_map(first).min() else { return };
            self.leave(entry as u32);
            self.drop_row(entry as u32);
            self.left_out += 1;
        }
    }
}

/// The word of a status' number.
fn word(number: u32) -> &'static str {
    of(number).map_or("held", Status::word)
}

fn of(number: u32) -> Option<Status> {
    Status::ALL.iter().copied().find(|s| *s as u32 == number)
}

#[cfg(test)]
mod tests;
