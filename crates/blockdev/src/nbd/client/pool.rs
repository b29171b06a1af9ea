//! The connections of a device: how one is made, which one a request takes, and what happens when
//! one breaks.

use super::address::{NbdAddress, NbdOptions};
use super::connection::{Connection, Fate, Patience};
use super::handshake::{self, Export, Manners, Refusal};
use super::job::{Fault, Job};
use super::links::{Effort, Links, Reason};
use super::stream::Stream;
use super::wire::{Command, export};
use extant_sync::{CountedAtomicBool, RmwClass};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Pause before the second attempt to connect again; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How often requests are sent again while no reply at all comes.
const ATTEMPTS: u32 = 5;
/// Pause before a server that took no further connection is asked for one again.
const UNTIL_MORE: Duration = Duration::from_secs(30);

static ADDING: RmwClass = RmwClass::new("nbd connections that are added");

impl Reason for Refusal {
    fn is_final(&self) -> bool {
        self.errno == Errno::STALE.raw_os_error()
    }
}

/// Connections to one export.
#[derive(Debug)]
pub(super) struct Pool {
    address: NbdAddress,
    options: NbdOptions,
    /// Whether there is no other way to the server than the first connection.
    is_only: bool,
    manners: Manners,
    export: Export,
    fate: Arc<Fate>,
    links: Links<Connection, Refusal>,
    /// Whether connecting takes so long that no request waits for one more connection.
    is_far: AtomicBool,
    /// A thread makes one more.
    is_adding: CountedAtomicBool,
}

