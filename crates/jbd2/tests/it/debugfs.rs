//! Logs that e2fsprogs wrote, with both kinds of checksums, replay to what its replay leaves.

use crate::kernel::{assert_same_as_e2fsck, journal_runs, open};
use crate::linux::change_journal;
use extant_format::jbd2::{IncompatFeatures, MAGIC};
use extant_format::{BlockSize, Tid};
use extant_jbd2::Log;
use extant_testkit::oracle::{debugfs_write, mke2fs};
use std::fs;

/// Blocks that nothing else uses.
const FIRST: usize = 9000;

#[test]
fn what_e2fsprogs_logs_replays_as_it_does_itself() {
    let size = BlockSize::MIN;
    for (version, features) in [
        (2, "metadata_csum,^64bit"),
        (2, "metadata_csum,64bit"),
        (3, "metadata_csum,^64bit"),
        (3, "metadata_csum,64bit"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("fs.img");
        mke2fs(
            &image,
            24 << 20,
            &["-t", "ext4", "-b", "1024", "-O", features, "-J", "size=4"],
        );
        change_journal(&image, size, journal_runs(&image)[0].start, |superblock| {
            superblock.sequence = Tid::new(u32::MAX);
        });
        let block = |byte: u8| vec![byte; size.len()];
        let mut escaped = block(0xe5);
        escaped[..4].copy_from_slice(&MAGIC.to_be_bytes());
        let (three, one) = (dir.path().join("three"), dir.path().join("one"));
        fs::write(&three, [block(1), block(2), escaped.clone()].concat()).unwrap();
        fs::write(&one, block(4)).unwrap();
        let (three, one) = (three.display(), one.display());
        debugfs_write(
            &image,
            &[
                &format!("journal_open -c -v {version}"),
                &format!("journal_write -b 9000,9001,9002 {three}"),
                &format!("journal_write -b 9000 {one}"),
                // The last one: what comes behind a revoke overwrites its commit block.
                &format!("journal_write -r 9001 -b 9003 {one}"),
                "journal_close",
            ],
        );

        let (device, _, blocks) = open(&image);
        let runs = journal_runs(&image);
        let log = Log::open(device.as_ref(), &runs, size).unwrap();
        let checksums = IncompatFeatures::CSUM_V2 | IncompatFeatures::CSUM_V3;
        let expected = match version {
            2 => IncompatFeatures::CSUM_V2,
            _ => IncompatFeatures::CSUM_V3,
        };
        assert_eq!(log.superblock().incompat & checksums, expected);
        let recovery = log.recover(blocks).unwrap();
        let range = (Tid::new(u32::MAX), Tid::new(1));
        assert_eq!(recovery.transactions, Some(range), "{recovery:?}");
        let mut found = vec![0; 4 * size.len()];
        let offset = (FIRST * size.len()) as u64;
        recovery.blocks.read(&*device, offset, &mut found).unwrap();
        let expected = [block(4), block(0), escaped, block(4)].concat();
        assert!(found == expected, "version {version}, {features}");
        drop(log);
        drop(device);
        assert_same_as_e2fsck(&image, &recovery, size);
    }
}
