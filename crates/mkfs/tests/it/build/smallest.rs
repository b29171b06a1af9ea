//! The smallest images beside the best of `mke2fs -d` over sizes and numbers of inodes.

use super::*;
use extant_testkit::tool::tool;
use std::os::unix::fs::symlink;

const GRAIN: u64 = 64 << 10;

/// Bytes of the smallest image of a directory that `mke2fs` makes in blocks of 4 KiB, with so many
/// inodes or a few more, found between a size that is too small and one that is large enough.
fn best_of_mke2fs(source: &Path, image: &Path, inodes: u64, most: u64) -> u64 {
    let makes = |count: u64, size: u64| {
        let _ = std::fs::remove_file(image);
        let run = tool("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-d"])
            .arg(source)
            .args(["-N", &count.to_string()])
            .arg(image)
            .arg(format!("{}k", size >> 10))
            .run();
        run.code == 0
    };
    let least = |count: u64| {
        let (mut low, mut high) = (count * 256 / GRAIN, most / GRAIN);
        while !makes(count, high * GRAIN) {
            (low, high) = (high, high * 2);
        }
        while low + 1 < high {
            let middle = low.midpoint(high);
            if makes(count, middle * GRAIN) {
                high = middle;
            } else {
                low = middle;
            }
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
    let links = made("links", count, &|path| {
        for n in 0..count {
            symlink("target", path.join(format!("a link of some length {n}"))).unwrap();
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
