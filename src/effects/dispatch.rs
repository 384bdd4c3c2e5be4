//! From commit to network and back: calls are handed over after the commit only, and what they come to waits in an inbox
//! until a confirmed commit has it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::contract::Parameters;
use crate::http::{Finished, HttpPort, NotSent, Outgoing, Wire};
use crate::ids::{DispatchToken, OperationKey, Partition, WireKey};
use crate::intents::{AnswerClass, Control, ControlKind, Cost, Hearsay, Pair, RenderedRequest};
use crate::kafka::Wake;
use crate::time::{Now, SharedClock, WallTime};

use super::config::CallSpec;
use super::evidence;
use super::fold::{Outcome, Verdict};
use super::ledger::Op;
use super::shared::{Handover, Health, Permit, Shared};
use super::spans::{self, Traced};

/// Something that came home.
#[derive(Clone, Debug)]
pub enum Finish {
    /// A call.
    Call {
        /// Of which operation.
        key: OperationKey,
        /// The intent's deadline, for hearsay.
        deadline: WallTime,
        /// How it came out.
        outcome: Outcome,
        /// The proposal and its cost, of proposals only.
        text: Option<(String, Cost)>,
    },
    /// A readback.
    Read {
        /// Of which operation.
        op: Op,
        /// Wall time just before its first request was written.
        at: WallTime,
        /// What it showed.
        verdict: Verdict,
        /// Digest of its pages.
        digest: Option<String>,
    },
    /// A read of the resource's version, before a send.
    Version {
        /// Of which operation.
        op: Op,
        /// Wall time just before its request was written.
        at: WallTime,
        /// What was shown.
        shown: Result<Option<String>, String>,
    },
}

#[derive(Default)]
struct Arrivals {
    closed: bool,
    items: VecDeque<Finish>,
}

/// What came home for one task. Holds at most as many items as calls are under way.
pub struct Inbox {
    arrivals: Mutex<Arrivals>,
    wake: Wake,
    shared: Arc<Shared>,
    partition: Partition,
}

impl Inbox {
    /// An empty one that wakes its thread.
    pub fn new(wake: Wake, shared: Arc<Shared>, partition: Partition) -> Self {
        Self { arrivals: Mutex::default(), wake, shared, partition }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a completion; for a task that is gone it becomes hearsay.
    pub fn push(&self, finish: Finish) {
        let mut arrivals = self.lock();
        if arrivals.closed {
            drop(arrivals);
            self.hear(finish);
        } else {
            arrivals.items.push_back(finish);
            drop(arrivals);
        }
        self.wake.wake();
    }
    /// Takes all that came.
    pub fn drain(&self) -> Vec<Finish> {
        self.lock().items.drain(..).collect()
    }
    /// Puts back what was folded in a transaction that did not commit.
    pub fn put_back(&self, folded: Vec<Finish>) {
        let mut arrivals = self.lock();
        for finish in folded.into_iter().rev() {
            arrivals.items.push_front(finish);
        }
    }
    /// Whether something came.
    pub fn has_mail(&self) -> bool {
        !self.lock().items.is_empty()
    }
    /// The task is gone: what came, what was folded but not committed, and what comes later is published as hearsay.
    pub fn close(&self, folded: Vec<Finish>) {
        self.put_back(folded);
        let items = {
            let mut arrivals = self.lock();
            arrivals.closed = true;
            std::mem::take(&mut arrivals.items)
        };
        for finish in items {
            self.hear(finish);
        }
    }

    fn hear(&self, finish: Finish) {
        let Finish::Call { key, deadline, outcome, .. } = finish else { return };
        let said = Control {
            kind: ControlKind::Hearsay,
            tenant: key.tenant,
            operation_id: key.operation,
            step: key.step,
            deadline,
            command: None,
            hearsay: Some(outcome.said),
            contract: None,
            identity_hash: None,
        };
        self.shared.hear(self.partition, said);
    }
}

/// A call that is journalled in the open transaction.
pub struct PendingCall {
    /// Of which operation.
    pub key: OperationKey,
    /// The intent's deadline.
    pub deadline: WallTime,
    /// Which attempt.
    pub attempt: i32,
    /// Its token.
    pub token: DispatchToken,
    /// Who moves it first.
    pub handover: Arc<Handover>,
    /// Under which contract.
    pub spec: Arc<CallSpec>,
    /// The exact request.
    pub request: RenderedRequest,
    /// The operation's key.
    pub wire_key: WireKey,
    /// When it was journalled: what it says to a target that refuses old requests.
    pub journalled_at: WallTime,
    /// Its window, fixed when it was journalled.
    pub not_after: Now,
    /// Whether its answer is a proposal.
    pub proposal: bool,
    /// Whose span it is part of, where it is sampled.
    pub trace: Option<Traced>,
    /// The right to it.
    pub permit: Permit,
}

/// What the target is asked besides the call itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// Whether the effect is there.
    Effect,
    /// At which version its resource stands.
    Version,
}

/// A question that is recorded in the open transaction.
pub struct PendingRead {
    /// Of which operation.
    pub op: Op,
    /// Which.
    pub question: Question,
    /// Under which contract.
    pub spec: Arc<CallSpec>,
    /// The typed parameters.
    pub parameters: Parameters,
    /// The key on the wire.
    pub wire_key: WireKey,
    /// Whose span it is part of, where it is sampled.
    pub trace: Option<Traced>,
    /// The right to it.
    pub permit: Permit,
}

