//! A table of known keys as JSON Schema (draft 2020-12), for editors.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Shape, Type};

/// The JSON Schema of files of this shape, ending in a line end.
pub fn json_schema(id: &str, root: &'static Shape) -> String {
    let mut defs = BTreeMap::new();
    define(root, &mut defs);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": id,
        "title": root.name,
        "description": root.doc,
        "$ref": format!("#/$defs/{}", root.name),
    });
    schema["$defs"] = Value::Object(defs.into_iter().map(|(name, def)| (name.to_owned(), def)).collect());
    format!("{schema:#}\n")
}

fn define(shape: &'static Shape, defs: &mut BTreeMap<&'static str, Value>) {
    if defs.contains_key(shape.name) {
        return;
    }
    defs.insert(shape.name, Value::Null);
    let mut properties = Map::new();
    for key in shape.keys {
        let mut takes = of(&key.takes, defs);
        takes["description"] = key.doc.into();
        properties.insert(key.name.to_owned(), takes);
    }
    let required: Vec<_> = shape.keys.iter().filter(|k| k.required).map(|k| k.name).collect();
    let mut def = json!({
        "type": "object",
        "description": shape.doc,
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty() {
        def["required"] = json!(required);
    }
    defs.insert(shape.name, def);
}

fn of(takes: &'static Type, defs: &mut BTreeMap<&'static str, Value>) -> Value {
    match takes {
        Type::Text => json!({ "anyOf": [{ "type": ["string", "number", "boolean"] }, reference(&["env", "file", "secret"])] }),
        Type::Integer => json!({ "type": "integer" }),
        Type::Number => json!({ "type": "number" }),
        Type::Boolean => json!({ "type": "boolean" }),
        Type::Duration => json!({ "type": "string", "pattern": r"^[0-9.]+ ?(ms|s|m|min|h|d)$" }),
        Type::Size => json!({ "type": "string", "pattern": r"^[0-9._]+ ?(B|[KMG]i?B)$" }),
        Type::Rate => json!({ "type": "string", "pattern": r"^[0-9._]+ ?[kKMG]?/.+$" }),
        Type::Expression => json!({ "type": ["string", "number", "boolean"], "maxLength": 4096 }),
        Type::Secret => reference(&["env", "file", "command", "secret"]),
        Type::Word(words) => json!({ "enum": words }),
        Type::List(inner) => {
            let inner = of(inner, defs);
            json!({ "anyOf": [{ "type": "array", "items": inner }, inner] })
        }
        Type::Named(inner) => json!({ "type": "object", "additionalProperties": of(inner, defs) }),
        Type::Map(shape) => {
            define(shape, defs);
            json!({ "$ref": format!("#/$defs/{}", shape.name) })
        }
        Type::Either(types) => json!({ "anyOf": types.iter().map(|t| of(t, defs)).collect::<Vec<_>>() }),
        Type::Any => json!({}),
    }
}

fn reference(to: &[&str]) -> Value {
    let one =
        |name: &&str| json!({ "type": "object", "additionalProperties": false, "required": [name], "properties": { *name: {} } });
    json!({ "anyOf": to.iter().map(one).collect::<Vec<_>>() })
}
