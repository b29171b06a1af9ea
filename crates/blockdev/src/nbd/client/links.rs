//! Which connections there are, and which thread makes one: of the threads that find none, one
//! makes it and the others have what comes of it.
//!
//! # Protocol
//!
//! - A thread that finds a connection with nothing to do takes it.
//! - One that finds none, while another thread makes one, waits, and has what comes of that: the
//!   connection or the failure.
//! - One that finds none, and nobody that makes one, makes one for all that wait meanwhile: for a
//!   while, or only once where the attempt before has failed.
//! - One that finds only some that have something to do makes one more, once, where there may be
//!   more and nobody makes one. Otherwise it takes the one with the least to do.
//!
//! So the time for which a broken connection is tried again passes once, however many threads wait
//! for it. One more that fails is nobody's failure: what waits for it after all, as the others
//! broke meanwhile, tries for itself and for a while.
//!
//! # Invariants
//! - One connection at most is being made.
//! - A connection is in the list before those that wait for it hear of it: they make no other.
//! - What was refused is not asked for again at once, and not for ever: after a pause that grows,
//!   and after any success.

use extant_sync::{Claim, Claimed, InFlight, LockClass, Mutex, Rank};
use std::sync::Arc;
use std::time::{Duration, Instant};

static CONNECTIONS: LockClass = LockClass::new("nbd connections", Rank::Leaf);
static ATTEMPT: LockClass = LockClass::new("nbd attempt to connect", Rank::DeviceQueue);
static OUTCOME: LockClass = LockClass::new("nbd outcome of connecting", Rank::Leaf);

/// So many times the first pause is the longest one after the server took no further connection.
const MOST_PAUSES: u32 = 16;

/// A connection.
pub(super) trait Link {
    /// How many threads have requests here; `None` when it is broken.
    fn busy(&self) -> Option<usize>;
}

/// Why there is no connection.
pub(super) trait Reason: Clone {
    /// Whether there will be none any more.
    fn is_final(&self) -> bool;
}

/// How hard to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    Once,
    /// Again and again for as long as the options say.
    ForAWhile,
}

#[derive(Debug)]
struct Known<L, R> {
    live: Vec<Arc<L>>,
    /// Why there will be none any more.
    gone: Option<R>,
    /// The last attempt failed, after all of its time.
    is_away: bool,
    /// The server did not take one more: when it may be asked again, and the pause before that.
    is_full: Option<(Instant, Duration)>,
}

impl<L, R> Known<L, R> {
    /// Whether one more than there are may be tried.
    fn takes_more(&self, most: usize) -> bool {
        self.live.len() < most
            && self
                .is_full
                .is_none_or(|(until, _)| Instant::now() >= until)
    }
}

/// The connections to one server. `L` is one, `R` why there is none.
#[derive(Debug)]
pub(super) struct Links<L, R> {
    known: Mutex<Known<L, R>>,
    making: InFlight<(), Result<Arc<L>, R>>,
    /// The pause after the server took no further connection for the first time.
    pause: Duration,
}

impl<L: Link, R: Reason> Links<L, R> {
    pub(super) fn new(first: L, pause: Duration) -> Self {
        let known = Known {
            live: vec![Arc::new(first)],
            gone: None,
            is_away: false,
            is_full: None,
        };
        Self {
            known: Mutex::new(&CONNECTIONS, known),
            making: InFlight::new(&ATTEMPT, &OUTCOME, 1, |()| 0),
            pause,
        }
    }

    /// Those that there are, some perhaps broken.
    pub(super) fn live(&self) -> Vec<Arc<L>> {
        self.known.lock().live.clone()
    }

