//! A whole-topic store with types.

use crate::error::Error;
use crate::ids::{StoreName, TopicName};
use crate::serdes::SerdeRef;
use crate::task::TaskError;

use super::ProcessorCx;

/// A whole-topic store of a topology; any step may read it, none may write.
pub struct GlobalRef<K, V> {
    name: StoreName,
    topic: TopicName,
    key: SerdeRef<K>,
    value: SerdeRef<V>,
}

impl<K, V> Clone for GlobalRef<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), topic: self.topic.clone(), key: self.key.clone(), value: self.value.clone() }
    }
}

impl<K, V> GlobalRef<K, V> {
    /// Names a store by the topic that fills it.
    pub fn new(name: StoreName, topic: TopicName, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { name, topic, key, value }
    }
    /// Its name.
    pub fn name(&self) -> &StoreName {
        &self.name
    }
    /// The newest value under `key` that the process has read; nothing under a key that has no bytes.
    pub fn get(&self, cx: &ProcessorCx<'_, '_>, key: &K) -> Result<Option<V>, TaskError> {
        let Some(key) = self.key.encode(key, cx.target(&self.topic))? else { return Ok(None) };
        let Some(stored) = cx.globals().get(&self.name, &key)? else { return Ok(None) };
        let value: Result<V, Error> = self.value.decode(cx.raw(&self.topic, Some(&stored.value), &stored.headers));
        Ok(Some(value?))
    }
}
