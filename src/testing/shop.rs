//! The orders API as a pure machine: what it applies, answers and lists. No time, no sockets, no faults of its own.
//!
//! `POST /orders {sku, quantity, client_ref}` → 201 `{id}` or 422; `GET /orders?ref=` → `{items: […], next}`; the same for
//! `/cancellations {order, client_ref}`. It knows no idempotency unless told to: two equal POSTs are two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::contract::StampFormat;
use crate::http::Answer;
use crate::ids::WireKey;
use crate::intents::{RenderedRequest, hex};
use crate::time::WallTime;

/// The header by which the shop tells the age of an order.
pub const SENT_AT: &str = "x-sent-at";

/// One effect that really exists, as the target's own books have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookEntry {
    /// The key that came with it.
    pub wire_key: WireKey,
    /// Hex SHA-256 over its content, without the key.
    pub digest: String,
    /// When it came to be, by the target's clock.
    pub applied_at: WallTime,
}

/// What the target does by rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShopRules {
    /// How long it remembers a key from its first use; `None` = it knows no keys.
    pub remembers: Option<Duration>,
    /// Whether it makes one order under a reference, for ever, and answers 409 to a second one.
    pub one_per_reference: bool,
    /// Beyond which age, by the header [`SENT_AT`], it refuses an order with 412.
    pub max_age: Option<Duration>,
    /// Articles that it refuses for good.
    pub refuses: BTreeSet<String>,
}

/// What a list shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Everything there is.
    Whole,
    /// What existed at this time: a replica that lags.
    AsOf(WallTime),
    /// Nothing, and a next page that nobody can get.
    Cut,
}

impl View {
    fn shows(self, at: WallTime) -> bool {
        match self {
            View::Whole => true,
            View::AsOf(then) => at <= then,
            View::Cut => false,
        }
    }
}

/// A cancellation that really exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cancelled {
    /// The key that came with it.
    pub wire_key: WireKey,
    /// The key of the order that it undoes.
    pub order: WireKey,
    /// When it came to be, by the target's clock.
    pub at: WallTime,
}

#[derive(Clone, Debug)]
struct Order {
    id: String,
    client_ref: String,
    sku: String,
    quantity: i64,
    applied_at: WallTime,
}

#[derive(Deserialize)]
struct NewCancellation {
    client_ref: String,
    order: String,
}

#[derive(Deserialize)]
struct NewOrder {
    client_ref: String,
    sku: String,
    quantity: i64,
}

#[derive(Clone, Debug)]
struct Remembered {
    since: WallTime,
    digest: String,
    answer: Answer,
}

/// The target: its orders and the keys that it remembers.
#[derive(Clone, Debug, Default)]
pub struct Shop {
    rules: ShopRules,
    orders: Vec<Order>,
    cancelled: Vec<Cancelled>,
    remembered: BTreeMap<String, Remembered>,
}

