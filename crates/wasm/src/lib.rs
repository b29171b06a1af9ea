//! ext4 images from JavaScript: listed, read, archived and checked through a reader of the page.
//!
//! Built for `wasm32-unknown-unknown` this is a module without a runtime of its own: the program
//! gives it functions that read a range of the image (`File.slice` in a worker, `readSync` in Node)
//! and that hear how far work is, and calls the functions of `abi`. On other systems only [`Image`]
//! is there, for tests.
//!
//! | module | owns |
//! |---|---|
//! | `image` | [`Image`]: what a program can ask of an image |
//! | `disk` | from a file to a device: raw, whole disks, and formats of images |
//! | `budget` | how much memory the layers of one file take together |
//! | `cached` | a device with its last pieces in memory |
//! | `mapped` | a disk whose pieces lie anywhere in a file |
//! | `qcow2` | the disk in a qcow2 image |
//! | `vhd` | the disk in a VHD |
//! | `vmdk` | the disk in a sparse VMDK |
//! | `simg` | the disk in an Android sparse image |
//! | `gzip` | a disk that is compressed with gzip, read at random |
//! | `unpacked` | a disk that is compressed with Zstandard or xz, in memory |
//! | `path` | from a path to an inode |
//! | `listing` | names and what is known of files, as numbers |
//! | `walk` | everything below a directory |
//! | `tar` | pax archives, piece by piece |
//! | `pax` | headers and records of archives, byte by byte |
//! | `picture` | how the blocks are used, as a picture |
//! | `failure` | errors: a number and a sentence |
//! | `abi` | the functions that a program calls, and those that it gives |
//!
//! # Invariants
//! - Nothing is written, neither to the image nor anywhere else.
//! - Memory is bounded whatever the image says: caches have a size, indexes a number of entries.
//! - Names are bytes. None is told as another one.
#![deny(unsafe_code)]

#[cfg(target_family = "wasm")]
mod abi;
mod budget;
mod cached;
mod disk;
mod failure;
mod gzip;
mod image;
mod listing;
mod mapped;
mod path;
mod pax;
mod picture;
mod qcow2;
mod simg;
mod tar;
#[cfg(test)]
mod tests;
mod unpacked;
mod vhd;
mod vmdk;
mod walk;

pub use failure::{Failure, Told};
pub use image::{Image, Progress};
pub use listing::{Listing, NUMBERS};
pub use tar::Tar;
