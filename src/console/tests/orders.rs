//! Orders by the API: who may, on what, and what is written down.

use serde_json::{Value, json};

use crate::console::act::Action;
use crate::console::api::{self, ROUTES};
use crate::console::people::{Role, make};
use crate::intents::{CommandKind, Decision, Resolution};

use crate::kafka::Class;
use crate::kafka::memory::Call;

use super::served::{PEOPLE, Served, awaiting, parked};

fn path(action: Action) -> &'static str {
    match action {
        Action::Resolve(_) => "resolve",
        Action::Force => "force",
        Action::Approve => "approve",
        Action::Deny => "deny",
        Action::Cancel => "cancel",
        Action::ReleaseLane => "release-lane",
    }
}

fn body(action: Action, seen: i64, hash: &str) -> Value {
    let mut body = json!({ "reason": "looked at it", "seen": seen });
    match action {
        Action::Resolve(Resolution::Applied) => body["resolution"] = "applied".into(),
        Action::Resolve(Resolution::NotApplied) => body["resolution"] = "not_applied".into(),
        Action::Approve | Action::Deny => body["plan_hash"] = hash.into(),
        _ => {}
    }
    body
}

/// If this broke, somebody could order what is not theirs to order, or could not do what they are there for; and nobody could tell
/// afterwards who had tried.
#[test]
fn each_role_orders_what_is_its_own_and_nothing_else() {
    let s = Served::new();
    let mut written = 0;
    for (n, action) in Action::ALL.into_iter().enumerate() {
        for (who, role) in PEOPLE {
            let id = format!("op-{n}-{who}");
            let plan = matches!(action, Action::Approve | Action::Deny);
            if plan {
                s.record(&awaiting(&id))
            } else {
                s.ledger(&parked(&id))
            }
            let seen = if plan { 4 } else { 7 };
            let got = s.order(who, &format!("{id}/{}", path(action)), &body(action, seen, "plan-9"));
            let may = match role.word() {
                "admin" => true,
                "operator" => !plan,
                "approver" => plan,
                _ => false,
            };
            let last = s.audited().pop().expect("an audit record");
            assert_eq!((last["who"].as_str(), last["action"].as_str()), (Some(who), Some(action.word())));
            if may {
                // What needs a second person got to the member, and was refused there.
                assert!(got.status == 200 || got.code() == "RB0710", "{who} {action:?}: {got:?}");
                written += 1;
                assert_eq!(last["came"], "answered");
            } else {
                assert_eq!((got.status, got.code().as_str()), (403, "RB0802"), "{who} {action:?}");
                assert_eq!((last["came"].as_str(), last["code"].as_str()), (Some("refused"), Some("RB0802")));
            }
            assert_eq!(s.commands().len(), written, "{who} {action:?}");
        }
    }
}

/// If this broke, somebody would decide on something that they had not seen.
#[test]
fn what_is_no_longer_so_is_refused() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let order = |seen: Option<i64>| {
        let mut body = json!({ "reason": "it is in the books", "resolution": "applied" });
        if let Some(seen) = seen {
            body["seen"] = seen.into();
        }
        s.order("olga", "op-1/resolve", &body)
    };
    let stale = order(Some(6));
    assert_eq!((stale.status, stale.code().as_str()), (409, "RB0709"), "{stale:?}");
    assert_eq!((order(None).status, order(None).code().as_str()), (400, "RB0105"));
    assert_eq!(s.commands().len(), 0);
    let done = order(Some(7));
    assert_eq!((done.status, done.json()["answered"].as_bool()), (200, Some(true)), "{done:?}");
    assert_eq!(s.api("vera", "/operations/op-1").json()["status"], "resolved_applied");
    let late = order(Some(8));
    assert_eq!((late.status, late.code().as_str()), (422, "RB0710"), "{late:?}");
}

