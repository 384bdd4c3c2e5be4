//! The console of a real member: an effect that nobody can decide is resolved by a person over the API.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use readback::console::people::{Role, make};
use readback::ids::{Partition, TopicName, Tp};
use readback::kafka::{Cluster, Isolation, Slot, TxLimits, TxSink};
use readback::record::OutRecord;
use readback::registry::{Ensure, Registry, RegistryAuth};
use readback::time::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::notices::{Service, ask, topology, topology_with_patience};
use crate::processes::Running;
use crate::story::program;
use crate::{Shared, shared, until};

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

/// A member with a console that an operator may sign in at: the member, its address, and her token.
fn served(work: &Path, topology: &Path, target: &str) -> (Running, String, String) {
    let (member, address, mut tokens) = served_to(&["olga@acme"], work, topology, target);
    (member, address, tokens.remove(0))
}

/// The same for several operators, and the token of each.
fn served_to(people: &[&str], work: &Path, topology: &Path, target: &str) -> (Running, String, Vec<String>) {
    let made = people.iter().map(|name| make(name, &[Role::Operator]).expect("a token"));
    let (shown, lines): (Vec<String>, Vec<String>) = made.unzip();
    let tokens = work.join("tokens");
    std::fs::write(&tokens, lines.join("\n")).expect("writes");
    let more = [
        ("NOTICES_URL", target),
        ("READBACK_ADMIN__LISTEN", "127.0.0.1:0"),
        ("READBACK_ADMIN__CONSOLE", "true"),
        ("READBACK_CONSOLE__TOKENS", tokens.to_str().expect("UTF-8")),
    ];
    let mut member = Running::with(topology, &work.join("state"), "member", &more);
    member.until_running();
    let said = member.said();
    let address = said.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address").to_owned();
    (member, address, shown)
}

/// Runs `readback ops …` with these variables: exit code, and the object that it printed.
fn ops(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, Value) {
    let mut command = std::process::Command::new(program());
    command.args(["ops", "--output", "json"]).args(args).env_remove("USER").envs(variables.iter().copied());
    let out = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&out.stdout);
    (out.status.code(), said.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(json!(said)))
}

/// What people did, as the audit topic has it.
fn audited(shared: &Shared, app: &str) -> Vec<Value> {
    let topic = TopicName::from(format!("{app}-audit"));
    let mut reader = shared.cluster.reader(Isolation::Committed).expect("a reader");
    let tp = Tp::new(topic, 0);
    let (first, end) = reader.ends(&tp, Isolation::Committed).expect("asked");
    reader.assign(&[(tp.clone(), first)]).expect("assigned");
    let mut found = Vec::new();
    until("the audit topic is read", || {
        if let Some(record) = reader.poll(Duration::from_millis(100)).expect("reads") {
            found.push(serde_json::from_slice(record.value.as_deref().unwrap_or_default()).expect("JSON"));
        }
        reader.position(&tp).is_some_and(|at| at >= end).then_some(())
    });
    found
}

/// If this broke, one person could be both on the command line, or what they ordered there would stand on no audit topic: over the console
/// two people agree by their own tokens, and straight to the topics a name is written down as nothing but a name.
#[test]
fn two_people_order_on_the_command_line() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("second-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    // What has left may arrive for minutes: nobody decides alone meanwhile.
    let topology = topology_with_patience(work.path(), &app, 60);
    let (mut member, address, tokens) = served_to(&["olga@acme", "otto@acme"], work.path(), &topology, &silent_target());
    let api = format!("http://{address}");
    let by = |n: usize, args: &[&str]| ops(args, &[("READBACK_API", &api), ("READBACK_TOKEN", &tokens[n])]);
    ask(&app, "op-1");
    ask(&app, "op-2");
    until("both are unknown", || {
        assert!(member.try_wait().is_none(), "it ended: {}", member.said());
        let (exit, line) = by(0, &["list", "--status", "unknown", "--search", "op-2"]);
        (exit == Some(0) && line["operation"] == "op-2" && by(0, &["show", "op-1"]).1["status"] == "unknown").then_some(())
    });
    let seen = |id: &str| by(0, &["show", id]).1["version"].to_string();
    let not_applied = |seen: &str, more: &[&str]| {
        by(0, &[&["resolve", "op-1", "--not-applied", "--reason", "nothing under this reference", "--seen", seen], more].concat())
    };
    // Compared with what is shown: a readback may come in between.
    until("one alone is refused", || {
        let (exit, said) = not_applied(&seen("op-1"), &[]);
        assert!([Some(1), Some(4)].contains(&exit), "{said}");
        (exit == Some(1)).then(|| assert_eq!(said["code"], "RB0710", "{said}"))
    });
    assert_eq!(not_applied("99", &[]).0, Some(4));
    until("two agree", || {
        let (exit, waits) = not_applied(&seen("op-1"), &["--ask-second"]);
        let command = waits["command"].as_str().filter(|_| exit == Some(0))?.to_owned();
        assert_eq!(waits["answered"], false, "{waits}");
        let confirm = ["confirm", &command, "--reason", "looked myself"];
        assert_eq!(by(0, &confirm).0, Some(1), "she gave it");
        let (exit, said) = by(1, &confirm);
        assert!([Some(0), Some(4)].contains(&exit), "{said}");
        (exit == Some(0)).then_some(())
    });
    assert_eq!(by(0, &["show", "op-1"]).1["status"], "resolved_not_applied");
    // Straight to the topics, by whoever says to be kim.
    let brokers = [("READBACK_BROKERS", crate::stack().brokers()), ("READBACK_APP", &app)];
    until("it is resolved", || {
        let (exit, said) =
            ops(&["resolve", "op-2", "--applied", "--reason", "it is there", "--by", "kim", "--seen", &seen("op-2")], &brokers);
        assert!([Some(0), Some(4)].contains(&exit), "{said}");
        (exit == Some(0)).then_some(())
    });
    let all = audited(&shared, &app);
    let last =
        |who: &str, came: &str| all.iter().rfind(|a| a["who"] == who && a["came"] == came).unwrap_or_else(|| panic!("{all:?}"));
    let (console, cli) = (last("olga@acme", "answered"), last("kim", "answered"));
    assert_eq!((&console["via"], &console["verified"], &console["second"]), (&json!("console"), &json!(true), &json!("otto@acme")));
    assert_eq!((&cli["via"], &cli["verified"], &cli["operation"]), (&json!("cli"), &json!(false), &json!("op-2")));
    assert!(tokens.iter().all(|t| !format!("{all:?}").contains(t.as_str())), "a token stands in the audit topic");
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}

