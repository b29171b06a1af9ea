//! Images in chunk stores, as casync and desync keep them: an index (`.caibx`) lists the chunks of
//! an image by their digests, and a store has each chunk once, whatever images it belongs to.
//!
//! | file | owns |
//! |---|---|
//! | `index` | the index: reading and writing |
//! | `store` | where chunks are: a directory, a web server, a bucket |
//! | `device` | the block device, which fetches chunks when they are read |
//! | `cut` | where chunks end |
//! | `stretch` | reading an image that is cut |
//! | `make` | cutting an image into chunks and putting them into a store |
//!
//! # Invariants
//! - The bytes of a chunk are used only if their digest is the one in the index.
//! - A chunk has at most [`LARGEST`] bytes: a hostile index makes nobody use more.

mod cut;
mod device;
mod index;
mod make;
mod store;
mod stretch;

pub use cut::ChunkSizes;
pub(crate) use device::{open, store_beside};
pub use make::{ChunkOptions, ChunkReport, make};

/// The largest chunk that is read, in bytes.
const LARGEST: u64 = 16 << 20;
