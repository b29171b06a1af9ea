//! The engine, in this process, through the inode operations that every adapter uses.

use super::{Counters, Mounted};
use std::ffi::CStr;
use std::path::Path;

/// An image open for writing.
pub(crate) struct Engine {}

impl Engine {
    /// Opens an image with the file device.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn mount(image: &Path) -> Result<Self, String> {
        Err(format!(
            "{}: the engine does not write yet",
            image.display()
        ))
    }
}

impl Mounted for Engine {
    type Dir = ();
    type File = ();

    fn make_dir(&self, _: &CStr) -> Result<(), String> {
        Err("read only".into())
    }

    fn create(&self, (): &(), _: &CStr) -> Result<(), String> {
        Err("read only".into())
    }

    fn stat(&self, (): &(), _: &CStr) -> Result<u64, String> {
        Err("read only".into())
    }

    fn unlink(&self, (): &(), _: &CStr) -> Result<(), String> {
        Err("read only".into())
    }

    fn write_at(&self, (): &(), _: u64, _: &[u8]) -> Result<(), String> {
        Err("read only".into())
    }

    fn fsync(&self, (): &()) -> Result<(), String> {
        Err("read only".into())
    }

    fn sync(&self) -> Result<(), String> {
        Err("read only".into())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn unmount(self) -> Result<(), String> {
        Ok(())
    }
}
