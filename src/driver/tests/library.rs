//! Each ready contract of `topology/contracts` against a target that behaves as that API documents, with the first answer lost.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::contract::{Contract, Promise};
use crate::http::{Done, Finished, HttpPort, Outgoing, Wire};
use crate::ids::CallName;
use crate::intents::Status;
use crate::probe::{Finding, Probe};
use crate::time::{Clock, SystemClock};

/// What the API does by its documents.
#[derive(Clone, Copy)]
struct Api {
    file: &'static str,
    call: &'static str,
    parameters: fn() -> Value,
    /// Where the key comes in.
    key: fn(&RenderedRequest) -> String,
    /// A first call.
    taken: fn() -> (u16, Value),
    /// The same key again: `None` = it does it again.
    again: Option<fn() -> (u16, Value)>,
    /// The list that a readback asks for; the effects so far are given.
    list: fn(&[Value]) -> Value,
}

fn in_header(name: &'static str) -> impl Fn(&RenderedRequest) -> String {
    move |r| header(r, name).unwrap_or_default().to_owned()
}

fn mail() -> Value {
    json!({ "from": "a@example.org", "to": "b@example.org", "subject": "s", "html": "<p>x</p>" })
}

fn no_list(_: &[Value]) -> Value {
    panic!("this API lists nothing by key")
}

