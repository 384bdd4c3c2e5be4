//! What pages show, and that they show it as text.

use crate::effects::{Parking, Phase, Read, VersionRead, VersionState, Warrant, WarrantKind};
use crate::ids::{CallName, OperationId, Partition};
use crate::intents::{CallState, CallUndo, Decided, Deed, Flag, PlanCall, PolicyWord, Status, UndoState};
use crate::outbox::{Derived, Role, Stage, Undoing};
use crate::time::WallTime;

use crate::console::pages::PAGES;

use super::served::{Served, awaiting, field, form_token, key, parked};

/// The one script that pages have.
const OURS: &str = "<script src=\"/live.js\" defer></script>";
const PAYLOAD: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;";

/// If this broke, a mistyped address would be answered with nothing at all.
#[test]
fn an_address_that_leads_nowhere_is_said() {
    let s = Served::new();
    let page = s.get("/nowhere");
    assert_eq!(page.status, 404);
    assert!(page.body.contains("No page has this address"), "{page:?}");
    let call = s.get("/api/v1/nowhere");
    assert_eq!((call.status, call.code().as_str()), (404, "RB0106"), "{call:?}");
}

/// If this broke, a program would get an answer that it can't read where it asks in a way that is not taken.
#[test]
fn what_is_asked_wrongly_is_answered_in_words() {
    let s = Served::new();
    for (method, path, status) in [
        ("DELETE", "/api/v1/operations", 405),
        ("PUT", "/api/v1/operations/op-1/cancel", 405),
        ("GET", "/api/v1/operations/%FF", 400),
        ("POST", "/api/v1/dead-letters/%FF/replay", 400),
        ("GET", "/api/v1/operations/%C3%28?tenant=a", 400),
    ] {
        let got = s.send(method, path, &[], "");
        assert_eq!(
            (got.status, got.header("content-type")),
            (status, Some("application/problem+json")),
            "{method} {path}: {got:?}"
        );
        let problem = got.json();
        assert_eq!((&problem["status"], &problem["code"]), (&status.into(), &"RB0105".into()), "{problem}");
        let page = "https://github.com/readback-streams/readback/blob/main/src/docs/errors.md#rb0105--bad_value";
        assert_eq!(problem["type"], page);
    }
    assert_eq!(s.send("DELETE", "/api/v1/operations", &[], "").header("allow"), Some("GET,HEAD"));
    for (method, path, status) in [("DELETE", "/operations", 405), ("POST", "/unknowns", 405), ("GET", "/dead-letters/%FF", 400)] {
        let got = s.send(method, path, &[], "");
        assert_eq!(
            (got.status, got.header("content-type")),
            (status, Some("text/html; charset=utf-8")),
            "{method} {path}: {got:?}"
        );
        assert!(got.body.contains("Overview"), "{got:?}");
    }
}

