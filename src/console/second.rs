//! Orders that wait for a second person. The first one's order is written to the audit topic under our seal, bound to the version that
//! was shown; a second person who has signed in confirms it, and only then it becomes a command. Nobody types anybody's name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{CommandId, OperationKey};
use crate::intents::same_person;
use crate::time::WallTime;

use super::Console;
use super::act::{Action, Ordered, Wanted, given};
use super::audit::{Came, Entry};
use super::oidc::claims::vouched;
use super::people::Person;
use super::session::Sessions;

/// How long an order waits.
pub const WAITS: Duration = Duration::from_secs(15 * 60);
/// Orders that wait at most.
const MOST: usize = 1_000;

/// An order that waits for a second person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The command that it becomes; to name in a confirmation.
    pub command: String,
    /// What is ordered: `force`, `resolve_not_applied`.
    pub action: String,
    /// About which operation.
    pub operation: String,
    /// Whose operation.
    pub tenant: String,
    /// At which step.
    pub step: String,
    /// The version that was shown: on another one it is no longer taken.
    pub seen: i64,
    /// Who ordered it.
    pub by: String,
    /// Which token or account of theirs.
    pub identity: String,
    /// Why.
    pub reason: String,
    /// What was looked at.
    pub evidence: Option<String>,
    /// Until when it waits: milliseconds since 1970 in UTC.
    pub until: i64,
}

impl Waiting {
    /// What is ordered; `None` where no second person is ever asked for it.
    pub fn action(&self) -> Option<Action> {
        Action::ALL.into_iter().find(|a| a.word() == self.action && a.takes_second())
    }
    /// Whether it is about this operation.
    pub fn is_of(&self, key: &OperationKey) -> bool {
        self.operation == key.operation.as_str() && self.tenant == key.tenant.as_str() && self.step == key.step.as_str()
    }
    /// Whether this person gave it: by name, or by the same account under another name.
    pub fn is_by(&self, who: &Person) -> bool {
        same_person(&self.by, &who.name) || self.identity == who.token
    }

    /// Our signature over all of it: a record that somebody else wrote onto the topic orders nothing.
    pub fn seal(&self, sessions: &Sessions) -> String {
        sessions.sign("waiting", &serde_json::to_string(self).unwrap_or_default())
    }
    /// Whether the seal is ours.
    pub fn is_sealed(&self, seal: &str, sessions: &Sessions) -> bool {
        sessions.holds("waiting", &serde_json::to_string(self).unwrap_or_default(), seal)
    }
}

/// Where an order stands.
enum State {
    Waits(Box<Waiting>),
    /// It was confirmed, and is kept in mind until it would have run out.
    Confirmed(WallTime),
}

/// All orders that wait, as this process knows them.
#[derive(Default)]
pub struct Waiters(Mutex<BTreeMap<CommandId, State>>);

impl Waiters {
    /// Takes one in, once; `false` where too many wait.
    pub fn add(&self, waiting: Waiting, now: WallTime) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, state| match state {
            State::Waits(w) => now < WallTime(w.until),
            State::Confirmed(until) => now < *until,
        });
        let room = all.len() < MOST;
        if room && now < WallTime(waiting.until) {
            all.entry(CommandId::new(&waiting.command)).or_insert(State::Waits(Box::new(waiting)));
        }
        room
    }

    /// It was confirmed: it waits no longer.
    pub fn confirmed(&self, command: &CommandId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = all.get_mut(command)
            && let State::Waits(w) = state
        {
            *state = State::Confirmed(WallTime(w.until));
        }
    }

    /// Those that wait and that `of` wants.
    pub fn list(&self, now: WallTime, of: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |s: &State| match s {
            State::Waits(w) if now < WallTime(w.until) && of(w) => Some(Waiting::clone(w)),
            _ => None,
        };
        all.values().filter_map(waits).collect()
    }
}

/// Confirms an order that waits: the second person's word, by their own session or token.
///
/// # Errors
/// `NOT_WAITING`, `NOT_PERMITTED`, `STALE_VERSION`, and all that [`given`] refuses; each refusal is on the audit topic.
pub fn confirm(console: &Console, who: &Person, from: &str, command: &str, reason: &str) -> Result<Ordered> {
    let now = console.now();
    let checked = checked(console, who, command, reason, now);
    let (waiting, action) = match checked {
        Ok(found) => found,
        Err(e) => {
            let mut entry = Entry::new(now, &who.name, from, "confirm", Came::Refused);
            (entry.command, entry.code) = (Some(crate::outbox::cut(command)), Some(e.code.to_string()));
            (entry.reason, entry.detail) = (crate::outbox::cut(reason.trim()), crate::outbox::cut(&e.to_string()));
            console.note(&entry);
            return Err(e);
        }
    };
    let first =
        Person { name: waiting.by.clone(), roles: action.roles().iter().copied().collect(), token: waiting.identity.clone() };
    let wanted = Wanted {
        operation: waiting.operation.clone(),
        tenant: Some(waiting.tenant.clone()),
        step: Some(waiting.step.clone()),
        seen: Some(waiting.seen),
        reason: waiting.reason.clone(),
        evidence: waiting.evidence.clone(),
        command: Some(waiting.command.clone()),
        confirmed: Some(crate::outbox::cut(reason.trim())),
        ..Wanted::default()
    };
    let ordered = given(console, &first, Some(who.clone()), from, action, &wanted)?;
    console.waiters.confirmed(&ordered.command);
    Ok(ordered)
}

