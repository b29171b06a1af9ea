//! Random trees with random choices. A failure names its seed: `EXTANT_SEED` repeats it.

use super::*;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::torture::random_plan;

pub(super) fn random_variant(rng: &mut Rng) -> Variant {
    const FEATURES: [&str; 19] = [
        "",
        "",
        "^extent,^64bit",
        "^has_journal",
        "bigalloc",
        "ea_inode",
        "quota",
        "quota,project,ea_inode",
        "large_dir",
        "^dir_index",
        "^resize_inode,meta_bg",
        "^flex_bg",
        "sparse_super2",
        "^64bit",
        "^metadata_csum",
        "^metadata_csum,uninit_bg",
        "^filetype",
        "^dir_index,bigalloc,^has_journal",
        "^extent,^64bit,^flex_bg,^resize_inode",
    ];
    let profiles = [Profile::Default, Profile::Latest, Profile::Android];
    let mut variant = Variant::new(
        *rng.pick(&[1024, 2048, 4096]),
        *rng.pick(&[256, 256, 512, 1024]),
        *rng.pick(&profiles),
        rng.pick::<&'static str>(&FEATURES),
    );
    if variant.has("^metadata_csum") {
        // `latest` has a feature that needs it.
        variant.profile = Profile::Default;
    }
    if rng.one_in(4) || variant.has("^has_journal") {
        variant = variant.without_journal();
    }
    if variant.has("bigalloc") && rng.one_in(2) {
        let bytes = variant.block << rng.between(1, 6);
        variant = variant.clusters(bytes);
    }
    variant
}

fn run(seed: u64, from_directory: bool) {
    let mut rng = Rng::new(seed);
    let entries = *rng.pick(&[3, 40, 300, 1500]);
    let plan = random_plan(seed, entries);
    let variant = random_variant(&mut rng);
    println!("EXTANT_SEED={seed:#x}: {entries} entries, {variant:?}");
    let dir = scratch();
    let image = dir.path().join("image");
    let source = if from_directory {
        scan(&planted(&plan, dir.path(), "source"))
    } else {
        in_memory(&plan)
    };
    let mut options = variant.auto();
    if rng.one_in(2) {
        options.size = Size::Auto(Headroom::Percent(rng.below(300) as f64));
    }
    options.threads = NonZero::new(rng.between(1, 4) as usize);
    build_clean(&source, &image, &options);
    let compare = Compare {
        atime: !from_directory,
        holes: if from_directory {
            Holes::Same(4096)
        } else {
            Holes::Ignore
        },
        ..everything(variant.block.into(), variant.inode)
    };
    plan.expected().assert_same(&mounted(&image), &compare);
}

#[test]
fn random_trees_come_back_from_random_images() {
    require!(KernelExt4, TmpfsXattrs);
    // Each image has a seed of its own, printed before it is built; a given seed is one image.
    let first = seed_from_env("random_trees_come_back_from_random_images");
    let count = match (std::env::var_os("EXTANT_SEED"), in_full()) {
        (Some(_), _) => 1,
        (None, true) => 300,
        (None, false) => 12,
    };
    for n in 0..count {
        let seed = first.wrapping_add(n);
        run(seed, seed % 3 == 0);
    }
}
