//! One run: two processes, a cluster, a target and people on one virtual clock. Everything that is random comes from the seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::app::{Edges, Schemas, compose, external_counts};
use crate::config::{ProcessConfig, Span};
use crate::demo::rng::Rng;
use crate::driver::{Member, Place};
use crate::dsl::Application;
use crate::effects;
use crate::error::{Error, Result, codes};
use crate::intents::{ResultRecord, Status};
use crate::kafka::Cluster;
use crate::kafka::memory::MemoryCluster;
use crate::runtime::{Metrics, RuntimeOptions, ensure_topics};
use crate::state::{StateConfig, StateManager};
use crate::testing::checkers::{Seen, Violation, judge, last_states};
use crate::testing::faults::{FaultPlan, FaultRates, PostFault};
use crate::testing::shop::ShopRules;
use crate::testing::target::{FakePort, FakeTarget};
use crate::time::{Clock, ManualClock, MonoTime, Now, WallTime};

use super::apps;
use super::heard::Heard;
use super::operator::People;
use super::plans;
use super::schedule::{Afterthought, Again, App, Broken, Off, Schedule, Strike};
use super::undone;
use super::whole;

/// A run that has not come to rest by then never will.
const LIMIT: Duration = Duration::from_secs(900);
/// How often people look.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// Before a process that ended by a failure, or could not start, is started again.
pub(super) const START_AGAIN: Duration = Duration::from_secs(1);
/// Rounds at one instant, after which the clock is pushed: nobody waits for time alone.
const ROUNDS: u32 = 200;
pub(super) const BEGIN: Now = Now { wall: WallTime(1_790_000_000_000), mono: MonoTime(1_000_000_000_000) };

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What is not as it was promised; empty = all is well.
    pub violations: Vec<String>,
    /// What happened, by virtual time.
    pub timeline: Vec<String>,
    /// How operations that were asked for ended.
    pub ends: BTreeMap<Status, u64>,
    /// How often what struck.
    pub struck: BTreeMap<&'static str, u64>,
    /// Turns of all threads.
    pub turns: u64,
}

/// All applications, read once for many runs.
pub struct Applications {
    all: Vec<(App, Application)>,
}

impl Applications {
    /// Reads them.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let all =
            [App::Orders, App::Plans, App::PlansUndone, App::Plain, App::Keyed, App::Created, App::Aged, App::Counted, App::Undone];
        Self { all: all.map(|app| (app, apps::application(app))).into() }
    }
    fn of(&self, app: App) -> &Application {
        self.all.iter().find(|(of, _)| *of == app).map(|(_, application)| application).expect("all are read")
    }
}

/// Results without a registry.
struct NoRegistry;

impl Schemas for NoRegistry {
    fn id_of(&self, _subject: &str, _avsc: &str) -> Result<Option<u32>> {
        Ok(None)
    }
}

/// A clock that is wrong by a constant.
struct Wrong {
    right: Arc<ManualClock>,
    by: i64,
}

impl Clock for Wrong {
    fn now(&self) -> Now {
        let now = self.right.now();
        Now { wall: WallTime(now.wall.0 + self.by), ..now }
    }
}

/// What comes at its time.
pub(super) enum Happening {
    Request { op: usize, nth: usize, again: Option<Again> },
    Cancel(usize),
    Afterthought(usize, Afterthought),
    Strike(Strike),
    Start(usize),
    FreeMarkers,
    DeliverLate,
    BrokerUp,
    Look,
}

/// A process's place, and the process while it lives.
pub(super) struct Seat {
    pub(super) place: Place,
    pub(super) live: Option<(Member, Arc<FakePort>)>,
    pub(super) paused: MonoTime,
    pub(super) runs: u32,
}

