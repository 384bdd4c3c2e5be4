//! Defaults, then file, then environment, then flags: later layers win key by key. Each value keeps its place, so that an error
//! shows the line of the file, the variable or the flag that it stands in.

use std::path::Path;
use std::sync::Arc;

use super::provenance::hidden;
use super::yaml::{self, Diagnostics, Kind, Name, Node, Site, SourceFile};
use super::{ProcessConfig, otel, settings};
use crate::error::{Error, Fault, Result, codes};

/// Prefix of environment variables: `READBACK_STATE__DIR` sets `state.dir`.
const PREFIX: &str = "READBACK_";

/// Variables under the prefix that are no settings; some are for tests.
const NOT_SETTINGS: &[&str] = &[
    "READBACK_API",
    "READBACK_APP",
    "READBACK_CHAOS_SEED",
    "READBACK_CONFIG",
    "READBACK_FAIL",
    "READBACK_FAULTS",
    "READBACK_LOG",
    "READBACK_SEED",
    "READBACK_SCHEDULES",
    "READBACK_TOKEN",
    "READBACK_WEAKEN",
    "READBACK_WRITE_GOLDEN",
    "READBACK_WRITE_SCHEMAS",
];

/// Where a variable stands, for messages.
pub(super) const ENVIRONMENT: &str = "the environment";
/// Where a flag stands.
pub(super) const COMMAND_LINE: &str = "the command line";

/// What `dev/stack env` prints besides brokers and registry.
const STACK: &str = "READBACK_STACK_";

/// A setting on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    /// As it is written: `--registry`.
    pub name: &'a str,
    /// The setting: `registry.url`.
    pub key: &'a str,
    /// What was given.
    pub value: &'a str,
}

/// The variables that could be settings. One that is not Unicode is refused: it could only be misread.
pub fn environment() -> Result<Vec<(String, String)>> {
    let ours = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let read = |(name, value): (String, std::ffi::OsString)| match value.into_string() {
        Ok(text) => Ok((name, text)),
        Err(_) => {
            let doing = format!("reading the environment variable {name}");
            Err(Error::new(codes::BAD_VALUE, Fault::Configuration, doing).because("its value is not UTF-8"))
        }
    };
    ours.filter(|(name, _)| is_setting(name)).map(read).collect()
}

/// Reads the configuration: `file` where given (it must exist), `env` as (name, value), then `flags`. All errors at once.
pub fn load(file: Option<&Path>, env: impl IntoIterator<Item = (String, String)>, flags: &[Flag<'_>]) -> Result<ProcessConfig> {
    read(&merged(file, env, flags)?)
}

/// Reads the settings of a tree; of what is wrong no line is shown in which a secret is written out.
pub(super) fn read(root: &Node) -> Result<ProcessConfig> {
    let mut d = Diagnostics::new();
    let config = settings::read(root, &mut d);
    let mut secrets = Vec::new();
    written_out(root, false, &mut secrets);
    d.hide(&secrets);
    d.or(Some(config)).map_err(Error::from)
}

/// The values under keys whose names speak of a secret, also where somebody misspelt them. A reference is no secret.
fn written_out<'n>(node: &'n Node, secret: bool, found: &mut Vec<&'n Site>) {
    let near = |name: &str| yaml::nearest(name, ["password", "secret", "token"]).is_some();
    match &node.kind {
        Kind::Scalar { .. } if secret => found.push(&node.at),
        Kind::Scalar { .. } => {}
        Kind::List(all) => all.iter().for_each(|one| written_out(one, secret, found)),
        Kind::Map(entries) => entries.iter().for_each(|(name, value)| {
            let within = match name.text.as_str() {
                "env" | "file" | "command" => false,
                name => secret || hidden(name) || near(name),
            };
            written_out(value, within, found);
        }),
    }
}

