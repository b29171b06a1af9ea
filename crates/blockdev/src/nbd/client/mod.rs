//! The client of NBD servers.
//!
//! Written from the protocol document of the project NetworkBlockDevice/nbd (`doc/proto.md`). The
//! client blocks. Its only threads are one that connects once more to a server that is far, and one
//! that flushes beside durable writes to such a server.
//!
//! | file | owns |
//! |---|---|
//! | `device.rs` | [`NbdDevice`]: cutting requests, blocks of the server |
//! | `batch.rs` | batches, and what of them is durable without a flush |
//! | `parts.rs` | changes of parts of the server's blocks |
//! | `pool.rs` | connections: choosing one, making others, flushing all |
//! | `links.rs` | which thread makes a connection that several wait for |
//! | `connection.rs` | one connection: requests of many threads, and their replies |
//! | `messages.rs` | replies, checked against what was asked |
//! | `replies.rs` | the stream of replies, and what has come of a reply |
//! | `job.rs` | a request with its data and its outcome |
//! | `extents.rs` | holes |
//! | `ends.rs` | both ends of an export in memory |
//! | `handshake.rs` | the negotiation |
//! | `stream.rs` | sockets that do not block |
//! | `tls.rs` | TLS (feature `tls`) |
//! | `wire.rs` | numbers and messages of the protocol |
//!
//! # When a connection breaks
//!
//! A client cannot know whether the server lost its memory, or only the connection, nor whether it
//! still carries out what it was sent. So:
//!
//! - Questions (reads, extents) that were not answered are asked again over a new connection, for
//!   a limited time and a limited number of times. The export must have the same size and abilities
//!   as before.
//! - A change of which the server cannot have all bytes is sent again likewise.
//! - A change that was sent and not answered is an error for its caller. It is never sent again:
//!   the server may still do the first one, after what was written to the same place since. So is a
//!   flush, and it is not sent again either: systems tell once that something could not be made
//!   durable, to whichever flush asks first, and then call the next one a success.
//! - If a change or a flush was not answered, if a change was answered and no flush has covered it,
//!   or if a flush was answered with an error, all requests of the device fail from then on, with
//!   the reason. So no flush ever tells that a change is durable that may be lost, whichever thread
//!   asks, no read shows what was there before a change that was answered, and nothing is built on
//!   what may be gone. The user opens the export again, and a journal does the rest.
//! - A connection without such changes is replaced, and nobody notices: a server may start anew
//!   under a mount that is idle.
//! - One thread connects again, and all that wait have what comes of it (see `links.rs`).
//!
//! # When a server is silent
//!
//! A server that owes an answer and sends nothing at all for a time (`answer_timeout`) counts as
//! gone: its connection is broken. While a flush is open, or a change that is durable when it is
//! answered, the time is that of flushes, which is much longer: making much data durable takes
//! long, and a server that does one request after the other says nothing else meanwhile. A host
//! that is gone is not waited for so long: TCP has it answer (keepalive), and gives the connection
//! up after `answer_timeout`, whatever is open.
//!
//! # What is not used
//!
//! `NBD_CMD_FLAG_FAST_ZERO`: a server that zeroes slowly is still quicker than zeroes sent to it.
//! `NBD_CMD_FLAG_NO_HOLE`: zeroes need no space here. `NBD_CMD_FLAG_DF`: parts of a reply may come
//! in any order. Resizing and caching.

use super::address;

mod batch;
mod connection;
mod device;
mod ends;
mod extents;
mod handshake;
mod job;
mod links;
mod messages;
mod parts;
mod pool;
mod replies;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod wire;

pub use device::NbdDevice;
