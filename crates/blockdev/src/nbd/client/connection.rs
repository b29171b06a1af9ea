//! One connection: requests of any number of threads, and the replies to them.
//!
//! There is no thread that belongs to the connection. A thread that waits for a reply reads the
//! stream when no other one does, also what is for others, until it has its own; then the next one
//! that waits goes on. What is for itself is read to where it is wanted. A thread that sends, and
//! finds that the server takes no more, reads meanwhile: a server that waits until its replies are
//! taken never waits for long.
//!
//! # Invariants
//! - A reply must have the cookie of a request that is open, be of the kind and the length that
//!   the request allows, and come once. A read succeeds only when each byte of it has come once.
//! - What is kept for a request is never more than its own length and a bounded number of parts.
//! - When anything is wrong, the connection is broken for good, and every open request ends.
//! - A connection that breaks while it has changes that are not durable, or not answered, says so
//!   to the device ([`Fate`]) before any request learns that it is broken.

use super::address::NbdOptions;
use super::handshake::Export;
use super::job::{Data, Fault, Job, Stage};
use super::links::Link;
use super::replies::{Part, Progress, Reader};
use super::stream::Stream;
use super::wire::{self, Command, export};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static STATE: LockClass = LockClass::new("nbd connection", Rank::DeviceQueue);

/// Requests of one thread that are under way at most, and as many of small ones as make
/// [`WINDOW_BYTES`]: what a long link holds.
const WINDOW: usize = 32;
const WINDOW_OF_SMALL: usize = 256;
const WINDOW_BYTES: u64 = 4 << 20;

/// What the device knows of changes that may be lost.
#[derive(Debug, Default)]
pub(super) struct Fate(OnceLock<String>);

impl Fate {
    /// Notes that changes may be lost, as a connection broke for this reason.
    fn break_off(&self, reason: &str) {
        self.lose(format_args!(
            "the connection broke before everything that was written had been made durable \
             ({reason})"
        ));
    }

    /// Notes that changes may be lost, as the server answered a flush with this error.
    fn refuse(&self, error: &io::Error) {
        self.lose(format_args!(
            "the server did not make durable what was written ({error})"
        ));
    }

    fn lose(&self, what: fmt::Arguments<'_>) {
        let _ = self.0.set(format!(
            "{what}, so that some of it may be lost: open the export again"
        ));
    }

    /// Why changes may be lost, if they may.
    pub(super) fn lost(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// For how long a server that owes an answer may send nothing at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    usual: Duration,
    /// While a flush is open, or a change that is durable when it is answered.
    of_durable: Duration,
}

impl Patience {
    pub(super) fn of(options: &NbdOptions) -> Self {
        Self {
            usual: options.answer_timeout,
            of_durable: options.flush_timeout.max(options.answer_timeout),
        }
    }
}

/// The connection is broken.
#[derive(Debug)]
pub(super) struct Broken;

/// A request that is open.
pub(super) struct Pending {
    pub(super) run: u64,
    wake: Arc<Condvar>,
    pub(super) number: usize,
    pub(super) command: Command,
    is_durable: bool,
    pub(super) offset: u64,
    pub(super) len: u32,
    is_sent: bool,
    /// When it was begun, if something is durable when it is answered.
    durable_began: Option<Instant>,
    /// For a flush: the changes that were answered before it was sent.
    covers: u64,
    pub(super) progress: Progress,
}

/// A request that ended while its thread did not read.
struct Finished {
    run: u64,
    number: usize,
    result: Result<(), (u32, String)>,
    progress: Progress,
}

#[derive(Default)]
pub(super) struct State {
    /// `None` while a thread reads.
    reader: Option<Box<Reader>>,
    is_sending: bool,
    broken: Option<Arc<str>>,
    pub(super) pending: HashMap<u64, Pending>,
    finished: Vec<Finished>,
    last_cookie: u64,
    last_run: u64,
    /// Threads with requests here.
    runs: usize,
    /// Threads that wait for replies, and those that wait to send.
    listeners: VecDeque<Arc<Condvar>>,
    senders: VecDeque<Arc<Condvar>>,
    /// Changes that were answered, and how many of them are durable.
    changed: u64,
    durable: u64,
}

impl State {
    fn wake_listener(&self) {
        if let Some(next) = self.listeners.front() {
            next.notify_one();
        }
    }

