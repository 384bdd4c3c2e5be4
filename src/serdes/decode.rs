//! Avro bytes to a JSON value, by the writer's schema and into the reader's: names match, not positions (C007, C011, C026).

use serde_json::{Map, Number, Value};

use crate::error::Result;

use super::binary::{Cursor, Limits};
use super::schema::{Field, Kind, Logical, Names, NodeId, ParsedSchema};
use super::{logical, undecodable};

/// Decodes one whole value.
pub(super) fn decode(bytes: &[u8], writer: &ParsedSchema, reader: &ParsedSchema, limits: &Limits) -> Result<Value> {
    let mut decoder = Decoder { cursor: Cursor::new(bytes, limits)?, writer, reader };
    let value = decoder.value(writer.root(), reader.root())?;
    decoder.cursor.finish()?;
    Ok(value)
}

struct Decoder<'a> {
    cursor: Cursor<'a>,
    writer: &'a ParsedSchema,
    reader: &'a ParsedSchema,
}

impl Decoder<'_> {
    fn value(&mut self, w: NodeId, r: NodeId) -> Result<Value> {
        let (writer, reader) = (self.writer, self.reader);
        if let Kind::Union(branches) = &writer.node(w).kind {
            let index = self.cursor.index(branches.len())?;
            return self.value(branches[index], r);
        }
        if let Kind::Union(branches) = &reader.node(r).kind {
            let Some(branch) = best_branch(writer, w, reader, branches) else { return Err(mismatch(writer, w, reader, r)) };
            let value = self.value(w, branch)?;
            return Ok(wrap(reader, r, branch, value));
        }
        if fit(writer, w, reader, r).is_none() {
            return Err(mismatch(writer, w, reader, r));
        }
        self.deeper(w, r)
    }

    /// A value of two types that fit each other, neither a union.
    fn deeper(&mut self, w: NodeId, r: NodeId) -> Result<Value> {
        let (writer, reader) = (self.writer, self.reader);
        self.cursor.enter()?;
        let value = match (&writer.node(w).kind, &reader.node(r).kind) {
            (Kind::Record { fields: written, .. }, Kind::Record { fields: wanted, .. }) => self.record(written, wanted)?,
            (Kind::Array(w), Kind::Array(r)) => {
                let mut items = Vec::new();
                self.blocks(|d| d.value(*w, *r).map(|item| items.push(item)))?;
                Value::Array(items)
            }
            (Kind::Map(w), Kind::Map(r)) => {
                let mut entries = Map::new();
                self.blocks(|d| {
                    let key = d.cursor.text()?.to_owned();
                    entries.insert(key, d.value(*w, *r)?);
                    Ok(())
                })?;
                Value::Object(entries)
            }
            (Kind::Enum { symbols, .. }, Kind::Enum { symbols: known, default, .. }) => {
                let symbol = &symbols[self.cursor.index(symbols.len())?];
                let found = Some(symbol).filter(|s| known.contains(s)).or(default.as_ref());
                Value::String(found.ok_or_else(|| undecodable(format!("the reader does not know the symbol {symbol}")))?.clone())
            }
            (written, wanted) => self.leaf(written, wanted, reader.node(r).logical)?,
        };
        self.cursor.leave();
        Ok(value)
    }

    fn leaf(&mut self, written: &Kind, wanted: &Kind, logical: Logical) -> Result<Value> {
        Ok(match written {
            Kind::Null => Value::Null,
            Kind::Boolean => Value::Bool(self.cursor.boolean()?),
            Kind::Int | Kind::Long => {
                let n = if matches!(written, Kind::Int) { self.cursor.int()?.into() } else { self.cursor.long()? };
                match wanted {
                    Kind::Float => number(f64::from(n as f32)),
                    Kind::Double => number(n as f64),
                    _ => logical::of_long(n, logical)?,
                }
            }
            Kind::Float => number(f32::from_le_bytes(self.cursor.array()?).into()),
            Kind::Double => number(f64::from_le_bytes(self.cursor.array()?)),
            Kind::Bytes | Kind::String => {
                let bytes = self.cursor.bytes()?;
                match wanted {
                    Kind::Bytes => logical::of_bytes(bytes, logical)?,
                    _ => Value::String(
                        std::str::from_utf8(bytes).map_err(|_| undecodable("malformed: a string is not UTF-8"))?.to_owned(),
                    ),
                }
            }
            Kind::Fixed { size, .. } => logical::of_bytes(self.cursor.take(*size)?, logical)?,
            _ => return Err(undecodable("types that do not fit")),
        })
    }

    /// The writer's fields in their order, each into the reader's field of that name or alias, or passed over; then defaults.
    fn record(&mut self, written: &[Field], wanted: &[Field]) -> Result<Value> {
        let mut fields = Map::new();
        for w in written {
            match wanted.iter().find(|r| r.name == w.name).or_else(|| wanted.iter().find(|r| r.aliases.contains(&w.name))) {
                Some(r) => {
                    let value = self.value(w.node, r.node)?;
                    fields.insert(r.name.clone(), value);
                }
                None => self.cursor.skip(self.writer, w.node)?,
            }
        }
        for r in wanted {
            if !fields.contains_key(&r.name) {
                let default = r.default.as_ref().ok_or_else(|| undecodable(format!("{} is missing and has no default", r.name)))?;
                fields.insert(r.name.clone(), default_value(self.reader, r.node, default)?);
            }
        }
        Ok(Value::Object(fields))
    }

    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        while let Some(count) = self.cursor.block()? {
            (0..count).try_for_each(|_| item(self))?;
        }
        Ok(())
    }
}

