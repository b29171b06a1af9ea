//! Crashes: what a device may hold when the power fails, image by image.
//!
//! | module | owns |
//! |---|---|
//! | `pages` | device content as a value: sparse, cheap to copy, copied on write |
//! | `recorder` | the device that remembers every write and flush in order |
//! | `memory` | what was copied straight into the device and is not persisted |
//! | `sectors` | hashes of sectors, and what a set of them adds to an image's hash |
//! | `images` | every image a crash may leave of a recorded run, each once |
//! | `fault` | a device that fails, tears, delays or loses what it is told to |
//!
//! A run is recorded once, on a [`CrashDevice`]; then [`CrashLog::images`] yields the images a
//! crash could have left behind:
//!
//! ```
//! use extant_blockdev::BlockDevice;
//! use extant_testkit::crash::{Budget, Content, CrashDevice};
//!
//! let device = CrashDevice::over(Content::zeros(1 << 20));
//! device.write_at(0, &[1; 512]).unwrap();
//! device.flush().unwrap();
//! device.mark(7); // the caller was told that the write is safe
//! for image in device.log().images(Budget::exhaustive()) {
//!     let mut first = [0; 512];
//!     image.open().read_at(0, &mut first).unwrap();
//!     assert!(first == [1; 512] || !image.holds(7), "{image}");
//! }
//! ```
//!
//! # What a crash may do
//!
//! A flush covers the writes that had completed when it began, and nothing else. Of all other
//! writes that had begun, any may be on the device or not, and a write of several sectors may be
//! there in part; a sector is never torn. The enumerator looks at the moments just before a flush
//! ends and at the end of the run: every other moment of an epoch leaves a subset of what those
//! leave, with fewer promises made.
//!
//! The device is memory too (`direct`): what is copied into it is covered by no flush, but by
//! persisting it. That counts as a flush of all writes besides, which is more than it is.

mod fault;
mod images;
mod memory;
mod pages;
mod recorder;
mod sectors;

pub use fault::{Fault, FaultDevice, FaultRule, IoCounts, IoKind};
pub use images::{Budget, CrashImage, CrashImages};
pub use pages::{Content, ContentDevice};
pub use recorder::{CrashDevice, CrashLog, Event};

/// Bytes of a sector: what a device writes whole or not at all.
pub const SECTOR: usize = 512;
