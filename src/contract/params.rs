//! Declared, typed parameters: the only thing that gets from a record or a plan into a request.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::Parameters;

/// One declared parameter.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub(super) takes: Takes,
    pub(super) optional: bool,
}

/// What it takes.
#[derive(Clone, Debug)]
pub(super) enum Takes {
    /// A string that matches as a whole, of at most so many characters.
    Text { pattern: Option<Regex>, max_length: usize },
    /// A whole number.
    Integer { min: i64, max: i64 },
    /// A number.
    Number { min: f64, max: f64 },
    /// True or false.
    Boolean,
    /// One of these.
    Enum(Vec<String>),
    /// Any JSON of at most so many bytes.
    Json { max_bytes: usize },
}

/// Everything that is wrong with `given`; values are not named.
pub(super) fn check(declared: &BTreeMap<String, Parameter>, given: &Parameters) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    for (name, parameter) in declared {
        match given.0.get(name) {
            None | Some(Value::Null) if parameter.optional => {}
            None | Some(Value::Null) => wrong.push(format!("`{name}` is missing")),
            Some(value) => wrong.extend(parameter.takes.refuses(value).map(|why| format!("`{name}` {why}"))),
        }
    }
    for name in given.0.keys().filter(|n| !declared.contains_key(*n)) {
        let near = crate::config::yaml::nearest(name, declared.keys().map(String::as_str));
        let hint = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
        wrong.push(format!("`{name}` is not declared{hint}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

impl Parameter {
    /// The value that somebody typed: what the contract calls text stays text, else it is JSON where it reads as JSON.
    pub(super) fn typed(&self, word: &str) -> Value {
        let text = matches!(self.takes, Takes::Text { .. } | Takes::Enum(_));
        let json = serde_json::from_str(word).ok().filter(|json: &Value| !text || json.is_string());
        json.unwrap_or_else(|| word.into())
    }
}

impl Takes {
    fn refuses(&self, value: &Value) -> Option<String> {
        match self {
            Takes::Text { pattern, max_length } => match value.as_str() {
                None => Some("is not a string".into()),
                Some(s) if s.chars().count() > *max_length => Some(format!("is longer than {max_length} characters")),
                Some(s) => pattern.as_ref().filter(|p| !p.is_match(s)).map(|p| format!("does not match {}", shown(p))),
            },
            Takes::Integer { min, max } => match value.as_i64() {
                Some(n) if (*min..=*max).contains(&n) => None,
                _ => Some(format!("is not a whole number from {min} to {max}")),
            },
            Takes::Number { min, max } => match value.as_f64() {
                Some(n) if (*min..=*max).contains(&n) => None,
                _ => Some(format!("is not a number from {min} to {max}")),
            },
            Takes::Boolean => (!value.is_boolean()).then(|| "is not true or false".into()),
            Takes::Enum(words) => match value.as_str() {
                Some(s) if words.iter().any(|w| w == s) => None,
                _ => Some(format!("is none of {}", words.join(", "))),
            },
            Takes::Json { max_bytes } => {
                (value.to_string().len() > *max_bytes).then(|| format!("is larger than {max_bytes} bytes"))
            }
        }
    }
}

/// The whole text must match, not a part of it.
pub(super) fn anchored(pattern: &str) -> Result<Regex, String> {
    Regex::new(&format!("^(?:{pattern})$")).map_err(|e| e.to_string().replace('\n', " "))
}

fn shown(pattern: &Regex) -> &str {
    pattern.as_str().trim_start_matches("^(?:").trim_end_matches(")$")
}
