//! `steps:`. Each name stands for what can be read from: a stream, a table, or a pipeline that still waits for its effect.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::config::yaml::{Diagnostics, Fields, Name, Node, nearest};
use crate::dsl::{GlobalKTable, KStream, KTable, Repartitioned, StreamsBuilder};
use crate::error::codes;
use crate::serdes::{Serdes, Windowed};

use super::agent::Pending;
use super::expr::{Expr, Made, RECORD};
use super::files::Files;
use super::group::{group, told};
use super::sink::to;
use super::sources::Carries;
use super::suppress::suppress;
use super::value::Format;
use super::{shape, shape_state};

/// What a name stands for.
#[derive(Clone)]
pub(super) enum Handle {
    Stream(KStream<Value, Value>, Carries),
    Table(KTable<Value, Value>, Format),
    /// A group in windows.
    Windowed(KTable<Windowed<Value>, Value>),
    /// A table that every process holds whole: to join with only.
    Global(GlobalKTable<Value, Value>),
    /// A branch; its ways have names of their own.
    Ways,
    /// Requests on their way to an effect.
    Pending(Box<Pending>),
    /// Nothing can be read from it: a sink or an effect.
    End,
    /// It has errors, which were reported.
    Broken,
}

impl Handle {
    /// A table is read as the stream of its changes; null is what was deleted.
    pub(super) fn into_stream(self) -> Handle {
        match self {
            Handle::Table(table, _) => {
                Handle::Stream(table.to_stream().map_values(|_, v| v.unwrap_or(Value::Null)), Carries::Records)
            }
            Handle::Windowed(table) => Handle::Stream(told(&table), Carries::Records),
            other => other,
        }
    }
}

/// Everything that was named so far.
pub(super) struct Steps<'b> {
    pub(super) builder: &'b StreamsBuilder,
    pub(super) files: Files,
    names: BTreeMap<String, Handle>,
    used: BTreeSet<String>,
    approvals: BTreeSet<String>,
    places: BTreeMap<String, Name>,
}

const KINDS: &[&str] = &[
    "filter",
    "map",
    "branch",
    "flat_map",
    "merge",
    "group",
    "cogroup",
    "table",
    "suppress",
    "join",
    "repartition",
    "to",
    "admit",
    "plan",
    "gate",
    "effect",
];

impl<'b> Steps<'b> {
    pub(super) fn new(builder: &'b StreamsBuilder) -> Self {
        Self {
            builder,
            files: Files::default(),
            names: BTreeMap::new(),
            used: BTreeSet::new(),
            approvals: BTreeSet::new(),
            places: BTreeMap::new(),
        }
    }

    /// Gives a name to something.
    pub(super) fn name(&mut self, name: &Name, handle: Handle, d: &mut Diagnostics) {
        if let Some(first) = self.places.get(&name.text) {
            let line = first.at.line();
            d.error(codes::DUPLICATE_NAME, &name.at, format!("`{}` names two things", name.text))
                .label(format!("first on line {line}"));
        }
        self.places.insert(name.text.clone(), name.clone());
        self.names.insert(name.text.clone(), handle);
    }

    /// What a reference names; unknown names are reported with the nearest known one.
    pub(super) fn named(&mut self, node: &Node, d: &mut Diagnostics) -> Option<Handle> {
        let text = node.text(d)?;
        self.known(&Name { text, at: node.at.clone() }, d)
    }

    /// What a name stands for that is a key of the file.
    pub(super) fn known(&mut self, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
        if let Some(handle) = self.names.get(&name.text) {
            self.used.insert(name.text.clone());
            return Some(handle.clone());
        }
        let known = self.names.keys().map(String::as_str);
        let what = d.error(codes::UNKNOWN_REFERENCE, &name.at, format!("nothing above is named `{}`", name.text));
        if let Some(near) = nearest(&name.text, known.clone()) {
            what.label(format!("did you mean `{near}`?"));
        }
        what.note(format!("named so far: {}", known.collect::<Vec<_>>().join(", ")));
        None
    }

    /// Reads one step.
    pub(super) fn read(&mut self, node: &Node, d: &mut Diagnostics) {
        let Some(step) = shape::STEP.read(node, d) else { return };
        let from = step.get("from").and_then(|n| self.named(n, d));
        let text = step.text("name", d).unwrap_or_default();
        let name = Name { text, at: step.get("name").map_or_else(|| node.at.clone(), |n| n.at.clone()) };
        let kinds: Vec<_> = KINDS.iter().filter(|k| step.has(k)).collect();
        let handle = match kinds.as_slice() {
            [kind] => self.step(kind, &step, &name, from.unwrap_or(Handle::Broken), d),
            several => {
                let found = if several.is_empty() { "none" } else { "several" };
                d.error(codes::MISSING_KEY, &node.at, format!("step `{}` needs exactly one kind, and has {found}", name.text))
                    .note(format!("kinds: {}", KINDS.join(", ")));
                Handle::Broken
            }
        };
        if !name.text.is_empty() {
            self.name(&name, handle, d);
        }
    }

