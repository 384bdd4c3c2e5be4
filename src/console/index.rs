//! What is listed of operations: a small row for each, under facets in the order of change. Evidence stays in Kafka and is read when
//! somebody looks. Pure.
//!
//! Memory: a row takes about 480 bytes with its facets and names (`a_million_operations_are_listed_fast` measures it); beyond
//! [`MOST_ROWS`] those that ended first are left out.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use crate::admin::evidence::{changed_at, resource, why};
use crate::admin::views::{Half, Seen};
use crate::ids::OperationKey;
use crate::intents::Status;
use crate::time::WallTime;

use super::facets::{Facet, Names, SPOT, spot};
use super::search::{Cursor, Search};

/// Rows that are held at most; an operation that still lives is never left out.
pub const MOST_ROWS: usize = 4_000_000;
/// Rows that one page looks at; a filter that finds less goes on with the next page.
pub const LOOKED_AT: usize = 20_000;

/// Where a record stands in its changelog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
}

/// What one half of an operation shows in lists.
struct Glance {
    place: Place,
    /// `None`: only commands came so far.
    status: Option<Status>,
    version: i64,
    changed: WallTime,
    code: Option<Box<str>>,
    detail: Option<Box<str>>,
}

#[derive(Default)]
struct Row {
    operation: Box<str>,
    resource: Box<str>,
    tenant: u32,
    step: u32,
    target: u32,
    record: Option<Glance>,
    ledger: Option<Glance>,
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
    /// When it last changed.
    pub changed_at: WallTime,
    /// Where its operation record stands.
    pub record: Option<Place>,
    /// Where its ledger record stands.
    pub ledger: Option<Place>,
}

impl Listed {
    /// The word of its status.
    pub fn word(&self) -> &'static str {
        self.status.map_or("held", Status::word)
    }
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Its entries.
    pub rows: Vec<Listed>,
    /// Where the next page begins, where there may be one.
    pub next: Option<Cursor>,
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
    /// Operations that ended and were left out for room.
    pub left_out: u64,
}

fn number(status: Option<Status>) -> u32 {
    status.map_or(255, |s| s as u32)
}

impl Row {
    fn status(&self) -> Option<Status> {
        let of = |g: &Option<Glance>| g.as_ref().and_then(|g| g.status);
        of(&self.ledger).or_else(|| of(&self.record))
    }
    fn changed(&self) -> WallTime {
        let of = |g: &Option<Glance>| g.as_ref().map(|g| g.changed).filter(|at| at.0 > 0);
        of(&self.ledger).or_else(|| of(&self.record)).unwrap_or_default()
    }
    fn why(&self) -> (Option<&str>, Option<&str>) {
        let of = |g: &Option<Glance>| g.as_ref().is_some_and(|g| g.code.is_some() || g.detail.is_some());
        let glance = if of(&self.ledger) { self.ledger.as_ref() } else { self.record.as_ref() };
        glance.map_or((None, None), |g| (g.code.as_deref(), g.detail.as_deref()))
    }
    fn half(&mut self, half: Half) -> &mut Option<Glance> {
        match half {
            Half::Ledger => &mut self.ledger,
            Half::Record => &mut self.record,
        }
    }
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

    /// Takes what one half's record says; `seen` holds that half only.
    pub fn put(&mut self, key: &OperationKey, half: Half, seen: &Seen, place: Place) {
        let row = self.row(key).unwrap_or_else(|| self.add(key));
        self.leave(row);
        let status = seen.status();
        let (code, detail) = why(seen);
        let live = status.is_none_or(|s| !s.is_end());
        let glance = Glance {
            place,
            status,
            version: seen.version(),
            changed: changed_at(seen),
            code: code.map(Into::into),
            detail: detail.filter(|_| live).map(|d| crate::outbox::cut(&d).into()),
        };
        let target = seen.ledger.as_ref().filter(|l| !l.contract.is_empty()).map(|l| format!("{}#{}", l.contract, l.call));
        let target = target.map(|t| self.names.number(&t));
        let r = &mut self.rows[row as usize];
        r.target = target.unwrap_or(r.target);
        let (resource, _) = resource(seen);
        if !resource.is_empty() {
            r.resource = resource.into();
        }
        *r.half(half) = Some(glance);
        self.enter(row);
        self.make_room();
    }

