//! What a monitor says at the socket.

use super::{Served, error_and_node, init, make, said};
use crate::server::VirtioFs;
use extant_fuse::Guests;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_NUM: u32 = 8;
const SET_ADDR: u32 = 9;
const SET_BASE: u32 = 10;
const GET_BASE: u32 = 11;
const SET_KICK: u32 = 12;
const SET_CALL: u32 = 13;
const GET_PROTOCOL: u32 = 15;
const SET_PROTOCOL: u32 = 16;
const GET_QUEUES: u32 = 17;
const ENABLE: u32 = 18;
/// The first version, and that a reply is wanted.
const VERSION: u32 = 1;
const NEEDS_REPLY: u32 = 8;

/// Where the monitor has the guest's memory.
const OWN: u64 = 0x7f00_0000_0000;
const MEMORY: u64 = 8 << 20;
/// Where the parts of a queue are, and what it is about.
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const SAID: u64 = 0x10_000;
const ROOM: u64 = 0x20_000;
const SIZE: u16 = 8;

/// A server in a thread of its own.
fn serving(served: &Served, most: usize, monitors: impl FnOnce(&Path)) {
    let socket: PathBuf = served.dir.path().join("socket");
    let server = VirtioFs::bind(&socket, most).unwrap();
    let stop = server.stop();
    let guests: &Guests = &served.guests;
    std::thread::scope(|scope| {
        let run = scope.spawn(move || server.run(guests));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| monitors(&socket)));
        stop.stop();
        run.join().unwrap().unwrap();
        outcome.unwrap();
    });
}

struct Monitor {
    stream: UnixStream,
    memory: File,
    kick: OwnedFd,
    call: OwnedFd,
    asked: u16,
}

impl Monitor {
    fn connect(socket: &Path) -> Self {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(MEMORY).unwrap();
        let event = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        Self {
            stream: UnixStream::connect(socket).unwrap(),
            memory,
            kick: event(),
            call: event(),
            asked: 0,
        }
    }

    fn send(&self, number: u32, flags: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::new();
        for word in [number, VERSION | flags, body.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let slices = [IoSlice::new(&bytes)];
        // It may have been turned away.
        let _ = sendmsg(&self.stream, &slices, &mut ancillary, SendFlags::NOSIGNAL);
    }

    /// Receives a reply; `None` when the connection is gone.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header).ok()?;
        let len = u32::from_ne_bytes(*header[8..].first_chunk().unwrap());
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body).ok()?;
        Some(body)
    }

    fn asks(&mut self, number: u32) -> u64 {
        self.send(number, 0, &[], &[]);
        let body = self.receive().unwrap();
        u64::from_ne_bytes(*body.first_chunk().unwrap())
    }

    /// Says something that is to be confirmed: whether it was.
    fn says(&mut self, number: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        self.send(number, NEEDS_REPLY, body, files);
        self.receive()
            .is_some_and(|body| body == 0_u64.to_ne_bytes())
    }

    fn negotiate(&mut self) {
        let features = self.asks(GET_FEATURES);
        assert_eq!(features >> 32 & 1, 1);
        let protocol = self.asks(GET_PROTOCOL);
        self.send(SET_PROTOCOL, 0, &protocol.to_ne_bytes(), &[]);
        assert!(self.says(SET_OWNER, &[], &[]));
        assert!(self.asks(GET_QUEUES) >= 2);
        assert!(self.says(SET_FEATURES, &(features & !(1 << 29)).to_ne_bytes(), &[]));
    }

    fn share_memory(&mut self) -> bool {
        let mut body = [1_u32, 0].map(u32::to_ne_bytes).concat();
        body.extend([0, MEMORY, OWN, 0].map(u64::to_ne_bytes).concat());
        let memory = self.memory.try_clone().unwrap();
        self.says(SET_MEM_TABLE, &body, &[memory.as_fd()])
    }

    fn state(&mut self, number: u32, index: u32, value: u32) -> bool {
        self.says(number, &[index, value].map(u32::to_ne_bytes).concat(), &[])
    }

    fn addresses(&mut self, index: u32, all: [u64; 3]) -> bool {
        let mut body = [index, 0].map(u32::to_ne_bytes).concat();
        body.extend(all.map(u64::to_ne_bytes).concat());
        body.extend([0; 8]);
        self.says(SET_ADDR, &body, &[])
    }

    fn start(&mut self, index: u32, base: u16) -> bool {
        let all = [DESCRIPTORS, USED, AVAILABLE].map(|at| OWN + at);
        let (kick, call) = (
            self.kick.try_clone().unwrap(),
            self.call.try_clone().unwrap(),
        );
        let number = u64::from(index).to_ne_bytes();
        self.state(SET_NUM, index, SIZE.into())
            && self.state(SET_BASE, index, base.into())
            && self.addresses(index, all)
            && self.says(SET_CALL, &number, &[call.as_fd()])
            && self.says(SET_KICK, &number, &[kick.as_fd()])
            && self.state(ENABLE, index, 1)
    }

    /// One that is ready to ask.
    fn started(socket: &Path) -> Self {
        let mut monitor = Self::connect(socket);
        monitor.negotiate();
        assert!(monitor.share_memory());
        assert!(monitor.start(1, 0));
        let answer = monitor.ask(&init()).unwrap();
        assert_eq!((answer.len(), error_and_node(&answer).0), (80, 0));
        monitor
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    fn used(&self) -> u16 {
        let mut index = [0; 2];
        self.memory.read_exact_at(&mut index, USED + 2).unwrap();
        u16::from_ne_bytes(index)
    }

    /// Puts a request into the queue.
    fn submit(&mut self, bytes: &[u8]) {
        self.put(SAID, bytes);
        let descriptor = |at: u64, len: u32, flags: u16, next: u16| {
            let mut one = at.to_ne_bytes().to_vec();
            one.extend(len.to_ne_bytes());
            one.extend(flags.to_ne_bytes());
            one.extend(next.to_ne_bytes());
            one
        };
        self.put(DESCRIPTORS, &descriptor(SAID, bytes.len() as u32, 1, 1));
        self.put(DESCRIPTORS + 16, &descriptor(ROOM, 4096, 2, 0));
        let place = u64::from(self.asked % SIZE);
        self.put(AVAILABLE + 4 + 2 * place, &0_u16.to_ne_bytes());
        self.asked = self.asked.wrapping_add(1);
        self.put(AVAILABLE + 2, &self.asked.to_ne_bytes());
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.submit(bytes);
        while self.used() != self.asked {
            let mut one = [PollFd::new(&self.call, PollFlags::IN)];
            let limit = Timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            if poll(&mut one, Some(&limit)).unwrap() == 0 {
                return None;
            }
            let _ = rustix::io::read(&self.call, &mut [0; 8]);
        }
        let place = u64::from(self.asked.wrapping_sub(1) % SIZE);
        let mut used = [0; 8];
        self.memory
            .read_exact_at(&mut used, USED + 4 + 8 * place)
            .unwrap();
        let len = u32::from_ne_bytes(*used[4..].first_chunk().unwrap());
        let mut answer = vec![0; len as usize];
        self.memory.read_exact_at(&mut answer, ROOM).unwrap();
        Some(answer)
    }
}

