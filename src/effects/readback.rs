//! One question to the target: a readback, page after page until the contract's predicates have an answer, or the version of a
//! resource before a send. Has its own permits and breaker, so that a closed send breaker never blocks it.

use std::sync::Arc;

use crate::http::{Answer, Finished, NotSent, Outgoing, Wire};
use crate::intents::AnswerClass;
use crate::time::WallTime;

use super::config::Judged;
use super::dispatch::{Desk, Finish, PendingRead, Question, secrets};
use super::evidence;
use super::fold::Verdict;
use super::spans;

/// The gate of a target's readbacks.
pub fn gate(target: &str) -> String {
    format!("{target}/read")
}

struct Reading {
    desk: Desk,
    read: PendingRead,
    pages: Vec<Answer>,
    began: Option<WallTime>,
    method: String,
    /// The latest exchange, for the span: how it went from the first byte of all pages on.
    last: Option<Finished>,
}

impl Desk {
    /// Hands a question to the network.
    pub fn read(&self, read: PendingRead) {
        Reading { desk: self.clone(), read, pages: Vec::new(), began: None, method: String::new(), last: None }.ask(None);
    }
}

impl Reading {
    fn ask(mut self, page: Option<&str>) {
        let spec = &self.read.spec;
        let request = match self.read.question {
            Question::Effect => spec.judge.readback(&self.read.parameters, &self.read.wire_key, page),
            Question::Version => spec.judge.version_request(&self.read.parameters),
        };
        let (request, secret_headers) = match (request, secrets(spec)) {
            (Ok(request), Ok(secrets)) => (request, secrets),
            (Err(e), _) | (_, Err(e)) => return self.nothing(format!("the question can't be asked: {}", e.code)),
        };
        let mut request = request;
        spans::tell(self.desk.shared.tracer(), self.read.trace.as_ref(), &mut request);
        self.method.clone_from(&request.method);
        let outgoing = Outgoing {
            to: Arc::clone(&spec.to),
            request,
            secret_headers,
            not_after: None,
            via: spec.read_via,
            limits: spec.limits,
        };
        let http = Arc::clone(&self.desk.http);
        http.start(outgoing, Box::new(|| true), Box::new(move |finished| self.answered(finished)));
    }

    fn answered(mut self, f: Finished) {
        self.began = self.began.or(Some(f.began));
        self.report(&f);
        self.desk.shared.measure(|m| m.exchanged(&self.read.spec.target, "read", &f));
        if self.read.trace.is_some() {
            self.last = Some(Finished { began: self.began.unwrap_or(f.began), ..f.clone() });
        }
        let answer = match f.wire {
            Wire::Answered(answer) => answer,
            Wire::NotSent(why) => return self.nothing(format!("not sent: {}", why.label())),
            Wire::MaybeSent(why) => return self.nothing(why),
        };
        if self.read.question == Question::Version {
            let shown = self.read.spec.judge.version_in(&answer);
            return self.version(shown);
        }
        self.pages.push(answer);
        match self.read.spec.judge.judge(&self.pages, &self.read.parameters, &self.read.wire_key) {
            Judged::Done(verdict) => self.done(verdict),
            Judged::NextPage(_) if self.pages.len() >= self.read.spec.pages as usize => {
                self.done(Verdict::Incomplete("more pages than the contract follows".to_owned()));
            }
            Judged::NextPage(token) => self.ask(Some(&token)),
        }
    }

    fn report(&self, f: &Finished) {
        let class = match &f.wire {
            Wire::Answered(a) if a.status < 500 && a.status != 429 => AnswerClass::Applied,
            Wire::NotSent(NotSent::Burned) => return,
            _ => AnswerClass::Unknown,
        };
        self.desk.report(&self.read.spec, &self.read.spec.read_gate, f, class, None);
    }

    /// No answer, or none that says anything.
    fn nothing(self, why: String) {
        match self.read.question {
            Question::Effect => self.done(Verdict::Incomplete(why)),
            Question::Version => self.version(Err(why)),
        }
    }

    fn at(&self) -> WallTime {
        self.began.unwrap_or_else(|| self.desk.clock.now().wall)
    }

    fn span(&self, verdict: Option<&Verdict>) {
        let span = self.last.as_ref().and_then(|f| spans::read(&self.read, f, &self.method, verdict));
        if let Some(span) = span {
            self.desk.shared.tracer().end(span);
        }
    }

    fn version(self, shown: Result<Option<String>, String>) {
        let at = self.at();
        self.span(None);
        let PendingRead { op, permit, .. } = self.read;
        drop(permit);
        self.desk.inbox.push(Finish::Version { op, at, shown });
    }

    fn done(self, verdict: Verdict) {
        let at = self.at();
        self.desk.shared.measure(|m| m.read(&self.read.spec.target, &verdict));
        self.span(Some(&verdict));
        let digest = (!self.pages.is_empty()).then(|| evidence::digest(&self.pages));
        let PendingRead { op, permit, .. } = self.read;
        drop(permit);
        self.desk.inbox.push(Finish::Read { op, at, verdict, digest });
    }
}
