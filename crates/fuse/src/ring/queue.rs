//! The thread of one processor.
#![allow(unsafe_code)]

use super::idle::Pulse;
use super::memory::Slot;
use super::offload::{Offload, Returns};
use crate::answer::Answerer;
use crate::protocol::Request;
use crate::service::Errno;
use io_uring::{IoUring, cqueue, opcode, register::Restriction, squeue::Entry128, types::Fixed};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Stands for the event that slots have come back, among the numbers of slots.
const EVENT: u64 = u64::MAX;
/// The mount among the files of a ring, and what tells that slots have come back.
const DEVICE: Fixed = Fixed(0);
const RETURNS: Fixed = Fixed(1);
/// `IOSQE_FIXED_FILE`: an operation is about one of these.
const FIXED_FILE: u8 = 1;
/// What is as short as names is copied, so that the answer can be put in its place.
const SHORT: usize = 8192;
/// Room for an answer to what is longer.
const SHORT_ANSWER: usize = 512;

type Ring = IoUring<Entry128>;

/// One processor's requests.
pub(super) struct Queue {
    number: u16,
    ring: Ring,
    slots: Vec<Slot>,
    /// Bytes of a payload.
    payload: usize,
    /// Slots that it may get beyond those that it has at first: one for each request that waits for
    /// the kernel.
    most_more: usize,
    /// Requests that wait for the kernel.
    waiting: usize,
    returns: Arc<Returns>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// Has a ring of its own do nothing once, by all kinds of calls that queues make later, when it
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