    fn step(&mut self, kind: &str, step: &Fields<'_>, name: &Name, from: Handle, d: &mut Diagnostics) -> Handle {
        let Some(node) = step.get(kind) else { return empty(kind, name, d) };
        if let Handle::Broken = from {
            // The kind's own keys and the files that it names are still checked.
            self.check_only(kind, node, d);
            return Handle::Broken;
        }
        let at = step.get("from").unwrap_or(node);
        // These look at what a table is, others at the stream of its changes.
        let tabular = match kind {
            "table" => Some(self.table(from.clone(), at, node, name, d)),
            "suppress" => Some(suppress(from.clone(), at, node, name, d)),
            "cogroup" => Some(self.cogroup(at, node, name, d)),
            _ => None,
        };
        if let Some(made) = tabular {
            return made.unwrap_or(Handle::Broken);
        }
        let made = match (kind, from.into_stream()) {
            ("filter", Handle::Stream(s, carries)) => filter(&s, carries, node, name, d),
            ("map", Handle::Stream(s, _)) => map(&s, node, name, d),
            ("flat_map", Handle::Stream(s, _)) => flat_map(&s, node, name, d),
            ("merge", Handle::Stream(s, carries)) => self.merge(s, carries, node, d),
            ("group", Handle::Stream(s, _)) => group(&s, node, name, d),
            ("repartition", Handle::Stream(s, carries)) => repartition(&s, carries, node, name, d),
            ("branch", Handle::Stream(s, carries)) => self.branch(&s, carries, node, name, d),
            ("join", Handle::Stream(s, _)) => self.join(&s, node, name, d),
            ("to", Handle::Stream(s, _)) => to(&s, node, name, d),
            ("admit", Handle::Stream(s, carries)) => self.admit(&s, carries, node, name, d),
            ("plan", Handle::Pending(p)) => self.plan(*p, node, name, d),
            ("gate", Handle::Pending(p)) => self.gate(*p, node, name, d),
            ("effect", Handle::Pending(p)) => self.effect_of_pending(*p, node, name, d),
            ("effect", Handle::Stream(s, carries)) => self.effect_of_stream(&s, carries, node, name, d),
            _ => {
                let wants = if matches!(kind, "plan" | "gate") { "an admit step" } else { "a stream" };
                d.error(codes::BAD_VALUE, &at.at, format!("`{kind}` reads from {wants}, and this is none"));
                None
            }
        };
        made.unwrap_or(Handle::Broken)
    }

    fn check_only(&mut self, kind: &str, node: &Node, d: &mut Diagnostics) {
        let shape = match kind {
            "map" => &shape::MAP,
            "join" => &shape::JOIN,
            "group" => &shape::GROUP,
            "table" => &shape_state::KEPT,
            "cogroup" => &shape_state::COGROUP,
            "suppress" => &shape_state::SUPPRESS,
            "repartition" => &shape_state::REPARTITION,
            "to" => &shape::SINK,
            "admit" => &shape::ADMIT,
            "plan" => &shape::PLAN,
            "gate" => &shape::GATE,
            "effect" => &shape::EFFECT,
            _ => return,
        };
        let Some(fields) = shape.read(node, d) else { return };
        if let Some(contract) = fields.get("contract") {
            self.files.call(contract, d);
        }
        if let Some(policy) = fields.get("policy") {
            self.files.policy(policy, d);
        }
    }

    fn branch(
        &mut self,
        s: &KStream<Value, Value>,
        carries: Carries,
        node: &Node,
        name: &Name,
        d: &mut Diagnostics,
    ) -> Option<Handle> {
        let split = s.named(&name.text).split();
        for (way, condition) in node.map(d)? {
            let full = Name { text: format!("{}.{}", name.text, way.text), at: way.at.clone() };
            let handle = match Expr::compile(condition, RECORD, &full.text, d) {
                Some(e) => Handle::Stream(split.branch_by(move |r, cx| Ok(e.holds(r, cx)?)), carries),
                None => Handle::Broken,
            };
            self.name(&full, handle, d);
        }
        Some(Handle::Ways)
    }

    /// Takes the records of other steps in, too.
    fn merge(&mut self, s: KStream<Value, Value>, carries: Carries, node: &Node, d: &mut Diagnostics) -> Option<Handle> {
        let mut all = (s, carries);
        for other in node.list() {
            match self.named(other, d)?.into_stream() {
                Handle::Stream(s, c) if c == all.1 => all.0 = all.0.merge(&s),
                Handle::Broken => return None,
                _ => {
                    d.error(codes::BAD_VALUE, &other.at, "this can't be merged in").label("streams of the same kind only");
                    return None;
                }
            }
        }
        Some(Handle::Stream(all.0, all.1))
    }

