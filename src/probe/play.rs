//! The sequence of calls, each after the claim that it tries.

use std::time::{Duration, Instant};

use crate::contract::{Carrier, Completion, Parameters, RetryAfter, Verdict};
use crate::error::Result;
use crate::http::{Answer, Finished, HttpPort, Wire};
use crate::ids::WireKey;
use crate::intents::AnswerClass;
use crate::time::{WallTime, show_duration};

use super::{Claim, Finding, Made, Probe, Report};

/// `Date` has whole seconds.
const DATE_STEP: Duration = Duration::from_secs(1);
/// Least and most time between two looks for an effect.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A probe at work.
pub(super) struct Play<'a> {
    pub(super) probe: &'a Probe<'a>,
    pub(super) port: &'a dyn HttpPort,
    report: Report,
    /// Every answer to the call itself, with what it was asked for.
    answers: Vec<(&'static str, Finished, Answer)>,
}

/// What looking for an effect came to.
enum Found {
    /// It showed: not before, and at the latest after.
    Shown { not_before: Duration, after: Duration },
    /// It did not, or not as one; the last look.
    Not(Verdict),
}

/// Tries all claims of the call.
pub(super) fn run(probe: &Probe<'_>, port: &dyn HttpPort) -> Result<Report> {
    let mut play = Play { probe, port, report: Report::default(), answers: Vec::new() };
    if probe.call.readback.is_some() {
        play.absent_before()?;
    }
    let key = probe.key("first");
    if let Some(answer) = play.first(&key)? {
        play.report.reached = true;
        if probe.call.proposal {
            play.proposal(&answer);
        }
        let shown = probe.call.readback.is_none() || play.shows_itself(&key)?;
        if probe.call.readback.is_some() && shown {
            play.only_its_own(&key)?;
        }
        if probe.call.dedupe.is_some() {
            play.same_again(&key, &answer, shown)?;
            play.other_body(&key, shown)?;
            play.at_once(shown)?;
        }
        if probe.call.refuses_copies() {
            play.copy_refused(&key)?;
        }
        play.fence(&key)?;
        play.undo(&key, &answer)?;
        play.malformed()?;
    }
    play.seen_on_the_way();
    Ok(play.report)
}