pub(super) struct World<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) application: &'a Application,
    pub(super) off: Off,
    pub(super) clock: Arc<ManualClock>,
    pub(super) cluster: MemoryCluster,
    pub(super) target: FakeTarget,
    pub(super) seats: Vec<Seat>,
    pub(super) events: BTreeMap<(MonoTime, u64), Happening>,
    pub(super) numbered: u64,
    pub(super) people: People,
    pub(super) heard: Heard,
    pub(super) rng: Rng,
    pub(super) rested: bool,
    pub(super) out: Outcome,
}

/// Plays a schedule with this switched off.
pub fn run(apps: &Applications, schedule: &Schedule, off: Off) -> Outcome {
    let mut w = World::new(apps.of(schedule.app), schedule, off);
    let mut rounds = (MonoTime(0), 0);
    while !w.rested && w.since_begin() < LIMIT {
        let now = w.clock.now().mono;
        rounds = if rounds.0 == now { (now, rounds.1 + 1) } else { (now, 0) };
        if rounds.1 > ROUNDS {
            w.clock.advance(Duration::from_millis(1));
        }
        w.round();
    }
    w.finish()
}

impl<'a> World<'a> {
    fn new(application: &'a Application, schedule: &'a Schedule, off: Off) -> Self {
        let clock = Arc::new(ManualClock::at(BEGIN));
        let cluster = MemoryCluster::new(clock.clone());
        let own = application.topology.external_sources().into_iter().chain(application.topology.external_sinks());
        for topic in own.chain(application.results.iter().chain(&application.dead_letters).cloned()) {
            cluster.create(&topic, schedule.partitions);
        }
        // V is the orders contract's, and so is L where it has one.
        let unbounded = matches!(schedule.app, App::Created | App::Aged);
        let arrival = if unbounded { apps::ANY_TIME } else { Duration::from_secs(5) };
        let mut rates = match schedule.stormy {
            true => FaultRates { blind: 30, ..FaultRates::stormy(arrival, Duration::from_secs(1)) },
            false => FaultRates::default(),
        };
        if off.outside == Some(Broken::Copies) {
            rates.posts.push((PostFault::Duplicated, 100));
        }
        let remembers = (schedule.app == App::Keyed).then_some(apps::MEMORY);
        let fenced = off.outside != Some(Broken::NoFence);
        let rules = ShopRules {
            remembers,
            one_per_reference: fenced && matches!(schedule.app, App::Created | App::Undone | App::PlansUndone),
            max_age: (fenced && schedule.app == App::Aged).then_some(apps::MAX_AGE),
            refuses: [apps::REFUSED.to_owned()].into(),
        };
        let target = FakeTarget::new(clock.clone(), rules, FaultPlan { seed: schedule.seed, rates });
        match off.outside {
            Some(Broken::Cluster(about)) => cluster.lie(about),
            Some(Broken::Sender(how)) => target.tamper(how),
            Some(Broken::Copies | Broken::NoFence) | None => {}
        }
        target.script("/v1/chat/completions", Box::new(apps::model));
        let seats = (0..2).map(|m| seat(m, schedule.skew[m], &clock, &cluster)).collect();
        let results = application.results.clone().unwrap_or_else(|| "results".into());
        let people = People::new(application.id.clone(), results, schedule.partitions, schedule.seed);
        let rng = Rng::new(schedule.seed ^ 0x0074_7572_6e73);
        let (events, out) = (BTreeMap::new(), Outcome::default());
        let mut w = Self {
            schedule,
            application,
            off,
            clock,
            cluster,
            target,
            seats,
            events,
            numbered: 0,
            people,
            heard: Heard::default(),
            rng,
            rested: false,
            out,
        };
        w.plan();
        w
    }

