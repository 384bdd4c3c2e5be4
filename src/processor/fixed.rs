//! Processors that can't change the key, by their types: nothing below them needs a repartition that was not needed above.

use crate::record::Headers;
use crate::task::TaskError;
use crate::time::WallTime;

use super::{Forward, Processor, ProcessorCx, Punctuate, PunctuationKind, Record};

/// A record whose key stays as it is: only one that was handed in can be made into another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FixedKeyRecord<K, V>(Record<K, V>);

impl<K, V> FixedKeyRecord<K, V> {
    /// Its key.
    pub fn key(&self) -> &K {
        &self.0.key
    }
    /// Its value.
    pub fn value(&self) -> &V {
        &self.0.value
    }
    /// Its time.
    pub fn timestamp(&self) -> Option<WallTime> {
        self.0.timestamp
    }
    /// Its headers.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }
    /// The same with another value.
    pub fn with_value<V2>(self, value: V2) -> FixedKeyRecord<K, V2> {
        FixedKeyRecord(self.0.with_value(value))
    }
    /// The same with another time.
    #[must_use]
    pub fn with_timestamp(mut self, timestamp: Option<WallTime>) -> Self {
        self.0.timestamp = timestamp;
        self
    }
    /// The same with other headers.
    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.0.headers = headers;
        self
    }
}

/// User code between two streams that keeps keys. One instance a task, made by a supplier.
pub trait FixedKeyProcessor<K, V> {
    /// The value it forwards.
    type VOut;

    /// When it is called without a record.
    fn punctuations(&self) -> Vec<Punctuate> {
        Vec::new()
    }
    /// Takes one record.
    fn process(
        &mut self,
        record: FixedKeyRecord<K, V>,
        cx: &mut ForwardValues<'_, '_, '_, '_, K, Self::VOut>,
    ) -> Result<(), TaskError>;
    /// A timer of [`Self::punctuations`] is due at `at`; without a record there is nothing to forward.
    fn punctuate(&mut self, _kind: PunctuationKind, _at: WallTime, _cx: &mut ProcessorCx<'_, '_>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// The context of a [`FixedKeyProcessor`].
pub struct ForwardValues<'y, 'x, 'a, 't, K, V>(&'y mut Forward<'x, 'a, 't, K, V>);

impl<'a, 't, K, V> ForwardValues<'_, '_, 'a, 't, K, V> {
    /// Passes a record on.
    pub fn forward(&mut self, record: FixedKeyRecord<K, V>) -> Result<(), TaskError> {
        self.0.forward(record.0)
    }
    /// Stores, time, origin.
    pub fn cx(&mut self) -> &mut ProcessorCx<'a, 't> {
        self.0.cx()
    }
}

/// Runs a [`FixedKeyProcessor`] where any processor runs.
pub(crate) struct Fixed<P>(pub(crate) P);

impl<K, V, P: FixedKeyProcessor<K, V>> Processor<K, V> for Fixed<P> {
    type KOut = K;
    type VOut = P::VOut;

    fn punctuations(&self) -> Vec<Punctuate> {
        self.0.punctuations()
    }
    fn process(&mut self, record: Record<K, V>, cx: &mut Forward<'_, '_, '_, K, P::VOut>) -> Result<(), TaskError> {
        self.0.process(FixedKeyRecord(record), &mut ForwardValues(cx))
    }
    fn punctuate(
        &mut self,
        kind: PunctuationKind,
        at: WallTime,
        cx: &mut Forward<'_, '_, '_, K, P::VOut>,
    ) -> Result<(), TaskError> {
        self.0.punctuate(kind, at, cx.cx())
    }
}
