//! Block devices: files, memory, windows and partitions.
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! Everything above reads and writes a [`BlockDevice`]; nothing in this crate knows a file
//! system. Devices are shared ([`SharedDevice`]) and take requests from any number of threads.
//!
//! | module | owns |
//! |---|---|
//! | `device` | the trait, its defaults, [`DirectMemory`] |
//! | `request` | batches, their order and their completion |
//! | `gathering` | changes that go to a device that is far in batches |
//! | `buffer` | page-aligned buffers |
//! | `file` | image files and block special files, O_DIRECT, io_uring; image files elsewhere |
//! | `memory` | a sparse device in memory |
//! | `nbd` | exports of NBD servers, on Linux |
//! | `past_cache` | copies that do not fetch what they write over |
//! | `window` | a range of another device |
//! | `partition` | GPT and MBR |
//! | `overlay` | a device with blocks replaced in memory |
//! | `cow` | a device whose changes go to another one |
//! | [`content`] | what else may be on a device, by its marks |
//! | `open` | from a path, an offset or a partition to a device |
//! | `error` | what can go wrong, as sentences |
//! | `errno` | error numbers of Linux |

#![deny(unsafe_code)]

mod buffer;
pub mod content;
mod cow;
mod device;
mod errno;
mod error;
mod file;
mod gathering;
mod memory;
mod nbd;
mod open;
mod overlay;
mod partition;
mod past_cache;
mod request;
mod window;

pub use buffer::{AlignedBuf, BUFFER_ALIGN, WriteBuf};
pub use content::Content;
pub use cow::CowDevice;
pub use device::{BlockDevice, DirectMemory, SharedDevice};
pub use error::{DeviceError, DeviceResult};
pub use file::{Backend, FileDevice, FileOptions, HeldFile, hold_for_replacing};
pub use gathering::Gathering;
pub use memory::MemoryDevice;
pub use nbd::{NBD_PORT, NbdAddress, NbdDevice, NbdOptions, NbdTransport};
pub use open::OpenSpec;
pub use overlay::OverlayDevice;
pub use partition::{
    Partition, PartitionTable, PartitionType, TableKind, list_partitions, open_partition,
};
pub use request::{Completion, Done, PendingBatch, Request};
pub use window::WindowDevice;
