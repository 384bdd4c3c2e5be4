//! One Cedar policy file and the question that is put to it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy as cedar;
use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityId, EntityTypeName, EntityUid, Request, RestrictedExpression as Expr,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Error, Fault, Result, codes};
use crate::time::WallTime;

/// A policy file. Cheap to clone.
#[derive(Clone)]
pub struct PolicySet {
    policies: Arc<cedar::PolicySet>,
    version: Arc<str>,
}

/// Who wants to do what to what, with all that policies may look at.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Principal `Requester::"…"`, and `context.requester`.
    pub requester: &'a str,
    /// Action `Action::"…"`.
    pub action: &'a str,
    /// Resource `Resource::"…"`, and `context.resource`.
    pub resource: &'a str,
    /// `context.tenant`.
    pub tenant: &'a str,
    /// `context.resource_version`, where there is one.
    pub resource_version: Option<&'a str>,
    /// `context.permissions`, a set.
    pub permissions: &'a [String],
    /// `context.plan`: the typed parameters of the call. Numbers that are not whole are decimals with four places.
    pub plan: &'a Value,
    /// `context.approver`, where somebody approved.
    pub approver: Option<&'a str>,
    /// `context.now`, milliseconds since 1970.
    pub now: WallTime,
}

/// What a policy file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A policy permits, none forbids.
    Allow,
    /// Why not: `@id` or number of each policy that forbids or fails; a plain sentence where none permits.
    Deny(Vec<String>),
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicySet({})", self.version)
    }
}

impl PolicySet {
    /// Reads a policy file.
    pub fn load(path: &Path) -> Result<PolicySet> {
        let doing = || format!("reading the policy {}", path.display());
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::new(codes::FILE_UNREADABLE, Fault::Configuration, doing()).because(e))?;
        PolicySet::parse(&path.display().to_string(), &text)
    }

    /// Reads policies from `text`; `name` is shown as their path.
    pub fn parse(name: &str, text: &str) -> Result<PolicySet> {
        let policies = cedar::PolicySet::from_str(text).map_err(|e| {
            let all = e.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            Error::new(codes::BAD_POLICY, Fault::Configuration, format!("reading the policy {name}")).because(all)
        })?;
        let version = crate::intents::hex(&Sha256::digest(text.as_bytes()))[..16].to_owned();
        Ok(PolicySet { policies: Arc::new(policies), version: version.into() })
    }

    /// A hash of the text, 16 characters: what approvals and results name.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Asks. A policy that fails on this question denies it: Cedar would pass over it, and with it over a `forbid`.
    pub fn allows(&self, ask: &Ask<'_>) -> Verdict {
        let request = match request(ask) {
            Ok(request) => request,
            Err(why) => return Verdict::Deny(vec![why]),
        };
        let response = Authorizer::new().is_authorized(&request, &self.policies, &Entities::empty());
        let failed: Vec<String> = response
            .diagnostics()
            .errors()
            .map(|cedar::AuthorizationError::PolicyEvaluationError(e)| self.named(e.policy_id()))
            .collect();
        if !failed.is_empty() {
            return Verdict::Deny(failed.into_iter().map(|id| format!("{id} can't be evaluated on this request")).collect());
        }
        match response.decision() {
            Decision::Allow => Verdict::Allow,
            Decision::Deny => {
                let mut reasons: Vec<_> = response.diagnostics().reason().map(|id| self.named(id)).collect();
                reasons.sort();
                if reasons.is_empty() {
                    reasons.push("no policy permits it".to_owned());
                }
                Verdict::Deny(reasons)
            }
        }
    }

    /// A policy's `@id`, else its number.
    fn named(&self, id: &cedar::PolicyId) -> String {
        self.policies.annotation(id, "id").map_or_else(|| id.to_string(), str::to_owned)
    }
}

fn request(ask: &Ask<'_>) -> std::result::Result<Request, String> {
    let uid = |kind: &str, id: &str| {
        let kind = EntityTypeName::from_str(kind).map_err(|e| e.to_string())?;
        Ok::<_, String>(EntityUid::from_type_name_and_id(kind, EntityId::new(id)))
    };
    let text = |t: &str| Expr::new_string(t.to_owned());
    let mut context = vec![
        ("requester".to_owned(), text(ask.requester)),
        ("resource".to_owned(), text(ask.resource)),
        ("tenant".to_owned(), text(ask.tenant)),
        ("permissions".to_owned(), Expr::new_set(ask.permissions.iter().map(|p| text(p)))),
        ("plan".to_owned(), fact(ask.plan)?.unwrap_or_else(|| Expr::new_bool(false))),
        ("now".to_owned(), Expr::new_long(ask.now.0)),
    ];
    context.extend(ask.resource_version.map(|v| ("resource_version".to_owned(), text(v))));
    context.extend(ask.approver.map(|a| ("approver".to_owned(), text(a))));
    let context = Context::from_pairs(context).map_err(|e| e.to_string())?;
    Request::new(uid("Requester", ask.requester)?, uid("Action", ask.action)?, uid("Resource", ask.resource)?, context, None)
        .map_err(|e| e.to_string())
}

