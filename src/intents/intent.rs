//! What crosses the border: the exact bytes to send, and all that must still hold when they are sent. `schemas/intent.avsc`.

use serde::{Deserialize, Serialize};

use crate::ids::{
    ApprovalId, CallName, ContractName, IdentityHash, OperationId, OperationKey, OrderingKey, PlanHash, Resource, StepName, Tenant,
    WireKey,
};
use crate::time::WallTime;

use super::Cost;

/// A name and a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// A request as it will be sent, identical on every send; secrets are added at send time only.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RenderedRequest {
    /// `POST`.
    pub method: String,
    /// Path, already encoded: `/orders`.
    pub path: String,
    /// Query, already encoded and ordered: `ref=5be2`; empty for none.
    pub query: String,
    /// Headers of the contract's template, in order.
    pub headers: Vec<Pair>,
    /// The body, where there is one.
    #[serde(with = "serde_bytes_opt")]
    pub body: Option<Vec<u8>>,
}

impl RenderedRequest {
    /// Hex SHA-256 over method, path, query, headers and body, length-prefixed.
    pub fn sha256(&self) -> String {
        use sha2::{Digest, Sha256};
        let mut h = Sha256::new();
        let mut field = |bytes: &[u8]| {
            h.update((bytes.len() as u64).to_be_bytes());
            h.update(bytes);
        };
        for text in [&self.method, &self.path, &self.query] {
            field(text.as_bytes());
        }
        for p in &self.headers {
            field(p.name.as_bytes());
            field(p.value.as_bytes());
        }
        field(self.body.as_deref().unwrap_or_default());
        super::hex(&h.finalize())
    }
}

/// What the answer of a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntentKind {
    /// Does something in the world.
    Effect,
    /// Asks for a proposal; duplicates are accepted and counted.
    Proposal,
}

/// The approval that an intent spends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApprovalUse {
    /// Which.
    pub id: ApprovalId,
    /// By whom.
    pub approver: String,
    /// For which plan.
    pub plan_hash: PlanHash,
    /// Until when.
    pub expires_at: WallTime,
    /// Under which policy version it was given.
    pub policy_version: String,
}

/// One intent in the outbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Intent {
    /// Whose.
    pub tenant: Tenant,
    /// The operation, root or derived.
    pub operation_id: OperationId,
    /// The effect step.
    pub step: StepName,
    /// Hash of the envelope that led here.
    pub identity_hash: IdentityHash,
    /// The operation record's counter; the ledger continues from it.
    pub version: i64,
    /// What the answer is for.
    pub kind: IntentKind,
    /// The contract.
    pub contract: ContractName,
    /// Its version, kept for bytes, key, match and answers.
    pub contract_version: i64,
    /// The call within it.
    pub call: CallName,
    /// What orders it among others of the same target.
    pub ordering_key: OrderingKey,
    /// The key on the wire.
    pub wire_key: WireKey,
    /// The exact request.
    pub request: RenderedRequest,
    /// The typed parameters as one JSON object, for readback templates and predicates.
    pub parameters: String,
    /// After this no first send.
    pub deadline: WallTime,
    /// When the stream half wrote it.
    pub created_at: WallTime,
    /// Who asks.
    pub requester: String,
    /// What is to be done.
    pub action: String,
    /// What it acts on.
    pub resource: Resource,
    /// The version that the requester saw.
    pub resource_version: Option<String>,
    /// Permissions that policy is asked for.
    pub required_permissions: Vec<String>,
    /// The plan it came from.
    pub plan_hash: Option<PlanHash>,
    /// The approval it spends, where one is required.
    pub approval: Option<ApprovalUse>,
    /// Whether its approver must be another than its requester.
    pub other_approver: bool,
    /// Charged cost.
    pub cost: Cost,
    /// Where a person sees the effect at the target.
    pub look_at: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

impl Intent {
    /// The operation in full.
    pub fn key(&self) -> OperationKey {
        OperationKey { tenant: self.tenant.clone(), operation: self.operation_id.clone(), step: self.step.clone() }
    }
}

/// Optional bytes as Avro `["null","bytes"]`.
mod serde_bytes_opt {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    struct Raw<'a>(&'a [u8]);
    impl Serialize for Raw<'_> {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.serialize_bytes(self.0)
        }
    }
    struct Owned(Vec<u8>);
    impl<'de> Deserialize<'de> for Owned {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            struct V;
            impl<'de> serde::de::Visitor<'de> for V {
                type Value = Owned;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("bytes")
                }
                fn visit_bytes<E>(self, v: &[u8]) -> Result<Owned, E> {
                    Ok(Owned(v.to_vec()))
                }
                fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Owned, E> {
                    Ok(Owned(v))
                }
                fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Owned, A::Error> {
                    let mut out = Vec::new();
                    while let Some(b) = seq.next_element()? {
                        out.push(b);
                    }
                    Ok(Owned(out))
                }
            }
            d.deserialize_byte_buf(V)
        }
    }

    pub fn serialize<S: Serializer>(v: &Option<Vec<u8>>, s: S) -> Result<S::Ok, S::Error> {
        v.as_deref().map(Raw).serialize(s)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::<Owned>::deserialize(d)?.map(|o| o.0))
    }
}
