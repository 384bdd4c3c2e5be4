//! The only thing the two halves share: request envelope, approval, command, intent, return and result, as they stand on
//! topics. Flat records, so that each is one Avro record of `schemas/`. Pure.

mod call_undo;
mod claim;
pub mod dead;
mod decided;
mod envelope;
mod intent;
mod plan_call;
mod public;
mod result;
mod signal;
mod switch;
mod wire;

pub use call_undo::{CallUndo, UndoState};
pub use claim::{Claim, ClaimKind};
pub use decided::{DECISIONS_KEPT, Decided, Deed, PolicyWord, REASON_KEPT, Via, keep};
pub use envelope::{Cost, Input, Intake, WorkRequest, WrittenFor, hex, unhex};
pub use intent::{ApprovalUse, Intent, IntentKind, Pair, RenderedRequest};
pub use plan_call::{CallState, PlanCall};
pub use public::PublicRecord;
pub use result::{AckLevel, Flag, ResultKind, ResultRecord, Status};
pub use signal::{
    AnswerClass, Approval, Command, CommandKind, Control, ControlKind, Decision, Hearsay, Resolution, Return, ReturnKind,
};
pub use switch::{Scope, Switch};
pub use wire::SCHEMAS;

/// Whether two names are one person's: spelling and blanks around them make no second person.
pub fn same_person(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

/// Names of topics that an application owns. `<app>-outbox` and so on; see `src/docs/formats.md`.
pub mod topics {
    use crate::ids::{ApplicationId, StepName, TopicName, UnitName};

    /// People and tools write commands here; the identity step reads.
    pub fn commands(app: &ApplicationId) -> TopicName {
        TopicName::from(format!("{app}-commands"))
    }
    /// What people did at the console or on the command line, or tried to do.
    pub fn audit(app: &ApplicationId) -> TopicName {
        TopicName::from(format!("{app}-audit"))
    }
    /// Members write forwarded commands, queries and hearsay; the effect unit reads.
    pub fn control(app: &ApplicationId) -> TopicName {
        TopicName::from(format!("{app}-control"))
    }
    /// Intents: the border between the units.
    pub fn outbox(app: &ApplicationId) -> TopicName {
        TopicName::from(format!("{app}-outbox"))
    }
    /// The return topic: plan answers, `closed`, `gone`.
    pub fn plans(app: &ApplicationId) -> TopicName {
        TopicName::from(format!("{app}-plans"))
    }
    /// What was deployed last: one compacted record.
    pub fn deployed(app: &ApplicationId) -> TopicName {
        TopicName::from(format!("{app}-deployed"))
    }
    /// The ledger's changelog.
    pub fn ledger_changelog(app: &ApplicationId) -> TopicName {
        TopicName::from(format!("{app}.effects-ledger-changelog"))
    }
    /// A repartition topic, named as Kafka Streams does.
    pub fn repartition(app: &ApplicationId, step: &StepName) -> TopicName {
        TopicName::from(format!("{app}-{step}-repartition"))
    }
    /// A topic of a foreign-key join, named as Kafka Streams does: `part` is `registration` or `response`.
    pub fn subscription(app: &ApplicationId, join: &str, part: &str) -> TopicName {
        TopicName::from(format!("{app}-{join}-subscription-{part}-topic"))
    }
    /// A store's changelog, named as Kafka Streams does.
    pub fn changelog(app: &ApplicationId, store: &str) -> TopicName {
        TopicName::from(format!("{app}-{store}-changelog"))
    }
    /// The effect unit of an application.
    pub fn effects_unit(app: &ApplicationId) -> UnitName {
        UnitName::from(format!("{app}.effects"))
    }
}

/// Header names on internal and public records.
pub mod headers {
    /// `name/version` of the embedded schema of an internal record.
    pub const SCHEMA: &str = "rb_schema";
    /// The operation ID.
    pub const OPERATION: &str = "rb_operation_id";
    /// The ordering key.
    pub const ORDERING_KEY: &str = "rb_ordering_key";
    /// CloudEvents id.
    pub const CE_ID: &str = "ce_id";
    /// CloudEvents type.
    pub const CE_TYPE: &str = "ce_type";
    /// CloudEvents source.
    pub const CE_SOURCE: &str = "ce_source";
    /// CloudEvents version of the spec.
    pub const CE_SPECVERSION: &str = "ce_specversion";
    /// W3C trace context.
    pub const TRACEPARENT: &str = "traceparent";
    /// Why a record is a dead letter: `RB0501`.
    pub const DEAD_CODE: &str = "rb_dead_code";
    /// The reason in words, without payload.
    pub const DEAD_REASON: &str = "rb_dead_reason";
    /// Origin coordinates of a dead letter: `topic/partition/offset`.
    pub const DEAD_ORIGIN: &str = "rb_dead_origin";
    /// The effect step that refused it; none on records that a step of the graph gave up.
    pub const DEAD_STEP: &str = "rb_dead_step";
    /// When it became a dead letter, Unix milliseconds.
    pub const DEAD_AT: &str = "rb_dead_at";
    /// The time of the record that died, Unix milliseconds: the letter's own is that of its death.
    pub const DEAD_TIME: &str = "rb_dead_time";
    /// Every header that tells of a record's death; a replay goes without them.
    pub const DEAD: &[&str] = &[DEAD_CODE, DEAD_REASON, DEAD_ORIGIN, DEAD_STEP, DEAD_AT, DEAD_TIME];
    /// On a replayed record: which dead letter it was, `topic/partition/offset`.
    pub const REPLAY_OF: &str = "rb_replay_of";
    /// On a mark among the dead letters: which letter of the same partition was replayed, by its offset.
    pub const REPLAYED: &str = "rb_replayed";
}

/// Where results (or dead letters) go and how they are framed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicSink {
    /// The topic.
    pub topic: crate::ids::TopicName,
    /// Its partition count: records go to `partition_of(root ID)`.
    pub partitions: u32,
    /// The registry's id of the embedded schema; `None` leaves the internal form with its `rb_schema` header.
    pub schema_id: Option<u32>,
}
