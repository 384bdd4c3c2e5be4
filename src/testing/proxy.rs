//! A TCP proxy before a broker. It loses or delays answers to chosen requests, after the broker has done what they asked; it keeps
//! chosen requests from the broker; and it can be shut, as a network is.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Kafka's number of the request that ends a transaction.
pub const END_TXN: i16 = 26;

/// What happens to an answer.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It never arrives; the connection stays.
    Swallowed,
    /// It never arrives, and the connection breaks.
    Cut,
    /// It arrives later.
    Late(Duration),
}

/// A running proxy; it stops when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    listen: SocketAddr,
    accepting: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    target: String,
    stopped: AtomicBool,
    /// By request: what happens to how many more answers.
    fates: Mutex<HashMap<i16, (Fate, u32)>>,
    streams: Mutex<Vec<TcpStream>>,
    /// The request that does not reach the broker, and how often it was tried.
    withheld: Mutex<Option<i16>>,
    tried: AtomicU32,
    /// Whether nothing passes at all.
    shut: AtomicBool,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Listens at `listen`, the address that the broker advertises for the listener at `target`.
    pub fn start(listen: &str, target: &str) -> std::io::Result<Proxy> {
        let listener = TcpListener::bind(listen)?;
        let listen = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            stopped: AtomicBool::new(false),
            fates: Mutex::default(),
            streams: Mutex::default(),
            withheld: Mutex::default(),
            tried: AtomicU32::new(0),
            shut: AtomicBool::new(false),
        });
        let here = Arc::clone(&shared);
        let accepting = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            for client in listener.incoming().flatten() {
                if here.stopped.load(Ordering::Acquire) {
                    return;
                }
                // A broker that is down looks to the client like a connection that breaks.
                if !here.shut.load(Ordering::Acquire) {
                    let _ = connect(&here, client);
                }
            }
        })?;
        Ok(Proxy { shared, listen, accepting: Some(accepting) })
    }
    /// The next `times` answers to requests numbered `api` meet this fate.
    pub fn disturb(&self, api: i16, fate: Fate, times: u32) {
        locked(&self.shared.fates).insert(api, (fate, times));
    }
    /// How many of those answers did not come by yet.
    pub fn left(&self, api: i16) -> u32 {
        locked(&self.shared.fates).get(&api).map_or(0, |(_, left)| *left)
    }
    /// Requests numbered `api` no longer reach the broker, until [`open`](Self::open).
    pub fn withhold(&self, api: i16) {
        self.shared.tried.store(0, Ordering::Release);
        *locked(&self.shared.withheld) = Some(api);
    }
    /// How many requests were withheld.
    pub fn withheld(&self) -> u32 {
        self.shared.tried.load(Ordering::Acquire)
    }
    /// Breaks every connection and lets none through, until [`open`](Self::open).
    pub fn shut(&self) {
        self.shared.shut.store(true, Ordering::Release);
        self.shared.cut();
    }
    /// Lets everything through again, on new connections.
    pub fn open(&self) {
        *locked(&self.shared.withheld) = None;
        self.shared.shut.store(false, Ordering::Release);
        self.shared.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // The port is free again when the thread is gone: the next proxy takes it at once.
        if TcpStream::connect(self.listen).is_ok()
            && let Some(accepting) = self.accepting.take()
        {
            let _ = accepting.join();
        }
        self.shared.cut();
    }
}

/// Which request each answer belongs to, by correlation ID.
type Asked = Arc<Mutex<HashMap<i32, i16>>>;

fn connect(shared: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
    let broker = TcpStream::connect(&shared.target)?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    locked(&shared.streams).extend([client.try_clone()?, broker.try_clone()?]);
    let asked = Asked::default();
    let (from_client, to_broker, asking) = (client.try_clone()?, broker.try_clone()?, Arc::clone(&asked));
    let keeping = Arc::clone(shared);
    std::thread::spawn(move || {
        let _ = requests(&keeping, &from_client, &to_broker, &asking);
        let _ = to_broker.shutdown(Shutdown::Both);
    });
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let _ = answers(&shared, &broker, &client, &asked);
        let _ = client.shutdown(Shutdown::Both);
    });
    Ok(())
}

/// One length-prefixed frame, the prefix included.
fn frame(mut from: &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let size = usize::try_from(i32::from_be_bytes(length)).map_err(std::io::Error::other)?;
    let mut whole = vec![0; 4 + size];
    whole[..4].copy_from_slice(&length);
    from.read_exact(&mut whole[4..])?;
    Ok(whole)
}

fn int32(frame: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

fn requests(shared: &Shared, from: &TcpStream, mut to: &TcpStream, asked: &Asked) -> std::io::Result<()> {
    loop {
        let request = frame(from)?;
        // After the length: API key, API version, correlation ID.
        if let (Some(head), Some(correlation)) = (int32(&request, 4), int32(&request, 8)) {
            let api = (head >> 16) as i16;
            if *locked(&shared.withheld) == Some(api) {
                shared.tried.fetch_add(1, Ordering::AcqRel);
                continue;
            }
            locked(asked).insert(correlation, api);
        }
        to.write_all(&request)?;
    }
}

fn answers(shared: &Shared, from: &TcpStream, mut to: &TcpStream, asked: &Asked) -> std::io::Result<()> {
    loop {
        let answer = frame(from)?;
        let api = int32(&answer, 4).and_then(|correlation| locked(asked).remove(&correlation));
        match api.and_then(|api| shared.fate(api)) {
            Some(Fate::Swallowed) => continue,
            Some(Fate::Cut) => return Ok(()),
            Some(Fate::Late(by)) => std::thread::sleep(by),
            None => {}
        }
        to.write_all(&answer)?;
    }
}

impl Shared {
    fn cut(&self) {
        for stream in locked(&self.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn fate(&self, api: i16) -> Option<Fate> {
        let mut fates = locked(&self.fates);
        let (fate, left) = fates.get_mut(&api)?;
        if *left == 0 {
            return None;
        }
        *left -= 1;
        Some(*fate)
    }
}
