//! The compatibility level of a subject, which the client library has no call for.

use serde::Deserialize;

use super::client::{Client, Failure};

/// As registries answer: the level of a subject, or the global one.
#[derive(Deserialize)]
struct Level {
    #[serde(alias = "compatibilityLevel")]
    compatibility: String,
}

impl Client {
    /// The level that stands for a subject by itself, or the global one.
    pub(super) fn level(&self, subject: Option<&str>) -> Result<String, Failure> {
        // Without the question for what stands for it, some registries say NONE of a subject that has no level of its own.
        let path = subject.map_or_else(|| "/config".to_owned(), |subject| format!("/config/{subject}?defaultToGlobal=true"));
        match self.get(&path)? {
            (200, body) => {
                let unfit = |_| Failure::Refused("it answers something that is no schema registry's answer".into());
                serde_json::from_slice::<Level>(&body).map(|level| level.compatibility).map_err(unfit)
            }
            (404, _) => Err(Failure::Missing),
            (status @ (408 | 429 | 500..), _) => Err(Failure::Passing(format!("status {status}"))),
            (status, _) => Err(Failure::Refused(format!("status {status}"))),
        }
    }
}
