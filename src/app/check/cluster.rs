//! The report against a real cluster: brokers, then topics, then the registry.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::error::{Result, codes};
use crate::ids::{GroupId, TopicName};
use crate::intents::topics as names;
use crate::kafka::Admin;
use crate::registry::Registry;
use crate::runtime::error_of;
use crate::time::show_duration;

use super::{Finding, GroupSeen, Report, Unread, WEAK, schemas, topics};

/// Adds what a cluster says. A contradiction keeps the application from running as declared; a weak setting is a warning, and so is what
/// this login may not read.
///
/// # Errors
/// Where brokers or the registry can't be reached, or refuse what nothing can be said without.
pub fn against(
    report: &mut Report,
    application: &Application,
    config: &ProcessConfig,
    admin: &dyn Admin,
    registry: Option<&Registry>,
) -> Result<()> {
    let asked = ask(report, application, config, admin, registry);
    report.stand();
    asked
}

fn ask(
    report: &mut Report,
    application: &Application,
    config: &ProcessConfig,
    admin: &dyn Admin,
    registry: Option<&Registry>,
) -> Result<()> {
    brokers(report, config, admin)?;
    topics::of_the_user(report, application, config, admin)?;
    groups(report, application, admin)?;
    let counts = report.topics.iter().map(|t| (TopicName::new(&t.name), t.partitions)).collect();
    match application.topology.layout(&counts, None) {
        Ok(layout) => topics::of_ours(report, &super::internal(application, &layout), admin)?,
        // A source that is missing, or that this login may not look at, was told above.
        Err(d) => report.contradictions.extend(
            d.iter().filter(|d| d.code != codes::TOPIC_MISSING).map(|d| Finding::new(d.code, &d.message, d.notes.join("; "))),
        ),
    }
    topics::under_edges(report, admin)?;
    schemas::of_the_user(report, application, registry)
}

/// How many they are, whose, of which version, and their limits.
fn brokers(report: &mut Report, config: &ProcessConfig, admin: &dyn Admin) -> Result<()> {
    let count = admin.brokers().map_err(error_of)?;
    report.cluster.push(if count == 1 { "1 broker".into() } else { format!("{count} brokers") });
    let id = admin.cluster_id().map_err(error_of)?;
    report.cluster.extend(id.map(|id| format!("cluster {id}")));
    if let Some(found) = report.allowed(admin.broker_config(), Unread::brokers())? {
        report.cluster.extend(version(&found));
        report.broker = super::chosen(&found, super::BROKER_SETTINGS);
        broker_settings(report, config, &found, count);
    }
    Ok(())
}

/// Brokers tell no version. Those before 4.0 have a setting that names it; it went with that version.
fn version(found: &BTreeMap<String, String>) -> Option<String> {
    match found.get("inter.broker.protocol.version") {
        Some(version) => Some(format!("Kafka {}", version.split('-').next().unwrap_or(version))),
        None => found.contains_key("node.id").then(|| "Kafka 4.0 or newer".to_owned()),
    }
}

/// Who is a member now. The same person may start a second application under one name unseen.
fn groups(report: &mut Report, application: &Application, admin: &dyn Admin) -> Result<()> {
    let app = application.id.as_str();
    let effects = application.has_effects().then(|| names::effects_unit(&application.id).to_string());
    for name in std::iter::once(app.to_owned()).chain(effects) {
        let group = GroupId::new(&name);
        let Some(found) = report.allowed(admin.members(&group), Unread::members_of(&group))? else { continue };
        let mut members: Vec<String> = found.into_iter().map(|m| m.client_id).collect();
        members.sort();
        report.cluster.push(match members.len() {
            0 => format!("group {name}: nobody"),
            1 => format!("group {name}: 1 member"),
            n => format!("group {name}: {n} members"),
        });
        report.groups.push(GroupSeen { name, members });
    }
    Ok(())
}

/// Times of this process that the broker does not take.
pub fn timeouts(config: &ProcessConfig, found: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut told = Vec::new();
    let number = |key: &str| found.get(key).and_then(|v| v.parse::<u64>().ok());
    let over = |limit: &str, ours: Duration| number(limit).filter(|max| ours.as_millis() > u128::from(*max));
    for (limit, setting, ours) in [
        ("transaction.max.timeout.ms", "group.transaction_timeout", config.group.transaction_timeout.0),
        ("group.max.session.timeout.ms", "group.session_timeout", config.group.session_timeout.0),
    ] {
        if let Some(max) = over(limit, ours) {
            let (max, ours) = (show_duration(Duration::from_millis(max)), show_duration(ours));
            let text = format!("the broker allows {limit} {max}, this process asks for {ours}");
            told.push(Finding::new(codes::RESERVED_SETTING, text, format!("lower {setting}, or raise {limit}")));
        }
    }
    let least = number("group.min.session.timeout.ms").map(Duration::from_millis);
    if let Some(least) = least.filter(|least| config.group.session_timeout.0 < *least) {
        let text = format!("the broker wants sessions of at least {}", show_duration(least));
        told.push(Finding::new(codes::RESERVED_SETTING, text, "raise group.session_timeout"));
    }
    told
}

/// Whether the brokers offer the group protocol that members speak. Brokers that don't tell offer the classic one alone.
pub fn protocol(config: &ProcessConfig, found: &BTreeMap<String, String>) -> Option<Finding> {
    let ours = config.group.protocol.name();
    let offered = found.get("group.coordinator.rebalance.protocols").map_or("classic", String::as_str);
    (!offered.split(',').any(|one| one.trim() == ours)).then(|| {
        let text = format!("the brokers offer the group protocols {offered}, members speak {ours}");
        let hint = format!("add {ours} to group.coordinator.rebalance.protocols, or set group.protocol to one that is offered");
        Finding::new(codes::PROTOCOL_REFUSED, text, hint)
    })
}

fn broker_settings(report: &mut Report, config: &ProcessConfig, found: &BTreeMap<String, String>, brokers: u32) {
    report.contradictions.extend(timeouts(config, found));
    report.contradictions.extend(protocol(config, found));
    let number = |key: &str| found.get(key).and_then(|v| v.parse::<u64>().ok());
    for key in ["transaction.state.log.replication.factor", "offsets.topic.replication.factor"] {
        if brokers > 1 && number(key) == Some(1) {
            let text = format!("{key} is 1: a lost disk loses what commits rest on");
            report.warnings.push(Finding::new(WEAK, text, "raise it to 3"));
        }
    }
    let kept = number("offsets.retention.minutes").map(|m| Duration::from_secs(m * 60));
    if let Some(kept) = kept.filter(|kept| *kept < Duration::from_secs(7 * 86_400)) {
        let text = format!("committed offsets are kept {} after the last member has left", show_duration(kept));
        report.warnings.push(Finding::new(
            WEAK,
            text,
            "an effect unit that stood still for longer refuses to start: raise offsets.retention.minutes",
        ));
    }
}