    fn wake_sender(&self) {
        if let Some(next) = self.senders.front() {
            next.notify_one();
        }
    }
}

/// A connection to an export.
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) export: Export,
    fate: Arc<Fate>,
    patience: Patience,
    pub(super) state: Mutex<State>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// A thread with requests. It may have the reader, or its turn to send.
pub(super) struct Run<'c> {
    connection: &'c Connection,
    pub(super) number: u64,
    wake: Arc<Condvar>,
    reader: Option<Box<Reader>>,
    is_sending: bool,
}

impl Run<'_> {
    /// Lets another thread read.
    fn give_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            let mut state = self.connection.state.lock();
            state.reader = Some(reader);
            state.wake_listener();
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.connection.fail("a thread that used it panicked");
        }
        self.give_reader();
        let mut state = self.connection.state.lock();
        state.runs -= 1;
        // It may have been woken to read, and have found all that it waited for.
        if state.reader.is_some() {
            state.wake_listener();
        }
        if self.is_sending {
            state.is_sending = false;
            state.wake_sender();
        }
    }
}

impl Link for Connection {
    /// An idle connection on which something comes, or its end, is broken from then on.
    fn busy(&self) -> Option<usize> {
        let state = self.state.lock();
        if state.broken.is_some() {
            return None;
        }
        let is_idle = state.runs == 0 && state.pending.is_empty();
        if is_idle
            && state
                .reader
                .as_ref()
                .is_some_and(|reader| reader.is_empty())
        {
            // Under the lock, so that nobody asks anything meanwhile; it does not wait.
            let found = self.stream.recv(&mut [0]);
            drop(state);
            let what = match found {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(0),
                Ok(0) => "the server closed the connection".to_owned(),
                Ok(_) => "the server sent something that was not asked for".to_owned(),
                Err(error) => error.to_string(),
            };
            self.fail(&what);
            return None;
        }
        Some(state.runs)
    }
}

impl Connection {
    pub(super) fn new(stream: Stream, export: Export, fate: Arc<Fate>, patience: Patience) -> Self {
        let state = State {
            reader: Some(Box::new(Reader::new())),
            ..State::default()
        };
        Self {
            stream,
            export,
            fate,
            patience,
            state: Mutex::new(&STATE, state),
        }
    }

    /// Why it is broken.
    pub(super) fn reason(&self) -> String {
        let state = self.state.lock();
        state.broken.as_deref().unwrap_or_default().to_owned()
    }

