//! The whole product on virtual time against seeded faults, judged by results and books only.
//!
//! `READBACK_SCHEDULES=N` plays more schedules than the default, `READBACK_SEED=n` replays one and prints what happened.

use std::path::Path;

use readback::app::Weakened;
use readback::config::yaml;
use readback::driver::recorded;
use readback::effects::Rule;
use readback::intents::Status;
use readback::kafka::memory::Lie;
use readback::outbox;
use readback::testing::simulator::{App, Applications, Broken, Class, Off, Schedule, run, search, shrink};
use readback::testing::target::Tamper;

/// Schedules of a default run: some 15 ms each, a minute or two on two cores. A long one: `READBACK_SCHEDULES=1000000`.
const SCHEDULES: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// If this broke, every other run here would say nothing: where nothing strikes, each operation must end as it is meant to.
#[test]
fn without_faults_each_operation_ends_as_it_is_meant_to() {
    let ends = [
        (App::Plain, Class::Simple, Status::Confirmed),
        (App::Plain, Class::Refused, Status::Refused),
        (App::Keyed, Class::Simple, Status::Confirmed),
        (App::Keyed, Class::Refused, Status::Refused),
        (App::Orders, Class::Simple, Status::Confirmed),
        (App::Orders, Class::Approved, Status::Confirmed),
        (App::Orders, Class::DeniedByPerson, Status::Denied),
        (App::Orders, Class::Denied, Status::Denied),
        (App::Orders, Class::Refused, Status::Refused),
        (App::Orders, Class::Unanswered, Status::Expired),
    ];
    let apps = Applications::new();
    for (app, class, end) in ends {
        let outcome = run(&apps, &Schedule::calm(app, class), Off::default());
        let said = outcome.timeline.join("\n");
        assert!(outcome.violations.is_empty(), "{app:?} {class:?}: {:?}\n{said}", outcome.violations);
        assert_eq!(outcome.ends.into_iter().collect::<Vec<_>>(), [(end, 1)], "{app:?} {class:?}\n{said}");
    }
}

/// If this broke, some order of crashes, pauses, lost commits, lost requests and late answers would double an effect, lose an
/// operation or call one by a name that the target's books do not bear out.
#[test]
fn no_schedule_breaks_a_promise() {
    if let Some(seed) = number("READBACK_SEED") {
        return replay(seed);
    }
    let found = search(0..number("READBACK_SCHEDULES").unwrap_or(SCHEDULES), 2, Off::default());
    println!("{} schedules, {} turns\nends: {:?}\nstruck: {:?}", found.played, found.turns, found.ends, found.struck);
    if let Some((schedule, outcome)) = found.failing {
        let seed = schedule.seed;
        let (least, _) = shrink(schedule, Off::default());
        panic!("seed {seed}: {:?}\nstill fails as {least:#?}\nREADBACK_SEED={seed} replays it", outcome.violations);
    }
}

fn effects(rule: Rule) -> Off {
    Off { rules: Weakened { effects: Some(rule), ..Weakened::default() }, outside: None }
}

fn operations(rule: outbox::Rule) -> Off {
    Off { rules: Weakened { operations: Some(rule), ..Weakened::default() }, outside: None }
}

fn replay(seed: u64) {
    let schedule = Schedule::draw(seed);
    let outcome = run(&Applications::new(), &schedule, Off::default());
    println!("{schedule:#?}\n{}", outcome.timeline.join("\n"));
    assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
}

/// Whether some schedule shows the harm of what is switched off.
fn harm(off: Off) -> bool {
    let bound = number("READBACK_SCHEDULES").unwrap_or(4_000);
    let found = search(0..bound, 2, off);
    println!("{off:?}: {} schedules, {:?}", found.played, found.failing.as_ref().map(|(_, o)| &o.violations));
    found.failing.is_some()
}

/// Rules whose absence random schedules find; where each of the others is shown, `src/docs/guarantees.md` says.
const FOUND_BY_CHANCE: &[Rule] =
    &[Rule::SilenceIsNotNo, Rule::SettleBeforeAbsent, Rule::CompleteReads, Rule::TakeOverIsMaybe, Rule::CancelWaits];

/// If this broke, the simulator would be blind: it could not see the harm that a rule prevents, so its silence would prove nothing.
#[test]
fn every_rule_is_needed() {
    let harmless: Vec<_> = FOUND_BY_CHANCE.iter().filter(|r| !harm(effects(**r))).collect();
    assert!(harmless.is_empty(), "{harmless:?} switched off one by one, and nothing shows harm");
}

/// Rules of the operation record whose absence random schedules find.
const OPERATION_RULES: &[outbox::Rule] = &[outbox::Rule::OneCounter];

