//! The runtime on the in-process log: all scenarios, and what only a cluster that obeys can be made to do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Fault, codes};
use crate::ids::{Partition, SlotName, TopicName, Tp};
use crate::kafka::memory::{Call, HeldMarkers, Lie, LostAnswer, MemoryCluster};
use crate::kafka::{Class, Cluster, Isolation, Reading};
use crate::runtime::failpoint;
use crate::runtime::{KafkaStreams, Metrics, RuntimeOptions, State, StreamThread, UnitRun};
use crate::state::{StateConfig, StateManager};
use crate::task::{InternalTopic, StartAt, TopicUse, UnitPlan};
use crate::time::{ManualClock, MonoTime, Now, SharedClock, SystemClock, WallTime};

use super::scenarios::{self, Bench, Script, numbers};

pub(super) fn bench(name: &str) -> Bench<MemoryCluster> {
    let clock = Arc::new(ManualClock::at(Now { wall: WallTime(1_700_000_000_000), mono: MonoTime(1_000_000_000) }));
    let (cluster, hand) = (MemoryCluster::new(clock.clone()), clock.clone());
    let pass = Arc::new(move |d| hand.advance(d));
    Bench { cluster, clock, pass, name: name.to_owned(), options: RuntimeOptions::default() }
}

/// One input, one output, one partition, copied or summed, with 20 records fed.
pub(super) struct Copying {
    pub b: Bench<MemoryCluster>,
    pub plan: UnitPlan,
    pub script: Script,
    pub from: TopicName,
    pub to: TopicName,
}

pub(super) fn copying(name: &str, sums: bool) -> Copying {
    let b = bench(name);
    let (from, to) = (b.topic("in"), b.topic("out"));
    b.create(&from, 1, &[]);
    b.create(&to, 1, &[]);
    let script = Script { sums, ..Script::copy(&to) };
    b.create(&script.changelog(), 1, &[("cleanup.policy", "compact")]);
    let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    b.feed(&from, 0, &numbers(1, 20, &["k"]));
    Copying { b, plan, script, from, to }
}

impl Copying {
    /// Committed output: the numbers, or their sums, 1 to `n`.
    pub(super) fn expect(&self, n: i64) {
        let value = |i: i64| if self.script.sums { i * (i + 1) / 2 } else { i };
        let expected: Vec<String> = (1..=n).map(|i| value(i).to_string()).collect();
        let found = self.b.values(&self.to, Isolation::Committed).remove(&Partition(0)).unwrap_or_default();
        assert_eq!(found, expected, "{}", self.b.cluster.dump());
    }

    pub(super) fn run(&self, thread: &mut StreamThread<MemoryCluster>, count: usize) {
        self.b.run_until_count(&mut [thread], &self.to, count).expect("runs");
    }
}

/// If this broke, one of Kafka's own guarantees for exactly-once processing would not hold (E1 to E7, timers, moves).
#[test]
fn every_scenario_holds_on_the_in_process_log() {
    for (name, scenario) in scenarios::all() {
        scenario(&bench(name));
    }
}

/// If this broke, a fault at some step of a transaction would lose or repeat records, or leave a wrong sum in a store.
#[test]
fn a_fault_at_any_point_takes_back_and_goes_on() {
    let classes = [Class::Abort, Class::Rebuild, Class::Fenced, Class::OutcomeUnknown];
    for &point in failpoint::NAMES.iter().take_while(|n| **n != "store.before-write").filter(|n| !n.starts_with("confirm")) {
        for class in classes.into_iter().filter(|c| point != "commit.after" || *c == Class::OutcomeUnknown) {
            let c = copying(&format!("{point}-{}", class.label()), true);
            let mut thread = c.b.thread(&c.plan, 0);
            c.run(&mut thread, 20);
            c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
            if ["restore.slice", "claim.before", "claim.after"].contains(&point) {
                c.b.stop(thread);
                thread = c.b.thread(&c.plan, 0);
            }
            failpoint::arm(point, 1, class);
            c.run(&mut thread, 40);
            assert!(failpoint::disarm(), "{point} was never met");
            c.b.feed(&c.from, 0, &numbers(41, 5, &["k"]));
            c.run(&mut thread, 45);
            c.b.stop(thread);
            c.expect(45);
        }
    }
}

