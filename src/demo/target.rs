//! The target of the demo: an orders API and a model server over HTTP, with books of its own. It knows nothing of Readback: it
//! applies orders, breaks things by its own schedule, and writes down what it did.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use super::cases::{Case, Fault, PRICE, REFUSED_FROM};

/// One order in the books.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// The order number.
    pub id: String,
    /// The key that came with it.
    pub client_ref: String,
    /// What was ordered.
    pub sku: String,
    /// How much.
    pub quantity: i64,
}

/// What the target did: the judge of the demo.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Every order that exists.
    pub orders: Vec<Order>,
    /// How often each fault was played.
    pub faults: BTreeMap<&'static str, u64>,
    /// Calls that a client which retries on error would have repeated although they were applied.
    pub would_double: u64,
    /// Calls that a client which gives up on error would have reported wrongly.
    pub would_misreport: u64,
    /// Model calls answered.
    pub model_calls: u64,
    /// Effect calls received.
    pub calls: u64,
    seen: BTreeMap<String, Seen>,
}

/// What the target remembers of a key, for its own schedule only.
#[derive(Clone, Debug, Default)]
struct Seen {
    calls: u32,
    sku: String,
}

impl Books {
    /// How many orders exist for this article number.
    pub fn count(&self, sku: &str) -> usize {
        self.orders.iter().filter(|o| o.sku == sku).count()
    }
    fn apply(&mut self, order: &NewOrder) -> String {
        let id = format!("A-{:05}", self.orders.len() + 1);
        self.orders.push(Order {
            id: id.clone(),
            client_ref: order.client_ref.clone(),
            sku: order.sku.clone(),
            quantity: order.quantity,
        });
        id
    }
    fn play(&mut self, fault: Fault, applied: bool) {
        *self.faults.entry(fault.label()).or_default() += 1;
        if applied {
            self.would_double += 1;
            self.would_misreport += 1;
        }
    }
}

#[derive(Clone)]
struct Shared {
    books: Arc<Mutex<Books>>,
    schedule: Arc<BTreeMap<String, Fault>>,
    patience: Duration,
}

#[derive(Clone, Debug, Deserialize)]
struct NewOrder {
    sku: String,
    quantity: i64,
    client_ref: String,
}

/// The running target.
pub struct Target {
    /// `http://127.0.0.1:port`.
    pub url: String,
    books: Arc<Mutex<Books>>,
    task: tokio::task::JoinHandle<()>,
}

