//! What clients do: which one gives way to another when there are too many.
//!
//! # Invariants
//! - A client of which a request is being done, or whose changes no flush has covered, never gives
//!   way.
//! - Flushes are numbered in the order in which they begin. One covers a change if the change was
//!   done before it began, on whichever connection.

use extant_sync::{LockClass, Mutex, Rank};
use std::time::{Duration, Instant};

static ACTIVITY: LockClass = LockClass::new("served client", Rank::Leaf);
static FLUSHES: LockClass = LockClass::new("served flushes", Rank::Leaf);

/// What one client does.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Whether it has chosen the export. Until then its time is limited in another way.
    has_chosen: bool,
    /// Requests that are being done.
    under_way: u32,
    /// When something of it began, went on or ended last.
    last: Instant,
    /// The number of the flush that covers its changes, if it has made any.
    needs: u64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        let state = State {
            has_chosen: false,
            under_way: 0,
            last: Instant::now(),
            needs: 0,
        };
        Self(Mutex::new(&ACTIVITY, state))
    }

    /// Notes that the client has chosen the export.
    pub(crate) fn has_chosen(&self) {
        let mut state = self.0.lock();
        state.has_chosen = true;
        state.last = Instant::now();
    }

    /// Notes that a request begins to be done.
    pub(crate) fn begin(&self) {
        let mut state = self.0.lock();
        state.under_way += 1;
        state.last = Instant::now();
    }

    /// Notes that a request has been done, and the number of the flush that covers what it changed.
    pub(crate) fn end(&self, needs: Option<u64>) {
        let mut state = self.0.lock();
        state.under_way -= 1;
        state.last = Instant::now();
        state.needs = needs.unwrap_or(0).max(state.needs);
    }

    /// Notes that the client sends a part of a request, or takes a part of an answer.
    pub(crate) fn goes_on(&self) {
        self.0.lock().last = Instant::now();
    }

    /// When the client did something last, if it may give way by now: for so long it has done
    /// nothing, and nothing of it is at stake.
    pub(crate) fn idle_since(&self, least: Duration, flushes: &Flushes) -> Option<Instant> {
        let covered = flushes.covered();
        let state = self.0.lock();
        let is_idle = state.has_chosen
            && state.under_way == 0
            && state.needs <= covered
            && state.last.elapsed() >= least;
        is_idle.then_some(state.last)
    }
}

/// Flushes of all connections.
#[derive(Debug)]
pub(crate) struct Flushes(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: u64,
    /// The last one that succeeded.
    covered: u64,
}

impl Flushes {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(&FLUSHES, Counts::default()))
    }

    /// The number of the first flush that covers what is done by now.
    pub(crate) fn next(&self) -> u64 {
        self.0.lock().begun + 1
    }

    /// Begins a flush, and gives its number.
    pub(crate) fn begin(&self) -> u64 {
        let mut counts = self.0.lock();
        counts.begun += 1;
        counts.begun
    }

    /// Notes that the flush of this number has succeeded.
    pub(crate) fn succeeded(&self, number: u64) {
        let mut counts = self.0.lock();
        counts.covered = counts.covered.max(number);
    }

    fn covered(&self) -> u64 {
        self.0.lock().covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_idle(activity: &Activity, flushes: &Flushes) -> bool {
        activity.idle_since(Duration::ZERO, flushes).is_some()
    }

    #[test]
    fn a_client_is_idle_between_requests_when_a_flush_has_covered_its_changes() {
        let (activity, flushes) = (Activity::new(), Flushes::new());
        assert!(!is_idle(&activity, &flushes), "it has not chosen");
        activity.has_chosen();
        assert!(is_idle(&activity, &flushes));
        let long = Duration::from_secs(60);
        assert_eq!(activity.idle_since(long, &flushes), None, "not long enough");
        activity.begin();
        assert!(!is_idle(&activity, &flushes), "a request is under way");
        // One that has begun already may not have seen the change.
        let early = flushes.begin();
        activity.end(Some(flushes.next()));
        flushes.succeeded(early);
        assert!(!is_idle(&activity, &flushes), "not covered");
        let late = flushes.begin();
        assert!(!is_idle(&activity, &flushes), "not covered yet");
        flushes.succeeded(late);
        assert!(is_idle(&activity, &flushes));
    }
}
