//! HTTP/2: calls that share a connection, which version is spoken, and what a cut leaves behind.

use super::peer::*;
use super::*;

fn streamed(at: SocketAddr) -> Outgoing {
    Outgoing { via: Via::Http2, ..post(at) }
}

fn end(told: &mpsc::Receiver<Finished>) -> Wire {
    told.recv_timeout(Duration::from_secs(20)).expect("every call ends").wire
}

/// With the call's own limit.
fn within(limit: Duration, mut call: Outgoing) -> Outgoing {
    call.limits.cut = limit;
    call
}

/// A server that another hand wrote: it answers 201 with the request's body, and keeps the requests' heads.
fn h2_server(tls: Option<&'static [&'static [u8]]>) -> (SocketAddr, Arc<AtomicUsize>, mpsc::Receiver<http::request::Parts>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("for tokio");
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((tcp, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let tell = tell.clone();
                match tls {
                    None => drop(tokio::spawn(serve(tcp, tell))),
                    Some(offer) => {
                        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(super::before::tls_config(offer)));
                        tokio::spawn(async move {
                            let Ok(mut stream) = acceptor.accept(tcp).await else { return };
                            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                                return serve(stream, tell).await;
                            }
                            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
                            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 204 No Content\r\n\r\n").await;
                            let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
                        });
                    }
                }
            }
        });
    });
    (at, connections, told)
}

async fn serve(io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, tell: mpsc::Sender<http::request::Parts>) {
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (head, mut body) = request.into_parts();
        let tell = tell.clone();
        tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(Ok(some)) = body.data().await {
                let _ = body.flow_control().release_capacity(some.len());
                all.extend_from_slice(&some);
            }
            let _ = tell.send(head);
            let answer = http::Response::builder().status(201).header("x-id", "7").header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
            let Ok(mut stream) = respond.send_response(answer.body(()).expect("a head"), false) else { return };
            let _ = stream.send_data(all.into(), true);
        });
    }
}

/// If this broke, targets would get other bytes than were journalled, or each call would make a connection.
#[test]
fn calls_share_a_connection_and_go_out_as_rendered() {
    let (at, connections, told) = h2_server(None);
    let kit = Kit::new();
    let calls: Vec<_> = (0..40)
        .map(|n| {
            let mut call = streamed(at);
            // Some of them larger than any window.
            call.request.body = Some(vec![b'a' + (n % 26) as u8; if n % 10 == 0 { 200_000 } else { 10 }]);
            call.limits.body = 300_000;
            (call.request.body.clone().expect("just set"), kit.begin(call, true))
        })
        .collect();
    for (body, told) in calls {
        let finished = told.recv_timeout(Duration::from_secs(20)).expect("ends");
        assert_eq!((finished.target_date, finished.began), (Some(WallTime(784_111_777_000)), kit.clock.now().wall));
        let answer = answered(finished.wire);
        assert_eq!((answer.status, answer.header("x-id")), (201, Some("7")));
        assert!(answer.body == body, "each its own answer");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1, "also where they begin at once");
    let head = told.recv_timeout(Duration::from_secs(20)).expect("one");
    assert_eq!((head.method.as_str(), head.uri.to_string()), ("POST", format!("http://{at}/orders?api_key=MARK")));
    let header = |name: &str| head.headers.get(name).map(|v| v.to_str().expect("text"));
    assert_eq!((header("content-type"), header("authorization")), (Some("application/json"), Some("Bearer MARK")));
    assert_eq!((header("host"), header("connection")), (None, None));
    let mut empty = streamed(at);
    empty.request.body = None;
    assert!(answered(kit.run(empty)).body.is_empty());
}

/// C010, C011 on a stream: if this broke, a request would be queued after its window, or after it was taken back.
#[test]
fn window_and_burn_are_checked_before_a_stream_is_queued() {
    let (at, connections, told) = h2_server(None);
    let kit = Kit::new();
    answered(kit.run(streamed(at)));
    let past = Now { wall: WallTime(0), ..kit.clock.now() };
    assert_eq!(kit.run(Outgoing { not_after: Some(past), ..streamed(at) }), Wire::NotSent(NotSent::WindowOver));
    assert_eq!(end(&kit.begin(streamed(at), false)), Wire::NotSent(NotSent::Burned));
    answered(kit.run(streamed(at)));
    assert_eq!((told.try_iter().count(), connections.load(Ordering::SeqCst)), (2, 1));
}

