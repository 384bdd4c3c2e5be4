//! The calls of a proposal as a graph: read, bounded, without cycles; and which of them may begin. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::intents::PlanCall;

/// How many calls one plan may have at most.
pub const MOST_CALLS: usize = 32;
/// Longest name of a call.
const LONGEST_ID: usize = 64;

/// One call as a proposal names it.
#[derive(Clone, PartialEq, Debug)]
pub struct Proposed {
    /// Its name.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What the tool is given: an object.
    pub arguments: Value,
    /// The calls that must have happened before.
    pub needs: Vec<String>,
}

/// Reads the calls, in the order of the proposal. The error is for people and quotes nothing but names that are names.
pub fn read(list: &Value, most: usize) -> Result<Vec<Proposed>, String> {
    let list = list.as_array().ok_or("the proposal's calls are no list")?;
    if list.is_empty() || list.len() > most {
        return Err(format!("the proposal has {} calls, 1 to {most} are allowed", list.len()));
    }
    let calls: Vec<Proposed> = list.iter().enumerate().map(|(i, call)| one(i + 1, call)).collect::<Result<_, _>>()?;
    let mut known = BTreeSet::new();
    for call in &calls {
        if !known.insert(call.id.as_str()) {
            return Err(format!("two calls are named {}", call.id));
        }
    }
    for call in &calls {
        if let Some(missing) = call.needs.iter().find(|id| !known.contains(id.as_str())) {
            return Err(format!("call {} needs {missing}, which is none of the calls", call.id));
        }
    }
    match in_a_circle(&calls) {
        Some(id) => Err(format!("call {id} needs itself, by way of the calls that it needs")),
        None => Ok(calls),
    }
}

fn one(n: usize, call: &Value) -> Result<Proposed, String> {
    let members = call.as_object().ok_or_else(|| format!("call {n} is no object"))?;
    if members.keys().any(|k| !matches!(k.as_str(), "id" | "tool" | "arguments" | "needs")) {
        return Err(format!("call {n} has members other than id, tool, arguments, needs"));
    }
    let name = |value: Option<&Value>, what: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let text = value.and_then(Value::as_str).filter(|t| (1..=LONGEST_ID).contains(&t.len()) && t.chars().all(good));
        text.map(str::to_owned).ok_or_else(|| format!("call {n}: {what} must be 1 to {LONGEST_ID} of a-z A-Z 0-9 _ -"))
    };
    let needs = match members.get("needs") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(ids)) => ids.iter().map(|id| name(Some(id), "each of `needs`")).collect::<Result<_, _>>()?,
        Some(_) => return Err(format!("call {n}: `needs` is no list")),
    };
    if needs.iter().collect::<BTreeSet<_>>().len() != needs.len() {
        return Err(format!("call {n} needs the same call twice"));
    }
    let arguments = match members.get("arguments") {
        None | Some(Value::Null) => Value::Object(Default::default()),
        Some(object @ Value::Object(_)) => object.clone(),
        Some(_) => return Err(format!("call {n}: `arguments` is no object")),
    };
    Ok(Proposed { id: name(members.get("id"), "`id`")?, tool: name(members.get("tool"), "`tool`")?, arguments, needs })
}

/// A call that can never begin, since it waits for itself: what is left when all that can be ordered is.
fn in_a_circle(calls: &[Proposed]) -> Option<&str> {
    let mut left: BTreeMap<&str, &[String]> = calls.iter().map(|c| (c.id.as_str(), c.needs.as_slice())).collect();
    loop {
        let free: Vec<&str> =
            left.iter().filter(|(_, needs)| needs.iter().all(|n| !left.contains_key(n.as_str()))).map(|(id, _)| *id).collect();
        if free.is_empty() {
            return left.keys().next().copied();
        }
        for id in free {
            left.remove(id);
        }
    }
}

/// What comes next of a plan under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// All that this call needs has happened.
    Begin(usize),
    /// It is left out: this one, which it needs, ended without having happened.
    LeaveOut {
        /// Which.
        call: usize,
        /// For whose sake.
        because: usize,
    },
}