/// What is handed out after the commit.
pub enum Pending {
    /// A call.
    Call(Box<PendingCall>),
    /// A readback.
    Read(Box<PendingRead>),
}

/// Where calls are made and come home.
#[derive(Clone)]
pub struct Desk {
    /// The network.
    pub http: Arc<dyn HttpPort>,
    /// Where completions go.
    pub inbox: Arc<Inbox>,
    /// Permits and breakers.
    pub shared: Arc<Shared>,
    /// Time.
    pub clock: SharedClock,
}

impl Desk {
    /// Hands a call to the network.
    pub fn call(&self, mut p: PendingCall) {
        let desk = self.clone();
        let stamp = p.spec.judge.stamp(p.journalled_at);
        let signed = stamp.as_ref().map(|(_, at)| p.spec.judge.signature(at, &p.wire_key, &p.request));
        let secrets = secrets(&p.spec).and_then(|mut all| {
            all.extend(signed.transpose()?.flatten());
            Ok(all)
        });
        let secrets = match secrets {
            Ok(secrets) => secrets,
            Err(e) => {
                tracing::error!(code = %e.code, operation = %p.key, "a secret can't be read; the call is not made");
                let now = self.clock.now().wall;
                let wire = Wire::NotSent(NotSent::Unsendable);
                return desk.called(p, Finished { wire, began: now, ended: now, target_date: None });
            }
        };
        // What nobody traces is not asked for its request again.
        let mut request = if p.trace.is_some() { p.request.clone() } else { std::mem::take(&mut p.request) };
        request.headers.extend(stamp.map(|(name, value)| Pair { name, value }));
        spans::tell(self.shared.tracer(), p.trace.as_ref(), &mut request);
        let outgoing = Outgoing {
            to: Arc::clone(&p.spec.to),
            request,
            secret_headers: secrets,
            not_after: Some(p.not_after),
            via: p.spec.via,
            limits: p.spec.limits,
        };
        let handover = Arc::clone(&p.handover);
        let ready = Box::new(move || handover.hand());
        self.http.start(outgoing, ready, Box::new(move |finished| desk.called(p, finished)));
    }

    fn called(&self, p: PendingCall, f: Finished) {
        let (outcome, text) = read_call(&p, &f);
        self.report(&p.spec, &p.spec.target, &f, outcome.said.class, outcome.retry_at);
        self.shared.measure(|m| {
            m.answered(&p.spec.target, outcome.said.class);
            m.exchanged(&p.spec.target, "call", &f);
        });
        if let Some(span) = spans::called(&p, &f, &outcome) {
            self.shared.tracer().end(span);
        }
        let PendingCall { key, deadline, permit, .. } = p;
        drop(permit);
        self.inbox.push(Finish::Call { key, deadline, outcome, text });
    }

    /// Tells breaker and drift watch how an exchange went.
    pub fn report(&self, spec: &CallSpec, gate: &str, f: &Finished, class: AnswerClass, retry_at: Option<WallTime>) {
        let health = match (&f.wire, class) {
            (
                Wire::NotSent(NotSent::Unresolved | NotSent::Unconnected | NotSent::Tls | NotSent::NoHttp2 | NotSent::Refused)
                | Wire::MaybeSent(_),
                _,
            ) => Health::Bad,
            (Wire::NotSent(_), _) => return,
            (_, AnswerClass::RetryLater) => Health::Wait(retry_at.map_or(Duration::ZERO, |t| t.since(f.ended))),
            (_, AnswerClass::Unknown) => Health::Bad,
            _ => Health::Good,
        };
        self.shared.report(gate, health, self.clock.now().mono);
        if let Some(date) = f.target_date {
            // `Date` counts whole seconds and was written between request and answer.
            let slack = spec.rules.epsilon + Duration::from_secs(1);
            self.shared.drifts(&spec.target, date.plus(slack) < f.began || f.ended.plus(slack) < date);
        }
    }
}

/// Secrets of a target, read now.
pub(super) fn secrets(spec: &CallSpec) -> crate::error::Result<Vec<(String, String)>> {
    let of = |c: &crate::contract::Credentials| Ok((c.header.clone(), format!("{}{}", c.prefix, c.secret.resolve()?.expose())));
    spec.credentials.iter().map(of).collect()
}

fn read_call(p: &PendingCall, f: &Finished) -> (Outcome, Option<(String, Cost)>) {
    let mut said = Hearsay {
        attempt: p.attempt,
        token: p.token.clone(),
        class: AnswerClass::MaybeSent,
        status: None,
        digest: None,
        reference: None,
        seen_at: f.ended,
    };
    let mut retry_at = None;
    let mut text = None;
    match &f.wire {
        Wire::NotSent(_) => said.class = AnswerClass::NotSent,
        Wire::MaybeSent(_) => {}
        Wire::Answered(answer) => {
            let read = p.spec.judge.classify(answer, f.ended);
            said.class = read.class;
            said.status = Some(i32::from(answer.status));
            said.digest = Some(evidence::digest([answer]));
            retry_at = read.retry_at;
            if p.proposal {
                text = read.reference.map(|text| (text, read.cost));
            } else {
                said.reference = read.reference;
            }
        }
    }
    (Outcome { said, retry_at }, text)
}
