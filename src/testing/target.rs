//! A fake target on a virtual clock. Calls are events that [`FakeTarget::pump`] plays when their time has come: connection, first
//! byte, arrival, answer; each can go wrong by a seeded [`FaultPlan`]. Its books say what really happened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::faults::{FaultPlan, PostFault, ReadFault};
use super::shop::{BookEntry, Cancelled, Shop, ShopRules, View};
use crate::http::{Answer, Done, Finished, HttpPort, NotSent, Outgoing, Wire};
use crate::intents::RenderedRequest;
use crate::time::{MonoTime, SharedClock, WallTime};

/// Says what a scripted path answers.
pub type Script = Box<dyn Fn(&RenderedRequest) -> Answer + Send>;

/// The far end of a call: whom to tell, by which clock, and whether that process still lives.
struct Caller {
    done: Done,
    clock: SharedClock,
    alive: Arc<AtomicBool>,
    began: WallTime,
}

/// What a request that arrives is answered with.
enum Reply {
    /// Nobody waits for it any more, or nobody hears it.
    Silence,
    /// The target's answer, this much later; where the status is named, with that one instead.
    After(Box<Caller>, Duration, Option<u16>),
}

/// What a sender must never do; the books show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tamper {
    /// A re-send is rendered anew.
    OtherBytes,
    /// A re-send has a key of its own.
    OtherKey,
    /// Connections take minutes, and nobody looks at the window before the first byte.
    NoWindow,
}

enum Event {
    Connected { call: Box<Outgoing>, ready: Box<dyn FnOnce() -> bool + Send>, caller: Box<Caller> },
    Arrived { request: RenderedRequest, view: Seen, reply: Reply },
    Over { caller: Box<Caller>, wire: Wire },
}

/// How old or whole a list will be.
#[derive(Clone, Copy)]
enum Seen {
    Whole,
    Older(Duration),
    Cut,
}

struct State {
    clock: SharedClock,
    core: Shop,
    plan: FaultPlan,
    events: BTreeMap<(MonoTime, u64), Event>,
    last: u64,
    /// Calls by method and key so far.
    calls: BTreeMap<(String, String), u32>,
    struck: BTreeMap<&'static str, u64>,
    scripts: Vec<(String, Script)>,
    tamper: Option<Tamper>,
}

/// The target. Clones are the same target.
#[derive(Clone)]
pub struct FakeTarget(Arc<Mutex<State>>);

/// One process's way to the target.
pub struct FakePort {
    target: FakeTarget,
    clock: SharedClock,
    alive: Arc<AtomicBool>,
}

const CUT: &str = "no answer in time";

