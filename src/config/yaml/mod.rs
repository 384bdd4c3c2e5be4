//! YAML files that people write, read with positions: every error of a file at once, each with file, line, column and what to
//! write instead. One table of known keys ([`Shape`]) checks a file and becomes its JSON Schema for editors.

mod diagnostics;
mod node;
mod parse;
mod schema;
mod shape;
mod units;

pub use diagnostics::{Diagnostic, Diagnostics, Severity, Site, SourceFile, nearest};
pub use node::{Kind, Name, Node, is_offline, offline};
pub use parse::{load, parse};
pub use schema::json_schema;
pub use shape::{Fields, Key, Shape, Type};
pub use units::{Rate, parse_count, parse_rate, parse_size};
