//! The example, whose image e2fsck judges after its end.

use crate::support::Image;
use rustix::mount::UnmountFlags;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../examples/mount.rs"]
#[allow(dead_code, reason = "its main is for a program of its own")]
mod mount;

/// Unmounts, also when a test panics; the thread that serves ends then.
struct Unmounting(PathBuf);

impl Drop for Unmounting {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_mount_from_a_program_of_few_lines_serves_files_and_ends_clean() {
    let image = Image::new(16 << 20, &[]);
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().to_owned();
    let session = thread::spawn({
        let (image, point) = (image.path(), point.clone());
        move || mount::serve(&image, &point, None).map_err(|e| e.to_string())
    });
    let mounted = Unmounting(point.clone());
    let end = Instant::now() + Duration::from_secs(20);
    while !extant_fuse::is_mounted(&image.path()) {
        assert!(!session.is_finished(), "{:?}", session.join());
        assert!(Instant::now() < end, "it is not mounted after 20 seconds");
        thread::sleep(Duration::from_millis(10));
    }
    std::fs::write(point.join("note"), "from a program").unwrap();
    drop(mounted);
    session.join().unwrap().unwrap();
    assert!(!point.join("note").exists());
    image.assert_clean();
    let fs = extant::Filesystem::open(image.path()).unwrap();
    assert_eq!(fs.read_to_string("/note").unwrap(), "from a program");
}
