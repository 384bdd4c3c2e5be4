//! Sessions of browsers: a signed cookie that expires, tokens of forms, and a bound on tries to sign in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hmac::Mac;
use sha2::{Digest, Sha256};

use crate::config::{Secret, SecretRef};
use crate::error::{Error, Fault, Result, codes};
use crate::intents::{hex, unhex};
use crate::time::WallTime;

use super::oidc::claims::vouched;
use super::people::{Person, Role, mac, secret};

/// What a cookie of ours says, once its signature holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The person's name.
    pub name: String,
    /// Which of their tokens, or which account at the issuer.
    pub token: String,
    /// The roles that an issuer's word gave them; those of a token stand in the file.
    pub roles: BTreeSet<Role>,
    /// Until when.
    pub until: WallTime,
    /// Which session.
    nonce: String,
}

impl Claim {
    /// The session's name on the audit topic: it tells nothing that a cookie could be made of.
    pub fn id(&self) -> String {
        hex(&Sha256::digest(&self.nonce))[..32].to_owned()
    }
}

/// Shortest secret that sessions may be signed with.
const SHORTEST: usize = 32;
/// How long a secret is taken to be as it was; a page signs several times.
const KEPT: Duration = Duration::from_secs(1);

/// What is signed with.
enum Key {
    /// As long as the process lives.
    Fixed(Vec<u8>),
    /// What a reference holds: once it holds another secret, everything that was signed with the one before is void.
    Followed { of: SecretRef, held: Mutex<(Instant, Secret)> },
}

impl Key {
    /// Reads it again, now and then. What can't be read, or is too short, changes nothing: nobody is signed out by a slip.
    fn now(&self) -> Vec<u8> {
        let (of, held) = match self {
            Key::Fixed(key) => return key.clone(),
            Key::Followed { of, held } => (of, held),
        };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0.elapsed() >= KEPT {
            held.0 = Instant::now();
            match read(of) {
                Ok(secret) if secret != held.1 => {
                    tracing::info!("console.session_secret has changed: everybody signs in again");
                    held.1 = secret;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "console.session_secret can't be read again; sessions go on under the old one")
                }
            }
        }
        held.1.expose().as_bytes().to_vec()
    }
}

fn read(of: &SecretRef) -> Result<Secret> {
    let secret = of.resolve()?;
    if secret.expose().len() < SHORTEST {
        return Err(Error::new(codes::BAD_VALUE, Fault::Configuration, "reading console.session_secret")
            .because("it is shorter than 32 bytes: whoever has a cookie could find it, and sign cookies of others")
            .next("make one by `openssl rand -hex 32`"));
    }
    Ok(secret)
}

/// Makes and reads cookies.
pub struct Sessions {
    key: Key,
    /// How long one lasts.
    pub lasts: Duration,
    /// Sessions that were ended by their person, and sign-ins that were used, until they would have expired.
    ended: Mutex<BTreeMap<String, WallTime>>,
}

impl Sessions {
    /// Signed under `key`; without one under a key that lives as long as the process.
    pub fn new(key: Option<&str>, lasts: Duration) -> Self {
        let key = Key::Fixed(key.map_or_else(secret, str::to_owned).into_bytes());
        Self { key, lasts, ended: Mutex::default() }
    }

    /// Signed under the secret that stands there, now and later.
    ///
    /// # Errors
    /// `MISSING_SECRET`; `BAD_VALUE` for one that is too short.
    pub fn following(of: SecretRef, lasts: Duration) -> Result<Self> {
        let held = Mutex::new((Instant::now(), read(&of)?));
        Ok(Self { key: Key::Followed { of, held }, lasts, ended: Mutex::default() })
    }

    /// A cookie's value for somebody who has just signed in.
    pub fn begin(&self, person: &Person, until: WallTime) -> String {
        let roles = if vouched(&person.token) {
            person.roles.iter().map(|r| r.word()).collect::<Vec<_>>().join("+")
        } else {
            String::new()
        };
        let body = format!("{}.{}.{}.{}.{roles}", hex(person.name.as_bytes()), person.token, until.0, secret());
        let signature = self.sign("session", &body);
        format!("{body}.{signature}")
    }

