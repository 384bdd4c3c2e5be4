//! Forms of orders: what each binds to, what it must say, and whether this person may.

use maud::{Markup, html};

use crate::admin::orders::plan_hash;
use crate::admin::views::Seen;
use crate::console::act::Action;
use crate::console::shown::settles_at;
use crate::effects::{LedgerRecord, Phase};
use crate::ids::OperationKey;
use crate::intents::{REASON_KEPT, Resolution, Status};
use crate::time::WallTime;

use super::{View, Visitor, layout, link};

/// Everything that may be ordered about an operation as it stands.
pub fn orders(view: &View<'_>, key: &OperationKey, seen: &Seen) -> Markup {
    let actions: Vec<Action> = Action::ALL.into_iter().filter(|a| applies(*a, seen)).collect();
    html! {
        @if actions.is_empty() { p.soft { "Nothing can be ordered about it now." } }
        div.orders { @for action in &actions { (one(view, key, seen, *action)) } }
    }
}

/// Approve and deny.
pub fn decisions(view: &View<'_>, key: &OperationKey, seen: &Seen) -> Markup {
    html! { @for action in [Action::Approve, Action::Deny] { (one(view, key, seen, action)) } }
}

/// Whether an order has a meaning where the operation stands; whether it is allowed there is the member's to say.
pub fn applies(action: Action, seen: &Seen) -> bool {
    let awaiting = seen.status() == Some(Status::AwaitingApproval);
    let Some(l) = seen.ledger.as_ref().filter(|l| l.phase != Phase::Held) else {
        let live = seen.status().is_some_and(|s| !s.is_end());
        return match action {
            Action::Approve | Action::Deny => awaiting,
            Action::Cancel => live,
            _ => false,
        };
    };
    let approvable = |l: &LedgerRecord| l.phase != Phase::Ended && l.approval.is_some() && l.plan_hash.is_some();
    match action {
        Action::Resolve(_) => matches!(l.phase, Phase::InFlight | Phase::Unknown | Phase::Parked),
        Action::Force => l.phase == Phase::Parked,
        Action::Approve => approvable(l) && (l.revoked || l.phase == Phase::Parked),
        Action::Deny => approvable(l) && !l.revoked,
        Action::Cancel => l.phase != Phase::Ended && !l.cancelled,
        Action::ReleaseLane => l.phase == Phase::Parked && !l.lane_released,
    }
}

fn words(action: Action, seen: &Seen) -> (&'static str, &'static str) {
    let handed_over = seen.ledger.is_some();
    match action {
        Action::Resolve(Resolution::Applied) => ("It exists", "You have looked at the target: the effect is there."),
        Action::Resolve(Resolution::NotApplied) => ("It does not exist", "You have looked at the target: the effect is not there."),
        Action::Force => (
            "Send once more",
            "One more send, by your order. Before settle what has left may still arrive: then there are two effects.",
        ),
        Action::Approve if handed_over => ("Approve again", "Renews an approval that has run out or was taken back."),
        Action::Approve => ("Approve", "The plan that is shown may be executed, once."),
        Action::Deny if handed_over => ("Take the approval back", "No further send."),
        Action::Deny => ("Deny", "The operation ends: nothing is sent."),
        Action::Cancel => ("Cancel", "No further send. What has happened stays happened."),
        Action::ReleaseLane => ("Release the lane", "The operations behind this one go on."),
    }
}

fn one(view: &View<'_>, key: &OperationKey, seen: &Seen, action: Action) -> Markup {
    let (title, about) = words(action, seen);
    let id = format!("{}-{}", action.word(), key.operation);
    html! {
        section.card data-key=(id) aria-label=(title) {
            h3 { (title) }
            p.soft { (about) }
            @match view.visitor {
                Visitor::Anyone => p.soft { "Nobody can sign in here: it is read-only." },
                Visitor::Known { person, .. } if !person.is(action.roles()) => {
                    p.soft { "It takes the role " (action.roles().iter().map(|r| r.word()).collect::<Vec<_>>().join(" or ")) "." }
                }
                Visitor::Known { .. } => (fields(view, key, seen, action, &id, title)),
            }
        }
    }
}

