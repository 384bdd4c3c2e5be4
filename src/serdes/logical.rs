//! How Avro's logical types stand in a decoded value, both ways.

use chrono::{DateTime, Datelike, NaiveDate, SecondsFormat, TimeDelta, Utc};
use serde_json::Value;

use crate::error::Result;

use super::schema::Logical;
use super::{undecodable, unencodable};

/// An int or long. Times and dates beyond the calendar are an error of the record, never a wrong date (C005).
pub(super) fn of_long(n: i64, logical: Logical) -> Result<Value> {
    let beyond = || undecodable(format!("{n} lies beyond the calendar"));
    match logical {
        Logical::Timestamp { per_second } => {
            let (seconds, part) = (n.div_euclid(per_second), n.rem_euclid(per_second));
            let nanos = u32::try_from(part * (1_000_000_000 / per_second)).map_err(|_| beyond())?;
            let time = DateTime::from_timestamp(seconds, nanos).filter(|t| four_digits(t.year_ce())).ok_or_else(beyond)?;
            let digits = match per_second {
                1_000 => SecondsFormat::Millis,
                1_000_000 => SecondsFormat::Micros,
                _ => SecondsFormat::Nanos,
            };
            Ok(Value::String(time.to_rfc3339_opts(digits, true)))
        }
        Logical::Date => {
            let date = TimeDelta::try_days(n).and_then(|d| NaiveDate::default().checked_add_signed(d));
            let date = date.filter(|d| four_digits(d.year_ce())).ok_or_else(beyond)?;
            Ok(Value::String(date.to_string()))
        }
        _ => Ok(n.into()),
    }
}

/// RFC 3339 has years 1 to 9999.
fn four_digits((ce, year): (bool, u32)) -> bool {
    ce && year <= 9_999
}

/// Bytes or a fixed.
pub(super) fn of_bytes(bytes: &[u8], logical: Logical) -> Result<Value> {
    match logical {
        Logical::Decimal { scale } => Ok(Value::String(decimal_text(unscaled(bytes)?, scale))),
        Logical::Uuid => {
            let uuid = uuid::Uuid::from_slice(bytes).map_err(|_| undecodable("malformed: a UUID is not 16 bytes"))?;
            Ok(Value::String(uuid.to_string()))
        }
        _ => Ok(Value::String(bytes.iter().map(|b| char::from(*b)).collect())),
    }
}

/// An int or long of a decoded value.
pub(super) fn to_long(value: &Value, logical: Logical) -> Result<i64> {
    let unfit = || unencodable(format!("{value} does not fit"));
    match (logical, value) {
        (_, Value::Number(n)) => n.as_i64().or_else(|| whole(n.as_f64()?)).ok_or_else(unfit),
        (Logical::Timestamp { per_second }, Value::String(s)) => {
            let time = DateTime::parse_from_rfc3339(s).map_err(|e| unfit().because(e))?.with_timezone(&Utc);
            let part = i64::from(time.timestamp_subsec_nanos()) / (1_000_000_000 / per_second);
            time.timestamp().checked_mul(per_second).and_then(|t| t.checked_add(part)).ok_or_else(unfit)
        }
        (Logical::Date, Value::String(s)) => {
            let date: NaiveDate = s.parse().map_err(|_| unfit())?;
            Ok((date - NaiveDate::default()).num_days())
        }
        _ => Err(unfit()),
    }
}

/// A float that is a whole number within what a float says exactly.
fn whole(n: f64) -> Option<i64> {
    (n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_992.0).then_some(n as i64)
}

/// Bytes or a fixed of `size` bytes of a decoded value. A fixed decimal is sign-extended to its size (C004).
pub(super) fn to_bytes(value: &Value, logical: Logical, size: Option<usize>) -> Result<Vec<u8>> {
    let unfit = || unencodable(format!("{value} does not fit"));
    let bytes = match (logical, value) {
        (Logical::Decimal { scale }, Value::String(_) | Value::Number(_)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let n = parse_decimal(&text, scale).ok_or_else(unfit)?;
            two_complement(n, size).ok_or_else(unfit)?
        }
        (Logical::Uuid, Value::String(s)) => uuid::Uuid::parse_str(s).map_err(|e| unfit().because(e))?.as_bytes().to_vec(),
        (_, Value::String(s)) => bytes_of_text(s).ok_or_else(unfit)?,
        _ => return Err(unfit()),
    };
    if size.is_some_and(|n| n != bytes.len()) { Err(unfit()) } else { Ok(bytes) }
}

/// Bytes as Avro's JSON encoding writes them: one code point from 0 to 255 per byte.
pub(super) fn bytes_of_text(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

/// A big-endian two's complement number of at most 38 digits or so (128 bits).
fn unscaled(bytes: &[u8]) -> Result<i128> {
    let fill = if bytes.first().is_some_and(|b| b & 0x80 != 0) { u8::MAX } else { 0 };
    let extra = bytes.len().saturating_sub(16);
    let (head, tail) = bytes.split_at(extra);
    let fits = head.iter().all(|b| *b == fill) && (extra == 0 || (tail[0] ^ fill) & 0x80 == 0);
    if !fits {
        return Err(undecodable("a decimal of more than 128 bits"));
    }
    let mut whole = [fill; 16];
    whole[16 - tail.len()..].copy_from_slice(tail);
    Ok(i128::from_be_bytes(whole))
}

fn decimal_text(n: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", n.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if n < 0 { "-" } else { "" };
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// The unscaled number of a decimal's text; `None` where it has more places than the scale, or too many digits.
fn parse_decimal(text: &str, scale: usize) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let part = if part.len() > scale { part.trim_end_matches('0') } else { part };
    let all = format!("{whole}{part:0<scale$}");
    if whole.is_empty() || part.len() > scale || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: i128 = all.parse().ok()?;
    Some(if negative { -n } else { n })
}

/// The shortest two's complement, or one of exactly `size` bytes.
fn two_complement(n: i128, size: Option<usize>) -> Option<Vec<u8>> {
    let whole = n.to_be_bytes();
    let fill = if n < 0 { u8::MAX } else { 0 };
    let spare = (0..15).take_while(|i| whole[*i] == fill && (whole[*i + 1] ^ fill) & 0x80 == 0).count();
    let short = &whole[spare..];
    let Some(size) = size else { return Some(short.to_vec()) };
    let mut out = vec![fill; size.checked_sub(short.len())?];
    out.extend_from_slice(short);
    Some(out)
}
