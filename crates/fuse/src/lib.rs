//! Mounting ext4 file systems: the engine behind the kernel's FUSE interface.
//!
//! Open to programs, but it serves the engine itself, which `extant` gives with its feature
//! `unstable`: any version may change it (`docs/dev/api.md`).
//!
//! | file | owns |
//! |---|---|
//! | `options` | what a mount is told, as `-o` has it |
//! | `foreign` | options of ext4 and mount(8) that a mount does nothing about |
//! | `session` | the life of a mount: from a file system and a directory to its clean end |
//! | `inherited` | descriptors that it was started with |
//! | `rights` | whether it may do everything to files |
//! | `signals` | the signals that end it |
//! | `attach` | mounting, with privileges and without |
//! | `loopdev` | a block device for a mount |
//! | `unmount` | the way out, with privileges and without |
//! | `farewell` | the last request, which is answered when all is done |
//! | `mounts` | what the system has mounted, and which mount is which |
//! | `presence` | how the end of a mount's processes is noticed |
//! | `kernel` | the way to the kernel: the handshake, and requests that are read from the device |
//! | `notifier` | what the kernel is told without being asked |
//! | `threads` | the threads that answer |
//! | `ring` | requests that come through io_uring |
//! | `protocol` | what requests and answers look like |
//! | `answer` | one request, answered by the service |
//! | `memory` | memory of the engine that is given back |
//! | `awake` | staying awake between requests |
//! | `service` | what the kernel may ask for, in the engine's terms |
//! | `guest` | guests of virtual machines, whose requests come by other ways |
//! | `metrics` | what a mount has done, in numbers |
//! | `nodes` | what the kernel knows, and what must stay because of that |
//! | `view` | owners and permissions that are shown instead of those in the image |
//! | `error` | why a mount or its end failed |
//!
//! # Invariants
//!
//! - Everything done to an inode goes through `extant_core::ops`, by number; paths are the kernel's
//!   business.
//! - When [`Mounted::wait`] returns, nothing is asked any more, so that the file system can be
//!   closed.
#![deny(unsafe_code)]

mod answer;
#[allow(unsafe_code, reason = "a number becomes a descriptor")]
mod attach;
mod awake;
mod error;
mod farewell;
mod foreign;
mod guest;
#[allow(unsafe_code, reason = "numbers become descriptors")]
mod inherited;
mod kernel;
#[allow(unsafe_code, reason = "loop devices have no safe wrapper")]
mod loopdev;
mod memory;
mod metrics;
mod mounts;
mod nodes;
mod notifier;
mod options;
mod presence;
mod protocol;
mod rights;
mod ring;
mod service;
mod session;
mod signals;
mod threads;
mod unmount;
mod view;

pub use attach::MissingBlockDevice;
pub use error::MountError;
pub use guest::{Guest, Guests, MemoryPressure, Refused, RequestKind, Treatment};
pub use inherited::{inherited_descriptor, keep_descriptors};
pub use memory::GiveBack;
pub use metrics::TellsAlso;
pub use mounts::{MountId, MountedImage, all_mounts, is_mounted};
pub use options::{BadOption, Options, machine_memory};
pub use presence::{show_presence, tell_failure};
pub use ring::MissingRings;
pub use service::METRICS;
pub use session::{Attached, Ended, Mounted, PATIENCE, check_point};
pub use signals::Signals;
pub use unmount::{clear, sync_and_detach, unmount};
