//! The channel: who is listened to, and what either side does about one that says nothing or nonsense.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::successor::ask_within;
use super::{Answer, Ask, Door, Outcome, Place, VERSION, line, objection, socket};
use crate::ids::ApplicationId;

fn place() -> Place {
    Place { application: ApplicationId::from("orders"), first: 2, stream: 2, effects: 1 }
}

/// An owner in a directory of its own, and the flag that tells it to leave.
struct Owner {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    door: Option<Door>,
    stop: Arc<AtomicBool>,
}

impl Owner {
    fn new() -> Self {
        let (dir, stop) = (tempfile::tempdir().expect("a directory"), Arc::new(AtomicBool::new(false)));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let door = Door::open(runtime.handle(), dir.path(), place(), Duration::from_secs(20), stop.clone());
        Self { dir, runtime, door: Some(door), stop }
    }
    fn is_leaving(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
    /// A client that says `bytes`; what it is answered until the end.
    fn answers(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(socket(self.dir.path())).expect("it listens");
        stream.write_all(bytes).expect("written");
        let mut answer = String::new();
        // Hung up on with bytes unread, which the system may call a reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}

fn ask(dir: &Path, place: &Place) -> Outcome {
    ask_within(dir, place, Duration::from_secs(10))
}

/// If this broke, an operator's mistake with ordinals or threads would stop a process whose slots nobody takes over.
#[test]
fn an_ask_for_other_slots_is_refused_and_the_owner_stays() {
    let owner = Owner::new();
    for other in [
        Place { application: ApplicationId::from("payments"), ..place() },
        Place { first: 0, ..place() },
        Place { stream: 1, ..place() },
        Place { effects: 2, ..place() },
    ] {
        let Outcome::Refused(why) = ask(owner.dir.path(), &other) else { panic!("{other:?} was not refused") };
        assert!(!why.is_empty());
        assert!(!owner.is_leaving(), "{other:?}: {why}");
    }
    let newer = Ask { version: VERSION + 1, place: place() };
    assert!(objection(&newer, &place()).is_some_and(|why| why.contains("version")));
}

/// If this broke, whatever connects could stop a process, or block the door for the successor that comes after it.
#[test]
fn garbage_and_silence_stop_nobody_and_the_next_one_is_heard() {
    let mut owner = Owner::new();
    let endless = vec![b'x'; 100_000];
    for garbage in [&b"\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"{\"version\":1}\n", b"\xff\xfe\n"] {
        assert_eq!(owner.answers(garbage), "", "{garbage:?}");
    }
    // It is hung up on while it still writes.
    let mut stream = UnixStream::connect(socket(owner.dir.path())).expect("it listens");
    let _ = stream.write_all(&endless);
    let silent = UnixStream::connect(socket(owner.dir.path())).expect("it listens");
    assert!(!owner.is_leaving());
    let dir = owner.dir.path().to_owned();
    let asking = std::thread::spawn(move || ask(&dir, &place()));
    while !owner.is_leaving() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop((silent, stream));
    owner.door.take().expect("open").left();
    assert!(matches!(asking.join().expect("no panic"), Outcome::Left(_)));
}

/// If this broke, a successor would start before the directory is free, or an owner would not leave for it.
#[test]
fn the_owner_leaves_and_says_so_when_everything_is_free() {
    let mut owner = Owner::new();
    let mode = std::fs::metadata(socket(owner.dir.path())).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let dir = owner.dir.path().to_owned();
    let asking = std::thread::spawn(move || ask(&dir, &place()));
    while !owner.is_leaving() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!asking.is_finished());
    let second = ask(owner.dir.path(), &place());
    assert!(matches!(&second, Outcome::Refused(why) if why.contains("leaving already")), "{second:?}");
    owner.door.take().expect("open").left();
    assert!(matches!(asking.join().expect("no panic"), Outcome::Left(_)));
    owner.runtime.shutdown_background();
    assert_eq!(ask(owner.dir.path(), &place()), Outcome::Nobody);
}

/// If this broke, a process that hangs would leave when it comes to itself, long after its successor has given up.
#[test]
fn an_owner_that_hears_too_late_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let door = Door::open(runtime.handle(), dir.path(), place(), Duration::from_secs(20), stop.clone());
    // Nothing drives the runtime yet: the process hangs.
    assert!(matches!(ask_within(dir.path(), &place(), Duration::from_millis(50)), Outcome::Silent(_)));
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
    assert!(!stop.load(Ordering::Acquire));
    drop(door);
}

/// If this broke, a successor would wait for ever for a process that is dead or too old, or take nonsense for leave to start.
#[test]
fn a_successor_tells_who_is_not_there_from_who_says_nothing_or_nonsense() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(ask(dir.path(), &place()), Outcome::Nobody);
    let listener = UnixListener::bind(socket(dir.path())).expect("listens");
    let answered_with = |answers: Vec<Vec<u8>>| {
        std::thread::scope(|s| {
            s.spawn(|| {
                let (mut stream, _) = listener.accept().expect("somebody asks");
                let mut said = String::new();
                BufReader::new(&stream).read_line(&mut said).expect("a line");
                answers.iter().for_each(|bytes| stream.write_all(bytes).expect("written"));
            });
            ask(dir.path(), &place())
        })
    };
    let leaves = line(&Answer::Leaves { within: 10 }).expect("a line");
    let left = line(&Answer::Left).expect("a line");
    assert!(matches!(answered_with(vec![]), Outcome::Silent(_)));
    assert!(matches!(answered_with(vec![b"220 ready\n".to_vec()]), Outcome::Silent(_)));
    assert!(matches!(answered_with(vec![left.clone()]), Outcome::Silent(_)));
    assert_eq!(answered_with(vec![leaves.clone()]), Outcome::Gone);
    assert!(matches!(answered_with(vec![leaves, left]), Outcome::Left(_)));
    drop(listener);
    assert_eq!(ask(dir.path(), &place()), Outcome::Nobody, "a socket that is left over");
}