/// If this broke, what only a person can decide would stay undecided: the console would show another state than the members have, or
/// its order would not reach the one that owns the operation.
#[test]
fn an_unknown_effect_is_resolved_over_the_api() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("console-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let (mut member, address, token) = served(work.path(), &topology(work.path(), &app), &silent_target());
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

/// A page of the console, or what a form was answered: status, head, body.
fn page(address: &str, cookie: &str, method: &str, path: &str, body: &str) -> Option<(u16, String, String)> {
    let mut to = TcpStream::connect(address).ok()?;
    write!(
        to,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nCookie: {cookie}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    to.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, head.to_owned(), body.to_owned()))
}

/// Signs in as a browser does; the session's cookie.
fn sign_in(address: &str, token: &str) -> String {
    let cookie = |head: &str| {
        let line = head.lines().find(|l| l.to_lowercase().starts_with("set-cookie:")).expect("a cookie");
        line.split_once(": ").and_then(|(_, c)| c.split(';').next()).expect("a value").to_owned()
    };
    let (_, head, form) = page(address, "", "GET", "/sign-in", "").expect("answers");
    let field = form.split("name=\"form\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a form");
    let (status, head, _) =
        page(address, &cookie(&head), "POST", "/sign-in", &format!("form={field}&token={token}")).expect("answers");
    assert_eq!(status, 303);
    cookie(&head)
}

