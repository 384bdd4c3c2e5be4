//! Members that the console asks for what they measure: at their `/metrics`, all addresses of each name at once, so that one name of a
//! headless service stands for all pods.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prometheus_parse::{Scrape, Value};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::error::{Error, Fault, Result, codes};
use crate::events;
use crate::http::Asker;
use crate::ids::ApplicationId;

use super::rates::{Asked, INSTANCE, Sample, is_shown};

/// For one whole answer.
const WITHIN: Duration = Duration::from_secs(2);
/// Largest answer: some 100,000 series.
const MOST: usize = 16 << 20;
/// Members that are asked at most.
const MEMBERS: usize = 200;

/// Members of one application.
pub struct Peers {
    named: Vec<String>,
    app: ApplicationId,
    client: Asker,
    runtime: Runtime,
}

impl Peers {
    /// Members at these addresses, `host:port` each.
    ///
    /// # Errors
    /// `BUG` where this machine gives no client.
    pub fn new(named: Vec<String>, app: ApplicationId) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the client of the members").because(e))?;
        Ok(Self { named, app, client: Asker::new(WITHIN)?, runtime })
    }

    /// Asks all of them.
    pub fn ask(&self) -> (Asked, Sample) {
        self.runtime.block_on(self.asking())
    }

    async fn asking(&self) -> (Asked, Sample) {
        let (addresses, mut silent) = self.addresses().await;
        let mut asked = JoinSet::new();
        for address in addresses {
            asked.spawn(one(self.client.clone(), address, self.app.clone()));
        }
        let (mut answered, mut all) = (Vec::new(), Sample::new());
        while let Some(Ok((address, answer))) = asked.join_next().await {
            match answer {
                Ok(sample) => {
                    all.extend(sample);
                    answered.push(address);
                }
                Err(why) => silent.push((address, why)),
            }
        }
        silent.sort();
        (Asked::Members { answered, silent }, all)
    }

    /// All addresses of the names, and the names that have none.
    async fn addresses(&self) -> (Vec<String>, Vec<(String, String)>) {
        let (mut found, mut silent) = (BTreeSet::new(), Vec::new());
        for name in &self.named {
            match tokio::net::lookup_host(name).await {
                Ok(addresses) => found.extend(addresses),
                Err(e) => silent.push((name.clone(), format!("its name has no address: {e}"))),
            }
        }
        (found.into_iter().take(MEMBERS).map(|a| a.to_string()).collect(), silent)
    }
}

async fn one(client: Asker, address: String, app: ApplicationId) -> (String, std::result::Result<Sample, String>) {
    let answer = client.get(&format!("http://{address}/metrics"), MOST).await;
    let read = answer.and_then(|(status, body)| match status {
        200 => read(&String::from_utf8_lossy(&body), &address, &app),
        _ => Err(format!("it answered {status}")),
    });
    (address, read)
}

/// The series that are shown, with the address as a label. Another application's numbers are not ours.
fn read(text: &str, address: &str, app: &ApplicationId) -> std::result::Result<Sample, String> {
    let shown = |line: &&str| line.strip_prefix("# TYPE ").unwrap_or(line).split([' ', '{']).next().is_some_and(is_shown);
    let scrape = Scrape::parse(text.lines().filter(shown).map(|l| Ok(l.to_owned()))).map_err(|e| e.to_string())?;
    let mut sample = Sample::new();
    for s in scrape.samples {
        let (Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value)) = s.value else { continue };
        let mut labels: BTreeMap<String, String> = s.labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        if let Some(other) = labels.get(events::APPLICATION).filter(|of| **of != *app.as_str()) {
            return Err(format!("it is a member of {other}"));
        }
        labels.insert(INSTANCE.to_owned(), address.to_owned());
        sample.insert((s.metric, labels), value);
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder as _, IntGaugeVec, Opts, Registry, TextEncoder};

    use super::*;

    fn text(app: &str, running: i64) -> String {
        let registry =
            Registry::new_custom(None, Some([(events::APPLICATION.to_owned(), app.to_owned())].into())).expect("a registry");
        for (m, value) in [(events::TARGET_CALLS, running), (events::RESTING, 9)] {
            let gauge = IntGaugeVec::new(Opts::new(m.name, m.help), m.labels).expect("a gauge");
            registry.register(Box::new(gauge.clone())).expect("registers");
            gauge.with_label_values(&vec!["shop"; m.labels.len()]).set(value);
        }
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).expect("encodes");
        String::from_utf8(text).expect("text")
    }

    /// If this broke, the console would show no calls of a member, or those of another application.
    #[test]
    fn what_a_member_tells_is_read_and_another_applications_is_not() {
        let app = ApplicationId::new("orders");
        let sample = read(&text("orders", 3), "10.0.0.7:9464", &app).expect("reads");
        let [((name, labels), value)] = sample.iter().collect::<Vec<_>>()[..] else { panic!("{sample:?}") };
        assert_eq!((name.as_str(), *value), (events::TARGET_CALLS.name, 3.0));
        assert_eq!((labels[INSTANCE].as_str(), labels["target"].as_str()), ("10.0.0.7:9464", "shop"));
        assert_eq!(read(&text("mail", 3), "10.0.0.7:9464", &app), Err("it is a member of mail".to_owned()));
    }
}
