//! User code with state and timers between two streams.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::ids::StoreName;
use crate::processor::{Custom, CustomNode, CustomTimers, Fixed, FixedKeyProcessor, Processor};
use crate::topology::Role;

use super::KStream;
use super::builder::stream_of;
use super::outlets::Outlets;

impl<K: Clone + 'static, V: Clone + 'static> KStream<K, V> {
    /// Runs a [`Processor`] of this name: `make` is asked once a task, and anew after an abort. It may use the stores named here.
    /// Keys count as changed below.
    pub fn process<P, M>(&self, name: &str, stores: &[&StoreName], make: M) -> KStream<P::KOut, P::VOut>
    where
        P: Processor<K, V> + 'static,
        P::KOut: Clone + 'static,
        P::VOut: Clone + 'static,
        M: Fn() -> P + Send + Sync + 'static,
    {
        self.custom(name, stores, make, true)
    }

    /// As [`Self::process`], for a processor that can't change the key: what is below needs no repartition that was not needed here.
    #[doc(alias = "processValues")]
    pub fn process_values<P, M>(&self, name: &str, stores: &[&StoreName], make: M) -> KStream<K, P::VOut>
    where
        P: FixedKeyProcessor<K, V> + 'static,
        P::VOut: Clone + 'static,
        M: Fn() -> P + Send + Sync + 'static,
    {
        self.custom(name, stores, move || Fixed(make()), self.rekeyed)
    }

    fn custom<P, M>(&self, name: &str, stores: &[&StoreName], make: M, rekeyed: bool) -> KStream<P::KOut, P::VOut>
    where
        P: Processor<K, V> + 'static,
        P::KOut: Clone + 'static,
        P::VOut: Clone + 'static,
        M: Fn() -> P + Send + Sync + 'static,
    {
        let name = Some(name).filter(|n| !n.is_empty());
        let mut build = self.build.borrow_mut();
        let node = build.graph.add("KSTREAM-PROCESSOR", name, Role::Step, &[self.node]);
        stores.iter().for_each(|s| build.graph.uses(node, s));
        drop(build);
        let (out, make) = (Outlets::<P::KOut, P::VOut>::new(), Arc::new(make));
        let below = out.clone();
        self.out.add(move |parts| {
            let next = below.make(parts);
            let custom = Custom::shared::<K, V>(make(), next);
            parts.punctuators.push(Box::new(CustomTimers::<P, P::KOut, P::VOut, K, V>(custom.clone(), PhantomData)));
            Box::new(CustomNode(custom))
        });
        stream_of(&self.build, node, out, rekeyed)
    }
}
