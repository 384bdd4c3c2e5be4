//! The three topologies in Readback, as a user writes them, each in a process of its own until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use readback::app::Process;
use readback::config::{ByteSize, ProcessConfig};
use readback::dsl::{Consumed, Grouped, NamedStore, Produced, StreamsBuilder, TimeWindows};
use readback::serdes::Serdes;

use super::common::Arguments;

/// Runs `--app` from `--input` to `--output` under the name `--id`.
pub fn run(arguments: &Arguments) {
    let builder = StreamsBuilder::new(arguments.need("id"));
    let (input, output) = (arguments.need("input"), arguments.need("output"));
    let stream = builder.stream(input, Consumed::with(Serdes::string(), Serdes::bytes()));
    let counted = || Produced::with(Serdes::string(), Serdes::long());
    let grouped = || stream.group_by_key(Grouped::with(Serdes::string(), Serdes::bytes()));
    // As tuned Kafka Streams has it.
    let counts =
        || if arguments.text("commit-ms").is_some() { NamedStore::named("counts").with_caching_enabled() } else { "counts".into() };
    match arguments.need("app") {
        "passthrough" => stream.to(output, Produced::with(Serdes::string(), Serdes::bytes())),
        "count" => grouped().count(counts()).to_stream().map_values(|_, n| n.unwrap_or_default()).to(output, counted()),
        "windowed" => grouped()
            .windowed_by(TimeWindows::of_size_and_grace(Duration::from_secs(10), Duration::from_secs(10)))
            .count(counts())
            .to_stream()
            .map(|key, n| (format!("{}@{}", key.key, key.window.start.0), n.unwrap_or_default()))
            .to(output, counted()),
        other => panic!("no such topology: {other}"),
    }
    let application = builder.build().unwrap_or_else(|e| panic!("{e}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = |e: &readback::error::Error| eprintln!("waiting: {e}");
    let started = Process::start(&application, &config(arguments), &prometheus::Registry::new(), runtime.handle(), &stop, &waiting);
    let process = started.unwrap_or_else(|e| panic!("{e}")).expect("nobody stops it");
    process.run(&stop, &|_, _| {});
    stop.store(true, Ordering::Release);
}

fn config(arguments: &Arguments) -> ProcessConfig {
    let mut config = ProcessConfig { brokers: arguments.need("brokers").to_owned(), ..ProcessConfig::default() };
    config.state.dir = arguments.need("dir").into();
    config.slots.ordinal = Some(0);
    config.topics.create = true;
    if arguments.text("commit-ms").is_some() {
        config.kafka.insert("compression.type".into(), "lz4".into());
    }
    config.state.record_cache = ByteSize(64 << 20);
    config.group.commit_interval.0 =
        Duration::from_millis(arguments.number("commit-ms", config.group.commit_interval.0.as_millis() as u64));
    config.group.session_timeout.0 = Duration::from_secs(6);
    config.group.transaction_timeout.0 = Duration::from_secs(5);
    config
}
