//! A member's console reads while somebody looks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::console::follow::Follow;
use crate::console::{Console, Settings};
use crate::ids::ApplicationId;
use crate::time::SystemClock;

use super::served::{APP, SPAN, a_cluster, parked, put_ledger};

const REST: Duration = Duration::from_millis(300);

fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + SPAN;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// If this broke, every member would pay for a console that nobody looks at; or who looks after a rest would miss what came since, or
/// would wait for everything to be read again.
#[test]
fn a_console_that_nobody_looks_at_reads_nothing_and_the_next_look_finds_everything() {
    let cluster = a_cluster();
    put_ledger(&cluster, &parked("op-1"));
    let settings = Settings { listen: "127.0.0.1:0".to_owned(), follow: Follow::WhileLookedAt(REST), ..Settings::default() };
    let console = Console::start(&cluster, &ApplicationId::new(APP), &settings, Arc::new(SystemClock)).expect("starts");
    let kept = console.kept();
    let is_there = |operation: &str| kept.index().find(operation, None, None).len() == 1;
    std::thread::sleep(REST);
    assert_eq!(kept.unseen().read, 0, "nobody has looked");

    assert!(is_there("op-1"), "the first look finds what there is");
    put_ledger(&cluster, &parked("op-2"));
    until("it does not follow while somebody looks", || is_there("op-2"));
    until("it does not rest", || kept.unseen().rests);
    let read = kept.unseen().read;

    put_ledger(&cluster, &parked("op-3"));
    std::thread::sleep(REST);
    assert_eq!(kept.unseen().read, read, "it reads though nobody looks");
    assert!(is_there("op-3"), "the look after a rest misses what came since");
    assert!(is_there("op-1") && is_there("op-2"));
    assert_eq!(kept.unseen().read, read + 1, "what was known is read again");
}
