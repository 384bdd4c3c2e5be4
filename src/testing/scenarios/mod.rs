//! What every processor must keep, after Kafka's own integration tests for exactly-once processing (E1 to E8), as functions over
//! any cluster: the same runs on the in-process log and on a real broker. Each panics where it does not hold.

mod bench;
mod held;
mod tasks;

pub use bench::{Bench, numbers, record, text};
pub use held::{Away, a_record_without_its_schema_waits_alone};
pub use tasks::{Diary, Script};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::ids::{Partition, TopicName, Tp};
use crate::kafka::{Cluster, Isolation, Reading};
use crate::task::UnitPlan;

/// All scenarios with their names. Each needs a bench with a name of its own.
pub fn all<C: Cluster>() -> Vec<(&'static str, fn(&Bench<C>))> {
    vec![
        ("e1-copy", e1_copy),
        ("e1-split", e1_copy_of_split_partitions),
        ("e2-transactional-input", e2_transactional_input),
        ("e3-restart", e3_restart),
        ("e4-two-subtopologies", e4_two_subtopologies),
        ("e5-whole-transactions", e5_whole_transactions),
        ("e6-failing-task", e6_failing_task),
        ("e7-failing-task-with-sums", e7_failing_task_with_sums),
        ("timer", timer_carries_an_offset),
        ("move", partitions_move_in_order),
    ]
}

fn input<C: Cluster>(b: &Bench<C>, partitions: u32) -> (TopicName, TopicName) {
    let (from, to) = (b.topic("in"), b.topic("out"));
    b.create(&from, partitions, &[]);
    b.create(&to, partitions, &[]);
    (from, to)
}

fn expect_values<C: Cluster>(b: &Bench<C>, topic: &TopicName, expected: &BTreeMap<Partition, Vec<String>>) {
    assert_eq!(&b.values(topic, Isolation::Committed), expected, "{}: committed output", b.name);
}

fn values_of(records: &[(String, String)]) -> Vec<String> {
    records.iter().map(|(_, v)| v.clone()).collect()
}

fn copies<C: Cluster>(b: &Bench<C>, reading: Reading) {
    let (from, to) = input(b, 3);
    let second = b.topic("in2");
    b.create(&second, 3, &[]);
    let plan = b.unit(vec![Script::copy(&to).plan(0, &[(&from, reading), (&second, reading)])]);
    let mut expected: BTreeMap<Partition, Vec<String>> = BTreeMap::new();
    for p in 0..3 {
        let (one, two) = (numbers(p * 1000, 100, &["a", "b"]), numbers(p * 1000 + 500, 50, &["c"]));
        b.feed(&from, p as i32, &one);
        b.feed(&second, p as i32, &two);
        expected.insert(Partition(p as i32), [values_of(&one), values_of(&two)].concat());
    }
    let mut thread = b.thread(&plan, 0);
    b.run_until_count(&mut [&mut thread], &to, 450).expect("runs");
    b.stop(thread);
    let mut found = b.values(&to, Isolation::Committed);
    // Order holds within an input partition; between two inputs of one task any is right.
    found.values_mut().for_each(|v| v.sort_by_key(|v| (v.parse::<usize>().expect("a number") % 1000 >= 500, v.len(), v.clone())));
    expected
        .values_mut()
        .for_each(|v| v.sort_by_key(|v| (v.parse::<usize>().expect("a number") % 1000 >= 500, v.len(), v.clone())));
    assert_eq!(found, expected, "{}", b.name);
}

/// E1: read_committed output equals input; several topics, several partitions.
pub fn e1_copy<C: Cluster>(b: &Bench<C>) {
    copies(b, Reading::Shared);
}

/// E1 where each partition has a queue of its own.
pub fn e1_copy_of_split_partitions<C: Cluster>(b: &Bench<C>) {
    copies(b, Reading::Split);
}