    fn plan(&mut self) {
        let schedule = self.schedule;
        (0..2).for_each(|m| self.after(Duration::from_millis(m * 7), Happening::Start(m as usize)));
        for (op, p) in schedule.operations.iter().enumerate() {
            self.after(p.at, Happening::Request { op, nth: 0, again: None });
            for (nth, (at, again)) in p.again.iter().enumerate() {
                self.after(*at, Happening::Request { op, nth: nth + 1, again: Some(*again) });
            }
            if let Some(at) = p.cancelled {
                self.after(at, Happening::Cancel(op));
            }
            for (at, thought) in &p.afterthoughts {
                self.after(*at, Happening::Afterthought(op, *thought));
            }
        }
        schedule.strikes.iter().for_each(|(at, s)| self.after(*at, Happening::Strike(*s)));
        self.after(LOOK, Happening::Look);
    }

    pub(super) fn after(&mut self, d: Duration, what: Happening) {
        self.numbered += 1;
        self.events.insert((self.clock.now().mono.plus(d), self.numbered), what);
    }

    fn since_begin(&self) -> Duration {
        self.clock.now().mono.since(BEGIN.mono)
    }

    pub(super) fn note(&mut self, what: impl AsRef<str>) {
        let line = format!("{:>9.3} s  {}", self.since_begin().as_secs_f64(), what.as_ref());
        self.out.timeline.push(line);
    }

    /// What is due happens; threads that are due turn in a seeded order; if nobody has anything to do, time moves on.
    fn round(&mut self) {
        let now = self.clock.now().mono;
        while let Some(due) = self.events.first_entry().filter(|e| e.key().0 <= now) {
            let what = due.remove();
            self.happen(what);
        }
        self.target.pump();
        let mut due = Vec::new();
        for (m, seat) in self.seats.iter().enumerate().filter(|(_, s)| s.paused <= now) {
            let Some((member, _)) = &seat.live else { continue };
            due.extend((0..member.threads()).filter(|t| member.is_due(*t, now)).map(|t| (m, t)));
        }
        if due.is_empty() {
            return self.wait(now);
        }
        self.rng.shuffle(&mut due);
        for (m, t) in due {
            self.turn(m, t);
            if self.rng.percent(50) {
                self.target.pump();
            }
        }
    }

    /// Moves the clock to the next thing that will happen.
    fn wait(&mut self, now: MonoTime) {
        let member = |s: &Seat| Some(MonoTime(s.live.as_ref()?.0.next_due()?.0.max(s.paused.0)));
        let threads = self.seats.iter().filter_map(member).min();
        let next = [threads, self.target.next_due(), self.events.keys().next().map(|(at, _)| *at)];
        let to = next.into_iter().flatten().min().unwrap_or(now.plus(LOOK));
        self.clock.advance(to.since(now).max(Duration::from_micros(1)));
    }

    fn turn(&mut self, m: usize, t: usize) {
        let Some((member, _)) = &mut self.seats[m].live else { return };
        self.out.turns += 1;
        if let Err(e) = member.turn(t) {
            self.failed(m, &e);
        }
    }

    /// A failure ends the whole process in order; whoever runs it starts it again.
    fn failed(&mut self, m: usize, e: &Error) {
        self.note(format!("member {m} ends by a failure: {e}"));
        if e.code == codes::BUG {
            self.out.violations.push(format!("a bug: {e}"));
        }
        if let Some((member, port)) = self.seats[m].live.take() {
            port.kill();
            if let Err(e) = member.stop() {
                self.note(format!("member {m}: {e}"));
            }
        }
        self.after(START_AGAIN, Happening::Start(m));
    }

    pub(super) fn start(&mut self, m: usize) {
        if self.seats[m].live.is_some() {
            return;
        }
        match self.try_start(m) {
            Ok(live) => {
                self.seats[m].live = Some(live);
                self.note(format!("member {m} starts"));
            }
            Err(e) => {
                self.note(format!("member {m} can't start: {e}"));
                self.after(START_AGAIN, Happening::Start(m));
            }
        }
    }

