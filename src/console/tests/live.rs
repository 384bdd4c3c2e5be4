//! Pages that follow what they show, and values that are shown to some.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::console::live::STREAMS;
use crate::effects::{LedgerBody, LedgerRecord};
use crate::ids::ApplicationId;
use crate::intents::{Cost, Flag, RenderedRequest, topics};
use crate::kafka::Class;
use crate::kafka::memory::Call;
use crate::serdes::internal::{self, Wire};

use super::served::{APP, Served, awaiting, form_token, key, parked, put};

/// Longest wait for what a stream must tell.
const SPAN: Duration = Duration::from_secs(30);

/// A stream of events, as somebody whose cookie this is.
fn follow(s: &Served, cookie: &str, query: &str) -> BufReader<TcpStream> {
    let mut to = TcpStream::connect(s.address).expect("connects");
    to.set_read_timeout(Some(SPAN)).expect("set");
    write!(to, "GET /events{query} HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n", s.address).expect("writes");
    BufReader::new(to)
}

/// Reads on until a line is as wanted.
fn until(stream: &mut BufReader<TcpStream>, wanted: impl Fn(&str) -> bool) -> String {
    let (mut seen, end) = (String::new(), Instant::now() + SPAN);
    loop {
        assert!(Instant::now() < end, "it never comes, after {seen}");
        let mut line = String::new();
        let n = stream.read_line(&mut line).unwrap_or_else(|e| panic!("{e}, after {seen}"));
        assert!(n > 0, "it ended, after {seen}");
        if wanted(&line) {
            return line;
        }
        seen += &line;
    }
}

fn tells(part: &str) -> impl Fn(&str) -> bool + '_ {
    move |line| line.strip_prefix("data: ").is_some_and(|parts| parts.split_whitespace().any(|p| p == part))
}

/// If this broke, an operator would watch a page that stands still, or somebody who has signed out would go on watching.
#[test]
fn a_stream_tells_what_changed_until_the_session_ends() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let cookie = s.sign_in("olga");
    let page = s.page(&cookie, "/operations/op-1").body;
    let of = page.split("data-of=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a query").replace("&amp;", "&");
    let (mut all, mut one) = (follow(&s, &cookie, ""), follow(&s, &cookie, &of));
    for stream in [&mut all, &mut one] {
        assert!(until(stream, |l| l.starts_with("HTTP/1.1")).contains("200"));
        assert!(until(stream, |l| l.to_lowercase().starts_with("content-type")).contains("text/event-stream"));
        until(stream, |l| l.starts_with("retry:"));
    }
    s.ledger(&parked("op-2"));
    until(&mut all, tells("operations"));
    let told = until(&mut one, tells("operations"));
    assert!(!tells("operation")(&told), "another operation has changed: {told}");
    let mut again = parked("op-1");
    again.version += 1;
    s.ledger(&again);
    until(&mut one, tells("operation"));
    until(&mut all, tells("clock"));
    let out = s.post(&cookie, "/sign-out", &format!("form={}", form_token(&page)));
    assert_eq!(out.status, 303, "{out:?}");
    until(&mut one, |l| l.starts_with("event: ended"));
    assert_eq!(s.page(&cookie, "/events").status, 401);
}

/// If this broke, a page that is left open would go on telling of operations long after its session has run out, or its token was taken out.
#[test]
fn a_stream_ends_with_a_session_that_runs_out_and_with_its_token() {
    let s = Served::new();
    let file = s.dir.path().join("tokens");
    let ends: [(&str, &dyn Fn()); 2] = [
        ("its token was taken out", &|| {
            let text = std::fs::read_to_string(&file).expect("reads");
            std::fs::write(&file, text.lines().filter(|l| !l.starts_with("olga")).collect::<Vec<_>>().join("\n")).expect("writes");
        }),
        ("it has run out", &|| s.clock.advance(s.console.sessions.lasts)),
    ];
    for ((what, end), who) in ends.into_iter().zip(["olga", "vera"]) {
        let cookie = s.sign_in(who);
        let mut stream = follow(&s, &cookie, "");
        until(&mut stream, |l| l.starts_with("retry:"));
        end();
        until(&mut stream, |l| l.starts_with("event: ended"));
        assert_eq!(s.page(&cookie, "/events").status, 401, "{what}");
    }
}

/// If this broke, pages that are left open would take all that a process has.
#[test]
fn streams_are_bounded() {
    let s = Served::new();
    let cookie = s.sign_in("vera");
    let all = s.console.streams.clone().try_acquire_many_owned(STREAMS as u32).expect("all of them");
    let got = s.page(&cookie, "/events");
    assert_eq!((got.status, got.code().as_str()), (503, "RB0806"), "{got:?}");
    drop(all);
    let mut stream = follow(&s, &cookie, "");
    until(&mut stream, |l| l.starts_with("retry:"));
    assert_eq!(s.console.streams.available_permits(), STREAMS - 1);
}

/// If this broke, pages would need a script to be whole, or run one that is not ours.
#[test]
fn pages_are_whole_without_the_script() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let cookie = s.sign_in("olga");
    for path in ["/", "/unknowns", "/operations", "/operations/op-1", "/dead-letters", "/topology", "/members"] {
        let got = s.page(&cookie, path);
        assert!(got.body.contains("<main id=\"main\" tabindex=\"-1\" data-live=\""), "{path}");
        assert!(got.body.contains("id=\"live\" type=\"button\" hidden"), "{path}: a button that does nothing is not shown");
        let policy = got.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    let script = s.get("/live.js");
    assert_eq!((script.status, script.header("content-type")), (200, Some("text/javascript; charset=utf-8")));
}