impl Pool {
    /// Makes the first connection.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn open(address: &NbdAddress, options: &NbdOptions) -> Result<Self, Refusal> {
        let manners = Manners::default();
        let (stream, export) = handshake::open(address, options, &manners)?;
        let mut pool = Self::with(stream, export, address, options, false);
        pool.manners = manners;
        Ok(pool)
    }

    /// Takes a connection that is there, and makes no other.
    ///
    /// # Errors
    /// Why there is no export at its other end.
    pub(super) fn on(
        stream: Stream,
        address: &NbdAddress,
        options: &NbdOptions,
    ) -> Result<Self, Refusal> {
        let deadline = Instant::now() + options.connect_timeout;
        let (stream, export) = handshake::open_on(stream, address, options, deadline)?;
        Ok(Self::with(stream, export, address, options, true))
    }

    fn with(
        stream: Stream,
        export: Export,
        address: &NbdAddress,
        options: &NbdOptions,
        is_only: bool,
    ) -> Self {
        let fate = Arc::new(Fate::default());
        let patience = Patience::of(options);
        let first = Connection::new(stream, export, Arc::clone(&fate), patience);
        Self {
            address: address.clone(),
            options: options.clone(),
            is_only,
            manners: Manners::default(),
            export,
            fate,
            links: Links::new(first, UNTIL_MORE),
            is_far: AtomicBool::new(false),
            is_adding: CountedAtomicBool::new(&ADDING, false),
        }
    }

    pub(super) fn export(&self) -> &Export {
        &self.export
    }

    /// Where further connections lead, if there can be others.
    pub(super) fn address(&self) -> Option<&NbdAddress> {
        (!self.is_only).then_some(&self.address)
    }

    /// Why changes may be lost, if they may.
    pub(super) fn lost(&self) -> Option<&str> {
        self.fate.lost()
    }

    /// Connections at most.
    pub(super) fn most(&self) -> usize {
        if self.export.can(export::MULTI_CONN) && !self.is_only {
            self.options.connections
        } else {
            1
        }
    }

    /// Connections with changes that are not durable.
    pub(super) fn dirty(&self) -> Vec<Arc<Connection>> {
        let mut live = self.links.live();
        live.retain(|connection| connection.is_dirty());
        live
    }

    /// Says whether requests take long, and connecting with them.
    pub(super) fn set_far(&self, is_far: bool) {
        self.is_far.store(is_far, Ordering::Relaxed);
    }

    /// The connection that has the least to do. Makes one where all have something to do and there
    /// may be another, or where there is none. From a server that is far one more comes later, for
    /// other requests: several round trips are more than what is gained for this one.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn choose(self: &Arc<Self>) -> Result<Arc<Connection>, Refusal> {
        let make = |effort| self.connect(effort);
        if !self.is_far.load(Ordering::Relaxed) {
            return self.links.choose(self.most(), make);
        }
        let (best, wants_more) = self.links.choose_at_once(self.most(), make)?;
        if wants_more && !self.is_adding.swap(true, Ordering::AcqRel) {
            let pool = Arc::clone(self);
            let adding = thread::Builder::new().name("extant-nbd".to_owned());
            let begun = adding.spawn(move || {
                pool.links
                    .add_one(pool.most(), |effort| pool.connect(effort));
                pool.is_adding.store(false, Ordering::Release);
            });
            if begun.is_err() {
                self.is_adding.store(false, Ordering::Release);
            }
        }
        Ok(best)
    }

    fn connect(&self, effort: Effort) -> Result<Connection, Refusal> {
        match effort {
            Effort::Once => self.connect_once(),
            Effort::ForAWhile => self.connect_again(),
        }
    }

    /// Tries for a while.
    fn connect_again(&self) -> Result<Connection, Refusal> {
        let over = Instant::now() + self.options.reconnect_for;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect_once() {
                Err(refusal) if !refusal.is_final() && Instant::now() + pause < over => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                made => return made,
            }
        }
    }

    fn connect_once(&self) -> Result<Connection, Refusal> {
        if self.is_only {
            return Err(Refusal {
                reason: "the process that has the connection to it has ended".to_owned(),
                errno: Errno::STALE.raw_os_error(),
            });
        }
        let (stream, export) = handshake::open(&self.address, &self.options, &self.manners)?;
        let fate = Arc::clone(&self.fate);
        let made = Connection::new(stream, export, fate, Patience::of(&self.options));
        if export != self.export {
            made.leave();
            let changed = if export.size == self.export.size {
                "it can do other things than before".to_owned()
            } else {
                format!("{} bytes became {}", self.export.size, export.size)
            };
            return Err(Refusal {
                reason: format!("it is not the export that was opened: {changed}; open it again"),
                errno: Errno::STALE.raw_os_error(),
            });
        }
        // Where others have changes that only the server's memory may have, that server must still
        // be there when this connection is: it would show the state without them otherwise.
        let len = u64::from(self.export.smallest).max(1).min(self.export.size);
        for other in self.dirty() {
            let mut byte = vec![0; len as usize];
            if len > 0 {
                let _ = other.run(&mut [Job::read(0, vec![&mut byte])]);
            }
        }
        Ok(made)
    }

    /// Does all jobs: afterwards each has an outcome. Over a new connection where one breaks, as
    /// far as that is sound (see the header of the module).
    pub(super) fn perform(self: &Arc<Self>, jobs: &mut [Job<'_>]) {
        let mut attempts = 0;
        let mut left = jobs.len();
        while left > 0 {
            let ended = match self.choose() {
                Err(refusal) => Some((refusal.reason, refusal.errno)),
                Ok(connection) => match self.lost() {
                    Some(reason) => Some((reason.to_owned(), Errno::IO.raw_os_error())),
                    None => {
                        let _ = connection.run(jobs);
                        let now = jobs.iter().filter(|job| job.outcome.is_none()).count();
                        attempts = if now < left { 0 } else { attempts + 1 };
                        left = now;
                        (attempts == ATTEMPTS)
                            .then(|| (connection.reason(), Errno::IO.raw_os_error()))
                    }
                },
            };
            if let Some((reason, errno)) = ended {
                for job in jobs.iter_mut().filter(|job| job.outcome.is_none()) {
                    let reason = reason.clone();
                    job.outcome = Some(Err(Fault::NoConnection { reason, errno }));
                }
                return;
            }
        }
    }

    /// Has everything made durable that was answered.
    ///
    /// # Errors
    /// How that failed, or why it cannot be told.
    pub(super) fn flush(self: &Arc<Self>) -> Result<(), Fault> {
        let no_connection = |reason, errno| Fault::NoConnection { reason, errno };
        let certain = || match self.lost() {
            None => Ok(()),
            Some(reason) => Err(no_connection(reason.to_owned(), Errno::IO.raw_os_error())),
        };
        certain()?;
        let dirty = self.dirty();
        if dirty.is_empty() {
            // Another client may have left something in the server's memory.
            let mut jobs = [Job::plain(Command::Flush, 0, 0)];
            if self.export.can(export::FLUSH) {
                self.perform(&mut jobs);
                let [job] = jobs;
                job.outcome.unwrap_or(Ok(()))?;
            }
        }
        let results: Vec<_> = match &dirty[..] {
            [] => Vec::new(),
            [one] => vec![one.flush()],
            // Each has its own promise, and they take no longer together than one.
            many => std::thread::scope(|scope| {
                let flushes: Vec<_> = many
                    .iter()
                    .map(|connection| scope.spawn(|| connection.flush()))
                    .collect();
                let ends = flushes.into_iter().map(|flush| flush.join());
                ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect()
            }),
        };
        for result in results {
            if let Ok(Some(outcome)) = result {
                outcome?;
            }
        }
        certain()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for connection in self.links.live() {
            connection.leave();
        }
    }
}