impl Play<'_> {
    pub(super) fn claim(&mut self, name: &'static str, says: impl Into<String>, finding: Finding, evidence: impl Into<String>) {
        self.report.claims.push(Claim { name, says: says.into(), finding, evidence: evidence.into() });
    }

    pub(super) fn lag(&self) -> Duration {
        self.probe.call.readback.as_ref().map(|r| r.lag).unwrap_or_default()
    }

    /// Makes the call; `None` where no whole answer came, with the reason.
    pub(super) fn call(
        &mut self,
        what: &'static str,
        key: &WireKey,
        parameters: &Parameters,
    ) -> Result<std::result::Result<Answer, String>> {
        let request = self.probe.render(key, parameters)?;
        let end = self.probe.send(self.port, request)?;
        Ok(self.took(what, key, end))
    }

    pub(super) fn took(&mut self, what: &'static str, key: &WireKey, end: Finished) -> std::result::Result<Answer, String> {
        self.made(key, &end.wire);
        match end.wire.clone() {
            Wire::Answered(answer) => {
                self.answers.push((what, end, answer.clone()));
                Ok(answer)
            }
            Wire::NotSent(why) => Err(format!("nothing was sent: {}", why.label())),
            Wire::MaybeSent(why) => Err(format!("no whole answer: {why}")),
        }
    }

    /// Lists what a call made, or may have made: no certain answer is no proof that nothing is there.
    fn made(&mut self, key: &WireKey, wire: &Wire) {
        let (certain, reference) = match wire {
            Wire::NotSent(_) => return,
            Wire::MaybeSent(_) => (false, None),
            Wire::Answered(answer) => match self.probe.call.classify(answer) {
                (AnswerClass::Applied | AnswerClass::InProgress, reference, _) => (true, reference),
                (AnswerClass::Unknown | AnswerClass::KeyConflict, reference, _) => (false, reference),
                _ => return,
            },
        };
        let key = key.to_string();
        match self.report.made.iter_mut().find(|m| m.key == key) {
            Some(m) => (m.certain, m.reference) = (m.certain || certain, m.reference.take().or(reference)),
            None => self.report.made.push(Made { key, reference, certain }),
        }
    }

    pub(super) fn read(&self, parameters: &Parameters, key: &WireKey) -> Result<Verdict> {
        Ok(self.probe.read(self.port, parameters, key)?.unwrap_or_else(Verdict::Incomplete))
    }

    /// Looks until an effect shows, three times as long as it may take.
    fn find(&self, key: &WireKey, since: Instant) -> Result<Found> {
        let patience = (self.lag() * 3).max(Duration::from_secs(1)).min(self.lag() + Duration::from_secs(60));
        let gap = (self.lag() / 20).clamp(LOOKS.0, LOOKS.1);
        let mut not_before = Duration::ZERO;
        loop {
            let asked = since.elapsed();
            match self.read(&self.probe.parameters, key)? {
                Verdict::One { .. } => return Ok(Found::Shown { not_before, after: since.elapsed() }),
                last @ (Verdict::Two { .. } | Verdict::OtherContent) => return Ok(Found::Not(last)),
                last if asked > patience => return Ok(Found::Not(last)),
                Verdict::Absent => not_before = asked,
                _ => {}
            }
            std::thread::sleep(gap);
        }
    }

    // ---- claims ----

    fn absent_before(&mut self) -> Result<()> {
        let says = "under a key that nobody used, a complete readback shows nothing";
        let verdict = match self.probe.read(self.port, &self.probe.parameters, &self.probe.key("unused"))? {
            Ok(verdict) => verdict,
            Err(why) => {
                self.claim("absent", says, Finding::NotTried, why);
                return Ok(());
            }
        };
        let (finding, evidence) = match &verdict {
            Verdict::Absent => (Finding::Holds, "nothing was shown, and the list says that it is complete".to_owned()),
            Verdict::Incomplete(why) => (Finding::DoesNotHold, format!("absence could not be believed: {why}")),
            other => (Finding::DoesNotHold, format!("{} was shown: `ours` does not compare the key", shown(other))),
        };
        self.claim("absent", says, finding, evidence);
        Ok(())
    }

    fn first(&mut self, key: &WireKey) -> Result<Option<Answer>> {
        let later = self.probe.call.completion != Completion::Sync;
        let says = if later { "the answer to a call reads as accepted" } else { "the answer to a call reads as applied" };
        let answer = match self.call("the first call", key, &self.probe.parameters)? {
            Ok(answer) => answer,
            Err(why) => {
                self.claim("applied", says, Finding::NotTried, why);
                return Ok(None);
            }
        };
        let (class, reference, _) = self.probe.call.classify(&answer);
        let good = class == AnswerClass::Applied || (later && class == AnswerClass::InProgress);
        let mut evidence = format!("{} reads as {}", answer.status, word(class));
        evidence += &reference.map(|r| format!(", reference {r}")).unwrap_or_default();
        self.claim("applied", says, if good { Finding::Holds } else { Finding::DoesNotHold }, evidence);
        Ok(Some(answer))
    }

    fn proposal(&mut self, answer: &Answer) {
        let (finding, evidence) = match self.probe.call.proposed(answer) {
            Ok(p) => (Finding::Holds, format!("{} characters, {} tokens", p.body.chars().count(), p.cost.tokens)),
            Err(why) => (Finding::DoesNotHold, why),
        };
        self.claim("proposal", "the answer holds the proposal where `proposal` says", finding, evidence);
    }

    fn shows_itself(&mut self, key: &WireKey) -> Result<bool> {
        let found = self.find(key, Instant::now())?;
        let says = "a readback finds the effect under its key";
        let lag = format!("it shows within {}", show_duration(self.lag()));
        match found {
            Found::Shown { not_before, after } => {
                self.claim("readback", says, Finding::Holds, "one effect is ours");
                let evidence = format!("it showed between {} and {} after the answer", millis(not_before), millis(after));
                let held = not_before <= self.lag();
                self.claim("lag", lag, if held { Finding::Holds } else { Finding::DoesNotHold }, evidence);
                Ok(true)
            }
            Found::Not(last) => {
                self.claim("readback", says, Finding::DoesNotHold, format!("{} was shown", shown(&last)));
                self.claim("lag", lag, Finding::NotTried, "it never showed");
                Ok(false)
            }
        }
    }

    /// A second operation with the same content: each must find its own, and only that.
    fn only_its_own(&mut self, key: &WireKey) -> Result<()> {
        let says = "`ours` takes its own effect only, also beside one with the same content";
        let second = self.probe.key("second");
        if let Err(why) = self.call("a second operation", &second, &self.probe.parameters)? {
            self.claim("ours", says, Finding::NotTried, why);
            return Ok(());
        }
        std::thread::sleep(self.lag());
        let (first, other) = (self.read(&self.probe.parameters, key)?, self.read(&self.probe.parameters, &second)?);
        let unused = self.read(&self.probe.parameters, &self.probe.key("unused"))?;
        let good = matches!((&first, &other, &unused), (Verdict::One { .. }, Verdict::One { .. }, Verdict::Absent));
        let evidence = format!("first: {}; second: {}; unused key: {}", shown(&first), shown(&other), shown(&unused));
        self.claim("ours", says, if good { Finding::Holds } else { Finding::DoesNotHold }, evidence);
        Ok(())
    }

    fn same_again(&mut self, key: &WireKey, first: &Answer, shown_before: bool) -> Result<()> {
        let says = "the same request under the same key has no second effect";
        let again = match self.call("the same again", key, &self.probe.parameters)? {
            Ok(answer) => answer,
            Err(why) => {
                self.claim("dedupe", says, Finding::NotTried, why);
                return Ok(());
            }
        };
        let (class, ..) = self.probe.call.classify(&again);
        let (finding, evidence) = self.one_effect(key, first, &again, shown_before)?;
        self.claim("dedupe", says, finding, evidence);
        let good = matches!(class, AnswerClass::Applied | AnswerClass::InProgress);
        let evidence = format!("{} reads as {}", again.status, word(class));
        let says = "the answer to the same request reads as applied";
        self.claim("dedupe answer", says, if good { Finding::Holds } else { Finding::DoesNotHold }, evidence);
        Ok(())
    }

    /// Whether two answers under one key stand for one effect: by readback, else by the references they name.
    fn one_effect(&mut self, key: &WireKey, a: &Answer, b: &Answer, readable: bool) -> Result<(Finding, String)> {
        if self.probe.call.readback.is_some() {
            if !readable {
                return Ok((Finding::NotTried, "the readback does not show the first one".to_owned()));
            }
            std::thread::sleep(self.lag());
            let verdict = self.read(&self.probe.parameters, key)?;
            let finding = if matches!(verdict, Verdict::One { .. }) { Finding::Holds } else { Finding::DoesNotHold };
            return Ok((finding, format!("answers {} and {}; {} is shown", a.status, b.status, shown(&verdict))));
        }
        let reference = |answer| self.probe.call.classify(answer).1;
        Ok(match (reference(a), reference(b)) {
            (Some(a), Some(b)) if a == b => (Finding::Holds, format!("both answers name {a}")),
            (Some(a), Some(b)) => (Finding::DoesNotHold, format!("one answer names {a}, the other {b}")),
            _ => (Finding::NotTried, "there is no readback, and not both answers name what they made".to_owned()),
        })
    }

    fn other_body(&mut self, key: &WireKey, readable: bool) -> Result<()> {
        let expected = self.probe.call.dedupe.as_ref().and_then(|d| d.other_body);
        let says = match expected {
            Some(status) => format!("another content under the same key is answered with {status}, and has no effect"),
            None => "another content under the same key has no effect".to_owned(),
        };
        let in_url = self.probe.call.key.carrier == Carrier::Url;
        let Some(other) = self.probe.other_parameters(key).filter(|_| !in_url) else {
            self.claim("other body", says, Finding::NotTried, "no other content could be made of these parameters");
            return Ok(());
        };
        let answer = match self.call("another content", key, &other)? {
            Ok(answer) => answer,
            Err(why) => {
                self.claim("other body", says, Finding::NotTried, why);
                return Ok(());
            }
        };
        let status = answer.status;
        let mut evidence = format!("answered with {status}");
        let mut finding = match expected {
            Some(s) if s == status => Finding::Holds,
            Some(_) => Finding::DoesNotHold,
            None => Finding::NotTried,
        };
        if self.probe.call.readback.is_some() && readable {
            std::thread::sleep(self.lag());
            let verdict = self.read(&other, key)?;
            evidence += &format!("; of the other content {} is shown", shown(&verdict));
            match verdict {
                Verdict::One { .. } | Verdict::Two { .. } => finding = Finding::DoesNotHold,
                Verdict::Absent | Verdict::OtherContent if finding == Finding::NotTried => finding = Finding::Holds,
                _ => {}
            }
        }
        self.claim("other body", says, finding, evidence);
        Ok(())
    }

    /// The same request twice at once: what is remembered only after the effect lets both through.
    fn at_once(&mut self, readable: bool) -> Result<()> {
        let key = self.probe.key("at-once");
        let request = || self.probe.render(&key, &self.probe.parameters);
        let (one, two) = (self.probe.start(self.port, request()?)?, self.probe.start(self.port, request()?)?);
        let (one, two) = (self.probe.wait(&one)?, self.probe.wait(&two)?);
        let (one, two) = (self.took("twice at once", &key, one), self.took("twice at once", &key, two));
        let says = "the same request twice at once has one effect";
        let (one, two) = match (one, two) {
            (Ok(one), Ok(two)) => (one, two),
            (Err(why), _) | (_, Err(why)) => {
                self.claim("at once", says, Finding::NotTried, why);
                return Ok(());
            }
        };
        let running = self.probe.call.dedupe.as_ref().and_then(|d| d.while_running);
        let told = running.is_some_and(|s| one.status == s || two.status == s);
        let (finding, evidence) = match self.one_effect(&key, &one, &two, readable)? {
            (Finding::NotTried, _) if told => (Finding::Holds, format!("answers {} and {}", one.status, two.status)),
            other => other,
        };
        self.claim("at once", says, finding, evidence);
        if let Some(status) = running {
            let says = format!("while the first is at work, the key is answered with {status}");
            let evidence = format!("answers {} and {}", one.status, two.status);
            match told {
                true => self.claim("while running", says, Finding::Holds, evidence),
                false => self.claim("while running", says, Finding::NotTried, evidence + ": neither met the other at work"),
            }
        }
        Ok(())
    }

    fn copy_refused(&mut self, key: &WireKey) -> Result<()> {
        let says = "a copy of the request is refused: its version is used up";
        let (finding, evidence) = match self.call("a copy", key, &self.probe.parameters)? {
            Err(why) => (Finding::NotTried, why),
            Ok(answer) => match self.probe.call.classify(&answer).0 {
                AnswerClass::Rejected | AnswerClass::PreconditionFailed => {
                    (Finding::Holds, format!("answered with {}", answer.status))
                }
                class => (Finding::DoesNotHold, format!("{} reads as {}", answer.status, word(class))),
            },
        };
        self.claim("precondition", says, finding, evidence);
        Ok(())
    }

    fn malformed(&mut self) -> Result<()> {
        let says = "a request that the target can't use reads as rejected";
        let key = self.probe.key("malformed");
        let Some(request) = self.probe.malformed(&key) else {
            self.claim("rejected", says, Finding::NotTried, "the request has no JSON object to spoil");
            return Ok(());
        };
        let end = self.probe.send(self.port, request)?;
        self.made(&key, &end.wire);
        let (finding, evidence) = match end.wire {
            Wire::Answered(answer) => {
                let (class, ..) = self.probe.call.classify(&answer);
                let finding = match class {
                    AnswerClass::Rejected => Finding::Holds,
                    AnswerClass::Unknown => Finding::DoesNotHold,
                    _ => Finding::NotTried,
                };
                (finding, format!("{} reads as {}", answer.status, word(class)))
            }
            other => (Finding::NotTried, format!("{other:?}")),
        };
        self.claim("rejected", says, finding, evidence);
        Ok(())
    }

    // ---- what all answers show ----

    fn seen_on_the_way(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let classify = |answer: &Answer| self.probe.call.classify(answer).0;
        let strange: Vec<String> = self
            .answers
            .iter()
            .filter(|(_, _, a)| classify(a) == AnswerClass::Unknown)
            .map(|(what, _, a)| format!("{} to {what}", a.status))
            .collect();
        let waits: Vec<&Answer> =
            self.answers.iter().map(|(_, _, a)| a).filter(|a| a.status == 429 || a.header("retry-after").is_some()).collect();
        let unread = waits.iter().filter(|a| a.header("retry-after").is_some() && RetryAfter::of(a).is_none()).count();
        let not_later = waits.iter().filter(|a| a.status == 429 && classify(a) != AnswerClass::RetryLater).count();
        let (count, waited) = (self.answers.len(), waits.len());
        let clock = self.clock();
        let says = "`answers` speaks of every answer that came";
        match strange.is_empty() {
            true => self.claim("answers", says, Finding::Holds, format!("{count} answers")),
            false => self.claim("answers", says, Finding::DoesNotHold, format!("unknown: {}", strange.join(", "))),
        }
        let says = "when the target asks to wait, it is understood";
        match (waited, unread + not_later) {
            (0, _) => self.claim("retry-after", says, Finding::NotTried, "it never asked"),
            (n, 0) => self.claim("retry-after", says, Finding::Holds, format!("{n} times")),
            (n, bad) => self.claim("retry-after", says, Finding::DoesNotHold, format!("{bad} of {n} times it was not")),
        }
        let says = format!("its clock and ours differ by at most {}", show_duration(self.probe.clock_error));
        match clock {
            None => self.claim("clock", says, Finding::NotTried, "no answer has a Date"),
            Some(d) if d.is_zero() => self.claim("clock", says, Finding::Holds, "no difference beyond what a Date can show"),
            Some(d) => self.claim("clock", says, Finding::DoesNotHold, format!("at least {} beyond it", millis(d))),
        }
    }

    /// How far the target's clock is surely off beyond ε, at its worst; a `Date` is the second in which it answered.
    fn clock(&self) -> Option<Duration> {
        let off = |end: &Finished, date: WallTime| {
            let (from, to) = (end.began.minus(self.probe.clock_error + DATE_STEP), end.ended.plus(self.probe.clock_error));
            from.since(date).max(date.since(to))
        };
        self.answers.iter().filter_map(|(_, end, _)| Some(off(end, end.target_date?))).max()
    }
}

pub(super) fn word(class: AnswerClass) -> &'static str {
    match class {
        AnswerClass::Applied => "applied",
        AnswerClass::NotApplied => "not applied",
        AnswerClass::InProgress => "in progress",
        AnswerClass::KeyConflict => "a key conflict",
        AnswerClass::PreconditionFailed => "another version",
        AnswerClass::Rejected => "rejected",
        AnswerClass::RetryLater => "retry later",
        AnswerClass::Unknown | AnswerClass::NotSent | AnswerClass::MaybeSent => "unknown",
    }
}

pub(super) fn shown(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Absent => "nothing".into(),
        Verdict::One { .. } => "one effect".into(),
        Verdict::Two { count } => format!("{count} effects"),
        Verdict::OtherContent => "our key with other content".into(),
        Verdict::Incomplete(why) => format!("nothing certain ({why})"),
        Verdict::NextPage(_) => "one more page".into(),
    }
}

fn millis(d: Duration) -> String {
    format!("{} ms", d.as_millis())
}
