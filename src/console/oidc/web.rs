//! How the issuer is asked: by the program's own HTTP client. No redirect is followed, an answer is bounded in size and time, and what
//! was named with https is never asked in the clear.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openidconnect::{HttpRequest, HttpResponse};
use tokio::sync::oneshot;

use crate::error::Result;
use crate::http::{CallLimits, Destination, Finished, HttpPort, HyperPort, NotSent, Outgoing, Via, Wire, host_of};
use crate::intents::{Pair, RenderedRequest};
use crate::time::SystemClock;

/// Limits of one call: an issuer's documents are a few kilobytes.
const LIMITS: CallLimits = CallLimits { connect: Duration::from_secs(3), cut: Duration::from_secs(5), body: 512 * 1024 };

/// Why the issuer gave no answer; holds nothing of the request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(String);

/// Asks one issuer.
pub struct Web {
    port: HyperPort,
    /// Whether the issuer was named with https: then everything of it must be.
    tls: bool,
}

impl Web {
    /// On `runtime`, trusting the certificates in `ca` beside the public ones.
    ///
    /// # Errors
    /// `FILE_UNREADABLE`.
    pub fn new(runtime: tokio::runtime::Handle, tls: bool, ca: Option<&Path>) -> Result<Self> {
        Ok(Self { port: HyperPort::new(runtime, Arc::new(SystemClock), ca)?, tls })
    }

    /// One request, one whole answer.
    ///
    /// # Errors
    /// No whole answer came; or the address may not be asked.
    pub async fn ask(&self, request: HttpRequest) -> std::result::Result<HttpResponse, NoAnswer> {
        let call = outgoing(request, self.tls)?;
        let (tell, told) = oneshot::channel();
        // Whoever waited may have gone.
        self.port.start(call, Box::new(|| true), Box::new(move |end| drop(tell.send(end))));
        let end: Finished = told.await.map_err(|_| NoAnswer("the call was dropped".to_owned()))?;
        match end.wire {
            Wire::Answered(answer) => {
                let mut response = http::Response::builder().status(answer.status);
                for (name, value) in &answer.headers {
                    response = response.header(name, value);
                }
                response.body(answer.body.to_vec()).map_err(|e| NoAnswer(e.to_string()))
            }
            Wire::MaybeSent(why) => Err(NoAnswer(why)),
            Wire::NotSent(why) => Err(NoAnswer(words(why).to_owned())),
        }
    }
}

fn words(why: NotSent) -> &'static str {
    match why {
        NotSent::Unresolved => "its name has no address",
        NotSent::Unconnected => "no connection",
        NotSent::Tls => "no TLS: its certificate is not trusted, or not for this name",
        _ => "it can't be asked",
    }
}

fn outgoing(request: HttpRequest, tls: bool) -> std::result::Result<Outgoing, NoAnswer> {
    let (head, body) = request.into_parts();
    let wrong = |why: &str| NoAnswer(why.to_owned());
    let scheme = head.uri.scheme_str().unwrap_or_default();
    if tls && scheme != "https" {
        return Err(wrong("it names an address without TLS"));
    }
    let authority = head.uri.authority().ok_or_else(|| wrong("it names an address without a host"))?;
    let base_url = format!("{scheme}://{authority}");
    let host = host_of(&base_url).ok_or_else(|| wrong("it names an address that is none"))?;
    let text = |v: &http::HeaderValue| v.to_str().map(str::to_owned).map_err(|_| wrong("a header is no text"));
    let (mut headers, mut secret_headers) = (Vec::new(), Vec::new());
    for (name, value) in &head.headers {
        let (name, value) = (name.as_str().to_owned(), text(value)?);
        if name == http::header::AUTHORIZATION.as_str() {
            secret_headers.push((name, value));
        } else {
            headers.push(Pair { name, value });
        }
    }
    let body = if body.is_empty() { None } else { Some(body) };
    Ok(Outgoing {
        // Who runs the console names the issuer, and issuers stand in private networks, too.
        to: Arc::new(Destination { base_url, hosts: vec![host], private: true }),
        request: RenderedRequest {
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers,
            body,
        },
        secret_headers,
        not_after: None,
        via: Via::Own,
        limits: LIMITS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str) -> HttpRequest {
        http::Request::post(uri).header("authorization", "Basic MARK").body(b"code=MARK".to_vec()).expect("a request")
    }

    /// If this broke, an issuer's document could lead the client's secret away from TLS.
    #[test]
    fn an_issuer_with_tls_is_never_asked_in_the_clear() {
        let refused = outgoing(asked("http://id.acme.example/token"), true).map(|_| ()).expect_err("is refused");
        assert_eq!(refused.to_string(), "it names an address without TLS");
        let call = outgoing(asked("https://id.acme.example:8443/a/token?b=c"), true).expect("goes");
        assert_eq!(
            (call.to.base_url.as_str(), call.to.hosts.as_slice()),
            ("https://id.acme.example:8443", &["id.acme.example".to_owned()][..])
        );
        assert_eq!((call.request.path.as_str(), call.request.query.as_str()), ("/a/token", "b=c"));
        assert!(!format!("{call:?}").contains("MARK"), "{call:?}");
        assert!(outgoing(asked("http://127.0.0.1:9/token"), false).is_ok());
    }
}
