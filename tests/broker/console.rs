//! The console of a real member: an effect that nobody can decide is resolved by a person over the API.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use readback::console::people::{Role, make};
use readback::registry::{Ensure, Registry, RegistryAuth};
use readback::time::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::notices::{Service, ask, topology};
use crate::processes::Running;
use crate::{shared, until};

/// A target that takes every order and says nothing; its list is never readable.
fn silent_target() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    format!("http://{address}")
}

fn answer(mut stream: TcpStream) {
    let mut request = [0; 4096];
    let read = stream.read(&mut request).unwrap_or_default();
    if request[..read].starts_with(b"GET") {
        let _ = stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}

/// Status and JSON of the console's API.
fn call(address: &str, token: &str, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
    let mut to = TcpStream::connect(address).ok()?;
    write!(
        to,
        "{method} /api/v1{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    to.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?))
}

/// If this broke, what only a person can decide would stay undecided: the console would show another state than the members have, or
/// its order would not reach the one that owns the operation.
#[test]
fn an_unknown_effect_is_resolved_over_the_api() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("console-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let (token, line) = make("olga@acme", &[Role::Operator]).expect("a token");
    let tokens = work.path().join("tokens");
    std::fs::write(&tokens, line).expect("writes");
    let target = silent_target();
    let more = [
        ("NOTICES_URL", target.as_str()),
        ("READBACK_ADMIN__LISTEN", "127.0.0.1:0"),
        ("READBACK_ADMIN__CONSOLE", "true"),
        ("READBACK_CONSOLE__TOKENS", tokens.to_str().expect("UTF-8")),
    ];
    let mut member = Running::with(&topology(work.path(), &app), &work.path().join("state"), "member", &more);
    member.until_running();
    let said = member.said();
    let address = said.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address").to_owned();
    ask(&app, "op-1");
    let unknown = until("it is unknown", || {
        assert!(member.try_wait().is_none(), "it ended: {}", member.said());
        let (_, page) = call(&address, &token, "GET", "/unknowns", "")?;
        page["operations"].get(0).cloned()
    });
    assert_eq!((&unknown["operation"], &unknown["status"]), (&json!("op-1"), &json!("unknown")));
    // Compared with what is shown: a readback may come in between.
    let (seen, answer) = until("it is resolved", || {
        let (_, shown) = call(&address, &token, "GET", "/operations/op-1", "")?;
        let body =
            json!({ "resolution": "applied", "reason": "it stands in the notice service's books", "seen": shown["version"] });
        let (status, answer) = call(&address, &token, "POST", "/operations/op-1/resolve", &body.to_string())?;
        assert!([200, 409].contains(&status), "{status} {answer}");
        (status == 200).then_some((shown, answer))
    });
    assert!(seen["attempts"].as_array().is_some_and(|a| !a.is_empty()), "{seen}");
    assert_eq!((&answer["answered"], &answer["detail"]), (&json!(true), &json!("resolved_applied")));
    let (_, shown) = call(&address, &token, "GET", "/operations/op-1", "").expect("answers");
    assert_eq!((&shown["status"], &shown["commands"][0]["command"]), (&json!("resolved_applied"), &answer["command"]));
    let (_, left) = call(&address, &token, "GET", "/unknowns", "").expect("answers");
    assert_eq!(left["operations"], json!([]));
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}

/// A topology whose requests come as they are, in Avro of the registry.
fn of_requests(work: &std::path::Path, app: &str) -> std::path::PathBuf {
    let dir = topology(work, app);
    let graph = format!(
        "application: {app}
version: 1
sources:
  requests: {{ topic: {app}.in, value: avro, schema: readback/work-request }}
steps:
  - name: admit
    from: requests
    admit: {{ remember: 1d }}
  - name: notify
    from: admit
    effect:
      contract: contracts/notices.yaml#create
      parameters: {{ shipment: request.resource, email: '\"a@b.example\"' }}
results: {app}.results
dead_letters: {app}.dead
"
    );
    std::fs::write(dir.join("topology.yaml"), graph).expect("writes");
    dir
}

/// If this broke, a caller that waits would not hear that its effect was read back, or would have it twice by asking twice.
#[test]
fn a_request_that_is_submitted_twice_is_confirmed_once() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("submit-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let (token, line) = make("olga@acme", &[Role::Operator]).expect("a token");
    let tokens = work.path().join("tokens");
    std::fs::write(&tokens, line).expect("writes");
    let registry = Registry::new(crate::stack().registry(), RegistryAuth::None).expect("a client");
    registry.ensure(&format!("{app}.in-value"), include_str!("../../schemas/work-request.avsc"), Ensure::Register).expect("registers");
    let service = Service::start();
    let more = [
        ("NOTICES_URL", service.url.as_str()),
        ("READBACK_ADMIN__LISTEN", "127.0.0.1:0"),
        ("READBACK_ADMIN__CONSOLE", "true"),
        ("READBACK_CONSOLE__TOKENS", tokens.to_str().expect("UTF-8")),
    ];
    let mut member = Running::with(&of_requests(work.path(), &app), &work.path().join("state"), "member", &more);
    member.until_running();
    let said = member.said();
    let address = said.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address").to_owned();
    let deadline = SystemClock.now().wall.plus(Duration::from_secs(3_600)).to_string();
    let submit = |resource: &str| {
        let body = json!({
            "operation_id": "op-1", "tenant": "acme", "resource": resource, "action": "notice.create", "deadline": deadline,
            "input": { "media_type": "text/plain", "inline": "a notice" },
        });
        call(&address, &token, "POST", "/requests/notify?wait_for=confirmed&within=60s", &body.to_string())
    };
    // With 202 it is not confirmed yet: the same request again goes on waiting.
    let confirmed = || {
        until("it is confirmed", || {
            let (status, answer) = submit("s-1").unwrap_or_else(|| panic!("no answer: {}", member.said()));
            assert!([200, 202].contains(&status), "{status} {answer}");
            (status == 200).then_some(answer)
        })
    };
    let answer = confirmed();
    assert_eq!((&answer["level"], &answer["status"], &answer["ended"]), (&json!("confirmed"), &json!("confirmed"), &json!(true)));
    assert_eq!(confirmed()["version"], answer["version"]);
    let (status, refused) = submit("s-2").expect("answers");
    assert_eq!((status, &refused["code"]), (409, &json!("RB0702")), "{refused}");
    let (_, shown) = call(&address, &token, "GET", "/operations/op-1?tenant=acme&step=notify", "").expect("answers");
    assert_eq!((&shown["requester"], &shown["status"]), (&json!("olga@acme"), &json!("confirmed")));
    assert_eq!(service.posts(), [("s-1".to_owned(), 1)].into());
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}
