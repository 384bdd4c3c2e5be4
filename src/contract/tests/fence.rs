use std::time::Duration;

use super::*;
use crate::contract::{Fence, StampFormat};
use crate::intents::AnswerClass;
use crate::time::WallTime;

/// The orders contract at a target that makes one order under a reference.
fn creates() -> String {
    ORDERS.replace("    dedupe: none\n", "    dedupe: none\n    fence: { create: { exists: [409, 412] } }\n")
}

/// The same at one that refuses requests older than two minutes.
fn ages() -> String {
    let age = "    fence: { age: { within: 2m, header: x-sent-at, refused: 412 } }\n";
    ORDERS
        .replace("    dedupe: none\n", &format!("    dedupe: none\n{age}"))
        .replace("in_flight: { bound: 5s, because: \"one process, no proxy\" }", "in_flight: unbounded")
}

fn call(text: &str) -> Call {
    contract(text).call(&CallName::new("create")).expect("declared").clone()
}

/// If this broke, the report would promise less, or more, than the fence gives, or hide what it rests on.
#[test]
fn a_fence_is_a_promise_with_its_assumption() {
    let (creates, ages) = (call(&creates()), call(&ages()));
    assert_eq!(creates.promise(), Promise::AtMostOneCreated);
    assert_eq!(ages.promise(), Promise::AtMostOneFenced(Duration::from_secs(120)));
    for (call, part) in [(&creates, "one thing under an ID"), (&ages, "older than 2 min")] {
        assert!(call.assumptions.iter().any(|a| a.text.contains(part)), "{:?}", call.assumptions);
    }
    let proxies = |call: &Call| call.assumptions.iter().any(|a| a.text.contains("repeats requests by itself"));
    assert!(!proxies(&creates) && proxies(&ages), "a second copy within its age takes effect");
}

/// If this broke, "the ID is taken" would be taken for done or refused, or a late refusal for a final one.
#[test]
fn the_refusals_of_a_fence_are_what_they_say() {
    for status in [409, 412] {
        assert_eq!(call(&creates()).classify(&answer(status, &json!({}))).0, AnswerClass::KeyConflict);
    }
    assert_eq!(call(&ages()).classify(&answer(412, &json!({}))).0, AnswerClass::RetryLater);
    assert_eq!(call(ORDERS).classify(&answer(412, &json!({}))).0, AnswerClass::Unknown);
}

/// If this broke, an attempt would carry a later time than its record, and be taken by the target after we count it dead.
#[test]
fn a_stamp_is_never_later_than_the_attempt() {
    let at = WallTime(1_790_000_000_999);
    let stamped = |format: &str| {
        let text = ages().replace("header: x-sent-at", &format!("header: x-sent-at, format: {format}"));
        call(&text).stamp(at).expect("an age limit")
    };
    assert_eq!(call(&ages()).stamp(at), Some(("x-sent-at".into(), "1790000000".into())));
    assert_eq!(stamped("http_date").1, "Mon, 21 Sep 2026 14:13:20 GMT");
    assert_eq!(stamped("rfc3339").1, "2026-09-21T14:13:20.999Z");
    for format in [StampFormat::Unix, StampFormat::HttpDate, StampFormat::Rfc3339] {
        assert!(format.read(&format.write(at)).is_some_and(|t| t <= at && at.since(t) < Duration::from_secs(1)), "{format:?}");
    }
    assert_eq!(call(&creates()).stamp(at), None);
    assert!(matches!(call(&creates()).fence, Some(Fence::Create(_))));
}

/// If this broke, a contract would claim a fence that nobody meets, or whose refusal nobody could tell from success.
#[test]
fn fences_that_hold_nothing_are_refused() {
    let without = |text: &str| {
        let (head, rest) = text.split_once("    confirm: readback").expect("a readback");
        let answers = rest.split_once("    in_flight:").expect("a bound").1;
        format!("{head}    in_flight:{answers}")
    };
    let no_key = creates().replace(", client_ref: \"{key}\"", "").replace("key: { carrier: body, format: uuid }", "key: none");
    for (text, reason) in [
        (without(&creates()), "a taken ID that nobody reads back"),
        (without(&ages()), "an age limit without a readback"),
        (no_key, "a conditional create without an ID in the request"),
        (creates().replace("[409, 412]", "[422]"), "422 has two meanings"),
        (ages().replace("within: 2m", "within: 15s"), "attempts would be refused before they arrive"),
        (ages().replace("header: x-sent-at", "header: content-length"), "is no header that can be set"),
        (creates().replace("fence: { create: { exists: [409, 412] } }", "fence: {}"), "one of the two"),
    ] {
        let shown = parse("orders.yaml", &text).err().unwrap_or_else(|| panic!("accepted, not: {reason}\n{text}")).render(false);
        assert!(shown.contains(reason), "{reason}: {shown}");
    }
}

/// The age limit with a signature.
fn signs(secret: &std::path::Path) -> String {
    let how = "header: x-signature, over: \"{stamp}.{body}\", prefix: v1=";
    let sign = format!("sign: {{ {how}, secret: {{ file: {} }} }}", secret.display());
    ages().replace("refused: 412", &format!("refused: 412, {sign}"))
}

/// If this broke, a target would refuse every signed request, or take one with a time or body that nobody signed.
#[test]
fn a_signature_covers_the_time_and_the_body() {
    let request = |body: &str| RenderedRequest { body: Some(body.as_bytes().to_vec()), ..RenderedRequest::default() };
    let dir = tempfile::tempdir().expect("a directory");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret\n").expect("writable");
    let signs = signs(&secret);
    let made = |stamp: &str, body: &str| {
        call(&signs).signature(stamp, &WireKey::new("k"), &request(body)).expect("the secret is there").expect("it signs")
    };
    // printf '1.{}' | openssl dgst -sha256 -hmac s3cret
    let expected = "v1=3aef069923b329162e71de34136b0ef6ee4b9253867069748da3fc3680c71406";
    assert_eq!(made("1", "{}"), ("x-signature".to_owned(), expected.to_owned()));
    assert_ne!(made("2", "{}"), made("1", "{}"));
    assert_ne!(made("1", "[]"), made("1", "{}"));
    assert_eq!(call(&ages()).signature("1", &WireKey::new("k"), &request("{}")).expect("nothing to read"), None);
    for (from, to, reason) in [
        ("{stamp}.{body}", "{body}", "sign {stamp}"),
        ("{stamp}.{body}", "{stamp}", "sign {body}"),
        ("{stamp}.{body}", "{stmp}.{body}", "known here: stamp"),
    ] {
        let shown = parse("orders.yaml", &signs.replace(from, to)).expect_err(to).render(false);
        assert!(shown.contains(reason), "{to}: {shown}");
    }
}

/// If this broke, somebody could accept duplicates without being told what that means.
#[test]
fn accepting_duplicates_is_told() {
    let text = ORDERS.replace("unprovable: person", "unprovable: duplicates_accepted");
    let shown = contract(&text).warnings.render(false);
    assert!(shown.contains("may happen more than once"), "{shown}");
    assert_eq!(call(&text).promise().words(), "may happen more than once, counted");
}