impl Target {
    /// Starts on a free port; `patience` is how long the client waits for an answer.
    pub async fn start(cases: &[Case], patience: Duration) -> std::io::Result<Target> {
        let books = Arc::new(Mutex::new(Books::default()));
        let schedule = cases.iter().map(|c| (c.sku(), c.fault)).collect();
        let shared = Shared { books: books.clone(), schedule: Arc::new(schedule), patience };
        let app = axum::Router::new()
            .route("/orders", post(create).get(list))
            .route("/v1/chat/completions", post(complete))
            .route("/", get(|| async { "the demo's target: POST /orders, GET /orders?ref=KEY\n" }))
            .with_state(shared);
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(async move {
            if let Err(e) = axum::serve(listener, app).await {
                tracing::error!(error = %e, "the demo's target stopped");
            }
        });
        Ok(Target { url, books, task })
    }
    /// A copy of the books as they are now.
    pub fn books(&self) -> Books {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer that never comes: the connection stays silent until the client leaves.
async fn silence() -> Response {
    std::future::pending().await
}

async fn create(State(s): State<Shared>, Json(order): Json<NewOrder>) -> Response {
    let fault = {
        let mut books = s.books.lock().unwrap_or_else(PoisonError::into_inner);
        books.calls += 1;
        let seen = books.seen.entry(order.client_ref.clone()).or_default();
        seen.calls += 1;
        seen.sku.clone_from(&order.sku);
        let first = seen.calls == 1;
        let planned = s.schedule.get(&order.sku).copied().unwrap_or(Fault::None);
        if first || planned.undecidable() { planned } else { Fault::None }
    };
    if order.quantity >= REFUSED_FROM {
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "error": "more than the house holds" }))).into_response();
    }
    let with = |f: &dyn Fn(&mut Books) -> String| f(&mut s.books.lock().unwrap_or_else(PoisonError::into_inner));
    let applied = || {
        with(&|b| {
            b.play(fault, true);
            b.apply(&order)
        })
    };
    let created = |id: &str| (StatusCode::CREATED, Json(json!({ "id": id }))).into_response();
    match fault {
        Fault::None => created(&with(&|b| b.apply(&order))),
        Fault::AnswerLost | Fault::UndecidableApplied => {
            applied();
            silence().await
        }
        Fault::RequestLost | Fault::UndecidableAbsent => {
            with(&|b| {
                b.play(fault, false);
                String::new()
            });
            silence().await
        }
        Fault::ErrorAfterApplying => {
            applied();
            (StatusCode::INTERNAL_SERVER_ERROR, "something went wrong\n").into_response()
        }
        Fault::LateAnswer => {
            let id = applied();
            tokio::time::sleep(s.patience * 2).await;
            created(&id)
        }
        Fault::AppliedAfterLeaving => {
            // Goes on although the client has gone: the handler itself is dropped with its connection.
            let late = s.clone();
            let order = order.clone();
            let done = tokio::spawn(async move {
                tokio::time::sleep(late.patience + Duration::from_millis(700)).await;
                let mut books = late.books.lock().unwrap_or_else(PoisonError::into_inner);
                books.play(fault, true);
                books.apply(&order)
            });
            match done.await {
                Ok(id) => created(&id),
                Err(_) => silence().await,
            }
        }
        Fault::TooManyRequests => {
            with(&|b| {
                b.play(fault, false);
                String::new()
            });
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "2")], "slow down\n").into_response()
        }
    }
}

#[derive(Deserialize)]
struct ListQuery {
    #[serde(rename = "ref")]
    reference: String,
    page: Option<u32>,
}

async fn list(State(s): State<Shared>, Query(q): Query<ListQuery>) -> Response {
    let books = s.books.lock().unwrap_or_else(PoisonError::into_inner);
    let ours: Vec<&Order> = books.orders.iter().filter(|o| o.client_ref == q.reference).collect();
    // The undecidable ones are never shown, and the page that would show or rule them out never comes.
    let hidden = books.seen.get(&q.reference).and_then(|seen| s.schedule.get(&seen.sku)).is_some_and(|f| f.undecidable());
    if hidden {
        return match q.page {
            None => Json(json!({ "items": [], "next": 2 })).into_response(),
            Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "this page is not to be had\n").into_response(),
        };
    }
    let items: Vec<Value> =
        ours.iter().map(|o| json!({ "id": o.id, "client_ref": o.client_ref, "sku": o.sku, "quantity": o.quantity })).collect();
    Json(json!({ "items": items, "next": null })).into_response()
}

/// The model: reads what is wanted out of the last message and proposes an order. Deterministic, with the shape of a
/// chat-completions answer.
async fn complete(State(s): State<Shared>, Json(ask): Json<Value>) -> Response {
    s.books.lock().unwrap_or_else(PoisonError::into_inner).model_calls += 1;
    let text = ask["messages"].as_array().and_then(|m| m.last()).and_then(|m| m["content"].as_str()).unwrap_or_default();
    let wanted: Value = text
        .find('{')
        .and_then(|at| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next())
        .and_then(Result::ok)
        .unwrap_or(Value::Null);
    let pieces = wanted["pieces"].as_i64().unwrap_or(1);
    let proposal = json!({ "sku": wanted["want"], "quantity": pieces, "total": (pieces * PRICE) as f64 });
    Json(json!({
        "id": "chatcmpl-demo",
        "object": "chat.completion",
        "model": "m-2",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": proposal.to_string() } }],
        "usage": { "prompt_tokens": 640, "completion_tokens": 172, "total_tokens": 812 },
    }))
    .into_response()
}
