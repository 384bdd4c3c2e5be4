//! A parsed Avro schema in one flat list of nodes, references resolved: what the decoders walk.

use std::collections::HashMap;

use apache_avro::Schema;
use apache_avro::schema::{DecimalSchema, FixedSchema, InnerDecimalSchema, Name, RecordSchema, UuidSchema};
use serde_json::Value;

use crate::error::{Error, Fault, Result, codes};

use super::decode;

/// The longest schema text that is parsed.
const TEXT_LIMIT: usize = 1 << 20;

/// A node's place in its schema.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct NodeId(usize);

/// A schema, checked and ready to decode with.
#[derive(Debug)]
pub struct ParsedSchema {
    schema: Schema,
    nodes: Vec<Node>,
    root: NodeId,
}

/// One type within a schema.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) logical: Logical,
}

/// Avro's types.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed { names: Names, size: usize },
    Enum { names: Names, symbols: Vec<String>, default: Option<String> },
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record { names: Names, fields: Vec<Field> },
}

/// What a type means beyond its bytes, as far as a decoded value shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Logical {
    None,
    Decimal { scale: usize },
    Date,
    Timestamp { per_second: i64 },
    Uuid,
}

/// A full name and the full names it is also known under.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) full: String,
    pub(super) aliases: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) default: Option<Value>,
    pub(super) node: NodeId,
}

/// Which branch says what in a union of null and one type.
pub(super) struct Nullable {
    pub(super) null: i64,
    pub(super) value: i64,
    pub(super) node: NodeId,
}

impl ParsedSchema {
    /// A schema to read into or to write with. Its defaults must fit (a union's: its first branch), so that they can't break at
    /// first use (C002).
    ///
    /// # Errors
    /// `SCHEMA_INCOMPATIBLE`, permanent, where the text is no schema; it names the field whose default does not fit.
    pub fn parse(text: &str) -> Result<Self> {
        let parsed = Self::build(&json(text)?)?;
        parsed.check_defaults()?;
        Ok(parsed)
    }

    /// A schema that others wrote with. A writer's defaults play no part in reading, so they are not looked at (C002).
    ///
    /// # Errors
    /// `SCHEMA_INCOMPATIBLE`, permanent, where the text is no schema.
    pub fn parse_writer(text: &str) -> Result<Self> {
        let mut json = json(text)?;
        drop_defaults(&mut json);
        Self::build(&json)
    }

    /// Canonical form: what decides whether two schemas mean the same bytes.
    pub fn canonical(&self) -> String {
        self.schema.canonical_form()
    }

    /// The name under which a union's branch stands in a decoded value: a named type among several, so that none is taken for
    /// another (C026).
    pub(super) fn wrapper(&self, union: NodeId, branch: NodeId) -> Option<&str> {
        let Kind::Union(branches) = &self.node(union).kind else { return None };
        let several = branches.iter().filter(|b| !matches!(self.node(**b).kind, Kind::Null)).count() > 1;
        self.node(branch).names().filter(|_| several).map(|n| n.full.as_str())
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }
    pub(super) fn root(&self) -> NodeId {
        self.root
    }
    /// The branches of a union of null and one type.
    pub(super) fn nullable(&self, id: NodeId) -> Option<Nullable> {
        let Kind::Union(branches) = &self.node(id).kind else { return None };
        let is_null = |b: NodeId| matches!(self.node(b).kind, Kind::Null);
        match branches[..] {
            [a, b] if is_null(a) => Some(Nullable { null: 0, value: 1, node: b }),
            [a, b] if is_null(b) => Some(Nullable { null: 1, value: 0, node: a }),
            _ => None,
        }
    }

    fn build(json: &Value) -> Result<Self> {
        let schema = Schema::parse(json).map_err(|e| invalid(e.to_string()))?;
        let mut builder = Builder { nodes: Vec::new(), named: HashMap::new() };
        let root = builder.add(&schema)?;
        Ok(Self { schema, nodes: builder.nodes, root })
    }

    fn check_defaults(&self) -> Result<()> {
        for node in &self.nodes {
            let Kind::Record { names, fields } = &node.kind else { continue };
            for f in fields {
                let Some(default) = &f.default else { continue };
                decode::default_value(self, f.node, default)
                    .map_err(|_| invalid(format!("the default of {}.{} does not fit its type", names.full, f.name)))?;
            }
        }
        Ok(())
    }
}

impl Kind {
    /// Its word in messages.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Boolean => "boolean",
            Kind::Int => "int",
            Kind::Long => "long",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Bytes => "bytes",
            Kind::String => "string",
            Kind::Fixed { .. } => "fixed",
            Kind::Enum { .. } => "enum",
            Kind::Array(_) => "array",
            Kind::Map(_) => "map",
            Kind::Union(_) => "union",
            Kind::Record { .. } => "record",
        }
    }
}

impl Node {
    /// The names of a named type.
    pub(super) fn names(&self) -> Option<&Names> {
        match &self.kind {
            Kind::Fixed { names, .. } | Kind::Enum { names, .. } | Kind::Record { names, .. } => Some(names),
            _ => None,
        }
    }
}

