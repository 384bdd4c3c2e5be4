//! The story, top to bottom: ground, topics, target, members, requests, faults, rest, verdict.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::TopicName;
use crate::intents::{Approval, ResultRecord, WorkRequest};
use crate::kafka::{Admin, Cluster, NewTopic};
use crate::serdes::internal::Wire;
use crate::time::{Clock, SystemClock};

pub use super::breaks::Breaks;
use super::breaks::Stage;
use super::cases::{Case, draw};
use super::feed::{self, Approver, Outlet, unreachable};
use super::files;
use super::members::{Member, MemberSetup};
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
    /// Whether a terminal shows a bar: where no program reads what is printed.
    pub bar: bool,
    /// Longest time from the first request to rest.
    pub patience: Duration,
    /// What the story itself breaks.
    pub breaks: Breaks,
    /// Before the names of application and topics, so that several runs share one cluster.
    pub prefix: String,
    /// The program that the members run; `None` = this one.
    pub program: Option<PathBuf>,
    /// Further variables of the members' environment.
    pub env: Vec<(String, String)>,
}

impl DemoOptions {
    /// The demo as users run it.
    pub fn new(seed: u64, operations: usize) -> Self {
        Self {
            seed,
            operations,
            slow: false,
            bar: false,
            patience: Duration::from_secs(150),
            breaks: Breaks::Demo,
            prefix: String::new(),
            program: None,
            env: Vec::new(),
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
    /// Registers a schema; answers its id, or `None` where there is no registry.
    fn register(&self, subject: &str, avsc: &str) -> Result<Option<u32>>;
    /// Stops the broker; `false` where the cluster is not ours to break.
    fn stop_broker(&self) -> Result<bool>;
    /// Starts it again.
    fn start_broker(&self) -> Result<()>;
    /// Starts a member in slot `ordinal`; its first processes end at these fail points.
    fn member(&self, setup: &MemberSetup, ordinal: u32, fail_points: &[String]) -> Result<Box<dyn Member>>;
    /// The names of kills and broker restarts in the report.
    fn fault_names(&self) -> [&'static str; 2] {
        ["kill_9", "broker_restarts"]
    }
    /// How a kill is told.
    fn kill_word(&self) -> &'static str {
        "kill -9"
    }
    /// How a restart of the broker is told.
    fn restart_word(&self) -> &'static str {
        "the broker was stopped and started again"
    }
}

/// Runs the whole story.
pub fn run<G: Ground>(ground: &G, options: &DemoOptions, work: &Path) -> Result<Report> {
    let progress = Progress::new(options.slow, options.bar);
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
    let mut stage = Stage::start(ground, &options.breaks, options.seed, cases.len(), setup)?;
    progress.say("two members, each in both consumer groups: orders (stream half) and orders.effects (effect half)");
    progress.explain("Left of the border everything is one Kafka transaction a commit. Right of it nothing is: an attempt is\njournalled before it is sent, and what nobody heard back from is read back at the target before anything is sent again.");

    let results = options.topic("results");
    let mut approver = Approver::new(ground.cluster(), &results, PARTITIONS, approvals, &cases)?;
    let began = Instant::now();
    play(ground, options, &cases, &requests, &mut approver, &mut stage, progress)?;
    let took = began.elapsed();
    let stopped: Vec<Result<()>> = stage.members.iter_mut().map(|m| m.stop(Duration::from_secs(30))).collect();
    approver.turn(ground.cluster(), Duration::from_secs(2), SystemClock.now().wall)?;
    let books = target.books();
    let verdict = judge(&cases, &approver.results, &books);
    let kills = stage.members.iter().map(|m| u64::from(m.kills())).sum();
    let [killed, restarted] = ground.fault_names();
    let own = [(killed, kills), (restarted, stage.broker_restarts)];
    let report = Report::new(options.seed, ground.name(), stage.members.len(), took, verdict, &books, &own);
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
        Ok(Outlet { schema_id: ground.register(&format!("{topic}-value"), avsc)?, topic })
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
    let topology = files::write_orders(work, &options.prefix, &target.url)?;
    let program = options.program.clone().map_or_else(std::env::current_exe, Ok);
    let program = program.map_err(|e| Error::new(codes::BUG, Fault::Bug, "finding this program").because(e))?;
    let env = [
        ("READBACK_BROKERS", ground.brokers()),
        ("READBACK_REGISTRY", ground.registry()),
        ("READBACK_GROUP__SESSION_TIMEOUT", "12s".into()),
        ("READBACK_GROUP__TRANSACTION_TIMEOUT", "10s".into()),
        ("ORDERS_URL", target.url.clone()),
        ("MODEL_URL", target.url.clone()),
    ];
    let env = env.into_iter().map(|(k, v)| (k.to_owned(), v)).chain(options.env.iter().cloned()).collect();
    Ok(MemberSetup { program, topology, dir: work.to_path_buf(), env })
}

fn play<G: Ground>(
    ground: &G,
    options: &DemoOptions,
    cases: &[Case],
    requests: &Outlet,
    approver: &mut Approver,
    stage: &mut Stage,
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
        stage.due(ground, sent, !approver.results.is_empty(), &progress)?;
        approver.turn(ground.cluster(), Duration::from_millis(150), SystemClock.now().wall)?;
        let last = last_status(&approver.results);
        let rest = settled(cases, &last);
        let confirmed = last.values().filter(|r| r.status == crate::intents::Status::Confirmed).count();
        progress.tick(rest, cases.len(), &format!("sent {sent} · known {} · confirmed {confirmed}", last.len()));
        if sent == cases.len() && rest == cases.len() && stage.over() {
            return Ok(());
        }
        if Instant::now() > until {
            progress.say(&format!("{} operations did not come to rest in {:?}", cases.len() - rest, options.patience));
            return Ok(());
        }
    }
}
