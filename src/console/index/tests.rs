//! Rows under their facets, pages, and what a million of them take.

use std::time::{Duration, Instant};

use super::super::search::Search;
use super::*;
use crate::effects::{LedgerRecord, Phase};
use crate::intents::Scope;

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

/// If this broke, a pause that somebody has forgotten would be seen by nobody who looks.
#[test]
fn what_is_paused_is_told_once_for_each_scope() {
    let order = |target: &str, at: i64| Switch {
        command_id: format!("c-{at}").as_str().into(),
        scope: Scope::Target(target.into()),
        paused: true,
        by: "mira".into(),
        reason: "INC-42".into(),
        at: WallTime(at),
    };
    let told = |index: &Index| index.paused().iter().map(|(s, n)| (s.scope.to_string(), s.at.0, *n)).collect::<Vec<_>>();
    let mut index = Index::default();
    for (target, partition, at) in [("mail", 0, 5), ("orders", 0, 7), ("mail", 1, 9)] {
        index.put_switch(format!("target/{target}"), partition, Some(order(target, at)));
    }
    assert_eq!(told(&index), [("target/mail".to_owned(), 9, 2), ("target/orders".to_owned(), 7, 1)]);
    index.put_switch("target/mail".to_owned(), 1, None);
    assert_eq!(told(&index)[0], ("target/mail".to_owned(), 5, 1), "one partition still holds it");
    index.put_switch("target/mail".to_owned(), 0, None);
    assert_eq!(told(&index), [("target/orders".to_owned(), 7, 1)]);
}

/// If this broke, an operator would be shown an operation that has ended among the unknowns, or miss one that is not.
#[test]
fn a_row_moves_with_its_operation() {
    let mut index = Index::default();
    let (a, b) = (key("acme", "op-a"), key("umbra", "op-b"));
    assert_eq!(index.put(&a, Half::Ledger, &unknown(&a, 10), place(1)), [Status::Approved, Status::Unknown]);
    assert_eq!(index.put(&a, Half::Ledger, &unknown(&a, 10), place(1)), [], "it has not moved");
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
fn a_page_of_a_million_operations_looks_at_few_rows() {
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
    // A page has fifty entries; what an index finds is not looked for.
    const L: usize = 50;
    let searches = [
        ("", L),
        ("status=unknown&order=oldest", L),
        ("status=unknown,confirmed&tenant=umbra", 4 * L),
        ("tenant=initech&q=0012345", LOOKED_AT),
        ("resource=order/00999999", L),
        ("q=order-2026-00000007", L),
        ("q=nowhere", LOOKED_AT),
    ];
    for (query, most) in searches {
        let search = Search::parse(query).expect(query);
        let begun = Instant::now();
        let page = index.page(&search, NOW);
        let took = begun.elapsed();
        println!("{query:?}: {} rows in {took:?}, {each} bytes a row", page.rows.len());
        assert!(page.looked <= most, "{query}: {} rows looked at", page.looked);
        assert!(!page.rows.is_empty() || page.next.is_some(), "{query}");
    }
}