/// If this broke, whoever may only look would read what was sent, or nobody could tell afterwards who did.
#[test]
fn values_are_shown_to_some_and_that_is_written_down() {
    let s = Served::new();
    let request = RenderedRequest {
        method: "POST".into(),
        path: "/orders".into(),
        body: Some(br#"{"sku":"SECRET-SKU"}"#.to_vec()),
        ..RenderedRequest::default()
    };
    let mut l = parked("op-1");
    l.request_sha256 = request.sha256();
    let body = internal::encode(&LedgerBody { request, parameters: "{}".into() }).expect("encodes");
    let ledger = topics::ledger_changelog(&ApplicationId::new(APP));
    put(&s.cluster, &ledger, &format!("b/{}", l.key().joined()), LedgerBody::SCHEMA, &body);
    s.ledger(&l);
    let letter = s.letter("it can't be read");
    let paths = [
        ("/operations/op-1?tenant=acme&step=place-order".to_owned(), "&", "SECRET-SKU"),
        (format!("/dead-letters/{letter}"), "?", "MARK"),
    ];
    for (path, and, secret) in &paths {
        for who in ["vera", "olga", "anna", "adam"] {
            let cookie = s.sign_in(who);
            let plain = s.page(&cookie, path).body;
            assert!(!plain.contains(secret), "{path} of {who}");
            let before = s.audited().len();
            let got = s.page(&cookie, &format!("{path}{and}show=values"));
            if who == "vera" {
                assert_eq!((got.status, got.body.contains(secret)), (403, false), "{got:?}");
                continue;
            }
            assert!(plain.contains("show=values") && got.body.contains(secret), "{path} of {who}: {}", got.body);
            assert!(!got.body.contains("data-live"), "each time is written down");
            let all = s.audited();
            assert_eq!(
                (all.len(), all[before]["who"].as_str(), all[before]["came"].as_str()),
                (before + 1, Some(who), Some("shown"))
            );
        }
    }
    let page = s.page(&s.sign_in("vera"), &paths[0].0).body;
    assert!(page.contains("&quot;sku&quot;: &quot;&lt;text of 10&gt;&quot;") && page.contains(&l.request_sha256), "{page}");
    assert!(!page.contains("the bytes that are kept hash to"), "{page}");
}

/// If this broke, values would be shown, and nobody could tell afterwards who has seen them.
#[test]
fn values_that_nobody_could_account_for_are_not_shown() {
    let s = Served::new();
    let path = format!("/dead-letters/{}?show=values", s.letter("it can't be read"));
    let cookie = s.sign_in("olga");
    s.cluster.fail_next(Call::Publish, None, Class::Config);
    let got = s.page(&cookie, &path);
    assert!(got.status >= 400 && !got.body.contains("MARK"), "{got:?}");
    let got = s.page(&cookie, &path);
    assert!(got.status == 200 && got.body.contains("MARK"), "{got:?}");
}

/// If this broke, the first page would hide what is dear, what may have happened twice, or what nobody can read.
#[test]
fn the_overview_tells_flow_budgets_and_what_must_not_pass() {
    let s = Served::new();
    let mut twice: LedgerRecord = parked("op-1");
    twice.flags = vec![Flag::DuplicateSuspected];
    s.ledger(&twice);
    let mut dear = awaiting("op-2");
    dear.charged = Cost { tokens: 123_456, bytes: 7, tool_calls: 1 };
    s.record(&dear);
    s.letter("it can't be read");
    let cookie = s.sign_in("vera");
    let tile = |page: &str, of: &str| page.split(&format!("data-key=\"{of}\"")).nth(1).map(|rest| rest[..120].to_owned());
    let resting = |page: &str| tile(page, "dead letter rests").is_some_and(|t| t.contains("<b>1</b>"));
    let page = std::iter::repeat_with(|| s.page(&cookie, "/").body).find(|page| resting(page)).expect("it is read");
    assert!(tile(&page, "suspected duplicates").is_some_and(|t| t.contains("<b>1</b>")), "{page}");
    assert!(tile(&page, "Parked").is_some_and(|t| t.contains("/operations?status=parked&amp;order=oldest")), "{page}");
    assert!(page.contains("123\u{202f}456") && page.contains("2\u{202f}000\u{202f}000 tokens per 24 h"), "{page}");
    assert!(page.contains("<td class=\"num\">+1</td>"), "{page}");
    let flagged = s.page(&cookie, "/operations?flag=duplicate_suspected").body;
    assert!(flagged.contains("op-1") && !flagged.contains(">op-2<"), "{flagged}");
    assert_eq!(key("op-1").operation.as_str(), "op-1");
}

/// If this broke, a filter could not be taken away by itself, or a link to a search would find something else.
#[test]
fn each_filter_is_a_link_to_the_search_without_it() {
    let s = Served::new();
    let cookie = s.sign_in("vera");
    let page = s.page(&cookie, "/operations?status=unknown,parked&tenant=a%26b&older=10m&order=oldest").body;
    for rest in [
        "/operations?status=parked&amp;tenant=a%26b&amp;older=10m&amp;order=oldest",
        "/operations?status=unknown&amp;tenant=a%26b&amp;older=10m&amp;order=oldest",
        "/operations?status=unknown&amp;status=parked&amp;older=10m&amp;order=oldest",
        "/operations?status=unknown&amp;status=parked&amp;tenant=a%26b&amp;order=oldest",
    ] {
        assert!(page.contains(&format!("href=\"{rest}\"")), "no {rest} in {page}");
    }
}