/// C15: offsets that do not move with the output make a restart repeat it: the exact output that every scenario asks for sees it.
#[test]
fn c15_offsets_that_do_not_move_with_the_output_are_seen() {
    let after_restart = |lies: bool| {
        let c = copying("offsets", false);
        if lies {
            c.b.cluster.lie(Lie::OffsetsDropped);
        }
        let mut thread = c.b.thread(&c.plan, 0);
        c.run(&mut thread, 20);
        c.b.stop(thread);
        c.b.feed(&c.from, 0, &numbers(21, 5, &["k"]));
        let mut thread = c.b.thread(&c.plan, 0);
        c.run(&mut thread, 25);
        c.b.stop(thread);
        c.b.values(&c.to, Isolation::Committed).remove(&Partition(0)).unwrap_or_default()
    };
    let exact: Vec<String> = (1..=25).map(|n| n.to_string()).collect();
    assert_eq!(after_restart(false), exact);
    assert_ne!(after_restart(true), exact, "nothing would tell");
}

/// If this broke, a fault while partitions move would lose or repeat records, or leave the group waiting for ever.
#[test]
fn a_fault_while_partitions_move_is_mended() {
    let faults = [
        ("revoke.before-commit", 1, Class::Abort),
        ("revoke.before-commit", 1, Class::OutcomeUnknown),
        ("revoke.before-release", 1, Class::Abort),
        ("revoke.before-release", 1, Class::OutcomeUnknown),
        ("commit.after", 3, Class::OutcomeUnknown),
        ("flush.before", 2, Class::Abort),
    ];
    for (point, nth, class) in faults {
        let b = bench(&format!("{point}-{}", class.label()));
        if point == "flush.before" {
            b.cluster.fail_next(Call::Abort, None, Class::Rebuild);
        }
        failpoint::arm(point, nth, class);
        scenarios::partitions_move_in_order(&b);
        assert!(failpoint::disarm(), "{point} was never met");
    }
}

/// If this broke, a commit without an answer would be counted twice or not at all, in output, offsets or store.
#[test]
fn an_unclear_commit_is_settled_by_what_the_group_says() {
    for (lost, in_flight) in [(LostAnswer::Applied, "applied"), (LostAnswer::NotApplied, "not applied"), (LostAnswer::Late, "late")]
    {
        let c = copying("unclear", true);
        let mut thread = c.b.thread(&c.plan, 0);
        c.run(&mut thread, 20);
        c.b.cluster.lose_commit_answer(None, lost);
        c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
        c.run(&mut thread, 40);
        c.b.cluster.deliver_late();
        c.b.feed(&c.from, 0, &numbers(41, 5, &["k"]));
        c.run(&mut thread, 45);
        let notes = c.script.notes();
        assert!(notes.windows(2).any(|w| w == ["aborted", "restored"]), "{in_flight}: {notes:?}");
        c.b.stop(thread);
        c.expect(45);
    }
}

/// If this broke, an abort would keep the overlay or go on behind the records that it took back.
#[test]
fn an_abort_drops_the_overlay_and_rewinds() {
    let c = copying("abort", true);
    let mut thread = c.b.thread(&c.plan, 0);
    failpoint::arm("flush.before", 2, Class::Abort);
    c.run(&mut thread, 20);
    assert!(failpoint::disarm(), "the commit was met");
    assert_eq!(c.script.notes()[..3], ["restored", "aborted", "restored"]);
    c.b.stop(thread);
    c.expect(20);
}

