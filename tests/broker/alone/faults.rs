//! What the client does when answers are lost and the broker dies.

use std::time::Duration;

use readback::kafka::rdkafka::RdCluster;
use readback::kafka::{Class, Source as _, TxLimits, TxSink as _};
use readback::offset::NextOffset;
use readback::testing::proxy::{END_TXN, Fate, Proxy};

use crate::faults::{LIMIT, committed, prepare, seen, sink, slot, source, topic};
use crate::{alone, cluster_at, patient_cluster, restart_broker, stack};

fn through_proxy() -> (Proxy, RdCluster) {
    let (listen, target) = stack().proxy().expect("this test needs a local stack: unset READBACK_BROKERS");
    (Proxy::start(listen, target).expect("the proxy's port is free"), cluster_at(listen))
}

/// If this broke, one lost or late answer to a commit would stop a thread, or let it commit the same work twice.
#[test]
fn lost_answers_to_a_commit_are_asked_for_again() {
    let _alone = alone();
    let (proxy, c) = through_proxy();
    let topic = topic(&c, "lost");
    let mut source = source(&c, &slot(&topic), &topic);
    let mut sink = sink(&c, &slot(&topic), TxLimits::default());
    for (n, fate) in [(1, Fate::Cut), (2, Fate::Late(Duration::from_millis(700)))] {
        prepare(&mut sink, &mut source, &topic, n);
        proxy.disturb(END_TXN, fate, 2);
        sink.commit(LIMIT).expect("commit");
        assert!(proxy.left(END_TXN) < 2, "the answer was disturbed");
        proxy.disturb(END_TXN, fate, 0);
        assert_eq!(committed(&mut source, &topic), Some(NextOffset(n)));
    }
    source.close();
    assert_eq!(seen(&c, &topic), 2);
}

/// If this broke, a commit with an unclear end would be taken for done, or for failed, without looking.
#[test]
fn a_commit_without_any_answer_is_unknown_until_the_offsets_are_read() {
    let _alone = alone();
    let (proxy, c) = through_proxy();
    let topic = topic(&c, "unknown");
    let mut source = source(&c, &slot(&topic), &topic);
    let mut lost = sink(&c, &slot(&topic), TxLimits::default());
    prepare(&mut lost, &mut source, &topic, 5);
    proxy.disturb(END_TXN, Fate::Swallowed, u32::MAX);
    let unclear = lost.commit(Duration::from_secs(3)).expect_err("no answer ever comes");
    assert_eq!(unclear.class, Class::OutcomeUnknown, "{unclear}");
    proxy.disturb(END_TXN, Fate::Swallowed, 0);
    drop(lost);
    let mut new = sink(&c, &slot(&topic), TxLimits::default());
    let at = committed(&mut source, &topic);
    assert_eq!(seen(&c, &topic), usize::from(at == Some(NextOffset(5))), "offsets and output say the same");
    prepare(&mut new, &mut source, &topic, 6);
    new.commit(LIMIT).expect("the slot goes on");
    source.close();
}

/// If this broke, a broker restart inside a transaction would lose it, apply it twice, or leave the slot dead.
#[test]
fn a_broker_killed_inside_a_transaction_leaves_offsets_and_output_agreeing() {
    let _alone = alone();
    let c = patient_cluster();
    let topic = topic(&c, "killed");
    let mut source = source(&c, &slot(&topic), &topic);
    // Long: nobody but us ends the transaction.
    let limits = TxLimits { transaction: Duration::from_secs(60), ..TxLimits::default() };
    let mut old = sink(&c, &slot(&topic), limits);
    prepare(&mut old, &mut source, &topic, 1);
    stack().kill_broker().expect("kill");
    let first = old.commit(Duration::from_secs(2));
    restart_broker();
    let done = match first {
        Ok(()) => true,
        Err(e) => {
            assert_ne!(e.class, Class::Config, "{e}");
            false
        }
    };
    drop(old);
    let mut new = sink(&c, &slot(&topic), limits);
    source.close();
    let mut source = self::source(&c, &slot(&topic), &topic);
    let at = committed(&mut source, &topic);
    assert_eq!(seen(&c, &topic), usize::from(at == Some(NextOffset(1))), "offsets and output say the same");
    assert!(!done || at == Some(NextOffset(1)), "a commit that was confirmed is there");
    prepare(&mut new, &mut source, &topic, 2);
    new.commit(LIMIT).expect("the slot goes on");
    source.close();
}
