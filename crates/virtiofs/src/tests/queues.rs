//! Requests in queues.

use super::{Served, error_and_node, init, make, said, transfer};
use crate::answering::{self, Head, Scratch};
use crate::chain::{Chain, Malformed};
use crate::event::Event;
use crate::memory::Mapped;
use crate::ring::{Call, CurrentMemory, Live, Running, Side};
use crate::workers::Workers;
use extant_fuse::Guest;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{OFlags, inotify};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::MockSplitQueue;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// The guest's memory has a hole from here on, of a megabyte.
const HOLE: u64 = 8 << 20;
const MEMORY: u64 = 16 << 20;
/// Where requests and answers are.
const SAID: u64 = 1 << 20;
const ROOM: u64 = 4 << 20;
/// Flags of descriptors.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// How long is waited for what ends.
const LIMIT: Duration = Duration::from_secs(20);
/// Descriptors of a queue.
const SIZE: u16 = 256;

struct Machine {
    memory: Arc<Mapped>,
    guest: Guest,
    scratch: Scratch,
}

impl Machine {
    fn new(guest: Guest) -> Self {
        Self::with_hole(guest, 1 << 20)
    }

    /// One with two regions of memory, and so much between them.
    fn with_hole(guest: Guest, len: u64) -> Self {
        let hole = HOLE + len;
        let ranges = [
            (GuestAddress(0), HOLE as usize),
            (GuestAddress(hole), (MEMORY - hole) as usize),
        ];
        Self {
            memory: Arc::new(Mapped::from_ranges(&ranges).unwrap()),
            guest,
            scratch: Scratch::new(),
        }
    }

    /// One that has begun.
    fn begun(guest: Guest) -> Self {
        let mut machine = Self::new(guest);
        assert_eq!(machine.ask(&init(), 80).len(), 80);
        machine
    }

    /// Puts descriptors into a queue, and returns its first request.
    fn chain(&self, descriptors: &[Descriptor]) -> Result<Chain, Malformed> {
        let queue = MockSplitQueue::new(&*self.memory, SIZE);
        let raw: Vec<_> = descriptors
            .iter()
            .map(|one| RawDescriptor::from(*one))
            .collect();
        queue.add_desc_chains(&raw, 0).unwrap();
        let mut queue: Queue = queue.create_queue().unwrap();
        let chain = queue
            .pop_descriptor_chain(Arc::clone(&self.memory))
            .unwrap();
        Chain::new(&self.memory, chain)
    }

    /// Has a request answered. Returns how much of the room was filled; `None` for what is none.
    fn answer(&mut self, descriptors: &[Descriptor]) -> Option<u32> {
        let chain = self.chain(descriptors).ok()?;
        let head = Head::of(&chain, &self.guest)?;
        let (number, filled) = answering::answer(chain, &head, &self.guest, &mut self.scratch);
        assert_eq!(number, 0);
        Some(filled)
    }

    /// Asks in one piece, with room for an answer of `room` bytes in another.
    fn ask(&mut self, said: &[u8], room: u32) -> Vec<u8> {
        self.memory.write_slice(said, GuestAddress(SAID)).unwrap();
        let filled = self.answer(&[
            Descriptor::new(SAID, said.len() as u32, NEXT, 1),
            Descriptor::new(ROOM, room, WRITE, 0),
        ]);
        let mut answer = vec![0; filled.unwrap() as usize];
        self.memory
            .read_slice(&mut answer, GuestAddress(ROOM))
            .unwrap();
        answer
    }

    fn file(&mut self, name: &[u8]) -> u64 {
        let (error, node) = error_and_node(&self.ask(&make(name), 256));
        assert_eq!(error, 0);
        node
    }
}

/// Pieces of `len` bytes each for `all` bytes, from `from` on with as much between them.
fn scattered(from: u64, all: u32, len: u32, flags: u16, first: u16) -> Vec<Descriptor> {
    let pieces = all.div_ceil(len);
    (0..pieces)
        .map(|i| {
            let here = len.min(all - i * len);
            let at = from + u64::from(i) * 2 * u64::from(len);
            Descriptor::new(at, here, flags | NEXT, first + i as u16 + 1)
        })
        .collect()
}

