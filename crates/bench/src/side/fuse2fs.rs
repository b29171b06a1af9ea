//! `fuse2fs` of e2fsprogs: ext4 in user space, through FUSE.

use super::{PATIENCE, device_of, is_mounted};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A mounted image; unmounted on drop.
pub(crate) struct Fuse2fs {
    child: Child,
    mounted: bool,
    point: tempfile::TempDir,
}

impl Fuse2fs {
    /// Mounts an image for writing with these options, which may be none.
    ///
    /// # Errors
    /// When it does not start or does not mount.
    pub(crate) fn mount(image: &Path, options: &str) -> Result<Self, String> {
        let point = tempfile::Builder::new().prefix("extant-fuse2fs-").tempdir();
        let point = point.map_err(|e| format!("a mount point: {e}"))?;
        let before = device_of(point.path());
        // For comparing ways of mounting, as `EXTANT_MOUNT_OPTIONS` does for ours.
        let more = std::env::var("EXTANT_FUSE2FS_OPTIONS").ok();
        let options = (!options.is_empty()).then(|| options.to_owned());
        let more = options.iter().chain(&more).flat_map(|list| ["-o", list]);
        let child = Command::new("fuse2fs")
            .arg("-f")
            .args(more)
            .arg(image)
            .arg(point.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("fuse2fs: {e}"))?;
        let mut mount = Self {
            child,
            mounted: true,
            point,
        };
        if !is_mounted(&mut mount.child, mount.point.path(), before)? {
            mount.mounted = false;
            return Err(format!("fuse2fs does not mount {}", image.display()));
        }
        Ok(mount)
    }

    /// The mount point.
    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }

    /// Unmounts and waits until the image is complete.
    ///
    /// # Errors
    /// When it stays busy.
    pub(crate) fn unmount(mut self) -> Result<(), String> {
        self.release()
    }

    fn release(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        let unmounted = Command::new("umount").arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            return Err(format!("{} stays mounted", self.path().display()));
        }
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
                _ => return Err("fuse2fs does not end".to_owned()),
            }
        }
    }
}

impl Drop for Fuse2fs {
    fn drop(&mut self) {
        let _ = self.release();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
