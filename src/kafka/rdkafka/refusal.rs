//! Why a broker could not be talked to, found in the client's own words: its calls only say that there was no answer in time.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{CertificateError, ClientConfig, ClientConnection, Error as TlsError, RootCertStore, Stream};

use crate::kafka::Refusal;

/// How long what was told explains a failed call.
const FRESH: Duration = Duration::from_secs(15);
/// How long a look at a broker's certificate may take.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What the clients of a cluster were last refused for.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The certificates that a broker's must go back to, for a closer look.
    ca: Option<PathBuf>,
    last: Mutex<Option<(Instant, Refusal)>>,
    looked: Mutex<Option<(Instant, String)>>,
}

impl Refusals {
    pub fn new(ca: Option<PathBuf>) -> Self {
        Self { ca, ..Self::default() }
    }

    /// Takes a line of the client's log; the refusal in it, if it is one.
    pub fn note(&self, facility: &str, message: &str) -> Option<Refusal> {
        let refusal = match refusal_of(facility, message)? {
            // Told in two lines, in either order: both take the closer look.
            Refusal::Tls(why) if ["could not be verified", "verify failed"].iter().any(|sign| message.contains(sign)) => {
                Refusal::Tls(self.closer(message).unwrap_or(why))
            }
            other => other,
        };
        self.told(refusal.clone());
        Some(refusal)
    }

    pub fn told(&self, refusal: Refusal) {
        *lock(&self.last) = Some((Instant::now(), refusal));
    }

    /// What explains a failure of now.
    pub fn fresh(&self) -> Option<Refusal> {
        lock(&self.last).as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, refusal)| refusal.clone())
    }

    /// What exactly is wrong with the broker's certificate: the client does not say. A look of our own, now and then.
    fn closer(&self, message: &str) -> Option<String> {
        let mut looked = lock(&self.looked);
        if let Some((_, why)) = looked.as_ref().filter(|(at, _)| at.elapsed() < LOOK_AGAIN) {
            return Some(why.clone());
        }
        let address = message.split("://").nth(1)?.split('/').next()?;
        let why = look(address, self.ca.as_deref())?;
        let why = format!("{address}: {why}");
        *looked = Some((Instant::now(), why.clone()));
        Some(why)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names, certificates, logins: what trying again will not mend by itself.
fn refusal_of(facility: &str, message: &str) -> Option<Refusal> {
    if facility != "FAIL" {
        return None;
    }
    // Behind the address: what happened. The numbers of attempts at its end are the client's own.
    let address = message.split_once("://").map_or(message, |(_, m)| m);
    let what = address.split_once('/').and_then(|(_, m)| m.split_once(": ")).map_or(message, |(_, m)| m);
    let what = what.split(" (after ").next().unwrap_or(what).to_owned();
    match () {
        // The connection broke meanwhile: nobody has refused anything.
        () if message.contains("transport failure") => None,
        () if message.contains("uthentication") => Some(Refusal::Login(what)),
        () if message.contains("SSL") || message.contains("ertificate") => Some(Refusal::Tls(what)),
        () if message.contains("Failed to resolve") => Some(Refusal::Name(what)),
        () => None,
    }
}

/// Connects once and says what is wrong with the certificate that is shown there.
fn look(address: &str, ca: Option<&Path>) -> Option<String> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let (_, refused) = roots.add_parsable_certificates(CertificateDer::pem_file_iter(path).ok()?.flatten());
            if roots.is_empty() {
                return Some(format!("{} holds no certificate that can be used ({refused} refused)", path.display()));
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), ServerName::try_from(host.clone()).ok()?).ok()?;
    let mut tcp = TcpStream::connect_timeout(&address.to_socket_addrs().ok()?.next()?, LOOK).ok()?;
    tcp.set_read_timeout(Some(LOOK)).ok()?;
    tcp.set_write_timeout(Some(LOOK)).ok()?;
    let failed = {
        let mut stream = Stream::new(&mut connection, &mut tcp);
        stream.write(&[]).and_then(|_| stream.flush()).and_then(|()| stream.read(&mut [0])).err()?
    };
    match failed.get_ref()?.downcast_ref::<TlsError>()? {
        TlsError::InvalidCertificate(wrong) => Some(match wrong {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired".to_owned(),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate is not valid yet".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the certificate is for another host than {host}")
            }
            CertificateError::UnknownIssuer => "the certificate comes from an authority that is not trusted".to_owned(),
            other => format!("the certificate is not accepted: {other:?}"),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a wrong password or an expired certificate would look like a broker that is away.
    #[test]
    fn what_refuses_us_is_told_apart() {
        let of = |message: &str| refusal_of("FAIL", message);
        let login =
            "sasl_plaintext://b:1/bootstrap: SASL authentication error: Authentication failed (after 5ms in state AUTH_REQ)";
        assert_eq!(of(login), Some(Refusal::Login("SASL authentication error: Authentication failed".into())));
        assert!(matches!(
            of("ssl://b:1/1: SSL handshake failed: error:0A000086: certificate verify failed"),
            Some(Refusal::Tls(_))
        ));
        assert!(matches!(of("b:1/bootstrap: Failed to resolve 'b:1': Name or service not known"), Some(Refusal::Name(_))));
        assert_eq!(of("b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"), None);
        assert_eq!(refusal_of("BRKMAIN", login), None);
        let broken = "GroupCoordinator: SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure";
        assert_eq!(of(broken), None, "a connection that breaks refuses nothing");
    }

    /// If this broke, an old refusal would explain what it has nothing to do with, or a new one would explain nothing.
    #[test]
    fn the_last_refusal_explains_what_fails_next() {
        let refusals = Refusals::default();
        assert_eq!(refusals.fresh(), None);
        refusals.note("FAIL", "b:1/bootstrap: Failed to resolve 'b:1'");
        assert_eq!(refusals.fresh(), Some(Refusal::Name("Failed to resolve 'b:1'".into())));
    }
}
