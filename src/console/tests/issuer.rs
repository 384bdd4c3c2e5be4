//! An issuer that speaks the real protocol over HTTP and signs with real keys: discovery, keys, authorization with PKCE, token. Each of
//! its rules can be broken on purpose.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hmac::Mac;
use openidconnect::core::{CoreEdDsaPrivateSigningKey, CoreJwsSigningAlgorithm};
use openidconnect::{JsonWebKeyId, PkceCodeChallenge, PkceCodeVerifier, PrivateSigningKey};
use serde_json::{Value, json};

use crate::config::{OidcSection, Secret, SecretRef};
use crate::console::people::mac;
use crate::console::search::pairs;
use crate::time::{Clock, ManualClock};

pub const CLIENT: &str = "readback-console";
/// A character that forms must encode stands in it.
pub const SECRET: &str = "s3cret/for:tests";

/// How a token is signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// By the newest key that the issuer publishes.
    Key,
    /// By a key that it does not publish, under the name of one that it does.
    Stranger,
    /// Not at all.
    None,
    /// By what the client's secret can sign.
    Secret,
}

/// An account and what is broken.
pub struct Says {
    pub claims: Value,
    pub sign: Sign,
    /// Changes the claims of a token after all else.
    pub twist: fn(&mut Value),
}

struct Shared {
    url: String,
    clock: Arc<ManualClock>,
    keys: Mutex<Vec<u8>>,
    says: Mutex<Says>,
    codes: Mutex<HashMap<String, HashMap<String, String>>>,
    described: AtomicUsize,
}

/// A running issuer.
pub struct Issuer {
    pub url: String,
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

impl Issuer {
    /// On this address; port 0 takes a free one.
    pub fn start(at: SocketAddr, clock: Arc<ManualClock>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind(at)).expect("listens");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let claims = json!({ "sub": "7", "preferred_username": "mira@acme", "groups": ["sre"] });
        let shared = Arc::new(Shared {
            url: url.clone(),
            clock,
            keys: Mutex::new(vec![1]),
            says: Mutex::new(Says { claims, sign: Sign::Key, twist: |_| {} }),
            codes: Mutex::default(),
            described: AtomicUsize::new(0),
        });
        let app = axum::Router::new()
            .route("/.well-known/openid-configuration", get(describe))
            .route("/keys", get(keys))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(shared.clone());
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { url, shared, _runtime: runtime }
    }

    /// How a console is configured for it.
    pub fn section(&self) -> OidcSection {
        section(&self.url)
    }

    /// Changes what it says.
    pub fn says(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.shared.says.lock().expect("held"));
    }

    /// Somebody else signs in next.
    pub fn account(&self, sub: &str, name: &str, groups: &[&str]) {
        self.says(|s| s.claims = json!({ "sub": sub, "preferred_username": name, "groups": groups }));
    }

    /// Signs with a new key from now on; the old one is no longer published.
    pub fn rotate(&self) {
        let mut keys = self.shared.keys.lock().expect("held");
        let next = keys.iter().max().copied().unwrap_or_default() + 1;
        *keys = vec![next];
    }

    /// How often it was asked to describe itself.
    pub fn described(&self) -> usize {
        self.shared.described.load(Ordering::Relaxed)
    }

    /// A token for this audience, as it is given to a program.
    pub fn bearer(&self, audience: &str) -> String {
        self.shared.token(audience, None)
    }

    /// What a browser gets at the address of an authorization: where it is sent back to.
    pub fn visit(&self, url: &str) -> String {
        let (path, query) = url.strip_prefix(&self.url).and_then(|p| p.split_once('?')).expect("an address of ours");
        assert_eq!(path, "/authorize");
        let asked: HashMap<String, String> = pairs(query).into_iter().collect();
        self.shared.authorize(&asked)
    }
}

/// How a console is configured for an issuer.
pub fn section(issuer: &str) -> OidcSection {
    let roles = [("sre", "operator"), ("leads", "approver"), ("guests", "viewer")];
    OidcSection {
        issuer: issuer.to_owned(),
        client_id: CLIENT.to_owned(),
        client_secret: Some(SecretRef::Literal(Secret::new(SECRET))),
        roles: roles.into_iter().map(|(v, r)| (v.to_owned(), r.to_owned())).collect(),
        roles_claim: "groups".to_owned(),
        name_claim: "preferred_username".to_owned(),
        scopes: "openid profile groups".to_owned(),
        audience: CLIENT.to_owned(),
        redirect_url: None,
        ca: None,
    }
}

fn key(n: u8) -> CoreEdDsaPrivateSigningKey {
    // PKCS#8 of an Ed25519 key whose seed is the number.
    let mut der = crate::intents::unhex("302e020100300506032b657004220420").expect("hex");
    der.extend([n; 32]);
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", base64(&der, true));
    CoreEdDsaPrivateSigningKey::from_ed25519_pem(&pem, Some(JsonWebKeyId::new(format!("key-{n}")))).expect("a key")
}

