//! Topic to topic in transactions: Readback against a bare client loop with the same client settings, on the same input, in turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::app::Process;
use crate::config::ProcessConfig;
use crate::dsl::{Consumed, Produced, StreamsBuilder};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::TopicName;
use crate::kafka::{BareCopy, RdCluster};
use crate::runtime::error_of;
use crate::serdes::Serdes;

use super::Ground;
use super::ground::PARTITIONS;
use super::measure::{Run, Told, steady};

/// Both sides commit so long after the last commit ended.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// What the two sides are called.
const BARE: &str = "bare client loop";
const OURS: &str = "Readback";

/// The input's `i`th record, about 200 bytes.
pub fn record(i: u64) -> (String, String) {
    let key = format!("key-{:06}", i.wrapping_mul(2_654_435_761) % 100_000);
    let value = format!(r#"{{"id":{i},"customer":"{key}","amount":{},"note":"{}"}}"#, i % 977, "x".repeat(130));
    (key, value)
}

/// Runs both sides in turns.
///
/// # Errors
/// Where the cluster does not play along.
pub fn compare(ground: &Ground, records: u64, rounds: usize, told: &dyn Told) -> Result<[Vec<Run>; 2]> {
    let input = ground.topic("in")?;
    ground.fill(&input, records, &record, told)?;
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let output = ground.topic(&format!("bare-{round}"))?;
        ground.group(output.as_str());
        let bare = bare(&ground.cluster, &input, &output, records, told)?;
        told.ran(BARE, &bare);
        runs[0].push(bare);
        let output = ground.topic(&format!("readback-{round}"))?;
        ground.group(output.as_str());
        let mut config = ground.config.clone();
        config.state.dir = ground.dir.join(format!("state-{round}"));
        let ours = ours(config, &input, &output, records, told)?;
        told.ran(OURS, &ours);
        runs[1].push(ours);
    }
    Ok(runs)
}

/// The least that a correct processor does by hand.
///
/// # Errors
/// What the client says.
pub fn bare(cluster: &RdCluster, input: &TopicName, output: &TopicName, total: u64, told: &dyn Told) -> Result<Run> {
    let done = Arc::new(AtomicU64::new(0));
    let copy = BareCopy { input: input.clone(), partitions: PARTITIONS, output: output.clone(), total, interval: INTERVAL };
    let (counted, cluster) = (done.clone(), cluster.clone());
    let running = std::thread::spawn(move || cluster.copy_bare(&copy, &counted));
    let through = || if running.is_finished() { total } else { done.load(Ordering::Acquire) };
    let run = steady(BARE, total, &through, told)?;
    running.join().map_err(|_| Error::new(codes::BUG, Fault::Bug, "running the bare loop"))?.map_err(error_of)?;
    Ok(run)
}

/// Readback as a user runs it: built, composed, run; counted by its own metric of what was committed.
///
/// # Errors
/// What a start says.
pub fn ours(mut config: ProcessConfig, input: &TopicName, output: &TopicName, total: u64, told: &dyn Told) -> Result<Run> {
    let builder = StreamsBuilder::new(output.as_str());
    let key = || Serdes::optional(Serdes::bytes());
    builder
        .stream(input.clone(), Consumed::with(key(), Serdes::bytes()))
        .to(output.clone(), Produced::with(key(), Serdes::bytes()));
    let application = builder.build().map_err(Error::from)?;
    config.slots.ordinal = Some(0);
    config.group.commit_interval.0 = INTERVAL;
    let runtime = runtime(1)?;
    let metrics = prometheus::Registry::new();
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = |e: &Error| tracing::warn!(error = %e, "waiting");
    let Some(process) = Process::start(&application, &config, &metrics, runtime.handle(), &stop, &waiting)? else {
        return Err(Error::new(codes::BUG, Fault::Bug, "starting a member that nobody stopped"));
    };
    let stopped = stop.clone();
    let running = std::thread::spawn(move || process.run(&stopped, &|_, _| {}));
    let written = || {
        let families = metrics.gather();
        let of = families.iter().filter(|f| f.name() == "readback_records_written_total");
        of.flat_map(|f| f.get_metric()).map(|m| m.get_counter().get_value() as u64).sum()
    };
    let run = steady(OURS, total, &written, told);
    stop.store(true, Ordering::Release);
    let _ = running.join();
    run
}

/// A runtime for HTTP.
pub(super) fn runtime(threads: usize) -> Result<tokio::runtime::Runtime> {
    let made = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    made.map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the HTTP runtime").because(e))
}
