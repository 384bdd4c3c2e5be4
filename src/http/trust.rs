//! Clients for services of the house (registry, token issuer): their own authorities, our certificate, no redirects, no proxies of the
//! environment.

use std::path::Path;

use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Identity as Ours};

use crate::config::Identity;
use crate::error::{Error, Fault, Result, codes};

/// A client that trusts the authorities in `ca` alone, or those of the system, and shows `identity` where it is asked for one.
///
/// # Errors
/// `FILE_UNREADABLE` for a file that is not there or holds no certificate or key.
pub fn trusting(ca: Option<&Path>, identity: Option<&Identity>) -> Result<ClientBuilder> {
    let mut builder = ClientBuilder::new().redirect(Policy::none()).no_proxy();
    if let Some(path) = ca {
        let all = Certificate::from_pem_bundle(&read(path)?).map_err(|e| unusable(path, e))?;
        if all.is_empty() {
            return Err(unusable(path, "it holds no certificate"));
        }
        builder = builder.tls_certs_only(all);
    }
    if let Some(identity) = identity {
        let both = [read(&identity.certificate)?, b"\n".to_vec(), read(&identity.key)?].concat();
        builder = builder.identity(Ours::from_pem(&both).map_err(|e| unusable(&identity.key, e))?);
    }
    Ok(builder)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| unusable(path, e))
}

fn unusable(path: &Path, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading certificates and keys from {}", path.display()))
        .because(why)
        .next("check the path, and that the file is PEM and readable for this user")
}
