//! The thread of one processor.

use super::commands::{Came, Commands};
use super::idle::Pulse;
use super::memory::Slot;
use super::offload::Offload;
use crate::answer::{Answerer, Long};
use crate::protocol::{Opcode, Request};
use crate::service::Errno;
use std::io;

/// What is as short as names is copied, so that the answer can be put in its place.
const SHORT: usize = 8192;
/// Room for an answer to what is longer.
const SHORT_ANSWER: usize = 512;

/// One processor's requests.
#[derive(Debug)]
pub(super) struct Queue {
    number: u16,
    pub(super) commands: Commands,
    /// Those that it has from the beginning.
    slots: Vec<Slot>,
    /// Bytes of a payload.
    payload: usize,
    /// How many it has, whichever thread has them at the moment.
    owned: usize,
    /// How many it ever had.
    made: usize,
    /// Slots that it may get beyond those that it has at first: one for each request that waits for
    /// the kernel.
    most_more: usize,
    /// Requests that wait for the kernel.
    waiting: usize,
}

impl Queue {
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
        Ok(Self {
            number,
            commands: Commands::new(depth + most_more)?,
            slots: Slot::several(number, 0, depth, payload)?,
            payload,
            owned: depth,
            made: depth,
            most_more,
            waiting: 0,
        })
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
        self.commands.begin()?;
        for slot in std::mem::take(&mut self.slots) {
            self.commands.register(slot)?;
        }
        let first = self.owned;
        let mut short = Vec::with_capacity(SHORT);
        let mut came = Came::default();
        while self.owned > 0 {
            self.commands.wait(&mut came, pulse.as_mut())?;
            if let Some(error) = came.refusal.take() {
                tell_of_refusal(error);
            }
            let elsewhere = std::mem::take(&mut came.given_back_elsewhere);
            self.owned -= came.given_back.drain(..).count() + elsewhere;
            for slot in came.answered.drain(..) {
                self.give_back(slot)?;
            }
            offload.take_reads(self.number, &mut came.asked);
            for slot in came.asked.drain(..) {
                match serve(slot, answerer, offload, &mut short) {
                    Served::Answered(slot) => self.give_back(slot)?,
                    Served::HandedOn => {}
                    // It gets no answer before other requests have theirs, which need a slot for
                    // that.
                    Served::WaitsForKernel(mut slot) => {
                        if self.owned - self.waiting > first || self.add()? {
                            self.waiting += 1;
                            slot.waits = true;
                            offload.answer_when_written(slot);
                        } else {
                            let unique = slot.request().header.unique;
                            slot.reply(unique, -Errno::AGAIN.0, 0);
                            self.give_back(slot)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the kernel one more slot; `false` if there are as many as there may be.
    fn add(&mut self) -> io::Result<bool> {
        if self.most_more == 0 {
            return Ok(false);
        }
        let another = Slot::several(self.number, self.made, 1, self.payload);
        let Some(another) = another.ok().and_then(|mut slots| slots.pop()) else {
            return Ok(false);
        };
        self.most_more -= 1;
        self.owned += 1;
        self.made += 1;
        self.commands.register(another)?;
        Ok(true)
    }

    fn give_back(&mut self, mut slot: Slot) -> io::Result<()> {
        if std::mem::take(&mut slot.waits) {
            self.waiting -= 1;
        }
        self.commands.commit(slot)
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
fn serve(mut slot: Slot, answerer: &Answerer, offload: &Offload, short: &mut Vec<u8>) -> Served {
    let parts = slot.request();
    let request = Request::from_parts(parts.header, &parts.fixed, slot.rest(), answerer.form());
    if answerer.waits_for_kernel(&request) {
        return Served::WaitsForKernel(slot);
    }
    if let Some(long) = answerer.may_take_long(&request) {
        offload.answer(slot, long);
        return Served::HandedOn;
    }
    answer(&mut slot, answerer, short);
    Served::Answered(slot)
}

/// What a request to transfer data is, by its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// It may take long.
    Large,
    SmallRead,
}

/// Tells whether the request in a slot is one of these.
pub(super) fn size(slot: &Slot, answerer: &Answerer) -> Option<Size> {
    let parts = slot.request();
    let request = Request::from_parts(parts.header, &parts.fixed, slot.rest(), answerer.form());
    let is_read = match request.opcode {
        Some(Opcode::Read) => true,
        Some(Opcode::Write) => false,
        _ => return None,
    };
    match answerer.may_take_long(&request) {
        Some(Long::Transfer) => Some(Size::Large),
        None if is_read => Some(Size::SmallRead),
        _ => None,
    }
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
