//! Every setting as it holds, with where it came from: a line of the file, a variable, a flag, or the default. Secrets are named, never
//! shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::layers::{COMMAND_LINE, ENVIRONMENT, Flag, merged, read};
use super::process::OidcSection;
use super::yaml::{Kind, Node};
use super::{Identity, Net, OAuth, ProcessConfig, Sasl, SecretRef, Security};
use crate::error::Result;

/// One setting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Setting {
    /// `group.session_timeout`.
    pub key: String,
    /// As it holds; empty where there is none.
    pub value: String,
    /// `readback.yaml:3:27`, `READBACK_BROKERS`, `--brokers` or `default`.
    pub from: String,
}

/// The settings that [`load`](super::load) gives from the same layers, in the order of the file's keys.
///
/// # Errors
/// As for a start: all that is wrong at once.
pub fn provenance(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: &[Flag<'_>],
) -> Result<Vec<Setting>> {
    let root = merged(file, env, flags)?;
    let config = read(&root)?;
    let setting = |(key, value): (String, String)| match find(&root, &key) {
        Some(node) => Setting { value: if is_reference(node) { reference(node) } else { value }, from: origin(node), key },
        None => Setting { key, value, from: "default".to_owned() },
    };
    Ok(values(&config).into_iter().map(setting).collect())
}

/// What a setting was given as; the client's settings have dots in their names.
fn find<'n>(root: &'n Node, key: &str) -> Option<&'n Node> {
    let Kind::Map(entries) = &root.kind else { return None };
    if let Some((_, node)) = entries.iter().find(|(name, _)| name.text == key) {
        return Some(node);
    }
    let (section, rest) = key.split_once('.')?;
    find(entries.iter().find(|(name, _)| name.text == section).map(|(_, v)| v)?, rest)
}

fn origin(node: &Node) -> String {
    match node.at.file.path.as_str() {
        // The first word is the variable's or the flag's name; a value is never part of it.
        ENVIRONMENT | COMMAND_LINE => node.at.file.text.split(' ').next().unwrap_or_default().to_owned(),
        _ => node.at.to_string(),
    }
}

/// A map that is no reference is shown as its settings are: the roles of claim values.
fn is_reference(node: &Node) -> bool {
    let reference = |name: &str| ["env", "file", "command", "secret"].contains(&name);
    matches!(&node.kind, Kind::Map(entries) if entries.first().is_none_or(|(name, _)| reference(&name.text)))
}

/// `{ env: NAME }`, `{ file: PATH }`.
fn reference(node: &Node) -> String {
    match &node.kind {
        Kind::Map(entries) => match entries.first() {
            Some((name, target)) if name.text == "secret" => reference(target),
            // A command's arguments may say more than others should read.
            Some((name, target)) => format!("{{ {}: {} }}", name.text, target.list().first().and_then(Node::scalar).unwrap_or("…")),
            None => "{}".to_owned(),
        },
        _ => "hidden".to_owned(),
    }
}

fn list(of: &[Net]) -> String {
    of.iter().map(Net::to_string).collect::<Vec<_>>().join(", ")
}

fn secret(given: &Option<SecretRef>) -> String {
    given.as_ref().map(SecretRef::to_string).unwrap_or_default()
}

/// An address may have a login before its host.
fn without_login(url: &str) -> String {
    let found = url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)));
    found.map_or_else(|| url.to_owned(), |(scheme, rest)| format!("{scheme}://hidden@{rest}"))
}

/// Client settings whose values are secrets even where somebody wrote them out.
pub(super) fn hidden(name: &str) -> bool {
    ["password", "secret", "token", "headers", "key.pem", "sasl.jaas", "oauthbearer.config"].iter().any(|part| name.contains(part))
}

fn path(given: &Option<PathBuf>) -> String {
    given.as_ref().map(|p| p.display().to_string()).unwrap_or_default()
}

