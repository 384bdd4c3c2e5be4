//! Tables of known keys. A table checks a map (unknown keys with the nearest known one, missing keys) and is its own JSON Schema.

use crate::error::codes;

use super::{Diagnostics, Node, nearest};

/// What a map may hold.
#[derive(Debug)]
pub struct Shape {
    /// Its name in the JSON Schema: `Effect`.
    pub name: &'static str,
    /// What it is, for editors.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// One known key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Type,
    /// Whether it must be there.
    pub required: bool,
    /// What it means, for editors.
    pub doc: &'static str,
}

/// What a key takes.
#[derive(Debug)]
pub enum Type {
    /// A text, or a reference `{ env: X }`, `{ file: … }`.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// `5s`.
    Duration,
    /// `256 KB`.
    Size,
    /// `2M/day`.
    Rate,
    /// A CEL expression.
    Expression,
    /// A reference to a secret.
    Secret,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list.
    List(&'static Type),
    /// A map with names of the author's choice.
    Named(&'static Type),
    /// A map of known keys.
    Map(&'static Shape),
    /// One of several.
    Either(&'static [Type]),
    /// Anything; checked elsewhere.
    Any,
}

impl Key {
    /// A key that may be left out.
    pub const fn new(name: &'static str, takes: Type, doc: &'static str) -> Key {
        Key { name, takes, required: false, doc }
    }
    /// A key that must be there.
    pub const fn required(name: &'static str, takes: Type, doc: &'static str) -> Key {
        Key { name, takes, required: true, doc }
    }
}

/// A map whose keys have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'n> {
    /// The map itself.
    pub node: &'n Node,
}

impl Shape {
    /// Checks the keys of a map: unknown ones and missing ones are reported, the rest can be asked for.
    pub fn read<'n>(&self, node: &'n Node, d: &mut Diagnostics) -> Option<Fields<'n>> {
        let entries = node.map(d)?;
        for (name, _) in entries {
            if self.keys.iter().any(|k| k.name == name.text) {
                continue;
            }
            let what = d.error(codes::UNKNOWN_KEY, &name.at, format!("unknown key `{}`", name.text));
            match nearest(&name.text, self.keys.iter().map(|k| k.name)) {
                Some(near) => what.label(format!("did you mean `{near}`?")),
                None => what.label("not known here"),
            };
            what.note(format!("keys here: {}", self.names()));
        }
        for key in self.keys.iter().filter(|k| k.required) {
            if !entries.iter().any(|(n, _)| n.text == key.name) {
                d.error(codes::MISSING_KEY, &node.at, format!("`{}` is missing", key.name))
                    .label(key.doc)
                    .note(format!("keys here: {}", self.names()));
            }
        }
        Some(Fields { node })
    }

    fn names(&self) -> String {
        let mut names: Vec<_> = self.keys.iter().map(|k| k.name).collect();
        names.sort_unstable();
        names.join(", ")
    }
}

impl<'n> Fields<'n> {
    /// The value under `key`; `None` where it is missing or null.
    pub fn get(&self, key: &str) -> Option<&'n Node> {
        match &self.node.kind {
            super::Kind::Map(entries) => entries.iter().find(|(n, _)| n.text == key).map(|(_, v)| v).filter(|v| !v.is_null()),
            _ => None,
        }
    }
    /// Whether the key stands there, even with nothing under it.
    pub fn has(&self, key: &str) -> bool {
        matches!(&self.node.kind, super::Kind::Map(entries) if entries.iter().any(|(n, _)| n.text == key))
    }
    /// A text under `key`.
    pub fn text(&self, key: &str, d: &mut Diagnostics) -> Option<String> {
        self.get(key)?.text(d)
    }
}
