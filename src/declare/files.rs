//! Files that a topology names: contracts, policies, prompts, proposal schemas. Each is read once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::yaml::{Diagnostics, Node, nearest};
use crate::contract::{self, Call, Contract, Parameters};
use crate::error::codes;
use crate::ids::CallName;
use crate::policy::PolicySet;

/// Largest prompt, policy or schema.
const MAX_BYTES: u64 = 256 * 1024;

/// What was read so far.
#[derive(Default)]
pub(super) struct Files {
    /// `None` where the file has errors, which were reported once.
    contracts: BTreeMap<PathBuf, Option<Arc<Contract>>>,
}

impl Files {
    /// The contract and call that `contracts/orders.yaml#create` names.
    pub(super) fn call(&mut self, node: &Node, d: &mut Diagnostics) -> Option<(Arc<Contract>, CallName)> {
        let text = node.text(d)?;
        let Some((file, call)) = text.rsplit_once('#') else {
            d.error(codes::BAD_VALUE, &node.at, "a contract is named with its call").label("write contracts/file.yaml#call");
            return None;
        };
        let path = node.at.directory().join(file);
        let contract = match self.contracts.get(&path) {
            Some(known) => known.clone(),
            None => {
                let read = self.read(&path, node, d);
                self.contracts.insert(path, read.clone());
                read
            }
        }?;
        let call = CallName::new(call);
        if contract.calls.contains_key(&call) {
            return Some((contract, call));
        }
        let known = contract.calls.keys().map(CallName::as_str);
        let what = d.error(codes::UNKNOWN_REFERENCE, &node.at, format!("contract {} has no call `{call}`", contract.name));
        if let Some(near) = nearest(call.as_str(), known.clone()) {
            what.label(format!("did you mean `{near}`?"));
        }
        what.note(format!("calls there: {}", known.collect::<Vec<_>>().join(", ")));
        None
    }

    /// Two contracts of one name would be mixed up in stored intents, which hold the name only.
    fn read(&self, path: &Path, node: &Node, d: &mut Diagnostics) -> Option<Arc<Contract>> {
        if !path.is_file() {
            let what = d.error(codes::FILE_UNREADABLE, &node.at, format!("there is no file {}", path.display()));
            what.label(beside(path).map_or_else(|| "named here".to_owned(), |near| format!("did you mean `{near}`?")));
            return None;
        }
        let contract = match contract::load(path) {
            Ok(contract) => contract,
            Err(errors) => {
                d.absorb(errors);
                return None;
            }
        };
        d.absorb(contract.warnings.clone());
        if self.contracts.values().flatten().any(|c| c.name == contract.name) {
            d.error(codes::DUPLICATE_NAME, &node.at, format!("a second contract is named `{}`", contract.name));
        }
        Some(Arc::new(contract))
    }

    /// A policy file, with its path as written.
    pub(super) fn policy(&self, node: &Node, d: &mut Diagnostics) -> Option<(String, String)> {
        let (path, text) = self.text(node, d)?;
        if let Err(e) = PolicySet::parse(&path, &text) {
            let why = e.source.map(|s| s.to_string()).unwrap_or_default();
            d.error(e.code, &node.at, format!("{path} is no valid policy")).label(why);
            return None;
        }
        Some((path, text))
    }

    /// The text of a file beside the topology, with its path as written.
    pub(super) fn text(&self, node: &Node, d: &mut Diagnostics) -> Option<(String, String)> {
        let written = node.text(d)?;
        let path = node.at.directory().join(&written);
        let read = match std::fs::metadata(&path) {
            Ok(m) if m.len() > MAX_BYTES => Err(format!("it is larger than {MAX_BYTES} bytes")),
            _ => std::fs::read_to_string(&path).map_err(|e| e.to_string()),
        };
        match read {
            Ok(text) => Some((written, text)),
            Err(why) => {
                d.error(codes::FILE_UNREADABLE, &node.at, format!("can't read {}: {why}", path.display())).label("named here");
                None
            }
        }
    }
}

/// The name nearest to a missing file's in its directory.
fn beside(missing: &Path) -> Option<String> {
    let names = std::fs::read_dir(missing.parent()?).ok()?.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let names: Vec<_> = names.collect();
    nearest(missing.file_name()?.to_str()?, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Compares the names of given parameters with those that the contract declares.
pub(super) fn check_names(call: &Call, given: &[String], node: &Node, d: &mut Diagnostics) {
    let nulls = Parameters(given.iter().map(|name| (name.clone(), serde_json::Value::Null)).collect());
    for wrong in call.check(&nulls).err().unwrap_or_default() {
        let named_here = given.iter().any(|name| wrong.starts_with(&format!("`{name}` is missing")));
        if !named_here {
            d.error(codes::UNKNOWN_REFERENCE, &node.at, format!("parameter {wrong}"))
                .label(format!("the contract's call `{}` declares its parameters", call.name));
        }
    }
}
