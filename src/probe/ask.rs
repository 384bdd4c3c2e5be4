//! Single calls, waited for.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::contract::{Parameters, Protocol, Verdict};
use crate::error::{Error, Fault, Result, codes};
use crate::http::{Answer, CallLimits, Destination, Finished, HttpPort, Outgoing, Via, Wire};
use crate::ids::{OperationId, OperationKey, WireKey};
use crate::intents::RenderedRequest;
use crate::time::{Clock, SystemClock};

use super::Probe;

impl Probe<'_> {
    /// A key of its own for each effect; nobody has used it before.
    pub(super) fn key(&self, what: &str) -> WireKey {
        let fresh = uuid::Uuid::new_v4().to_string();
        let operation = OperationKey {
            tenant: "probe".into(),
            operation: OperationId::from(format!("probe-{what}-{fresh}")),
            step: "probe".into(),
        };
        self.call.wire_key(fresh.as_bytes(), &operation)
    }

    pub(super) fn render(&self, key: &WireKey, parameters: &Parameters) -> Result<RenderedRequest> {
        let request = self.call.render(parameters, key, self.resource_version.as_deref())?;
        self.stamped(key, request, SystemClock.now().wall)
    }

    /// Starts a call; its end comes by the channel.
    pub(super) fn start(&self, port: &dyn HttpPort, request: RenderedRequest) -> Result<Receiver<Finished>> {
        let target = &self.contract.target;
        let secret =
            |c: &crate::contract::Credentials| Ok((c.header.clone(), format!("{}{}", c.prefix, c.secret.resolve()?.expose())));
        let budget = &self.call.budget;
        let call = Outgoing {
            to: Arc::new(Destination { base_url: target.base_url.clone(), hosts: target.hosts.clone(), private: target.private }),
            request,
            secret_headers: target.credentials.iter().map(secret).collect::<Result<_>>()?,
            not_after: None,
            via: match target.protocol {
                Protocol::Http2 => Via::Http2,
                Protocol::Http1 | Protocol::Auto => Via::Own,
            },
            limits: CallLimits { connect: budget.connect, cut: budget.timeout, body: budget.answer },
        };
        let (tell, told) = channel();
        port.start(call, Box::new(|| true), Box::new(move |end| drop(tell.send(end))));
        Ok(told)
    }

    pub(super) fn wait(&self, told: &Receiver<Finished>) -> Result<Finished> {
        let limit = self.call.budget.connect + self.call.budget.timeout * 2;
        told.recv_timeout(limit).map_err(|e| Error::new(codes::BUG, Fault::Bug, "waiting for the end of a call").because(e))
    }

    /// Makes a call and waits for its end.
    pub(super) fn send(&self, port: &dyn HttpPort, request: RenderedRequest) -> Result<Finished> {
        let told = self.start(port, request)?;
        self.wait(&told)
    }

    /// Reads an effect back, page by page; the error says why no whole answer came.
    pub(super) fn read(
        &self,
        port: &dyn HttpPort,
        parameters: &Parameters,
        key: &WireKey,
    ) -> Result<std::result::Result<Verdict, String>> {
        let mut pages: Vec<Answer> = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let request = self.call.render_readback(parameters, key, token.as_deref())?;
            match self.send(port, request)?.wire {
                Wire::Answered(page) => pages.push(page),
                Wire::NotSent(why) => return Ok(Err(format!("nothing was sent: {}", why.label()))),
                Wire::MaybeSent(why) => return Ok(Err(format!("no whole answer: {why}"))),
            }
            match self.call.judge(&pages, parameters, key) {
                Verdict::NextPage(next) => token = Some(next),
                verdict => return Ok(Ok(verdict)),
            }
        }
    }
}
