//! What a proxy or a dying broker adds to Kafka's own tests of exactly-once processing, with stream threads on the real client.

use std::sync::Arc;
use std::time::Duration;

use readback::kafka::rdkafka::{RdCluster, RdConfig};
use readback::testing::proxy::{END_TXN, Fate, Proxy};

use crate::scenarios::Summing;
use crate::{alone, cluster_at, restart_broker, stack, until};

/// If this broke, a commit whose answer is lost or late would be done twice, or half: output, sums and positions must agree.
#[test]
fn lost_answers_to_commits_leave_exact_output() {
    let _alone = alone();
    let (listen, target) = stack().proxy().expect("this test needs a local stack: unset READBACK_BROKERS");
    let proxy = Proxy::start(listen, target).expect("the proxy's port is free");
    let mut s = Summing::new("lost-answers", cluster_at(listen));
    let mut thread = s.thread(0);
    s.feed(20);
    s.settle(&mut [&mut thread]);
    let late = Fate::Late(Duration::from_millis(700));
    for (fate, times) in [(Fate::Cut, 1), (Fate::Swallowed, 1), (late, 2), (Fate::Cut, 3), (Fate::Swallowed, 2)] {
        proxy.disturb(END_TXN, fate, times);
        s.feed(20);
        s.settle(&mut [&mut thread]);
        assert!(proxy.left(END_TXN) < times, "no answer was disturbed");
        proxy.disturb(END_TXN, fate, 0);
    }
    s.b.stop(thread);
    s.expect_exact();
}

/// If this broke, a broker that dies inside a transaction would cost records or repeat them, or leave a thread dead.
#[test]
fn a_broker_killed_inside_a_transaction_leaves_exact_output() {
    let _alone = alone();
    let (listen, target) = stack().proxy().expect("this test needs a local stack: unset READBACK_BROKERS");
    let proxy = Arc::new(Proxy::start(listen, target).expect("the proxy's port is free"));
    let cluster = RdCluster::new(RdConfig { session: Duration::from_secs(45), ..RdConfig::new(listen) }).expect("settings");
    let mut s = Summing::new("broker-killed", cluster);
    s.b.options.transaction_timeout = Duration::from_secs(40);
    s.b.options.session_timeout = Duration::from_secs(45);
    let mut thread = s.thread(0);
    s.feed(20);
    s.settle(&mut [&mut thread]);
    for _ in 0..2 {
        // The thread gets as far as its commit, which the broker never hears of: the transaction is open when it dies.
        proxy.withhold(END_TXN);
        s.feed(200);
        let network = Arc::clone(&proxy);
        let restart = std::thread::spawn(move || {
            until("a commit that is withheld", || (network.withheld() > 0).then_some(()));
            network.shut();
            stack().kill_broker().expect("kill");
            restart_broker();
            network.open();
        });
        while !restart.is_finished() {
            s.b.round(&mut [&mut thread]).expect("the thread lives on");
        }
        restart.join().expect("the broker is back");
        s.settle(&mut [&mut thread]);
    }
    s.b.stop(thread);
    s.expect_exact();
}

/// If this broke, a broker that is away for longer than a session would cost every member its life: on its return the group calls
/// them fenced, each by its own former membership.
#[test]
fn a_broker_away_for_longer_than_a_session_costs_no_member() {
    let _alone = alone();
    let mut s = Summing::new("away", cluster_at(stack().brokers()));
    // Longer than the broker is away, so that none of its markers is lost at its return.
    s.b.options.transaction_timeout = Duration::from_secs(40);
    let (mut one, mut two) = (s.thread(0), s.thread(1));
    s.feed(20);
    s.settle(&mut [&mut one, &mut two]);
    stack().stop_broker().expect("stops");
    let restart = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(14));
        stack().start_broker().expect("start");
    });
    while !restart.is_finished() {
        s.b.round(&mut [&mut one, &mut two]).expect("both live on");
    }
    restart.join().expect("the broker is back");
    s.feed(20);
    s.settle(&mut [&mut one, &mut two]);
    s.b.stop(one);
    s.b.stop(two);
    s.expect_exact();
}
