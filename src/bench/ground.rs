//! Where it is measured: brokers that are configured, or a local stack; names that no earlier run had, taken away at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::ProcessConfig;
use crate::demo::stack::{Stack, StackOptions};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{GroupId, TopicName};
use crate::kafka::{Cluster, NewTopic, RdCluster};
use crate::runtime::{error_of, wait_for_topic};

use super::measure::Told;

/// Partitions of each topic.
pub const PARTITIONS: u32 = 4;

/// Brokers, names and a directory for one run.
pub struct Ground {
    /// The cluster.
    pub cluster: RdCluster,
    /// How members are configured.
    pub config: ProcessConfig,
    /// Before every name.
    pub run: String,
    /// For files and state.
    pub dir: PathBuf,
    topics: Mutex<Vec<TopicName>>,
    groups: Mutex<Vec<GroupId>>,
    _stack: Option<Stack>,
}

impl Ground {
    /// On the configured brokers, or where `local` is set on a stack of this machine, which ends with the run if it was started for it.
    ///
    /// # Errors
    /// Where the stack can't start or the settings are wrong.
    pub fn prepare(mut config: ProcessConfig, local: bool) -> Result<Self> {
        let stack = match local {
            true => Some(Stack::up(&StackOptions { existing: None, ..StackOptions::from_env()? })?),
            false => None,
        };
        if let Some(stack) = &stack {
            config.brokers = stack.brokers().to_owned();
        }
        // Results in their internal form: nothing is registered for a measurement.
        config.registry.url = String::new();
        config.admin.listen = String::new();
        let number = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        let run = format!("readback-bench-{number}");
        let dir = std::env::temp_dir().join(&run);
        std::fs::create_dir_all(&dir).map_err(|e| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("making {}", dir.display())).because(e)
        })?;
        let cluster = RdCluster::new(crate::app::kafka_config(&config))?;
        Ok(Self { cluster, config, run, dir, topics: Mutex::default(), groups: Mutex::default(), _stack: stack })
    }

    /// A new topic.
    ///
    /// # Errors
    /// Where the cluster does not make it.
    pub fn topic(&self, short: &str) -> Result<TopicName> {
        let name = TopicName::from(format!("{}-{short}", self.run));
        let new = NewTopic { name: name.clone(), partitions: PARTITIONS, replication: -1, config: BTreeMap::new() };
        let admin = self.cluster.admin().map_err(error_of)?;
        admin.create(&[new]).map_err(error_of)?;
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        wait_for_topic(admin.as_ref(), &name)?;
        Ok(name)
    }

    /// Takes note of a group that is to be forgotten, too.
    pub fn group(&self, name: &str) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).push(GroupId::new(name));
    }

    /// Writes `count` records as fast as it goes.
    ///
    /// # Errors
    /// Where the cluster does not take them.
    pub fn fill(&self, topic: &TopicName, count: u64, record: &dyn Fn(u64) -> (String, String), told: &dyn Told) -> Result<()> {
        let feed = self.cluster.feed(Duration::from_millis(20)).map_err(error_of)?;
        for i in 0..count {
            if i % 1_000 == 0 {
                told.at("writing the input", i, count);
            }
            let (key, value) = record(i);
            feed.send(topic.as_str(), &key, &value).map_err(error_of)?;
        }
        feed.flush(Duration::from_secs(60)).map_err(error_of)
    }

    /// Takes away every topic whose name begins with this run's, the groups and the files.
    fn clean(&self) -> Result<()> {
        let admin = self.cluster.admin().map_err(error_of)?;
        let own: Vec<TopicName> = admin.topics().map_err(error_of)?.into_iter().map(|t| t.name).collect();
        let own: Vec<TopicName> = own.into_iter().filter(|t| t.as_str().starts_with(&self.run)).collect();
        if !own.is_empty() {
            admin.delete(&own).map_err(error_of)?;
        }
        for group in self.groups.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // A member that has just left is still listed; its group runs out by itself.
            let _ = admin.forget(group);
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(e) = self.clean() {
            tracing::warn!(error = %e, run = %self.run, "topics of the measurement were left behind");
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