    /// Whether changes were answered that no flush has made durable.
    pub(super) fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        state.changed > state.durable
    }

    /// Says that no more requests come, and ends.
    pub(super) fn leave(&self) {
        if self.state.lock().broken.is_none() {
            let message = wire::request(0, Command::Disconnect, 0, 0, 0);
            let _ = self.stream.send(&[IoSlice::new(&message)]);
            let _ = self.stream.drain();
            self.stream.say_goodbye();
        }
        self.stream.close();
    }

    /// Breaks the connection.
    fn fail(&self, reason: &str) {
        let mut state = self.state.lock();
        if state.broken.is_some() {
            return;
        }
        let pending: Vec<Pending> = state.pending.drain().map(|(_, open)| open).collect();
        let is_lost = state.changed > state.durable
            || pending
                .iter()
                .any(|open| open.is_sent && open.command.happens_once());
        if is_lost {
            self.fate.break_off(reason);
        }
        state.broken = Some(reason.into());
        self.stream.close();
        for open in pending {
            open.wake.notify_all();
        }
        for waiting in state.listeners.iter().chain(&state.senders) {
            waiting.notify_all();
        }
    }

    pub(super) fn fail_with(&self, error: &io::Error) -> Broken {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            // Ours; the system has one of the same kind.
            io::ErrorKind::TimedOut if error.raw_os_error().is_none() => {
                let state = self.state.lock();
                let has_durable = state
                    .pending
                    .values()
                    .any(|open| open.durable_began.is_some());
                drop(state);
                let waited = if has_durable {
                    self.patience.of_durable
                } else {
                    self.patience.usual
                };
                format!(
                    "the server owes an answer and sent nothing for {} seconds",
                    waited.as_secs_f32()
                )
            }
            _ => error.to_string(),
        };
        self.fail(&reason);
        Broken
    }

    pub(super) fn wrong(&self, what: &str) -> Broken {
        self.fail(&format!("the server does not keep to the protocol: {what}"));
        Broken
    }

    /// Does the jobs that have no outcome yet, in any order. On success all have one. When the
    /// connection breaks, those are left without that may be done again.
    pub(super) fn run(&self, jobs: &mut [Job<'_>]) -> Result<(), Broken> {
        let number = {
            let mut state = self.state.lock();
            state.runs += 1;
            state.last_run += 1;
            state.last_run
        };
        let mut run = Run {
            connection: self,
            number,
            wake: Arc::new(Condvar::new()),
            reader: None,
            is_sending: false,
        };
        let result = self.go_on(&mut run, jobs);
        if result.is_err() {
            let mut state = self.state.lock();
            self.collect(&mut state, &run, jobs);
            let reason = state.broken.as_deref().unwrap_or_default().to_owned();
            drop(state);
            for job in jobs.iter_mut().filter(|job| job.outcome.is_none()) {
                let is_sent = std::mem::replace(&mut job.stage, Stage::Unsent) == Stage::Sent;
                if is_sent && job.command.happens_once() {
                    self.fate.break_off(&reason);
                    job.outcome = Some(Err(Fault::Unanswered(reason.clone())));
                }
            }
        }
        drop(run);
        result
    }

    fn go_on(&self, run: &mut Run<'_>, jobs: &mut [Job<'_>]) -> Result<(), Broken> {
        let window = window(jobs).cast_signed();
        let mut next = 0;
        // May be below zero for a moment: a reply can come before all of its request is sent.
        let mut open = 0_isize;
        loop {
            while next < jobs.len() && open < window {
                if jobs[next].outcome.is_none() {
                    open += 1 - self.send(run, jobs, next)?.cast_signed();
                }
                next += 1;
            }
            if open == 0 {
                return Ok(());
            }
            open -= self.receive(run, jobs)?.cast_signed();
        }
    }

    /// Sends one request. Returns how many requests ended meanwhile.
    fn send(
        &self,
        run: &mut Run<'_>,
        jobs: &mut [Job<'_>],
        number: usize,
    ) -> Result<usize, Broken> {
        let job = &jobs[number];
        let payload = job.payload_len();
        let cookie = {
            let mut state = self.state.lock();
            while state.is_sending && state.broken.is_none() {
                if let Some(reader) = run.reader.take() {
                    state.reader = Some(reader);
                    state.wake_listener();
                }
                state.senders.push_back(Arc::clone(&run.wake));
                run.wake.wait(&mut state);
                state.senders.retain(|wake| !Arc::ptr_eq(wake, &run.wake));
            }
            if state.broken.is_some() {
                return Err(Broken);
            }
            state.is_sending = true;
            run.is_sending = true;
            state.last_cookie += 1;
            let cookie = state.last_cookie;
            let pending = Pending {
                run: run.number,
                wake: Arc::clone(&run.wake),
                number,
                command: job.command,
                is_durable: job.is_durable(),
                offset: job.offset,
                len: job.len,
                is_sent: false,
                durable_began: (job.command == Command::Flush || job.is_durable())
                    .then(Instant::now),
                covers: state.changed,
                progress: Progress::default(),
            };
            state.pending.insert(cookie, pending);
            cookie
        };
        let head = wire::request(job.flags, job.command, cookie, job.offset, job.len);
        let total = head.len() + payload;
        let (mut sent, mut ended) = (0, 0);
        loop {
            let moved = if sent < total {
                let mut slices = Vec::with_capacity(4);
                if sent < head.len() {
                    slices.push(IoSlice::new(&head[sent..]));
                }
                jobs[number].add_payload(sent.saturating_sub(head.len()), &mut slices);
                self.stream.send(&slices)
            } else {
                match self.stream.drain() {
                    Ok(true) => break,
                    Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(error) => Err(error),
                }
            };
            match moved {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ended += self.wait_for_room(run, jobs)?;
                }
                Err(error) => return Err(self.fail_with(&error)),
            }
            if sent == total {
                jobs[number].stage = Stage::Sent;
            }
        }
        let mut state = self.state.lock();
        if let Some(open) = state.pending.get_mut(&cookie) {
            open.is_sent = true;
        }
        state.is_sending = false;
        run.is_sending = false;
        state.wake_sender();
        Ok(ended)
    }

    /// Waits until the server takes more, and reads replies where no other thread does.
    fn wait_for_room(&self, run: &mut Run<'_>, jobs: &mut [Job<'_>]) -> Result<usize, Broken> {
        const LOOK_AGAIN: Duration = Duration::from_millis(5);
        let mut over = Instant::now() + self.patience.usual;
        loop {
            if run.reader.is_none() {
                let mut state = self.state.lock();
                if state.broken.is_some() {
                    return Err(Broken);
                }
                run.reader = state.reader.take();
            }
            let reads = run.reader.is_some();
            let has_ahead = run.reader.as_ref().is_some_and(|reader| !reader.is_empty());
            if has_ahead {
                return self.read_message(run, jobs);
            }
            let left = over.saturating_duration_since(Instant::now());
            let left = if reads { left } else { left.min(LOOK_AGAIN) };
            match self.stream.wait(reads, true, left) {
                Ok((_, true)) => return Ok(0),
                Ok((true, _)) => return self.read_message(run, jobs),
                Ok(_) if Instant::now() < over => {}
                Ok(_) => match self.more_patience() {
                    None => return Err(self.fail_with(&io::ErrorKind::TimedOut.into())),
                    Some(more) => over = Instant::now() + more,
                },
                Err(error) => return Err(self.fail_with(&error)),
            }
        }
    }

    /// Reads `buf`, whose bytes the server owes.
    pub(super) fn take(&self, reader: &mut Reader, buf: &mut [u8]) -> Result<(), Broken> {
        reader
            .read(&self.stream, buf, self.patience.usual, || {
                self.more_patience()
            })
            .map_err(|error| self.fail_with(&error))
    }

    /// For how long the server may still send nothing, after the usual time, as it makes something
    /// durable; `None` if it does not, or the time for that is over, too.
    fn more_patience(&self) -> Option<Duration> {
        let state = self.state.lock();
        let all = state.pending.values().filter_map(|open| open.durable_began);
        let left = all.map(|began| self.patience.of_durable.saturating_sub(began.elapsed()));
        left.max().filter(|left| !left.is_zero())
    }

    /// Waits until at least one of the thread's requests ends. Returns how many did.
    fn receive(&self, run: &mut Run<'_>, jobs: &mut [Job<'_>]) -> Result<usize, Broken> {
        let mut state = self.state.lock();
        loop {
            let ended = self.collect(&mut state, run, jobs);
            if ended > 0 {
                if state.reader.is_some() {
                    state.wake_listener();
                }
                return Ok(ended);
            }
            if state.broken.is_some() {
                return Err(Broken);
            }
            if run.reader.is_none() {
                run.reader = state.reader.take();
            }
            if run.reader.is_some() {
                break;
            }
            state.listeners.push_back(Arc::clone(&run.wake));
            run.wake.wait(&mut state);
            state.listeners.retain(|wake| !Arc::ptr_eq(wake, &run.wake));
        }
        drop(state);
        loop {
            let ended = self.read_message(run, jobs)?;
            if ended > 0 {
                return Ok(ended);
            }
        }
    }

    /// Takes what other threads have read for this one.
    fn collect(&self, state: &mut State, run: &Run<'_>, jobs: &mut [Job<'_>]) -> usize {
        if state.finished.is_empty() {
            return 0;
        }
        let ours = state
            .finished
            .extract_if(.., |finished| finished.run == run.number);
        let mut count = 0;
        for finished in ours {
            end(
                &mut jobs[finished.number],
                finished.result,
                finished.progress,
            );
            count += 1;
        }
        count
    }

    /// Reads one message. Returns 1 if it ends a request of this thread.
    fn read_message(&self, run: &mut Run<'_>, jobs: &mut [Job<'_>]) -> Result<usize, Broken> {
        let Some(mut reader) = run.reader.take() else {
            return Ok(0);
        };
        let result = self.read_with(&mut reader, run, jobs);
        run.reader = Some(reader);
        result
    }

    /// Ends a request.
    pub(super) fn finish(
        &self,
        run: &Run<'_>,
        jobs: &mut [Job<'_>],
        cookie: u64,
        result: Result<(), (u32, String)>,
    ) -> Result<usize, Broken> {
        if matches!(result, Err((wire::ESHUTDOWN, _))) {
            self.fail("the server is about to end");
            return Err(Broken);
        }
        let mut state = self.state.lock();
        let open = state.pending.remove(&cookie).ok_or(Broken)?;
        if result.is_ok() {
            if open.command.changes() && !open.is_durable {
                state.changed += 1;
            } else if open.command == Command::Flush {
                state.durable = state.durable.max(open.covers);
            }
        }
        // The next one may be a success although nothing became durable.
        if let (Command::Flush, Err((errno, text))) = (open.command, &result) {
            self.fate.refuse(&wire::told(*errno, text));
        }
        if open.run == run.number {
            end(&mut jobs[open.number], result, open.progress);
            Ok(1)
        } else {
            state.finished.push(Finished {
                run: open.run,
                number: open.number,
                result,
                progress: open.progress,
            });
            open.wake.notify_one();
            Ok(0)
        }
    }

    /// Whether the export is used in this way.
    pub(super) fn can(&self, flag: u16) -> bool {
        self.export.can(flag)
    }

    /// Has what was answered made durable, or `None` where nothing is to be done.
    pub(super) fn flush(&self) -> Result<Option<Result<(), Fault>>, Broken> {
        if !self.can(export::FLUSH) {
            return Ok(None);
        }
        let mut jobs = [Job::plain(Command::Flush, 0, 0)];
        self.run(&mut jobs)?;
        let [job] = jobs;
        Ok(job.outcome)
    }
}

