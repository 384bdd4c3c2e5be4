//! A body that somebody tells bit by bit, for answers that go on.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc::Receiver;

/// Ends when whoever tells is gone; whoever tells is held up by a reader that does not take it.
pub struct Told(pub Receiver<Bytes>);

impl Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|b| Ok(Frame::data(b))))
    }
}
