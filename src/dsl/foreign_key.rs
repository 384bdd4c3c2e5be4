//! A table joined with another one by a key that stands in its values: many entries here, one there.
//!
//! The left side *subscribes* its entry at the partition that holds the foreign key; the right side keeps subscriptions and answers
//! each with its value, and all of a key's again whenever that value changes; the left side joins an answer with its entry, if that
//! is still the one that asked: a hash of it travels along.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::Error;
use crate::ids::{Partition, TopicName};
use crate::intents::topics;
use crate::processor::{Change, Process, ProcessorCx, Record, StoreRef};
use crate::record::OutRecord;
use crate::serdes::{SerdeRef, Serdes};
use crate::task::TaskError;
use crate::topology::{NodeId, Role};

use super::builder::{Shared, store, stream_of};
use super::subscription::{Answer, Subscription, Wish, combined, hash, prefix, primary_of};
use super::table::{Asked, KTable};
use super::with::{Consumed, Materialized};
use super::{KStream, source};

/// The key of the other table that an entry names.
pub(crate) type ForeignKey<K, V, K2> = Arc<dyn Fn(&K, &V) -> Result<Option<K2>, Error> + Send + Sync>;
/// The joined value; `None` deletes.
pub(crate) type Joiner<K, V, V2, R> = Arc<dyn Fn(&K, V, Option<V2>) -> Result<Option<R>, Error> + Send + Sync>;

impl<K: Clone + 'static, V: Clone + 'static> KTable<K, V> {
    /// Joins each entry with the other table's entry under the key that `foreign_key` reads from it; entries without a partner are
    /// not in the result. `materialized` names the result's store and the join's topics.
    #[doc(alias = "join")]
    pub fn foreign_key_join<K2, V2, R>(
        &self,
        other: &KTable<K2, V2>,
        foreign_key: impl Fn(&K, &V) -> Option<K2> + Send + Sync + 'static,
        materialized: Materialized<K, R>,
        f: impl Fn(&K, V, V2) -> R + Send + Sync + 'static,
    ) -> KTable<K, R>
    where
        K2: Clone + 'static,
        V2: Clone + 'static,
        R: Clone + 'static,
    {
        let joiner: Joiner<K, V, V2, R> = Arc::new(move |k, v, other| Ok(other.map(|other| f(k, v, other))));
        self.join_foreign(other, Arc::new(move |k, v| Ok(foreign_key(k, v))), materialized, joiner, false)
    }

    /// As [`Self::foreign_key_join`], with every entry in the result: `None` where it has no partner, or names none.
    #[doc(alias = "leftJoin")]
    pub fn foreign_key_left_join<K2, V2, R>(
        &self,
        other: &KTable<K2, V2>,
        foreign_key: impl Fn(&K, &V) -> Option<K2> + Send + Sync + 'static,
        materialized: Materialized<K, R>,
        f: impl Fn(&K, V, Option<V2>) -> R + Send + Sync + 'static,
    ) -> KTable<K, R>
    where
        K2: Clone + 'static,
        V2: Clone + 'static,
        R: Clone + 'static,
    {
        let joiner: Joiner<K, V, V2, R> = Arc::new(move |k, v, other| Ok(Some(f(k, v, other))));
        self.join_foreign(other, Arc::new(move |k, v| Ok(foreign_key(k, v))), materialized, joiner, true)
    }

