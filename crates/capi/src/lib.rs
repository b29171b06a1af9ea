//! ext4 images from C: the functions of `include/extant.h`.
//!
//! Part of the API is the header; the Rust items behind it are internal (`docs/dev/api.md`).
//!
//! | module | owns |
//! |---|---|
//! | `abi` | the functions that C calls: each decodes, does one thing, and encodes |
//! | `bulk` | all files at once |
//! | `call` | what a failure becomes: a negative errno, its kind, and a sentence for the thread |
//! | `checking` | checking, repairing, and taking a repair back |
//! | `constants` | numbers that the header has as well |
//! | `container` | images made in formats of disks |
//! | `device` | devices that C passes |
//! | `making` | making file systems |
//! | `open` | opening file systems |
//! | `pointers` | from what C passes to what Rust may use |
//! | `report` | what a check or a repair came to |
//! | `settings` | settings as strings, and what they mean |
//! | `tables` | tables of owners, devices and labels, as settings name them |
//! | `tuning` | changing sizes and settings, and telling what they are |
//! | `types` | what is behind the handles, and the structures both sides know |
//! | `watch` | how far long work is, and ending it |
//!
//! # Conventions
//!
//! Functions return 0 or a count, or a negative Linux error number; `extant_message` then has a
//! sentence for the calling thread. A panic does not cross into C: it becomes `EIO`. Handles may be
//! used by any number of threads at once, except directories, walks and patterns, which are used by
//! one at a time, and except while they are being closed.
//!
//! Structures that C fills begin with their size. Settings are strings. Those that the library
//! fills in its own memory grow at their end. So programs that were compiled with an older header
//! run with a newer library.
//!
//! The header is written by hand and kept in step with `abi`, `constants` and `types` by a test.

mod abi;
mod bulk;
mod call;
mod checking;
mod constants;
mod container;
mod device;
mod making;
mod open;
mod pointers;
mod report;
mod settings;
mod tables;
mod tuning;
mod types;
mod watch;

pub use abi::*;
pub use device::Device;
pub use report::Report;
pub use types::{
    AclEntry, Bulkstat, DeviceOps, Dir, Entry, Extent, File, Finding, Fs, Glob, Mended, Options,
    Quota, Space, Stat, Summary, Time, Walk, WalkEntry, Watch,
};
pub use watch::Token;
