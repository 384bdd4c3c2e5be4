//! The owner's side: it listens while it runs, and leaves for the first successor that asks in the right words.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::{Answer, Ask, LONGEST, Place, line, objection, socket};

/// How long one who has connected may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where this process can be asked to leave.
pub struct Door {
    asked: Arc<Asked>,
    task: Option<tokio::task::JoinHandle<()>>,
}

/// What the door is about.
struct Asked {
    place: Place,
    within: Duration,
    stop: Arc<AtomicBool>,
    /// Who waits for us to be gone.
    successor: Mutex<Option<UnixStream>>,
}

impl Door {
    /// Listens in the state directory `dir`, which this process has locked; an ask sets `stop`, and is told that this process ends
    /// within `within`. Where nothing can be listened on, the process runs without, and a successor has to wait for its end.
    pub fn open(runtime: &tokio::runtime::Handle, dir: &Path, place: Place, within: Duration, stop: Arc<AtomicBool>) -> Self {
        let asked = Arc::new(Asked { place, within, stop, successor: Mutex::default() });
        let _inside = runtime.enter();
        let task = match listen(dir) {
            Ok(listener) => Some(runtime.spawn(serve(listener, asked.clone()))),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "no hand-over here: its socket can't be made; a successor has to be started after this process");
                None
            }
        };
        Self { asked, task }
    }

    /// Tells the successor that everything is free, where one asked.
    pub fn left(self) {
        let Some(stream) = self.asked.successor().take() else { return };
        if let Err(error) = say_left(stream) {
            tracing::warn!(%error, "the successor that asked for these slots is gone");
        }
    }
}

/// A few bytes into an empty buffer: it does not wait.
fn say_left(stream: UnixStream) -> std::io::Result<()> {
    let mut stream = stream.into_std()?;
    stream.write_all(&line(&Answer::Left)?)
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Asked {
    fn successor(&self) -> std::sync::MutexGuard<'_, Option<UnixStream>> {
        self.successor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is answered to an ask of a process of this user.
    fn answer(&self, ask: &Ask) -> Answer {
        let leaving = || self.stop.load(Ordering::Acquire).then(|| "this process is leaving already".to_owned());
        match objection(ask, &self.place).or_else(leaving) {
            Some(why) => Answer::Stays { why },
            None => Answer::Leaves { within: u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX) },
        }
    }
}

/// The socket of a former process may still lie there: we have the directory's lock, so nobody listens on it.
fn listen(dir: &Path) -> std::io::Result<UnixListener> {
    let path = socket(dir);
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// One after the other: more than one successor has no place anyway.
async fn serve(listener: UnixListener, asked: Arc<Asked>) {
    loop {
        let came = match listener.accept().await {
            Ok((stream, _)) => tokio::time::timeout(PATIENCE, hear(stream, &asked)).await,
            Err(error) => {
                tracing::warn!(%error, "taking a hand-over's connection");
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        match came {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a hand-over was asked for and not understood; this process stays"),
            Err(_) => tracing::warn!("somebody connected for a hand-over and said nothing; this process stays"),
        }
    }
}

async fn hear(mut stream: UnixStream, asked: &Asked) -> std::io::Result<()> {
    let (theirs, ours) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if theirs != ours {
        return Err(std::io::Error::other(format!("it comes from user {theirs}, and this process is of user {ours}")));
    }
    let ask: Ask = serde_json::from_slice(&read_line(&mut stream).await?)?;
    let answer = asked.answer(&ask);
    // Written before we leave: one that has given up waiting has closed its end, and then we stay.
    stream.write_all(&line(&answer)?).await?;
    match answer {
        Answer::Leaves { .. } => {
            tracing::info!("a successor is ready for these slots: this process leaves");
            *asked.successor() = Some(stream);
            asked.stop.store(true, Ordering::Release);
        }
        Answer::Stays { why } => tracing::warn!(why, "a hand-over was asked for and refused"),
        Answer::Left => {}
    }
    Ok(())
}

async fn read_line(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => return Ok(read),
            _ if read.len() >= LONGEST => return Err(std::io::Error::other("its first line has no end")),
            byte => read.push(byte),
        }
    }
}
