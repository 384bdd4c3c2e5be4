//! The effect stage as a task: what a stream thread runs for one partition of outbox, control and ledger.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{DispatchToken, Partition, Tp};
use crate::intents::{AnswerClass, Control, Cost, ReturnKind, Switch};
use crate::record::InRecord;
use crate::task::{Appetite, Close, Task, TaskError, TaskSeed, TxCx, Urgency};
use crate::time::{MonoTime, Now, SharedClock, WallTime};

use super::attempt::AttemptState;
use super::config::EffectsConfig;
use super::dispatch::{Desk, Finish, Inbox, Pending, PendingCall};
use super::fold::Event;
use super::lanes::Index;
use super::ledger::{self, Op};
use super::results;
use super::rules::Rule;
use super::status::{LedgerRecord, Phase};

/// When something waits on a commit.
const SOON: Duration = Duration::from_millis(5);
/// How often those who wait for a permit are looked at, besides whenever a call comes home.
const HUNGER: Duration = Duration::from_millis(25);
/// Operations that one turn goes on with by time alone.
const TURN: usize = 256;

/// One partition of the effect stage.
pub struct EffectTask {
    pub(super) config: Arc<EffectsConfig>,
    pub(super) epoch: String,
    pub(super) index: Index,
    /// Handed out after the commit.
    pub(super) pending: Vec<Pending>,
    /// Operations with a readback under way.
    pub(super) reading: HashSet<Op>,
    /// To go on with in this very turn.
    pub(super) ready: VecDeque<Op>,
    pub(super) dirty: bool,
    pub(super) stopping: bool,
    /// What may not be sent for now, by order of a person.
    pub(super) paused: Vec<Switch>,
    desk: Desk,
    partition: Partition,
    clock: SharedClock,
    /// Folded in the open transaction.
    folding: Vec<Finish>,
    /// Hearsay emitted in the open transaction.
    saying: Vec<(Partition, Control)>,
    /// Calls handed out by this task and not home yet, with their operations.
    calls: HashMap<DispatchToken, Op>,
    /// Operations with attempts of unknown origin, found at restore, or taken back before they left.
    orphans: Vec<Op>,
    hungry_at: Option<WallTime>,
    forget_at: Option<WallTime>,
}

impl EffectTask {
    /// A task at its assignment.
    pub fn new(config: Arc<EffectsConfig>, seed: TaskSeed) -> Self {
        let partition = seed.id.partition;
        let shared = Arc::clone(&config.shared);
        let inbox = Arc::new(Inbox::new(seed.wake, Arc::clone(&shared), partition));
        let desk = Desk { http: Arc::clone(&config.http), inbox, shared, clock: Arc::clone(&seed.clock) };
        Self {
            epoch: format!("{}/{}/{partition}", config.incarnation, seed.assignment),
            config,
            index: Index::default(),
            pending: Vec::new(),
            reading: HashSet::new(),
            ready: VecDeque::new(),
            dirty: false,
            stopping: false,
            paused: Vec::new(),
            desk,
            partition,
            clock: seed.clock,
            folding: Vec::new(),
            saying: Vec::new(),
            calls: HashMap::new(),
            orphans: Vec::new(),
            hungry_at: None,
            forget_at: None,
        }
    }

    /// Queues an operation for a permit.
    pub(super) fn starve(&mut self, op: &Op, r: &LedgerRecord, gate: (String, usize), now: WallTime) {
        self.index.starve(op, r.tenant.clone(), gate);
        self.hungry_at = self.hungry_at.or(Some(now.plus(HUNGER)));
    }

    /// A record is to be deleted at this time.
    pub(super) fn forget_from(&mut self, at: WallTime) {
        self.forget_at = Some(self.forget_at.map_or(at, |t| t.min(at)));
    }

    fn come_home(&mut self, finish: Finish, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        crate::runtime::failpoint!("effects.before-fold");
        match finish {
            Finish::Call { key, outcome, text, .. } => {
                let op = ledger::op(&key);
                if let Some(text) = text.filter(|_| outcome.said.class == AnswerClass::Applied) {
                    self.propose(&op, text, cx)?;
                }
                self.advance(&op, vec![Event::Finished(outcome)], cx)?;
            }
            Finish::Read { op, at, verdict, digest } => {
                self.reading.remove(&op);
                self.advance(&op, vec![Event::Read { at, verdict, digest }], cx)?;
            }
            Finish::Version { op, at, shown } => {
                self.reading.remove(&op);
                self.advance(&op, vec![Event::Version { at, shown }], cx)?;
            }
        }
        crate::runtime::failpoint!("effects.after-fold");
        Ok(())
    }

