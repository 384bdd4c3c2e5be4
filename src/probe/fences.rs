//! What the target refuses by itself, and what undoes an effect.

use crate::contract::{Call, Fence, Parameters, Verdict};
use crate::error::Result;
use crate::http::{Answer, Wire};
use crate::ids::WireKey;
use crate::intents::{AnswerClass, Pair, RenderedRequest};
use crate::time::{Clock, SystemClock, WallTime, show_duration};

use super::play::{Play, shown, word};
use super::{Finding, Probe};

impl Probe<'_> {
    /// The request as an attempt of this time carries it: with its time and its signature, where the contract has them.
    pub(super) fn stamped(&self, key: &WireKey, mut request: RenderedRequest, at: WallTime) -> Result<RenderedRequest> {
        let Some((header, stamp)) = self.call.stamp(at) else { return Ok(request) };
        let signature = self.call.signature(&stamp, key, &request)?;
        let all = [(header, stamp)].into_iter().chain(signature);
        request.headers.extend(all.map(|(name, value)| Pair { name, value }));
        Ok(request)
    }
}

impl Play<'_> {
    /// Tries the fence that the contract declares; `key` is taken by the first call.
    pub(super) fn fence(&mut self, key: &WireKey) -> Result<()> {
        match &self.probe.call.fence {
            Some(Fence::Create(_)) => self.taken(key),
            Some(Fence::Age(age)) => {
                let old = SystemClock.now().wall.minus(age.within + self.probe.clock_error * 2);
                self.too_old(old, show_duration(age.within))
            }
            None => Ok(()),
        }
    }

    fn taken(&mut self, key: &WireKey) -> Result<()> {
        let says = "a second one under the same ID is refused, and makes nothing";
        let (finding, evidence) = match self.call("the same ID again", key, &self.probe.parameters)? {
            Err(why) => (Finding::NotTried, why),
            Ok(answer) => {
                let class = self.probe.call.classify(&answer).0;
                let refused = class == AnswerClass::KeyConflict;
                self.and_shown(key, &answer, class, refused, |v| matches!(v, Verdict::One { .. }))?
            }
        };
        self.claim("fence", says, finding, evidence);
        Ok(())
    }

    fn too_old(&mut self, at: WallTime, within: String) -> Result<()> {
        let says = format!("a request that is older than {within} is refused, and makes nothing");
        let key = self.probe.key("old");
        let request = self.probe.call.render(&self.probe.parameters, &key, self.probe.resource_version.as_deref())?;
        let end = self.probe.send(self.port, self.probe.stamped(&key, request, at)?)?;
        let (finding, evidence) = match self.took("an old request", &key, end) {
            Err(why) => (Finding::NotTried, why),
            Ok(answer) => {
                let class = self.probe.call.classify(&answer).0;
                let refused = class == AnswerClass::RetryLater;
                self.and_shown(&key, &answer, class, refused, |v| *v == Verdict::Absent)?
            }
        };
        self.claim("fence", says, finding, evidence);
        Ok(())
    }

    /// A refusal counts where the readback agrees.
    fn and_shown(
        &self,
        key: &WireKey,
        answer: &Answer,
        class: AnswerClass,
        refused: bool,
        agrees: impl Fn(&Verdict) -> bool,
    ) -> Result<(Finding, String)> {
        let mut evidence = format!("{} reads as {}", answer.status, word(class));
        let mut holds = refused;
        if self.probe.call.readback.is_some() {
            std::thread::sleep(self.lag());
            let verdict = self.read(&self.probe.parameters, key)?;
            evidence += &format!("; {} is shown", shown(&verdict));
            holds &= agrees(&verdict);
        }
        Ok((if holds { Finding::Holds } else { Finding::DoesNotHold }, evidence))
    }

    /// Undoes the first effect, as a cancel that comes too late would.
    pub(super) fn undo(&mut self, key: &WireKey, first: &Answer) -> Result<()> {
        let Some(named) = &self.probe.call.compensate else { return Ok(()) };
        let says = format!("what was made is undone by `{}`", named.call);
        let Some(undo) = self.probe.contract.call(&named.call) else { return Ok(()) };
        let shown = match self.probe.call.readback {
            Some(_) => match self.read(&self.probe.parameters, key)? {
                Verdict::One { reference, .. } => reference,
                _ => None,
            },
            None => None,
        };
        let reference = self.probe.call.classify(first).1.or(shown);
        let (finding, evidence) = match self.probe.call.undone_by(undo, &self.probe.parameters, key, reference.as_deref()) {
            Err(why) => (Finding::DoesNotHold, why),
            Ok(made) => self.undone(undo, &made.parameters, &made.wire_key, made.request)?,
        };
        self.claim("compensate", says, finding, evidence);
        Ok(())
    }

    fn undone(&self, undo: &Call, parameters: &Parameters, key: &WireKey, request: RenderedRequest) -> Result<(Finding, String)> {
        let probe = Probe {
            contract: self.probe.contract,
            call: undo,
            parameters: parameters.clone(),
            resource_version: None,
            clock_error: self.probe.clock_error,
        };
        let request = probe.stamped(key, request, SystemClock.now().wall)?;
        let answer = match probe.send(self.port, request)?.wire {
            Wire::Answered(answer) => answer,
            Wire::NotSent(why) => return Ok((Finding::NotTried, format!("nothing was sent: {}", why.label()))),
            Wire::MaybeSent(why) => return Ok((Finding::NotTried, format!("no whole answer: {why}"))),
        };
        let class = undo.classify(&answer).0;
        let mut evidence = format!("{} reads as {}", answer.status, word(class));
        let mut holds = matches!(class, AnswerClass::Applied | AnswerClass::InProgress);
        if let Some(readback) = &undo.readback {
            std::thread::sleep(readback.lag);
            let verdict = probe.read(self.port, parameters, key)?.unwrap_or_else(Verdict::Incomplete);
            evidence += &format!("; of the undoing {} is shown", shown(&verdict));
            holds &= matches!(verdict, Verdict::One { .. });
        }
        Ok((if holds { Finding::Holds } else { Finding::DoesNotHold }, evidence))
    }
}
