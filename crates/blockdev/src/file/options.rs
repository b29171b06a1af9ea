//! How to open a [`FileDevice`]: one set of choices on every system.

use super::FileDevice;
use crate::DeviceResult;
use std::fs::File;
use std::path::Path;

/// How transfers of a [`FileDevice`] reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Backend {
    /// As the environment variable `EXTANT_IO` says (`system` or `io_uring`, which then is a wish).
    /// Otherwise through io_uring where transfers go past the page cache, the host allows it and
    /// the build has it (feature `io-uring`), and by system calls where not.
    #[default]
    Auto,
    /// By a system call each.
    System,
    /// Through io_uring: batches as a whole, and large direct transfers in pieces. Opening fails
    /// where the host does not allow it, on systems other than Linux, and without the feature
    /// `io-uring`.
    IoUring,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    ReadOnly,
    ReadWrite,
    /// Make or empty the file, `size` bytes.
    Create {
        size: u64,
    },
    /// Make the file, `size` bytes; it must not exist.
    CreateNew {
        size: u64,
    },
}

/// How to open a [`FileDevice`].
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    pub(super) mode: Mode,
    pub(super) guarded: bool,
    pub(super) locked_by_caller: bool,
    pub(super) direct: bool,
    pub(super) backend: Backend,
}

impl FileOptions {
    fn of(mode: Mode) -> Self {
        Self {
            mode,
            guarded: false,
            locked_by_caller: false,
            direct: false,
            backend: Backend::Auto,
        }
    }

    /// Opens an existing file, for reading. No lock is taken unless [asked for](Self::guarded).
    pub fn read_only() -> Self {
        Self::of(Mode::ReadOnly)
    }

    /// Opens an existing file, for reading and writing, locked against other writers.
    pub fn read_write() -> Self {
        Self::of(Mode::ReadWrite)
    }

    /// Makes a file of `size` bytes of zeroes, without space for them yet; an existing one is
    /// emptied. A block special file keeps its size, which must not be smaller, and its content.
    pub fn create(size: u64) -> Self {
        Self::of(Mode::Create { size })
    }

    /// Makes a file as [`FileOptions::create`] does, but the file must not exist.
    pub fn create_new(size: u64) -> Self {
        Self::of(Mode::CreateNew { size })
    }

    /// Sets whether a file for reading is locked against writers, as others may that only read it.
    /// One for writing is locked against everything that locks it.
    #[must_use]
    pub fn guarded(mut self, guarded: bool) -> Self {
        self.guarded = guarded;
        self
    }

    /// Sets whether a file that is [adopted](Self::adopt) is locked already, by its opener: no lock
    /// is taken then, and none given back.
    #[must_use]
    pub fn locked_by_caller(mut self, locked: bool) -> Self {
        self.locked_by_caller = locked;
        self
    }

    /// Sets whether to transfer past the page cache (O_DIRECT). Callers need no alignment: what
    /// does not fit goes through an aligned copy.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Sets how transfers reach the kernel. Unless said, as fits.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// - `Open` when the system refuses, also io_uring where that is asked for;
    /// - `NotADevice` for directories, pipes and the like, and on systems other than Linux for
    ///   block devices;
    /// - `InUse` when another program has it open for writing, or the kernel has it
    ///   mounted, also through a loop device as far as the system tells;
    /// - `TooSmall` for a block special file smaller than the size asked for;
    /// - `NoDirectIo` when direct I/O is asked for and not to be had.
    pub fn open(&self, path: impl AsRef<Path>) -> DeviceResult<FileDevice> {
        FileDevice::open_with(self, path.as_ref())
    }

    /// Opens as [`FileOptions::open`] does, for a file that is open already, in a mode that allows
    /// what these options are for. It need not have a name: `path` is what it is called in errors.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn adopt(&self, file: File, path: impl AsRef<Path>) -> DeviceResult<FileDevice> {
        FileDevice::adopt_with(self, file, path.as_ref())
    }

    pub(super) fn creates(&self) -> bool {
        matches!(self.mode, Mode::Create { .. } | Mode::CreateNew { .. })
    }
}