    /// A proposal goes back as data, before its operation closes.
    fn propose(&mut self, op: &Op, text: (String, Cost), cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        match ledger::load(cx, op)? {
            Some(r) if r.phase != Phase::Ended => {
                let now = cx.now().wall;
                results::tell(cx, &self.config, &r, ReturnKind::PlanAnswer, Some(text), now)
            }
            _ => Ok(()),
        }
    }

    /// What an attempt found journalled at restore comes to.
    fn take_over(&mut self, op: &Op, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let Some(r) = ledger::load(cx, op)? else { return Ok(()) };
        let open = || r.attempts.iter().filter(|a| a.state == AttemptState::Journaled);
        let held: Vec<i32> = open().filter(|a| self.calls.contains_key(&a.token)).map(|a| a.n).collect();
        let shared = &self.config.shared;
        let burned = open().filter(|a| !held.contains(&a.n) && shared.burn(&a.token)).map(|a| a.n).collect();
        self.advance(op, vec![Event::TakeOver { burned, held }], cx)
    }

    fn say(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let heard = self.config.shared.heard();
        self.saying.extend(heard.iter().cloned());
        for (partition, said) in heard {
            self.dirty = true;
            let (topic, op) = (self.config.control(), said.operation_id.clone());
            results::internal_record(cx, &topic, partition, &op, &op.as_str().into(), &said)?;
        }
        Ok(())
    }

    fn due(&mut self, now: WallTime, home: usize, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        for _ in 0..TURN {
            let Some(op) = self.index.pop_due(now) else { break };
            self.advance(&op, Vec::new(), cx)?;
        }
        let hunger = self.hungry_at.is_some_and(|t| t <= now);
        if hunger || home > 0 {
            self.hungry_at = None;
            self.feed(cx)?;
            if self.index.hungry() && self.hungry_at.is_none() {
                self.hungry_at = Some(now.plus(HUNGER));
            }
        }
        if self.forget_at.is_some_and(|t| t <= now) {
            self.clean_up(now, cx)?;
        }
        Ok(())
    }

