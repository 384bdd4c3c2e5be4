//! Spans of calls over a scripted network.

use std::sync::{Arc, Mutex};

use super::bench::{Bench, intent, rules};
use crate::contract::Confirm;
use crate::effects::Rules;
use crate::http::Wire;
use crate::intents::{Intent, IntentKind};
use crate::trace::{Span, SpanKind, TraceContext, TraceSettings, Tracer, Value};

const OWN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

type Spans = Arc<Mutex<Vec<Span>>>;

fn traced(b: &mut Bench, propagate: bool) -> Spans {
    let spans = Spans::default();
    let kept = spans.clone();
    let settings = TraceSettings { ratio: 0.0, follow: true, propagate };
    b.traced(Tracer::new(&settings, Arc::new(move |span| kept.lock().unwrap().push(span))));
    spans
}

fn of(span: &Span, name: &str) -> Option<String> {
    span.attributes.iter().find(|(n, _)| *n == name).map(|(_, v)| match v {
        Value::Text(text) => text.to_string(),
        Value::Number(n) => n.to_string(),
    })
}

/// If this broke, a call's span would not say how it went or hang elsewhere, a target would not know which span called it, or be told
/// although that is switched off.
#[test]
fn a_call_and_its_readback_are_children_of_the_operation() {
    let mut b = Bench::new(rules());
    let spans = traced(&mut b, true);
    b.outbox(&Intent { traceparent: Some(OWN.into()), ..intent("op-1") });
    b.outbox(&Intent { traceparent: Some(OWN.replace("-01", "-00")), ..intent("op-2") });
    b.commit();
    let told = b.network.header(0, "traceparent").expect("told");
    assert_eq!(b.network.header(1, "traceparent"), None, "not sampled");
    b.network.answer(0, 500, "MARK");
    b.network.answer(1, 201, "order-8");
    b.step();
    b.network.answer_reads(r#"{"ours": 1, "next": null}"#);
    b.step();
    let spans = spans.lock().unwrap();
    let parent = TraceContext::sampled(OWN).unwrap();
    let [call, read] = &spans[..] else { panic!("{spans:?}") };
    assert!(spans.iter().all(|s| s.parent == Some(parent.span) && s.context.trace == parent.trace && s.kind == SpanKind::Client));
    assert_eq!(call.context.to_string(), told);
    assert_eq!((call.name.as_str(), of(call, "http.response.status_code").as_deref()), ("POST /orders", Some("500")));
    assert_eq!((of(call, "readback.answer").as_deref(), call.failed.is_some()), (Some("unknown"), true));
    assert_eq!((read.name.as_str(), of(read, "readback.found").as_deref()), ("readback orders#create", Some("present")));
    assert!(!format!("{spans:?}").contains("MARK") && !format!("{spans:?}").contains("key-op-1"), "{spans:?}");
    drop(spans);

    let mut b = Bench::new(rules());
    let spans = traced(&mut b, false);
    b.outbox(&Intent { traceparent: Some(OWN.into()), ..intent("op-1") });
    b.commit();
    assert_eq!(b.network.header(0, "traceparent"), None, "switched off");
    b.network.end(0, Wire::MaybeSent("no answer in 2 s".into()));
    assert_eq!(of(&spans.lock().unwrap()[0], "error.type").as_deref(), Some("maybe_sent"));
}

/// If this broke, a model call would be traced with its prompt, or without what tells models and their cost apart.
#[test]
fn a_model_call_tells_model_and_tokens_and_no_prompt() {
    let mut b = Bench::new(Rules { confirm: Confirm::Answer, lag: None, duplicates: true, ..rules() });
    let spans = traced(&mut b, true);
    let mut ask = Intent { kind: IntentKind::Proposal, traceparent: Some(OWN.into()), ..intent("op-1.plan") };
    ask.request.body = Some(br#"{"model": "m-2", "messages": [{"role": "user", "content": "MARK"}]}"#.to_vec());
    b.outbox(&ask);
    b.commit();
    b.network.answer(
        0,
        200,
        r#"{"model": "m-2-1124", "choices": ["MARK"], "usage": {"prompt_tokens": 640, "completion_tokens": 172}}"#,
    );
    let spans = spans.lock().unwrap();
    let span = &spans[0];
    let told = ["operation.name", "request.model", "response.model", "usage.input_tokens", "usage.output_tokens", "provider.name"]
        .map(|name| of(span, &format!("gen_ai.{name}")).unwrap_or_default());
    assert_eq!(told, ["chat", "m-2", "m-2-1124", "640", "172", "orders"]);
    assert_eq!(span.name, "chat m-2");
    assert!(!format!("{spans:?}").contains("MARK"), "{spans:?}");
}

/// If this broke, whoever may choose the model's name could write into traces what he likes.
#[test]
fn a_models_name_is_a_name() {
    let mut b = Bench::new(Rules { confirm: Confirm::Answer, lag: None, duplicates: true, ..rules() });
    let spans = traced(&mut b, true);
    let mut ask = Intent { kind: IntentKind::Proposal, traceparent: Some(OWN.into()), ..intent("op-1.plan") };
    ask.request.body = Some(br#"{"model": "my secret is MARK"}"#.to_vec());
    b.outbox(&ask);
    b.commit();
    b.network.answer(0, 200, "no json");
    assert_eq!(spans.lock().unwrap()[0].name, "chat");
    assert!(!format!("{:?}", spans.lock().unwrap()).contains("MARK"));
}
