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
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

/// How many images an ordinary run reads. `EXTANT_CORPUS=all` takes them all.
const SAMPLE: usize = 6;

/// The images of a run: `count` of `all`, evenly spread, so that clean and dirty ones of every part
/// of the list are among them. The seed says which comes first: other runs read other ones.
fn sample(mut all: Vec<ImageSpec>, count: usize, seed: u64) -> Vec<ImageSpec> {
    let len = all.len();
    let start = (seed % len as u64) as usize;
    let mut is_taken = vec![false; len];
    for n in 0..count {
        is_taken[(start + n * len / count) % len] = true;
    }
    let mut taken = is_taken.into_iter();
    all.retain(|_| taken.next() == Some(true));
    all
}

#[test]
fn every_kind_of_image_reads_as_the_kernel_shows_it() {
    require!(LoopDevices, KernelExt4);
    let corpus = corpus();
    let all = std::env::var("EXTANT_CORPUS").is_ok_and(|v| v == "all");
    let count = if all { corpus.len() } else { SAMPLE };
    let seed = seed_from_env("corpus");
    let of = corpus.len();
    let specs = sample(corpus, count, seed);
    println!("seed {seed}: {count} of {of} images");

    let mut read = 0;
    for spec in &specs {
        let began = Instant::now();
        reads_as_the_kernel_shows_it(spec);
        println!("{}: {:.1?}", spec.name, began.elapsed());
        read += 1;
    }
    assert_eq!(read, count, "images read");
}

/// Opens an image of this kind and reads it wholly. None is refused: a kind that could not be
/// opened would fail here by its name.
fn reads_as_the_kernel_shows_it(spec: &ImageSpec) {
    let image = spec.build();
    let before = fs::read(image.path()).unwrap();
    let device = FileDevice::open_read_only(image.path()).unwrap();
    let engine = Fs::open(Arc::new(device), MountOptions::read_only())
        .unwrap_or_else(|e| panic!("{}: {e}", spec.name));
    let found = tree_of(&engine);
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
}

#[test]
fn a_sample_of_the_corpus_has_images_of_every_part_of_it() {
    let all = corpus();
    let names = |specs: &[ImageSpec]| -> Vec<String> {
        specs.iter().map(|spec| spec.name.clone()).collect()
    };
    let mut seen = BTreeSet::new();
    for seed in 0..all.len() as u64 {
        let sample = sample(all.clone(), SAMPLE, seed);
        assert_eq!(sample.len(), SAMPLE, "seed {seed}");
        assert!(sample.iter().any(|spec| spec.dirty), "seed {seed}");
        assert!(sample.iter().any(|spec| !spec.dirty), "seed {seed}");
        seen.extend(names(&sample));
    }
    let wanted: BTreeSet<String> = names(&all).into_iter().collect();
    assert_eq!(wanted.len(), all.len(), "two kinds have one name");
    assert_eq!(seen, wanted);
    assert_eq!(names(&sample(all.clone(), all.len(), 5)), names(&all));
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
