//! Images to read.

use extant_blockdev::FileDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Inode;
use extant_core::{Result, data};
use extant_format::Ino;
use extant_testkit::oracle::{debugfs, mke2fs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// An image file that goes away with this value.
pub(crate) struct Image {
    dir: TempDir,
}

impl Image {
    /// An image of `mib` MiB made by `mke2fs` with `options`, filled from the tree that `plant`
    /// makes.
    pub(crate) fn make(mib: u64, options: &[&str], plant: impl FnOnce(&Path)) -> Self {
        let dir = TempDir::new().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        plant(&tree);
        let tree = tree.to_str().unwrap();
        let mut all = vec!["-q", "-F", "-d", tree];
        all.extend(options);
        mke2fs(&dir.path().join("image"), mib << 20, &all);
        Self { dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub(crate) fn try_open(&self, options: MountOptions) -> Result<Arc<Fs>> {
        let device = FileDevice::open_read_only(self.path()).unwrap();
        Fs::open(Arc::new(device), options)
    }

    pub(crate) fn open(&self) -> Arc<Fs> {
        self.try_open(MountOptions::read_only()).unwrap()
    }

    /// Opens for writing, with nothing going on in the background.
    pub(crate) fn open_writable(&self) -> Arc<Fs> {
        let device = FileDevice::open(self.path()).unwrap();
        let options = MountOptions::read_write().background(false);
        Fs::open(Arc::new(device), options).unwrap()
    }

    /// The number of the inode at `path`, as debugfs finds it.
    pub(crate) fn ino(&self, path: &str) -> Ino {
        let text = debugfs(&self.path(), &format!("stat \"{path}\""));
        let number = text
            .strip_prefix("Inode: ")
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or_else(|| panic!("debugfs stat {path} said: {text}"));
        Ino::new(number.parse().unwrap())
    }

    pub(crate) fn inode(&self, fs: &Fs, path: &str) -> Arc<Inode> {
        fs.inode(self.ino(path)).unwrap()
    }
}

/// The whole content of a file.
pub(crate) fn content(fs: &Fs, inode: &Inode) -> Vec<u8> {
    let mut buf = vec![0xaa; inode.size() as usize + 10];
    let len = data::read_at(fs, inode, 0, &mut buf).unwrap();
    assert_eq!(len as u64, inode.size());
    buf.truncate(len);
    buf
}

/// Bytes that tell their position.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = extant_testkit::rng::Rng::new(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}
