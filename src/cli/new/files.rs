//! The text of each file of a new topology. Pure.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::fields::Mapping;
use super::ready::{Known, Ready};

/// The tenant of the recorded input that policy denies.
const STRANGER: &str = "blocked";

/// What a topology is made of.
pub(super) struct Made<'a> {
    pub app: &'a str,
    pub ready: &'a Ready,
    pub mapping: &'a Mapping,
    /// The source's topic.
    pub topic: &'a str,
    /// How its keys and values are read.
    pub formats: (&'static str, &'static str),
    /// A key of the source, where it is no text.
    pub key: Option<&'a Map<String, Value>>,
}

impl Made<'_> {
    /// Every file: its path beside the others, and its text.
    pub fn files(&self) -> Vec<(String, String)> {
        vec![
            ("topology.yaml".to_owned(), self.topology()),
            (format!("contracts/{}.yaml", self.ready.name), self.ready.contract()),
            (self.policy_file(), self.policy()),
            ("input.jsonl".to_owned(), self.input()),
        ]
    }

    /// Where the policy stands.
    pub fn policy_file(&self) -> String {
        format!("policies/{}.cedar", self.ready.name)
    }

    fn topology(&self) -> String {
        let (app, ready, m) = (self.app, self.ready, self.mapping);
        let (call, name) = (ready.call, ready.name);
        let mut text =
            format!("# Each record of {} becomes one {name}#{call}: {}. A lost answer {}.\n", self.topic, ready.about, ready.lost);
        let _ = write!(
            text,
            "application: {app}   # consumer group and prefix of internal topics: keep it\nversion: 1\n\nsources:\n  requests:\n    \
             topic: {}\n    key: {}\n    value: {}\n",
            self.topic, self.formats.0, self.formats.1
        );
        for line in &m.fields {
            let _ = writeln!(text, "    # value.{line}");
        }
        let _ = write!(
            text,
            "\nsteps:\n  - name: {call}   # part of each operation's identity: keep it while any is open\n    from: requests\n    effect:\n      contract: contracts/{name}.yaml#{call}\n"
        );
        let _ = writeln!(text, "      policy: {}   # asked when an intent is written, and before every send", self.policy_file());
        let _ = write!(
            text,
            "      request:\n        # The operation ID names the intent: the same each time it comes again, another for another one.\n        \
             operation_id: {}\n        tenant: {}\n        requester: {}\n        resource: {}\n        deadline: {}   # from the \
             content, never from arrival\n      parameters:   # typed by the contract; \
             nothing else reaches the wire\n",
            scalar(&m.operation_id),
            scalar(&m.tenant),
            scalar(&format!("\"service:{app}\"")),
            scalar(&m.resource),
            scalar(&m.deadline)
        );
        for (name, expression, remark) in &m.parameters {
            let remark = remark.as_ref().map(|r| format!("   # {r}")).unwrap_or_default();
            let _ = writeln!(text, "        {name}: {}{remark}", scalar(expression));
        }
        let _ = write!(text, "\nresults: {app}.results   # every state change with its ack level\ndead_letters: {app}.dead\n");
        text
    }

    /// Where money moves, whoever is not named may do nothing; elsewhere, whoever is named.
    fn policy(&self) -> String {
        let action = format!("action == Action::\"{}#{}\"", self.ready.name, self.ready.call);
        let mut text = "// Asked when an intent is written, and again right before every send. What no `permit` covers is denied, and a `forbid` wins\n\
                        // over every permit. Principal is the requester, action the call, resource what it acts on; context holds tenant,\n\
                        // permissions and plan, which is the parameters.\n\n"
            .to_owned();
        if !self.ready.money {
            let _ = write!(
                text,
                "// Every tenant may have this done, and nothing else.\n@id(\"this-call-only\")\npermit (principal, {action}, resource);\n\n\
                 // But for those that are named here.\n@id(\"blocked-tenants\")\nforbid (principal, action, resource)\nwhen {{ \
                 [{}].contains(context.tenant) }};\n",
                json!(STRANGER)
            );
            return text;
        }
        let _ = write!(
            text,
            "// Money moves for tenants that are named here.\n@id(\"known-tenants\")\npermit (principal, {action}, resource)\nwhen {{ \
             [{}].contains(context.tenant) }};\n",
            json!(self.tenant())
        );
        if (self.ready.parameters)()["amount"].is_i64() {
            text += "\n// And not more than this at once, in the smallest unit of the currency.\n@id(\"small-amounts\")\nforbid (principal, \
                     action, resource)\nwhen { context.plan.amount > 50000 };\n";
        }
        text
    }

    /// What the policy says, in a line.
    pub fn policy_says(&self) -> String {
        match self.ready.money {
            true => format!("only the tenants that it names may have it done, now {}", self.tenant()),
            false => format!("every tenant may have it done but those that it names, now {STRANGER}"),
        }
    }

    /// The tenant of the recorded input.
    fn tenant(&self) -> String {
        let field = self.mapping.tenant_field.as_ref().and_then(|f| self.mapping.record[f].as_str());
        field.unwrap_or("default").to_owned()
    }

    /// One that is taken and asked for twice, one that is refused, one whose answer is lost, one that can't be read; where records name
    /// their tenant, one that policy denies.
    fn input(&self) -> String {
        let ready = self.ready;
        let call = format!("{}#{}", ready.name, ready.call);
        let target = |name: &str, answer: Value| json!({ "target": name, "answer": answer });
        let says = |(status, body): (u16, Value)| match body {
            Value::Null => json!({ "status": status }),
            body => json!({ "status": status, "body": body }),
        };
        let list = |lines: &mut Vec<Value>| {
            if let Known::List(list) = ready.known {
                lines.push(target(&format!("{call}/readback"), says((200, list()))));
            }
        };
        let mut lines = vec![target(&call, says((ready.taken)()))];
        list(&mut lines);
        lines.push(self.record(1, "10:00:05", |_| {}));
        lines.push(json!({ "advance": "20s" }));
        lines.push(self.record(1, "10:00:30", |_| {}));
        lines.push(target(&call, says((401, json!({})))));
        lines.push(self.record(2, "10:00:31", |_| {}));
        lines.push(json!({ "advance": "5s" }));
        lines.push(target(&call, Value::Null));
        match ready.known {
            Known::Again(again) => lines.push(target(&call, says(again()))),
            Known::List(_) => list(&mut lines),
            Known::Person => {}
        }
        lines.push(self.record(3, "10:00:40", |_| {}));
        lines.push(json!({ "advance": "120s" }));
        if let Some(field) = &self.mapping.needed {
            lines.push(self.record(4, "10:02:50", |r| drop(r.remove(field))));
        }
        if let Some(field) = &self.mapping.tenant_field {
            lines.push(self.record(5, "10:02:51", |r| drop(r.insert(field.clone(), json!(STRANGER)))));
            lines.push(json!({ "advance": "5s" }));
        }
        lines.iter().map(|l| format!("{l}\n")).collect()
    }

    fn record(&self, n: usize, time: &str, change: impl FnOnce(&mut Map<String, Value>)) -> Value {
        let (key, mut value) = self.mapping.nth(n);
        change(&mut value);
        let key = self.key.map_or(json!(key), |k| Value::Object(k.clone()));
        json!({ "topic": self.topic, "key": key, "value": value, "timestamp": format!("2026-11-20T{time}Z") })
    }
}

/// An expression as a YAML value: plain where it can't be mistaken, else in single quotes.
fn scalar(expression: &str) -> String {
    let plain = expression.starts_with(|c: char| c.is_ascii_alphabetic())
        && !expression.contains(": ")
        && !expression.contains(" #")
        && !matches!(expression, "true" | "false" | "null");
    if plain { expression.to_owned() } else { format!("'{}'", expression.replace('\'', "''")) }
}