    /// What a cookie says, where we made it and it still holds.
    pub fn read(&self, cookie: &str, now: WallTime) -> Option<Claim> {
        let (body, signature) = cookie.rsplit_once('.')?;
        self.holds("session", body, signature).then_some(())?;
        let parts: Vec<&str> = body.split('.').collect();
        let [name, token, until, nonce, roles] = parts[..] else { return None };
        let name = String::from_utf8(unhex(name)?).ok()?;
        let until = WallTime(until.parse().ok()?);
        let roles = Role::ALL.into_iter().filter(|r| roles.split('+').any(|word| word == r.word())).collect();
        let claim = Claim { name, token: token.to_owned(), roles, until, nonce: nonce.to_owned() };
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&claim.id());
        (now < until && !ended).then_some(claim)
    }

    /// Ends a session for good.
    pub fn end(&self, claim: &Claim, now: WallTime) {
        self.once(&claim.id(), claim.until, now);
    }

    /// Whether this is the first time that `id` is used up, before `until`: then it is, for good.
    pub fn once(&self, id: &str, until: WallTime, now: WallTime) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|_, until| now < *until);
        ended.insert(id.to_owned(), until).is_none()
    }

    /// The token of forms that are shown under this cookie.
    pub fn form_token(&self, cookie: &str) -> String {
        self.sign("form", cookie)
    }
    /// Whether a form was ours, and shown under this cookie.
    pub fn is_form_of(&self, cookie: &str, token: &str) -> bool {
        !cookie.is_empty() && self.holds("form", cookie, token)
    }

    /// A signature of ours over `text`, for one purpose.
    pub(super) fn sign(&self, what: &str, text: &str) -> String {
        hex(&mac(&self.key.now(), &format!("{what}|{text}")).finalize().into_bytes())
    }
    /// Whether a signature is ours, for this purpose.
    pub(super) fn holds(&self, what: &str, text: &str, signature: &str) -> bool {
        unhex(signature).is_some_and(|s| mac(&self.key.now(), &format!("{what}|{text}")).verify_slice(&s).is_ok())
    }
}

/// Bounds how often somebody at an address may be wrong.
#[derive(Default)]
pub struct Tries(Mutex<HashMap<IpAddr, (u32, WallTime)>>);

/// So many wrong tries in so long.
pub const TRIES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const ADDRESSES: usize = 4_096;
/// Stands for all others.
const REST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

impl Tries {
    /// How long this address must wait, where it was wrong too often.
    pub fn wait(&self, from: IpAddr, now: WallTime) -> Option<Duration> {
        let tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = || tries.get(&REST).filter(|_| tries.len() >= ADDRESSES);
        let (count, since) = tries.get(&network(from)).or_else(rest)?;
        let over = since.plus(WINDOW);
        (*count >= TRIES && now < over).then(|| over.since(now).max(Duration::from_secs(1)))
    }
    /// Somebody at this address was wrong.
    pub fn wrong(&self, from: IpAddr, now: WallTime) {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tries.retain(|_, (_, since)| now < since.plus(WINDOW));
        // Beyond what is remembered all networks count as one: whoever has many is bounded, too.
        let full = tries.len() >= ADDRESSES && !tries.contains_key(&network(from));
        let network = if full { REST } else { network(from) };
        let (count, _) = tries.entry(network).or_insert((0, now));
        *count = count.saturating_add(1);
    }
}

