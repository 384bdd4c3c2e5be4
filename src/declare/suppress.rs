//! `suppress`: changes of a table held back until their window has closed, or for a time.

use std::time::Duration;

use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::dsl::{AnyBuffer, BufferConfig, NamedStore, StrictBuffer, Suppressed};
use crate::error::codes;
use crate::serdes::Serdes;

use super::shape_state;
use super::steps::Handle;

/// For how long, and how much.
enum How {
    UntilWindowCloses(StrictBuffer),
    UntilTimeLimit(Duration, AnyBuffer),
}

/// What becomes of a buffer that has reached its limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    EmitEarly,
    ShutDown,
}

pub(super) fn suppress(from: Handle, at: &Node, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<Handle> {
    let fields = shape_state::SUPPRESS.read(node, d)?;
    let how = how(&fields, d);
    let memory = fields.get("memory").map_or(Some(false), |n| n.boolean(d));
    let mut wrong = |what: String, next: &str| {
        d.error(codes::BAD_VALUE, &at.at, what).label(next);
        None
    };
    let store = || {
        let store = NamedStore::named(&name.text);
        if memory == Some(true) { store.in_memory() } else { store }
    };
    match (from, how) {
        (Handle::Windowed(table), Some(How::UntilWindowCloses(buffer))) => {
            memory?;
            Some(Handle::Windowed(table.suppress(Suppressed::until_window_closes(store(), buffer), Serdes::json())))
        }
        (Handle::Windowed(table), Some(How::UntilTimeLimit(limit, buffer))) => {
            memory?;
            Some(Handle::Windowed(table.suppress(Suppressed::until_time_limit(store(), limit, buffer), Serdes::json())))
        }
        (Handle::Table(table, format), Some(How::UntilTimeLimit(limit, buffer))) => {
            memory?;
            Some(Handle::Table(table.suppress(Suppressed::until_time_limit(store(), limit, buffer), Serdes::json()), format))
        }
        (Handle::Table(..), Some(How::UntilWindowCloses(_))) => {
            wrong(format!("`{}` waits for windows to close, and this has none", name.text), "read from a group with a `window`")
        }
        (Handle::Table(..) | Handle::Windowed(_), None) => None,
        _ => wrong(
            "`suppress` holds changes of a table back, and this is none".into(),
            "read from a group or table step itself, before anything turns it into a stream",
        ),
    }
}

fn how(fields: &Fields<'_>, d: &mut Diagnostics) -> Option<How> {
    let closes = fields.get("until_window_closes").map(|n| (n, n.boolean(d)));
    let limit = fields.get("until_time_limit").map(|n| n.duration(d));
    let records = fields.get("max_records").map(|n| n.integer(1, i64::MAX, d));
    let bytes = fields.get("max_bytes").map(|n| n.size(d));
    let full = fields
        .get("when_full")
        .map(|n| n.one_of(&[("emit_early", WhenFull::EmitEarly), ("shut_down", WhenFull::ShutDown)], d).map(|full| (n, full)));
    let bounds = match (records, bytes) {
        (None, None) => None,
        (records, bytes) => {
            let unbounded = u64::MAX;
            let records = records.map_or(Some(unbounded), |r| r.map(|r| r as u64))?;
            let bytes = bytes.map_or(Some(unbounded), |b| b.map(|b| b as u64))?;
            Some(BufferConfig::max_records(records).and_max_bytes(bytes))
        }
    };
    let full = full.map_or(Some(None), |f| f.map(Some))?;
    match (&bounds, full) {
        (Some(_), None) => {
            d.error(codes::MISSING_KEY, &fields.node.at, "a limit needs `when_full`: what is done when it is reached")
                .label("emit_early or shut_down");
            return None;
        }
        (None, Some((at, _))) => {
            d.error(codes::BAD_VALUE, &at.at, "`when_full` is for limits, and there is none")
                .label("give `max_records` or `max_bytes`");
            return None;
        }
        _ => {}
    }
    match (closes, limit) {
        (Some((at, closes)), None) => {
            if !closes? {
                d.error(codes::BAD_VALUE, &at.at, "`until_window_closes: false` holds nothing back")
                    .label("leave the step out, or write true");
                return None;
            }
            match (bounds, full) {
                (None, _) => Some(How::UntilWindowCloses(BufferConfig::unbounded())),
                (Some(bounds), Some((_, WhenFull::ShutDown))) => Some(How::UntilWindowCloses(bounds.shut_down_when_full())),
                (Some(_), full) => {
                    let at = full.map_or(&fields.node.at, |(n, _)| &n.at);
                    d.error(codes::BAD_VALUE, at, "a final result can't be passed on early").label("use shut_down, or no limit");
                    None
                }
            }
        }
        (None, Some(limit)) => {
            let buffer = match (bounds, full) {
                (Some(bounds), Some((_, WhenFull::EmitEarly))) => bounds.emit_early_when_full().into(),
                (Some(bounds), _) => bounds.shut_down_when_full().into(),
                (None, _) => BufferConfig::unbounded().into(),
            };
            Some(How::UntilTimeLimit(limit?, buffer))
        }
        _ => {
            d.error(
                codes::MISSING_KEY,
                &fields.node.at,
                "a suppression has exactly one of `until_window_closes`, `until_time_limit`",
            );
            None
        }
    }
}