fn last(mut descriptors: Vec<Descriptor>) -> Vec<Descriptor> {
    if let Some(last) = descriptors.pop() {
        let flags = if last.is_write_only() { WRITE } else { 0 };
        descriptors.push(Descriptor::new(last.addr().0, last.len(), flags, 0));
    }
    descriptors
}

#[test]
fn data_comes_and_goes_in_one_piece_and_in_many() {
    let served = Served::new(1);
    let mut machine = Machine::begun(served.guests.join());
    let file = machine.file(b"file\0");
    let sizes = [
        (1, 1),
        (5000, 700),
        (64 << 10, 64 << 10),
        (128 << 10, 4096),
        (1 << 20, 1 << 20),
    ];
    for (all, piece) in sizes {
        let data: Vec<u8> = (0..all)
            .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut head = said(16, file, &transfer(0, all));
        head[..4].copy_from_slice(&(80 + all).to_ne_bytes());
        machine
            .memory
            .write_slice(&head, GuestAddress(SAID))
            .unwrap();
        let mut chain = vec![Descriptor::new(SAID, 80, NEXT, 1)];
        chain.extend(scattered(SAID + 4096, all, piece, 0, 1));
        for (i, one) in chain[1..].iter().enumerate() {
            let at = i * piece as usize;
            let part = &data[at..at + one.len() as usize];
            machine.memory.write_slice(part, one.addr()).unwrap();
        }
        chain.push(Descriptor::new(ROOM, 24, WRITE, 0));
        assert_eq!(machine.answer(&chain), Some(24), "{all} in {piece}");
        let mut written = [0; 4];
        machine
            .memory
            .read_slice(&mut written, GuestAddress(ROOM + 16))
            .unwrap();
        assert_eq!(u32::from_ne_bytes(written), all);
        // More is asked for than there is.
        let more = all + 100;
        let asked = said(15, file, &transfer(0, more));
        machine
            .memory
            .write_slice(&asked, GuestAddress(SAID))
            .unwrap();
        let mut chain = vec![
            Descriptor::new(SAID, asked.len() as u32, NEXT, 1),
            Descriptor::new(ROOM, 16, WRITE | NEXT, 2),
        ];
        let pieces = scattered(ROOM + 4096, more, piece, WRITE, 2);
        chain.extend(last(pieces.clone()));
        assert_eq!(machine.answer(&chain), Some(16 + all), "{all} in {piece}");
        let mut read = Vec::new();
        for one in &pieces {
            let mut part = vec![0; one.len() as usize];
            machine.memory.read_slice(&mut part, one.addr()).unwrap();
            read.extend(part);
        }
        assert!(read[..all as usize] == data, "{all} in {piece}");
    }
    machine.guest.end();
    served.end();
}

#[test]
fn data_comes_and_goes_in_pieces_that_cross_regions_of_memory() {
    let served = Served::new(1);
    let mut machine = Machine::with_hole(served.guests.join(), 0);
    assert_eq!(machine.ask(&init(), 80).len(), 80);
    let file = machine.file(b"file\0");
    let across = HOLE - 1000;
    for all in [5000_u32, 128 << 10] {
        let data: Vec<u8> = (0..all)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut write = said(16, file, &transfer(0, all));
        write[..4].copy_from_slice(&(80 + all).to_ne_bytes());
        write.extend(&data);
        machine
            .memory
            .write_slice(&write, GuestAddress(across))
            .unwrap();
        let written = machine.answer(&[
            Descriptor::new(across, 80 + all, NEXT, 1),
            Descriptor::new(ROOM, 24, WRITE, 0),
        ]);
        assert_eq!(written, Some(24), "{all}");
        let asked = said(15, file, &transfer(0, all));
        machine
            .memory
            .write_slice(&asked, GuestAddress(SAID))
            .unwrap();
        let read = machine.answer(&[
            Descriptor::new(SAID, asked.len() as u32, NEXT, 1),
            Descriptor::new(across, 16 + all, WRITE, 0),
        ]);
        assert_eq!(read, Some(16 + all), "{all}");
        let mut found = vec![0; all as usize];
        machine
            .memory
            .read_slice(&mut found, GuestAddress(across + 16))
            .unwrap();
        assert!(found == data, "{all}");
    }
    machine.guest.end();
    served.end();
}

