//! Applications against simulated targets, end to end on the driver.
#![allow(clippy::unwrap_used)]

mod alike;
mod caching;
mod commands;
mod compare;
mod dead_letters;
mod fences;
mod library;
mod pause;
mod precondition;
mod tables;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Scripted, TopologyTestDriver};
use crate::contract::{self, Parameters};
use crate::dsl::{Application, Consumed, Effect, StreamsBuilder};
use crate::http::Answer;
use crate::intents::{RenderedRequest, ResultKind, ResultRecord};
use crate::record::Headers;
use crate::serdes::Serdes;
use crate::serdes::internal;
use crate::time::WallTime;

/// An application that asks `call` of this contract for each record: `{"id", "version"?, "parameters"}`.
fn application(contract: &str, call: &str) -> TopologyTestDriver {
    TopologyTestDriver::new(&built(contract, call)).unwrap()
}

fn built(contract: &str, call: &str) -> Application {
    built_as(contract::parse("contracts/under-test.yaml", contract).unwrap_or_else(|d| panic!("{d}")), call, |effect| effect)
}

type Asked = Effect<String, Value>;

fn built_as(contract: contract::Contract, call: &str, more: impl FnOnce(Asked) -> Asked) -> Application {
    let builder = StreamsBuilder::new("asked").dead_letters("dead");
    let effect = Effect::named("ask")
        .operation_id(|_, v: &Value| v["id"].as_str().unwrap().to_owned())
        .request(|draft, v: &Value| {
            let draft = draft.tenant("acme").resource("thing/1").deadline(WallTime(1_767_225_600_000 + 600_000));
            match v["version"].as_str() {
                Some(version) => draft.resource_version(version),
                None => draft,
            }
        })
        .parameters(|v: &Value| Parameters(v["parameters"].as_object().unwrap().clone()));
    let asks = builder.stream("asks", Consumed::with(Serdes::string(), Serdes::json::<Value>()));
    asks.effect(&Arc::new(contract), call, more(effect)).results().to("results");
    builder.build().unwrap_or_else(|d| panic!("{d}"))
}

fn ask(driver: &mut TopologyTestDriver, what: &Value) {
    driver.pipe("asks", Some(b"k"), Some(what.to_string().as_bytes()), Headers::new(), None).unwrap();
}

/// State results so far, oldest first.
fn states(driver: &mut TopologyTestDriver) -> Vec<ResultRecord> {
    let all = driver.read_output("results").into_iter().map(|o| internal::decode::<ResultRecord>(&o.value.unwrap()).unwrap());
    all.filter(|r| r.kind == ResultKind::State).collect()
}

fn says(status: u16, body: &Value) -> Scripted {
    with(status, &[], body)
}

fn with(status: u16, headers: &[(&str, &str)], body: &Value) -> Scripted {
    let own = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    let headers = own.chain([("content-type".to_owned(), "application/json".to_owned())]).collect();
    Scripted::Answer(Answer { status, headers, body: Bytes::from(body.to_string()) })
}

fn header<'a>(request: &'a RenderedRequest, name: &str) -> Option<&'a str> {
    request.headers.iter().find(|h| h.name == name).map(|h| h.value.as_str())
}

fn body(request: &RenderedRequest) -> Value {
    request.body.as_deref().map_or(Value::Null, |b| serde_json::from_slice(b).unwrap())
}

fn parameters(id: &str, version: Option<&str>, parameters: &Value) -> Value {
    json!({ "id": id, "version": version, "parameters": parameters })
}
