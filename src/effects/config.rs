//! What the effect stage is made from, and how a runtime gets it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::contract::{Contract, Credentials, Parameters, Promise, Protocol, Undo};
use crate::error::Error;
use crate::http::{Answer, CallLimits, Destination, HttpPort, Via};
use crate::ids::{ApplicationId, CallName, ContractName, StepName, TopicName, WireKey};
use crate::intents::{AnswerClass, Cost, PublicSink, RenderedRequest, topics as names};
use crate::kafka::Reading;
use crate::state::{ChangelogSpec, EngineKind, StoreId, StoreSpec};
use crate::task::{InternalTopic, SourceSpec, StartAt, SubtopologyPlan, TopicUse};
use crate::time::WallTime;

use super::fold::Verdict;
use super::permission::Denial;
use super::rules::{Assumptions, Rules};
use super::shared::Shared;
use super::status::LedgerRecord;
use super::task::EffectTask;

/// How an answer reads under its contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classified {
    /// Its class.
    pub class: AnswerClass,
    /// The target's reference; for proposals the proposal itself.
    pub reference: Option<String>,
    /// Not before this, as the target said.
    pub retry_at: Option<WallTime>,
    /// What a proposal did cost.
    pub cost: Cost,
}

/// How the pages of a readback read so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judged {
    /// That is all there is to know.
    Done(Verdict),
    /// Another page follows, by this token.
    NextPage(String),
}

/// What a contract says about answers; pure.
pub trait Judge: Send + Sync {
    /// Reads an answer to the call, seen at `at`.
    fn classify(&self, answer: &Answer, at: WallTime) -> Classified;
    /// The readback's request; `page` is the token of the page before.
    fn readback(&self, parameters: &Parameters, key: &WireKey, page: Option<&str>) -> Result<RenderedRequest, Error>;
    /// The question for the resource's version, before a send.
    fn version_request(&self, parameters: &Parameters) -> Result<RenderedRequest, Error>;
    /// The version that an answer to it shows; `None` = the resource is not there. The error says why it shows nothing.
    fn version_in(&self, answer: &Answer) -> Result<Option<String>, String>;
    /// The call that undoes an effect of this one; the error says what can't be filled in.
    fn undo(&self, parameters: &Parameters, key: &WireKey, reference: Option<&str>) -> Result<Undo, String>;
    /// The header with its time that an attempt carries, where the target refuses it beyond an age.
    fn stamp(&self, journalled_at: WallTime) -> Option<(String, String)>;
    /// The header with the signature over that time and the request, where the target wants one; its secret is read now.
    fn signature(&self, stamp: &str, key: &WireKey, request: &RenderedRequest) -> Result<Option<(String, String)>, Error>;
    /// Reads the pages so far.
    fn judge(&self, pages: &[Answer], parameters: &Parameters, key: &WireKey) -> Judged;
}

/// Whether policy lets an operation be sent now. All else that is checked before a send stands in `permission`.
pub trait Guard: Send + Sync {
    /// Whether it has anything to ask about this operation: only then the parameters are read from the ledger.
    fn asks(&self, _operation: &LedgerRecord) -> bool {
        true
    }
    /// The version of the policy that is asked about it: a hash of its text.
    fn version(&self, _operation: &LedgerRecord) -> Option<String> {
        None
    }
    /// `Err` says why not.
    fn may_send(&self, operation: &LedgerRecord, parameters: &Parameters, now: WallTime) -> Result<(), Denial>;
}

/// A guard that has nothing to ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unguarded;

impl Guard for Unguarded {
    fn asks(&self, _: &LedgerRecord) -> bool {
        false
    }
    fn may_send(&self, _: &LedgerRecord, _: &Parameters, _: WallTime) -> Result<(), Denial> {
        Ok(())
    }
}

/// One call of one contract version, ready to use.
pub struct CallSpec {
    /// What people call it: `orders#create`.
    pub name: String,
    /// The path as the contract has it, with the names of its parameters.
    pub path: String,
    /// The path of its readback, likewise.
    pub read_path: String,
    /// The target: permits and breakers of its calls are counted by it.
    pub target: String,
    /// The gate of its readbacks.
    pub read_gate: String,
    /// Facts and assumptions.
    pub rules: Rules,
    /// What the contract says about answers.
    pub judge: Arc<dyn Judge>,
    /// Where calls go.
    pub to: Arc<Destination>,
    /// On what calls go.
    pub via: Via,
    /// On what questions go: they always may share.
    pub read_via: Via,
    /// Secrets, read at send time.
    pub credentials: Vec<Credentials>,
    /// Limits of one call.
    pub limits: CallLimits,
    /// Calls at once, all partitions of the process together.
    pub concurrency: usize,
    /// Most pages of one readback.
    pub pages: u32,
}

impl CallSpec {
    /// The call of a contract, judged by `judge`.
    pub fn of(contract: &Contract, call: &crate::contract::Call, judge: Arc<dyn Judge>, host: Assumptions) -> Self {
        let t = &contract.target;
        Self {
            name: format!("{}#{}", contract.name, call.name),
            path: call.path_template(),
            read_path: call.readback_path_template(),
            target: contract.name.to_string(),
            read_gate: super::readback::gate(contract.name.as_str()),
            rules: Rules::of(call, host),
            judge,
            to: Arc::new(Destination { base_url: t.base_url.clone(), hosts: t.hosts.clone(), private: t.private }),
            via: way(t.protocol, call.promise()),
            read_via: way_of_questions(t.protocol),
            credentials: t.credentials.clone(),
            limits: CallLimits { connect: call.budget.connect, cut: call.budget.timeout, body: call.budget.answer },
            concurrency: call.budget.concurrency,
            pages: call.readback.as_ref().map_or(1, |r| r.pages.max(1)),
        }
    }
}

