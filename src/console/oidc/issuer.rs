//! The issuer as it describes itself: its endpoints and keys, asked when they are needed, kept, and asked again when they are old or a
//! token is signed by a key that is not among them. An issuer that is away stops nobody who is signed in, and no start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openidconnect::core::{
    CoreAuthDisplay, CoreClaimName, CoreClaimType, CoreClientAuthMethod, CoreGrantType, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreResponseMode, CoreResponseType,
    CoreSubjectIdentifierType,
};
use openidconnect::{DiscoveryError, EmptyAdditionalProviderMetadata, IssuerUrl, LogoutProviderMetadata, ProviderMetadata};

use crate::error::{Error, Fault, Result, codes};
use crate::time::WallTime;

use super::web::{NoAnswer, Web};

/// What an issuer says of itself, with its keys.
pub type Metadata = ProviderMetadata<
    LogoutProviderMetadata<EmptyAdditionalProviderMetadata>,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// How long an answer counts as new.
const FRESH: Duration = Duration::from_secs(3_600);
/// How long it is used where the issuer does not answer: a key that was taken back there ends here at the latest then.
const USABLE: Duration = Duration::from_secs(24 * 3_600);
/// The issuer is not asked more often than this, whatever tokens name and however often it fails.
const PAUSE: Duration = Duration::from_secs(10);

/// How new an answer must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// One that is kept will do.
    Kept,
    /// A token names a key that the kept one does not have.
    Newer,
}

/// One issuer.
pub struct Issuer {
    /// Its name.
    pub url: IssuerUrl,
    web: Web,
    kept: Mutex<Kept>,
    /// One asks at a time.
    asking: Mutex<()>,
}

#[derive(Default)]
struct Kept {
    answer: Option<(Arc<Metadata>, WallTime)>,
    asked: Option<WallTime>,
    failed: Option<String>,
}

/// What to do for a need: pure, so that every case is seen.
#[derive(PartialEq, Eq, Debug)]
enum Step {
    Use,
    Ask,
    Fail,
}

fn step(need: Need, answered: Option<Duration>, asked: Option<Duration>) -> Step {
    let rested = asked.is_none_or(|ago| ago >= PAUSE);
    match answered {
        Some(age) if age < FRESH && need == Need::Kept => Step::Use,
        _ if rested => Step::Ask,
        Some(age) if age < USABLE => Step::Use,
        _ => Step::Fail,
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Issuer {
    /// Asked through `web`, not yet.
    pub fn new(url: IssuerUrl, web: Web) -> Self {
        Self { url, web, kept: Mutex::default(), asking: Mutex::default() }
    }

    /// How it is asked.
    pub fn web(&self) -> &Web {
        &self.web
    }

    /// What it says of itself; asked on `runtime` where it must be, which blocks for some seconds at most.
    ///
    /// # Errors
    /// `ISSUER_UNREACHABLE`.
    pub fn metadata(&self, runtime: &tokio::runtime::Handle, need: Need, now: WallTime) -> Result<Arc<Metadata>> {
        if let Some(known) = self.known(need, now)? {
            return Ok(known);
        }
        let _one = match (self.asking.try_lock(), self.usable(now)) {
            (Ok(one), _) => one,
            (Err(_), Some(old)) if need == Need::Kept => return Ok(old),
            (Err(_), _) => held(&self.asking),
        };
        // Somebody may have asked while we waited.
        if let Some(known) = self.known(need, now)? {
            return Ok(known);
        }
        let ask = |request| self.web.ask(request);
        let answer = runtime.block_on(Metadata::discover_async(self.url.clone(), &ask));
        let mut kept = held(&self.kept);
        kept.asked = Some(now);
        match answer {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                (kept.answer, kept.failed) = (Some((metadata.clone(), now)), None);
                Ok(metadata)
            }
            Err(e) => {
                let why = words(&e);
                tracing::warn!(issuer = self.url.as_str(), why, "the issuer does not describe itself");
                kept.failed = Some(why.clone());
                drop(kept);
                self.usable(now).ok_or_else(|| self.away(why))
            }
        }
    }

    fn usable(&self, now: WallTime) -> Option<Arc<Metadata>> {
        held(&self.kept).answer.as_ref().filter(|(_, at)| now.since(*at) < USABLE).map(|(m, _)| m.clone())
    }

    fn known(&self, need: Need, now: WallTime) -> Result<Option<Arc<Metadata>>> {
        let kept = held(&self.kept);
        let age = |at: WallTime| now.since(at);
        match step(need, kept.answer.as_ref().map(|(_, at)| age(*at)), kept.asked.map(age)) {
            Step::Ask => Ok(None),
            Step::Use => Ok(kept.answer.as_ref().map(|(m, _)| m.clone())),
            Step::Fail => Err(self.away(kept.failed.clone().unwrap_or_else(|| "it is being asked".to_owned()))),
        }
    }

    fn away(&self, why: String) -> Error {
        Error::new(codes::ISSUER_UNREACHABLE, Fault::Unreachable, format!("asking the issuer {}", self.url.as_str()))
            .because(why)
            .next("try again in a moment; where it stays so, look whether the issuer runs and console.oidc.issuer names it exactly")
    }
}

/// Why discovery failed, without what the answer held.
fn words(e: &DiscoveryError<NoAnswer>) -> String {
    match e {
        DiscoveryError::Request(e) => e.to_string(),
        DiscoveryError::Response(status, ..) => format!("status {}, or no JSON", status.as_u16()),
        DiscoveryError::Parse(e) => format!("its answer is not what an issuer says: {}", e.path()),
        DiscoveryError::Validation(why) => why.clone(),
        _ => "its addresses are none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, an issuer that is away would be asked for every request, its new keys would never be seen, or its old ones would
    /// be believed for ever.
    #[test]
    fn the_issuer_is_asked_when_it_must_be_and_no_oftener() {
        let s = |s: u64| Some(Duration::from_secs(s));
        for (need, answered, asked, then) in [
            (Need::Kept, None, None, Step::Ask),
            (Need::Kept, None, s(9), Step::Fail),
            (Need::Kept, None, s(10), Step::Ask),
            (Need::Kept, s(3_599), s(3_599), Step::Use),
            (Need::Kept, s(3_600), s(3_600), Step::Ask),
            (Need::Kept, s(3_609), s(9), Step::Use),
            (Need::Kept, s(24 * 3_600), s(9), Step::Fail),
            (Need::Newer, s(5), s(5), Step::Use),
            (Need::Newer, s(10), s(10), Step::Ask),
        ] {
            assert_eq!(step(need, answered, asked), then, "{need:?} {answered:?} {asked:?}");
        }
    }
}
