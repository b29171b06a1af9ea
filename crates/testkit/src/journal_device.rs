//! External journals attached to loop devices, one at a time.
//!
//! `e2fsck` looks for the device of a journal by its UUID on all devices of the machine, also where
//! it is told which one it is, and corrects the number in the superblock by what it finds. Images
//! that are made by one recipe have one UUID: attached by two tests at once, one test would get the
//! other's journal.

use crate::loopdev::{Access, LoopDevice};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// The right to have external journals on devices, or to have them looked for: one process of the
/// machine has it at a time. It ends when this is dropped.
#[derive(Debug)]
pub struct JournalTurn {
    _lock: File,
}

impl JournalTurn {
    /// Waits until nobody else has the turn.
    ///
    /// # Panics
    ///
    /// When there can be no lock file in the folder for temporary files.
    #[must_use]
    pub fn take() -> JournalTurn {
        let path = std::env::temp_dir().join("extant-testkit.journal-turn");
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(&path);
        let locked = lock.and_then(|lock| lock.lock().map(|()| lock));
        let lock = locked.unwrap_or_else(|e| panic!("cannot lock {}: {e}", path.display()));
        JournalTurn { _lock: lock }
    }
}

/// An external journal on a loop device, together with the turn that this needs.
#[derive(Debug)]
pub struct JournalDevice {
    // Detached first, then the turn ends.
    device: LoopDevice,
    _turn: JournalTurn,
}

impl JournalDevice {
    /// Attaches the journal in the file `path`, for reading and writing, once it is the turn.
    ///
    /// # Errors
    ///
    /// As for [`LoopDevice::attach`].
    pub fn attach(path: &Path) -> io::Result<JournalDevice> {
        let turn = JournalTurn::take();
        let device = LoopDevice::attach(path, Access::ReadWrite)?;
        Ok(JournalDevice {
            device,
            _turn: turn,
        })
    }

    /// Returns the path of the device node.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.device.path()
    }
}
