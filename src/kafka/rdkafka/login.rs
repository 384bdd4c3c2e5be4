//! The login and certificates as they are now. A thread of the cluster's looks at their sources once a second; clients take what is
//! new at their owner's next call: a password or token in place, a certificate by a new client.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;

use super::refusal::Refusals;
use super::token::{Issuer, Token};
use crate::config::{Identity, Sasl, Secret, SecretRef, Security};
use crate::error::{Error, Fault, Result, codes};
use crate::kafka::{Class, KResult, KafkaFault, Refusal};

/// Between two looks at files and variables.
const LOOK: Duration = Duration::from_secs(1);
/// Between two questions to a command or issuer whose last answer was refused.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// What clients of one cluster sign in with.
pub(super) struct Login {
    security: Security,
    now: Mutex<Now>,
    changed: Condvar,
    /// Of password or token: counts up with each that is new.
    version: AtomicU64,
    /// Of certificates and keys, by their content.
    certificates: AtomicU64,
    refusals: Arc<Refusals>,
}

/// What holds at present.
struct Now {
    password: Option<Secret>,
    key_password: Option<Secret>,
    token: Option<Token>,
    /// Why there is no token.
    no_token: Option<String>,
    /// When what a command or issuer said was refused last.
    refused: Option<Instant>,
    /// Somebody was refused since the last look.
    doubted: bool,
}

/// What a client is handed in place.
pub(super) enum Credentials {
    Password(String, Secret),
    Token(Token),
}

impl Login {
    /// Reads every secret once, so that a start without one is refused with its place, and begins to look after them.
    pub fn new(security: &Security, refusals: Arc<Refusals>) -> Result<Arc<Self>> {
        let resolve = |of: Option<&SecretRef>| of.map(SecretRef::resolve).transpose();
        let password = resolve(password_of(security))?;
        let key_password = resolve(security.identity.as_ref().and_then(|i| i.key_password.as_ref()))?;
        let certificates = fingerprint(security, key_password.as_ref())?;
        let issuer = match &security.sasl {
            Some(Sasl::OAuth(oauth)) => Some(Issuer::new(oauth)?),
            _ => None,
        };
        let now = Now { password, key_password, token: None, no_token: None, refused: None, doubted: false };
        let login = Arc::new(Self {
            security: security.clone(),
            now: Mutex::new(now),
            changed: Condvar::new(),
            version: AtomicU64::new(1),
            certificates: AtomicU64::new(certificates),
            refusals,
        });
        let theirs = Arc::downgrade(&login);
        std::thread::Builder::new()
            .name("kafka-login".into())
            .spawn(move || look_after(&theirs, issuer))
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the thread that renews logins").because(e))?;
        Ok(login)
    }

    /// Puts it into a client's settings.
    pub fn put(&self, c: &mut ClientConfig) {
        let s = &self.security;
        c.set("security.protocol", s.protocol.name());
        if s.protocol.has_tls() {
            c.set("ssl.endpoint.identification.algorithm", "https").set("enable.ssl.certificate.verification", "true");
        }
        let mut file = |key: &str, path: &Path| {
            let _ = c.set(key, path.display().to_string());
        };
        if let Some(ca) = &s.ca {
            file("ssl.ca.location", ca);
        }
        if let Some(identity) = &s.identity {
            file("ssl.certificate.location", &identity.certificate);
            file("ssl.key.location", &identity.key);
        }
        let now = self.now();
        if let Some(password) = &now.key_password {
            c.set("ssl.key.password", password.expose());
        }
        match &s.sasl {
            Some(sasl @ Sasl::Password { username, .. }) => {
                let password = now.password.as_ref().map_or("", Secret::expose);
                c.set("sasl.mechanism", sasl.mechanism()).set("sasl.username", username).set("sasl.password", password);
            }
            Some(sasl) => {
                c.set("sasl.mechanism", sasl.mechanism());
            }
            None => {}
        }
    }

    /// Of what clients are handed in place.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Of what only a new client takes.
    pub fn certificates(&self) -> u64 {
        self.certificates.load(Ordering::Acquire)
    }

    /// What a client is to sign in with from now on.
    pub fn credentials(&self) -> Option<Credentials> {
        let now = self.now();
        match &self.security.sasl {
            Some(Sasl::Password { username, .. }) => Some(Credentials::Password(username.clone(), now.password.clone()?)),
            Some(Sasl::OAuth(_)) => now.token.clone().map(Credentials::Token),
            None => None,
        }
    }

