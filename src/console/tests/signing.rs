//! Who may look at all: sign-in, sessions, and a console without sign-in.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Secret, SecretRef};
use crate::console::pages::PAGES;
use crate::console::search::escape;
use crate::console::server::AT_ONCE;
use crate::console::session::TRIES;
use crate::console::{Console, Settings};
use crate::error::codes;
use crate::ids::ApplicationId;
use crate::kafka::memory::MemoryCluster;
use crate::time::SystemClock;

use super::served::{APP, Served, field, form_token, parked};

/// A console where nobody can sign in, on loopback.
fn nobody() -> Settings {
    Settings { session: Duration::from_secs(1), listen: "127.0.0.1:0".to_owned(), ..Settings::default() }
}

/// If this broke, whoever has to sign in again would be led to a page that is nobody's, and not back to what they looked at.
#[test]
fn one_comes_back_to_what_one_looked_at() {
    let s = Served::new();
    let parameterised: Vec<&str> = PAGES.iter().map(|(_, path, _)| *path).filter(|path| path.contains('{')).collect();
    assert!(parameterised.len() >= 2, "{parameterised:?}");
    for path in parameterised {
        let (before, behind) = (path.split('{').next().expect("a part"), path.split('}').nth(1).expect("a part"));
        let asked = format!("{before}a%2Fb-0-17{behind}?show=values");
        let got = s.get(&asked);
        let to = format!("/sign-in?to={}", escape(&asked));
        assert_eq!((got.status, got.header("location")), (303, Some(to.as_str())), "{path}");
    }
}

/// If this broke, a stranger would read operations, or somebody who left would go on deciding.
#[test]
fn nothing_is_shown_without_a_session_that_holds() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let first = s.get("/operations?status=parked");
    assert_eq!((first.status, first.header("location")), (303, Some("/sign-in?to=%2Foperations%3Fstatus%3Dparked")));
    for path in ["/api/v1/operations", "/api/v1/operations/op-1", "/api/v1/session"] {
        let got = s.get(path);
        assert_eq!((got.status, got.code().as_str()), (401, "RB0801"), "{path}");
        let forged = s.send("GET", path, &[("Authorization", "Bearer rbt_nobody")], "");
        assert_eq!(forged.status, 401);
    }
    let cookie = s.sign_in("olga");
    let page = s.page(&cookie, "/operations/op-1");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("olga (operator)"), "{page:?}");
    // The API takes no cookies: a form of another site could not use it.
    assert_eq!(s.page(&cookie, "/api/v1/operations").status, 401);
    // Past its time.
    s.clock.advance(Duration::from_secs(3_600));
    assert_eq!(s.page(&cookie, "/operations/op-1").status, 303);
    let late = s.post(&cookie, "/operations/op-1?tenant=acme&step=place-order", "action=cancel&reason=r");
    assert_eq!((late.status, s.commands().len()), (303, 0), "{late:?}");
    // Signed out.
    let cookie = s.sign_in("olga");
    let form = form_token(&s.page(&cookie, "/").body);
    assert_eq!(s.post(&cookie, "/sign-out", "form=00").status, 403);
    assert_eq!(s.page(&cookie, "/").status, 200);
    assert_eq!(s.post(&cookie, "/sign-out", &format!("form={form}")).status, 303);
    assert_eq!(s.page(&cookie, "/").status, 303);
    // Taken out of the file.
    let cookie = s.sign_in("olga");
    let file = s.dir.path().join("tokens");
    let left: Vec<String> =
        std::fs::read_to_string(&file).expect("reads").lines().filter(|l| !l.starts_with("olga")).map(str::to_owned).collect();
    std::fs::write(&file, left.join("\n")).expect("writes");
    assert_eq!(s.page(&cookie, "/").status, 303);
    assert_eq!(s.api("olga", "/overview").status, 401);
    let came: Vec<String> = s.audited().iter().map(|a| format!("{} {}", a["action"], a["came"])).collect();
    assert!(came.contains(&"\"sign_in\" \"signed_in\"".to_owned()) && came.contains(&"\"sign_out\" \"signed_out\"".to_owned()));
    assert!(came.contains(&"\"sign_in\" \"refused\"".to_owned()), "{came:?}");
}

