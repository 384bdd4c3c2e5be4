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

#[cfg(test)]
mod tests {
    use super::super::{json_schema, parse};
    use super::*;

    static POLICY: Shape = Shape {
        name: "Policy",
        doc: "Limits.",
        keys: &[
            Key::new("concurrency", Type::Integer, "calls at once"),
            Key::required("deadline", Type::Duration, "the longest deadline"),
        ],
    };

    /// If this broke, a mistyped key would be dropped in silence, or its author would have to guess what was meant.
    #[test]
    fn an_unknown_key_is_shown_at_its_place_with_the_nearest_known_one() {
        let text = "a: 1\npolicy: { concurency: 32, speed: 1 }\n";
        let root = parse("orders.yaml", text).expect("valid YAML");
        let mut d = Diagnostics::new();
        let policy = &root.map(&mut d).expect("a map")[1].1;
        POLICY.read(policy, &mut d);
        let shown = d.render(false);
        for part in [
            "error[RB0103]: unknown key `concurency`",
            "orders.yaml:2:11",
            "did you mean `concurrency`?",
            "keys here: concurrency, deadline",
            "unknown key `speed`",
            "error[RB0104]: `deadline` is missing",
            "3 errors; nothing was started. `readback explain RB0103` tells more.",
        ] {
            assert!(shown.contains(part), "no {part:?} in\n{shown}");
        }
    }

    /// If this broke, editors would accept keys that the product refuses.
    #[test]
    fn the_table_is_its_own_schema() {
        let schema: serde_json::Value = serde_json::from_str(&json_schema("urn:x", &POLICY)).expect("JSON");
        let def = &schema["$defs"]["Policy"];
        assert_eq!(def["additionalProperties"], false);
        assert_eq!(def["required"], serde_json::json!(["deadline"]));
        assert!(jsonschema::meta::is_valid(&schema));
    }
}
