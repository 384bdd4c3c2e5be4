//! A record whose schema can't be had now: only its own partition waits, and only as long as that lasts.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::dsl::{Consumed, Produced, StreamsBuilder};
use crate::ids::{Partition, TopicName};
use crate::kafka::{Cluster, Isolation, Reading};
use crate::processor::BadRecords;
use crate::record::OutRecord;
use crate::runtime::ThreadState;
use crate::serdes::{AvroCodec, Serdes};
use crate::task::{StartAt, UnitPlan};
use crate::topology::Environments;

use super::Bench;

/// A registry that can be taken away, and framed values for it.
pub struct Away {
    /// Decodes by it.
    pub codec: Arc<dyn AvroCodec>,
    /// Takes it away (`true`) or brings it back.
    pub away: Box<dyn Fn(bool)>,
    /// A value whose schema is known once it was read; it is given its number.
    pub known: Box<dyn Fn(usize) -> Vec<u8>>,
    /// The same under a schema that nobody has read yet.
    pub new: Box<dyn Fn(usize) -> Vec<u8>>,
    /// A value whose schema the registry does not have.
    pub lost: Vec<u8>,
}

/// A copy of Avro values as JSON; what can't be decoded goes to `dead`.
fn copies<C: Cluster>(b: &Bench<C>, codec: &Arc<dyn AvroCodec>, reading: Reading) -> (UnitPlan, [TopicName; 3]) {
    let topics = ["in", "out", "dead"].map(|t| b.topic(t));
    topics.iter().for_each(|t| b.create(t, 2, &[]));
    let builder = StreamsBuilder::new(b.name.as_str()).dead_letters(topics[2].clone());
    let values = builder.stream(topics[0].clone(), Consumed::with(Serdes::optional(Serdes::bytes()), Serdes::avro::<Value>()));
    values.to(topics[1].clone(), Produced::with(Serdes::optional(Serdes::bytes()), Serdes::json()));
    let application = builder.build().expect("an application");
    let counts: BTreeMap<_, _> = topics.iter().map(|t| (t.clone(), 2)).collect();
    let layout = Arc::new(application.topology.layout(&counts, None).expect("a layout"));
    let bad = BadRecords::DeadLetter(topics[2].clone());
    let environments = Environments {
        avro: Some(codec.clone()),
        bad,
        start: StartAt::Earliest,
        globals: Default::default(),
        record_cache: crate::state::CacheBudget::new(1 << 20),
    };
    let mut plans = application.topology.plan(&layout, &environments);
    plans[0].sources[0].reading = reading;
    (b.unit(plans), topics)
}

/// C020: while the registry is away a record of a new schema waits, with those behind it in its partition; what stands before it and
/// what is in other partitions goes on. Nothing becomes a dead letter but what the registry says it does not have.
pub fn a_record_without_its_schema_waits_alone<C: Cluster>(b: &Bench<C>, registry: &Away, reading: Reading) {
    let (plan, [from, to, dead]) = copies(b, &registry.codec, reading);
    let feed = |p: i32, value: &[u8]| {
        // Without a key the copy goes to any partition, so the partition is the key.
        let key = p.to_string();
        let record = OutRecord {
            topic: &from,
            partition: Some(Partition(p)),
            timestamp: None,
            key: Some(key.as_bytes()),
            value: Some(value),
            headers: None,
        };
        b.cluster.publish(&[record], std::time::Duration::from_secs(10)).expect("publishes");
    };
    let mut thread = b.thread(&plan, 0);
    (0..10).for_each(|n| feed(n as i32 % 2, &(registry.known)(n)));
    b.run_until_count(&mut [&mut thread], &to, 10).expect("runs");

    (registry.away)(true);
    (10..13).for_each(|n| feed(0, &(registry.known)(n)));
    (13..18).for_each(|n| feed(0, &(registry.new)(n)));
    (18..20).for_each(|n| feed(0, &(registry.known)(n)));
    for n in 20..40 {
        feed(1, &(registry.known)(n));
        b.round(&mut [&mut thread]).expect("lives");
    }
    b.run_until_count(&mut [&mut thread], &to, 33).expect("the other partition goes on, and what stands before it");
    b.run(&mut [&mut thread], |t| t[0].state() == ThreadState::Holding).expect("it shows");
    assert_eq!((b.count(&to), b.count(&dead)), (33, 0), "{}", b.name);

    (registry.away)(false);
    b.run_until_count(&mut [&mut thread], &to, 40).expect("goes on by itself");
    assert_eq!(thread.state(), ThreadState::Running);
    feed(0, &registry.lost);
    feed(0, &(registry.known)(40));
    b.run_until_count(&mut [&mut thread], &to, 41).expect("a schema that does not exist holds up nothing");
    b.stop(thread);
    assert_eq!(b.count(&dead), 1, "{}", b.name);
    let found = b.records(&to, Isolation::Committed);
    let of = |key: &[u8]| -> Vec<u64> {
        let values = found.iter().filter(|r| r.key.as_deref() == Some(key)).filter_map(|r| r.value.as_deref());
        values.filter_map(|v| serde_json::from_slice::<Value>(v).ok()?.get("n")?.as_u64()).collect()
    };
    let even = (0..10).step_by(2).chain(10..20).chain([40]).collect::<Vec<u64>>();
    let odd = (1..10).step_by(2).chain(20..40).collect::<Vec<u64>>();
    assert_eq!((of(b"0"), of(b"1")), (even, odd), "{}: each once, in order", b.name);
}
