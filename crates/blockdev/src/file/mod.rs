//! Devices in files: image files and, on Linux, block special files.
//!
//! | file | owns |
//! |---|---|
//! | `options.rs` | [`FileOptions`], [`Backend`]: how a file is opened, on every system |
//! | `linux` | files on Linux: past the page cache, by io_uring, with holes |
//! | `portable` | files elsewhere, by the standard library alone |

#[cfg(target_os = "linux")]
mod linux;
mod options;
// Tested on Linux too, where nothing else uses it.
#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", allow(dead_code, unused_imports, unreachable_pub))]
mod portable;

#[cfg(target_os = "linux")]
pub use linux::{FileDevice, HeldFile, hold_for_replacing};
pub use options::{Backend, FileOptions};
#[cfg(not(target_os = "linux"))]
pub use portable::{FileDevice, HeldFile, hold_for_replacing};