    /// The join itself, by functions that can fail.
    pub(crate) fn join_foreign<K2, V2, R>(
        &self,
        other: &KTable<K2, V2>,
        foreign_key: ForeignKey<K, V, K2>,
        materialized: Materialized<K, R>,
        joiner: Joiner<K, V, V2, R>,
        left: bool,
    ) -> KTable<K, R>
    where
        K2: Clone + 'static,
        V2: Clone + 'static,
        R: Clone + 'static,
    {
        let name = materialized.name.clone();
        let result = store(&self.build, &materialized);
        let (Some(value), Some(other_value)) = (self.value_serde(&name), other.value_serde(&name)) else {
            // The build fails by the problem noted; what stands here is never run.
            let (node, out) = self.named(name).below("KTABLE-FK-JOIN-OUTPUT", |_, _, _| Ok(()));
            return KTable::of_store(&self.build, node, out, result, Asked::default());
        };
        self.asked.want_old();
        let join = Join {
            build: self.build.clone(),
            requests: topics::subscription(self.build.borrow().graph.application(), &name, "registration"),
            answers: topics::subscription(self.build.borrow().graph.application(), &name, "response"),
            name,
        };
        let subscribed = join.subscribe(self, value.clone(), other.key.clone(), foreign_key, left);
        join.answer(other, other_value.clone(), subscribed);
        let joined = join.resolve(self, value, other_value, joiner);
        source::upserts(&self.build, "KTABLE-FK-JOIN-OUTPUT", Some(&join.part("result")), joined.node, &joined.out, result)
    }
}

/// The names of one join.
struct Join {
    build: Shared,
    name: String,
    requests: TopicName,
    answers: TopicName,
}

