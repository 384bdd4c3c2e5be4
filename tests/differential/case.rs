//! Random topologies with input, in a form that both sides can build: `topology.yaml` here, the DSL in `dev/differential`.

use std::fmt::Write as _;

use readback::demo::rng::Rng;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Case {
    pub seed: u64,
    pub steps: Vec<Step>,
    pub input: Vec<Input>,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub from: String,
    /// Whether it is written to `out-<name>`.
    pub out: bool,
    #[serde(flatten)]
    pub op: Op,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    Filter {
        r#mod: u64,
    },
    Add {
        add: u64,
    },
    Rekey {
        r#mod: u64,
    },
    Twice,
    Merge {
        with: String,
    },
    Table,
    Group {
        fold: String,
    },
    /// Times in milliseconds, as everywhere here.
    Window {
        kind: String,
        size: u64,
        advance: u64,
        grace: u64,
        emit: String,
        fold: String,
    },
    JoinTable {
        with: String,
        kind: String,
    },
    JoinStream {
        with: String,
        kind: String,
        within: u64,
        before: u64,
        after: u64,
        grace: u64,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Input {
    pub topic: String,
    pub key: Option<String>,
    pub value: Option<i64>,
    pub ts: i64,
}

/// A record that was written.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    pub topic: String,
    pub key: Option<String>,
    pub value: Option<i64>,
    pub ts: i64,
}

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

impl Case {
    /// Two to five steps, of which at least one keeps state; 10 to 60 records, one in five out of order.
    pub fn of(seed: u64) -> Case {
        let rng = &mut Rng::new(seed);
        let (mut streams, mut tables) = (vec!["a".to_owned(), "b".to_owned()], vec!["t".to_owned()]);
        let mut steps: Vec<Step> = Vec::new();
        let count = 2 + rng.below(4);
        for n in 1..=count {
            let name = format!("s{n}");
            let from = streams[rng.below(streams.len() as u64) as usize].clone();
            // Nothing meets itself: Kafka Streams lets a stream that is merged with itself through once.
            let others: Vec<String> = streams.iter().filter(|s| **s != from).cloned().collect();
            let op = if n == count { stateful(rng, &others, &tables) } else { any(rng, &others, &tables) };
            let out = !matches!(op, Op::Table);
            match op {
                Op::Table => tables.push(name.clone()),
                // The key of a window is written out for people, and the pairs of one moment have no order between them: nothing reads
                // on from there.
                Op::Window { .. } | Op::JoinStream { .. } => {}
                _ => streams.push(name.clone()),
            }
            steps.push(Step { name, from, out, op });
        }
        // Who stays alone is told by other rules where records are late: a listed difference.
        let alone = |s: &Step| matches!(&s.op, Op::JoinStream { kind, .. } if kind != "inner");
        let late = !steps.iter().any(alone);
        Case { seed, steps, input: input(rng, late) }
    }

    /// The same in `topology.yaml`.
    pub fn yaml(&self) -> String {
        let mut y = "application: case\nsources:\n  a: { topic: a, value: json }\n  b: { topic: b, value: json }\ntables:\n  t: { topic: t, value: json }\nsteps:\n".to_owned();
        for s in &self.steps {
            let _ = writeln!(y, "  - name: {}\n    from: {}\n    {}", s.name, s.from, s.op.yaml());
            let mut last = s.name.clone();
            if matches!(s.op, Op::Window { .. }) {
                last = format!("{}-told", s.name);
                let _ = writeln!(
                    y,
                    "  - {{ name: {last}, from: {}, map: {{ key: 'key.key + \"@\" + key.start + \"/\" + key.end' }} }}",
                    s.name
                );
            }
            if s.out {
                let _ = writeln!(y, "  - {{ name: {0}-out, from: {last}, to: {{ topic: out-{0} }} }}", s.name);
            }
        }
        y + "dead_letters: dead\n"
    }
}

fn any(rng: &mut Rng, streams: &[String], tables: &[String]) -> Op {
    match rng.below(9) {
        0 => Op::Filter { r#mod: 2 + rng.below(3) },
        1 => Op::Add { add: rng.below(5) },
        2 => Op::Rekey { r#mod: 1 + rng.below(4) },
        3 => Op::Twice,
        4 => Op::Merge { with: streams[rng.below(streams.len() as u64) as usize].clone() },
        5 => Op::Table,
        _ => stateful(rng, streams, tables),
    }
}

fn stateful(rng: &mut Rng, streams: &[String], tables: &[String]) -> Op {
    let fold = pick(rng, &["count", "sum", "max"]).to_owned();
    let grace = [0, 0, 1_000, 5_000][rng.below(4) as usize];
    match rng.below(7) {
        0 => Op::Group { fold },
        1..=3 => {
            let kind = pick(rng, &["grid", "grid", "sliding", "session"]).to_owned();
            let size = [1_000, 2_000, 4_000][rng.below(3) as usize];
            let advance = if rng.below(2) == 0 { size } else { size / 2 };
            Op::Window { kind, size, advance, grace, emit: pick(rng, &["update", "update", "close"]).to_owned(), fold }
        }
        4 => Op::JoinTable {
            with: tables[rng.below(tables.len() as u64) as usize].clone(),
            kind: pick(rng, &["inner", "left"]).to_owned(),
        },
        _ => Op::JoinStream {
            with: streams[rng.below(streams.len() as u64) as usize].clone(),
            kind: pick(rng, &["inner", "inner", "left", "outer"]).to_owned(),
            within: 2_000,
            // Never both none: Kafka Streams keeps the windows of such a join for no time at all.
            before: [1_000, 1_000, 2_000][rng.below(3) as usize],
            after: [0, 1_000, 2_000][rng.below(3) as usize],
            grace,
        },
    }
}

fn input(rng: &mut Rng, may_be_late: bool) -> Vec<Input> {
    // Mostly on the bounds of windows, where one millisecond decides.
    let mut now = 1_700_000_000_000_i64 + rng.below(10) as i64 * 500;
    let mut input: Vec<Input> = (0..10 + rng.below(51))
        .map(|_| {
            let topic = pick(rng, &["a", "a", "a", "b", "b", "t"]).to_owned();
            now += [0, 0, 500, 500, 500, 1_000, 1_500, 1, 499][rng.below(9) as usize];
            let late =
                if rng.below(5) == 0 && may_be_late { [1, 500, 1_000, 2_500, 5_000, 8_000][rng.below(6) as usize] } else { 0 };
            let table = topic == "t";
            let key = (table || rng.below(20) > 0).then(|| format!("k{}", rng.below(3)));
            let value = (!table || rng.below(4) > 0).then(|| rng.below(10) as i64);
            Input { topic, key, value, ts: now - late }
        })
        .collect();
    // What is open closes.
    for (topic, later) in [("a", 12_000), ("b", 12_000), ("a", 24_000), ("b", 24_000)] {
        input.push(Input { topic: topic.into(), key: Some("last".into()), value: Some(1), ts: now + later });
    }
    input
}

impl Op {
    fn yaml(&self) -> String {
        let fold = |fold: &str| match fold {
            "count" => "count: true".to_owned(),
            "max" => "reduce: 'aggregate > value ? aggregate : value'".to_owned(),
            _ => "aggregate: { from: '0', with: aggregate + value, merge: left + right }".to_owned(),
        };
        match self {
            Op::Filter { r#mod } => format!("filter: value % {mod} != 0"),
            Op::Add { add } => format!("map: {{ value: value + {add} }}"),
            Op::Rekey { r#mod } => format!("map: {{ key: '\"k\" + string(value % {mod})' }}"),
            Op::Twice => "flat_map: '[value, value + 1]'".to_owned(),
            Op::Merge { with } => format!("merge: [{with}]"),
            Op::Table => "table: {}".to_owned(),
            Op::Group { fold: f } => format!("group: {{ {} }}", fold(f)),
            Op::Window { kind, size, advance, grace, emit, fold: f } => {
                let span = match kind.as_str() {
                    "grid" => format!("size: {size}ms, advance: {advance}ms"),
                    kind => format!("{kind}: {size}ms"),
                };
                format!("group: {{ {}, window: {{ {span}, grace: {grace}ms }}, emit: {emit} }}", fold(f))
            }
            Op::JoinTable { with, kind } => {
                format!("join: {{ table: {with}, kind: {kind}, value: 'value * 1000 + (table == null ? 999 : table)' }}")
            }
            Op::JoinStream { with, kind, within, before, after, grace } => format!(
                "join: {{ stream: {with}, kind: {kind}, within: {within}ms, before: {before}ms, after: {after}ms, grace: {grace}ms, \
                 value: '(value == null ? 999 : value) * 1000 + (other == null ? 999 : other)' }}"
            ),
        }
    }
}
