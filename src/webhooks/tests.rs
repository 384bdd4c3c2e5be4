//! One post after another at the book: believed, read, or refused; and what is remembered of it.
#![allow(clippy::unwrap_used)]

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::*;
use crate::contract::{self, Unbelieved};
use crate::intents::{AnswerClass, ControlKind, hex};
use crate::time::WallTime;

const NOW: WallTime = WallTime(1_790_000_000_000);

fn text(name: &str, secret: &str) -> String {
    format!(
        r#"contract: {name}
version: 1
verified_on: 2026-11-20
target: {{ base_url: "https://{name}.internal", hosts: [{name}.internal] }}
calls:
  send:
    parameters: {{ to: {{ type: string }} }}
    request: {{ method: POST, path: /messages, json: {{ to: "{{to}}", ref: "{{key}}" }} }}
    key: {{ carrier: body }}
    answers: [{{ status: 202, means: in_progress }}]
    completion: webhook
    webhook:
      path: /hooks
      signature: stripe
      secret: {{ file: {secret} }}
      key: body.ref
      means: [{{ when: body.kind == "{name}.done", means: applied }}]
      within: 10m
"#
    )
}

/// Two targets that post on one path, each with a secret of its own.
fn book(dir: &std::path::Path) -> Book {
    let contracts: Vec<_> = ["mail", "chat"]
        .map(|name| {
            let file = dir.join(name);
            std::fs::write(&file, format!("secret of {name}")).unwrap();
            let text = text(name, file.to_str().unwrap());
            std::sync::Arc::new(contract::parse("contracts/under-test.yaml", &text).unwrap_or_else(|d| panic!("{d}")))
        })
        .into();
    Book::of(&contracts)
}

fn signed(by: &str, body: &str) -> std::collections::BTreeMap<String, String> {
    let seconds = NOW.0 / 1_000;
    let mut mac = Hmac::<Sha256>::new_from_slice(format!("secret of {by}").as_bytes()).unwrap();
    mac.update(format!("{seconds}.{body}").as_bytes());
    [("stripe-signature".to_owned(), format!("t={seconds},v1={}", hex(&mac.finalize().into_bytes())))].into()
}

fn received(book: &Book, path: &str, by: &str, body: &str) -> Outcome {
    let headers = signed(by, body);
    book.receive(&Posted { path, headers: &headers, body: body.as_bytes() }, NOW).unwrap()
}

/// If this broke, a webhook would be written under another contract than the one whose secret signed it, or not at all.
#[test]
fn a_post_is_that_of_the_target_that_signed_it() {
    let dir = tempfile::tempdir().unwrap();
    let book = book(dir.path());
    for name in ["mail", "chat"] {
        let Outcome::Told(said) = received(&book, "/hooks", name, &format!(r#"{{"kind":"{name}.done","ref":"k-1"}}"#)) else {
            panic!("{name} is believed")
        };
        let hearsay = said.hearsay.unwrap();
        assert_eq!((said.kind, said.contract.unwrap().as_str()), (ControlKind::Webhook, name));
        assert_eq!((hearsay.token.as_str(), hearsay.class), ("k-1", AnswerClass::Applied));
    }
    let crossed = received(&book, "/hooks", "mail", r#"{"kind":"chat.done","ref":"k-1"}"#);
    assert_eq!(crossed, Outcome::Ignored, "mail may not speak for chat");
}

/// If this broke, a target would post for ever what we can't use, or stop posting what we have not written.
#[test]
fn answers_tell_a_target_whether_to_post_again() {
    let dir = tempfile::tempdir().unwrap();
    let book = book(dir.path());
    let done = r#"{"kind":"mail.done","ref":"k-1"}"#;
    assert_eq!(received(&book, "/hooks", "mail", done).answer(), (200, "taken"));
    assert_eq!(received(&book, "/hooks", "mail", r#"{"kind":"mail.opened"}"#).answer(), (200, "ignored"));
    assert_eq!(received(&book, "/other", "mail", done).answer().0, 404);
    assert_eq!(received(&book, "/hooks", "nobody", done), Outcome::Unbelieved(Unbelieved::Forged));
    assert_eq!(received(&book, "/hooks", "nobody", done).answer(), (401, "forged"));
    assert_eq!(received(&book, "/hooks", "mail", r#"{"kind":"mail.done"}"#).answer(), (422, "unreadable"));
    std::fs::remove_file(dir.path().join("mail")).unwrap();
    let headers = signed("mail", done);
    assert!(
        book.receive(&Posted { path: "/hooks", headers: &headers, body: done.as_bytes() }, NOW).is_err(),
        "no secret, no verdict"
    );
}

/// If this broke, what is remembered would grow without bound, or the post that just came would be forgotten first.
#[test]
fn what_is_remembered_is_bounded() {
    let mut seen = Seen::default();
    let digest = |n: u32| {
        let body = n.to_be_bytes();
        Seen::digest(&Posted { path: "/hooks", headers: &Default::default(), body: &body })
    };
    (0..10_001).for_each(|n| seen.remember(digest(n)));
    assert!(!seen.knows(&digest(0)) && seen.knows(&digest(1)) && seen.knows(&digest(10_000)));
}