    /// Waits until there is a token, where one is needed.
    pub fn ready(&self, limit: Duration) -> KResult<()> {
        if !matches!(self.security.sasl, Some(Sasl::OAuth(_))) {
            return Ok(());
        }
        let until = Instant::now() + limit;
        let mut now = self.now();
        while now.token.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || now.no_token.is_some() {
                let why = now.no_token.clone().unwrap_or_else(|| "the issuer does not answer".into());
                let fault = KafkaFault::new(Class::Retry, "fetching a token for", "the brokers", &why);
                return Err(fault.refused(Some(Refusal::Token(why))));
            }
            now = self.changed.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// A broker refused it: look again, also where an answer is kept otherwise.
    pub fn doubt(&self) {
        self.now().doubted = true;
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look at passwords and certificates. What can't be read stays as it was.
    fn look(&self) {
        let doubted = {
            let mut now = self.now();
            let due = std::mem::take(&mut now.doubted) && now.refused.is_none_or(|at| at.elapsed() >= ASK_AGAIN);
            if due {
                now.refused = Some(Instant::now());
            }
            due
        };
        let identity = self.security.identity.as_ref();
        let read = |of: Option<&SecretRef>| -> Option<Secret> {
            let of = of?;
            if doubted {
                of.forget();
            }
            of.resolve().inspect_err(|error| tracing::warn!(%error, "a secret can't be read again; the old one stays")).ok()
        };
        let (password, key_password) = (read(password_of(&self.security)), read(identity.and_then(|i| i.key_password.as_ref())));
        let mut now = self.now();
        if key_password.is_some() {
            now.key_password = key_password;
        }
        if password.is_some() && password != now.password {
            now.password = password;
            self.version.fetch_add(1, Ordering::AcqRel);
            tracing::info!("the password for the brokers has changed; clients sign in with the new one");
        }
        match fingerprint(&self.security, now.key_password.as_ref()) {
            Ok(seen) if seen != self.certificates() => {
                self.certificates.store(seen, Ordering::Release);
                tracing::info!("a certificate for the brokers has changed; clients are made anew");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a certificate can't be read again; clients stay as they are"),
        }
    }

    /// Takes the issuer's answer.
    fn answered(&self, answer: Result<Token>) {
        let mut now = self.now();
        match answer {
            Ok(token) => {
                (now.token, now.no_token) = (Some(token), None);
                self.version.fetch_add(1, Ordering::AcqRel);
            }
            Err(error) => {
                let why = error.source.as_ref().map_or_else(|| error.doing.clone(), |cause| format!("{}: {cause}", error.doing));
                self.refusals.told(Refusal::Token(why.clone()));
                if now.no_token.replace(why).is_none() {
                    tracing::warn!(%error, "there is no new token for the brokers");
                }
            }
        }
        drop(now);
        self.changed.notify_all();
    }

    /// Whether what the issuer gave was refused by a broker, and a new one may be asked for.
    fn token_is_doubted(&self) -> bool {
        let mut now = self.now();
        let due = now.doubted && now.refused.is_none_or(|at| at.elapsed() >= ASK_AGAIN);
        if due {
            (now.doubted, now.refused) = (false, Some(Instant::now()));
        }
        due
    }
}

/// Never a value.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({:?})", self.security.protocol)
    }
}

/// Until the last client is gone.
fn look_after(login: &Weak<Login>, mut issuer: Option<Issuer>) {
    loop {
        let Some(login) = login.upgrade() else { return };
        match &mut issuer {
            Some(issuer) => {
                if login.token_is_doubted() || issuer.is_due() {
                    login.answered(issuer.ask());
                }
            }
            None => login.look(),
        }
        if issuer.is_some() && login.security.protocol.has_tls() {
            login.look();
        }
        drop(login);
        std::thread::sleep(if issuer.is_some() { LOOK / 4 } else { LOOK });
    }
}

fn password_of(security: &Security) -> Option<&SecretRef> {
    match &security.sasl {
        Some(Sasl::Password { password, .. }) => Some(password),
        _ => None,
    }
}

/// The content of every certificate and key. A file that is only touched is not a new one.
fn fingerprint(security: &Security, key_password: Option<&Secret>) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    let identity = security.identity.as_ref().map(|Identity { certificate, key, .. }| [certificate, key]);
    for path in security.ca.iter().chain(identity.into_iter().flatten()) {
        let content = std::fs::read(path).map_err(|e| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading {}", path.display()))
                .because(e)
                .next("check the path under security:, and that this user may read it")
        })?;
        content.hash(&mut hasher);
    }
    key_password.map(Secret::expose).hash(&mut hasher);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{PasswordMechanism, Protocol};

    /// If this broke, a rotated password or certificate would need a restart; or a file that was only touched would make every client anew.
    #[test]
    fn what_changed_is_seen_and_what_is_gone_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (password, ca) = (dir.path().join("password"), dir.path().join("ca.pem"));
        std::fs::write(&password, "one").unwrap();
        std::fs::write(&ca, "a").unwrap();
        let sasl = Sasl::Password {
            mechanism: PasswordMechanism::ScramSha256,
            username: "me".into(),
            password: SecretRef::File(password.clone()),
        };
        let security = Security { protocol: Protocol::SaslSsl, ca: Some(ca.clone()), identity: None, sasl: Some(sasl) };
        let login = Login::new(&security, Arc::default()).unwrap();
        let said = || match login.credentials().unwrap() {
            Credentials::Password(_, secret) => secret.expose().to_owned(),
            Credentials::Token(_) => unreachable!("there is no issuer"),
        };
        let (version, certificates) = (login.version(), login.certificates());
        std::fs::write(&ca, "a").unwrap();
        login.look();
        assert_eq!((login.version(), login.certificates(), said().as_str()), (version, certificates, "one"));
        std::fs::write(&password, "two\n").unwrap();
        login.look();
        assert!(login.version() > version && said() == "two" && login.certificates() == certificates);
        std::fs::remove_file(&password).unwrap();
        std::fs::write(&ca, "b").unwrap();
        login.look();
        assert!(said() == "two" && login.certificates() != certificates);
    }
}