/// The guest's side of a queue in which all places name one request.
struct Offer<'a>(&'a Mapped);

impl Offer<'_> {
    /// Where the descriptors are, the requests and the answers.
    const PLACES: [u64; 3] = [
        HOLE - (1 << 20),
        HOLE - (1 << 20) + 4096,
        HOLE - (1 << 20) + 8192,
    ];

    /// There are as many since the beginning.
    fn requests(&self, count: u16) {
        let at = GuestAddress(Self::PLACES[1] + 2);
        self.0.write_obj(count.to_le(), at).unwrap();
    }

    /// How many answers there are since the beginning.
    fn answered(&self) -> u16 {
        let at = GuestAddress(Self::PLACES[2] + 2);
        u16::from_le(self.0.read_obj(at).unwrap())
    }
}

/// A queue with so many places.
fn asking<'a>(
    memory: &'a Arc<Mapped>,
    places: u16,
    request: &[u8],
    call: &Arc<Call>,
) -> (Live, Offer<'a>) {
    memory.write_slice(request, GuestAddress(SAID)).unwrap();
    let [descriptors, available, used] = Offer::PLACES;
    let chain = [
        Descriptor::new(SAID, request.len() as u32, NEXT, 1),
        Descriptor::new(ROOM, 256, WRITE, 0),
    ];
    for (one, at) in chain.into_iter().zip([descriptors, descriptors + 16]) {
        let one = RawDescriptor::from(one);
        memory.write_obj(one, GuestAddress(at)).unwrap();
    }
    let mut queue = Queue::new(places).unwrap();
    let at = GuestAddress(descriptors);
    queue.try_set_desc_table_address(at).unwrap();
    let at = GuestAddress(available);
    queue.try_set_avail_ring_address(at).unwrap();
    queue.try_set_used_ring_address(GuestAddress(used)).unwrap();
    queue.set_ready(true);
    let current = Arc::new(CurrentMemory::new(Arc::clone(memory)));
    let is_enabled = Arc::new(AtomicBool::new(true));
    let live = Live::new(queue, current, Arc::clone(call), is_enabled);
    (live, Offer(memory))
}

#[test]
fn a_guest_that_asks_again_before_it_has_answers_keeps_its_own_queue_busy() {
    const FEW: u16 = 8;
    let served = Served::new(1);
    let Machine {
        memory,
        guest,
        mut scratch,
    } = Machine::begun(served.guests.join());
    let (live, offer) = asking(&memory, FEW, &said(50, 1, &[0; 8]), &Arc::new(Call::new()));
    let live = Arc::new(live);
    let side = Side {
        guest: Arc::new(guest),
        workers: Workers::idle(),
        calls: Vec::new(),
    };
    // The first is named in all places. No more wait elsewhere than the queue has places.
    for round in 1..=3 {
        offer.requests(round * FEW);
        live.drain(&side, &mut scratch, &AtomicBool::new(false));
        assert_eq!(offer.answered(), (round - 1) * FEW);
    }
    side.guest.end();
    drop((live, side));
    served.end();
}