    /// The connection that has the least to do, or one that `make` makes where all have something
    /// to do and are fewer than `most`, or where there is none.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn choose(
        &self,
        most: usize,
        make: impl Fn(Effort) -> Result<L, R>,
    ) -> Result<Arc<L>, R> {
        loop {
            match self.least_busy() {
                Some((0, idle)) => return Ok(idle),
                Some((_, best)) => return Ok(self.one_more(best, most, &make)),
                None => {
                    if let Some(ended) = self.one(&make) {
                        return ended;
                    }
                }
            }
        }
    }

    /// The connection that has the least to do, and whether there may be one more beside it, which
    /// [`Links::add_one`] makes. Waits for one only where there is none.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn choose_at_once(
        &self,
        most: usize,
        make: impl Fn(Effort) -> Result<L, R>,
    ) -> Result<(Arc<L>, bool), R> {
        loop {
            match self.least_busy() {
                Some((0, idle)) => return Ok((idle, false)),
                Some((_, best)) => {
                    let takes_more = most > 1 && self.known.lock().takes_more(most);
                    return Ok((best, takes_more));
                }
                None => {
                    if let Some(ended) = self.one(&make) {
                        return ended.map(|one| (one, false));
                    }
                }
            }
        }
    }

    /// Makes one more for others, if there may be one and all have something to do.
    pub(super) fn add_one(&self, most: usize, make: impl Fn(Effort) -> Result<L, R>) {
        if let Some((1.., best)) = self.least_busy() {
            drop(self.one_more(best, most, make));
        }
    }

    /// The connection that has the least to do, and how much that is. Forgets broken ones.
    fn least_busy(&self) -> Option<(usize, Arc<L>)> {
        let mut best: Option<(usize, Arc<L>)> = None;
        let mut broken = Vec::new();
        for link in self.live() {
            match link.busy() {
                None => broken.push(link),
                Some(0) => return Some((0, link)),
                Some(busy) if best.as_ref().is_none_or(|(least, _)| busy < *least) => {
                    best = Some((busy, link));
                }
                Some(_) => {}
            }
        }
        if !broken.is_empty() {
            let is_whole = |link: &Arc<L>| !broken.iter().any(|broken| Arc::ptr_eq(link, broken));
            self.known.lock().live.retain(is_whole);
        }
        best
    }

    /// One more, if there may be and it can be made; `best` otherwise.
    fn one_more(&self, best: Arc<L>, most: usize, make: impl Fn(Effort) -> Result<L, R>) -> Arc<L> {
        if most < 2 || !self.known.lock().takes_more(most) {
            return best;
        }
        let is_enough = || (!self.known.lock().takes_more(most)).then_some(());
        let Claimed::Mine(claim) = self.making.claim((), is_enough) else {
            return best;
        };
        match make(Effort::Once) {
            Ok(made) => self.add(made, claim),
            Err(_) => {
                let mut known = self.known.lock();
                let pause = known.is_full.map_or(self.pause, |(_, before)| {
                    (before * 2).min(self.pause * MOST_PAUSES)
                });
                known.is_full = Some((Instant::now() + pause, pause));
                // The claim is given up: threads that wait for it after all try for themselves.
                best
            }
        }
    }

    /// The one that this thread or another makes, or why there is none. `None` if it is to look
    /// again.
    fn one(&self, make: impl Fn(Effort) -> Result<L, R>) -> Option<Result<Arc<L>, R>> {
        let is_there = || (!self.known.lock().live.is_empty()).then_some(());
        let claim = match self.making.claim((), is_there) {
            Claimed::Mine(claim) => claim,
            Claimed::Theirs(attempt) => return attempt.wait(),
            Claimed::Found(()) => return None,
        };
        let (gone, is_away) = {
            let known = self.known.lock();
            (known.gone.clone(), known.is_away)
        };
        let effort = if is_away {
            Effort::Once
        } else {
            Effort::ForAWhile
        };
        let why = match gone.map_or_else(|| make(effort), Err) {
            Ok(made) => return Some(Ok(self.add(made, claim))),
            Err(why) => why,
        };
        let mut known = self.known.lock();
        known.is_away = true;
        if why.is_final() {
            known.gone = Some(why.clone());
        }
        drop(known);
        claim.end(Err(why.clone()));
        Some(Err(why))
    }

    /// Enters a connection that was made, and tells those that wait for it.
    fn add(&self, made: L, claim: Claim<'_, (), Result<Arc<L>, R>>) -> Arc<L> {
        let made = Arc::new(made);
        let mut known = self.known.lock();
        known.is_away = false;
        known.is_full = None;
        known.live.push(Arc::clone(&made));
        drop(known);
        claim.end(Ok(Arc::clone(&made)));
        made
    }
}

