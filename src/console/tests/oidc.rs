//! Sign-in by an issuer: who gets in, for how long, and what does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::{OidcSection, SecretRef};
use crate::console::session::TRIES;
use crate::console::{Console, Settings};
use crate::error::codes;
use crate::ids::ApplicationId;
use crate::kafka::memory::MemoryCluster;
use crate::time::SystemClock;

use super::issuer::{CLIENT, Issuer, SECRET, Sign, section};
use super::served::{APP, Got, Served, form_token, parked};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A console whose people come from an issuer, and the issuer.
fn with_issuer(tokens: bool, change: impl FnOnce(&mut OidcSection)) -> (Served, Issuer) {
    let clock = super::served::a_clock();
    let issuer = Issuer::start(LOCAL, clock.clone());
    let mut section = issuer.section();
    change(&mut section);
    (Served::at(clock, tokens, Some(section), true, None), issuer)
}

/// The way to the issuer: the slip's cookie, and the issuer's address.
pub fn leave(s: &Served, to: &str) -> (String, String) {
    let got = s.get(&format!("/sign-in/oidc?to={to}"));
    assert_eq!(got.status, 303, "{got:?}");
    let cookie = got.header("set-cookie").expect("a slip");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && cookie.contains("Max-Age=600"), "{cookie}");
    (cookie.split(';').next().expect("a value").to_owned(), got.header("location").expect("leads away").to_owned())
}

/// The way back, as the issuer leads it.
fn back(s: &Served, slip: &str, url: &str) -> Got {
    let path = url.strip_prefix(&format!("http://{}", s.address)).expect("leads back to us");
    s.send("GET", path, &[("Cookie", slip)], "")
}

fn try_sign_in(s: &Served, issuer: &Issuer) -> Got {
    let (slip, url) = leave(s, "%2Funknowns");
    back(s, &slip, &issuer.visit(&url))
}

fn session(got: &Got) -> Option<String> {
    let cookies = got.head.lines().filter_map(|l| l.split_once(": ")).filter(|(n, _)| n.eq_ignore_ascii_case("set-cookie"));
    cookies.map(|(_, v)| v).find(|v| v.starts_with("readback=")).map(|v| v.split(';').next().unwrap_or_default().to_owned())
}

/// Signs in by the issuer's present account; the session's cookie.
pub fn sign_in(s: &Served, issuer: &Issuer) -> String {
    let got = try_sign_in(s, issuer);
    assert_eq!(got.status, 200, "{got:?}");
    session(&got).unwrap_or_else(|| panic!("no session: {got:?}"))
}

/// If this broke, nobody whom the issuer vouches for could work, or they would work under another name or role.
#[test]
fn whom_the_issuer_vouches_for_is_signed_in_with_their_roles() {
    let (s, issuer) = with_issuer(false, |_| {});
    s.ledger(&parked("op-1"));
    let form = s.get("/sign-in?to=%2Funknowns");
    assert!(form.body.contains("Sign in with 127.0.0.1") && !form.body.contains("Your token"), "{}", form.body);
    let got = try_sign_in(&s, &issuer);
    assert_eq!((got.status, got.header("refresh")), (200, Some("0; url=/unknowns")), "{got:?}");
    let cookie = session(&got).expect("a session");
    let page = s.page(&cookie, "/operations/op-1");
    assert!(page.body.contains("mira@acme (operator)"), "{page:?}");
    let order = format!("form={}&action=cancel&reason=r", form_token(&page.body));
    let done = s.post(&cookie, "/operations/op-1?tenant=acme&step=place-order", &order);
    assert_eq!((done.status, s.commands()[0].by.as_str()), (200, "mira@acme"), "{done:?}");
    issuer.account("8", "vera@acme", &["guests", "others"]);
    let viewer = sign_in(&s, &issuer);
    let page = s.page(&viewer, "/operations/op-1?tenant=acme&step=place-order");
    assert!(page.body.contains("vera@acme (viewer)") && page.body.contains("It takes the role operator"), "{page:?}");
    let signed: Vec<Value> = s.audited().into_iter().filter(|a| a["came"] == "signed_in").collect();
    assert_eq!((signed.len(), &signed[0]["who"], &signed[0]["subject"]), (2, &json!("mira@acme"), &json!("7")));
}