/// If this broke, a stranger could fill the audit topic with wrong tokens; or lock out everybody behind the same proxy.
#[test]
fn wrong_tokens_are_bounded_and_right_ones_are_not() {
    let s = Served::new();
    let wrong = || s.send("GET", "/api/v1/overview", &[("Authorization", "Bearer rbt_wrong")], "");
    for _ in 0..TRIES {
        assert_eq!(s.try_sign_in("rbt_wrong").status, 401);
    }
    let got = s.try_sign_in("rbt_wrong");
    assert_eq!((got.status, got.header("retry-after")), (429, None), "{got:?}");
    let api = wrong();
    assert_eq!((api.status, api.code().as_str(), api.header("retry-after")), (429, "RB0803", Some("60")));
    assert_eq!(s.audited().len(), TRIES as usize);
    assert_eq!((s.api("olga", "/overview").status, s.try_sign_in(&s.tokens["olga"]).status), (200, 303));
    s.clock.advance(Duration::from_secs(60));
    assert_eq!(wrong().status, 401);
}

/// If this broke, another site could sign a person in as somebody else, or lead them away once they are.
#[test]
fn signing_in_is_a_form_of_ours_and_leads_to_a_page_of_ours() {
    let s = Served::new();
    let body = format!("form={}&token={}", "00", s.tokens["olga"]);
    assert_eq!(s.send("POST", "/sign-in", &[], &body).status, 403);
    for (to, leads) in
        [("%2Funknowns", "/unknowns"), ("%2F%2Fevil.example", "/"), ("https%3A%2F%2Fevil.example", "/"), ("%2F%5Cevil", "/")]
    {
        let form = s.get(&format!("/sign-in?to={to}"));
        let cookie = form.header("set-cookie").and_then(|c| c.split(';').next()).expect("a cookie");
        let body = format!("form={}&token={}", form_token(&form.body), s.tokens["olga"]);
        let got = s.send("POST", &format!("/sign-in?to={to}"), &[("Cookie", cookie)], &body);
        assert_eq!((got.status, got.header("location")), (303, Some(leads)), "{to}: {got:?}");
    }
}

/// If this broke, another site could order something in the name of whoever is signed in.
#[test]
fn a_form_that_was_not_shown_to_this_session_orders_nothing() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let (olga, otto) = (s.sign_in("olga"), s.sign_in("otto"));
    let path = "/operations/op-1?tenant=acme&step=place-order";
    let of_otto = form_token(&s.page(&otto, path).body);
    for form in ["", "form=&", "form=00&", &format!("form={of_otto}&")] {
        let got = s.post(&olga, path, &format!("{form}action=cancel&reason=r"));
        assert_eq!(got.status, 403, "{form}: {got:?}");
        assert!(got.body.contains("RB0804"), "{got:?}");
    }
    let mine = form_token(&s.page(&olga, path).body);
    let body = format!("form={mine}&action=cancel&reason=r");
    let foreign = s.send("POST", path, &[("Cookie", &olga), ("Origin", "https://evil.example")], &body);
    assert_eq!((foreign.status, s.commands().len()), (403, 0), "{foreign:?}");
    let framed = s.send("POST", path, &[("Cookie", &olga), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")], &body);
    assert_eq!((framed.status, s.commands().len()), (403, 0), "{framed:?}");
    // As a browser sends it from our own page, which names no referrer.
    let got = s.send("POST", path, &[("Cookie", &olga), ("Origin", "null"), ("Sec-Fetch-Site", "same-origin")], &body);
    assert_eq!((got.status, s.commands().len()), (200, 1), "{got:?}");
    let own = format!("http://{}", s.address);
    assert_eq!(s.send("POST", path, &[("Cookie", &olga), ("Origin", &own)], &body).status, 200);
}

/// If this broke, a browser would run what stands in a record, show it inside another site, or keep it.
#[test]
fn every_answer_says_what_a_browser_must_not_do() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let cookie = s.sign_in("vera");
    for path in ["/", "/sign-in", "/style.css", "/operations/op-1", "/operations/op-2", "/api/v1/overview", "/api/v1/openapi.json"]
    {
        let got = s.page(&cookie, path);
        let csp = got.header("content-security-policy").unwrap_or_else(|| panic!("{path}: {got:?}"));
        assert!(csp.contains("default-src 'none'") && csp.contains("frame-ancestors 'none'") && !csp.contains("unsafe"), "{csp}");
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(got.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(got.header("cache-control"), Some("no-store"));
    }
}

/// If this broke, whoever reaches the machine would order effects, or another site's name that points at it would read them.
#[test]
fn without_sign_in_it_is_read_only_and_stays_on_this_machine() {
    let s = Served::with(false, true);
    s.ledger(&parked("op-1"));
    let page = s.get("/operations/op-1");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("read-only") && !page.body.contains("<form class=\"order\""), "{}", page.body);
    assert_eq!(s.get("/api/v1/unknowns").json()["operations"][0]["operation"], "op-1");
    let order = s.order("adam", "op-1/cancel", &serde_json::json!({ "reason": "r" }));
    assert_eq!((order.status, order.code().as_str()), (403, "RB0802"));
    assert_eq!(s.post("", "/operations/op-1", "action=cancel&reason=r").status, 403);
    assert_eq!(s.commands().len(), 0);
    let rebound = s.send("GET", "/api/v1/unknowns", &[("Host", "evil.example:9465")], "");
    assert_eq!((rebound.status, rebound.code().as_str()), (403, "RB0802"));
    for host in ["localhost:1", "127.0.0.1", "[::1]:9465"] {
        assert_eq!(s.send("GET", "/api/v1/unknowns", &[("Host", host)], "").status, 200, "{host}");
    }
    let start = |listen: &str| {
        let settings = Settings { tokens: None, listen: listen.to_owned(), ..nobody() };
        let cluster = MemoryCluster::new(Arc::new(SystemClock));
        Console::start(&cluster, &ApplicationId::new(APP), &settings, Arc::new(SystemClock)).err().map(|e| e.code)
    };
    for listen in ["0.0.0.0:9465", "[::]:9465", "10.0.0.1:80", "console.internal:80", ":9465"] {
        assert_eq!(start(listen), Some(codes::CONSOLE_EXPOSED), "{listen}");
    }
    for listen in ["127.0.0.1:0", "localhost:0", "[::1]:0"] {
        assert_eq!(start(listen), None, "{listen}");
    }
}

