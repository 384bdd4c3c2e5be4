//! What is written of an HTTP/2 connection, seen above TLS: which streams were begun. The client's queue does not tell.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client says before its first frame: `PRI * HTTP/2.0`, `SM` and their line ends.
const PREFACE: usize = 24;
/// Length (3 bytes), type, flags, stream (4 bytes).
const HEAD: usize = 9;
/// The type of the frame that begins a stream.
const HEADERS: u8 = 1;

/// The latest stream whose HEADERS were begun. Streams are begun in the order of their numbers.
#[derive(Clone, Default)]
pub(super) struct Begun(Arc<AtomicU32>);

impl Begun {
    /// Whether a byte of this stream was written.
    pub(super) fn has(&self, stream: u32) -> bool {
        stream <= self.0.load(Ordering::Acquire)
    }
}

/// Passes bytes on and notes which streams they begin.
pub(super) struct Tap<S> {
    inner: S,
    frames: Frames,
    begun: Begun,
}

impl<S> Tap<S> {
    pub(super) fn new(inner: S, begun: Begun) -> Self {
        Self { inner, frames: Frames { skip: PREFACE, head: [0; HEAD], filled: 0 }, begun }
    }
}

/// Finds the heads of frames in a run of bytes.
struct Frames {
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
}

impl Frames {
    /// Reads on; answers the last stream that these bytes begin.
    fn read(&mut self, mut bytes: &[u8]) -> Option<u32> {
        let mut begun = None;
        while !bytes.is_empty() {
            let over = self.skip.min(bytes.len());
            self.skip -= over;
            bytes = &bytes[over..];
            let taken = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD {
                let [a, b, c, kind, _, stream @ ..] = self.head;
                if kind == HEADERS {
                    begun = Some(u32::from_be_bytes(stream) & 0x7fff_ffff);
                }
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.filled = 0;
            }
        }
        begun
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        if let Some(stream) = self.frames.read(&buf[..taken]) {
            self.begun.0.store(stream, Ordering::Release);
        }
        Poll::Ready(Ok(taken))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a request that left would count as one that waited in the queue.
    #[test]
    fn heads_are_found_however_the_bytes_are_cut() {
        let frame = |kind: u8, stream: u8, bytes: &[u8]| [&[0, 0, bytes.len() as u8, kind, 0, 0, 0, 0, stream][..], bytes].concat();
        let bytes = [
            vec![b'P'; PREFACE],
            frame(4, 0, b""),
            frame(1, 1, &[1; 20]),
            frame(0, 1, &[1; 30]),
            frame(1, 3, b"x"),
            frame(3, 1, b"none"),
        ];
        let bytes = bytes.concat();
        for cut in 1..bytes.len() {
            let mut frames = Tap::new((), Begun::default()).frames;
            let begun: Vec<_> = bytes.chunks(cut).filter_map(|some| frames.read(some)).collect();
            assert_eq!(begun.last(), Some(&3), "cut at {cut}");
            assert!(begun.len() == 2 || begun == [3], "cut at {cut}: {begun:?}");
        }
        let mut frames = Tap::new((), Begun::default()).frames;
        let head = PREFACE + HEAD + HEAD;
        assert_eq!(frames.read(&bytes[..head - 1]), None, "a head that is not whole begins nothing");
        assert_eq!(frames.read(&bytes[head - 1..head]), Some(1));
    }
}
