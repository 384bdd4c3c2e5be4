//! Orders that wait for a second person, and what processes that share a secret tell each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::console::audit::{Came, Entry};
use crate::console::second::{WAITS, Waiting};
use crate::console::{Console, Settings};
use crate::ids::ApplicationId;

use super::issuer::{CLIENT, Issuer};
use super::oidc::sign_in;
use super::served::{APP, Got, Served, a_clock, field, form_token, parked};

const PATH: &str = "/operations/op-1?tenant=acme&step=place-order";
/// Longest wait for what another thread must read.
const SPAN: Duration = Duration::from_secs(10);

fn with_issuer() -> (Served, Issuer) {
    let clock = a_clock();
    let issuer = Issuer::start(([127, 0, 0, 1], 0).into(), clock.clone());
    let section = issuer.section();
    (Served::at(clock, false, Some(section), true, None), issuer)
}

fn of(s: &Served, issuer: &Issuer, sub: &str, name: &str, groups: &[&str]) -> String {
    issuer.account(sub, name, groups);
    sign_in(s, issuer)
}

/// Orders one more send, as the form does.
fn force(s: &Served, cookie: &str, path: &str) -> Got {
    let page = s.page(cookie, path);
    let form = |name: &str| field(&page.body, "value=\"force\"", name);
    assert!(page.body.contains("waits fifteen minutes for a second person"), "{}", page.body);
    let body = format!("form={}&action=force&command={}&seen=7&reason=r1&ask_second=yes", form_token(&page.body), form("command"));
    s.post(cookie, path, &body)
}

fn confirm(s: &Served, cookie: &str, path: &str, command: &str) -> Got {
    let form = form_token(&s.page(cookie, path).body);
    s.post(cookie, path, &format!("form={form}&action=confirm&command={command}&reason=r2"))
}

/// If this broke, where everybody signs in by an issuer one person alone could send again before settle; or two could not.
#[test]
fn an_order_waits_for_a_second_person_who_signs_in() {
    let (s, issuer) = with_issuer();
    s.ledger(&parked("op-1"));
    let olga = of(&s, &issuer, "1", "olga@acme", &["sre"]);
    let otto = of(&s, &issuer, "2", "otto@acme", &["sre"]);
    let got = force(&s, &olga, PATH);
    assert_eq!((got.status, s.commands().len()), (202, 0), "{got:?}");
    assert!(got.body.contains("Nothing is ordered yet") && got.body.contains("Somebody else must confirm it"), "{got:?}");
    let page = s.page(&otto, PATH);
    assert!(page.body.contains("olga@acme orders it on version 7") && page.body.contains("Reason: r1"), "{page:?}");
    let command = field(&page.body, "value=\"confirm\"", "command");
    let vera = of(&s, &issuer, "3", "vera@acme", &["guests"]);
    // The first person again: as she is, in another spelling, and under another name of the same account.
    let spelled = of(&s, &issuer, "4", "OLGA@acme", &["sre"]);
    let renamed = of(&s, &issuer, "1", "olivia@acme", &["sre"]);
    for cookie in [&olga, &vera, &spelled, &renamed] {
        let got = confirm(&s, cookie, PATH, &command);
        assert_eq!((got.status, s.commands().len()), (403, 0), "{got:?}");
    }
    let done = confirm(&s, &otto, PATH, &command);
    assert_eq!(done.status, 200, "{done:?}");
    let given = s.commands().pop().expect("a command");
    assert_eq!(
        (given.by.as_str(), given.second.as_deref(), given.reason.as_str()),
        ("olga@acme", Some("otto@acme"), "r1 · otto@acme agrees: r2")
    );
    assert_eq!((given.command_id.as_str(), given.seen), (command.as_str(), Some(7)));
    let again = confirm(&s, &otto, PATH, &command);
    assert_eq!((again.status, s.commands().len()), (409, 1), "{again:?}");
    let came: Vec<Value> = s.audited().into_iter().filter(|a| a["command"] == command.as_str()).collect();
    let words: Vec<&str> = came.iter().filter_map(|a| a["came"].as_str()).collect();
    assert_eq!(words, ["waits", "refused", "refused", "refused", "refused", "ordered", "answered", "refused"]);
    let ordered = &came[5];
    assert_eq!(
        (&ordered["who"], &ordered["second"], &ordered["detail"]),
        (&json!("olga@acme"), &json!("otto@acme"), &json!("confirmed: r2"))
    );
}

