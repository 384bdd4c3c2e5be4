//! What the story itself breaks: members and broker, at positions in the stream of requests.

use std::time::{Duration, Instant};

use crate::error::Result;

use super::members::{Member, MemberSetup};
use super::rng::Rng;
use super::screen::Progress;
use super::story::Ground;

/// How long a commit that is on its way takes to end, with room to spare.
const COMMITS_END: Duration = Duration::from_millis(500);
/// How long the broker is away, and its start on top.
const AWAY: Duration = Duration::from_secs(1);

/// What the story itself breaks, besides the target's schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breaks {
    /// The demo: three kills of members and a restart of the broker.
    Demo,
    /// The first processes of each member kill themselves at named points, `name:nth:kill`, one point a process; the last one runs
    /// on. Member 0 comes when member 1 has shown its first results: partitions move, and what was written is restored.
    AtPoints(Vec<String>),
    /// Member 1 stands still for so long, half way through the requests, and then goes on as if nothing had happened.
    Stalled(Duration),
    /// So many faults at times that the seed says: members killed, members that stand still for up to 16 s, the broker restarted.
    Chaos(usize),
    /// Nothing.
    Nothing,
}

impl Breaks {
    /// Where the first processes of a member end.
    fn points(&self) -> &[String] {
        match self {
            Breaks::AtPoints(points) => points,
            Breaks::Demo | Breaks::Stalled(_) | Breaks::Chaos(_) | Breaks::Nothing => &[],
        }
    }
}

/// The members, and what is still to be broken.
pub(super) struct Stage {
    pub members: Vec<Box<dyn Member>>,
    pub broker_restarts: u64,
    breaks: Breaks,
    setup: MemberSetup,
    /// (after so many requests, which member)
    kills: Vec<(usize, usize)>,
    /// After so many requests, the last one first.
    broker_at: Vec<usize>,
    stall: Stall,
    /// (after so many requests, which member, how long), the last one first.
    stalls: Vec<(usize, usize, Duration)>,
}

enum Stall {
    No,
    Until(usize, Instant),
}

impl Stage {
    /// Starts the members and plans what is to be broken among `n` requests.
    pub(super) fn start<G: Ground>(ground: &G, breaks: &Breaks, seed: u64, n: usize, setup: MemberSetup) -> Result<Self> {
        let mut rng = Rng::new(seed ^ 0x6b69_6c6c);
        let at = |part: usize, rng: &mut Rng| n * part / 10 + rng.below((n / 20).max(1) as u64) as usize;
        let (mut kills, mut broker_at, mut stalls) = (Vec::new(), Vec::new(), Vec::new());
        match breaks {
            Breaks::Demo => {
                kills = vec![(at(2, &mut rng), 1), (at(4, &mut rng), 0), (at(8, &mut rng), 1)];
                broker_at = vec![at(6, &mut rng)];
            }
            Breaks::Stalled(time) => stalls = vec![(n / 2, 1, *time)],
            Breaks::Chaos(faults) => {
                for _ in 0..*faults {
                    let (at, member) = (rng.below(n as u64) as usize, rng.below(2) as usize);
                    match rng.below(8) {
                        0 => broker_at.push(at),
                        1 | 2 => stalls.push((at, member, Duration::from_millis(500 + rng.below(15_500)))),
                        _ => kills.push((at, member)),
                    }
                }
                kills.sort_unstable();
                stalls.sort_unstable_by(|a, b| b.cmp(a));
                broker_at.sort_unstable_by(|a, b| b.cmp(a));
            }
            Breaks::AtPoints(_) | Breaks::Nothing => {}
        }
        let mut members = Vec::new();
        if breaks.points().is_empty() {
            members.push(ground.member(&setup, 0, &[])?);
        }
        members.push(ground.member(&setup, 1, breaks.points())?);
        Ok(Self { members, broker_restarts: 0, breaks: breaks.clone(), setup, kills, broker_at, stall: Stall::No, stalls })
    }

    /// Breaks what is due after `sent` requests; `heard` = a result was seen.
    pub(super) fn due<G: Ground>(&mut self, ground: &G, sent: usize, heard: bool, progress: &Progress) -> Result<()> {
        while let Some(&(at, member)) = self.kills.first() {
            if sent < at {
                break;
            }
            self.kills.remove(0);
            self.members[member].kill_and_restart()?;
            progress.say(&format!("{} of member {member} with calls in flight; started again in its slot", ground.kill_word()));
            progress.explain("The new process holds the same slot: the same instance id and transactional id. It fences what the dead one\nleft open, restores its ledger, and treats every journalled attempt without an outcome as maybe sent.");
        }
        while self.broker_at.last().is_some_and(|at| sent >= *at) {
            self.broker_at.pop();
            if self.restart_broker(ground)? {
                self.broker_restarts += 1;
                progress.say(ground.restart_word());
            }
        }
        if heard && self.members.len() == 1 {
            self.members.push(ground.member(&self.setup, 0, self.breaks.points())?);
        }
        self.stall(sent, progress);
        self.members.iter_mut().try_for_each(|m| m.check())
    }

    /// A broker without peers gives its partitions up while it stops, and then drops the markers of transactions that end just
    /// then: they hang for ever, and positions with them. So members stand still until it is gone, and find it gone.
    fn restart_broker<G: Ground>(&self, ground: &G) -> Result<bool> {
        self.members.iter().for_each(|m| m.stand_still());
        std::thread::sleep(COMMITS_END);
        let stopped = ground.stop_broker();
        self.members.iter().for_each(|m| m.go_on());
        if !stopped? {
            return Ok(false);
        }
        std::thread::sleep(AWAY);
        ground.start_broker()?;
        Ok(true)
    }

    fn stall(&mut self, sent: usize, progress: &Progress) {
        match self.stall {
            Stall::Until(member, end) if Instant::now() >= end => {
                self.members[member].go_on();
                progress.say(&format!("member {member} goes on as if nothing had happened"));
                self.stall = Stall::No;
            }
            Stall::Until(..) => {}
            Stall::No => {
                let Some((_, member, time)) = self.stalls.pop_if(|(at, ..)| sent >= *at) else { return };
                self.members[member].stand_still();
                progress.say(&format!("member {member} stands still for {time:?}"));
                self.stall = Stall::Until(member, Instant::now() + time);
            }
        }
    }

    /// Whether everything planned has happened.
    pub(super) fn over(&self) -> bool {
        self.kills.is_empty() && self.broker_at.is_empty() && self.stalls.is_empty() && matches!(self.stall, Stall::No)
    }
}
