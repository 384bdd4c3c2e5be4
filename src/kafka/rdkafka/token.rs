//! Tokens for the brokers by the client-credentials grant (RFC 6749, 4.4): over HTTPS, bounded in time and size, without redirects.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use tokio::runtime::Runtime;

use crate::config::{OAuth, Secret};
use crate::error::{Error, Fault, Result, codes};
use crate::http::{Form, post_form, trusting};

/// How long the issuer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How much it may say.
const MOST: usize = 256 * 1024;
/// How long a token holds whose issuer does not say.
const UNSAID: Duration = Duration::from_secs(300);
/// Between two questions after a failure: doubled from the first to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A token and what the client must know of it.
#[derive(Clone)]
pub(super) struct Token {
    pub value: Secret,
    /// Who it is for; the client wants a name.
    pub principal: String,
    /// Its end, in milliseconds since the epoch.
    pub until_ms: i64,
}

/// Where tokens come from, and when the next one is due.
pub(super) struct Issuer {
    oauth: OAuth,
    runtime: Runtime,
    due: Instant,
    backoff: Duration,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: Option<u64>,
}

/// RFC 6749, 5.2.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

impl Issuer {
    pub fn new(oauth: &OAuth) -> Result<Self> {
        // The certificates are read once here, so that a start without them is refused.
        let _ = trusting(oauth.ca.as_deref(), None)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the client of the token endpoint").because(e))?;
        Ok(Self { oauth: oauth.clone(), runtime, due: Instant::now(), backoff: BACKOFF.0 })
    }

    pub fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Asks for a token, and plans the next question: at four fifths of its life.
    pub fn ask(&mut self) -> Result<Token> {
        let answer = self.fetch();
        let wait = match &answer {
            Ok((_, life)) => {
                self.backoff = BACKOFF.0;
                *life * 4 / 5
            }
            Err(_) => {
                let wait = self.backoff;
                self.backoff = (wait * 2).min(BACKOFF.1);
                wait
            }
        };
        self.due = Instant::now() + wait;
        answer.map(|(token, _)| token)
    }

    fn fetch(&self) -> Result<(Token, Duration)> {
        let at = &self.oauth.token_endpoint;
        let refused = |why: String| {
            Error::new(codes::TOKEN_REFUSED, Fault::Unreachable, format!("asking {at} for a token"))
                .because(why)
                .next("check token_endpoint, client_id, client_secret, scope and ca under security.sasl.oauth")
        };
        let secret = self.oauth.client_secret.resolve()?;
        let client = trusting(self.oauth.ca.as_deref(), None)?;
        let mut fields = vec![("grant_type", "client_credentials")];
        fields.extend(self.oauth.scope.as_deref().map(|scope| ("scope", scope)));
        // Every issuer must take the secret by HTTP Basic.
        let (id, secret) = (encoded(&self.oauth.client_id), encoded(secret.expose()));
        let form = Form { to: at, login: (&id, &secret), fields: &fields, limit: LIMIT, most: MOST };
        let (status, body) = self.runtime.block_on(post_form(client, form)).map_err(refused)?;
        if status != 200 {
            self.oauth.client_secret.forget();
            let why = serde_json::from_slice::<Refused>(&body).map(|r| format!(": {}", cut(&r.error))).unwrap_or_default();
            return Err(refused(format!("status {status}{why}")));
        }
        let answer: Answer = serde_json::from_slice(&body).map_err(|_| refused("its answer holds no access_token".into()))?;
        let life = answer.expires_in.map_or(UNSAID, Duration::from_secs);
        let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + life;
        let until_ms = i64::try_from(until.as_millis()).unwrap_or(i64::MAX);
        Ok((Token { value: Secret::new(answer.access_token), principal: self.oauth.client_id.clone(), until_ms }, life))
    }
}

/// A word of the issuer's, cut and without control characters.
fn cut(word: &str) -> String {
    word.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// For HTTP Basic both parts are form-encoded first (RFC 6749, 2.3.1).
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, b| {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => out.push(char::from(b)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{b:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::config::SecretRef;

    /// An issuer that gives these answers in turn; what it was asked.
    fn issuer(answers: Vec<String>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}/token", listener.local_addr().unwrap());
        let serve = move || {
            let one = |answer: String| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"grant_type=client_credentials&scope=kafka") {
                    let mut buffer = [0; 1024];
                    let n = stream.read(&mut buffer).unwrap();
                    asked.extend_from_slice(&buffer[..n]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8(asked).unwrap()
            };
            answers.into_iter().map(one).collect()
        };
        (at, std::thread::spawn(serve))
    }

    fn http(status: &str, more: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n{body}", body.len())
    }

    fn ours(at: String) -> Issuer {
        let client_secret = SecretRef::Literal(Secret::new("s:e c"));
        let oauth = OAuth { token_endpoint: at, client_id: "me".into(), client_secret, scope: Some("kafka".into()), ca: None };
        Issuer::new(&oauth).unwrap()
    }

    /// If this broke, a token would run out before there is another, or the secret would be sent where nobody reads it.
    #[test]
    fn a_token_is_asked_for_and_the_next_one_well_before_its_end() {
        let (at, served) = issuer(vec![http("200 OK", "", r#"{"access_token":"T","token_type":"Bearer","expires_in":100}"#)]);
        let mut issuer = ours(at);
        assert!(issuer.is_due());
        let token = issuer.ask().unwrap();
        assert_eq!((token.value.expose(), token.principal.as_str()), ("T", "me"));
        let wait = issuer.due - Instant::now();
        assert!(wait > Duration::from_secs(60) && wait <= Duration::from_secs(80), "{wait:?}");
        // me:s%3Ae+c
        assert!(served.join().unwrap()[0].to_lowercase().contains("authorization: basic bwu6cyuzqwuryw=="));
    }

    /// If this broke, the secret would follow a redirect, or a refusal would look like an issuer that is away.
    #[test]
    fn refusals_and_redirects_are_no_tokens() {
        let refused = http("401 Unauthorized", "", r#"{"error":"invalid_client"}"#);
        let moved = http("307 Temporary Redirect", "Location: http://127.0.0.1:9/\r\n", "");
        let (at, served) = issuer(vec![refused, moved, http("200 OK", "", "<html>")]);
        let mut issuer = ours(at);
        for part in ["status 401: invalid_client", "status 307", "no access_token"] {
            let error = issuer.ask().err().unwrap();
            assert_eq!(error.code, codes::TOKEN_REFUSED);
            assert!(error.to_string().contains(part) && !error.to_string().contains("s:e"), "{error}");
        }
        assert_eq!(served.join().unwrap().len(), 3);
    }
}
