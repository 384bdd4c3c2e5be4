//! The evidence of one operation: timeline, attempts, readbacks, what decided about it, facts, commands.

use maud::{Markup, html};

use crate::admin::views::Seen;
use crate::console::shown::{Operation, Step};
use crate::intents::{Cost, Status};
use crate::outbox::Pipeline;
use crate::time::WallTime;

use super::{View, layout};

/// A line of the timeline: what happened stands in its first twelve letters.
pub fn line(step: &Step) -> Markup {
    let (head, rest) = step.what.split_at_checked(12).unwrap_or((&step.what, ""));
    html! { li { (layout::moment(WallTime(step.at))) b { (head.trim()) } span { (rest.trim()) } } }
}

/// All attempts, and the latest readbacks.
pub fn attempts(o: &Operation) -> Markup {
    html! {
        @if !o.attempts.is_empty() {
            h2 { "Attempts" }
            div.scroll tabindex="0" role="region" aria-label="Attempts" { table {
                thead { tr {
                    th.num scope="col" { "n" } th scope="col" { "Journalled" } th scope="col" { "May leave until" } th scope="col" { "Outcome" }
                    th scope="col" { "Warrants" } th scope="col" { "Answer's digest" }
                } }
                tbody { @for a in &o.attempts { tr {
                    td.num { (a.n) }
                    td { (layout::moment(WallTime(a.journalled_at))) br; span.soft.mono { (a.by) } }
                    td { (layout::moment(WallTime(a.send_not_after))) }
                    td { (a.words) @if let Some(at) = a.ended_at { br; (layout::moment(WallTime(at))) } }
                    td { @for w in &a.warrants { div { "attempt " (w.covers) ": " (w.kind.replace('_', " ")) @if let Some(by) = &w.by { " by " (by) } } } }
                    td.mono { (a.digest.as_deref().unwrap_or_default()) }
                } } }
            } }
        }
        @if !o.readbacks.is_empty() {
            h2 { "Readbacks (the last " (o.readbacks.len()) " of " (o.readbacks_started) ")" }
            div.scroll tabindex="0" role="region" aria-label="Readbacks" { table {
                thead { tr { th scope="col" { "At" } th scope="col" { "Found" } th scope="col" { "Digest of the pages" } } }
                tbody { @for r in &o.readbacks { tr {
                    td { (layout::moment(WallTime(r.at))) } td { (r.found) } td.mono { (r.digest.as_deref().unwrap_or_default()) }
                } } }
            } }
        }
    }
}

/// What else is known.
pub fn facts(o: &Operation) -> Markup {
    let text = |v: &Option<String>| v.clone().unwrap_or_default();
    let at = |v: Option<i64>| v.map(|at| layout::moment(WallTime(at))).unwrap_or_default();
    let approval = o.approval.as_ref().map(|a| {
        html! {
            (a.approver) ", binds " span.mono { (a.plan_hash) } ", until " (layout::moment(WallTime(a.expires_at)))
            @if !a.policy_version.is_empty() { ", policy " (a.policy_version) }
        }
    });
    let rows = [
        ("requester", html! { (text(&o.requester)) }),
        ("action", html! { (text(&o.action)) }),
        ("resource", html! { (o.resource) @if let Some(v) = &o.resource_version { " version " (v) } }),
        ("deadline", at(o.deadline)),
        ("approval", approval.unwrap_or_default()),
        ("reference at the target", html! { (text(&o.reference)) }),
        ("evidence", html! { span.mono { (text(&o.evidence)) } }),
        ("flags", html! { (o.flags.join(", ")) }),
        ("unknown since", at(o.unknown_since)),
        ("closed", at(o.closed_at)),
        ("envelope", html! { span.mono { (text(&o.identity_hash)) } }),
        ("plan", html! { span.mono { (text(&o.plan_hash)) } }),
        ("request bytes, SHA-256", html! { span.mono { (text(&o.request_sha256)) } }),
    ];
    html! {
        dl.facts { @for (name, value) in &rows {
            @if !value.0.is_empty() && value.0 != "<span class=\"mono\"></span>" { dt { (name) } dd { (value) } }
        } }
    }
}

/// Commands that were answered.
pub fn commands(o: &Operation) -> Markup {
    html! {
        @if !o.commands.is_empty() {
            h2 { "Commands answered" }
            div.scroll tabindex="0" role="region" aria-label="Commands" { table {
                thead { tr { th scope="col" { "Command" } th scope="col" { "Answer" } } }
                tbody { @for c in &o.commands { tr {
                    td.mono { (c.command) } td { (c.detail) " " @if let Some(code) = &c.code { (layout::code_mark(code)) } }
                } } }
            } }
        }
    }
}

/// Who and what decided: policy, approvals, and the versions of everything that made the request.
pub fn decided(view: &View<'_>, step: &str, seen: &Seen) -> Markup {
    let (record, ledger) = (seen.record.as_ref(), seen.ledger.as_ref());
    let subject = view.console.subject.as_ref();
    let pipeline = subject.and_then(|s| s.application.pipelines.iter().find(|p| p.step.as_str() == step));
    let permissions = record.map(|r| &r.request.required_permissions).or_else(|| ledger.map(|l| &l.required_permissions));
    let versions = [
        ("contract", ledger.filter(|l| !l.contract.is_empty()).map(|l| format!("{}, version {}", l.contract, l.contract_version))),
        ("topology, as declared now", subject.map(|s| format!("version {}", s.application.version))),
        ("prompt, as declared now", pipeline.and_then(|p| p.plan.as_ref()).map(|p| p.prompt_version.clone())),
        ("written for topology", record.and_then(|r| r.request.written_for.topology.clone())),
        ("written for prompt", record.and_then(|r| r.request.written_for.prompt.clone())),
        ("written for tools", record.and_then(|r| r.request.written_for.tools.clone())),
    ];
    html! {
        h2 { "Who and what decided" }
        div.card { dl.facts {
            dt { "policy" } dd { (policy(pipeline, seen)) }
            @if let Some(permissions) = permissions.filter(|p| !p.is_empty()) { dt { "permissions claimed" } dd { (permissions.join(", ")) } }
            @for a in record.iter().flat_map(|r| &r.approvals) {
                dt { @if a.deny { "denial" } @else { "approval" } }
                dd { (a.approver) ", for plan " span.mono { (a.plan_hash) } ", until " (layout::moment(a.expires_at)) ", waits for its plan" }
            }
            @for id in record.iter().flat_map(|r| &r.revoked) { dt { "taken back" } dd.mono { (id) } }
            @for (name, value) in &versions { @if let Some(value) = value { dt { (name) } dd { (value) } } }
            @if let Some(r) = record { dt { "charged" } dd { (cost(r.charged)) } dt { "used" } dd { (cost(r.used)) } }
        } }
    }
}

/// What policy said, as far as it is written down.
fn policy(pipeline: Option<&Pipeline>, seen: &Seen) -> Markup {
    let name = pipeline.map(|p| p.effect.policy.as_deref());
    let denied = seen.status() == Some(Status::Denied);
    html! {
        @match name {
            Some(Some(name)) => { (name) ": " },
            Some(None) => "none is declared: nothing to ask",
            None => {},
        }
        @if name != Some(None) {
            @if denied { "said no; code and words stand above" }
            @else if seen.ledger.is_some() { "allowed it when it was handed over; it is asked again right before every send" }
            @else { "is asked before the hand-over" }
        }
    }
}

fn cost(c: Cost) -> String {
    format!("{} tokens, {} bytes, {} calls", layout::grouped(c.tokens), layout::grouped(c.bytes), layout::grouped(c.tool_calls))
}
