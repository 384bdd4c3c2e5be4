//! Dead letters: what rests and why, and the way back, each letter once. A letter's mark is what an order is compared with.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::dead_letters::{Back, Letter, Place};
use crate::admin::replay::ReplayOrder;
use crate::admin::views::Seen;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{OperationKey, TopicName};

use super::Console;
use super::audit::{Came, Entry};
use super::paging::{Paging, not_given};
use super::people::{Person, Role};

/// Longest reason.
const LONGEST: usize = 2_000;
/// Who may send a letter back; an admin may, too.
pub const ROLES: &[Role] = &[Role::Operator];

/// Dead letters that rest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Letters {
    /// `readback.dead-letters/1`.
    pub schema: String,
    /// Their topic.
    pub topic: String,
    /// How many rest.
    pub resting: usize,
    /// A page of them, the oldest first.
    pub letters: Vec<Row>,
    /// The `cursor` of the next page, where there is one.
    pub next: Option<String>,
}

/// One letter, without its payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Where it lies: `topic-partition-offset`.
    pub letter: String,
    /// Why it died.
    pub code: String,
    /// In words.
    pub reason: String,
    /// The step that refused it.
    pub step: Option<String>,
    /// Its operation.
    pub operation: Option<String>,
    /// Where it came from.
    pub origin: String,
    /// Since when it rests: milliseconds since 1970 in UTC.
    pub since: i64,
    /// Where it can go back to.
    pub goes_to: Option<String>,
    /// Or why it can't.
    pub stays_because: Option<String>,
}

/// Sends a letter back.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayBody {
    /// Why; kept for ever beside the letter.
    pub reason: String,
    /// A new deadline for a request, from now: `1h`. Without it, it keeps its own.
    #[serde(default)]
    pub deadline: Option<String>,
}

/// A letter that went back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Replayed {
    /// `readback.replayed/1`.
    pub schema: String,
    /// Which.
    pub letter: String,
    /// Where it went.
    pub to: String,
}

impl From<&Letter> for Row {
    fn from(l: &Letter) -> Self {
        let (goes_to, stays_because) = match l.back() {
            Back::Request(_) => (Some("admission".to_owned()), None),
            Back::Record(tp) => (Some(tp.to_string()), None),
            Back::Nowhere(why) => (None, Some(why.to_owned())),
        };
        Self {
            letter: l.place.to_string(),
            code: l.code.clone(),
            reason: crate::outbox::cut(&l.reason),
            step: l.step.as_ref().map(ToString::to_string),
            operation: l.operation.as_ref().map(ToString::to_string),
            origin: l.origin.clone(),
            since: l.since().0,
            goes_to,
            stays_because,
        }
    }
}

fn topic(console: &Console) -> Result<&TopicName> {
    console.dead_letters.as_ref().ok_or_else(|| {
        Error::new(codes::UNKNOWN_REFERENCE, Fault::Configuration, "looking for the dead letters")
            .because("this console knows no topology with `dead_letters`")
            .next("start it with --topology, or see a member's own")
    })
}

/// A page of what rests, the oldest first; reads the whole topic. A cursor holds, whether or not its letter still rests.
///
/// # Errors
/// `UNKNOWN_REFERENCE` where no topic is known; `BAD_VALUE` for a cursor that no page has given; what the cluster says.
pub fn list(console: &Console, paging: &Paging) -> Result<Letters> {
    let topic = topic(console)?;
    let after = match &paging.after {
        Some((since, letter)) => Some((*since, Place::parse(letter).ok_or_else(not_given)?)),
        None => None,
    };
    let mut rows: Vec<((i64, Place), Row)> =
        console.books.dead_letters(topic)?.into_iter().map(|(place, row)| ((row.since.max(0), place), row)).collect();
    let resting = rows.len();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    rows.retain(|(at, _)| after.as_ref().is_none_or(|after| at > after));
    let next = paging.cut(&mut rows, |((since, place), _)| (*since, place.to_string()));
    Ok(Letters {
        schema: "readback.dead-letters/1".to_owned(),
        topic: topic.to_string(),
        resting,
        letters: rows.into_iter().map(|(_, row)| row).collect(),
        next,
    })
}

/// Sends a letter back; a second order is refused by its mark.
///
/// # Errors
/// What the person may not, and why the letter stays; each refusal is on the audit topic.
pub fn replay(
    console: &Console,
    who: &Person,
    from: &str,
    letter: &str,
    reason: &str,
    deadline: Option<Duration>,
) -> Result<Replayed> {
    let now = console.now();
    let mut entry = Entry::new(now, &who.name, from, "replay", Came::Ordered);
    (entry.letter, entry.reason) = (Some(crate::outbox::cut(letter)), crate::outbox::cut(reason.trim()));
    let order =
        ReplayOrder { by: who.name.clone(), reason: reason.trim().to_owned(), at: now, deadline: deadline.map(|d| now.plus(d)) };
    let sent = check(console, who, letter, &order).and_then(|(place, known)| {
        // What can't be written down is not done.
        console.books.audit(&entry)?;
        let done = console.books.replay(&place, &known, &order)?;
        done.outcome.map_err(|r| Error::new(r.code, Fault::Verdict, format!("sending {letter} back")).because(r.words))
    });
    match sent {
        Ok(to) => {
            (entry.came, entry.detail) = (Came::Answered, to.clone());
            console.note(&entry);
            Ok(Replayed { schema: "readback.replayed/1".to_owned(), letter: letter.to_owned(), to })
        }
        Err(e) => {
            // Nobody knows whether it went: that is no refusal.
            entry.came = if e.code == codes::COMMIT_UNCLEAR { Came::Unanswered } else { Came::Refused };
            (entry.code, entry.detail) = (Some(e.code.to_string()), crate::outbox::cut(&e.to_string()));
            console.note(&entry);
            Err(e)
        }
    }
}

/// Where it lies, and what is known of its operation.
fn check(console: &Console, who: &Person, letter: &str, order: &ReplayOrder) -> Result<(Place, BTreeMap<OperationKey, Seen>)> {
    let doing = || format!("sending {letter} back");
    if !who.is(ROLES) {
        return Err(Error::new(codes::NOT_PERMITTED, Fault::Verdict, doing()).because(format!(
            "it takes the role operator, and {} has {}",
            who.name,
            who.words()
        )));
    }
    let wrong = |why: &str| Error::new(codes::BAD_VALUE, Fault::Configuration, doing()).because(why.to_owned());
    if order.reason.is_empty() || order.reason.len() > LONGEST {
        return Err(wrong("a reason is compulsory, of 2000 bytes at most"));
    }
    let topic = topic(console)?;
    let place = Place::parse(letter).filter(|p| p.tp.topic == *topic);
    let place = place.ok_or_else(|| wrong("a letter is topic-partition-offset, in this application's topic of dead letters"))?;
    if !console.kept().progress().whole {
        return Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, doing())
            .because("operations are still being read: whether its ID is taken is not known yet")
            .next("try again in a moment"));
    }
    let operation = console.books.dead_letters(topic)?.remove(&place).and_then(|row| row.operation);
    let mut known = BTreeMap::new();
    if let Some(operation) = operation {
        let found = console.kept().index().find(&operation, None, None);
        for listed in found {
            known.insert(listed.key.clone(), console.evidence(&listed.key)?);
        }
    }
    Ok((place, known))
}
