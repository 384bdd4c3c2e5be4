//! Kafka's own tests of exactly-once processing (E1 to E8), and what a proxy or a dying broker adds, with stream threads on the
//! real client.

use std::sync::Arc;
use std::time::Duration;

use readback::ids::Tp;
use readback::kafka::rdkafka::{RdCluster, RdConfig};
use readback::kafka::{Cluster, Isolation, Reading};
use readback::runtime::{RuntimeOptions, StreamThread};
use readback::testing::scenarios::{self, Bench, Script, numbers};
use readback::time::SystemClock;

use crate::{cluster_at, shared, stack};

pub fn bench(name: &str, cluster: RdCluster) -> Bench<RdCluster> {
    let options = RuntimeOptions {
        session_timeout: Duration::from_secs(6),
        transaction_timeout: Duration::from_secs(5),
        ..RuntimeOptions::default()
    };
    let name = format!("{name}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    Bench { cluster, clock: Arc::new(SystemClock), pass: Arc::new(std::thread::sleep), name, options }
}

/// If this broke, one of Kafka's own guarantees for exactly-once processing would hold on our own log only (E1 to E7).
#[test]
fn every_scenario_holds_on_a_real_broker() {
    let _shared = shared();
    std::thread::scope(|s| {
        let runs: Vec<_> = scenarios::all::<RdCluster>()
            .into_iter()
            .map(|(name, scenario)| (name, s.spawn(move || scenario(&bench(name, cluster_at(stack().brokers()))))))
            .collect();
        let failed: Vec<&str> = runs.into_iter().filter_map(|(name, run)| run.join().is_err().then_some(name)).collect();
        assert!(failed.is_empty(), "{failed:?}: see above");
    });
}

/// One input, running sums, one partition.
pub struct Summing {
    pub b: Bench<RdCluster>,
    script: Script,
    plan: readback::task::UnitPlan,
    fed: usize,
}

impl Summing {
    pub fn new(name: &str, cluster: RdCluster) -> Self {
        let b = bench(name, cluster);
        let (from, to) = (b.topic("in"), b.topic("out"));
        let script = Script { sums: true, ..Script::copy(&to) };
        b.create(&from, 1, &[]);
        b.create(&to, 1, &[]);
        b.create(&script.changelog(), 1, &[("cleanup.policy", "compact")]);
        let plan = b.unit(vec![script.plan(0, &[(&from, Reading::Shared)])]);
        Self { b, script, plan, fed: 0 }
    }
    pub fn thread(&self, number: u32) -> StreamThread<RdCluster> {
        self.b.thread(&self.plan, number)
    }
    pub fn feed(&mut self, n: usize) {
        self.b.feed(&self.b.topic("in"), 0, &numbers(self.fed + 1, n, &["k"]));
        self.fed += n;
    }
    /// Until everything that was fed is there.
    pub fn settle(&self, threads: &mut [&mut StreamThread<RdCluster>]) {
        self.b.run_until_count(threads, &self.script.to, self.fed).expect("runs");
    }
    /// Every running sum once, in order.
    pub fn expect_exact(&self) {
        let expected: Vec<String> = (1..=self.fed).map(|i| (i * (i + 1) / 2).to_string()).collect();
        let found = self.b.values(&self.script.to, Isolation::Committed).into_values().next().unwrap_or_default();
        assert_eq!(found, expected);
    }
}

/// E8. If this broke, a thread that stood still past the poll limit while another took over would write its stale work as well.
#[test]
fn e8_a_thread_that_stalls_past_the_poll_limit_is_fenced_when_it_wakes() {
    let _shared = shared();
    let settings = [("max.poll.interval.ms".to_owned(), "6000".to_owned())].into();
    let config = RdConfig { session: Duration::from_secs(6), settings, ..RdConfig::new(stack().brokers()) };
    let mut s = Summing::new("e8", RdCluster::new(config).expect("settings"));
    let (mut a, mut b) = (s.thread(0), s.thread(1));
    s.feed(20);
    s.settle(&mut [&mut a, &mut b]);
    let (mut stalled, mut other) = if a.running().is_empty() { (b, a) } else { (a, b) };
    // It reads into an open transaction and stands still; the other one takes over.
    s.feed(20);
    for _ in 0..3 {
        stalled.turn(s.b.clock.now()).expect("turns");
    }
    s.settle(&mut [&mut other]);
    s.feed(20);
    s.settle(&mut [&mut other, &mut stalled]);
    s.b.stop(stalled);
    s.b.stop(other);
    s.expect_exact();
}

/// C049: if this broke, a transaction that the broker took back by its timeout, while the process stood still, would stop the thread,
/// or its records would come twice or never.
#[test]
fn c049_a_transaction_that_the_broker_timed_out_is_done_again() {
    let _shared = shared();
    let mut s = Summing::new("timed-out", cluster_at(stack().brokers()));
    s.b.options.transaction_timeout = Duration::from_millis(1_500);
    let mut thread = s.thread(0);
    s.feed(20);
    s.settle(&mut [&mut thread]);
    let out = Tp::new(s.script.to.clone(), 0);
    for _ in 0..2 {
        s.feed(20);
        for _ in 0..3 {
            thread.turn(s.b.clock.now()).expect("turns");
        }
        // It stands still until no transaction is open any more: the broker has ended it.
        let mut reader = s.b.cluster.reader(Isolation::Committed).expect("a reader");
        crate::until("the broker's timeout", || {
            let (_, stable) = reader.ends(&out, Isolation::Committed).ok()?;
            let (_, high) = reader.ends(&out, Isolation::Uncommitted).ok()?;
            (stable == high).then_some(())
        });
        s.settle(&mut [&mut thread]);
    }
    s.b.stop(thread);
    s.expect_exact();
}

/// C056: if this broke, a commit that meets a rebalance would stall a member, or cost it its partitions for good.
#[test]
fn c056_partitions_go_on_while_members_come_and_go() {
    let _shared = shared();
    let b = bench("churn", cluster_at(stack().brokers()));
    let (from, to) = (b.topic("in"), b.topic("out"));
    b.create(&from, 6, &[]);
    b.create(&to, 6, &[]);
    let plan = b.unit(vec![Script::copy(&to).plan(0, &[(&from, Reading::Shared)])]);
    let mut first = b.thread(&plan, 0);
    let mut fed = 0;
    let mut feed = |threads: &mut [&mut StreamThread<RdCluster>]| {
        (0..6).for_each(|p| b.feed(&from, p, &numbers(fed / 6 + 1, 20, &["k"])));
        fed += 120;
        b.run_until_count(threads, &to, fed).expect("every partition goes on");
    };
    for _ in 0..2 {
        feed(&mut [&mut first]);
        let (mut second, mut third) = (b.thread(&plan, 1), b.thread(&plan, 2));
        feed(&mut [&mut first, &mut second, &mut third]);
        b.stop(second);
        feed(&mut [&mut first, &mut third]);
        b.stop(third);
        feed(&mut [&mut first]);
    }
    b.stop(first);
    let expected: Vec<String> = (1..=fed / 6).map(|n| n.to_string()).collect();
    assert!(b.values(&to, Isolation::Committed).into_values().all(|v| v == expected));
}
