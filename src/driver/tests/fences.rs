//! Services that refuse by themselves: one that makes one document under an ID, and one that looks at the age of a request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::error::codes;
use crate::intents::Status;

const DOCUMENTS: &str = r#"contract: documents
version: 1
verified_on: 2026-11-30
target:
  base_url: https://documents.internal
  hosts: [documents.internal]

calls:
  put:
    parameters:
      text: { type: string, max_length: 100 }
    request: { method: PUT, path: "/documents/{key}", json: { text: "{text}" } }
    key: { carrier: url }
    fence: { create: { exists: 409 } }
    readback:
      request: { method: GET, path: "/documents/{key}" }
      absent: 404
      complete: "true"
      ours: body.id == key && body.text == text
      same_key: body.id == key
      lag: 1s
    answers:
      - { status: 201, means: applied }
      - { status: [400, 403], means: rejected }
"#;

/// One document, whatever the ID: there is one operation.
#[derive(Default)]
struct Documents {
    there: Option<Value>,
    puts: Vec<RenderedRequest>,
    /// So many answers to a PUT get lost, after it was done.
    lose: usize,
    /// So many reads are answered with 503.
    blind: usize,
}

impl Documents {
    fn serve(&mut self, request: &RenderedRequest) -> Scripted {
        let id = request.path.rsplit('/').next().unwrap().to_owned();
        if request.method == "GET" {
            if self.blind > 0 {
                self.blind -= 1;
                return says(503, &json!({}));
            }
            return self
                .there
                .as_ref()
                .map_or_else(|| says(404, &json!({})), |d| says(200, &json!({ "id": id, "text": d["text"] })));
        }
        self.puts.push(request.clone());
        let taken = self.there.is_some();
        if !taken {
            self.there = Some(body(request));
        }
        if self.lose > 0 {
            self.lose -= 1;
            return Scripted::Lost;
        }
        if taken { says(409, &json!({})) } else { says(201, &json!({})) }
    }
}

fn put(service: Documents) -> (ResultRecord, Documents) {
    let service = Arc::new(Mutex::new(service));
    let mut driver = application(DOCUMENTS, "put");
    let there = Arc::clone(&service);
    driver.serve(move |_, request| there.lock().unwrap().serve(request));
    ask(&mut driver, &parameters("op-1", None, &json!({ "text": "ours" })));
    driver.advance(Duration::from_secs(120)).unwrap();
    let last = states(&mut driver).pop().unwrap();
    drop(driver);
    (last, std::mem::take(&mut service.lock().unwrap()))
}

/// If this broke, a document whose answer is lost would wait for a person, although the service itself refuses a second one; or be
/// called refused when it is.
#[test]
fn a_lost_create_is_sent_again_and_the_taken_id_is_known_as_ours() {
    let (last, service) = put(Documents { lose: 1, blind: 2, ..Documents::default() });
    assert_eq!((last.status, last.flags.len()), (Status::Confirmed, 0), "{last:?}");
    assert!(service.puts.len() > 1 && service.puts.iter().all(|p| *p == service.puts[0]), "sent again, with the same bytes");
}

/// If this broke, another's document under the ID would be reported as ours.
#[test]
fn a_taken_id_with_other_content_goes_to_a_person() {
    let (last, service) = put(Documents { there: Some(json!({ "text": "another's" })), ..Documents::default() });
    assert_eq!((last.status, last.code), (Status::Parked, Some(codes::EFFECT_CONFLICT.to_string())));
    assert_eq!(service.puts.len(), 1);
}

/// If this broke, an attempt that the service no longer takes would go to a person, or its successor would leave before that, or carry
/// the old time and be refused for ever.
#[test]
fn an_attempt_that_is_too_old_is_followed_by_a_new_one() {
    let text =
        DOCUMENTS.replace("fence: { create: { exists: 409 } }", "fence: { age: { within: 1m, header: x-sent-at, refused: 412 } }");
    let sent = Arc::new(Mutex::new(Vec::new()));
    let mut driver = application(&text, "put");
    let there = Arc::clone(&sent);
    driver.serve(move |_, request| {
        let mut sent = there.lock().unwrap();
        match (request.method.as_str(), sent.len()) {
            ("GET", 0 | 1) => says(404, &json!({})),
            ("GET", _) => says(200, &json!({ "id": request.path.rsplit('/').next().unwrap(), "text": "ours" })),
            (_, before) => {
                sent.push(request.clone());
                if before == 0 { Scripted::Lost } else { says(201, &json!({})) }
            }
        }
    });
    ask(&mut driver, &parameters("op-1", None, &json!({ "text": "ours" })));
    driver.advance(Duration::from_secs(50)).unwrap();
    assert_eq!(sent.lock().unwrap().len(), 1, "nothing else may leave while the first is taken");
    driver.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(states(&mut driver).pop().unwrap().status, Status::Confirmed);
    let sent = sent.lock().unwrap();
    let at = |i: usize| header(&sent[i], "x-sent-at").unwrap().parse::<i64>().unwrap();
    assert!(sent.len() == 2 && at(1) >= at(0) + 60, "{} and {}", at(0), at(1));
    assert_eq!((&sent[0].path, &sent[0].body), (&sent[1].path, &sent[1].body));
}
