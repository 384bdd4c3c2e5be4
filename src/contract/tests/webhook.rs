//! Completion by webhook: what a contract may declare, what is believed, and what a body says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::*;
use crate::intents::{AnswerClass, hex};
use crate::time::WallTime;

const SECRET: &str = "kD3uq0Q2sYlE7v9hWm5b1w==";
const NOW: WallTime = WallTime(1_790_000_000_000);

fn text(signature: &str) -> String {
    let block = format!(
        r#"    completion: webhook
    webhook:
      path: /webhooks/orders
      signature: {signature}
      secret: {{ file: SECRET_FILE }}
      key: body.data.client_ref
      means:
        - {{ when: 'body.type == "order.done"', means: applied, evidence: body.data.id }}
        - {{ when: 'body.type == "order.failed"', means: rejected }}
      within: 10m
"#
    );
    ORDERS.replace("    completion: sync\n", &block)
}

pub(super) struct Ground {
    _dir: tempfile::TempDir,
    pub(super) call: Call,
}

pub(super) fn call(signature: &str) -> Ground {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("secret");
    std::fs::write(&file, SECRET).expect("written");
    let text = text(signature).replace("SECRET_FILE", file.to_str().expect("text"));
    let call = contract(&text).call(&CallName::new("create")).expect("declared").clone();
    Ground { _dir: dir, call }
}

fn mac(key: &[u8], before: &str, body: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(before.as_bytes());
    mac.update(body);
    mac.finalize().into_bytes().to_vec()
}

/// Headers that a target of this scheme sends with a body.
fn signed(scheme: &str, seconds: i64, body: &[u8]) -> Vec<(String, String)> {
    let own = |n: &str, v: String| (n.to_owned(), v);
    match scheme {
        "stripe" => {
            let v1 = hex(&mac(SECRET.as_bytes(), &format!("{seconds}."), body));
            vec![own("stripe-signature", format!("t={seconds},v0=00,v1={v1}"))]
        }
        "github" => vec![own("x-hub-signature-256", format!("sha256={}", hex(&mac(SECRET.as_bytes(), "", body))))],
        _ => {
            let key = STANDARD.decode(SECRET).expect("base64");
            let v1 = STANDARD.encode(mac(&key, &format!("msg_1.{seconds}."), body));
            vec![
                own("webhook-id", "msg_1".into()),
                own("webhook-timestamp", seconds.to_string()),
                own("webhook-signature", format!("v1a,AAAA v1,{v1}")),
            ]
        }
    }
}

fn believed(call: &Call, headers: &[(String, String)], body: &[u8]) -> Result<(), Unbelieved> {
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    call.signed(header, body, NOW).expect("the secret is there")
}

/// If this broke, anybody who finds the address could say that an order is placed; or the target itself would not be believed.
#[test]
fn only_what_the_target_signed_now_is_believed() {
    let body = br#"{"type":"order.done","data":{"client_ref":"k","id":"o-1"}}"#;
    for scheme in ["stripe", "github", "standard"] {
        let g = call(scheme);
        let now = NOW.0 / 1_000;
        assert_eq!(believed(&g.call, &signed(scheme, now, body), body), Ok(()), "{scheme}");
        let other = br#"{"type":"order.done","data":{"client_ref":"K","id":"o-1"}}"#;
        assert_eq!(believed(&g.call, &signed(scheme, now, body), other), Err(Unbelieved::Forged), "{scheme}");
        assert_eq!(believed(&g.call, &[], body), Err(Unbelieved::Unsigned), "{scheme}");
        for seconds in [now - 301, now + 301] {
            let late = believed(&g.call, &signed(scheme, seconds, body), body);
            let timeless = scheme == "github";
            assert_eq!(late, if timeless { Ok(()) } else { Err(Unbelieved::Stale) }, "{scheme}");
        }
        assert_eq!(believed(&g.call, &signed(scheme, now - 299, body), body), Ok(()), "{scheme}");
    }
    let g = call("stripe");
    let signed = signed("stripe", 1_790_000_000, body)[0].1.replace("t=1790000000", "t=1790000001");
    assert_eq!(
        believed(&g.call, &[("stripe-signature".into(), signed)], body),
        Err(Unbelieved::Forged),
        "a new time for an old one"
    );
}

/// If this broke, a webhook about something else would end an operation, or one that lacks what its contract names would pass.
#[test]
fn a_body_says_what_the_contract_reads_in_it() {
    let g = call("stripe");
    let told = |body: Value| g.call.told(body.to_string().as_bytes());
    let done = told(json!({ "type": "order.done", "data": { "client_ref": "k-1", "id": "o-1" } }));
    let expected = Told { key: WireKey::new("k-1"), class: AnswerClass::Applied, reference: Some("o-1".into()) };
    assert_eq!(done, Ok(Some(expected)));
    let failed = told(json!({ "type": "order.failed", "data": { "client_ref": "k-1" } }));
    assert_eq!(failed.map(|t| t.map(|t| t.class)), Ok(Some(AnswerClass::Rejected)));
    assert_eq!(told(json!({ "type": "order.shipped", "data": { "client_ref": "k-1" } })), Ok(None));
    assert_eq!(told(json!([1])), Ok(None));
    assert!(told(json!({ "type": "order.done", "data": { "client_ref": "k-1" } })).is_err(), "no evidence");
    assert!(told(json!({ "type": "order.done", "data": { "id": "o-1" } })).is_err(), "no key");
    assert!(g.call.told(b"not json").is_err());
}

/// If this broke, "done" of an accepted call would be taken from its own answer, and its webhook would change nothing.
#[test]
fn an_accepted_call_is_not_done() {
    let g = call("stripe");
    assert_eq!(g.call.classify(&answer(201, &json!({ "id": "o-1" }))).0, AnswerClass::InProgress);
    assert_eq!(g.call.classify(&answer(202, &json!({}))).0, AnswerClass::InProgress);
    assert!(g.call.assumptions.iter().any(|a| a.text.contains("secret of its webhooks")), "{:?}", g.call.assumptions);
}

/// If this broke, a contract would be taken that waits for what can never come, or could never be told whose it is.
#[test]
fn webhooks_that_tell_nobody_anything_are_refused() {
    let refused = |from: &str, to: &str| {
        let good = text("stripe");
        let bad = good.replace(from, to);
        assert_ne!(good, bad, "{from} is not in the text");
        parse("contracts/orders.yaml", &bad).err().unwrap_or_else(|| panic!("{to} is taken")).to_string()
    };
    assert!(refused("completion: webhook", "completion: poll").contains("half declared"));
    assert!(refused("means: applied, evidence: body.data.id", "means: rejected").contains("no webhook says that it happened"));
    assert!(refused("within: 10m", "within: 2h").contains("unknown_after must exceed"));
    assert!(refused("path: /webhooks/orders", "path: 'orders?x=1'").contains("a path such as"));
    assert!(refused("means: rejected }", "means: not_applied }").contains("rejected"), "a webhook is no reason to send again");
    assert!(refused("key: body.data.client_ref", "key: header.x").contains("header"));
    let without = ORDERS.replace("completion: sync", "completion: webhook");
    assert!(parse("contracts/orders.yaml", &without).is_err());
}