    /// Lets those go on who wait for a permit, as far as there are permits.
    fn feed(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        for (gate, limit) in self.index.gates() {
            for _ in 0..TURN {
                if !self.config.shared.available(&gate, limit, cx.now().mono) {
                    break;
                }
                let Some(op) = self.index.feed(&gate) else { break };
                self.advance(&op, Vec::new(), cx)?;
                if self.index.starves(&op) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn clean_up(&mut self, now: WallTime, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.forget_at = None;
        for _ in 0..TURN {
            let Some((at, op)) = ledger::next_closed(cx)? else { return Ok(()) };
            if at > now {
                self.forget_at = Some(at);
                return Ok(());
            }
            ledger::unlist(cx, &op, at)?;
            let Some(r) = ledger::load(cx, &op)? else { continue };
            let due = self.rules(&r).forget_at(&r);
            if due > now {
                ledger::list(cx, &op, due)?;
            } else {
                self.advance(&op, Vec::new(), cx)?;
            }
        }
        self.forget_at = Some(now);
        Ok(())
    }

    fn go_on(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        while let Some(op) = self.ready.pop_front() {
            self.advance(&op, Vec::new(), cx)?;
        }
        Ok(())
    }

    fn enter(&mut self, op: Op, r: &LedgerRecord, now: WallTime) {
        let rules = self.rules(r);
        let passable = r.lane_released || (r.phase == Phase::Parked && rules.lane == crate::contract::LaneRule::Skip);
        if r.open() {
            self.orphans.push(op.clone());
        }
        self.index.put(&op, ledger::lane(r), r.sequence, passable, Some(now));
        self.index.stands(&op, r.shown(), r.unknown_since);
    }
}

impl Task for EffectTask {
    fn appetite(&self, tp: &Tp) -> Appetite {
        if tp.topic == self.config.outbox() && self.index.len() >= self.config.max_open {
            Appetite::Full
        } else {
            Appetite::Take(usize::MAX)
        }
    }

    fn restored(&mut self, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        let now = cx.now().wall;
        self.index = Index::default();
        self.orphans.clear();
        self.ready.clear();
        for op in ledger::all_open(cx)? {
            if let Some(r) = ledger::load(cx, &op)?.filter(|r| self.rules(r).hold(Rule::RestoreReopens)) {
                self.enter(op, &r, now);
            }
        }
        self.forget_at = ledger::next_closed(cx)?.map(|(at, _)| at);
        self.paused = ledger::switches(cx)?;
        Ok(())
    }

    fn process(&mut self, record: InRecord, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.dirty = true;
        if record.tp.topic == self.config.outbox() {
            self.intent(&record, cx)?;
        } else {
            self.control(&record, cx)?;
        }
        self.go_on(cx)
    }

    fn wake(&mut self, now: Now, cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        self.say(cx)?;
        for op in std::mem::take(&mut self.orphans) {
            self.take_over(&op, cx)?;
        }
        let home = self.desk.inbox.drain();
        let count = home.len();
        // Kept before anything can go wrong: what is not folded to the end comes again.
        self.folding.extend(home.iter().cloned());
        for finish in home {
            self.come_home(finish, cx)?;
        }
        self.due(now.wall, count, cx)?;
        self.go_on(cx)
    }

    fn wants_wake(&self, now: Now) -> bool {
        let due = [self.index.next_due(), self.hungry_at, self.forget_at];
        !self.orphans.is_empty()
            || self.desk.inbox.has_mail()
            || self.config.shared.has_heard()
            || due.into_iter().flatten().any(|t| t <= now.wall)
    }

    fn urgency(&self) -> Urgency {
        match (self.pending.is_empty() && self.folding.is_empty(), self.dirty) {
            (false, _) => Urgency::Within(SOON),
            (true, true) => Urgency::WhenDrained,
            (true, false) => Urgency::None,
        }
    }

    fn before_commit(&mut self, _cx: &mut TxCx<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn committed(&mut self, _at: Now) {
        self.dirty = false;
        self.saying.clear();
        for finish in std::mem::take(&mut self.folding) {
            if let Finish::Call { outcome, .. } = finish {
                self.calls.remove(&outcome.said.token);
                self.config.shared.leave(&outcome.said.token);
            }
        }
        self.measure_standing(true);
        let calls = std::mem::take(&mut self.pending);
        if calls.is_empty() {
            return;
        }
        crate::effects::fail_point("effects.journalled");
        for pending in calls {
            match pending {
                // Taken back within its own transaction: it is recorded as unsent already.
                Pending::Call(call) if call.handover.burned() => self.config.shared.leave(&call.token),
                Pending::Call(call) => self.hand_over(*call),
                Pending::Read(read) => self.desk.read(*read),
            }
        }
        crate::effects::fail_point("effects.dispatched");
    }

    fn aborted(&mut self) {
        self.dirty = false;
        self.drop_pending();
        for (partition, said) in self.saying.drain(..) {
            self.config.shared.hear(partition, said);
        }
        self.desk.inbox.put_back(std::mem::take(&mut self.folding));
    }

    fn leaving(&mut self) {
        self.stopping = true;
        let shared = Arc::clone(&self.config.shared);
        // Whatever has not reached the network yet never will: it is recorded as unsent in the last commit.
        self.calls.retain(|token, op| {
            let burned = shared.burn(token);
            if burned {
                self.orphans.push(op.clone());
            }
            !burned
        });
        for pending in &self.pending {
            if let Pending::Call(call) = pending
                && shared.burn(&call.token)
            {
                self.orphans.push(ledger::op(&call.key));
            }
        }
    }

    fn waits(&self) -> bool {
        !self.calls.is_empty() || !self.folding.is_empty()
    }

    fn next_due(&self) -> Option<MonoTime> {
        let due = [self.index.next_due(), self.hungry_at, self.forget_at];
        let at = due.into_iter().flatten().min()?;
        let now = self.clock.now();
        Some(now.mono.plus(at.since(now.wall)))
    }

    fn close(&mut self, _how: Close) {
        self.stopping = true;
        self.measure_standing(false);
        self.drop_pending();
        for (partition, said) in self.saying.drain(..) {
            self.config.shared.hear(partition, said);
        }
        self.desk.inbox.close(std::mem::take(&mut self.folding));
    }
}

impl EffectTask {
    /// How many operations stand where at each target; none any more once the partition is given up.
    fn measure_standing(&self, held: bool) {
        self.config.shared.measure(|m| {
            let partition = self.partition.to_string();
            for (target, at) in self.index.standing().targets() {
                at.counts().for_each(|(status, count)| m.standing(&partition, target, status, if held { count } else { 0 }));
                m.oldest_unknown(&partition, target, at.oldest_unknown().filter(|_| held));
            }
        });
    }

    /// Hands a call to the network.
    pub(super) fn hand_over(&mut self, call: PendingCall) {
        self.calls.insert(call.token.clone(), ledger::op(&call.key));
        self.desk.call(call);
    }

    /// Burns what is journalled and not handed over: whoever takes over in this process has its proof that nothing left.
    fn drop_pending(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Call(call) => {
                    self.config.shared.burn(&call.token);
                }
                Pending::Read(read) => {
                    self.reading.remove(&read.op);
                }
            }
        }
    }
}