/// If this broke, the simulator would be blind for what the operation record prevents.
#[test]
fn every_rule_of_the_operation_record_is_needed() {
    let harmless: Vec<_> = OPERATION_RULES.iter().filter(|r| !harm(operations(**r))).collect();
    assert!(harmless.is_empty(), "{harmless:?} switched off one by one, and nothing shows harm");
}

/// C2: a cluster that shows intents before their transaction has committed: effects of operations that then end otherwise.
#[test]
fn c02_intents_that_are_taken_back_are_seen() {
    assert!(harm(Off { outside: Some(Broken::Cluster(Lie::DirtyReads)), ..Off::default() }));
}

/// C4: a sender that renders a re-send anew: the books hold another content than was intended.
#[test]
fn c04_a_resend_with_other_bytes_is_seen() {
    assert!(harm(Off { outside: Some(Broken::Sender(Tamper::OtherBytes)), ..Off::default() }));
}

/// C5: a sender that gives a re-send a key of its own: an effect that nobody intended.
#[test]
fn c05_a_resend_under_another_key_is_seen() {
    assert!(harm(Off { outside: Some(Broken::Sender(Tamper::OtherKey)), ..Off::default() }));
}

/// C10: a sender that does not look at its window before the first byte: a call that settled as absent arrives after all.
#[test]
fn c10_a_call_that_leaves_after_its_window_is_seen() {
    assert!(harm(Off { outside: Some(Broken::Sender(Tamper::NoWindow)), ..Off::default() }));
}

/// C22: a library or proxy that sends requests again by itself: the assumption that the report prints is needed.
#[test]
fn c22_a_second_owner_of_retries_is_seen() {
    assert!(harm(Off { outside: Some(Broken::Copies), ..Off::default() }));
}

/// If this broke, `readback test` would not tell a change of behaviour from none, or the examples would not do what they say.
#[test]
fn recorded_runs_come_out_as_expected() {
    for name in ["orders", "webhook"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology").join(name);
        let declared = yaml::offline(|| readback::declare::load(&dir));
        let application = declared.unwrap_or_else(|d| panic!("{name} can't be read:\n{d}")).application;
        let update = std::env::var_os("READBACK_UPDATE").is_some();
        recorded::run(&application, &dir, update).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn scan() {
    use outbox::Rule as O;
    let bound = number("READBACK_SCHEDULES").unwrap_or(1_200);
    use Rule::*;
    for rule in [
        JournalBeforeCall,
        CoverEveryAttempt,
        NegativeSpeaksForItself,
        SilenceIsNotNo,
        SettleBeforeAbsent,
        SettleFromLastSend,
        CompleteReads,
        KeyOutlivesSend,
        FiniteKeyNeedsBound,
        ChecksOnlyForbid,
        TakeOverIsMaybe,
        KeepCompletions,
        HearsayNeedsToken,
        CloseBurns,
        QuietLane,
        CancelWaits,
        AcceptedIsNotDone,
        HoldEarlyCommands,
        PersonAfterSettle,
        RecordsOutliveIntents,
        LaneInOrder,
        EndsStay,
        LateIsFlagged,
        OneContent,
        RetryAfter,
        UnknownsEnd,
    ] {
        let found = search(0..bound, 2, effects(rule));
        println!("{rule:?}: {} schedules, {:?}", found.played, found.failing.as_ref().map(|(s, o)| (s.seed, s.app, &o.violations)));
    }
    for outside in [
        Broken::Cluster(Lie::DirtyReads),
        Broken::Cluster(Lie::FormerMembersPass),
        Broken::Copies,
        Broken::Sender(Tamper::OtherBytes),
        Broken::Sender(Tamper::OtherKey),
        Broken::Sender(Tamper::NoWindow),
    ] {
        let found = search(0..bound, 2, Off { outside: Some(outside), ..Off::default() });
        println!(
            "{outside:?}: {} schedules, {:?}",
            found.played,
            found.failing.as_ref().map(|(s, o)| (s.seed, s.app, &o.violations))
        );
    }
    for rule in [
        O::OnePlace,
        O::IdentityFirst,
        O::OneContent,
        O::PlanFailedUsesId,
        O::PlanHashChecked,
        O::ConflictProlongs,
        O::Stale,
        O::OneCounter,
        O::SilentAfterHandOver,
        O::GoneFirst,
        O::RootRoutes,
        O::CommandsAnswered,
        O::RevokeForwarded,
        O::RevokedStays,
        O::ApprovalBinds,
        O::FirstPlanWins,
        O::SpentOnce,
    ] {
        let found = search(0..bound, 2, operations(rule));
        println!("{rule:?}: {} schedules, {:?}", found.played, found.failing.as_ref().map(|(s, o)| (s.seed, s.app, &o.violations)));
    }
}
