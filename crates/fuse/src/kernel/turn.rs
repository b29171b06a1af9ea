//! How one thread comes to its requests, among others.

use super::device::{Device, Received};
use super::watch::Reader;
use crate::answer::Answerer;
use crate::awake::Awake;
use crate::protocol::{Reply, Request};
use extant_sync::Leader;
use std::io;

/// One thread's way to the device.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    /// All threads wait there.
    Waits,
    /// What is asked comes through rings.
    BesideRings(Reader<'a>),
    /// As few as needed wait there.
    Leads(Leading<'a>),
}

/// A leader that stays awake between requests.
#[derive(Debug)]
pub(super) struct Leading<'a> {
    leader: Leader<'a>,
    awake: Awake,
    /// Its request was there when it came back from the one before.
    was_there: bool,
    /// It has waited or rested since then.
    has_waited: bool,
}

impl<'a> Turn<'a> {
    /// Makes the turn of a thread that stays `awake`.
    pub(super) fn leads(leader: Leader<'a>, awake: Awake) -> Self {
        Self::Leads(Leading {
            leader,
            awake,
            was_there: false,
            has_waited: true,
        })
    }

    /// Reads the next request, and returns its length in bytes. `None` when the mount is over.
    ///
    /// # Errors
    /// When the connection breaks off.
    pub(super) fn next(&mut self, device: &Device, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let received = match self {
                Self::Waits | Self::BesideRings(_) => device.receive(buffer)?,
                Self::Leads(leading) => leading.look(device, buffer)?,
            };
            match received {
                Received::Request(len) => return Ok(Some(len)),
                Received::Over => return Ok(None),
                Received::Nothing => {}
            }
        }
    }

    /// Tells the others of a request that this thread is about to do.
    pub(super) fn took(&mut self, request: &Request<'_>, answerer: &Answerer) {
        let reply = request.opcode.map(|opcode| opcode.traits().reply);
        let forgets = reply == Some(Reply::Never);
        match self {
            Self::Waits => {}
            Self::BesideRings(reader) => {
                if !forgets {
                    reader.saw_request();
                }
            }
            Self::Leads(leading) => {
                // Nobody waits for what gets no answer: it does not tell how many ask.
                leading.leader.took((!forgets).then_some(leading.was_there));
                if answerer.may_take_long(request).is_some() {
                    leading.leader.gives_way();
                }
            }
        }
    }

    /// Notes that nodes were forgotten. Returns when this thread is to go on.
    pub(super) fn forgot(&mut self, answerer: &Answerer) {
        match self {
            Self::BesideRings(reader) if answerer.uses_rings() => reader.saw_forget(answerer),
            _ => self.answered(),
        }
    }

    /// Notes that a request was answered. Returns when this thread is to go on.
    pub(super) fn answered(&mut self) {
        if let Self::Leads(leading) = self {
            leading.has_waited = leading.leader.did();
        }
    }
}

impl Leading<'_> {
    /// Looks for a request for a while. Finding none, it rests or waits for one, and is to look
    /// again.
    fn look(&mut self, device: &Device, buffer: &mut [u8]) -> io::Result<Received> {
        let mut received = Ok(Received::Nothing);
        let mut looks = 0;
        let is_nothing = |received: &io::Result<_>| matches!(received, Ok(Received::Nothing));
        let mut look = || {
            received = device.receive(buffer);
            looks += 1;
            !is_nothing(&received)
        };
        if self.awake.is_crowded() {
            look();
        } else {
            self.awake.wait(look);
        }
        let is_first = looks == 1 && !self.has_waited;
        self.was_there = is_first && matches!(received, Ok(Received::Request(_)));
        if is_nothing(&received) {
            if !self.leader.rest_if_another_waits() {
                device.wait()?;
            }
            self.has_waited = true;
        }
        received
    }
}
