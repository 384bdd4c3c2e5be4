#![allow(clippy::unwrap_used)]
use super::*;
use crate::app::deployed::Fact;
use crate::time::WallTime;

fn deployed(facts: &[(&str, &str, &str)]) -> Deployed {
    let fact =
        |(kind, name, value): &(&str, &str, &str)| Fact { kind: (*kind).into(), name: (*name).into(), value: (*value).into() };
    let facts = facts.iter().map(fact).collect();
    let (application, program) = ("shop".into(), "0.1.0".into());
    Deployed { application, version: 1, program, at: WallTime(0), fingerprint: String::new(), facts }
}

fn told(deploy: &Deploy) -> Vec<String> {
    deploy.changes.iter().map(|c| format!("{} {} {}", c.fate.word(), c.kind, c.name)).collect()
}

const BEFORE: &[(&str, &str, &str)] = &[
    ("call", "resend#send", "aa"),
    ("contract", "resend", "1"),
    ("internal", "shop-counts-changelog", "4"),
    ("source", "orders", "4"),
    ("step", "mail", "resend#send"),
    ("store", "counts", "shop-counts-changelog"),
];

/// If this broke, a store that is renamed would begin empty without a word: a silent reset.
#[test]
fn a_renamed_store_is_a_loss() {
    let mut facts = BEFORE.to_vec();
    facts[2].1 = "shop-totals-changelog";
    facts[5] = ("store", "totals", "shop-totals-changelog");
    let deploy = compare(&deployed(BEFORE), &deployed(&facts));
    let told = told(&deploy);
    assert!(told.contains(&"lost store counts".into()) && told.contains(&"create store totals".into()), "{told:?}");
    assert!(told.contains(&"orphan internal topic shop-counts-changelog".into()), "{told:?}");
    assert_eq!((deploy.losses(), told.iter().filter(|t| t.starts_with("keep")).count()), (1, 4));
    assert_eq!(compare(&deployed(BEFORE), &deployed(BEFORE)).losses(), 0);
}

/// If this broke, a deploy would leave operations that nobody ends, or approvals that silently stop to bind.
#[test]
fn open_operations_and_approvals_are_looked_at() {
    let open = |step: &str, status, call: Option<(&str, i64)>, approval| Open {
        step: step.into(),
        status,
        call: call.map(|(c, v)| (c.to_owned(), v)),
        approval,
        calls: usize::from(status == "dispatched"),
    };
    let all = [
        open("mail", "dispatched", Some(("resend#send", 1)), false),
        open("mail", "awaiting_approval", None, true),
        open("ship", "parked", Some(("dhl#order", 3)), false),
    ];
    let there = BTreeMap::from([(TopicName::new("shop-counts-changelog"), 4), (TopicName::new("shop-old-changelog"), 4)]);
    let mut facts = BEFORE.to_vec();
    let same = deployed(&facts);
    let before = deployed(BEFORE);
    let calm = against(compare(&before, &same), Some(&before), &same, &there, &all[..2]);
    assert_eq!(calm.losses(), 0, "{calm:?}");
    assert!(told(&calm).contains(&"orphan internal topic shop-old-changelog".into()));
    facts[0].2 = "bb";
    facts[1].2 = "2";
    let after = deployed(&facts);
    let deploy = against(compare(&before, &after), Some(&before), &after, &there, &all);
    let told = told(&deploy);
    for part in [
        "lost operations ship",
        "lost operations dhl#order",
        "lost approvals waiting operations",
        "lost calls plans under way",
        "change operations resend#send",
    ] {
        assert!(told.contains(&part.to_owned()), "no {part} in {told:?}");
    }
    assert_eq!(deploy.operations["awaiting_approval"], 1);
}

/// If this broke, a deploy onto other partition counts, or onto a changelog that was deleted, would be called harmless.
#[test]
fn what_the_cluster_lacks_is_a_loss() {
    let before = deployed(BEFORE);
    let twice = BTreeMap::from([(TopicName::new("shop-counts-changelog"), 8)]);
    let grown = against(compare(&before, &before), Some(&before), &before, &twice, &[]);
    assert!(told(&grown).contains(&"lost internal topic shop-counts-changelog".into()), "{grown:?}");
    let emptied = against(compare(&before, &before), Some(&before), &before, &BTreeMap::new(), &[]);
    assert_eq!((emptied.losses(), told(&emptied)[0].as_str()), (1, "lost internal topic shop-counts-changelog"));
    let topics = BTreeSet::from([TopicName::new("orders")]);
    assert_eq!((missing(Deploy::default(), &topics, false).losses(), missing(Deploy::default(), &topics, true).losses()), (1, 0));
    let first = against(Deploy::default(), None, &before, &BTreeMap::new(), &[]);
    assert_eq!(first.losses(), 0, "{first:?}");
}
