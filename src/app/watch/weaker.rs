//! Which way a setting went: whether a promise rests on less than before. Pure.

/// What makes a setting weak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weak {
    /// A lower number; -1 is without a limit.
    Lower,
    /// A higher number.
    Higher,
    /// `true`.
    On,
    /// A word more in the list: what removes records.
    Added,
    /// A word less.
    Taken,
}

const RULES: &[(&str, Weak)] = &[
    // Of topics: what is kept, and for how long.
    ("cleanup.policy", Weak::Added),
    ("retention.bytes", Weak::Lower),
    ("retention.ms", Weak::Lower),
    // What an acknowledgement is worth; brokers have the default of it.
    ("min.insync.replicas", Weak::Lower),
    ("unclean.leader.election.enable", Weak::On),
    // What was taken yesterday is refused today.
    ("max.message.bytes", Weak::Lower),
    ("message.max.bytes", Weak::Lower),
    // A name with a typo becomes a topic that nobody reads.
    ("auto.create.topics.enable", Weak::On),
    ("default.replication.factor", Weak::Lower),
    // What members ask for is refused at their next start.
    ("group.coordinator.rebalance.protocols", Weak::Taken),
    ("group.max.session.timeout.ms", Weak::Lower),
    ("group.min.session.timeout.ms", Weak::Higher),
    ("transaction.max.timeout.ms", Weak::Lower),
    // What brokers remember of groups and transactions, and where.
    ("offsets.retention.minutes", Weak::Lower),
    ("offsets.topic.replication.factor", Weak::Lower),
    ("transaction.state.log.min.isr", Weak::Lower),
    ("transaction.state.log.replication.factor", Weak::Lower),
    ("transactional.id.expiration.ms", Weak::Lower),
];

/// Whether `setting` is weaker now. What can't be compared counts as weaker: somebody should look.
pub(super) fn is_weaker(setting: &str, was: &str, is: &str) -> bool {
    let rule = RULES.iter().find(|(name, _)| *name == setting).map(|(_, rule)| *rule);
    match rule {
        Some(Weak::Lower) => numbers(was, is).is_none_or(|(was, is)| is < was),
        Some(Weak::Higher) => numbers(was, is).is_none_or(|(was, is)| is > was),
        Some(Weak::On) => is == "true" && was != "true",
        Some(Weak::Added) => has_more(was, is),
        Some(Weak::Taken) => has_more(is, was),
        None => true,
    }
}

fn numbers(was: &str, is: &str) -> Option<(i64, i64)> {
    let number = |text: &str| text.trim().parse::<i64>().ok().map(|n| if n < 0 { i64::MAX } else { n });
    Some((number(was)?, number(is)?))
}

/// Whether `more` has a word that `less` has not.
fn has_more(less: &str, more: &str) -> bool {
    let words = |list: &str| list.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect::<Vec<_>>();
    let known = words(less);
    words(more).iter().any(|word| !known.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::check::{BROKER_SETTINGS, TOPIC_SETTINGS};

    /// A strong value of each setting, and a weaker one.
    const BOTH: &[(&str, &str, &str)] = &[
        ("cleanup.policy", "delete", "compact,delete"),
        ("retention.bytes", "-1", "1073741824"),
        ("retention.ms", "604800000", "3600000"),
        ("min.insync.replicas", "2", "1"),
        ("unclean.leader.election.enable", "false", "true"),
        ("max.message.bytes", "1048588", "1024"),
        ("message.max.bytes", "1048588", "1024"),
        ("auto.create.topics.enable", "false", "true"),
        ("default.replication.factor", "3", "1"),
        ("group.coordinator.rebalance.protocols", "classic,consumer", "consumer"),
        ("group.max.session.timeout.ms", "1800000", "10000"),
        ("group.min.session.timeout.ms", "6000", "60000"),
        ("transaction.max.timeout.ms", "900000", "1000"),
        ("offsets.retention.minutes", "10080", "60"),
        ("offsets.topic.replication.factor", "3", "1"),
        ("transaction.state.log.min.isr", "2", "1"),
        ("transaction.state.log.replication.factor", "3", "1"),
        ("transactional.id.expiration.ms", "604800000", "3600000"),
    ];

    /// If this broke, whoever is on duty would be told that a promise rests on less where it rests on more, or not be told.
    #[test]
    fn each_setting_is_weaker_one_way_and_not_the_other() {
        for setting in TOPIC_SETTINGS.iter().chain(BROKER_SETTINGS) {
            let (_, strong, weak) =
                BOTH.iter().find(|(name, ..)| name == setting).unwrap_or_else(|| panic!("{setting} is not decided"));
            assert!(is_weaker(setting, strong, weak), "{setting} from {strong} to {weak}");
            assert!(!is_weaker(setting, weak, strong), "{setting} from {weak} to {strong}");
            assert!(!is_weaker(setting, strong, strong), "{setting} stays {strong}");
        }
        assert_eq!(RULES.len(), BOTH.len());
    }

    /// If this broke, a source that is compacted from now on, or state that is deleted by time, would count as no worse.
    #[test]
    fn what_removes_records_is_weaker_in_whatever_way() {
        for (was, is, weaker) in [
            ("delete", "compact", true),
            ("compact", "delete", true),
            ("compact", "compact,delete", true),
            ("compact,delete", "delete,compact", false),
            ("compact,delete", "compact", false),
            ("delete, compact", "delete", false),
        ] {
            assert_eq!(is_weaker("cleanup.policy", was, is), weaker, "{was} to {is}");
        }
    }

    /// If this broke, a limit in place of none would pass as a higher number.
    #[test]
    fn without_a_limit_is_the_longest() {
        assert!(is_weaker("retention.ms", "-1", "9000000000000") && !is_weaker("retention.ms", "9000000000000", "-1"));
        assert!(is_weaker("retention.ms", "soon", "later"), "what can't be compared is looked at");
        assert!(is_weaker("some.new.setting", "a", "b"));
    }
}
