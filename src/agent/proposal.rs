//! What a model proposes, as its contract found it in the answer: size first, then JSON, then the declared schema, then one
//! canonical text, then a hash.
//! It is data, never a command.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{PlanHash, StepName};
use crate::intents::hex;
use crate::outbox::{OperationRecord, PlanRules, Why};

use super::desk::{Made, Ready};

/// A proposal's JSON Schema, compiled. References to the outside are refused; patterns run in linear time.
pub struct ProposalSchema {
    validator: Validator,
    digest: String,
}

impl ProposalSchema {
    /// Compiles the schema of a plan step.
    pub fn compile(step: &StepName, text: &str) -> Result<Self> {
        let wrong = || Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading the proposal schema of step {step}"));
        let schema: Value = serde_json::from_str(text).map_err(|e| wrong().because(e))?;
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex()).offline();
        let validator =
            options.build(&schema).map_err(|e| wrong().because(e.to_string()).next("references must stay inside the file"))?;
        Ok(Self { validator, digest: sha256(canonical(&schema).as_bytes()) })
    }

    /// The canonical form of a proposal; the error names the part of the schema that it broke, never its content.
    pub fn read(&self, body: Option<&str>, max: usize) -> std::result::Result<String, Why> {
        let failed = |words: String| Why::new(codes::PLAN_FAILED, words);
        let body = body.ok_or_else(|| failed("the model's answer holds no proposal".into()))?;
        if body.len() > max {
            return Err(failed(format!("the proposal has {} bytes, {max} are allowed", body.len())));
        }
        let proposal: Value = serde_json::from_str(body)
            .map_err(|e| failed(format!("the proposal is no JSON (line {}, column {})", e.line(), e.column())))?;
        if let Some(e) = self.validator.iter_errors(&proposal).next() {
            return Err(failed(format!("the proposal breaks its schema at {}", e.schema_path())));
        }
        Ok(canonical(&proposal))
    }
}

/// JSON with sorted keys and no white space; numbers as their shortest exact text.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by(|a, b| a.0.cmp(b.0));
            let members: Vec<String> =
                members.iter().map(|(k, v)| format!("{}:{}", Value::String((*k).clone()), canonical(v))).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// The plan's hash, which an approval names: operation, canonical proposal, each call with its contract version and whole
/// definition and what it needs, the rendered requests, whether what was done of it is undone if it can't be whole, what the model was
/// given (prompt version, schema), and the earlier operation that means the same, so that an approval says of just that one that both
/// are meant. Length-prefixed.
pub fn plan_hash(
    record: &OperationRecord,
    effect: &Made,
    model: Option<(&PlanRules, &ProposalSchema)>,
    compensates: bool,
) -> PlanHash {
    let mut h = Sha256::new();
    let mut field = |text: &str| {
        h.update((text.len() as u64).to_be_bytes());
        h.update(text.as_bytes());
    };
    field(if matches!(effect, Made::One(_)) { "plan/1" } else { "plan/2" });
    for text in [record.request.tenant.as_str(), record.request.operation_id.as_str(), record.step.as_str()] {
        field(text);
    }
    field(record.identity_hash.as_str());
    field(record.proposal.as_deref().unwrap_or_default());
    match effect {
        Made::One(ready) => one_call(ready, &mut field),
        Made::Plan(parts) => {
            field(&parts.len().to_string());
            for part in parts {
                for text in
                    [&part.id, part.ready.call.operation_id.as_str(), &part.ready.call.action, &part.needs.len().to_string()]
                {
                    field(text);
                }
                part.needs.iter().for_each(|id| field(id));
                one_call(&part.ready, &mut field);
            }
        }
    }
    // How each call is undone stands in its definition.
    if compensates {
        field("on_partial");
        field("compensate");
    }
    if let Some((rules, schema)) = model {
        field(&rules.prompt_version);
        field(&schema.digest);
    }
    if let Some(earlier) = record.earlier() {
        field("earlier");
        field(earlier.as_str());
    }
    PlanHash::from(hex(&h.finalize()))
}

/// The call with its contract version and whole definition, and the request as it will be sent.
fn one_call(ready: &Ready, field: &mut impl FnMut(&str)) {
    field(ready.call.contract.as_str());
    field(ready.call.call.as_str());
    field(&ready.rendered.contract_version.to_string());
    field(&ready.rendered.definition);
    field(&ready.rendered.request.sha256());
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> ProposalSchema {
        let text = r#"{"type":"object","required":["sku"],"additionalProperties":false,
            "properties":{"sku":{"type":"string","maxLength":8},"total":{"type":"number"}}}"#;
        ProposalSchema::compile(&StepName::new("plan"), text).expect("a valid schema")
    }

    /// If this broke, a proposal with a field that nobody declared would reach templates, or its content a log.
    #[test]
    fn what_the_schema_does_not_declare_is_refused_without_quoting_it() {
        let e = schema().read(Some(r#"{"sku":"A","note":"hunter2"}"#), 100).expect_err("undeclared member");
        assert_eq!(e.code, codes::PLAN_FAILED);
        assert!(!e.words.contains("hunter2") && !e.words.contains("note"), "{}", e.words);
        assert!(schema().read(Some("sell all"), 100).is_err());
        assert!(schema().read(Some(&format!(r#"{{"sku":"{}"}}"#, "A".repeat(200))), 100).is_err());
        assert!(schema().read(None, 100).is_err());
    }

    /// If this broke, the same proposal would have several hashes, and an approval would bind to one of them.
    #[test]
    fn a_proposal_has_one_text() {
        assert_eq!(schema().read(Some(r#"{"total": 700.5, "sku":"A"}"#), 100), Ok(r#"{"sku":"A","total":700.5}"#.to_owned()));
        assert_eq!(schema().read(Some(r#"{"total":1,"sku":"A"}"#), 100), Ok(r#"{"sku":"A","total":1}"#.to_owned()));
    }

    /// If this broke, a schema could pull text from elsewhere, and a plan would mean what another host says.
    #[test]
    fn references_to_the_outside_are_refused() {
        let text = r#"{"$ref":"https://schemas.invalid/plan.json"}"#;
        assert!(ProposalSchema::compile(&StepName::new("plan"), text).is_err());
    }

    /// C095: white space and key order of a tool's definition do not change its digest, a changed default does.
    #[test]
    fn a_definition_has_one_digest_however_it_is_written() {
        let compile = |t: &str| ProposalSchema::compile(&StepName::new("plan"), t).expect("valid").digest;
        let a = compile(r#"{"type":"object","properties":{"a":{"default":1},"b":{}}}"#);
        assert_eq!(a, compile("{\n \"properties\": {\"b\": {}, \"a\": {\"default\": 1}},\n \"type\": \"object\"}"));
        assert_ne!(a, compile(r#"{"type":"object","properties":{"a":{"default":2},"b":{}}}"#));
    }
}
