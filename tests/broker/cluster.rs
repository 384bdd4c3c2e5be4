//! Three brokers, replication 3, min.insync 2: leaders moved, brokers killed, in-sync replicas lost, and everything at once, under an
//! application with state and an effect. Inside Kafka a plain fold over the input judges, outside the target's book.
//!
//! A command of its own: `cargo test --test broker cluster -- --ignored`. `READBACK_FAULTS=24` before it plays a longer chaos,
//! `READBACK_CHAOS_SEED=N` one again.

use std::time::Duration;

use readback::demo::members::Member as _;
use readback::demo::rng::Rng;
use readback::kafka::Cluster as _;
use readback::record::OutRecord;

use crate::chaos::{A_STORY, number};
use crate::sums::Sums;
use crate::until;

/// If this broke, leaders and coordinators that move, as in every rolling restart of brokers, would lose, repeat or stop something.
#[test]
#[ignore = "three brokers: cargo test --test broker cluster -- --ignored"]
fn leaders_that_move_lose_and_repeat_nothing() {
    let mut s = Sums::start("moved");
    for _ in 0..3 {
        let before = until("the leaders are known", || s.brokers.places());
        s.brokers.move_leaders();
        let after = until("the leaders are known", || s.brokers.places());
        let stayed = before
            .iter()
            .filter(|p| after.iter().any(|q| q.topic == p.topic && q.partition == p.partition && q.leader == p.leader));
        let stayed = stayed.count();
        assert!(stayed * 2 < before.len(), "{stayed} of {} leaders have stayed", before.len());
        s.goes_on();
    }
    assert_eq!(s.verdict(), [""; 0]);
}

/// If this broke, a broker that dies would cost acknowledged work, repeat some, or stop members that others still serve.
#[test]
#[ignore = "three brokers: cargo test --test broker cluster -- --ignored"]
fn a_broker_killed_and_restarted_loses_and_repeats_nothing() {
    let mut s = Sums::start("killed");
    for broker in 1..=3 {
        s.brokers.kill(broker);
        s.goes_on();
        s.brokers.start(broker);
        s.brokers.until_in_sync();
        s.goes_on();
    }
    assert_eq!(s.verdict(), [""; 0]);
}

/// If this broke, members would confirm, or send to the target, what the brokers had not taken safely, or would not go on when they can.
#[test]
#[ignore = "three brokers: cargo test --test broker cluster -- --ignored"]
fn without_in_sync_replicas_nothing_is_confirmed_and_nothing_lost() {
    let mut s = Sums::start("in-sync");
    s.brokers.kill(2);
    s.brokers.kill(3);
    until("one replica is left", || s.brokers.places()?.iter().all(|p| p.in_sync == 1).then_some(()));
    let probe = s.topic("dead");
    let record = OutRecord { topic: &probe, partition: None, timestamp: None, key: None, value: Some(b"{}"), headers: None };
    let refused = s.cluster.publish(&[record], Duration::from_secs(2));
    assert!(refused.is_err(), "a record was taken by one replica alone");
    // Calls that had been journalled by then may still leave, and end; after that, and for longer than a transaction lives, nothing does.
    std::thread::sleep(Duration::from_secs(3));
    let (told, asked) = (s.told(), s.asked.load(std::sync::atomic::Ordering::SeqCst));
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!((s.told(), s.asked.load(std::sync::atomic::Ordering::SeqCst)), (told, asked), "something went on");
    s.members.iter_mut().for_each(|m| m.check().expect("members wait"));
    s.brokers.start(2);
    s.goes_on();
    s.brokers.start(3);
    s.goes_on();
    assert_eq!(s.verdict(), [""; 0]);
}

/// If this broke, the death of the broker that keeps a group's positions or a transaction's end would lose or repeat what was under way.
#[test]
#[ignore = "three brokers: cargo test --test broker cluster -- --ignored"]
fn a_coordinator_that_dies_loses_and_repeats_nothing() {
    let mut s = Sums::start("coordinator");
    let effects = format!("{}.effects", s.app);
    let roles = [
        ("__consumer_offsets", s.app.clone()),
        ("__consumer_offsets", effects.clone()),
        ("__transaction_state", format!("{}-000", s.app)),
        ("__transaction_state", format!("{effects}-001")),
    ];
    for (topic, name) in roles {
        let broker = s.brokers.coordinator(topic, &name);
        s.brokers.kill(broker);
        until("another broker coordinates", || (s.brokers.coordinator(topic, &name) != broker).then_some(()));
        s.goes_on();
        s.brokers.start(broker);
        s.brokers.until_in_sync();
    }
    assert_eq!(s.verdict(), [""; 0]);
}

/// What breaks next.
#[derive(Clone, Copy, Debug)]
enum Break {
    Kill(usize),
    Stall(usize, Duration),
    /// A third member comes, or goes: partitions move.
    Rebalance,
    KillBroker(i32, Duration),
    StopBroker(i32, Duration),
    MoveLeaders,
}

fn draw(rng: &mut Rng) -> Break {
    let (member, broker) = (rng.below(2) as usize, 1 + rng.below(3) as i32);
    let mut up_to = |ms: u64| Duration::from_millis(rng.below(ms));
    let (stall, away) = (up_to(16_000), up_to(6_000));
    match rng.below(10) {
        0..3 => Break::Kill(member),
        3 => Break::Stall(member, stall),
        4..6 => Break::Rebalance,
        6..8 => Break::KillBroker(broker, away),
        8 => Break::StopBroker(broker, away),
        _ => Break::MoveLeaders,
    }
}

/// If this broke, state would not survive faults that meet each other: a sum would differ from a fold over its input, a store from its
/// changelog, or the target's book from what was reported.
#[test]
#[ignore = "three brokers, and minutes: cargo test --test broker cluster -- --ignored"]
fn sums_stores_and_books_agree_whatever_breaks_at_once() {
    let (mut left, mut seed) = (number("READBACK_FAULTS", A_STORY as u64) as usize, number("READBACK_CHAOS_SEED", 11));
    while left > 0 {
        let faults = left.min(A_STORY);
        let wrong = one(seed, faults);
        assert!(wrong.is_empty(), "READBACK_CHAOS_SEED={seed} READBACK_FAULTS={faults} plays it again:\n{}", wrong.join("\n"));
        (left, seed) = (left - faults, seed + 1);
    }
}

/// One story: faults meet, since the next one comes while the last one is still being mended.
fn one(seed: u64, faults: usize) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0x7375_6d73);
    let mut s = Sums::start(&format!("chaos-{seed}"));
    for _ in 0..faults {
        let next = draw(&mut rng);
        eprintln!("seed {seed}: {next:?}");
        play(&mut s, next);
        match rng.below(3) {
            0 => s.goes_on(),
            _ => std::thread::sleep(Duration::from_millis(rng.below(2_000))),
        }
    }
    s.verdict()
}

fn play(s: &mut Sums, next: Break) {
    match next {
        Break::Kill(member) => s.members[member].kill_and_restart().expect("restarted"),
        Break::Stall(member, time) => {
            s.members[member].stand_still();
            std::thread::sleep(time);
            s.members[member].go_on();
        }
        Break::Rebalance if s.members.len() == 2 => s.join(),
        Break::Rebalance => s.leave(),
        Break::KillBroker(broker, away) => {
            s.brokers.kill(broker);
            std::thread::sleep(away);
            s.brokers.start(broker);
        }
        Break::StopBroker(broker, away) => {
            s.brokers.stop(broker);
            std::thread::sleep(away);
            s.brokers.start(broker);
        }
        Break::MoveLeaders => s.brokers.move_leaders(),
    }
}
