//! What the target breaks on purpose. A pure function of seed, key and number of the call, so that the same seed breaks the same
//! calls however they are interleaved.

use std::time::Duration;

/// What happens to one request that does something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PostFault {
    /// Nothing.
    None,
    /// The connection is refused: it never left.
    Refused,
    /// It left and never arrived.
    RequestLost,
    /// It was applied, and the answer never came.
    AnswerLost,
    /// It was applied, and the answer is a 500.
    ErrorAfter,
    /// It was applied, and the answer comes later than anybody waits.
    LateAnswer,
    /// It is applied after the client has gone.
    LateApply,
    /// 429 with `Retry-After`; not applied.
    TooMany,
    /// 503 with `Retry-After`; not applied.
    Unavailable,
    /// Something on the way delivers it twice.
    Duplicated,
}

impl PostFault {
    /// A word for counts.
    pub fn word(self) -> &'static str {
        match self {
            PostFault::None => "none",
            PostFault::Refused => "connections refused",
            PostFault::RequestLost => "requests lost",
            PostFault::AnswerLost => "answers lost",
            PostFault::ErrorAfter => "500 after applying",
            PostFault::LateAnswer => "late answers",
            PostFault::LateApply => "applied after we left",
            PostFault::TooMany => "429",
            PostFault::Unavailable => "503",
            PostFault::Duplicated => "delivered twice",
        }
    }
}

/// What happens to one readback.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReadFault {
    /// Nothing.
    None,
    /// The list is not whole.
    Incomplete,
    /// The list is as old as the contract allows.
    Stale,
    /// 503 with `Retry-After`.
    Unavailable,
    /// No answer.
    Lost,
}

impl ReadFault {
    /// A word for counts.
    pub fn word(self) -> &'static str {
        match self {
            ReadFault::None => "none",
            ReadFault::Incomplete => "incomplete lists",
            ReadFault::Stale => "stale lists",
            ReadFault::Unavailable => "503 on readback",
            ReadFault::Lost => "readbacks lost",
        }
    }
}

/// How often each fault strikes, per thousand calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// Faults of requests that do something.
    pub posts: Vec<(PostFault, u32)>,
    /// Faults of readbacks.
    pub reads: Vec<(ReadFault, u32)>,
    /// Keys, per thousand, whose list is never whole.
    pub blind: u32,
    /// `L`: how much later than sent a request may arrive.
    pub arrival: Duration,
    /// `V`: how old a stale list may be.
    pub staleness: Duration,
}

impl FaultRates {
    /// Everything but duplicates by intermediaries, often; within `L` = `arrival` and `V` = `staleness`.
    pub fn stormy(arrival: Duration, staleness: Duration) -> Self {
        use PostFault::*;
        let posts = vec![
            (Refused, 40),
            (RequestLost, 40),
            (AnswerLost, 60),
            (ErrorAfter, 50),
            (LateAnswer, 40),
            (LateApply, 50),
            (TooMany, 50),
            (Unavailable, 30),
        ];
        let reads = vec![(ReadFault::Incomplete, 60), (ReadFault::Stale, 150), (ReadFault::Unavailable, 50), (ReadFault::Lost, 50)];
        Self { posts, reads, blind: 0, arrival, staleness }
    }
}

/// A seeded schedule of faults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// The seed.
    pub seed: u64,
    /// How often what happens.
    pub rates: FaultRates,
}

impl FaultPlan {
    /// The fault of the `nth` request under a key.
    pub fn post(&self, key: &str, nth: u32) -> PostFault {
        pick(&self.rates.posts, self.roll("post", key, nth)).unwrap_or(PostFault::None)
    }

    /// The fault of the `nth` readback of a key.
    pub fn read(&self, key: &str, nth: u32) -> ReadFault {
        match self.is_blind(key) {
            true => ReadFault::Incomplete,
            false => pick(&self.rates.reads, self.roll("read", key, nth)).unwrap_or(ReadFault::None),
        }
    }

    /// Whether the key's list is never whole.
    pub fn is_blind(&self, key: &str) -> bool {
        self.roll("blind", key, 0) % 1000 < u64::from(self.rates.blind)
    }

    /// A seeded time in `from..=to` that belongs to this call: latencies and delays.
    pub fn time(&self, what: &str, key: &str, nth: u32, from: Duration, to: Duration) -> Duration {
        let span = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        from + Duration::from_micros(self.roll(what, key, nth) % span)
    }

    /// FNV-1a over what the roll is for, then splitmix64's finish.
    fn roll(&self, what: &str, key: &str, nth: u32) -> u64 {
        let mut h = 0xcbf2_9ce4_8422_2325 ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for b in what.bytes().chain([0]).chain(key.bytes()).chain([0]).chain(nth.to_le_bytes()) {
            h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        h ^ (h >> 31)
    }
}

fn pick<F: Copy>(rates: &[(F, u32)], roll: u64) -> Option<F> {
    let mut left = roll % 1000;
    rates.iter().find_map(|(fault, rate)| {
        let hit = left < u64::from(*rate);
        left = left.saturating_sub(u64::from(*rate));
        hit.then_some(*fault)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, `--seed N` would not repeat a run, or some faults would never strike.
    #[test]
    fn a_seed_repeats_its_faults_and_every_fault_strikes() {
        let rates = FaultRates::stormy(Duration::from_secs(5), Duration::from_secs(1));
        let plan = FaultPlan { seed: 11, rates: rates.clone() };
        let all = |p: &FaultPlan| (0..2_000).map(|n| p.post(&format!("key-{n}"), 1)).collect::<Vec<_>>();
        let faults = all(&plan);
        assert_eq!(faults, all(&plan.clone()));
        assert_ne!(faults, all(&FaultPlan { seed: 12, rates: rates.clone() }));
        for (fault, rate) in rates.posts {
            let struck = faults.iter().filter(|f| **f == fault).count();
            assert!((rate as usize..rate as usize * 3).contains(&struck), "{fault:?} struck {struck} times of 2000");
        }
    }

    /// If this broke, an operation that nobody can decide would be decided after a few readbacks, and the demo's count would be wrong.
    #[test]
    fn a_blind_key_stays_blind() {
        let plan = FaultPlan { seed: 3, rates: FaultRates { blind: 500, ..FaultRates::default() } };
        let blind = (0..100).map(|n| format!("key-{n}")).find(|k| plan.is_blind(k)).expect("half of them are");
        assert!((0..100).all(|n| plan.read(&blind, n) == ReadFault::Incomplete));
    }
}
