//! One way for every order of a person: may they, have they said why, is it still what they saw; then the audit record, the command,
//! and its answer. Pages and API go through here; the member that owns the operation decides as it does for `readback ops`.

use std::time::Duration;

use crate::admin::orders;
use crate::admin::views::Seen;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::CommandId;
use crate::intents::{Command, Decision, Resolution, Via, same_person};
use crate::outbox::commands::{self, Order};
use crate::time::WallTime;

use super::Console;
use super::audit::{Came, Entry};
use super::index::Listed;
use super::people::{Person, Role};
use super::second::{WAITS, Waiting};

/// What may be ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Say that the effect exists, or that it does not.
    Resolve(Resolution),
    /// One more send of a parked operation.
    Force,
    /// Approve the plan that was shown.
    Approve,
    /// Deny it; after the hand-over the approval that was spent is taken back.
    Deny,
    /// Forbid further sends.
    Cancel,
    /// Let the operations behind a parked one go on.
    ReleaseLane,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 7] = [
        Action::Resolve(Resolution::Applied),
        Action::Resolve(Resolution::NotApplied),
        Action::Force,
        Action::Approve,
        Action::Deny,
        Action::Cancel,
        Action::ReleaseLane,
    ];
    /// Its word in audit records and forms.
    pub fn word(self) -> &'static str {
        match self {
            Action::Resolve(Resolution::Applied) => "resolve_applied",
            Action::Resolve(Resolution::NotApplied) => "resolve_not_applied",
            Action::Force => "force",
            Action::Approve => "approve",
            Action::Deny => "deny",
            Action::Cancel => "cancel",
            Action::ReleaseLane => "release_lane",
        }
    }
    /// Who may; an admin may everything.
    pub fn roles(self) -> &'static [Role] {
        match self {
            Action::Approve | Action::Deny => &[Role::Approver],
            _ => &[Role::Operator],
        }
    }
    /// Whether the version that was seen must be named. What only forbids or opens may be ordered on any.
    pub fn compares(self) -> bool {
        !matches!(self, Action::Cancel | Action::ReleaseLane)
    }
    /// Whether a second person may be needed: before settle.
    pub fn takes_second(self) -> bool {
        matches!(self, Action::Force | Action::Resolve(Resolution::NotApplied))
    }
}

/// What somebody wants.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Which operation.
    pub operation: String,
    /// Its tenant, where the ID is not unique.
    pub tenant: Option<String>,
    /// Its step, where the ID is not unique.
    pub step: Option<String>,
    /// The version that was shown.
    pub seen: Option<i64>,
    /// The plan that was shown, for a decision about it.
    pub plan_hash: Option<String>,
    /// Why.
    pub reason: String,
    /// What was looked at.
    pub evidence: Option<String>,
    /// The second person's own token.
    pub second_token: Option<String>,
    /// Without one: let the order wait for a second person who signs in.
    pub ask_second: bool,
    /// Why the second person has confirmed it.
    pub confirmed: Option<String>,
    /// The command's ID: a repeat is answered as the first one was.
    pub command: Option<String>,
    /// How long an approval may be used.
    pub expires: Option<Duration>,
}

/// What came of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// The command.
    pub command: CommandId,
    /// The member's answer: code where it was refused, and words. `None`: nobody has answered yet.
    pub answer: Option<(Option<String>, String)>,
    /// Until when it waits for a second person, where it does: then nothing is ordered yet.
    pub waits: Option<WallTime>,
}

/// Longest reason or evidence.
const LONGEST: usize = 2_000;
/// How long an approval may be used unless it says otherwise; a gate may allow less.
const APPROVAL: Duration = Duration::from_secs(30 * 60);
/// How long a command is held for an operation that is not known yet.
const HOLD: Duration = Duration::from_secs(3_600);

/// What is known once an order may be given.
struct Checked {
    listed: Listed,
    second: Option<Person>,
    command: Command,
}

/// Does what a person wants; blocks until it is answered, or for `console.answer_within`.
///
/// # Errors
/// What the person may not, what is no longer so, what is wrong; each refusal is on the audit topic.
pub fn act(console: &Console, who: &Person, from: &str, action: Action, wanted: &Wanted) -> Result<Ordered> {
    given(console, who, None, from, action, wanted)
}