/// What a call may go on, by what its promise rests on: a stream among others where the target makes a copy harmless, a kept connection
/// where an unknown settles itself, else a connection of its own.
fn way(protocol: Protocol, promise: Promise) -> Via {
    match protocol {
        Protocol::Http2 if promise.may_share_streams() => Via::Http2,
        Protocol::Auto if promise.may_share_streams() => Via::Either,
        _ if promise.resolves_itself() => Via::Kept,
        _ => Via::Own,
    }
}

/// What a question may go on: an unclear one proves nothing and is asked again.
fn way_of_questions(protocol: Protocol) -> Via {
    match protocol {
        Protocol::Http1 => Via::Kept,
        Protocol::Auto => Via::Either,
        Protocol::Http2 => Via::Http2,
    }
}

/// Every call of every loaded contract version.
pub type CallBook = BTreeMap<(ContractName, i64, CallName), Arc<CallSpec>>;

/// The effect unit's configuration.
#[derive(Clone)]
pub struct EffectsConfig {
    /// The application.
    pub application: ApplicationId,
    /// Names this run of this process; never used twice.
    pub incarnation: String,
    /// Partition count of outbox, control, ledger and plans.
    pub partitions: u32,
    /// Calls that intents may name.
    pub calls: CallBook,
    /// Asked right before every send.
    pub guard: Arc<dyn Guard>,
    /// Where results of a step go.
    pub results: BTreeMap<StepName, PublicSink>,
    /// Where dead letters of a step go.
    pub dead_letters: BTreeMap<StepName, PublicSink>,
    /// Where calls are made.
    pub http: Arc<dyn HttpPort>,
    /// What the whole process shares: burn registry, permits, hearsay.
    pub shared: Arc<Shared>,
    /// Assumptions for records whose contract is not loaded.
    pub host: Assumptions,
    /// Open operations per partition; beyond them its outbox is not read, its control topic is.
    pub max_open: usize,
}

/// The ledger's place among the stores.
pub(super) const LEDGER: StoreId = StoreId(0);

impl EffectsConfig {
    /// The outbox.
    pub fn outbox(&self) -> TopicName {
        names::outbox(&self.application)
    }
    /// The control topic.
    pub fn control(&self) -> TopicName {
        names::control(&self.application)
    }
    /// The return topic.
    pub fn plans(&self) -> TopicName {
        names::plans(&self.application)
    }
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// The effect stage as a sub-topology; `id` is its number within the application.
pub fn subtopology(config: EffectsConfig, id: u32) -> SubtopologyPlan {
    let config = Arc::new(config);
    let source = |topic| SourceSpec { topic, reading: Reading::Split, start: StartAt::Refuse };
    let changelog =
        ChangelogSpec { topic: names::ledger_changelog(&config.application), config: settings(&[("cleanup.policy", "compact")]) };
    SubtopologyPlan {
        id,
        sources: vec![source(config.outbox()), source(config.control())],
        stores: vec![StoreSpec { name: "ledger".into(), engine: EngineKind::Disk, cached: false, changelog: Some(changelog) }],
        build: Arc::new(move |seed| Ok(Box::new(EffectTask::new(Arc::clone(&config), seed)))),
    }
}

/// The topics that the effect stage needs, all of the same partition count: its changelog is made with its store.
pub fn topics(app: &ApplicationId, partitions: u32) -> Vec<InternalTopic> {
    // Purged by DeleteRecords behind what its readers have committed, never by time.
    let kept = settings(&[("cleanup.policy", "delete"), ("retention.ms", "-1")]);
    let topic = |name, config| InternalTopic { name, partitions: Some(partitions), config, usage: TopicUse::Internal };
    vec![topic(names::outbox(app), kept.clone()), topic(names::control(app), kept.clone()), topic(names::plans(app), kept)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, an effect whose unknowns wait for a person would share a connection, or one that rests on a readback would be a
    /// stream among others.
    #[test]
    fn what_a_call_goes_on_follows_from_its_promise() {
        for (promise, one, auto, two) in [
            (Promise::AtMostOneKeyed, Via::Kept, Via::Either, Via::Http2),
            (Promise::AtMostOneCreated, Via::Kept, Via::Either, Via::Http2),
            (Promise::AtMostOneReadback, Via::Kept, Via::Kept, Via::Kept),
            (Promise::AtMostOneReadbackPerson, Via::Own, Via::Own, Via::Own),
            (Promise::AtMostOnePerson, Via::Own, Via::Own, Via::Own),
            (Promise::DuplicatesCounted, Via::Own, Via::Own, Via::Own),
        ] {
            let got = [Protocol::Http1, Protocol::Auto, Protocol::Http2].map(|protocol| way(protocol, promise));
            assert_eq!(got, [one, auto, two], "{promise:?}");
        }
        let questions = [Protocol::Http1, Protocol::Auto, Protocol::Http2].map(way_of_questions);
        assert_eq!(questions, [Via::Kept, Via::Either, Via::Http2]);
    }
}
