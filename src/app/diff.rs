//! What a deploy would keep, create, orphan or lose: facts against facts, and against what a cluster holds. The comparison is pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::ids::TopicName;

use super::deployed::{Deployed, IN_MEMORY};

/// What becomes of a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Something is lost, or a start would be refused.
    Lost,
    /// It stays behind, and nobody reads it any more.
    Orphan,
    /// It goes on in another way.
    Change,
    /// It is new.
    Create,
    /// It goes on as it is.
    Keep,
}

impl Fate {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Fate::Lost => "lost",
            Fate::Orphan => "orphan",
            Fate::Change => "change",
            Fate::Create => "create",
            Fate::Keep => "keep",
        }
    }
}

/// One part of a deploy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Change {
    /// What becomes of it.
    pub fate: Fate,
    /// `store`, `internal topic`, `step`, `contract` …
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What that means.
    pub text: String,
}

/// An open operation, as far as a deploy matters to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// Its step.
    pub step: String,
    /// Its status on results.
    pub status: &'static str,
    /// The contract and call of its intent, with the contract's version; none before the hand-over.
    pub call: Option<(String, i64)>,
    /// Whether an approval was given or is waited for, and the intent is not written yet.
    pub approval: bool,
    /// How many calls of its plan, which is under way, have not begun.
    pub calls: usize,
}

/// What a deploy would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Deploy {
    /// What becomes of each part, the worst first.
    pub changes: Vec<Change>,
    /// Open operations by status.
    pub operations: BTreeMap<String, usize>,
}

impl Deploy {
    /// How many things are lost.
    pub fn losses(&self) -> usize {
        self.changes.iter().filter(|c| c.fate == Fate::Lost).count()
    }
    fn add(&mut self, fate: Fate, kind: &str, name: impl Into<String>, text: impl Into<String>) {
        self.changes.push(Change { fate, kind: kind.into(), name: name.into(), text: text.into() });
    }
    fn sorted(mut self) -> Self {
        self.changes.sort();
        self.changes.dedup();
        self
    }
}

/// Compares two deploys as their files have them.
pub fn compare(before: &Deployed, after: &Deployed) -> Deploy {
    let mut deploy = Deploy::default();
    if before.application != after.application {
        let text =
            format!("it was {}: groups, topics and state of that name stay behind, and this one begins anew", before.application);
        deploy.add(Fate::Lost, "application", after.application.as_str(), text);
    }
    let (old, new) = (before.by_name(), after.by_name());
    let all: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    for (kind, name) in all {
        let part = (old.get(&(kind, name)).copied(), new.get(&(kind, name)).copied());
        let (fate, text) = match part {
            (Some(was), Some(is)) if was == is || was.is_empty() || is.is_empty() => (Fate::Keep, String::new()),
            (Some(was), Some(is)) => changed(kind, was, is),
            (Some(was), None) => gone(kind, was),
            (None, Some(is)) => come(kind, is),
            (None, None) => continue,
        };
        deploy.add(fate, shown(kind), name, text);
    }
    deploy.sorted()
}

fn shown(kind: &str) -> &str {
    if kind == "internal" { "internal topic" } else { kind }
}

fn changed(kind: &str, was: &str, is: &str) -> (Fate, String) {
    match kind {
        "store" if was == IN_MEMORY => (Fate::Change, format!("it was held in memory only, now {is}")),
        "store" => (Fate::Lost, format!("its changelog was {was} and is {is}: it begins empty")),
        "internal" => (Fate::Lost, format!("{was} partitions, and {is} are wanted: a start is refused (RB0303)")),
        "source" => (Fate::Change, format!("{was} partitions, now {is}")),
        "step" => (Fate::Change, format!("it called {was} and calls {is}; open operations keep what their intent says")),
        "contract" => (Fate::Change, format!("version {was} → {is}")),
        "call" => (Fate::Change, "defined anew: approvals that were given for it no longer bind".into()),
        "prompt" => {
            (Fate::Change, "the model is asked otherwise: plans that wait are made anew, their approvals no longer bind".into())
        }
        "proposal" => (Fate::Change, "proposals are checked otherwise: approvals of waiting plans no longer bind".into()),
        "policy" => (Fate::Change, "asked anew before every send, also for open operations".into()),
        _ => (Fate::Change, format!("{was} → {is}")),
    }
}

fn gone(kind: &str, was: &str) -> (Fate, String) {
    match kind {
        "store" if was == IN_MEMORY => (Fate::Orphan, "it was held in memory only: a restart loses it too".into()),
        "store" => (Fate::Lost, format!("nobody reads it any more; {was} stays behind")),
        "internal" => (Fate::Orphan, "what it holds is read by nobody; delete it once it is drained".into()),
        "source" => (Fate::Orphan, "no longer read; the group's positions in it run out".into()),
        "step" => (Fate::Orphan, "its operations are known by its name: see them closed before it goes".into()),
        _ => (Fate::Orphan, String::new()),
    }
}

fn come(kind: &str, is: &str) -> (Fate, String) {
    match kind {
        "store" => (Fate::Create, format!("begins empty, from what is read from now on; {is}")),
        "source" => (Fate::Create, "read from its beginning".into()),
        _ => (Fate::Create, String::new()),
    }
}

