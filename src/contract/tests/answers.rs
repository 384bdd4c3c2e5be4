use super::*;
use crate::intents::AnswerClass::{self, Applied, InProgress, KeyConflict, NotApplied, Rejected, RetryLater, Unknown};
use crate::time::WallTime;
use std::time::Duration;

fn class(call: &Call, answer: &Answer) -> AnswerClass {
    call.classify(answer).0
}

/// C064: a 200 with an error inside is not a success; only what the contract says is.
#[test]
fn a_status_alone_is_no_success() {
    let call = create();
    assert_eq!(class(&call, &answer(200, &json!({ "ok": true }))), Applied);
    for body in [json!({ "ok": false, "error": "insufficient" }), json!({}), json!({ "ok": "true" }), json!([])] {
        assert_eq!(class(&call, &answer(200, &body)), Unknown, "{body}");
    }
    assert_eq!(class(&call, &with_headers(200, &[], String::new())), Unknown);
    assert_eq!(class(&call, &with_headers(204, &[], String::new())), Unknown);
    assert_eq!(call.classify(&answer(201, &json!({ "id": 17 }))), (Applied, Some("17".into()), None));
    assert_eq!(class(&call, &answer(201, &json!({ "no": "id" }))), Unknown, "the evidence that the contract names isn't there");
}

/// C073: a gateway's page says nothing about the target, whatever its status.
#[test]
fn unreadable_answers_are_unknown() {
    let call = create();
    for status in [200, 201, 500, 502, 504] {
        let html = with_headers(status, &[("content-type", "text/html")], "<h1>Bad Gateway</h1>".into());
        assert_eq!(class(&call, &html), Unknown, "{status}");
    }
    assert_eq!(class(&call, &answer(500, &json!({ "error": "x" }))), Unknown);
    let mut wrong_charset = answer(201, &json!({ "id": 1 }));
    wrong_charset.body = b"\xff\xfe{".to_vec().into();
    assert_eq!(class(&call, &wrong_charset), Unknown);
    // A catch-all below a predicate that can't be asked must not decide.
    let loose = create_with("- { status: 429,", "- { status: 200, means: rejected }\n      - { status: 429,");
    assert_eq!(class(&loose, &with_headers(200, &[("content-type", "text/html")], "login".into())), Unknown);
    assert_eq!(class(&loose, &answer(200, &json!({ "ok": false }))), Rejected);
}

/// C074: a redirect is another page's answer and proves nothing.
#[test]
fn redirects_prove_nothing() {
    for status in [301, 302, 303, 307, 308] {
        assert_eq!(class(&create(), &with_headers(status, &[("location", "/elsewhere")], String::new())), Unknown, "{status}");
    }
}

/// C25, C065: 202 is not an effect where the target completes later; nor is any "applied".
#[test]
fn accepted_is_not_applied() {
    let later = create_with("completion: sync", "completion: poll");
    assert_eq!(class(&later, &with_headers(202, &[], String::new())), InProgress);
    assert_eq!(class(&later, &answer(201, &json!({ "id": 1 }))), InProgress);
    assert_eq!(class(&create(), &with_headers(202, &[], String::new())), Unknown);
}

/// C067, C068: under a key, "still running" and "another body" are neither success nor failure.
#[test]
fn keyed_answers_have_their_own_meaning() {
    let keyed = create_with("dedupe: none", "dedupe: { window: 24h, other_body: 409, while_running: 425 }");
    assert_eq!(class(&keyed, &answer(409, &json!({}))), KeyConflict);
    assert_eq!(class(&keyed, &answer(425, &json!({}))), InProgress);
    assert_eq!(class(&create(), &answer(409, &json!({}))), Unknown);
}

/// If this broke, a rule with a condition would hold without it.
#[test]
fn conditions_are_asked() {
    let call = create();
    assert_eq!(class(&call, &with_headers(503, &[("retry-after", "2")], String::new())), NotApplied);
    assert_eq!(class(&call, &with_headers(503, &[], String::new())), Unknown);
    assert_eq!(class(&call, &answer(422, &json!({}))), Rejected);
    assert_eq!(class(&call, &answer(418, &json!({}))), Unknown);
}

/// C071: Retry-After as seconds, as a date in each form, as nonsense, and beyond all reason.
#[test]
fn retry_after_is_read_in_every_form() {
    let of = |text: &str| {
        let (class, _, retry) = create().classify(&with_headers(429, &[("retry-after", text)], String::new()));
        assert_eq!(class, RetryLater);
        retry
    };
    let at = WallTime(784_111_777_000);
    assert_eq!(of("2"), Some(RetryAfter::In(Duration::from_secs(2))));
    for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert_eq!(of(date), Some(RetryAfter::At(at)), "{date}");
    }
    for nonsense in ["soon", "-1", "", "1.5"] {
        assert_eq!(of(nonsense), None, "{nonsense}");
    }
    let due = RetryAfter::At(at).due(WallTime(at.0 - 120_000));
    assert_eq!(due, at);
    assert_eq!(RetryAfter::At(at).due(WallTime(at.0 + 5)), WallTime(at.0 + 5), "never in the past");
    assert_eq!(of("999999999"), Some(RetryAfter::In(Duration::from_secs(86_400))), "at most a day");
}

/// If this broke, a model's proposal or its cost would be lost.
#[test]
fn a_proposal_is_taken_out_of_its_answer() {
    let text = r#"
contract: model
version: 1
verified_on: 2026-11-20
target: { base_url: "http://127.0.0.1:9", hosts: [127.0.0.1], private: true }
calls:
  chat:
    parameters: { prompt: { type: string, max_length: 20000 } }
    request: { method: POST, path: /v1/chat/completions, json: { model: m-2, messages: [{ role: user, content: "{prompt}" }], n: 1 } }
    proposal: { body: "body.choices[0].message.content", tokens: body.usage.total_tokens }
    answers: [{ status: 200, when: size(body.choices) > 0, means: applied }, { status: 429, means: retry_later }]
"#;
    let contract = contract(text);
    let call = contract.call(&CallName::new("chat")).expect("declared");
    assert_eq!(call.promise(), Promise::DuplicatesCounted);
    let good = answer(200, &json!({ "choices": [{ "message": { "content": "{\"sku\":1}" } }], "usage": { "total_tokens": 812 } }));
    assert_eq!(class(call, &good), Applied);
    let proposed = call.proposed(&good).expect("there");
    assert_eq!((proposed.body.as_str(), proposed.cost.tokens), ("{\"sku\":1}", 812));
    assert!(call.proposed(&answer(200, &json!({ "choices": [] }))).is_err());
    let Value::Object(p) = json!({ "prompt": "p" }) else { panic!("an object") };
    let body = call.render(&Parameters(p), &WireKey::new("k"), None).expect("renders").body.expect("a body");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body, json!({ "model": "m-2", "messages": [{ "role": "user", "content": "p" }], "n": 1 }));
}