/// If this broke, a plan could be approved that the approver was never shown.
#[test]
fn a_decision_binds_to_the_plan_that_was_shown() {
    let s = Served::new();
    s.record(&awaiting("op-1"));
    let other = s.order("anna", "op-1/approve", &body(Action::Approve, 4, "plan-8"));
    assert_eq!((other.status, other.code().as_str(), s.commands().len()), (409, "RB0709", 0), "{other:?}");
    let got = s.order("anna", "op-1/approve", &json!({ "reason": "checked", "seen": 4, "plan_hash": "plan-9", "expires": "5m" }));
    assert_eq!(got.status, 200, "{got:?}");
    let command = s.commands().pop().expect("a command");
    let approval = command.approval.expect("an approval");
    assert_eq!((approval.approver.as_str(), approval.plan_hash.as_str()), ("anna", "plan-9"));
    assert_eq!((approval.decision, command.seen), (Decision::Approve, Some(4)));
    assert_eq!(approval.expires_at.since(command.issued_at), std::time::Duration::from_secs(300));
    // After the hand-over a denial takes back the approval that was spent.
    s.ledger(&parked("op-2"));
    let got = s.order("anna", "op-2/deny", &body(Action::Deny, 7, "plan-1"));
    assert_eq!(got.status, 200, "{got:?}");
    let command = s.commands().pop().expect("a command");
    assert_eq!((command.kind, command.approval.expect("named").approval_id.as_str()), (CommandKind::Revoke, "approval-1"));
}

/// If this broke, a denial or a cancellation that was taken would be told as refused: it is answered with the code of the end.
#[test]
fn what_ends_an_operation_is_taken_and_not_refused() {
    let s = Served::new();
    s.record(&awaiting("op-1"));
    let denied = s.order("anna", "op-1/deny", &body(Action::Deny, 4, "plan-9"));
    assert_eq!((denied.status, denied.json()["detail"].as_str()), (200, Some("denied")), "{denied:?}");
    s.record(&awaiting("op-2"));
    let cancelled = s.order("olga", "op-2/cancel", &json!({ "reason": "the customer withdrew" }));
    assert_eq!((cancelled.status, cancelled.json()["detail"].as_str()), (200, Some("cancelled")), "{cancelled:?}");
    // What comes after the end is refused.
    let late = s.order("olga", "op-1/cancel", &json!({ "reason": "the customer withdrew" }));
    assert_eq!((late.status, late.code().as_str()), (422, "RB0710"), "{late:?}");
}

/// If this broke, one person alone could say before settle that nothing happened, or write a name that never agreed.
#[test]
fn the_second_person_shows_a_token_of_their_own() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    // The same person under another token, and another spelling.
    let (again, line) = make("Olga", &[Role::Operator]).expect("a token");
    let file = s.dir.path().join("tokens");
    let lines = std::fs::read_to_string(&file).expect("reads");
    std::fs::write(&file, format!("{lines}{line}\n")).expect("writes");
    let order = |second: Option<&str>| {
        let mut body = body(Action::Resolve(Resolution::NotApplied), 7, "");
        if let Some(token) = second {
            body["second_token"] = token.into();
        }
        s.order("olga", "op-1/resolve", &body)
    };
    let alone = order(None);
    assert_eq!((alone.status, alone.code().as_str()), (422, "RB0710"), "{alone:?}");
    for token in [&again, &s.tokens["olga"], &s.tokens["vera"], &s.tokens["anna"], "otto"] {
        let got = order(Some(token));
        assert_eq!((got.status, got.code().as_str()), (403, "RB0802"), "{got:?}");
    }
    assert_eq!(s.commands().len(), 1);
    let got = order(Some(&s.tokens["otto"]));
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(s.commands().pop().and_then(|c| c.second).as_deref(), Some("otto"));
    let all = s.audited();
    assert_eq!(all.last().expect("audited")["second"], "otto");
    assert!(s.tokens.values().all(|t| !format!("{all:?}").contains(t.as_str())), "a token stands in the audit topic");
}

/// If this broke, something would be ordered that stands on no audit topic.
#[test]
fn an_order_that_nobody_could_account_for_is_not_given() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let order = || s.order("olga", "op-1/cancel", &body(Action::Cancel, 7, ""));
    s.cluster.fail_next(Call::Publish, None, Class::Config);
    let got = order();
    assert!(got.status >= 400 && s.commands().is_empty(), "{got:?}");
    let got = order();
    assert_eq!((got.status, s.commands().len()), (200, 1), "{got:?}");
}

