//! HTTP/2 connections by place, for calls that may share one: found where there is room, else made by one call while the others wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::keep::{IDLE, Place};
use super::stream::{Seat, Shared};

/// What is known of a place.
#[derive(Default)]
struct Spot {
    open: Vec<Arc<Shared>>,
    /// Held by the call that makes a connection: those behind it find one.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// It chose HTTP/1.1 when it was asked last, where each call needs a connection: nobody waits for another.
    one: bool,
}

/// The shared connections of a process. Places are few: those of the contracts.
#[derive(Default)]
pub(super) struct Hub(Mutex<HashMap<Place, Spot>>);

/// The right to make a connection; `None` where nobody has to wait.
pub(super) type Turn = Option<OwnedMutexGuard<()>>;

impl Hub {
    fn spots(&self) -> MutexGuard<'_, HashMap<Place, Spot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one call on a connection that is open.
    pub(super) fn seat(&self, place: &Place) -> Option<Seat> {
        let now = Instant::now();
        let mut spots = self.spots();
        let spot = spots.get_mut(place)?;
        spot.open.retain(|shared| shared.is_fresh(now));
        spot.open.iter().find_map(Shared::seat)
    }

    /// Waits until this call may make a connection.
    pub(super) async fn turn(&self, place: &Place) -> Turn {
        let turn = {
            let mut spots = self.spots();
            let spot = spots.entry(place.clone()).or_default();
            (!spot.one).then(|| Arc::clone(&spot.turn))
        };
        Some(turn?.lock_owned().await)
    }

    /// Keeps a new connection. Answers whether it is the only one: then somebody has to look after them.
    pub(super) fn put(&self, place: Place, shared: Arc<Shared>) -> bool {
        let mut spots = self.spots();
        let first = spots.values().all(|spot| spot.open.is_empty());
        let spot = spots.entry(place).or_default();
        spot.one = false;
        spot.open.push(shared);
        first
    }

    /// Notes that the place chose HTTP/1.1.
    pub(super) fn speaks_one(&self, place: &Place) {
        self.spots().entry(place.clone()).or_default().one = true;
    }

    /// Lets go of what is old or was silent for too long, until nothing is left. A call on such a connection ends on it.
    pub(super) async fn look_after(&self) {
        while self.spots().values().any(|spot| !spot.open.is_empty()) {
            tokio::time::sleep(IDLE).await;
            let now = Instant::now();
            self.spots().values_mut().for_each(|spot| spot.open.retain(|shared| shared.is_fresh(now)));
        }
    }
}
