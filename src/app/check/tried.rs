//! Which of a member's permissions this login has, found out by harmless questions. What only acting would show is not tried.

use std::time::{Duration, Instant};

use crate::error::{Error, Result, codes};
use crate::ids::{GroupId, Tp};
use crate::kafka::{Class, Cluster, Isolation, KResult};
use crate::runtime::error_of;

use super::{Finding, Permission, Report};

/// How long a refusal of a read is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// What was found out about a permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// A question that needs it was answered.
    Allowed,
    /// It was refused.
    Refused,
}

/// Asks what needs the permissions of a member. What is refused contradicts: a member would not start.
///
/// # Errors
/// Where the brokers can't be reached.
pub fn try_permissions<C: Cluster>(report: &mut Report, cluster: &C) -> Result<()> {
    let mut refused = Vec::new();
    for p in report.permissions.iter_mut().filter(|p| p.who == "member" && !p.prefixed) {
        let Some(answer) = ask(p, cluster) else { continue };
        p.tried = match answer {
            Ok(()) => Some(Tried::Allowed),
            Err(fault) if fault.class == Class::Config => Some(Tried::Refused),
            // A topic that is not there yet says nothing.
            Err(fault) if fault.class == Class::Gone => None,
            Err(fault) => return Err(error_of(fault)),
        };
        if p.tried == Some(Tried::Refused) {
            let text = format!("this login may not {} on {} {}", p.operations.join(", "), p.resource, p.name);
            refused.push(Finding::new(codes::NOT_AUTHORIZED, text, format!("kafka-acls.sh --add … {}", p.flags())));
        }
    }
    report.contradictions.extend(refused);
    Ok(())
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

/// The question for one permission; none where nothing harmless needs it.
fn ask<C: Cluster>(p: &Permission, cluster: &C) -> Option<KResult<()>> {
    match p.resource {
        "topic" if p.operations.contains(&"Read") => Some(read(&p.name, cluster)),
        "group" => {
            let any = [Tp::new(p.name.as_str(), 0)];
            Some(cluster.admin().and_then(|a| a.committed(&GroupId::new(&p.name), &any)).map(drop))
        }
        _ => None,
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
