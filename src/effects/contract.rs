//! The contract as the stage asks it, and policies as its guard: the one place where both are adapted.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::contract::{Call, Contract, Parameters, Undo, Verdict as Shown};
use crate::error::{Error, codes};
use crate::http::Answer;
use crate::ids::{StepName, WireKey};
use crate::intents::{AnswerClass, Cost, RenderedRequest};
use crate::policy::{Ask, PolicySet, Verdict as Allowed};
use crate::time::WallTime;

use super::config::{CallBook, CallSpec, Classified, Guard, Judge, Judged};
use super::fold::Verdict;
use super::permission::Denial;
use super::rules::Assumptions;
use super::status::LedgerRecord;

/// All calls of these contracts, under the versions they have.
pub fn call_book(contracts: &[Arc<Contract>], host: Assumptions) -> CallBook {
    let mut book = CallBook::new();
    for contract in contracts {
        for (name, call) in &contract.calls {
            let undo = call.compensate.as_ref().and_then(|c| contract.call(&c.call)).cloned();
            let judge = Arc::new(Asked(call.clone(), undo));
            let spec = CallSpec::of(contract, call, judge, host);
            book.insert((contract.name.clone(), contract.version, name.clone()), Arc::new(spec));
        }
    }
    book
}

/// A call, and the one that undoes it.
struct Asked(Call, Option<Call>);

impl Judge for Asked {
    fn classify(&self, answer: &Answer, at: WallTime) -> Classified {
        let (class, reference, after) = self.0.classify(answer);
        let retry_at = after.map(|a| a.due(at));
        if !self.0.proposal || class != AnswerClass::Applied {
            return Classified { class, reference, retry_at, cost: Cost::default() };
        }
        match self.0.proposed(answer) {
            Ok(p) => Classified { class, reference: Some(p.body), retry_at, cost: p.cost },
            Err(why) => {
                // An empty proposal breaks every schema: the plan ends as such, and its cost is counted.
                tracing::warn!(code = %codes::PLAN_FAILED, call = %self.0.name, why, "the answer holds no proposal");
                Classified { class, reference: Some(String::new()), retry_at, cost: Cost::default() }
            }
        }
    }

    fn readback(&self, parameters: &Parameters, key: &WireKey, page: Option<&str>) -> Result<RenderedRequest, Error> {
        self.0.render_readback(parameters, key, page)
    }

    fn version_request(&self, parameters: &Parameters) -> Result<RenderedRequest, Error> {
        self.0.render_version(parameters)
    }

    fn version_in(&self, answer: &Answer) -> Result<Option<String>, String> {
        self.0.version_in(answer)
    }

    fn undo(&self, parameters: &Parameters, key: &WireKey, reference: Option<&str>) -> Result<Undo, String> {
        let undo = self.1.as_ref().ok_or("the contract declares no compensation")?;
        self.0.undone_by(undo, parameters, key, reference)
    }

    fn stamp(&self, journalled_at: WallTime) -> Option<(String, String)> {
        self.0.stamp(journalled_at)
    }

    fn signature(&self, stamp: &str, key: &WireKey, request: &RenderedRequest) -> Result<Option<(String, String)>, Error> {
        self.0.signature(stamp, key, request)
    }

    fn judge(&self, pages: &[Answer], parameters: &Parameters, key: &WireKey) -> Judged {
        Judged::Done(match self.0.judge(pages, parameters, key) {
            Shown::NextPage(token) => return Judged::NextPage(token),
            Shown::Absent => Verdict::Absent,
            Shown::One { reference, .. } => Verdict::One { reference },
            Shown::Two { .. } => Verdict::Two,
            Shown::OtherContent => Verdict::OtherContent,
            Shown::Incomplete(why) => Verdict::Incomplete(why),
        })
    }
}

/// Cedar policies by effect step, asked right before every send.
#[derive(Clone, Debug, Default)]
pub struct Policies(pub BTreeMap<StepName, PolicySet>);

impl Guard for Policies {
    fn asks(&self, r: &LedgerRecord) -> bool {
        self.0.contains_key(&r.step)
    }
    fn version(&self, r: &LedgerRecord) -> Option<String> {
        self.0.get(&r.step).map(|set| set.version().to_owned())
    }
    fn may_send(&self, r: &LedgerRecord, parameters: &Parameters, now: WallTime) -> Result<(), Denial> {
        let Some(set) = self.0.get(&r.step) else { return Ok(()) };
        let plan = Value::Object(parameters.0.clone());
        let ask = Ask {
            requester: &r.requester,
            action: &r.action,
            resource: r.resource.as_str(),
            tenant: r.tenant.as_str(),
            resource_version: r.resource_version.as_deref(),
            permissions: &r.required_permissions,
            plan: &plan,
            approver: r.approval.as_ref().map(|a| a.approver.as_str()),
            now,
        };
        match set.allows(&ask) {
            Allowed::Allow => Ok(()),
            Allowed::Deny(reasons) => Err(Denial { code: codes::DENIED, detail: format!("policy: {}", reasons.join(", ")) }),
        }
    }
}
