//! Exports of NBD servers: their addresses, and how they are used.

mod address;

pub use address::{NBD_PORT, NbdAddress, NbdOptions, NbdTransport};