/// How many of these jobs are under way at most.
fn window(jobs: &[Job<'_>]) -> usize {
    let bytes: u64 = jobs.iter().map(|job| u64::from(job.len)).sum();
    let mean = bytes / (jobs.len() as u64).max(1);
    let many = usize::try_from(WINDOW_BYTES / mean.max(1)).unwrap_or(WINDOW_OF_SMALL);
    many.clamp(WINDOW, WINDOW_OF_SMALL)
}

/// Writes down how a request ended, with what others have read for it.
fn end(job: &mut Job<'_>, result: Result<(), (u32, String)>, progress: Progress) {
    for (start, part) in progress.parts {
        let _ = match part {
            Part::Bytes(bytes) => {
                let mut rest = &bytes[..];
                job.fill_part(start..start + bytes.len() as u32, |piece| {
                    let (now, after) = rest.split_at(piece.len());
                    piece.copy_from_slice(now);
                    rest = after;
                    Ok::<_, Broken>(())
                })
            }
            Part::Zeroes(len) => job.fill_part(start..start + len, |piece| {
                piece.fill(0);
                Ok(())
            }),
        };
    }
    if let (Data::Extents(to), Some(extents)) = (&mut job.data, progress.extents) {
        *to = extents;
    }
    job.outcome = match result {
        Ok(()) => Some(Ok(())),
        Err((errno, text)) => Some(Err(Fault::Server { errno, text })),
    };
}
