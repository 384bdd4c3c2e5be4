//! The successor's side: it asks once it has everything ready, and waits for the owner to be gone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Answer, Ask, LONGEST, Place, VERSION, line, socket};

/// How long an owner may take to answer at all: one that lives does so at once.
const ANSWERS: Duration = Duration::from_secs(2);
/// How much longer than it says an owner is waited for.
const GRACE: Duration = Duration::from_secs(2);

/// What came of asking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The owner has left: directory and listeners are free.
    Left(Duration),
    /// The owner said that it leaves, and was gone without another word, or has not ended in the time that it named. The lock on the
    /// directory tells.
    Gone,
    /// Nobody listens: there is no owner, or one that knows no hand-over.
    Nobody,
    /// Somebody listens and does not answer so that it could be understood.
    Silent(String),
    /// The owner stays, and says why.
    Refused(String),
}

/// Asks the owner of the state directory `dir` to leave, and waits until it has.
pub fn ask(dir: &Path, place: &Place) -> Outcome {
    ask_within(dir, place, ANSWERS)
}

pub(super) fn ask_within(dir: &Path, place: &Place, patience: Duration) -> Outcome {
    let asked = Instant::now();
    let Ok(stream) = UnixStream::connect(socket(dir)) else { return Outcome::Nobody };
    let mut heard = BufReader::new(&stream);
    let first = (|| {
        stream.set_write_timeout(Some(patience))?;
        (&stream).write_all(&line(&Ask { version: VERSION, place: place.clone() })?)?;
        hear(&stream, &mut heard, patience)
    })();
    let within = match first {
        Ok(Answer::Leaves { within }) => Duration::from_millis(within),
        Ok(Answer::Stays { why }) => return Outcome::Refused(why),
        Ok(Answer::Left) => return Outcome::Silent("it answered out of turn".to_owned()),
        Err(why) => return Outcome::Silent(why.to_string()),
    };
    match hear(&stream, &mut heard, within.saturating_add(GRACE)) {
        Ok(Answer::Left) => Outcome::Left(asked.elapsed()),
        _ => Outcome::Gone,
    }
}

fn hear(stream: &UnixStream, heard: &mut BufReader<&UnixStream>, patience: Duration) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(patience))?;
    let mut line = Vec::new();
    heard.by_ref().take(LONGEST as u64).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}
