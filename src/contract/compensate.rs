//! The call that undoes another: which, with what parameters, and for how long it may be tried.

use std::time::Duration;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::call::expression;
use super::compiled::{Compiled, UndoRules};
use super::lint::{at, refuse};
use super::model::{Call, Compensate, Confirm, Contract};
use super::request::{KEY, key_text};
use super::{Parameters, shape};
use crate::config::yaml::{Diagnostics, Fields, Node};
use crate::error::codes;
use crate::ids::{CallName, WireKey};
use crate::intents::{AnswerClass, RenderedRequest, hex};

/// The target's reference of what was made, in the expressions of `compensate`.
pub(super) const EVIDENCE: &str = "evidence";

/// A compensating call, filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undo {
    /// Which call.
    pub call: CallName,
    /// Its parameters.
    pub parameters: Parameters,
    /// Its own key: of the original's, and of no other.
    pub wire_key: WireKey,
    /// The exact request.
    pub request: RenderedRequest,
    /// Where a person sees it.
    pub look_at: Option<String>,
    /// How long from the original's close it may be tried.
    pub deadline: Duration,
}

/// Reads `compensate`; the call that it names is looked up when all are read.
pub(super) fn compensate(node: &Node, parameters: &[&str], d: &mut Diagnostics) -> Option<(Compensate, UndoRules)> {
    let f = shape::COMPENSATE.read(node, d)?;
    let call = f.text("call", d);
    let known = [parameters, &[KEY, EVIDENCE]].concat();
    let mut given = Vec::new();
    for (name, n) in f.get("parameters").and_then(|n| n.map(d)).unwrap_or_default() {
        given.push((name.text.clone(), expression(n, &known, d)?));
    }
    let deadline = f.get("deadline").map_or(Some(Duration::from_secs(3_600)), |n| n.duration(d));
    let rules = UndoRules { parameters: given, at: node.at.clone() };
    Some((Compensate { call: CallName::from(call?), deadline: deadline? }, rules))
}

/// A compensation that could not know what it undoes.
pub(super) fn lint(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    let Some(rules) = &call.compiled.undo else { return };
    let site = at(f, "compensate");
    if call.proposal {
        refuse(d, site, "a proposal with a compensation", "a proposal does nothing that could be undone");
    }
    if !rules.parameters.iter().any(|(_, e)| e.mentions(EVIDENCE)) {
        return;
    }
    let Compiled { answers, readback, .. } = &call.compiled;
    let known = match call.confirm {
        Confirm::Readback => readback.as_ref().is_some_and(|r| r.evidence.is_some()),
        Confirm::Answer => answers.iter().filter(|r| r.means == AnswerClass::Applied).all(|r| r.evidence.is_some()),
    };
    if !known {
        let why = "give `evidence` where the effect is confirmed: in the readback, or in every answer that means applied";
        refuse(d, site, "`compensate` uses the evidence, which may never be known", why);
    }
}

/// Looks up what the calls of a contract name for their compensation, and binds each to the definition of the other: who approves
/// the effect approves how it is undone.
pub(super) fn link(contract: &mut Contract, d: &mut Diagnostics) {
    let all = contract.calls.clone();
    for call in contract.calls.values_mut() {
        let (Some(named), Some(rules)) = (&call.compensate, &call.compiled.undo) else { continue };
        let Some(undo) = all.get(&named.call) else {
            d.error(codes::UNKNOWN_REFERENCE, &rules.at, format!("no call `{}` in this contract", named.call))
                .label("a call is undone by another one of its contract");
            continue;
        };
        fits(rules, undo, d);
        call.definition = hex(&Sha256::digest(format!("{}\n{}\n{}", call.definition, named.call, undo.definition).as_bytes()));
    }
}

fn fits(rules: &UndoRules, undo: &Call, d: &mut Diagnostics) {
    let mut wrong = |what: String, why: &str| refuse(d, &rules.at, &what, why);
    if undo.proposal || undo.precondition.is_some() || undo.sends_version() {
        wrong(
            format!("`{}` can't be a compensation", undo.name),
            "it is a proposal, or holds for one version of its resource only",
        );
    }
    if undo.compensate.is_some() {
        wrong(format!("`{}` has a compensation itself", undo.name), "what is undone stays undone");
    }
    let takes = &undo.compiled.parameters;
    for (name, _) in rules.parameters.iter().filter(|(name, _)| !takes.contains_key(name)) {
        wrong(format!("`{}` takes no parameter `{name}`", undo.name), "name its parameters");
    }
    for name in takes.iter().filter(|(_, p)| !p.optional).map(|(name, _)| name) {
        if !rules.parameters.iter().any(|(given, _)| given == name) {
            wrong(format!("`{}` needs the parameter `{name}`", undo.name), "give it under `compensate.parameters`");
        }
    }
}

impl Call {
    /// The compensation of an effect of this call by `undo`: the same each time, under a key of its own.
    ///
    /// # Errors
    /// What can't be filled in, without payload.
    pub fn undone_by(&self, undo: &Call, given: &Parameters, key: &WireKey, reference: Option<&str>) -> Result<Undo, String> {
        let (Some(named), Some(rules)) = (&self.compensate, &self.compiled.undo) else {
            return Err("the contract declares no compensation".to_owned());
        };
        let mut bound = self.bound(given, key);
        bound.push((EVIDENCE.to_owned(), reference.map_or(Value::Null, Value::from)));
        let variables: Vec<(&str, &Value)> = bound.iter().map(|(n, v)| (n.as_str(), v)).collect();
        let mut parameters = Map::new();
        for (name, expression) in &rules.parameters {
            let value = expression.eval(&variables).map_err(|why| format!("`compensate.parameters.{name}` {why}"))?;
            if !value.is_null() {
                parameters.insert(name.clone(), value);
            }
        }
        let parameters = Parameters(parameters);
        let hash: [u8; 32] = Sha256::digest(format!("undo\u{1f}{key}").as_bytes()).into();
        let wire_key = key_text(undo.key.format, &hash);
        let request = undo.render(&parameters, &wire_key, None).map_err(|e| e.source.map_or(e.doing, |why| why.to_string()))?;
        let look_at = undo.look_at(&parameters, &wire_key);
        Ok(Undo { call: undo.name.clone(), parameters, wire_key, request, look_at, deadline: named.deadline })
    }
}
