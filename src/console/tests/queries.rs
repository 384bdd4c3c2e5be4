//! Queries of addresses: whatever somebody types, sends or keeps as a bookmark.

use std::time::Duration;

use proptest::prelude::*;

use crate::console::api::{narrowed, place};
use crate::console::index::Index;
use crate::console::search::{Search, age, escape, pairs};
use crate::intents::Status;
use crate::time::{WallTime, parse_duration};

use super::served::Served;

const KEYS: &[&str] = &["status", "tenant", "step", "target", "resource", "q", "older", "order", "limit", "cursor"];
const VALUES: &[&str] = &[
    "unknown",
    "unknown,parked",
    "newest",
    "oldest",
    "30m",
    "0.0004s",
    "1.5h",
    "9999999999999999d",
    "500",
    "0",
    "-1",
    "18f-0",
    "ffffffffffffffff-0",
    "7fffffffffffffff-ffffffff",
    "orders#create",
    "%",
    "%zz",
    "%00",
    "%ff%fe",
    "+",
    "a=b",
    "<b>",
];

/// Queries as people and programs send them: known names and others, values that fit and values that don't, encoded or not.
fn query() -> impl Strategy<Value = String> {
    let known = |list: &'static [&'static str]| proptest::sample::select(list).prop_map(str::to_owned);
    let name = prop_oneof![8 => known(KEYS), 1 => "[a-z%&=+]{0,8}"];
    let value = prop_oneof![4 => known(VALUES), 2 => ".{0,40}", 2 => ".{0,40}".prop_map(|v| escape(&v)), 1 => "[0-9a-f.%+-]{0,24}", 1 => "x{500,600}"];
    proptest::collection::vec((name, value), 0..6).prop_map(|all| {
        let all: Vec<String> = all.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.join("&")
    })
}

proptest! {
    /// If this broke, an address could ask for more than a page, hold more than a name, or find something else when it is kept.
    #[test]
    fn what_is_read_is_bounded_and_keeps_its_meaning(query in query()) {
        if let Ok(search) = Search::parse(&query) {
            prop_assert!((1..=500).contains(&search.limit));
            prop_assert!(search.status.len() <= Status::ALL.len());
            let texts = [&search.tenant, &search.step, &search.target, &search.resource, &search.text];
            prop_assert!(texts.into_iter().flatten().all(|t| !t.is_empty() && t.len() <= 512));
            prop_assert_eq!(Search::parse(&search.query()).expect("our own address"), search);
        }
    }

    /// If this broke, a place in a list or an age far away from any would end the request without an answer.
    #[test]
    fn whatever_is_read_finds_a_page(query in query(), now in any::<i64>()) {
        if let Ok(search) = Search::parse(&query) {
            let page = Index::default().page(&search, WallTime(now));
            prop_assert!(page.rows.is_empty() && page.next.is_none());
        }
    }

    /// If this broke, the page of what is unknown would show something else too, by a query.
    #[test]
    fn a_narrowed_list_stays_narrow(query in query()) {
        let within = [Status::Unknown, Status::Parked];
        if let Ok(search) = narrowed(&query, &within) {
            prop_assert!(!search.status.is_empty() && search.status.iter().all(|s| within.contains(s)));
        }
    }

    /// If this broke, an operation's address would be read by guessing.
    #[test]
    fn a_place_has_tenant_and_step_and_nothing_else(query in query()) {
        let known = pairs(&query).iter().filter(|(_, v)| !v.is_empty()).all(|(k, _)| ["tenant", "step"].contains(&k.as_str()));
        prop_assert_eq!(place(&query).is_ok(), known);
    }

    /// If this broke, the search's own form could not be sent again: its browser checks the pattern before.
    #[test]
    fn an_age_is_shown_as_it_is_taken(ms in 0..200_000_000_000_u64) {
        let text = age(Duration::from_millis(ms));
        prop_assert_eq!(parse_duration(&text).map(|d| d.as_secs_f64().mul_add(1_000.0, 0.5) as u64), Some(ms), "{}", text);
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        prop_assert!(["ms", "s", "m", "h", "d"].contains(&&text[digits.len()..]) && digits.bytes().all(|b| b.is_ascii_digit()));
    }
}

/// If this broke, a query would end the console's answer instead of being refused.
#[test]
fn any_query_is_answered_over_http() {
    let s = Served::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(100));
    let answered = runner.run(&query(), |query| {
        // Only what a request line can hold: all else never comes to us.
        let line: String = query.chars().filter(|c| c.is_ascii_graphic()).collect();
        for path in ["operations", "unknowns", "approvals"] {
            let got = s.api("vera", &format!("/{path}?{line}"));
            prop_assert!([200, 400].contains(&got.status), "{} {}: {:?}", path, line, got);
        }
        Ok(())
    });
    answered.expect("holds");
}