fn checked(console: &Console, who: &Person, command: &str, reason: &str, now: WallTime) -> Result<(Waiting, Action)> {
    let doing = || format!("confirming the order {}", crate::outbox::cut(command));
    let refused = |why: String| Error::new(codes::NOT_PERMITTED, Fault::Verdict, doing()).because(why);
    let waiting = console.waiters.list(now, |w| w.command == command).pop();
    let found = waiting.and_then(|w| w.action().map(|action| (w, action)));
    let (waiting, action) = found.ok_or_else(|| {
        Error::new(codes::NOT_WAITING, Fault::Stale, doing())
            .because("no such order waits: it was confirmed already, or its fifteen minutes are over")
            .next("look at the operation as it is now; the first person can order it again")
    })?;
    if !who.is(action.roles()) {
        return Err(refused(format!("{} has {}", who.name, who.words())));
    }
    if waiting.is_by(who) {
        return Err(refused(format!("{} gave the order: somebody else must confirm it", who.name)));
    }
    if reason.trim().is_empty() {
        return Err(Error::new(codes::BAD_VALUE, Fault::Configuration, doing())
            .because("a reason is compulsory: it is kept beside the decision"));
    }
    // The first person may have left since: a token that was taken out of the file orders nothing any more.
    let known = console.people.as_ref().map_or(Ok(None), |people| people.known(&waiting.by, &waiting.identity))?;
    if !vouched(&waiting.identity) && !known.is_some_and(|first| first.is(action.roles())) {
        return Err(refused(format!("{} may no longer order it", waiting.by)));
    }
    Ok((waiting, action))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_000_000);

    fn waiting(command: &str) -> Waiting {
        Waiting {
            command: command.to_owned(),
            action: "force".to_owned(),
            operation: "op-1".to_owned(),
            tenant: "acme".to_owned(),
            step: "place-order".to_owned(),
            seen: 7,
            by: "olga@acme".to_owned(),
            identity: "oidc-1".to_owned(),
            reason: "r".to_owned(),
            evidence: None,
            until: NOW.plus(WAITS).0,
        }
    }

    /// If this broke, an order could be confirmed after its time, or twice; or whoever may write to the audit topic could give orders.
    #[test]
    fn an_order_waits_once_sealed_and_not_for_ever() {
        let (sessions, waiters) = (Sessions::new(Some("key"), WAITS), Waiters::default());
        let one = waiting("c-1");
        let seal = one.seal(&sessions);
        assert!(one.is_sealed(&seal, &sessions));
        assert!(!one.is_sealed(&seal, &Sessions::new(Some("other"), WAITS)) && !one.is_sealed("", &sessions));
        assert!(!Waiting { seen: 8, ..one.clone() }.is_sealed(&seal, &sessions));
        assert!(!Waiting { by: "otto@acme".to_owned(), ..one.clone() }.is_sealed(&seal, &sessions));
        assert!(waiters.add(one.clone(), NOW));
        assert_eq!(waiters.list(NOW, |_| true), std::slice::from_ref(&one));
        assert_eq!(waiters.list(NOW.plus(WAITS), |_| true), []);
        waiters.confirmed(&"c-1".into());
        // The topic tells of it again, as it does after a start.
        assert!(waiters.add(one, NOW));
        assert_eq!(waiters.list(NOW, |_| true), []);
        assert!((1..MOST).all(|n| waiters.add(waiting(&format!("d-{n}")), NOW)));
        assert!(!waiters.add(waiting("e"), NOW), "too many");
        assert!(waiters.add(Waiting { until: NOW.plus(WAITS * 2).0, ..waiting("f") }, NOW.plus(WAITS)), "those have run out");
    }

    /// If this broke, one person could be two: under another spelling, or after a change of name at the issuer.
    #[test]
    fn the_first_person_is_known_by_name_and_by_account() {
        let person = |name: &str, token: &str| Person { name: name.into(), roles: Default::default(), token: token.into() };
        for (name, token, same) in
            [("olga@acme", "x", true), ("OLGA@acme", "x", true), ("otto@acme", "oidc-1", true), ("otto@acme", "oidc-2", false)]
        {
            assert_eq!(waiting("c").is_by(&person(name, token)), same, "{name} {token}");
        }
    }
}