/// If this broke, an operator at night would open a page that does not show what the topics hold, or shows it no more once it moves:
/// what is unknown, what was sent, what rests, what is left, which transaction is open, what is promised.
#[test]
fn every_page_shows_what_the_topics_hold() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("pages-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let (mut member, address, token) = served(work.path(), &topology(work.path(), &app), &silent_target());
    let cookie = sign_in(&address, &token);
    let shows = |path: &str, what: &dyn Fn(&str) -> bool| {
        until(path, || {
            let (status, _, body) = page(&address, &cookie, "GET", path, "")?;
            assert!([200, 404].contains(&status), "{path}: {status} {body}");
            (status == 200 && what(&body)).then_some(body)
        })
    };
    let tile = |body: &str, of: &str, n: &str| {
        body.split(&format!("data-key=\"{of}\"")).nth(1).is_some_and(|rest| rest[..200].contains(&format!("<b>{n}</b>")))
    };
    // Followed from here on.
    let mut events = TcpStream::connect(&address).expect("connects");
    write!(events, "GET /events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n").expect("writes");
    ask(&app, "op-1");
    let input = TopicName::from(format!("{app}.in"));
    let broken = OutRecord {
        topic: &input,
        partition: None,
        timestamp: None,
        key: Some(b"k"),
        value: Some(b"{\"card\": \"4242\""),
        headers: None,
    };
    shared.cluster.publish(&[broken], Duration::from_secs(20)).expect("writes");
    shows("/", &|body| tile(body, "unknown", "1") && tile(body, "dead letter rests", "1") && body.contains("notices#create"));
    let (mut told, mut buffer) = (String::new(), [0; 512]);
    until("the page is told", || {
        let n = events.read(&mut buffer).expect("reads");
        told += &String::from_utf8_lossy(&buffer[..n]);
        (told.contains("event: changed") && told.contains("operations")).then_some(())
    });
    shows("/unknowns", &|body| body.contains(">op-1</a>"));
    shows("/operations?resource=shipment%2Fop-1&older=1ms", &|body| body.contains(">op-1</a>"));
    let one = "/operations/op-1?tenant=acme&step=notify";
    let shown = shows(one, &|body| body.contains("maybe sent") && body.contains("The exact request"));
    assert!(shown.contains("shipment") && !shown.contains("a@b.example"), "values are hidden: {shown}");
    let whole = shows(&format!("{one}&show=values"), &|body| body.contains("a@b.example"));
    assert!(!whole.contains("the bytes that are kept hash to"), "{whole}");
    let letters = shows("/dead-letters", &|body| body.contains("1 letter rests"));
    let letter = letters.split("href=\"/dead-letters/").nth(1).and_then(|rest| rest.split('"').next()).expect("a letter");
    let letter = format!("/dead-letters/{letter}");
    assert!(!shows(&letter, &|body| body.contains("Shape of the payload")).contains("4242"));
    shows(&format!("{letter}?show=values"), &|body| body.contains("4242"));
    shows("/approvals", &|body| body.contains("No plan waits"));
    shows("/topology", &|body| body.contains(&format!("<title>{app}.in: topic · ")));
    shows("/configuration", &|body| body.contains("console.tokens"));
    let promised = shows("/guarantees", &|body| body.contains("outbox → notices#create"));
    assert!(promised.contains("1 broker") && promised.contains("not promised"), "{promised}");
    // Read up to the end, markers and all: nothing is left, and members have what they have.
    let (group, effects) = (format!("Group {app} · "), format!("Group {app}.effects · "));
    let read_up = |body: &str| body.contains("; 0 records are left in ") && body.contains("no transaction holds anything back");
    shows("/members", &|body| body.contains(&group) && body.contains(&effects) && read_up(body) && body.contains("-outbox "));
    // A transaction that stays open holds back what comes after it.
    let slot = Slot { unit: format!("{app}-stranger").into(), group: format!("{app}-stranger").into(), number: 0 };
    let mut open = shared.cluster.sink(&slot, TxLimits { transaction: Duration::from_secs(120), reports: false }).expect("a sink");
    until("it fences", || open.init().ok());
    open.begin().expect("begins");
    open.send(OutRecord { partition: Some(Partition(0)), ..broken }).expect("sends");
    open.flush(Duration::from_secs(20)).expect("flushes");
    let held = shows("/members", &|body| body.contains("1 is held back by an open transaction"));
    assert!(held.contains("Seen so for"), "{held}");
    open.abort(Duration::from_secs(20)).expect("aborts");
    shows("/members", &read_up);
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}

/// A console that serves nothing else; ends when dropped.
struct Alone(std::process::Child);

impl Alone {
    /// Starts one that asks these members; and where it serves.
    fn start(app: &str, members: &str) -> (Self, String) {
        let mut command = std::process::Command::new(program());
        command.args(["console", "--app", app, "--brokers", crate::stack().brokers(), "--listen", "127.0.0.1:0"]);
        command.env("READBACK_CONSOLE__MEMBERS", members).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let said = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = said.map_while(Result::ok).find(|l| l.contains("is at http://")).expect("it says where");
        let address = line.split("http://").nth(1).expect("an address").trim_end_matches('/').to_owned();
        (Self(child), address)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// If this broke, the console that a cluster deploys would show no call of any member, or count on without telling that one is silent.
#[test]
fn a_console_alone_shows_the_calls_of_members_and_who_is_silent() {
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("alone-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let (_member, address, _) = served(work.path(), &topology(work.path(), &app), &silent_target());
    ask(&app, "op-1");
    let (_console, alone) = Alone::start(&app, &format!("{address},127.0.0.1:1"));
    let shown = until("the member's calls are shown", || {
        let (_, _, body) = page(&alone, "", "GET", "/", "")?;
        body.contains("<h2>Capacity of targets: the member that answers</h2>").then_some(body)
    });
    assert!(shown.contains("<tr data-key=\"notices\">"), "{shown}");
    assert!(shown.contains("<strong>127.0.0.1:1</strong> is not counted: "), "{shown}");
    // The second member is of another application: its numbers are not ours.
    let (_other, foreign) = Alone::start(&format!("{app}-other"), &address);
    until("another application's member is told", || {
        let (_, _, body) = page(&foreign, "", "GET", "/", "")?;
        body.contains(&format!("is not counted: it is a member of {app}.</p>")).then_some(())
    });
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
    let registry = Registry::new(crate::stack().registry(), RegistryAuth::None).expect("a client");
    registry
        .ensure(&format!("{app}.in-value"), include_str!("../../schemas/work-request.avsc"), Ensure::Register)
        .expect("registers");
    let service = Service::start();
    let (mut member, address, token) = served(work.path(), &of_requests(work.path(), &app), &service.url);
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
            // A registry that is slow to answer is said to be away, and that the same may be asked again.
            assert!([200, 202].contains(&status) || answer["code"] == "RB0503", "{status} {answer}");
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
