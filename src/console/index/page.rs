//! Pages of a search: the facets that leave the fewest rows to look at, merged in the order of change.

use crate::time::WallTime;

use super::super::facets::{Facet, SPOT, spot};
use super::super::search::{Cursor, Search};
use super::{Index, Listed, bit, number};

/// Rows that one page looks at; a filter that finds less goes on with the next page.
pub const LOOKED_AT: usize = 20_000;

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Its entries.
    pub rows: Vec<Listed>,
    /// Where the next page begins, where there may be one.
    pub next: Option<Cursor>,
    /// How many rows it took to look at for them; [`LOOKED_AT`] at most.
    pub looked: usize,
}

impl Index {
    /// A page of what is searched for.
    pub fn page(&self, search: &Search, now: WallTime) -> Page {
        if let Some(text) = search.text.as_deref().filter(|_| search.cursor.is_none()) {
            let exact: Vec<Listed> =
                self.under(text).filter(|row| self.fits(*row, search, true)).map(|row| self.listed(row)).collect();
            if !exact.is_empty() {
                return Page { looked: exact.len(), rows: exact, next: None };
            }
        }
        let Some(facets) = self.narrowest(search) else { return Page::default() };
        let mut page = Page::default();
        for entry in self.merged(&facets, search, now) {
            page.looked += 1;
            let row = entry as u32;
            let cursor = Cursor { changed: WallTime((entry >> 32) as i64), row };
            if self.fits(row, search, false) {
                page.rows.push(self.listed(row));
            }
            if page.rows.len() == search.limit || page.looked == LOOKED_AT {
                page.next = Some(cursor);
                break;
            }
        }
        page
    }

    /// The facets that leave the fewest rows to look at; `None` where a name is named that nobody has.
    fn narrowest(&self, s: &Search) -> Option<Vec<Facet>> {
        let known = |name: &Option<String>| match name {
            Some(text) => self.names.known(text).map(Some),
            None => Some(None),
        };
        let (tenant, target, _) = (known(&s.tenant)?, known(&s.target)?, known(&s.step)?);
        if let (Some(flag), None) = (s.flag, &s.resource) {
            return Some(vec![Facet::Flag(flag as u32)]);
        }
        Some(match (&s.resource, s.status.as_slice(), tenant, target) {
            (Some(resource), ..) => vec![Facet::Resource(self.short_hash(resource))],
            (None, [_, ..], ..) => s.status.iter().map(|s| Facet::Status(number(Some(*s)))).collect(),
            (None, [], Some(n), _) => vec![Facet::Tenant(n)],
            (None, [], None, Some(n)) => vec![Facet::Target(n)],
            (None, [], None, None) => vec![Facet::All],
        })
    }

    /// Entries of these facets in the order that is asked for, from behind the cursor.
    fn merged<'a>(&'a self, facets: &[Facet], s: &Search, now: WallTime) -> impl Iterator<Item = u128> + 'a {
        let cursor = s.cursor.map(|c| spot(c.changed, c.row));
        let latest = s.older.map_or(SPOT, |older| spot(now.minus(older), u32::MAX));
        let (low, high) = match (s.oldest_first, cursor) {
            (true, Some(at)) => (at + 1, latest),
            (false, Some(at)) => (0, latest.min(at.saturating_sub(1))),
            (_, None) => (0, latest),
        };
        let oldest_first = s.oldest_first;
        let ordered = |f: &Facet| -> Box<dyn Iterator<Item = u128> + 'a> {
            let base = f.base();
            // A range that ends before it begins is no range at all.
            let range = (low <= high).then(|| self.facets.range(base | low..=base | high)).into_iter().flatten();
            let spots = range.map(|e| *e & SPOT);
            if oldest_first { Box::new(spots) } else { Box::new(spots.rev()) }
        };
        let mut lists: Vec<_> = facets.iter().map(|f| ordered(f).peekable()).collect();
        std::iter::from_fn(move || {
            let open = lists.iter_mut().filter_map(|l| Some((l.peek().copied()?, l)));
            let next = if oldest_first { open.min_by_key(|(at, _)| *at) } else { open.max_by_key(|(at, _)| *at) };
            next?.1.next()
        })
    }

    fn fits(&self, row: u32, s: &Search, exact: bool) -> bool {
        let r = &self.rows[row as usize];
        if r.is_blank() {
            return false;
        }
        let named = |number: u32, wanted: &Option<String>| wanted.as_ref().is_none_or(|w| self.names.text(number) == w.as_str());
        (s.status.is_empty() || r.status().is_some_and(|st| s.status.contains(&st)))
            && s.flag.is_none_or(|flag| r.flags & bit(flag) != 0)
            && named(r.tenant, &s.tenant)
            && named(r.step, &s.step)
            && named(r.target, &s.target)
            && s.resource.as_ref().is_none_or(|w| *r.resource == **w)
            && (exact || s.text.as_ref().is_none_or(|t| r.operation.contains(t.as_str()) || r.resource.contains(t.as_str())))
    }
}
