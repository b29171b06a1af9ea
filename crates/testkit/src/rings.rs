//! FUSE over io_uring, which a kernel offers when root has said so.

use std::io;
use std::sync::{Mutex, PoisonError};

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// How many want it enabled, and what it was before.
static WANTED: Mutex<(usize, String)> = Mutex::new((0, String::new()));

/// The kernel offers it as long as this is there; afterwards it is as it was, unless other tests of this process
/// want it.
#[derive(Debug)]
pub struct Enabled(());

impl Enabled {
    /// Has the kernel offer it.
    ///
    /// # Errors
    /// When it knows no such thing (Linux before 6.14, or built without), or may not be told.
    pub fn new() -> io::Result<Self> {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.0 == 0 {
            wanted.1 = std::fs::read_to_string(SETTING)?;
            std::fs::write(SETTING, "Y")?;
        }
        wanted.0 += 1;
        Ok(Self(()))
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.0 -= 1;
        if wanted.0 == 0 {
            let before = wanted.1.clone();
            // Nothing depends on it but speed.
            let _ = std::fs::write(SETTING, before.trim());
        }
    }
}
