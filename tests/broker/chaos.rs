//! Everything at once, at times that a seed says: members killed, members that stand still past every timeout, the broker restarted,
//! and a target that loses requests and answers, answers late and with errors after it has acted. Only the target's books judge.
//!
//! A command of its own: `cargo test --test broker chaos -- --ignored` plays eight faults, `READBACK_FAULTS=500` before it the long one,
//! `READBACK_CHAOS_SEED=N` one again.

use readback::demo::ground::KafkaGround;
use readback::demo::stack::{Stack, StackOptions};
use readback::demo::story::{self, Breaks, DemoOptions};

use crate::story::program;
use crate::wire::delete_topics_of;
use crate::{alone, stack};

/// Faults of ours in one story; the target's own come on top.
pub const A_STORY: usize = 8;
/// Operations of one story.
const OPERATIONS: usize = 120;

pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// If this broke, faults that are harmless one by one would lose an effect, repeat one, or report one as it is not when they meet.
#[test]
#[ignore = "a story of minutes: cargo test --test broker chaos -- --ignored"]
fn nothing_is_lost_or_doubled_whatever_breaks_at_once() {
    let _alone = alone();
    let (mut left, first) = (number("READBACK_FAULTS", A_STORY as u64) as usize, number("READBACK_CHAOS_SEED", 11));
    let mut seed = first;
    while left > 0 {
        let faults = left.min(A_STORY);
        let wrong = one(seed, faults);
        assert!(wrong.is_empty(), "READBACK_CHAOS_SEED={seed} READBACK_FAULTS={faults} plays it again:\n{wrong}");
        (left, seed) = (left - faults, seed + 1);
    }
}

/// Tells one story; what is not as it must be.
fn one(seed: u64, faults: usize) -> String {
    stack();
    let ours = Stack::up(&StackOptions::from_env().expect("environment")).expect("a second handle of the stack");
    let breakable = std::env::var_os("READBACK_BROKERS").is_none();
    let ground = KafkaGround::new(ours, breakable).expect("clients");
    let work = tempfile::Builder::new().prefix("readback-chaos-").tempdir().expect("a directory");
    let prefix = format!("chaos-{seed}-{}.", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let mut options = DemoOptions::new(seed, OPERATIONS);
    (options.breaks, options.prefix, options.program) = (Breaks::Chaos(faults), prefix.clone(), Some(program()));
    options.patience = std::time::Duration::from_secs(240);
    let told = story::run(&ground, &options, work.path());
    delete_topics_of(&prefix);
    let said = match told {
        Err(e) => e.to_string(),
        Ok(report) => {
            eprintln!("seed {seed}: {faults} faults, {} s, {:?}", report.seconds, report.faults);
            let v = &report.verdict;
            match report.holds && v.wrong.is_empty() {
                true => return String::new(),
                false => format!("{v:?}"),
            }
        }
    };
    format!("{said}\n  logs: {}", work.keep().display())
}