/// If this broke, whoever can make a browser bring a token of their own making, of another sign-in, client or issuer would be let in.
#[test]
fn a_token_that_is_not_for_this_sign_in_lets_nobody_in() {
    let (s, issuer) = with_issuer(false, |_| {});
    let twists: [(&str, fn(&mut Value)); 10] = [
        ("another nonce", |c| c["nonce"] = json!("00000000000000000000000000000000")),
        ("no nonce", |c| c["nonce"] = Value::Null),
        ("another audience", |c| c["aud"] = json!("shop")),
        ("one more audience", |c| c["aud"] = json!([CLIENT, "shop"])),
        ("another client's", |c| c["azp"] = json!("shop")),
        ("another issuer", |c| c["iss"] = json!("https://id.evil.example")),
        ("expired", |c| c["exp"] = json!(c["iat"])),
        ("of tomorrow", |c| c["iat"] = json!(c["exp"])),
        ("not yet", |c| c["nbf"] = c["exp"].clone()),
        ("no name", |c| c["preferred_username"] = Value::Null),
    ];
    for (what, twist) in twists {
        s.clock.advance(Duration::from_secs(60));
        issuer.says(|says| says.twist = twist);
        let got = try_sign_in(&s, &issuer);
        assert_eq!((got.status, session(&got)), (401, None), "{what}: {got:?}");
        assert!(got.body.contains("RB0808"), "{what}: {got:?}");
    }
    issuer.says(|says| says.twist = |_| {});
    for sign in [Sign::None, Sign::Secret, Sign::Stranger] {
        s.clock.advance(Duration::from_secs(60));
        issuer.says(|says| says.sign = sign);
        let got = try_sign_in(&s, &issuer);
        assert_eq!((got.status, session(&got)), (401, None), "{sign:?}: {got:?}");
        let bearer = format!("Bearer {}", issuer.bearer(CLIENT));
        let api = s.send("GET", "/api/v1/overview", &[("Authorization", &bearer)], "");
        assert_eq!((api.status, api.code().as_str()), (401, "RB0808"), "{sign:?}");
    }
    issuer.says(|says| says.sign = Sign::Key);
    assert_eq!(try_sign_in(&s, &issuer).status, 200);
    issuer.account("9", "otto@acme", &["sales"]);
    let got = try_sign_in(&s, &issuer);
    assert_eq!((got.status, session(&got)), (403, None));
    assert!(got.body.contains("RB0802") && got.body.contains("`groups`"), "{got:?}");
}

/// If this broke, an answer that somebody else asked for, or that was overheard, would sign a browser in.
#[test]
fn an_answer_counts_once_and_in_the_browser_that_asked() {
    let (s, issuer) = with_issuer(false, |_| {});
    let refused = |got: &Got, why: &str| {
        assert_eq!((got.status, session(got)), (401, None), "{got:?}");
        assert!(got.body.contains(why), "{why}: {got:?}");
    };
    let (slip, url) = leave(&s, "%2F");
    let answer = issuer.visit(&url);
    refused(&back(&s, "a=b", &answer), "no sign-in under way");
    let (other, _) = leave(&s, "%2F");
    refused(&back(&s, &other, &answer), "another sign-in");
    refused(&back(&s, &slip, &answer.replace("&iss=http", "&iss=https")), "another issuer");
    // That one used the sign-in up, whatever came of it.
    refused(&back(&s, &slip, &answer), "taken already");
    let (slip, url) = leave(&s, "%2F");
    let answer = issuer.visit(&url);
    assert_eq!(back(&s, &slip, &answer).status, 200);
    refused(&back(&s, &slip, &answer), "taken already");
    // The code of that answer under a new state: the issuer takes it once.
    let (slip, url) = leave(&s, "%2F");
    let code = |url: &str| url.split_once("code=").and_then(|(_, c)| c.split('&').next()).expect("a code").to_owned();
    let fresh = issuer.visit(&url);
    refused(&back(&s, &slip, &fresh.replace(&code(&fresh), &code(&answer))), "invalid_grant");
    // A code that another browser's sign-in asked for: the verifier is not its own.
    let ((slip, url), (_, theirs)) = (leave(&s, "%2F"), leave(&s, "%2F"));
    let (mine, theirs) = (issuer.visit(&url), issuer.visit(&theirs));
    refused(&back(&s, &slip, &mine.replace(&code(&mine), &code(&theirs))), "invalid_grant");
    let (slip, _) = leave(&s, "%2F");
    let state = slip.split_once('=').and_then(|(_, v)| v.split('.').next()).expect("a state");
    let said = format!("http://{}/sign-in/callback?error=access_denied%3Cb%3E&state={state}", s.address);
    refused(&back(&s, &slip, &said), "access_deniedb");
    let (slip, url) = leave(&s, "%2F");
    s.clock.advance(Duration::from_secs(600));
    refused(&back(&s, &slip, &issuer.visit(&url)), "no sign-in under way");
}

