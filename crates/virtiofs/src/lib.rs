//! Serving ext4 images to virtual machines: virtio-fs over vhost-user.
//!
//! Open to programs, but it serves the engine itself, which `extant` gives with its feature
//! `unstable`: any version may change it (`docs/dev/api.md`).
//!
//! Written from the specifications: *Virtual I/O Device (VIRTIO) 1.2*, sections 2.7 (split
//! virtqueues) and 5.11 (file system device), and QEMU's *Vhost-user Protocol*
//! (`docs/interop/vhost-user.rst`).
//!
//! ```text
//!  guest ── queues in its memory ── ring ── chain ── answering ── extant_fuse::Guest
//!  monitor ── socket ── connection ── memory, ring
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `server` | [`VirtioFs`]: listening, how many guests there are, the end |
//! | `connection` | the messages of one virtual machine monitor |
//! | `message` | what messages look like, and the descriptors that come with them |
//! | `memory` | the memory of a guest |
//! | `ring` | one queue: its thread, and how answers get back |
//! | `event` | descriptors of the monitor by which a guest is told of something |
//! | `chain` | the pieces of memory of one request |
//! | `answering` | one request, from its pieces to its answer |
//! | `workers` | the threads for requests that may take long |
//!
//! # Who is trusted
//!
//! A guest is not. What it puts into its queues and its memory costs it an answer, or at worst its
//! own file system. It changes its memory while that is read: what is decided by is copied first,
//! and only data of files is moved from and to the guest's memory directly.
//!
//! The virtual machine monitor at the other end of the socket is as far as it can cut memory off
//! that it has handed over, which ends the process. Everything else that it says wrong costs it the
//! connection. By an event that is full it can keep threads, but only those of its own guest, and
//! only until a queue or the connection ends: all events of the guest are looked at then, as the
//! event of one queue may keep a thread that another queue waits for. What a queue is told by is an
//! `eventfd`, a pipe or a socket. Reading and writing others might wait for good.
//!
//! In two ways a monitor can keep the place of its guest, and with it the end of the server:
//!
//! - By descriptors of files that it serves itself (FUSE). Reading memory in such a file and
//!   closing it wait for its answer.
//! - On older kernels by emptying an event at the moment when it is read: an `eventfd` before Linux
//!   5.8, a pipe or a socket before 6.4.
//!
//! # Invariants
//!
//! - Each guest has at most [`QUEUES`] queues, with a thread each while the queue runs, and a few
//!   threads for requests that may take long. What they keep of requests is bounded by that.
//! - A queue is stopped when no request of it is under way any more.

#![deny(unsafe_code)]

mod answering;
mod chain;
mod connection;
mod event;
mod memory;
mod message;
mod ring;
mod server;
mod workers;

pub use connection::QUEUES;
pub use server::{ServeError, Stop, VirtioFs};

#[cfg(test)]
mod tests;
