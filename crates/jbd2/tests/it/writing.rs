//! What the writer appends and commits is what recovery finds.

use crate::recording_device::{Op, RecordingDevice};
use crate::synthetic::{FS_BLOCKS, JOURNAL_BLOCKS, KINDS, LogMaker, SIZE, filled};
use extant_format::jbd2::{CompatFeatures, IncompatFeatures, JournalSuperblock, MAGIC};
use extant_format::{Pblk, Tid};
use extant_jbd2::{
    CommitReceipt, CommitTime, JournalError, Log, LogEnd, LogImage, LogRun, LogTransaction,
    LogWriter, Recovery, WriterOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks in the ring of a synthetic journal.
const RING: u32 = JOURNAL_BLOCKS - 1;

/// A writer over a synthetic journal, and the device below it.
pub(crate) struct Rig {
    pub(crate) device: Arc<RecordingDevice>,
    pub(crate) runs: Vec<LogRun>,
    pub(crate) writer: LogWriter,
}

impl Rig {
    pub(crate) fn new(kind: (u32, u32), first_tid: u32) -> Self {
        let log = LogMaker::new(kind, 0, 1);
        Self::over(&log.image, log.runs, first_tid, WriterOptions::default())
    }

    pub(crate) fn over(
        image: &[u8],
        runs: Vec<LogRun>,
        first_tid: u32,
        options: WriterOptions,
    ) -> Self {
        let device = Arc::new(RecordingDevice::new(image));
        let writer = start(&device, &runs, first_tid, options).unwrap();
        Self {
            device,
            runs,
            writer,
        }
    }

    pub(crate) fn append(&mut self, images: &[(u64, Vec<u8>)], revokes: &[u64]) -> Tid {
        append(&mut self.writer, images, revokes).unwrap()
    }

    pub(crate) fn commit(&mut self, tid: Tid) -> CommitReceipt {
        self.writer.commit(tid, at(7)).unwrap()
    }

    pub(crate) fn transaction(&mut self, images: &[(u64, Vec<u8>)], revokes: &[u64]) -> Tid {
        let tid = self.append(images, revokes);
        self.commit(tid);
        tid
    }

    /// What recovery finds on the device: its account, and the images.
    pub(crate) fn recover(&self) -> (Recovery, BTreeMap<u64, Vec<u8>>) {
        let log = Log::open(&*self.device, &self.runs, SIZE).unwrap();
        let recovery = log.recover(FS_BLOCKS).unwrap();
        let mut images = BTreeMap::new();
        for block in recovery.blocks.iter() {
            let mut image = vec![0; SIZE.len()];
            let offset = SIZE.offset_of(block).unwrap();
            recovery
                .blocks
                .read(&*self.device, offset, &mut image)
                .unwrap();
            images.insert(block.get(), image);
        }
        (recovery, images)
    }

    fn superblock(&self) -> JournalSuperblock {
        let log = Log::open(&*self.device, &self.runs, SIZE).unwrap();
        log.superblock().clone()
    }
}

pub(crate) fn start(
    device: &Arc<RecordingDevice>,
    runs: &[LogRun],
    first_tid: u32,
    options: WriterOptions,
) -> Result<LogWriter, JournalError> {
    let tid = Tid::new(first_tid);
    LogWriter::start(device.clone(), runs.to_vec(), SIZE, tid, 0, options)
}

pub(crate) fn append(
    writer: &mut LogWriter,
    images: &[(u64, Vec<u8>)],
    revokes: &[u64],
) -> Result<Tid, JournalError> {
    let images: Vec<_> = images
        .iter()
        .map(|(block, bytes)| LogImage {
            block: Pblk::new(*block),
            bytes,
        })
        .collect();
    let revokes: Vec<_> = revokes.iter().map(|block| Pblk::new(*block)).collect();
    let span = writer.append(&LogTransaction {
        tid: writer.next_tid(),
        images: &images,
        revokes: &revokes,
    })?;
    Ok(span.tid)
}

pub(crate) fn at(seconds: u64) -> CommitTime {
    CommitTime {
        seconds,
        nanoseconds: 0,
    }
}

fn image(block: u64, byte: u8) -> (u64, Vec<u8>) {
    (block, filled(byte))
}

/// `count` images of the blocks from 0 on.
fn images(count: u32, byte: u8) -> Vec<(u64, Vec<u8>)> {
    (0..u64::from(count))
        .map(|block| image(block, byte))
        .collect()
}

#[test]
fn every_kind_of_log_recovers_to_what_was_committed() {
    for kind in KINDS {
        let mut rig = Rig::new(kind, 40);
        let mut magic = filled(9);
        magic[..4].copy_from_slice(&MAGIC.to_be_bytes());
        rig.transaction(&[image(3, 1), image(4, 1), (5, magic.clone())], &[]);
        rig.transaction(&[image(4, 2)], &[3, 77]);
        rig.transaction(&[], &[]);
        let open = rig.append(&[image(4, 3), image(8, 3)], &[5]);
        let (recovery, found) = rig.recover();
        assert_eq!(found, BTreeMap::from([image(4, 2), (5, magic)]));
        assert_eq!(recovery.transactions, Some((Tid::new(40), Tid::new(42))));
        assert_eq!(recovery.end, LogEnd::Uncommitted { tid: open });
        assert_eq!(recovery.last_commit_seconds, 7);
        rig.commit(open);
        let (recovery, found) = rig.recover();
        assert_eq!(found, BTreeMap::from([image(4, 3), image(8, 3)]));
        assert_eq!(recovery.next_tid, rig.writer.next_tid().next());
    }
}

#[test]
fn a_commit_is_two_flushes_around_the_commit_block() {
    let mut rig = Rig::new(KINDS[7], 1);
    let before = rig.device.op_count();
    let tid = rig.append(&images(20, 1), &[]);
    let appended = rig.device.op_count();
    assert_eq!(appended - before, 1, "one write, as the run is long enough");
    let first = rig.commit(tid);
    let (flushes, writes): (Vec<_>, Vec<_>) = rig.device.ops()[appended..]
        .iter()
        .cloned()
        .partition(|op| *op == Op::Flush);
    assert_eq!(
        (flushes.len(), writes.len()),
        (2, 2),
        "superblock and commit block"
    );
    assert!(first.superblock_written);
    let tid = rig.append(&images(2, 2), &[]);
    let appended = rig.device.op_count();
    let second = rig.commit(tid);
    assert!(!second.superblock_written);
    let ops = rig.device.ops();
    assert!(
        matches!(&ops[appended..], [Op::Flush, Op::Write(..), Op::Flush]),
        "{:?}",
        ops.len()
    );
    assert_eq!(second.flushes, 2);
}

#[test]
fn transactions_fill_the_log_to_its_last_block() {
    for kind in KINDS {
        let mut rig = Rig::new(kind, u32::MAX - 1);
        let capacity = rig.writer.capacity();
        assert_eq!(capacity, RING);
        // Two rounds, so that the second one wraps at an odd place.
        rig.transaction(&images(9, 1), &[]);
        for round in 2..4 {
            rig.writer.set_tail(None).unwrap();
            assert_eq!(rig.writer.free(), capacity);
            let mut most = capacity;
            while rig.writer.needed(most as usize, 1) > capacity {
                most -= 1;
            }
            assert_eq!(rig.writer.needed(most as usize, 1), capacity);
            let tid = rig.transaction(&images(most, round), &[500]);
            assert_eq!(rig.writer.free(), 0);
            let (recovery, found) = rig.recover();
            assert_eq!(recovery.transactions, Some((tid, tid)));
            assert_eq!(found, images(most, round).into_iter().collect());
            let error = append(&mut rig.writer, &[], &[]).unwrap_err();
            assert!(matches!(
                error,
                JournalError::Full {
                    needed: 1,
                    free: 0,
                    ..
                }
            ));
        }
        let error = append(&mut rig.writer, &images(capacity, 1), &[]).unwrap_err();
        assert!(error.to_string().contains("needs"), "{error}");
    }
}

#[test]
fn the_log_goes_around_many_times() {
    for kind in KINDS {
        let mut rig = Rig::new(kind, u32::MAX - 20);
        for round in 0..300u32 {
            let tid = rig.append(&images(1 + round % 13, round as u8), &[200]);
            rig.commit(tid);
            let live: Vec<_> = rig.writer.live().collect();
            assert_eq!(live.last().unwrap().tid, tid);
            let used: u32 = live.iter().map(|span| span.len).sum();
            assert_eq!(used + rig.writer.free(), rig.writer.capacity());
            let (recovery, _) = rig.recover();
            assert_eq!(recovery.transactions, Some((live[0].tid, tid)));
            if rig.writer.free() < 40 {
                let keep = live[live.len() - 2].tid;
                if round % 2 == 0 {
                    rig.writer.set_tail(Some(keep)).unwrap();
                } else {
                    rig.writer.queue_tail(Some(keep)).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_queued_tail_costs_no_flush_and_counts_after_the_commit() {
    let mut rig = Rig::new(KINDS[7], 5);
    let first = rig.transaction(&images(10, 1), &[]);
    let second = rig.transaction(&images(10, 2), &[]);
    let free = rig.writer.free();
    let before = rig.device.op_count();
    rig.writer.queue_tail(Some(second)).unwrap();
    assert_eq!(rig.device.op_count(), before);
    assert_eq!(rig.writer.free(), free, "not free before it is durable");
    let third = rig.append(&images(1, 3), &[]);
    rig.writer.queue_tail(Some(first)).unwrap();
    assert_eq!(rig.superblock().sequence, first);
    let receipt = rig.commit(third);
    assert_eq!((receipt.flushes, receipt.freed), (2, 12));
    assert_eq!(rig.superblock().sequence, second);
    assert_eq!(rig.writer.free(), free + 12 - 3);
    let (recovery, _) = rig.recover();
    assert_eq!(recovery.transactions, Some((second, third)));
    // Everything but the one being committed.
    let fourth = rig.append(&images(1, 4), &[]);
    rig.writer.queue_tail(None).unwrap();
    rig.commit(fourth);
    assert_eq!(rig.recover().0.transactions, Some((fourth, fourth)));
}

#[test]
fn an_emptied_log_needs_no_superblock_for_its_next_commit() {
    let mut rig = Rig::new(KINDS[7], 5);
    rig.transaction(&images(4, 1), &[]);
    rig.writer.set_tail(None).unwrap();
    let (recovery, found) = rig.recover();
    assert_eq!((recovery.transactions, found.len()), (None, 0));
    let tid = rig.append(&images(4, 2), &[]);
    assert!(!rig.commit(tid).superblock_written);
    assert_eq!(rig.recover().0.transactions, Some((tid, tid)));
    let before = rig.device.op_count();
    rig.writer.set_tail(Some(tid)).unwrap();
    rig.writer.set_tail(Some(Tid::new(5))).unwrap();
    assert_eq!(rig.device.op_count(), before, "the tail is there already");
    let error = rig.writer.set_tail(Some(tid.next().next())).unwrap_err();
    assert!(matches!(error, JournalError::OutOfTurn { .. }));
}

#[test]
fn a_closed_log_is_clean_and_may_go_on() {
    let mut rig = Rig::new(KINDS[7], 5);
    rig.transaction(&images(4, 1), &[]);
    let open = rig.append(&images(4, 1), &[]);
    assert!(
        rig.writer.close().is_err(),
        "a transaction waits for its commit"
    );
    rig.commit(open);
    rig.writer.close().unwrap();
    let superblock = rig.superblock();
    assert_eq!((superblock.start, superblock.sequence), (0, Tid::new(7)));
    assert_eq!(rig.writer.free(), rig.writer.capacity());
    // Another writer begins where this one ended, not at the front of the device again.
    let image = rig.device.image();
    let (recovery, _) = rig.recover();
    let next = recovery.next_tid.get();
    let mut again = Rig::over(&image, rig.runs.clone(), next, WriterOptions::default());
    let tid = again.transaction(&images(3, 2), &[]);
    assert_eq!(tid, Tid::new(8));
    assert_eq!(again.superblock().start, superblock.head);
    assert_eq!(again.recover().0.transactions, Some((tid, tid)));
    let tid = rig.transaction(&images(3, 2), &[]);
    assert_eq!(rig.recover().0.transactions, Some((tid, tid)));
}

#[test]
fn nothing_of_a_commit_is_written_after_a_flush_that_failed() {
    let log = LogMaker::new(KINDS[7], 0, 1);
    for new in [RecordingDevice::new, RecordingDevice::far] {
        let begun = || {
            let device = Arc::new(new(&log.image));
            let mut writer = start(&device, &log.runs, 5, WriterOptions::default()).unwrap();
            let before = device.op_count();
            let tid = append(&mut writer, &images(4, 1), &[]).unwrap();
            (device, writer, tid, before)
        };
        let (device, mut writer, tid, before) = begun();
        writer.commit(tid, at(7)).unwrap();
        let ops = device.ops();
        let flush = ops[before..].iter().position(|op| *op == Op::Flush);
        let flush = before + flush.unwrap();
        assert!(ops[flush + 1..].iter().any(|op| *op != Op::Flush));
        let (device, mut writer, tid, _) = begun();
        device.fail_after(flush - device.op_count());
        writer.commit(tid, at(7)).unwrap_err();
        assert!(writer.is_stopped());
        assert_eq!(device.ops(), ops[..flush]);
    }
}

#[test]
fn an_error_is_recorded_beside_the_log() {
    let mut rig = Rig::new(KINDS[7], 5);
    let tid = rig.transaction(&images(4, 1), &[]);
    rig.writer.queue_tail(None).unwrap();
    rig.device.fail_after(0);
    assert!(append(&mut rig.writer, &images(1, 1), &[]).is_err());
    assert!(rig.writer.is_stopped());
    for refused in [
        append(&mut rig.writer, &[], &[]).map(drop),
        rig.writer.commit(tid, at(1)).map(drop),
        rig.writer.set_tail(None),
        rig.writer.queue_tail(None),
        rig.writer.close(),
    ] {
        assert!(matches!(refused, Err(JournalError::Stopped)));
    }
    rig.writer.record_error(5).unwrap();
    let (recovery, found) = rig.recover();
    assert_eq!(recovery.recorded_error, -5);
    assert_eq!(recovery.transactions, Some((tid, tid)));
    assert_eq!(found.len(), 4);
    // It survives the next start, until someone takes it back.
    let image = rig.device.image();
    let mut next = Rig::over(&image, rig.runs.clone(), 9, WriterOptions::default());
    assert_eq!(next.superblock().errno, -5);
    next.writer.record_error(0).unwrap();
    assert_eq!(next.superblock().errno, 0);
}

#[test]
fn transactions_out_of_turn_are_refused() {
    let mut rig = Rig::new(KINDS[7], 5);
    let images = [LogImage {
        block: Pblk::new(3),
        bytes: &[0; 100],
    }];
    let tx = |tid| LogTransaction {
        tid: Tid::new(tid),
        images: &images,
        revokes: &[],
    };
    let before = rig.device.op_count();
    let error = rig.writer.append(&tx(6)).unwrap_err();
    assert!(matches!(error, JournalError::OutOfTurn { found, expected }
        if (found.get(), expected.get()) == (6, 5)));
    let error = rig.writer.append(&tx(5)).unwrap_err();
    assert!(matches!(error, JournalError::ImageSize { found: 100, .. }));
    assert!(rig.writer.commit(Tid::new(5), at(1)).is_err());
    assert_eq!(rig.device.op_count(), before);
    let tid = rig.append(&[image(3, 1)], &[]);
    assert!(append(&mut rig.writer, &[], &[]).is_err());
    rig.commit(tid);
}

#[test]
fn a_block_beyond_narrow_tags_is_refused_before_anything_is_written() {
    let far = 1 << 33;
    for (images, revokes) in [(vec![image(far, 1)], vec![]), (vec![], vec![far])] {
        let mut rig = Rig::new(KINDS[6], 5);
        let before = rig.device.op_count();
        let error = append(&mut rig.writer, &images, &revokes).unwrap_err();
        assert!(matches!(error, JournalError::Encode { .. }), "{error}");
        assert_eq!(rig.device.op_count(), before);
        assert!(!rig.writer.is_stopped());
    }
}

#[test]
fn commit_times_never_go_backwards() {
    let log = LogMaker::new(KINDS[0], 0, 1);
    let device = Arc::new(RecordingDevice::new(&log.image));
    let options = WriterOptions::default();
    let tid = Tid::new(3);
    let writer = LogWriter::start(device.clone(), log.runs.clone(), SIZE, tid, 900, options);
    let mut rig = Rig {
        device,
        runs: log.runs,
        writer: writer.unwrap(),
    };
    for (given, kept) in [(5, 900), (1000, 1000), (999, 1000)] {
        let tid = rig.append(&images(1, 1), &[]);
        rig.writer.commit(tid, at(given)).unwrap();
        assert_eq!(rig.recover().0.last_commit_seconds, kept);
    }
}

/// Features a journal has after its first transaction: compatible and incompatible ones.
fn features_after(kind: (u32, u32), options: WriterOptions) -> (u32, u32) {
    let log = LogMaker::new(kind, 0, 1);
    let mut rig = Rig::over(&log.image, log.runs, 3, options);
    rig.transaction(&images(2, 1), &[]);
    let superblock = rig.superblock();
    assert_eq!(rig.recover().1.len(), 2);
    (superblock.compat.bits(), superblock.incompat.bits())
}

#[test]
fn a_journal_gets_the_features_its_file_system_needs() {
    let as_found = WriterOptions::default();
    let modern = WriterOptions {
        metadata_csum: true,
        sixty_four_bit: true,
        keeps_fast_commits: false,
    };
    let checked = WriterOptions {
        sixty_four_bit: false,
        ..modern
    };
    for kind in KINDS {
        assert_eq!(features_after(kind, as_found), kind);
    }
    assert_eq!(features_after((0, 0), modern), (0, 0x12));
    assert_eq!(features_after((0, 0), checked), (0, 0x10));
    assert_eq!(features_after((1, 1), modern), (0, 0x13));
    assert_eq!(features_after((0, 0x9), modern), (0, 0xb), "v2 stays");
    assert_eq!(
        features_after((0, 0x5), as_found),
        (0, 1),
        "no asynchronous commits"
    );
}

#[test]
fn an_empty_log_is_as_it_was_until_its_first_commit() {
    let log = LogMaker::new((0, 0), 0, 1);
    let mut rig = Rig::over(&log.image, log.runs, 3, WriterOptions::default());
    assert_eq!(rig.device.op_count(), 0);
    let tid = rig.append(&images(2, 1), &[]);
    assert_eq!(rig.superblock().start, 0);
    assert!(rig.recover().1.is_empty(), "a log that nobody finds");
    assert!(rig.commit(tid).superblock_written);
    let superblock = rig.superblock();
    assert_eq!((superblock.start, superblock.sequence), (1, tid));
    assert_eq!(rig.recover().1.len(), 2);
    // What another one has begun is empty first.
    let (device, runs) = (Arc::clone(&rig.device), rig.runs.clone());
    drop(rig);
    let begun = start(&device, &runs, 9, WriterOptions::default()).unwrap();
    let mut rig = Rig {
        device,
        runs,
        writer: begun,
    };
    let superblock = rig.superblock();
    assert_eq!((superblock.start, superblock.sequence), (0, Tid::new(9)));
    rig.transaction(&images(1, 2), &[]);
    assert_eq!(rig.recover().1.len(), 1);
}

#[test]
fn revokes_are_allowed_when_the_first_is_committed() {
    let mut rig = Rig::new((0, 0), 3);
    rig.transaction(&images(2, 1), &[]);
    assert_eq!(rig.superblock().incompat, IncompatFeatures::empty());
    let tid = rig.append(&[], &[0]);
    assert!(rig.commit(tid).superblock_written);
    assert_eq!(rig.superblock().incompat, IncompatFeatures::REVOKE);
    assert_eq!(rig.recover().1, BTreeMap::from([image(1, 1)]));
    let tid = rig.append(&[], &[1]);
    assert!(!rig.commit(tid).superblock_written);
}

#[test]
fn a_version_1_superblock_becomes_version_2() {
    let mut log = LogMaker::new((0, 0), 0, 1);
    log.superblock.v2 = false;
    let record = log.superblock.encode();
    log.block_mut(0)[..record.len()].copy_from_slice(&record);
    let mut rig = Rig::over(&log.image, log.runs, 3, WriterOptions::default());
    rig.transaction(&images(3, 1), &[1]);
    assert!(rig.superblock().v2);
    assert_eq!(rig.recover().1.len(), 2);
}

#[test]
fn features_that_forbid_writing_are_respected() {
    let mut log = LogMaker::new((0, 0), 0, 1);
    log.superblock.ro_compat = 4;
    let record = log.superblock.encode();
    log.block_mut(0)[..record.len()].copy_from_slice(&record);
    let device = Arc::new(RecordingDevice::new(&log.image));
    let error = start(&device, &log.runs, 3, WriterOptions::default()).unwrap_err();
    assert!(matches!(error, JournalError::ReadOnlyFeatures { bits: 4 }));
    assert_eq!(device.op_count(), 0);
}

#[test]
fn the_fast_commit_area_is_never_written() {
    let mut superblock = JournalSuperblock::empty(SIZE, 1056, [3; 16]);
    superblock.incompat = IncompatFeatures::FAST_COMMIT;
    superblock.compat = CompatFeatures::empty();
    superblock.fast_commit_blocks = 32;
    let mut image = vec![0xfc; 1056 * SIZE.len()];
    image[..1024].copy_from_slice(&superblock.encode());
    let runs = vec![LogRun {
        first: 0,
        len: 1056,
        start: Pblk::new(0),
    }];
    let mut rig = Rig::over(&image, runs, 9, WriterOptions::default());
    assert_eq!(rig.writer.capacity(), 1023);
    for byte in 0..200 {
        rig.transaction(&images(20, byte), &[]);
        rig.writer.queue_tail(None).unwrap();
    }
    rig.writer.close().unwrap();
    let area = 1024 * SIZE.len();
    assert!(rig.device.image()[area..].iter().all(|byte| *byte == 0xfc));
    assert_eq!(rig.superblock().incompat, IncompatFeatures::FAST_COMMIT);
}