/// The same, with a second person who has confirmed it.
///
/// # Errors
/// As [`act`].
pub fn given(
    console: &Console,
    who: &Person,
    second: Option<Person>,
    from: &str,
    action: Action,
    wanted: &Wanted,
) -> Result<Ordered> {
    let now = console.now();
    let mut entry = Entry::new(now, &who.name, from, action.word(), Came::Ordered);
    let cut = |text: &Option<String>| text.as_deref().map(crate::outbox::cut).unwrap_or_default();
    entry.operation = crate::outbox::cut(&wanted.operation);
    (entry.tenant, entry.step) = (cut(&wanted.tenant), cut(&wanted.step));
    (entry.seen, entry.reason) = (wanted.seen, crate::outbox::cut(wanted.reason.trim()));
    if let Some(answer) = repeat(console, who, action, wanted) {
        return Ok(answer);
    }
    let mut checked = match check(console, who, second, from, action, wanted, now) {
        Ok(checked) => checked,
        Err(e) => {
            entry.refuse(&e);
            console.note(&entry);
            return Err(e);
        }
    };
    let key = &checked.listed.key;
    entry.operation = key.operation.to_string();
    (entry.tenant, entry.step) = (key.tenant.to_string(), key.step.to_string());
    entry.reason.clone_from(&checked.command.reason);
    entry.evidence.clone_from(&checked.command.evidence);
    entry.second = checked.second.as_ref().map(|p| p.name.clone());
    entry.plan_hash = checked.command.approval.as_ref().map(|a| a.plan_hash.to_string());
    let command = checked.command.command_id.clone();
    entry.command = Some(command.to_string());
    if wanted.ask_second && checked.second.is_none() {
        return wait(console, who, action, &checked, entry, now);
    }
    entry.detail = wanted.confirmed.as_ref().map(|why| format!("confirmed: {why}")).unwrap_or_default();
    if let (Some(second), Some(why)) = (&checked.second, &wanted.confirmed) {
        // Both reasons stand beside the decision.
        checked.command.reason = format!("{} · {} agrees: {why}", checked.command.reason, second.name);
    }
    // What can't be written down is not done.
    console.books.audit(&entry)?;
    console.kept().expect(&command);
    let written = console.books.order(&checked.command);
    let answer = written.is_ok().then(|| console.kept().answer(&command, console.answer_within)).flatten();
    if let Err(e) = written {
        console.kept().answer(&command, Duration::ZERO);
        return Err(e);
    }
    entry.came = if answer.is_some() { Came::Answered } else { Came::Unanswered };
    entry.at = console.now().to_string();
    let answer = answer.map(|a| (a.code, a.detail));
    if let Some((code, detail)) = &answer {
        (entry.code, entry.detail) = (code.clone(), detail.clone());
    }
    console.note(&entry);
    Ok(Ordered { command, answer, waits: None })
}

/// Lets an order wait for a second person. Nothing is written to the commands topic.
fn wait(console: &Console, who: &Person, action: Action, checked: &Checked, mut entry: Entry, now: WallTime) -> Result<Ordered> {
    let (key, command, until) = (&checked.listed.key, &checked.command, now.plus(WAITS));
    let waiting = Waiting {
        command: command.command_id.to_string(),
        action: action.word().to_owned(),
        operation: key.operation.to_string(),
        tenant: key.tenant.to_string(),
        step: key.step.to_string(),
        seen: command.seen.unwrap_or_default(),
        by: who.name.clone(),
        identity: who.token.clone(),
        reason: command.reason.clone(),
        evidence: command.evidence.clone(),
        until: until.0,
    };
    entry.came = Came::Waits;
    (entry.seal, entry.waiting) = (Some(waiting.seal(&console.sessions)), Some(waiting.clone()));
    if !console.waiters.add(waiting, now) {
        return Err(Error::new(codes::CONSOLE_BUSY, Fault::Unreachable, format!("letting an order about {} wait", key.operation))
            .because("a thousand orders wait for a second person already")
            .next("have some of them confirmed, or wait until they run out"));
    }
    if let Err(e) = console.books.audit(&entry) {
        // What can't be written down does not wait either.
        console.waiters.confirmed(&command.command_id);
        return Err(e);
    }
    Ok(Ordered { command: command.command_id.clone(), answer: None, waits: Some(until) })
}

/// A command that was answered already is answered so again: a form that is sent twice does nothing twice.
fn repeat(console: &Console, who: &Person, action: Action, wanted: &Wanted) -> Option<Ordered> {
    let command = CommandId::new(wanted.command.as_deref().filter(|_| who.is(action.roles()))?);
    let listed = console.one(&wanted.operation, wanted.tenant.as_deref(), wanted.step.as_deref()).ok()?;
    let answer = console.evidence(&listed.key).ok()?.answer(&command)?;
    Some(Ordered { command, answer: Some((answer.code, answer.detail)), waits: None })
}

fn usage(doing: String, why: &str) -> Error {
    Error::new(codes::BAD_VALUE, Fault::Configuration, doing).because(why.to_owned())
}