/// If this broke, a cookie would go over the wire in the clear where others can hear it.
#[test]
fn away_from_loopback_cookies_go_over_tls_only() {
    let s = Served::new();
    let mut settings = Settings { tokens: Some(s.dir.path().join("tokens")), listen: "0.0.0.0:0".to_owned(), ..nobody() };
    let secure = |settings: &Settings| {
        Console::start(&s.cluster, &ApplicationId::new(APP), settings, Arc::new(SystemClock)).expect("starts").secure
    };
    assert!(secure(&settings));
    settings.listen = "127.0.0.1:0".to_owned();
    assert!(!secure(&settings));
    assert_eq!(field("<form><input name=\"a\" value=\"b\">", "<form", "a"), "b");
}

/// If this broke, a session would go over the wire in the clear where a proxy on the same machine ends TLS.
#[test]
fn behind_a_proxy_on_this_machine_cookies_go_over_tls_only() {
    let s = Served::new();
    for proxy in [("Host", "console.acme.example"), ("X-Forwarded-Proto", "https")] {
        let form = s.send("GET", "/sign-in", &[proxy], "");
        let before = form.header("set-cookie").expect("a cookie").to_owned();
        assert!(before.contains("; Secure"), "{before}");
        let body = format!("form={}&token={}", form_token(&form.body), s.tokens["olga"]);
        let cookie = before.split(';').next().expect("a value");
        let got = s.send("POST", "/sign-in", &[proxy, ("Cookie", cookie)], &body);
        let session = got.header("set-cookie").expect("a session").to_owned();
        assert!(session.starts_with("__Host-readback=") && session.contains("; Secure"), "{session}");
        let session = session.split(';').next().expect("a value");
        assert_eq!(s.send("GET", "/", &[proxy, ("Cookie", session)], "").status, 200);
        assert_eq!(s.page(session, "/").status, 303, "not in the clear");
    }
}

/// If this broke, everybody would sign their own cookies under a secret that is found in an afternoon, or is empty.
#[test]
fn a_session_secret_that_is_short_is_refused() {
    let s = Served::new();
    let start = |secret: &str| {
        let settings = Settings {
            tokens: Some(s.dir.path().join("tokens")),
            session_secret: Some(SecretRef::Literal(Secret::new(secret))),
            ..nobody()
        };
        Console::start(&s.cluster, &ApplicationId::new(APP), &settings, Arc::new(SystemClock)).err().map(|e| e.code)
    };
    assert_eq!((start(""), start("hunter2"), start(&"x".repeat(32))), (Some(codes::BAD_VALUE), Some(codes::BAD_VALUE), None));
}

/// If this broke, whoever asks often enough would take all threads, or hold a connection for ever by a body that never comes.
#[test]
fn requests_are_bounded_in_number_and_time() {
    let s = Served::new();
    let all = s.console.room.clone().try_acquire_many_owned(AT_ONCE as u32).expect("all of it");
    let got = s.api("olga", "/overview");
    assert_eq!((got.status, got.code().as_str(), got.header("retry-after")), (503, "RB0806", Some("1")), "{got:?}");
    drop(all);
    assert_eq!(s.api("olga", "/overview").status, 200);
    let mut slow = std::net::TcpStream::connect(s.address).expect("connects");
    let head = format!("POST /sign-in HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\n\r\nf", s.address);
    slow.write_all(head.as_bytes()).expect("writes");
    slow.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 408");
}