    /// Makes a queue with `depth` slots, which may become `most_more` more, and which does nothing
    /// yet.
    ///
    /// # Errors
    /// When the system has no such rings, or not for us.
    pub(super) fn new(
        number: u16,
        (depth, most_more): (usize, usize),
        payload: usize,
    ) -> io::Result<Self> {
        let entries = ((depth + most_more) as u32 + 1).next_power_of_two();
        let ring: Ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)?;
        Ok(Self {
            number,
            ring,
            slots: Slot::several(0, depth, payload)?,
            payload,
            most_more,
            waiting: 0,
            returns: Arc::new(Returns::new()?),
        })
    }

    /// Says which mount the ring is for. It can do nothing but commands to that one and wait for
    /// its own event from now on.
    ///
    /// # Errors
    /// When the system does not take it.
    pub(super) fn attach(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let files = [device.as_raw_fd(), self.returns.event().as_raw_fd()];
        let submitter = self.ring.submitter();
        submitter.register_files(&files)?;
        submitter.register_restrictions(&mut [
            Restriction::sqe_op(opcode::UringCmd80::CODE),
            Restriction::sqe_op(opcode::PollAdd::CODE),
            Restriction::sqe_flags_required(FIXED_FILE),
        ])
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// Answers until the kernel has given all slots back, which it does when the mount is over.
    /// Call it in a thread that stays on the processor whose requests it answers: no other is
    /// woken.
    ///
    /// # Errors
    /// When the ring fails: what is asked on its processor finds no answer any more.
    pub(super) fn run(
        mut self,
        answerer: &Answerer,
        offload: &Offload,
        mut pulse: Option<Pulse>,
    ) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        // Those that the kernel has, by their numbers.
        let mut lent = Lent(Vec::new());
        for mut slot in std::mem::take(&mut self.slots) {
            let entry = slot.register(DEVICE, self.number);
            lent.0.push(Some(slot));
            self.submit(&entry)?;
        }
        self.watch()?;
        let first = lent.0.len();
        let mut alive = first;
        let mut is_used = false;
        let mut short = Vec::with_capacity(SHORT);
        while alive > 0 {
            self.wait()?;
            while let Some(entry) = self.next_completion() {
                if entry.user_data() == EVENT {
                    if entry.result() < 0 {
                        return Err(io::Error::from_raw_os_error(-entry.result()));
                    }
                    for slot in self.returns.take() {
                        self.give_back(slot, &mut lent)?;
                    }
                    self.watch()?;
                    continue;
                }
                let number = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
                let Some(slot) = lent.0.get_mut(number).and_then(Option::take) else {
                    return Err(io::Error::other(
                        "the kernel returned what it was not given",
                    ));
                };
                if entry.result() < 0 {
                    // It is over, or was never begun.
                    if !std::mem::replace(&mut is_used, true) {
                        tell_of_refusal(-entry.result());
                    }
                    alive -= 1;
                    continue;
                }
                is_used = true;
                if let Some(pulse) = &mut pulse {
                    pulse.beat();
                }
                match serve(slot, answerer, offload, &self.returns, &mut short) {
                    Served::Answered(slot) => self.give_back(slot, &mut lent)?,
                    Served::HandedOn => {}
                    // It gets no answer before other requests have theirs, which need a slot for
                    // that.
                    Served::WaitsForKernel(mut slot) => {
                        if lent.0.len() - self.waiting > first || self.add(&mut lent, &mut alive)? {
                            self.waiting += 1;
                            slot.waits = true;
                            offload.answer_when_written(slot, Arc::clone(&self.returns));
                        } else {
                            let unique = slot.request().header.unique;
                            slot.reply(unique, -Errno::AGAIN.0, 0);
                            self.give_back(slot, &mut lent)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the kernel what is for it, and sleeps until there is something from it. To stay awake
    /// and give way would keep the processor from the program that asked: the scheduler gives it
    /// to a thread of the same group or session only.
    fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
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

    /// Takes what the kernel has done, without holding on to the ring.
    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Gives the kernel one more slot; `false` if there are as many as there may be.
    fn add(&mut self, lent: &mut Lent, alive: &mut usize) -> io::Result<bool> {
        if self.most_more == 0 {
            return Ok(false);
        }
        let another = Slot::several(lent.0.len(), 1, self.payload);
        let Some(mut another) = another.ok().and_then(|mut slots| slots.pop()) else {
            return Ok(false);
        };
        self.most_more -= 1;
        let entry = another.register(DEVICE, self.number);
        lent.0.push(Some(another));
        *alive += 1;
        self.submit(&entry)?;
        Ok(true)
    }

    fn give_back(&mut self, mut slot: Slot, lent: &mut Lent) -> io::Result<()> {
        if std::mem::take(&mut slot.waits) {
            self.waiting -= 1;
        }
        let entry = slot.commit(DEVICE, self.number);
        let number = slot.number();
        if let Some(place) = lent.0.get_mut(number) {
            *place = Some(slot);
        }
        self.submit(&entry)
    }

    /// Asks to be told once when slots come back.
    fn watch(&mut self) -> io::Result<()> {
        let readable = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(RETURNS, readable).build();
        self.submit(&entry.user_data(EVENT).into())
    }

    fn submit(&mut self, entry: &Entry128) -> io::Result<()> {
        // SAFETY: what entries point to is the memory of slots. Those that the kernel has are in
        // `Lent`: they are not touched, and their memory stays for good if the kernel has not given
        // them back.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // There is room for all slots and the event.
        pushed.map_err(|_| io::Error::other("a ring is full"))
    }
}

/// Tells that the kernel did not take the first slot that it was given, unless that is because the
/// mount is over. It goes on by the device.
fn tell_of_refusal(error: i32) {
    let is_over = [
        libc::ENOTCONN,
        libc::ECONNABORTED,
        libc::ECANCELED,
        libc::ENODEV,
    ];
    if !is_over.contains(&error) {
        let error = io::Error::from_raw_os_error(error);
        tracing::warn!("requests come by the device, as the kernel refuses rings: {error}");
    }
}

/// Slots that the kernel has, by their numbers. Of those that it still has when the thread ends,
/// which it does then because the ring failed, the memory stays: the kernel may write to it as long
/// as the process lives.
struct Lent(Vec<Option<Slot>>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.drain(..).flatten().for_each(std::mem::forget);
    }
}

/// What became of a request.
enum Served {
    /// Its answer is in the slot.
    Answered(Slot),
    /// Somebody else answers it.
    HandedOn,
    /// It is to be answered after the kernel has written a file back.
    WaitsForKernel(Slot),
}

/// Answers the request in a slot, or hands it on.
fn serve(
    mut slot: Slot,
    answerer: &Answerer,
    offload: &Offload,
    returns: &Arc<Returns>,
    short: &mut Vec<u8>,
) -> Served {
    let parts = slot.request();
    let request = Request::from_parts(parts.header, &parts.fixed, slot.rest(), answerer.form());
    if answerer.waits_for_kernel(&request) {
        return Served::WaitsForKernel(slot);
    }
    if let Some(long) = answerer.may_take_long(&request) {
        offload.answer(slot, long, Arc::clone(returns));
        return Served::HandedOn;
    }
    answer(&mut slot, answerer, short);
    Served::Answered(slot)
}

/// Puts the answer to the request in a slot in its place.
pub(super) fn answer(slot: &mut Slot, answerer: &Answerer, short: &mut Vec<u8>) {
    answerer.came_through_ring();
    let parts = slot.request();
    let unique = parts.header.unique;
    let answered = if slot.rest().len() <= SHORT {
        short.clear();
        short.extend_from_slice(slot.rest());
        let request = Request::from_parts(parts.header, &parts.fixed, short, answerer.form());
        answerer.answer(&request, slot.payload_mut())
    } else {
        let mut body = [0; SHORT_ANSWER];
        let request = Request::from_parts(parts.header, &parts.fixed, slot.rest(), answerer.form());
        let answered = answerer.answer(&request, &mut body);
        let len = answered.unwrap_or(0);
        if let (Some(into), Some(body)) = (slot.payload_mut().get_mut(..len), body.get(..len)) {
            into.copy_from_slice(body);
        }
        answered
    };
    match answered {
        Ok(len) => slot.reply(unique, 0, len),
        Err(Errno(number)) => slot.reply(unique, -number, 0),
    }
}
