//! Windows by the time they end at, for results that wait until then.

use bytes::Bytes;

use crate::serdes::Window;
use crate::state::Stored;
use crate::task::TaskError;
use crate::time::WallTime;

use super::ordered::{Ordered, Parts};
use super::{Place, ProcessorCx};

const INDEX: u8 = b'i';

/// Which windows of a store wait for their end.
pub(crate) struct WindowIndex {
    place: Place,
    /// No window that waits ends before this.
    earliest: WallTime,
}

impl WindowIndex {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, earliest: WallTime(i64::MIN) }
    }
    /// A window waits.
    pub(crate) fn put(&mut self, cx: &mut ProcessorCx<'_, '_>, key: &[u8], window: Window) -> Result<(), TaskError> {
        self.earliest = self.earliest.min(window.end);
        let entry = Stored { timestamp: Some(window.end), ..Stored::default() };
        self.place.put(cx, &Self::entry(key, window), Some(entry))
    }
    /// A window waits no more.
    pub(crate) fn delete(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8], window: Window) -> Result<(), TaskError> {
        self.place.put(cx, &Self::entry(key, window), None)
    }
    /// A window waits no more, where it did.
    pub(crate) fn delete_if_there(&self, cx: &mut ProcessorCx<'_, '_>, key: &[u8], window: Window) -> Result<(), TaskError> {
        match self.place.get(cx, &Self::entry(key, window))? {
            Some(_) => self.delete(cx, key, window),
            None => Ok(()),
        }
    }
    /// The windows that end before `close`, the earliest first; they wait no more.
    pub(crate) fn take_before(&mut self, cx: &mut ProcessorCx<'_, '_>, close: WallTime) -> Result<Vec<(Bytes, Window)>, TaskError> {
        let mut taken = Vec::new();
        if self.earliest >= close {
            return Ok(taken);
        }
        let scan = self.place.range(cx, (Ordered::of(INDEX).bytes(), Ordered::of(INDEX + 1).bytes()))?;
        self.earliest = WallTime(i64::MAX);
        for entry in scan {
            let (entry, _) = entry?;
            let mut parts = Parts(&entry[1..]);
            let read = (|| Some((parts.time()?, parts.key()?, parts.time()?)))();
            let (end, key, start) = read.ok_or_else(|| self.place.strange())?;
            if end >= close {
                self.earliest = end;
                break;
            }
            taken.push((key, Window { start, end }));
        }
        for (key, window) in &taken {
            self.delete(cx, key, *window)?;
        }
        Ok(taken)
    }

    fn entry(key: &[u8], window: Window) -> Vec<u8> {
        Ordered::of(INDEX).time(window.end).key(key).time(window.start).bytes()
    }
}
