//! Rows of targets that tell by themselves what became of an accepted call.

use super::bench::{rules, said, sec};
use super::decide::{facts, one, out, queued, read, rest, run, send, t};
use crate::contract::{Completion, Confirm, Retention};
use crate::effects::{Action, AttemptState, Event, Phase, Rule, Rules, decide, fold};
use crate::error::codes;
use crate::intents::{AckLevel, AnswerClass, Flag, Status};

/// Nothing but the webhook tells: it may come for two minutes.
fn told() -> Rules {
    Rules { completion: Completion::Webhook, confirm: Confirm::Answer, webhook: Some(sec(120)), lag: None, ..rules() }
}

fn hook(class: AnswerClass) -> Event {
    Event::Webhook { said: said(0, "the key", class), burned: Vec::new() }
}

/// If this broke, an accepted call would be taken for done, or parked while its webhook may still come, or never be given up.
#[test]
fn an_accepted_call_waits_for_its_webhook() {
    let rules = told();
    let mut r = run(&rules, &[(1, out(1, AnswerClass::InProgress))]);
    assert_eq!((r.phase, r.end), (Phase::Unknown, None));
    // Journalled at 0: window 5, cut 2, pause 2, within 120.
    assert_eq!(decide(&r, &facts(), &rules, t(2)), Action::Wait(Some(t(129))));
    rest(&mut r, &rules, t(129));
    assert_eq!((r.phase, r.code), (Phase::Parked, Some(i32::from(codes::UNPROVABLE.0))));
    fold(&mut r, hook(AnswerClass::Applied), &rules, t(200));
    rest(&mut r, &rules, t(200));
    assert_eq!((r.end, r.ack), (Some(Status::Confirmed), AckLevel::Answered), "late, and the truth");
}

/// If this broke, what the target tells would change nothing, or be told as more than the target's own word.
#[test]
fn a_webhook_ends_what_it_tells_of() {
    let rules = told();
    for (class, end) in [(AnswerClass::Applied, Status::Confirmed), (AnswerClass::Rejected, Status::Refused)] {
        for before in [AnswerClass::InProgress, AnswerClass::MaybeSent] {
            let r = run(&rules, &[(1, out(1, before)), (3, hook(class))]);
            assert_eq!((r.end, r.ack.min(AckLevel::Answered) == r.ack), (Some(end), true), "{before:?}");
        }
    }
}

/// If this broke, a webhook that overtakes the answer to its call would be lost, or that answer would make it undone again.
#[test]
fn a_webhook_before_the_answer_counts() {
    let rules = told();
    for (class, end) in [(AnswerClass::Applied, Status::Confirmed), (AnswerClass::Rejected, Status::Refused)] {
        let mut r = queued();
        send(&mut r, &rules, t(0));
        fold(&mut r, hook(class), &rules, t(1));
        rest(&mut r, &rules, t(1));
        assert_eq!(r.end, Some(end));
        fold(&mut r, out(1, AnswerClass::InProgress), &rules, t(2));
        assert_eq!((r.end, r.flags.len(), r.attempts.len()), (Some(end), 0, 1));
    }
}

/// If this broke, the same webhook twice would be a suspected duplicate, and one that contradicts an end would pass silently.
#[test]
fn repeats_say_nothing_new_and_contradictions_are_not_silent() {
    let rules = told();
    let mut r = run(&rules, &[(1, out(1, AnswerClass::InProgress)), (3, hook(AnswerClass::Applied))]);
    for class in [AnswerClass::Applied, AnswerClass::Rejected] {
        fold(&mut r, hook(class), &rules, t(4));
    }
    assert_eq!((r.end, r.flags.len()), (Some(Status::Confirmed), 0));
    let mut r = run(&rules, &[(1, out(1, AnswerClass::InProgress)), (3, hook(AnswerClass::Rejected))]);
    fold(&mut r, hook(AnswerClass::Applied), &rules, t(4));
    assert_eq!((r.end, r.flags.as_slice()), (Some(Status::Refused), &[Flag::Contradiction][..]));
}

/// If this broke, "it failed" of a webhook would allow another send: a copy that still runs would become a second effect.
#[test]
fn a_webhook_is_never_a_warrant() {
    let goes_wrong = |off: Option<Rule>| {
        let rules = Rules { weakened: off, ..told() };
        let mut r = run(&rules, &[(1, out(1, AnswerClass::InProgress)), (3, hook(AnswerClass::Rejected))]);
        let action = rest(&mut r, &rules, t(60));
        matches!(action, Action::Journal(_))
    };
    assert!(!goes_wrong(None));
    assert!(goes_wrong(Some(Rule::WebhookIsNoWarrant)), "the rule prevents nothing here");

    // Two that may have left, and one word: of which nobody knows.
    let rules = Rules { dedupe: Some(Retention::Forever), ..told() };
    let mut r = run(&rules, &[(1, out(1, AnswerClass::MaybeSent))]);
    send(&mut r, &rules, t(2));
    fold(&mut r, out(2, AnswerClass::InProgress), &rules, t(3));
    fold(&mut r, hook(AnswerClass::Rejected), &rules, t(4));
    rest(&mut r, &rules, t(4));
    assert_eq!((r.phase, r.any(AttemptState::Rejected)), (Phase::Unknown, false));
    assert!(!matches!(decide(&r, &facts(), &rules, t(60)), Action::Journal(_)), "the target has it, and will tell");
}

/// If this broke, `confirm: readback` would be confirmed by a post, unread.
#[test]
fn where_a_readback_confirms_a_webhook_is_the_reason_to_read() {
    let rules = Rules { confirm: Confirm::Readback, lag: Some(sec(1)), ..told() };
    let mut r = run(&rules, &[(1, out(1, AnswerClass::InProgress))]);
    r.read_at = Some(t(100));
    fold(&mut r, hook(AnswerClass::Applied), &rules, t(5));
    assert_eq!((rest(&mut r, &rules, t(5)), r.end), (Action::Read, None));
    fold(&mut r, read(6, one()).1, &rules, t(6));
    rest(&mut r, &rules, t(6));
    assert_eq!((r.end, r.ack), (Some(Status::Confirmed), AckLevel::Confirmed));
}
