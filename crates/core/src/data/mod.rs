//! File data.
//!
//! | file | owns |
//! |---|---|
//! | `read` | reading a range into the caller's buffer |
//! | `seek` | where data and holes begin, and where data lies on the device |
//! | `seek_live` | the same in files that may change |
//! | `blocks` | blocks of directories and other metadata files, through the cache |
//! | `inline` | content inside the inode |
//! | `stream` | reading a whole file in order, holes kept apart |
//! | `ahead` | who reads on and on, and how far ahead to read |
//! | `live` | reading files that may change, from memory or through it |
//! | `at_once` | reading and writing over what memory has already |
//! | `write` | writing a range, and doing so without memory in between |
//! | `direct` | reading and writing past memory |
//! | `converting` | making data of reserved blocks that were written past memory |
//! | `dax` | the same where the device is memory |
//! | `buffered` | writing to memory |
//! | `writeback` | what is dirty of a file to the device, and into its map |
//! | `gather` | the same for many small files together |
//! | `reserved` | reserved space when there is no room to map it in parts |
//! | `flusher` | writing back by age and under pressure |
//! | `clusters` | writing files where a cluster is more than a block |
//! | `cache` | [`FileCache`]: the data of one file, and what is live of its record |
//! | `caches` | what all files share: budget, eviction, the list of dirty files |
//! | `folio`, `page`, `index` | 64 KiB of a file, the memory it is made of, the folios of a file |
//! | `promises` | space that is promised to a file |
//! | `folios` | using folios, and letting them go |
//! | `nodes` | nodes that mapping delayed blocks takes |
//! | `offload` | work that another thread does where one can be started |
//! | `stock` | pages made ready ahead of their use |
//! | `fallocate` | reserving blocks for a range |
//! | `truncate` | setting the size, freeing blocks |
//! | `durable` | writing back, throwing away, `fsync` |
//! | `reshape` | another kind of map for a file |
//! | `shift` | holes punched, ranges made zeros, taken out or put in |
//! | `times` | times that writes leave behind |
//! | `transfer` | making zeros on the device |
//! | `baseline` | unimproved forms, to compare with |
//!
//! # Invariants
//!
//! - A read never passes the end of the file and never leaves a byte of the buffer it reports
//!   as read without its value: holes and unwritten blocks are zeros.
//! - A block is mapped after its content is on the device, never before.
//! - Images of inodes are read without a lock; files that may change under `pages`, held shared.

mod ahead;
mod at_once;
#[cfg(feature = "baseline")]
mod baseline;
mod blocks;
mod buffered;
mod cache;
mod caches;
mod clusters;
mod converting;
mod dax;
mod direct;
mod durable;
mod fallocate;
mod flusher;
mod folio;
mod folios;
mod gather;
mod index;
mod inline;
mod live;
mod nodes;
mod offload;
mod page;
mod promises;
mod read;
mod reserved;
mod reshape;
mod seek;
mod seek_live;
mod shift;
mod stock;
mod stream;
mod times;
mod transfer;
mod truncate;
mod write;
mod writeback;

pub(crate) use crate::clock::coarse_now;
pub use crate::clock::now;
#[cfg(feature = "baseline")]
pub use baseline::Baseline;
pub(crate) use cache::FileCache;
pub(crate) use caches::Caches;
pub use caches::DataStats;
pub use direct::{append_direct, read_direct, write_direct};
pub use durable::{ErrorMark, invalidate, writeback};
pub(crate) use durable::{What, fsync, write_back_early};
pub use fallocate::{FallocateMode, fallocate};
pub(crate) use flusher::make_room;
pub use live::{allocated_live, extents_live, read_live};
pub use read::{read_at, read_content};
pub(crate) use reshape::reshape;
pub use seek::{Piece, allocated, extents, seek_data, seek_hole};
pub use seek_live::{seek_data_live, seek_hole_live};
pub use shift::{collapse_range, insert_range, punch_hole, zero_range};
pub use stream::{Sink, stream, stream_live};
pub(crate) use truncate::finish_truncate;
pub use truncate::{grow, truncate, truncate_with};
pub use write::{WriteOptions, append, write_at, write_with};
