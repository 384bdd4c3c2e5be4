//! Kept connections: the wire proves the same on them, and none is used that is not provably open and silent.

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn kept(at: SocketAddr) -> Outgoing {
    Outgoing { via: Via::Kept, ..post(at) }
}

/// A server that answers each request on a connection; what it does after the first answer is `then`'s, which is told when it is done.
fn serving(then: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> (Server, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = Server::start(move |s| {
        let _ = s.write_all(OK);
        then(s);
        let _ = tell.lock().expect("not poisoned").send(());
    });
    (server, told)
}

fn goes_on(s: &mut TcpStream) {
    while !read_request(s).is_empty() {
        let _ = s.write_all(OK);
    }
}

/// If this broke, each call would pay for a connection of its own; or a call whose unknowns wait for a person would share one.
#[test]
fn calls_that_may_share_a_connection_do_and_others_do_not() {
    let kit = Kit::new();
    let (server, _told) = serving(goes_on);
    for _ in 0..3 {
        assert_eq!(answered(kit.run(kept(server.at))).body, "ok");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    answered(kit.run(post(server.at)));
    assert_eq!(server.connections.load(Ordering::SeqCst), 2, "a call of the other kind takes no kept one");
    answered(kit.run(kept(server.at)));
    assert_eq!(server.connections.load(Ordering::SeqCst), 2, "and leaves none behind");
    let first = |n: usize| String::from_utf8_lossy(&server.requests()[n]).to_ascii_lowercase();
    assert!(!first(0).contains("connection: close") && first(1).contains("connection: close"));
}

/// C10, C11: if this broke, a request would leave on a kept connection after its window, or after it was taken back.
#[test]
fn window_and_burn_are_checked_on_a_kept_connection_too() {
    for burned in [false, true] {
        let kit = Kit::new();
        let (told_of, more) = mpsc::channel();
        let told_of = Mutex::new(told_of);
        let (server, _told) = serving(move |s| {
            let _ = told_of.lock().expect("not poisoned").send(read_request(s).len());
        });
        answered(kit.run(kept(server.at)));
        let past = Now { wall: WallTime(0), ..kit.clock.now() };
        let call = Outgoing { not_after: (!burned).then_some(past), ..kept(server.at) };
        let wire = kit.begin(call, !burned).recv_timeout(Duration::from_secs(20)).expect("ends").wire;
        assert_eq!(wire, Wire::NotSent(if burned { NotSent::Burned } else { NotSent::WindowOver }));
        assert_eq!(more.recv_timeout(Duration::from_secs(20)).expect("the connection ended"), 0, "not one byte");
        assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    }
}

/// If this broke, a request would go where nobody listens any more and be unknown for nothing, or an answer out of turn would be taken
/// for the next call's.
#[test]
fn a_connection_that_has_ended_or_spoken_is_not_used() {
    let ends: [fn(&mut TcpStream); 2] =
        [|s| drop(s.shutdown(Shutdown::Both)), |s| drop(s.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"))];
    for end in ends {
        let kit = Kit::new();
        let (server, told) = serving(end);
        answered(kit.run(kept(server.at)));
        told.recv_timeout(Duration::from_secs(20)).expect("it has done so");
        assert_eq!(answered(kit.run(kept(server.at))).status, 200);
        assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    }
}

/// If this broke, a target that wants each call on its own connection would be called on one that it is about to close.
#[test]
fn a_connection_that_the_target_gives_up_is_not_kept() {
    let kit = Kit::new();
    let server = Server::start(|s| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        let _ = read_request(s);
    });
    for _ in 0..2 {
        answered(kit.run(kept(server.at)));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

/// If this broke, a request that was read and not answered would count as not sent.
#[test]
fn what_left_on_a_kept_connection_may_have_arrived() {
    let kit = Kit::new();
    let (server, _told) = serving(|s| drop(read_request(s)));
    answered(kit.run(kept(server.at)));
    assert!(maybe(&kit.run(kept(server.at))), "it was read, and the connection ended");
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// If this broke, one connection to a host would serve calls that may not reach its address, or another host.
#[test]
fn a_connection_is_kept_for_its_place_only() {
    let kit = Kit::new();
    let (server, _told) = serving(goes_on);
    answered(kit.run(kept(server.at)));
    let mut public = kept(server.at);
    Arc::make_mut(&mut public.to).private = false;
    assert_eq!(kit.run(public), Wire::NotSent(NotSent::Forbidden));
    let mut elsewhere = kept(server.at);
    Arc::make_mut(&mut elsewhere.to).hosts = vec!["orders.internal".into()];
    assert_eq!(kit.run(elsewhere), Wire::NotSent(NotSent::Forbidden));
}
