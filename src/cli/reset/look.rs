//! Looks at a cluster and at this machine, and says what a reset would do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::admin::views;
use crate::agent::intake_topic;
use crate::app::check::internal;
use crate::app::counts_to_be;
use crate::app::deployed::stored;
use crate::config::ProcessConfig;
use crate::dsl::Application;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, GroupId, TopicName, Tp};
use crate::intents::topics as names;
use crate::kafka::{Admin, Cluster, Isolation};
use crate::offset::NextOffset;
use crate::runtime::error_of;
use crate::time::WallTime;

use super::plan::{Move, Operations, Plan};

/// How long the intake may take to be read.
const LIMIT: Duration = Duration::from_secs(30);

/// Where reading of the sources begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// At the first record that is kept.
    Earliest,
    /// Behind the last one.
    Latest,
    /// At the first record of this time or later.
    At(WallTime),
}

/// What a reset of `application` would do.
pub(super) fn look<C: Cluster>(
    cluster: &C,
    application: &Application,
    config: &ProcessConfig,
    to: To,
    now: WallTime,
) -> Result<Plan> {
    let app = &application.id;
    let admin = cluster.admin().map_err(error_of)?;
    let groups = groups(app);
    let members = members(admin.as_ref(), app)?;
    let (topics, left) = topics(cluster, admin.as_ref(), application, config)?;
    // This version may have no effects any more: the ledger of the one before goes all the same.
    let knows = |name: TopicName| topics.iter().any(|(t, _)| *t == name);
    let effects = application.has_effects() || knows(names::ledger_changelog(app)) || knows(names::changelog(app, "operations"));
    let operations = match effects {
        true => {
            let waiting = waiting(cluster, admin.as_ref(), app, &topics)?;
            Operations { waiting, ..operations(cluster, application, &topics, now)? }
        }
        false => Operations::default(),
    };
    Ok(Plan {
        application: app.to_string(),
        directories: directories(&config.state.dir, app.as_str()),
        moves: moves(cluster, admin.as_ref(), application, &groups[0], to)?,
        topics,
        left,
        groups: groups[1..].to_vec(),
        members,
        operations,
    })
}

fn groups(app: &ApplicationId) -> [GroupId; 2] {
    [GroupId::new(app.as_str()), GroupId::new(names::effects_unit(app).as_str())]
}

/// Who is a member of the application's groups now.
pub(super) fn members(admin: &dyn Admin, app: &ApplicationId) -> Result<Vec<(GroupId, String)>> {
    let mut members = Vec::new();
    for group in groups(app) {
        let found = admin.members(&group).map_err(error_of)?;
        members.extend(found.into_iter().map(|m| (group.clone(), format!("{} ({})", m.client_id, m.host))));
    }
    Ok(members)
}

/// Topics that this version or the deployed one made for itself, as far as they are there; and others under the application's name.
fn topics<C: Cluster>(
    cluster: &C,
    admin: &dyn Admin,
    application: &Application,
    config: &ProcessConfig,
) -> Result<(Vec<(TopicName, u32)>, Vec<TopicName>)> {
    let app = &application.id;
    let (counts, _) = counts_to_be(application, config, admin)?;
    let layout = application.topology.layout(&counts, None).map_err(Error::from)?;
    let mut ours: BTreeSet<TopicName> = internal(application, &layout).into_iter().map(|t| t.name).collect();
    if let Some(before) = stored(cluster, app)? {
        ours.extend(before.facts.iter().filter(|f| f.kind == "internal").map(|f| TopicName::new(&f.name)));
    }
    // A topic of the user's that serves as a changelog stays, whatever its name.
    let graph = &application.topology;
    let users = graph.external_sources().into_iter().chain(graph.external_sinks());
    let users: BTreeSet<_> = users.chain(application.results.iter().chain(&application.dead_letters).cloned()).collect();
    let (mut gone, mut left) = (Vec::new(), Vec::new());
    for topic in admin.topics().map_err(error_of)? {
        let name = topic.name.as_str();
        let named = name.starts_with(&format!("{app}-")) || name.starts_with(&format!("{app}.effects-"));
        match ours.contains(&topic.name) && !users.contains(&topic.name) {
            true => gone.push((topic.name, topic.partitions)),
            false if named && !users.contains(&topic.name) && !kept(app).contains(&topic.name) => left.push(topic.name),
            false => {}
        }
    }
    gone.sort();
    left.sort();
    Ok((gone, left))
}

/// What outlives every reset: it tells who did it.
fn kept(app: &ApplicationId) -> [TopicName; 2] {
    [names::deployed(app), names::audit(app)]
}

