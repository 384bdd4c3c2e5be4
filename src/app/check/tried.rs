//! Which permissions this login has: the brokers are asked what it may do, and where they don't say, harmless questions find out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, codes};
use crate::ids::{GroupId, SlotName, TopicName, Tp};
use crate::kafka::{Admin, Class, Cluster, Isolation, KResult, KafkaFault, Resource};
use crate::runtime::error_of;

use super::{Finding, Permission, Report};

/// How long a refusal of a read is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Without these a member runs, if worse: it makes no topic, leaves what was read, or does not see its settings.
const SPARED: &[&str] = &["Create", "Delete", "DescribeConfigs"];
const MEMBER: &str = "member";

/// What was found out about a permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// This login has all of it.
    Allowed,
    /// It lacks some or all.
    Refused,
}

/// What asking showed.
#[derive(Debug)]
enum Answer {
    /// It may do this.
    May(BTreeSet<&'static str>),
    /// A question that needs all of it was answered.
    All,
    /// It was refused.
    Nothing,
    /// Nobody could say, and why.
    Unknown(&'static str),
}

/// Asks which of these permissions this login has. What a member can't do without contradicts.
///
/// # Errors
/// Where the brokers can't be reached.
pub fn try_permissions<C: Cluster>(report: &mut Report, cluster: &C) -> Result<()> {
    let admin = cluster.admin().map_err(error_of)?;
    let there: Vec<TopicName> = admin.topics().map_err(error_of)?.into_iter().map(|t| t.name).collect();
    for p in &mut report.permissions {
        let answer = ask(p, cluster, admin.as_ref(), &there).map_err(error_of)?;
        note(p, answer);
    }
    for p in report.permissions.iter().filter(|p| p.who == MEMBER && p.tried == Some(Tried::Refused)) {
        let text = format!("this login may not {} on {}", p.lacks.join(", "), p.of());
        let found = Finding::new(codes::NOT_AUTHORIZED, text, format!("kafka-acls.sh --add … {}", p.flags_of(&p.lacks)));
        match p.lacks.iter().all(|o| SPARED.contains(o)) {
            true => report.warnings.push(found),
            false => report.contradictions.push(found),
        }
    }
    Ok(())
}

/// Keeps what the answer says of the operations that are needed.
fn note(p: &mut Permission, answer: Answer) {
    p.lacks = match answer {
        Answer::Unknown(why) => {
            p.untried = Some(why);
            return;
        }
        Answer::All => Vec::new(),
        Answer::Nothing => p.operations.clone(),
        Answer::May(has) => p.operations.iter().filter(|o| !has.contains(*o)).copied().collect(),
    };
    p.tried = Some(if p.lacks.is_empty() { Tried::Allowed } else { Tried::Refused });
}

/// A refusal that cut the report short, as a finding of it; another error stays one.
///
/// # Errors
/// The error, where it is no refusal.
pub fn or_refused(report: &mut Report, done: Result<()>) -> Result<()> {
    let refusal = |e: &Error| e.code == codes::NOT_AUTHORIZED;
    match done {
        Err(e) if refusal(&e) => {
            let cause = e.source.as_deref().map(ToString::to_string).unwrap_or_default();
            let text = format!("{} was refused, and the rest was not looked at: {cause}", e.doing);
            report.contradictions.push(Finding::new(e.code, text, e.next.unwrap_or_default()));
            Ok(())
        }
        other => other,
    }
}

fn ask<C: Cluster>(p: &Permission, cluster: &C, admin: &dyn Admin, there: &[TopicName]) -> KResult<Answer> {
    match p.resource {
        "topic" if p.prefixed => of_prefix(p, admin, there),
        "topic" => of_topic(p, cluster, admin),
        "group" => {
            let (group, any) = (GroupId::new(&p.name), [Tp::new(p.name.as_str(), 0)]);
            let positions = || admin.committed(&group, &any).map(drop);
            answered(admin.operations(Resource::Group(&group)), positions)
        }
        "cluster" => answered(admin.operations(Resource::Cluster), || Err(unsaid())),
        _ if p.who == MEMBER => Ok(transactions(p, cluster)),
        _ => Ok(Answer::Unknown("only acting shows it")),
    }
}

fn of_topic<C: Cluster>(p: &Permission, cluster: &C, admin: &dyn Admin) -> KResult<Answer> {
    let topic = TopicName::new(&p.name);
    match admin.topic(&topic) {
        Ok(Some(_)) => {}
        Ok(None) => return Ok(Answer::Unknown("the topic is not there yet")),
        Err(fault) if fault.class == Class::Config => return Ok(Answer::Nothing),
        Err(fault) => return Err(fault),
    }
    let reading = || if p.operations.contains(&"Read") { read(&p.name, cluster) } else { Err(unsaid()) };
    answered(admin.operations(Resource::Topic(&topic)), reading)
}

/// A prefix is asked about on the topics that begin with it: what is lacking on one is.
fn of_prefix(p: &Permission, admin: &dyn Admin, there: &[TopicName]) -> KResult<Answer> {
    let mut may: Option<BTreeSet<&'static str>> = None;
    for topic in there.iter().filter(|t| t.as_str().starts_with(&p.name)) {
        match answered(admin.operations(Resource::Topic(topic)), || Err(unsaid()))? {
            Answer::May(now) => may = Some(may.map_or_else(|| now.clone(), |was| &was & &now)),
            other => return Ok(other),
        }
    }
    Ok(may.map_or(Answer::Unknown("no topic begins with it yet"), Answer::May))
}

/// What the brokers say, or, where they don't, what a question shows that needs the permission.
fn answered(said: KResult<Option<BTreeSet<&'static str>>>, else_ask: impl FnOnce() -> KResult<()>) -> KResult<Answer> {
    match said.and_then(|said| said.map_or_else(|| else_ask().map(|()| Answer::All), |all| Ok(Answer::May(all)))) {
        Err(fault) if fault.class == Class::Config => Ok(Answer::Nothing),
        // A topic that is not there yet says nothing.
        Err(fault) if fault.class == Class::Gone => Ok(Answer::Unknown("the brokers don't say")),
        other => other,
    }
}

fn unsaid() -> KafkaFault {
    KafkaFault::new(Class::Gone, "asking for permissions", "", "the brokers don't say")
}

/// Nothing tells of transactional ids but the use of one. This one is no slot's, so nobody is fenced; brokers forget it when it has been
/// idle for `transactional.id.expiration.ms`.
fn transactions<C: Cluster>(p: &Permission, cluster: &C) -> Answer {
    match cluster.fence(&SlotName::from(format!("{}check", p.name))) {
        Ok(()) => Answer::All,
        Err(fault) if fault.class == Class::Config => Answer::Nothing,
        Err(_) => Answer::Unknown("its coordinator does not answer"),
    }
}

/// Fetches from a topic, and waits a moment for the refusal.
fn read<C: Cluster>(topic: &str, cluster: &C) -> KResult<()> {
    let tp = Tp::new(topic, 0);
    let mut reader = cluster.reader(Isolation::Committed)?;
    let (first, _) = reader.ends(&tp, Isolation::Committed)?;
    reader.assign(&[(tp, first)])?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if reader.poll(Duration::from_millis(100))?.is_some() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(operations: &[&'static str]) -> Permission {
        Permission::new(MEMBER, "topic", "agent.requests".into(), false, operations)
    }

    /// If this broke, a permission would count as held of which a part is lacking, or which nobody could ask for.
    #[test]
    fn what_is_lacking_is_named_and_what_nobody_says_is_neither_held_nor_lacking() {
        let noted = |answer| {
            let mut p = permission(&["Read", "Describe", "DescribeConfigs"]);
            note(&mut p, answer);
            (p.tried, p.lacks, p.untried)
        };
        let may = |all: &[&'static str]| Answer::May(all.iter().copied().collect());
        assert_eq!(noted(may(&["Read", "Write", "Describe", "DescribeConfigs"])), (Some(Tried::Allowed), vec![], None));
        assert_eq!(noted(may(&["Read", "Describe"])), (Some(Tried::Refused), vec!["DescribeConfigs"], None));
        assert_eq!(noted(Answer::Nothing), (Some(Tried::Refused), vec!["Read", "Describe", "DescribeConfigs"], None));
        assert_eq!(noted(Answer::All), (Some(Tried::Allowed), vec![], None));
        assert_eq!(noted(Answer::Unknown("why")), (None, vec![], Some("why")));
    }
}
