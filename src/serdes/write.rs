//! A record type to Avro bytes, field by field as its schema stands: nothing is built in between.

use std::cell::RefCell;

use serde::ser::{Impossible, Serialize, SerializeSeq, SerializeStruct, Serializer};

use super::encode::{put_bytes, put_long};
use super::failed::Failed;
use super::schema::{Field, Kind, NodeId, ParsedSchema};
use super::unencodable;

/// Encodes one value, without framing.
///
/// # Errors
/// Where the type is not what the schema says; its fields must stand in the schema's order.
pub(super) fn write<T: Serialize>(value: &T, schema: &ParsedSchema) -> Result<Vec<u8>, Failed> {
    BUFFER.with_borrow_mut(|out| {
        out.clear();
        value.serialize(Writer { schema, node: schema.root(), out })?;
        let exact = out.clone();
        out.clear();
        out.shrink_to(BUFFER_KEPT);
        Ok(exact)
    })
}

/// What a thread keeps of the buffer behind a large record.
const BUFFER_KEPT: usize = 64 * 1024;

thread_local! {
    /// Where records are written; what is given out is a copy of the exact size, since it is kept in stores and caches.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(4 * 1024));
}

/// Writes one value at its place in the schema.
struct Writer<'a> {
    schema: &'a ParsedSchema,
    node: NodeId,
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    fn kind(&self) -> &'a Kind {
        &self.schema.node(self.node).kind
    }

    fn unfit<T>(&self, what: &str) -> Result<T, Failed> {
        Err(unencodable(format!("{what} does not fit {}", self.kind().word())).into())
    }

    fn integer(self, n: i64) -> Result<(), Failed> {
        match self.kind() {
            Kind::Long => {}
            Kind::Int if i32::try_from(n).is_ok() => {}
            _ => return self.unfit("an integer"),
        }
        put_long(self.out, n);
        Ok(())
    }

    fn items(self, len: Option<usize>) -> Result<Items<'a>, Failed> {
        match (self.kind(), len) {
            (Kind::Array(item), Some(count)) => {
                if count > 0 {
                    put_long(self.out, count as i64);
                }
                Ok(Items { schema: self.schema, item: *item, out: self.out })
            }
            _ => self.unfit("a list"),
        }
    }
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Failed;
    type SerializeSeq = Items<'a>;
    type SerializeTuple = Impossible<(), Failed>;
    type SerializeTupleStruct = Impossible<(), Failed>;
    type SerializeTupleVariant = Impossible<(), Failed>;
    type SerializeMap = Impossible<(), Failed>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Impossible<(), Failed>;

    fn is_human_readable(&self) -> bool {
        false
    }
    fn serialize_bool(self, v: bool) -> Result<(), Failed> {
        match self.kind() {
            Kind::Boolean => self.out.push(v.into()),
            _ => return self.unfit("a boolean"),
        }
        Ok(())
    }
    fn serialize_i8(self, v: i8) -> Result<(), Failed> {
        self.integer(v.into())
    }
    fn serialize_i16(self, v: i16) -> Result<(), Failed> {
        self.integer(v.into())
    }
    fn serialize_i32(self, v: i32) -> Result<(), Failed> {
        self.integer(v.into())
    }
    fn serialize_i64(self, v: i64) -> Result<(), Failed> {
        self.integer(v)
    }
    fn serialize_u8(self, v: u8) -> Result<(), Failed> {
        self.integer(v.into())
    }
    fn serialize_u16(self, v: u16) -> Result<(), Failed> {
        self.integer(v.into())
    }
    fn serialize_u32(self, v: u32) -> Result<(), Failed> {
        self.integer(v.into())
    }
    fn serialize_u64(self, v: u64) -> Result<(), Failed> {
        match i64::try_from(v) {
            Ok(n) => self.integer(n),
            Err(_) => self.unfit("an integer"),
        }
    }
    fn serialize_f32(self, v: f32) -> Result<(), Failed> {
        match self.kind() {
            Kind::Float => self.out.extend_from_slice(&v.to_le_bytes()),
            _ => return self.unfit("a float"),
        }
        Ok(())
    }
    fn serialize_f64(self, v: f64) -> Result<(), Failed> {
        match self.kind() {
            Kind::Double => self.out.extend_from_slice(&v.to_le_bytes()),
            _ => return self.unfit("a double"),
        }
        Ok(())
    }
    fn serialize_char(self, v: char) -> Result<(), Failed> {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, v: &str) -> Result<(), Failed> {
        match self.kind() {
            Kind::String => put_bytes(self.out, v.as_bytes()),
            _ => return self.unfit("a text"),
        }
        Ok(())
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<(), Failed> {
        match self.kind() {
            Kind::Bytes => put_bytes(self.out, v),
            _ => return self.unfit("bytes"),
        }
        Ok(())
    }
    fn serialize_none(self) -> Result<(), Failed> {
        match self.schema.nullable(self.node) {
            Some(n) => put_long(self.out, n.null),
            None => return self.unfit("null"),
        }
        Ok(())
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Failed> {
        match self.schema.nullable(self.node) {
            Some(n) => {
                put_long(self.out, n.value);
                value.serialize(Writer { node: n.node, ..self })
            }
            None => self.unfit("an optional value"),
        }
    }
    fn serialize_unit(self) -> Result<(), Failed> {
        self.unfit("nothing")
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Failed> {
        self.unfit("nothing")
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, symbol: &'static str) -> Result<(), Failed> {
        let index = match self.kind() {
            Kind::Enum { symbols, .. } => symbols.iter().position(|s| s == symbol),
            _ => None,
        };
        match index {
            Some(index) => put_long(self.out, index as i64),
            None => return self.unfit(symbol),
        }
        Ok(())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Failed> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Result<(), Failed> {
        self.unfit(variant)
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<Items<'a>, Failed> {
        self.items(len)
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Failed> {
        self.unfit("a tuple")
    }
    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Failed> {
        self.unfit(name)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Failed> {
        self.unfit(variant)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Failed> {
        self.unfit("a map")
    }
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'a>, Failed> {
        match self.kind() {
            Kind::Record { fields, .. } => Ok(Fields { schema: self.schema, left: fields, out: self.out }),
            _ => self.unfit(name),
        }
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Failed> {
        self.unfit(variant)
    }
}

/// The items of an array, in one block.
pub(super) struct Items<'a> {
    schema: &'a ParsedSchema,
    item: NodeId,
    out: &'a mut Vec<u8>,
}

impl SerializeSeq for Items<'_> {
    type Ok = ();
    type Error = Failed;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failed> {
        value.serialize(Writer { schema: self.schema, node: self.item, out: self.out })
    }
    fn end(self) -> Result<(), Failed> {
        put_long(self.out, 0);
        Ok(())
    }
}

/// The fields of a record that are still to come.
pub(super) struct Fields<'a> {
    schema: &'a ParsedSchema,
    left: &'a [Field],
    out: &'a mut Vec<u8>,
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Failed;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Failed> {
        match self.left.split_first() {
            Some((field, left)) if field.name == key => {
                self.left = left;
                value.serialize(Writer { schema: self.schema, node: field.node, out: self.out })
            }
            _ => Err(unencodable(format!("the field {key} does not stand here in the schema")).into()),
        }
    }
    fn end(self) -> Result<(), Failed> {
        match self.left.first() {
            None => Ok(()),
            Some(field) => Err(unencodable(format!("the field {} is missing", field.name)).into()),
        }
    }
}
