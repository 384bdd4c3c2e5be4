//! Where the parts of a request come from: from records of our own making, or from the fields of a topic's schema. Pure.

use serde_json::{Map, Value, json};

use super::avro::Field;
use super::ready::Ready;

/// When the recorded input was asked for.
const ASKED: &str = "2026-11-20T10:00:00Z";

/// Expressions over a record, and a record that they read.
pub(super) struct Mapping {
    pub operation_id: String,
    pub tenant: String,
    pub resource: String,
    pub deadline: String,
    /// By the contract's names, each with what a person should know of it.
    pub parameters: Vec<(String, String, Option<String>)>,
    /// What the source holds, a line each.
    pub fields: Vec<String>,
    /// A record without its identity.
    pub record: Map<String, Value>,
    /// The field that makes each record another one; `None`: the key does.
    pub identity: Option<(String, bool)>,
    /// The tenant's field, where one is read.
    pub tenant_field: Option<String>,
    /// A field without which a record is a dead letter.
    pub needed: Option<String>,
}

impl Mapping {
    /// Records of a topic that is made for this contract: an id, a tenant, a time and the parameters.
    pub fn own(ready: &Ready) -> Self {
        let Value::Object(parameters) = (ready.parameters)() else { return Self::empty(ready) };
        let mut record = Map::new();
        record.insert("tenant".into(), json!("acme"));
        record.insert("requested_at".into(), json!(ASKED));
        record.extend(parameters.clone());
        let named = |name: &String| (name.clone(), format!("value.{name}"), None);
        Self {
            operation_id: format!("\"{}-\" + value.id", ready.call),
            tenant: "value.tenant".into(),
            resource: format!("\"{}/\" + value.id", ready.call),
            deadline: "timestamp(value.requested_at) + duration(\"10m\")".into(),
            parameters: parameters.keys().map(named).collect(),
            fields: Vec::new(),
            record,
            identity: Some(("id".into(), true)),
            tenant_field: Some("tenant".into()),
            needed: parameters.keys().next().cloned(),
        }
    }

    /// Records of a topic that exists. Refused where nothing in them tells when a request was made.
    pub fn of_schema(ready: &Ready, topic: &str, fields: &[Field], given: &Given) -> Result<Self, String> {
        let id = fields.iter().find(|f| f.name == "id").or_else(|| fields.iter().find(|f| f.is_id()));
        let text = |f: &Field| if f.is_text() { format!("value.{}", f.name) } else { format!("string(value.{})", f.name) };
        let identity = id.map_or_else(|| "key".to_owned(), text);
        let owner = ["tenant", "tenant_id", "merchant", "merchant_id", "customer", "customer_id", "account_id"];
        let tenant = owner.iter().find_map(|name| fields.iter().find(|f| f.name == *name && !f.nullable));
        let time = fields.iter().find(|f| f.is_time() && !f.nullable).or_else(|| fields.iter().find(|f| f.is_time()));
        let deadline = match (&given.deadline, time) {
            (Some(expression), _) => expression.clone(),
            (None, Some(f)) if f.is_text() => format!("timestamp(value.{}) + duration(\"10m\")", f.name),
            (None, Some(f)) => format!("value.{} + 600000", f.name),
            (None, None) => return Err(names(fields)),
        };
        let mut mapping = Self {
            operation_id: given.id.clone().unwrap_or_else(|| format!("\"{}-\" + {identity}", ready.call)),
            tenant: tenant.map_or_else(|| "'default'".replace('\'', "\""), text),
            resource: format!("\"{}/\" + {identity}", ready.call),
            deadline,
            fields: fields.iter().map(|f| format!("{}: {}", f.name, f.shown())).collect(),
            record: fields.iter().map(|f| (f.name.clone(), f.sample.clone())).collect(),
            identity: id.map(|f| (f.name.clone(), f.is_text())),
            tenant_field: tenant.filter(|f| f.is_text()).map(|f| f.name.clone()),
            ..Self::empty(ready)
        };
        if let Value::Object(parameters) = (ready.parameters)() {
            for (name, sample) in parameters {
                mapping.take(&name, sample, topic, fields);
            }
        }
        mapping.needed = id.or(time).map(|f| f.name.clone());
        Ok(mapping)
    }

    /// A parameter: from the field of its name where the types allow, else a value to be replaced.
    fn take(&mut self, name: &str, sample: Value, topic: &str, fields: &[Field]) {
        let field = fields.iter().find(|f| f.name == name && !f.nullable && f.holds(&sample));
        let made = match field {
            Some(f) => {
                let identity = self.identity.as_ref().is_some_and(|(id, _)| *id == f.name);
                if !identity && !sample.is_object() {
                    self.record.insert(f.name.clone(), sample);
                }
                (format!("value.{name}"), None)
            }
            None if name == "payload" => ("value".to_owned(), None),
            None if name == "event" => (json!(topic).to_string(), None),
            None => (sample.to_string(), Some("no field has this name and type: choose one, or leave it fixed".to_owned())),
        };
        self.parameters.push((name.to_owned(), made.0, made.1));
    }

    fn empty(ready: &Ready) -> Self {
        Self {
            operation_id: format!("\"{}-\" + key", ready.call),
            tenant: "\"default\"".into(),
            resource: format!("\"{}/\" + key", ready.call),
            deadline: String::new(),
            parameters: Vec::new(),
            fields: Vec::new(),
            record: Map::new(),
            identity: None,
            tenant_field: None,
            needed: None,
        }
    }

    /// The `n`th record, with its key.
    pub fn nth(&self, n: usize) -> (String, Map<String, Value>) {
        let mut record = self.record.clone();
        if let Some((field, text)) = &self.identity {
            record.insert(field.clone(), if *text { json!(n.to_string()) } else { json!(n) });
        }
        (n.to_string(), record)
    }
}

/// Expressions that a person gave.
#[derive(Default)]
pub(super) struct Given {
    pub id: Option<String>,
    pub deadline: Option<String>,
}

fn names(fields: &[Field]) -> String {
    fields.iter().map(|f| format!("{} ({})", f.name, f.shown())).collect::<Vec<_>>().join(", ")
}
