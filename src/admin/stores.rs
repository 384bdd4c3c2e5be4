//! `/stores`: what the stores of this process hold, committed data only.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{Entry, Found, Keys, StoreHandle, Stores, elsewhere};
use crate::error::{Error, Fault, Result, codes};
use crate::intents::{hex, unhex};
use crate::serdes::Shape;

/// Entries of one answer, unless `limit` says otherwise, and at most.
const LIMIT: usize = 100;
const MOST: usize = 10_000;

/// The stores, once the process has started.
pub type StoresSlot = Arc<OnceLock<Stores>>;

#[derive(Deserialize)]
struct Asked {
    prefix: Option<String>,
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
}

pub(super) fn router(stores: StoresSlot) -> axum::Router {
    axum::Router::new()
        .route("/stores", get(list))
        .route("/stores/{name}", get(entries))
        .route("/stores/{name}/{key}", get(one))
        .with_state(stores)
}

async fn list(State(slot): State<StoresSlot>) -> Response {
    let Some(stores) = slot.get() else { return starting() };
    let shown = |s: StoreHandle| {
        let mut info = serde_json::to_value(s.info()).unwrap_or_default();
        info["here"] = if s.info().global { json!("all") } else { json!(s.here()) };
        info
    };
    Json(stores.all().map(shown).collect::<Vec<_>>()).into_response()
}

async fn one(State(slot): State<StoresSlot>, Path((name, key)): Path<(String, String)>) -> Response {
    let Some(stores) = slot.get() else { return starting() };
    let stores = stores.clone();
    aside(move || {
        let store = stores.store(&name)?;
        Ok(match store.get(&key_bytes(&store, &key)?)? {
            Found::Value(entry) => Json(shown(&store, &entry)).into_response(),
            Found::Absent(p) => (StatusCode::NOT_FOUND, Json(json!({ "key": key, "partition": p }))).into_response(),
            Found::Elsewhere(p) => return Err(elsewhere(&store, p)),
        })
    })
    .await
}

async fn entries(State(slot): State<StoresSlot>, Path(name): Path<String>, Query(asked): Query<Asked>) -> Response {
    let Some(stores) = slot.get() else { return starting() };
    let stores = stores.clone();
    aside(move || {
        let store = stores.store(&name)?;
        let bytes = |text: &Option<String>| text.as_ref().map(|t| key_bytes(&store, t)).transpose();
        let keys = match &asked.prefix {
            Some(prefix) => Keys::Prefix(prefix_bytes(&store, prefix)?),
            None => Keys::Range(bytes(&asked.from)?, bytes(&asked.to)?),
        };
        let found = store.entries(&keys, asked.limit.unwrap_or(LIMIT).min(MOST))?;
        let list: Vec<Value> = found.entries.iter().map(|e| shown(&store, e)).collect();
        let here = if store.info().global { json!("all") } else { json!(store.here()) };
        let body = json!({ "entries": list, "more": found.more, "here": here, "partitions": store.info().partitions });
        Ok(Json(body).into_response())
    })
    .await
}

/// Reads where it may wait for the disk.
async fn aside(read: impl FnOnce() -> Result<Response> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(read).await {
        Ok(answer) => answer.unwrap_or_else(|e| refused(&e)),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A key as people write it, as bytes: text as it is, a number, JSON, or hex.
fn key_bytes(store: &StoreHandle, text: &str) -> Result<Bytes> {
    let wrong = |why: &str| {
        Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading a key of store {}", store.info().name)).because(why)
    };
    match store.info().key {
        Shape::Text => Ok(Bytes::copy_from_slice(text.as_bytes())),
        Shape::Long => {
            let n: i64 = text.parse().map_err(|_| wrong("its keys are numbers"))?;
            Ok(Bytes::copy_from_slice(&n.to_be_bytes()))
        }
        Shape::Json => {
            let value: Value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
            Ok(value.to_string().into_bytes().into())
        }
        Shape::Avro => {
            let value: Value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
            let codec = store.stores.avro.as_deref().ok_or_else(|| wrong("its keys are Avro, and no registry is set"))?;
            Ok(codec.encode(&store.topic(), &value)?.into())
        }
        Shape::Bytes => unhex(text).map(Bytes::from).ok_or_else(|| wrong("its keys are bytes: write them as hex")),
    }
}

/// The bytes that keys begin with: text, or hex where keys are not text.
fn prefix_bytes(store: &StoreHandle, text: &str) -> Result<Bytes> {
    let as_is = || Some(Bytes::copy_from_slice(text.as_bytes()));
    let found = if store.info().key == Shape::Text { as_is() } else { unhex(text).map(Bytes::from) };
    found.ok_or_else(|| {
        Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading a prefix of store {}", store.info().name))
            .because("its keys are not text: write the prefix as hex")
    })
}

fn shown(store: &StoreHandle, e: &Entry) -> Value {
    let headers: Vec<Value> =
        e.stored.headers.0.iter().map(|h| json!([h.name, h.value.as_deref().map(String::from_utf8_lossy)])).collect();
    json!({
        "key": readable(store, store.info().key, &e.key),
        "value": readable(store, store.info().value, &e.stored.value),
        "timestamp": e.stored.timestamp.map(|t| t.0),
        "headers": headers,
        "partition": e.partition,
        "position": e.position.map(|p| p.0),
    })
}

/// Bytes for people; what does not have the store's shape after all is shown as hex.
fn readable(store: &StoreHandle, shape: Shape, bytes: &Bytes) -> Value {
    let read = match shape {
        Shape::Text => std::str::from_utf8(bytes).ok().map(Value::from),
        Shape::Long => <[u8; 8]>::try_from(&bytes[..]).ok().map(|b| i64::from_be_bytes(b).into()),
        Shape::Json => serde_json::from_slice(bytes).ok(),
        Shape::Avro => store.stores.avro.as_deref().and_then(|codec| codec.decode(&store.topic(), bytes).ok()),
        Shape::Bytes => None,
    };
    read.unwrap_or_else(|| json!({ "hex": hex(bytes) }))
}

fn starting() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": "the process is starting" }))).into_response()
}

fn refused(e: &Error) -> Response {
    let status = match e.code {
        codes::UNKNOWN_REFERENCE => StatusCode::NOT_FOUND,
        codes::BAD_VALUE => StatusCode::BAD_REQUEST,
        codes::STORE_ELSEWHERE => StatusCode::MISDIRECTED_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(json!({ "error": e.to_string(), "code": e.code.to_string() }))).into_response()
}
