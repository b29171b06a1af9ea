//! The smallest images beside the best of `mke2fs -d` over sizes and numbers of inodes.

use super::*;
use extant_testkit::oracle::dumpe2fs_header;
use extant_testkit::tool::tool;
use std::os::unix::fs::symlink;

const GRAIN: u64 = 64 << 10;

/// Has `mke2fs` make an image in blocks of 4 KiB, with so many inodes and perhaps a directory in
/// it. Returns the blocks that are free, if it did.
fn free_of_mke2fs(image: &Path, inodes: u64, size: u64, source: Option<&Path>) -> Option<u64> {
    let _ = std::fs::remove_file(image);
    let mut mke2fs = tool("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"])
        .args(["-N", &inodes.to_string()]);
    if let Some(source) = source {
        mke2fs = mke2fs.arg("-d").arg(source);
    }
    let run = mke2fs.arg(image).arg(format!("{}k", size >> 10)).run();
    (run.code == 0).then(|| dumpe2fs_header(image).number("Free blocks"))
}

/// Bytes of the smallest image of a directory that `mke2fs` makes with so many inodes or a few
/// more.
///
/// It puts names into a directory by reading all before, so it is given the directory few times:
/// once where there is room, which says how many blocks that takes, and at the sizes beside the one
/// that halving finds for that many free blocks in empty images.
fn best_of_mke2fs(source: &Path, image: &Path, inodes: u64, most: u64) -> u64 {
    let roomy = most * 2;
    let least = |count: u64| {
        let free =
            |size: u64, source: Option<&Path>| free_of_mke2fs(image, count, size * GRAIN, source);
        let empty = free(roomy / GRAIN, None).expect("there is room");
        let taken = empty - free(roomy / GRAIN, Some(source)).expect("there is room");
        let (mut low, mut high) = (count * 256 / GRAIN, roomy / GRAIN);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if free(middle, None).is_some_and(|free| free >= taken) {
                high = middle;
            } else {
                low = middle;
            }
        }
        while free(high, Some(source)).is_none() {
            high += 1;
        }
        while free(high - 1, Some(source)).is_some() {
            high -= 1;
        }
        high * GRAIN
    };
    let counts = [inodes, inodes + inodes / 50];
    counts.into_iter().map(least).min().unwrap()
}

/// Sources that need inodes, blocks of names, and blocks of data, with how many entries they have.
fn sources(dir: &Path, count: u64) -> Vec<(&'static str, PathBuf, u64)> {
    let made = |name: &'static str, entries: u64, fill: &dyn Fn(&Path)| {
        let path = dir.join(name);
        std::fs::create_dir(&path).unwrap();
        fill(&path);
        (name, path, entries)
    };
    // So many in a directory that `mke2fs` ends.
    let links = made("links", count + count / 1000, &|path| {
        for n in 0..count {
            let dir = path.join(format!("dir{}", n / 1000));
            std::fs::create_dir_all(&dir).unwrap();
            symlink("target", dir.join(format!("a link of some length {n}"))).unwrap();
        }
    });
    let small = made("small", count / 4 + count / 100, &|path| {
        for n in 0..count / 4 {
            let dir = path.join(format!("dir{}", n / 25));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(format!("file{n}")), [n as u8 | 1; 700]).unwrap();
        }
    });
    let large = made("large", 20, &|path| {
        for n in 0..20u8 {
            let bytes = vec![n | 1; count as usize * 100];
            std::fs::write(path.join(format!("file{n}")), bytes).unwrap();
        }
    });
    vec![links, small, large]
}

#[test]
fn the_smallest_image_is_as_small_as_the_best_of_mke2fs() {
    let dir = scratch();
    let image = dir.path().join("image");
    let count = if in_full() { 100_000 } else { 6_000 };
    for (name, source, entries) in sources(dir.path(), count) {
        let ours = build_clean(&scan(&source), &image, &auto()).size;
        // Ten of them are the file system's own, and so is lost+found.
        let theirs = best_of_mke2fs(&source, &image, entries + 11, ours);
        println!(
            "{name}: {} KiB, mke2fs at best {} KiB",
            ours >> 10,
            theirs >> 10
        );
        assert!(
            ours * 20 <= theirs * 21,
            "{name}: {ours} bytes, mke2fs {theirs}"
        );
    }
}
