//! What a seed means: operations, and what strikes when. Plain data, so that a failing one can be cut down.

use std::time::Duration;

use crate::app::Weakened;
use crate::demo::rng::Rng;
use crate::kafka::Class as FaultClass;
use crate::kafka::memory::{Call, Lie, LostAnswer};
use crate::testing::target::Tamper;

use super::apps::{DEAR, PATIENCE};

/// Which application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum App {
    /// `topology/orders`: a model plans, a person approves, policy is asked.
    Orders,
    /// `topology/kits`: one plan of several calls that need each other, approved as a whole.
    Plans,
    /// The same where a plan that can't be whole is undone.
    PlansUndone,
    /// Each record is an effect.
    Plain,
    /// The same, at a shop that remembers keys for a while.
    Keyed,
    /// At a shop that makes one order under a reference, for ever, with requests that arrive at any time.
    Created,
    /// At a shop that refuses old requests, with requests that arrive later than that.
    Aged,
    /// At a shop that makes one order under a reference until it is cancelled, under a contract that undoes what was cancelled late.
    Undone,
    /// At a shop that lists nothing, under a contract that accepts duplicates.
    Counted,
}

/// How an operation is meant to go, if nothing breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Straight through.
    Simple,
    /// Needs an approval, and gets it.
    Approved,
    /// Needs an approval; the approver says no.
    DeniedByPerson,
    /// Policy says no.
    Denied,
    /// The target refuses the content.
    Refused,
    /// Needs an approval that never comes.
    Unanswered,
}

impl Class {
    fn needs_approval(self) -> bool {
        matches!(self, Class::Approved | Class::DeniedByPerson | Class::Unanswered)
    }
}

/// A request that comes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// The same intent.
    Same,
    /// The same ID with another content.
    Conflict,
}

/// What an approver does besides deciding once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Afterthought {
    /// The same decision comes again.
    Again,
    /// An approval of another plan.
    OtherPlan,
    /// Takes the approval back, on the topic of approvals.
    Revoke,
    /// Takes the approval back by a command.
    RevokeByCommand,
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// Its number.
    pub number: usize,
    /// When its request comes.
    pub at: Duration,
    /// From the start of the run to its deadline.
    pub patience: Duration,
    /// How it is meant to go.
    pub class: Class,
    /// How many pieces.
    pub quantity: i64,
    /// Whether it stands in one lane with others.
    pub shares_lane: bool,
    /// When its request comes again.
    pub again: Vec<(Duration, Again)>,
    /// When a person cancels it.
    pub cancelled: Option<Duration>,
    /// When the approver does what else.
    pub afterthoughts: Vec<(Duration, Afterthought)>,
}

/// What breaks. Members are 0 and 1; unit 0 is the stream unit, 1 the effect unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strike {
    /// A process dies and comes back, with its disk or without.
    Crash {
        /// Which.
        member: usize,
        /// How long it is gone.
        down: Duration,
        /// Whether its stores survive.
        disk: bool,
    },
    /// A process is stopped in order and started again.
    Restart {
        /// Which.
        member: usize,
        /// How long it is gone.
        down: Duration,
    },
    /// A process stands still.
    Pause {
        /// Which.
        member: usize,
        /// How long.
        stands: Duration,
    },
    /// The answer of the next commit of a unit is lost.
    LoseCommit {
        /// Which member's.
        member: usize,
        /// Which unit's.
        unit: usize,
        /// What became of it.
        what: LostAnswer,
    },
    /// A call of the client fails.
    Fail {
        /// Which call.
        call: Call,
        /// How.
        class: FaultClass,
    },
    /// Markers are held back.
    HoldMarkers {
        /// How long.
        held: Duration,
    },
    /// A member's session ends.
    ExpireSession {
        /// Which member's.
        member: usize,
        /// In which unit.
        unit: usize,
    },
    /// A transaction times out.
    ExpireTransaction {
        /// Which member's.
        member: usize,
        /// In which unit.
        unit: usize,
    },
    /// No broker answers.
    BrokerDown {
        /// How long.
        down: Duration,
    },
}

/// What outside of the rules does not keep its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The cluster breaks a promise.
    Cluster(Lie),
    /// Re-sends are not what was sent first, or leave after their window.
    Sender(Tamper),
    /// Something on the way sends requests twice.
    Copies,
    /// The target does not refuse what its contract says that it refuses.
    NoFence,
}

/// What is switched off or broken, so that a test can see it found; by default nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Off {
    /// Rules.
    pub rules: Weakened,
    /// What lies outside of them.
    pub outside: Option<Broken>,
}

/// A strike with its time.
pub type Struck = (Duration, Strike);

/// Everything that one run is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The seed: also of the turns' order and of the target's faults.
    pub seed: u64,
    /// Which application.
    pub app: App,
    /// Partitions of every topic.
    pub partitions: u32,
    /// Its operations.
    pub operations: Vec<Planned>,
    /// What breaks, by time.
    pub strikes: Vec<Struck>,
    /// Whether the target loses and delays.
    pub stormy: bool,
    /// By how many milliseconds each member's wall clock is wrong.
    pub skew: [i64; 2],
}

/// What seeds draw from: the whole product more often than its parts.
const DRAWN: [App; 14] = [
    App::Orders,
    App::Orders,
    App::Orders,
    App::Plain,
    App::Plain,
    App::Keyed,
    App::Created,
    App::Aged,
    App::Counted,
    App::Undone,
    App::Plans,
    App::Plans,
    App::PlansUndone,
    App::PlansUndone,
];

/// Requests come and faults strike within this time.
const BUSY_MS: u64 = 40_000;

impl Schedule {
    /// The schedule of a seed.
    pub fn draw(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let app = DRAWN[rng.below(DRAWN.len() as u64) as usize];
        Self::drawn(seed, app, rng)
    }

