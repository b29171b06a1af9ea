//! A mounted image, and its clean end.

use extant_blockdev::{BlockDevice, OpenSpec};
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Metadata;
use extant_core::ops;
use extant_format::Ino;
use extant_fuse::{Attached, Ended, METRICS, Options};
use extant_testkit::oracle::{assert_clean, mke2fs};
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// How long the end of a mount may take: a file that a test has open still makes it go on.
const END: Duration = Duration::from_secs(60);

/// An image of its own for a test.
pub(crate) struct Image {
    dir: TempDir,
}

impl Image {
    /// An empty file system.
    pub(crate) fn new(bytes: u64, options: &[&str]) -> Image {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = Image { dir };
        let all: Vec<&str> = ["-t", "ext4"].iter().chain(options).copied().collect();
        mke2fs(&image.path(), bytes, &all);
        image
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Mounts it with the options of `-o`.
    pub(crate) fn mount(&self, options: &str) -> Mount {
        self.mount_and_say(options).0
    }

    /// Mounts it with the options of `-o`, and says why requests do not come through io_uring if
    /// they were to.
    pub(crate) fn mount_and_say(&self, options: &str) -> (Mount, Option<String>) {
        self.mount_through(options, |device| device)
    }

    /// Mounts it with the options of `-o`, and reads and writes it through what `wrap` makes of the
    /// device.
    pub(crate) fn mount_through(
        &self,
        options: &str,
        wrap: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
    ) -> (Mount, Option<String>) {
        let mut parsed = Options::default();
        parsed.parse(options).expect("good options");
        let point = tempfile::tempdir().expect("a temporary directory");
        let (spec, engine) = if parsed.read_only {
            (OpenSpec::read_only(self.path()), MountOptions::read_only())
        } else {
            (
                OpenSpec::read_write(self.path()),
                MountOptions::read_write(),
            )
        };
        let device = wrap(spec.open().expect("the image opens"));
        let fs = Fs::open(device, engine).expect("the file system opens");
        let attached = Attached::new(&self.path(), point.path(), &parsed)
            .expect("the directory takes a mount");
        let lacks = attached.without_rings().map(ToString::to_string);
        let mounted = attached
            .serve(fs.clone())
            .expect("the file system is mounted");
        let (tell, session) = channel();
        // Nobody may be left to be told, after a test that failed.
        std::thread::spawn(move || tell.send(mounted.wait(None)));
        let mount = Mount {
            fs,
            read_only: parsed.read_only,
            rings: parsed.io_uring == Some(true),
            point,
            session: Some(Mutex::new(session)),
        };
        (mount, lacks)
    }

    /// The file system is sound, and was left clean.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert_clean(&self.path());
    }
}

/// A mounted image. Unmounted when dropped, also by a test that panics.
pub(crate) struct Mount {
    fs: Arc<Fs>,
    read_only: bool,
    /// Requests are to come through io_uring.
    rings: bool,
    point: TempDir,
    session: Option<Mutex<Receiver<Result<Ended, extant_fuse::MountError>>>>,
}

impl Mount {
    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }

    /// A number among the metrics.
    pub(crate) fn metric(&self, name: &str) -> String {
        let mut metrics = vec![0; 1 << 16];
        let len = rustix::fs::getxattr(self.path(), METRICS, &mut metrics[..]).unwrap();
        let text = String::from_utf8_lossy(&metrics[..len]).into_owned();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.expect("it is told").to_owned()
    }

    /// What the engine has of the inode of this number.
    pub(crate) fn stored(&self, ino: u64) -> Metadata {
        let ino = Ino::new(u32::try_from(ino).expect("an inode number"));
        ops::stat_of(&self.fs, ino).expect("there is such an inode")
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.point.path().join(path)
    }

    /// Unmounts, and closes the file system.
    #[track_caller]
    pub(crate) fn unmount(mut self) {
        if self.rings {
            let requests = self.metric("extant_ring_requests_total");
            assert_ne!(requests, "0", "nothing came through io_uring");
        }
        // Processes that other tests start have our files until they run a program of their own:
        // the session ends when the last is gone.
        rustix::mount::unmount(self.path(), UnmountFlags::DETACH).expect("it is mounted");
        let session = self.session.take().expect("mounted once");
        let ended = session.into_inner().unwrap().recv_timeout(END);
        let ended = ended.expect("nothing has a file open, and no thread of the mount panicked");
        assert_eq!(ended.expect("the session ends well"), Ended::Unmounted);
        if !self.read_only {
            self.fs.close().expect("the file system closes");
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let mut how = UnmountFlags::DETACH;
            // What the kernel waits for may never be answered.
            how.set(UnmountFlags::FORCE, std::thread::panicking());
            let _ = rustix::mount::unmount(self.path(), how);
            let ended = session.into_inner().unwrap().recv_timeout(END);
            let _ = self.fs.close();
            // A second panic would end the process, and tell less than the first.
            if !std::thread::panicking() {
                let ended = ended.expect("nothing has a file open, and no thread panicked");
                ended.expect("the session ends well");
            }
        }
    }
}
