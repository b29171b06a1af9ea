//! Without a journal: writes go home in no order, and after a crash a check mends what it left.

use super::engine::Extant;
use super::shapes::Shape;
use extant_testkit::crash::{Budget, CrashDevice};
use extant_testkit::model::Universe;
use extant_testkit::oracle;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Engine, Script};
use std::sync::Arc;

/// Blocks of 1 KiB, so that one operation writes in many places, and two groups: a superblock that
/// was torn is mended from the backup in the second.
const UNJOURNALED: Shape = Shape {
    name: "no journal",
    kib: 12 << 10,
    block_size: 1024,
    options: &["-O", "^has_journal,^resize_inode"],
};

/// Crash images that are checked.
const IMAGES: usize = 160;

#[test]
fn without_a_journal_a_check_mends_what_a_crash_left() {
    let seed = seed_from_env("no journal");
    let mut rng = Rng::new(seed);
    let engine = Extant {
        keeps_open: 1,
        ..Extant::default()
    };
    let start = UNJOURNALED.filled(&engine);
    let script = Script::random(&Universe::small(), &mut rng, &start, 60);
    let device = CrashDevice::over(start.content.clone());
    let open = engine.open(Arc::new(device.clone())).unwrap();
    let mut lane = start.lanes[0].clone();
    for op in &script.lanes[0] {
        lane.run(Some(&device), op.clone(), |op, tag| {
            engine.perform(&open, op, tag)
        })
        .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    engine.close(open).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let images = device.log().images(Budget::limited(IMAGES, seed));
    let mut checked = 0;
    for image in images {
        image.write_to(&path);
        // Mended or clean, and clean from then on.
        let mended = oracle::e2fsck(&path, &["-fy"]);
        assert!(mended.code <= 1, "seed {seed}, image {checked}: {mended}");
        oracle::check_clean(&path).unwrap_or_else(|e| panic!("seed {seed}, image {checked}: {e}"));
        checked += 1;
    }
    println!("no journal: {checked} images mended, seed {seed}");
    assert!(checked >= IMAGES / 2, "seed {seed}: {checked} images");
    // The end of it all is clean by itself.
    device.content().write_to(&path).unwrap();
    oracle::check_clean(&path).unwrap();
}
