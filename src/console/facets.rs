//! How rows are found: entries of a facet in the order of change, sixteen bytes each, and names that many rows share.

use std::collections::HashMap;

use crate::time::WallTime;

/// By what rows are found: a facet's kind and number stand before the time of change and the row.
#[derive(Clone, Copy)]
pub enum Facet {
    /// All of them.
    All,
    /// Of a status.
    Status(u32),
    /// Of a tenant.
    Tenant(u32),
    /// Of a target.
    Target(u32),
    /// Of resources whose names have this hash.
    Resource(u32),
    /// Of operation IDs that have this hash.
    Operation(u32),
    /// Of those that have a flag.
    Flag(u32),
}

impl Facet {
    /// Where its entries begin.
    pub fn base(self) -> u128 {
        let (kind, number) = match self {
            Facet::All => (0, 0),
            Facet::Status(n) => (1, n),
            Facet::Tenant(n) => (2, n),
            Facet::Target(n) => (3, n),
            Facet::Resource(n) => (4, n),
            Facet::Operation(n) => (5, n),
            Facet::Flag(n) => (6, n),
        };
        (kind << 112) | (u128::from(number) << 80)
    }
    /// The entry of a row.
    pub fn entry(self, at: WallTime, row: u32) -> u128 {
        self.base() | spot(at, row)
    }
}

/// The part of an entry that tells its place within a facet.
pub const SPOT: u128 = (1 << 80) - 1;

/// Time of change (48 bits reach the year 10889) and row.
pub fn spot(at: WallTime, row: u32) -> u128 {
    let time = u128::try_from(at.0).unwrap_or_default().min((1 << 48) - 1);
    (time << 32) | u128::from(row)
}

/// Names that many rows share; 0 is the empty one.
pub struct Names {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Default for Names {
    fn default() -> Self {
        Self { texts: vec!["".into()], numbers: HashMap::from([("".into(), 0)]) }
    }
}

impl Names {
    /// The number of a name, made where it is new.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(n) = self.numbers.get(text) {
            return *n;
        }
        let n = self.texts.len() as u32;
        self.texts.push(text.into());
        self.numbers.insert(text.into(), n);
        n
    }
    /// The number of a name that somebody has.
    pub fn known(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }
    /// The name of a number.
    pub fn text(&self, n: u32) -> &str {
        self.texts.get(n as usize).map_or("", |t| t)
    }
}
