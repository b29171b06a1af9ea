//! Unnamed files for what cannot be read in place.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::{SourceError, SourceResult};

/// Runs of zeros of this length are not written.
const ZERO_RUN: usize = 4096;

/// An unnamed file that is written from front to back.
pub(super) struct Spool {
    file: File,
    dir: PathBuf,
    end: u64,
}

impl Spool {
    /// Makes one in the directory `dir`.
    pub(super) fn new(dir: &Path) -> SourceResult<Self> {
        let file = tempfile::tempfile_in(dir)
            .map_err(|e| SourceError::io("make a temporary file in", dir, e))?;
        Ok(Self {
            file,
            dir: dir.to_owned(),
            end: 0,
        })
    }

    /// Bytes that are in it.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Appends, leaving holes for long runs of zeros.
    pub(super) fn append(&mut self, bytes: &[u8]) -> SourceResult<()> {
        let mut from = 0;
        while from < bytes.len() {
            let is_zero = |chunk: &[u8]| chunk.iter().all(|&b| b == 0);
            let mut chunks = bytes[from..].chunks(ZERO_RUN);
            let zero = chunks.clone().next().is_some_and(is_zero);
            let run: usize = chunks
                .by_ref()
                .take_while(|chunk| is_zero(chunk) == zero)
                .map(<[u8]>::len)
                .sum();
            let at = self.end + from as u64;
            let result = if zero {
                self.file.set_len(at + run as u64)
            } else {
                self.file.write_all_at(&bytes[from..from + run], at)
            };
            result.map_err(|e| SourceError::io("write to a temporary file in", &self.dir, e))?;
            from += run;
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// The file.
    pub(super) fn into_file(self) -> File {
        self.file
    }
}
