//! Contracts and policies as the operation record's steps ask them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::contract::{Call, Confirm, Contract, Parameters};
use crate::error::Result;
use crate::ids::{CallName, ContractName, OperationKey, StepName};
use crate::intents::hex;
use crate::outbox::{Ask, PolicyCheck, Rendered, Renderer};
use crate::policy::{self, PolicySet};

/// Renders calls of the loaded contracts.
pub struct ContractRenderer {
    contracts: BTreeMap<ContractName, Arc<Contract>>,
    /// What each call means to a person who approves it, as a digest.
    definitions: BTreeMap<(ContractName, CallName), String>,
    key_secret: Vec<u8>,
}

impl ContractRenderer {
    /// Wire keys are derived under `key_secret`.
    pub fn new(contracts: BTreeMap<ContractName, Arc<Contract>>, key_secret: Vec<u8>) -> Self {
        let of = |contract: &Arc<Contract>, call: &Call| ((contract.name.clone(), call.name.clone()), definition(contract, call));
        let definitions = contracts.values().flat_map(|c| c.calls.values().map(|call| of(c, call)).collect::<Vec<_>>()).collect();
        Self { contracts, definitions, key_secret }
    }

    fn call(&self, contract: &ContractName, call: &CallName) -> std::result::Result<(&Contract, &Call), String> {
        let found = self.contracts.get(contract).ok_or_else(|| format!("no contract `{contract}` is loaded"))?;
        let call = found.call(call).ok_or_else(|| format!("contract `{contract}` has no call `{call}`"))?;
        Ok((found, call))
    }
}

/// Everything that a call means to a person who approves it: the whole definition, and where it goes.
fn definition(contract: &Contract, call: &Call) -> String {
    let text = format!("{}/{}\n{}\n{}", contract.name, contract.version, contract.target.base_url, call.definition);
    hex(&Sha256::digest(text.as_bytes()))
}

impl Renderer for ContractRenderer {
    fn render(
        &self,
        contract: &ContractName,
        call: &CallName,
        key: &OperationKey,
        parameters: &Parameters,
        version: Option<&str>,
    ) -> std::result::Result<Rendered, String> {
        let (contract, call) = self.call(contract, call)?;
        let wire_key = call.wire_key(&self.key_secret, key);
        let request = call.render(parameters, &wire_key, version).map_err(|e| e.source.map_or(e.doing, |why| why.to_string()))?;
        let look_at = call.look_at(parameters, &wire_key);
        let definition = self.definitions.get(&(contract.name.clone(), call.name.clone())).cloned().unwrap_or_default();
        Ok(Rendered { contract_version: contract.version, wire_key, request, look_at, definition })
    }

    fn confirms_by_answer(&self, contract: &ContractName, call: &CallName) -> bool {
        self.call(contract, call).is_ok_and(|(_, c)| c.confirm == Confirm::Answer)
    }

    fn undone_by(&self, contract: &ContractName, call: &CallName) -> Option<CallName> {
        self.call(contract, call).ok().and_then(|(_, c)| Some(c.compensate.as_ref()?.call.clone()))
    }
}

/// Every policy file of an application, parsed.
#[derive(Clone, Debug, Default)]
pub struct PolicyBook(BTreeMap<String, PolicySet>);

impl PolicyBook {
    /// Parses policies: name → Cedar text.
    pub fn parse<'a>(policies: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Result<Self> {
        let parse = |(name, path, text): (&str, &str, &str)| Ok((name.to_owned(), PolicySet::parse(path, text)?));
        policies.map(parse).collect::<Result<_>>().map(Self)
    }
    /// The policies of each effect step, for the check right before a send.
    pub fn by_step<'a>(&self, steps: impl Iterator<Item = (&'a StepName, &'a str)>) -> BTreeMap<StepName, PolicySet> {
        steps.filter_map(|(step, policy)| Some((step.clone(), self.0.get(policy)?.clone()))).collect()
    }
}

impl PolicyCheck for PolicyBook {
    fn allows(&self, policy: &str, ask: &Ask<'_>) -> std::result::Result<(), String> {
        let Some(set) = self.0.get(policy) else { return Err(format!("the policy `{policy}` is not loaded")) };
        let plan = Value::Object(ask.parameters.0.clone());
        let question = policy::Ask {
            requester: &ask.request.requester,
            action: ask.action,
            resource: ask.request.resource.as_str(),
            tenant: ask.request.tenant.as_str(),
            resource_version: ask.request.resource_version.as_deref(),
            permissions: &ask.request.required_permissions,
            plan: &plan,
            approver: ask.approver,
            now: ask.now,
        };
        match set.allows(&question) {
            policy::Verdict::Allow => Ok(()),
            policy::Verdict::Deny(reasons) => Err(format!("policy: {}", reasons.join(", "))),
        }
    }
    fn version(&self, policy: &str) -> Option<String> {
        self.0.get(policy).map(|set| set.version().to_owned())
    }
}