/// How the second person proves themself: by a token of theirs here and now, or signed in on their own.
fn second(view: &View<'_>) -> Markup {
    html! {
        @if view.console.people.is_some() {
            label { "Second person's token (before settle two must agree); without it the order waits for them to sign in and confirm it"
                input type="password" name="second_token" autocomplete="off"; }
        } @else {
            p.soft { "Before settle two must agree: your order waits fifteen minutes for a second person to confirm it here." }
        }
        input type="hidden" name="ask_second" value="yes";
    }
}

/// Orders about this operation that wait for a second person.
pub fn waiting(view: &View<'_>, key: &OperationKey, seen: &Seen) -> Markup {
    let all = view.console.waiters.list(view.console.now(), |w| w.is_of(key) && w.seen == seen.version());
    html! {
        @for w in &all {
            section.card aria-label="Waits for a second person" {
                h3 { "Waits for a second person: " (w.action.replace('_', " ")) }
                p { (w.by) " orders it on version " (w.seen) ", until " (layout::moment(WallTime(w.until))) "." }
                p { "Reason: " (w.reason) @if let Some(at) = &w.evidence { ". Looked at: " (at) } }
                @match view.visitor {
                    Visitor::Known { person, .. } if w.is_by(person) => p.soft { "Somebody else must confirm it." },
                    Visitor::Known { person, .. } if w.action().is_some_and(|a| person.is(a.roles())) => {
                        form.order method="post" action=(link(key)) {
                            (view.form_token())
                            input type="hidden" name="action" value="confirm";
                            input type="hidden" name="command" value=(w.command);
                            label { "Why you agree (kept beside the decision)" input name="reason" required maxlength="200" autocomplete="off"; }
                            button.danger { "Confirm" }
                        }
                    }
                    _ => p.soft { "You may not confirm it." },
                }
            }
        }
    }
}

fn fields(view: &View<'_>, key: &OperationKey, seen: &Seen, action: Action, id: &str, title: &str) -> Markup {
    let now = view.console.now();
    let hash = plan_hash(seen).filter(|_| matches!(action, Action::Approve | Action::Deny));
    let settled = seen.ledger.as_ref().is_some_and(|l| l.clean() || settles_at(l).is_some_and(|at| at <= now));
    html! {
        form.order method="post" action=(link(key)) {
            (view.form_token())
            input type="hidden" name="action" value=(action.word());
            input type="hidden" name="command" value=(uuid::Uuid::new_v4().to_string());
            @if action.compares() { input type="hidden" name="seen" value=(seen.version()); }
            @if let Some(hash) = &hash { input type="hidden" name="plan_hash" value=(hash); }
            label for={ (id) "-reason" } { "Reason (kept beside the decision, its first " (REASON_KEPT) " characters)"
                input id={ (id) "-reason" } name="reason" required maxlength="2000" autocomplete="off"; }
            @if matches!(action, Action::Resolve(_)) {
                label { "What you looked at: a link or reference" input name="evidence" maxlength="2000" autocomplete="off"; }
            }
            @if action == Action::Approve {
                label { "May be used for" input name="expires" value="30m" pattern="[0-9.]+ ?(s|m|min|h|d)"; }
            }
            @if action.takes_second() && !settled { (second(view)) }
            p.soft {
                @if action.compares() { "Binds to version " (seen.version()) } @else { "Binds to the operation, whatever its version" }
                @if let Some(hash) = &hash { ", plan " span.mono { (hash) } }
            }
            @if matches!(action, Action::Force | Action::Deny | Action::Cancel) { button.danger { (title) } } @else { button { (title) } }
        }
        @if action.takes_second() && settled { p.soft { "It has settled: one person decides." } }
        @if let Some(l) = seen.ledger.as_ref().filter(|_| action.takes_second() && !settled) {
            @match settles_at(l) {
                Some(at) => p.soft { "Settles at " (layout::moment(at)) "." },
                None => p.soft { "Nothing bounds when what has left may arrive: two people are needed always." },
            }
        }
    }
}