fn check(
    console: &Console,
    who: &Person,
    second: Option<Person>,
    from: &str,
    action: Action,
    wanted: &Wanted,
    now: WallTime,
) -> Result<Checked> {
    let doing = || format!("{} {}", action.word().replace('_', " "), wanted.operation);
    if !who.is(action.roles()) {
        let needed: Vec<&str> = action.roles().iter().map(|r| r.word()).collect();
        return Err(Error::new(codes::NOT_PERMITTED, Fault::Verdict, doing()).because(format!(
            "it takes the role {}, and {} has {}",
            needed.join(" or "),
            who.name,
            who.words()
        )));
    }
    let reason = wanted.reason.trim();
    if reason.is_empty() {
        return Err(usage(doing(), "a reason is compulsory: it is kept beside the decision"));
    }
    if reason.len() > LONGEST || wanted.evidence.as_ref().is_some_and(|e| e.len() > LONGEST) {
        return Err(usage(doing(), "reason and evidence take 2000 bytes each at most"));
    }
    let listed = console.one(&wanted.operation, wanted.tenant.as_deref(), wanted.step.as_deref())?;
    if action.compares() && wanted.seen.is_none() {
        return Err(usage(doing(), "the version that was seen is compulsory"));
    }
    let stale = |at: i64| {
        let words = format!("it stands at version {at}, and {} was seen", wanted.seen.unwrap_or_default());
        Error::new(codes::STALE_VERSION, Fault::Stale, doing()).because(words).next("look again, then decide on what it is now")
    };
    if wanted.seen.is_some_and(|seen| seen != listed.version) {
        return Err(stale(listed.version));
    }
    let second = match second {
        Some(confirmed) => Some(confirmed),
        None => by_token(console, who, from, action, wanted, now)?,
    };
    if wanted.ask_second && !action.takes_second() {
        return Err(usage(doing(), "it takes no second person"));
    }
    let order = Order {
        tenant: Some(listed.key.tenant.clone()),
        operation_id: listed.key.operation.clone(),
        step: Some(listed.key.step.clone()),
        seen: wanted.seen.filter(|_| action.compares()),
        by: who.name.clone(),
        second: second.as_ref().map(|p| p.name.clone()),
        via: Some(Via::Console),
        reason: reason.to_owned(),
        evidence: wanted.evidence.clone().filter(|e| !e.trim().is_empty()),
        at: now,
        hold: HOLD,
    };
    let mut command = match action {
        Action::Resolve(resolution) => commands::resolve(order, resolution),
        Action::Force => commands::force(order),
        Action::Cancel => commands::cancel(order),
        Action::ReleaseLane => commands::release_lane(order),
        Action::Approve | Action::Deny => {
            let seen = console.evidence(&listed.key)?;
            if wanted.seen != Some(seen.version()) {
                return Err(stale(seen.version()));
            }
            decide(order, action, &listed, &seen, wanted)?
        }
    };
    if let Some(id) = &wanted.command {
        let plain = !id.is_empty() && id.len() <= 64 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        command.command_id = plain
            .then(|| CommandId::new(id))
            .ok_or_else(|| usage(doing(), "a command's ID has up to 64 letters, digits and dashes"))?;
    }
    Ok(Checked { listed, second, command })
}

/// A decision about the plan that was shown.
fn decide(order: Order, action: Action, listed: &Listed, seen: &Seen, wanted: &Wanted) -> Result<Command> {
    let expires_at = order.at.plus(wanted.expires.unwrap_or(APPROVAL));
    let decision = if action == Action::Approve { Decision::Approve } else { Decision::Deny };
    let command = orders::decision(order, &listed.key, seen, decision, expires_at)?;
    let bound = command.approval.as_ref().map(|a| a.plan_hash.as_str());
    if wanted.plan_hash.as_deref().is_some_and(|shown| bound != Some(shown)) {
        return Err(Error::new(codes::STALE_VERSION, Fault::Stale, format!("deciding about {}", listed.key.operation))
            .because("another plan stands there now than the one that was shown")
            .next("look again, then decide on what it is now"));
    }
    Ok(command)
}

/// The second person, by a token of their own: a name that somebody else types proves nothing.
fn by_token(console: &Console, who: &Person, from: &str, action: Action, wanted: &Wanted, now: WallTime) -> Result<Option<Person>> {
    let Some(token) = wanted.second_token.as_deref().map(str::trim).filter(|t| !t.is_empty()) else { return Ok(None) };
    let refused = |why: String| {
        Error::new(codes::NOT_PERMITTED, Fault::Verdict, format!("asking a second person about {}", wanted.operation)).because(why)
    };
    if !action.takes_second() {
        return Err(refused(format!("{} takes no second person", action.word().replace('_', " "))));
    }
    let person = console.by_bearer(token, from, now)?;
    let Some(person) = person else { return Err(refused("nobody is known by the second token".to_owned())) };
    if same_person(&person.name, &who.name) || person.token == who.token {
        return Err(refused(format!("{} is the first person, too", person.name)));
    }
    if !person.is(action.roles()) {
        return Err(refused(format!("{} has {}", person.name, person.words())));
    }
    Ok(Some(person))
}
