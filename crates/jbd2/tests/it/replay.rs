//! Sound logs replay to what was written.

use crate::recording_device::RecordingDevice;
use crate::synthetic::{Change, FS_BLOCKS, JOURNAL_BLOCKS, KINDS, LogMaker, SIZE, filled, write};
use extant_blockdev::{AlignedBuf, BlockDevice, MemoryDevice, Request};
use extant_format::jbd2::{FastCommitRecord, IncompatFeatures, JournalSuperblock};
use extant_format::jbd2::{MAGIC, encode_fast_commit};
use extant_format::{Ino, Lblk, Pblk, Tid};
use extant_jbd2::{JournalError, Log, LogEnd, LogRun, ReplayedDevice};
use proptest::prelude::*;
use std::sync::Arc;

fn change() -> impl Strategy<Value = Change> {
    let block = 0u64..12;
    let data = (any::<u8>(), any::<bool>()).prop_map(|(byte, magic)| {
        let mut data = filled(byte);
        if magic {
            data[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
        data
    });
    prop_oneof![
        4 => (block.clone(), data).prop_map(|(block, data)| Change::Write(block, data)),
        1 => block.prop_map(Change::Revoke),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Over every kind of log, any start in the ring (so that it wraps), transaction numbers that
    /// wrap, escapes, and revokes in any order.
    #[test]
    fn any_sound_log_replays_to_the_newest_images(
        kind in 0usize..8,
        start in 1..JOURNAL_BLOCKS,
        tid in prop_oneof![any::<u32>(), (u32::MAX - 3)..=u32::MAX],
        transactions in proptest::collection::vec(proptest::collection::vec(change(), 0..8), 0..8),
    ) {
        let mut log = LogMaker::new(KINDS[kind], start, tid);
        for changes in &transactions {
            log.transaction(changes);
        }
        let recovery = log.check();
        prop_assert_eq!(recovery.transaction_count as usize, transactions.len());
        prop_assert_eq!(recovery.next_tid, log.tid.next());
        prop_assert_eq!(recovery.end, LogEnd::NoMoreRecords);
        let last = Tid::new(log.tid.get().wrapping_sub(1));
        let range = (!transactions.is_empty()).then_some((Tid::new(tid), last));
        prop_assert_eq!(recovery.transactions, range);
    }
}

#[test]
fn a_clean_journal_gives_nothing() {
    let mut log = LogMaker::new(KINDS[7], 5, 9);
    log.transaction(&[write(3, 1)]);
    log.superblock.start = 0;
    let record = log.superblock.encode();
    log.block_mut(0)[..1024].copy_from_slice(&record);
    let recovery = log.recover().unwrap();
    assert!(recovery.blocks.is_empty());
    assert_eq!(recovery.next_tid, Tid::new(10));
}

#[test]
fn a_version_1_superblock_has_no_features() {
    let mut log = LogMaker::new((0, 0), 1, 1);
    log.superblock.v2 = false;
    let record = log.superblock.encode();
    log.block_mut(0)[..1024].copy_from_slice(&record);
    log.format = log.superblock.log_format();
    log.format.uuid = [0; 16];
    log.transaction(&[write(3, 1), write(4, 2)]);
    log.check();
}

#[test]
fn a_block_logged_again_after_its_revoke_is_replayed() {
    for kind in KINDS {
        let mut log = LogMaker::new(kind, 1, 1);
        log.transaction(&[write(7, 1), write(8, 1)]);
        log.transaction(&[Change::Revoke(7), Change::Revoke(8)]);
        log.transaction(&[write(7, 3)]);
        let recovery = log.check();
        assert_eq!(recovery.blocks.len(), 1);
        assert_eq!(recovery.revoked_images, 2);
        assert_eq!(recovery.revoked_blocks, 2);
        assert_eq!(recovery.images, 1);
    }
}

#[test]
fn a_log_that_fills_the_ring_is_walked_once() {
    let mut log = LogMaker::new(KINDS[0], 1, 1);
    // 127 blocks: 25 transactions of five, then one of two.
    for i in 0..25 {
        log.transaction(&[write(i, 1), write(i + 1, 2), write(i + 2, 3)]);
    }
    log.transaction(&[Change::Revoke(1)]);
    assert_eq!(log.at, 1);
    assert_eq!(log.check().transaction_count, 26);
}

#[test]
fn reads_through_the_replayed_device_show_the_images() {
    let mut log = LogMaker::new(KINDS[7], 1, 1);
    let mut magic = filled(0xcc);
    magic[..4].copy_from_slice(&MAGIC.to_be_bytes());
    let escaped = Change::Write(13, magic);
    log.transaction(&[write(10, 0xaa), write(12, 0xbb), escaped]);
    for inner in [RecordingDevice::new, RecordingDevice::far] {
        shows_the_images(&log, inner(&log.image));
    }
}

fn shows_the_images(log: &LogMaker, inner: RecordingDevice) {
    let recovery = log.recover().unwrap();
    let device = ReplayedDevice::new(Arc::new(inner), recovery.blocks);
    let mut want = log.image.clone();
    for (block, data) in log.expected() {
        let at = block as usize * SIZE.len();
        want[at..at + SIZE.len()].copy_from_slice(&data);
    }
    let places = [
        (0, 20 * 1024),
        (10 * 1024, 1024),
        (10 * 1024 + 100, 50),
        (11_000, 2000),
        (13 * 1024, 1),
        (13 * 1024 + 2, 5),
        (13 * 1024 + 4, 5),
        (13 * 1024 - 3, 1029),
    ];
    for (offset, len) in places {
        let mut buf = vec![0; len];
        device.read_at(offset as u64, &mut buf).unwrap();
        assert_eq!(buf, want[offset..offset + len], "{len} bytes at {offset}");
    }
    // In a batch as well, alone and beside what is no read.
    let reads = || places.map(|(offset, len)| Request::read(offset as u64, len));
    let refused = Request::write(0, AlignedBuf::zeroed(1));
    let alone = device.submit(reads().into()).wait();
    let mixed = device
        .submit(reads().into_iter().chain([refused]).collect())
        .wait();
    assert_eq!((alone.len(), mixed.len()), (8, 9));
    assert!(mixed[8].result.is_err());
    for (done, (offset, len)) in alone
        .into_iter()
        .zip(places)
        .chain(mixed.into_iter().zip(places))
    {
        done.result.unwrap();
        let read = done.request.into_read_buf().unwrap();
        let want = &want[offset..offset + len];
        assert_eq!(read[..], *want, "{len} bytes at {offset}");
    }
    device.read_at(3, &mut []).unwrap();
    assert!(device.write_at(0, &[1]).is_err());
}

/// A log with an area for fast commits behind it: 1024 blocks of log, one unused, 31.
fn fast_commit_log() -> (Vec<u8>, JournalSuperblock, Vec<LogRun>) {
    let mut sb = JournalSuperblock::empty(SIZE, 1056, [3; 16]);
    sb.incompat = IncompatFeatures::FAST_COMMIT;
    sb.fast_commit_blocks = 32;
    sb.start = 1;
    sb.sequence = Tid::new(40);
    let runs = vec![LogRun {
        first: 0,
        len: 1056,
        start: Pblk::new(0),
    }];
    (vec![0; 1056 * SIZE.len()], sb, runs)
}

#[test]
fn fast_commits_of_the_next_transaction_are_found() {
    let (mut image, sb, runs) = fast_commit_log();
    image[..1024].copy_from_slice(&sb.encode());
    let records = |tid| {
        [
            FastCommitRecord::Head {
                features: 0,
                tid: Tid::new(tid),
            },
            FastCommitRecord::DelRange {
                ino: Ino::new(12),
                lblk: Lblk::new(0),
                len: 1,
            },
        ]
    };
    let area = 1025 * SIZE.len();
    let recover = |image: &[u8]| {
        let device = MemoryDevice::from_image(image);
        let log = Log::open(&device, &runs, SIZE).unwrap();
        log.recover(FS_BLOCKS)
    };
    // Of an earlier transaction: left over, a full commit has made it stale.
    let stale = encode_fast_commit(&records(39), Tid::new(39), SIZE.len()).unwrap();
    image[area..area + stale.len()].copy_from_slice(&stale);
    assert!(recover(&image).unwrap().fast_commits.is_none());
    let live = encode_fast_commit(&records(40), Tid::new(40), SIZE.len()).unwrap();
    image[area..area + live.len()].copy_from_slice(&live);
    let found = recover(&image).unwrap().fast_commits.unwrap();
    assert_eq!(found.tid(), Tid::new(40));
    assert!(matches!(
        found.pending(),
        JournalError::FastCommitPending { block: 1025, .. }
    ));
    assert_eq!(found.records().collect::<Vec<_>>(), records(40)[1..]);
    // A second one that is torn: the first counts all the same.
    let torn = &live[..live.len() - SIZE.len() / 2];
    image[area + live.len()..area + live.len() + torn.len()].copy_from_slice(torn);
    image[area + live.len() + 20] ^= 1;
    let found = recover(&image).unwrap().fast_commits.unwrap();
    assert_eq!(found.records().count(), 1);
    // Torn itself: its checksum is wrong, so it never happened.
    image[area + 20] ^= 1;
    assert!(recover(&image).unwrap().fast_commits.is_none());
    // Of a kind that nobody knows yet.
    image[area + 4] = 1;
    let error = recover(&image).unwrap_err();
    assert!(matches!(
        error,
        JournalError::FastCommitFeatures { bits: 1 }
    ));
}