/// Adds what stands on a cluster: topics under the application's prefixes, those that should be there, and open operations.
pub fn against(
    mut deploy: Deploy,
    before: Option<&Deployed>,
    after: &Deployed,
    there: &BTreeMap<TopicName, u32>,
    open: &[Open],
) -> Deploy {
    let app = &after.application;
    let wanted = after.by_name();
    let known = before.map(Deployed::by_name).unwrap_or_default();
    let ran = before.is_some() || !there.is_empty();
    let prefixes = [format!("{app}-"), format!("{app}.effects-")];
    let ours = |t: &str| {
        prefixes.iter().any(|p| t.starts_with(p.as_str()))
            && ["-changelog", "-repartition", "-topic"].iter().any(|e| t.ends_with(e))
    };
    for (topic, partitions) in there {
        let name = topic.as_str();
        match wanted.get(&("internal", name)).and_then(|n| n.parse::<u32>().ok()) {
            Some(n) if n != *partitions => {
                deploy.add(
                    Fate::Lost,
                    "internal topic",
                    name,
                    format!("{partitions} partitions, and {n} are wanted: a start is refused (RB0303)"),
                );
            }
            None if ours(name) && !wanted.contains_key(&("internal", name)) && !known.contains_key(&("internal", name)) => {
                deploy.add(Fate::Orphan, "internal topic", name, "this version does not use it");
            }
            _ => {}
        }
    }
    for (kind, name) in wanted.keys().filter(|(kind, _)| *kind == "internal") {
        let topic = TopicName::new(name);
        if there.contains_key(&topic) || !ran {
            continue;
        }
        let was = known.contains_key(&(*kind, *name));
        let text = if was {
            "it was there and is gone: what it held is lost; a start is refused (RB0312)"
        } else {
            "made by the first start"
        };
        deploy.add(if was { Fate::Lost } else { Fate::Create }, "internal topic", *name, text);
    }
    operations(&mut deploy, &wanted, open);
    deploy.changes.retain(|c| c.fate != Fate::Keep || c.kind != "internal topic" || there.contains_key(&TopicName::new(&c.name)));
    deploy.sorted()
}

/// Adds topics of the user's that are missing: a first start makes them where it may, and is refused where it may not.
pub fn missing(mut deploy: Deploy, topics: &BTreeSet<TopicName>, may_create: bool) -> Deploy {
    for topic in topics {
        deploy.changes.retain(|c| !(c.name == topic.as_str() && c.fate == Fate::Create));
        match may_create {
            true => deploy.add(Fate::Create, "topic", topic.as_str(), "made by the first start"),
            false => deploy.add(Fate::Lost, "topic", topic.as_str(), "it does not exist: a start is refused (RB0302)"),
        }
    }
    deploy.sorted()
}

/// What becomes of open operations.
fn operations(deploy: &mut Deploy, wanted: &BTreeMap<(&str, &str), &str>, open: &[Open]) {
    let mut steps: BTreeMap<&str, usize> = BTreeMap::new();
    let mut calls: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    for o in open {
        *deploy.operations.entry(o.status.to_owned()).or_default() += 1;
        *steps.entry(&o.step).or_default() += 1;
        if let Some((call, version)) = &o.call {
            *calls.entry((call, *version)).or_default() += 1;
        }
    }
    for (step, n) in steps.into_iter().filter(|(step, _)| !wanted.contains_key(&("step", *step))) {
        deploy.add(Fate::Lost, "operations", step, format!("{n} open, and this version has no such step: nobody would end them"));
    }
    for ((call, version), n) in calls {
        let contract = call.split('#').next().unwrap_or(call);
        match wanted.get(&("contract", contract)).and_then(|v| v.parse::<i64>().ok()) {
            _ if !wanted.contains_key(&("call", call)) => {
                deploy.add(
                    Fate::Lost,
                    "operations",
                    call,
                    format!("{n} open, and no contract has this call any more: they would be parked"),
                );
            }
            Some(now) if now != version => {
                let text =
                    format!("{n} open were written under version {version} and are read back and judged under version {now}");
                deploy.add(Fate::Change, "operations", call, text);
            }
            _ => {}
        }
    }
    let binds = |kind: &str| matches!(kind, "call" | "contract" | "prompt" | "proposal");
    let voided = deploy.changes.iter().any(|c| c.fate == Fate::Change && binds(&c.kind));
    let waiting = open.iter().filter(|o| o.approval).count();
    if voided && waiting > 0 {
        let text =
            format!("{waiting} wait with a plan that is made anew: approvals given for it no longer bind, and are asked for again");
        deploy.add(Fate::Lost, "approvals", "waiting operations", text);
    }
    let calls: usize = open.iter().map(|o| o.calls).sum();
    if voided && calls > 0 {
        let text = format!("{calls} have not begun: what was approved is not what they would be, so they are denied");
        deploy.add(Fate::Lost, "calls", "plans under way", text);
    }
}

#[cfg(test)]
mod tests;