const APIS: &[Api] = &[
    Api {
        file: "resend",
        call: "send",
        parameters: mail,
        key: |r| in_header("idempotency-key")(r),
        taken: || (200, json!({ "id": "m-1" })),
        again: Some(|| (200, json!({ "id": "m-1" }))),
        list: no_list,
    },
    Api {
        file: "lettermint",
        call: "send",
        parameters: || json!({ "from": "a@example.org", "to": "b@example.org", "subject": "s", "text": "x" }),
        key: |r| in_header("idempotency-key")(r),
        taken: || (202, json!({ "message_id": "m-1" })),
        again: Some(|| (202, json!({ "message_id": "m-1" }))),
        list: no_list,
    },
    Api {
        file: "emailit",
        call: "send",
        parameters: mail,
        key: |r| in_header("idempotency-key")(r),
        taken: || (201, json!({ "id": "m-1" })),
        again: Some(|| (201, json!({ "id": "m-1" }))),
        list: no_list,
    },
    Api {
        file: "brevo",
        call: "send",
        parameters: mail,
        key: |r| body(r)["headers"]["idempotencyKey"].as_str().unwrap_or_default().to_owned(),
        taken: || (201, json!({ "messageId": "m-1" })),
        again: Some(|| (400, json!({ "code": "duplicate_parameter" }))),
        list: no_list,
    },
    Api {
        file: "telnyx",
        call: "send",
        parameters: || json!({ "from": "+15550001", "to": "+15550002", "text": "x" }),
        key: |r| in_header("idempotency-key")(r),
        taken: || (200, json!({ "data": { "id": "m-1" } })),
        again: Some(|| (200, json!({ "data": { "id": "m-1" } }))),
        list: no_list,
    },
    Api {
        file: "checkout",
        call: "pay",
        parameters: || json!({ "token": "tok_1", "amount": 100, "currency": "EUR", "reference": "r-1" }),
        key: |r| in_header("cko-idempotency-key")(r),
        taken: || (201, json!({ "id": "pay_1", "approved": true })),
        again: Some(|| (201, json!({ "id": "pay_1", "approved": true }))),
        list: no_list,
    },
    Api {
        file: "checkout",
        call: "void",
        parameters: || json!({ "payment": "pay_1" }),
        key: |r| in_header("cko-idempotency-key")(r),
        taken: || (202, json!({ "action_id": "act_1" })),
        again: Some(|| (202, json!({ "action_id": "act_1" }))),
        list: |done| {
            let action = |d: &Value| json!({ "id": "act_1", "type": "Void", "reference": d["key"], "approved": true });
            done.iter().map(action).collect()
        },
    },
    Api {
        file: "adyen",
        call: "pay",
        parameters: || json!({ "account": "a", "method": { "type": "scheme" }, "amount": 100, "currency": "EUR", "reference": "r" }),
        key: |r| in_header("idempotency-key")(r),
        taken: || (200, json!({ "resultCode": "Authorised", "pspReference": "p-1" })),
        again: Some(|| (200, json!({ "resultCode": "Authorised", "pspReference": "p-1" }))),
        list: no_list,
    },
    Api {
        file: "paypal-orders",
        call: "create",
        parameters: || json!({ "amount": "10.00", "currency": "EUR", "invoice": "i-1" }),
        key: |r| in_header("paypal-request-id")(r),
        taken: || (201, json!({ "id": "5O1" })),
        again: Some(|| (200, json!({ "id": "5O1" }))),
        list: no_list,
    },
    Api {
        file: "truelayer",
        call: "pay",
        parameters: || json!({ "amount": 100, "currency": "GBP", "method": { "type": "bank_transfer" }, "user": { "id": "u" } }),
        key: |r| in_header("idempotency-key")(r),
        taken: || (201, json!({ "id": "p-1" })),
        again: Some(|| (201, json!({ "id": "p-1" }))),
        list: no_list,
    },
    Api {
        file: "qonto",
        call: "transfer",
        parameters: || json!({ "beneficiary": "b", "account": "FR76", "reference": "r", "amount": "10.00" }),
        key: |r| in_header("x-qonto-idempotency-key")(r),
        taken: || (200, json!({ "external_transfer": { "id": "t-1" } })),
        again: Some(|| (200, json!({ "external_transfer": { "id": "t-1" } }))),
        list: no_list,
    },
    Api {
        file: "increase",
        call: "transfer",
        parameters: || json!({ "account": "a-1", "to_account": "a-2", "amount": 100, "description": "d" }),
        key: |r| in_header("idempotency-key")(r),
        taken: || (200, json!({ "id": "t-1" })),
        again: Some(|| (409, json!({ "resource_id": "t-1" }))),
        list: |done| {
            let data: Vec<_> =
                done.iter().map(|d| json!({ "id": "t-1", "idempotency_key": d["key"], "amount": d["body"]["amount"] })).collect();
            json!({ "data": data, "next_cursor": null })
        },
    },
    Api {
        file: "github-comments",
        call: "comment",
        parameters: || json!({ "owner": "o", "repo": "r", "issue": 7, "text": "done", "since": "2026-01-01T00:00:00Z" }),
        key: |r| body(r)["body"].as_str().unwrap_or_default().to_owned(),
        taken: || (201, json!({ "id": 17 })),
        again: None,
        list: |done| done.iter().map(|d| json!({ "id": 17, "body": d["body"]["body"] })).collect(),
    },
    Api {
        file: "square",
        call: "pay",
        parameters: || json!({ "source": "cnon:1", "amount": 100, "currency": "USD" }),
        key: |r| body(r)["idempotency_key"].as_str().unwrap_or_default().to_owned(),
        taken: || (200, json!({ "payment": { "id": "p-1" } })),
        again: Some(|| (200, json!({ "payment": { "id": "p-1" } }))),
        list: no_list,
    },
    Api {
        file: "azure-email",
        call: "send",
        parameters: || json!({ "from": "a@example.org", "to": "b@example.org", "subject": "s", "text": "x" }),
        key: |r| in_header("operation-id")(r),
        taken: || (202, json!({ "id": "op", "status": "Running" })),
        again: None,
        list: |done| json!({ "id": done[0]["key"], "status": "Succeeded" }),
    },
    Api {
        file: "counted-webhook",
        call: "notify",
        parameters: || json!({ "event": "order.placed", "payload": { "n": 1 } }),
        key: |r| in_header("webhook-id")(r),
        taken: || (204, Value::Null),
        again: None,
        list: no_list,
    },
    Api {
        file: "plain-webhook",
        call: "deliver",
        parameters: || json!({ "event": "order.placed", "payload": { "n": 1 } }),
        key: |r| in_header("webhook-id")(r),
        taken: || (204, Value::Null),
        again: None,
        list: no_list,
    },
];

