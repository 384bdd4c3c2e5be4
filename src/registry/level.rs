//! The compatibility level of a subject, which the client library has no call for.

use std::time::Duration;

use serde::Deserialize;

use crate::registry::RegistryAuth;

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
        let (url, auth, limit) = self.plain();
        let mut request = client(limit)?.get(match subject {
            Some(subject) => format!("{url}/config/{subject}"),
            None => format!("{url}/config"),
        });
        let refused = |e: crate::error::Error| Failure::Refused(e.to_string());
        request = match auth {
            RegistryAuth::None => request,
            RegistryAuth::Basic { user, password } => request.basic_auth(user, Some(password.resolve().map_err(refused)?.expose())),
            RegistryAuth::Bearer(token) => request.bearer_auth(token.resolve().map_err(refused)?.expose()),
        };
        self.run(async move {
            let answer = request.send().await.map_err(|e| Failure::Passing(e.without_url().to_string()))?;
            match answer.status().as_u16() {
                200 => {
                    let unfit = |_| Failure::Refused("it answers something that is no schema registry's answer".into());
                    answer.json::<Level>().await.map(|level| level.compatibility).map_err(unfit)
                }
                404 => Err(Failure::Missing),
                status @ (408 | 429 | 500..) => Err(Failure::Passing(format!("status {status}"))),
                status => Err(Failure::Refused(format!("status {status}"))),
            }
        })
    }
}

fn client(limit: Duration) -> Result<reqwest::Client, Failure> {
    reqwest::Client::builder().timeout(limit).no_proxy().build().map_err(|e| Failure::Refused(e.without_url().to_string()))
}
