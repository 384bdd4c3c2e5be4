//! A record type from Avro bytes, straight into its fields, under the limits of [`Cursor`]: nothing is built in between, and nothing
//! is reserved for what a length merely claims.

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::binary::{Cursor, Limits};
use super::failed::Failed;
use super::schema::{Field, Kind, NodeId, ParsedSchema};
use super::undecodable;

/// Decodes one whole value, without framing.
///
/// # Errors
/// `UNDECODABLE`, `INPUT_TOO_LARGE`.
pub(super) fn read<T: serde::de::DeserializeOwned>(bytes: &[u8], schema: &ParsedSchema, limits: &Limits) -> Result<T, Failed> {
    let mut cursor = Cursor::new(bytes, limits)?;
    let value = T::deserialize(Reader { cursor: &mut cursor, schema, node: schema.root() })?;
    cursor.finish()?;
    Ok(value)
}

/// Reads one value at its place in the schema.
struct Reader<'a, 'de> {
    cursor: &'a mut Cursor<'de>,
    schema: &'a ParsedSchema,
    node: NodeId,
}

impl<'a, 'de> Reader<'a, 'de> {
    fn kind(&self) -> &'a Kind {
        &self.schema.node(self.node).kind
    }

    /// Within a union, at the branch that was written.
    fn branch(self) -> Result<Self, Failed> {
        match self.kind() {
            Kind::Union(branches) => {
                let node = branches[self.cursor.index(branches.len())?];
                Ok(Self { node, ..self })
            }
            _ => Ok(self),
        }
    }

    fn value<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let Self { cursor, schema, .. } = self;
        match &self.schema.node(self.node).kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Boolean => visitor.visit_bool(cursor.boolean()?),
            Kind::Int => visitor.visit_i32(cursor.int()?),
            Kind::Long => visitor.visit_i64(cursor.long()?),
            Kind::Float => visitor.visit_f32(f32::from_le_bytes(cursor.array()?)),
            Kind::Double => visitor.visit_f64(f64::from_le_bytes(cursor.array()?)),
            Kind::String => visitor.visit_borrowed_str(cursor.text()?),
            Kind::Bytes => visitor.visit_borrowed_bytes(cursor.bytes()?),
            Kind::Fixed { size, .. } => visitor.visit_borrowed_bytes(cursor.take(*size)?),
            Kind::Enum { symbols, .. } => {
                let symbol: StrDeserializer<'_, Failed> = symbols[cursor.index(symbols.len())?].as_str().into_deserializer();
                visitor.visit_enum(symbol)
            }
            Kind::Array(item) => visitor.visit_seq(Items { cursor, schema, item: *item, left: 0 }),
            Kind::Record { fields, .. } => visitor.visit_map(Fields { cursor, schema, left: fields }),
            Kind::Map(_) | Kind::Union(_) => Err(undecodable("no record of ours holds a map, or a union in a union").into()),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_, 'de> {
    type Error = Failed;

    fn is_human_readable(&self) -> bool {
        false
    }
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let at = self.branch()?;
        at.cursor.enter()?;
        let value = Reader { cursor: &mut *at.cursor, ..at }.value(visitor)?;
        at.cursor.leave();
        Ok(value)
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let at = self.branch()?;
        match at.kind() {
            Kind::Null => {
                at.cursor.enter()?;
                at.cursor.leave();
                visitor.visit_none()
            }
            _ => visitor.visit_some(at),
        }
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.cursor.skip(self.schema, self.node)?;
        visitor.visit_unit()
    }
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

/// The items of an array, block by block.
struct Items<'a, 'de> {
    cursor: &'a mut Cursor<'de>,
    schema: &'a ParsedSchema,
    item: NodeId,
    left: u64,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Failed;
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Failed> {
        if self.left == 0 {
            match self.cursor.block()? {
                Some(count) => self.left = count,
                None => return Ok(None),
            }
        }
        self.left -= 1;
        seed.deserialize(Reader { cursor: self.cursor, schema: self.schema, node: self.item }).map(Some)
    }
}

/// The fields of a record, in their order.
struct Fields<'a, 'de> {
    cursor: &'a mut Cursor<'de>,
    schema: &'a ParsedSchema,
    left: &'a [Field],
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Failed;
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Failed> {
        let Some(field) = self.left.first() else { return Ok(None) };
        let name: StrDeserializer<'_, Failed> = field.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failed> {
        let Some((field, left)) = self.left.split_first() else { return Err(undecodable("a value without its field").into()) };
        self.left = left;
        seed.deserialize(Reader { cursor: self.cursor, schema: self.schema, node: field.node })
    }
}
