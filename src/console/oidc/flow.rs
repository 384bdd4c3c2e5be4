//! What a browser carries while its person is at the issuer: one signed slip. Nonce and PKCE verifier are made of its state under our
//! key, so nothing is kept here, and any process that shares the key may take the answer.

use std::time::Duration;

use crate::console::people::secret;
use crate::console::session::Sessions;
use crate::intents::{hex, unhex};
use crate::time::WallTime;

/// How long somebody may take at the issuer.
pub const LASTS: Duration = Duration::from_secs(600);
/// Longest address of a page that is led back to.
const LONGEST: usize = 1_500;

/// One sign-in that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slip {
    /// What the issuer sends back with its answer.
    pub state: String,
    /// Which page it leads to.
    pub to: String,
    /// Until when.
    pub until: WallTime,
}

impl Slip {
    /// A new one.
    pub fn new(to: &str, now: WallTime) -> Self {
        // Browsers drop a cookie beyond 4 KB, and with it the sign-in.
        let to = if to.len() > LONGEST { "/" } else { to };
        Self { state: secret(), to: to.to_owned(), until: now.plus(LASTS) }
    }

    /// Its cookie's value.
    pub fn cookie(&self, sessions: &Sessions) -> String {
        let body = format!("{}.{}.{}", self.state, self.until.0, hex(self.to.as_bytes()));
        let signature = sessions.sign("oidc", &body);
        format!("{body}.{signature}")
    }

    /// What a cookie says, where we made it and it still holds.
    pub fn read(cookie: &str, sessions: &Sessions, now: WallTime) -> Option<Self> {
        let (body, signature) = cookie.rsplit_once('.')?;
        sessions.holds("oidc", body, signature).then_some(())?;
        let parts: Vec<&str> = body.split('.').collect();
        let [state, until, to] = parts[..] else { return None };
        let until = WallTime(until.parse().ok()?);
        let to = String::from_utf8(unhex(to)?).ok()?;
        (now < until).then(|| Self { state: state.to_owned(), to, until })
    }

    /// The nonce that the ID token must hold.
    pub fn nonce(&self, sessions: &Sessions) -> String {
        sessions.sign("oidc nonce", &self.state)
    }
    /// The PKCE verifier: 64 letters and digits.
    pub fn verifier(&self, sessions: &Sessions) -> String {
        sessions.sign("oidc verifier", &self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a sign-in that somebody else began could be ended in this browser, or one could be ended for ever.
    #[test]
    fn a_slip_is_ours_and_ends() {
        let (now, sessions) = (WallTime(1_000), Sessions::new(Some("key"), LASTS));
        let slip = Slip::new("/unknowns", now);
        let cookie = slip.cookie(&sessions);
        assert_eq!(Slip::read(&cookie, &sessions, now).as_ref(), Some(&slip));
        assert_eq!(Slip::read(&cookie, &sessions, now.plus(LASTS)), None);
        let led_away = cookie.replace(&hex(b"/unknowns"), &hex(b"//evil"));
        let later = cookie.replace(&slip.until.0.to_string(), "99999999999");
        for forged in ["", "...", &led_away, &later, &cookie.replace(&slip.state, &secret())] {
            assert_eq!(Slip::read(forged, &sessions, now), None, "{forged}");
        }
        assert_eq!(Slip::read(&cookie, &Sessions::new(Some("other"), LASTS), now), None);
        assert_eq!(Slip::new(&format!("/{}", "x".repeat(LONGEST)), now).to, "/");
        let other = Slip::new("/unknowns", now);
        assert!(slip.nonce(&sessions) != other.nonce(&sessions) && slip.nonce(&sessions) != slip.verifier(&sessions));
        assert_eq!(slip.verifier(&sessions).len(), 64);
    }
}