/// If this broke, everybody who may look would be shown what a token's hash begins with, or could not look at all that waits.
#[test]
fn orders_that_wait_are_paged_and_tell_nothing_of_tokens() {
    let s = Served::new();
    for n in 0..3 {
        s.ledger(&parked(&format!("op-{n}")));
        let got = s.order("olga", &format!("op-{n}/force"), &json!({ "reason": "r", "seen": 7, "ask_second": true }));
        assert_eq!(got.status, 202, "{got:?}");
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    for _ in 0..2 {
        let page = s.api("vera", &format!("/waiting?limit=2{cursor}")).json();
        found.extend(page["orders"].as_array().expect("orders").clone());
        cursor = page["next"].as_str().map(|next| format!("&cursor={next}")).unwrap_or_default();
    }
    let mut names: Vec<&str> = found.iter().filter_map(|o| o["operation"].as_str()).collect();
    names.sort_unstable();
    assert_eq!((names.as_slice(), cursor.as_str()), (&["op-0", "op-1", "op-2"][..], ""));
    let kept = s.console.waiters.list(s.console.now(), |_| true);
    let told = json!(found).to_string();
    assert!(kept.iter().all(|w| !told.contains(&w.identity)) && !told.contains("identity"), "{told}");
    let overview = s.page(&s.sign_in("vera"), "/").body;
    assert_eq!(overview.matches("Waits for a second person").count(), 3, "{overview}");
    assert!(kept.iter().all(|w| !overview.contains(&w.identity)), "{overview}");
}

/// If this broke, somebody who has two names at the issuer could be both persons, by a token of the other name.
#[test]
fn a_token_of_the_same_account_is_no_second_person() {
    let (s, issuer) = with_issuer();
    s.ledger(&parked("op-1"));
    let olga = of(&s, &issuer, "1", "olga@acme", &["sre"]);
    let page = s.page(&olga, PATH);
    let command = field(&page.body, "value=\"force\"", "command");
    let with = |sub: &str, name: &str| {
        issuer.account(sub, name, &["sre"]);
        let second = issuer.bearer(CLIENT);
        let form = form_token(&page.body);
        s.post(&olga, PATH, &format!("form={form}&action=force&command={command}&seen=7&reason=r&second_token={second}"))
    };
    let got = with("1", "olivia@acme");
    assert_eq!((got.status, s.commands().len()), (403, 0), "{got:?}");
    let got = with("2", "olivia@acme");
    assert_eq!((got.status, s.commands().pop().and_then(|c| c.second).as_deref()), (200, Some("olivia@acme")), "{got:?}");
}

/// If this broke, a second person would confirm something else than the first one saw, or long after it was meant.
#[test]
fn an_order_that_waits_is_bound_to_its_version_and_ends() {
    let (s, issuer) = with_issuer();
    let mut ledger = parked("op-1");
    s.ledger(&ledger);
    let olga = of(&s, &issuer, "1", "olga@acme", &["sre"]);
    let otto = of(&s, &issuer, "2", "otto@acme", &["sre"]);
    assert_eq!(force(&s, &olga, PATH).status, 202);
    let command = field(&s.page(&otto, PATH).body, "value=\"confirm\"", "command");
    ledger.version = 8;
    s.ledger(&ledger);
    let page = s.page(&otto, PATH);
    assert!(!page.body.contains("value=\"confirm\""), "it is not offered on another version: {page:?}");
    let stale = confirm(&s, &otto, PATH, &command);
    assert_eq!((stale.status, s.commands().len()), (409, 0), "{stale:?}");
    assert!(stale.body.contains("RB0709"), "{stale:?}");
    s.ledger(&parked("op-2"));
    let path = PATH.replace("op-1", "op-2");
    assert_eq!(force(&s, &olga, &path).status, 202);
    let command = field(&s.page(&otto, &path).body, "value=\"confirm\"", "command");
    s.clock.advance(WAITS);
    let otto = of(&s, &issuer, "2", "otto@acme", &["sre"]);
    let late = confirm(&s, &otto, &path, &command);
    assert_eq!((late.status, s.commands().len()), (409, 0), "{late:?}");
    assert!(late.body.contains("RB0809"), "{late:?}");
}

/// If this broke, programs could not do what people can; or somebody who has left would be one of the two.
#[test]
fn an_order_that_waits_is_confirmed_by_the_api() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let order = |who: &str| s.order(who, "op-1/force", &json!({ "reason": "r", "seen": 7, "ask_second": true }));
    let confirm = |who: &str, body: Value| {
        let headers = [("Authorization", &*format!("Bearer {}", s.tokens[who])), ("Content-Type", "application/json")];
        s.send("POST", "/api/v1/waiting/confirm", &headers, &body.to_string())
    };
    let (first, second) = (order("olga"), order("otto"));
    assert_eq!((first.status, second.status, s.commands().len()), (202, 202, 0), "{first:?}");
    assert_eq!(first.json()["waits_until"], s.console.now().plus(WAITS).0);
    let listed = s.api("vera", "/waiting").json();
    assert_eq!(listed["orders"].as_array().map(Vec::len), Some(2), "{listed}");
    let command = |got: &Got| got.json()["command"].clone();
    assert_eq!(confirm("adam", json!({ "command": command(&first), "reason": " " })).status, 400);
    assert_eq!(confirm("olga", json!({ "command": command(&first), "reason": "r" })).code(), "RB0802");
    // Whose line is taken out gives no orders, waiting ones included.
    let file = s.dir.path().join("tokens");
    let text = std::fs::read_to_string(&file).expect("reads");
    std::fs::write(&file, text.lines().filter(|l| !l.starts_with("olga")).collect::<Vec<_>>().join("\n")).expect("writes");
    let gone = confirm("otto", json!({ "command": command(&first), "reason": "r" }));
    assert_eq!((gone.status, gone.code().as_str(), s.commands().len()), (403, "RB0802", 0), "{gone:?}");
    let done = confirm("adam", json!({ "command": command(&second), "reason": "r" }));
    assert_eq!((done.status, done.json()["answered"].as_bool()), (200, Some(true)), "{done:?}");
    assert_eq!(s.commands().pop().and_then(|c| c.second).as_deref(), Some("adam"));
}

fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + SPAN;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// If this broke, a session that was ended would go on at another process, or an order would wait where its second person never looks;
/// or whoever may write to the audit topic could make it look as if somebody had ordered something.
#[test]
fn processes_that_share_a_secret_hear_of_each_other() {
    let secret = "x".repeat(32);
    let s = Served::at(a_clock(), true, None, true, Some(&secret));
    s.ledger(&parked("op-1"));
    let start = || {
        let settings = Settings {
            tokens: Some(s.dir.path().join("tokens")),
            session: Duration::from_secs(3_600),
            session_secret: Some(crate::config::SecretRef::Literal(crate::config::Secret::new(secret.clone()))),
            listen: "127.0.0.1:0".to_owned(),
            ..Settings::default()
        };
        Console::start(&s.cluster, &ApplicationId::new(APP), &settings, s.clock.clone() as Arc<_>).expect("starts")
    };
    let holds = |console: &Console, cookie: &str| {
        let value = cookie.split_once('=').map(|(_, v)| v).expect("a value");
        console.sessions.read(value, s.console.now()).is_some()
    };
    let (before, cookie, kept) = (start(), s.sign_in("olga"), s.sign_in("olga"));
    assert!(holds(&before, &cookie));
    let form = form_token(&s.page(&cookie, "/").body);
    assert_eq!(s.post(&cookie, "/sign-out", &format!("form={form}")).status, 303);
    // Somebody else's hand on the topic.
    let forged = Waiting {
        command: "forged".to_owned(),
        action: "force".to_owned(),
        operation: "op-1".to_owned(),
        tenant: "acme".to_owned(),
        step: "place-order".to_owned(),
        seen: 7,
        by: "olga".to_owned(),
        identity: "x".to_owned(),
        reason: "r".to_owned(),
        evidence: None,
        until: s.console.now().plus(WAITS).0,
    };
    let mut entry = Entry::new(s.console.now(), "olga", "", "force", Came::Waits);
    (entry.waiting, entry.seal) = (Some(forged), Some("00".repeat(32)));
    s.console.books.audit(&entry).expect("writes");
    let got = s.order("olga", "op-1/force", &json!({ "reason": "r", "seen": 7, "ask_second": true }));
    let command = got.json()["command"].as_str().expect("named").to_owned();
    // One that runs already, and one that starts later.
    for other in [before, start()] {
        until("a sign-out is never heard", || !holds(&other, &cookie));
        assert!(holds(&other, &kept), "another session goes on");
        until("an order is never heard", || !other.waiters.list(s.console.now(), |_| true).is_empty());
        let waits = other.waiters.list(s.console.now(), |_| true);
        assert_eq!(waits.iter().map(|w| w.command.as_str()).collect::<Vec<_>>(), [command.as_str()]);
    }
    let other = start();
    until("an order is never heard", || !other.waiters.list(s.console.now(), |_| true).is_empty());
    let headers = [("Authorization", &*format!("Bearer {}", s.tokens["otto"])), ("Content-Type", "application/json")];
    let body = json!({ "command": command, "reason": "r" }).to_string();
    assert_eq!(s.send("POST", "/api/v1/waiting/confirm", &headers, &body).status, 200);
    until("a confirmation is never heard", || other.waiters.list(s.console.now(), |_| true).is_empty());
}
