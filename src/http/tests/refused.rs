//! HTTP/2: what the other side says of a stream it did nothing with is proof; all else that ends one is not.

use super::peer::*;
use super::*;

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
const HTTP_1_1_REQUIRED: u32 = 13;

const REFUSED: Wire = Wire::NotSent(NotSent::Refused);

fn streamed(at: SocketAddr) -> Outgoing {
    Outgoing { via: Via::Http2, ..post(at) }
}

fn end(told: &mpsc::Receiver<Finished>) -> Wire {
    told.recv_timeout(Duration::from_secs(20)).expect("every call ends").wire
}

/// If this broke, a refused stream would wait for a readback; or one that was read and given up would be sent again as if it had not been.
#[test]
fn a_refused_stream_is_not_sent_and_one_that_is_reset_may_be() {
    for (code, refused) in [
        (REFUSED_STREAM, true),
        (NO_ERROR, false),
        (INTERNAL_ERROR, false),
        (CANCEL, false),
        (ENHANCE_YOUR_CALM, false),
        (HTTP_1_1_REQUIRED, false),
        (0x1234, false),
    ] {
        let peers = Peers::start(move |peer| {
            while let Some(stream) = peer.request() {
                peer.reset(stream, code);
            }
        });
        let kit = Kit::new();
        for _ in 0..2 {
            let wire = kit.run(streamed(peers.at));
            assert_eq!(wire == REFUSED, refused, "{code}: {wire:?}");
            assert!(refused || maybe(&wire), "{code}: {wire:?}");
        }
        assert_eq!(peers.connections(), 1, "{code}: the connection has done nothing wrong");
    }
}

/// If this broke, a target could answer and take it back, and the call would be sent again.
#[test]
fn a_refusal_behind_the_beginning_of_an_answer_proves_nothing() {
    let reset = Peers::start(|peer| {
        let Some(stream) = peer.request() else { return };
        peer.begin(stream);
        peer.reset(stream, REFUSED_STREAM);
        let _ = peer.hear();
    });
    assert!(maybe(&Kit::new().run(streamed(reset.at))));
    let gone = Peers::start(|peer| {
        let Some(stream) = peer.request() else { return };
        peer.begin(stream);
        peer.go_away(0, NO_ERROR);
        let _ = peer.hear();
    });
    assert!(maybe(&Kit::new().run(streamed(gone.at))));
}

/// Two calls on one connection, in the order of their streams; `react` runs when both requests are whole.
fn two_calls(react: impl Fn(&mut Peer) + Send + Sync + 'static) -> (Wire, Wire, Kit, Peers) {
    let peers = Peers::start(move |peer| {
        // A first call makes the connection, so that the two find it.
        let Some(first) = peer.request() else { return };
        peer.answer(first, b"ok");
        if let (Some(_), Some(_)) = (peer.request(), peer.request()) {
            react(peer);
        }
    });
    let kit = Kit::new();
    answered(kit.run(streamed(peers.at)));
    let earlier = kit.begin(streamed(peers.at), true);
    let later = kit.begin(streamed(peers.at), true);
    // The runtime has one thread and takes calls in turn: streams 3 and 5.
    (end(&earlier), end(&later), kit, peers)
}

/// If this broke, a call that a target left alone when it went would wait for a readback; or one that it had begun would be sent again.
#[test]
fn a_goaway_proves_it_for_later_streams_only() {
    let (earlier, later, kit, peers) = two_calls(|peer| {
        peer.go_away(3, NO_ERROR);
        peer.answer(3, b"done");
        while peer.hear().is_ok() {}
    });
    assert_eq!(answered(earlier).body, "done", "what it had begun goes on");
    assert_eq!(later, REFUSED);
    assert_eq!(peers.connections(), 1);
    answered_elsewhere(&kit, &peers);

    let (earlier, later, ..) = two_calls(|peer| peer.go_away(3, INTERNAL_ERROR));
    assert!(maybe(&earlier), "the reason names the connection, not what became of the stream: {earlier:?}");
    assert_eq!(later, REFUSED);

    let (earlier, later, ..) = two_calls(|peer| peer.go_away(5, ENHANCE_YOUR_CALM));
    assert!(maybe(&earlier) && maybe(&later), "{earlier:?}, {later:?}");

    let (earlier, later, ..) = two_calls(|peer| {
        peer.go_away(0x7fff_ffff, NO_ERROR);
        peer.go_away(3, NO_ERROR);
    });
    assert!(maybe(&earlier), "{earlier:?}");
    assert_eq!(later, REFUSED, "a target that goes in two steps");
}

/// A connection whose other side goes is not used again.
fn answered_elsewhere(kit: &Kit, peers: &Peers) {
    answered(kit.run(streamed(peers.at)));
    assert_eq!(peers.connections(), 2);
}

/// C061, C062: if this broke, a request that was read would be taken for one that was not.
#[test]
fn a_connection_that_ends_proves_nothing() {
    let (earlier, later, ..) = two_calls(|_| {});
    assert!(maybe(&earlier) && maybe(&later), "{earlier:?}, {later:?}");
    let (earlier, later, ..) = two_calls(|peer| {
        let _ = peer.tcp.write_all(b"HTTP/1.1 500 Internal Server Error\r\n\r\n");
        let _ = peer.hear();
    });
    assert!(maybe(&earlier) && maybe(&later), "what is no frame: {earlier:?}, {later:?}");
    let (earlier, later, ..) = two_calls(|peer| {
        // :method GET, :path /, :scheme http: a request that the server makes up.
        peer.say(PUSH_PROMISE, 4, 3, &[0, 0, 0, 2, 0x82, 0x84, 0x86]);
        peer.answer(3, b"ok");
        let _ = peer.hear();
    });
    assert!(maybe(&earlier) && maybe(&later), "pushes were forbidden: {earlier:?}, {later:?}");
}

/// C076: an answer that ends without its END_STREAM is none, whatever reason is named for it.
#[test]
fn an_answer_without_its_end_is_none() {
    for code in [NO_ERROR, CANCEL, INTERNAL_ERROR] {
        let peers = Peers::start(move |peer| {
            let Some(stream) = peer.request() else { return };
            peer.begin(stream);
            peer.say(DATA, 0, stream, br#"{"status":"done"}"#);
            peer.reset(stream, code);
            let _ = peer.hear();
        });
        let wire = Kit::new().run(streamed(peers.at));
        assert!(maybe(&wire), "{code}: {wire:?}");
    }
    let cut = Peers::start(|peer| {
        let Some(stream) = peer.request() else { return };
        peer.begin(stream);
        peer.say(DATA, 0, stream, br#"{"status":"done"}"#);
    });
    assert!(maybe(&Kit::new().run(streamed(cut.at))));
}