/// If this broke, a call would wait in a queue that its target does not know of.
#[test]
fn beyond_what_a_connection_takes_there_is_another() {
    // Nobody is answered before all six have come, two to a connection.
    let all_here = std::sync::Barrier::new(3);
    let peers = Peers::of(Some(2), false, move |peer| {
        if let (Some(first), Some(second)) = (peer.request(), peer.request()) {
            all_here.wait();
            peer.answer(first, b"ok");
            peer.answer(second, b"ok");
            let _ = peer.hear();
        }
    });
    let kit = Kit::new();
    let calls: Vec<_> = (0..6).map(|_| kit.begin(streamed(peers.at), true)).collect();
    for told in &calls {
        answered(end(told));
    }
    assert_eq!(peers.connections(), 3);
}

/// If this broke, one target that speaks the other version would make every call to it unknown.
#[test]
fn a_target_that_does_not_speak_it_is_not_sent_anything() {
    let old = Server::answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(Kit::new().run(streamed(old.at)), Wire::NotSent(NotSent::NoHttp2));
    let requests = old.requests();
    assert!(requests.iter().all(|r| !String::from_utf8_lossy(r).contains("orders")), "the greeting alone");
    // Without TLS there is nothing to choose by.
    let one = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answered(Kit::new().run(Outgoing { via: Via::Either, ..post(one.at) })).status, 200);
    // A server that takes the connection and says nothing.
    let silent = Server::start(|s| while s.read(&mut [0; 64]).is_ok_and(|n| n > 0) {});
    let mut call = streamed(silent.at);
    call.limits.connect = Duration::from_millis(200);
    assert_eq!(Kit::new().run(call), Wire::NotSent(NotSent::Unconnected));
}

/// If this broke, HTTP/2 would be spoken where the contract does not allow it, or not where both want it.
#[test]
fn the_version_is_chosen_by_tls() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/tests"));
    let kit = || Kit::with(Arc::new(SystemResolver), Some(&folder.join("cert.pem")));
    let call = |at: SocketAddr, via| {
        let mut call = Outgoing { via, ..post(at) };
        Arc::make_mut(&mut call.to).base_url = format!("https://localhost:{}", at.port());
        call
    };
    let (both, one, none) = (h2_server(Some(&[b"h2", b"http/1.1"])), h2_server(Some(&[b"http/1.1"])), h2_server(Some(&[])));
    let status = |at, via| match kit().run(call(at, via)) {
        Wire::Answered(answer) => Ok(answer.status),
        Wire::NotSent(why) => Err(why),
        Wire::MaybeSent(why) => panic!("{why}"),
    };
    // 201 is answered in HTTP/2, 204 in HTTP/1.1.
    for (via, at_both, at_one, at_none) in [
        (Via::Own, Ok(204), Ok(204), Ok(204)),
        (Via::Kept, Ok(204), Ok(204), Ok(204)),
        (Via::Either, Ok(201), Ok(204), Ok(204)),
        (Via::Http2, Ok(201), Err(NotSent::Tls), Err(NotSent::NoHttp2)),
    ] {
        let got = (status(both.0, via), status(one.0, via), status(none.0, via));
        assert_eq!(got, (at_both, at_one, at_none), "{via:?}");
    }
    let head = both.2.recv_timeout(Duration::from_secs(20)).expect("one");
    assert_eq!(head.uri.to_string(), format!("https://localhost:{}/orders?api_key=MARK", both.0.port()));
    let kit = kit();
    let before = both.1.load(Ordering::SeqCst);
    for _ in 0..3 {
        answered(kit.run(call(both.0, Via::Either)));
    }
    assert_eq!(both.1.load(Ordering::SeqCst), before + 1, "one connection for all");
}

/// C079: a stream that stalls or drips ends at its call's limit and is taken back; those beside it go on.
#[test]
fn a_slow_stream_ends_at_the_cut_and_leaves_the_others() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let peers = Peers::start(move |peer| {
        let mut wants = 0;
        while let Ok(frame) = peer.hear() {
            let whole = frame.flags & END_STREAM != 0;
            match frame.kind {
                // The first drips its answer, as often as another frame comes; the second is never let send more than a window.
                HEADERS | DATA if whole && wants == 0 => {
                    wants = frame.stream;
                    peer.begin(wants);
                    peer.say(DATA, 0, wants, b"x");
                }
                HEADERS | DATA if whole => peer.answer(frame.stream, b"ok"),
                RST_STREAM => drop(tell.lock().expect("not poisoned").send((frame.stream, frame.bytes))),
                _ => {}
            }
            if wants != 0 {
                peer.say(DATA, 0, wants, b"x");
            }
        }
    });
    let kit = Kit::new();
    let limit = Duration::from_secs(2);
    let drips = kit.begin(within(limit, streamed(peers.at)), true);
    let mut large = within(limit, streamed(peers.at));
    large.request.body = Some(vec![b' '; 100_000]);
    let stalls = kit.begin(large, true);
    assert!(maybe(&end(&drips)) && maybe(&end(&stalls)));
    let mut taken_back: Vec<_> = (0..2).map(|_| told.recv_timeout(Duration::from_secs(20)).expect("a reset")).collect();
    taken_back.sort();
    assert_eq!(taken_back, [(1, vec![0, 0, 0, 8]), (3, vec![0, 0, 0, 8])], "with CANCEL");
    assert_eq!(answered(kit.run(streamed(peers.at))).body, "ok");
    assert_eq!(peers.connections(), 1, "a target that hears us keeps its connection");
}

