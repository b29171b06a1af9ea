//! File data.
//!
//! | file | owns |
//! |---|---|
//! | `dispatch` | the way of an operation, chosen once: inline, dax, direct, buffered, through |
//! | `io` | options, limits, and a file with its cache: what all ways have in common |
//! | `inline` | content inside the inode |
//! | `cache/mod` | [`FileCache`]: the data of one file, and what is live of its record |
//! | `cache/caches` | what all files share: budget, eviction, the list of dirty files |
//! | `cache/folio`, `page`, `index` | 64 KiB of a file, the memory it is made of, the folios of a file |
//! | `cache/dirty` | what of a file is newer than the device |
//! | `cache/map_hint` | what memory knows of the map of a file |
//! | `cache/write_pattern` | how a file is written |
//! | `cache/failures` | what went wrong when a file was written back |
//! | `cache/folios` | using folios, and letting them go |
//! | `cache/prefault` | pages made ready ahead of their use |
//! | `cache/readahead` | readers that read on and on, and how far ahead of them to read |
//! | `buffered/mod` | writing to memory |
//! | `buffered/read` | reading from memory, and through it |
//! | `buffered/fast_path` | reading and writing over what memory has already |
//! | `buffered/seek` | data, holes and extents of files that may change |
//! | `direct/mod` | reading and writing past memory |
//! | `direct/conversion` | making data of reserved blocks that were written past memory |
//! | `direct/dax` | reading and writing where the device is memory |
//! | `through/read`, `through/write` | reading and writing where memory has nothing of files |
//! | `reserve/preallocation` | blocks of a file as the allocator gives them |
//! | `reserve/promises` | space that is promised to a file |
//! | `reserve/nodes` | nodes that mapping delayed blocks takes |
//! | `reserve/places` | places that writes chose, of blocks that are not mapped yet |
//! | `reserve/clusters` | writing files where a cluster is more than a block |
//! | `writeback/mod` | what is dirty of a file to the device, and into its map |
//! | `writeback/send` | transfers from folios to the device |
//! | `writeback/small_files` | writing many small files back together |
//! | `writeback/reserved` | reserved space when there is no room to map it in parts |
//! | `writeback/flusher` | writing back by age and under pressure |
//! | `writeback/offload` | work that another thread does where one can be started |
//! | `writeback/durable` | writing back, throwing away, `fsync` |
//! | `range/truncate` | setting the size, freeing blocks |
//! | `range/fallocate` | reserving blocks for a range |
//! | `range/collapse_insert` | holes punched, ranges made zeros, taken out or put in |
//! | `range/reshape` | another kind of map for a file |
//! | `range/seal` | what fs-verity has behind the content of a file |
//! | `range/zeros` | making zeros on the device |
//! | `stored/read` | reading a range as the map and the device have it |
//! | `stored/together` | reading the content of many small files with one batch of reads |
//! | `stored/seek` | where data and holes begin, and where data lies on the device |
//! | `stored/stream` | reading a whole file in order, holes kept apart |
//! | `times` | times that writes leave behind |
//! | `baseline` | unimproved forms, to compare with |
//!
//! # Invariants
//!
//! - A read never passes the end of the file and never leaves a byte of the buffer it reports
//!   as read without its value: holes and unwritten blocks are zeros.
//! - A block is mapped after its content is on the device, never before.
//! - Images of inodes are read without a lock; files that may change under `pages`, held shared.

#[cfg(feature = "baseline")]
mod baseline;
mod buffered;
mod cache;
mod direct;
mod dispatch;
mod inline;
mod io;
mod range;
pub(crate) mod reserve;
mod stored;
mod through;
mod times;
mod writeback;

pub(crate) use crate::clock::coarse_now;
pub use crate::clock::now;
#[cfg(feature = "baseline")]
pub use baseline::Baseline;
pub use buffered::seek::{allocated_live, extents_live, seek_data_live, seek_hole_live};
pub(crate) use cache::FileCache;
pub(crate) use cache::caches::Caches;
pub use cache::caches::DataStats;
pub use dispatch::{
    append, append_direct, read_direct, read_live, write_at, write_direct, write_with,
};
pub use io::WriteOptions;
pub use range::collapse_insert::{collapse_range, insert_range, punch_hole, zero_range};
pub use range::fallocate::{FallocateMode, fallocate};
pub(crate) use range::reshape::reshape;
pub(crate) use range::seal::seal;
pub use range::seal::{Seal, WriteSeal};
pub(crate) use range::truncate::finish_truncate;
pub use range::truncate::{grow, truncate, truncate_with};
pub use stored::read::{read_at, read_content, read_seal};
pub use stored::seek::{Extent, allocated, extents, seek_data, seek_hole};
pub use stored::stream::{Sink, stream, stream_live};
pub use stored::together::read_together;
pub use writeback::durable::{ErrorMark, invalidate, writeback};
pub(crate) use writeback::durable::{What, fsync, write_back_early};
pub(crate) use writeback::flusher::make_room;