#[test]
fn an_event_that_its_monitor_fills_meanwhile_keeps_no_queue_from_ending() {
    const PLACES: u16 = 8;
    // A worker thread is kept, and the queue's own.
    let (long, short) = (said(50, 1, &[0; 8]), said(1, 1, b"none\0"));
    for request in [long, short] {
        let served = Served::new(1);
        let Machine { memory, guest, .. } = Machine::begun(served.guests.join());
        let guest = Arc::new(guest);
        let [event, kick] = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let monitors = event.try_clone().unwrap();
        let call = Arc::new(Call::new());
        call.set(Some(Event::filled_meanwhile(event)));
        let (live, offer) = asking(&memory, PLACES, &request, &call);
        let side = Arc::new(Side {
            guest: Arc::clone(&guest),
            workers: Workers::start(&guest).unwrap(),
            calls: vec![call],
        });
        offer.requests(PLACES);
        let kick = Event::new(kick).unwrap();
        let running = Running::start(live, kick, Arc::clone(&side)).unwrap();
        let end = Instant::now() + LIMIT;
        while offer.answered() == 0 {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(offer.answered() < PLACES);
        let (tell, ended) = channel();
        let thread = std::thread::spawn(move || tell.send(running.stop()));
        let ended = ended.recv_timeout(LIMIT);
        // Also a thread that is still kept is let go.
        rustix::fs::fcntl_setfl(&monitors, OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(&monitors, &mut [0; 8]);
        assert!(ended.is_ok(), "the queue ends");
        thread.join().unwrap().unwrap();
        guest.end();
        drop((side, guest));
        served.end();
    }
}

#[test]
fn an_event_of_one_queue_keeps_no_other_from_ending() {
    const PLACES: u16 = 8;
    let long = said(50, 1, &[0; 8]);
    let served = Served::new(1);
    let Machine { memory, guest, .. } = Machine::begun(served.guests.join());
    let guest = Arc::new(guest);
    let event = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let full = event();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let monitors = full.try_clone().unwrap();
    let calls = [(); 2].map(|()| Arc::new(Call::new()));
    calls[1].set(Some(Event::filled_meanwhile(full)));
    let side = Arc::new(Side {
        guest: Arc::clone(&guest),
        workers: Workers::start(&guest).unwrap(),
        calls: calls.to_vec(),
    });
    let others = Arc::new(Mapped::from_ranges(&[(GuestAddress(0), HOLE as usize)]).unwrap());
    let start = |memory, requests, call| {
        let (live, offer) = asking(memory, PLACES, &long, call);
        offer.requests(requests);
        let kick = Event::new(event()).unwrap();
        let running = Running::start(live, kick, Arc::clone(&side)).unwrap();
        let end = Instant::now() + LIMIT;
        while running.under_way() < usize::from(requests) {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        running
    };
    // All threads for what takes long are kept by the event of one queue, before the other asks.
    let keeping = start(&others, PLACES, &calls[1]);
    let kept = start(&memory, 1, &calls[0]);
    let (tell, ended) = channel();
    let thread = std::thread::spawn(move || {
        let bases = [kept.stop(), keeping.stop()];
        tell.send(bases).unwrap();
    });
    let bases = ended.recv_timeout(LIMIT);
    // Also threads that are still kept are let go.
    rustix::fs::fcntl_setfl(&monitors, OFlags::NONBLOCK).unwrap();
    let _ = rustix::io::read(&monitors, &mut [0; 8]);
    assert_eq!(bases.expect("both queues end"), [1, PLACES]);
    thread.join().unwrap();
    guest.end();
    drop((side, guest));
    served.end();
}

/// Others may wait in the middle of what is said not to.
#[test]
fn only_events_pipes_and_sockets_are_taken_for_events() {
    let pipe = || rustix::pipe::pipe().unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    for event in [
        eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        pipe().0,
        pipe().1,
        socket.into(),
    ] {
        assert!(Event::new(event).is_ok());
    }
    let clock = TimerfdClockId::Monotonic;
    for other in [
        inotify::init(inotify::CreateFlags::empty()).unwrap(),
        timerfd_create(clock, TimerfdFlags::empty()).unwrap(),
        epoll::create(epoll::CreateFlags::empty()).unwrap(),
        tempfile::tempfile().unwrap().into(),
        std::fs::File::open("/dev/null").unwrap().into(),
    ] {
        let kind = Event::new(other).unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::InvalidData);
    }
}

#[test]
fn another_event_is_taken_though_a_thread_is_kept_by_the_one_before() {
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let call = Arc::new(Call::new());
    call.set(Some(Event::filled_meanwhile(event)));
    let kept = {
        let call = Arc::clone(&call);
        std::thread::spawn(move || call.ring())
    };
    std::thread::sleep(Duration::from_millis(20));
    assert!(!kept.is_finished());
    let (tell, ended) = channel();
    std::thread::spawn(move || {
        call.set(None);
        tell.send(())
    });
    ended.recv_timeout(LIMIT).expect("the event is taken");
    kept.join().unwrap();
}

/// What somebody is to read stays, when another event takes its place.
#[test]
fn what_an_event_has_counted_is_its_monitors() {
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let monitors = event.try_clone().unwrap();
    let call = Call::new();
    call.set(Some(Event::new(event).unwrap()));
    for _ in 0..3 {
        call.ring();
    }
    call.set(None);
    let mut count = [0; 8];
    rustix::io::read(&monitors, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 3);
}

#[test]
fn requests_that_are_too_short_or_too_long_get_an_error_or_nothing() {
    let served = Served::new(1);
    let mut machine = Machine::begun(served.guests.join());
    let file = machine.file(b"file\0");
    let getattr = said(3, file, &[0; 16]);
    machine
        .memory
        .write_slice(&getattr, GuestAddress(SAID))
        .unwrap();
    let piece = |at, len, flags, next| Descriptor::new(at, len, flags, next);
    // Nothing, less than a header, and no room at all or too little for one.
    assert_eq!(machine.answer(&[piece(SAID, 0, 0, 0)]), None);
    assert_eq!(machine.answer(&[piece(SAID, 39, 0, 0)]), None);
    assert_eq!(machine.answer(&[piece(SAID, 56, 0, 0)]), Some(0));
    let answered = |machine: &mut Machine, len, room| {
        machine.answer(&[piece(SAID, len, NEXT, 1), piece(ROOM, room, WRITE, 0)])
    };
    assert_eq!(answered(&mut machine, 56, 15), Some(0));
    // Room for the header alone: that it failed is told. So it is of another length than it says.
    assert_eq!(answered(&mut machine, 56, 16), Some(16));
    assert_eq!(answered(&mut machine, 40, 256), Some(16));
    assert_eq!(answered(&mut machine, 57, 256), Some(16));
    assert_eq!(answered(&mut machine, 56, 256), Some(16 + 104));
    // Longer than anything that is asked.
    let long = 3_u32 << 20;
    machine
        .memory
        .write_slice(&long.to_ne_bytes(), GuestAddress(SAID))
        .unwrap();
    assert_eq!(answered(&mut machine, long, 256), Some(16));
    // A read of more than there is room for, and of more than any transfer.
    for (size, room) in [(4096, 4000), (3 << 20, 3 << 20), (u32::MAX, 4096)] {
        let read = said(15, file, &transfer(0, size));
        let answer = machine.ask(&read, room);
        assert_eq!(error_and_node(&answer).0, -22, "{size} {room}");
    }
    // Writes whose data is not there.
    for said_len in [0, 10, u32::MAX] {
        let mut write = said(16, file, &transfer(0, said_len));
        write[..4].copy_from_slice(&80_u32.wrapping_add(said_len).to_ne_bytes());
        let answer = machine.ask(&write, 64);
        let expected = if said_len == 0 { 0 } else { -22 };
        assert_eq!(error_and_node(&answer).0, expected, "{said_len}");
    }
    machine.guest.end();
    served.end();
}

#[test]
fn pieces_that_lie_nowhere_cost_the_guest_its_answer() {
    let served = Served::new(1);
    let mut machine = Machine::begun(served.guests.join());
    let file = machine.file(b"file\0");
    let read = said(15, file, &transfer(0, 8192));
    machine
        .memory
        .write_slice(&read, GuestAddress(SAID))
        .unwrap();
    let len = read.len() as u32;
    for at in [HOLE, HOLE - 20, MEMORY - 8, MEMORY, u64::MAX - 20_000] {
        let from = [
            Descriptor::new(at, len, NEXT, 1),
            Descriptor::new(ROOM, 9000, WRITE, 0),
        ];
        assert_eq!(machine.answer(&from), None, "{at:#x}");
        let to = [
            Descriptor::new(SAID, len, NEXT, 1),
            Descriptor::new(at, 9000, WRITE, 0),
        ];
        assert_eq!(machine.answer(&to).unwrap_or(0), 0, "{at:#x}");
        let header_only = [
            Descriptor::new(SAID, len, NEXT, 1),
            Descriptor::new(ROOM, 16, WRITE | NEXT, 2),
            Descriptor::new(at, 9000, WRITE, 0),
        ];
        // An empty file: nothing is put there.
        assert!(
            matches!(machine.answer(&header_only), None | Some(0 | 16)),
            "{at:#x}"
        );
    }
    let around = [Descriptor::new(u64::MAX - 10, 4096, 0, 0)];
    assert!(machine.chain(&around).is_err());
    machine.guest.end();
    served.end();
}

#[test]
fn chains_that_go_round_or_astray_end() {
    let served = Served::new(1);
    let mut machine = Machine::begun(served.guests.join());
    let getattr = said(3, 1, &[0; 16]);
    machine
        .memory
        .write_slice(&getattr, GuestAddress(SAID))
        .unwrap();
    // Round and round: each descriptor counts at most as often as there are descriptors.
    let round = [
        Descriptor::new(SAID, 56, NEXT, 1),
        Descriptor::new(ROOM, 256, WRITE | NEXT, 1),
    ];
    assert!(machine.answer(&round).is_some());
    let back = [
        Descriptor::new(SAID, 56, NEXT, 1),
        Descriptor::new(ROOM, 256, WRITE | NEXT, 0),
    ];
    assert_eq!(machine.chain(&back).unwrap_err(), Malformed { head: 0 });
    // To what is no descriptor.
    let astray = [Descriptor::new(SAID, 56, NEXT, 4711)];
    assert_eq!(machine.answer(&astray), Some(0));
    // A table of tables, one of an odd length, and one that lies nowhere.
    let table = SAID + 8192;
    for (at, len) in [(table, 16), (table, 17), (HOLE, 32), (u64::MAX - 15, 16)] {
        let nested = RawDescriptor::from(Descriptor::new(table, 16, INDIRECT, 0));
        machine
            .memory
            .write_obj(nested, GuestAddress(table))
            .unwrap();
        let indirect = [Descriptor::new(at, len, INDIRECT, 0)];
        assert_eq!(machine.answer(&indirect), None, "{at:#x} {len}");
    }
    // A table of many, in a ring.
    let many = 60_000_u16;
    for i in 0..many {
        let flags = if i == 0 { NEXT } else { WRITE | NEXT };
        let one = Descriptor::new(if i == 0 { SAID } else { ROOM }, 56, flags, (i + 1) % many);
        let at = GuestAddress((10 << 20) + u64::from(i) * 16);
        machine
            .memory
            .write_obj(RawDescriptor::from(one), at)
            .unwrap();
    }
    let indirect = [Descriptor::new(10 << 20, u32::from(many) * 16, INDIRECT, 0)];
    assert_eq!(machine.chain(&indirect).unwrap_err(), Malformed { head: 0 });
    machine.guest.end();
    served.end();
}

#[test]
fn whatever_a_guest_puts_into_its_queue_is_survived() {
    let served = Served::new(1);
    let mut machine = Machine::begun(served.guests.join());
    let file = machine.file(b"file\0");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..3000 {
        let opcode = random(56) as u32;
        if opcode == 38 {
            // The end is another test's.
            continue;
        }
        let node = [0, 1, file, random(100), u64::MAX][random(5) as usize];
        let mut bytes = said(opcode, node, &vec![0; random(200) as usize]);
        for _ in 0..random(30) {
            let at = random(bytes.len() as u64) as usize;
            // Its length is right more often than not.
            if at >= 8 || random(4) == 0 {
                bytes[at] = random(256) as u8;
            }
        }
        machine
            .memory
            .write_slice(&bytes, GuestAddress(SAID))
            .unwrap();
        let mut chain = Vec::new();
        let pieces = 1 + random(6);
        for piece in 0..pieces {
            let at = [SAID, ROOM, HOLE - 8, random(MEMORY), random(u64::MAX)][random(5) as usize];
            let len = [bytes.len() as u64, 16, random(300), random(3 << 20)][random(4) as usize];
            let at = if piece == 0 { SAID } else { at };
            let flags = random(if piece == 0 { 2 } else { 8 }) as u16;
            chain.push(Descriptor::new(
                at,
                len as u32,
                flags,
                random(pieces + 1) as u16,
            ));
        }
        machine.answer(&chain);
    }
    // It is served as before.
    assert_eq!(machine.ask(&init(), 80).len(), 80);
    machine.file(b"another\0");
    machine.guest.end();
    served.end();
}
