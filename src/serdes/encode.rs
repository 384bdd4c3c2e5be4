//! A JSON value to Avro bytes, in the form that decoding gives.

use serde_json::Value;

use crate::error::Result;

use super::schema::{Field, Kind, NodeId, ParsedSchema};
use super::{logical, unencodable};

/// Encodes one value, without framing.
pub(super) fn encode(value: &Value, schema: &ParsedSchema) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    Encoder { schema, out: &mut out }.value(schema.root(), value)?;
    Ok(out)
}

struct Encoder<'a> {
    schema: &'a ParsedSchema,
    out: &'a mut Vec<u8>,
}

impl Encoder<'_> {
    fn value(&mut self, id: NodeId, value: &Value) -> Result<()> {
        let schema = self.schema;
        let node = schema.node(id);
        let unfit = || unencodable(format!("a value does not fit {}", node.kind.word()));
        match (&node.kind, value) {
            (Kind::Null, Value::Null) => {}
            (Kind::Boolean, Value::Bool(b)) => self.out.push((*b).into()),
            (Kind::Int, _) => {
                let n = logical::to_long(value, node.logical)?;
                self.long(i32::try_from(n).map_err(|_| unfit())?.into());
            }
            (Kind::Long, _) => self.long(logical::to_long(value, node.logical)?),
            (Kind::Float, _) => self.out.extend((float(value).ok_or_else(unfit)? as f32).to_le_bytes()),
            (Kind::Double, _) => self.out.extend(float(value).ok_or_else(unfit)?.to_le_bytes()),
            (Kind::String, Value::String(s)) => self.bytes(s.as_bytes()),
            (Kind::Bytes, _) => {
                let bytes = logical::to_bytes(value, node.logical, None)?;
                self.bytes(&bytes);
            }
            (Kind::Fixed { size, .. }, _) => self.out.extend(logical::to_bytes(value, node.logical, Some(*size))?),
            (Kind::Enum { symbols, .. }, Value::String(s)) => {
                self.long(symbols.iter().position(|k| k == s).ok_or_else(unfit)? as i64);
            }
            (Kind::Array(item), Value::Array(items)) => {
                self.block(items.len());
                items.iter().try_for_each(|i| self.value(*item, i))?;
                self.end(items.len());
            }
            (Kind::Map(inner), Value::Object(entries)) => {
                self.block(entries.len());
                for (key, value) in entries {
                    self.bytes(key.as_bytes());
                    self.value(*inner, value)?;
                }
                self.end(entries.len());
            }
            (Kind::Union(branches), _) => self.union(id, branches, value)?,
            (Kind::Record { fields, .. }, Value::Object(given)) => {
                fields.iter().try_for_each(|f| self.field(f, given.get(&f.name)))?
            }
            _ => return Err(unfit()),
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, given: Option<&Value>) -> Result<()> {
        let value = match (given, &field.default) {
            (Some(value), _) => value.clone(),
            (None, Some(default)) => super::decode::default_value(self.schema, field.node, default)?,
            (None, None) => return Err(unencodable(format!("{} is missing and has no default", field.name))),
        };
        self.value(field.node, &value).map_err(|e| unencodable(format!("field {}", field.name)).because(e))
    }

    /// The first branch that takes the value; among several named types, the one that the value names.
    fn union(&mut self, id: NodeId, branches: &[NodeId], value: &Value) -> Result<()> {
        let start = self.out.len();
        for (index, branch) in branches.iter().enumerate() {
            let inner = match self.schema.wrapper(id, *branch) {
                Some(name) => match value.as_object().filter(|o| o.len() == 1).and_then(|o| o.get(name)) {
                    Some(inner) => inner,
                    None => continue,
                },
                None => value,
            };
            self.long(index as i64);
            if self.value(*branch, inner).is_ok() {
                return Ok(());
            }
            self.out.truncate(start);
        }
        Err(unencodable("a value fits no branch of its union"))
    }

    fn long(&mut self, n: i64) {
        put_long(self.out, n);
    }
    fn bytes(&mut self, bytes: &[u8]) {
        put_bytes(self.out, bytes);
    }
    fn block(&mut self, count: usize) {
        self.long(count as i64);
    }
    fn end(&mut self, count: usize) {
        if count > 0 {
            self.long(0);
        }
    }
}

/// A zigzag varint.
pub(super) fn put_long(out: &mut Vec<u8>, n: i64) {
    let mut zigzag = ((n << 1) ^ (n >> 63)) as u64;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

/// Bytes behind their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_long(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}
