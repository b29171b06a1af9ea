//! The messages of one virtual machine monitor, for one guest.

use crate::event::Event;
use crate::memory::{Memory, SLOTS};
use crate::message::{self, Kind, Malformed, Message};
use crate::ring::{Call, CurrentMemory, Live, Running, Side};
use crate::workers::Workers;
use extant_fuse::Guest;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use virtio_queue::{Queue, QueueT};

/// Queues of a guest at most: one for what is urgent, the others for requests. A guest before Linux
/// 6.11 uses one for requests, later ones one for each processor.
pub const QUEUES: usize = 17;
/// The largest queue that virtio has.
const LARGEST_QUEUE: u16 = 1024;

/// `VIRTIO_RING_F_INDIRECT_DESC`, `VIRTIO_RING_F_EVENT_IDX`, `VHOST_USER_F_PROTOCOL_FEATURES`,
/// `VIRTIO_F_VERSION_1`.
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const PROTOCOL: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;
const FEATURES: u64 = INDIRECT | EVENT_INDEX | PROTOCOL | VERSION_1;

/// `VHOST_USER_PROTOCOL_F_MQ`, `..._REPLY_ACK` and `..._CONFIGURE_MEM_SLOTS`.
const MULTIPLE_QUEUES: u64 = 1 << 0;
const REPLY_ACK: u64 = 1 << 3;
const MEMORY_SLOTS: u64 = 1 << 15;
const PROTOCOL_FEATURES: u64 = MULTIPLE_QUEUES | REPLY_ACK | MEMORY_SLOTS;

/// What was said of a queue.
#[derive(Debug)]
struct Ring {
    size: u16,
    /// Descriptors, used ring, available ring.
    addresses: Option<[u64; 3]>,
    base: u16,
    is_enabled: Arc<AtomicBool>,
    call: Arc<Call>,
    running: Option<Running>,
}

impl Ring {
    fn new() -> Self {
        Self {
            size: 0,
            addresses: None,
            base: 0,
            is_enabled: Arc::new(AtomicBool::new(false)),
            call: Arc::new(Call::new()),
            running: None,
        }
    }

