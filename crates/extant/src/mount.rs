//! A file system in use.

use extant_core::fs::{Fs, Notice};
use extant_format::Ino;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Closes the file system when the last [`Filesystem`](crate::Filesystem) and [`File`](crate::File)
/// that use it are gone.
pub(crate) struct Mount {
    fs: Arc<Fs>,
    /// Files whose content may not be what it was.
    in_doubt: BTreeSet<Ino>,
    /// Whether parts of files are known to be unreadable, or may well be.
    is_damaged: bool,
}

impl Mount {
    pub(crate) fn new(fs: Arc<Fs>) -> Self {
        let is_cut = |notice: &Notice| matches!(notice, Notice::CutShort { .. });
        Self {
            is_damaged: fs.notices().iter().any(is_cut),
            fs,
            in_doubt: BTreeSet::new(),
        }
    }

    /// One that was mended in memory.
    #[cfg(feature = "mend")]
    pub(crate) fn mended(fs: Arc<Fs>, in_doubt: BTreeSet<Ino>) -> Self {
        Self {
            fs,
            in_doubt,
            is_damaged: true,
        }
    }

    /// Whether the content of a file may not be what it was.
    pub(crate) fn is_in_doubt(&self, ino: Ino) -> bool {
        self.in_doubt.contains(&ino)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
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
            extant_core::event!(error, "the file system was not closed cleanly: {e}");
        }
    }
}
