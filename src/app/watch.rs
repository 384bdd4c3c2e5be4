//! Settings of topics and brokers that a promise rests on, looked at again while a member runs. Each change is told. One that breaks a
//! promise ends the member in order, as it would forbid its start: nothing more is sent until it is mended.

mod weaker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::error::{Error, Fault, Result, codes};
use crate::events;
use crate::ids::TopicName;
use crate::kafka::{Admin, Class, Cluster, KResult};
use crate::runtime::{Difference, differences};
use crate::task::InternalTopic;

use self::weaker::is_weaker;
use super::check::{BROKER_SETTINGS, TOPIC_SETTINGS, chosen, weaknesses};

/// What settings of brokers stand under.
const BROKERS: &str = "brokers";

/// What is looked at.
pub(super) struct Watched {
    /// Topics of the application, as this version makes them.
    pub own: Vec<InternalTopic>,
    /// Topics of the user that it reads and writes.
    pub users: BTreeSet<TopicName>,
    /// The bootstrap servers, for what a person does next.
    pub brokers: String,
}

/// What a look shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Look {
    /// By topic (or [`BROKERS`]) and setting.
    settings: BTreeMap<(String, String), String>,
    /// How many weaknesses, of topics and of nobody else.
    weak: usize,
    /// What may not be asked for: topics, or [`BROKERS`].
    hidden: BTreeSet<String>,
    /// What breaks a promise.
    broken: Vec<(TopicName, Difference)>,
}

/// A setting that is another than at the look before.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Changed {
    of: String,
    setting: String,
    was: String,
    is: String,
}

