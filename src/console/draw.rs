//! The graph as SVG: each sub-topology in columns from left to right, what feeds before what is fed. Colours come from the page's style.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, PreEscaped, html};

use crate::topology::{Role, Subtopology, Topology};

const WIDE: usize = 190;
const HIGH: usize = 44;
const ACROSS: usize = 250;
const DOWN: usize = 64;
const EDGE: usize = 12;
/// Room above a sub-topology for its title.
const TITLE: usize = 30;
/// Longer names are cut, and whole in their title.
const LETTERS: usize = 23;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Item {
    Node(usize),
    Topic(String),
}

/// Colours of a drawing that stands alone, for light and dark surroundings.
const STYLE: &str = "\
text { fill: #1c2430; font: 12px system-ui, sans-serif } text.soft { fill: #5b6675; font-size: 11px }
.node { fill: #ffffff; stroke: #8a94a3 } .topic { fill: #e8f0fe; stroke: #3566c8 } .other { fill: #e6f4ea; stroke: #2d7d46 }
.edge { stroke: #8a94a3; fill: none; stroke-width: 1.4 } .tip { fill: #8a94a3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6eaf0 } text.soft { fill: #a3adba } .node { fill: #1d2430 } .topic { fill: #16233d } .other { fill: #14291c }
}";

/// How much goes through a topic or a step a second, by its name, where that is known.
pub type Flows<'a> = &'a dyn Fn(&str) -> Option<f64>;

/// A drawing for a page, which has the colours.
pub fn draw(topology: &Topology, flows: Flows<'_>) -> Markup {
    drawn(topology, None, flows)
}

/// A drawing as a file of its own.
pub fn standalone(topology: &Topology) -> String {
    drawn(topology, Some(STYLE), &|_| None).into_string()
}

/// Draws a topology: sub-topologies below each other, each with the topics that it reads and writes.
fn drawn(topology: &Topology, style: Option<&str>, flows: Flows<'_>) -> Markup {
    let (mut top, mut width, mut bands) = (0, 0, Vec::new());
    for part in topology.subtopologies() {
        let (boxes, edges) = place(topology, part);
        let rows = boxes.values().map(|(_, y)| y + 1).max().unwrap_or_default();
        width = boxes.values().map(|(x, _)| x * ACROSS + WIDE).fold(width, usize::max);
        bands.push(band(topology, part, &boxes, &edges, top, flows));
        top += TITLE + rows * DOWN;
    }
    let (width, height) = (width + 2 * EDGE, top + EDGE);
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" aria-label="The graph of the application" {
            @if let Some(style) = style { style { (PreEscaped(style)) } }
            @for band in &bands { (band) }
        }
    }
}

type Boxes = BTreeMap<Item, (usize, usize)>;

fn band(
    topology: &Topology,
    part: &Subtopology,
    boxes: &Boxes,
    edges: &BTreeSet<(Item, Item)>,
    top: usize,
    flows: Flows<'_>,
) -> Markup {
    let at = |b: &Item| boxes.get(b).map(|(x, y)| (x * ACROSS + EDGE, top + TITLE + y * DOWN)).unwrap_or_default();
    let unit = part.foreign.as_ref().map_or_else(|| topology.application().to_string(), ToString::to_string);
    html! {
        text.soft x=(EDGE) y=(top + 20) { "Sub-topology " (part.id) " · unit " (unit) }
        @for (from, to) in edges { (edge(at(from), at(to))) }
        @for b in boxes.keys() { (drawn_box(topology, b, at(b), flows)) }
    }
}

fn edge((x, y): (usize, usize), (to_x, to_y): (usize, usize)) -> Markup {
    let (from_x, from_y, to_y) = (x + WIDE, y + HIGH / 2, to_y + HIGH / 2);
    let bend = (from_x + to_x) / 2;
    html! {
        path.edge d={ "M" (from_x) " " (from_y) " C" (bend) " " (from_y) " " (bend) " " (to_y) " " (to_x) " " (to_y) } {}
        path.tip d={ "M" (to_x) " " (to_y) " l-8 -4 v8 z" } {}
    }
}

fn drawn_box(topology: &Topology, b: &Item, (x, y): (usize, usize), flows: Flows<'_>) -> Markup {
    let (name, class, below, round) = match b {
        Item::Topic(topic) => (topic.as_str(), "topic", "topic".to_owned(), HIGH / 2),
        Item::Node(n) => {
            let node = &topology.nodes()[*n];
            let stores: Vec<&str> = topology.stores_of(node.id).iter().map(|s| s.as_str()).collect();
            let what = match (&node.role, stores.is_empty()) {
                (Role::Source(_), _) => "source".to_owned(),
                (Role::Sink(_) | Role::ComputedSink, _) => "sink".to_owned(),
                (Role::Step, true) => "step".to_owned(),
                (Role::Step, false) => format!("store {}", stores.join(", ")),
            };
            (node.name.as_str(), if stores.is_empty() { "node" } else { "other" }, what, 6)
        }
    };
    let flow = flows(name);
    let below = flow.map_or_else(|| below.clone(), |f| format!("{below} · {}", a_second(f)));
    let class = if flow.is_some_and(|f| f > 0.0) { format!("{class} busy") } else { class.to_owned() };
    let short = |text: &str| match text.chars().count() {
        0..=LETTERS => text.to_owned(),
        _ => text.chars().take(LETTERS - 1).chain(['…']).collect(),
    };
    html! {
        g {
            title { (name) ": " (below) }
            rect class=(class) x=(x) y=(y) width=(WIDE) height=(HIGH) rx=(round) {}
            text x=(x + 12) y=(y + 19) { (short(&spoken(name))) }
            text.soft x=(x + 12) y=(y + 35) { (short(&below)) }
        }
    }
}

