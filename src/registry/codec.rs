//! Registry-framed Avro for the DSL's serdes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::Result;
use crate::ids::TopicName;
use crate::serdes::{AvroCodec, Limits, ParsedSchema, avro, internal};

use super::ask::Question;
use super::{Registry, SubjectNames, parsed};

/// How long a topic's newest schema is written with before the registry is asked for a newer one.
const NEWEST_FOR: Duration = Duration::from_secs(60);

/// What is known by topic.
#[derive(Default)]
pub(super) struct Topics {
    readers: RwLock<HashMap<TopicName, Arc<ParsedSchema>>>,
    newest: Mutex<HashMap<TopicName, Newest>>,
    asking: Mutex<HashMap<TopicName, Arc<Question<(u32, Arc<ParsedSchema>)>>>>,
}

#[derive(Clone)]
struct Newest {
    asked: Instant,
    id: u32,
    schema: Arc<ParsedSchema>,
}

impl Registry {
    /// Values of this topic are decoded into this schema, whatever they were written with: its names, defaults and aliases hold.
    pub fn read_as(&self, topic: &TopicName, reader: ParsedSchema) {
        self.topics.readers.write().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), Arc::new(reader));
    }

    /// The newest schema under the topic's value subject. Goes on with the last one known while the registry is away.
    fn newest(&self, topic: &TopicName) -> Result<Newest> {
        let known = lock(&self.topics.newest).get(topic).cloned();
        if let Some(newest) = known.clone().filter(|n| n.asked.elapsed() < NEWEST_FOR) {
            return Ok(newest);
        }
        let subject = SubjectNames::Topic.subject(topic.as_str(), "", false);
        let question = lock(&self.topics.asking).entry(topic.clone()).or_default().clone();
        let asked = subject.clone();
        let answer = question.ask(self.patience, |done| {
            self.client.aside(move |c| c.newest(&asked).and_then(|(id, text)| Ok((id, parsed(&text)?))), done);
        });
        let newest = match (answer, known) {
            (Ok((id, schema)), _) => Newest { asked: Instant::now(), id, schema },
            (Err(_), Some(known)) => Newest { asked: Instant::now(), ..known },
            (Err(failure), None) => return Err(self.error(failure, format!("asking for the newest schema under {subject}"))),
        };
        lock(&self.topics.newest).insert(topic.clone(), newest.clone());
        Ok(newest)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AvroCodec for Registry {
    fn decode(&self, topic: &TopicName, framed: &[u8]) -> Result<Value> {
        let reader = self.topics.readers.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        avro::decode_framed(framed, self, reader.as_deref(), &Limits::default())
    }

    fn encode(&self, topic: &TopicName, value: &Value) -> Result<Vec<u8>> {
        let newest = self.newest(topic)?;
        Ok(internal::frame(newest.id, &avro::encode_bare(value, &newest.schema)?))
    }
}
