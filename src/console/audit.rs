//! What people did, or tried to do, as records of `<app>-audit`: JSON, one object each, keyed by the operation.

use serde::Serialize;

use crate::time::WallTime;

use super::second::Waiting;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// Refused here; nothing was written.
    Refused,
    /// It waits for a second person; nothing is ordered yet.
    Waits,
    /// The command is about to be written to the commands topic.
    Ordered,
    /// A member answered the command.
    Answered,
    /// No member has answered yet, and the command stays in the topic; or nobody knows whether a dead letter went back.
    Unanswered,
    /// A session began.
    SignedIn,
    /// A session was ended.
    SignedOut,
    /// Values were shown that are hidden otherwise.
    Shown,
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    /// `readback.audit/1`.
    pub schema: &'static str,
    /// When.
    pub at: String,
    /// Who; empty where nobody is known.
    pub who: String,
    /// From which address.
    pub from: String,
    /// What: `resolve_applied`, `approve`, `sign_in` …
    pub action: String,
    /// What came of it.
    pub came: Came,
    /// About which operation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Whose operation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// At which step.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Which dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
    /// The version that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<i64>,
    /// The plan that a decision is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The second person, who has shown a token of their own or signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<String>,
    /// Somebody's subject at the issuer, where that vouched for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The session that was ended: other processes end it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// An order that waits, and our seal over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// The seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Why not, where it was refused here or by the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Entry {
    /// A record with what every one has.
    pub fn new(at: WallTime, who: &str, from: &str, action: &str, came: Came) -> Self {
        Self {
            schema: "readback.audit/1",
            at: at.to_string(),
            who: who.to_owned(),
            from: from.to_owned(),
            action: action.to_owned(),
            came,
            operation: String::new(),
            tenant: String::new(),
            step: String::new(),
            letter: None,
            seen: None,
            plan_hash: None,
            reason: String::new(),
            evidence: None,
            second: None,
            subject: None,
            session: None,
            waiting: None,
            seal: None,
            command: None,
            code: None,
            detail: String::new(),
        }
    }
}