/// If this broke, a request could lie in a buffer of ours and leave long after its limit, when nobody waits for it any more.
#[test]
fn without_a_sign_that_all_has_arrived_a_cut_resets_the_connection() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let peers = Peers::start(move |peer| {
        peer.pongs = false;
        let seen: Vec<_> = std::iter::from_fn(|| peer.hear().ok().map(|f| (f.kind, f.stream))).collect();
        let over = peer.tcp.read(&mut [0; 1]).map_err(|e| e.kind());
        let _ = tell.lock().expect("not poisoned").send((seen, over));
    });
    let kit = Kit::new();
    let short = kit.begin(within(Duration::from_millis(400), streamed(peers.at)), true);
    // Longer than this test waits: it ends because its neighbour's cut took the connection.
    let long = kit.begin(within(Duration::from_secs(600), streamed(peers.at)), true);
    assert!(maybe(&end(&short)) && maybe(&end(&long)), "the other one is told at once");
    let (seen, over) = told.recv_timeout(Duration::from_secs(10)).expect("the server sees the end");
    assert!(seen.contains(&(HEADERS, 1)) && seen.contains(&(RST_STREAM, 1)), "{seen:?}");
    assert!(!matches!(over, Ok(n) if n > 0), "{over:?}");
}

/// If this broke, a call that waited behind another one's bytes and never left would wait for a readback; or it would leave later.
#[test]
fn what_waits_in_the_queue_has_not_been_sent() {
    let waits = || {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let (end_of, both_over) = mpsc::channel::<()>();
        let both_over = Mutex::new(both_over);
        let peers = Peers::of(None, true, move |peer| {
            // Reads a part of the first request and then nothing, until both calls are over; then all that there is.
            let _ = peer.hear();
            let _ = tell.lock().expect("not poisoned").send(0);
            let _ = both_over.lock().expect("not poisoned").recv();
            let last = std::iter::from_fn(|| peer.hear().ok()).map(|f| f.stream).max();
            let _ = tell.lock().expect("not poisoned").send(last.unwrap_or(0));
        });
        let kit = Kit::new();
        let mut large = streamed(peers.at);
        large.request.body = Some(vec![b' '; 64 << 20]);
        let first = kit.begin(large, true);
        told.recv_timeout(Duration::from_secs(20)).expect("it came");
        std::thread::sleep(Duration::from_millis(100));
        let second = end(&kit.begin(within(Duration::from_millis(400), streamed(peers.at)), true));
        assert!(maybe(&end(&first)), "the first had begun");
        drop(end_of);
        let last_seen = told.recv_timeout(Duration::from_secs(20)).expect("the server sees the end");
        assert_eq!(peers.connections(), 1);
        (second, last_seen)
    };
    // Whether the second is queued before the socket is full is up to the machine; that it is told right is not.
    for _ in 0..20 {
        match waits() {
            (Wire::NotSent(NotSent::Unconnected), last) => return assert!(last < 3, "it was seen"),
            (wire, _) => assert!(maybe(&wire), "{wire:?}"),
        }
    }
    panic!("never queued behind a full socket");
}

/// If this broke, a target's answer could take all memory, or a stream of nothing all time.
#[test]
fn answers_beyond_the_limits_are_not_read() {
    let large = Peers::start(|peer| {
        let Some(stream) = peer.request() else { return };
        peer.begin(stream);
        // Whoever read it to its end would have an answer.
        for n in 1..=8 {
            peer.say(DATA, if n == 8 { END_STREAM } else { 0 }, stream, &[b'x'; 16 * 1024]);
        }
        while let Some(stream) = peer.request() {
            peer.answer(stream, b"ok");
        }
    });
    let kit = Kit::new();
    assert!(maybe(&kit.run(streamed(large.at))));
    assert_eq!(answered(kit.run(streamed(large.at))).body, "ok");
    assert_eq!(large.connections(), 1);
    let head = Peers::start(|peer| {
        let Some(stream) = peer.request() else { return };
        // A literal header, never indexed, again and again: 100 KB of them.
        let header = [&[0x10, 1, b'x', 100][..], &[b'v'; 100]].concat();
        peer.say(HEADERS, 0, stream, &[0x88]);
        for n in 1..=10 {
            peer.say(9, if n == 10 { 4 } else { 0 }, stream, &header.repeat(100));
        }
        let _ = peer.hear();
    });
    assert!(maybe(&kit.run(streamed(head.at))));
}
