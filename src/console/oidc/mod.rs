//! Sign-in by an OpenID Connect issuer: authorization code with PKCE for browsers, bearer tokens for the API. What the issuer vouches
//! for is checked by `openidconnect`; what a token makes of somebody is decided in `claims`.

pub mod claims;
pub mod flow;
pub mod issuer;
pub mod web;

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreClientAuthMethod, CoreErrorResponseType, CoreGenderClaim,
    CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreRevocableToken, CoreRevocationErrorResponse,
    CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AuthType, AuthorizationCode, ClaimsVerificationError, Client, ClientId, ClientSecret, CsrfToken,
    EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, IdToken, IdTokenClaims, IdTokenFields, IdTokenVerifier,
    IssuerUrl, JsonWebTokenType, LogoutRequest, Nonce, PkceCodeChallenge, PkceCodeVerifier, PostLogoutRedirectUrl, RedirectUrl,
    RequestTokenError, Scope, SignatureVerificationError, StandardErrorResponse, StandardTokenResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{OidcSection, SecretRef};
use crate::error::{Error, Fault, Result, codes};
use crate::time::WallTime;

use super::is_loopback_host;
use super::people::Person;
use super::session::Sessions;
use claims::Mapping;
use flow::Slip;
use issuer::{Issuer, Metadata, Need};
use web::{NoAnswer, Web};

/// Claims beyond those that the standard names.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct More(HashMap<String, Value>);
impl AdditionalClaims for More {}

type Claims = IdTokenClaims<More, CoreGenderClaim>;
type Token = IdToken<More, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;
type Fields =
    IdTokenFields<More, EmptyExtraTokenFields, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;
type OurClient = Client<
    More,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<Fields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// Signatures that are taken: by keys that the issuer alone has. Neither none, nor what the client's secret could sign.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];
/// How far the issuer's clock may be ahead of ours.
const AHEAD: Duration = Duration::from_secs(60);
/// Longest token that is looked at.
const LONGEST: usize = 16 * 1024;

/// Somebody whom the issuer vouches for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vouched {
    /// Who.
    pub person: Person,
    /// Their subject at the issuer, for the audit record.
    pub subject: String,
    /// Until when, by the token.
    pub until: WallTime,
}

/// Which token is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose<'a> {
    /// The ID token of a sign-in, with this nonce.
    SignIn(&'a str),
    /// A bearer token for the API.
    Bearer,
}

/// Sign-in by one issuer.
pub struct Oidc {
    /// The issuer's host, for the button.
    pub host: String,
    /// Where the issuer sends people back to, where that is configured.
    pub redirect_url: Option<String>,
    issuer: Issuer,
    client_id: ClientId,
    client_secret: Option<SecretRef>,
    scopes: Vec<String>,
    audience: String,
    mapping: Mapping,
    runtime: Option<tokio::runtime::Runtime>,
}

fn bad(doing: &str, why: &str) -> Error {
    Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading {doing}")).because(why.to_owned())
}

fn refused(why: String) -> Error {
    Error::new(codes::SIGN_IN_REFUSED, Fault::Verdict, "signing in by the issuer")
        .because(why)
        .next("sign in again; where it stays so, compare console.oidc with what the issuer has for this client")
}

