//! `tools`: what a proposal may call. One plan then makes several calls, each an operation of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::MOST_CALLS;
use crate::config::yaml::{Diagnostics, Fields, Name, Node};
use crate::contract::{Contract, Parameters};
use crate::error::codes;
use crate::outbox::{CallRules, Does, OnPartial, ToolRules, View, ViewFn};

use super::agent::{Called, made_of, ordering};
use super::expr::{Expr, OPERATION, TOOL, members};
use super::files::check_names;
use super::shape;
use super::steps::Steps;

/// How many calls one plan may have where nothing is said.
const CALLS: usize = 8;
/// Where the calls lie where nothing is said.
const LIST: &str = "plan.calls";

impl Steps<'_> {
    /// The tools of an effect, their contracts, and the shortest of their longest deadlines: each call keeps that of the whole.
    pub(super) fn tools(
        &mut self,
        fields: &Fields<'_>,
        tools: &Node,
        planned: bool,
        name: &Name,
        d: &mut Diagnostics,
    ) -> Option<Called> {
        for key in ["contract", "parameters", "order_by"] {
            if let Some(at) = fields.get(key) {
                d.error(codes::BAD_VALUE, &at.at, format!("`{key}` belongs to each of the tools here"));
            }
        }
        let list = match fields.get("calls") {
            Some(node) => Expr::compile(node, OPERATION, &format!("{}.calls", name.text), d),
            None if planned => Expr::of(LIST, OPERATION, &format!("{}.calls", name.text)),
            None => {
                d.error(
                    codes::MISSING_KEY,
                    &name.at,
                    "`calls` is missing: without a plan step there is no proposal that holds them",
                );
                None
            }
        };
        let most = match fields.get("max_calls") {
            None => Some(CALLS),
            Some(node) => node.integer(1, MOST_CALLS as i64, d).and_then(|n| usize::try_from(n).ok()),
        };
        let choices = [("leave", OnPartial::Leave), ("compensate", OnPartial::Compensate)];
        let on_partial = fields.get("on_partial").map_or(Some(OnPartial::Leave), |node| node.one_of(&choices, d));
        let (mut stays, mut undone) = (Vec::new(), false);
        let (mut known, mut contracts, mut deadline) = (BTreeMap::new(), Vec::<Arc<Contract>>::new(), Duration::MAX);
        let mut good = true;
        for (tool, node) in tools.map(d)? {
            let Some((rules, contract)) = self.tool(tool, node, name, d) else {
                good = false;
                continue;
            };
            let call = contract.calls.get(&rules.call)?;
            deadline = deadline.min(call.budget.deadline);
            match call.compensate {
                Some(_) => undone = true,
                None => stays.push((tool, format!("{}#{}", contract.name, call.name))),
            }
            if contracts.iter().all(|c| c.name != contract.name) {
                contracts.push(contract);
            }
            known.insert(tool.text.clone(), rules);
        }
        if known.is_empty() && good {
            d.error(codes::BAD_VALUE, &tools.at, "`tools` names none");
            return None;
        }
        let (list, most, on_partial) = (list?, most?, on_partial?);
        if let (OnPartial::Compensate, Some(at), true) = (on_partial, fields.get("on_partial"), good) {
            told_what_stays(at, &stays, undone, d);
        }
        let list: ViewFn<serde_json::Value> = Arc::new(move |view: &View<'_>| list.of_operation(view));
        good.then_some((Does::Proposed(ToolRules { list, most, tools: known, on_partial }), contracts, deadline))
    }

    fn tool(&mut self, tool: &Name, node: &Node, name: &Name, d: &mut Diagnostics) -> Option<(CallRules, Arc<Contract>)> {
        let fields = shape::TOOL.read(node, d)?;
        let place = format!("{}.tools.{}", name.text, tool.text);
        if !tool.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            d.error(codes::BAD_VALUE, &tool.at, "a tool's name is made of a-z A-Z 0-9 _ -");
        }
        let given = fields.get("parameters").map(|n| members(n, TOOL, &format!("{place}.parameters"), d));
        let order = fields.get("order_by").map(|n| Expr::compile(n, TOOL, &format!("{place}.order_by"), d));
        let (contract, call) = fields.get("contract").and_then(|n| self.files.call(n, d))?;
        let order_by = order.map_or(Some(None), |e| e.map(Some))?.map(ordering);
        let parameters: ViewFn<Parameters> = match given {
            Some(given) => {
                let given = given?;
                let names: Vec<String> = given.iter().map(|(name, _)| name.clone()).collect();
                check_names(contract.calls.get(&call)?, &names, fields.get("parameters").unwrap_or(node), d);
                made_of(given)
            }
            None => {
                Arc::new(|view: &View<'_>| Ok(Parameters(view.arguments.and_then(|a| a.as_object()).cloned().unwrap_or_default())))
            }
        };
        Some((CallRules { contract: contract.name.clone(), call, parameters, order_by }, contract))
    }
}

/// Tools whose contracts do not say how a call of them is undone: what they did stays done in a plan that is undone.
fn told_what_stays(at: &Node, stays: &[(&Name, String)], any_undone: bool, d: &mut Diagnostics) {
    if !any_undone {
        d.error(codes::BAD_VALUE, &at.at, "`on_partial: compensate`, and no contract of the tools declares `compensate`")
            .label("nothing that a plan has done could be undone")
            .note("declare in the contracts how their calls are undone, or leave what was done");
        return;
    }
    for (tool, call) in stays {
        d.warning(codes::WEAK_SETTING, &tool.at, format!("what the tool `{}` did stays done in a plan that is undone", tool.text))
            .label(format!("the contract of {call} declares no `compensate`"));
    }
}
