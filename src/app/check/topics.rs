//! Topics as a cluster has them, beside what the application needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::agent;
use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::error::{Result, codes};
use crate::ids::TopicName;
use crate::kafka::{Admin, TopicInfo};
use crate::runtime::differences;
use crate::task::InternalTopic;
use crate::time::show_duration;
use crate::topology::Role;

use super::super::compose::{create_command, external_topics};
use super::{Finding, Report, TopicSeen, Unread, WEAK};

/// Topics that the user owns: they exist, and keep what they are given.
pub(super) fn of_the_user(report: &mut Report, application: &Application, config: &ProcessConfig, admin: &dyn Admin) -> Result<()> {
    for name in &external_topics(application) {
        match look(report, name, admin)? {
            Looked::Hidden => {}
            Looked::Absent => missing(report, name, config),
            Looked::There(info, settings) => {
                let found = settings.clone().unwrap_or_default();
                durability(report, &info, &found);
                report.topics.push(seen(&info, settings, Vec::new()));
                if asks_for_effects(application, name) {
                    requests(report, application, name, &found);
                }
            }
        }
    }
    Ok(())
}

/// Topics of this application: as a start would want them. Those that are missing are made by the first start.
pub(super) fn of_ours(report: &mut Report, wanted: &[InternalTopic], admin: &dyn Admin) -> Result<()> {
    let mut to_come = 0;
    for topic in wanted {
        let (info, settings) = match look(report, &topic.name, admin)? {
            Looked::Hidden => continue,
            Looked::Absent => {
                to_come += 1;
                continue;
            }
            Looked::There(info, settings) => (info, settings),
        };
        let found = settings.clone().unwrap_or_default();
        durability(report, &info, &found);
        let other = differences(topic, info.partitions, &found);
        let weak = other.iter().filter(|d| d.refused).map(|d| format!("{} {} in place of {}", d.what, d.actual, d.expected));
        report.topics.push(seen(&info, settings, weak.collect()));
        for d in other {
            let text = format!("{}: its {} is {}, this version wants {}", topic.name, d.what, d.actual, d.expected);
            match d.refused {
                true => {
                    let hint = "it stems from another application or version: do not delete it while operations are open";
                    report.contradictions.push(Finding::new(codes::TOPIC_MISMATCH, text, hint));
                }
                false => report.warnings.push(Finding::new(WEAK, text, "")),
            }
        }
    }
    report.cluster.push(match to_come {
        0 => format!("{} internal topics", wanted.len()),
        n if n == wanted.len() => format!("{n} internal topics to be created"),
        n => format!("{} internal topics, {n} of them to be created", wanted.len()),
    });
    Ok(())
}

/// Topics under the edges that were not looked at so far: while a source is missing, nobody can say how this version would make ours.
pub(super) fn under_edges(report: &mut Report, admin: &dyn Admin) -> Result<()> {
    let known = |name: &str| {
        let seen = report.topics.iter().any(|t| t.name == name) || report.unread.iter().any(|u| u.name == name);
        seen || report.absent.iter().any(|t| t == name)
    };
    let all = report.edges.iter().flat_map(|e| &e.rests.topics).filter(|t| !known(t.as_str()));
    for name in all.cloned().collect::<BTreeSet<_>>() {
        if let Looked::There(info, settings) = look(report, &name, admin)? {
            durability(report, &info, &settings.clone().unwrap_or_default());
            report.topics.push(seen(&info, settings, Vec::new()));
        }
    }
    Ok(())
}

/// A topic as this login sees it.
enum Looked {
    /// It may not even ask.
    Hidden,
    /// There is none.
    Absent,
    /// With its settings, where it may read them.
    There(TopicInfo, Option<BTreeMap<String, String>>),
}

fn look(report: &mut Report, name: &TopicName, admin: &dyn Admin) -> Result<Looked> {
    let Some(found) = report.allowed(admin.topic(name), Unread::topic(name))? else { return Ok(Looked::Hidden) };
    let Some(info) = found else {
        report.absent.push(name.to_string());
        return Ok(Looked::Absent);
    };
    let settings = report.allowed(admin.topic_config(name), Unread::settings_of(name))?;
    Ok(Looked::There(info, settings))
}

/// What is `other` than it must be is weak, beside what is possible but weak of any topic.
fn seen(info: &TopicInfo, settings: Option<BTreeMap<String, String>>, other: Vec<String>) -> TopicSeen {
    let found = settings.clone().unwrap_or_default();
    let weak = weaknesses(info, &found).into_iter().map(|(text, _)| text.to_owned()).chain(other).collect();
    let settings = settings.map(|found| super::chosen(&found, super::TOPIC_SETTINGS));
    TopicSeen { name: info.name.to_string(), partitions: info.partitions, replication: info.replication, settings, weak }
}