    /// Approvals of a source are taken once, whichever gates wait for them.
    pub(super) fn take_approvals(&mut self, node: &Node, d: &mut Diagnostics) -> Option<()> {
        match self.named(node, d)? {
            Handle::Stream(s, Carries::Approvals) => {
                if self.approvals.insert(node.scalar().unwrap_or_default().to_owned()) {
                    s.approve(|r| crate::dsl::approval_of(r.value.clone()));
                }
                Some(())
            }
            Handle::Broken => None,
            _ => {
                d.error(codes::BAD_VALUE, &node.at, "approvals come from a source").label("with `schema: readback/approval`");
                None
            }
        }
    }

    /// What was begun and leads nowhere is an error or a warning; effects need somewhere to tell their results.
    pub(super) fn finish(&self, fields: &Fields<'_>, d: &mut Diagnostics) {
        for (name, handle) in &self.names {
            let Some(place) = self.places.get(name) else { continue };
            if self.used.contains(name) {
                continue;
            }
            match handle {
                Handle::Pending(_) => {
                    d.error(codes::MISSING_KEY, &place.at, format!("the requests of `{name}` never reach an effect"))
                        .label("add an effect step that reads from here");
                }
                Handle::Stream(..) | Handle::Table(..) | Handle::Windowed(_) | Handle::Global(_) => {
                    d.warning(codes::WEAK_SETTING, &place.at, format!("nothing reads from `{name}`"));
                }
                _ => {}
            }
        }
        let weak = |d: &mut Diagnostics, what: &str| {
            d.warning(codes::WEAK_SETTING, &fields.node.at, what).label("this file");
        };
        if !fields.has("dead_letters") {
            weak(d, "no `dead_letters`: the first record that can't be used stops the thread");
        }
        if !fields.has("results") && self.builder.shared().has_pipelines() {
            weak(d, "no `results`: nobody is told how operations end");
        }
    }
}

fn empty(kind: &str, name: &Name, d: &mut Diagnostics) -> Handle {
    d.error(codes::MISSING_KEY, &name.at, format!("`{kind}` of step `{}` is empty", name.text));
    Handle::Broken
}

fn filter(s: &KStream<Value, Value>, carries: Carries, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let e = Expr::compile(node, RECORD, &name.text, d)?;
    let kept = s.named(&name.text).each("KSTREAM-FILTER", s.is_rekeyed(), move |r, cx, next| match e.holds(&r, cx)? {
        true => next.process(r, cx),
        false => Ok(()),
    });
    Some(Handle::Stream(kept, carries))
}

fn map(s: &KStream<Value, Value>, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let fields = shape::MAP.read(node, d)?;
    let place = |key: &str| format!("{}.{key}", name.text);
    let key = fields.get("key").map(|n| Expr::compile(n, RECORD, &place("key"), d));
    let value = fields.get("value").map(|n| Made::compile(n, RECORD, &place("value"), d));
    if key.is_none() && value.is_none() {
        d.error(codes::MISSING_KEY, &node.at, "a map needs `key`, `value` or both");
        return None;
    }
    let key = key.map_or(Some(None), |k| k.map(Some))?;
    let value = value.map_or(Some(None), |v| v.map(Some))?;
    let rekeyed = key.is_some() || s.is_rekeyed();
    let mapped = s.named(&name.text).each("KSTREAM-MAP", rekeyed, move |mut r, cx, next| {
        let new_key = key.as_ref().map(|e| e.of_record(&r, cx)).transpose()?;
        let new_value = value.as_ref().map(|m| m.of_joined(&r, &Value::Null, cx)).transpose()?;
        r.key = new_key.unwrap_or(r.key);
        r.value = new_value.unwrap_or(r.value);
        next.process(r, cx)
    });
    Some(Handle::Stream(mapped, Carries::Records))
}

fn flat_map(s: &KStream<Value, Value>, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let e = Expr::compile(node, RECORD, &name.text, d)?;
    let many = s.named(&name.text).each("KSTREAM-FLATMAPVALUES", s.is_rekeyed(), move |mut r, cx, next| {
        let items = match e.of_record(&r, cx)? {
            Value::Array(items) => items,
            _ => return Err(e.failed("does not give a list").into()),
        };
        for item in items {
            r.value = item;
            next.process(r.clone(), cx)?;
        }
        Ok(())
    });
    Some(Handle::Stream(many, Carries::Records))
}

fn repartition(s: &KStream<Value, Value>, carries: Carries, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let fields = shape_state::REPARTITION.read(node, d)?;
    let key = Format::read(&fields, "key", Format::Text, d);
    let partitions = fields.get("partitions").map(|n| n.integer(1, i64::from(i32::MAX), d));
    let how = Repartitioned::named(&name.text, key.keys(), Serdes::json::<Value>());
    let how = match partitions {
        Some(n) => how.partitions(u32::try_from(n?).ok()?),
        None => how,
    };
    Some(Handle::Stream(s.repartition(how), carries))
}