/// E8. If this broke, a member that stood still while another took its partitions over would write its stale work as well;
/// whether its transaction had timed out meanwhile or not.
#[test]
fn a_stalled_member_is_fenced_when_it_wakes() {
    for session_only in [false, true] {
        let c = copying("stalled", true);
        let (mut stalled, mut other) = (c.b.thread(&c.plan, 0), c.b.thread(&c.plan, 1));
        c.b.run(&mut [&mut stalled, &mut other], |t| t[0].running().len() + t[1].running().len() == 1).expect("assigned");
        c.run(&mut stalled, 20);
        c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
        // It reads the next records into an open transaction, and then stands still.
        stalled.turn(c.b.clock.now()).expect("turns");
        assert_eq!(c.b.cluster.unfinished().len(), 1);
        if session_only {
            // It wakes before the other has read anything: only what it holds itself could do harm.
            c.b.cluster.expire_session(&c.plan.group, &SlotName::new("stalled-000"));
            c.b.run(&mut [&mut stalled], |_| c.b.cluster.unfinished().is_empty()).expect("takes back what it lost");
            assert_eq!(c.b.count(&c.to), 20);
        } else {
            let mut two: [&mut StreamThread<MemoryCluster>; 1] = [&mut other];
            c.b.run(&mut two, |t| t[0].running().len() == 1).expect("the other takes over");
            c.b.run_until_count(&mut two, &c.to, 40).expect("runs");
        }
        c.b.run_until_count(&mut [&mut stalled, &mut other], &c.to, 40).expect("runs");
        c.b.feed(&c.from, 0, &numbers(41, 20, &["k"]));
        c.b.run_until_count(&mut [&mut stalled, &mut other], &c.to, 60).expect("both run");
        c.b.stop(stalled);
        c.b.stop(other);
        c.expect(60);
    }
}

/// If this broke, a machine that stands still again before its first commit would end its members as if their slots were taken; or two
/// processes with one name would fence each other for ever.
#[test]
fn fencings_in_a_row_are_outlived_up_to_a_number() {
    let c = copying("again", true);
    let slot = SlotName::new("again-000");
    let mut thread = c.b.thread(&c.plan, 0);
    c.run(&mut thread, 20);
    let fence = |times: usize| (0..times).for_each(|_| c.b.cluster.fail_next(Call::Commit, Some(&slot), Class::Fenced));
    c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
    fence(4);
    c.run(&mut thread, 40);
    c.b.feed(&c.from, 0, &numbers(41, 20, &["k"]));
    fence(5);
    let ended = c.b.run(&mut [&mut thread], |_| false).expect_err("somebody uses its name");
    assert_eq!(ended.code, codes::SLOT_TAKEN, "{ended}");
    drop(thread);
    c.expect(40);
}

/// If this broke, whoever takes over after a crash would wait for the transaction's timeout: the mark would name who committed
/// last, not who blocks.
#[test]
fn the_claim_names_the_dead_slot_and_it_is_fenced() {
    let c = copying("dead", true);
    let (first, dead_slot) = (SlotName::new("dead-001"), SlotName::new("dead-000"));
    let mut thread = c.b.thread(&c.plan, 1);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.b.cluster.expire_session(&c.plan.group, &first);
    c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
    // As `kill -9` between offsets and its first commit after the claim: the transaction stays open, nobody says goodbye.
    failpoint::arm("commit.before", 2, Class::Config);
    c.b.cluster.fail_next(Call::Abort, Some(&dead_slot), Class::Rebuild);
    let mut dead = c.b.thread(&c.plan, 0);
    c.b.run(&mut [&mut dead], |_| false).expect_err("dies");
    assert_eq!(c.b.cluster.unfinished(), std::slice::from_ref(&dead_slot));
    drop(dead);
    c.b.cluster.expire_session(&c.plan.group, &dead_slot);
    let died = c.b.clock.now().mono;
    let mut heir = c.b.thread(&c.plan, 1);
    c.b.run_until_count(&mut [&mut heir], &c.to, 40).expect("the heir goes on");
    let waited = c.b.clock.now().mono.since(died);
    assert!(waited < c.b.options.transaction_timeout / 2, "by the cluster's own clock: {waited:?}");
    c.b.stop(heir);
    c.expect(40);
}

