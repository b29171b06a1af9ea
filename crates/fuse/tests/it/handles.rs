//! Files that are known by a handle, as servers of files know them, after the kernel has forgotten
//! them.

use crate::support::Image;
use crate::syscalls::Handle;
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use std::fs::{self, File};
use std::io::Read;

/// Has the kernel forget all names and inodes that nobody uses.
fn forget() {
    for _ in 0..2 {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    }
}

fn found_again(options: &str) {
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount(options);
    fs::create_dir_all(mount.at("a/b")).unwrap();
    fs::write(mount.at("a/b/file"), b"content").unwrap();
    let [file, dir] = ["a/b/file", "a/b"].map(|path| Handle::of(&mount.at(path)).unwrap());
    let root = File::open(mount.path()).unwrap();
    forget();
    let mut content = String::new();
    let opened = file.open(&root, libc::O_RDONLY).unwrap();
    (&opened).read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    drop(opened);
    // The kernel goes up from there to the root.
    forget();
    let opened = dir.open(&root, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    let names = fs::read_dir(format!("/proc/self/fd/{}", descriptor(&opened))).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    let path = fs::read_link(format!("/proc/self/fd/{}", descriptor(&opened))).unwrap();
    assert_eq!(path, mount.at("a/b"));
    drop(opened);

    let stale = |handle: Handle, what: &str| {
        forget();
        let error = handle.open(&root, libc::O_RDONLY).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{what}");
    };
    // No inode that somebody may have, and no inode at all.
    for node in [0, 2, 7, 8, 10, 3000, 0xffff_ffff, 1 << 40, u64::MAX] {
        stale(file.of_node(node), &format!("node {node}"));
    }
    fs::remove_file(mount.at("a/b/file")).unwrap();
    stale(file, "a removed file");
    // The number is used again.
    fs::write(mount.at("a/b/next"), b"another").unwrap();
    stale(file, "a file in its place");
    // The mount ends when nobody uses it any more.
    drop(root);
    mount.unmount();
    image.assert_clean();
}

fn descriptor(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}

#[test]
fn a_file_is_found_by_its_handle_after_the_kernel_has_forgotten_it() {
    require!(Fuse, Root);
    found_again("");
}

#[test]
fn so_it_is_through_io_uring() {
    require!(Fuse, Root, FuseRings);
    let _enabled = Enabled::new().unwrap();
    found_again("io_uring");
}
