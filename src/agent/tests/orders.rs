//! Rule 1: every order in which request, plan, approval, denial, cancel, revocation, repeats, time and returns may come.

use super::hand_over::faults;
use super::*;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Act {
    Again,
    Other,
    Plan,
    Approve,
    Revoke,
    Deny,
    Cancel,
    Late,
}

const ACTS: [Act; 8] = [Act::Again, Act::Other, Act::Plan, Act::Approve, Act::Revoke, Act::Deny, Act::Cancel, Act::Late];

fn plan_of_big() -> PlanHash {
    let mut bed = Bed::new(gated());
    bed.ask(request(INPUT));
    bed.plan(BIG);
    bed.plan_hash()
}

fn act(bed: &mut Bed, act: Act, hash: &PlanHash) -> Vec<Output> {
    match act {
        Act::Again => bed.ask(request(INPUT)),
        Act::Other => bed.ask(request(r#"{"sku":"B"}"#)),
        Act::Plan => bed.plan(BIG),
        Act::Approve => bed.send(Event::Approval(approval("a-1", hash, Decision::Approve))),
        Act::Revoke => bed.send(Event::Approval(approval("a-1", hash, Decision::Revoke))),
        Act::Deny => bed.send(Event::Approval(approval("a-2", hash, Decision::Deny))),
        Act::Cancel => bed.cancel("c-1"),
        Act::Late => bed.at(DEADLINE.plus(Duration::from_secs(1))),
    }
}

/// What must hold after one act, besides the story as a whole.
fn fault_of(done: Act, out: &[Output]) -> Option<String> {
    let heard = !answers(out).is_empty() || !forwarded(out).is_empty();
    match done {
        Act::Again | Act::Revoke | Act::Cancel if !heard => Some(format!("{done:?} got no answer")),
        Act::Other if !answers(out).iter().any(|r| r.status == Status::Conflict) => Some("a conflict went unseen".into()),
        _ => None,
    }
}

fn permutations(left: &mut Vec<Act>, chosen: &mut Vec<Act>, length: usize, visit: &mut dyn FnMut(&[Act])) {
    if chosen.len() == length {
        return visit(chosen);
    }
    for i in 0..left.len() {
        chosen.push(left.remove(i));
        permutations(left, chosen, length, visit);
        left.insert(i, chosen.pop().expect("just pushed"));
    }
}

fn stories_with_faults(off: Option<Rule>, length: usize) -> (usize, Vec<String>) {
    let (mut stories, mut found, hash) = (0, Vec::new(), plan_of_big());
    permutations(&mut ACTS.to_vec(), &mut Vec::new(), length, &mut |story| {
        stories += 1;
        let mut bed = Bed::without(gated(), off);
        bed.ask(request(INPUT));
        for done in story {
            let out = act(&mut bed, *done, &hash);
            found.extend(fault_of(*done, &out).map(|f| format!("{story:?}: {f}")));
        }
        found.extend(faults(&bed).into_iter().map(|f| format!("{story:?}: {f}")));
        let revoked = story.iter().position(|a| *a == Act::Revoke);
        let handed = !effects(&bed.all).is_empty();
        let plan = story.iter().position(|a| *a == Act::Plan);
        if handed && revoked.zip(plan).is_some_and(|(r, p)| r < p) {
            found.push(format!("{story:?}: used an approval that was revoked before the plan came"));
        }
    });
    (stories, found)
}

/// Rule 1 (shortest trace 7): if admission, plan, approvals, commands and time did not meet in one record, some order would
/// cancel an operation here and hand it over there.
#[test]
fn life_01_no_order_of_events_breaks_an_operation() {
    let (stories, found) = stories_with_faults(None, 5);
    assert_eq!(stories, 8 * 7 * 6 * 5 * 4);
    assert_eq!(found.len(), 0, "{}", found[..found.len().min(5)].join("\n"));
}

/// If these found nothing, the search above would prove nothing.
#[test]
fn the_search_sees_rules_that_are_switched_off() {
    for rule in [Rule::OneCounter, Rule::SilentAfterHandOver, Rule::RevokedStays, Rule::CommandsAnswered] {
        assert!(!stories_with_faults(Some(rule), 3).1.is_empty(), "{rule:?}");
    }
}
