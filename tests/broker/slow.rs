//! A target that takes longer than any limit of the group.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::notices::{Service, ask, topology_with_patience};
use crate::processes::{Running, probe};
use crate::protocol::{listed, until_status};
use crate::security::named;
use crate::{shared, until};

/// How long the group lets a member do nothing but work. No shorter one is taken with a session of six seconds.
const POLL_LIMIT: Duration = Duration::from_secs(7);

/// Rebalances that a member tells of, all events together.
fn rebalances(address: &str) -> f64 {
    let (_, metrics) = probe(address, "/metrics").expect("metrics");
    let told = metrics.lines().filter(|l| l.starts_with("readback_rebalances_total"));
    told.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// C053: if this broke, a call longer than the poll limit would get its member expelled, and would be made a second time; or all other
/// work would wait for it.
#[test]
fn c053_a_call_longer_than_the_poll_limit_costs_no_membership() {
    let _shared = shared();
    let (work, service) = (tempfile::tempdir().expect("a directory"), Service::start());
    let app = named("slow");
    service.is_slow("op-slow", POLL_LIMIT * 2);
    let topology = topology_with_patience(work.path(), &app, 20);
    let limit = POLL_LIMIT.as_millis().to_string();
    let more = [
        ("NOTICES_URL", service.url.as_str()),
        ("READBACK_KAFKA__MAX_POLL_INTERVAL_MS", &limit),
        ("READBACK_ADMIN__LISTEN", "127.0.0.1:0"),
    ];
    let mut member = Running::with(&topology, &work.path().join("state"), "member", &more);
    member.until_running();
    let metrics = member.until_listening();
    ask(&app, "op-0");
    until("the first one", || (service.posts().len() == 1).then_some(()));
    let before = rebalances(&metrics);
    assert!(before > 0.0, "its own joining is counted");

    ask(&app, "op-slow");
    until("the slow one is in the books", || service.posts().contains_key("op-slow").then_some(()));
    for n in 1..=10 {
        ask(&app, &format!("op-{n}"));
    }
    let behind = until("those behind it have ended", || {
        let found = listed(&app);
        (1..=10).all(|n| found.get(&format!("op-{n}")).is_some_and(|o| o["status"] == "confirmed")).then_some(found)
    });
    assert_ne!(behind["op-slow"]["status"], "confirmed", "the others waited for it");
    until_status(&app, "op-slow", "confirmed");
    assert_eq!(rebalances(&metrics), before, "{}", member.said());
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
    let once: BTreeMap<String, usize> =
        (0..=10).map(|n| format!("op-{n}")).chain(["op-slow".to_owned()]).map(|id| (id, 1)).collect();
    assert_eq!(service.posts(), once, "{}", member.said());
}