/// If this broke, a person who clicks twice, or a program that tries again, would order twice.
#[test]
fn an_order_that_is_sent_twice_is_one_order() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let mut twice = body(Action::Force, 7, "");
    (twice["command"], twice["second_token"]) = ("command-1".into(), s.tokens["otto"].as_str().into());
    let (first, second) = (s.order("olga", "op-1/force", &twice), s.order("olga", "op-1/force", &twice));
    assert_eq!((first.status, &first.body), (200, &second.body), "{first:?}");
    assert_eq!(s.commands().len(), 1);
    twice["command"] = "a b".into();
    twice["seen"] = 8.into();
    assert_eq!(s.order("olga", "op-1/force", &twice).status, 400);
}

/// If this broke, an order would be called done that nobody has looked at.
#[test]
fn an_order_that_nobody_answers_is_not_done() {
    let s = Served::with(true, false);
    s.ledger(&parked("op-1"));
    let got = s.order("olga", "op-1/cancel", &json!({ "reason": "the customer withdrew" }));
    assert_eq!((got.status, got.json()["answered"].as_bool()), (202, Some(false)), "{got:?}");
    assert_eq!(s.audited().pop().expect("audited")["came"], "unanswered");
}

/// If this broke, a mistyped body would order something else than was meant, or a decision would stand there without a reason.
#[test]
fn what_is_wrong_with_a_body_is_said() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let long = "x".repeat(2_001);
    for body in [
        json!({ "seen": 7, "resolution": "applied" }),
        json!({ "reason": " ", "seen": 7, "resolution": "applied" }),
        json!({ "reason": long, "seen": 7, "resolution": "applied" }),
        json!({ "reason": "r", "seen": 7, "resolution": "maybe" }),
        json!({ "reason": "r", "seen": 7, "resolution": "applied", "secnd": "x" }),
        json!([]),
    ] {
        let got = s.order("olga", "op-1/resolve", &body);
        assert_eq!((got.status, got.code().as_str()), (400, "RB0105"), "{body}: {got:?}");
        assert_eq!(got.header("content-type"), Some("application/problem+json"));
    }
    let bearer = format!("Bearer {}", s.tokens["olga"]);
    let form = s.send("POST", "/api/v1/operations/op-1/cancel", &[("Authorization", &bearer)], "reason=r");
    assert_eq!(form.status, 400, "{form:?}");
    let nobody = s.order("olga", "op-2/cancel", &json!({ "reason": "r" }));
    assert_eq!((nobody.status, nobody.code().as_str()), (404, "RB0708"));
    let large = s.order("olga", "op-1/cancel", &json!({ "reason": "x".repeat(70_000) }));
    assert_eq!(large.status, 400);
    assert_eq!(s.commands().len(), 0);
}

/// If this broke, a program made from the document would call what is not there, or not find what is.
#[test]
fn the_document_names_the_routes_that_exist() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let letter = s.letter("it can't be read");
    let document = s.get("/api/v1/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), ROUTES.len());
    for (path, methods) in paths {
        let methods: Vec<&String> = methods.as_object().expect("methods").keys().collect();
        let [method] = methods[..] else { panic!("{path}: {methods:?}") };
        let concrete = path.replace("{operation}", "op-1").replace("{letter}", &letter).replace("{to}", super::submit::TOPIC);
        let bearer = format!("Bearer {}", s.tokens["vera"]);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let got = s.send(&method.to_uppercase(), &concrete, &headers, "{}");
        assert!(![404, 405, 500].contains(&got.status), "{method} {path}: {got:?}");
        let other = if method == "get" { "DELETE" } else { "GET" };
        assert_eq!(s.send(other, &concrete, &headers, "").status, 405, "{path}");
    }
    let orders = ROUTES.iter().filter(|r| r.call.orders()).count();
    assert_eq!((orders, ROUTES.iter().filter(|r| r.call == api::Call::Session).count()), (9, 1));
    // Every reference leads somewhere.
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().expect("a pointer");
        assert!(document.pointer(pointer).is_some(), "{pointer} leads nowhere");
    }
    assert!(text.matches("$ref").count() > 10, "{text}");
    assert_eq!(s.send("GET", "/api/v1/nothing", &[], "").status, 404);
}

