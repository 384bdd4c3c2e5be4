use super::*;
use crate::intents::AnswerClass;

/// The orders contract with a conditional request.
fn conditional() -> String {
    ORDERS
        .replace("      path: /orders\n", "      path: /orders\n      headers: { if-match: \"{resource_version}\" }\n")
        .replace("    dedupe: none\n", "    dedupe: none\n    precondition: { never_reused: true }\n")
        .replace("- { status: 429,", "- { status: 412, means: precondition_failed }\n      - { status: 429,")
}

fn call(text: &str) -> Call {
    contract(text).call(&CallName::new("create")).expect("declared").clone()
}

/// If this broke, the version that was seen would not reach the target, or a request without one would go out unconditionally.
#[test]
fn the_request_carries_the_version_that_was_seen() {
    let (call, key) = (call(&conditional()), WireKey::new("k"));
    let request = call.render(&parameters(), &key, Some("\"v4\"")).expect("renders");
    assert!(request.headers.iter().any(|h| h.name == "if-match" && h.value == "\"v4\""));
    let why = call.render(&parameters(), &key, None).expect_err("refused").to_string();
    assert!(why.contains("names no resource_version"), "{why}");
    assert_eq!(call.classify(&answer(412, &json!({}))).0, AnswerClass::PreconditionFailed);
}

/// If this broke, the report would promise less, or more, than a conditional request gives.
#[test]
fn a_condition_that_never_holds_twice_is_a_promise() {
    assert_eq!(call(&conditional()).promise(), Promise::AtMostOneConditional);
    assert!(call(&conditional()).assumptions.iter().any(|a| a.text.contains("never uses a version")));
    let comes_back = conditional().replace("{ never_reused: true }", "{}");
    assert_eq!(call(&comes_back).promise(), Promise::AtMostOneReadback);
}

/// If this broke, a contract would claim a precondition that nobody checks, or an answer about one that there is not.
#[test]
fn preconditions_that_hold_nothing_are_refused() {
    for (from, to, reason) in [
        ("headers: { if-match: \"{resource_version}\" }\n", "\n", "a precondition that nobody checks"),
        ("precondition: { never_reused: true }", "", "`precondition_failed` without a precondition"),
        ("- { status: 412, means: precondition_failed }\n", "\n", "no answer says that it has changed"),
        ("status: 412,", "status: 400-412,", "the range covers 408"),
        (
            "{ never_reused: true }",
            "{ read: { request: { method: POST, path: /x }, version: body.v } }",
            "must not change anything",
        ),
        ("quantity: {", "resource_version: {", "can't be a parameter's name"),
    ] {
        let text = conditional().replace(from, to);
        assert_ne!(text, conditional(), "{from} is not in the text");
        let shown = parse("orders.yaml", &text).err().unwrap_or_else(|| panic!("accepted: {to}")).render(false);
        assert!(shown.contains(reason), "{to}: {shown}");
    }
}

/// If this broke, an error page would be read as another version, or a quoted ETag would never match.
#[test]
fn a_version_is_read_from_a_whole_answer_only() {
    let text = conditional().replace(
        "{ never_reused: true }",
        "{ read: { request: { method: GET, path: \"/things/{sku}\" }, version: headers.etag, absent: [404] } }",
    );
    let call = call(&text);
    assert_eq!(call.render_version(&parameters()).expect("renders").path, "/things/A-1");
    let etag = |status, value| call.version_in(&with_headers(status, &[("etag", value)], String::new()));
    assert_eq!(etag(200, "\"7\""), Ok(Some("\"7\"".into())));
    assert_eq!(etag(404, "x"), Ok(None));
    assert!(etag(503, "\"7\"").is_err() && call.version_in(&answer(200, &json!({}))).is_err());
    assert!(same_version("7", "\"7\"") && same_version("\"7\"", "7"));
    assert!(!same_version("7", "8") && !same_version("7", "W/\"7\""), "a weak tag says nothing about the bytes");
}
