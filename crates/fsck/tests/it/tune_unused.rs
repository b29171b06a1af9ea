//! Inode tables that were never used, on a device that held other data: what changes of features
//! zero there takes no memory, whatever write is the last, and each byte comes back.

use crate::cuts::{bytes_of, stop};
use crate::support::check_bytes;
use extant_blockdev::MemoryDevice;
use extant_format::features::Feature;
use extant_fsck::repair::{self, revert, tune, write_undo};
use extant_testkit::crash::FaultDevice;
use extant_testkit::oracle;
use extant_testkit::tool::tool;
use std::path::Path;
use std::sync::Arc;

const SIZE: usize = 24 << 20;
/// Far more than descriptors, and all that is in use.
const IN_MEMORY_MAX: u64 = 1 << 20;
/// First writes, which have the superblock ask for a check, and zero a mebibyte at most each.
const ZEROING: u64 = 4;

/// An image of which inode tables are most, with what the device held before in them.
fn made(dir: &Path, features: &str) -> Vec<u8> {
    let path = dir.join("image");
    let before: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8 | 1).collect();
    std::fs::write(&path, before).unwrap();
    tool("mke2fs")
        .args(["-F", "-q", "-t", "ext4", "-b", "1024", "-N", "45000"])
        .args(["-E", "lazy_itable_init=1,nodiscard", "-O", features])
        .arg(&path)
        .ok();
    oracle::assert_clean(&path);
    std::fs::read(&path).unwrap()
}

/// Looks at changes of features of an image.
fn look_at(features: &str, changes: &[(&str, bool)]) {
    let dir = tempfile::tempdir().unwrap();
    let start = made(dir.path(), features);
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let device = Arc::new(FaultDevice::new(memory.clone()));
    let settings = tune::Settings {
        features: changes
            .iter()
            .map(|(name, on)| (Feature::from_name(name).unwrap(), *on))
            .collect(),
        ..tune::Settings::default()
    };
    let options = repair::Options::default();
    let plan = tune::plan(device.clone(), &settings, options, &()).unwrap();
    assert!(plan.is_complete(), "{:?}", plan.left.findings);
    let size = u64::from(plan.changes.block_size());
    let offsets: Vec<u64> = plan.changes.iter().map(|c| c.unwrap().offset).collect();
    assert!(offsets.is_sorted_by(|a, b| a < b));
    let changed = offsets.len() as u64 * size;
    assert!(changed > 8 << 20, "{changed} bytes change");
    let held = plan.changes.memory_bytes();
    assert!(held < IN_MEMORY_MAX, "{held} of {changed} bytes in memory");

    let mut undo = Vec::new();
    write_undo(&plan.changes, &mut undo).unwrap();
    device.reset_counts();
    plan.apply().unwrap();
    let writes = device.counts().writes;
    let path = dir.path().join("done");
    std::fs::write(&path, bytes_of(&memory)).unwrap();
    oracle::assert_clean(&path);
    revert(&*memory, || Ok(&undo[..])).unwrap();
    assert!(bytes_of(&memory) == start);

    let step = (writes / 5).max(1) as usize;
    for cut in (1..=ZEROING).chain((ZEROING + 1..writes).step_by(step)) {
        let name = format!("{cut} of {writes} writes");
        stop(&device, cut);
        plan.apply().unwrap_err();
        device.heal();
        let left = bytes_of(&memory);
        if cut <= ZEROING {
            std::fs::write(&path, &left).unwrap();
            let theirs = oracle::e2fsck(&path, &["-fy"]);
            assert!(theirs.code <= 1, "{name}: {theirs}");
            let mended = Arc::new(MemoryDevice::from_image(&left));
            let ours = repair::plan(mended.clone(), repair::Options::default(), &()).unwrap();
            assert!(ours.is_complete(), "{name}: {:?}", ours.left.findings);
            ours.apply().unwrap();
            assert!(check_bytes(&bytes_of(&mended), false).unwrap().is_clean());
        }
        revert(&*memory, || Ok(&undo[..])).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(bytes_of(&memory) == start, "{name}");
    }
}

#[test]
fn descriptors_of_32_bytes_take_no_memory_for_tables() {
    look_at("metadata_csum,64bit", &[("64bit", false)]);
}

#[test]
fn descriptors_of_64_bytes_take_no_memory_for_tables() {
    look_at("metadata_csum,^64bit", &[("64bit", true)]);
}

#[test]
fn checksums_take_no_memory_for_tables() {
    let features = "^metadata_csum,uninit_bg,^orphan_file";
    look_at(features, &[("metadata_csum", true)]);
    look_at(features, &[("uninit_bg", false)]);
}

/// A file takes an inode that was never used before tables are zeroed, and others behind it after.
#[test]
fn inodes_that_come_and_tables_that_are_zeroed_go_together() {
    look_at(
        "metadata_csum,64bit,^orphan_file,^quota,^project",
        &[
            ("64bit", false),
            ("quota", true),
            ("project", true),
            ("orphan_file", true),
        ],
    );
    look_at(
        "metadata_csum,64bit,quota,project,^orphan_file",
        &[("metadata_csum", false), ("quota", false), ("64bit", false)],
    );
}