    fn try_start(&mut self, m: usize) -> Result<(Member, Arc<FakePort>)> {
        let seat = &mut self.seats[m];
        seat.runs += 1;
        let port = self.target.port(seat.place.clock.clone());
        let edges = Edges {
            http: port.clone(),
            avro: None,
            incarnation: format!("{m}-{}", seat.runs),
            shared: Arc::new(effects::Shared::default()),
            fetcher: None,
            metrics: None,
            tracer: Default::default(),
            weakened: self.off.rules,
        };
        let admin = self.cluster.admin().map_err(crate::runtime::error_of)?;
        let counts = external_counts(self.application, admin.as_ref())?;
        let mut config = ProcessConfig::default();
        if !matches!(self.schedule.app, App::Orders | App::Plans | App::PlansUndone) {
            config.effects.audit = Span(apps::LIFE);
        }
        let composed = compose(self.application, &config, &counts, &NoRegistry, &edges)?;
        let plans: Vec<_> = std::iter::once(&composed.stream).chain(&composed.effects).collect();
        ensure_topics(admin.as_ref(), &plans, &seat.place.options)?;
        Ok((Member::start(&composed, &seat.place)?, port))
    }

    fn finish(mut self) -> Outcome {
        let results = self.people.results(&self.cluster);
        let requested: Vec<_> = self.schedule.operations.iter().map(|p| (p.tenant(), p.id())).collect();
        let found = judge(&requested, &results, &self.people.intents(&self.cluster), &self.target.books());
        let told = |v: &&Violation| !(self.schedule.app == App::Counted && counted(v, &results));
        self.out.violations.extend(found.iter().filter(told).map(ToString::to_string));
        self.out.violations.extend(self.heard.wrong(&results, &self.target.books(), &self.people.intents(&self.cluster)));
        self.out.violations.extend(undone::wrong(&results, &self.people.intents(&self.cluster), &self.target));
        let (intents, books) = (self.people.intents(&self.cluster), self.target.books());
        self.out.violations.extend(plans::wrong(self.schedule, &results, &intents, &books));
        self.out.violations.extend(whole::wrong(&results, &intents, &self.target));
        if !self.rested && self.out.violations.is_empty() {
            self.out.violations.push("it never came to rest".to_owned());
        }
        let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
        for r in last_states(&records).values().filter(|r| !r.operation_id.is_derived()) {
            *self.out.ends.entry(r.status).or_default() += 1;
        }
        for (word, n) in self.target.struck() {
            *self.out.struck.entry(word).or_default() += n;
        }
        if !self.out.violations.is_empty() {
            let said = |r: &&ResultRecord| {
                let code = r.code.as_deref().unwrap_or_default();
                format!("{} {:?} {} version {:?} {code} {:?}", r.operation_id, r.kind, r.status.word(), r.version, r.flags)
            };
            self.out.timeline.extend(records.iter().map(said));
            self.out
                .timeline
                .extend(self.target.books().iter().map(|b| format!("in the books: {} at {}", b.wire_key, b.applied_at)));
            self.out.timeline.push(self.cluster.dump());
        }
        self.out
    }
}

/// Whether an effect happened more than once, and its result tells that it was sent as often: what its contract accepts.
fn counted(v: &Violation, results: &[Seen]) -> bool {
    let Violation::Doubled { op, effects } = v else { return false };
    let records: Vec<&ResultRecord> = results.iter().map(|s| &s.record).collect();
    let sent = last_states(&records).get(op).map_or(0, |r| r.attempts);
    usize::try_from(sent).is_ok_and(|sent| *effects <= sent)
}

fn seat(m: usize, by: i64, clock: &Arc<ManualClock>, cluster: &MemoryCluster) -> Seat {
    let place = Place {
        cluster: cluster.clone(),
        clock: Arc::new(Wrong { right: clock.clone(), by }),
        state: stores(),
        number: m as u32,
        options: RuntimeOptions::default(),
        metrics: Metrics::unread().expect("metrics of their own registry"),
    };
    Seat { place, live: None, paused: MonoTime(0), runs: 0 }
}

pub(super) fn stores() -> StateManager {
    StateManager::open(StateConfig { dir: None, cache: 1 << 20, inline: true }).expect("stores in memory")
}