    /// A record was deleted; an operation that neither half keeps any more is gone.
    pub fn forget(&mut self, key: &OperationKey, half: Half) {
        let Some(row) = self.row(key) else { return };
        self.leave(row);
        *self.rows[row as usize].half(half) = None;
        let r = &self.rows[row as usize];
        match r.record.is_none() && r.ledger.is_none() {
            true => self.drop_row(row),
            false => self.enter(row),
        }
    }

    /// The operations under an ID, of a tenant and at a step where they are named.
    pub fn find(&self, operation: &str, tenant: Option<&str>, step: Option<&str>) -> Vec<Listed> {
        let rows = self.under(operation).map(|row| self.listed(row));
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

    /// The operation that has stood longest in this status.
    pub fn oldest(&self, status: Status) -> Option<Listed> {
        let base = Facet::Status(number(Some(status))).base();
        self.facets.range(base..=base | SPOT).next().map(|e| self.listed(*e as u32))
    }

    /// A page of what is searched for.
    pub fn page(&self, search: &Search, now: WallTime) -> Page {
        if let Some(text) = search.text.as_deref().filter(|_| search.cursor.is_none()) {
            let exact: Vec<Listed> =
                self.under(text).filter(|row| self.fits(*row, search, true)).map(|row| self.listed(row)).collect();
            if !exact.is_empty() {
                return Page { rows: exact, next: None };
            }
        }
        let Some(facets) = self.narrowest(search) else { return Page::default() };
        let mut page = Page::default();
        for (looked, entry) in self.merged(&facets, search, now).enumerate() {
            let row = entry as u32;
            let cursor = Cursor { changed: WallTime((entry >> 32) as i64), row };
            if self.fits(row, search, false) {
                page.rows.push(self.listed(row));
            }
            if page.rows.len() == search.limit || looked + 1 == LOOKED_AT {
                page.next = Some(cursor);
                break;
            }
        }
        page
    }

    /// The facets that leave the fewest rows to look at; `None` where a name is named that nobody has.
    fn narrowest(&self, s: &Search) -> Option<Vec<Facet>> {
        let known = |name: &Option<String>| match name {
            Some(text) => self.names.known(text).map(Some),
            None => Some(None),
        };
        let (tenant, target, _) = (known(&s.tenant)?, known(&s.target)?, known(&s.step)?);
        Some(match (&s.resource, s.status.as_slice(), tenant, target) {
            (Some(resource), ..) => vec![Facet::Resource(self.short_hash(resource))],
            (None, [_, ..], ..) => s.status.iter().map(|s| Facet::Status(number(Some(*s)))).collect(),
            (None, [], Some(n), _) => vec![Facet::Tenant(n)],
            (None, [], None, Some(n)) => vec![Facet::Target(n)],
            (None, [], None, None) => vec![Facet::All],
        })
    }

    /// Entries of these facets in the order that is asked for, from behind the cursor.
    fn merged<'a>(&'a self, facets: &[Facet], s: &Search, now: WallTime) -> impl Iterator<Item = u128> + 'a {
        let cursor = s.cursor.map(|c| spot(c.changed, c.row));
        let latest = s.older.map_or(SPOT, |older| spot(now.minus(older), u32::MAX));
        let (low, high) = match (s.oldest_first, cursor) {
            (true, Some(at)) => (at + 1, latest),
            (false, Some(at)) => (0, latest.min(at.saturating_sub(1))),
            (_, None) => (0, latest),
        };
        let oldest_first = s.oldest_first;
        let ordered = |f: &Facet| -> Box<dyn Iterator<Item = u128> + 'a> {
            let base = f.base();
            // A range that ends before it begins is no range at all.
            let range = (low <= high).then(|| self.facets.range(base | low..=base | high)).into_iter().flatten();
            let spots = range.map(|e| *e & SPOT);
            if oldest_first { Box::new(spots) } else { Box::new(spots.rev()) }
        };
        let mut lists: Vec<_> = facets.iter().map(|f| ordered(f).peekable()).collect();
        std::iter::from_fn(move || {
            let open = lists.iter_mut().filter_map(|l| Some((l.peek().copied()?, l)));
            let next = if oldest_first { open.min_by_key(|(at, _)| *at) } else { open.max_by_key(|(at, _)| *at) };
            next?.1.next()
        })
    }

    fn fits(&self, row: u32, s: &Search, exact: bool) -> bool {
        let r = &self.rows[row as usize];
        let named = |number: u32, wanted: &Option<String>| wanted.as_ref().is_none_or(|w| self.names.text(number) == w.as_str());
        (s.status.is_empty() || r.status().is_some_and(|st| s.status.contains(&st)))
            && named(r.tenant, &s.tenant)
            && named(r.step, &s.step)
            && named(r.target, &s.target)
            && s.resource.as_ref().is_none_or(|w| *r.resource == **w)
            && (exact || s.text.as_ref().is_none_or(|t| r.operation.contains(t.as_str()) || r.resource.contains(t.as_str())))
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
            changed_at: r.changed(),
            record: r.record.as_ref().map(|g| g.place),
            ledger: r.ledger.as_ref().map(|g| g.place),
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

    fn entries(&self, row: u32) -> [u128; 6] {
        let r = &self.rows[row as usize];
        let at = r.changed();
        [
            Facet::All.entry(at, row),
            Facet::Status(number(r.status())).entry(at, row),
            Facet::Tenant(r.tenant).entry(at, row),
            Facet::Target(r.target).entry(at, row),
            Facet::Resource(self.short_hash(&r.resource)).entry(at, row),
            Facet::Operation(self.short_hash(&r.operation)).entry(WallTime(0), row),
        ]
    }

    /// Puts a row under its facets.
    fn enter(&mut self, row: u32) {
        let entries = self.entries(row);
        self.facets.extend(entries);
        let r = &self.rows[row as usize];
        *self.counts.entry((r.target, number(r.status()))).or_default() += 1;
    }

    /// Takes a row from under its facets, before it changes. A row that is new stands under none.
    fn leave(&mut self, row: u32) {
        let r = &self.rows[row as usize];
        if r.record.is_none() && r.ledger.is_none() {
            return;
        }
        let counted = (r.target, number(r.status()));
        for entry in self.entries(row) {
            self.facets.remove(&entry);
        }
        if let Some(count) = self.counts.get_mut(&counted) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&counted);
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
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::effects::{LedgerRecord, Phase};

    fn key(tenant: &str, operation: &str) -> OperationKey {
        OperationKey { tenant: tenant.into(), operation: operation.into(), step: "place-order".into() }
    }

    fn unknown(key: &OperationKey, since: i64) -> Seen {
        let mut l = LedgerRecord::held(key.clone(), WallTime(9_000));
        (l.phase, l.version, l.unknown_since) = (Phase::Unknown, 3, Some(WallTime(since)));
        (l.contract, l.call) = ("orders".into(), "create".into());
        l.resource = format!("order/{}", key.operation).into();
        Seen { record: None, ledger: Some(l) }
    }

    fn confirmed(key: &OperationKey, at: i64) -> Seen {
        let mut seen = unknown(key, at);
        if let Some(l) = &mut seen.ledger {
            (l.phase, l.end, l.closed_at, l.version) = (Phase::Ended, Some(Status::Confirmed), Some(WallTime(at)), 4);
        }
        seen
    }

    fn place(offset: i64) -> Place {
        Place { partition: 0, offset }
    }

    fn ids(page: &Page) -> Vec<&str> {
        page.rows.iter().map(|r| r.key.operation.as_str()).collect()
    }

    const NOW: WallTime = WallTime(1_000_000);

    /// If this broke, an operator would be shown an operation that has ended among the unknowns, or miss one that is not.
    #[test]
    fn a_row_moves_with_its_operation() {
        let mut index = Index::default();
        let (a, b) = (key("acme", "op-a"), key("umbra", "op-b"));
        index.put(&a, Half::Ledger, &unknown(&a, 10), place(1));
        index.put(&b, Half::Ledger, &unknown(&b, 20), place(2));
        let unknowns = Search::waiting(&[Status::Unknown]);
        assert_eq!(ids(&index.page(&unknowns, NOW)), ["op-a", "op-b"]);
        assert_eq!(index.oldest(Status::Unknown).map(|l| l.version), Some(3));
        index.put(&a, Half::Ledger, &confirmed(&a, 30), place(3));
        assert_eq!(ids(&index.page(&unknowns, NOW)), ["op-b"]);
        assert_eq!(ids(&index.page(&Search::default(), NOW)), ["op-a", "op-b"]);
        assert_eq!(index.by_target()["orders#create"], BTreeMap::from([("confirmed", 1), ("unknown", 1)]));
        let of_umbra = Search { tenant: Some("umbra".into()), ..Search::default() };
        assert_eq!(ids(&index.page(&of_umbra, NOW)), ["op-b"]);
        let by_resource = Search { resource: Some("order/op-a".into()), ..Search::default() };
        assert_eq!(ids(&index.page(&by_resource, NOW)), ["op-a"]);
        index.forget(&a, Half::Ledger);
        assert_eq!((ids(&index.page(&Search::default(), NOW)), index.len()), (vec!["op-b"], 1));
        assert_eq!(index.by_status(), BTreeMap::from([("unknown", 1)]));
        assert_eq!(index.find("op-b", Some("acme"), None), []);
        assert_eq!(index.find("op-b", None, None)[0].ledger, Some(place(2)));
    }

    /// If this broke, paging would skip operations or show one twice, and something unknown would never be looked at.
    #[test]
    fn pages_hold_every_row_once_in_either_order() {
        let mut index = Index::default();
        for i in 0..103 {
            let key = key("acme", &format!("op-{i}"));
            // Several changed in one millisecond.
            let seen = if i % 3 == 0 { unknown(&key, i / 5) } else { confirmed(&key, i / 5) };
            index.put(&key, Half::Ledger, &seen, place(i));
        }
        let status = vec![Status::Unknown, Status::Confirmed];
        for (oldest_first, status) in [(true, vec![]), (false, vec![]), (true, status.clone()), (false, status)] {
            let mut search = Search { limit: 10, oldest_first, status, ..Search::default() };
            let (mut seen, mut times) = (BTreeSet::new(), Vec::new());
            loop {
                let page = index.page(&search, NOW);
                for r in &page.rows {
                    assert!(seen.insert(r.key.operation.clone()), "{} twice", r.key.operation);
                    times.push(r.changed_at);
                }
                search.cursor = page.next;
                if page.next.is_none() {
                    break;
                }
            }
            assert_eq!(seen.len(), 103);
            let sorted = if oldest_first { times.is_sorted() } else { times.is_sorted_by(|a, b| a >= b) };
            assert!(sorted, "{times:?}");
        }
        let older = Search { older: Some(Duration::from_millis(NOW.0 as u64 - 2)), oldest_first: true, ..Search::default() };
        assert!(index.page(&older, NOW).rows.iter().all(|r| r.changed_at <= WallTime(2)));
    }

    fn memory() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("resident");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
    }

    /// If this broke, the page that an operator opens at night would take seconds, or a process would grow without a bound.
    #[test]
    fn a_million_operations_are_listed_fast() {
        const COUNT: i64 = 1_000_000;
        let before = memory();
        let mut index = Index::default();
        let (mut a, mut b) = (unknown(&key("acme", "x"), 1), confirmed(&key("acme", "x"), 1));
        for i in 0..COUNT {
            let key = key(["acme", "umbra", "initech"][i as usize % 3], &format!("order-2026-{i:08}"));
            let seen = if i % 1_000 == 0 { &mut a } else { &mut b };
            if let Some(l) = &mut seen.ledger {
                l.resource = format!("order/{i:08}").into();
                (l.unknown_since, l.closed_at) = (Some(WallTime(i)), l.closed_at.map(|_| WallTime(i)));
            }
            index.put(&key, Half::Ledger, seen, place(i));
        }
        let each = memory().saturating_sub(before) / COUNT as usize;
        // Other tests of this process take memory, too.
        assert!(each < 800, "{each} bytes a row");
        let searches = [
            "",
            "status=unknown&order=oldest",
            "status=unknown,confirmed&tenant=umbra",
            "tenant=initech&q=0012345",
            "resource=order/00999999",
            "q=order-2026-00000007",
            "q=nowhere",
        ];
        for query in searches {
            let search = Search::parse(query).expect(query);
            let begun = Instant::now();
            let page = index.page(&search, NOW);
            let took = begun.elapsed();
            println!("{query:?}: {} rows in {took:?}, {each} bytes a row", page.rows.len());
            assert!(took < Duration::from_millis(50), "{query}: {took:?}");
            assert!(!page.rows.is_empty() || page.next.is_some(), "{query}");
        }
    }
}
