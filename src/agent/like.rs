//! What an operation means, and what its keeper remembers of the others that mean the same. Pure.
//!
//! Operations of one meaning have IDs of their own and lie in as many partitions, so they meet where the meaning lies: each claims it
//! there before its gate, and says how it ended. The first one goes on; the next waits for a person, with the first one's ID.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::error::codes;
use crate::ids::{OperationId, StepName};
use crate::intents::{Claim, ClaimKind, Return, Status, hex};
use crate::outbox::{DuplicateRules, Likeness, Output, Role, Stage, Why};
use crate::serdes::internal::Wire;
use crate::time::WallTime;

use super::desk::{Made, Seen};
use super::proposal::canonical;
use super::step::Step;

/// How many operations of one meaning are remembered at once.
const REMEMBERED: usize = 64;

/// One operation that means the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClaimEntry {
    /// Which.
    pub operation_id: OperationId,
    /// At which step.
    pub step: StepName,
    /// Until when it counts; `None` while it is under way.
    pub until: Option<WallTime>,
    /// What it was told: the earlier operation that means the same.
    pub earlier: Option<OperationId>,
}

/// The operations of one meaning that count as earlier ones, `schemas/claims.avsc`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Claims {
    /// The oldest first.
    pub entries: Vec<ClaimEntry>,
}

impl Wire for Claims {
    const SCHEMA: &'static str = "claims/1";
    const AVSC: &'static str = include_str!("../../schemas/claims.avsc");
}

impl Claims {
    /// Takes a claim; answers with the earlier operation. A claim that comes again is answered as the first time: nothing is its own
    /// duplicate.
    pub fn claim(&mut self, claim: &Claim, now: WallTime) -> Option<OperationId> {
        self.forget(now);
        if let Some(known) = self.position(claim) {
            return self.entries[known].earlier.clone();
        }
        let earlier = self.entries.first().map(|e| e.operation_id.clone());
        if self.entries.len() < REMEMBERED {
            let (operation_id, step) = (claim.operation_id.clone(), claim.step.clone());
            self.entries.push(ClaimEntry { operation_id, step, until: None, earlier: earlier.clone() });
        }
        earlier
    }

    /// An operation has ended: its effect exists and counts for a while, or it came to nothing.
    pub fn ended(&mut self, claim: &Claim, now: WallTime) {
        self.forget(now);
        let known = self.position(claim);
        match (claim.kind, known) {
            (ClaimKind::Void, Some(i)) => {
                self.entries.remove(i);
            }
            (ClaimKind::Happened, Some(i)) => {
                let within = std::time::Duration::from_millis(u64::try_from(claim.within_ms).unwrap_or(0));
                self.entries[i].until.get_or_insert(now.plus(within));
            }
            _ => {}
        }
    }

    /// Drops what counts no longer.
    pub fn forget(&mut self, now: WallTime) {
        self.entries.retain(|e| e.until.is_none_or(|until| now < until));
    }

    /// When something is to be dropped next.
    pub fn due(&self) -> Option<WallTime> {
        self.entries.iter().filter_map(|e| e.until).min()
    }

    fn position(&self, claim: &Claim) -> Option<usize> {
        self.entries.iter().position(|e| e.operation_id == claim.operation_id && e.step == claim.step)
    }
}

/// Arguments as they are compared: no difference by order of members, white space around and within texts, a fraction of zero, or
/// members that are null.
pub fn normalised(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() && f.fract() == 0.0 && f.abs() < 9e15 => Value::from(f as i64),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(normalised).collect(),
        Value::Object(map) => {
            let members = map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), normalised(v)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}

impl Step<'_> {
    /// Asks the keeper of the meaning whether an earlier operation means the same.
    pub(super) fn compare(&mut self, rules: &DuplicateRules, made: &Made, seen: &Seen) {
        let meaning = match self.meaning(rules, made, seen) {
            Ok(meaning) => meaning,
            Err(words) => return self.turn.end(Status::PlanFailed, Why::new(codes::PLAN_FAILED, words)),
        };
        let within_ms = i64::try_from(rules.within.as_millis()).unwrap_or(i64::MAX);
        self.turn.record.likeness = Some(Likeness { meaning, within_ms, earlier: None, settled: false });
        self.turn.record.stage = Stage::Comparing;
        self.tell_keeper(ClaimKind::Claim);
    }

    /// Length-prefixed, so that no two meanings run into each other.
    fn meaning(&self, rules: &DuplicateRules, made: &Made, seen: &Seen) -> Result<String, String> {
        let r = &self.turn.record.request;
        let compared = rules.by.as_ref().map(|by| by(&seen.view(&self.turn.record))).transpose()?;
        let mut texts: Vec<String> = ["meaning/1", r.tenant.as_str(), r.resource.as_str(), &r.action].map(str::to_owned).into();
        for ready in made.all() {
            let arguments = compared.as_ref().unwrap_or(&ready.parameters).0.clone();
            let arguments = canonical(&normalised(&Value::Object(arguments)));
            texts.extend([ready.call.contract.to_string(), ready.call.call.to_string(), arguments]);
        }
        let mut h = Sha256::new();
        for text in texts {
            h.update((text.len() as u64).to_be_bytes());
            h.update(text.as_bytes());
        }
        Ok(hex(&h.finalize()))
    }

    /// The keeper's answer: alone, it goes on; else a person says whether it is meant.
    pub(super) fn compared(&mut self, back: &Return) {
        if self.turn.record.stage != Stage::Comparing {
            return;
        }
        let earlier = back.body.as_deref().filter(|_| self.turn.settings.on(crate::outbox::Rule::OneMeaning));
        if let Some(likeness) = &mut self.turn.record.likeness {
            likeness.earlier = earlier.map(OperationId::new);
        }
        self.turn.record.stage = Stage::Planning;
        self.go_on();
    }

    /// Once it has ended, the keeper learns how.
    pub(super) fn settle_likeness(&mut self) {
        let r = &mut self.turn.record;
        let effect_open = r.derived(Role::Effect).is_some_and(|e| e.end.is_none());
        let (over, happened) = (r.stage == Stage::Ended && !effect_open, r.happened());
        match &mut r.likeness {
            Some(likeness) if over && !likeness.settled => likeness.settled = true,
            _ => return,
        }
        self.tell_keeper(if happened { ClaimKind::Happened } else { ClaimKind::Void });
    }

    fn tell_keeper(&mut self, kind: ClaimKind) {
        let r = &self.turn.record;
        let Some(likeness) = &r.likeness else { return };
        let claim = Claim {
            kind,
            tenant: r.request.tenant.clone(),
            operation_id: r.request.operation_id.clone(),
            step: r.step.clone(),
            identity_hash: r.identity_hash.clone(),
            meaning: likeness.meaning.clone(),
            within_ms: likeness.within_ms,
        };
        self.turn.out.push(Output::Claim(Box::new(claim)));
    }

    /// What a person is told of an operation that looks like an earlier one.
    pub(super) fn looks_like(&self) -> Option<Why> {
        let earlier = self.turn.record.earlier()?;
        let words = format!("it means the same as {earlier}: say whether it is meant");
        Some(Why::new(codes::SAME_MEANING, words))
    }
}
