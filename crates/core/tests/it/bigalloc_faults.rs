//! Files whose clusters are more than a block, when the device fails: what was let in keeps its
//! place, and what was not gives it back.

use crate::memory::{create, free, image, options, read, write};
use crate::support::{Image, pattern};
use extant_blockdev::FileDevice;
use extant_core::data;
use extant_core::fs::{DataMode, Fs};
use extant_core::ops::{self, FallocateMode};
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle::assert_clean;
use std::sync::Arc;

const BLOCK: u64 = 1024;
const CLUSTER: u64 = 8 * BLOCK;

fn opened(mode: DataMode) -> (Image, Arc<FaultDevice>, Arc<Fs>) {
    let options_of_mkfs = ["-b", "1024", "-O", "bigalloc", "-C", "8192", "-J", "size=1"];
    let image = image(24, &options_of_mkfs);
    let device = Arc::new(FaultDevice::new(Arc::new(
        FileDevice::open(image.path()).unwrap(),
    )));
    let fs = Fs::open(device.clone(), options(mode)).unwrap();
    (image, device, fs)
}

#[test]
fn a_write_that_cannot_read_the_rest_of_a_block_gives_the_clusters_it_chose_back() {
    let (image, device, fs) = opened(DataMode::Placed);
    let held = create(&fs, "a");
    let text = pattern(1, BLOCK as usize);
    write(&fs, &held, 0, &text);
    ops::fsync(&fs, &held).unwrap();
    data::invalidate(&fs, &held, 0..BLOCK);
    let before = (free(&fs), fs.space_sums().unwrap().promised);
    // It chooses a cluster for its end, and then cannot read what its beginning leaves of a block.
    device.inject(FaultRule::fail_nth(IoKind::Read, 0).from_then_on());
    let failed = ops::pwrite(&fs, &held, 100, &vec![7; CLUSTER as usize]);
    assert_eq!(failed.unwrap_err().errno(), 5);
    device.heal();
    assert_eq!((free(&fs), fs.space_sums().unwrap().promised), before);
    assert_eq!(read(&fs, &held, 0, BLOCK as usize), text);
    drop(held);
    fs.close().unwrap();
    drop((fs, device));
    assert_clean(&image.path());
}

#[test]
fn what_a_truncation_leaves_of_a_cluster_keeps_space_when_it_could_not_be_written_first() {
    let (image, device, fs) = opened(DataMode::Delayed);
    let (held, other) = (create(&fs, "a"), create(&fs, "b"));
    write(&fs, &held, 6 * BLOCK, &pattern(1, BLOCK as usize));
    ops::fsync(&fs, &held).unwrap();
    let text = pattern(2, BLOCK as usize);
    write(&fs, &held, BLOCK, &text);
    device.inject(FaultRule::fail_nth(IoKind::Write, 0));
    ops::ftruncate(&fs, &held, 2 * BLOCK).unwrap();
    assert_eq!(fs.data_stats().dirty_bytes, BLOCK, "it was not written");
    device.heal();
    // The cluster it had is free now, and others take all there is.
    let mode = FallocateMode { keep_size: false };
    let mut at = 0;
    while ops::fallocate(&fs, &other, at, CLUSTER, mode).is_ok() {
        at += CLUSTER;
    }
    ops::fsync(&fs, &held).unwrap();
    assert_eq!(read(&fs, &held, BLOCK, 2 * BLOCK as usize), text);
    drop((held, other));
    fs.close().unwrap();
    drop((fs, device));
    assert_clean(&image.path());
}