/// The thread; dropping it stops it.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    broken: Arc<Mutex<Option<Error>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    /// Looks at once, then `every` so often.
    pub fn start<C: Cluster>(cluster: C, watched: Watched, every: Duration, metrics: Metrics) -> Self {
        let (stop, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (told, tells) = (stop.clone(), broken.clone());
        let run = move || {
            let mut before = None;
            while !told.load(Ordering::Acquire) {
                match cluster.admin().and_then(|admin| look(admin.as_ref(), &watched)) {
                    Ok(mut now) => {
                        before.iter().for_each(|before| now.remember(before));
                        notice(before.as_ref(), &now, &metrics);
                        *tells.lock().unwrap_or_else(PoisonError::into_inner) = broke(&now, &watched);
                        before = Some(now);
                    }
                    Err(fault) => tracing::debug!(%fault, "looking at settings; tried again later"),
                }
                std::thread::park_timeout(every);
            }
        };
        let thread = std::thread::Builder::new().name("settings".into()).spawn(run);
        if let Err(e) = &thread {
            tracing::warn!(error = %e, "settings are not watched: the thread did not start");
        }
        Self { stop, broken, thread: thread.ok() }
    }

    /// What no longer holds; told once.
    pub fn broken(&self) -> Option<Error> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Looks once. A topic that is missing is the stream threads' matter.
fn look(admin: &dyn Admin, watched: &Watched) -> KResult<Look> {
    let mut look = Look::default();
    for topic in &watched.own {
        if let Some((partitions, settings)) = one(admin, &topic.name, &mut look)? {
            look.broken.extend(
                differences(topic, partitions, &settings).into_iter().filter(|d| d.refused).map(|d| (topic.name.clone(), d)),
            );
        }
    }
    for name in &watched.users {
        one(admin, name, &mut look)?;
    }
    if let Some(found) = allowed(admin.broker_config(), BROKERS, &mut look)? {
        look.note(BROKERS, chosen(&found, BROKER_SETTINGS));
    }
    Ok(look)
}

fn one(admin: &dyn Admin, name: &TopicName, look: &mut Look) -> KResult<Option<(u32, BTreeMap<String, String>)>> {
    let Some(info) = allowed(admin.topic(name), name.as_str(), look)?.flatten() else { return Ok(None) };
    // Partitions and replicas show without the settings.
    let settings = allowed(admin.topic_config(name), name.as_str(), look)?.unwrap_or_default();
    look.weak += weaknesses(&info, &settings).len();
    look.note(name.as_str(), chosen(&settings, TOPIC_SETTINGS));
    Ok(Some((info.partitions, settings)))
}

/// What this member may not ask for is noted, and no failure: only `DescribeConfigs` shows settings.
fn allowed<T>(answer: KResult<T>, of: &str, look: &mut Look) -> KResult<Option<T>> {
    match answer {
        Err(fault) if fault.class == Class::Config => {
            look.hidden.insert(of.to_owned());
            Ok(None)
        }
        other => other.map(Some),
    }
}

impl Look {
    fn note(&mut self, of: &str, settings: BTreeMap<String, String>) {
        self.settings.extend(settings.into_iter().map(|(setting, value)| ((of.to_owned(), setting), value)));
    }

    /// Of what may not be asked for (any more), what was seen last: a change meanwhile is told once it may be again.
    fn remember(&mut self, before: &Look) {
        let kept = before.settings.iter().filter(|((of, _), _)| self.hidden.contains(of));
        self.settings.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
    }

    fn since(&self, before: &Look) -> Vec<Changed> {
        let changed = |((of, setting), is): (&(String, String), &String)| {
            let was = before.settings.get(&(of.clone(), setting.clone())).filter(|was| *was != is)?;
            Some(Changed { of: of.clone(), setting: setting.clone(), was: was.clone(), is: is.clone() })
        };
        self.settings.iter().filter_map(changed).collect()
    }
}

/// Tells what is other than before; of the first look only how much is weak. What may not be seen is told once.
fn notice(before: Option<&Look>, now: &Look, metrics: &Metrics) {
    metrics.weak.with_label_values(&["topics"]).set(i64::try_from(now.weak).unwrap_or(i64::MAX));
    unseen(before, now);
    let Some(before) = before else {
        if now.weak > 0 {
            tracing::info!(code = %codes::WEAK_SETTING, weak = now.weak, "settings are weaker than the promises want; `readback check --live` lists them");
        }
        return;
    };
    for Changed { of, setting, was, is } in now.since(before) {
        metrics.changed.with_label_values(&[&setting]).inc();
        let weaker = is_weaker(&setting, &was, &is);
        tracing::warn!(code = %codes::SETTING_CHANGED, of, setting, was, is, weaker, "a setting that a promise rests on was changed while this member runs");
    }
}

/// Tells of what may not be seen that could be before, or at the first look.
fn unseen(before: Option<&Look>, now: &Look) {
    let known = before.map(|b| &b.hidden);
    let new: Vec<&str> = now.hidden.iter().filter(|of| known.is_none_or(|k| !k.contains(*of))).map(String::as_str).collect();
    if !new.is_empty() {
        let of = new.join(", ");
        tracing::warn!(code = %codes::NOT_AUTHORIZED, of, "settings were not read: a change of them is not noticed, and whether promises rest on enough is not known. Allow DescribeConfigs on these topics, and for brokers on the cluster");
    }
}

/// Why this member may not go on.
fn broke(now: &Look, watched: &Watched) -> Option<Error> {
    let (topic, d) = now.broken.first()?;
    let (what, actual, expected) = (&d.what, &d.actual, &d.expected);
    let mend = match what.as_str() {
        "partition count" => "it cannot be taken back: read `Topics` in the operating page".to_owned(),
        setting => format!(
            "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {topic} --add-config {setting}={expected}; \
             then start again",
            watched.brokers
        ),
    };
    let error = Error::new(codes::TOPIC_MISMATCH, Fault::Configuration, format!("watching topic {topic}"));
    Some(error.because(format!("its {what} became {actual}, it must be {expected}: what is promised no longer holds")).next(mend))
}

/// What the watch records.
#[derive(Clone)]
pub(super) struct Metrics {
    changed: IntCounterVec,
    weak: IntGaugeVec,
}

impl Metrics {
    /// Makes and registers them.
    pub fn new(registry: &Registry) -> Result<Self> {
        let made = || -> prometheus::Result<Self> {
            let (c, w) = (events::SETTINGS_CHANGED, events::SETTINGS_WEAK);
            let changed = IntCounterVec::new(Opts::new(c.name, c.help), c.labels)?;
            let weak = IntGaugeVec::new(Opts::new(w.name, w.help), w.labels)?;
            registry.register(Box::new(changed.clone()))?;
            registry.register(Box::new(weak.clone()))?;
            Ok(Self { changed, weak })
        };
        made().map_err(|e| Error::new(codes::BUG, Fault::Bug, "registering the settings' metrics").because(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::memory::MemoryCluster;
    use crate::kafka::{KafkaFault, NewTopic};
    use crate::task::TopicUse;
    use crate::time::SystemClock;

    fn ledger(policy: &str) -> InternalTopic {
        InternalTopic {
            name: "orders.effects-ledger-changelog".into(),
            partitions: Some(2),
            config: [("cleanup.policy".to_owned(), policy.to_owned())].into(),
            usage: TopicUse::Internal,
        }
    }

    fn looked(own: &InternalTopic, stands: &InternalTopic) -> (Look, Watched) {
        let cluster = MemoryCluster::new(Arc::new(SystemClock));
        let admin = cluster.admin().expect("admin");
        let (name, config) = (stands.name.clone(), stands.config.clone());
        admin.create(&[NewTopic { name, partitions: 2, replication: 1, config }]).expect("creates");
        let watched = Watched { own: vec![own.clone()], users: BTreeSet::from(["gone".into()]), brokers: "kafka-1:9092".into() };
        (look(admin.as_ref(), &watched).expect("looks"), watched)
    }

    /// If this broke, a ledger that is deleted by time would be sent by until its records are gone, and intents with them.
    #[test]
    fn what_breaks_a_promise_ends_the_member_and_the_rest_is_told() {
        let (compact, deleted) = (ledger("compact"), ledger("delete"));
        let (good, watched) = looked(&compact, &compact);
        assert!(broke(&good, &watched).is_none() && good.since(&good).is_empty());
        let (bad, watched) = looked(&compact, &deleted);
        let why = broke(&bad, &watched).expect("it ends");
        assert_eq!((why.code, why.fault.exit_code()), (codes::TOPIC_MISMATCH, 2));
        let told = why.to_string();
        for part in ["cleanup.policy became delete", "--bootstrap-server kafka-1:9092", "--add-config cleanup.policy=compact"] {
            assert!(told.contains(part), "no {part} in {told}");
        }
        let changed = bad.since(&good);
        let shown: Vec<_> = changed.iter().map(|c| format!("{} {} {} {}", c.of, c.setting, c.was, c.is)).collect();
        assert_eq!(shown, ["orders.effects-ledger-changelog cleanup.policy compact delete"]);
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        notice(Some(&good), &bad, &metrics);
        assert_eq!(metrics.changed.with_label_values(&["cleanup.policy"]).get(), 1);
    }

    /// If this broke, a member without the right to see settings would not start, or end at the first look.
    #[test]
    fn what_may_not_be_seen_is_no_failure() {
        let mut look = Look::default();
        let refused = || Err::<(), _>(KafkaFault::new(Class::Config, "reading settings", "orders", "TopicAuthorizationFailed"));
        assert_eq!(allowed(refused(), "orders", &mut look).expect("goes on"), None);
        assert!(look.hidden.contains("orders"));
        let mut before = Look::default();
        before.note("orders", [("retention.ms".to_owned(), "-1".to_owned())].into());
        look.remember(&before);
        let mut again = Look::default();
        again.note("orders", [("retention.ms".to_owned(), "1".to_owned())].into());
        assert_eq!(again.since(&look).len(), 1, "what was changed out of sight is told when it is seen again");
        let away = Err::<(), _>(KafkaFault::new(Class::Retry, "reading settings", "orders", "timed out"));
        assert!(allowed(away, "orders", &mut look).is_err());
    }
}
