//! Avro's bytes, read under limits: nothing is reserved for what a length merely claims, and nesting is counted, so that five
//! bytes can't take half a gigabyte and a recursive schema can't take the stack (C008, C022).

use crate::error::{Error, Fault, Result, codes};

use super::schema::{Kind, NodeId, ParsedSchema};
use super::undecodable;

/// What one record may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the record.
    pub bytes: usize,
    /// Levels of nesting.
    pub depth: usize,
    /// Values in it, nulls and empty records included.
    pub items: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 16 << 20, depth: 64, items: 250_000 }
    }
}

/// Reads bytes from the front.
pub(super) struct Cursor<'a> {
    input: &'a [u8],
    depth_left: usize,
    items_left: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(input: &'a [u8], limits: &Limits) -> Result<Self> {
        if input.len() > limits.bytes {
            return Err(too_large(format!("{} bytes, {} are allowed", input.len(), limits.bytes)));
        }
        Ok(Self { input, depth_left: limits.depth, items_left: limits.items })
    }
    /// An error where bytes are left over: they belong to another schema.
    pub(super) fn finish(&self) -> Result<()> {
        match self.input.len() {
            0 => Ok(()),
            n => Err(undecodable(format!("malformed: {n} bytes left over"))),
        }
    }
    /// Begins one value, one level deeper.
    pub(super) fn enter(&mut self) -> Result<()> {
        self.items_left = self.items_left.checked_sub(1).ok_or_else(|| too_large("too many values"))?;
        self.depth_left = self.depth_left.checked_sub(1).ok_or_else(|| too_large("nested too deeply"))?;
        Ok(())
    }
    /// Ends it.
    pub(super) fn leave(&mut self) {
        self.depth_left += 1;
    }
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.input.split_at_checked(n).ok_or_else(|| malformed("cut off"))?;
        self.input = rest;
        Ok(head)
    }
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| malformed("cut off"))
    }
    pub(super) fn boolean(&mut self) -> Result<bool> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(malformed("a boolean is neither 0 nor 1")),
        }
    }
    /// A zigzag varint of at most ten bytes.
    pub(super) fn long(&mut self) -> Result<i64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            if shift == 63 && byte > 1 {
                break;
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((n >> 1) as i64 ^ -((n & 1) as i64));
            }
        }
        Err(malformed("an integer of more than 64 bits"))
    }
    pub(super) fn int(&mut self) -> Result<i32> {
        i32::try_from(self.long()?).map_err(|_| malformed("an int beyond 32 bits"))
    }
    /// Length-prefixed bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.long()?;
        self.take(usize::try_from(n).map_err(|_| malformed("a negative length"))?)
    }
    pub(super) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| malformed("a string is not UTF-8"))
    }
    /// An index below `count`.
    pub(super) fn index(&mut self, count: usize) -> Result<usize> {
        let n = self.long()?;
        usize::try_from(n).ok().filter(|n| *n < count).ok_or_else(|| malformed("no such branch or symbol"))
    }
    /// The number of entries in the next block of an array or map; `None` at its end.
    pub(super) fn block(&mut self) -> Result<Option<u64>> {
        let count = self.long()?;
        if count < 0 {
            self.long()?;
        }
        match count.unsigned_abs() {
            0 => Ok(None),
            n if n > self.items_left as u64 => Err(too_large(format!("a block claims {n} entries"))),
            n => Ok(Some(n)),
        }
    }
    /// Passes over one value, looking at all of it.
    pub(super) fn skip(&mut self, schema: &ParsedSchema, id: NodeId) -> Result<()> {
        if let Kind::Union(branches) = &schema.node(id).kind {
            let branch = branches[self.index(branches.len())?];
            return self.skip(schema, branch);
        }
        self.enter()?;
        match &schema.node(id).kind {
            Kind::Null | Kind::Union(_) => {}
            Kind::Boolean => drop(self.boolean()?),
            Kind::Int => drop(self.int()?),
            Kind::Long => drop(self.long()?),
            Kind::Float => drop(self.take(4)?),
            Kind::Double => drop(self.take(8)?),
            Kind::Bytes => drop(self.bytes()?),
            Kind::String => drop(self.text()?),
            Kind::Fixed { size, .. } => drop(self.take(*size)?),
            Kind::Enum { symbols, .. } => drop(self.index(symbols.len())?),
            Kind::Array(inner) | Kind::Map(inner) => {
                let keyed = matches!(schema.node(id).kind, Kind::Map(_));
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        if keyed {
                            self.text()?;
                        }
                        self.skip(schema, *inner)?;
                    }
                }
            }
            Kind::Record { fields, .. } => fields.iter().try_for_each(|f| self.skip(schema, f.node))?,
        }
        self.leave();
        Ok(())
    }
}

pub(super) fn malformed(why: &str) -> Error {
    undecodable(format!("malformed: {why}"))
}

fn too_large(why: impl Into<String>) -> Error {
    Error::new(codes::INPUT_TOO_LARGE, Fault::Data, "decoding a record").because(why.into())
}