#[test]
fn a_guest_is_served_over_the_socket_and_goes_on_where_its_queue_was_stopped() {
    let served = Served::new(1);
    serving(&served, 1, |socket| {
        let mut monitor = Monitor::started(socket);
        let answer = monitor.ask(&make(b"file\0")).unwrap();
        assert_eq!(error_and_node(&answer).0, 0);
        // What may take long is answered by another thread.
        let synced = monitor.ask(&said(50, 1, &[0; 8])).unwrap();
        assert_eq!(error_and_node(&synced).0, 0);
        monitor.send(GET_BASE, 0, &[1_u32, 0].map(u32::to_ne_bytes).concat(), &[]);
        let base = monitor.receive().unwrap();
        assert_eq!(base, [1_u32, 3].map(u32::to_ne_bytes).concat());
        assert!(monitor.start(1, 3));
        let found = monitor.ask(&said(1, 1, b"file\0")).unwrap();
        assert_eq!(error_and_node(&found), error_and_node(&answer));
        // One that is not enabled is not looked at, until it is.
        assert!(monitor.state(ENABLE, 1, 0));
        monitor.submit(&said(1, 1, b"none\0"));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_ne!(monitor.used(), monitor.asked);
        assert!(monitor.state(ENABLE, 1, 1));
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while monitor.used() != monitor.asked {
            assert!(std::time::Instant::now() < end);
            std::thread::yield_now();
        }
    });
    served.end();
}

#[test]
fn a_queue_that_its_guest_has_broken_waits_and_ends() {
    let served = Served::new(1);
    serving(&served, 1, |socket| {
        let mut monitor = Monitor::started(socket);
        // More requests than the queue has room for.
        let impossible = monitor.asked + SIZE + 1;
        let kick = |monitor: &Monitor| {
            rustix::io::write(&monitor.kick, &1_u64.to_ne_bytes()).unwrap();
        };
        monitor.put(AVAILABLE + 2, &impossible.to_ne_bytes());
        kick(&monitor);
        std::thread::sleep(std::time::Duration::from_millis(20));
        // One that is whole again is answered.
        let answer = monitor.ask(&make(b"file\0")).unwrap();
        assert_eq!(error_and_node(&answer).0, 0);
        let impossible = monitor.asked + SIZE + 1;
        monitor.put(AVAILABLE + 2, &impossible.to_ne_bytes());
        kick(&monitor);
        let limit = std::time::Duration::from_secs(20);
        monitor.stream.set_read_timeout(Some(limit)).unwrap();
        monitor.send(GET_BASE, 0, &[1_u32, 0].map(u32::to_ne_bytes).concat(), &[]);
        let base = monitor.receive().unwrap();
        assert_eq!(base, [1_u32, 2].map(u32::to_ne_bytes).concat());
        // The server ends while such a queue runs.
        assert!(monitor.start(1, 2));
        kick(&monitor);
    });
    served.end();
}

