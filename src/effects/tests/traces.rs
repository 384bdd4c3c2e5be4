//! Guided traces: each is found by the checker when its rule is switched off, and is harmless with it.
//! Names: `c07` is the condition of `src/docs/guarantees.md`, `m03` the counter-example of the search that found it, `rb` the one of
//! the research; where each of the others is, that page says.

use std::time::Duration;

use super::bench::{rules, sec};
use super::world::World;
use crate::contract::{Confirm, Retention};
use crate::effects::{Rule, Rules, Verdict};
use crate::intents::AnswerClass::{Applied, InProgress, KeyConflict, MaybeSent, NotSent, Rejected};

/// Runs a trace with all rules, then with one switched off: only then may, and must, the checker find this.
pub(super) fn found(rule: Rule, base: &Rules, what: &str, trace: impl Fn(&mut World)) {
    let mut w = World::empty(base.clone());
    trace(&mut w);
    assert!(w.bad.is_empty(), "with all rules: {:?}", w.bad);
    let mut w = World::empty(Rules { weakened: Some(rule), ..base.clone() });
    trace(&mut w);
    assert!(w.bad.contains(what), "without {rule:?}: found only {:?}; record {:?}", w.bad, w.ledger);
}

fn keyed(retention: Retention) -> Rules {
    Rules { dedupe: Some(retention), attempts: 9, ..rules() }
}

/// Model 1: a negative answer to attempt 2 closes the operation while attempt 1 is on its way (C6, C12).
#[test]
fn c06_m01_a_refusal_of_the_second_closes_over_the_first() {
    found(Rule::NegativeSpeaksForItself, &keyed(Retention::Forever), "ended as not applied, but applied", |w| {
        w.deliver();
        w.leave(1);
        w.after(2);
        w.answer(1, MaybeSent);
        w.after(1);
        w.leave(2);
        w.answer(2, Rejected);
        w.arrive(1);
    });
}

/// Model 2, research d: the key's memory is checked when journalled, the byte leaves later (C19).
#[test]
fn c19_m02_the_key_is_forgotten_before_the_byte_arrives() {
    found(Rule::KeyOutlivesSend, &keyed(Retention::For(sec(20))), "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.arrive(1);
        w.after(17);
        w.answer(1, MaybeSent);
        w.after(1);
        w.leave(2);
        w.after(2);
        w.leave(2);
        w.after(4);
        w.arrive(2);
    });
}

/// Model 3: "attempt 2 never left" covers attempt 3, and attempt 1 is forgotten (C7).
#[test]
fn c07_m03_an_attempt_two_steps_back_is_forgotten() {
    found(Rule::CoverEveryAttempt, &keyed(Retention::For(sec(40))), "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.arrive(1);
        w.answer(1, MaybeSent);
        w.after(1);
        w.now = w.now.plus(sec(60));
        w.answer(2, NotSent);
        w.leave(3);
        w.arrive(3);
    });
}

/// Model 4: the new owner takes the other's attempt for unsent (C11).
#[test]
fn c11_m04_a_take_over_sends_again() {
    found(Rule::TakeOverIsMaybe, &rules(), "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.take_over();
        w.after(1);
        w.leave(2);
        w.arrive(1);
        w.arrive(2);
    });
}

/// Model 5: a deadline that passes before a re-send ends an operation that may have happened (C21).
#[test]
fn c21_m05_a_deadline_ends_what_may_have_left() {
    found(Rule::ChecksOnlyForbid, &rules(), "ended as not applied, but applied", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.after(901);
        w.arrive(1);
    });
}

/// Model 6: a key with finite memory, and nothing bounds how late a request may arrive.
#[test]
fn m06_a_finite_key_without_a_bound() {
    let base = Rules { in_flight: None, ..keyed(Retention::For(sec(100))) };
    found(Rule::FiniteKeyNeedsBound, &base, "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.after(2);
        w.leave(2);
        w.arrive(2);
        w.after(101);
        w.arrive(1);
    });
}

/// Model 8: the answer is lost with an unclear commit (rule 12, C15).
#[test]
fn c15_m08_an_answer_is_lost_with_its_transaction() {
    let base = Rules { lag: None, in_flight: None, confirm: Confirm::Answer, ..rules() };
    found(Rule::KeepCompletions, &base, "parked although the answer was heard", |w| {
        w.deliver();
        w.leave(1);
        w.arrive(1);
        w.fold_answer(1, Applied);
        w.abort();
    });
}

/// Model 9: wrong evidence is folded like an answer (C14).
#[test]
fn c14_m09_hearsay_without_the_token() {
    found(Rule::HearsayNeedsToken, &Rules { confirm: Confirm::Answer, ..rules() }, "confirmed without an effect", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.hearsay(1, "forged", Applied);
    });
}

/// Model 10: an operator looks truthfully, before settle (C24).
#[test]
fn c24_m10_a_person_looks_too_early() {
    found(Rule::PersonAfterSettle, &rules(), "ended as not applied, but applied", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.resolve(false);
        w.arrive(1);
    });
}

/// Model 11: the closed record is deleted, and the request comes again before its deadline (C23).
#[test]
fn c23_m11_a_record_dies_before_its_intent() {
    let base = Rules { audit: sec(10), confirm: Confirm::Answer, ..rules() };
    found(Rule::RecordsOutliveIntents, &base, "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.arrive(1);
        w.answer(1, Applied);
        w.after(60);
        w.deliver();
        w.leave(1);
        w.leave(1);
        w.arrive(1);
    });
}