/// If this broke, a record could be brought back twice, by somebody who may not, or without a trace.
#[test]
fn a_dead_letter_goes_back_once() {
    let s = Served::new();
    let letter = s.letter("it can't be read");
    let listed = s.api("vera", "/dead-letters").json();
    assert_eq!((&listed["resting"], &listed["letters"][0]["goes_to"]), (&json!(1), &json!("shipments-0")), "{listed}");
    assert!(!listed.to_string().contains("MARK"), "payloads stay where they are");
    let send = |who: &str, letter: &str, reason: &str| {
        let headers = [("Authorization", format!("Bearer {}", s.tokens[who])), ("Content-Type", "application/json".to_owned())];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let body = json!({ "reason": reason }).to_string();
        s.send("POST", &format!("/api/v1/dead-letters/{letter}/replay"), &headers, &body)
    };
    for who in ["vera", "anna"] {
        assert_eq!(send(who, &letter, "it is mended").code(), "RB0802");
    }
    assert_eq!(send("olga", &letter, " ").code(), "RB0105");
    assert_eq!(send("olga", "shipments-0-0", "it is mended").code(), "RB0105");
    assert_eq!(s.records("shipments").len(), 0);
    let done = send("olga", &letter, "it is mended");
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(s.records("shipments"), [Some(b"MARK".to_vec())]);
    let again = send("adam", &letter, "once more");
    assert_eq!((again.status, again.code().as_str()), (422, "RB0721"), "{again:?}");
    assert_eq!(s.records("shipments").len(), 1);
    assert_eq!(s.api("vera", "/dead-letters").json()["resting"], 0);
    let came: Vec<Value> = s.audited().iter().map(|a| json!([a["who"], a["came"]])).collect();
    assert!(came.contains(&json!(["vera", "refused"])) && came.contains(&json!(["olga", "answered"])), "{came:?}");
    assert_eq!(s.audited().last().map(|a| a["letter"].clone()), Some(json!(letter)));
}

/// If this broke, the audit topic would say that nothing was sent, where nobody knows.
#[test]
fn a_replay_whose_commit_is_unclear_is_not_called_refused() {
    let s = Served::new();
    let letter = s.letter("it can't be read");
    s.cluster.fail_next(Call::Commit, None, Class::OutcomeUnknown);
    let headers = [("Authorization", format!("Bearer {}", s.tokens["olga"])), ("Content-Type", "application/json".to_owned())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let path = format!("/api/v1/dead-letters/{letter}/replay");
    let got = s.send("POST", &path, &headers, &json!({ "reason": "it is mended" }).to_string());
    assert_eq!(got.code(), "RB0306", "{got:?}");
    let last = s.audited().pop().expect("audited");
    assert_eq!((last["came"].as_str(), last["code"].as_str()), (Some("unanswered"), Some("RB0306")), "{last}");
}

/// If this broke, anybody with a token could fill the topic that is kept for ever.
#[test]
fn what_a_refused_order_says_is_cut_in_the_audit_topic() {
    let s = Served::new();
    let long = "x".repeat(20_000);
    let got = s.order("vera", &format!("{long}/cancel"), &json!({ "reason": long, "tenant": long, "step": long }));
    assert_eq!(got.code(), "RB0802", "{got:?}");
    let last = s.audited().pop().expect("audited").to_string();
    assert!(last.len() < 8_000, "{} bytes", last.len());
}

/// If this broke, a list would leave operations out, or a filter would be passed over without a word.
#[test]
fn lists_are_paged_and_filtered() {
    let s = Served::new();
    for i in 0..7 {
        s.ledger(&parked(&format!("op-{i}")));
    }
    s.record(&awaiting("op-a"));
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = s.api("vera", &format!("/operations?limit=3&status=parked{cursor}")).json();
        found.extend(page["operations"].as_array().expect("entries").iter().map(|o| o["operation"].to_string()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 7, "{found:?}");
    assert_eq!(s.api("vera", "/approvals").json()["operations"][0]["operation"], "op-a");
    assert_eq!(s.api("vera", "/unknowns").json()["operations"].as_array().map(Vec::len), Some(7));
    assert_eq!(s.api("vera", "/overview").json()["by_status"], json!({ "awaiting_approval": 1, "parked": 7 }));
    let wrong = s.api("vera", "/operations?stauts=parked");
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "RB0105"));
    let one = s.api("vera", "/operations/op-3").json();
    assert_eq!((one["attempts"][0]["state"].as_str(), one["version"].as_i64()), (Some("maybe"), Some(7)));
    assert!(!one.to_string().contains("secret"), "an attempt's token is nobody's");
}
