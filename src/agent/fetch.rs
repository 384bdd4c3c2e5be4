//! Inputs given by locator: fetched after the commit, from declared hosts, in bounds, and only taken when the hash is right.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::http::{CallLimits, Destination, Finished, HttpPort, Outgoing, Via, Wire};
use crate::intents::{Input, RenderedRequest, hex};

/// How a fetch ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchEnd {
    /// The text; its hash is the one that was named.
    Text(String),
    /// It can't be used, and never will; without payload.
    Unusable(String),
    /// Not now.
    Later,
}

/// Called once with the end of a fetch, on any thread.
pub type FetchDone = Box<dyn FnOnce(FetchEnd) + Send>;

/// Fetches inputs. A fetch has no effect, so it may be repeated after a crash.
pub trait InputFetcher: Send + Sync {
    /// Starts to fetch `input`, at most `max` bytes.
    fn fetch(&self, input: &Input, max: usize, done: FetchDone);
}

/// Fetches by HTTP GET, without credentials and redirects.
pub struct HttpFetcher {
    /// Starts calls.
    pub http: Arc<dyn HttpPort>,
    /// Whether private and loopback addresses are allowed.
    pub private: bool,
    /// Limit of one fetch.
    pub timeout: Duration,
}

impl InputFetcher for HttpFetcher {
    fn fetch(&self, input: &Input, max: usize, done: FetchDone) {
        let Some((to, request)) = input.locator.as_deref().and_then(|l| self.address(l)) else {
            return done(FetchEnd::Unusable("the locator is no URL".into()));
        };
        let limits = CallLimits { connect: self.timeout, cut: self.timeout, body: max };
        let call = Outgoing { to: Arc::new(to), request, secret_headers: Vec::new(), not_after: None, via: Via::Own, limits };
        let sha256 = input.sha256.clone().unwrap_or_default();
        self.http.start(call, Box::new(|| true), Box::new(move |finished| done(judge(&finished, &sha256, max))));
    }
}

impl HttpFetcher {
    /// Fetches over `http` from public addresses, ten seconds at most.
    pub fn new(http: Arc<dyn HttpPort>) -> Self {
        Self { http, private: false, timeout: Duration::from_secs(10) }
    }

    fn address(&self, locator: &str) -> Option<(Destination, RenderedRequest)> {
        let uri: http::Uri = locator.parse().ok()?;
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let to = Destination {
            base_url: format!("{scheme}://{authority}"),
            hosts: vec![authority.host().to_owned()],
            private: self.private,
        };
        let request = RenderedRequest {
            method: "GET".into(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            ..RenderedRequest::default()
        };
        Some((to, request))
    }
}

fn judge(finished: &Finished, sha256: &str, max: usize) -> FetchEnd {
    let Wire::Answered(answer) = &finished.wire else { return FetchEnd::Later };
    match answer.status {
        200 => {}
        408 | 425 | 429 | 500.. => return FetchEnd::Later,
        status => return FetchEnd::Unusable(format!("its host answered {status}")),
    }
    if answer.body.len() > max {
        return FetchEnd::Unusable(format!("it has more than {max} bytes"));
    }
    if !hex(&Sha256::digest(&answer.body)).eq_ignore_ascii_case(sha256) {
        return FetchEnd::Unusable("its bytes do not have the hash that was named".into());
    }
    match std::str::from_utf8(&answer.body) {
        Ok(text) => FetchEnd::Text(text.to_owned()),
        Err(_) => FetchEnd::Unusable("it is no UTF-8 text".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Answer;
    use crate::time::WallTime;

    fn answered(status: u16, body: &str) -> Finished {
        let answer = Answer { status, headers: vec![], body: bytes::Bytes::copy_from_slice(body.as_bytes()) };
        Finished { wire: Wire::Answered(answer), began: WallTime(0), ended: WallTime(1), target_date: None }
    }

    /// If this broke, an operation would run on other bytes than its requester named.
    #[test]
    fn only_the_named_bytes_are_taken() {
        let hash = hex(&Sha256::digest(b"hello"));
        assert_eq!(judge(&answered(200, "hello"), &hash, 10), FetchEnd::Text("hello".into()));
        assert!(matches!(judge(&answered(200, "hullo"), &hash, 10), FetchEnd::Unusable(_)));
        assert!(matches!(judge(&answered(200, "hello"), &hash, 4), FetchEnd::Unusable(_)));
        assert!(matches!(judge(&answered(404, ""), &hash, 10), FetchEnd::Unusable(_)));
        assert_eq!(judge(&answered(503, ""), &hash, 10), FetchEnd::Later);
    }
}
