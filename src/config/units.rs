//! Durations, sizes, amounts and rates as people write them: the same in every file and variable.

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

/// So much in so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How much.
    pub amount: i64,
    /// Per how long.
    pub per: Duration,
}

/// Reads `512 B`, `256 KB`, `1 MB`, `2 GB` as bytes; KB is 1,024 bytes, as is KiB. The unit is compulsory, its case is not.
pub fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "kb" | "kib" => 1024.0,
        "mb" | "mib" => 1024.0 * 1024.0,
        "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * factor;
    (bytes >= 0.0 && bytes < 1e15).then_some(bytes as usize)
}

/// Reads `500`, `20k`, `2M`, `1.5G` as a count.
pub fn parse_count(text: &str) -> Option<i64> {
    let text = text.trim();
    let (number, unit) = split(text).or_else(|| Some((text.parse().ok()?, "")))?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return None,
    };
    let count = number * factor;
    (count >= 0.0 && count < 9e15).then_some(count as i64)
}

/// Reads `500/hour`, `2M/day`, `10/5s`.
pub fn parse_rate(text: &str) -> Option<Rate> {
    let (amount, per) = text.split_once('/')?;
    let per = match per.trim() {
        "second" => Duration::from_secs(1),
        "minute" => Duration::from_secs(60),
        "hour" => Duration::from_secs(3_600),
        "day" => Duration::from_secs(86_400),
        other => parse_duration(other).filter(|d| !d.is_zero())?,
    };
    Some(Rate { amount: parse_count(amount)?, per })
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    Some((text[..at].replace('_', "").parse().ok()?, text[at..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, limits would be other than their author wrote.
    #[test]
    fn sizes_and_rates_are_read_with_their_unit() {
        assert_eq!(parse_size("256 KB"), Some(262_144));
        assert_eq!(parse_size("1MiB"), Some(1_048_576));
        assert_eq!(parse_size("1.5 mb"), Some(1_572_864));
        assert_eq!(parse_count("2M"), Some(2_000_000));
        assert_eq!(parse_rate("500/hour"), Some(Rate { amount: 500, per: Duration::from_secs(3_600) }));
        assert_eq!(parse_rate("2M/day").map(|r| r.amount), Some(2_000_000));
        for wrong in ["256", "KB", "-1 KB", "5 lots"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
        for wrong in ["500", "500/", "/day", "x/day", "5/0s"] {
            assert_eq!(parse_rate(wrong), None, "{wrong}");
        }
    }
}