/// The next step, the first in the plan's order; nothing while all that waits waits for something that is under way.
pub fn next(calls: &[PlanCall]) -> Option<Next> {
    let of = |id: &String| calls.iter().position(|c| c.id == *id);
    calls.iter().enumerate().filter(|(_, c)| c.waits()).find_map(|(call, c)| {
        let needs: Vec<usize> = c.needs.iter().filter_map(of).collect();
        if let Some(because) = needs.iter().copied().find(|n| calls[*n].end.is_some() && !calls[*n].happened()) {
            return Some(Next::LeaveOut { call, because });
        }
        needs.iter().all(|n| calls[*n].happened()).then_some(Next::Begin(call))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::drawn::{Drawn, calls};
    use crate::intents::{CallState, Status};

    fn refused(list: Value) -> String {
        read(&list, 4).expect_err("refused")
    }

    /// If this broke, a plan could be approved of which a part can never run, or one name would mean two calls.
    #[test]
    fn what_is_no_graph_is_refused() {
        let call = |id: &str, needs: &[&str]| json!({"id": id, "tool": "t", "arguments": {"a": 1}, "needs": needs});
        assert!(refused(json!([call("a", &["b"]), call("b", &["c"]), call("c", &["a"])])).contains("needs itself"));
        assert!(refused(json!([call("a", &["a"])])).contains("needs itself"));
        assert!(refused(json!([call("x", &[]), call("a", &["b"]), call("b", &["a"])])).contains("call a needs itself"));
        assert!(refused(json!([call("a", &["z"])])).contains("none of the calls"));
        assert!(refused(json!([call("a", &[]), call("a", &[])])).contains("two calls are named a"));
        assert!(refused(json!([call("a", &[]), call("b", &["a", "a"])])).contains("twice"));
        assert!(refused(json!([])).contains("0 calls"));
        assert!(
            refused(json!([call("a", &[]), call("b", &[]), call("c", &[]), call("d", &[]), call("e", &[])])).contains("5 calls")
        );
        assert!(refused(json!({"id": "a"})).contains("no list"));
        let diamond = json!([call("d", &["b", "c"]), call("b", &["a"]), call("c", &["a"]), call("a", &[])]);
        let ids: Vec<_> = read(&diamond, 4).expect("a graph").into_iter().map(|c| c.id).collect();
        assert_eq!(ids, ["d", "b", "c", "a"], "in the order of the proposal, which is that of the children's IDs");
    }

    /// If this broke, text of a model would stand in results and logs, or a member that nobody looks at would be approved.
    #[test]
    fn names_are_names_and_nothing_is_quoted() {
        for bad in [
            json!({"id": "hunter2 is my word", "tool": "t"}),
            json!({"id": "a".repeat(65), "tool": "t"}),
            json!({"id": "a", "tool": "hunter2!"}),
            json!({"id": "a", "tool": "t", "arguments": "hunter2"}),
            json!({"id": "a", "tool": "t", "needs": "hunter2"}),
            json!({"id": "a", "tool": "t", "hunter2": 1}),
            json!({"id": "a.undo", "tool": "t"}),
            json!("hunter2"),
        ] {
            let words = refused(json!([bad]));
            assert!(!words.contains("hunter2"), "{words}");
        }
    }

    fn plan(drawn: &[Drawn<'_>]) -> Vec<PlanCall> {
        calls(drawn, CallState::Waiting)
    }

    /// If this broke, a call would be sent before what it needs is known to have happened, or after it is known not to.
    #[test]
    fn a_call_begins_when_all_that_it_needs_has_happened() {
        let end = |a: Option<Status>, b: Option<Status>| next(&plan(&[("a", &[], a), ("b", &[], b), ("c", &["a", "b"], None)]));
        assert_eq!(end(None, None), Some(Next::Begin(0)));
        assert_eq!(end(Some(Status::Confirmed), Some(Status::Confirmed)), Some(Next::Begin(2)));
        assert_eq!(end(Some(Status::Confirmed), Some(Status::ResolvedApplied)), Some(Next::Begin(2)), "a person's word counts");
        for not in Status::ALL.iter().filter(|s| s.is_end() && !matches!(s, Status::Confirmed | Status::ResolvedApplied)) {
            assert_eq!(end(Some(Status::Confirmed), Some(*not)), Some(Next::LeaveOut { call: 2, because: 1 }), "{not:?}");
        }
        let mut begun = plan(&[("a", &[], None), ("b", &["a"], None)]);
        begun[0].state = CallState::Begun;
        assert_eq!(next(&begun), None, "unknown is neither: it waits");
    }
}
