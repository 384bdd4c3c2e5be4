//! What is searched for: the query of an address, the same for pages and the API. Pure.

use std::fmt::Write;
use std::time::Duration;

use crate::error::{Error, Fault, Result, codes};
use crate::intents::{Flag, Status};
use crate::time::{WallTime, parse_duration};

use super::index::{FLAGS, Listed, flag_word};

/// Entries of one page, unless `limit` says otherwise, and at most.
pub const LIMIT: usize = 50;
const MOST: usize = 500;
/// Longest text that a filter takes.
const LONGEST: usize = 512;
/// Longest age that is asked for.
const LONGEST_AGE: Duration = Duration::from_secs(36_500 * 86_400);

/// A place in a list: the page after goes on behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// When the last entry changed.
    pub changed: WallTime,
    /// Its row.
    pub row: u32,
}

/// Which operations, in which order, from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Search {
    /// Only these statuses; none = all.
    pub status: Vec<Status>,
    /// Only this tenant.
    pub tenant: Option<String>,
    /// Only this effect step.
    pub step: Option<String>,
    /// Only this target: `orders#create`.
    pub target: Option<String>,
    /// Only this resource.
    pub resource: Option<String>,
    /// A whole operation ID finds that operation; else what operation ID or resource contains.
    pub text: Option<String>,
    /// Only those with this flag.
    pub flag: Option<Flag>,
    /// Only what has not changed for so long.
    pub older: Option<Duration>,
    /// The oldest change first, instead of the newest.
    pub oldest_first: bool,
    /// Entries of a page.
    pub limit: usize,
    /// Behind which entry.
    pub cursor: Option<Cursor>,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            status: Vec::new(),
            tenant: None,
            step: None,
            target: None,
            resource: None,
            text: None,
            flag: None,
            older: None,
            oldest_first: false,
            limit: LIMIT,
            cursor: None,
        }
    }
}

fn wrong(key: &str, why: impl Into<String>) -> Error {
    let why: String = why.into();
    Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading `{key}` of the search")).because(why)
}

impl Search {
    /// Everything with one of these statuses, the oldest first.
    pub fn waiting(status: &[Status]) -> Self {
        Self { status: status.to_vec(), oldest_first: true, ..Self::default() }
    }

    /// Reads the query of an address. Empty values are none, as forms send them.
    ///
    /// # Errors
    /// `BAD_VALUE` for keys and values that nobody knows.
    pub fn parse(query: &str) -> Result<Self> {
        let mut s = Self::default();
        for (key, value) in pairs(query) {
            let value = value.trim();
            if value.len() > LONGEST {
                return Err(wrong(&key, format!("it takes {LONGEST} bytes at most")));
            }
            if !value.is_empty() {
                s.take(&key, value)?;
            }
        }
        Ok(s)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "status" => {
                for word in value.split(',').map(str::trim).filter(|w| !w.is_empty()) {
                    let status = status(word).ok_or_else(|| wrong(key, format!("there is no status `{word}`")))?;
                    if !self.status.contains(&status) {
                        self.status.push(status);
                    }
                }
            }
            "tenant" => self.tenant = Some(value.to_owned()),
            "step" => self.step = Some(value.to_owned()),
            "target" => self.target = Some(value.to_owned()),
            "resource" => self.resource = Some(value.to_owned()),
            "q" => self.text = Some(value.to_owned()),
            "flag" => {
                let known = FLAGS.into_iter().find(|f| flag_word(*f) == value);
                self.flag = Some(known.ok_or_else(|| wrong(key, format!("there is no flag `{value}`")))?);
            }
            "older" => {
                let read = parse_duration(value);
                let span = read.ok_or_else(|| wrong(key, format!("`{value}` is no duration; write 5s, 30m, 2h or 7d")))?;
                if span > LONGEST_AGE {
                    return Err(wrong(key, "it takes 100 years at most"));
                }
                // Nobody asks for parts of a millisecond, and an address does not keep them.
                self.older = Some(Duration::from_millis((span.as_secs_f64() * 1_000.0).round() as u64));
            }
            "order" => {
                self.oldest_first = match value {
                    "oldest" => true,
                    "newest" => false,
                    _ => return Err(wrong(key, "it is `oldest` or `newest`")),
                };
            }
            "limit" => {
                let n = value.parse().ok().filter(|n| (1..=MOST).contains(n));
                self.limit = n.ok_or_else(|| wrong(key, format!("it is a number from 1 to {MOST}")))?;
            }
            "cursor" => self.cursor = Some(Cursor::parse(value).ok_or_else(|| wrong(key, "it is not one that was given"))?),
            _ => {
                let known = "status, tenant, step, target, resource, q, flag, older, order, limit, cursor";
                return Err(wrong(key, format!("nobody knows it; known are {known}")));
            }
        }
        Ok(())
    }

    /// Whether an operation is searched for, whatever the page: as the index finds it, for whoever has no index.
    pub fn fits(&self, l: &Listed, now: WallTime) -> bool {
        let named = |wanted: &Option<String>, own: &str| wanted.as_ref().is_none_or(|w| w == own);
        (self.status.is_empty() || l.status.is_some_and(|s| self.status.contains(&s)))
            && self.flag.is_none_or(|flag| l.flags.contains(&flag))
            && named(&self.tenant, l.key.tenant.as_str())
            && named(&self.step, l.key.step.as_str())
            && named(&self.target, &l.target)
            && named(&self.resource, &l.resource)
            && self.older.is_none_or(|older| l.changed_at <= now.minus(older))
            && self.text.as_ref().is_none_or(|t| l.key.operation.as_str().contains(t.as_str()) || l.resource.contains(t.as_str()))
    }

    /// As the query of an address; reading it gives the same search.
    pub fn query(&self) -> String {
        let mut out = String::new();
        let mut put = |key: &str, value: &str| {
            if !out.is_empty() {
                out.push('&');
            }
            let _ = write!(out, "{key}={}", escape(value));
        };
        for status in &self.status {
            put("status", status.word());
        }
        let texts = [
            ("tenant", &self.tenant),
            ("step", &self.step),
            ("target", &self.target),
            ("resource", &self.resource),
            ("q", &self.text),
        ];
        for (key, value) in texts {
            if let Some(value) = value {
                put(key, value);
            }
        }
        if let Some(flag) = self.flag {
            put("flag", flag_word(flag));
        }
        if let Some(older) = self.older {
            put("older", &age(older));
        }
        if self.oldest_first {
            put("order", "oldest");
        }
        if self.limit != LIMIT {
            put("limit", &self.limit.to_string());
        }
        if let Some(cursor) = self.cursor {
            put("cursor", &cursor.text());
        }
        out
    }
}