/// If this broke, a key that the issuer has taken back would go on signing people in, or its new one would lock everybody out.
#[test]
fn keys_may_change_without_a_restart() {
    let (s, issuer) = with_issuer(false, |_| {});
    sign_in(&s, &issuer);
    let old = format!("Bearer {}", issuer.bearer(CLIENT));
    let asked = issuer.described();
    sign_in(&s, &issuer);
    assert_eq!(issuer.described(), asked, "what is known is kept");
    issuer.rotate();
    s.clock.advance(Duration::from_secs(10));
    sign_in(&s, &issuer);
    assert_eq!(issuer.described(), asked + 1);
    let got = s.send("GET", "/api/v1/overview", &[("Authorization", &old)], "");
    assert_eq!((got.status, got.code().as_str()), (401, "RB0808"));
}

/// If this broke, a client secret that was replaced would keep everybody out until the members are started again.
#[test]
fn the_clients_secret_is_read_at_each_sign_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("client");
    let write = |secret: &str| std::fs::write(&file, format!("{secret}\n")).expect("writes");
    write("the one before");
    let (s, issuer) = with_issuer(false, |section| section.client_secret = Some(SecretRef::File(file.clone())));
    let got = try_sign_in(&s, &issuer);
    assert_eq!((got.status, session(&got)), (401, None), "{got:?}");
    write(SECRET);
    sign_in(&s, &issuer);
}

/// If this broke, an issuer that is away would keep the members from running, and people who are signed in from working.
#[test]
fn an_issuer_that_is_away_stops_nothing_but_signing_in() {
    let free = std::net::TcpListener::bind(LOCAL).and_then(|l| l.local_addr()).expect("a port");
    let clock = super::served::a_clock();
    let s = Served::at(clock.clone(), true, Some(section(&format!("http://{free}"))), true, None);
    let got = s.get("/sign-in/oidc");
    assert_eq!(got.status, 503, "{got:?}");
    assert!(got.body.contains("RB0807") && got.body.contains("Your token"), "{got:?}");
    s.sign_in("olga");
    let issuer = Issuer::start(free, clock);
    let bearer = format!("Bearer {}", issuer.bearer(CLIENT));
    let call = || s.send("GET", "/api/v1/session", &[("Authorization", &bearer)], "");
    let got = call();
    assert_eq!((got.status, got.code().as_str()), (503, "RB0807"), "it is not asked again at once: {got:?}");
    s.clock.advance(Duration::from_secs(10));
    let cookie = sign_in(&s, &issuer);
    drop(issuer);
    s.clock.advance(Duration::from_secs(580));
    assert_eq!((s.page(&cookie, "/").status, call().json()["name"].clone()), (200, json!("mira@acme")));
}

/// If this broke, the API would take tokens that were given for something else, or a JWT would be tried as a line of the file.
#[test]
fn a_bearer_token_is_for_our_audience() {
    let (s, issuer) = with_issuer(true, |section| section.audience = "readback-api".to_owned());
    let call = |token: &str| s.send("GET", "/api/v1/session", &[("Authorization", &format!("Bearer {token}"))], "");
    let got = call(&issuer.bearer("readback-api"));
    assert_eq!(
        (got.status, got.json()["name"].clone(), got.json()["roles"].clone()),
        (200, json!("mira@acme"), json!(["operator"]))
    );
    assert_eq!(call(&issuer.bearer(CLIENT)).status, 401, "an ID token is for another audience");
    issuer.says(|says| {
        says.twist = |c| {
            c["aud"] = json!(["account", "readback-api"]);
            c["azp"] = json!("a-robot");
        }
    });
    assert_eq!(call(&issuer.bearer("")).status, 200, "an access token may have several, and be a robot's");
    let late = issuer.bearer("");
    s.clock.advance(Duration::from_secs(600));
    assert_eq!(call(&late).status, 401);
    assert_eq!((call("a.b.c").status, call("rbt_wrong").status, call(&s.tokens["olga"]).status), (401, 401, 200));
    issuer.account("9", "otto@acme", &["sales"]);
    issuer.says(|says| says.twist = |_| {});
    let got = call(&issuer.bearer("readback-api"));
    assert_eq!((got.status, got.code().as_str()), (403, "RB0802"));
}

