//! `topology.yaml` → the same [`Application`](crate::dsl::Application) that the builder gives. Every error of every file at once.

mod agent;
mod cogroup;
mod expr;
mod files;
mod group;
mod join;
mod request;
mod shape;
mod shape_state;
mod sink;
mod sources;
mod steps;
mod suppress;
mod tables;
mod tools;
mod value;

use std::path::{Path, PathBuf};

use crate::config::yaml::{self, Diagnostics, Node};
use crate::dsl::{Application, StreamsBuilder};
use crate::error::codes;

pub use shape::schema;

/// An application that was read, with what is weak about it.
#[derive(Debug)]
pub struct Declared {
    /// What was declared.
    pub application: Application,
    /// Warnings of all its files.
    pub warnings: Diagnostics,
}

/// Reads a topology: the file itself, or `topology.yaml` in a directory.
pub fn load(path: &Path) -> Result<Declared, Diagnostics> {
    let file: PathBuf = if path.is_dir() { path.join("topology.yaml") } else { path.to_owned() };
    if !file.exists() {
        let mut d = Diagnostics::new();
        d.general(codes::FILE_UNREADABLE, format!("there is no file {}", file.display()))
            .note("a topology is a directory with a topology.yaml, or that file");
        return Err(d);
    }
    declared(&yaml::load(&file)?)
}

/// Reads a topology from `text`; files that it names are looked for beside `name`.
pub fn parse(name: &str, text: &str) -> Result<Declared, Diagnostics> {
    declared(&yaml::parse(name, text)?)
}

fn declared(root: &Node) -> Result<Declared, Diagnostics> {
    let mut d = Diagnostics::new();
    let builder = topology(root, &mut d);
    if d.has_errors() {
        return Err(d);
    }
    let Some(builder) = builder else { return Err(d) };
    match builder.build() {
        Ok(application) => Ok(Declared { application, warnings: d }),
        Err(more) => {
            d.absorb(more);
            Err(d)
        }
    }
}

fn topology(root: &Node, d: &mut Diagnostics) -> Option<StreamsBuilder> {
    let fields = shape::TOPOLOGY.read(root, d)?;
    let name = fields.text("application", d).and_then(|name| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.chars().all(plain) && name.len() <= 200 {
            return Some(name);
        }
        let at = &fields.get("application")?.at;
        d.error(codes::BAD_VALUE, at, format!("`{name}` can't name topics and groups"))
            .label("letters, digits, `-`, `_` and `.` only");
        None
    });
    let version = fields.get("version").and_then(|n| n.integer(1, i64::MAX, d)).unwrap_or(1);
    // Without a name reading goes on under a stand-in, so that all other errors show too.
    let mut builder = StreamsBuilder::new(name.as_deref().unwrap_or("unnamed")).version(version);
    if let Some(topic) = fields.text("dead_letters", d) {
        builder = builder.dead_letters(topic);
    }
    if let Some(topic) = fields.text("results", d) {
        builder.shared().results(topic.into());
    }
    let mut steps = steps::Steps::new(&builder);
    sources::read(&fields, &mut steps, d);
    for node in fields.get("steps").map(Node::list).unwrap_or_default() {
        steps.read(node, d);
    }
    steps.finish(&fields, d);
    Some(builder)
}

#[cfg(test)]
mod edge_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;
