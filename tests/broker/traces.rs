//! One request through model, plan, effect and readback, told as one trace.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use readback::demo::cases::{Case, Class, Fault};
use readback::demo::files::write_orders;
use readback::demo::target::Target;
use readback::ids::TopicName;
use readback::intents::WorkRequest;
use readback::kafka::Cluster as _;
use readback::record::{Headers, OutRecord};
use readback::registry::{Ensure, Registry, RegistryAuth};
use readback::serdes::internal::{self, Wire};
use readback::time::{Clock, SystemClock};

use crate::collector::Collector;
use crate::processes::Running;
use crate::{shared, stack, until};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|a| a.key == name).and_then(|a| a.value.as_ref());
    found.map(|v| format!("{v:?}")).unwrap_or_default()
}

/// If this broke, nobody could see in a trace what became of a request, its parts would be strewn over several traces, or prompts,
/// parameters and keys would lie about in the collector's store.
#[test]
fn one_request_is_one_trace_from_admission_to_the_end_and_holds_no_payload() {
    let shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    let mut case = Case { index: 7, class: Class::Plain, fault: Fault::None, quantity: 3 };
    let target = tokio.block_on(Target::start(&[case.clone()], Duration::from_secs(2))).expect("a target");
    let prefix = format!("traces-{}.", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let topology = write_orders(work.path(), &prefix, &target.url).expect("a topology");
    let collector = Collector::start();
    let more = [
        ("READBACK_TRACES__ENDPOINT", collector.endpoint.as_str()),
        ("READBACK_TRACES__SAMPLE", "0"),
        ("OTEL_SERVICE_NAME", "orders-test"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-token=MARK-COLLECTOR"),
    ];
    let mut member = Running::with(&topology, &work.path().join("state"), "member", &more);
    member.until_running();

    let topic = TopicName::from(format!("{prefix}agent.requests"));
    let registry = Registry::new(stack().registry(), RegistryAuth::None).expect("a registry");
    let id = registry.ensure(&format!("{topic}-value"), WorkRequest::AVSC, Ensure::Register).expect("a schema");
    let now = SystemClock.now().wall;
    let mut ask = |index: usize, headers: &Headers| {
        case.index = index;
        let value = internal::frame(id, &internal::encode(&case.request(now, 1)).expect("encodes"));
        let key = case.operation();
        let record = OutRecord {
            topic: &topic,
            partition: None,
            timestamp: None,
            key: Some(key.as_str().as_bytes()),
            value: Some(&value),
            headers: Some(headers).filter(|h| !h.is_empty()),
        };
        shared.cluster.publish(&[record], Duration::from_secs(20)).expect("published");
    };
    ask(7, &Headers::new().with("traceparent", CALLER).with("x-unknown", "kept"));
    // Nobody asks for this one.
    ask(8, &Headers::new());

    let ended = |spans: &[(String, Span)]| spans.iter().any(|(_, s)| s.name == "operation place-order");
    until("the operation has ended", || ended(&collector.got().spans).then_some(()));
    until("the other one, too", || (target.books().orders.len() == 2).then_some(()));
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());

    let got = collector.got();
    let named = |name: &str| {
        let mut all = got.spans.iter().filter(|(_, s)| s.name == name);
        let found = all.next().unwrap_or_else(|| panic!("no span {name} in {:?}", got.spans));
        assert!(all.next().is_none(), "{name} twice");
        &found.1
    };
    let first = named(&format!("process {topic}"));
    assert_eq!(readback::intents::hex(&first.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(readback::intents::hex(&first.parent_span_id), "b7ad6b7169203331");
    let children = ["chat m-2", "plan place-order", "POST /orders", "readback orders#create", "operation place-order"];
    for name in children {
        let span = named(name);
        assert_eq!(span.parent_span_id, first.span_id, "{name}");
        assert_eq!(span.trace_id, first.trace_id, "{name}");
        assert!(attribute(span, "error.type").is_empty(), "{span:?}");
    }
    assert_eq!(got.spans.len(), children.len() + 1, "and none of the other request: {:?}", got.spans);
    assert!(got.spans.iter().all(|(service, _)| service.contains("orders-test")));
    let call = named("POST /orders");
    assert!(attribute(call, "http.response.status_code").contains("201"), "{call:?}");
    let model = named("chat m-2");
    assert!(attribute(model, "gen_ai.usage.input_tokens").contains("640"), "{model:?}");
    assert!(attribute(named("operation place-order"), "readback.status").contains("confirmed"));
    assert!(attribute(named("readback orders#create"), "readback.found").contains("present"));

    assert!(got.heads.contains("x-collector-token: mark-collector"), "{}", got.heads);
    let bytes = String::from_utf8_lossy(&got.bytes);
    let order = target.books().orders.remove(0);
    for secret in [&case_sku(7), "pieces", "want", "You ", "MARK-COLLECTOR", order.client_ref.as_str(), order.id.as_str()] {
        assert!(!bytes.contains(secret), "{secret} is in a trace");
    }
    crate::wire::delete_topics_of(&prefix);
}

fn case_sku(index: usize) -> String {
    Case { index, class: Class::Plain, fault: Fault::None, quantity: 1 }.sku()
}
