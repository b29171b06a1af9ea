//! A file system in use.

use extant_core::fs::Fs;
use std::fmt;
use std::sync::Arc;

/// Closes the file system when the last [`Filesystem`](crate::Filesystem) and [`File`](crate::File)
/// that use it are gone.
pub(crate) struct Mount {
    fs: Arc<Fs>,
}

impl Mount {
    pub(crate) fn new(fs: Arc<Fs>) -> Self {
        Self { fs }
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mount")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody is left to hear of it: a program that wants to know closes explicitly.
        if let Err(e) = self.fs.close() {
            tracing::error!("the file system was not closed cleanly: {e}");
        }
    }
}