    /// The schedule of a seed for this application.
    pub fn draw_of(app: App, seed: u64) -> Self {
        Self::drawn(seed, app, &mut Rng::new(seed))
    }

    fn drawn(seed: u64, app: App, rng: &mut Rng) -> Self {
        let operations: Vec<Planned> = (1..=1 + rng.below(3) as usize).map(|n| planned(n, app, rng)).collect();
        let mut strikes: Vec<Struck> = (0..rng.below(5)).map(|_| (time(rng), strike(rng))).collect();
        strikes.sort_by_key(|(at, _)| *at);
        let mut skew = || rng.below(901) as i64 - 450;
        let skew = [skew(), skew()];
        Self { seed, app, partitions: 1 + rng.below(2) as u32, operations, strikes, stormy: rng.percent(85), skew }
    }

    /// One operation, and nothing strikes.
    pub fn calm(app: App, class: Class) -> Self {
        let quantity = if class.needs_approval() { DEAR } else { 1 };
        let at = Duration::from_secs(1);
        let operation = Planned {
            number: 1,
            at,
            patience: PATIENCE,
            class,
            quantity,
            shares_lane: false,
            again: Vec::new(),
            cancelled: None,
            afterthoughts: Vec::new(),
        };
        let (operations, strikes) = (vec![operation], Vec::new());
        Self { seed: 0, app, partitions: 1, operations, strikes, stormy: false, skew: [0, 0] }
    }
}

fn time(rng: &mut Rng) -> Duration {
    // Most of what happens, happens early: that is when most is under way.
    let most = if rng.percent(60) { BUSY_MS / 4 } else { BUSY_MS };
    Duration::from_millis(rng.below(most))
}

fn planned(number: usize, app: App, rng: &mut Rng) -> Planned {
    let asks = matches!(app, App::Orders | App::Plans | App::PlansUndone);
    let class = match (asks, rng.below(10)) {
        (_, 0) => Class::Refused,
        (true, 1) if app == App::PlansUndone => Class::Refused,
        (true, 1) => Class::Denied,
        (true, 2 | 3) => Class::Approved,
        (true, 4) => Class::DeniedByPerson,
        (true, 5) => Class::Unanswered,
        _ => Class::Simple,
    };
    let dear = class.needs_approval();
    let again = (0..rng.below(3)).map(|_| again(rng)).collect();
    let short = rng.percent(20);
    let thoughts = [Afterthought::Again, Afterthought::OtherPlan, Afterthought::Revoke, Afterthought::RevokeByCommand];
    let at = time(rng);
    let afterthoughts = (0..if dear { rng.below(3) } else { 0 }).map(|_| (time(rng), thoughts[rng.below(4) as usize])).collect();
    Planned {
        number,
        at,
        patience: if short { Duration::from_secs(5 + rng.below(40)) } else { PATIENCE },
        class,
        quantity: 1 + rng.below(20) as i64 + if dear { DEAR } else { 0 },
        shares_lane: rng.percent(40),
        again,
        cancelled: match app {
            App::Undone => cancelled_late(at, rng),
            App::PlansUndone => called_off(at, rng),
            _ => rng.percent(20).then(|| time(rng)),
        },
        afterthoughts,
    }
}

/// Mostly when its effect may have happened already, and is not confirmed yet.
fn cancelled_late(at: Duration, rng: &mut Rng) -> Option<Duration> {
    let within = if rng.percent(60) { 1_500 } else { 20_000 };
    rng.percent(85).then(|| at + Duration::from_millis(rng.below(within)))
}

/// Often while the calls of its plan are under way.
fn called_off(at: Duration, rng: &mut Rng) -> Option<Duration> {
    rng.percent(50).then(|| at + Duration::from_millis(rng.below(20_000)))
}

/// A request comes again: soon, or, the same, when its record is gone. That other content under an old ID does not come then is an
/// assumption.
fn again(rng: &mut Rng) -> (Duration, Again) {
    match rng.below(100) {
        0..40 => (time(rng), Again::Conflict),
        // Seldom: such a run takes long.
        40..42 => (Duration::from_secs(200 + rng.below(300)), Again::Same),
        _ => (time(rng), Again::Same),
    }
}

fn strike(rng: &mut Rng) -> Strike {
    let (member, unit) = (rng.below(2) as usize, rng.below(2) as usize);
    let lasts = |rng: &mut Rng, least: u64, most: u64| Duration::from_millis(least + rng.below(most - least));
    match rng.below(12) {
        0..3 => Strike::Crash { member, down: lasts(rng, 50, 25_000), disk: rng.percent(50) },
        3 => Strike::Restart { member, down: lasts(rng, 10, 5_000) },
        4 | 5 => Strike::Pause { member, stands: lasts(rng, 500, 40_000) },
        6 => {
            let what = [LostAnswer::Applied, LostAnswer::NotApplied, LostAnswer::Late][rng.below(3) as usize];
            Strike::LoseCommit { member, unit, what }
        }
        7 => {
            let calls =
                [Call::Init, Call::Send, Call::Flush, Call::Offsets, Call::Commit, Call::Abort, Call::Committed, Call::Stamp];
            let classes = [FaultClass::Abort, FaultClass::Rebuild, FaultClass::Fenced];
            Strike::Fail { call: calls[rng.below(8) as usize], class: classes[rng.below(3) as usize] }
        }
        8 => Strike::HoldMarkers { held: lasts(rng, 100, 8_000) },
        9 => Strike::ExpireSession { member, unit },
        10 => Strike::ExpireTransaction { member, unit },
        _ => Strike::BrokerDown { down: lasts(rng, 100, 12_000) },
    }
}
