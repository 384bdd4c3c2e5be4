//! From the first byte on: what is an answer, and what is none.

use super::*;

/// If this broke, targets would get other bytes than were journalled.
#[test]
fn a_call_goes_out_as_rendered_and_its_answer_comes_back_whole() {
    let server = Server::answering(
        b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\nX-Id: 7\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{\"id\": 7}",
    );
    let kit = Kit::new();
    let finished = kit.begin(post(server.at), true).recv_timeout(Duration::from_secs(20)).expect("ends");
    assert_eq!(finished.target_date, Some(WallTime(784_111_777_000)));
    assert_eq!(finished.began, kit.clock.now().wall);
    let answer = answered(finished.wire);
    assert_eq!((answer.status, &answer.body[..], answer.header("x-id")), (201, &b"{\"id\": 7}"[..], Some("7")));
    let request = String::from_utf8(server.requests().remove(0)).expect("text");
    assert!(request.starts_with("POST /orders?api_key=MARK HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"sku\":\"A-1\"}"), "{request}");
    for header in ["host: 127.0.0.1", "authorization: Bearer MARK", "content-length: 13", "connection: close"] {
        assert!(request.contains(header), "no {header} in {request}");
    }
}

/// C061, C062, C22: a target that closes without a word may have done it; the client asks nobody twice.
#[test]
fn a_close_without_an_answer_is_unknown_and_never_repeated() {
    let kit = Kit::new();
    let server = Server::start(|_| {});
    for n in 1..=20 {
        let mut call = post(server.at);
        call.request.body = Some(vec![b' '; if n % 2 == 0 { 100 * 1024 } else { 10 }]);
        assert!(maybe(&kit.run(call)), "call {n}");
        assert_eq!((server.requests().len(), server.connections.load(Ordering::SeqCst)), (n, n));
    }
    let half = Server::answering(b"HTTP/1.1 201 Crea");
    assert!(maybe(&kit.run(post(half.at))));
}

/// C073, C064: a gateway's page and an empty 200 are answers; what they mean is the contract's to say.
#[test]
fn any_whole_answer_is_an_answer() {
    let kit = Kit::new();
    let html = Server::answering(b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<h1>");
    assert_eq!(answered(kit.run(post(html.at))).status, 502);
    let empty = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(answered(kit.run(post(empty.at))).body.is_empty());
    let none = Server::answering(b"HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(answered(kit.run(post(none.at))).status, 204);
    let chunked = Server::answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(&answered(kit.run(post(chunked.at))).body[..], b"abc");
}

/// C074: a redirect is handed back as it is; nobody is asked with another method.
#[test]
fn redirects_are_not_followed() {
    let server = Server::answering(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answered(Kit::new().run(post(server.at))).status, 302);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// C076: an answer cut between chunks is no answer, even where what came would parse.
#[test]
fn a_chunked_answer_without_its_end_is_none() {
    let kit = Kit::new();
    for cut in [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{\"status\":\"done\"}\r\n"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"n\":\r\n2\r\n12",
    ] {
        assert!(maybe(&kit.run(post(Server::answering(cut).at))));
    }
    // Without length and chunks, the end of an answer can't be told from a cut.
    let endless = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"status\":\"done\"}");
    assert!(maybe(&kit.run(post(endless.at))));
}

/// C077: fewer bytes than announced, two lengths, or more bytes than announced.
#[test]
fn lengths_are_taken_at_their_word() {
    let kit = Kit::new();
    let short = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"status\":\"done\"}");
    assert!(maybe(&kit.run(post(short.at))));
    let two = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nabc");
    assert!(maybe(&kit.run(post(two.at))));
    let extra = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(&answered(kit.run(post(extra.at))).body[..], b"abc");
    assert_eq!(&answered(kit.run(post(extra.at))).body[..], b"abc", "the rest never becomes the next call's answer");
}

/// C079: an answer that drips, and a target that stays silent, end at the call's own limit; the connection is reset.
#[test]
fn slow_answers_end_at_the_cut_with_a_reset() {
    let kit = Kit::new();
    let (tell, told) = mpsc::channel();
    let silent = Server::start(move |s| {
        let _ = tell.send(s.read(&mut [0; 1]).map_err(|e| e.kind()));
    });
    let drip = Server::start(|s| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n");
        while s.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let short = |at| {
        let mut call = post(at);
        call.limits.cut = Duration::from_millis(200);
        call
    };
    let slow: Vec<_> = (0..16).map(|_| kit.begin(short(drip.at), true)).collect();
    let good = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answered(kit.run(post(good.at))).status, 200);
    for call in slow {
        assert!(maybe(&call.recv_timeout(Duration::from_secs(20)).expect("ends").wire));
    }
    assert!(maybe(&kit.run(short(silent.at))));
    let end = told.recv_timeout(Duration::from_secs(20)).expect("the server sees the end");
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset), "else the kernel would go on sending what it has");
}

/// If this broke, a target's answer could take all memory.
#[test]
fn answers_beyond_the_limit_are_not_read() {
    let server = Server::start(|s| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while s.write_all(b"400\r\n").and_then(|()| s.write_all(&[b'x'; 1024])).and_then(|()| s.write_all(b"\r\n")).is_ok() {}
    });
    let kit = Kit::new();
    assert!(maybe(&kit.run(post(server.at))));
    let head = Server::start(|s| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\n");
        while s.write_all(b"X-Filler: 0123456789\r\n").is_ok() {}
    });
    assert!(maybe(&kit.run(post(head.at))));
}

/// C086: bytes of an answer's header that are no text are kept readable, and nothing panics.
#[test]
fn answer_headers_may_hold_any_bytes() {
    let server = Server::answering(b"HTTP/1.1 200 OK\r\nX-Name: M\xfcller\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answered(Kit::new().run(post(server.at))).header("x-name"), Some("M\u{fffd}ller"));
}