struct Builder {
    nodes: Vec<Node>,
    named: HashMap<String, NodeId>,
}

impl Builder {
    fn add(&mut self, schema: &Schema) -> Result<NodeId> {
        use Kind::{Boolean, Bytes, Double, Float, Int, Long, Null, String};
        let (kind, logical) = match schema {
            Schema::Ref { name } => {
                return self.named.get(&full(name)).copied().ok_or_else(|| invalid(format!("{name} is not defined")));
            }
            Schema::Record(record) => return self.record(record),
            Schema::Null => (Null, Logical::None),
            Schema::Boolean => (Boolean, Logical::None),
            Schema::Int | Schema::TimeMillis => (Int, Logical::None),
            Schema::Date => (Int, Logical::Date),
            Schema::Long
            | Schema::TimeMicros
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => (Long, Logical::None),
            Schema::TimestampMillis => (Long, Logical::Timestamp { per_second: 1_000 }),
            Schema::TimestampMicros => (Long, Logical::Timestamp { per_second: 1_000_000 }),
            Schema::TimestampNanos => (Long, Logical::Timestamp { per_second: 1_000_000_000 }),
            Schema::Float => (Float, Logical::None),
            Schema::Double => (Double, Logical::None),
            Schema::Bytes | Schema::BigDecimal => (Bytes, Logical::None),
            Schema::String => (String, Logical::None),
            Schema::Decimal(DecimalSchema { scale, inner, .. }) => match inner {
                InnerDecimalSchema::Bytes => (Bytes, Logical::Decimal { scale: *scale }),
                InnerDecimalSchema::Fixed(fixed) => return self.fixed(fixed, Logical::Decimal { scale: *scale }),
            },
            Schema::Uuid(UuidSchema::String) => (String, Logical::None),
            Schema::Uuid(UuidSchema::Bytes) => (Bytes, Logical::Uuid),
            Schema::Uuid(UuidSchema::Fixed(fixed)) => return self.fixed(fixed, Logical::Uuid),
            Schema::Fixed(fixed) | Schema::Duration(fixed) => return self.fixed(fixed, Logical::None),
            Schema::Enum(e) => {
                let names = Names { full: full(&e.name), aliases: aliases(e.aliases.as_deref(), &e.name) };
                return Ok(self.named(
                    names,
                    |names| Kind::Enum { names, symbols: e.symbols.clone(), default: e.default.clone() },
                    Logical::None,
                ));
            }
            Schema::Array(array) => (Kind::Array(self.add(&array.items)?), Logical::None),
            Schema::Map(map) => (Kind::Map(self.add(&map.types)?), Logical::None),
            Schema::Union(union) => {
                let branches = union.variants().iter().map(|s| self.add(s)).collect::<Result<_>>()?;
                (Kind::Union(branches), Logical::None)
            }
        };
        Ok(self.push(Node { kind, logical }))
    }

    fn record(&mut self, record: &RecordSchema) -> Result<NodeId> {
        let names = Names { full: full(&record.name), aliases: aliases(record.aliases.as_deref(), &record.name) };
        let id = self.named(names, |names| Kind::Record { names, fields: Vec::new() }, Logical::None);
        for f in &record.fields {
            let node = self.add(&f.schema)?;
            let field = Field { name: f.name.clone(), aliases: f.aliases.clone(), default: f.default.clone(), node };
            if let Kind::Record { fields, .. } = &mut self.nodes[id.0].kind {
                fields.push(field);
            }
        }
        Ok(id)
    }

    fn fixed(&mut self, fixed: &FixedSchema, logical: Logical) -> Result<NodeId> {
        let names = Names { full: full(&fixed.name), aliases: aliases(fixed.aliases.as_deref(), &fixed.name) };
        Ok(self.named(names, |names| Kind::Fixed { names, size: fixed.size }, logical))
    }

    fn named(&mut self, names: Names, kind: impl FnOnce(Names) -> Kind, logical: Logical) -> NodeId {
        let name = names.full.clone();
        let id = self.push(Node { kind: kind(names), logical });
        self.named.insert(name, id);
        id
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }
}

fn full(name: &Name) -> String {
    name.fullname(None)
}

/// Aliases as full names; a short one is in its type's namespace (C011).
fn aliases(aliases: Option<&[apache_avro::schema::Alias]>, of: &Name) -> Vec<String> {
    aliases.unwrap_or_default().iter().map(|a| a.fullname(of.namespace())).collect()
}

fn json(text: &str) -> Result<Value> {
    if text.len() > TEXT_LIMIT {
        return Err(invalid(format!("a schema of {} bytes", text.len())));
    }
    // The JSON parser stops at 128 levels, and with it whoever walks the schema (C008).
    serde_json::from_str(text).map_err(|e| invalid(e.to_string()))
}

fn drop_defaults(json: &mut Value) {
    match json {
        Value::Array(items) => items.iter_mut().for_each(drop_defaults),
        Value::Object(fields) => {
            fields.remove("default");
            fields.values_mut().for_each(drop_defaults);
        }
        _ => {}
    }
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(codes::SCHEMA_INCOMPATIBLE, Fault::Configuration, "parsing an Avro schema").because(why.into())
}