/// If this broke, a restore would end before a changelog whose marker comes late, and the sums would start from less.
#[test]
fn a_restore_waits_for_late_markers_of_the_changelog() {
    let c = copying("late", true);
    c.b.cluster.hold_markers(HeldMarkers::Topics([c.script.changelog(), c.to.clone()].into()));
    let mut first = c.b.thread(&c.plan, 0);
    c.b.run(&mut [&mut first], |_| c.script.notes().iter().any(|n| n == "committed")).expect("commits");
    c.b.stop(first);
    c.b.cluster.expire_session(&c.plan.group, &SlotName::new("late-000"));
    c.b.feed(&c.from, 0, &numbers(21, 20, &["k"]));
    let mut heir = c.b.thread(&c.plan, 1);
    for _ in 0..50 {
        c.b.round(&mut [&mut heir]).expect("turns");
    }
    c.b.cluster.hold_markers(HeldMarkers::None);
    c.run(&mut heir, 40);
    c.b.stop(heir);
    c.expect(40);
}

/// If this broke, a transaction that only a timer drove would carry no offset, and nothing would fence a former owner's.
#[test]
fn a_timers_transaction_goes_through_the_groups_check() {
    let mut c = copying("timer", false);
    c.script = Script { ticks: Some(Duration::from_millis(30)), ..c.script.clone() };
    let plan = c.b.unit(vec![c.script.plan(0, &[(&c.from, Reading::Shared)])]);
    let mut thread = c.b.thread(&plan, 0);
    c.run(&mut thread, 25);
    // Refused only where offsets are sent at all.
    c.b.cluster.fail_next(Call::Offsets, None, Class::Abort);
    let before = c.b.count(&c.to);
    c.run(&mut thread, before + 3);
    assert!(c.script.notes().iter().any(|n| n == "aborted"));
    c.b.stop(thread);
}

/// If this broke, two processes in one slot would fence each other for ever instead of one of them leaving.
#[test]
fn a_taken_slot_ends_the_thread_with_its_own_code() {
    let c = copying("taken", false);
    let mut first = c.b.thread(&c.plan, 0);
    c.run(&mut first, 20);
    let mut second = c.b.thread(&c.plan, 0);
    c.b.feed(&c.from, 0, &numbers(21, 5, &["k"]));
    let ended = c.b.run(&mut [&mut first], |_| false).expect_err("the first was replaced");
    assert_eq!((ended.code, ended.fault.exit_code()), (codes::SLOT_TAKEN, 5));
    c.run(&mut second, 25);
    c.b.stop(second);
    c.expect(25);
}

/// If this broke, an outbox without a known position would be read from a place that skips or repeats effects.
#[test]
fn a_missing_position_is_refused_where_it_must_not_be_guessed() {
    let c = copying("refuse", false);
    let mut plan = c.plan.clone();
    plan.subtopologies[0].sources[0].start = StartAt::Refuse;
    let tp = Tp::new(c.from.clone(), 0);
    c.b.cluster.admin().unwrap().delete_records(&[(tp, crate::offset::NextOffset(5))]).unwrap();
    let mut thread = c.b.thread(&plan, 0);
    let ended = c.b.run(&mut [&mut thread], |_| false).expect_err("refused");
    assert_eq!(ended.code, codes::OFFSET_MISSING, "{ended}");
    let fresh = copying("refuse-new", false);
    let mut plan = fresh.plan.clone();
    plan.subtopologies[0].sources[0].start = StartAt::Refuse;
    let mut thread = fresh.b.thread(&plan, 0);
    fresh.run(&mut thread, 20);
    fresh.expect(20);
}

/// If this broke, a fault that comes back with every try would spin for ever instead of telling somebody; or a member whose group is a
/// minute late in taking it back would end.
#[test]
fn faults_without_end_end_the_thread() {
    let failing = |times: usize| {
        let c = copying("endless", false);
        let thread = c.b.thread(&c.plan, 0);
        (0..times).for_each(|_| c.b.cluster.fail_next(Call::Offsets, None, Class::Abort));
        (c, thread)
    };
    let (c, mut thread) = failing(200);
    let ended = c.b.run(&mut [&mut thread], |_| false).expect_err("gives up");
    assert_eq!(ended.code, codes::TRANSACTION_ABORTED);
    assert_eq!(c.b.count(&c.to), 0);
    // More than thirty in a row, a second from each other.
    let (c, mut thread) = failing(60);
    c.run(&mut thread, 20);
    c.b.stop(thread);
    c.expect(20);
}