// The model checker's tests have this file too, and no real threads.
#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    /// One that has something to do, until it breaks.
    #[derive(Debug, Default)]
    struct Used(AtomicBool);

    impl Link for Used {
        fn busy(&self) -> Option<usize> {
            (!self.0.load(Ordering::SeqCst)).then_some(1)
        }
    }

    #[derive(Debug, Clone)]
    struct Refused;

    impl Reason for Refused {
        fn is_final(&self) -> bool {
            false
        }
    }

    #[test]
    fn all_that_wait_wait_once() {
        const THREADS: usize = 16;
        const LIMIT: Duration = Duration::from_millis(300);
        let links = Links::new(Used(true.into()), Duration::ZERO);
        let attempts = AtomicUsize::new(0);
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let chosen = links.choose(1, |effort| {
                        // Nobody waits that long again for a server that is away.
                        let expected = match attempts.fetch_add(1, Ordering::SeqCst) {
                            0 => Effort::ForAWhile,
                            _ => Effort::Once,
                        };
                        assert_eq!(effort, expected);
                        // As a server that is away, and a host that is, too.
                        thread::sleep(LIMIT);
                        Err(Refused)
                    });
                    chosen.expect_err("nobody is there");
                });
            }
        });
        // Threads that began too late for the first attempt have one of their own.
        assert!(began.elapsed() < 4 * LIMIT, "{:?}", began.elapsed());
        assert!(attempts.load(Ordering::SeqCst) < 4);
    }

    #[test]
    fn a_server_that_takes_no_more_is_asked_again_after_a_pause() {
        const PAUSE: Duration = Duration::from_millis(200);
        let links = Links::new(Used::default(), PAUSE);
        let asked = AtomicUsize::new(0);
        let refuses = AtomicBool::new(true);
        let choose = || {
            let chosen = links.choose(3, |effort| {
                assert_eq!(effort, Effort::Once);
                asked.fetch_add(1, Ordering::SeqCst);
                if refuses.load(Ordering::SeqCst) {
                    Err(Refused)
                } else {
                    Ok(Used::default())
                }
            });
            chosen.expect("one is there");
            (asked.load(Ordering::SeqCst), links.live().len())
        };
        let began = Instant::now();
        let mut all = vec![choose(), choose()];
        if began.elapsed() < PAUSE {
            assert_eq!(all, [(1, 1), (1, 1)], "not at once");
        }
        thread::sleep(PAUSE);
        let again = Instant::now();
        assert_eq!(choose(), (2, 1));
        thread::sleep(PAUSE);
        all = vec![choose()];
        if again.elapsed() < 2 * PAUSE {
            assert_eq!(all, [(2, 1)], "the pause has grown");
        }
        thread::sleep(PAUSE);
        refuses.store(false, Ordering::SeqCst);
        assert_eq!(choose().1, 2);
        // What succeeded is tried again at once.
        assert_eq!(choose().1, 3);
        assert_eq!(choose().1, 3, "no more than there may be");
    }

    #[test]
    fn one_that_is_in_a_hurry_takes_what_there_is_and_another_makes_one_more() {
        let links = Links::new(Used::default(), Duration::ZERO);
        let asked = AtomicUsize::new(0);
        let make = |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Refused>(Used::default())
        };
        for (number, wants_more) in [(1, true), (2, false)] {
            let (best, more) = links.choose_at_once(2, make).expect("one is there");
            assert!(best.busy().is_some());
            assert_eq!((more, links.live().len()), (wants_more, number));
            links.add_one(2, make);
        }
        assert_eq!((asked.load(Ordering::SeqCst), links.live().len()), (1, 2));
        // Where there is none, it is waited for.
        for link in links.live() {
            link.0.store(true, Ordering::SeqCst);
        }
        let (made, more) = links.choose_at_once(2, make).expect("one is made");
        assert!(made.busy().is_some() && !more);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
