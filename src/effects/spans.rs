//! The spans of calls: each attempt and each readback of an operation that is sampled, as children of the operation's own. Method, path
//! as the contract has it, status and what we read into it; no query, no header, no body.

use serde::Deserialize;

use crate::http::{Finished, Wire, host_of};
use crate::intents::{Pair, RenderedRequest, headers};
use crate::trace::{Span, SpanKind, TraceContext, Tracer};

use super::config::CallSpec;
use super::dispatch::{PendingCall, PendingRead};
use super::fold::{Outcome, Verdict};
use super::metrics::{answer_word, verdict_word};

/// Whose child a call's span is, and what tells it from its siblings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// The operation's own context.
    pub parent: TraceContext,
    /// Among its children.
    pub id: String,
}

/// Tells the target which span it is called from, where targets are told and the contract says nothing of its own.
pub(super) fn tell(tracer: &Tracer, traced: Option<&Traced>, request: &mut RenderedRequest) {
    let Some(traced) = traced.filter(|_| tracer.propagates()) else { return };
    if !request.headers.iter().any(|h| h.name.eq_ignore_ascii_case(headers::TRACEPARENT)) {
        let value = traced.parent.child(&traced.id).to_string();
        request.headers.push(Pair { name: headers::TRACEPARENT.to_owned(), value });
    }
}

/// An attempt is over.
pub(super) fn called(p: &PendingCall, f: &Finished, outcome: &Outcome) -> Option<Span> {
    let traced = p.trace.as_ref()?;
    let name = format!("{} {}", p.request.method, p.spec.path);
    let span = exchange(traced, &p.spec, name, &p.request.method, &p.spec.path, f)
        .about(&p.key)
        .with("readback.attempt", i64::from(p.attempt))
        .with("readback.answer", answer_word(outcome.said.class));
    Some(if p.proposal { model(span, p, f) } else { span })
}

/// A readback, or a look at the resource's version, is over.
pub(super) fn read(p: &PendingRead, f: &Finished, method: &str, verdict: Option<&Verdict>) -> Option<Span> {
    let traced = p.trace.as_ref()?;
    let path = &p.spec.read_path;
    let span = exchange(traced, &p.spec, format!("readback {}", p.spec.name), method, path, f);
    Some(match verdict {
        Some(verdict) => span.with("readback.found", verdict_word(verdict)),
        None => span,
    })
}

fn exchange(traced: &Traced, spec: &CallSpec, name: String, method: &str, path: &str, f: &Finished) -> Span {
    let span = Span::of(traced.parent, &traced.id, SpanKind::Client, name, f.began, f.ended)
        .with("http.request.method", method.to_owned())
        .with("url.template", path.to_owned())
        .with("server.address", host_of(&spec.to.base_url).unwrap_or_default())
        .with("readback.call", spec.name.clone());
    match &f.wire {
        Wire::Answered(answer) if answer.status < 400 => span.with("http.response.status_code", i64::from(answer.status)),
        Wire::Answered(answer) => {
            let span = span.with("http.response.status_code", i64::from(answer.status));
            Span { failed: Some("".into()), ..span.with("error.type", answer.status.to_string()) }
        }
        Wire::NotSent(why) => Span { failed: Some(why.label().into()), ..span.with("error.type", why.label()) },
        Wire::MaybeSent(why) => Span { failed: Some(why.clone().into()), ..span.with("error.type", "maybe_sent") },
    }
}

/// What the conventions for generative AI ask of a model call: names and counts. Prompt and proposal stay out.
fn model(span: Span, p: &PendingCall, f: &Finished) -> Span {
    #[derive(Deserialize, Default)]
    struct Asked {
        model: Option<String>,
    }
    #[derive(Deserialize, Default)]
    struct Said {
        model: Option<String>,
        usage: Option<Usage>,
    }
    #[derive(Deserialize)]
    struct Usage {
        #[serde(alias = "prompt_tokens")]
        input_tokens: Option<i64>,
        #[serde(alias = "completion_tokens")]
        output_tokens: Option<i64>,
    }
    let asked: Asked = serde_json::from_slice(p.request.body.as_deref().unwrap_or_default()).unwrap_or_default();
    let said: Said = match &f.wire {
        Wire::Answered(answer) => serde_json::from_slice(&answer.body).unwrap_or_default(),
        _ => Said::default(),
    };
    let host = host_of(&p.spec.to.base_url).unwrap_or_default();
    let provider = [("openai", "openai"), ("anthropic", "anthropic"), ("googleapis", "gcp.gen_ai"), ("mistral", "mistral_ai")];
    let provider = provider.iter().find(|(part, _)| host.contains(part)).map_or(p.spec.target.as_str(), |(_, name)| name);
    let asked = asked.model.filter(|m| is_name(m));
    let name = asked.as_ref().map_or_else(|| "chat".to_owned(), |m| format!("chat {m}"));
    let mut span = Span { name, ..span }.with("gen_ai.operation.name", "chat").with("gen_ai.provider.name", provider.to_owned());
    for (name, model) in [("gen_ai.request.model", asked), ("gen_ai.response.model", said.model.filter(|m| is_name(m)))] {
        if let Some(model) = model {
            span = span.with(name, model);
        }
    }
    if let Some(usage) = said.usage {
        for (name, tokens) in
            [("gen_ai.usage.input_tokens", usage.input_tokens), ("gen_ai.usage.output_tokens", usage.output_tokens)]
        {
            if let Some(tokens) = tokens {
                span = span.with(name, tokens);
            }
        }
    }
    span
}

/// A model's name, and nothing that somebody put in its place.
fn is_name(text: &str) -> bool {
    text.len() <= 80 && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:/@".contains(c))
}
