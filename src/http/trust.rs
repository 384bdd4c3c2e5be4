//! Clients for services of the house (registry, token issuer): their own authorities, our certificate, no redirects, no proxies of the
//! environment.

use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Identity as Ours, RequestBuilder};

use crate::config::{Identity, Secret};
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

/// What a form is sent as, and how far its answer may go.
pub struct Form<'a> {
    /// Where to.
    pub to: &'a str,
    /// User and password for HTTP Basic.
    pub login: (&'a str, &'a str),
    /// Its fields.
    pub fields: &'a [(&'a str, &'a str)],
    /// For the whole exchange.
    pub limit: Duration,
    /// Largest answer body.
    pub most: usize,
}

/// Sends a form and reads status and body of the whole answer; an error says what failed, without the address.
///
/// # Errors
/// No whole answer within the limits.
pub async fn post_form(client: ClientBuilder, form: Form<'_>) -> std::result::Result<(u16, Vec<u8>), String> {
    let client = client.timeout(form.limit).build().map_err(|e| innermost(&e))?;
    let (user, password) = form.login;
    whole(client.post(form.to).basic_auth(user, Some(password)).form(form.fields), form.most).await
}

/// As whom something is asked.
pub enum Login {
    /// As nobody.
    None,
    /// HTTP Basic.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A bearer token.
    Bearer(Secret),
}

/// Asks for what is at an address and reads status and body of the whole answer; an error says what failed, without the address.
///
/// # Errors
/// No whole answer within the limits.
pub async fn get(
    client: ClientBuilder,
    from: &str,
    login: Login,
    limit: Duration,
    most: usize,
) -> std::result::Result<(u16, Vec<u8>), String> {
    let client = client.timeout(limit).build().map_err(|e| innermost(&e))?;
    whole(signed(client.get(from), login), most).await
}

/// A client that is kept, for what is asked again and again.
#[derive(Clone)]
pub struct Asker(Client);

impl Asker {
    /// One that trusts whom the system trusts, with this limit for each whole exchange.
    ///
    /// # Errors
    /// `BUG` where this machine gives no client.
    pub fn new(limit: Duration) -> Result<Self> {
        let client = trusting(None, None)?.timeout(limit).build();
        client.map(Self).map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting an HTTP client").because(e))
    }

    /// As [`get`], as nobody.
    ///
    /// # Errors
    /// No whole answer within the limits.
    pub async fn get(&self, from: &str, most: usize) -> std::result::Result<(u16, Vec<u8>), String> {
        whole(self.0.get(from), most).await
    }
}

/// Sends JSON and reads status and body of the whole answer; an error says what failed, without the address.
///
/// # Errors
/// No whole answer within the limits: nobody knows whether it was taken.
pub async fn post_json(
    client: ClientBuilder,
    to: &str,
    login: Login,
    body: Vec<u8>,
    limit: Duration,
    most: usize,
) -> std::result::Result<(u16, Vec<u8>), String> {
    let client = client.timeout(limit).build().map_err(|e| innermost(&e))?;
    whole(signed(client.post(to), login).header("content-type", "application/json").body(body), most).await
}

fn signed(request: RequestBuilder, login: Login) -> RequestBuilder {
    match login {
        Login::None => request,
        Login::Basic { user, password } => request.basic_auth(user, Some(password.expose())),
        Login::Bearer(token) => request.bearer_auth(token.expose()),
    }
}

/// Sends a request and reads its answer to the end.
async fn whole(request: RequestBuilder, most: usize) -> std::result::Result<(u16, Vec<u8>), String> {
    let mut answer = request.send().await.map_err(|e| innermost(&e))?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|e| innermost(&e))? {
        if body.len() + chunk.len() > most {
            return Err("its answer is too large".into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok((answer.status().as_u16(), body))
}

/// The last cause: the outer ones hold the address.
fn innermost(e: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = e;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if cause.to_string().contains("://") { "no answer".into() } else { cause.to_string() }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| unusable(path, e))
}

fn unusable(path: &Path, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading certificates and keys from {}", path.display()))
        .because(why)
        .next("check the path, and that the file is PEM and readable for this user")
}
