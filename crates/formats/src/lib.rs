//! Formats of disk images: a virtual disk inside of a file, as a device.
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! [`recognise`] says which format a device holds, [`open`] gives the virtual disk in it as a
//! [`BlockDevice`](extant_blockdev::BlockDevice), [`create`] makes an empty one, and [`copy`]
//! copies one disk to another. What is open for writing is written in place.
//!
//! | module | owns |
//! |---|---|
//! | `format` | [`Format`]: names, extensions, recognising |
//! | `open` | [`open`], [`create`], and what may be asked of them |
//! | `follow` | which other files an image may name |
//! | `vhd` | VHD, fixed and dynamic |
//! | [`simg`] | Android sparse images |
//! | `vmdk` | VMDK with flat extents |
//! | `qcow2` | qcow2, by the crate imago (feature `qcow2`) |
//! | `compressed` | raw images that are compressed (features `gzip`, `zstd`, `xz`) |
//! | `mapped` | batches of disks whose parts lie elsewhere on the device below |
//! | `copy` | [`copy`]: from one device to another, data only |
//! | `error` | what can go wrong, as sentences |

#![deny(unsafe_code)]

#[cfg(any(feature = "gzip", feature = "zstd", feature = "xz"))]
mod compressed;
mod copy;
mod error;
mod follow;
mod format;
mod mapped;
mod open;
#[cfg(feature = "qcow2")]
mod qcow2;
pub mod simg;
mod vhd;
mod vmdk;

pub use copy::{Copied, CopyProgress, copy};
pub use error::FormatError;
pub use format::{Format, recognise};
pub use open::{CreateHow, Notice, OpenHow, create, open};
pub use vmdk::{describe_flat, flat_extent_of};
