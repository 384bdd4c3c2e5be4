//! What a registry lets change under the topics that an application reads and writes.

use crate::dsl::Application;
use crate::error::{Result, codes};
use crate::ids::TopicName;
use crate::intents::ResultRecord;
use crate::registry::Registry;
use crate::serdes::internal::Wire;

use super::super::compose::external_topics;
use super::{Finding, Report, WEAK};

/// Asks for each subject of the user's topics. Whether a topic has any the registry knows: code may read Avro that no file declares.
pub(super) fn of_the_user(report: &mut Report, application: &Application, registry: Option<&Registry>) -> Result<()> {
    let Some(registry) = registry else {
        if let Some(topic) = &application.results {
            let text = format!("{topic} is written without a registry: readers need the product's own schema files");
            report.warnings.push(Finding::new(WEAK, text, "set registry.url"));
        }
        return Ok(());
    };
    if let Some(topic) = &application.results {
        results(report, topic, registry)?;
    }
    let read = application.topology.external_sources();
    for topic in external_topics(application).into_iter().filter(|t| application.results.as_ref() != Some(t)) {
        for part in ["key", "value"] {
            let subject = format!("{topic}-{part}");
            match registry.newest_under(&subject) {
                Err(e) if e.code == codes::SCHEMA_MISSING => continue,
                // A schema of another kind than Avro has rules as well.
                Err(e) if e.code != codes::SCHEMA_INCOMPATIBLE => return Err(e),
                _ => {}
            }
            let what = match read.contains(&topic) {
                true => "records may come that this version reads otherwise, or not at all",
                false => "who reads it may stop reading",
            };
            level(report, subject, what, registry)?;
        }
    }
    report.cluster.push(match report.compatibility.len() {
        0 => "registry ok, no subject of these topics".to_owned(),
        1 => "registry ok, 1 subject".to_owned(),
        n => format!("registry ok, {n} subjects"),
    });
    Ok(())
}

/// Results are written by a schema of ours, which the subject must take.
fn results(report: &mut Report, topic: &TopicName, registry: &Registry) -> Result<()> {
    let subject = format!("{topic}-value");
    if !registry.check_compatible(&subject, ResultRecord::AVSC)? {
        let text = format!("the registry's rules for {subject} refuse the schema of results");
        let hint = "another writer uses that subject: choose another results topic";
        report.contradictions.push(Finding::new(codes::SCHEMA_INCOMPATIBLE, text, hint));
    }
    level(report, subject, "readers of results may stop reading", registry)
}

fn level(report: &mut Report, subject: String, what: &str, registry: &Registry) -> Result<()> {
    let level = registry.compatibility(&subject)?;
    if level == "NONE" {
        let text = format!("the registry lets {subject} change in any way: {what}");
        report.warnings.push(Finding::new(WEAK, text, "set its compatibility to BACKWARD or stricter"));
    }
    report.compatibility.insert(subject, level);
    Ok(())
}
