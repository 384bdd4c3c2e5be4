//! Up to the first byte: whatever ends a call here proves that nothing left.

use std::io;

use super::*;

/// C10: with the window over, by either clock, not one byte leaves; the target sees a connection and nothing on it.
#[test]
fn nothing_leaves_after_the_window() {
    let kit = Kit::new();
    let server = Server::start(|_| {});
    let now = kit.clock.now();
    let over = Duration::from_millis(1);
    let past = Now { wall: now.wall.minus(over), mono: crate::time::MonoTime(now.mono.0 - 1) };
    for (window, sent) in
        [(Now { wall: past.wall, ..now }, false), (Now { mono: past.mono, ..now }, false), (past, false), (now, true)]
    {
        let wire = kit.run(Outgoing { not_after: Some(window), ..post(server.at) });
        assert_eq!(wire == Wire::NotSent(NotSent::WindowOver), !sent, "{window:?}: {wire:?}");
    }
    assert_eq!(server.requests().len(), 1, "only the one inside its window");
}

/// C11: an attempt that was burned while its connection was made sends nothing.
#[test]
fn nothing_leaves_once_burned() {
    let kit = Kit::new();
    let server = Server::start(|_| {});
    let told = kit.begin(post(server.at), false);
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).expect("ends").wire, Wire::NotSent(NotSent::Burned));
    assert!(maybe(&kit.run(post(server.at))));
    assert_eq!(server.requests().len(), 1, "only the second");
}

/// C10: the check lies beneath TLS: the handshake may take its time, the request is stopped at the socket. The extra certificate
/// authority is what makes the handshake possible at all.
#[test]
fn the_window_is_checked_beneath_tls() {
    let (at, received) = tls_server();
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/tests"));
    let kit = Kit::with(Arc::new(SystemResolver), Some(&folder.join("cert.pem")));
    let call = |window| {
        let mut call = Outgoing { not_after: window, ..post(at) };
        Arc::make_mut(&mut call.to).base_url = format!("https://localhost:{}", at.port());
        call
    };
    assert_eq!(answered(kit.run(call(None))).status, 204);
    assert!(received.recv_timeout(Duration::from_secs(20)).expect("one") > 0);
    let past = Now { wall: WallTime(0), ..kit.clock.now() };
    assert_eq!(kit.run(call(Some(past))), Wire::NotSent(NotSent::WindowOver));
    assert_eq!(received.recv_timeout(Duration::from_secs(20)).expect("two"), 0);
    // A certificate that nobody vouches for, and a server that speaks no TLS.
    assert_eq!(Kit::new().run(call(None)), Wire::NotSent(NotSent::Tls));
    let mut plain = post(Server::answering(b"HTTP/1.1 200 OK\r\n\r\n").at);
    Arc::make_mut(&mut plain.to).base_url = plain.to.base_url.replace("http:", "https:");
    assert_eq!(kit.run(plain), Wire::NotSent(NotSent::Tls));
}

/// TLS with the test's certificate; these protocols are offered.
pub(super) fn tls_config(protocols: &[&[u8]]) -> tokio_rustls::rustls::ServerConfig {
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let certificate = CertificateDer::from_pem_slice(include_bytes!("cert.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("key.pem")).expect("a key");
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a pair");
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    config
}

/// A TLS server that answers 204; tells how many bytes of a request each connection brought.
fn tls_server() -> (SocketAddr, mpsc::Receiver<usize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let config = tls_config(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("for tokio");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
            while let Ok((tcp, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(tcp).await else {
                    let _ = tell.send(0);
                    continue;
                };
                let got = stream.read(&mut [0; 4096]).await.unwrap_or(0);
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                let _ = stream.shutdown().await;
                let _ = tell.send(got);
            }
        });
    });
    (at, told)
}

/// A resolver that says what it is told to.
struct Names(Mutex<Vec<io::Result<Vec<SocketAddr>>>>);

