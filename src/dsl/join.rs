//! A stream joined with a table: each record of the stream meets the table's value of its key as of now.

use crate::error::{Error, codes};
use crate::processor::{Process, ProcessorCx, Record};
use crate::task::{Dropped, TaskError};

use super::KStream;
use super::keeping::has_no_key;
use super::table::KTable;
use super::with::Joined;

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Records whose key stands in the table, with the table's value. Where keys may have changed, they go through a repartition
    /// topic of the join's name first. The topics of both sides must have the same partition count.
    pub fn join<T, V2>(
        &self,
        table: &KTable<K, T>,
        joined: Joined<K, V>,
        f: impl Fn(&K, V, T) -> V2 + Send + Sync + 'static,
    ) -> KStream<K, V2>
    where
        T: Clone + 'static,
        V2: Clone + 'static,
    {
        self.join_by("KSTREAM-JOIN", table, joined, move |r, found, _| Ok(found.map(|t| f(&r.key, r.value.clone(), t))))
    }

    /// As [`Self::join`], with `None` where the key does not stand in the table.
    pub fn left_join<T, V2>(
        &self,
        table: &KTable<K, T>,
        joined: Joined<K, V>,
        f: impl Fn(&K, V, Option<T>) -> V2 + Send + Sync + 'static,
    ) -> KStream<K, V2>
    where
        T: Clone + 'static,
        V2: Clone + 'static,
    {
        self.join_by("KSTREAM-LEFTJOIN", table, joined, move |r, found, _| Ok(Some(f(&r.key, r.value.clone(), found))))
    }

    /// A join whose function looks at the whole record, may fail on it, and drops it by `None`.
    pub(crate) fn join_with<T, V2>(
        &self,
        table: &KTable<K, T>,
        joined: Joined<K, V>,
        f: impl Fn(&Record<K, V>, Option<T>, &ProcessorCx<'_, '_>) -> Result<Option<V2>, Error> + Send + Sync + 'static,
    ) -> KStream<K, V2>
    where
        T: Clone + 'static,
        V2: Clone + 'static,
    {
        self.join_by("KSTREAM-JOIN", table, joined, f)
    }

    fn join_by<T, V2>(
        &self,
        kind: &str,
        table: &KTable<K, T>,
        joined: Joined<K, V>,
        f: impl Fn(&Record<K, V>, Option<T>, &ProcessorCx<'_, '_>) -> Result<Option<V2>, Error> + Send + Sync + 'static,
    ) -> KStream<K, V2>
    where
        T: Clone + 'static,
        V2: Clone + 'static,
    {
        if joined.name.is_empty() {
            self.build.borrow_mut().graph.problem(codes::MISSING_NAME, "a join needs a name");
        }
        let (get, key, label) = (table.get.clone(), joined.key.clone(), joined.name.clone());
        let partitioned = self.partitioned(&joined.name, &joined.key, &joined.value).named(&joined.name);
        let out = partitioned.each(
            kind,
            false,
            move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>, next: &mut dyn Process<K, V2>| -> Result<(), TaskError> {
                // What has no key meets nothing.
                let keyless = has_no_key(&key, &r.key, cx)?;
                let found = if keyless { None } else { get(cx, &r.key)?.map(|(value, _)| value) };
                match f(&r, found, cx)? {
                    Some(value) => next.process(r.with_value(value), cx),
                    None if keyless => {
                        cx.dropped(&label, Dropped::NullKey);
                        Ok(())
                    }
                    None => Ok(()),
                }
            },
        );
        let mut build = self.build.borrow_mut();
        table.stores.iter().for_each(|store| build.graph.uses(out.node, store));
        build.graph.copartition(out.node);
        drop(build);
        out
    }
}
