//! The whole product on virtual time against seeded faults, judged by results and books only.
//!
//! `READBACK_SCHEDULES=N` plays more schedules than the default, `READBACK_SEED=n` replays one and prints what happened.

use std::path::Path;
use std::time::Duration;

use readback::app::Weakened;
use readback::config::yaml;
use readback::driver::recorded;
use readback::effects::Rule;
use readback::intents::Status;
use readback::kafka::memory::{Lie, LostAnswer};
use readback::outbox;
use readback::testing::simulator::{App, Applications, Broken, Class, Off, Schedule, Strike, run, search, search_by, shrink};
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
        (App::Created, Class::Simple, Status::Confirmed),
        (App::Aged, Class::Simple, Status::Confirmed),
        (App::Counted, Class::Simple, Status::Confirmed),
        (App::Undone, Class::Simple, Status::Confirmed),
        (App::Orders, Class::Simple, Status::Confirmed),
        (App::Orders, Class::Approved, Status::Confirmed),
        (App::Orders, Class::DeniedByPerson, Status::Denied),
        (App::Orders, Class::Denied, Status::Denied),
        (App::Orders, Class::Refused, Status::Refused),
        (App::Orders, Class::Unanswered, Status::Expired),
        (App::Plans, Class::Simple, Status::Confirmed),
        (App::Plans, Class::Approved, Status::Confirmed),
        (App::Plans, Class::DeniedByPerson, Status::Denied),
        (App::Plans, Class::Denied, Status::Denied),
        (App::Plans, Class::Refused, Status::Partial),
        (App::Plans, Class::Unanswered, Status::Expired),
        (App::PlansUndone, Class::Approved, Status::Confirmed),
        (App::PlansUndone, Class::Refused, Status::Partial),
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

