//! The fields of an Avro record, as decoded values show them. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// How deep records are followed for a sample.
const DEPTH: usize = 8;

/// A field of a topic's values.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Field {
    /// Its name.
    pub name: String,
    /// Its type's word: `string`, `long`, `timestamp-millis`, `record`.
    pub kind: String,
    /// Whether it may be null.
    pub nullable: bool,
    /// A value that it could hold.
    pub sample: Value,
}

impl Field {
    /// Its type for people.
    pub fn shown(&self) -> String {
        if self.nullable { format!("{}, or null", self.kind) } else { self.kind.clone() }
    }
    /// Whether its value is a text.
    pub fn is_text(&self) -> bool {
        self.sample.is_string()
    }
    /// Whether it looks like what names a record.
    pub fn is_id(&self) -> bool {
        let plain = matches!(self.kind.as_str(), "string" | "int" | "long" | "uuid");
        plain && !self.nullable && (self.name.ends_with("_id") || self.name.ends_with("Id") || self.name.ends_with("ID"))
    }
    /// Whether it looks like a time.
    pub fn is_time(&self) -> bool {
        let named = ["_at", "At", "_time", "_ts", "timestamp"].iter().any(|end| self.name.ends_with(end));
        self.kind.starts_with("timestamp-") || (named && matches!(self.kind.as_str(), "string" | "long"))
    }
    /// Whether it can give what a contract takes like this.
    pub fn holds(&self, wanted: &Value) -> bool {
        match wanted {
            Value::String(_) => self.is_text(),
            Value::Number(_) => matches!(self.kind.as_str(), "int" | "long"),
            _ => true,
        }
    }
}

/// The fields of the record that `avsc` describes.
pub(super) fn fields(avsc: &str) -> Result<Vec<Field>, String> {
    let schema: Value = serde_json::from_str(avsc).map_err(|e| e.to_string())?;
    if schema["type"] != "record" {
        return Err(format!("it describes {}, not a record", word(&schema)));
    }
    let mut named = BTreeMap::new();
    collect(&schema, &mut named);
    let all = schema["fields"].as_array().ok_or("its record has no fields")?;
    let field = |f: &Value| {
        let (kind, nullable) = bare(&f["type"], &named);
        let name = f["name"].as_str().unwrap_or_default().to_owned();
        let sample = match word(&kind).as_str() {
            // A text that is a time by its name is one in the sample too.
            "string" if name.ends_with("_at") || name.ends_with("At") => json!("2026-11-20T10:00:00Z"),
            _ => sample(&kind, &name, &named, 0),
        };
        Field { kind: word(&kind), nullable, sample, name }
    };
    Ok(all.iter().map(field).collect())
}

/// A type without its null branch, with names looked up.
fn bare(kind: &Value, named: &BTreeMap<String, Value>) -> (Value, bool) {
    match kind {
        Value::Array(branches) => {
            let nullable = branches.iter().any(|b| b == "null");
            let first = branches.iter().find(|b| *b != "null").cloned().unwrap_or_else(|| json!("null"));
            (bare(&first, named).0, nullable)
        }
        // A name without its namespace has that of the type around it.
        Value::String(name) => {
            let found = named.get(name).or_else(|| named.get(name.rsplit('.').next()?));
            (found.cloned().unwrap_or_else(|| kind.clone()), false)
        }
        other => (other.clone(), false),
    }
}

/// The word for a type: its meaning where it has one.
fn word(kind: &Value) -> String {
    let text = |v: &Value| v.as_str().map(str::to_owned);
    text(&kind["logicalType"]).or_else(|| text(&kind["type"])).or_else(|| text(kind)).unwrap_or_else(|| "union".to_owned())
}

/// Every named type, under its name and its full name.
fn collect(schema: &Value, named: &mut BTreeMap<String, Value>) {
    if let Some(name) = schema["name"].as_str().filter(|_| schema["type"].is_string()) {
        named.insert(name.to_owned(), schema.clone());
        if let Some(space) = schema["namespace"].as_str() {
            named.insert(format!("{space}.{name}"), schema.clone());
        }
    }
    match schema {
        Value::Array(all) => all.iter().for_each(|s| collect(s, named)),
        Value::Object(all) => all.values().for_each(|s| collect(s, named)),
        _ => {}
    }
}

/// A value of this type as a decoder gives it.
fn sample(kind: &Value, name: &str, named: &BTreeMap<String, Value>, depth: usize) -> Value {
    let (kind, _) = bare(kind, named);
    match word(&kind).as_str() {
        "string" => json!(format!("{name}-1")),
        "uuid" => json!("6f1c1f5e-0000-4000-8000-000000000001"),
        "boolean" => json!(true),
        "int" | "long" => json!(1),
        "float" | "double" => json!(1.5),
        "decimal" => json!("1.00"),
        "date" => json!("2026-11-20"),
        timestamp if timestamp.starts_with("timestamp-") => json!("2026-11-20T10:00:00Z"),
        "enum" => kind["symbols"][0].clone(),
        "array" => json!([]),
        "map" => json!({}),
        "record" if depth < DEPTH => {
            let all = kind["fields"].as_array().cloned().unwrap_or_default();
            let one = |f: &Value| {
                let name = f["name"].as_str().unwrap_or_default();
                (name.to_owned(), sample(&f["type"], name, named, depth + 1))
            };
            Value::Object(all.iter().map(one).collect::<Map<_, _>>())
        }
        "bytes" | "fixed" => json!(""),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// If this broke, a topology made from a topic would read fields that are not there, or take a date for a number.
    #[test]
    fn fields_are_read_as_a_decoder_shows_them() {
        let found = fields(
            r#"{"type":"record","name":"Shipment","namespace":"logistics","fields":[
                {"name":"shipment_id","type":"string"},
                {"name":"weight","type":["null","double"]},
                {"name":"status","type":{"type":"enum","name":"Status","symbols":["PACKED","SENT"]}},
                {"name":"before","type":["null","logistics.Status"]},
                {"name":"sent_at","type":{"type":"long","logicalType":"timestamp-millis"}},
                {"name":"box","type":{"type":"record","name":"Box","fields":[{"name":"w","type":"int"}]}}]}"#,
        )
        .unwrap();
        let shown: Vec<_> = found.iter().map(|f| format!("{} {} {}", f.name, f.shown(), f.sample)).collect();
        assert_eq!(
            shown,
            [
                "shipment_id string \"shipment_id-1\"",
                "weight double, or null 1.5",
                "status enum \"PACKED\"",
                "before enum, or null \"PACKED\"",
                "sent_at timestamp-millis \"2026-11-20T10:00:00Z\"",
                "box record {\"w\":1}",
            ]
        );
        assert!(found[0].is_id() && found[4].is_time() && !found[1].is_id());
        assert!(fields("\"string\"").unwrap_err().contains("not a record"));
    }
}
