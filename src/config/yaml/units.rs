//! Sizes, amounts and rates as people write them.

use std::time::Duration;

use crate::time::parse_duration;

/// So much in so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How much.
    pub amount: i64,
    /// Per how long.
    pub per: Duration,
}

/// Reads `512 B`, `256 KB`, `1 MB`, `2 GB` as bytes; KB is 1,024 bytes, as is KiB. The unit is compulsory.
pub fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "B" => 1.0,
        "KB" | "KiB" => 1024.0,
        "MB" | "MiB" => 1024.0 * 1024.0,
        "GB" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * factor;
    (0.0..1e15).contains(&bytes).then_some(bytes as usize)
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
    (0.0..9e15).contains(&count).then_some(count as i64)
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