impl Oidc {
    /// As it is configured; the issuer is not asked yet.
    ///
    /// # Errors
    /// `BAD_VALUE` for an issuer without TLS that is not on this machine, or a word that is no role; `FILE_UNREADABLE`.
    pub fn new(section: &OidcSection) -> Result<Self> {
        let doing = "console.oidc.issuer";
        let url = IssuerUrl::new(section.issuer.clone()).map_err(|_| bad(doing, "it is no address"))?;
        let at = url.url();
        let host = at.host_str().ok_or_else(|| bad(doing, "it has no host"))?.to_owned();
        let tls = match at.scheme() {
            "https" => true,
            "http" if is_loopback_host(&host) => false,
            _ => return Err(bad(doing, "it must begin with https://; http:// is taken on this machine only")),
        };
        if at.query().is_some() || at.fragment().is_some() || !at.username().is_empty() || at.password().is_some() {
            return Err(bad(doing, "it takes no query, no fragment and no login"));
        }
        if let Some(redirect) = &section.redirect_url {
            RedirectUrl::new(redirect.clone()).map_err(|_| bad("console.oidc.redirect_url", "it is no address"))?;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("oidc")
            .enable_all()
            .build()
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the client of the issuer").because(e))?;
        let web = Web::new(runtime.handle().clone(), tls, section.ca.as_deref())?;
        Ok(Self {
            host,
            redirect_url: section.redirect_url.clone(),
            issuer: Issuer::new(url, web),
            client_id: ClientId::new(section.client_id.clone()),
            client_secret: section.client_secret.clone(),
            scopes: section.scopes.split_whitespace().filter(|s| *s != "openid").map(str::to_owned).collect(),
            audience: section.audience.clone(),
            mapping: Mapping::read(&section.roles, &section.roles_claim, &section.name_claim)?,
            runtime: Some(runtime),
        })
    }

    /// Where a browser goes to sign in.
    ///
    /// # Errors
    /// `ISSUER_UNREACHABLE`, `MISSING_SECRET`.
    pub fn begin(&self, slip: &Slip, sessions: &Sessions, redirect: &str, now: WallTime) -> Result<String> {
        let client = self.client(redirect, now)?;
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(slip.verifier(sessions)));
        let (state, nonce) = (CsrfToken::new(slip.state.clone()), Nonce::new(slip.nonce(sessions)));
        let mut request = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, move || state, move || nonce)
            .set_pkce_challenge(challenge);
        for scope in &self.scopes {
            request = request.add_scope(Scope::new(scope.clone()));
        }
        Ok(request.url().0.to_string())
    }

    /// Whom the issuer's answer to a sign-in vouches for.
    ///
    /// # Errors
    /// `SIGN_IN_REFUSED`, `NOT_PERMITTED`, `ISSUER_UNREACHABLE`, `MISSING_SECRET`.
    pub fn finish(&self, code: &str, slip: &Slip, sessions: &Sessions, redirect: &str, now: WallTime) -> Result<Vouched> {
        let client = self.client(redirect, now)?;
        let exchange = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|_| refused("the issuer names no token endpoint".to_owned()))?
            .set_pkce_verifier(PkceCodeVerifier::new(slip.verifier(sessions)));
        let ask = |request| self.issuer.web().ask(request);
        let answer = self.handle()?.block_on(exchange.request_async(&ask)).map_err(|e| self.not_exchanged(e))?;
        let token = answer.extra_fields().id_token().ok_or_else(|| refused("it gave no ID token".to_owned()))?;
        self.vouched(token, Purpose::SignIn(&slip.nonce(sessions)), now)
    }

    /// Whether this could be a token of the issuer: then it is no line of the file.
    pub fn is_token(&self, text: &str) -> bool {
        text.len() <= LONGEST && text.split('.').count() == 3
    }

    /// Whom a bearer token vouches for.
    ///
    /// # Errors
    /// `SIGN_IN_REFUSED`, `NOT_PERMITTED`, `ISSUER_UNREACHABLE`.
    pub fn bearer(&self, text: &str, now: WallTime) -> Result<Vouched> {
        let token = Token::from_str(text).map_err(|_| refused("the token is no signed JWT of the issuer's".to_owned()))?;
        self.vouched(&token, Purpose::Bearer, now)
    }

    /// Where a browser goes to end its session at the issuer, too; `None` where the issuer has no such place, or is away.
    pub fn end_session(&self, back: &str, now: WallTime) -> Option<String> {
        let metadata = self.metadata(Need::Kept, now).ok()?;
        let end = metadata.additional_metadata().end_session_endpoint.clone()?;
        let request = LogoutRequest::from(end).set_client_id(self.client_id.clone());
        let back = PostLogoutRedirectUrl::new(back.to_owned()).ok()?;
        Some(request.set_post_logout_redirect_uri(back).http_get_url().to_string())
    }

    /// The issuer's name, for the check of an answer's `iss`.
    pub fn is_issuer(&self, text: &str) -> bool {
        self.issuer.url.as_str() == text
    }

    fn handle(&self) -> Result<&tokio::runtime::Handle> {
        let closed = || Error::new(codes::BUG, Fault::Bug, "asking the issuer of a console that is closed");
        self.runtime.as_ref().map(|r| r.handle()).ok_or_else(closed)
    }

    fn metadata(&self, need: Need, now: WallTime) -> Result<Arc<Metadata>> {
        self.issuer.metadata(self.handle()?, need, now)
    }

    fn client(&self, redirect: &str, now: WallTime) -> Result<OurClient> {
        let metadata = self.metadata(Need::Kept, now)?;
        let secret = self.client_secret.as_ref().map(SecretRef::resolve).transpose()?;
        let secret = secret.map(|s| ClientSecret::new(s.expose().to_owned()));
        let methods = metadata.token_endpoint_auth_methods_supported();
        let post_only = methods.is_some_and(|m| {
            m.contains(&CoreClientAuthMethod::ClientSecretPost) && !m.contains(&CoreClientAuthMethod::ClientSecretBasic)
        });
        let redirect =
            RedirectUrl::new(redirect.to_owned()).map_err(|_| refused("the address of this console is none".to_owned()))?;
        let client = OurClient::from_provider_metadata(metadata.as_ref().clone(), self.client_id.clone(), secret);
        Ok(client.set_redirect_uri(redirect).set_auth_type(if post_only { AuthType::RequestBody } else { AuthType::BasicAuth }))
    }

    fn not_exchanged(&self, e: RequestTokenError<NoAnswer, StandardErrorResponse<CoreErrorResponseType>>) -> Error {
        match e {
            RequestTokenError::Request(e) => {
                Error::new(codes::ISSUER_UNREACHABLE, Fault::Unreachable, format!("asking the issuer {}", self.issuer.url.as_str()))
                    .because(e)
                    .next("sign in again in a moment")
            }
            RequestTokenError::ServerResponse(said) => refused(format!("the issuer refused the code: {}", said.error().as_ref())),
            _ => refused("the issuer's answer is none that holds a token".to_owned()),
        }
    }

    fn vouched(&self, token: &Token, purpose: Purpose<'_>, now: WallTime) -> Result<Vouched> {
        let metadata = self.metadata(Need::Kept, now)?;
        let claims = match self.verified(token, &metadata, purpose, now) {
            // A key that is not known may be new: the issuer is asked once more.
            Err(ClaimsVerificationError::SignatureVerification(
                SignatureVerificationError::NoMatchingKey | SignatureVerificationError::CryptoError(_),
            )) => self.verified(token, &*self.metadata(Need::Newer, now)?, purpose, now),
            other => other,
        };
        let claims = claims.map_err(|e| refused(words(&e)))?;
        let subject = claims.subject().to_string();
        let until = WallTime(claims.expiration().timestamp_millis());
        let all = serde_json::to_value(claims).map_err(|e| refused(e.to_string()))?;
        let early = all["nbf"].as_f64().is_some_and(|s| WallTime((s * 1_000.0) as i64) > now.plus(AHEAD));
        if early {
            return Err(refused("the token is not valid yet".to_owned()));
        }
        Ok(Vouched { person: self.mapping.person(&all)?, subject, until })
    }

    fn verified<'t>(
        &self,
        token: &'t Token,
        metadata: &Metadata,
        purpose: Purpose<'_>,
        now: WallTime,
    ) -> std::result::Result<&'t Claims, ClaimsVerificationError> {
        let (audience, types): (_, &[&str]) = match purpose {
            Purpose::SignIn(_) => (self.client_id.clone(), &["jwt"]),
            Purpose::Bearer => (ClientId::new(self.audience.clone()), &["jwt", "at+jwt"]),
        };
        let types = types.iter().filter_map(|t| JsonWebTokenType::new((*t).to_owned()).normalize().ok());
        let moment = chrono::DateTime::from_timestamp_millis(now.0).unwrap_or_default();
        let latest = moment + AHEAD;
        // Without the client's secret, which would verify what it could have signed.
        let verifier = IdTokenVerifier::new_public_client(audience, self.issuer.url.clone(), metadata.jwks().clone())
            .set_allowed_algs(ALGORITHMS)
            .set_allowed_jose_types(types)
            .set_time_fn(move || moment)
            .set_issue_time_verifier_fn(move |at| if at <= latest { Ok(()) } else { Err("it was issued in the future".to_owned()) })
            .set_other_audience_verifier_fn(move |_| matches!(purpose, Purpose::Bearer));
        let claims = match purpose {
            Purpose::SignIn(nonce) => token.claims(&verifier, &Nonce::new(nonce.to_owned()))?,
            Purpose::Bearer => token.claims(&verifier, |_: Option<&Nonce>| Ok(()))?,
        };
        // The library leaves this one to us. A bearer token may have been given to any client for our audience.
        let stranger = |of: &&ClientId| **of != self.client_id && matches!(purpose, Purpose::SignIn(_));
        match claims.authorized_party().filter(stranger) {
            Some(other) => {
                Err(ClaimsVerificationError::InvalidAudience(format!("it was given to the client `{}`", other.as_str())))
            }
            None => Ok(claims),
        }
    }
}

impl Drop for Oidc {
    fn drop(&mut self) {
        // Dropping a runtime waits, which panics on an async thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why a token is not believed: kinds, not its content.
fn words(e: &ClaimsVerificationError) -> String {
    let what = match e {
        ClaimsVerificationError::Expired(_) => "the token has expired, or was issued in the future",
        ClaimsVerificationError::InvalidAudience(_) => "the token is for another audience or client",
        ClaimsVerificationError::InvalidIssuer(_) => "the token is of another issuer",
        ClaimsVerificationError::InvalidNonce(_) => "the token is not of this sign-in",
        ClaimsVerificationError::SignatureVerification(SignatureVerificationError::DisallowedAlg(_)) => {
            "the token is signed by an algorithm that is not taken"
        }
        ClaimsVerificationError::SignatureVerification(SignatureVerificationError::NoSignature) => "the token is not signed",
        ClaimsVerificationError::SignatureVerification(_) => "the token's signature is not the issuer's",
        _ => "the token is of a kind that is not taken",
    };
    what.to_owned()
}