/// E2: an input that was itself written in transactions; what was taken back is not seen, and the committed position is right
/// although markers use offsets.
pub fn e2_transactional_input<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 1);
    let plan = b.unit(vec![Script::copy(&to).plan(0, &[(&from, Reading::Shared)])]);
    let n = numbers(0, 30, &["k"]);
    b.feed_in_transactions(&from, 0, &[&n[..10], &n[10..11], &n[11..]]);
    let mut thread = b.thread(&plan, 0);
    b.run_until_count(&mut [&mut thread], &to, 30).expect("runs");
    b.stop(thread);
    expect_values(b, &to, &BTreeMap::from([(Partition(0), values_of(&n))]));
    let tp = Tp::new(from, 0);
    let at = b.committed(&plan, std::slice::from_ref(&tp))[0].1.expect("a position");
    // 30 records and 3 markers lie before the aborted rest; past the last record is the least.
    assert!(at.0 >= 32 && at <= b.end(&tp), "position {at}, end {}", b.end(&tp));
}

/// E3: stop, restart, feed again: it goes on where it stood, without repeats.
pub fn e3_restart<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 2);
    let plan = b.unit(vec![Script::copy(&to).plan(0, &[(&from, Reading::Shared)])]);
    let n = numbers(0, 60, &["a", "b", "c"]);
    for (i, part) in n.chunks(20).enumerate() {
        b.feed(&from, 0, part);
        b.feed(&from, 1, part);
        let mut thread = b.thread(&plan, 0);
        b.run_until_count(&mut [&mut thread], &to, (i + 1) * 40).expect("runs");
        b.stop(thread);
    }
    expect_values(b, &to, &BTreeMap::from([(Partition(0), values_of(&n)), (Partition(1), values_of(&n))]));
}

/// E4: two sub-topologies with a topic between them.
pub fn e4_two_subtopologies<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 2);
    let between = b.topic("between");
    b.create(&between, 2, &[]);
    let first = Script::copy(&between).plan(0, &[(&from, Reading::Shared)]);
    let second = Script::copy(&to).plan(1, &[(&between, Reading::Shared)]);
    let plan = b.unit(vec![first, second]);
    let n = numbers(0, 200, &["a", "b"]);
    b.feed(&from, 0, &n);
    b.feed(&from, 1, &n[..50]);
    let mut thread = b.thread(&plan, 0);
    b.run_until_count(&mut [&mut thread], &to, 250).expect("runs");
    assert_eq!(thread.running().len(), 4, "two sub-topologies × two partitions");
    b.stop(thread);
    expect_values(b, &to, &BTreeMap::from([(Partition(0), values_of(&n)), (Partition(1), values_of(&n[..50]))]));
}

/// E5: several transactions in a row; each becomes visible as a whole.
pub fn e5_whole_transactions<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 1);
    let script = Script::copy(&to);
    let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    let mut thread = b.thread(&plan, 0);
    let n = numbers(0, 8, &["k"]);
    for (until, part) in [(5, &n[..5]), (8, &n[5..])] {
        b.feed(&from, 0, part);
        let mut seen = Vec::new();
        b.run(&mut [&mut thread], |_| {
            seen.push(b.count(&to));
            seen.last() == Some(&until)
        })
        .expect("runs");
        assert!(seen.iter().all(|s| [until - part.len(), until].contains(s)), "{}: {seen:?}", b.name);
    }
    b.stop(thread);
    expect_values(b, &to, &BTreeMap::from([(Partition(0), values_of(&n))]));
}

/// E6: ten records committed, five pending, then the task fails; another thread in the slot goes on: exactly all, in order.
pub fn e6_failing_task<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 2);
    let script = Script { booms: Arc::new(AtomicU32::new(1)), ..Script::copy(&to) };
    let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    let expected = fail_once(b, &plan, &from, &to);
    let diary = script.notes();
    assert!(diary.iter().any(|d| d == "aborted"), "{diary:?}");
    expect_values(b, &to, &BTreeMap::from([(Partition(0), expected.clone()), (Partition(1), expected)]));
}

