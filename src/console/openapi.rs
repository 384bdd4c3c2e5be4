//! The OpenAPI document of `/api/v1`, made of the routes and the types that the code itself uses.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::act::Action;
use super::api::{Call, ROUTES, Route};
use super::problem::Problem;
use super::submit::wire::WORDS;

/// The filters of a search, with what they find.
const FILTERS: &[(&str, &str)] = &[
    ("status", "Only these statuses, with commas, or given several times."),
    ("tenant", "Only this tenant."),
    ("step", "Only this effect step."),
    ("target", "Only this target: `orders#create`."),
    ("resource", "Only this resource."),
    ("q", "A whole operation ID finds that operation; else what operation ID or resource contains."),
    ("flag", "Only those with this flag: `duplicate_suspected`, `contradiction`, `cancel_too_late`."),
    ("older", "Only what has not changed for so long: `30m`."),
    ("order", "`newest` or `oldest` change first."),
    ("limit", "Entries of a page, 1 to 500; default 50."),
    ("cursor", "The `next` of the page before."),
];

/// The document.
pub fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut g = SchemaGenerator::new(settings);
    let problem = g.subschema_for::<Problem>();
    let mut paths = Map::new();
    for route in ROUTES {
        let method = if route.call.orders() { "post" } else { "get" };
        let operation = operation(route, &mut g, &json!(problem));
        paths.insert(route.path.to_owned(), json!({ method: operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Readback console",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Operations of one application, their evidence, and orders about them. An order that a member has not \
                            answered yet is not done: it is answered with 202.",
        },
        "paths": paths,
        "components": {
            "schemas": g.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "A token of the file, or a JWT of the issuer." } },
        },
        "security": [{ "token": [] }],
    })
}

fn operation(route: &Route, g: &mut SchemaGenerator, problem: &Value) -> Value {
    let text = |of: &str, description: &str| json!({ "name": of, "in": "query", "description": description, "schema": { "type": "string" } });
    let mut parameters = Vec::new();
    if route.path.contains("{operation}") {
        let about = "The operation ID, root or derived.";
        parameters.push(
            json!({ "name": "operation", "in": "path", "required": true, "description": about, "schema": { "type": "string" } }),
        );
    }
    if route.path.contains("{letter}") {
        let about = "Where the letter lies: topic-partition-offset.";
        parameters.push(
            json!({ "name": "letter", "in": "path", "required": true, "description": about, "schema": { "type": "string" } }),
        );
    }
    if route.call == Call::Submit {
        let about = "The request topic, or the effect step that takes its requests.";
        parameters
            .push(json!({ "name": "to", "in": "path", "required": true, "description": about, "schema": { "type": "string" } }));
        parameters.push(text("wait_for", &format!("What to wait for: {WORDS}; default accepted.")));
        parameters.push(text("within", "How long at most: `10s`; default 10s, at most 60s."));
        let about = "The operation ID, where the body has none.";
        parameters.push(json!({ "name": "Idempotency-Key", "in": "header", "description": about, "schema": { "type": "string" } }));
        let about = "W3C trace context; it goes with the request.";
        parameters.push(json!({ "name": "traceparent", "in": "header", "description": about, "schema": { "type": "string" } }));
    }
    if route.call.searches() {
        parameters.extend(FILTERS.iter().map(|(name, about)| text(name, about)));
    }
    if route.call.pages() {
        parameters.push(text("limit", "Entries of a page, 1 to 500; default 200."));
        parameters.push(text("cursor", "The `next` of the page before."));
    }
    if route.call == Call::Operation {
        parameters.push(text("tenant", "Its tenant, where the ID is not unique."));
        parameters.push(text("step", "Its step, where the ID is not unique."));
    }
    let content = |schema: Value| json!({ "application/json": { "schema": schema } });
    let answer = json!(route.call.answer(g));
    let mut responses = Map::new();
    responses.insert("200".into(), json!({ "description": "Done, or found.", "content": content(answer.clone()) }));
    if route.call.orders() && route.call != Call::Replay {
        let about = match route.call {
            Call::Submit => "Written, and the level that was asked for is not reached; the body names the one that is.",
            _ => "Written, and no member has answered yet; or it waits for a second person: not done.",
        };
        responses.insert("202".into(), json!({ "description": about, "content": content(answer) }));
    }
    let refused =
        json!({ "description": "Refused, with a code.", "content": { "application/problem+json": { "schema": problem } } });
    responses.insert("default".into(), refused);
    let mut operation = json!({
        "operationId": name(route.call), "summary": route.summary, "parameters": parameters, "responses": responses,
    });
    if let Some(body) = route.call.body(g) {
        operation["requestBody"] = json!({ "required": true, "content": content(json!(body)) });
    }
    if route.call == Call::Document {
        operation["security"] = json!([]);
    }
    operation
}

fn name(call: Call) -> &'static str {
    match call {
        Call::Document => "document",
        Call::Overview => "overview",
        Call::Operations => "operations",
        Call::Unknowns => "unknowns",
        Call::Approvals => "approvals",
        Call::Operation => "operation",
        Call::Session => "session",
        Call::Resolve => "resolve",
        Call::Order(Action::Force) => "force",
        Call::Order(Action::Cancel) => "cancel",
        Call::Order(_) => "release_lane",
        Call::Decide(Action::Approve) => "approve",
        Call::Decide(_) => "deny",
        Call::Waiting => "waiting",
        Call::Confirm => "confirm",
        Call::Submit => "submit",
        Call::DeadLetters => "dead_letters",
        Call::Replay => "replay",
    }
}