impl Join {
    fn part(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    /// The left side: says which foreign key each entry names, and takes back what it named before.
    fn subscribe<K, V, K2>(
        &self,
        left: &KTable<K, V>,
        value: SerdeRef<V>,
        other_key: SerdeRef<K2>,
        foreign_key: ForeignKey<K, V, K2>,
        left_join: bool,
    ) -> KStream<Option<K2>, Subscription>
    where
        K: Clone + 'static,
        V: Clone + 'static,
        K2: Clone + 'static,
    {
        let (key, topic, other) = (left.key.clone(), self.requests.clone(), other_key.clone());
        let named = left.named(self.part("subscription-registration-processor"));
        let (node, out) = named.below("KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION", move |r: Record<K, Change<V>>, cx, next| {
            let Record { key: id, value: Change { old, new }, timestamp, headers } = r;
            let there = new.is_some();
            let read = |v: &Option<V>| v.as_ref().map(|v| foreign_key(&id, v)).transpose().map(Option::flatten);
            let (from, to) = (read(&old)?, read(&new)?);
            let bytes = |k: &Option<K2>| k.as_ref().map(|k| other.encode(k, cx.target(&topic))).transpose().map(Option::flatten);
            let moved = bytes(&from)? != bytes(&to)?;
            let primary = key.encode(&id, cx.target(&topic))?.unwrap_or_default();
            let asked = new.as_ref().map(|v| hash(&value, v, cx)).transpose()?.flatten();
            let partition = cx.task().partition;
            let mut ask = |key: Option<K2>, wish: Wish| {
                let value = Subscription { wish, hash: asked.clone(), primary: primary.clone(), partition };
                next.process(Record { key, value, timestamp, headers: headers.clone() }, cx)
            };
            let gone = from.clone().filter(|_| moved);
            if left_join {
                if old.is_none() && !there {
                    return Ok(());
                }
                gone.map_or(Ok(()), |k| ask(Some(k), Wish::Leave))?;
                return ask(to, Wish::Answer);
            }
            match (gone, to) {
                (Some(from), None) => ask(Some(from), Wish::LeaveAndTell),
                (Some(from), Some(to)) => {
                    ask(Some(from), Wish::Leave)?;
                    ask(Some(to), Wish::Answer)
                }
                (None, Some(to)) => ask(Some(to), Wish::AnswerIfThere),
                (None, None) => Ok(()),
            }
        });
        let stream = stream_of(&self.build, node, out, true);
        let key = Serdes::optional(other_key);
        self.through(&self.requests, "subscription-registration", &[&stream], key, Subscription::serde(), |_| None)
    }

    /// The right side: keeps subscriptions, answers new ones, and all of a key when its value changes.
    fn answer<K2, V2>(&self, right: &KTable<K2, V2>, value: SerdeRef<V2>, asked: KStream<Option<K2>, Subscription>)
    where
        K2: Clone + 'static,
        V2: Clone + 'static,
    {
        let subscriptions =
            store(&self.build, &Materialized::named(self.part("subscription-store"), Serdes::bytes(), Subscription::serde()));
        let (kept, key, topic) = (subscriptions.clone(), right.key.clone(), self.requests.clone());
        let received = asked.named(self.part("subscription-receive")).each(
            "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR",
            false,
            move |r: Record<Option<K2>, Subscription>, cx, next: &mut dyn Process<Option<K2>, Subscription>| {
                if let Some(foreign) = &r.key {
                    let place = combined(&key.encode(foreign, cx.target(&topic))?.unwrap_or_default(), &r.value.primary);
                    match r.value.wish {
                        Wish::Leave | Wish::LeaveAndTell => kept.delete(cx, &place)?,
                        Wish::Answer | Wish::AnswerIfThere => kept.put(cx, &place, &r.value, r.timestamp, &r.headers)?,
                    }
                }
                next.process(r, cx)
            },
        );
        let (get, encode, topic) = (right.get.clone(), value.clone(), self.answers.clone());
        let joined = received.named(self.part("subscription-join-foreign")).each(
            "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR",
            false,
            move |r: Record<Option<K2>, Subscription>, cx, next: &mut dyn Process<Bytes, Answer>| {
                let found = r.key.as_ref().map(|k| get(cx, k)).transpose()?.flatten();
                let timestamp = r.timestamp.max(found.as_ref().and_then(|(_, t)| *t));
                let found = match r.value.wish {
                    Wish::Leave => return Ok(()),
                    Wish::AnswerIfThere if found.is_none() => return Ok(()),
                    Wish::LeaveAndTell => None,
                    Wish::Answer | Wish::AnswerIfThere => found,
                };
                let found = found.map(|(v, _)| encode.encode(&v, cx.target(&topic))).transpose()?.flatten();
                let Record { value: asked, headers, .. } = r;
                let answer = Answer { hash: asked.hash, partition: asked.partition, value: found };
                next.process(Record { key: asked.primary, value: answer, timestamp, headers }, cx)
            },
        );
        let changed = self.announce(right, value, subscriptions.clone());
        {
            let graph = &mut self.build.borrow_mut().graph;
            [received.node, changed.node].iter().for_each(|n| graph.uses(*n, subscriptions.name()));
            right.stores.iter().for_each(|s| graph.uses(joined.node, s));
            graph.copartition(joined.node);
        }
        let partition = |a: &Answer| Some(a.partition);
        self.write(&self.answers, "subscription-response", &[&joined, &changed], Serdes::bytes(), Answer::serde(), partition);
    }

    /// A change of the right side: an answer to everyone who subscribed to its key.
    fn announce<K2, V2>(
        &self,
        right: &KTable<K2, V2>,
        value: SerdeRef<V2>,
        kept: StoreRef<Bytes, Subscription>,
    ) -> KStream<Bytes, Answer>
    where
        K2: Clone + 'static,
        V2: Clone + 'static,
    {
        let (key, topic) = (right.key.clone(), self.answers.clone());
        let named = right.named(self.part("foreign-join-subscription"));
        let (node, out) = named.below("KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR", move |r: Record<K2, Change<V2>>, cx, next| {
            let foreign = key.encode(&r.key, cx.target(&topic))?.unwrap_or_default();
            let new = r.value.new.as_ref().map(|v| value.encode(v, cx.target(&topic))).transpose()?.flatten();
            for entry in kept.prefix(cx, &prefix(&foreign))? {
                let (place, asked) = kept.entry(cx, entry?)?;
                let answer = Answer { hash: asked.hash, partition: asked.partition, value: new.clone() };
                let key = primary_of(&place, &foreign);
                next.process(Record { key, value: answer, timestamp: r.timestamp, headers: r.headers.clone() }, cx)?;
            }
            Ok(())
        });
        stream_of(&self.build, node, out, true)
    }

    /// The left side again: joins an answer with the entry that asked, if it still stands.
    fn resolve<K, V, V2, R>(
        &self,
        left: &KTable<K, V>,
        value: SerdeRef<V>,
        other_value: SerdeRef<V2>,
        joiner: Joiner<K, V, V2, R>,
    ) -> KStream<K, Option<R>>
    where
        K: Clone + 'static,
        V: Clone + 'static,
        V2: Clone + 'static,
        R: Clone + 'static,
    {
        let (get, topic) = (left.get.clone(), self.answers.clone());
        let consumed = Consumed::with(left.key.clone(), Answer::serde());
        let answers = source::stream(&self.build, self.answers.clone(), Some(&self.part("subscription-response-source")), consumed);
        let resolved = answers.named(self.part("subscription-response-resolver")).each(
            "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR",
            false,
            move |r: Record<K, Answer>, cx, next: &mut dyn Process<K, Option<R>>| {
                let now = get(cx, &r.key)?.map(|(v, _)| v);
                if now.as_ref().map(|v| hash(&value, v, cx)).transpose()?.flatten() != r.value.hash {
                    return Ok(());
                }
                let other = r.value.value.as_ref().map(|b| other_value.decode(cx.raw(&topic, Some(b), &r.headers))).transpose()?;
                let joined = now.map(|v| joiner(&r.key, v, other)).transpose()?.flatten();
                next.process(r.with_value(joined), cx)
            },
        );
        let graph = &mut self.build.borrow_mut().graph;
        left.stores.iter().for_each(|s| graph.uses(resolved.node, s));
        graph.copartition(resolved.node);
        resolved
    }

    /// Writes streams to a topic of the join and reads it on the other side.
    fn through<K, V>(
        &self,
        topic: &TopicName,
        step: &str,
        from: &[&KStream<K, V>],
        key: SerdeRef<K>,
        value: SerdeRef<V>,
        partition: fn(&V) -> Option<Partition>,
    ) -> KStream<K, V>
    where
        K: Clone + 'static,
        V: Clone + 'static,
    {
        self.write(topic, step, from, key.clone(), value.clone(), partition);
        let name = self.part(&format!("{step}-source"));
        source::stream(&self.build, topic.clone(), Some(&name), Consumed::with(key, value))
    }

    /// Streams end in one sink, at the partition that the record names, else at that of its key.
    fn write<K, V>(
        &self,
        topic: &TopicName,
        step: &str,
        from: &[&KStream<K, V>],
        key: SerdeRef<K>,
        value: SerdeRef<V>,
        partition: fn(&V) -> Option<Partition>,
    ) where
        K: Clone + 'static,
        V: Clone + 'static,
    {
        let name = self.part(&format!("{step}-sink"));
        let above: Vec<NodeId> = from.iter().map(|s| s.node).collect();
        let sink = self.build.borrow_mut().graph.add("KTABLE-SINK", Some(&name), Role::Sink(topic.clone()), &above);
        self.build.borrow_mut().graph.repartition(topic.clone(), None, sink);
        for stream in from {
            let (topic, key, value) = (topic.clone(), key.clone(), value.clone());
            let write = move |r: Record<K, V>, cx: &mut ProcessorCx<'_, '_>| -> Result<(), TaskError> {
                let key = key.encode(&r.key, cx.target(&topic))?;
                let bytes = value.encode(&r.value, cx.target(&topic))?;
                cx.emit(OutRecord {
                    topic: &topic,
                    partition: partition(&r.value),
                    timestamp: r.timestamp,
                    key: key.as_deref(),
                    value: bytes.as_deref(),
                    headers: Some(&r.headers).filter(|h| !h.is_empty()),
                })
            };
            stream.out.end(write);
        }
    }
}
