//! A planned hand-over: a successor that is ready to run asks the owner of its slots, on a socket in the state directory, to leave.
//!
//! Whoever may write to the directory's socket may ask: it is the owner's file, closed to others, and the system tells who is at the
//! other end. What is said decides nothing about records: the owner leaves as on SIGTERM, and the lock on the directory tells who
//! has it. Each message is a line of JSON; one that is not understood is an answer like silence.

mod owner;
mod successor;

pub use owner::Door;
pub use successor::{Outcome, ask};

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ids::ApplicationId;

/// The version of these messages. Another one is answered with a refusal, and the successor starts as any process does.
const VERSION: u32 = 1;
/// The socket's name within the directory that the owner has locked.
const SOCKET: &str = "handover.sock";
/// The longest line that is read.
const LONGEST: usize = 4_096;

/// What both sides must agree on: the application and the slots, which follow from the first one and the numbers of threads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Whose slots.
    pub application: ApplicationId,
    /// The first slot of the stream unit; it names the directory.
    pub first: u32,
    /// Threads of the stream unit.
    pub stream: u32,
    /// Threads of the effect unit.
    pub effects: u32,
}

/// What a successor says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    version: u32,
    place: Place,
}

/// What an owner says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
enum Answer {
    /// It stays.
    Stays {
        /// Why.
        why: String,
    },
    /// It commits, gives everything back and ends within this time.
    Leaves {
        /// Milliseconds.
        within: u64,
    },
    /// State directory and listeners are free.
    Left,
}

/// Where the owner of a directory is asked.
fn socket(dir: &Path) -> PathBuf {
    dir.join(SOCKET)
}

/// Why an owner does not leave for this ask; `None` = it does.
fn objection(ask: &Ask, ours: &Place) -> Option<String> {
    let Ask { version, place } = ask;
    match () {
        () if *version != VERSION => Some(format!("this process speaks version {VERSION} of the hand-over, not {version}")),
        () if place.application != ours.application => Some(format!("this is {}, not {}", ours.application, place.application)),
        () if place.first != ours.first => Some(format!("this process begins at slot {}, not {}", ours.first, place.first)),
        () if place != ours => Some(format!(
            "this process has {} stream and {} effect threads, not {} and {}: its slots are others",
            ours.stream, ours.effects, place.stream, place.effects
        )),
        () => None,
    }
}

fn line(message: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests;