/// How clients reach the brokers.
fn security(given: Option<&Security>) -> Vec<(String, String)> {
    let tls = given.map(|s| (s.ca.clone(), s.identity.clone())).unwrap_or_default();
    let identity = |part: fn(&Identity) -> String| tls.1.as_ref().map(part).unwrap_or_default();
    let (user, password, oauth) = match given.and_then(|s| s.sasl.as_ref()) {
        Some(Sasl::Password { username, password, .. }) => (username.clone(), password.to_string(), None),
        Some(Sasl::OAuth(oauth)) => (String::new(), String::new(), Some(oauth)),
        None => Default::default(),
    };
    let token = |part: fn(&OAuth) -> String| oauth.map(part).unwrap_or_default();
    let all = [
        ("protocol", given.map_or("plaintext", |s| s.protocol.name()).to_owned()),
        ("ca", path(&tls.0)),
        ("certificate", identity(|i| i.certificate.display().to_string())),
        ("key", identity(|i| i.key.display().to_string())),
        ("key_password", identity(|i| secret(&i.key_password))),
        ("sasl.mechanism", given.and_then(|s| s.sasl.as_ref()).map(|s| s.mechanism().to_owned()).unwrap_or_default()),
        ("sasl.username", user),
        ("sasl.password", password),
        ("sasl.oauth.token_endpoint", token(|o| without_login(&o.token_endpoint))),
        ("sasl.oauth.client_id", token(|o| o.client_id.clone())),
        ("sasl.oauth.client_secret", token(|o| o.client_secret.to_string())),
        ("sasl.oauth.scope", token(|o| o.scope.clone().unwrap_or_default())),
        ("sasl.oauth.ca", token(|o| path(&o.ca))),
    ];
    all.into_iter().map(|(key, value)| (format!("security.{key}"), value)).collect()
}

