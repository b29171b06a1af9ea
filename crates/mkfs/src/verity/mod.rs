//! Hash trees that are made while an image is written, or over one that exists.
//!
//! | module | owns |
//! |---|---|
//! | `growth` | a tree whose blocks are written as soon as they are full |
//! | `sealing` | a device whose blocks are hashed while they are written |
//! | `files` | fs-verity: which files get trees, and hashing them while they are written |
//! | `device` | dm-verity: what is asked for, where superblock and tree lie, what was made |
//! | `over` | dm-verity over a file system that exists |
//!
//! # Invariants
//!
//! * Of an image that is written, no block of data is read again: its hash is taken when it is
//!   written. Where a device may hold anything, blocks that nobody writes are read once, in the
//!   end.
//! * Memory is what is open: blocks of hashes of which some are known and others are not.

mod device;
mod files;
mod growth;
mod over;
mod sealing;

pub use device::{DmVerity, DmVerityError, DmVerityReport};
pub(crate) use device::{Plan as DevicePlan, Tail};
/// A hash function of dm-verity and fs-verity.
pub use extant_verity::Algorithm as HashAlgorithm;
pub use files::{FsVerity, FsVerityError};
pub(crate) use files::{Sealer, Seals};
pub use over::DmVerityOver;
