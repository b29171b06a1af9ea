//! Images, and looking at their past.

use extant_blockdev::{FileOptions, SharedDevice};
use extant_rescue::{Deleted, DeletedFile, Error, Rescue};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::mke2fs;
use extant_testkit::rng::Rng;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// A hash of content.
pub(crate) type Hash = [u8; 32];

pub(crate) fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// An image in a directory of its own.
pub(crate) struct Image {
    _dir: TempDir,
    pub(crate) path: PathBuf,
}

impl Image {
    pub(crate) fn new(size: u64, options: &[&str]) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("extant-rescue-")
            .tempdir()
            .unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, size, options);
        Self { _dir: dir, path }
    }

    /// Mounts it so that transactions end when they are told to.
    pub(crate) fn mount(&self) -> KernelMount {
        let mount = KernelMount::mount(&self.path, Mode::ReadWrite, "commit=600");
        another_second();
        mount
    }

    pub(crate) fn rescue(&self) -> Rescue {
        Rescue::open(device(&self.path), None).unwrap()
    }

    pub(crate) fn deleted(&self) -> (Rescue, Deleted) {
        let rescue = self.rescue();
        let deleted = rescue.deleted().unwrap();
        (rescue, deleted)
    }
}

/// Waits for another second. Times of mounts have no parts of one.
pub(crate) fn another_second() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let part = Duration::from_nanos(u64::from(now().subsec_nanos()));
    std::thread::sleep(Duration::from_millis(1020) - part);
}

pub(crate) fn device(path: &Path) -> SharedDevice {
    Arc::new(FileOptions::read_only().open(path).unwrap())
}

/// The content of a deleted file.
pub(crate) fn content(rescue: &Rescue, file: &DeletedFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.size).unwrap()];
    let mut put = |at: u64, part: &[u8]| {
        let at = usize::try_from(at).unwrap();
        bytes[at..at + part.len()].copy_from_slice(part);
        Ok::<(), Error>(())
    };
    rescue.read(file, &mut put).unwrap();
    bytes
}

/// The first path of a deleted file, if its name is known.
pub(crate) fn path_of(file: &DeletedFile) -> Option<String> {
    let name = file.names.first()?;
    Some(String::from_utf8_lossy(&name.path).into_owned())
}

/// Bytes of which no block is zeros.
pub(crate) fn noise(rng: &mut Rng, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    rng.fill(&mut bytes);
    bytes
}
