//! The same request with another content, and one that no target should take.

use serde_json::{Value, json};

use crate::contract::Parameters;
use crate::ids::WireKey;
use crate::intents::RenderedRequest;

use super::Probe;

/// What could stand in a value's place.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(n) => match n.as_i64() {
            Some(n) => vec![json!(n.saturating_add(1)), json!(n.saturating_sub(1))],
            None => n.as_f64().map(|f| vec![json!(f + 1.0), json!(f - 1.0)]).unwrap_or_default(),
        },
        Value::Bool(b) => vec![json!(!b)],
        Value::String(text) => {
            let mut kept: Vec<char> = text.chars().collect();
            let last = kept.pop();
            let with = |c: char| json!(kept.iter().chain([&c]).collect::<String>());
            ['1', '2', 'A', 'B', 'a', 'b'].into_iter().filter(|c| Some(*c) != last).map(with).collect()
        }
        Value::Null | Value::Array(_) | Value::Object(_) => Vec::new(),
    }
}

impl Probe<'_> {
    /// Parameters that the contract takes and that give another request under the same key.
    pub(super) fn other_parameters(&self, key: &WireKey) -> Option<Parameters> {
        let own = self.render(key, &self.parameters).ok()?;
        // Numbers first: what is counted is more likely to be taken by a sandbox than another name.
        let mut names: Vec<&String> = self.parameters.0.keys().collect();
        names.sort_by_key(|n| !self.parameters.0[*n].is_number());
        let candidates = names.iter().flat_map(|name| others(&self.parameters.0[*name]).into_iter().map(move |v| (*name, v)));
        candidates
            .map(|(name, value)| {
                let mut all = self.parameters.0.clone();
                all.insert(name.clone(), value);
                Parameters(all)
            })
            .find(|p| self.render(key, p).is_ok_and(|r| r.path == own.path && r.query == own.query && r.body != own.body))
    }

    /// A request whose body holds nothing that the target could use, but the key; `None` where there is no JSON body.
    pub(super) fn malformed(&self, key: &WireKey) -> Option<RenderedRequest> {
        let mut request = self.render(key, &self.parameters).ok()?;
        let Value::Object(members) = serde_json::from_slice(request.body.as_deref()?).ok()? else { return None };
        let holds_key = |value: &Value| value.to_string().contains(key.as_str());
        if members.values().all(holds_key) {
            return None;
        }
        let broken = members.into_iter().map(|(name, value)| {
            let value = if holds_key(&value) { value } else { json!({ "no": ["such", "thing"] }) };
            (name, value)
        });
        request.body = Some(Value::Object(broken.collect()).to_string().into_bytes());
        Some(request)
    }
}
