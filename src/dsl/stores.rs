//! Stores for processors.

use std::sync::Arc;
use std::time::Duration;

use crate::processor::{Keeping, PunctuationKind, Segmented, SessionStore, Timers, VersionedStore, WindowStore};
use crate::serdes::SerdeRef;
use crate::topology::KeeperFactory;

use super::StreamsBuilder;
use super::keeping::{self, NamedStore};

impl StreamsBuilder {
    /// A store of windows of `size` for processors, connected by [`KStream::process`](super::KStream::process). A window goes when the
    /// task's stream time has passed its start by `retention`.
    #[doc(alias = "windowStoreBuilder")]
    pub fn window_store<K, V>(
        &self,
        name: impl Into<NamedStore>,
        (key, value): (SerdeRef<K>, SerdeRef<V>),
        size: Duration,
        retention: Duration,
    ) -> WindowStore<K, V> {
        WindowStore::new(self.segmented(name.into(), size, retention), key, value, size)
    }
    /// A store of sessions for processors. A session goes when the task's stream time has passed its end by `retention`.
    #[doc(alias = "sessionStoreBuilder")]
    pub fn session_store<K, V>(
        &self,
        name: impl Into<NamedStore>,
        (key, value): (SerdeRef<K>, SerdeRef<V>),
        retention: Duration,
    ) -> SessionStore<K, V> {
        SessionStore::new(self.segmented(name.into(), retention / 4, retention), key, value)
    }
    /// A store for processors that knows what a key had at an earlier time, as far back as `history`.
    #[doc(alias = "versionedKeyValueStoreBuilder")]
    pub fn versioned_store<K, V>(
        &self,
        name: impl Into<NamedStore>,
        (key, value): (SerdeRef<K>, SerdeRef<V>),
        history: Duration,
    ) -> VersionedStore<K, V> {
        VersionedStore::new(keeping::place(&self.build, &name.into(), None), key, value, history)
    }
    /// Timers by key for a processor, kept in a store.
    pub fn timers<K>(&self, name: impl Into<NamedStore>, key: SerdeRef<K>, kind: PunctuationKind) -> Timers<K> {
        Timers::new(keeping::place(&self.build, &name.into(), None), key, kind)
    }

    fn segmented(&self, name: NamedStore, width: Duration, retention: Duration) -> Segmented {
        let segmented = Segmented::new(keeping::place(&self.build, &name, Some(retention)), width, retention);
        let kept = segmented.clone();
        let keeper: KeeperFactory = Arc::new(move || Box::new(Keeping::new(kept.clone())));
        self.build.borrow_mut().graph.keeper(segmented.place.name(), keeper);
        segmented
    }
}
