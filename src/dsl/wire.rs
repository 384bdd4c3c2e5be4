//! Fields of the records that our own steps write for each other: `present:u8 [length:u32 BE bytes]`.

use bytes::Bytes;

/// Appends a field that may be absent.
pub(super) fn put(out: &mut Vec<u8>, field: Option<&[u8]>) {
    out.push(u8::from(field.is_some()));
    if let Some(bytes) = field {
        out.extend((bytes.len() as u32).to_be_bytes());
        out.extend_from_slice(bytes);
    }
}

/// Reads such a record; `None` says that it is cut off.
pub(super) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub(super) fn new(bytes: &Bytes) -> Self {
        Self { rest: bytes.clone() }
    }
    pub(super) fn take(&mut self, n: usize) -> Option<Bytes> {
        (n <= self.rest.len()).then(|| self.rest.split_to(n))
    }
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }
    pub(super) fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?[..].try_into().ok()?))
    }
    /// The outer `None` says that it is cut off, the inner one that the field is absent.
    pub(super) fn field(&mut self) -> Option<Option<Bytes>> {
        match self.byte()? {
            0 => Some(None),
            _ => {
                let n = self.number()?;
                self.take(n as usize).map(Some)
            }
        }
    }
    pub(super) fn rest(self) -> Bytes {
        self.rest
    }
}
