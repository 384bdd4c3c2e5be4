//! The webhooks of a member: where they are listened for, and how what they say reaches the owners of operations.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, Partition, TopicName};
use crate::intents::{Control, headers, topics};
use crate::kafka::{Cluster, RdCluster};
use crate::record::{Headers, OutRecord};
use crate::serdes::internal::{Wire, encode};
use crate::time::SystemClock;
use crate::webhooks::{Book, Listener, Tell};

/// How long a webhook waits for Kafka's acknowledgement.
const WITHIN: Duration = Duration::from_secs(20);

/// Starts the listener, where a contract declares webhooks.
///
/// # Errors
/// Where one does and nothing is listened on, or the address is taken.
pub async fn listen(application: &Application, config: &ProcessConfig, metrics: &prometheus::Registry) -> Result<Option<Listener>> {
    let book = Book::of(application.contracts.values());
    if book.is_empty() {
        return Ok(None);
    }
    let address = &config.webhooks.listen;
    if address.is_empty() {
        let paths: Vec<&str> = book.paths().collect();
        return Err(Error::new(codes::MISSING_KEY, Fault::Configuration, "listening for webhooks")
            .because(format!("contracts declare webhooks on {}, and webhooks.listen is empty", paths.join(", ")))
            .next("set webhooks.listen to an address that the targets reach, behind a proxy that ends TLS"));
    }
    let tell = tell(RdCluster::new(super::kafka_config(config))?, &application.id);
    Listener::start(address, book, tell, Arc::new(SystemClock), metrics).await.map(Some)
}

/// Writes to each control partition, and returns once all are acknowledged. What fails half-way is written again whole: a repeat says
/// nothing new to who knows it.
fn tell(cluster: RdCluster, application: &ApplicationId) -> Tell {
    let topic: TopicName = topics::control(application);
    let partitions: OnceLock<u32> = OnceLock::new();
    Arc::new(move |said: &Control| {
        let fault = crate::runtime::error_of;
        let n = match partitions.get() {
            Some(n) => *n,
            None => {
                let info = cluster.admin().map_err(fault)?.topic(&topic).map_err(fault)?;
                let missing = || {
                    Error::new(codes::TOPIC_MISSING, Fault::Unreachable, format!("writing a webhook to {topic}"))
                        .next("it is created when the application first runs")
                };
                *partitions.get_or_init({
                    let n = info.ok_or_else(missing)?.partitions;
                    move || n
                })
            }
        };
        let value = encode(said)?;
        let headers = Headers::new().with(headers::SCHEMA, Control::SCHEMA);
        let record = |p: u32| OutRecord {
            topic: &topic,
            partition: Some(Partition(p as i32)),
            timestamp: Some(said.deadline),
            key: Some(b"webhook"),
            value: Some(&value),
            headers: Some(&headers),
        };
        let records: Vec<OutRecord<'_>> = (0..n).map(record).collect();
        cluster.publish(&records, WITHIN).map(|_| ()).map_err(fault)
    })
}
