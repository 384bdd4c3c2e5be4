//! One dead letter: why it died, its headers, the shape of what it holds; the payload itself for those who may, and not without a trace.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::admin::dead_letters::{Letter, Place};
use crate::admin::payload;
use crate::console::api::Asked;
use crate::console::audit::{Came, Entry};
use crate::driver::Output;
use crate::error::{Error, Fault, Result, codes};

use super::request::{Sight, sight};
use super::{View, layout};

/// Most characters of a header that are shown.
const HEADER: usize = 200;

/// The page.
pub fn page(view: &View<'_>, asked: &Asked) -> Result<Markup> {
    let name = asked.operation.as_deref().unwrap_or_default();
    let letter = found(view, name)?;
    let sight = sight(view, asked, || {
        let mut entry = Entry::new(view.console.now(), "", &asked.from, "show_payload", Came::Shown);
        entry.letter = Some(letter.place.to_string());
        entry
    })?;
    Ok(layout::page(view, &letter.place.to_string(), shown(view, &letter, sight)))
}

fn found(view: &View<'_>, name: &str) -> Result<Letter> {
    let nothing = |why: &str| {
        Error::new(codes::REPLAY_REFUSED, Fault::Verdict, format!("looking for {}", crate::outbox::cut(name)))
            .because(why.to_owned())
    };
    let topic = view.console.dead_letters.as_ref().ok_or_else(|| nothing("this console knows no topic of dead letters"))?;
    let place = Place::parse(name).filter(|p| p.tp.topic == *topic);
    let place = place.ok_or_else(|| nothing("a letter is topic-partition-offset, in this application's topic of dead letters"))?;
    view.console.books.letter(&place)?.ok_or_else(|| nothing("no dead letter lies there (any more)"))
}

fn shown(view: &View<'_>, letter: &Letter, sight: Sight) -> Markup {
    let r = &letter.record;
    let value = Output { key: r.key.clone(), value: r.value.clone(), headers: r.headers.clone(), timestamp: r.timestamp }.json();
    let bytes = r.value.as_ref().map_or(0, |v| v.len());
    let told = if sight == Sight::Whole { value } else { payload::shape(&value) };
    let headers: BTreeMap<&str, String> = r.headers.0.iter().map(|h| (&*h.name, cut(h.value.as_deref()))).collect();
    html! {
        h1 { (letter.place) }
        p { (layout::code_mark(&letter.code)) " " (letter.reason) ", for " (layout::ago(letter.since(), view.console.now())) }
        div.card { dl.facts {
            dt { "from" } dd { (letter.origin) }
            @if let Some(step) = &letter.step { dt { "step" } dd { (step) } }
            @if let Some(operation) = &letter.operation { dt { "operation" } dd { (operation) } }
            @if let Some(at) = letter.time() { dt { "record's time" } dd { (layout::moment(at)) } }
            dt { "key" } dd.mono { (cut(r.key.as_deref())) }
            @for (name, value) in &headers { dt { "header " (name) } dd.mono { (value) } }
        } }
        h2 { @if sight == Sight::Whole { "Payload" } @else { "Shape of the payload" } " · " (layout::count(bytes, "byte", "bytes")) }
        pre { (serde_json::to_string_pretty(&told).unwrap_or_default()) }
        (sight.words("payload", "?"))
        p { a href="/dead-letters" { "All dead letters" } }
    }
}

fn cut(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else { return "null".to_owned() };
    let text = String::from_utf8_lossy(bytes);
    let cut: String = text.chars().take(HEADER).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}