#[test]
fn a_descriptor_of_the_monitor_that_takes_nothing_keeps_no_thread() {
    let served = Served::new(1);
    serving(&served, 1, |socket| {
        let mut monitor = Monitor::started(socket);
        // It waits when it is full, and is.
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
        assert!(monitor.says(SET_CALL, &1_u64.to_ne_bytes(), &[writer.as_fd()]));
        monitor.submit(&said(1, 1, b"none\0"));
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while monitor.used() != monitor.asked {
            assert!(std::time::Instant::now() < end);
            std::thread::yield_now();
        }
    });
    served.end();
}

#[test]
fn guests_come_and_go_and_no_more_than_there_may_be() {
    let served = Served::new(2);
    serving(&served, 2, |socket| {
        let mut one = Monitor::started(socket);
        let mut other = Monitor::started(socket);
        let made = one.ask(&make(b"file\0")).unwrap();
        let found = other.ask(&said(1, 1, b"file\0")).unwrap();
        assert_eq!(error_and_node(&found), error_and_node(&made));
        let mut third = Monitor::connect(socket);
        third.send(GET_FEATURES, 0, &[], &[]);
        assert_eq!(third.receive(), None);
        // The place of one that is gone is free, and what it knew is let go.
        drop(one);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let mut next = Monitor::connect(socket);
            next.send(GET_FEATURES, 0, &[], &[]);
            if next.receive().is_some() {
                break;
            }
            assert!(std::time::Instant::now() < end);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let still = other.ask(&said(1, 1, b"file\0")).unwrap();
        assert_eq!(error_and_node(&still), error_and_node(&made));
    });
    served.end();
}

#[test]
fn a_monitor_that_says_what_cannot_be_loses_its_connection() {
    let served = Served::new(1);
    let wrong: &[&dyn Fn(&mut Monitor) -> bool] = &[
        // Queues that are not there, or have no length, or lie nowhere.
        &|monitor| monitor.state(SET_NUM, 17, 8),
        &|monitor| monitor.state(SET_NUM, 1, 0),
        &|monitor| monitor.state(SET_NUM, 1, 7),
        &|monitor| monitor.state(SET_NUM, 1, 2048),
        &|monitor| monitor.state(SET_BASE, 1, 70_000),
        &|monitor| monitor.start(1, 0),
        &|monitor| {
            monitor.share_memory()
                && monitor.state(SET_NUM, 1, 8)
                && monitor.addresses(1, [u64::MAX; 3])
                && {
                    let kick = monitor.kick.try_clone().unwrap();
                    monitor.says(SET_KICK, &1_u64.to_ne_bytes(), &[kick.as_fd()])
                }
        },
        &|monitor| {
            monitor.share_memory()
                && monitor.state(SET_NUM, 1, 8)
                && monitor.addresses(1, [OWN + MEMORY - 8; 3])
                && {
                    let kick = monitor.kick.try_clone().unwrap();
                    monitor.says(SET_KICK, &1_u64.to_ne_bytes(), &[kick.as_fd()])
                }
        },
        // Memory of which there is less, and without its file.
        &|monitor| {
            monitor.memory.set_len(4096).unwrap();
            monitor.share_memory()
        },
        &|monitor| monitor.says(SET_MEM_TABLE, &[1, 0, 0, 0, 0, 0, 0, 0], &[]),
        // What was not offered, and what nobody knows.
        &|monitor| monitor.says(SET_FEATURES, &u64::MAX.to_ne_bytes(), &[]),
        &|monitor| monitor.says(SET_PROTOCOL, &u64::MAX.to_ne_bytes(), &[]),
        &|monitor| monitor.says(4711, &[], &[]),
        &|monitor| monitor.says(SET_KICK, &[], &[]),
        // Events that are none, of which reading and writing may wait for ever.
        &|monitor| {
            monitor.share_memory() && monitor.start(1, 0) && {
                let other = inotify::init(inotify::CreateFlags::empty()).unwrap();
                monitor.says(SET_CALL, &1_u64.to_ne_bytes(), &[other.as_fd()])
            }
        },
        &|monitor| {
            monitor.share_memory() && monitor.start(1, 0) && {
                let other = inotify::init(inotify::CreateFlags::empty()).unwrap();
                monitor.says(SET_KICK, &1_u64.to_ne_bytes(), &[other.as_fd()])
            }
        },
    ];
    serving(&served, 1, |socket| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        for (number, says) in wrong.iter().enumerate() {
            // The one before may be about to go.
            let mut monitor = loop {
                let mut monitor = Monitor::connect(socket);
                monitor.send(GET_FEATURES, 0, &[], &[]);
                if monitor.receive().is_some() {
                    break monitor;
                }
                assert!(std::time::Instant::now() < end);
                std::thread::sleep(std::time::Duration::from_millis(2));
            };
            monitor.negotiate();
            assert!(!says(&mut monitor), "{number}");
            assert_eq!(monitor.receive(), None, "{number}");
        }
    });
    served.end();
}
