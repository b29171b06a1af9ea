//! The metadata block cache: every block of metadata the engine looks at comes through here.
//!
//! | module | owns |
//! |---|---|
//! | `cache` | [`Cache`]: lookups, loads, readahead, discards |
//! | `buffer` | [`BlockRef`]: a block's content and what is known about it |
//! | `inflight` | which thread loads which block right now, and which wait for it |
//! | `clock` | which blocks to forget when the budget is used up |
//! | `table` | which blocks are in memory |
//! | `open` | [`OpenBlock`]: a block that is changed in place |
//! | `overlay` | [`Overlay`]: newer images of blocks than the device has |
//! | `seq` | [`Seq`]: numbers of transactions, which images of blocks carry |
//! | `seal` | [`Seal`]: the checksum that a block's image gets at commit |
//! | `shed` | [`Shed`]: which memory is given up |
//!
//! # Locking
//!
//! A hit takes no lock: it looks the block up in a read-mostly table under an epoch guard. A miss
//! claims the block under a short lock, lets go of it, and reads; others that need the block wait
//! for the outcome without holding any lock of the cache. A loaded block is put into the table
//! under the lock of its claim. The locks here are of ranks `CacheLoad`, `CacheBucket` and
//! `LruShard`; other than that they are never held two at a time, and none is across I/O. Callers
//! of [`Cache::read`] and [`Cache::prefetch`] may hold locks up to rank `Quota`, no later ones and
//! no epoch guard.
//!
//! # Invariants
//!
//! - A block's content does not change once it is published. A change is a new image, of which
//!   several changes of one transaction may share one: a caller that asks for a block that is open
//!   gets an image of it as it is then.
//! - At most one load of a block is in flight, and none of a block in the table that was not
//!   discarded: what a load brings becomes visible as the load ends, unless a newer image came or
//!   the block was discarded meanwhile. Then it goes to nobody, and its readers look again.
//! - The blocks kept never exceed the budget. A block that somebody holds is never evicted; if
//!   nothing can be evicted, a new block is handed out without being kept.
//! - No block outside the file system is ever read.

mod buffer;
mod cache;
mod clock;
mod inflight;
mod open;
mod overlay;
mod seal;
mod seq;
mod shed;
mod table;

pub use buffer::Content;
pub use buffer::{BlockRef, Peeked};
pub use cache::{Cache, CacheStats};
pub use open::{LockedBlock, OpenBlock};
pub use overlay::Overlay;
pub use seal::Seal;
pub use seq::Seq;
pub use shed::Shed;
