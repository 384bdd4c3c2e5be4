//! The exact request of an operation: its hash, and what of it may be seen. Values are hidden; who may see them does not without a trace.

use std::borrow::Cow;

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::payload;
use crate::console::api::Asked;
use crate::console::audit::{Came, Entry};
use crate::console::index::Listed;
use crate::console::people::Role;
use crate::console::search::pairs;
use crate::error::{Error, Fault, Result, codes};
use crate::intents::RenderedRequest;

use super::{View, Visitor, layout, link};

/// Who may see payloads; an admin may, too.
const ROLES: &[Role] = &[Role::Operator, Role::Approver];
/// The field of the query that asks for values.
const SHOW: &str = "show";

/// How much of a payload is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// Its shape: this person may see no more.
    Shape,
    /// Its shape, and it is a matter of asking.
    Askable,
    /// All of it; written down.
    Whole,
}

impl Sight {
    /// What is said below a payload whose page is `here`, up to the mark before a field.
    pub fn words(self, what: &str, here: &str) -> Markup {
        html! {
            @match self {
                Sight::Shape => p.soft { "Values are hidden. The " (what) " itself is for operators, approvers and admins." },
                Sight::Askable => p { a href={ (here) (SHOW) "=values" } { "Show the " (what) " itself" } span.soft { " – that you have seen it is kept on the audit topic." } },
                Sight::Whole => p.soft { "That you have seen it is on the audit topic." },
            }
        }
    }
}

/// How much somebody sees of what is asked for; what can't be written down is not shown.
///
/// # Errors
/// `NOT_PERMITTED`; what keeps the audit record from being written.
pub fn sight(view: &View<'_>, asked: &Asked, entry: impl FnOnce() -> Entry) -> Result<Sight> {
    let wanted = pairs(&asked.query).iter().any(|(name, value)| name == SHOW && value == "values");
    let person = match view.visitor {
        Visitor::Known { person, .. } if person.is(ROLES) => Some(person),
        _ => None,
    };
    match (person, wanted) {
        (Some(person), true) => {
            let entry = entry().of(&person.name);
            view.console.books.audit(&entry)?;
            Ok(Sight::Whole)
        }
        (Some(_), false) => Ok(Sight::Askable),
        (None, false) => Ok(Sight::Shape),
        (None, true) => Err(Error::new(codes::NOT_PERMITTED, Fault::Verdict, "showing values of a payload")
            .because("it takes somebody who has signed in as operator, approver or admin")),
    }
}

/// The query without what asks for values.
pub fn rest(query: &str) -> String {
    let rest = pairs(query).into_iter().filter(|(name, _)| name != SHOW);
    let escape = crate::console::search::escape;
    rest.map(|(name, value)| format!("{}={}", escape(&name), escape(&value))).collect::<Vec<_>>().join("&")
}

/// An entry of the audit topic: somebody sees the request of an operation.
pub fn entry(view: &View<'_>, asked: &Asked, listed: &Listed) -> Entry {
    let mut entry = Entry::new(view.console.now(), "", &asked.from, "show_request", Came::Shown);
    entry.operation = listed.key.operation.to_string();
    (entry.tenant, entry.step) = (listed.key.tenant.to_string(), listed.key.step.to_string());
    entry
}

/// The request of an operation, where one is written.
pub fn shown(view: &View<'_>, listed: &Listed, sha256: &str, sight: Sight) -> Markup {
    if listed.body.is_none() {
        return html! {};
    }
    let body = match view.console.books.request(listed) {
        Ok(Some(body)) => body,
        Ok(None) => {
            return html! { h2 { "The exact request" } p.soft { "It is being written anew, or is kept no more: load the page again." } };
        }
        Err(e) => return html! { h2 { "The exact request" } (layout::problem(&e)) },
    };
    let r = &body.request;
    html! {
        h2 { "The exact request" }
        div.card {
            dl.facts {
                dt { "SHA-256" } dd.mono { (sha256) @if r.sha256() != sha256 { " " span.pill.bad { "the bytes that are kept hash to " (r.sha256()) } } }
                dt { "line" } dd.mono { (r.method) " " (line(r, sight)) }
                @for h in &r.headers { dt { "header " (h.name) } dd.mono { (hidden(&h.value, sight)) } }
                dt { "body" } dd { (layout::count(r.body.as_ref().map_or(0, Vec::len), "byte", "bytes")) }
            }
            @if let Some(bytes) = &r.body { pre { (body_words(bytes, sight)) } }
            (sight.words("request", &format!("{}&", link(&listed.key))))
            p.soft { "Secrets are no part of it: they are added when it is sent, and kept nowhere." }
        }
    }
}

/// Path and query; values in a query are hidden, and so is the path behind its first part.
fn line(r: &RenderedRequest, sight: Sight) -> String {
    if sight == Sight::Whole {
        return if r.query.is_empty() { r.path.clone() } else { format!("{}?{}", r.path, r.query) };
    }
    let mut parts = r.path.splitn(3, '/');
    let (_, first, more) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
    let names: Vec<String> = pairs(&r.query).into_iter().map(|(name, _)| format!("{name}=…")).collect();
    let query = if names.is_empty() { String::new() } else { format!("?{}", names.join("&")) };
    format!("/{first}{}{query}", if more.is_some() { "/…" } else { "" })
}

fn hidden(value: &str, sight: Sight) -> Cow<'_, str> {
    match sight {
        Sight::Whole => Cow::Borrowed(value),
        _ => Cow::Owned(format!("<text of {}>", value.chars().count())),
    }
}

/// A body of JSON in its shape, or whole; any other by its length only, or as text.
fn body_words(bytes: &[u8], sight: Sight) -> String {
    let json: Option<Value> = serde_json::from_slice(bytes).ok();
    match (json, sight) {
        (Some(value), Sight::Whole) => serde_json::to_string_pretty(&value).unwrap_or_default(),
        (Some(value), _) => serde_json::to_string_pretty(&payload::shape(&value)).unwrap_or_default(),
        (None, Sight::Whole) => String::from_utf8_lossy(bytes).into_owned(),
        (None, _) => "<no JSON: hidden>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intents::Pair;

    /// If this broke, whoever may only look would read what a request says.
    #[test]
    fn values_of_a_request_are_hidden() {
        let request = RenderedRequest {
            method: "POST".into(),
            path: "/orders/8812/lines".into(),
            query: "ref=5be2&card=4242".into(),
            headers: vec![Pair { name: "X-Account".into(), value: "acct-77".into() }],
            body: Some(br#"{"card":"4242","total":700}"#.to_vec()),
        };
        let bytes = request.body.clone().unwrap_or_default();
        let all =
            |sight| format!("{} {} {}", line(&request, sight), hidden(&request.headers[0].value, sight), body_words(&bytes, sight));
        for sight in [Sight::Shape, Sight::Askable] {
            let told = all(sight);
            for secret in ["8812", "5be2", "4242", "acct-77", "700"] {
                assert!(!told.contains(secret), "{secret} in {told}");
            }
            assert!(told.contains("/orders/…?ref=…&card=…") && told.contains("\"total\""), "{told}");
        }
        assert!(["8812", "5be2", "acct-77", "700"].iter().all(|s| all(Sight::Whole).contains(s)));
        assert_eq!(body_words(b"card=4242", Sight::Shape), "<no JSON: hidden>");
        assert_eq!(rest("tenant=a%26b&show=values&step=s"), "tenant=a%26b&step=s");
    }
}
