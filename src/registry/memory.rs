//! What is remembered: schemas, the least used of which go first; and failures, for as long as their class allows. Garbage ids
//! never push a schema out, and a slow id never holds up another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::serdes::ParsedSchema;

use super::Patience;
use super::ask::{Answer, Answered, Question};

/// Schemas that are kept.
const SCHEMAS: usize = 1_000;
/// Ids whose last answer was a failure, or that are being asked for.
const FAILURES: usize = 1_000;

#[derive(Default)]
pub(super) struct Memory {
    known: Mutex<Known>,
    /// One question for each id that is not known, so that one request goes out for all who ask.
    asking: Mutex<HashMap<u32, Arc<Question<Arc<ParsedSchema>>>>>,
}

#[derive(Default)]
struct Known {
    schemas: HashMap<u32, (u64, Arc<ParsedSchema>)>,
    uses: u64,
}

impl Memory {
    /// The schema, remembered or brought by `fetch`; or a failure, remembered or new.
    pub(super) fn get(
        &self,
        id: u32,
        patience: Patience,
        fetch: impl FnOnce(Answered<Arc<ParsedSchema>>),
    ) -> Answer<Arc<ParsedSchema>> {
        if let Some(schema) = self.known(id) {
            return Ok(schema);
        }
        let schema = self.question(id).ask(patience, fetch)?;
        self.remember(id, schema.clone());
        lock(&self.asking).remove(&id);
        Ok(schema)
    }

    fn known(&self, id: u32) -> Option<Arc<ParsedSchema>> {
        let mut known = lock(&self.known);
        known.uses += 1;
        let now = known.uses;
        let (used, schema) = known.schemas.get_mut(&id)?;
        *used = now;
        Some(schema.clone())
    }

    fn remember(&self, id: u32, schema: Arc<ParsedSchema>) {
        let mut known = lock(&self.known);
        if known.schemas.len() >= SCHEMAS
            && let Some(least) = known.schemas.iter().min_by_key(|(_, (used, _))| *used).map(|(id, _)| *id)
        {
            known.schemas.remove(&least);
        }
        let now = known.uses;
        known.schemas.insert(id, (now, schema));
    }

    fn question(&self, id: u32) -> Arc<Question<Arc<ParsedSchema>>> {
        let mut asking = lock(&self.asking);
        if asking.len() >= FAILURES && !asking.contains_key(&id) {
            // A question that is being asked lives on with those who ask.
            asking.retain(|_, question| Arc::strong_count(question) > 1);
        }
        asking.entry(id).or_default().clone()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::client::Failure;
    use super::*;

    /// If this broke, a topic of garbage ids would grow the process without bound, or push the schemas in use out.
    #[test]
    fn memory_is_bounded_and_garbage_pushes_nothing_out() {
        let memory = Memory::default();
        let schema = Arc::new(ParsedSchema::parse(r#""string""#).expect("a schema"));
        let patience = Patience::default();
        let get = |id| memory.get(id, patience, |done| done(Ok(schema.clone()))).is_ok();
        assert!(get(0));
        for id in 1..5_000 {
            assert!(memory.get(1_000_000 + id, patience, |done| done(Err(Failure::Missing))).is_err());
        }
        assert!(memory.get(0, patience, |done| done(Err(Failure::Missing))).is_ok(), "still known");
        for id in 1..5_000 {
            assert!(get(id) && get(0));
        }
        assert!(memory.get(0, patience, |done| done(Err(Failure::Missing))).is_ok(), "used all the time");
        assert!(lock(&memory.known).schemas.len() <= SCHEMAS && lock(&memory.asking).len() <= FAILURES);
    }
}
