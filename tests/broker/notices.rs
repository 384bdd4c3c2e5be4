//! A small application whose records become notices, and the notice service as a target that answers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use readback::ids::TopicName;
use readback::kafka::Cluster;
use readback::record::OutRecord;
use readback::time::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::protocol::written;
use crate::{cluster_at, stack};

/// The topology of `app`: `{"id", "until"}` on `<app>.in` is a notice.
pub fn topology(work: &Path, app: &str) -> PathBuf {
    let graph = format!(
        "application: {app}
version: 1
sources:
  notices: {{ topic: {app}.in, key: string, value: json }}
steps:
  - name: notify
    from: notices
    effect:
      contract: contracts/notices.yaml#create
      request:
        operation_id: value.id
        tenant: '\"acme\"'
        requester: '\"service:logistics\"'
        resource: '\"shipment/\" + value.id'
        deadline: timestamp(value.until)
      parameters: {{ shipment: value.id, email: '\"a@b.example\"' }}
results: {app}.results
dead_letters: {app}.dead
"
    );
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/webhook/contracts/notices.yaml");
    written(work, &graph, [("notices", std::fs::read_to_string(contract).expect("reads"))])
}

/// The same, whose target asks for the bearer token in `file`.
pub fn topology_with_token(work: &Path, app: &str, file: &Path) -> PathBuf {
    let credentials = format!(
        "target:\n  credentials: [{{ header: authorization, prefix: \"Bearer \", secret: {{ file: {} }} }}]\n",
        file.display()
    );
    with_contract(work, app, |contract| contract.replacen("target:\n", &credentials, 1))
}

/// The same, whose target may take up to `limit` seconds for an answer.
pub fn topology_with_patience(work: &Path, app: &str, limit: u64) -> PathBuf {
    let (timeout, bound) = (format!("timeout: {limit}s"), format!("bound: {}s", limit + 5));
    with_contract(work, app, |contract| contract.replacen("timeout: 3s", &timeout, 1).replacen("bound: 5s", &bound, 1))
}

fn with_contract(work: &Path, app: &str, change: impl FnOnce(String) -> String) -> PathBuf {
    let dir = topology(work, app);
    let path = dir.join("contracts/notices.yaml");
    let contract = std::fs::read_to_string(&path).expect("reads");
    std::fs::write(&path, change(contract)).expect("writes");
    dir
}

/// Asks for a notice, for an hour.
pub fn ask(app: &str, id: &str) {
    let topic = TopicName::from(format!("{app}.in"));
    let until = SystemClock.now().wall.plus(Duration::from_secs(3_600));
    let value = json!({ "id": id, "until": until.to_string() }).to_string();
    let record = OutRecord {
        topic: &topic,
        partition: None,
        timestamp: None,
        key: Some(id.as_bytes()),
        value: Some(value.as_bytes()),
        headers: None,
    };
    cluster_at(stack().brokers()).publish(&[record], Duration::from_secs(20)).expect("writes");
}

/// The notice service; its books: how often each shipment was posted.
pub struct Service {
    pub url: String,
    posts: Arc<Mutex<Vec<Value>>>,
    /// The bearer token that it wants; whoever comes with another one is refused for good.
    wants: Arc<Mutex<Option<String>>>,
    /// A shipment that it thinks about for so long, once it is in the books.
    slow: Slow,
}

type Slow = Arc<Mutex<Option<(String, Duration)>>>;

impl Service {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let posts = Arc::new(Mutex::new(Vec::new()));
        let (wants, slow) = (Arc::new(Mutex::new(None)), Slow::default());
        let (books, wanted, thinks) = (posts.clone(), wants.clone(), slow.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (books, wanted, thinks) = (books.clone(), wanted.clone(), thinks.clone());
                std::thread::spawn(move || serve(stream, &books, &wanted, &thinks));
            }
        });
        Self { url, posts, wants, slow }
    }
    /// From now on it takes so long over this shipment.
    pub fn is_slow(&self, shipment: &str, over: Duration) {
        *self.slow.lock().expect("no panic") = Some((shipment.to_owned(), over));
    }
    /// From now on it answers nobody without this token.
    pub fn wants(&self, token: &str) {
        *self.wants.lock().expect("no panic") = Some(token.to_owned());
    }
    pub fn posts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for post in self.posts.lock().expect("no panic").iter() {
            *counts.entry(post["shipment"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        counts
    }
}

fn serve(mut stream: TcpStream, books: &Mutex<Vec<Value>>, wants: &Mutex<Option<String>>, slow: &Slow) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    // Small requests: whole once the head is there and as much body as it says.
    while !is_whole(&request) {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let mut books = books.lock().expect("no panic");
    let wanted = wants.lock().expect("no panic").as_ref().map(|token| format!("authorization: bearer {token}"));
    if wanted.is_some_and(|w| !text.lines().any(|l| l.to_lowercase() == w)) {
        let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    let (status, answer) = match text.starts_with("POST") {
        true => {
            books.push(serde_json::from_str(body).expect("JSON"));
            ("201 Created", json!({ "id": format!("n-{}", books.len()) }))
        }
        false => {
            let mine = |post: &&Value| text.contains(post["client_ref"].as_str().unwrap_or("?"));
            let items: Vec<Value> = books
                .iter()
                .filter(mine)
                .map(|p| json!({ "id": "n", "client_ref": p["client_ref"], "shipment": p["shipment"] }))
                .collect();
            ("200 OK", json!({ "items": items, "next": null }))
        }
    };
    drop(books);
    let thinks = slow.lock().expect("no panic").clone().filter(|(shipment, _)| text.starts_with("POST") && body.contains(shipment));
    if let Some((_, over)) = thinks {
        std::thread::sleep(over);
    }
    let answer = answer.to_string();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", answer.len());
    let _ = stream.write_all(format!("{head}Connection: close\r\n\r\n{answer}").as_bytes());
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    body.len() >= length.unwrap_or(0)
}
