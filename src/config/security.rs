//! How clients reach the brokers: in the clear or by TLS, signed in or not. What contradicts itself is refused where it stands.

use std::path::PathBuf;

use crate::error::codes;

use super::SecretRef;
use super::yaml::{Diagnostic, Diagnostics, Fields, Key, Node, Shape, Site, Type};

/// How clients reach the brokers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Security {
    /// Whether there is TLS, and a login.
    pub protocol: Protocol,
    /// File of the certificates (PEM) that a broker's must go back to; without it those of the system.
    pub ca: Option<PathBuf>,
    /// Our own certificate, where brokers ask for one.
    pub identity: Option<Identity>,
    /// The login; there is one exactly where the protocol has one.
    pub sasl: Option<Sasl>,
}

/// Kafka's `security.protocol`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// In the clear.
    Plaintext,
    /// TLS.
    Ssl,
    /// A login in the clear: for a network that nobody else reads.
    SaslPlaintext,
    /// A login over TLS.
    SaslSsl,
}

impl Protocol {
    const ALL: [(&'static str, Protocol); 4] = [
        ("plaintext", Protocol::Plaintext),
        ("ssl", Protocol::Ssl),
        ("sasl_plaintext", Protocol::SaslPlaintext),
        ("sasl_ssl", Protocol::SaslSsl),
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Plaintext => "plaintext",
            Protocol::Ssl => "ssl",
            Protocol::SaslPlaintext => "sasl_plaintext",
            Protocol::SaslSsl => "sasl_ssl",
        }
    }
    /// Whether the connection is encrypted.
    pub fn has_tls(self) -> bool {
        matches!(self, Protocol::Ssl | Protocol::SaslSsl)
    }
    fn has_login(self) -> bool {
        matches!(self, Protocol::SaslPlaintext | Protocol::SaslSsl)
    }
}

/// A certificate of ours and its key, files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The password that the key is encrypted with.
    pub key_password: Option<SecretRef>,
}

/// A login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sasl {
    /// User and password.
    Password {
        /// How the password is proved.
        mechanism: PasswordMechanism,
        /// The user.
        username: String,
        /// The password.
        password: SecretRef,
    },
    /// A token from an issuer.
    OAuth(OAuth),
}

impl Sasl {
    /// Kafka's `sasl.mechanism`.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Sasl::Password { mechanism: PasswordMechanism::Plain, .. } => "PLAIN",
            Sasl::Password { mechanism: PasswordMechanism::ScramSha256, .. } => "SCRAM-SHA-256",
            Sasl::Password { mechanism: PasswordMechanism::ScramSha512, .. } => "SCRAM-SHA-512",
            Sasl::OAuth(_) => "OAUTHBEARER",
        }
    }
}

/// How a password is proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PasswordMechanism {
    /// It is sent as it is.
    Plain,
    /// It never leaves.
    ScramSha256,
    /// It never leaves.
    ScramSha512,
}

/// Tokens by the client-credentials grant (RFC 6749, 4.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OAuth {
    /// `https://issuer.internal/token`; `http://` on this host alone.
    pub token_endpoint: String,
    /// Who asks.
    pub client_id: String,
    /// The proof.
    pub client_secret: SecretRef,
    /// What is asked for, where the issuer wants that said.
    pub scope: Option<String>,
    /// File of the certificates (PEM) that the issuer's must go back to; without it those of the system.
    pub ca: Option<PathBuf>,
}

