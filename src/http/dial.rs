//! Making a connection: name, address rules, socket, TLS. Nothing of a request exists yet, so whatever fails here is "not sent".

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Destination, NotSent};
use crate::error::{Error, Fault, Result, codes};

/// The addresses of a name.
pub type Resolved = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Turns names into addresses; asked for every call, so that a changed record is seen.
pub trait Resolver: Send + Sync {
    /// The addresses of `host`, with `port`.
    fn resolve(&self, host: String, port: u16) -> Resolved;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: String, port: u16) -> Resolved {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// A base URL in its parts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Origin {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Origin {
    /// Reads `https://orders.internal:8443`; nothing else may stand in it.
    pub(super) fn parse(base_url: &str) -> Option<Origin> {
        let uri: http::Uri = base_url.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Some(Origin { tls, host, port })
    }

    /// What goes into the `Host` header.
    pub(super) fn host_header(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// The host of a base URL; `None` where it is anything but scheme, host and port.
pub fn host_of(base_url: &str) -> Option<String> {
    Origin::parse(base_url).map(|o| o.host)
}

/// The addresses that `to` may be called at; `Forbidden` where only private addresses are left and those are not allowed.
pub(super) async fn addresses(
    origin: &Origin,
    to: &Destination,
    resolver: &dyn Resolver,
) -> std::result::Result<Vec<SocketAddr>, NotSent> {
    let found = match origin.host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, origin.port)],
        Err(_) => resolver.resolve(origin.host.clone(), origin.port).await.map_err(|_| NotSent::Unresolved)?,
    };
    if found.is_empty() {
        return Err(NotSent::Unresolved);
    }
    let allowed: Vec<_> = found.into_iter().filter(|a| to.private || is_public(a.ip())).collect();
    if allowed.is_empty() { Err(NotSent::Forbidden) } else { Ok(allowed) }
}

/// Connects to the first address that answers; the time left is shared by the addresses that are left.
pub(super) async fn connect(addresses: &[SocketAddr], until: Instant) -> std::result::Result<TcpStream, NotSent> {
    for (i, address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - i).unwrap_or(u32::MAX).max(1);
        if let Ok(Ok(tcp)) = timeout(share.max(Duration::from_millis(1)), TcpStream::connect(address)).await {
            let _ = tcp.set_nodelay(true);
            return Ok(tcp);
        }
    }
    Err(NotSent::Unconnected)
}

/// Whether an address belongs to the public network: not this host, not a private network, not a link's metadata service.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(|| is_public_v6(v6), is_public_v4),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, ..] = ip.octets();
    let shared = a == 100 && (64..128).contains(&b);
    !(a == 0 || a >= 240 || shared || ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_multicast())
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let first = ip.segments()[0];
    // Translated IPv4 (64:ff9b::/96, 2002::/16) could hide a private address.
    let translated = first == 0x2002 || ip.segments()[..2] == [0x64, 0xff9b];
    let unique_local = first & 0xfe00 == 0xfc00;
    let link_local = first & 0xffc0 == 0xfe80;
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || unique_local || link_local || translated)
}

/// The name that a certificate must hold.
pub(super) fn server_name(host: &str) -> std::result::Result<ServerName<'static>, NotSent> {
    ServerName::try_from(host.to_owned()).map_err(|_| NotSent::Tls)
}

/// What is offered to the other side of a TLS connection: the two versions of HTTP, or one of them alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offer {
    One,
    Either,
    Two,
}

/// What TLS calls HTTP/2.
pub(super) const HTTP_2: &[u8] = b"h2";

/// TLS with the public roots and, where given, those of an extra authority; a configuration for each offer.
pub(super) struct Tls {
    one: Arc<ClientConfig>,
    either: Arc<ClientConfig>,
    two: Arc<ClientConfig>,
}

impl Tls {
    pub(super) fn new(extra_ca: Option<&Path>) -> Result<Self> {
        let config = tls_config(extra_ca)?;
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self { one: offering(&[b"http/1.1"]), either: offering(&[HTTP_2, b"http/1.1"]), two: offering(&[HTTP_2]) })
    }

    pub(super) fn offering(&self, offer: Offer) -> Arc<ClientConfig> {
        Arc::clone(match offer {
            Offer::One => &self.one,
            Offer::Either => &self.either,
            Offer::Two => &self.two,
        })
    }
}

/// Without early data: a copy of it may be replayed.
fn tls_config(extra_ca: Option<&Path>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = extra_ca {
        let doing =
            || Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading certificates from {}", path.display()));
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| doing().because(e))? {
            let certificate = certificate.map_err(|e| doing().because(e))?;
            roots.add(certificate).map_err(|e| doing().because(e))?;
        }
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::new(codes::BUG, Fault::Bug, "choosing TLS versions").because(e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
