//! Schemas that refer to others: each definition is put where its name is used first.

use std::collections::BTreeMap;

use serde_json::Value;

/// The schema's text with the definitions of `named` in it, by full name. Text that is no JSON is given back as it is: whoever
/// parses it says so.
pub(super) fn inline(text: &str, named: &BTreeMap<String, String>) -> String {
    let Ok(mut schema) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let mut left = named.clone();
    put_in(&mut schema, &mut left);
    schema.to_string()
}

fn put_in(at: &mut Value, left: &mut BTreeMap<String, String>) {
    match at {
        Value::String(name) => {
            if let Some(mut definition) = left.remove(name.as_str()).and_then(|text| serde_json::from_str(&text).ok()) {
                put_in(&mut definition, left);
                *at = definition;
            }
        }
        Value::Array(branches) => branches.iter_mut().for_each(|b| put_in(b, left)),
        Value::Object(object) => {
            for key in ["type", "items", "values"] {
                if let Some(inner) = object.get_mut(key) {
                    put_in(inner, left);
                }
            }
            for field in object.get_mut("fields").and_then(Value::as_array_mut).into_iter().flatten() {
                put_in(field, left);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serdes::ParsedSchema;

    /// If this broke, a schema that two others refer to would be missing, or defined twice.
    #[test]
    fn a_diamond_is_defined_once() {
        let record = |name: &str, kind: &str| {
            format!(
                r#"{{"type":"record","name":"{name}","namespace":"d","fields":[{{"name":"x","type":{kind}}},{{"name":"y","type":["null","d.C"]}}]}}"#
            )
        };
        let c = r#"{"type":"record","name":"C","namespace":"d","fields":[{"name":"v","type":"int"}]}"#;
        let named =
            [("d.A".into(), record("A", r#""d.C""#)), ("d.B".into(), record("B", r#""d.C""#)), ("d.C".into(), c.into())].into();
        let whole = inline(
            r#"{"type":"record","name":"R","namespace":"d","fields":[{"name":"a","type":"d.A"},{"name":"b","type":{"type":"array","items":"d.B"}}]}"#,
            &named,
        );
        assert!(ParsedSchema::parse_writer(&whole).is_ok(), "{whole}");
    }
}