pub(super) static SECURITY: Shape = Shape {
    name: "Security",
    doc: "How clients reach the brokers. Host names are always checked.",
    keys: &[
        Key::new(
            "protocol",
            Type::Word(&["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]),
            "default: sasl_ssl with a login, else ssl",
        ),
        Key::new("ca", Type::Text, "file of certificates (PEM) that the brokers' must go back to; default the system's"),
        Key::new("certificate", Type::Text, "file of our own certificate (PEM), where brokers ask for one"),
        Key::new("key", Type::Text, "file of its private key (PEM)"),
        Key::new("key_password", Type::Secret, "password of an encrypted key, by reference"),
        Key::new("sasl", Type::Map(&SASL), "the login"),
    ],
};

static SASL: Shape = Shape {
    name: "Sasl",
    doc: "The login at the brokers.",
    keys: &[
        Key::required(
            "mechanism",
            Type::Word(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]),
            "how we prove who we are",
        ),
        Key::new("username", Type::Text, "the user, for PLAIN and SCRAM"),
        Key::new("password", Type::Secret, "the password, by reference"),
        Key::new("oauth", Type::Map(&OAUTH), "where tokens come from, for OAUTHBEARER"),
    ],
};

static OAUTH: Shape = Shape {
    name: "OAuth",
    doc: "Tokens by the client-credentials grant; one is fetched well before the last one ends.",
    keys: &[
        Key::required("token_endpoint", Type::Text, "https://host/path; http:// on this host alone"),
        Key::required("client_id", Type::Text, "who asks"),
        Key::required("client_secret", Type::Secret, "the proof, by reference"),
        Key::new("scope", Type::Text, "what is asked for, where the issuer wants it"),
        Key::new("ca", Type::Text, "file of certificates (PEM) that the issuer's must go back to; default the system's"),
    ],
};

/// Reads the section; `None` where something is wrong, which is reported.
pub(super) fn read(f: &Fields<'_>, d: &mut Diagnostics) -> Option<Security> {
    let login = f.get("sasl");
    let protocol = match f.get("protocol") {
        Some(node) => node.one_of(&Protocol::ALL, d)?,
        None if login.is_some() => Protocol::SaslSsl,
        None => Protocol::Ssl,
    };
    let given = |keys: &[&str]| keys.iter().find_map(|k| f.get(k));
    if let Some(node) = given(&["ca", "certificate", "key"]).filter(|_| !protocol.has_tls()) {
        undrawn(d, codes::BAD_VALUE, &node.at, format!("a certificate is for TLS, and the protocol is {}", protocol.name()))
            .note("set protocol: ssl, or sasl_ssl with a login");
    }
    match login {
        Some(node) if !protocol.has_login() => {
            undrawn(
                d,
                codes::BAD_VALUE,
                &node.at,
                format!("a login is given, and the protocol is {}, which has none", protocol.name()),
            )
            .note("set protocol: sasl_ssl, or leave the login out");
        }
        None if protocol.has_login() => {
            undrawn(d, codes::MISSING_KEY, &f.node.at, format!("the protocol is {}, and no login is given", protocol.name()))
                .note("add sasl: { mechanism, username, password }");
        }
        _ => {}
    }
    if protocol.has_tls() && cfg!(not(any(feature = "ssl", feature = "ssl-vendored"))) {
        undrawn(d, codes::BAD_VALUE, &f.get("protocol").unwrap_or(f.node).at, "this build has no TLS")
            .note("build with --features ssl (OpenSSL of the system) or ssl-vendored");
    }
    let sasl = login.map(|node| sasl(node, d));
    let (ca, identity) = (f.get("ca").and_then(|n| n.path(d)), identity(f, d));
    match sasl {
        Some(None) => None,
        sasl => Some(Security { protocol, ca, identity, sasl: sasl.flatten() }),
    }
}

/// Reports what is wrong at a place whose line is not drawn: a secret may be written out there.
pub(super) fn undrawn<'d>(
    d: &'d mut Diagnostics,
    code: crate::error::Code,
    at: &Site,
    what: impl std::fmt::Display,
) -> &'d mut Diagnostic {
    d.general(code, format!("{at:?}: {what}"))
}

/// The certificate and its key: both or none.
pub(super) fn identity(f: &Fields<'_>, d: &mut Diagnostics) -> Option<Identity> {
    let one = f.get("certificate").or(f.get("key")).or(f.get("key_password"))?;
    if f.get("certificate").is_none() || f.get("key").is_none() {
        undrawn(d, codes::MISSING_KEY, &one.at, "a certificate of ours needs both `certificate` and `key`");
        return None;
    }
    let key_password = f.get("key_password").and_then(|n| n.secret(d));
    Some(Identity { certificate: f.get("certificate")?.path(d)?, key: f.get("key")?.path(d)?, key_password })
}

