//! The story, top to bottom: ground, topics, target, members, requests, faults, rest, verdict.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::TopicName;
use crate::intents::{Approval, ResultRecord, WorkRequest};
use crate::kafka::{Admin, Cluster, NewTopic};
use crate::serdes::internal::Wire;
use crate::time::{Clock, SystemClock};

use super::cases::{Case, draw};
use super::feed::{self, Approver, Outlet, unreachable};
use super::files;
use super::members::{Member, MemberSetup};
use super::rng::Rng;
use super::screen::{Progress, Report};
use super::target::Target;
use super::verdict::{judge, last_status, settled};

/// How long the demo's client waits for an answer: `timeout` in `topology/orders/contracts/orders.yaml`.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Partitions of the demo's topics.
pub const PARTITIONS: u32 = 4;

/// The requests come in so many bursts.
const BURSTS: usize = 50;

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Repeats the same faults.
    pub seed: u64,
    /// Operations.
    pub operations: usize,
    /// Explains each stage as it happens.
    pub slow: bool,
    /// Longest time from the first request to rest.
    pub patience: Duration,
    /// What the story itself breaks.
    pub breaks: Breaks,
    /// Before the names of application and topics, so that several runs share one cluster.
    pub prefix: String,
}

/// What the story itself breaks, besides the target's schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breaks {
    /// The demo: three kills of members and a restart of the broker.
    Demo,
    /// Member 1 kills itself at a named point, `name:nth:kill`, and is started again without it.
    AtPoint(String),
    /// Nothing.
    Nothing,
}

impl DemoOptions {
    /// The demo as users run it.
    pub fn new(seed: u64, operations: usize) -> Self {
        Self { seed, operations, slow: false, patience: Duration::from_secs(150), breaks: Breaks::Demo, prefix: String::new() }
    }
    fn fail_point(&self) -> Option<&str> {
        match &self.breaks {
            Breaks::AtPoint(point) => Some(point),
            Breaks::Demo | Breaks::Nothing => None,
        }
    }
    fn topic(&self, name: &str) -> TopicName {
        TopicName::from(format!("{}agent.{name}", self.prefix))
    }
}

/// What the story stands on: a cluster, a registry, and a hand on the broker where there is one.
pub trait Ground {
    /// The cluster's client.
    type C: Cluster;
    /// Makes tools' clients.
    fn cluster(&self) -> &Self::C;
    /// Bootstrap servers.
    fn brokers(&self) -> String;
    /// The registry's URL.
    fn registry(&self) -> String;
    /// `Kafka 4.4.0`.
    fn name(&self) -> String;
    /// Registers a schema; answers its id.
    fn register(&self, subject: &str, avsc: &str) -> Result<u32>;
    /// Kills the broker and starts it again; `false` where the cluster is not ours to break.
    fn restart_broker(&self) -> Result<bool>;
}

/// Runs the whole story.
pub fn run<G: Ground>(ground: &G, options: &DemoOptions, work: &Path) -> Result<Report> {
    let progress = Progress::new(options.slow);
    let cases = draw(options.seed, options.operations);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the demo's target").because(e))?;
    progress.say(&format!("{} at {}, registry at {}", ground.name(), ground.brokers(), ground.registry()));
    let (requests, approvals) = prepare(ground, options)?;
    let target = runtime
        .block_on(Target::start(&cases, PATIENCE))
        .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the demo's target").because(e))?;
    progress.say(&format!("target and model server with books of their own at {}", target.url));
    progress.explain("The target is an orders API. It knows nothing of Readback: it applies orders, loses answers and\nanswers 500 after applying, by a schedule drawn from the seed, and writes down every order that exists.");

    let setup = member_setup(ground, options, &target, work)?;
    let mut members = vec![Member::start(&setup, 0, None)?, Member::start(&setup, 1, options.fail_point())?];
    progress.say("two members, each in both consumer groups: orders (stream half) and orders.effects (effect half)");
    progress.explain("Left of the border everything is one Kafka transaction a commit. Right of it nothing is: an attempt is\njournalled before it is sent, and what nobody heard back from is read back at the target before anything is sent again.");

    let results = options.topic("results");
    let mut approver = Approver::new(ground.cluster(), &results, PARTITIONS, approvals, &cases)?;
    let began = Instant::now();
    let mut faults = Faults::plan(options, &cases);
    play(ground, options, &cases, &requests, &mut approver, &mut members, &mut faults, progress)?;
    let took = began.elapsed();
    let stopped: Vec<Result<()>> = members.iter_mut().map(|m| m.stop(Duration::from_secs(30))).collect();
    approver.turn(ground.cluster(), Duration::from_secs(2), SystemClock.now().wall)?;
    let books = target.books();
    let verdict = judge(&cases, &approver.results, &books);
    let kills = members.iter().map(|m| u64::from(m.kills)).sum();
    let own = [("kill_9", kills), ("broker_restarts", faults.broker_restarts)];
    let report = Report::new(options.seed, ground.name(), members.len(), took, verdict, &books, &own);
    runtime.shutdown_timeout(Duration::from_secs(1));
    stopped.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(report)
}