fn base64(bytes: &[u8], padded: bool) -> String {
    let letters: &[u8; 64] = match padded {
        true => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        false => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
    };
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let n = (0..3).fold(0_u32, |n, i| n << 8 | u32::from(three.get(i).copied().unwrap_or_default()));
        let mark = |i: usize| char::from(letters[(n >> (18 - 6 * i) & 63) as usize]);
        (0..4).for_each(|i| {
            if i <= three.len() {
                text.push(mark(i))
            } else if padded {
                text.push('=')
            }
        });
    }
    text
}

fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn describe(State(s): State<Arc<Shared>>) -> Response {
    s.described.fetch_add(1, Ordering::Relaxed);
    let at = |path: &str| format!("{}{path}", s.url);
    json(&json!({
        "issuer": s.url, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"), "jwks_uri": at("/keys"),
        "end_session_endpoint": at("/end"), "response_types_supported": ["code"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["EdDSA"],
    }))
}

async fn keys(State(s): State<Arc<Shared>>) -> Response {
    let all = s.keys.lock().expect("held").clone();
    json(&json!({ "keys": all.into_iter().map(|n| json!(key(n).as_verification_key())).collect::<Vec<_>>() }))
}

async fn authorize(State(s): State<Arc<Shared>>, Query(asked): Query<HashMap<String, String>>) -> Response {
    (StatusCode::FOUND, [(header::LOCATION, s.authorize(&asked))]).into_response()
}

async fn token(State(s): State<Arc<Shared>>, headers: axum::http::HeaderMap, body: String) -> Response {
    let form: HashMap<String, String> = pairs(&body).into_iter().collect();
    let known = s.codes.lock().expect("held").remove(&form["code"]);
    // Both parts are encoded as forms are (RFC 6749, 2.3.1).
    let basic = format!("Basic {}", base64(format!("{CLIENT}:s3cret%2Ffor%3Atests").as_bytes(), true));
    let us = headers.get(header::AUTHORIZATION).is_some_and(|v| v.as_bytes() == basic.as_bytes());
    let proved = |asked: &HashMap<String, String>| {
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(form["code_verifier"].clone()));
        asked["code_challenge"] == challenge.as_str() && asked["redirect_uri"] == form["redirect_uri"]
    };
    match known.filter(|asked| us && form["grant_type"] == "authorization_code" && proved(asked)) {
        Some(asked) => json(&json!({
            "access_token": "opaque", "token_type": "Bearer", "expires_in": 60, "id_token": s.token(CLIENT, Some(&asked["nonce"])),
        })),
        None => (StatusCode::BAD_REQUEST, json(&json!({ "error": "invalid_grant" }))).into_response(),
    }
}

impl Shared {
    fn authorize(&self, asked: &HashMap<String, String>) -> String {
        assert_eq!((asked["client_id"].as_str(), asked["response_type"].as_str()), (CLIENT, "code"));
        assert_eq!(asked["code_challenge_method"], "S256");
        assert!(asked["scope"].split(' ').any(|s| s == "openid") && asked["nonce"].len() >= 32, "{asked:?}");
        let code = uuid::Uuid::new_v4().simple().to_string();
        self.codes.lock().expect("held").insert(code.clone(), asked.clone());
        format!("{}?code={code}&state={}&iss={}", asked["redirect_uri"], asked["state"], crate::console::search::escape(&self.url))
    }

    fn token(&self, audience: &str, nonce: Option<&str>) -> String {
        let says = self.says.lock().expect("held");
        let now = self.clock.now().wall.0 / 1_000;
        let mut claims = says.claims.clone();
        for (name, value) in [
            ("iss", json!(self.url)),
            ("aud", json!(audience)),
            ("iat", json!(now)),
            ("exp", json!(now + 600)),
            ("nonce", json!(nonce)),
        ] {
            claims[name] = value;
        }
        (says.twist)(&mut claims);
        let newest = self.keys.lock().expect("held").last().copied().expect("a key");
        let alg = match says.sign {
            Sign::None => "none",
            Sign::Secret => "HS256",
            _ => "EdDSA",
        };
        let head = json!({ "alg": alg, "typ": "JWT", "kid": format!("key-{newest}") });
        let text = format!("{}.{}", base64(head.to_string().as_bytes(), false), base64(claims.to_string().as_bytes(), false));
        let by = |n: u8| key(n).sign(&CoreJwsSigningAlgorithm::EdDsa, text.as_bytes()).expect("signs");
        let signature = match says.sign {
            Sign::Key => by(newest),
            Sign::Stranger => by(200),
            Sign::None => Vec::new(),
            Sign::Secret => mac(SECRET.as_bytes(), &text).finalize().into_bytes().to_vec(),
        };
        format!("{text}.{}", base64(&signature, false))
    }
}
