//! The network of the driver: answers come from a script, by call.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::contract::Contract;
use crate::error::{Error, Fault, Result, codes};
use crate::http::{Answer, Done, Finished, HttpPort, NotSent, Outgoing, Wire};
use crate::ids::ContractName;
use crate::intents::RenderedRequest;
use crate::time::SharedClock;

/// What becomes of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scripted {
    /// A whole answer. `{key}` in its body is the key that a readback asked for, or that the call's last request carried.
    Answer(Answer),
    /// The request may have left, and no answer comes.
    Lost,
    /// The connection is refused: nothing left.
    Refused,
}

struct Waiting {
    call: Box<Outgoing>,
    ready: Box<dyn FnOnce() -> bool + Send>,
    done: Done,
}

/// A simulated target: what becomes of a call, by its name and request.
pub type Served = Box<dyn FnMut(&str, &RenderedRequest) -> Scripted + Send>;

#[derive(Default)]
struct State {
    served: Option<Served>,
    scripts: BTreeMap<String, VecDeque<Scripted>>,
    waiting: VecDeque<Waiting>,
    /// By call: the key that its last request carried in its body.
    keys: BTreeMap<String, String>,
}

/// Takes calls and answers them by script, when it is told to.
pub(super) struct ScriptedPort {
    contracts: BTreeMap<ContractName, Arc<Contract>>,
    clock: SharedClock,
    state: Mutex<State>,
}

impl ScriptedPort {
    pub(super) fn new(contracts: BTreeMap<ContractName, Arc<Contract>>, clock: SharedClock) -> Self {
        Self { contracts, clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of the next call of this name: `orders#create`, `orders#create/readback`, `orders#create/version`.
    pub(super) fn script(&self, call: &str, what: Scripted) {
        self.state().scripts.entry(call.to_owned()).or_default().push_back(what);
    }

    /// How many answers of this call wait.
    pub(super) fn waiting(&self, call: &str) -> usize {
        self.state().scripts.get(call).map_or(0, VecDeque::len)
    }

    /// Drops the oldest answers of this call that nobody came for, until so many are left.
    pub(super) fn drop_to(&self, call: &str, left: usize) {
        if let Some(answers) = self.state().scripts.get_mut(call) {
            answers.drain(..answers.len().saturating_sub(left));
        }
    }

    /// What answers calls that have no script.
    pub(super) fn serve(&self, target: Served) {
        self.state().served = Some(target);
    }

    /// A call whose script nobody came for.
    pub(super) fn left(&self) -> Option<String> {
        self.state().scripts.iter().find(|(_, answers)| !answers.is_empty()).map(|(call, _)| call.clone())
    }

    /// Plays every call that waits; says whether there was one. An unscripted one is an error that names it.
    pub(super) fn pump(&self) -> Result<bool> {
        let mut played = false;
        loop {
            let Some(Waiting { call, ready, done }) = self.state().waiting.pop_front() else { return Ok(played) };
            played = true;
            let now = self.clock.now().wall;
            let finished = |wire| Finished { wire, began: now, ended: now, target_date: None };
            let (name, key) = self.name(&call);
            let script = self.state().scripts.get_mut(&name).and_then(VecDeque::pop_front);
            if script.is_none() && self.state().served.is_none() {
                done(finished(Wire::NotSent(NotSent::Unconnected)));
                return Err(unscripted(&name, &call));
            }
            let wire = match script {
                Some(Scripted::Refused) => Wire::NotSent(NotSent::Unconnected),
                _ if !ready() => Wire::NotSent(NotSent::Burned),
                Some(what) => what.wire(key.as_deref()),
                None => self.served(&name, &call.request),
            };
            done(finished(wire));
        }
    }

    /// What the simulated target makes of it.
    fn served(&self, name: &str, request: &RenderedRequest) -> Wire {
        match &mut self.state().served {
            Some(target) => target(name, request).wire(None),
            None => Wire::NotSent(NotSent::Unconnected),
        }
    }

    /// Which call this is, and the key that it asks for.
    fn name(&self, call: &Outgoing) -> (String, Option<String>) {
        let here = self.contracts.values().filter(|c| c.target.base_url == call.to.base_url);
        for (contract, spec) in here.flat_map(|c| c.calls.values().map(move |spec| (c, spec))) {
            let name = format!("{}#{}", contract.name, spec.name);
            if spec.could_be(&call.request) {
                let key = call.request.body.as_deref().and_then(uuid_in);
                self.state().keys.extend(key.map(|key| (name.clone(), key)));
                return (name, None);
            }
            if let Some(asked) = spec.could_be_readback(&call.request) {
                let key = asked.or_else(|| uuid_in(call.request.path.as_bytes()));
                let key = key.or_else(|| self.state().keys.get(&name).cloned());
                return (format!("{name}/readback"), key);
            }
            if spec.could_be_version_read(&call.request) {
                return (format!("{name}/version"), None);
            }
        }
        (format!("{} {}", call.request.method, call.request.path), None)
    }
}

impl Scripted {
    fn wire(self, key: Option<&str>) -> Wire {
        match self {
            Scripted::Refused => Wire::NotSent(NotSent::Unconnected),
            Scripted::Lost => Wire::MaybeSent("no answer in time".to_owned()),
            Scripted::Answer(answer) => Wire::Answered(filled(answer, key)),
        }
    }
}

impl HttpPort for ScriptedPort {
    fn start(&self, call: Outgoing, ready: Box<dyn FnOnce() -> bool + Send>, done: Done) {
        self.state().waiting.push_back(Waiting { call: Box::new(call), ready, done });
    }
}

/// The first UUID in a path or body: the key, where the readback asks by path, or for a whole list and finds it by a marker.
fn uuid_in(body: &[u8]) -> Option<String> {
    let hyphens = |w: &&[u8]| [8, 13, 18, 23].iter().all(|i| w[*i] == b'-');
    body.windows(36).filter(hyphens).find_map(|w| uuid::Uuid::try_parse_ascii(w).ok()).map(|key| key.to_string())
}

fn filled(mut answer: Answer, key: Option<&str>) -> Answer {
    if let (Some(key), Ok(text)) = (key, std::str::from_utf8(&answer.body)) {
        answer.body = Bytes::from(text.replace("{key}", key));
    }
    answer
}

fn unscripted(name: &str, call: &Outgoing) -> Error {
    let doing = format!("answering {name}: {} {} has no answer in the script", call.request.method, call.request.path);
    Error::new(codes::UNEXPECTED_OUTPUT, Fault::Verdict, doing)
        .next(format!("add a line before it: {{\"target\": \"{name}\", \"answer\": {{\"status\": 200, \"body\": {{}}}}}}"))
}
