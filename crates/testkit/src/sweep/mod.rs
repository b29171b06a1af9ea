//! The crash sweep: an engine is run once, then crashed at every write and judged each time.
//!
//! | module | owns |
//! |---|---|
//! | `script` | what is done: a base image, operations done before, and operations in lanes |
//! | `crashes` | running a script, and recovering every image a crash may have left |
//! | `faults` | running a script again and again, with the next I/O failing each time |
//!
//! The engine is whatever implements [`Engine`]; this crate knows none.

mod crashes;
mod faults;
mod script;

use std::fmt;

use extant_blockdev::SharedDevice;
use rustix::io::Errno;

use crate::model::{Op, Recovered, Tag};

pub use crashes::{SeenImages, Sweep, SweepReport};
pub use faults::{FaultReport, FaultSweep};
pub use script::{Prepared, Script};

/// What is swept: a file system on a device.
pub trait Engine: Sync {
    /// An open file system; dropping it may write whatever it likes.
    type Open: Sync;

    /// Opens read-write, recovery included.
    ///
    /// # Errors
    ///
    /// A sentence.
    fn open(&self, device: SharedDevice) -> Result<Self::Open, String>;

    /// Opens what a crash left, to look at it: as [`Engine::open`], but with nothing happening in
    /// the background.
    ///
    /// # Errors
    ///
    /// A sentence: a failure of the sweep.
    fn recover(&self, device: SharedDevice) -> Result<Self::Open, String> {
        self.open(device)
    }

    /// Does an operation, whose paths begin at the root of the file system; returns how much was
    /// written. Writes put [`tagged`](crate::model::tagged) bytes.
    ///
    /// # Errors
    ///
    /// The error number.
    fn perform(&self, fs: &Self::Open, op: &Op, tag: Tag) -> Result<u64, Errno>;

    /// Everything that is there.
    ///
    /// # Errors
    ///
    /// A sentence when something cannot be read.
    fn tree(&self, fs: &Self::Open) -> Result<Recovered, String>;

    /// Closes cleanly.
    ///
    /// # Errors
    ///
    /// A sentence.
    fn close(&self, fs: Self::Open) -> Result<(), String>;
}

/// A state that must not be, and how it came about.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What is wrong, as a sentence.
    pub what: String,
    /// The script, one operation a line.
    pub script: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nin the run of\n{}", self.what, self.script)
    }
}

impl std::error::Error for Failure {}
