//! Pages of lists that are no search: how many entries, and behind which one. Pure.

use crate::error::{Error, Fault, Result, codes};

use super::search::pairs;

/// Entries of one page, unless `limit` says otherwise, and at most.
pub const LIMIT: usize = 200;
const MOST: usize = 500;

/// Which page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paging {
    /// Entries of a page.
    pub limit: usize,
    /// Behind which entry: its time and its name.
    pub after: Option<(i64, String)>,
}

impl Default for Paging {
    fn default() -> Self {
        Self { limit: LIMIT, after: None }
    }
}

/// What is wrong with a part of the query.
pub fn wrong(key: &str, why: &str) -> Error {
    Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading `{key}` of the query")).because(why.to_owned())
}

impl Paging {
    /// Reads the query of an address. Empty values are none.
    ///
    /// # Errors
    /// `BAD_VALUE` for keys and values that nobody knows.
    pub fn parse(query: &str) -> Result<Self> {
        let mut paging = Self::default();
        for (key, value) in pairs(query).into_iter().filter(|(_, value)| !value.trim().is_empty()) {
            match key.as_str() {
                "limit" => {
                    let n = value.trim().parse().ok().filter(|n| (1..=MOST).contains(n));
                    paging.limit = n.ok_or_else(|| wrong("limit", &format!("it is a number from 1 to {MOST}")))?;
                }
                "cursor" => paging.after = Some(read(value.trim()).ok_or_else(not_given)?),
                _ => return Err(wrong(&key, "known are limit, cursor")),
            }
        }
        Ok(paging)
    }

    /// Leaves one page of entries that stand behind the cursor already, and says where the next one begins.
    pub fn cut<T>(&self, rows: &mut Vec<T>, place: impl Fn(&T) -> (i64, String)) -> Option<String> {
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let (at, name) = rows.last().filter(|_| more).map(place)?;
        Some(format!("{:x}-{name}", at.max(0)))
    }
}

/// A cursor that no page has given.
pub fn not_given() -> Error {
    wrong("cursor", "it is not one that was given")
}

fn read(text: &str) -> Option<(i64, String)> {
    let (at, name) = text.split_once('-')?;
    let at = i64::from_str_radix(at, 16).ok().filter(|at| *at >= 0)?;
    (!name.is_empty()).then(|| (at, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, what is beyond the first page could not be looked at, or a mistyped cursor would begin anew without a word.
    #[test]
    fn a_page_tells_where_the_next_one_begins() {
        let mut rows = vec![(1, "a"), (1, "b-2"), (20, "c")];
        let paging = Paging { limit: 2, after: None };
        let next = paging.cut(&mut rows, |(at, name)| (*at, (*name).to_owned())).expect("a next one");
        assert_eq!((rows.len(), next.as_str()), (2, "1-b-2"));
        assert_eq!(Paging::parse(&format!("cursor={next}&limit=2")).expect("reads").after, Some((1, "b-2".to_owned())));
        assert_eq!(paging.cut(&mut rows, |_| unreachable!()), None);
        for query in ["limit=0", "limit=501", "cursor=b", "cursor=zz-b", "cursor=1-", "cursor=-1-b", "page=2"] {
            assert_eq!(Paging::parse(query).expect_err(query).code, codes::BAD_VALUE, "{query}");
        }
        assert_eq!(Paging::parse("limit=&cursor=").expect("an empty form"), Paging::default());
    }
}