fn missing(report: &mut Report, name: &TopicName, config: &ProcessConfig) {
    if config.topics.create {
        let text = format!("{name} does not exist; a start creates it with {} partitions", config.topics.partitions);
        return report.warnings.push(Finding::new(WEAK, text, "topics.create"));
    }
    let what = format!("{name} does not exist");
    report.contradictions.push(Finding::new(codes::TOPIC_MISSING, what, create_command(name, config)));
}

/// What it takes to lose a record that was acknowledged, or to be unable to write one.
fn durability(report: &mut Report, info: &TopicInfo, settings: &BTreeMap<String, String>) {
    let name = &info.name;
    let least: Option<u32> = settings.get("min.insync.replicas").and_then(|v| v.parse().ok());
    if let Some(least) = least.filter(|least| *least > info.replication) {
        let text = format!("{name} wants {least} replicas in sync and has {}: nothing can be written", info.replication);
        report.contradictions.push(Finding::new(codes::TOPIC_MISMATCH, text, "lower min.insync.replicas, or add replicas"));
    }
    weaknesses(info, settings).into_iter().for_each(|(text, hint)| Finding::on(&mut report.warnings, name, text, hint));
}

/// What of a topic's settings is possible but weak: what may happen, and what would help.
pub(in crate::app) fn weaknesses(info: &TopicInfo, settings: &BTreeMap<String, String>) -> Vec<(&'static str, &'static str)> {
    let least: Option<u32> = settings.get("min.insync.replicas").and_then(|v| v.parse().ok());
    let replicas = match least {
        Some(least) if least > info.replication => None,
        _ if info.replication == 1 => {
            Some(("one replica: a lost disk loses records", "replication factor 3 with min.insync.replicas 2"))
        }
        Some(1) => Some(("one replica in sync acknowledges: its broker's loss may lose records", "min.insync.replicas 2")),
        Some(least) if least == info.replication => {
            Some(("all replicas must be in sync: one broker down stops writing", "one replica more than min.insync.replicas"))
        }
        _ => None,
    };
    let unclean = settings.get("unclean.leader.election.enable").is_some_and(|v| v == "true");
    let unclean =
        unclean.then_some(("a leader may be elected that lacks acknowledged records", "unclean.leader.election.enable false"));
    replicas.into_iter().chain(unclean).collect()
}

/// Whether records of this topic become requests.
fn asks_for_effects(application: &Application, name: &TopicName) -> bool {
    let topology = &application.topology;
    let intake = agent::intake_topic(&application.id);
    let own = topology.subtopologies().iter().filter(|s| s.foreign.is_none());
    own.filter(|s| topology.sources_of(s).contains(name))
        .any(|s| s.nodes.iter().any(|n| matches!(&topology.node(*n).role, Role::Sink(t) if *t == intake)))
}

/// How long requests are kept, beside how long they are remembered and may be due.
fn requests(report: &mut Report, application: &Application, name: &TopicName, settings: &BTreeMap<String, String>) {
    let mut weak = |text: String, hint: &str| report.warnings.push(Finding::new(WEAK, text, hint));
    if settings.get("cleanup.policy").is_some_and(|p| p.contains("compact")) {
        weak(format!("{name} is compacted: of two requests under one key the first may vanish unread"), "cleanup.policy delete");
    }
    let Some(kept) = settings.get("retention.ms").map(|v| v.parse::<i64>().ok()) else { return };
    let rules = || application.pipelines.iter().map(|p| &p.admit);
    let (Some(remember), Some(due)) = (rules().map(|r| r.remember).min(), rules().map(|r| r.max_deadline).max()) else { return };
    let kept = kept.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    if kept.is_none_or(|kept| kept > remember) {
        let kept = kept.map_or_else(|| "for ever".to_owned(), show_duration);
        let text = format!(
            "{name} keeps {kept}; admission remembers {}: an operation ID that is sent again after that with a later deadline is new",
            show_duration(remember)
        );
        weak(text, "remember in the admit step");
    }
    if let Some(kept) = kept.filter(|kept| *kept < due) {
        let text = format!(
            "{name} keeps {}, but requests may be due for {}: one that no member reads in time is lost",
            show_duration(kept),
            show_duration(due)
        );
        weak(text, "retention.ms");
    }
}
