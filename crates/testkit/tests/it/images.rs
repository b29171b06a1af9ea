//! The corpus of kernel-filled images can be made, and independent readers agree about it.

use extant_testkit::images::{ImageSpec, corpus};
use extant_testkit::tree::{Compare, Kind};
use extant_testkit::{oracle, require};

#[test]
fn images_of_the_corpus_can_be_made() {
    require!(KernelExt4, TmpfsXattrs);
    // The whole corpus is built by the tests that read it.
    let names = ["ext3 with inodes of 128", "data=journal, dirty"];
    for spec in corpus().iter().filter(|s| names.contains(&s.name.as_str())) {
        let started = std::time::Instant::now();
        let image = spec.build();
        println!(
            "{}: {} entries in {:?}",
            spec.name,
            image.tree().len(),
            started.elapsed()
        );
        assert_eq!(
            image.tree().get("late").is_some(),
            spec.dirty,
            "{}",
            spec.name
        );
        assert!(
            image
                .tree()
                .get("entries")
                .is_some_and(|e| e.kind == Kind::Directory)
        );
    }
}

#[test]
fn the_kernel_shows_what_was_planted() {
    require!(KernelExt4);
    let spec = ImageSpec::new(&[], 4096);
    let image = spec.build();
    let mut compare = Compare::default();
    compare
        .ignore
        .extend([b"gaps".to_vec(), b"unwritten".to_vec()]);
    // The root changed when it was aged.
    compare.root = false;
    spec.plan().expected().assert_same(image.tree(), &compare);
}

#[test]
fn ext4_view_agrees_with_the_kernel() {
    require!(KernelExt4);
    for block_size in [1024, 4096] {
        let spec = ImageSpec {
            plain_times: true,
            ..ImageSpec::new(&[], block_size)
        };
        let image = spec.build();
        let viewed = oracle::view_tree(image.path()).expect("ext4-view opens the image");
        let mut compare = Compare::ext4_view();
        compare.ignore.push(b"unwritten".to_vec());
        image.tree().assert_same(&viewed, &compare);
    }
}
