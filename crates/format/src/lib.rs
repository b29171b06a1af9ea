//! The ext4 on-disk format: typed records, validation, checksums and directory hashes.
//!
//! Internal to Extant: any version may change it. Programs use the crate `extant`.
//!
//! | module | owns |
//! |---|---|
//! | [`types`] | newtypes for block, inode, group and transaction numbers |
//! | [`errno`] | error numbers of Linux |
//! | [`error`] | [`FormatError`]: which structure, which field, what was found, what was expected |
//! | [`acl`] | POSIX access control lists as ext4 stores them |
//! | [`bitmap`] | block and inode bitmaps: bits, runs and checksums |
//! | [`dir`] | directory blocks: entries, tails, the hashed index and its hashes |
//! | [`extent`] | extent tree nodes: headers, extents, index entries and tails |
//! | [`features`] | feature bits and their names |
//! | [`geometry`] | where everything lies: groups, backups, descriptor tables, derived from a superblock |
//! | [`group_desc`] | block group descriptors of 32 and 64 bytes |
//! | [`indirect`] | indirect block maps of ext2 and ext3 |
//! | [`inline_data`] | file data and directory entries kept inside an inode |
//! | [`inode`] | inodes: fixed part, extra fields, times, flags and modes |
//! | [`jbd2`] | records of the JBD2 journal, and of its fast-commit area |
//! | [`mmp`] | the multiple-mount protection block |
//! | [`orphan_file`] | blocks of the orphan file |
//! | [`quota`] | quota files: a tree of what users, groups and projects use |
//! | [`superblock`] | the superblock |
//! | [`waiting`] | changes that wait to be put in place, as this engine notes them |
//! | [`xattr`] | extended attributes: in the inode, in a block, in inodes of their own |
//! | [`checksum`] | CRC32C as ext4 uses it, CRC16 of old group descriptors |
//!
//! Every record has the same boundary: a *raw* form that mirrors the bytes, a `parse` that
//! checks every number before anybody can use it, and an `encode` that is its inverse. Nothing in
//! this crate does I/O, holds policy, or panics on any input.
//!
//! Source of the layouts: the kernel's `Documentation/filesystems/ext4/` pages.
#![no_std]
// In one file: an instruction that not every processor has.
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod acl;
pub mod bitmap;
mod bytes;
pub mod checksum;
pub mod dir;
pub mod errno;
pub mod error;
pub mod extent;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod indirect;
pub mod inline_data;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod orphan_file;
pub mod quota;
mod side_by_side;
pub mod superblock;
pub mod types;
pub mod waiting;
pub mod xattr;

pub use error::{Expected, FormatError, FormatResult, Structure};
pub use types::{BlockSize, Group, Ino, Lblk, NAME_MAX, Pblk, Tid};