/// If this broke, whoever writes a request, a plan or an answer would run a program in an operator's browser.
#[test]
fn what_others_wrote_is_shown_as_text() {
    let s = Served::new();
    let id = format!("op-{PAYLOAD}");
    let mut l = parked(&id);
    (l.tenant, l.step, l.contract, l.call) = (PAYLOAD.into(), PAYLOAD.into(), PAYLOAD.into(), PAYLOAD.into());
    (l.requester, l.action, l.resource, l.resource_version) =
        (PAYLOAD.into(), PAYLOAD.into(), PAYLOAD.into(), Some(PAYLOAD.into()));
    (l.detail, l.reference, l.evidence) = (Some(PAYLOAD.into()), Some(PAYLOAD.into()), Some(PAYLOAD.into()));
    (l.plan_hash, l.request_sha256, l.look_at) =
        (Some(PAYLOAD.into()), PAYLOAD.into(), Some(format!("javascript:alert(1)//{PAYLOAD}")));
    (l.identity_hash, l.flags) = (PAYLOAD.into(), vec![Flag::Contradiction]);
    if let Some(a) = &mut l.approval {
        (a.approver, a.plan_hash, a.policy_version) = (PAYLOAD.into(), PAYLOAD.into(), PAYLOAD.into());
    }
    (l.attempts[0].epoch, l.attempts[0].digest) = (PAYLOAD.into(), Some(PAYLOAD.into()));
    l.attempts[0].warrants.push(Warrant { covers: 0, kind: WarrantKind::Operator, by: Some(PAYLOAD.into()) });
    l.last_reads.push(Read { at: WallTime(1), found: PAYLOAD.into(), digest: Some(PAYLOAD.into()) });
    l.version_read =
        Some(VersionRead { attempt: 1, tries: 1, at: WallTime(1), state: VersionState::Other, shown: Some(PAYLOAD.into()) });
    l.decisions.push(Decided {
        at: WallTime(1),
        deed: Deed::Force,
        by: PAYLOAD.into(),
        second: Some(PAYLOAD.into()),
        via: None,
        reason: PAYLOAD.into(),
        evidence: Some(PAYLOAD.into()),
        approval: None,
    });
    l.parkings.push(Parking { at: WallTime(1), code: 235, detail: PAYLOAD.into() });
    l.policy = Some(PolicyWord { at: WallTime(1), version: Some(PAYLOAD.into()), allowed: true });
    l.answered.push(crate::effects::Answered { command_id: PAYLOAD.into(), code: Some(710), detail: PAYLOAD.into() });
    s.ledger(&l);
    let mut r = awaiting(&format!("plan-{PAYLOAD}"));
    (r.request.tenant, r.request.requester, r.request.action) = (PAYLOAD.into(), PAYLOAD.into(), PAYLOAD.into());
    (r.request.resource, r.proposal, r.plan_hash) = (PAYLOAD.into(), Some(PAYLOAD.into()), Some(PAYLOAD.into()));
    (r.detail, r.code) = (Some(PAYLOAD.into()), Some(PAYLOAD.into()));
    s.record(&r);
    let letter = s.letter(PAYLOAD);
    let cookie = s.sign_in("adam");
    let escaped = crate::console::search::escape(PAYLOAD);
    let one = format!("/operations/{}", crate::console::search::escape(&id));
    let mut pages = vec![
        "/".to_owned(),
        "/unknowns".to_owned(),
        "/approvals".to_owned(),
        "/operations".to_owned(),
        "/dead-letters".to_owned(),
        format!("/dead-letters/{letter}"),
        one.clone(),
    ];
    pages.push(format!("/dead-letters/{escaped}"));
    for name in ["q", "tenant", "step", "target", "resource"] {
        pages.push(format!("/operations?{name}={escaped}"));
    }
    pages.extend([format!("/operations?{escaped}=1"), format!("/operations?status={escaped}"), format!("/operations/{escaped}")]);
    pages.push(format!("/operations/x?{escaped}=1"));
    for path in pages {
        let got = s.page(&cookie, &path);
        let body = got.body.replace(OURS, "");
        assert!(!body.contains("<script") && !body.contains("<img"), "{path}: {body}");
        assert!(!got.body.contains("href=\"javascript:"), "{path}");
        let shows = body.contains("&lt;script&gt;") || path.starts_with("/operations/x") || path.contains("resource=");
        assert!(shows, "{path} shows nothing of it: {}", got.body);
    }
    let one = s.page(&cookie, &one);
    assert!(one.body.matches("&lt;script&gt;").count() > 20, "{}", one.body);
    let sign_in = s.get(&format!("/sign-in?to=%2F{escaped}"));
    assert!(!sign_in.body.contains("<script"), "{}", sign_in.body);
}