/// If this broke, a process would not come up, not stop on SIGTERM within its bound, or leave work half done.
#[test]
fn a_process_starts_runs_and_stops() {
    let clock: SharedClock = Arc::new(SystemClock);
    let cluster = MemoryCluster::new(clock.clone());
    let b = Bench {
        cluster: cluster.clone(),
        clock: clock.clone(),
        pass: Arc::new(std::thread::sleep),
        name: "process".to_owned(),
        options: RuntimeOptions::default(),
    };
    let (from, to) = (b.topic("in"), b.topic("out"));
    let script = Script { sums: true, ..Script::copy(&to) };
    let mut plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    let topic = |name: &TopicName, usage| InternalTopic { name: name.clone(), partitions: Some(4), config: BTreeMap::new(), usage };
    plan.topics = vec![topic(&from, TopicUse::External), topic(&to, TopicUse::Internal)];
    let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).unwrap();
    let metrics = Metrics::unread().unwrap();
    let start = |options: &RuntimeOptions| {
        let units = vec![UnitRun { plan: plan.clone(), threads: 2 }];
        KafkaStreams::start(&cluster, units, &state, &clock, options, &metrics)
    };
    let missing = start(&b.options).err().expect("the user's topic is missing");
    assert_eq!(missing.code, codes::TOPIC_MISSING);
    assert!(missing.to_string().contains("--create --topic process-in --partitions 4"), "{missing}");

    let options = RuntimeOptions { create_topics: true, ..b.options.clone() };
    let streams = start(&options).expect("starts");
    assert_eq!(streams.wait(Duration::from_secs(20), |s| s == State::Running), State::Running);
    assert_eq!(b.cluster.admin().unwrap().topic(&script.changelog()).unwrap().map(|t| t.partitions), Some(4));
    (0..4).for_each(|p| b.feed(&from, p, &numbers(1, 50, &["k"])));
    while b.count(&to) < 200 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(streams.threads().len(), 2);
    streams.stop(Duration::from_secs(20)).expect("stops in order");
    assert_eq!(cluster.unfinished(), []);
    assert_eq!(script.notes().iter().filter(|n| *n == "closed Stopped").count(), 4);
    assert_eq!(b.values(&to, Isolation::Committed)[&Partition(3)].last().map(String::as_str), Some("1275"));
}

/// If this broke, a failing thread would hang or hide: the failure must end the process, and be what it ends with.
#[test]
fn a_failing_task_stops_the_process_or_starts_again() {
    use crate::runtime::OnFailure;
    for on_failure in [OnFailure::StopAll, OnFailure::Replace] {
        let clock: SharedClock = Arc::new(SystemClock);
        let cluster = MemoryCluster::new(clock.clone());
        let options = RuntimeOptions { on_failure, ..RuntimeOptions::default() };
        let b = Bench { cluster, clock, pass: Arc::new(std::thread::sleep), name: "failing".to_owned(), options };
        let (from, to) = (b.topic("in"), b.topic("out"));
        b.create(&from, 1, &[]);
        b.create(&to, 1, &[]);
        let script = Script { booms: Arc::new(1.into()), ..Script::copy(&to) };
        let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
        b.feed(&from, 0, &[("k".to_owned(), "boom".to_owned())]);
        let state = StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).unwrap();
        let units = vec![UnitRun { plan, threads: 1 }];
        let streams = KafkaStreams::start(&b.cluster, units, &state, &b.clock, &b.options, &Metrics::unread().unwrap()).unwrap();
        match on_failure {
            OnFailure::StopAll => {
                assert_eq!(streams.wait(Duration::from_secs(20), |_| false), State::Failed);
                let failure = streams.stop(Duration::from_secs(5)).expect_err("the failure");
                assert_eq!(failure.fault, Fault::Bug);
                assert_eq!(b.count(&to), 0);
            }
            OnFailure::Replace => {
                while b.count(&to) < 1 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                streams.stop(Duration::from_secs(20)).expect("stops in order");
                assert_eq!(b.count(&to), 1);
            }
        }
    }
}