/// A rate as people read it.
pub fn a_second(rate: f64) -> String {
    match rate {
        r if r <= 0.0 => "0/s".to_owned(),
        r if r < 0.1 => "<0.1/s".to_owned(),
        r if r < 100.0 => format!("{r:.1}/s"),
        r => format!("{r:.0}/s"),
    }
}

/// A generated name without its zeros: `KSTREAM-FILTER-0000000007` is `filter 7`.
fn spoken(name: &str) -> String {
    let generated = name.strip_prefix("KSTREAM-").or_else(|| name.strip_prefix("KTABLE-")).and_then(|n| n.rsplit_once('-'));
    match generated.and_then(|(kind, n)| Some((kind, n.parse::<u64>().ok()?))) {
        Some((kind, n)) => format!("{} {n}", kind.to_lowercase().replace('-', " ")),
        None => name.to_owned(),
    }
}

/// Column and row of each box: a column is one more than the furthest that feeds it; a row in the order of the graph.
fn place(topology: &Topology, part: &Subtopology) -> (Boxes, BTreeSet<(Item, Item)>) {
    let mut edges: BTreeSet<(Item, Item)> = BTreeSet::new();
    for node in part.nodes.iter().map(|id| topology.node(*id)) {
        let here = node.above.iter().filter(|a| part.nodes.contains(a));
        edges.extend(here.map(|a| (Item::Node(a.0), Item::Node(node.id.0))));
        match &node.role {
            Role::Source(topics) => edges.extend(topics.iter().map(|t| (Item::Topic(t.to_string()), Item::Node(node.id.0)))),
            Role::Sink(topic) => drop(edges.insert((Item::Node(node.id.0), Item::Topic(topic.to_string())))),
            Role::Step | Role::ComputedSink => {}
        }
    }
    let mut layer = layers(&edges);
    for id in &part.nodes {
        layer.entry(Item::Node(id.0)).or_default();
    }
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let mut boxes = Boxes::new();
    for (b, x) in layer {
        let y = rows.entry(x).or_default();
        boxes.insert(b, (x, *y));
        *y += 1;
    }
    (boxes, edges)
}

/// How far each box is from what feeds nothing into it. What leads back, as answers do, counts for nothing.
fn layers(edges: &BTreeSet<(Item, Item)>) -> BTreeMap<Item, usize> {
    let mut below: BTreeMap<&Item, Vec<&Item>> = BTreeMap::new();
    for (from, to) in edges {
        below.entry(from).or_default().push(to);
        below.entry(to).or_default();
    }
    let fed: BTreeSet<&Item> = edges.iter().map(|(_, to)| to).collect();
    let (first, rest): (Vec<&Item>, Vec<&Item>) = below.keys().partition(|b| !fed.contains(**b));
    let (mut order, mut seen, mut ahead) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for root in first.into_iter().chain(rest) {
        let mut stack = vec![(root, 0)];
        while let Some((at, next)) = stack.pop() {
            if next == 0 && !seen.insert(at) {
                continue;
            }
            let Some(to) = below.get(at).and_then(|b| b.get(next)) else {
                order.push(at);
                continue;
            };
            let leads_back = *to == at || stack.iter().any(|(b, _)| b == to);
            if !leads_back {
                ahead.insert((at, *to));
            }
            stack.push((at, next + 1));
            if !seen.contains(to) {
                stack.push((to, 0));
            }
        }
    }
    let mut layer: BTreeMap<Item, usize> = BTreeMap::new();
    for at in order.into_iter().rev() {
        let own = *layer.entry(at.clone()).or_default();
        for to in below.get(at).into_iter().flatten().filter(|to| ahead.contains(&(at, **to))) {
            let place = layer.entry((*to).clone()).or_default();
            *place = (*place).max(own + 1);
        }
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a graph whose answers come back would be drawn as wide as it has boxes, or not at all.
    #[test]
    fn layers_go_ahead_and_ignore_what_leads_back() {
        let edge = |a: &str, b: &str| (Item::Topic(a.into()), Item::Topic(b.into()));
        let edges: BTreeSet<_> =
            [edge("in", "a"), edge("a", "b"), edge("b", "c"), edge("in", "c"), edge("c", "a"), edge("x", "y"), edge("y", "x")]
                .into();
        let layer = layers(&edges);
        let of = |name: &str| layer[&Item::Topic(name.into())];
        assert_eq!((of("in"), of("a"), of("b"), of("c")), (0, 1, 2, 3));
        assert_eq!(of("x") + of("y"), 1);
    }

    /// If this broke, the page would show another graph than the one that runs.
    #[test]
    fn every_node_and_topic_is_drawn() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/topology/orders");
        let loaded = crate::config::yaml::offline(|| crate::declare::load(std::path::Path::new(path)));
        let application = loaded.expect("a topology").application;
        let flows = |name: &str| (name == "agent.requests").then_some(12.34);
        let drawn = draw(&application.topology, &flows).into_string();
        for node in application.topology.nodes() {
            assert!(drawn.contains(&format!("<title>{}: ", node.name)), "{} is missing", node.name);
        }
        assert!(drawn.contains("<title>agent.requests: topic · 12.3/s</title>") && drawn.contains("topic busy"), "{drawn}");
    }
}
