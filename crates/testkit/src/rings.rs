//! FUSE over io_uring, which a kernel offers when root has said so.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers it as long as this is there, in whatever process. A user that found it not
/// offered puts that back, unless others want it still.
#[derive(Debug)]
pub struct Enabled {
    lock: File,
    before: Option<String>,
}

impl Enabled {
    /// Has the kernel offer it.
    ///
    /// # Errors
    /// When it knows no such thing (Linux before 6.14, or built without), or may not be told.
    pub fn new() -> io::Result<Self> {
        let lock = File::open(SETTING)?;
        let before = match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Some(std::fs::read_to_string(SETTING)?),
            // Others have it enabled.
            Err(_) => None,
        };
        std::fs::write(SETTING, "Y")?;
        flock(&lock, FlockOperation::LockShared)?;
        // The last user before may have put it back meanwhile.
        std::fs::write(SETTING, "Y")?;
        Ok(Self { lock, before })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let is_last = flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if let (true, Some(before)) = (is_last, &self.before) {
            // Nothing depends on it but speed.
            let _ = std::fs::write(SETTING, before.trim());
        }
    }
}