/// Every key with its value as it holds.
fn values(c: &ProcessConfig) -> Vec<(String, String)> {
    let optional = |v: &Option<String>| v.clone().unwrap_or_default();
    let oidc = |of: &dyn Fn(&OidcSection) -> String| c.console.oidc.as_ref().map(of).unwrap_or_default();
    let roles = |of: &BTreeMap<String, String>| of.iter().map(|(v, r)| format!("{v}: {r}")).collect::<Vec<_>>().join("; ");
    let mut all: Vec<(String, String)> = vec![
        ("brokers".into(), c.brokers.clone()),
        ("registry.url".into(), without_login(&c.registry.url)),
        ("registry.username".into(), optional(&c.registry.username)),
        ("registry.password".into(), secret(&c.registry.password)),
        ("registry.token".into(), secret(&c.registry.token)),
        ("registry.ca".into(), path(&c.registry.ca)),
        ("registry.certificate".into(), path(&c.registry.identity.as_ref().map(|i| i.certificate.clone()))),
        ("registry.key".into(), path(&c.registry.identity.as_ref().map(|i| i.key.clone()))),
        ("registry.register".into(), c.registry.register.to_string()),
        ("state.dir".into(), c.state.dir.display().to_string()),
        ("state.cache".into(), c.state.cache.to_string()),
        ("state.record_cache".into(), c.state.record_cache.to_string()),
        ("state.standby".into(), c.state.standby.to_string()),
        ("threads.stream".into(), c.threads.stream.to_string()),
        ("threads.effects".into(), c.threads.effects.to_string()),
        ("slots.ordinal".into(), c.slots.ordinal.map(|n| n.to_string()).unwrap_or_default()),
        ("group.protocol".into(), c.group.protocol.name().into()),
        ("group.session_timeout".into(), c.group.session_timeout.to_string()),
        ("group.transaction_timeout".into(), c.group.transaction_timeout.to_string()),
        ("group.commit_interval".into(), c.group.commit_interval.to_string()),
        ("effects.clock_error".into(), c.effects.clock_error.to_string()),
        ("effects.max_pause".into(), c.effects.max_pause.to_string()),
        ("effects.audit".into(), c.effects.audit.to_string()),
        ("effects.max_open".into(), c.effects.max_open.to_string()),
        ("effects.key_secret".into(), secret(&c.effects.key_secret)),
        ("webhooks.listen".into(), c.webhooks.listen.clone()),
        ("admin.listen".into(), c.admin.listen.clone()),
        ("admin.stores".into(), c.admin.stores.to_string()),
        ("admin.console".into(), c.admin.console.to_string()),
        ("admin.trusted_proxies".into(), list(&c.admin.trusted_proxies)),
        ("console.tokens".into(), c.console.tokens.as_ref().map(|p| p.display().to_string()).unwrap_or_default()),
        ("console.session".into(), c.console.session.to_string()),
        ("console.session_secret".into(), secret(&c.console.session_secret)),
        ("console.oidc.issuer".into(), oidc(&|o| o.issuer.clone())),
        ("console.oidc.client_id".into(), oidc(&|o| o.client_id.clone())),
        ("console.oidc.client_secret".into(), oidc(&|o| secret(&o.client_secret))),
        ("console.oidc.roles".into(), oidc(&|o| roles(&o.roles))),
        ("console.oidc.roles_claim".into(), oidc(&|o| o.roles_claim.clone())),
        ("console.oidc.name_claim".into(), oidc(&|o| o.name_claim.clone())),
        ("console.oidc.scopes".into(), oidc(&|o| o.scopes.clone())),
        ("console.oidc.audience".into(), oidc(&|o| o.audience.clone())),
        ("console.oidc.redirect_url".into(), oidc(&|o| optional(&o.redirect_url))),
        ("console.oidc.ca".into(), oidc(&|o| o.ca.as_ref().map(|p| p.display().to_string()).unwrap_or_default())),
        ("console.members".into(), c.console.members.join(",")),
        ("metrics.tenants".into(), c.metrics.tenants.join(",")),
        ("traces.enabled".into(), c.traces.enabled.to_string()),
        ("traces.endpoint".into(), without_login(&c.traces.endpoint)),
        ("traces.headers".into(), secret(&c.traces.headers)),
        ("traces.sample".into(), c.traces.sample.to_string()),
        ("traces.follow".into(), c.traces.follow.to_string()),
        ("traces.propagate".into(), c.traces.propagate.to_string()),
        ("traces.service".into(), c.traces.service.clone()),
        ("traces.resource".into(), c.traces.resource.clone()),
        ("traces.timeout".into(), c.traces.timeout.to_string()),
        ("traces.protocol".into(), "http/protobuf".into()),
        ("topics.create".into(), c.topics.create.to_string()),
        ("topics.replication".into(), c.topics.replication.to_string()),
        ("topics.partitions".into(), c.topics.partitions.to_string()),
        ("topics.accept_loss".into(), c.topics.accept_loss.join(",")),
        ("topics.accept_reset".into(), c.topics.accept_reset.clone().unwrap_or_default()),
        ("topics.watch".into(), c.topics.watch.to_string()),
        ("stop_within".into(), c.stop_within.to_string()),
    ];
    all.extend(security(c.security.as_ref()));
    all.extend(c.kafka.iter().map(|(name, value)| {
        let value = if hidden(name) { "hidden".to_owned() } else { value.clone() };
        (format!("kafka.{name}"), value)
    }));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// If this broke, a setting would be missing from what people look at when they ask why it holds.
    #[test]
    fn every_setting_is_shown() {
        let known = crate::config::settings::keys();
        let shown: Vec<String> = values(&ProcessConfig::default()).into_iter().map(|(key, _)| key).collect();
        assert!(known.len() > 20, "{known:?}");
        let missing: Vec<_> = known.iter().filter(|k| **k != "kafka" && !shown.contains(k)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(shown.len(), known.len() - 1);
    }

    /// If this broke, a person would look for a setting in the wrong layer, or read a password in a terminal.
    #[test]
    fn each_value_says_where_it_comes_from_and_secrets_stay_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("readback.yaml");
        let text = "brokers: f:1\nstate: { dir: /f, cache: 1 MB }\nregistry: { url: \"http://me:MARK@r\", username: me, password: { env: PW } }\n\
                    kafka: { client.rack: a, sasl.password: MARK }\n";
        std::fs::write(&file, text).unwrap();
        let env = [("READBACK_STATE__DIR", "/x"), ("READBACK_KAFKA__SSL_KEY_PASSWORD", "MARK")];
        let env = env.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let all = provenance(Some(&file), env, &[Flag { name: "--brokers", key: "brokers", value: "c:1" }]).unwrap();
        let of = |key: &str| all.iter().find(|s| s.key == key).map(|s| (s.value.as_str(), s.from.as_str())).unwrap();
        assert_eq!(of("brokers"), ("c:1", "--brokers"));
        assert_eq!(of("state.dir"), ("/x", "READBACK_STATE__DIR"));
        assert_eq!(of("threads.stream"), ("1", "default"));
        assert!(of("state.cache").1.ends_with("readback.yaml:2"), "{:?}", of("state.cache"));
        assert_eq!(of("registry.url").0, "http://hidden@r");
        assert_eq!(of("registry.password").0, "{ env: PW }");
        assert_eq!(of("kafka.client.rack").0, "a");
        assert!(all.iter().all(|s| !s.value.contains("MARK") && !s.from.contains("MARK")), "{all:?}");
        assert_eq!(of("kafka.ssl.key.password"), ("hidden", "READBACK_KAFKA__SSL_KEY_PASSWORD"));
    }
}