/// Topics and schemas.
fn prepare<G: Ground>(ground: &G, options: &DemoOptions) -> Result<(Outlet, Outlet)> {
    let admin = ground.cluster().admin().map_err(unreachable)?;
    let topics: Vec<NewTopic> = ["requests", "approvals", "results", "dead"]
        .map(|name| NewTopic { name: options.topic(name), partitions: PARTITIONS, replication: -1, config: Default::default() })
        .into();
    admin.create(&topics).map_err(unreachable)?;
    wait_for_topics(admin.as_ref(), &topics)?;
    let outlet = |name: &str, avsc: &str| -> Result<Outlet> {
        let topic = options.topic(name);
        Ok(Outlet { schema_id: Some(ground.register(&format!("{topic}-value"), avsc)?), topic })
    };
    outlet("results", ResultRecord::AVSC)?;
    Ok((outlet("requests", WorkRequest::AVSC)?, outlet("approvals", Approval::AVSC)?))
}

fn wait_for_topics(admin: &dyn Admin, topics: &[NewTopic]) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    for topic in topics {
        while admin.topic(&topic.name).map_err(unreachable)?.is_none() {
            if Instant::now() > until {
                return Err(Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("waiting for topic {}", topic.name)));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

fn member_setup<G: Ground>(ground: &G, options: &DemoOptions, target: &Target, work: &Path) -> Result<MemberSetup> {
    let topology = files::write_orders(work, &options.prefix)?;
    let program = std::env::var_os("READBACK_PROGRAM").map_or_else(std::env::current_exe, |p| Ok(PathBuf::from(p)));
    let program = program.map_err(|e| Error::new(codes::BUG, Fault::Bug, "finding this program").because(e))?;
    let env = [
        ("READBACK_BROKERS", ground.brokers()),
        ("READBACK_REGISTRY", ground.registry()),
        ("READBACK_GROUP__SESSION_TIMEOUT", "6s".into()),
        ("READBACK_GROUP__TRANSACTION_TIMEOUT", "5s".into()),
        ("ORDERS_URL", target.url.clone()),
        ("MODEL_URL", target.url.clone()),
    ];
    let env = env.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    Ok(MemberSetup { program, topology, dir: work.to_path_buf(), env })
}

/// When the story itself breaks something, as positions in the stream of requests.
struct Faults {
    kills: Vec<(usize, usize)>,
    broker_at: Option<usize>,
    broker_restarts: u64,
}

impl Faults {
    fn plan(options: &DemoOptions, cases: &[Case]) -> Self {
        if options.breaks != Breaks::Demo {
            return Self { kills: Vec::new(), broker_at: None, broker_restarts: 0 };
        }
        let mut rng = Rng::new(options.seed ^ 0x6b69_6c6c);
        let n = cases.len();
        let at = |part: usize, rng: &mut Rng| n * part / 10 + rng.below((n / 20).max(1) as u64) as usize;
        let kills = vec![(at(2, &mut rng), 1), (at(4, &mut rng), 0), (at(8, &mut rng), 1)];
        Self { kills, broker_at: Some(at(6, &mut rng)), broker_restarts: 0 }
    }

    fn due<G: Ground>(&mut self, ground: &G, sent: usize, members: &mut [Member], progress: &Progress) -> Result<()> {
        while let Some(&(at, member)) = self.kills.first() {
            if sent < at {
                break;
            }
            self.kills.remove(0);
            members[member].kill_and_restart()?;
            progress.say(&format!("kill -9 of member {member} with calls in flight; started again in its slot"));
            progress.explain("The new process holds the same slot: the same instance id and transactional id. It fences what the dead one\nleft open, restores its ledger, and treats every journalled attempt without an outcome as maybe sent.");
        }
        if self.broker_at.is_some_and(|at| sent >= at) {
            self.broker_at = None;
            if ground.restart_broker()? {
                self.broker_restarts += 1;
                progress.say("the broker was killed and started again");
            }
        }
        Ok(())
    }
}

#[allow(clippy::too_many_arguments)]
fn play<G: Ground>(
    ground: &G,
    options: &DemoOptions,
    cases: &[Case],
    requests: &Outlet,
    approver: &mut Approver,
    members: &mut [Member],
    faults: &mut Faults,
    mut progress: Progress,
) -> Result<()> {
    let until = Instant::now() + options.patience;
    let mut sent = 0;
    loop {
        let next = (sent + cases.len().div_ceil(BURSTS)).min(cases.len());
        if next > sent {
            feed::requests(ground.cluster(), requests, &cases[sent..next], SystemClock.now().wall)?;
            sent = next;
        }
        faults.due(ground, sent, members, &progress)?;
        approver.turn(ground.cluster(), Duration::from_millis(150), SystemClock.now().wall)?;
        members.iter_mut().try_for_each(|m| m.check(options.breaks != Breaks::Demo))?;
        let last = last_status(&approver.results);
        let rest = settled(cases, &last);
        let confirmed = last.values().filter(|r| r.status == crate::intents::Status::Confirmed).count();
        progress.tick(&format!("sent {sent} · known {} · confirmed {confirmed} · at rest {rest} of {}", last.len(), cases.len()));
        if sent == cases.len() && rest == cases.len() {
            return Ok(());
        }
        if Instant::now() > until {
            progress.say(&format!("{} operations did not come to rest in {:?}", cases.len() - rest, options.patience));
            return Ok(());
        }
    }
}