/// An address of IPv6 stands for its network: whoever has one has 2^64 of them.
fn network(from: IpAddr) -> IpAddr {
    match from {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_000_000);

    fn mira() -> Person {
        Person { name: "mira@acme".into(), roles: [Role::Operator].into(), token: "0123456789abcdef".into() }
    }

    /// If this broke, somebody could make a session for themselves, or keep one for ever.
    #[test]
    fn a_session_is_ours_and_ends() {
        let sessions = Sessions::new(None, Duration::from_secs(60));
        let cookie = sessions.begin(&mira(), NOW.plus(sessions.lasts));
        let claim = sessions.read(&cookie, NOW).expect("holds");
        assert_eq!((claim.name.as_str(), claim.token.as_str()), ("mira@acme", "0123456789abcdef"));
        assert!(claim.roles.is_empty(), "they stand in the file");
        assert_eq!(sessions.read(&cookie, NOW.plus(Duration::from_secs(60))), None);
        let longer = cookie.replace(&claim.until.0.to_string(), &(claim.until.0 + 60_000).to_string());
        let as_noor = cookie.replace(&hex(b"mira@acme"), &hex(b"noor@acme"));
        let promoted = cookie.rsplit_once('.').map(|(body, of)| format!("{body}admin.{of}")).expect("signed");
        for forged in ["", "....", &promoted, &longer, &as_noor, &cookie[..cookie.len() - 2]] {
            assert_eq!(sessions.read(forged, NOW), None, "{forged}");
        }
        assert_eq!(Sessions::new(None, Duration::from_secs(60)).read(&cookie, NOW), None, "another key");
        // A form's token is no session's signature.
        let (body, _) = cookie.rsplit_once('.').expect("signed");
        assert_eq!(sessions.read(&format!("{body}.{}", sessions.form_token(body)), NOW), None);
        sessions.end(&claim, NOW);
        assert_eq!(sessions.read(&cookie, NOW), None);
    }

    /// If this broke, a secret that others may know would go on opening sessions until somebody restarts every member; or a file that is
    /// being replaced would sign everybody out.
    #[test]
    fn sessions_end_with_the_secret_that_they_were_signed_with() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("session");
        let write = |text: &str| std::fs::write(&file, text).expect("writes");
        write(&"a".repeat(32));
        let sessions = Sessions::following(SecretRef::File(file.clone()), Duration::from_secs(60)).expect("reads");
        let begin = || sessions.begin(&mira(), NOW.plus(sessions.lasts));
        let holds = |cookie: &str| sessions.read(cookie, NOW).is_some();
        // As if it had been read long ago.
        let later = || match &sessions.key {
            Key::Followed { held, .. } => held.lock().expect("held").0 -= KEPT,
            Key::Fixed(_) => unreachable!("it follows"),
        };
        let old = begin();
        for slip in ["", "short"] {
            write(slip);
            later();
            assert!(holds(&old), "{slip:?} is no secret");
        }
        std::fs::remove_file(&file).expect("is there");
        later();
        assert!(holds(&old), "it is only away");
        write(&"b".repeat(32));
        assert!(holds(&old), "it was read a moment ago");
        later();
        assert!(!holds(&old), "signed with the secret before");
        let new = begin();
        assert!(holds(&new) && !sessions.is_form_of(&new, &Sessions::new(Some(&"a".repeat(32)), KEPT).form_token(&new)));
    }

    /// If this broke, another site could send a form in the name of whoever is signed in.
    #[test]
    fn a_form_belongs_to_a_cookie() {
        let sessions = Sessions::new(Some("key"), Duration::from_secs(60));
        let token = sessions.form_token("a");
        assert!(sessions.is_form_of("a", &token));
        assert!(
            !sessions.is_form_of("b", &token)
                && !sessions.is_form_of("a", "")
                && !sessions.is_form_of("", &sessions.form_token(""))
        );
    }

    /// If this broke, tokens could be guessed as fast as the process answers, or one wrong address would lock out all.
    #[test]
    fn tries_are_bounded_for_each_network() {
        let tries = Tries::default();
        let from = |text: &str| text.parse::<IpAddr>().expect("an address");
        for _ in 0..TRIES {
            assert_eq!(tries.wait(from("2001:db8::1"), NOW), None);
            tries.wrong(from("2001:db8::2"), NOW);
        }
        assert_eq!(tries.wait(from("2001:db8::3"), NOW), Some(WINDOW));
        assert_eq!((tries.wait(from("127.0.0.1"), NOW), tries.wait(from("2001:db8:1::1"), NOW)), (None, None));
        assert_eq!(tries.wait(from("2001:db8::3"), NOW.plus(WINDOW)), None);
    }

    /// If this broke, whoever has more networks than are remembered could try, and fill the audit topic, without a bound.
    #[test]
    fn networks_beyond_those_that_are_remembered_are_bounded_together() {
        let tries = Tries::default();
        let from = |n: usize| IpAddr::V4(u32::try_from(n).expect("an address").to_be_bytes().into());
        (1..=ADDRESSES).for_each(|n| tries.wrong(from(n), NOW));
        assert_eq!(tries.wait(from(1), NOW), None);
        for n in 0..TRIES as usize {
            assert_eq!(tries.wait(from(10_000 + n), NOW), None);
            tries.wrong(from(10_000 + n), NOW);
        }
        assert_eq!((tries.wait(from(20_000), NOW), tries.wait(from(1), NOW)), (Some(WINDOW), None));
        assert!(tries.0.lock().expect("held").len() <= ADDRESSES + 1);
    }
}
