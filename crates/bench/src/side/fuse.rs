//! The engine behind a mount of its own, in this process: what `extant mount` does, without the
//! sandbox.

use super::MountChoice;
use super::engine::Engine;
use extant_core::fs::Fs;
use extant_core::ops;
use extant_fuse::{Ended, MountError, Mounted, Options};
use rustix::mount::UnmountFlags;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A mounted image; unmounted on drop.
pub(crate) struct FuseMount {
    fs: Arc<Fs>,
    point: TempDir,
    session: Option<JoinHandle<Result<Ended, MountError>>>,
}

impl FuseMount {
    /// Mounts an image for writing.
    ///
    /// # Errors
    /// Those of the engine, and without FUSE.
    pub(crate) fn mount(image: &Path, choice: MountChoice) -> Result<Self, String> {
        let fs = Engine::open(image, choice)?;
        let point = tempfile::Builder::new()
            .prefix("extant-bench-mount-")
            .tempdir();
        let point = point.map_err(|e| format!("a mount point: {e}"))?;
        let mut options = Options::default();
        // It is for nobody but this process.
        options.default_permissions = false;
        // For comparing ways of mounting.
        if let Ok(more) = std::env::var("EXTANT_MOUNT_OPTIONS") {
            options.parse(&more).map_err(|e| e.to_string())?;
        }
        let mounted = Mounted::new(Arc::clone(&fs), image, point.path(), &options)
            .map_err(|e| e.to_string())?;
        Ok(Self {
            fs,
            point,
            session: Some(std::thread::spawn(move || mounted.wait(None))),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }

    /// Commits what `syncfs` has passed on: Linux does not ask for that.
    pub(crate) fn sync(&self) -> Result<(), String> {
        ops::syncfs(&self.fs).map_err(|e| e.to_string())
    }

    /// Unmounts, and closes the file system.
    pub(crate) fn unmount(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        rustix::mount::unmount(self.path(), UnmountFlags::DETACH)
            .map_err(|e| format!("unmounting: {e}"))?;
        let ended = session
            .join()
            .map_err(|_| "a thread of the mount panicked")?;
        ended.map_err(|e| e.to_string())?;
        self.fs.close().map_err(|e| e.to_string())
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        // An error has been told before.
        let _ = self.end();
    }
}