/// All layers in one tree; each value keeps its place.
pub(super) fn merged(file: Option<&Path>, env: impl IntoIterator<Item = (String, String)>, flags: &[Flag<'_>]) -> Result<Node> {
    let mut root = match file {
        Some(path) => yaml::load(path).map_err(Error::from)?,
        None => empty(source(ENVIRONMENT, "")),
    };
    let mut env: Vec<_> = env.into_iter().filter(|(name, _)| is_setting(name)).collect();
    env.sort();
    put_otel(&mut root, &env);
    for (name, value) in env.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        put_variable(&mut root, name, value);
    }
    for flag in flags {
        let line = source(COMMAND_LINE, &format!("{} {}", flag.name, flag.value));
        let name = |text: &str| Name { text: text.to_owned(), at: place(&line, 0, flag.name.len()) };
        let path: Vec<Name> = flag.key.split('.').map(name).collect();
        put(&mut root, &path, scalar(flag.value, place(&line, flag.name.len() + 1, flag.value.len())));
    }
    Ok(root)
}

/// What the variables of OpenTelemetry mean, each under its own name.
fn put_otel(root: &mut Node, env: &[(String, String)]) {
    for (name, settings) in otel::settings(env) {
        let line = source(ENVIRONMENT, name);
        let at = || place(&line, 0, name.len());
        for (key, value) in settings {
            let path: Vec<Name> = key.split('.').map(|text| Name { text: text.to_owned(), at: at() }).collect();
            let value = match key {
                otel::REFERENCE => {
                    let entry = (Name { text: "env".to_owned(), at: at() }, scalar(&value, at()));
                    Node { kind: Kind::Map(vec![entry]), at: at() }
                }
                _ => scalar(&value, at()),
            };
            put(root, &path, value);
        }
    }
}

/// Variables that Kubernetes makes for a service that is called `readback` or `readback-…` are none of ours.
fn is_setting(name: &str) -> bool {
    if otel::is_known(name) {
        return true;
    }
    let Some(key) = name.strip_prefix(PREFIX) else { return false };
    let service = ["SERVICE_HOST", "SERVICE_PORT", "PORT_"].iter().any(|part| key.contains(part)) || key.ends_with("PORT");
    (key.contains("__") || !service) && !NOT_SETTINGS.contains(&name) && !name.starts_with(STACK)
}

/// `READBACK_STATE__DIR` is `state.dir`, `READBACK_REGISTRY` short for `registry.url`; the client's settings have dots in their
/// names: `READBACK_KAFKA__SECURITY_PROTOCOL`.
fn put_variable(root: &mut Node, name: &str, value: &str) {
    // The name alone is shown: a value may be a secret, also under a name that nobody knows.
    let line = source(ENVIRONMENT, name);
    let mut from = PREFIX.len();
    let mut path: Vec<Name> = Vec::new();
    for part in name[PREFIX.len()..].split("__") {
        let text = part.to_ascii_lowercase();
        let text = if path.first().is_some_and(|p| p.text == "kafka") { text.replace('_', ".") } else { text };
        path.push(Name { text, at: place(&line, from, part.len()) });
        from += part.len() + "__".len();
    }
    if let [only] = path.as_slice()
        && only.text == "registry"
    {
        path.push(Name { text: "url".to_owned(), at: only.at.clone() });
    }
    put(root, &path, scalar(value, place(&line, 0, name.len())));
}

fn put(at: &mut Node, path: &[Name], value: Node) {
    let [first, rest @ ..] = path else { return };
    if !matches!(at.kind, Kind::Map(_)) {
        *at = empty(value.at.file.clone());
    }
    let Kind::Map(entries) = &mut at.kind else { return };
    let known = entries.iter().position(|(name, _)| name.text == first.text);
    let i = known.unwrap_or_else(|| {
        entries.push((first.clone(), empty(value.at.file.clone())));
        entries.len() - 1
    });
    match rest {
        [] => entries[i] = (first.clone(), value),
        _ => put(&mut entries[i].1, rest, value),
    }
}

fn source(path: &str, text: &str) -> Arc<SourceFile> {
    Arc::new(SourceFile { path: path.to_owned(), text: text.to_owned() })
}

fn place(file: &Arc<SourceFile>, from: usize, length: usize) -> Site {
    Site { file: file.clone(), span: from..from + length }
}

