//! Cost in flight against budgets, by tenant: what operations under way are charged, and what is left of each budget.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use crate::agent::Purse;
use crate::console::Console;
use crate::console::index::{Index, Spend};
use crate::console::search::escape;
use crate::outbox::BudgetRule;
use crate::time::{WallTime, show_duration};

use super::layout;

/// A tenant's budgets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    name: String,
    spend: Spend,
    levels: Vec<Level>,
}

/// One budget.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Level {
    rule: BudgetRule,
    left: i64,
}

/// So many tenants are shown, those with the most operations under way first.
const SHOWN: usize = 20;

/// Of all tenants that hold something or have been charged.
pub fn of(console: &Console, index: &Index) -> Vec<Tenant> {
    let pipelines = console.subject.iter().flat_map(|s| &s.application.pipelines);
    let mut rules: Vec<BudgetRule> = Vec::new();
    for rule in pipelines.flat_map(|p| &p.admit.budgets) {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    levels(&index.spends(), &index.purses(), &rules, console.kept().progress().partitions, console.now())
}

/// A partition that has charged nothing has its whole share: a full bucket.
fn levels(
    spends: &BTreeMap<&str, Spend>,
    purses: &BTreeMap<&str, Vec<&Purse>>,
    rules: &[BudgetRule],
    partitions: u32,
    now: WallTime,
) -> Vec<Tenant> {
    let names: BTreeSet<&str> = spends.keys().chain(purses.keys()).copied().collect();
    let level = |name: &str, rule: &BudgetRule| {
        let touched = purses.get(name).map_or(&[][..], |p| p);
        let full = (partitions as usize).saturating_sub(touched.len()) as i64;
        let left: i64 = touched.iter().map(|p| p.left(rule, partitions, now)).sum();
        Level { rule: rule.clone(), left: (left + full * Purse::default().left(rule, partitions, now)).min(rule.amount) }
    };
    let tenant = |name: &str| Tenant {
        name: name.to_owned(),
        spend: spends.get(name).copied().unwrap_or_default(),
        levels: rules.iter().map(|r| level(name, r)).collect(),
    };
    let mut all: Vec<Tenant> = names.into_iter().map(tenant).collect();
    all.sort_by_key(|t| std::cmp::Reverse(t.spend.operations));
    all
}

/// As a table.
pub fn shown(all: &[Tenant]) -> Markup {
    html! {
        @if !all.is_empty() {
            h2 { "Cost in flight, and budgets" }
            div.scroll tabindex="0" role="region" aria-label="Budgets" { table {
                thead { tr {
                    th scope="col" { "Tenant" } th.num scope="col" { "Operations charged" } th.num scope="col" { "Tokens" } th.num scope="col" { "Bytes" }
                    th.num scope="col" { "Calls" } th scope="col" { "Left of its budgets" }
                } }
                tbody { @for t in all.iter().take(SHOWN) { tr data-key=(t.name) {
                    td { a href={ "/operations?tenant=" (escape(&t.name)) } { (t.name) } }
                    td.num { (layout::grouped(t.spend.operations as i64)) }
                    td.num { (layout::grouped(t.spend.charged.tokens)) }
                    td.num { (layout::grouped(t.spend.charged.bytes)) }
                    td.num { (layout::grouped(t.spend.charged.tool_calls)) }
                    td { @for l in &t.levels { (level(&t.name, l)) } @if t.levels.is_empty() { span.soft { "none is known here" } } }
                } } }
            } }
            @if all.len() > SHOWN { p.soft { "The " (SHOWN) " tenants with the most operations under way, of " (all.len()) "." } }
        }
    }
}

fn level(tenant: &str, l: &Level) -> Markup {
    let what = format!("{} per {}", l.rule.of, show_duration(l.rule.per));
    let (left, amount) = (l.left.max(0), l.rule.amount.max(1));
    html! {
        div.level {
            meter min="0" max=(amount) value=(left) low=(amount / 10) optimum=(amount) aria-label={ (tenant) ": " (what) " left" } {}
            span { (layout::grouped(l.left)) " of " (layout::grouped(l.rule.amount)) " " (what) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::intents::Cost;

    /// If this broke, the page would show a budget that is used up as one that is not, or a tenant that holds something not at all.
    #[test]
    fn what_is_left_is_summed_over_partitions() {
        let rule = BudgetRule { of: "tokens".into(), amount: 400, per: Duration::from_secs(86_400) };
        let mut purse = Purse::default();
        let now = WallTime(1_000);
        purse.charge(std::slice::from_ref(&rule), 4, Cost { tokens: 60, ..Cost::default() }, now).expect("there is enough");
        let spend = Spend { operations: 2, charged: Cost { tokens: 60, ..Cost::default() } };
        let spends = BTreeMap::from([("acme", spend)]);
        let purses = BTreeMap::from([("acme", vec![&purse]), ("umbra", vec![&purse, &purse])]);
        let all = levels(&spends, &purses, std::slice::from_ref(&rule), 4, now);
        let told: Vec<_> = all.iter().map(|t| (t.name.as_str(), t.spend.operations, t.levels[0].left)).collect();
        assert_eq!(told, [("acme", 2, 340), ("umbra", 0, 280)]);
        assert!(levels(&spends, &purses, &[], 4, now)[0].levels.is_empty());
    }
}