/// If this broke, an operator at night could not do from the page what the page says is to be done.
#[test]
fn an_operator_resolves_from_the_page_once() {
    let s = Served::new();
    let mut l = parked("op-1");
    l.look_at = Some("https://orders.internal/console?ref=5be2".into());
    s.ledger(&l);
    let cookie = s.sign_in("olga");
    let home = s.page(&cookie, "/");
    assert!(home.body.contains("1 parked: a person must decide"), "{}", home.body);
    let path = "/operations/op-1?tenant=acme&step=place-order";
    let page = s.page(&cookie, path).body;
    for part in
        ["href=\"https://orders.internal/console?ref=5be2\"", "nothing can prove what happened", "Binds to version 7", "RB0235"]
    {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    assert!(page.contains("It takes the role approver"), "an operator approves nothing: {page}");
    let at = "It exists";
    let body = format!(
        "form={}&action={}&command={}&seen={}&reason=it+is+in+the+books&evidence=https%3A%2F%2Forders.internal%2F8812",
        form_token(&page),
        field(&page, at, "action"),
        field(&page, at, "command"),
        field(&page, at, "seen"),
    );
    let done = s.post(&cookie, path, &body);
    assert_eq!(done.status, 200, "{done:?}");
    assert!(done.body.contains("Taken by the member: resolved_applied") && done.body.contains("resolved applied"), "{}", done.body);
    // Sent again: the same answer, and nothing more is written.
    let again = s.post(&cookie, path, &body);
    assert!(again.body.contains("Taken by the member: resolved_applied"), "{}", again.body);
    let commands = s.commands();
    assert_eq!(commands.len(), 1);
    assert_eq!((commands[0].by.as_str(), commands[0].reason.as_str()), ("olga", "it is in the books"));
    // A page that was loaded before decides nothing any more.
    let stale = s.post(&cookie, path, &body.replace("command=", "command=x-"));
    assert_eq!(stale.status, 409, "{stale:?}");
    assert!(stale.body.contains("RB0709"), "{}", stale.body);
}

/// If this broke, a letter could not be sent back from the page that says it can.
#[test]
fn an_operator_sends_a_letter_back_from_the_page() {
    let s = Served::new();
    let letter = s.letter("it can't be read");
    let cookie = s.sign_in("olga");
    let page = s.page(&cookie, "/dead-letters").body;
    assert!(page.contains("it can't be read") && page.contains("1 letter rests"), "{page}");
    assert_eq!(field(&page, "<details", "letter"), letter);
    assert!(!s.page(&s.sign_in("vera"), "/dead-letters").body.contains("<details"), "a viewer sends nothing back");
    let body = format!("letter={letter}&reason=it+is+mended&form=");
    assert_eq!((s.post(&cookie, "/dead-letters", &body).status, s.records("shipments").len()), (403, 0));
    let done = s.post(&cookie, "/dead-letters", &format!("{body}{}", form_token(&page)));
    assert!(done.body.contains(&format!("{letter} went back to ")), "{done:?}");
    assert_eq!(s.records("shipments").len(), 1);
}

/// If this broke, an approver would decide without having seen the plan.
#[test]
fn an_approver_sees_the_plan_and_approves_that() {
    let s = Served::new();
    s.record(&awaiting("op-1"));
    let cookie = s.sign_in("anna");
    let page = s.page(&cookie, "/approvals").body;
    for part in ["{&quot;sku&quot;:&quot;A-1&quot;,&quot;total&quot;:700}", "plan-9", "agent:buyer"] {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    let at = "aria-label=\"Approve\"";
    let body = format!(
        "form={}&action=approve&command={}&seen={}&plan_hash={}&expires=10m&reason=checked",
        form_token(&page),
        field(&page, at, "command"),
        field(&page, at, "seen"),
        field(&page, at, "plan_hash"),
    );
    let done = s.post(&cookie, "/operations/op-1?tenant=acme&step=place-order", &body);
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(s.commands()[0].approval.as_ref().map(|a| a.plan_hash.as_str()), Some("plan-9"));
}

/// If this broke, two operations of one ID would stand in for each other, or a page would be missing.
#[test]
fn every_page_answers() {
    let s = Served::new();
    s.ledger(&parked("shipment/1 ü"));
    let mut other = parked("shipment/1 ü");
    other.tenant = "umbra".into();
    s.ledger(&other);
    let cookie = s.sign_in("vera");
    let letter = format!("/dead-letters/{}", s.letter("it can't be read"));
    for (_, path, _) in PAGES.iter().filter(|(_, path, _)| !path.contains('{') && !path.starts_with("/sign")) {
        let got = s.page(&cookie, path);
        assert_eq!(got.status, 200, "{path}: {got:?}");
    }
    assert_eq!(s.page(&cookie, &letter).status, 200);
    let list = s.page(&cookie, "/unknowns").body;
    let href = "/operations/shipment%2F1%20%C3%BC?tenant=umbra&amp;step=place-order";
    assert!(list.contains(href), "{list}");
    let one = s.page(&cookie, &href.replace("&amp;", "&"));
    assert_eq!(one.status, 200);
    assert!(one.body.contains("umbra"), "{}", one.body);
    assert_eq!(s.page(&cookie, "/operations/shipment%2F1%20%C3%BC").status, 400);
    assert_eq!(key("op-1").joined().matches('\u{1f}').count(), 2);
}

/// If this broke, a person would approve a plan without seeing all that it does, or could not find a call of one that ended in part.
#[test]
fn a_plan_of_several_calls_is_shown_with_all_of_them() {
    let s = Served::new();
    let cookie = s.sign_in("anna");
    let call = |n: u32, id: &str, needs: &[&str]| PlanCall {
        id: id.into(),
        operation_id: OperationId::new("op-1").child(n),
        tool: "order".into(),
        contract: "orders".into(),
        call: "create".into(),
        needs: needs.iter().map(|n| (*n).to_owned()).collect(),
        state: CallState::Waiting,
        end: None,
        code: None,
        detail: None,
    };
    let mut r = awaiting("op-1");
    r.calls = vec![call(1, "desk", &[]), call(2, "lamp", &["desk"])];
    s.record(&r);
    let page = s.page(&cookie, "/approvals").body;
    for part in ["desk", "lamp", "op-1.2", "orders#create", "plan-9", "One approval is for all of them"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let mut ended = r.clone();
    (ended.stage, ended.status, ended.version) = (Stage::Ended, Status::Partial, 9);
    (ended.calls[0].state, ended.calls[0].end) = (CallState::Ended, Some(Status::Refused));
    (ended.calls[1].state, ended.calls[1].end) = (CallState::Ended, Some(Status::Cancelled));
    ended.calls[1].detail = Some("it needs desk (op-1.1), which ended as refused".into());
    s.record(&ended);
    let page = s.page(&cookie, "/operations/op-1?tenant=acme").body;
    for part in ["partial", "it needs desk (op-1.1), which ended as refused", "/operations/op-1.1"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("undone"), "what was done of it stays");
}

/// If this broke, a person would approve a plan without seeing that it may be undone, or not see what of one was.
#[test]
fn how_a_plan_is_undone_is_shown_call_by_call() {
    let s = Served::new();
    let cookie = s.sign_in("anna");
    let call = |n: u32, id: &str, end: Option<Status>| PlanCall {
        id: id.into(),
        operation_id: OperationId::new("op-1").child(n),
        tool: "order".into(),
        contract: "orders".into(),
        call: "create".into(),
        needs: vec![],
        state: if end.is_some() { CallState::Ended } else { CallState::Waiting },
        end,
        code: None,
        detail: None,
    };
    let undo = |n: u32, id: &str, by: Option<&str>, state| CallUndo {
        id: id.into(),
        operation_id: OperationId::new("op-1").child(n).undo(),
        by: by.map(CallName::new),
        state,
        detail: None,
    };
    let mut r = awaiting("op-1");
    r.calls = vec![call(1, "desk", None), call(2, "mail", None)];
    let not = UndoState::NotOrdered;
    r.undo = Some(Undoing { stopped: false, calls: vec![undo(1, "desk", Some("cancel"), not), undo(2, "mail", None, not)] });
    s.record(&r);
    let page = s.page(&cookie, "/approvals").body;
    for part in ["if the plan can't be whole, undone by orders#cancel", "nothing undoes it", "the last first"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    (r.stage, r.status, r.version) = (Stage::Ended, Status::Partial, 9);
    let done = Some(Status::Confirmed);
    r.calls = vec![call(1, "desk", done), call(2, "mail", done), call(3, "lamp", Some(Status::Refused)), call(4, "chair", done)];
    let stays = CallUndo {
        detail: Some("a person said that it was not undone".into()),
        ..undo(4, "chair", Some("cancel"), UndoState::Stays)
    };
    let calls = vec![
        undo(1, "desk", Some("cancel"), UndoState::Undone),
        undo(2, "mail", None, not),
        undo(3, "lamp", Some("cancel"), not),
        stays,
    ];
    r.undo = Some(Undoing { stopped: true, calls });
    s.record(&r);
    let page = s.page(&cookie, "/operations/op-1?tenant=acme").body;
    for part in ["undone: op-1.1.undo", "stays done: nothing undoes it", "stays done: a person said that it was not undone"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

/// If this broke, a person would not see at a call that what it did was undone, or would wait for an undoing that waits for a person.
#[test]
fn what_undoes_a_call_is_shown_at_the_call_and_at_its_plan() {
    let s = Served::new();
    let cookie = s.sign_in("anna");
    let ended = |operation: &str, end: Status| {
        let mut l = parked(operation);
        (l.phase, l.end, l.closed_at, l.code, l.detail) = (Phase::Ended, Some(end), l.unknown_since, None, None);
        l
    };
    let child = OperationId::new("op-1").child(1);
    let mut r = awaiting("op-1");
    (r.stage, r.status) = (Stage::Executing, Status::Dispatched);
    r.calls = vec![PlanCall {
        id: "desk".into(),
        operation_id: child.clone(),
        tool: "order".into(),
        contract: "orders".into(),
        call: "create".into(),
        needs: vec![],
        state: CallState::Ended,
        end: Some(Status::Confirmed),
        code: None,
        detail: None,
    }];
    let ordered = CallUndo {
        id: "desk".into(),
        operation_id: child.undo(),
        by: Some(CallName::new("cancel")),
        state: UndoState::Ordered,
        detail: None,
    };
    r.undo = Some(Undoing { stopped: true, calls: vec![ordered] });
    r.derived.push(Derived {
        role: Role::Undo,
        operation_id: child.undo(),
        step: r.step.clone(),
        partition: Partition(0),
        end: None,
        closed_at: None,
        gone: false,
    });
    s.record(&r);
    s.ledger(&ended("op-1.1", Status::Confirmed));
    let of_call = || s.page(&cookie, "/operations/op-1.1?tenant=acme").body;
    let of_plan = || s.page(&cookie, "/operations/op-1?tenant=acme").body;
    assert!(!of_call().contains("undo"), "nothing undoes it yet");
    assert!(of_plan().contains("being undone: op-1.1.undo"), "its owner has been told");

    s.ledger(&parked("op-1.1.undo"));
    let waits = "its undoing waits for a person: op-1.1.undo is parked";
    for page in [of_call(), of_plan()] {
        assert!(page.contains(waits) && page.contains("href=\"/operations/op-1.1.undo?tenant=acme"), "no {waits} in {page}");
    }
    assert!(!of_plan().contains("being undone: op-1.1.undo"), "nobody is at it");
    assert_eq!(s.api("anna", "/operations/op-1.1").json()["undone_by"]["status"], "parked");

    s.ledger(&ended("op-1.1.undo", Status::Confirmed));
    assert!(of_call().contains("undone by op-1.1.undo"), "{}", of_call());
    assert_eq!(s.api("anna", "/operations/op-1.1").json()["undone_by"]["words"], "undone by op-1.1.undo");
    s.ledger(&ended("op-1.1.undo", Status::ResolvedNotApplied));
    assert!(of_call().contains("stays done: op-1.1.undo ended as resolved not applied"), "{}", of_call());
}
