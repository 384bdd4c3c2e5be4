//! What may be shown of a payload to somebody who did not ask for it: its shape, never its values.

use serde_json::{Map, Value};

/// How deep and how wide a shape is shown.
const DEPTH: usize = 5;
const WIDTH: usize = 40;

/// A value with every text and number replaced by its kind and length. Names of members stay.
pub fn shape(value: &Value) -> Value {
    shaped(value, DEPTH)
}

fn shaped(value: &Value, depth: usize) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "<true or false>".into(),
        Value::Number(_) => "<number>".into(),
        Value::String(text) => format!("<text of {}>", text.chars().count()).into(),
        Value::Array(_) | Value::Object(_) if depth == 0 => "<…>".into(),
        Value::Array(items) => {
            let mut shown: Vec<Value> = items.iter().take(1).map(|v| shaped(v, depth - 1)).collect();
            if items.len() > 1 {
                shown.push(format!("<{} more>", items.len() - 1).into());
            }
            shown.into()
        }
        Value::Object(members) => {
            let mut shown: Map<String, Value> =
                members.iter().take(WIDTH).map(|(name, v)| (name.clone(), shaped(v, depth - 1))).collect();
            if members.len() > WIDTH {
                shown.insert("…".to_owned(), format!("<{} more>", members.len() - WIDTH).into());
            }
            Value::Object(shown)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, payload would stand on the screen, in the shell's log and in tickets, of people who only wanted to know why.
    #[test]
    fn a_shape_holds_no_value() {
        let value = serde_json::json!({
            "card": "4242-4242", "pin": 9321, "paid": true, "none": null,
            "lines": [{"sku": "A-77"}, {"sku": "A-78"}], "deep": {"a": {"b": {"c": {"d": {"e": "bottom"}}}}},
        });
        let shown = shape(&value).to_string();
        for secret in ["4242", "9321", "A-77", "A-78", "bottom", "true,"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        for name in ["card", "sku", "<1 more>", "<text of 9>"] {
            assert!(shown.contains(name), "{name} not in {shown}");
        }
    }
}