impl Shop {
    /// An empty shop with these rules.
    pub fn new(rules: ShopRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Answers one request that arrived at `now`; lists show `view`.
    pub fn handle(&mut self, request: &RenderedRequest, view: View, now: WallTime) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/orders") if self.too_old(request, now) => answer(412, &json!({ "error": "sent too long ago" })),
            ("POST", "/orders") => self.create(request.body.as_deref().unwrap_or_default(), now),
            ("POST", "/cancellations") => self.cancel(request.body.as_deref().unwrap_or_default(), now),
            ("GET", "/cancellations") => self.cancellations(reference(&request.query).unwrap_or_default(), view),
            ("GET", "/orders") => self.list(reference(&request.query).unwrap_or_default(), view),
            _ => answer(404, &json!({ "error": "no such resource" })),
        }
    }

    /// Takes an order, or says why not.
    pub fn create(&mut self, body: &[u8], now: WallTime) -> Answer {
        let Ok(new) = serde_json::from_slice::<NewOrder>(body) else {
            return answer(400, &json!({ "error": "not an order" }));
        };
        if !(1..=1000).contains(&new.quantity) || new.sku.is_empty() || self.rules.refuses.contains(&new.sku) {
            return answer(422, &json!({ "error": "this article cannot be ordered" }));
        }
        let digest = digest(&new.sku, new.quantity);
        if let Some(known) = self.recall(&new.client_ref, now) {
            let same = known.digest == digest;
            return if same {
                known.answer.clone()
            } else {
                answer(422, &json!({ "error": "this key was used for another order" }))
            };
        }
        if self.rules.one_per_reference && self.stands(&new.client_ref) {
            return answer(409, &json!({ "error": "there is an order under this reference" }));
        }
        let id = format!("o-{}", self.orders.len() + 1);
        let done = answer(201, &json!({ "id": id }));
        if self.rules.remembers.is_some() {
            self.remembered.insert(new.client_ref.clone(), Remembered { since: now, digest, answer: done.clone() });
        }
        self.orders.push(Order { id, client_ref: new.client_ref, sku: new.sku, quantity: new.quantity, applied_at: now });
        done
    }

    /// Whether there is an order under a reference that was not cancelled: a cancelled one leaves its reference free.
    pub fn stands(&self, reference: &str) -> bool {
        let undone = |o: &Order| self.cancelled.iter().any(|c| c.order.as_str() == o.client_ref && c.at >= o.applied_at);
        self.orders.iter().any(|o| o.client_ref == reference && !undone(o))
    }

    /// Cancels an order, or says that there is none. Two equal cancellations are two.
    fn cancel(&mut self, body: &[u8], now: WallTime) -> Answer {
        let Ok(new) = serde_json::from_slice::<NewCancellation>(body) else {
            return answer(400, &json!({ "error": "not a cancellation" }));
        };
        let Some(order) = self.orders.iter().find(|o| o.id == new.order) else {
            return answer(404, &json!({ "error": "no such order" }));
        };
        let order = WireKey::new(&order.client_ref);
        self.cancelled.push(Cancelled { wire_key: WireKey::from(new.client_ref), order, at: now });
        answer(201, &json!({ "id": format!("c-{}", self.cancelled.len()) }))
    }

    fn cancellations(&self, reference: &str, view: View) -> Answer {
        let shown = |c: &&Cancelled| c.wire_key.as_str() == reference && view.shows(c.at);
        let item = |c: &Cancelled| json!({ "client_ref": c.wire_key.as_str(), "at": c.at.0 });
        let items: Vec<_> = self.cancelled.iter().filter(shown).map(item).collect();
        answer(200, &json!({ "items": items, "next": (view == View::Cut).then_some("page-2") }))
    }

    /// Every cancellation that really exists.
    pub fn cancelled(&self) -> Vec<Cancelled> {
        self.cancelled.clone()
    }

    /// An order that carries no time is as old as can be.
    fn too_old(&self, request: &RenderedRequest, now: WallTime) -> bool {
        let stamp = request.headers.iter().find(|h| h.name == SENT_AT).and_then(|h| StampFormat::Unix.read(&h.value));
        self.rules.max_age.is_some_and(|age| stamp.is_none_or(|at| now > at.plus(age)))
    }

    fn recall(&self, key: &str, now: WallTime) -> Option<&Remembered> {
        let window = self.rules.remembers?;
        self.remembered.get(key).filter(|r| now.since(r.since) <= window)
    }

    /// Lists the orders under a reference.
    pub fn list(&self, reference: &str, view: View) -> Answer {
        let shown = |o: &&Order| o.client_ref == reference && view.shows(o.applied_at);
        let item = |o: &Order| json!({ "id": o.id, "client_ref": o.client_ref, "sku": o.sku, "quantity": o.quantity, "at": o.applied_at.0 });
        let items: Vec<_> = self.orders.iter().filter(shown).map(item).collect();
        let next = (view == View::Cut).then_some("page-2");
        answer(200, &json!({ "items": items, "next": next }))
    }

    /// What really exists: only the target knows.
    pub fn books(&self) -> Vec<BookEntry> {
        let entry = |o: &Order| BookEntry {
            wire_key: WireKey::new(&o.client_ref),
            digest: digest(&o.sku, o.quantity),
            applied_at: o.applied_at,
        };
        self.orders.iter().map(entry).collect()
    }
}

