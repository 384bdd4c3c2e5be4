//! The keeper of meanings: where operations that mean the same meet, whatever partition each one lives in.

use crate::ids::partition_of;
use crate::intents::{Claim, ClaimKind, Cost, Return, ReturnKind};
use crate::task::{TaskError, TxCx};

use super::like::Claims;
use super::shelf;
use super::task::OperationTask;

impl OperationTask {
    /// Folds what an operation says of itself, and answers a claim.
    pub(super) fn claim(&mut self, claim: &Claim, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        let key = shelf::claims_key(&claim.meaning);
        let mut claims: Claims = shelf::load_as(cx, &key)?.unwrap_or_default();
        if claim.kind == ClaimKind::Claim {
            let earlier = claims.claim(claim, now);
            let to = partition_of(claim.operation_id.root().as_str().as_bytes(), self.desk.settings.partitions);
            let answer = Return {
                kind: ReturnKind::Compared,
                tenant: claim.tenant.clone(),
                operation_id: claim.operation_id.clone(),
                step: claim.step.clone(),
                identity_hash: claim.identity_hash.clone(),
                end: None,
                version: 0,
                body: earlier.map(|e| e.to_string()),
                cost: Cost::default(),
                at: now,
            };
            self.sinks.back(&answer, to, cx)?;
        } else {
            claims.ended(claim, now);
        }
        self.keep_claims(&key, &claims, cx)
    }

    /// Drops what counts no longer.
    pub(super) fn fire_claims(&mut self, key: &[u8], cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Some(mut claims) = shelf::load_as::<Claims>(cx, key)? else { return Ok(()) };
        claims.forget(cx.now().wall);
        self.keep_claims(key, &claims, cx)
    }

    fn keep_claims(&mut self, key: &[u8], claims: &Claims, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        if claims.entries.is_empty() {
            return shelf::delete(cx, key);
        }
        shelf::write(cx, key, claims)?;
        claims.due().map_or(Ok(()), |at| self.timer(at, key, cx))
    }
}