fn empty(file: Arc<SourceFile>) -> Node {
    Node { kind: Kind::Map(Vec::new()), at: place(&file, 0, file.text.len()) }
}

/// A text as it stands; an empty one is an empty text, not nothing. A `$` is just a `$` (C112).
fn scalar(text: &str, at: Site) -> Node {
    Node { kind: Kind::Scalar { text: text.to_owned(), plain: !text.is_empty() }, at }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn shown(e: &Error) -> String {
        e.source.as_ref().unwrap().to_string()
    }

    /// If this broke, the chart would start pods that refuse their configuration, or are killed before they may stop in order.
    #[test]
    fn the_chart_starts_with_a_configuration_that_holds() {
        let values = include_str!("../../deploy/helm/values.yaml");
        let values: serde_json::Value = serde_saphyr::from_str(values).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("readback.yaml");
        std::fs::write(&file, values["config"].to_string()).unwrap();
        let got = load(Some(&file), [], &[]).unwrap();
        let grace = values["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace > got.stop_within.0.as_secs(), "a pod is killed before it may stop");
        assert!(got.admin.listen.ends_with(":9464"), "the probes ask port 9464: {}", got.admin.listen);
    }

    /// If this broke, a setting in the environment would not reach the process that a chart starts.
    #[test]
    fn later_layers_win() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("readback.yaml");
        std::fs::write(&file, "brokers: f:1\nstate: { dir: /f, cache: 1 MB }\nkafka: { client.rack: a }\n").unwrap();
        let env = env(&[
            ("READBACK_BROKERS", "a:1"),
            ("READBACK_STATE__DIR", "/x"),
            ("READBACK_REGISTRY", "http://r"),
            ("READBACK_KAFKA__SECURITY_PROTOCOL", "ssl"),
            ("READBACK_ADMIN__LISTEN", ""),
        ]);
        let got = load(Some(&file), env, &[Flag { name: "--state-dir", key: "state.dir", value: "/y" }]).unwrap();
        assert_eq!((got.brokers.as_str(), got.state.dir.to_str(), got.registry.url.as_str()), ("a:1", Some("/y"), "http://r"));
        assert_eq!((got.state.cache.0, got.admin.listen.as_str()), (1 << 20, ""));
        assert_eq!((got.kafka["client.rack"].as_str(), got.kafka["security.protocol"].as_str()), ("a", "ssl"));
    }

    /// If this broke, naming the registry would silently forbid to register in it, and a first start would end.
    #[test]
    fn a_section_that_is_begun_keeps_its_other_defaults() {
        let got = load(None, env(&[("READBACK_REGISTRY", "http://r")]), &[]).unwrap();
        assert!(got.registry.register);
    }

    /// If this broke, a misspelt setting would be silently without effect, or its author would mend one error only to be shown the
    /// next.
    #[test]
    fn all_that_is_wrong_is_shown_at_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("readback.yaml");
        std::fs::write(&file, "brokrs: x\nthreads: { stream: two }\ngroup: { session_timeout: 15 }\n").unwrap();
        let e = load(Some(&file), env(&[("READBACK_THREADS__EFECTS", "2"), ("READBACK_TOPICS__CREATE", "yes")]), &[]).unwrap_err();
        assert_eq!(e.fault, Fault::Configuration);
        let shown = shown(&e);
        for part in [
            "did you mean `brokers`?",
            "readback.yaml:2:20",
            "readback.yaml:3:27",
            "READBACK_THREADS__EFECTS",
            "did you mean `effects`?",
            "found `yes`",
            "5 errors",
        ] {
            assert!(shown.contains(part), "no {part:?} in\n{shown}");
        }
    }

    /// If this broke, a member that was expelled could leave a transaction that outlives it and blocks its successor.
    #[test]
    fn a_transaction_ends_before_the_session() {
        let e = load(None, env(&[("READBACK_GROUP__SESSION_TIMEOUT", "8s")]), &[]).unwrap_err();
        assert!(shown(&e).contains("transaction_timeout is 10 s, and must be shorter than session_timeout, which is 8 s"), "{e}");
    }

    /// If this broke, a password would be printed by the start that refuses it.
    #[test]
    fn a_secret_that_is_written_out_is_refused_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("readback.yaml");
        std::fs::write(&file, "registry: { password: MARK }\n").unwrap();
        let of_file = load(Some(&file), env(&[]), &[]).unwrap_err();
        let of_env =
            load(None, env(&[("READBACK_REGISTRY__TOKEN", "MARK"), ("READBACK_REGISTRY__TOKN", "MARK")]), &[]).unwrap_err();
        for e in [of_file, of_env] {
            assert!(shown(&e).contains("named by a reference") && !shown(&e).contains("MARK"), "{e}");
        }
    }

    /// If this broke, no command would start in a shell that has taken over what `dev/stack env` prints, under a test that was told
    /// how much to break, or in a pod beside a service that is called `readback`.
    #[test]
    fn variables_of_others_are_no_settings() {
        let shell = env(&[
            ("READBACK_STACK_MODE", "jvm"),
            ("READBACK_APP", "orders"),
            ("READBACK_API", "https://console.acme.example"),
            ("READBACK_TOKEN", "rbt_0"),
            ("READBACK_FAULTS", "200"),
            ("READBACK_CHAOS_SEED", "12"),
            ("READBACK_SERVICE_HOST", "10.0.0.1"),
            ("READBACK_PORT", "tcp://10.0.0.1:9464"),
            ("READBACK_ORDERS_PORT_9464_TCP_ADDR", "10.0.0.1"),
        ]);
        assert_eq!(load(None, shell, &[]).unwrap().brokers, "localhost:9092");
    }

    /// If this broke, a cluster that tells all its programs where traces go would be told in vain, or a collector's token be shown.
    #[test]
    fn the_variables_of_opentelemetry_are_settings() {
        let set = env(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=MARK"),
            ("OTEL_SERVICE_NAME", "orders-eu"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_LOG_LEVEL", "debug"),
        ]);
        let traces = load(None, set.clone(), &[]).unwrap().traces;
        assert_eq!((traces.endpoint.as_str(), traces.service.as_str()), ("http://collector:4318/v1/traces", "orders-eu"));
        assert_eq!((traces.sample, traces.follow, traces.enabled), (0.25, true, true));
        assert_eq!(traces.headers, Some(crate::config::SecretRef::Env("OTEL_EXPORTER_OTLP_HEADERS".into())));
        assert_eq!(traces.timeout.0.as_millis(), 2_500);
        let shown = crate::config::provenance(None, set, &[]).unwrap();
        let message = super::tests::shown;
        let of = |key: &str| shown.iter().find(|s| s.key == key).map(|s| (s.value.as_str(), s.from.as_str())).unwrap();
        assert_eq!(of("traces.endpoint"), ("http://collector:4318/v1/traces", "OTEL_EXPORTER_OTLP_ENDPOINT"));
        assert_eq!(of("traces.sample"), ("0.25", "OTEL_TRACES_SAMPLER"));
        assert!(shown.iter().all(|s| !s.value.contains("MARK")), "{shown:?}");
        let off =
            load(None, env(&[("OTEL_SDK_DISABLED", "true"), ("READBACK_TRACES__ENDPOINT", "http://c/v1/traces")]), &[]).unwrap();
        assert!(!off.traces.enabled);
        let own = env(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/x"), ("READBACK_TRACES__ENDPOINT", "http://d/y")]);
        assert_eq!(load(None, own, &[]).unwrap().traces.endpoint, "http://d/y");
        for (name, value) in [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_SAMPLER", "xray")] {
            let e = load(None, env(&[(name, value)]), &[]).unwrap_err();
            assert!(message(&e).contains(name) && message(&e).contains(value), "{}", message(&e));
        }
    }

    /// C112: a `$` in a value would be taken for a variable and the value silently changed.
    #[test]
    fn a_dollar_is_just_a_dollar() {
        let got = load(None, env(&[("READBACK_KAFKA__SASL_PASSWORD", "pa$$word$HOME")]), &[]).unwrap();
        assert_eq!(got.kafka["sasl.password"], "pa$$word$HOME");
    }
}