/// Feeds, lets the task fail on `boom` over pending records, and finishes with a second thread. Answers what one partition got.
fn fail_once<C: Cluster>(b: &Bench<C>, plan: &UnitPlan, from: &TopicName, to: &TopicName) -> Vec<String> {
    let n = numbers(0, 20, &["a", "b"]);
    let boom = ("only-in-the-aborted-part".to_owned(), "boom".to_owned());
    let mut thread = b.thread(plan, 0);
    (0..2).for_each(|p| b.feed(from, p, &n[..10]));
    b.run_until_count(&mut [&mut thread], to, 20).expect("runs");
    let mut rest = n[10..15].to_vec();
    rest.push(boom.clone());
    rest.extend_from_slice(&n[15..]);
    (0..2).for_each(|p| b.feed(from, p, &rest));
    let failed = b.run(&mut [&mut thread], |_| false).expect_err("the task fails");
    assert!(failed.to_string().contains("boom"), "{failed}");
    assert_eq!(b.count(to), 20, "{}: nothing of the failed transaction is visible", b.name);
    b.stop(thread);
    let mut second = b.thread(plan, 0);
    b.run_until_count(&mut [&mut second], to, 42).expect("runs");
    b.stop(second);
    values_of(&[&n[..15], &[boom], &n[15..]].concat())
}

/// E7: as E6, with running sums: they are right, so nothing of the failed transaction stayed in the store.
pub fn e7_failing_task_with_sums<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 2);
    let script = Script { sums: true, booms: Arc::new(AtomicU32::new(1)), ..Script::copy(&to) };
    b.create(&script.changelog(), 2, &[("cleanup.policy", "compact")]);
    let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    let values = fail_once(b, &plan, &from, &to);
    let mut sums: BTreeMap<bool, i64> = BTreeMap::new();
    let sum = |v: &String| match v.parse::<i64>() {
        Ok(n) => {
            let of = sums.entry(n % 2 == 0).or_default();
            *of += n;
            of.to_string()
        }
        Err(_) => "0".to_owned(),
    };
    let expected: Vec<String> = values.iter().map(sum).collect();
    expect_values(b, &to, &BTreeMap::from([(Partition(0), expected.clone()), (Partition(1), expected)]));
}

/// A transaction that a timer drove carries an offset of the task's first source: without one nothing would fence a former owner.
pub fn timer_carries_an_offset<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 1);
    let script = Script { ticks: Some(Duration::from_millis(30)), ..Script::copy(&to) };
    let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    let mut thread = b.thread(&plan, 0);
    b.run(&mut [&mut thread], |_| b.count(&to) >= 3).expect("runs");
    b.stop(thread);
    let (_, at, mark) = b.committed(&plan, &[Tp::new(from, 0)]).remove(0);
    assert_eq!((at.map(|a| a.0), mark.0), (Some(0), format!("{}-000", b.name)), "claimed by name, at the start");
}

/// A second slot comes and goes: partitions move after the commit, and nothing is lost or repeated.
pub fn partitions_move_in_order<C: Cluster>(b: &Bench<C>) {
    let (from, to) = input(b, 4);
    let script = Script { sums: true, ..Script::copy(&to) };
    b.create(&script.changelog(), 4, &[("cleanup.policy", "compact")]);
    let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
    let n = numbers(1, 300, &["k"]);
    let feed = |part: &[(String, String)]| (0..4).for_each(|p| b.feed(&from, p, part));
    let mut one = b.thread(&plan, 0);
    feed(&n[..100]);
    b.run(&mut [&mut one], |t| t[0].running().len() == 4 && b.count(&to) >= 40).expect("runs");
    // A transaction is open when the second slot comes: it must be ended before the partitions go.
    feed(&n[100..200]);
    one.turn(b.clock.now()).expect("turns");
    let mut two = b.thread(&plan, 1);
    b.run(&mut [&mut one, &mut two], |t| t[0].running().len() == 2 && t[1].running().len() == 2).expect("moves");
    feed(&n[200..]);
    b.run_until_count(&mut [&mut one, &mut two], &to, 1200).expect("runs");
    b.stop(one);
    b.stop(two);
    let sums: Vec<String> = (1..=300).map(|i: i64| (i * (i + 1) / 2).to_string()).collect();
    expect_values(b, &to, &(0..4).map(|p| (Partition(p), sums.clone())).collect());
}