/// What really happened there.
#[derive(Default)]
struct Books {
    effects: Vec<Value>,
    sends: usize,
}

impl Api {
    /// The contract as shipped, but for what a test has not: secrets, and an address from outside.
    fn text(&self) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("topology/contracts/{}.yaml", self.file));
        let text = std::fs::read_to_string(path).unwrap().replace("{ env: WEBHOOK_URL }", "http://localhost");
        text.lines().filter(|l| !l.trim_start().starts_with("credentials:")).map(|l| format!("{l}\n")).collect()
    }

    fn contract(&self) -> Contract {
        contract::parse(self.file, &self.text()).unwrap_or_else(|d| panic!("{d}"))
    }

    /// What it answers, and does.
    fn answer(&self, books: &mut Books, request: &RenderedRequest) -> (u16, Value) {
        if request.method == "GET" {
            return (200, (self.list)(&books.effects));
        }
        let key = (self.key)(request);
        assert!(!key.is_empty(), "{}: the key is not where the API looks for it", self.file);
        books.sends += 1;
        let known = books.effects.iter().any(|e| e["key"] == key.as_str());
        match self.again.filter(|_| known) {
            Some(again) => again(),
            None => {
                books.effects.push(json!({ "key": key, "body": body(request) }));
                (self.taken)()
            }
        }
    }

    /// One call; the effect happens, and the first `lost` answers do not come.
    fn run(&self, lost: usize) -> (ResultRecord, Books) {
        let books = Arc::new(Mutex::new(Books::default()));
        let mut driver = application(&self.text(), self.call);
        let (api, there) = (*self, Arc::clone(&books));
        driver.serve(move |_, request| {
            let mut books = there.lock().unwrap();
            let (status, answer) = api.answer(&mut books, request);
            if request.method != "GET" && books.sends <= lost { Scripted::Lost } else { says(status, &answer) }
        });
        ask(&mut driver, &parameters("op-1", None, &(self.parameters)()));
        driver.advance(Duration::from_secs(120)).unwrap();
        let last = states(&mut driver).pop().unwrap();
        drop(driver);
        (last, std::mem::take(&mut books.lock().unwrap()))
    }
}

/// If this broke, a contract that people take as it is could not be read, or would not read the answers that its API documents.
#[test]
fn every_ready_contract_reads_its_apis_answers() {
    let files = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/contracts")).unwrap();
    let shipped = files.flatten().filter(|f| f.path().extension().is_some_and(|e| e == "yaml")).count();
    let tried: std::collections::BTreeSet<_> = APIS.iter().map(|api| api.file).collect();
    assert_eq!(shipped, tried.len(), "each has its simulated target");
    for api in APIS {
        let (last, books) = api.run(0);
        assert_eq!((last.status, books.effects.len(), books.sends), (Status::Confirmed, 1, 1), "{}: {last:?}", api.file);
    }
}

/// If this broke, a lost answer of one of these APIs would charge a card or send a mail twice, or be guessed at.
#[test]
fn a_lost_answer_never_doubles_and_never_guesses() {
    for api in APIS {
        let promise = api.contract().calls[api.call].promise();
        let (last, books) = api.run(1);
        let ends = match (api.file, promise) {
            // Its answer to a known key is an error: it can't be told from other content.
            ("checkout", _) if api.call == "void" => (Status::Confirmed, 1, 1),
            ("brevo", _) => (Status::Parked, 2, 1),
            (_, Promise::AtMostOneKeyedWhile(_)) => (Status::Confirmed, 2, 1),
            (_, Promise::AtMostOneCreated | Promise::AtMostOneFenced(_)) => (Status::Confirmed, 1, 1),
            (_, Promise::DuplicatesCounted) => (Status::Confirmed, 2, 2),
            (_, Promise::AtMostOneReadbackPerson) => (Status::Confirmed, 1, 1),
            (_, Promise::AtMostOnePerson) => (Status::Parked, 1, 1),
            (file, other) => panic!("{file}: {other:?}"),
        };
        assert_eq!((last.status, books.sends, books.effects.len()), ends, "{}: {last:?}", api.file);
    }
}