/// JSON as Cedar has it, value by value: read as Cedar's own JSON, a plan could name entities and functions. Null is left out.
fn fact(value: &Value) -> std::result::Result<Option<Expr>, String> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(b) => Expr::new_bool(*b),
        Value::String(s) => Expr::new_string(s.clone()),
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(i), _) => Expr::new_long(i),
            (None, Some(f)) if f.abs() < 9e14 => Expr::new_decimal(format!("{f:.4}")),
            _ => return Err("the plan holds a number that policies can't compare".into()),
        },
        Value::Array(items) => {
            let items = items.iter().filter_map(|v| fact(v).transpose());
            Expr::new_set(items.collect::<std::result::Result<Vec<_>, _>>()?)
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(k, v)| Some(fact(v).transpose()?.map(|v| (k.clone(), v))));
            let members = members.collect::<std::result::Result<Vec<_>, _>>()?;
            Expr::new_record(members).map_err(|e| e.to_string())?
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ORDERS: &str = r#"
        permit(principal, action == Action::"order.create", resource) when { context.permissions.contains("orders:write") };
        @id("large-orders-need-a-person")
        forbid(principal, action, resource) when { context.plan.quantity > 100 && !(context has approver) };
        @id("own-orders")
        forbid(principal, action, resource) unless { context.resource like "order/*" };
    "#;

    fn ask<'a>(plan: &'a Value, permissions: &'a [String]) -> Ask<'a> {
        Ask {
            requester: "agent:buyer",
            action: "order.create",
            resource: "order/A-1",
            tenant: "acme",
            resource_version: None,
            permissions,
            plan,
            approver: None,
            now: WallTime(0),
        }
    }

    /// If this broke, a call could be sent that policy forbids, or nobody would learn which policy does.
    #[test]
    fn policies_decide_and_say_why() {
        let set = PolicySet::parse("orders.cedar", ORDERS).expect("parses");
        let write = ["orders:write".to_owned()];
        let (small, large) = (json!({ "quantity": 3 }), json!({ "quantity": 300 }));
        assert_eq!(set.allows(&ask(&small, &write)), Verdict::Allow);
        assert_eq!(set.allows(&ask(&small, &[])), Verdict::Deny(vec!["no policy permits it".into()]));
        assert_eq!(set.allows(&ask(&large, &write)), Verdict::Deny(vec!["large-orders-need-a-person".into()]));
        assert_eq!(set.allows(&Ask { approver: Some("approver@acme"), ..ask(&large, &write) }), Verdict::Allow);
        assert_eq!(set.allows(&Ask { resource: "invoice/1", ..ask(&small, &write) }), Verdict::Deny(vec!["own-orders".into()]));
    }

    /// If this broke, a plan of another shape than the policy expects would slip past a `forbid`.
    #[test]
    fn a_policy_that_fails_denies() {
        let set = PolicySet::parse("orders.cedar", ORDERS).expect("parses");
        let write = ["orders:write".to_owned()];
        for plan in
            [json!({}), json!({ "quantity": "300" }), json!({ "quantity": 300.5 }), json!(null), json!({ "quantity": 1e300 })]
        {
            assert!(matches!(set.allows(&ask(&plan, &write)), Verdict::Deny(_)), "{plan}");
        }
    }

    /// If this broke, a model's plan could speak Cedar: name entities or call functions.
    #[test]
    fn plans_are_data() {
        let set = PolicySet::parse("x", r#"permit(principal, action, resource) when { context.plan.who == Requester::"root" };"#)
            .expect("parses");
        let plan = json!({ "who": { "__entity": { "type": "Requester", "id": "root" } } });
        assert!(matches!(set.allows(&ask(&plan, &[])), Verdict::Deny(_)));
    }

    /// If this broke, an approval would not show that the policy changed after it was given.
    #[test]
    fn the_version_is_the_texts_own() {
        let a = PolicySet::parse("a", ORDERS).expect("parses");
        assert_eq!(a.version(), PolicySet::parse("b", ORDERS).expect("parses").version());
        assert_ne!(a.version(), PolicySet::parse("a", &ORDERS.replace("100", "1000")).expect("parses").version());
        let e = PolicySet::parse("orders.cedar", "permit(").expect_err("refused");
        assert_eq!(e.code, codes::BAD_POLICY);
    }
}
