//! The report for people, on a terminal: columns aligned, long lines broken.

use crate::app::check::{Edge, Finding, Permission, Report, Rests, TopicSeen, Tried, alike};

use super::super::output::{Tone, toned};

/// Widest line of a reason before it is broken.
const WIDTH: usize = 72;

/// All but the permissions that people need.
pub(super) fn table(report: &Report) -> String {
    let mut head = vec![report.application.clone(), format!("version {}", report.version)];
    head.extend(report.cluster.iter().cloned());
    if !report.unread.is_empty() {
        head.push(toned("not everything was read", Tone::Weak));
    }
    let mut text = head.join(" · ") + "\n\n";
    text += &aligned(&promises(report));
    if !report.assumptions.is_empty() {
        text += "\n you assume\n";
        let numbered = report.assumptions.iter().enumerate();
        text += &aligned(&numbered.map(|(i, a)| [format!(" A{}", i + 1), a.text.clone(), a.at.clone()]).collect::<Vec<_>>());
    }
    text += &rests(report);
    text += &topics(report);
    text += &pairs("limits of the brokers", report.broker.iter());
    text += &pairs("what the registry lets change", report.compatibility.iter());
    text += &login(report);
    text += &findings("contradictions", Tone::Bad, &report.contradictions);
    text += &findings("warnings", Tone::Weak, &report.warnings);
    text + "\n not promised: " + &report.not_promised.join("; ") + "\n"
}

/// Each edge with its promises, and whether these are known to rest on enough.
fn promises(report: &Report) -> Vec<[String; 3]> {
    let mut rows = vec![["edge".to_owned(), "promise".to_owned(), "because".to_owned()]];
    for edge in &report.edges {
        let told = edge.promises.iter().map(|p| (p.promise.as_str(), p.because.clone())).chain(doubt(edge));
        for (i, (promise, because)) in told.enumerate() {
            for (j, line) in wrapped(&because).into_iter().enumerate() {
                let shown = |show: bool, text: &str| if show { text.to_owned() } else { String::new() };
                rows.push([shown(i == 0 && j == 0, &edge.edge), shown(j == 0, promise), line]);
            }
        }
    }
    rows
}

/// What the cluster says against an edge's promises.
fn doubt(edge: &Edge) -> Option<(&'static str, String)> {
    edge.doubt().map(|(doubt, of)| (doubt, of.join(", ")))
}

/// What each edge rests on and where it ends; edges with the same are told together.
fn rests(report: &Report) -> String {
    let mut groups: Vec<(Vec<&str>, Rests)> = Vec::new();
    for edge in &report.edges {
        match groups.iter_mut().find(|(_, rests)| rests.is_like(&edge.rests)) {
            Some((edges, rests)) => {
                edges.push(&edge.edge);
                rests.on_cluster.extend(edge.rests.on_cluster.iter().cloned());
            }
            None => groups.push((vec![&edge.edge], edge.rests.clone())),
        }
    }
    let mut text = "\n what each edge rests on, and where it ends\n".to_owned();
    for (edges, rests) in groups {
        for line in wrapped(&edges.join(" · ")) {
            text += &format!("  {line}\n");
        }
        text += &one_rests(&rests);
    }
    text
}

fn one_rests(rests: &Rests) -> String {
    let (mut text, mut last) = (String::new(), "");
    let assumed: Vec<String> = rests.assumes.iter().map(|n| format!("A{n}")).collect();
    let mut row = |what: &'static str, line: &str| {
        for line in wrapped(line) {
            text += &format!("    {:<10} {line}\n", if last == what { "" } else { what });
            last = what;
        }
    };
    rests.settings.iter().for_each(|t| row("rests on", t));
    // Where a cluster was asked, what is wanted is not what is there.
    rests.wants.iter().for_each(|t| row(if rests.on_cluster.is_empty() { "rests on" } else { "wants" }, t));
    for (standing, is, of) in alike(&rests.on_cluster) {
        let colon = if is.is_empty() { "" } else { ": " };
        row(standing.words(), &format!("{}{colon}{is}", of.join(", ")));
    }
    if !assumed.is_empty() {
        row("assumes", &assumed.join(" "));
    }
    rests.broken_by.iter().for_each(|t| row("broken by", t));
    rests.not_promised.iter().for_each(|t| row("not", t));
    text
}

/// Topics as the cluster has them.
fn topics(report: &Report) -> String {
    if report.topics.is_empty() {
        return String::new();
    }
    let row = |t: &TopicSeen| {
        let settings = match &t.settings {
            None => "settings not read".to_owned(),
            Some(all) => all.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "),
        };
        let size = format!("{} partition{} × {}", t.partitions, if t.partitions == 1 { "" } else { "s" }, t.replication);
        [format!(" {}", t.name), size, settings]
    };
    "\n topics: partitions × replicas, and settings\n".to_owned() + &aligned(&report.topics.iter().map(row).collect::<Vec<_>>())
}

fn pairs<'a>(title: &str, all: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let rows: Vec<_> = all.map(|(key, value)| [format!(" {key}"), value.clone(), String::new()]).collect();
    if rows.is_empty() { String::new() } else { format!("\n {title}\n{}", aligned(&rows)) }
}

/// What a member needs, and which of it this login has.
fn login(report: &Report) -> String {
    let asked: Vec<&Permission> =
        report.permissions.iter().filter(|p| p.who == "member" && (p.tried.is_some() || p.untried.is_some())).collect();
    let row = |p: &&Permission| {
        let (what, which) = match (p.tried, p.untried) {
            (Some(Tried::Allowed), _) => ("has", p.operations.join(", ")),
            (Some(Tried::Refused), _) => ("lacks", p.lacks.join(", ")),
            (None, why) => ("not known", why.unwrap_or_default().to_owned()),
        };
        [format!(" {what}"), p.of(), which]
    };
    if asked.is_empty() {
        return String::new();
    }
    "\n what this login may do, of what a member needs\n".to_owned() + &aligned(&asked.iter().map(row).collect::<Vec<_>>())
}

/// What to allow, by who needs it.
pub(super) fn permissions(report: &Report) -> String {
    let mut text = "\n permissions: kafka-acls.sh --bootstrap-server … --add --allow-principal User:… and\n".to_owned();
    let mut last = "";
    for p in &report.permissions {
        if p.who != last {
            text += &format!("  {}\n", p.who);
            last = p.who;
        }
        text += &format!("    {}{}\n", p.flags(), p.told());
    }
    text
}

fn findings(title: &str, tone: Tone, all: &[Finding]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("\n {title}\n");
    for f in all {
        text += &format!("  {}  {}\n", toned(&f.code, tone), f.text);
        for line in wrapped(&f.topics.join(", ")).iter().filter(|l| !l.is_empty()) {
            text += &format!("          {line}\n");
        }
        if !f.hint.is_empty() {
            text += &format!("          {}\n", f.hint);
        }
    }
    text
}

/// Three columns, the first two as wide as their widest cell.
fn aligned(rows: &[[String; 3]]) -> String {
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    let line = |r: &[String; 3]| {
        let line = format!(" {:<first$}  {:<second$}  {}", r[0], r[1], r[2]);
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + word.chars().count() >= WIDTH {
            lines.push(word.to_owned());
        } else {
            let space = if lines[last].is_empty() { "" } else { " " };
            lines[last] = format!("{}{space}{word}", lines[last]);
        }
    }
    lines
}
