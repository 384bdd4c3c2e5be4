//! How records are read, written, kept and grouped.

use crate::serdes::SerdeRef;

macro_rules! serdes_of {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr),* $(,)? }) => {
        $(#[$doc])*
        pub struct $name<K, V> {
            pub(super) key: SerdeRef<K>,
            pub(super) value: SerdeRef<V>,
            $($(#[$field_doc])* pub(super) $field: $type,)*
        }
        impl<K, V> $name<K, V> {
            /// These serdes for key and value.
            pub fn with(key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
                Self { key, value, $($field: $default),* }
            }
        }
        impl<K, V> Clone for $name<K, V> {
            fn clone(&self) -> Self {
                Self { key: self.key.clone(), value: self.value.clone(), $($field: self.$field.clone()),* }
            }
        }
    };
}

serdes_of! {
    /// How a source topic is read.
    Consumed {}
}
serdes_of! {
    /// How a sink topic is written.
    Produced {}
}
serdes_of! {
    /// How grouped records travel where they must change partitions.
    Grouped {}
}
serdes_of! {
    /// How a store keeps its entries; its name is compulsory, since topics and disk are named by it.
    Materialized { name: String = String::new(), memory: bool = false }
}
serdes_of! {
    /// How the stream side of a join travels where it must change partitions; the name is compulsory.
    Joined { name: String = String::new() }
}
serdes_of! {
    /// How records travel through a repartition topic; the name is compulsory.
    Repartitioned { name: String = String::new(), partitions: Option<u32> = None }
}

impl<K, V> Materialized<K, V> {
    /// A store of this name with these serdes.
    pub fn named(name: impl Into<String>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { name: name.into(), ..Self::with(key, value) }
    }
    /// Kept in memory only and restored from its changelog at each start.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory = true;
        self
    }
}

impl<K, V> Joined<K, V> {
    /// A join of this name; the serdes are those of the stream side.
    pub fn named(name: impl Into<String>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { name: name.into(), ..Self::with(key, value) }
    }
}

impl<K, V> Repartitioned<K, V> {
    /// A repartition topic `<app>-<name>-repartition`.
    pub fn named(name: impl Into<String>, key: SerdeRef<K>, value: SerdeRef<V>) -> Self {
        Self { name: name.into(), ..Self::with(key, value) }
    }
    /// With this many partitions instead of those of the topics that feed it.
    #[must_use]
    pub fn partitions(mut self, n: u32) -> Self {
        self.partitions = Some(n);
        self
    }
}