/// The API as a probe meets it: the call, and the one that undoes it, each with books of its own.
struct Sandbox {
    call: (Api, Mutex<Books>),
    undo: Option<(Api, Mutex<Books>)>,
}

impl Sandbox {
    fn of(api: Api) -> Self {
        let undo = APIS.iter().find(|a| (api.file, api.call, a.file, a.call) == ("checkout", "pay", "checkout", "void"));
        Self { call: (api, Mutex::default()), undo: undo.map(|a| (*a, Mutex::default())) }
    }

    fn asked(&self, request: &RenderedRequest) -> &(Api, Mutex<Books>) {
        let undoes = ["/voids", "/actions"].iter().any(|end| request.path.ends_with(end));
        self.undo.as_ref().filter(|_| undoes).unwrap_or(&self.call)
    }
}

impl HttpPort for Sandbox {
    fn start(&self, call: Outgoing, _: Box<dyn FnOnce() -> bool + Send>, done: Done) {
        let (api, books) = self.asked(&call.request);
        let (status, answer) = api.answer(&mut books.lock().unwrap(), &call.request);
        let Scripted::Answer(answer) = says(status, &answer) else { panic!("an answer") };
        let now = SystemClock.now().wall;
        done(Finished { wire: Wire::Answered(answer), began: now, ended: now, target_date: None });
    }
}

/// If this broke, a probe would call APIs liars that behave as their documents say, or believe the one whose answer to a known key
/// can't be told from a refusal.
#[test]
fn each_api_passes_a_probe_by_what_it_documents() {
    // A sandbox shows at once, so nobody waits here as long as the real API may take. What is only ever polled has no answer to try.
    let soon = |contract: &mut Contract| {
        let readbacks = contract.calls.values_mut().filter_map(|c| c.readback.as_mut());
        readbacks.for_each(|r| r.lag = Duration::from_millis(1));
    };
    let probes: Vec<_> = APIS
        .iter()
        .filter(|api| api.file != "azure-email")
        .map(|api| {
            std::thread::spawn(move || {
                let mut contract = api.contract();
                soon(&mut contract);
                let parameters = Parameters((api.parameters)().as_object().unwrap().clone());
                let probe = Probe::new(&contract, &CallName::new(api.call), parameters, None).unwrap();
                (api, probe.run(&Sandbox::of(*api)).unwrap())
            })
        })
        .collect();
    for thread in probes {
        let (api, report) = thread.join().unwrap();
        assert_eq!(report.claim("applied").unwrap().finding, Finding::Holds, "{}: {report:#?}", api.file);
        // These sandboxes look at nothing but the key: other content and malformed requests are not what they show.
        for name in ["absent", "readback", "lag", "ours", "dedupe", "dedupe answer", "at once", "compensate", "retry-after"] {
            let broken = report.claim(name).is_some_and(|c| c.finding == Finding::DoesNotHold);
            let documented = api.file == "brevo" && name == "dedupe answer";
            assert_eq!(broken, documented, "{} {name}: {report:#?}", api.file);
        }
        if (api.file, api.call) == ("checkout", "pay") {
            assert_eq!(report.claim("compensate").unwrap().finding, Finding::Holds, "{report:#?}");
        }
    }
}

/// If this broke, a payment that was cancelled too late would be voided under another's number, or not at all.
#[test]
fn a_ready_contract_undoes_by_what_the_answer_showed() {
    let api = APIS.iter().find(|api| api.file == "checkout" && api.call == "pay").unwrap();
    let contract = api.contract();
    let (pay, void) = (&contract.calls["pay"], &contract.calls["void"]);
    let Value::Object(given) = (api.parameters)() else { panic!("an object") };
    let undo = pay.undone_by(void, &Parameters(given), &"k-1".into(), Some("pay_1")).unwrap();
    assert_eq!((undo.request.method.as_str(), undo.request.path.as_str()), ("POST", "/payments/pay_1/voids"));
    assert_eq!(body(&undo.request)["reference"], undo.wire_key.as_str());
}