/// How well a writer's type fits a reader's, 0 best; `None` not at all. Looks at the type itself, not into it.
fn fit(writer: &ParsedSchema, w: NodeId, reader: &ParsedSchema, r: NodeId) -> Option<u8> {
    use Kind::{Array, Boolean, Bytes, Double, Enum, Fixed, Float, Int, Long, Map, Null, Record, String};
    let (meant, wanted) = (writer.node(w).logical, reader.node(r).logical);
    if meant != wanted && meant != Logical::None && wanted != Logical::None {
        return None; // Millis read as micros, or another scale: every value would be wrong.
    }
    match (&writer.node(w).kind, &reader.node(r).kind) {
        (Null, Null) | (Boolean, Boolean) | (Int, Int) | (Long, Long) | (Float, Float) | (Double, Double) => Some(0),
        (Bytes, Bytes) | (String, String) | (Array(_), Array(_)) | (Map(_), Map(_)) => Some(0),
        (Int, Long) | (Long, Float) | (Float, Double) => Some(2),
        (Int, Float) | (Long, Double) => Some(3),
        (Int, Double) | (Bytes, String) | (String, Bytes) => Some(4),
        (Record { names: w, .. }, Record { names: r, .. }) | (Enum { names: w, .. }, Enum { names: r, .. }) => named(w, r),
        (Fixed { names: w, size: a }, Fixed { names: r, size: b }) if a == b => named(w, r),
        _ => None,
    }
}

/// Names fit in full, by alias, or without their namespace.
fn named(w: &Names, r: &Names) -> Option<u8> {
    let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    match () {
        () if w.full == r.full => Some(0),
        () if r.aliases.contains(&w.full) => Some(1),
        () if short(&w.full) == short(&r.full) => Some(2),
        () => None,
    }
}

fn best_branch(writer: &ParsedSchema, w: NodeId, reader: &ParsedSchema, branches: &[NodeId]) -> Option<NodeId> {
    let fits = branches.iter().filter_map(|b| fit(writer, w, reader, *b).map(|how| (how, *b)));
    fits.min_by_key(|(how, _)| *how).map(|(_, b)| b)
}

fn wrap(schema: &ParsedSchema, union: NodeId, branch: NodeId, value: Value) -> Value {
    match schema.wrapper(union, branch) {
        Some(name) => Value::Object(Map::from_iter([(name.to_owned(), value)])),
        None => value,
    }
}

/// A default as the schema's JSON has it, in the form of a decoded value.
pub(super) fn default_value(schema: &ParsedSchema, id: NodeId, default: &Value) -> Result<Value> {
    let node = schema.node(id);
    let unfit = || undecodable("a default does not fit its type");
    Ok(match (&node.kind, default) {
        (Kind::Union(branches), _) => {
            let first = *branches.first().ok_or_else(unfit)?;
            wrap(schema, id, first, default_value(schema, first, default)?)
        }
        (Kind::Null, Value::Null) | (Kind::Boolean, Value::Bool(_)) | (Kind::String, Value::String(_)) => default.clone(),
        (Kind::Int, Value::Number(n)) => {
            let n = n.as_i64().filter(|n| i32::try_from(*n).is_ok()).ok_or_else(unfit)?;
            logical::of_long(n, node.logical)?
        }
        (Kind::Long, Value::Number(n)) => logical::of_long(n.as_i64().ok_or_else(unfit)?, node.logical)?,
        (Kind::Float | Kind::Double, Value::Number(n)) => number(n.as_f64().ok_or_else(unfit)?),
        (Kind::Bytes, Value::String(s)) => logical::of_bytes(&logical::bytes_of_text(s).ok_or_else(unfit)?, node.logical)?,
        (Kind::Fixed { size, .. }, Value::String(s)) => {
            let bytes = logical::bytes_of_text(s).filter(|b| b.len() == *size).ok_or_else(unfit)?;
            logical::of_bytes(&bytes, node.logical)?
        }
        (Kind::Enum { symbols, .. }, Value::String(s)) if symbols.contains(s) => default.clone(),
        (Kind::Array(item), Value::Array(items)) => {
            Value::Array(items.iter().map(|i| default_value(schema, *item, i)).collect::<Result<_>>()?)
        }
        (Kind::Map(value), Value::Object(entries)) => {
            let entry = |(k, v): (&String, &Value)| Ok((k.clone(), default_value(schema, *value, v)?));
            Value::Object(entries.iter().map(entry).collect::<Result<_>>()?)
        }
        (Kind::Record { fields, .. }, Value::Object(given)) => {
            let field = |f: &Field| {
                let value = given.get(&f.name).or(f.default.as_ref()).ok_or_else(unfit)?;
                Ok((f.name.clone(), default_value(schema, f.node, value)?))
            };
            Value::Object(fields.iter().map(field).collect::<Result<_>>()?)
        }
        _ => return Err(unfit()),
    })
}

/// JSON has no NaN and no infinity; they are text, as in Avro's JSON encoding.
fn number(n: f64) -> Value {
    Number::from_f64(n).map_or_else(
        || {
            Value::String(
                if n.is_nan() {
                    "NaN"
                } else if n > 0.0 {
                    "Infinity"
                } else {
                    "-Infinity"
                }
                .into(),
            )
        },
        Value::Number,
    )
}

fn mismatch(writer: &ParsedSchema, w: NodeId, reader: &ParsedSchema, r: NodeId) -> crate::error::Error {
    let name = |s: &ParsedSchema, id| s.node(id).kind.word();
    undecodable(format!("a written {} can't be read as {}", name(writer, w), name(reader, r)))
}
