//! How connections are taken: as many as are planned for, and none that does not say what it wants. A client that sends its head one
//! byte a minute would else hold a connection, and with enough of them all descriptors of a member.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How long the head of a request may take, from its connection or from the answer before it.
pub const HEAD: Duration = Duration::from_secs(15);
/// Connections at once; more wait to be taken.
const CONNECTIONS: usize = 1_024;
/// After an accept that failed: descriptors are short, and trying again at once would spin.
const PAUSE: Duration = Duration::from_millis(200);

/// Answers `app` on a listener for ever; `head` is how long the head of a request may take.
pub async fn serve(listener: TcpListener, app: axum::Router, head: Duration) {
    let make = TowerToHyperService::new(app.into_make_service_with_connect_info::<SocketAddr>());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(taken) => taken,
            Err(e) => {
                tracing::warn!(error = %e, "a connection is not taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(service) = make.call(from).await;
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(head);
            // A client that goes, or is too slow, is nobody's fault.
            let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// If this broke, whoever opens connections and says nothing would take all of them.
    #[tokio::test]
    async fn a_connection_that_never_says_what_it_wants_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let at = listener.local_addr().expect("an address");
        let app = axum::Router::new().route("/", axum::routing::get(|| async { "here" }));
        let server = tokio::spawn(serve(listener, app, Duration::from_millis(200)));
        let mut slow = tokio::net::TcpStream::connect(at).await.expect("connects");
        slow.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ").await.expect("writes");
        let mut rest = Vec::new();
        // Without the bound this waits for ever.
        slow.read_to_end(&mut rest).await.expect("is closed");
        assert!(!String::from_utf8_lossy(&rest).contains("here"), "{rest:?}");
        let mut quick = tokio::net::TcpStream::connect(at).await.expect("connects");
        quick.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.expect("writes");
        let mut answer = String::new();
        quick.read_to_string(&mut answer).await.expect("answers");
        assert!(answer.ends_with("here"), "{answer}");
        server.abort();
    }
}
