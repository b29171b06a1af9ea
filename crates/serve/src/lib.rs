//! Serving block devices to others: an NBD server over any [`BlockDevice`].
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! Written from the protocol document of the project NetworkBlockDevice/nbd (`doc/proto.md`):
//! fixed newstyle negotiation, structured replies, block status, several connections.
//!
//! | module | owns |
//! |---|---|
//! | `server` | [`NbdServer`]: listening, the threads of each connection, the end |
//! | `address` | [`Listen`] |
//! | `activity` | what clients do: which one gives way to another |
//! | `negotiate` | options, until a client has chosen the export |
//! | `transmit` | requests and replies |
//! | `wire` | numbers of the protocol |
//!
//! # Invariants
//!
//! - Each connection has a few threads; each reads one request, does it, and answers. What requests
//!   of one connection carry is bounded in sum ([`Limits`]), and so is the number of connections.
//! - A client that breaks the protocol loses its connection, and no other one notices.
//! - All connections share one device, whose flush covers all that was answered on any of them: so
//!   several connections are safe, and the server says so.

#![deny(unsafe_code)]

mod activity;
mod address;
mod negotiate;
mod server;
mod transmit;
mod wire;

pub use address::{BadAddress, Listen};
pub use server::{Limits, NbdServer, ServeError, ServeOptions, Stop, listen_at, serve_connection};

#[cfg(doc)]
use extant_blockdev::BlockDevice;
