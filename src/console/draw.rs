//! The graph as SVG: in layers from left to right, what feeds before what is fed. Colours come from the page's style.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use crate::topology::{Role, Topology};

const WIDE: usize = 190;
const HIGH: usize = 44;
const ACROSS: usize = 250;
const DOWN: usize = 64;
const EDGE: usize = 12;
/// Longer names are cut, and whole in their title.
const LETTERS: usize = 25;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Item {
    Node(usize),
    Topic(String),
}

struct Drawn {
    boxes: BTreeMap<Item, (usize, usize)>,
    edges: BTreeSet<(Item, Item)>,
}

/// Draws a topology.
pub fn draw(topology: &Topology) -> Markup {
    let d = place(topology);
    let width = d.boxes.values().map(|(x, _)| x * ACROSS + WIDE).max().unwrap_or_default() + 2 * EDGE;
    let height = d.boxes.values().map(|(_, y)| y * DOWN + HIGH).max().unwrap_or_default() + 2 * EDGE;
    let at = |b: &Item| d.boxes.get(b).map(|(x, y)| (x * ACROSS + EDGE, y * DOWN + EDGE)).unwrap_or_default();
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" aria-label="The graph of the application" {
            @for (from, to) in &d.edges { (edge(at(from), at(to))) }
            @for b in d.boxes.keys() { (drawn_box(topology, b, at(b))) }
        }
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

fn drawn_box(topology: &Topology, b: &Item, (x, y): (usize, usize)) -> Markup {
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
            (node.name.as_str(), if node.foreign.is_some() { "other" } else { "node" }, what, 6)
        }
    };
    let short = |text: &str| match text.chars().count() {
        0..=LETTERS => text.to_owned(),
        _ => text.chars().take(LETTERS - 1).chain(['…']).collect(),
    };
    html! {
        g {
            title { (name) ": " (below) }
            rect class=(class) x=(x) y=(y) width=(WIDE) height=(HIGH) rx=(round) {}
            text x=(x + 12) y=(y + 19) { (short(name)) }
            text.soft x=(x + 12) y=(y + 35) { (short(&below)) }
        }
    }
}

/// A layer is one more than the furthest that feeds it; within a layer in the order of the graph.
fn place(topology: &Topology) -> Drawn {
    let mut edges = BTreeSet::new();
    for node in topology.nodes() {
        edges.extend(node.above.iter().map(|a| (Item::Node(a.0), Item::Node(node.id.0))));
        match &node.role {
            Role::Source(topics) => edges.extend(topics.iter().map(|t| (Item::Topic(t.to_string()), Item::Node(node.id.0)))),
            Role::Sink(topic) => drop(edges.insert((Item::Node(node.id.0), Item::Topic(topic.to_string())))),
            Role::Step | Role::ComputedSink => {}
        }
    }
    let mut layer: BTreeMap<Item, usize> = topology.nodes().iter().map(|n| (Item::Node(n.id.0), 0)).collect();
    layer.extend(edges.iter().flat_map(|(a, b)| [(a.clone(), 0), (b.clone(), 0)]));
    // As many rounds as there are boxes settle every graph without a circle, and end with one.
    for _ in 0..layer.len() {
        let mut moved = false;
        for (from, to) in &edges {
            let least = layer.get(from).copied().unwrap_or_default() + 1;
            if least < layer.len() && layer.get(to).is_some_and(|at| *at < least) {
                layer.insert(to.clone(), least);
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let mut boxes = BTreeMap::new();
    for (b, x) in layer {
        let y = rows.entry(x).or_default();
        boxes.insert(b, (x, *y));
        *y += 1;
    }
    Drawn { boxes, edges }
}
