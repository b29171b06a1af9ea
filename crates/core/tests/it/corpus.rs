//! Images with every way in which the format differs, clean and with a dirty journal, read as the
//! kernel shows them after its own replay; the independent reader agrees where it can read.

use crate::walk::tree_of;
use extant_blockdev::FileDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_testkit::images::{ImageSpec, corpus};
use extant_testkit::oracle::view_tree;
use extant_testkit::require;
use extant_testkit::rng::seed_from_env;
use extant_testkit::tree::{Compare, Holes};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an ordinary run may go on starting images. `EXTANT_CORPUS=all` takes them all.
const BUDGET: Duration = Duration::from_secs(12);

#[test]
fn every_kind_of_image_reads_as_the_kernel_shows_it() {
    require!(LoopDevices, KernelExt4);
    let all = std::env::var("EXTANT_CORPUS").is_ok_and(|v| v == "all");
    let seed = seed_from_env("corpus");
    let mut specs = corpus();
    // Where not all fit the budget, other images come first each time.
    let start = seed as usize % specs.len();
    specs.rotate_left(start);
    println!("seed {seed}: starting at image {start} of {}", specs.len());

    let began = Instant::now();
    let mut read = 0;
    for spec in &specs {
        if !all && began.elapsed() > BUDGET {
            break;
        }
        let image = spec.build();
        let before = fs::read(image.path()).unwrap();
        let device = FileDevice::open_read_only(image.path()).unwrap();
        let engine = Fs::open(Arc::new(device), MountOptions::read_only())
            .unwrap_or_else(|e| panic!("{}: {e}", spec.name));
        let found = tree_of(&engine);
        println!("{}: {} entries", spec.name, found.len());
        // Block counts are the kernel's own affair while delayed data is on its way.
        let compare = Compare {
            blocks: false,
            holes: Holes::Ignore,
            ..Compare::same_image()
        };
        image.tree().assert_same(&found, &compare);
        drop(engine);
        assert!(
            before == fs::read(image.path()).unwrap(),
            "{}: the image was changed",
            spec.name
        );
        read += 1;
    }
    println!("{read} of {} images read", specs.len());
    assert!(read > 0);
}

/// What the independent reader supports: it takes times past 2038 for corruption, shows stale bytes
/// of preallocated blocks, refuses holes of indirect maps, and does not see all of a dirty journal
/// that the kernel replays.
#[test]
fn the_independent_reader_agrees_where_it_can_read() {
    require!(LoopDevices, KernelExt4);
    for block_size in [4096, 2048, 1024] {
        let plain = ImageSpec::new(&[], block_size);
        let image = ImageSpec {
            plain_times: true,
            ..plain
        }
        .build();
        let device = FileDevice::open_read_only(image.path()).unwrap();
        let engine = Fs::open(Arc::new(device), MountOptions::read_only()).unwrap();
        let view = view_tree(image.path()).unwrap_or_else(|e| panic!("{block_size}: {e}"));
        let mut compare = Compare::ext4_view();
        compare.ignore.push(b"unwritten".to_vec());
        view.assert_same(&tree_of(&engine), &compare);
    }
}
