//! Defaults, then file, then environment, then flags: later layers win key by key.

use std::path::Path;

use serde_json::{Map, Value};

use super::ProcessConfig;
use crate::error::{Error, Fault, Result, codes};

/// Prefix of environment variables: `READBACK_STATE__DIR` sets `state.dir`.
const PREFIX: &str = "READBACK_";

/// Variables under the prefix that are no settings.
const NOT_SETTINGS: &[&str] =
    &["READBACK_APP", "READBACK_CONFIG", "READBACK_FAIL", "READBACK_LOG", "READBACK_SEED", "READBACK_WEAKEN"];

/// What `dev/stack env` prints besides brokers and registry.
const STACK: &str = "READBACK_STACK_";

/// Reads the configuration: `file` where given (it must exist), `env` as (name, value), `flags` as (`state.dir`, value).
pub fn load(file: Option<&Path>, env: impl Iterator<Item = (String, String)>, flags: &[(&str, String)]) -> Result<ProcessConfig> {
    let mut root = match file {
        Some(path) => read_file(path)?,
        None => Value::Object(Map::new()),
    };
    for (name, value) in env {
        let Some(key) = name.strip_prefix(PREFIX).filter(|_| is_setting(&name)) else { continue };
        let path: Vec<String> = match key {
            "REGISTRY" => vec!["registry".into(), "url".into()],
            _ => key.split("__").map(str::to_ascii_lowercase).collect(),
        };
        set(&mut root, &path, scalar(&value));
    }
    for (key, value) in flags {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        set(&mut root, &path, scalar(value));
    }
    let where_from = file.map_or_else(|| "the environment and flags".to_owned(), |p| p.display().to_string());
    serde_json::from_value(root).map_err(|e| {
        Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading the configuration from {where_from}"))
            .because(e)
            .next("`readback run --help` lists the settings; the JSON Schema is schemas/readback.schema.json")
    })
}

fn is_setting(name: &str) -> bool {
    !NOT_SETTINGS.contains(&name) && !name.starts_with(STACK)
}

fn read_file(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading {}", path.display()))
            .because(e)
            .next("check the path given with --config")
    })?;
    let value: Value = serde_saphyr::from_str(&text).map_err(|e| {
        Error::new(codes::YAML_SYNTAX, Fault::Configuration, format!("parsing {}", path.display())).because(e.to_string())
    })?;
    Ok(if value.is_null() { Value::Object(Map::new()) } else { value })
}

/// A text as the value it looks like: number, truth value, or the text itself. A `$` is just a `$` (C112).
fn scalar(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text.parse::<i64>().map_or_else(|_| Value::String(text.to_owned()), Value::from),
    }
}

fn set(root: &mut Value, path: &[String], value: Value) {
    let mut at = root;
    for key in &path[..path.len() - 1] {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(map) = at else { return };
        at = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    if let Value::Object(map) = at {
        map.insert(path[path.len() - 1].clone(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>().into_iter()
    }

    /// If this broke, a setting in the environment would not reach the process that a chart starts.
    #[test]
    fn later_layers_win() {
        let got = load(
            None,
            env(&[("READBACK_BROKERS", "a:1"), ("READBACK_STATE__DIR", "/x"), ("READBACK_REGISTRY", "http://r")]),
            &[("state.dir", "/y".into())],
        )
        .unwrap();
        assert_eq!((got.brokers.as_str(), got.state.dir.to_str(), got.registry.url.as_str()), ("a:1", Some("/y"), "http://r"));
    }

    /// If this broke, naming the registry would silently forbid to register in it, and a first start would end.
    #[test]
    fn a_section_that_is_begun_keeps_its_other_defaults() {
        let got = load(None, env(&[("READBACK_REGISTRY", "http://r")]), &[]).unwrap();
        assert!(got.registry.register);
    }

    /// If this broke, a misspelt setting would be silently without effect.
    #[test]
    fn unknown_settings_are_refused() {
        let e = load(None, env(&[("READBACK_THREADS__STRAEM", "2")]), &[]).unwrap_err();
        assert_eq!(e.fault, Fault::Configuration);
        assert!(e.to_string().contains("straem"), "{e}");
    }

    /// If this broke, no command would start in a shell that has taken over what `dev/stack env` prints.
    #[test]
    fn the_stacks_variables_are_no_settings() {
        let shell = env(&[("READBACK_STACK_MODE", "jvm"), ("READBACK_STACK_BROKER_PID", "7"), ("READBACK_APP", "orders")]);
        assert_eq!(load(None, shell, &[]).unwrap().brokers, "localhost:9092");
    }

    /// C112: a `$` in a value would be taken for a variable and the value silently changed.
    #[test]
    fn a_dollar_is_just_a_dollar() {
        let got = load(None, env(&[("READBACK_BROKERS", "pa$$word$HOME")]), &[]).unwrap();
        assert_eq!(got.brokers, "pa$$word$HOME");
    }
}
