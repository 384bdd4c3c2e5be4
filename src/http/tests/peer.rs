//! A server that speaks HTTP/2 frame by frame, so that it can misbehave as it likes.

use super::*;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
/// Of DATA and HEADERS: nothing follows on this stream.
pub(super) const END_STREAM: u8 = 1;
/// Of SETTINGS and PING.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) bytes: Vec<u8>,
}

/// The server's end of one connection.
pub(super) struct Peer {
    pub(super) tcp: TcpStream,
    /// Whether it answers PINGs.
    pub(super) pongs: bool,
}

impl Peer {
    /// The first words of both sides. `most` streams at once; a stream's window is as wide as can be where `wide`, else of 64 KB.
    pub(super) fn greet(tcp: TcpStream, most: Option<u32>, wide: bool) -> Peer {
        let mut peer = Peer { tcp, pongs: true };
        let _ = peer.tcp.read_exact(&mut [0; 24]);
        let mut settings = Vec::new();
        let mut set = |id: u16, value: u32| settings.extend([&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        if let Some(most) = most {
            set(MAX_CONCURRENT_STREAMS, most);
        }
        if wide {
            set(INITIAL_WINDOW_SIZE, 0x7fff_ffff);
        }
        peer.say(SETTINGS, 0, 0, &settings);
        peer.say(WINDOW_UPDATE, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
        peer
    }

    pub(super) fn say(&mut self, kind: u8, flags: u8, stream: u32, bytes: &[u8]) {
        let length = (bytes.len() as u32).to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        let _ = self.tcp.write_all(&[&head[..], bytes].concat());
    }

    /// The next frame that is not about the connection itself; `None` at its end.
    pub(super) fn hear(&mut self) -> std::io::Result<Frame> {
        loop {
            let mut head = [0; 9];
            self.tcp.read_exact(&mut head)?;
            let [a, b, c, kind, flags, s @ ..] = head;
            let mut bytes = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.tcp.read_exact(&mut bytes)?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.say(SETTINGS, ACK, 0, b""),
                PING if self.pongs => self.say(PING, ACK, 0, &bytes),
                SETTINGS | PING | WINDOW_UPDATE => {}
                _ => return Ok(Frame { kind, flags, stream: u32::from_be_bytes(s), bytes }),
            }
        }
    }

    /// Reads until a request is whole; its stream.
    pub(super) fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.hear().ok()?;
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                return Some(frame.stream);
            }
        }
    }

    /// Begins an answer: 200.
    pub(super) fn begin(&mut self, stream: u32) {
        self.say(HEADERS, END_HEADERS, stream, &[0x88]);
    }

    pub(super) fn answer(&mut self, stream: u32, body: &[u8]) {
        self.begin(stream);
        self.say(DATA, END_STREAM, stream, body);
    }

    pub(super) fn reset(&mut self, stream: u32, code: u32) {
        self.say(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    pub(super) fn go_away(&mut self, last: u32, code: u32) {
        self.say(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat());
    }
}

/// A server of such peers.
pub(super) struct Peers {
    pub(super) at: SocketAddr,
    pub(super) connections: Arc<AtomicUsize>,
}

impl Peers {
    /// Each connection is greeted and handed to `react`.
    pub(super) fn start(react: impl Fn(&mut Peer) + Send + Sync + 'static) -> Peers {
        Peers::of(None, false, react)
    }

    pub(super) fn of(most: Option<u32>, wide: bool, react: impl Fn(&mut Peer) + Send + Sync + 'static) -> Peers {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, react) = (connections.clone(), Arc::new(react));
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let react = react.clone();
                std::thread::spawn(move || react(&mut Peer::greet(tcp, most, wide)));
            }
        });
        Peers { at, connections }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}
