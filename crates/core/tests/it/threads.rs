//! Many threads in one file system, with caches too small for any of them.

use crate::support::Image;
use crate::walk::tree_of;
use extant_core::fs::{Fs, MountOptions};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tree::{Compare, Tree};
use std::path::Path;
use std::sync::{Arc, Barrier};

const THREADS: usize = 8;
/// A few blocks and inodes: every thread evicts what the others need.
const TINY: usize = 64 << 10;

/// Directories with indexes, files of many sizes, links: some 1300 names.
fn plant(tree: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    for d in 0..4 {
        let dir = tree.join(format!("dir{d}"));
        std::fs::create_dir(&dir).unwrap();
        for f in 0..300 {
            let mut bytes = vec![0; rng.below(3000) as usize];
            rng.fill(&mut bytes);
            std::fs::write(dir.join(format!("a file of some name {f}")), bytes).unwrap();
        }
    }
    let mut large = vec![0; 3 << 20];
    rng.fill(&mut large);
    std::fs::write(tree.join("large"), &large).unwrap();
    let long = "x".repeat(300);
    std::os::unix::fs::symlink(&long, tree.join("long link")).unwrap();
    std::os::unix::fs::symlink("dir0", tree.join("link")).unwrap();
    std::fs::hard_link(tree.join("large"), tree.join("again")).unwrap();
}

fn walk_together(fs: &Arc<Fs>) -> Vec<Tree> {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let walks: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    tree_of(fs)
                })
            })
            .collect();
        walks.into_iter().map(|w| w.join().unwrap()).collect()
    })
}

#[test]
fn threads_that_walk_together_in_a_tiny_cache_see_what_one_sees_alone() {
    let seed = seed_from_env("threads");
    for options in [
        &["-t", "ext4", "-b", "1024", "-O", "inline_data"][..],
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext2", "-b", "1024", "-O", "^dir_index"],
    ] {
        let image = Image::make(32, options, |tree| plant(tree, seed));
        let alone = tree_of(&image.open());
        assert!(alone.len() > 1200, "{}", alone.len());
        let fs = image
            .try_open(MountOptions::read_only().memory(TINY))
            .unwrap();
        for seen in walk_together(&fs) {
            alone.assert_same(&seen, &Compare::same_image());
        }
        let stats = fs.cache().stats();
        assert!(stats.evictions > 0, "{stats:?}");
        assert!(stats.bytes <= stats.budget_bytes, "{stats:?}");
        assert!(stats.budget_bytes <= TINY as u64, "{stats:?}");
    }
}

#[test]
fn threads_that_start_together_load_each_block_once() {
    let image = Image::make(32, &["-t", "ext4"], |tree| plant(tree, 1));
    let fs = image.open();
    let trees = walk_together(&fs);
    for seen in &trees[1..] {
        trees[0].assert_same(seen, &Compare::same_image());
    }
    let stats = fs.cache().stats();
    // Nothing was evicted, so what was read is what is there.
    assert_eq!(stats.evictions, 0, "{stats:?}");
    assert_eq!(stats.device_blocks, stats.blocks, "{stats:?}");
}
