//! The evidence of one operation: timeline, attempts, readbacks, what decided about it, facts, commands.

use maud::{Markup, html};

use crate::admin::evidence::timeline::Step;
use crate::admin::evidence::{Compensation, Denier, denier, policy};
use crate::admin::views::Seen;
use crate::console::shown::{Operation, Spent};
use crate::ids::{OperationId, OperationKey, StepName};
use crate::intents::{Cost, Decided, Deed, PolicyWord, Via};
use crate::outbox::Pipeline;
use crate::time::WallTime;

use super::{View, layout, link};

/// A line of the timeline. One whose time is not recorded has none.
pub fn line(step: &Step) -> Markup {
    html! { li {
        @match step.at { Some(at) => (layout::moment(at)), None => time { "" } }
        b { (step.label.replace('_', " ")) } span { (step.text) }
    } }
}

/// Where its model call stands, with what keeps it there: without it there is no plan.
pub fn model_call(o: &Operation, key: &OperationKey) -> Markup {
    html! {
        @if let Some(m) = &o.model_call {
            @let of = OperationKey { operation: OperationId::new(&m.operation), step: StepName::new(&m.step), ..key.clone() };
            div.notice {
                p {
                    "Its plan comes of the model call " a href=(link(&of)) { (m.operation) } ": " (layout::pill(&m.status))
                    @if let Some(detail) = &m.detail { " " (detail) }
                    @if let Some(code) = &m.code { " " (layout::code_mark(code)) }
                }
            }
        }
    }
}

/// What undoes it, and what of the undoing of its plan waits for a person.
pub fn undoing(o: &Operation, key: &OperationKey) -> Markup {
    let waiting = || o.undoing.iter().filter(|u| u.waits_for_a_person());
    let to =
        |u: &Compensation| OperationKey { operation: OperationId::new(&u.operation), step: StepName::new(&u.step), ..key.clone() };
    html! {
        @for u in o.undone_by.iter().chain(waiting()) {
            div.notice { p { (layout::pill(&u.status)) " " (u.words) ": " a href=(link(&to(u))) { (u.operation) } } }
        }
    }
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
    let approval = o.approval.as_ref().map(|a: &Spent| {
        html! {
            (a.approver) " (" (beside(o, a)) "), binds " span.mono { (a.plan_hash) } ", until " (layout::moment(WallTime(a.expires_at)))
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

/// How the name of an approver is known: as the decision came that is theirs.
fn beside(o: &Operation, a: &Spent) -> &'static str {
    let of = |d: &&crate::admin::evidence::Decision| d.deed == Deed::Approve && d.by == a.approver;
    Via::beside(o.decisions.iter().rfind(of).and_then(|d| d.via))
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
            (denied(seen))
            dt { "policy" } dd { (policy_words(pipeline, seen)) }
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

fn cost(c: Cost) -> String {
    let of = |n: i64, word: &str| format!("{} {word}{}", layout::grouped(n), if n == 1 { "" } else { "s" });
    [of(c.tokens, "token"), of(c.bytes, "byte"), of(c.tool_calls, "call")].join(", ")
}

/// What policy said, as it is recorded: at the hand-over, and at the latest look before a send.
fn policy_words(pipeline: Option<&Pipeline>, seen: &Seen) -> Markup {
    let name = pipeline.map(|p| p.effect.policy.as_deref());
    let before_hand_over = seen.record.as_ref().and_then(|r| r.policy.as_ref());
    let before_send = seen.ledger.as_ref().and_then(|l| l.policy.as_ref());
    html! {
        @match name {
            Some(Some(name)) => { (name) ": " },
            Some(None) => "none is declared now. ",
            None => {},
        }
        @if let Some(said) = before_hand_over { (said_words(said, "before the hand-over")) }
        @if let Some(said) = before_send { " " (said_words(said, "before the latest send")) }
        @if policy(seen).is_none() && name != Some(None) {
            @if seen.ledger.is_some() { "what it said when it was handed over is not recorded; it is asked again right before every send" }
            @else { "is asked before the hand-over; no answer is recorded" }
        }
    }
}

fn said_words(said: &PolicyWord, when: &str) -> Markup {
    html! {
        @if said.allowed { "allowed it " } @else { strong { "said no " } }
        (when) ", " (layout::moment(said.at))
        @if let Some(version) = &said.version { ", version " span.mono { (version) } }
        ". "
    }
}

/// Whose no it was, where it ended by one.
fn denied(seen: &Seen) -> Markup {
    html! {
        @match denier(seen) {
            None => {},
            Some(Denier::Person(d)) => { dt { "denied by" } dd { (decided_words(d)) } },
            Some(Denier::Policy(_)) => { dt { "denied by" } dd { "policy; its words stand above" } },
            Some(Denier::Other) => { dt { "denied" } dd { "neither by a person's order nor by policy, as far as is recorded; code and words stand above" } },
        }
    }
}

fn decided_words(d: &Decided) -> Markup {
    html! {
        (d.who()) " (" (Via::beside(d.via)) "), " (layout::moment(d.at))
        @if !d.reason.is_empty() { ": " (d.reason) }
    }
}
