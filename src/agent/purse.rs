//! What a tenant may still spend in this partition.
//!
//! Each of the n partitions holds an n-th of a budget and fills it up steadily. So a tenant never gets more than the declared
//! amount at once, and at most twice of it within one period (a full bucket and what flows in meanwhile, rounded up by n); a
//! tenant whose operations fall unevenly on partitions is throttled somewhat early. Shares that follow demand come with leases.

use serde::{Deserialize, Serialize};

use crate::intents::Cost;
use crate::outbox::BudgetRule;
use crate::serdes::internal::Wire;
use crate::time::WallTime;

/// One budget's level.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// `tokens/86400000`: what, and per how many milliseconds.
    pub name: String,
    /// What is left; negative after an estimate that was too low.
    pub left: i64,
    /// Up to when it was filled.
    pub filled_at: WallTime,
}

/// A tenant's budgets in this partition, `schemas/purse.avsc`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Purse {
    /// One bucket a rule.
    pub buckets: Vec<Bucket>,
}

impl Wire for Purse {
    const SCHEMA: &'static str = "purse/1";
    const AVSC: &'static str = include_str!("../../schemas/purse.avsc");
}

impl Purse {
    /// Takes `cost` from every budget, or from none; the error names the budget that has too little.
    pub fn charge(&mut self, rules: &[BudgetRule], partitions: u32, cost: Cost, now: WallTime) -> Result<(), String> {
        for rule in rules {
            let bucket = self.bucket(rule, partitions, now);
            if bucket.left < amount(cost, &rule.of) {
                return Err(format!("the budget of {} per {} is used up", rule.of, crate::time::show_duration(rule.per)));
            }
        }
        for rule in rules {
            self.bucket(rule, partitions, now).left -= amount(cost, &rule.of);
        }
        Ok(())
    }

    /// Gives back what was charged too much (or takes what was charged too little), once the real cost is known.
    pub fn settle(&mut self, rules: &[BudgetRule], partitions: u32, charged: Cost, used: Cost, now: WallTime) {
        for rule in rules {
            let share = share(rule, partitions);
            let bucket = self.bucket(rule, partitions, now);
            let difference = amount(charged, &rule.of).saturating_sub(amount(used, &rule.of));
            bucket.left = bucket.left.saturating_add(difference).min(share);
        }
    }

    /// What is left of a rule's budget in this partition of `partitions` now.
    pub fn left(&self, rule: &BudgetRule, partitions: u32, now: WallTime) -> i64 {
        self.clone().bucket(rule, partitions, now).left
    }

    fn bucket(&mut self, rule: &BudgetRule, partitions: u32, now: WallTime) -> &mut Bucket {
        let name = format!("{}/{}", rule.of, rule.per.as_millis());
        let share = share(rule, partitions);
        let at = self.buckets.iter().position(|b| b.name == name).unwrap_or_else(|| {
            self.buckets.push(Bucket { name, left: share, filled_at: now });
            self.buckets.len() - 1
        });
        let bucket = &mut self.buckets[at];
        let per = rule.per.as_millis().max(1) as i128;
        let elapsed = now.since(bucket.filled_at).as_millis() as i128;
        let inflow = i64::try_from(i128::from(share) * elapsed / per).unwrap_or(i64::MAX);
        if inflow > 0 {
            bucket.left = bucket.left.saturating_add(inflow).min(share);
            bucket.filled_at = now;
        }
        bucket
    }
}

fn share(rule: &BudgetRule, partitions: u32) -> i64 {
    let n = i64::from(partitions.max(1));
    rule.amount.saturating_add(n - 1) / n
}

/// How much of one kind a cost is; an operation is at least one call.
fn amount(cost: Cost, of: &str) -> i64 {
    match of {
        "tokens" => cost.tokens,
        "bytes" => cost.bytes,
        _ => cost.tool_calls.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rule(amount: i64) -> BudgetRule {
        BudgetRule { of: "tokens".into(), amount, per: Duration::from_secs(100) }
    }
    fn tokens(tokens: i64) -> Cost {
        Cost { tokens, ..Cost::default() }
    }

    /// If this broke, a tenant could spend without bound, or would never get anything again.
    #[test]
    fn a_budget_is_used_up_and_flows_back() {
        let (mut purse, rules) = (Purse::default(), [rule(100)]);
        assert!(purse.charge(&rules, 1, tokens(80), WallTime(0)).is_ok());
        assert!(purse.charge(&rules, 1, tokens(30), WallTime(0)).is_err());
        assert!(purse.charge(&rules, 1, tokens(30), WallTime(10_000)).is_ok());
        purse.settle(&rules, 1, tokens(30), tokens(5), WallTime(10_000));
        assert!(purse.charge(&rules, 1, tokens(25), WallTime(10_000)).is_ok());
    }

    /// If this broke, n partitions together would give a tenant n times its budget.
    #[test]
    fn partitions_hold_shares() {
        let rules = [rule(100)];
        let all: i64 = (0..4).map(|_| share(&rules[0], 4)).sum();
        assert_eq!(all, 100);
        assert!(Purse::default().charge(&rules, 4, tokens(26), WallTime(0)).is_err());
    }
}