impl Resolver for Names {
    fn resolve(&self, _: String, _: u16) -> Resolved {
        let next = self.0.lock().expect("not poisoned").remove(0);
        Box::pin(async move { next })
    }
}

/// C080: a name that can't be resolved now is "not sent", to be tried again; a changed address is used; an address that the
/// contract does not allow is refused whatever name hides it.
#[test]
fn names_fail_passingly_and_private_addresses_are_refused() {
    let server = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let private = [
        "127.0.0.1:80",
        "10.1.2.3:80",
        "169.254.169.254:80",
        "100.64.0.1:80",
        "[::1]:80",
        "[fd00::1]:80",
        "[::ffff:10.0.0.1]:80",
        "0.0.0.0:80",
    ];
    let mut script = vec![Err(io::Error::other("SERVFAIL")), Ok(Vec::new()), Ok(vec![server.at])];
    script.extend(private.map(|a| Ok(vec![a.parse().expect("an address")])));
    let kit = Kit::with(Arc::new(Names(Mutex::new(script))), None);
    let call = |private| {
        let mut call = post(server.at);
        call.to =
            Arc::new(Destination { base_url: "http://orders.internal".into(), hosts: vec!["orders.internal".into()], private });
        call
    };
    assert_eq!(kit.run(call(true)), Wire::NotSent(NotSent::Unresolved));
    assert_eq!(kit.run(call(true)), Wire::NotSent(NotSent::Unresolved));
    assert_eq!(answered(kit.run(call(true))).status, 200);
    for address in private {
        assert_eq!(kit.run(call(false)), Wire::NotSent(NotSent::Forbidden), "{address}");
    }
    let mut elsewhere = post(server.at);
    Arc::make_mut(&mut elsewhere.to).hosts = vec!["orders.internal".into()];
    assert_eq!(kit.run(elsewhere), Wire::NotSent(NotSent::Forbidden));
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// If this broke, a target that is down would leave operations unknown that provably did not happen.
#[test]
fn a_refused_connection_is_not_sent() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    assert_eq!(Kit::new().run(post(free)), Wire::NotSent(NotSent::Unconnected));
}

/// C085, C086: what can't stand in a header or a request line is never put on the wire, nor are headers that frame the message.
#[test]
fn unsendable_requests_stay_here() {
    let kit = Kit::new();
    let server = Server::start(|_| {});
    for (name, value) in [
        ("x-ref", "a\r\nX-Admin: 1"),
        ("x-ref", "a\nb"),
        ("x-ref", "a\0"),
        ("x-ref", "M\u{fc}ller"),
        ("x ref", "a"),
        ("content-length", "0"),
        ("transfer-encoding", "chunked"),
        ("host", "other"),
    ] {
        let mut call = post(server.at);
        call.request.headers.push(Pair { name: name.into(), value: value.into() });
        assert_eq!(kit.run(call), Wire::NotSent(NotSent::Unsendable), "{name}: {value:?}");
    }
    for path in ["orders", "/a b", "/a\r\nX: 1", ""] {
        let mut call = post(server.at);
        call.request.path = path.into();
        assert_eq!(kit.run(call), Wire::NotSent(NotSent::Unsendable), "{path:?}");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

/// C118: a call that is printed shows no secret and no payload.
#[test]
fn secrets_do_not_print() {
    let shown = format!("{:?}", post("127.0.0.1:1".parse().expect("an address")));
    assert!(!shown.contains("MARK") && !shown.contains("A-1"), "{shown}");
}

/// If this broke, an attempt whose runtime went away would wait for ever.
#[test]
fn a_dropped_call_ends() {
    let kit = Kit::new();
    let server = Server::start(|s| drop(s.read(&mut [0; 1])));
    let told = kit.begin(post(server.at), true);
    while server.requests().is_empty() {
        std::thread::yield_now();
    }
    drop(kit);
    assert!(maybe(&told.recv_timeout(Duration::from_secs(20)).expect("ends").wire));
}
