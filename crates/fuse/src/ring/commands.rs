//! The commands of one thread to the mount, and its waiting for what comes of them.
#![allow(unsafe_code)]

use super::idle::Pulse;
use super::inbox::Inbox;
use super::memory::Slot;
use io_uring::{IoUring, cqueue, opcode, register::Restriction, squeue::Entry128, types::Fixed};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Stands for the event that the inbox has something, among the tags of slots.
const EVENT: u64 = u64::MAX;
/// The mount among the files of a ring, and the event of the inbox.
const DEVICE: Fixed = Fixed(0);
const INBOX: Fixed = Fixed(1);
/// `IOSQE_FIXED_FILE`: an operation is about one of these.
const FIXED_FILE: u8 = 1;

type Ring = IoUring<Entry128>;

/// A ring that gives slots to the kernel, those that the kernel has, and the inbox of the thread
/// that it belongs to.
pub(super) struct Commands {
    ring: Ring,
    lent: Lent,
    inbox: Arc<Inbox>,
}

/// What came to a thread since it looked last. To be emptied before it waits again. Answers, and
/// news of slots that others got back, go to the threads of processors only.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Requests that are to be answered.
    pub(super) asked: Vec<Slot>,
    /// Slots of the thread's own into which others have put answers.
    pub(super) answered: Vec<Slot>,
    /// Slots that the kernel has given back here, which it does when the mount is over.
    pub(super) given_back: Vec<Slot>,
    /// How many of the thread's own it has given back to others.
    pub(super) given_back_elsewhere: usize,
    /// The number of the error by which it gave back the first slot, where it had asked nothing
    /// before: it does not take rings.
    pub(super) refusal: Option<i32>,
    /// It has asked something, or given back a slot, now or before.
    is_begun: bool,
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

impl Commands {
    /// Has a ring of its own do nothing once, by all kinds of calls that rings make later, when it
    /// is too late to do without.
    ///
    /// # Errors
    /// When the system refuses one of them, as the filter of a container may.
    pub(super) fn try_out() -> io::Result<()> {
        let mut ring: Ring = IoUring::builder().setup_r_disabled().build(1)?;
        ring.submitter().register_enable_rings()?;
        // SAFETY: the operation has no arguments.
        unsafe { ring.submission().push(&opcode::Nop::new().build().into()) }
            .map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        match ring.completion().next() {
            Some(entry) if entry.result() < 0 => Err(io::Error::from_raw_os_error(-entry.result())),
            _ => Ok(()),
        }
    }

    /// Makes a ring for so many slots, which does nothing yet.
    ///
    /// # Errors
    /// When the system has no such rings, or not for us.
    pub(super) fn new(slots: usize) -> io::Result<Self> {
        let entries = u32::try_from(slots + 1).unwrap_or(u32::MAX);
        let ring: Ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries.next_power_of_two())?;
        Ok(Self {
            ring,
            lent: Lent::default(),
            inbox: Arc::new(Inbox::new()?),
        })
    }

    /// Says which mount the ring is for. It can do nothing but commands to that one and wait for
    /// its own event from now on.
    ///
    /// # Errors
    /// When the system does not take it.
    pub(super) fn attach(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let files = [device.as_raw_fd(), self.inbox.event().as_raw_fd()];
        let submitter = self.ring.submitter();
        submitter.register_files(&files)?;
        submitter.register_restrictions(&mut [
            Restriction::sqe_op(opcode::UringCmd80::CODE),
            Restriction::sqe_op(opcode::PollAdd::CODE),
            Restriction::sqe_flags_required(FIXED_FILE),
        ])
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Makes the ring this thread's.
    ///
    /// # Errors
    /// When the system does not take it.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.watch()
    }

    /// Gives the kernel what is for it, sleeps until there is something, and puts what there is
    /// into `came`. To stay awake and give way would keep the processor from the program that
    /// asked: the scheduler gives it to a thread of the same group or session only.
    ///
    /// # Errors
    /// When the ring fails, the inbox cannot be waited for, or the kernel returns what it was not
    /// given.
    pub(super) fn wait(
        &mut self,
        came: &mut Came,
        mut pulse: Option<&mut Pulse>,
    ) -> io::Result<()> {
        self.submit(1)?;
        while let Some(entry) = self.next() {
            match (entry.user_data(), entry.result()) {
                (EVENT, error) if error < 0 => return Err(io::Error::from_raw_os_error(-error)),
                (EVENT, _) => {
                    self.watch()?;
                    self.inbox.empty_into(came);
                }
                (tag, error) if error < 0 => {
                    came.given_back.push(self.lent.take(tag)?);
                    if !std::mem::replace(&mut came.is_begun, true) {
                        came.refusal = Some(-error);
                    }
                }
                (tag, _) => {
                    came.asked.push(self.lent.take(tag)?);
                    came.is_begun = true;
                    if let Some(pulse) = &mut pulse {
                        pulse.beat();
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes what the kernel says next, without holding on to the ring.
    fn next(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn submit(&self, wanted: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => Ok(()),
            Err(e) => match e.raw_os_error() {
                // Nothing is lost: it is tried again, as others wait for this thread.
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    std::thread::yield_now();
                    Ok(())
                }
                _ => Err(e),
            },
        }
    }

    /// Gives the kernel a slot for the first time.
    ///
    /// # Errors
    /// When the ring fails. The memory of the slot stays for good then.
    pub(super) fn register(&mut self, mut slot: Slot) -> io::Result<()> {
        let entry = slot.register(DEVICE);
        self.lend(slot, &entry)
    }

    /// Gives the kernel the answer in a slot, and the slot.
    ///
    /// # Errors
    /// As of [`Commands::register`].
    pub(super) fn commit(&mut self, slot: Slot) -> io::Result<()> {
        let entry = slot.commit(DEVICE);
        self.lend(slot, &entry)
    }

    fn lend(&mut self, slot: Slot, entry: &Entry128) -> io::Result<()> {
        self.lent.put(slot);
        self.push(entry)
    }

    /// Asks to be told once when the inbox has something.
    fn watch(&mut self) -> io::Result<()> {
        let readable = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(INBOX, readable).build();
        self.push(&entry.user_data(EVENT).into())
    }

    fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        while self.ring.submission().is_full() {
            self.submit(0)?;
        }
        // SAFETY: what entries point to is the memory of slots, which `lend` has put into `lent`
        // before: there nobody touches them until the kernel has given them back, and their memory
        // stays for good if it does not.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("a ring is full"))
    }
}

/// Slots that the kernel has. Of those that it still has when the thread ends, as a ring failed,
/// the memory stays: the kernel may write to it as long as the process lives.
#[derive(Debug, Default)]
struct Lent(Vec<Slot>);

impl Lent {
    fn put(&mut self, slot: Slot) {
        self.0.push(slot);
    }

    /// Takes the slot of a tag.
    ///
    /// # Errors
    /// When the kernel does not have it.
    fn take(&mut self, tag: u64) -> io::Result<Slot> {
        // The one that was given last comes back first.
        let place = self.0.iter().rposition(|slot| slot.tag() == tag);
        let place =
            place.ok_or_else(|| io::Error::other("the kernel returned what it was not given"))?;
        Ok(self.0.swap_remove(place))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.drain(..).for_each(std::mem::forget);
    }
}