/// If this broke, somebody would stay signed in for longer than the issuer vouches for them, or than is allowed here.
#[test]
fn a_session_ends_when_the_issuers_word_does_and_by_signing_out() {
    let (s, issuer) = with_issuer(false, |_| {});
    let cookie = sign_in(&s, &issuer);
    s.clock.advance(Duration::from_secs(590));
    assert_eq!(s.page(&cookie, "/").status, 200);
    s.clock.advance(Duration::from_secs(10));
    assert_eq!(s.page(&cookie, "/").status, 303, "the token's end");
    issuer.says(|says| says.twist = |c| c["exp"] = json!(c["iat"].as_i64().unwrap_or_default() + 100_000));
    let cookie = sign_in(&s, &issuer);
    s.clock.advance(Duration::from_secs(3_600));
    assert_eq!(s.page(&cookie, "/").status, 303, "the configured end");
    let cookie = sign_in(&s, &issuer);
    let form = form_token(&s.page(&cookie, "/").body);
    let out = s.post(&cookie, "/sign-out", &format!("form={form}"));
    let leads = out.header("refresh").expect("leads to the issuer");
    assert!(leads.starts_with(&format!("0; url={}/end?", issuer.url)), "{leads}");
    assert!(leads.contains(&format!("client_id={CLIENT}")) && leads.contains("sign-in&") | leads.ends_with("sign-in"), "{leads}");
    assert_eq!(s.page(&cookie, "/").status, 303);
}

/// If this broke, strangers could fill the audit topic by answers that no issuer gave; or lock out everybody behind the same proxy.
#[test]
fn wrong_answers_are_bounded_and_right_ones_are_not() {
    let (s, issuer) = with_issuer(false, |_| {});
    let wrong = || s.send("GET", "/sign-in/callback?code=c&state=s", &[], "");
    for _ in 0..TRIES {
        assert_eq!(wrong().status, 401);
    }
    assert_eq!((wrong().status, s.audited().len()), (429, TRIES as usize));
    assert_eq!(try_sign_in(&s, &issuer).status, 200);
    s.clock.advance(Duration::from_secs(60));
    assert_eq!(wrong().status, 401);
}

/// If this broke, a code or the client's secret would go over the network in the clear, or a typing error would be found at 3 a.m.
#[test]
fn an_issuer_in_the_clear_is_taken_on_this_machine_only() {
    let start = |issuer: &str, role: &str, listen: &str| {
        let mut oidc = section(issuer);
        oidc.roles.insert("x".to_owned(), role.to_owned());
        oidc.client_secret = Some(SecretRef::Env("READBACK_TESTS_HAVE_NO_SUCH_SECRET".to_owned()));
        let settings =
            Settings { oidc: Some(oidc), session: Duration::from_secs(1), listen: listen.to_owned(), ..Settings::default() };
        let cluster = MemoryCluster::new(Arc::new(SystemClock));
        Console::start(&cluster, &ApplicationId::new(APP), &settings, Arc::new(SystemClock)).err().map(|e| e.code)
    };
    for issuer in ["https://id.acme.example", "http://127.0.0.1:9000/a", "http://localhost:9000", "http://[::1]:9000"] {
        assert_eq!(start(issuer, "admin", "0.0.0.0:0"), None, "{issuer}");
    }
    for issuer in ["http://id.acme.example", "id.acme.example", "https://me:pw@id.acme.example", "https://id.acme.example/?a=b", ""]
    {
        assert_eq!(start(issuer, "admin", "127.0.0.1:0"), Some(codes::BAD_VALUE), "{issuer}");
    }
    assert_eq!(start("https://id.acme.example", "boss", "127.0.0.1:0"), Some(codes::BAD_VALUE));
}