impl FakeTarget {
    /// A target that lives by `clock`, with its rules and faults.
    pub fn new(clock: SharedClock, rules: ShopRules, plan: FaultPlan) -> Self {
        Self(Arc::new(Mutex::new(State {
            clock,
            core: Shop::new(rules),
            plan,
            events: BTreeMap::new(),
            last: 0,
            calls: BTreeMap::new(),
            struck: BTreeMap::new(),
            scripts: Vec::new(),
            tamper: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port of a process whose own clock is `clock`.
    pub fn port(&self, clock: SharedClock) -> Arc<FakePort> {
        Arc::new(FakePort { target: self.clone(), clock, alive: Arc::new(AtomicBool::new(true)) })
    }

    /// Answers this path by script instead of as a shop: a model server, say. Faults strike it all the same.
    pub fn script(&self, path: &str, script: Script) {
        self.state().scripts.push((path.to_owned(), script));
    }

    /// Every sender does this wrong from now on.
    pub fn tamper(&self, how: Tamper) {
        self.state().tamper = Some(how);
    }

    /// When the next event is due, by the target's clock.
    pub fn next_due(&self) -> Option<MonoTime> {
        self.state().events.keys().next().map(|(at, _)| *at)
    }

    /// Plays every event whose time has come; says how many.
    pub fn pump(&self) -> usize {
        let mut played = 0;
        loop {
            let mut state = self.state();
            let now = state.clock.now();
            let Some(first) = state.events.first_entry().filter(|e| e.key().0 <= now.mono) else { return played };
            let event = first.remove();
            let over = state.play(event);
            drop(state); // Whoever is told may call again.
            if let Some((caller, wire)) = over {
                tell(*caller, wire, now.wall);
            }
            played += 1;
        }
    }

    /// What really exists.
    pub fn books(&self) -> Vec<BookEntry> {
        self.state().core.books()
    }

    /// What was really cancelled.
    pub fn cancelled(&self) -> Vec<Cancelled> {
        self.state().core.cancelled()
    }

    /// Whether an order stands under this key, uncancelled.
    pub fn stands(&self, key: &str) -> bool {
        self.state().core.stands(key)
    }

    /// How often each fault struck.
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        self.state().struck.clone()
    }
}

fn tell(caller: Caller, wire: Wire, shown: WallTime) {
    if !caller.alive.load(Ordering::SeqCst) {
        return;
    }
    let now = caller.clock.now().wall;
    let date = matches!(wire, Wire::Answered(_)).then_some(shown);
    (caller.done)(Finished { wire, began: caller.began, ended: now, target_date: date });
}

impl FakePort {
    /// The process dies: what is not on the wire yet never leaves, and nobody hears of what is.
    pub fn kill(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }
}

impl HttpPort for FakePort {
    fn start(&self, call: Outgoing, ready: Box<dyn FnOnce() -> bool + Send>, done: Done) {
        let began = self.clock.now().wall;
        let caller = Box::new(Caller { done, clock: self.clock.clone(), alive: self.alive.clone(), began });
        let mut state = self.target.state();
        let nth = state.calls.get(&ident(&call.request)).copied().unwrap_or(0);
        let mut connect = state.time("connect", &key_of(&call.request), nth, 1, 5);
        if state.tamper == Some(Tamper::NoWindow) && nth == 0 && call.request.method == "POST" {
            connect *= 30_000;
        }
        state.after(connect, Event::Connected { call: Box::new(call), ready, caller });
    }
}

impl State {
    fn after(&mut self, d: Duration, event: Event) {
        self.last += 1;
        let at = self.clock.now().mono.plus(d);
        self.events.insert((at, self.last), event);
    }

    fn time(&self, what: &str, key: &str, nth: u32, from: u64, to: u64) -> Duration {
        self.plan.time(what, key, nth, Duration::from_millis(from), Duration::from_millis(to))
    }

    fn play(&mut self, event: Event) -> Option<(Box<Caller>, Wire)> {
        match event {
            Event::Over { caller, wire } => Some((caller, wire)),
            Event::Connected { call, ready, caller } => self.connected(*call, ready, caller),
            Event::Arrived { request, view, reply } => {
                self.arrived(&request, view, reply);
                None
            }
        }
    }

    /// The connection stands: the last moment at which nothing has left.
    fn connected(
        &mut self,
        call: Outgoing,
        ready: Box<dyn FnOnce() -> bool + Send>,
        mut caller: Box<Caller>,
    ) -> Option<(Box<Caller>, Wire)> {
        let now = caller.clock.now();
        caller.began = now.wall;
        if !caller.alive.load(Ordering::SeqCst) {
            return None;
        }
        if self.tamper != Some(Tamper::NoWindow) && call.not_after.is_some_and(|end| now.wall > end.wall || now.mono > end.mono) {
            return Some((caller, Wire::NotSent(NotSent::WindowOver)));
        }
        let nth = self.calls.entry(ident(&call.request)).or_default();
        *nth += 1;
        let (nth, key) = (*nth, key_of(&call.request));
        if call.request.method == "GET" {
            return ready_or_burned(ready, caller).map_or_else(Some, |caller| {
                self.read(call, &key, nth, caller);
                None
            });
        }
        let fault = self.plan.post(&key, nth);
        *self.struck.entry(fault.word()).or_default() += 1;
        if fault == PostFault::Refused {
            return Some((caller, Wire::NotSent(NotSent::Unconnected)));
        }
        ready_or_burned(ready, caller).map_or_else(Some, |caller| {
            self.post(call, &key, nth, fault, caller);
            None
        })
    }

    fn post(&mut self, call: Outgoing, key: &str, nth: u32, fault: PostFault, caller: Box<Caller>) {
        let there = self.time("there", key, nth, 1, 10);
        let back = self.time("back", key, nth, 1, 10);
        let late = self.plan.time("late", key, nth, self.plan.rates.arrival / 2, self.plan.rates.arrival);
        let (cut, mut request) = (call.limits.cut, call.request);
        if nth > 1 {
            self.tamper.iter().for_each(|how| tampered(&mut request, *how));
        }
        let arrives = |reply| Event::Arrived { request: request.clone(), view: Seen::Whole, reply };
        let gone = |caller| Event::Over { caller, wire: Wire::MaybeSent(CUT.to_owned()) };
        match fault {
            PostFault::None | PostFault::Refused => self.after(there, arrives(Reply::After(caller, back, None))),
            PostFault::ErrorAfter => self.after(there, arrives(Reply::After(caller, back, Some(500)))),
            PostFault::RequestLost => self.after(cut, gone(caller)),
            PostFault::AnswerLost => {
                self.after(there, arrives(Reply::Silence));
                self.after((there + back).min(cut), Event::Over { caller, wire: Wire::MaybeSent("connection reset".to_owned()) });
            }
            PostFault::LateAnswer => {
                self.after(there, arrives(Reply::Silence));
                self.after(cut, gone(caller));
            }
            PostFault::LateApply => {
                self.after(late, arrives(Reply::Silence));
                self.after(cut, gone(caller));
            }
            PostFault::TooMany => self.after(there + back, Event::Over { caller, wire: later(429) }),
            PostFault::Unavailable => self.after(there + back, Event::Over { caller, wire: later(503) }),
            PostFault::Duplicated => {
                self.after(late, arrives(Reply::Silence));
                self.after(there, arrives(Reply::After(caller, back, None)));
            }
        }
    }

    fn read(&mut self, call: Outgoing, key: &str, nth: u32, caller: Box<Caller>) {
        let fault = self.plan.read(key, nth);
        *self.struck.entry(fault.word()).or_default() += 1;
        let there = self.time("there", key, nth, 1, 10);
        let back = self.time("back", key, nth, 1, 10);
        let view = match fault {
            ReadFault::Stale => Seen::Older(self.plan.rates.staleness),
            ReadFault::Incomplete => Seen::Cut,
            _ => Seen::Whole,
        };
        match fault {
            ReadFault::Lost => self.after(call.limits.cut, Event::Over { caller, wire: Wire::MaybeSent(CUT.to_owned()) }),
            ReadFault::Unavailable => self.after(there + back, Event::Over { caller, wire: later(503) }),
            _ => self.after(there, Event::Arrived { request: call.request, view, reply: Reply::After(caller, back, None) }),
        }
    }

    fn arrived(&mut self, request: &RenderedRequest, view: Seen, reply: Reply) {
        let now = self.clock.now().wall;
        let view = match view {
            Seen::Whole => View::Whole,
            Seen::Older(by) => View::AsOf(now.minus(by)),
            Seen::Cut => View::Cut,
        };
        let scripted = self.scripts.iter().find(|(path, _)| *path == request.path).map(|(_, script)| script(request));
        let mut answer = scripted.unwrap_or_else(|| self.core.handle(request, view, now));
        if let Reply::After(caller, d, status) = reply {
            answer.status = status.unwrap_or(answer.status);
            self.after(d, Event::Over { caller, wire: Wire::Answered(answer) });
        }
    }
}

fn tampered(request: &mut RenderedRequest, how: Tamper) {
    let Some(mut body) = request.body.as_deref().and_then(|b| serde_json::from_slice::<serde_json::Value>(b).ok()) else { return };
    match (how, body["quantity"].as_i64(), body["client_ref"].as_str()) {
        (Tamper::OtherBytes, Some(n), _) => body["quantity"] = (n % 1000 + 1).into(),
        (Tamper::OtherKey, _, Some(key)) => body["client_ref"] = format!("{key}-again").into(),
        _ => return,
    }
    request.body = Some(body.to_string().into_bytes());
}

/// Asks the owner for the last time; what it took back never leaves.
fn ready_or_burned(ready: Box<dyn FnOnce() -> bool + Send>, caller: Box<Caller>) -> Result<Box<Caller>, (Box<Caller>, Wire)> {
    if ready() { Ok(caller) } else { Err((caller, Wire::NotSent(NotSent::Burned))) }
}

/// An answer that asks to come back in a second.
fn later(status: u16) -> Wire {
    Wire::Answered(Answer { status, headers: vec![("retry-after".to_owned(), "1".to_owned())], body: bytes::Bytes::new() })
}

fn ident(request: &RenderedRequest) -> (String, String) {
    (request.method.clone(), key_of(request))
}

/// What tells one operation's calls from another's: the reference of an order, else the whole request.
fn key_of(request: &RenderedRequest) -> String {
    if let Some(key) = request.query.strip_prefix("ref=") {
        return key.to_owned();
    }
    let body: Option<serde_json::Value> = request.body.as_deref().and_then(|b| serde_json::from_slice(b).ok());
    match body.as_ref().and_then(|b| b["client_ref"].as_str()) {
        Some(key) => key.to_owned(),
        None => request.sha256(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{CallLimits, Destination, Via};
    use crate::testing::faults::FaultRates;
    use crate::time::{Clock, ManualClock, Now};

    const ARRIVAL: Duration = Duration::from_secs(5);
    const CUT_AFTER: Duration = Duration::from_secs(2);

    struct World {
        clock: Arc<ManualClock>,
        target: FakeTarget,
        port: Arc<FakePort>,
        heard: Arc<Mutex<Vec<Finished>>>,
    }

    fn world(rates: FaultRates) -> World {
        let clock = Arc::new(ManualClock::at(Now::default().plus(Duration::from_secs(1_000))));
        let rates = FaultRates { arrival: ARRIVAL, staleness: Duration::from_secs(1), ..rates };
        let target = FakeTarget::new(clock.clone(), ShopRules::default(), FaultPlan { seed: 1, rates });
        let port = target.port(clock.clone());
        World { clock, target, port, heard: Arc::default() }
    }

    fn always(fault: PostFault) -> World {
        world(FaultRates { posts: vec![(fault, 1000)], ..FaultRates::default() })
    }

    impl World {
        fn start(&self, request: RenderedRequest, not_after: Option<Now>, ready: bool) {
            let to = Arc::new(Destination { base_url: "http://shop".into(), hosts: vec!["shop".into()], private: true });
            let limits = CallLimits { connect: CUT_AFTER, cut: CUT_AFTER, body: 1 << 20 };
            let heard = self.heard.clone();
            let done: Done = Box::new(move |f| heard.lock().expect("not poisoned").push(f));
            let call = Outgoing { to, request, secret_headers: Vec::new(), not_after, via: Via::Own, limits };
            self.port.start(call, Box::new(move || ready), done);
        }
        fn order(&self, key: &str) {
            self.start(order(key), None, true);
        }
        /// Moves the clock from event to event, up to `d` from now.
        fn run(&self, d: Duration) {
            let end = self.clock.now().plus(d);
            while let Some(due) = self.target.next_due().filter(|due| *due <= end.mono) {
                self.clock.advance(due.since(self.clock.now().mono));
                self.target.pump();
            }
            self.clock.set(end);
        }
        fn heard(&self) -> Vec<Wire> {
            self.heard.lock().expect("not poisoned").drain(..).map(|f| f.wire).collect()
        }
    }

    fn order(key: &str) -> RenderedRequest {
        let body = serde_json::json!({ "client_ref": key, "sku": "A-1", "quantity": 2 }).to_string();
        RenderedRequest {
            method: "POST".into(),
            path: "/orders".into(),
            body: Some(body.into_bytes()),
            ..RenderedRequest::default()
        }
    }

    fn list(key: &str) -> RenderedRequest {
        RenderedRequest { method: "GET".into(), path: "/orders".into(), query: format!("ref={key}"), ..RenderedRequest::default() }
    }

    fn status(wire: &Wire) -> u16 {
        match wire {
            Wire::Answered(a) => a.status,
            other => panic!("no answer but {other:?}"),
        }
    }

    /// If this broke, a fault would do another thing than its name says, and what the stage is tested against would be a story.
    #[test]
    fn each_fault_does_what_it_says() {
        use PostFault::*;
        let outcomes = [
            (None, "201", 1),
            (Refused, "not sent", 0),
            (RequestLost, "maybe", 0),
            (AnswerLost, "maybe", 1),
            (ErrorAfter, "500", 1),
            (LateAnswer, "maybe", 1),
            (LateApply, "maybe", 1),
            (TooMany, "429", 0),
            (Unavailable, "503", 0),
            (Duplicated, "201", 2),
        ];
        for (fault, said, effects) in outcomes {
            let w = always(fault);
            w.order("k");
            w.run(ARRIVAL * 2);
            let heard = match w.heard().as_slice() {
                [Wire::NotSent(NotSent::Unconnected)] => "not sent".to_owned(),
                [Wire::MaybeSent(_)] => "maybe".to_owned(),
                [answered] => status(answered).to_string(),
                all => panic!("{fault:?}: told {} times", all.len()),
            };
            assert_eq!((heard.as_str(), w.target.books().len()), (said, effects), "{fault:?}");
        }
    }

    /// If this broke, no test would meet a request that arrives after its sender gave up, and settling would look needless.
    #[test]
    fn a_late_request_is_applied_after_the_client_has_gone_but_within_l() {
        let w = always(PostFault::LateApply);
        w.order("k");
        w.run(CUT_AFTER + Duration::from_millis(10));
        assert_eq!((w.heard().len(), w.target.books().len()), (1, 0));
        w.run(ARRIVAL - CUT_AFTER);
        assert_eq!(w.target.books().len(), 1);
    }

    /// If this broke, an attempt that was taken back, or whose window is over, could still reach the target.
    #[test]
    fn what_may_not_leave_does_not_leave() {
        let w = always(PostFault::None);
        w.start(order("burned"), None, false);
        w.start(order("late"), Some(w.clock.now()), true);
        w.order("dies");
        w.port.kill();
        w.run(ARRIVAL);
        assert!(w.heard().is_empty() && w.target.books().is_empty(), "a dead process sends nothing and hears nothing");

        let w = always(PostFault::None);
        w.start(order("burned"), None, false);
        w.start(order("late"), Some(w.clock.now()), true);
        w.run(ARRIVAL);
        let told = w.heard();
        assert!(told.contains(&Wire::NotSent(NotSent::Burned)) && told.contains(&Wire::NotSent(NotSent::WindowOver)), "{told:?}");
        assert!(w.target.books().is_empty());
    }

    /// If this broke, a request on the wire would vanish with its sender, and no test would meet a crash after sending.
    #[test]
    fn what_is_on_the_wire_survives_its_sender() {
        let w = always(PostFault::None);
        w.order("k");
        let connected = w.target.next_due().expect("the connection");
        w.run(connected.since(w.clock.now().mono));
        w.port.kill();
        w.run(ARRIVAL);
        assert!(w.heard().is_empty());
        assert_eq!(w.target.books().len(), 1);
    }

    /// If this broke, lists would be whole and fresh always, and absence would look easy to prove.
    #[test]
    fn lists_can_be_stale_or_cut() {
        let read = |fault| {
            let w = world(FaultRates { reads: vec![(fault, 1000)], ..FaultRates::default() });
            w.order("k");
            w.run(Duration::from_millis(100));
            w.heard();
            w.start(list("k"), None, true);
            w.run(CUT_AFTER * 2);
            w.heard().remove(0)
        };
        let body = |wire: Wire| match wire {
            Wire::Answered(a) => serde_json::from_slice::<serde_json::Value>(&a.body).expect("json"),
            other => panic!("{other:?}"),
        };
        assert_eq!(body(read(ReadFault::None))["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(body(read(ReadFault::Stale))["items"].as_array().map(Vec::len), Some(0));
        assert!(body(read(ReadFault::Incomplete))["next"].is_string());
        assert_eq!(status(&read(ReadFault::Unavailable)), 503);
        assert!(matches!(read(ReadFault::Lost), Wire::MaybeSent(_)));
    }

    /// If this broke, a model server could not be played beside the shop.
    #[test]
    fn a_script_answers_its_path() {
        let w = always(PostFault::None);
        let said = Answer { status: 200, headers: Vec::new(), body: bytes::Bytes::from_static(b"{}") };
        let answer = said.clone();
        w.target.script("/v1/chat/completions", Box::new(move |_| answer.clone()));
        w.start(RenderedRequest { path: "/v1/chat/completions".into(), ..order("k") }, None, true);
        w.run(ARRIVAL);
        assert_eq!(w.heard(), [Wire::Answered(said)]);
        assert!(w.target.books().is_empty());
    }
}