fn sasl(node: &Node, d: &mut Diagnostics) -> Option<Sasl> {
    use PasswordMechanism::{Plain, ScramSha256, ScramSha512};
    let f = SASL.read(node, d)?;
    let words =
        [("PLAIN", Some(Plain)), ("SCRAM-SHA-256", Some(ScramSha256)), ("SCRAM-SHA-512", Some(ScramSha512)), ("OAUTHBEARER", None)];
    let (wants, other): (&[&str], &[&str]) = match f.get("mechanism")?.one_of(&words, d)? {
        Some(_) => (&["username", "password"], &["oauth"]),
        None => (&["oauth"], &["username", "password"]),
    };
    let mechanism = f.text("mechanism", d)?;
    for key in wants.iter().filter(|k| f.get(k).is_none()) {
        undrawn(d, codes::MISSING_KEY, &node.at, format!("`{key}` is missing: {mechanism} needs it"));
    }
    for node in other.iter().filter_map(|k| f.get(k)) {
        undrawn(d, codes::BAD_VALUE, &node.at, format!("{mechanism} takes no such thing"))
            .note("leave it out, or choose the mechanism it belongs to");
    }
    match f.get("mechanism")?.one_of(&words, d)? {
        Some(mechanism) => {
            Some(Sasl::Password { mechanism, username: f.text("username", d)?, password: f.get("password")?.secret(d)? })
        }
        None => oauth(f.get("oauth")?, d).map(Sasl::OAuth),
    }
}

fn oauth(node: &Node, d: &mut Diagnostics) -> Option<OAuth> {
    let f = OAUTH.read(node, d)?;
    let endpoint = f.get("token_endpoint").and_then(|n| {
        let text = n.text(d)?;
        match is_safe(&text) {
            true => Some(text),
            false => n.wrong("an address that begins with https:// (http:// on this host alone) and holds no login", d),
        }
    });
    let client_id = f.text("client_id", d);
    let client_secret = f.get("client_secret").and_then(|n| n.secret(d));
    let (scope, ca) = (f.text("scope", d), f.get("ca").and_then(|n| n.path(d)));
    Some(OAuth { token_endpoint: endpoint?, client_id: client_id?, client_secret: client_secret?, scope, ca })
}

/// Whether a client's secret may be sent there.
fn is_safe(endpoint: &str) -> bool {
    let Ok(uri) = endpoint.parse::<http::Uri>() else { return false };
    let Some(authority) = uri.authority().filter(|a| !a.as_str().contains('@')) else { return false };
    let here = matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]");
    match uri.scheme_str() {
        Some("https") => true,
        Some("http") => here,
        _ => false,
    }
}

/// Raw settings of the client that `security` has a word for: given twice, nobody could say which one holds. Switching off what it
/// promises is refused as well.
const DOUBLED: &[&str] = &[
    "security.protocol",
    "sasl.",
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.key.",
    "ssl.keystore.",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "enable.sasl.oauthbearer.unsecure.jwt",
];

