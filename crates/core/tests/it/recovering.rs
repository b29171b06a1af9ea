//! Images that Linux left dirty, opened for writing: the journal is replayed to the device.

use crate::walk::tree_of;
use extant_blockdev::SharedDevice;
use extant_core::fs::{Fs, MountOptions, Notice};
use extant_testkit::crash::Content;
use extant_testkit::images::kernel_filled;
use extant_testkit::oracle::assert_clean;
use extant_testkit::tree::Compare;
use std::sync::Arc;

#[test]
fn what_the_kernel_left_dirty_is_recovered_to_what_the_kernel_recovers() {
    extant_testkit::require!(Root, LoopDevices, KernelExt4);
    for (features, block_size) in [
        (&["^metadata_csum"][..], 1024),
        (&["metadata_csum_seed", "orphan_file"], 4096),
        (&["fast_commit", "^64bit"], 2048),
    ] {
        let image = kernel_filled(features, block_size, true);
        let device: SharedDevice = Content::of_file(image.path()).open();
        let options = MountOptions::read_write().background(false);
        let fs = Fs::open(Arc::clone(&device), options.clone()).unwrap();
        assert!(fs.was_replayed());
        let replayed = |notice: &Notice| matches!(notice, Notice::JournalWrittenHome { transactions, .. } if *transactions > 0);
        assert!(fs.notices().iter().any(replayed), "{:?}", fs.notices());
        let compare = Compare::same_image();
        image.tree().assert_same(&tree_of(&fs), &compare);
        // Left dirty once more, now by us, and with nothing in the log.
        drop(fs);
        let fs = Fs::open(Arc::clone(&device), options).unwrap();
        image.tree().assert_same(&tree_of(&fs), &compare);
        fs.sync().unwrap();
        fs.close().unwrap();
        drop(fs);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let content = Content::of_device(&*device).unwrap();
        content.write_to(&path).unwrap();
        assert_clean(&path);
        let fs = Fs::open(device, MountOptions::read_only()).unwrap();
        assert!(!fs.was_replayed());
        image.tree().assert_same(&tree_of(&fs), &compare);
    }
}