fn operations<C: Cluster>(cluster: &C, application: &Application, there: &[(TopicName, u32)], now: WallTime) -> Result<Operations> {
    let is_there = |name: TopicName| there.iter().any(|(t, _)| *t == name);
    let app = &application.id;
    let (ledger, records) = (is_there(names::ledger_changelog(app)), is_there(names::changelog(app, "operations")));
    if !(ledger && records) {
        return Ok(Operations { unreadable: !there.is_empty(), ..Operations::default() });
    }
    let mut view = views::Operations::open(cluster, app)?;
    crate::cli::progress::catch_up(&mut view)?;
    let mut told = Operations::default();
    for seen in view.seen.values() {
        let ended = seen.status().is_some_and(|s| s.is_end());
        let deadline =
            seen.ledger.as_ref().map(|l| l.deadline).into_iter().chain(seen.record.as_ref().map(|r| r.request.deadline)).max();
        match ended {
            false => *told.open.entry(seen.status().map_or("held", |s| s.word()).to_owned()).or_default() += 1,
            true if deadline.is_some_and(|at| at > now) => told.due += 1,
            true => {}
        }
    }
    Ok(told)
}

/// Whether requests wait in the intake: they were taken from their sources, and nobody has admitted them.
fn waiting<C: Cluster>(cluster: &C, admin: &dyn Admin, app: &ApplicationId, there: &[(TopicName, u32)]) -> Result<bool> {
    let topic = intake_topic(app);
    let partitions = there.iter().find(|(t, _)| *t == topic).map_or(0, |(_, n)| *n);
    let tps: Vec<Tp> = (0..partitions).map(|p| Tp::new(topic.clone(), p as i32)).collect();
    if tps.is_empty() {
        return Ok(false);
    }
    let read: BTreeMap<Tp, NextOffset> = admin.committed(&groups(app)[0], &tps).map_err(error_of)?.into_iter().collect();
    let mut reader = cluster.reader(Isolation::Committed).map_err(error_of)?;
    let (mut from, mut ends) = (Vec::new(), Vec::new());
    for tp in tps {
        let (first, end) = reader.ends(&tp, Isolation::Committed).map_err(error_of)?;
        let at = read.get(&tp).map_or(first, |at| (*at).max(first));
        from.push((tp.clone(), at));
        ends.push((tp, at, end));
    }
    reader.assign(&from).map_err(error_of)?;
    // Markers of transactions take offsets, too: only a record counts.
    let until = Instant::now() + LIMIT;
    while ends.iter().any(|(tp, at, end)| reader.position(tp).unwrap_or(*at) < *end) {
        if reader.poll(Duration::from_millis(100)).map_err(error_of)?.is_some() {
            return Ok(true);
        }
        if Instant::now() > until {
            let doing = format!("reading {topic} to its end");
            return Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, doing).next("check --brokers, and try again"));
        }
    }
    Ok(false)
}

fn moves<C: Cluster>(cluster: &C, admin: &dyn Admin, application: &Application, group: &GroupId, to: To) -> Result<Vec<Move>> {
    let mut tps = Vec::new();
    for topic in application.topology.external_sources() {
        let partitions = admin.topic(&topic).map_err(error_of)?.map_or(0, |t| t.partitions);
        tps.extend((0..partitions).map(|p| Tp::new(topic.clone(), p as i32)));
    }
    let from: BTreeMap<Tp, NextOffset> = match tps.is_empty() {
        true => BTreeMap::new(),
        false => admin.committed(group, &tps).map_err(error_of)?.into_iter().collect(),
    };
    let at: BTreeMap<Tp, Option<NextOffset>> = match to {
        To::At(time) if !tps.is_empty() => admin.positions_at(&tps, time).map_err(error_of)?.into_iter().collect(),
        _ => BTreeMap::new(),
    };
    let mut reader = cluster.reader(Isolation::Committed).map_err(error_of)?;
    let mut moves = Vec::new();
    for tp in tps {
        let (first, end) = reader.ends(&tp, Isolation::Committed).map_err(error_of)?;
        let to = match to {
            To::Earliest => first,
            To::Latest => end,
            // Nothing so late is there: what comes from now on.
            To::At(_) => at.get(&tp).copied().flatten().unwrap_or(end),
        };
        let from = from.get(&tp).copied();
        // A position that has run out tells nothing of what was read.
        moves.push(Move { from, tp, to, again: to < from.unwrap_or(end) });
    }
    Ok(moves)
}

/// The state directories of the application's processes on this machine: `<state.dir>/<app>-NNN`.
fn directories(state: &Path, app: &str) -> Vec<PathBuf> {
    let own = |name: &str| {
        let number = name.strip_prefix(app).and_then(|rest| rest.strip_prefix('-'));
        number.is_some_and(|n| n.len() >= 3 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.filter(|e| own(&e.file_name().to_string_lossy())).map(|e| e.path()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a reset would delete another application's state, or what merely has a similar name.
    #[test]
    fn only_the_applications_own_directories_are_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["shop-000", "shop-012", "shop-1", "shop-000-old", "shop.b-000", "shopping-000", "shop-abc"] {
            std::fs::create_dir(dir.path().join(name)).expect("made");
        }
        let found = directories(dir.path(), "shop");
        let names: Vec<_> = found.iter().filter_map(|p| p.file_name()?.to_str()).collect();
        assert_eq!(names, ["shop-000", "shop-012"]);
        assert!(directories(&dir.path().join("nowhere"), "shop").is_empty());
    }
}
