//! One application on one side, as a process that is watched from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::common::Ground;

/// Who runs the topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Readback, one stream thread, settings as they come.
    Readback,
    /// The same with the compression, the commit interval and the record cache that tuned Kafka Streams has.
    Tuned,
    /// Kafka Streams with the guarantee set and nothing else.
    Default,
    /// Kafka Streams as its users tune it: compression, batches, commit interval, cache, collector.
    Best,
}

impl Side {
    pub const ALL: [Self; 4] = [Self::Readback, Self::Default, Self::Tuned, Self::Best];

    pub fn name(self) -> &'static str {
        match self {
            Self::Readback => "Readback",
            Self::Tuned => "Readback, tuned",
            Self::Default => "Kafka Streams, default",
            Self::Best => "Kafka Streams, best",
        }
    }

    /// Ours that it is to be compared with; none for ours themselves.
    pub fn against(self) -> Option<Self> {
        match self {
            Self::Readback | Self::Tuned => None,
            Self::Default => Some(Self::Readback),
            Self::Best => Some(Self::Tuned),
        }
    }
}

/// What runs: a topology from one topic to another, under a name of its own.
#[derive(Clone)]
pub struct App {
    pub side: Side,
    pub topology: &'static str,
    pub id: String,
    pub input: String,
    pub output: String,
    pub dir: PathBuf,
    /// How long a tuned side waits between two commits.
    pub commit_ms: u32,
}

impl App {
    /// Its output topic is new, its state directory empty.
    pub fn new(ground: &Ground, side: Side, topology: &'static str, name: &str, input: &str) -> Self {
        let short = format!("{name}-{side:?}").to_lowercase();
        let dir = ground.dir.join(&short);
        std::fs::create_dir_all(&dir).expect("a directory");
        let id = format!("{}-{short}", ground.run);
        Self { side, topology, id, input: input.to_owned(), output: ground.topic(&format!("{short}-out")), dir, commit_ms: 1_000 }
    }

    /// Starts it; what it says goes to a file beside its state.
    pub fn start(&self, ground: &Ground) -> Running {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log")).expect("a log");
        let mut command = match self.side {
            Side::Readback | Side::Tuned => self.ours(ground),
            Side::Default | Side::Best => self.theirs(ground),
        };
        let errors = log.try_clone().expect("a log");
        Running(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("it starts"))
    }

    fn ours(&self, ground: &Ground) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--app", self.topology, "--id", &self.id, "--input", &self.input, "--output", &self.output]);
        command.args(["--brokers", &ground.brokers, "--dir", &self.dir.join("state").display().to_string()]);
        if self.side == Side::Tuned {
            command.args(["--commit-ms", &self.commit_ms.to_string()]);
        }
        command
    }

    fn theirs(&self, ground: &Ground) -> Command {
        let jars = kafka_streams();
        let mut command = Command::new("java");
        if self.side == Side::Best {
            command.args(["-Xmx1g", "-XX:+UseParallelGC"]);
        }
        command.args([
            "-cp",
            &format!("{0}/*:{0}/peer", jars.display()),
            "KafkaStreamsApp",
            self.topology,
            &self.input,
            &self.output,
        ]);
        // A crashed member is expelled as soon as one of ours is, and comes back under its own name.
        command.args([
            format!("application.id={}", self.id),
            format!("bootstrap.servers={}", ground.brokers),
            format!("state.dir={}", self.dir.join("state").display()),
            "consumer.session.timeout.ms=6000".to_owned(),
            "consumer.heartbeat.interval.ms=2000".to_owned(),
            format!("consumer.group.instance.id={}", self.id),
        ]);
        if self.side == Side::Best {
            command.args(["producer.compression.type=lz4", "producer.batch.size=131072", "statestore.cache.max.bytes=67108864"]);
            command.arg(format!("commit.interval.ms={}", self.commit_ms));
        }
        command
    }
}

/// A process of an application; killed when dropped.
pub struct Running(Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
    pub fn ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|ended| ended.is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kafka Streams' jars and the compiled peer: fetched with Maven once, compiled each time that the source is newer.
fn kafka_streams() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let jars = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("differential");
    if !jars.join(".complete").exists() {
        eprintln!("fetching Kafka Streams (once)");
        let pom = root.join("dev/differential/pom.xml");
        let arguments = ["-q", "-B", "-f", &pom.display().to_string(), "dependency:copy-dependencies"];
        let to = format!("-DoutputDirectory={}", jars.display());
        must(Command::new("mvn").args(arguments).arg(to), "install a JDK and Maven");
        std::fs::write(jars.join(".complete"), "").expect("written");
    }
    let source = root.join("benches/streams/KafkaStreamsApp.java");
    let class = jars.join("peer/KafkaStreamsApp.class");
    let changed = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    if changed(&class) < changed(&source) {
        let classpath = format!("{}/*", jars.display());
        must(Command::new("javac").args(["-cp", &classpath, "-d"]).arg(jars.join("peer")).arg(&source), "install a JDK");
    }
    jars
}

fn must(command: &mut Command, next: &str) {
    let ended = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}; next: {next}"));
    assert!(ended.success(), "{command:?} ended with {ended}; next: {next}");
}