    /// Stops it. What was said of it counts no more, but whether it is enabled.
    fn stop(&mut self) -> u16 {
        if let Some(running) = self.running.take() {
            self.base = running.stop();
        }
        self.call.set(None);
        self.base
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    features: u64,
    protocol: u64,
    memory: Memory,
    current: Arc<CurrentMemory>,
    rings: Vec<Ring>,
    side: Arc<Side>,
}

/// What a message gets.
enum Reply {
    /// Nothing, but that it was understood if that is asked for.
    Done,
    Number(u64),
    Words(u32, u32),
}

impl From<Malformed> for io::Error {
    fn from(_: Malformed) -> Self {
        refused("a message is not what it says it is")
    }
}

fn refused(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Connection {
    /// Begins with a guest.
    ///
    /// # Errors
    /// When the system has no threads.
    pub(crate) fn new(stream: UnixStream, guest: Arc<Guest>) -> io::Result<Self> {
        let workers = Workers::start(&guest)?;
        let memory = Memory::default();
        let rings: Vec<_> = (0..QUEUES).map(|_| Ring::new()).collect();
        let calls = rings.iter().map(|ring| Arc::clone(&ring.call)).collect();
        Ok(Self {
            stream,
            features: 0,
            protocol: 0,
            current: Arc::new(CurrentMemory::new(memory.mapped())),
            memory,
            rings,
            side: Arc::new(Side {
                guest,
                workers,
                calls,
            }),
        })
    }

    /// Does what the monitor says until it is gone. All queues have stopped then.
    ///
    /// # Errors
    /// When the connection breaks off, or what comes makes no sense.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let ended = self.listen();
        for ring in &mut self.rings {
            ring.stop();
        }
        self.side.guest.end();
        ended
    }

    fn listen(&mut self) -> io::Result<()> {
        while let Some(mut message) = Message::receive(&mut self.stream)? {
            let done = self.carry_out(&mut message);
            let wants_ack = message.needs_reply && self.protocol & REPLY_ACK != 0;
            let (words, number);
            let body: &[u8] = match &done {
                Ok(Reply::Done) if !wants_ack => continue,
                Err(_) if !wants_ack => &[],
                Ok(Reply::Done) => &0_u64.to_ne_bytes(),
                Err(_) => &1_u64.to_ne_bytes(),
                Ok(Reply::Number(value)) => {
                    number = value.to_ne_bytes();
                    &number
                }
                Ok(Reply::Words(first, second)) => {
                    let [first, second] = [first.to_ne_bytes(), second.to_ne_bytes()];
                    words = [first, second].concat();
                    &words
                }
            };
            if !body.is_empty() {
                message.reply(&self.stream, body)?;
            }
            done?;
        }
        Ok(())
    }

    fn ring(&mut self, index: u32) -> io::Result<&mut Ring> {
        let ring = self.rings.get_mut(index as usize);
        ring.ok_or_else(|| refused("a queue is named that is not there"))
    }

    fn carry_out(&mut self, message: &mut Message) -> io::Result<Reply> {
        let Some(kind) = message.kind else {
            return Err(refused("a message asks for what was not offered"));
        };
        match kind {
            Kind::GetFeatures => return Ok(Reply::Number(FEATURES)),
            Kind::GetProtocolFeatures => return Ok(Reply::Number(PROTOCOL_FEATURES)),
            Kind::GetQueueNum => return Ok(Reply::Number(QUEUES as u64)),
            Kind::GetMaxMemSlots => return Ok(Reply::Number(SLOTS as u64)),
            Kind::SetOwner => {}
            Kind::ResetOwner => (self.features, self.protocol) = (0, 0),
            Kind::SetFeatures => self.set_features(message.number()?)?,
            Kind::SetProtocolFeatures => {
                let asked = message.number()?;
                if asked & !PROTOCOL_FEATURES != 0 {
                    return Err(refused(
                        "a part of the protocol is wanted that was not offered",
                    ));
                }
                self.protocol = asked;
            }
            Kind::SetMemTable => {
                self.memory.replace(message.regions()?)?;
                self.current.set(self.memory.mapped());
            }
            Kind::AddMemReg => {
                let (region, file) = message.one_region()?;
                self.memory.add(region, file.ok_or(Malformed)?)?;
                self.current.set(self.memory.mapped());
            }
            Kind::RemMemReg => {
                self.memory.remove(&message.one_region()?.0)?;
                self.current.set(self.memory.mapped());
            }
            Kind::SetVringNum => {
                let (index, size) = message.state()?;
                let size = u16::try_from(size).unwrap_or(u16::MAX);
                if !size.is_power_of_two() || size > LARGEST_QUEUE {
                    return Err(refused("a queue has a length that it cannot have"));
                }
                self.ring(index)?.size = size;
            }
            Kind::SetVringAddr => {
                let message::Addresses {
                    index,
                    descriptors,
                    used,
                    available,
                } = message.addresses()?;
                self.ring(index)?.addresses = Some([descriptors, used, available]);
            }
            Kind::SetVringBase => {
                let (index, base) = message.state()?;
                self.ring(index)?.base = u16::try_from(base).map_err(|_| Malformed)?;
            }
            Kind::GetVringBase => {
                let (index, _) = message.state()?;
                let base = self.ring(index)?.stop();
                return Ok(Reply::Words(index, base.into()));
            }
            Kind::SetVringKick => {
                let (index, kick) = message.queue_descriptor()?;
                self.start(index, kick)?;
            }
            Kind::SetVringCall => {
                let (index, call) = message.queue_descriptor()?;
                let call = call.map(Event::new).transpose()?;
                self.ring(index)?.call.set(call);
            }
            // Nothing goes wrong with a queue that is told this way.
            Kind::SetVringErr => drop(message.queue_descriptor()?),
            Kind::SetVringEnable => {
                let (index, is_enabled) = message.state()?;
                let ring = self.ring(index)?;
                ring.is_enabled.store(is_enabled == 1, Ordering::Release);
                if let Some(running) = &ring.running {
                    running.look();
                }
            }
        }
        Ok(Reply::Done)
    }

    fn set_features(&mut self, asked: u64) -> io::Result<()> {
        if asked & !FEATURES != 0 {
            return Err(refused(
                "something is wanted of the device that was not offered",
            ));
        }
        self.features = asked;
        if asked & PROTOCOL == 0 {
            for ring in &self.rings {
                ring.is_enabled.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Starts a queue, which says by `kick` that there are requests.
    fn start(&mut self, index: u32, kick: Option<OwnedFd>) -> io::Result<()> {
        let has_event_index = self.features & EVENT_INDEX != 0;
        let (side, current) = (Arc::clone(&self.side), Arc::clone(&self.current));
        let nowhere = || refused("a queue lies nowhere in the guest's memory");
        let ring = self.ring(index)?;
        ring.base = match ring.running.take() {
            Some(running) => running.stop(),
            None => ring.base,
        };
        let kick = kick.ok_or_else(|| refused("a queue is to be looked at without being told"))?;
        let kick = Event::new(kick)?;
        let (size, base) = (ring.size, ring.base);
        let addresses = ring.addresses.ok_or_else(nowhere)?;
        let [descriptors, used, available] =
            addresses.map(|address| self.memory.guest_address(address));
        let mut queue = Queue::new(LARGEST_QUEUE).map_err(|_| nowhere())?;
        queue.set_size(size);
        queue
            .try_set_desc_table_address(descriptors.ok_or_else(nowhere)?)
            .and_then(|()| queue.try_set_used_ring_address(used.unwrap_or_default()))
            .and_then(|()| queue.try_set_avail_ring_address(available.unwrap_or_default()))
            .map_err(|_| nowhere())?;
        let mapped = self.memory.mapped();
        let used_index = queue.used_idx(&*mapped, Ordering::Relaxed);
        queue.set_next_avail(base);
        queue.set_next_used(used_index.map_err(|_| nowhere())?.0);
        queue.set_event_idx(has_event_index);
        queue.set_ready(true);
        if used.is_none() || available.is_none() || !queue.is_valid(&*mapped) {
            return Err(nowhere());
        }
        let ring = self.ring(index)?;
        let (call, is_enabled) = (Arc::clone(&ring.call), Arc::clone(&ring.is_enabled));
        let live = Live::new(queue, current, call, is_enabled);
        ring.running = Some(Running::start(live, kick, side)?);
        Ok(())
    }
}
