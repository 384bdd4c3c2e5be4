//! A target that accepts work and tells by itself how it ended, two members, and somebody who would like to tell, too.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmac::{Hmac, Mac};
use readback::ids::partition_of;
use readback::time::{Clock, SystemClock};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::processes::Running;
use crate::protocol::{listed, lock, put, reply, serve, until_status, within, written};
use crate::{shared, until};

const SECRET: &str = "whsec-of-the-jobs-service";

const CONTRACT: &str = r#"contract: jobs
version: 1
verified_on: 2026-11-20
target: { base_url: BASE, hosts: ["127.0.0.1"], private: true, intermediaries: none }
calls:
  run:
    parameters: { name: { type: string } }
    request: { method: POST, path: /jobs, json: { ref: "{key}", name: "{name}" } }
    key: { carrier: body }
    answers: [{ status: 202, means: in_progress }]
    completion: webhook
    webhook:
      path: /webhooks/jobs
      signature: stripe
      secret: { file: SECRET_FILE }
      key: body.job.ref
      means:
        - { when: 'body.type == "job.done"', means: applied, evidence: body.job.id }
        - { when: 'body.type == "job.failed"', means: rejected }
      within: 10m
"#;

fn topology(work: &Path, app: &str, base: &str) -> PathBuf {
    let graph = format!(
        "application: {app}
version: 1
sources:
  asked: {{ topic: {app}.in, key: string, value: json }}
steps:
  - name: run-job
    from: asked
    effect:
      contract: contracts/jobs.yaml#run
      request:
        operation_id: value.id
        tenant: '\"acme\"'
        resource: '\"job/\" + value.name'
        deadline: timestamp(value.until)
      parameters: {{ name: value.name }}
results: {app}.results
dead_letters: {app}.dead
"
    );
    let secret = work.join("secret");
    std::fs::write(&secret, SECRET).expect("writes");
    let contract = CONTRACT.replace("BASE", base).replace("SECRET_FILE", secret.to_str().expect("text"));
    written(work, &graph, [("jobs", contract)])
}

/// Posts a webhook as `secret` signs it, at a time this far from now; the status of the answer.
fn post(address: &str, secret: &str, seconds: i64, body: &Value) -> Option<u16> {
    let (body, at) = (body.to_string(), SystemClock.now().wall.0 / 1_000 + seconds);
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
    mac.update(format!("{at}.{body}").as_bytes());
    let signature: String = mac.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect();
    let mut to = TcpStream::connect(address).ok()?;
    write!(
        to,
        "POST /webhooks/jobs HTTP/1.1\r\nHost: readback\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Stripe-Signature: t={at},v1={signature}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    to.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

fn says(kind: &str, key: &str) -> Value {
    json!({ "type": kind, "job": { "ref": key, "id": format!("j-{}", &key[..8]) } })
}

fn address(member: &Running) -> String {
    until("it listens", || {
        let said = member.said();
        let rest = said.split("listens=").nth(1)?;
        Some(rest.split_whitespace().next()?.to_owned())
    })
}

/// If this broke, a webhook would end an operation that its target did not finish, be lost with a 2xx, or be lost because it came to
/// another member than the operation's owner, or before the answer to its call.
#[test]
fn a_target_tells_by_itself_how_its_work_ended() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("webhooks-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let jobs: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
    let told_early: Arc<Mutex<Option<String>>> = Arc::default();
    let (books, early) = (jobs.clone(), told_early.clone());
    let base = serve(move |asked| {
        let (name, key) = (asked.text("name").to_owned(), asked.text("ref").to_owned());
        lock(&books).entry(name.clone()).or_default().push(key.clone());
        if name == "early" {
            let to = lock(&early).clone().expect("both listen");
            assert_eq!(post(&to, SECRET, 0, &says("job.done", &key)), Some(200));
            // The owner has long folded it when the answer comes.
            std::thread::sleep(Duration::from_millis(500));
        }
        reply(202, json!({ "status": "accepted" }))
    });
    let topology = topology(work.path(), &app, &base);
    let more = [("READBACK_WEBHOOKS__LISTEN", "127.0.0.1:0")];
    let mut members: Vec<Running> = ["one", "two"]
        .iter()
        .enumerate()
        .map(|(n, name)| Running::numbered(n as u32, &topology, &work.path().join(name), name, &more))
        .collect();
    members.iter_mut().for_each(Running::until_running);
    // All is told to one member, wherever the operation lives.
    let to = address(&members[1]);
    *told_early.lock().expect("no panic") = Some(to.clone());

    let names = ["a", "b", "c", "d", "e", "failed", "silent", "early"];
    for name in names {
        put(&app, &json!({ "id": name, "name": name, "until": within(Duration::from_secs(600)) }));
    }
    let places: std::collections::BTreeSet<_> = names.iter().map(|n| partition_of(n.as_bytes(), 4)).collect();
    assert!(places.len() > 2, "they lie with both members");
    until("all of them have an answer", || {
        let found = listed(&app);
        names
            .iter()
            .all(|n| found.get(*n).is_some_and(|o| o["status"] == if *n == "early" { "confirmed" } else { "unknown" }))
            .then_some(())
    });
    let key = |name: &str| lock(&jobs)[name][0].clone();

    // Forged, late, and about something else: refused or ignored, and nothing changes.
    assert_eq!(post(&to, "a guess", 0, &says("job.done", &key("a"))), Some(401));
    assert_eq!(post(&to, SECRET, -1_000, &says("job.done", &key("a"))), Some(401));
    assert_eq!(post(&to, SECRET, 0, &says("job.started", &key("a"))), Some(200));
    assert_eq!(post(&to, SECRET, 0, &says("job.done", "00000000-0000-4000-8000-000000000000")), Some(200), "nobody's");
    assert_eq!(post(&to, SECRET, 0, &json!({ "type": "job.done", "job": {} })), Some(422));

    let done = ["a", "b", "c", "d", "e"];
    for name in done {
        // Twice, as targets do that have not heard the answer; and once more at the other member.
        for at in [&to, &to, &address(&members[0])] {
            assert_eq!(post(at, SECRET, 0, &says("job.done", &key(name))), Some(200));
        }
    }
    assert_eq!(post(&to, SECRET, 0, &says("job.failed", &key("failed"))), Some(200));
    until_status(&app, "failed", "refused");
    until("what was done is confirmed", || {
        let found = listed(&app);
        done.iter().all(|n| found[*n]["status"] == "confirmed" && found[*n]["code"].is_null()).then_some(())
    });

    // The member that took it dies right after: what it has answered is in Kafka.
    assert_eq!(post(&to, SECRET, 0, &says("job.done", &key("silent"))), Some(200));
    drop(members.pop());
    until_status(&app, "silent", "confirmed");

    let posts: Vec<usize> = jobs.lock().expect("no panic").values().map(Vec::len).collect();
    assert_eq!(posts, vec![1; names.len()], "no webhook is a reason to send again");
    assert_eq!(listed(&app).len(), names.len());
    assert_eq!(members[0].terminate().code(), Some(0), "{}", members[0].said());
}
