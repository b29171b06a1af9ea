//! One queue of a guest: its thread, and how answers get back.

use crate::answering::{self, Head, Scratch};
use crate::chain::{Chain, Malformed};
use crate::event::{Event, take_count};
use crate::memory::Mapped;
use crate::workers::{Job, Workers};
use extant_fuse::Guest;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;
use virtio_queue::{Queue, QueueT};

static QUEUES: LockClass = LockClass::new("queue of a guest", Rank::Leaf);
static CALLS: LockClass = LockClass::new("interrupt of a guest", Rank::Leaf);
static MEMORIES: LockClass = LockClass::new("memory of a guest", Rank::Leaf);
static PENDING: LockClass = LockClass::new("requests of a guest", Rank::Leaf);

/// How often it is looked whether a thread is kept by an event of the monitor.
const PAUSE: Duration = Duration::from_millis(1);
const A_MOMENT: Duration = Duration::from_millis(20);

/// The memory that requests are looked up in, which all queues of a guest have in common.
#[derive(Debug)]
pub(crate) struct CurrentMemory(Mutex<Arc<Mapped>>);

impl CurrentMemory {
    pub(crate) fn new(mapped: Arc<Mapped>) -> Self {
        Self(Mutex::new(&MEMORIES, mapped))
    }

    pub(crate) fn set(&self, mapped: Arc<Mapped>) {
        // What was there before may be unmapped, which takes its time.
        let before = std::mem::replace(&mut *self.0.lock(), mapped);
        drop(before);
    }

    fn get(&self) -> Arc<Mapped> {
        Arc::clone(&self.0.lock())
    }
}

/// How a guest is told that there are answers in a queue, which its monitor may change at any time.
#[derive(Debug)]
pub(crate) struct Call(Mutex<Option<Arc<Event>>>);

impl Call {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(&CALLS, None))
    }

    /// Tells it by another event from now on. No thread is kept by the one before any more.
    pub(crate) fn set(&self, event: Option<Event>) {
        let before = std::mem::replace(&mut *self.0.lock(), event.map(Arc::new));
        while let Some(before) = &before
            && Arc::strong_count(before) > 1
        {
            before.release();
            sleep(PAUSE);
        }
    }

    /// Tells the guest.
    pub(crate) fn ring(&self) {
        // Not under the lock: the monitor may keep this thread.
        let event = self.0.lock().clone();
        if let Some(event) = event {
            event.tell();
        }
    }

    /// Lets a thread go that is kept by the event.
    fn release(&self) {
        let event = self.0.lock().clone();
        if let Some(event) = event {
            event.release();
        }
    }
}

/// A queue that runs.
#[derive(Debug)]
pub(crate) struct Live {
    queue: Mutex<Queue>,
    memory: Arc<CurrentMemory>,
    call: Arc<Call>,
    /// Whether the monitor lets requests be looked at.
    is_enabled: Arc<AtomicBool>,
    /// Requests that there are at most in a guest that waits for answers.
    size: usize,
    /// Requests that are under way elsewhere, `size` at most.
    pending: Mutex<usize>,
    done: Condvar,
    /// Tells that an answer was not taken, once: a guest can bring it about as often as it likes.
    takes_none: Once,
}

/// A request that is under way elsewhere, until this is dropped.
#[derive(Debug)]
pub(crate) struct Pending(Arc<Live>);

impl Drop for Pending {
    fn drop(&mut self) {
        let mut pending = self.0.pending.lock();
        *pending = pending.saturating_sub(1);
        if *pending == 0 {
            self.0.done.notify_all();
        }
    }
}

impl Live {
    /// Makes a queue of what was said of it.
    pub(crate) fn new(
        queue: Queue,
        memory: Arc<CurrentMemory>,
        call: Arc<Call>,
        is_enabled: Arc<AtomicBool>,
    ) -> Self {
        Self {
            is_enabled,
            size: queue.size().into(),
            queue: Mutex::new(&QUEUES, queue),
            memory,
            call,
            pending: Mutex::new(&PENDING, 0),
            done: Condvar::new(),
            takes_none: Once::new(),
        }
    }

    /// Takes the next request, if there is one that may be looked at.
    fn next(&self) -> Option<Result<Chain, Malformed>> {
        if !self.is_enabled.load(Ordering::Acquire) {
            return None;
        }
        let memory = self.memory.get();
        let descriptors = self
            .queue
            .lock()
            .pop_descriptor_chain(Arc::clone(&memory))?;
        Some(Chain::new(&memory, descriptors))
    }

    /// Gives the guest back what it said, with `filled` bytes of an answer.
    fn give_back(&self, (head, filled): (u16, u32)) {
        let memory = self.memory.get();
        let mut queue = self.queue.lock();
        let added = queue.add_used(&*memory, head, filled);
        let is_told = added.is_ok() && queue.needs_notification(&*memory).unwrap_or(true);
        drop(queue);
        if is_told {
            self.call.ring();
        }
        if let Err(e) = added {
            self.takes_none
                .call_once(|| tracing::warn!("a guest's queue takes no answer: {e}"));
        }
    }

    /// Answers a request, whatever happens.
    pub(crate) fn answer(&self, chain: Chain, head: &Head, guest: &Guest, scratch: &mut Scratch) {
        let number = chain.head();
        let answer = || answering::answer(chain, head, guest, scratch);
        let answered = catch_unwind(AssertUnwindSafe(answer));
        self.give_back(answered.unwrap_or((number, 0)));
    }

