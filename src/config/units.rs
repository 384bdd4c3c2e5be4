//! Durations and sizes as people write them.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::time::{parse_duration, show_duration};

/// A duration written `250ms`, `5s`, `30m`, `2h`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema)]
#[schemars(with = "String")]
pub struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        parse_duration(&text)
            .map(Span)
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is no duration; write 250ms, 5s, 30m, 2h or 7d")))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_duration(self.0))
    }
}

/// A size written `256 KB`, `64 MB`, `1 GB`, or a bare number of bytes. Units are powers of 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema)]
#[schemars(with = "String")]
pub struct ByteSize(pub usize);

/// Reads a size; `None` where it is none.
pub fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..split].parse().ok()?;
    let shift = match text[split..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" | "kib" | "k" => 10,
        "mb" | "mib" | "m" => 20,
        "gb" | "gib" | "g" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(usize),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(n) => Ok(ByteSize(n)),
            Either::Text(text) => parse_size(&text)
                .map(ByteSize)
                .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is no size; write 256 KB, 64 MB or 1 GB"))),
        }
    }
}

/// Names, as a list or as one text with commas (an environment variable).
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema)]
#[schemars(with = "Vec<String>")]
pub struct Names(pub Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            List(Vec<String>),
        }
        Ok(match Either::deserialize(d)? {
            Either::Text(text) => Names(text.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect()),
            Either::List(list) => Names(list),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, a memory bound would be another than the one written.
    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(parse_size("256 KB"), Some(262_144));
        assert_eq!(parse_size("64MB"), Some(67_108_864));
        assert_eq!(parse_size("12"), Some(12));
        for wrong in ["", "KB", "1 TB", "-1"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
