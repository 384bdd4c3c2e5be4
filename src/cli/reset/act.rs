//! Does what was planned, in an order that is safe to be cut short and to be repeated: positions first, while the ledger still knows
//! what was sent; then topics; then the effect unit's group.

use std::time::Duration;

use serde_json::Value;

use crate::app::deployed;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, GroupId};
use crate::kafka::Cluster;
use crate::runtime::error_of;
use crate::state::StateManager;

use super::look;
use super::plan::{self, Plan};

/// How often a deleted topic is looked for, and how long in between.
const LOOKS: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// Resets; `note` is kept.
pub(super) fn act<C: Cluster>(cluster: &C, app: &ApplicationId, plan: &Plan, note: &Value) -> Result<()> {
    let admin = cluster.admin().map_err(error_of)?;
    // Looking took its time: who has joined meanwhile would lose its topics at work.
    if let Some(alive) = plan::alive(&look::members(admin.as_ref(), app)?) {
        return Err(Error::new(codes::SILENT_RESET, Fault::Verdict, format!("resetting {app}"))
            .because(alive)
            .next("nothing was changed"));
    }
    for dir in &plan.directories {
        StateManager::remove(dir)?;
    }
    let to: Vec<_> = plan.moves.iter().map(|m| (m.tp.clone(), m.to)).collect();
    if !to.is_empty() {
        admin.reposition(&GroupId::new(app.as_str()), &to).map_err(error_of)?;
    }
    let topics: Vec<_> = plan.topics.iter().map(|(t, _)| t.clone()).collect();
    if !topics.is_empty() {
        admin.delete(&topics).map_err(error_of)?;
    }
    for topic in &topics {
        let mut looks = 0;
        while admin.topic(topic).map_err(error_of)?.is_some() {
            looks += 1;
            if looks > LOOKS {
                return Err(Error::new(codes::TOPIC_MISMATCH, Fault::Unreachable, format!("deleting topic {topic}"))
                    .because("the cluster accepted it and still lists it; `delete.topic.enable` may be off")
                    .next("run the same reset again"));
            }
            std::thread::sleep(PAUSE);
        }
    }
    for group in &plan.groups {
        admin.forget(group).map_err(error_of)?;
    }
    deployed::forget(cluster, app, note)
}
