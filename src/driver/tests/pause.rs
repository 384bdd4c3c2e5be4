//! What may not be sent for now, by order of a person.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::admin::orders::publish_switch;
use crate::admin::views::Operations;
use crate::ids::{ApplicationId, CommandId};
use crate::intents::{Scope, Status, Switch};

/// A list by key, that shows what was sent at once.
const ORDERS: &str = r#"contract: orders
version: 1
verified_on: 2026-11-20
target: { base_url: "https://orders.internal", hosts: [orders.internal], intermediaries: none }
calls:
  create:
    parameters: { to: { type: string } }
    request: { method: POST, path: /orders, json: { to: "{to}", ref: "{key}" } }
    key: { carrier: body }
    readback:
      request: { method: GET, path: /orders, query: { ref: "{key}" } }
      complete: body.whole
      ours: body.items.filter(o, o.ref == key)
      lag: 1s
    in_flight: { bound: 2s, because: "tried" }
    answers: [{ status: 201, means: applied }]
"#;

struct Ground {
    driver: TopologyTestDriver,
    sends: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

impl Ground {
    fn new() -> Self {
        let mut driver = application(ORDERS, "create");
        let (sends, reads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (sent, read) = (sends.clone(), reads.clone());
        driver.serve(move |call, request| {
            if call.ends_with("/readback") {
                read.fetch_add(1, Ordering::SeqCst);
                let key = request.query.trim_start_matches("ref=");
                return says(200, &json!({ "items": [{ "ref": key }], "whole": true }));
            }
            sent.fetch_add(1, Ordering::SeqCst);
            says(201, &json!({}))
        });
        Self { driver, sends, reads }
    }

    fn order(&mut self, scope: Scope, paused: bool) {
        let order = Switch {
            command_id: CommandId::from(format!("{scope}-{paused}")),
            scope,
            paused,
            by: "person@acme".into(),
            reason: "INC-42".into(),
            at: self.driver.now(),
        };
        publish_switch(self.driver.cluster(), &ApplicationId::new("asked"), &order).unwrap();
        self.driver.advance(Duration::from_secs(1)).unwrap();
        let mut seen = Operations::open(self.driver.cluster(), &ApplicationId::new("asked")).unwrap();
        seen.catch_up().unwrap();
        assert_eq!(seen.until_switched(&order, Duration::ZERO).unwrap(), seen.partitions(), "every partition has taken it");
    }

    fn asked(&mut self, id: &str) {
        ask(&mut self.driver, &parameters(id, None, &json!({ "to": "a@example.org" })));
        self.driver.advance(Duration::from_secs(3)).unwrap();
    }

    fn counts(&self) -> (usize, usize) {
        (self.sends.load(Ordering::SeqCst), self.reads.load(Ordering::SeqCst))
    }
}

/// If this broke, a target would be called on while somebody has stopped it, also by a process that starts anew; or what waits would
/// be forgotten.
#[test]
fn nothing_is_sent_while_it_is_paused_and_everything_after() {
    for scope in [
        Scope::Everything,
        Scope::Target("orders".into()),
        Scope::Target("orders#create".into()),
        Scope::Tenant("acme".into()),
        Scope::Step("ask".into()),
    ] {
        let mut g = Ground::new();
        g.order(scope.clone(), true);
        (1..=3).for_each(|n| g.asked(&format!("op-{n}")));
        g.driver.lose_process().unwrap();
        g.driver.advance(Duration::from_secs(30)).unwrap();
        assert_eq!(g.counts().0, 0, "{scope}");
        g.order(scope.clone(), false);
        g.driver.advance(Duration::from_secs(5)).unwrap();
        assert_eq!(g.counts().0, 3, "{scope}: each goes on by itself");
        let told = states(&mut g.driver);
        assert_eq!(told.iter().filter(|r| r.status == Status::Confirmed).count(), 3, "{scope}");
    }
}

/// If this broke, a pause of one would stop all.
#[test]
fn what_is_not_in_its_scope_goes_on() {
    let mut g = Ground::new();
    for other in [Scope::Target("order".into()), Scope::Target("orders#cancel".into()), Scope::Tenant("other".into())] {
        g.order(other, true);
    }
    g.asked("op-1");
    assert_eq!(g.counts().0, 1);
}

/// If this broke, an operation whose answer was lost would stay unknown for as long as its target is paused.
#[test]
fn what_has_left_is_read_back_all_the_same() {
    let mut g = Ground::new();
    let first = Arc::new(AtomicUsize::new(0));
    let seen = first.clone();
    g.driver.serve(move |call, request| {
        if !call.ends_with("/readback") {
            return Scripted::Lost;
        }
        let key = request.query.trim_start_matches("ref=");
        let shown = if seen.load(Ordering::SeqCst) > 0 { vec![json!({ "ref": key })] } else { Vec::new() };
        says(200, &json!({ "items": shown, "whole": true }))
    });
    ask(&mut g.driver, &parameters("op-1", None, &json!({ "to": "a@example.org" })));
    g.order(Scope::Everything, true);
    assert_eq!(states(&mut g.driver).last().map(|r| r.status), Some(Status::Unknown));
    first.store(1, Ordering::SeqCst);
    g.driver.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(states(&mut g.driver).last().map(|r| r.status), Some(Status::Confirmed));
}

/// If this broke, what waits behind a pause would be sent long after it was wanted.
#[test]
fn deadlines_go_on_while_it_is_paused() {
    let mut g = Ground::new();
    g.order(Scope::Everything, true);
    g.asked("op-1");
    g.driver.advance(Duration::from_secs(700)).unwrap();
    assert_eq!(states(&mut g.driver).last().map(|r| r.status), Some(Status::Expired));
    g.order(Scope::Everything, false);
    g.driver.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(g.counts(), (0, 0));
}
