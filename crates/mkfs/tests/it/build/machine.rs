//! What the machine itself holds.

use super::*;
use extant_testkit::require;

/// Scans, builds, checks, mounts and compares with what is there.
fn the_same_in_the_image(root: &Path) {
    let dir = scratch();
    let image = dir.path().join("image");
    let started = std::time::Instant::now();
    let source = scan(root);
    let scanned = started.elapsed();
    let report = try_build(&source, &image, &auto()).unwrap();
    let built = started.elapsed() - scanned;
    oracle::assert_clean(&image);
    let checked = started.elapsed() - built - scanned;
    let compare = Compare {
        ctime: true,
        // The root's count has one more for the directory the image has and the source does not.
        root: true,
        ..everything(4096, 256)
    };
    tree::Tree::snapshot(root).assert_same(
        &mounted(&image),
        &Compare {
            // Reading a directory changes its access time.
            atime: false,
            ..compare
        },
    );
    println!(
        "{}: {} inodes, {} MiB: scan {scanned:?}, build {built:?}, e2fsck {checked:?}, all {:?}",
        root.display(),
        source.len(),
        report.size / MIB,
        started.elapsed()
    );
}

#[test]
fn usr_share_comes_back_as_it_is() {
    require!(KernelExt4);
    // A part of it has links, compressed files and deep folders as well.
    let part = if in_full() { "" } else { "doc" };
    the_same_in_the_image(&Path::new("/usr/share").join(part));
}

#[test]
fn usr_lib_comes_back_as_it_is() {
    require!(KernelExt4);
    if !in_full() {
        println!("/usr/lib is part of the full run: EXTANT_FULL=1");
        return;
    }
    the_same_in_the_image(Path::new("/usr/lib"));
}
