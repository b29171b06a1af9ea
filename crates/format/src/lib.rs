//! The ext4 on-disk format: typed records, validation, checksums and directory hashes.
//!
//! | module | owns |
//! |---|---|
//! | [`types`] | newtypes for block, inode, group and transaction numbers |
//! | [`error`] | [`FormatError`]: which structure, which field, what was found, what was expected |
//! | [`checksum`] | CRC32C as ext4 uses it, CRC16 of old group descriptors |
//!
//! Every record has the same boundary: a *raw* form that mirrors the bytes, a `parse` that
//! checks every number before anybody can use it, and an `encode` that is its inverse. Nothing in
//! this crate does I/O, holds policy, or panics on any input.
//!
//! Source of the layouts: the kernel's `Documentation/filesystems/ext4/` pages.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod checksum;
pub mod error;
pub mod types;

pub use error::{Expected, FormatError, FormatResult, Structure};
pub use types::{BlockSize, Group, Ino, Lblk, Pblk, Tid};