/// If this broke, a plan that can't be whole would stay half done and not say so, be undone twice, or have something undone from under what
/// stands on it; and without the rule of the order that is seen.
#[test]
fn a_plan_is_whole_or_undone_or_says_what_stays() {
    let bound = number("READBACK_SCHEDULES").unwrap_or(1_500);
    let draw = |seed| Schedule::draw_of(App::PlansUndone, seed);
    let found = search_by(draw, 0..bound, 2, Off::default());
    println!("{} schedules, ends: {:?}", found.played, found.ends);
    if let Some((schedule, outcome)) = found.failing {
        let seed = schedule.seed;
        let (least, _) = shrink(schedule, Off::default());
        panic!(
            "seed {seed}: {:?}\nstill fails as {least:#?}\n{}",
            outcome.violations,
            run(&Applications::new(), &least, Off::default()).timeline.join("\n")
        );
    }
    assert!(found.ends.contains_key(&Status::Partial) && found.ends.contains_key(&Status::Superseded), "some were undone");
    let (_, outcome) = search_by(draw, 0..bound, 2, operations(outbox::Rule::UndoReversed)).failing.expect("the harm is seen");
    assert!(outcome.violations.iter().any(|v| v.contains("stood on it")), "{:?}", outcome.violations);
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
const FOUND_BY_CHANCE: &[Rule] = &[
    Rule::SilenceIsNotNo,
    Rule::SettleBeforeAbsent,
    Rule::CompleteReads,
    Rule::TakeOverIsMaybe,
    Rule::CancelWaits,
    Rule::DuplicatesByChoice,
    Rule::FenceBeforeNew,
    Rule::UndoOnlyApplied,
];

/// If this broke, the simulator would be blind: it could not see the harm that a rule prevents, so its silence would prove nothing.
#[test]
fn every_rule_is_needed() {
    let harmless: Vec<_> = FOUND_BY_CHANCE.iter().filter(|r| !harm(effects(**r))).collect();
    assert!(harmless.is_empty(), "{harmless:?} switched off one by one, and nothing shows harm");
}

/// Rules of the operation record whose absence random schedules find; the others are switched off one by one in `agent::tests`.
const OPERATION_RULES: &[outbox::Rule] = &[
    outbox::Rule::OneCounter,
    outbox::Rule::OneContent,
    outbox::Rule::SilentAfterHandOver,
    outbox::Rule::CommandsAnswered,
    outbox::Rule::RevokedStays,
    outbox::Rule::RevokeForwarded,
    outbox::Rule::OnePlace,
    outbox::Rule::NeedsFirst,
    outbox::Rule::UndoReversed,
];

/// If this broke, the simulator would be blind for what the operation record prevents.
#[test]
fn every_rule_of_the_operation_record_is_needed() {
    let harmless: Vec<_> = OPERATION_RULES.iter().filter(|r| !harm(operations(**r))).collect();
    assert!(harmless.is_empty(), "{harmless:?} switched off one by one, and nothing shows harm");
}

/// C2: a cluster that shows intents whose transaction is taken back. The commit is lost, no broker answers until the deadline has
/// passed, and the request, read again, expires, although its effect was made.
#[test]
fn c02_intents_that_are_taken_back_are_seen() {
    let apps = Applications::new();
    let ms = Duration::from_millis;
    let wrong = |off: Off| {
        let mut moments = (0..30).flat_map(|n| [2, 6, 12, 20, 40].map(|then| (ms(950 + 4 * n), ms(950 + 4 * n + then))));
        moments.any(|(lost, down)| {
            let mut schedule = Schedule::calm(App::Plain, Class::Simple);
            schedule.operations[0].patience = Duration::from_secs(5);
            let lose = |member| (lost, Strike::LoseCommit { member, unit: 0, what: LostAnswer::NotApplied });
            schedule.strikes = vec![lose(0), lose(1), (down, Strike::BrokerDown { down: Duration::from_secs(10) })];
            !run(&apps, &schedule, off).violations.is_empty()
        })
    };
    assert!(!wrong(Off::default()));
    assert!(wrong(Off { outside: Some(Broken::Cluster(Lie::DirtyReads)), ..Off::default() }));
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

/// C18: a compensation that does not wait until no copy of the effect can arrive: one arrives, and the effect is there again.
#[test]
fn c18_a_compensation_that_does_not_wait_is_seen() {
    let apps = Applications::new();
    let off = effects(Rule::UndoWaits);
    let bound = number("READBACK_SCHEDULES").unwrap_or(2_000);
    for app in [App::Undone, App::PlansUndone] {
        let mut schedules = (0..bound).map(|seed| Schedule::draw_of(app, seed));
        let found = schedules.find_map(|s| Some((run(&apps, &s, off).violations.pop()?, s)));
        let (violation, schedule) = found.expect("some copy arrives after the compensation");
        println!("{app:?}: seed {}, {violation}", schedule.seed);
        assert!(violation.contains("undone") || violation.contains("Doubled") || violation.contains("stands"), "{violation}");
        assert!(run(&apps, &schedule, Off::default()).violations.is_empty(), "with all rules");
    }
}

/// C6: a target that makes a second thing under an ID, or takes old requests, although its contract says that it refuses them: the
/// assumption that the report prints is needed, and without the refusal the re-sends would be second effects.
#[test]
fn c06_a_target_that_does_not_refuse_is_seen() {
    assert!(harm(Off { outside: Some(Broken::NoFence), ..Off::default() }));
}

/// If this broke, `readback test` would not tell a change of behaviour from none, or the examples would not do what they say.
#[test]
fn recorded_runs_come_out_as_expected() {
    for name in ["orders", "kits", "trips", "webhook", "baskets", "clicks", "pairs", "revenue", "stock"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology").join(name);
        let declared = yaml::offline(|| readback::declare::load(&dir));
        let application = declared.unwrap_or_else(|d| panic!("{name} can't be read:\n{d}")).application;
        let update = std::env::var_os("READBACK_UPDATE").is_some();
        recorded::run(&application, &dir, update).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