impl Cursor {
    /// As it stands in an address.
    pub fn text(&self) -> String {
        format!("{:x}-{:x}", self.changed.0.max(0), self.row)
    }
    /// Reads one that was given.
    pub fn parse(text: &str) -> Option<Self> {
        let (changed, row) = text.split_once('-')?;
        let changed = i64::from_str_radix(changed, 16).ok().filter(|c| *c >= 0)?;
        Some(Self { changed: WallTime(changed), row: u32::from_str_radix(row, 16).ok()? })
    }
}

/// An age as the filter takes it, in the largest unit that shows it whole: `30m`, `90s`.
pub fn age(d: Duration) -> String {
    let ms = d.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let (size, unit) = units.into_iter().find(|(size, _)| ms > 0 && ms.is_multiple_of(*size)).unwrap_or((1, "ms"));
    format!("{}{unit}", ms / size)
}

/// The status of this word.
pub fn status(word: &str) -> Option<Status> {
    Status::ALL.iter().copied().find(|s| s.word() == word)
}

/// Names and values of a query or a form, decoded. What is no UTF-8 is replaced.
pub fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split('&').filter(|p| !p.is_empty());
    parts.map(|p| p.split_once('=').unwrap_or((p, ""))).map(|(k, v)| (unescape(k), unescape(v))).collect()
}

/// Everything but unreserved characters, percent-encoded.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(b)),
            _ => {
                let _ = write!(out, "%{b:02X}");
            }
        }
    }
    out
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let hex = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
        match (b, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(b),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search() -> impl Strategy<Value = Search> {
        let text = || proptest::option::of("[^\\p{White_Space}\\x00]{1,20}");
        let status =
            proptest::collection::vec(proptest::sample::select(vec![Status::Unknown, Status::Parked, Status::Confirmed]), 0..3);
        let cursor = proptest::option::of((0..i64::MAX, any::<u32>()));
        let texts = (text(), text(), text(), text(), text());
        let older = proptest::option::of(0..10_000_000u64);
        let flag = proptest::option::of(proptest::sample::select(FLAGS.to_vec()));
        let rest = (any::<bool>(), 1..=MOST, cursor);
        (status, texts, flag, older, rest).prop_map(|(mut status, t, flag, older, (oldest_first, limit, cursor))| {
            status.sort();
            status.dedup();
            Search {
                status,
                tenant: t.0,
                step: t.1,
                target: t.2,
                resource: t.3,
                text: t.4,
                flag,
                older: older.map(Duration::from_millis),
                oldest_first,
                limit,
                cursor: cursor.map(|(changed, row)| Cursor { changed: WallTime(changed), row }),
            }
        })
    }

    proptest! {
        /// If this broke, a filter that is kept in an address would find something else tomorrow.
        #[test]
        fn an_address_keeps_a_search(s in search()) {
            prop_assert_eq!(Search::parse(&s.query()).expect("reads"), s);
        }

        /// If this broke, an address that somebody mistyped would end the request without an answer.
        #[test]
        fn any_address_is_read_or_refused(text in ".{0,200}") {
            let _ = Search::parse(&text);
        }

        /// If this broke, a name with a slash, a quote or an umlaut could not be looked at.
        #[test]
        fn names_survive_an_address(text in any::<String>()) {
            prop_assert_eq!(unescape(&escape(&text)), text);
        }
    }

    /// If this broke, a misspelt filter would silently show everything.
    #[test]
    fn what_nobody_knows_is_refused() {
        for query in ["stauts=unknown", "status=failed", "limit=0", "limit=501", "older=5", "flag=late", "cursor=zz", "order=up"] {
            assert_eq!(Search::parse(query).expect_err(query).code, codes::BAD_VALUE, "{query}");
        }
        assert_eq!(Search::parse("status=&q=+&tenant=").expect("an empty form"), Search::default());
    }
}
