//! Backing files and folders, fresh for every repetition and removed afterwards.

use std::io;
use std::path::{Path, PathBuf};

/// A scratch folder on the measured file system; removed on drop.
pub(crate) struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    /// A new scratch folder below `parent`.
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("extant-bench-")
            .tempdir_in(parent)?;
        Ok(Self { dir })
    }

    /// The path of `name` in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