/// Reports raw settings that stand beside the section.
pub(super) fn refuse_doubled(root: &Fields<'_>, d: &mut Diagnostics) {
    let Some(raw) = root.get("kafka").and_then(|n| n.map(d)) else { return };
    for (name, _) in raw.iter().filter(|(name, _)| DOUBLED.iter().any(|own| name.text.starts_with(own))) {
        undrawn(d, codes::BAD_VALUE, &name.at, format!("`{}` stands beside `security`, which says that too", name.text))
            .note("keep one of them; what `security` has no key for may stay under kafka:");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{ProcessConfig, load};

    fn given(yaml: &str) -> Result<ProcessConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("readback.yaml");
        std::fs::write(&file, yaml).unwrap();
        load(Some(&file), [], &[]).map_err(|e| e.source.unwrap().to_string())
    }

    /// If this broke, a login would go over the wire in the clear where nobody said so.
    #[test]
    fn what_is_not_said_is_the_safe_way() {
        let security = |yaml: &str| given(yaml).unwrap().security.unwrap();
        assert_eq!(security("security: { ca: ca.pem }").protocol, Protocol::Ssl);
        let login = security("security: { sasl: { mechanism: SCRAM-SHA-512, username: me, password: { env: PW } } }");
        assert_eq!((login.protocol, login.sasl.unwrap().mechanism()), (Protocol::SaslSsl, "SCRAM-SHA-512"));
        assert!(given("brokers: b:1").unwrap().security.is_none());
    }

    /// If this broke, one of two contradicting settings would win in silence.
    #[test]
    fn contradictions_are_refused_at_their_place() {
        let login = "sasl: { mechanism: PLAIN, username: me, password: { env: PW } }";
        let cases = [
            ("security: { protocol: plaintext, ca: a.pem }", "a certificate is for TLS"),
            ("security: { certificate: a.pem }", "needs both `certificate` and `key`"),
            ("security: { protocol: sasl_ssl }", "no login is given"),
            (&format!("security: {{ protocol: ssl, {login} }}"), "which has none"),
            (&format!("security: {{ {login} }}\nkafka: {{ sasl.password: x }}"), "stands beside `security`"),
            ("security: { ca: a.pem }\nkafka: { enable.ssl.certificate.verification: \"false\" }", "stands beside `security`"),
            ("security: { sasl: { mechanism: PLAIN, username: me, password: hunter2 } }", "never written out"),
            ("security: { sasl: { mechanism: PLAIN, password: hunter2 } }", "`username` is missing: PLAIN needs it"),
            ("security: { sasl: { username: me, password: hunter2 } }", "`mechanism` is missing"),
            ("security: { sasl: { mechanism: PLANE, username: me, password: hunter2 } }", "`PLANE`"),
            ("security: { sasl: { mechanism: PLAIN, username: me, pasword: hunter2 } }", "did you mean `password`?"),
            ("securty: { sasl: { mechanism: PLAIN, username: me, password: hunter2 } }", "did you mean `security`?"),
            ("registry: { url: \"ftp://r\", username: me, password: hunter2 }", "an address such as"),
            ("kafka: { sasl.password: hunter2, client.rack: [a] }", "expected"),
            ("security: { sasl: { mechanism: PLAIN, username: me } }", "`password` is missing: PLAIN needs it"),
            (
                "security: { sasl: { mechanism: OAUTHBEARER, username: me, oauth: { token_endpoint: \"https://i/t\", client_id: a, client_secret: { env: S } } } }",
                "takes no such thing",
            ),
            (
                "security: { sasl: { mechanism: OAUTHBEARER, oauth: { token_endpoint: \"http://issuer/t\", client_id: a, client_secret: { env: S } } } }",
                "begins with https://",
            ),
            ("registry: { url: \"http://r\", ca: a.pem }", "begins with https://"),
            ("registry: { url: \"http://r\", username: a, password: { env: P }, token: { env: T } }", "two logins"),
        ];
        for (yaml, part) in cases {
            let shown = given(yaml).expect_err(yaml);
            assert!(shown.contains(part) && shown.contains("readback.yaml:") && !shown.contains("hunter2"), "{yaml}\n{shown}");
        }
    }

    /// If this broke, a chart could not set a login without a file of its own.
    #[test]
    fn variables_reach_the_login() {
        let env = [
            ("READBACK_SECURITY__SASL__MECHANISM", "SCRAM-SHA-256"),
            ("READBACK_SECURITY__SASL__USERNAME", "me"),
            ("READBACK_SECURITY__SASL__PASSWORD__FILE", "/run/secrets/sasl"),
        ];
        let config = load(None, env.map(|(k, v)| (k.to_owned(), v.to_owned())), &[]).unwrap();
        let Some(Sasl::Password { password, .. }) = config.security.unwrap().sasl else { panic!("a password") };
        assert_eq!(password, SecretRef::File("/run/secrets/sasl".into()));
    }
}