/// Model 12: an old copy of a PUT undoes its successor (C16).
#[test]
fn c16_m12_an_old_copy_undoes_the_new_one() {
    let base = Rules { no_intermediaries: false, ..rules() };
    found(Rule::QuietLane, &base, "an old copy undid its successor", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.resolve(true);
        w.next_in_lane();
        w.arrive(1);
        // What a person decided early is flagged by whoever reads the target later; here only the lane matters.
        w.bad.remove("ended as not applied, but applied");
    });
}

/// Model 13: the cancel is read before its intent, and lost (rule 20).
#[test]
fn m13_a_cancel_comes_first() {
    found(Rule::HoldEarlyCommands, &rules(), "a cancel was lost", |w| {
        w.cancel();
        w.deliver();
        w.leave(1);
        w.arrive(1);
    });
}

/// Model 14: a person closes the operation while its attempt is queued, and then it leaves.
#[test]
fn m14_it_leaves_after_the_end() {
    found(Rule::CloseBurns, &rules(), "it left after the end", |w| {
        w.deliver();
        w.resolve(true);
        w.leave(1);
    });
}

/// Research a and c: settle counted from the journal, while the sender paused between check and write (C8, C10).
#[test]
fn ra_settle_from_the_journal_time() {
    found(Rule::SettleFromLastSend, &rules(), "two effects", |w| {
        w.deliver();
        w.after(5);
        w.look(1);
        w.after(1);
        w.write(1);
        w.answer(1, MaybeSent);
        w.after(2);
        w.read(Verdict::Absent);
        w.after(1);
        w.leave(2);
        w.arrive(1);
        w.arrive(2);
    });
}

/// Research b: the list is current, but the request waits in a proxy (C8).
#[test]
fn c08_rb_absence_read_before_settle() {
    found(Rule::SettleBeforeAbsent, &rules(), "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.read(Verdict::Absent);
        w.after(1);
        w.leave(2);
        w.arrive(1);
        w.arrive(2);
    });
}

/// Research e and i: a cancel ends it while the create is on its way (C17, C18).
#[test]
fn c17_re_a_cancel_ends_what_may_have_left() {
    found(Rule::CancelWaits, &rules(), "ended as not applied, but applied", |w| {
        w.deliver();
        w.leave(1);
        w.cancel();
        w.arrive(1);
    });
}

/// Research f: page 2 holds what page 1 does not show (C9).
#[test]
fn c09_rf_an_incomplete_list_is_taken_for_absence() {
    found(Rule::CompleteReads, &rules(), "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.arrive(1);
        w.answer(1, MaybeSent);
        w.after(60);
        w.read(Verdict::Incomplete("page 2 answered 503".into()));
        w.after(1);
        w.leave(2);
        w.arrive(2);
    });
}

/// Research j: "accepted" or "still running" is read as done (C25).
#[test]
fn c25_rj_accepted_is_taken_for_done() {
    found(Rule::AcceptedIsNotDone, &Rules { confirm: Confirm::Answer, ..rules() }, "confirmed without an effect", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, InProgress);
    });
}

/// C12: no answer is taken for "did not happen".
#[test]
fn c12_silence_is_taken_for_no() {
    found(Rule::SilenceIsNotNo, &rules(), "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.after(5);
        w.leave(2);
        w.arrive(1);
        w.arrive(2);
    });
}

/// C1: the call leaves in a transaction that is then taken back.
#[test]
fn c01_it_leaves_before_the_commit() {
    found(Rule::JournalBeforeCall, &rules(), "it left without a committed record", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, crate::intents::AnswerClass::RetryLater);
        w.now = w.now.plus(Duration::from_secs(5));
        w.fold(crate::effects::Event::TakeOver { burned: vec![], held: vec![] });
        w.leave(2);
        w.abort();
    });
}

/// Research j, on a conditional create: "the ID is taken" is read as done, but somebody else's thing stands under it.
#[test]
fn c06_a_taken_id_is_taken_for_ours() {
    let base = Rules { creates_once: true, in_flight: None, confirm: Confirm::Answer, ..rules() };
    found(Rule::ExistsIsRead, &base, "confirmed without an effect", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, KeyConflict);
        w.read(Verdict::OtherContent);
    });
}

/// C8 under an age limit: nothing bounds arrival but the target's refusal, and absence is believed before that.
#[test]
fn c08_an_attempt_is_taken_for_dead_before_the_target_refuses_it() {
    let base = Rules { max_age: Some(sec(60)), in_flight: None, ..rules() };
    found(Rule::FenceBeforeNew, &base, "two effects", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.after(5);
        w.read(Verdict::Absent);
        w.after(1);
        w.leave(2);
        w.arrive(1);
        w.arrive(2);
    });
}

/// Rule 26: the target's clock is behind ours by more than is declared, so it still takes what we think it refuses.
#[test]
fn an_old_request_is_taken_by_a_slow_clock() {
    let base = Rules { max_age: Some(sec(60)), in_flight: None, ..rules() };
    found(Rule::DriftSuspends, &base, "two effects", |w| {
        w.behind = sec(20);
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.after(70);
        w.read(Verdict::Absent);
        w.after(1);
        w.leave(2);
        w.arrive(1);
        w.arrive(2);
    });
}

/// C7: a re-send that rests on nothing, for a contract that accepts no duplicates.
#[test]
fn c07_duplicates_that_nobody_accepted() {
    found(Rule::DuplicatesByChoice, &rules(), "it rests on duplicates that nobody accepted", |w| {
        w.deliver();
        w.leave(1);
        w.answer(1, MaybeSent);
        w.after(1);
        w.leave(2);
        w.arrive(1);
        w.arrive(2);
    });
}
