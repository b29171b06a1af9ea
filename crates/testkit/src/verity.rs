//! Devices of dm-verity, opened by `veritysetup`.

use crate::tool::tool;
use std::path::{Path, PathBuf};

/// A device that compares what is read with a hash tree. It is closed on drop.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
}

impl Opened {
    /// Opens a device over data and a tree, whose superblock is at this byte of `hashes`.
    ///
    /// # Panics
    ///
    /// When `veritysetup` fails.
    #[must_use]
    pub fn new(data: &str, hashes: &str, root_hash: &str, offset: u64) -> Self {
        Self::try_new(data, hashes, root_hash, offset).unwrap_or_else(|said| panic!("{said}"))
    }

    /// Opens a device as [`Opened::new`] does, and returns what `veritysetup` says where it fails.
    ///
    /// # Errors
    ///
    /// What `veritysetup` says.
    pub fn try_new(data: &str, hashes: &str, root: &str, offset: u64) -> Result<Self, String> {
        let name = format!("extant-test-{}-{offset}", std::process::id());
        let said = tool("veritysetup")
            .args(["open", data, &name, hashes, root])
            .arg(format!("--hash-offset={offset}"))
            .run();
        if said.code != 0 {
            return Err(said.to_string());
        }
        let path = Path::new("/dev/mapper").join(name);
        Ok(Self { path })
    }

    /// Returns the path of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        tool("veritysetup").arg("close").arg(&self.path).run();
    }
}