/// The digest of an order's content as the books have it; `None` where the body is no order.
pub fn digest_of(body: &[u8]) -> Option<String> {
    let new: NewOrder = serde_json::from_slice(body).ok()?;
    Some(digest(&new.sku, new.quantity))
}

fn digest(sku: &str, quantity: i64) -> String {
    hex(&Sha256::digest(format!("{sku}\u{1f}{quantity}")))
}

/// The value of `ref` in a query; keys need no escapes.
fn reference(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("ref="))
}

/// A JSON answer.
fn answer(status: u16, body: &serde_json::Value) -> Answer {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Answer { status, headers, body: Bytes::from(body.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(key: &str, quantity: i64) -> Vec<u8> {
        json!({ "client_ref": key, "sku": "A-1", "quantity": quantity }).to_string().into_bytes()
    }

    fn items(answer: &Answer) -> usize {
        let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("json");
        body["items"].as_array().map_or(0, Vec::len)
    }

    /// If this broke, the target would hide doubled orders, and every run would look clean.
    #[test]
    fn equal_orders_are_two_orders() {
        let mut target = Shop::default();
        for _ in 0..2 {
            assert_eq!(target.create(&order("k", 1), WallTime(5)).status, 201);
        }
        assert_eq!(target.books().len(), 2);
        assert_eq!(items(&target.list("k", View::Whole)), 2);
        assert_eq!(items(&target.list("other", View::Whole)), 0);
    }

    /// If this broke, a keyed re-send after the key's life would not be the second effect that it is.
    #[test]
    fn keys_are_remembered_for_their_time_only() {
        let mut target = Shop::new(ShopRules { remembers: Some(Duration::from_millis(10)), ..ShopRules::default() });
        let first = target.create(&order("k", 1), WallTime(0));
        assert_eq!(target.create(&order("k", 1), WallTime(10)), first);
        assert_eq!(target.create(&order("k", 2), WallTime(10)).status, 422);
        assert_eq!(target.books().len(), 1);
        assert_eq!(target.create(&order("k", 1), WallTime(11)).status, 201);
        assert_eq!(target.books().len(), 2);
    }

    /// If this broke, a second copy would be refused, or taken, against what the fence of its contract says.
    #[test]
    fn fences_are_kept() {
        let mut target = Shop::new(ShopRules { one_per_reference: true, ..ShopRules::default() });
        let statuses = [1, 1, 2].map(|n| target.create(&order("k", n), WallTime(0)).status);
        assert_eq!((statuses, target.books().len()), ([201, 409, 409], 1));

        let mut target = Shop::new(ShopRules { max_age: Some(Duration::from_secs(10)), ..ShopRules::default() });
        let sent = |at: Option<&str>| RenderedRequest {
            method: "POST".into(),
            path: "/orders".into(),
            headers: at.map(|value| crate::intents::Pair { name: SENT_AT.into(), value: value.into() }).into_iter().collect(),
            body: Some(order("k", 1)),
            ..RenderedRequest::default()
        };
        let mut at = |stamp, now| target.handle(&sent(stamp), View::Whole, WallTime(now)).status;
        assert_eq!([at(Some("5"), 15_000), at(Some("5"), 15_001), at(None, 0)], [201, 412, 412]);
    }

    /// If this broke, a refused order would count as placed, or a stale or cut list as a proof of absence.
    #[test]
    fn refusals_and_partial_views_are_what_they_say() {
        let mut target = Shop::new(ShopRules { refuses: ["X".to_owned()].into(), ..ShopRules::default() });
        let body = json!({ "client_ref": "k", "sku": "X", "quantity": 1 }).to_string();
        assert_eq!(target.create(body.as_bytes(), WallTime(0)).status, 422);
        assert!(target.books().is_empty());
        target.create(&order("k", 1), WallTime(5));
        assert_eq!(items(&target.list("k", View::AsOf(WallTime(4)))), 0);
        assert_eq!(items(&target.list("k", View::AsOf(WallTime(5)))), 1);
        let cut = target.list("k", View::Cut);
        assert!(String::from_utf8_lossy(&cut.body).contains("page-2"), "it says that it is not whole");
    }
}
