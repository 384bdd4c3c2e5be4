//! The network of a bench: calls wait for the test's answer.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::http::{Answer, Done, Finished, HttpPort, Outgoing, Wire};
use crate::time::{Clock, ManualClock, Now, WallTime};

struct Call {
    outgoing: Outgoing,
    ready: Option<Box<dyn FnOnce() -> bool + Send>>,
    done: Option<Done>,
    began: WallTime,
}

/// The network: calls wait here.
pub struct Network {
    calls: Mutex<Vec<Call>>,
    clock: Arc<ManualClock>,
}

impl HttpPort for Network {
    fn start(&self, outgoing: Outgoing, ready: Box<dyn FnOnce() -> bool + Send>, done: Done) {
        let began = self.clock.now().wall;
        self.calls.lock().unwrap().push(Call { outgoing, ready: Some(ready), done: Some(done), began });
    }
}

impl Network {
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self { calls: Mutex::default(), clock }
    }
    /// Paths with queries of all calls so far, `POST /orders` and `GET /orders?…`.
    pub fn seen(&self) -> Vec<String> {
        let line = |c: &Call| format!("{} {}", c.outgoing.request.method, c.outgoing.request.path);
        self.calls.lock().unwrap().iter().map(line).collect()
    }
    pub fn posts(&self) -> usize {
        self.seen().iter().filter(|s| s.starts_with("POST")).count()
    }
    /// The first byte leaves, unless it was burned. Answers whether it did.
    pub fn leave(&self, i: usize) -> bool {
        let ready = self.calls.lock().unwrap()[i].ready.take().expect("left once");
        ready()
    }
    /// Until when the first byte may leave.
    pub fn window(&self, i: usize) -> Option<Now> {
        self.calls.lock().unwrap()[i].outgoing.not_after
    }
    /// The call ends.
    pub fn end(&self, i: usize, wire: Wire) {
        let (done, began) = {
            let mut calls = self.calls.lock().unwrap();
            (calls[i].done.take().expect("ends once"), calls[i].began)
        };
        done(Finished { wire, began, ended: self.clock.now().wall, target_date: None });
    }
    /// A header of a call.
    pub fn header(&self, i: usize, name: &str) -> Option<String> {
        let calls = self.calls.lock().unwrap();
        calls[i].outgoing.request.headers.iter().find(|h| h.name == name).map(|h| h.value.clone())
    }
    /// What is added to a call at the last moment.
    pub fn secrets(&self, i: usize) -> Vec<(String, String)> {
        self.calls.lock().unwrap()[i].outgoing.secret_headers.clone()
    }
    pub fn answer(&self, i: usize, status: u16, body: &str) {
        self.end(i, Wire::Answered(Answer { status, headers: Vec::new(), body: Bytes::from(body.to_owned()) }));
    }
    pub fn answer_with(&self, i: usize, status: u16, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        self.end(i, Wire::Answered(Answer { status, headers, body: Bytes::new() }));
    }
    /// Answers every readback that waits.
    pub fn answer_reads(&self, body: &str) {
        let waits = |c: &Call| c.done.is_some() && c.outgoing.request.method == "GET";
        let waiting: Vec<usize> = {
            let calls = self.calls.lock().unwrap();
            (0..calls.len()).filter(|i| waits(&calls[*i])).collect()
        };
        for i in waiting {
            self.answer(i, 200, body);
        }
    }
}