    /// Answers all that is there, until `stops`.
    pub(crate) fn drain(self: &Arc<Self>, side: &Side, scratch: &mut Scratch, stops: &AtomicBool) {
        let mut was_more = false;
        while !stops.load(Ordering::Acquire) {
            let memory = self.memory.get();
            let mut has_taken = false;
            let quiet = self.queue.lock().disable_notification(&*memory);
            while let Some(next) = self.next() {
                has_taken = true;
                match next {
                    Ok(chain) => self.take(chain, side, scratch),
                    Err(Malformed { head }) => self.give_back((head, 0)),
                }
                // A guest that never ends asking does not keep its queue from ending.
                if stops.load(Ordering::Acquire) {
                    return;
                }
            }
            let memory = self.memory.get();
            let is_more = self.queue.lock().enable_notification(&*memory);
            // Where the queue is not in the guest's memory there is nothing to wait for. Before it
            // is enabled again, the thread is told to look.
            let is_enabled = self.is_enabled.load(Ordering::Acquire);
            if quiet.is_err() || !is_enabled || !is_more.unwrap_or(false) {
                return;
            }
            // More is said to be there, and none can be taken: the guest has broken its queue. One
            // that came while nothing was told is taken in the next round.
            if was_more && !has_taken {
                return;
            }
            was_more = true;
        }
    }

    fn take(self: &Arc<Self>, chain: Chain, side: &Side, scratch: &mut Scratch) {
        match Head::of(&chain, &side.guest) {
            None => self.give_back((chain.head(), 0)),
            Some(head) if head.treatment.takes_long && self.begins_another() => {
                side.workers.answer(Job {
                    chain,
                    head,
                    queue: Arc::clone(self),
                    pending: Pending(Arc::clone(self)),
                });
            }
            Some(head) => self.answer(chain, &head, &side.guest, scratch),
        }
    }

    /// Counts a request that is to be under way elsewhere, if there may be one more. A guest that
    /// asks again before it has answers waits for this thread.
    fn begins_another(&self) -> bool {
        let mut pending = self.pending.lock();
        let may = *pending < self.size;
        *pending += usize::from(may);
        may
    }

    /// Returns the place of the next request, when none is under way.
    fn settle(&self, side: &Side) -> u16 {
        while self.is_busy() {
            side.release();
        }
        self.queue.lock().next_avail()
    }

    /// Tells whether requests are still under way elsewhere, after a moment in which they may end.
    fn is_busy(&self) -> bool {
        let mut pending = self.pending.lock();
        *pending > 0 && {
            self.done.wait_for(&mut pending, A_MOMENT);
            *pending > 0
        }
    }
}

/// What answers a guest's requests.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) guest: Arc<Guest>,
    pub(crate) workers: Workers,
    /// How it is told of answers in its queues, in all of them.
    pub(crate) calls: Vec<Arc<Call>>,
}

impl Side {
    /// Lets threads go that are kept by events. The threads for what takes long serve all queues:
    /// the event of one may keep what another waits for.
    fn release(&self) {
        for call in &self.calls {
            call.release();
        }
    }
}

/// The thread of a queue. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    live: Arc<Live>,
    side: Arc<Side>,
    stops: Arc<AtomicBool>,
    /// Has the thread look, or end.
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it. The guest says by `kick` that there are requests.
    ///
    /// # Errors
    /// When the system has no thread or no descriptor.
    pub(crate) fn start(live: Live, kick: Event, side: Arc<Side>) -> io::Result<Self> {
        let live = Arc::new(live);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stops = Arc::new(AtomicBool::new(false));
        let mut running = Self {
            live: Arc::clone(&live),
            side: Arc::clone(&side),
            stops: Arc::clone(&stops),
            wake: Arc::clone(&wake),
            thread: None,
        };
        let thread = Builder::new().name("extant-guest".to_owned());
        running.thread = Some(thread.spawn(move || {
            let mut scratch = Scratch::new();
            // Requests may have been there before.
            loop {
                live.drain(&side, &mut scratch, &stops);
                if stops.load(Ordering::Acquire) || !wait(&wake, &kick) {
                    return;
                }
            }
        })?);
        Ok(running)
    }

    /// Has the thread look for requests.
    pub(crate) fn look(&self) {
        // It never waits: nobody else has it.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Ends the thread, and returns the place of the next request in its queue.
    pub(crate) fn stop(mut self) -> u16 {
        self.end();
        self.live.settle(&self.side)
    }

    /// Tells how many requests are under way elsewhere.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        *self.live.pending.lock()
    }

    fn end(&mut self) {
        self.stops.store(true, Ordering::Release);
        self.look();
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() {
                self.side.release();
                sleep(PAUSE);
            }
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        self.live.settle(&self.side);
    }
}

/// Waits until a queue is kicked, or to be looked at; `false` when nobody kicks it any more.
fn wait(wake: &OwnedFd, kick: &Event) -> bool {
    let mut both = [
        PollFd::new(wake, PollFlags::IN),
        PollFd::new(kick, PollFlags::IN),
    ];
    match poll(&mut both, None) {
        Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
        Err(_) => return false,
    }
    let [woken, kicked] = both.map(|one| one.revents());
    if !woken.is_empty() {
        let _ = take_count(wake);
        return true;
    }
    if kicked.contains(PollFlags::IN) {
        return match take_count(kick) {
            Ok(1..) | Err(Errno::INTR | Errno::AGAIN) => true,
            // Nobody kicks any more.
            Ok(_) | Err(_) => false,
        };
    }
    // What it is kicked by is gone.
    kicked.is_empty()
}
