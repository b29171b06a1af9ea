//! Damaged logs: a torn end is dropped, damage in the middle is an error that names the place,
//! and no bytes make recovery panic or run on.

use crate::synthetic::{Change, FS_BLOCKS, KINDS, LogMaker, SIZE, write};
use extant_blockdev::MemoryDevice;
use extant_format::Pblk;
use extant_jbd2::{JournalError, Log, LogEnd, LogRun};
use extant_testkit::rng::{Rng, seed_from_env};

/// The kinds with a checksum on commit blocks.
const CHECKED: [(u32, u32); 4] = [KINDS[2], KINDS[3], KINDS[5], KINDS[7]];

#[test]
fn a_transaction_without_its_commit_is_dropped() {
    for kind in KINDS {
        let mut log = LogMaker::new(kind, 100, 8);
        log.transaction(&[write(3, 1)]);
        log.open_transaction(&[write(3, 2), write(4, 2)]);
        let recovery = log.check();
        assert_eq!(recovery.end, LogEnd::Uncommitted { tid: log.tid });
        assert_eq!(recovery.next_tid, log.tid.next());
    }
}

#[test]
fn a_torn_commit_at_the_end_is_dropped() {
    for kind in CHECKED {
        let mut log = LogMaker::new(kind, 1, 8);
        log.transaction(&[write(3, 1)]);
        let tid = log.tid;
        let crc = log.open_transaction(&[write(3, 2)]);
        let block = log.commit(crc);
        log.block_mut(block)[0x10] ^= 1;
        let recovery = log.check();
        assert_eq!(recovery.end, LogEnd::TornCommit { tid, block });
        assert_eq!(recovery.transaction_count, 1);
    }
}

#[test]
fn a_torn_commit_with_transactions_behind_it_is_an_error() {
    for kind in CHECKED {
        let mut log = LogMaker::new(kind, 1, 8);
        let torn = log.transaction(&[write(3, 1)]);
        log.transaction(&[write(3, 2)]);
        log.block_mut(torn)[0x10] ^= 1;
        let error = log.recover().unwrap_err();
        assert!(
            matches!(error, JournalError::DamagedCommit { block, tid, .. }
                if block == torn && tid.get() == 8),
            "{error}"
        );
    }
}

#[test]
fn damaged_data_is_an_error_that_names_its_block() {
    for kind in [KINDS[4], KINDS[5], KINDS[6], KINDS[7]] {
        let mut log = LogMaker::new(kind, 10, 8);
        log.transaction(&[write(3, 1), write(4, 1)]);
        // Descriptor in block 10, data in 11 and 12.
        log.block_mut(12)[500] ^= 1;
        let error = log.recover().unwrap_err();
        assert!(
            matches!(error, JournalError::Corrupt { block: 12, .. }),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("journal block 12 of transaction 8")
        );
    }
}

#[test]
fn a_damaged_descriptor_counts_only_if_its_transaction_was_committed() {
    for (kind, committed) in [(KINDS[5], true), (KINDS[5], false), (KINDS[7], true)] {
        let mut log = LogMaker::new(kind, 10, 8);
        let crc = log.open_transaction(&[Change::Revoke(9), write(3, 1)]);
        if committed {
            log.commit(crc);
        }
        log.block_mut(10)[600] ^= 1;
        match log.recover() {
            Ok(recovery) => assert!(!committed && recovery.blocks.is_empty()),
            Err(error) => assert!(
                committed && matches!(error, JournalError::Corrupt { block: 10, .. }),
                "{error}"
            ),
        }
    }
}

#[test]
fn records_of_an_older_log_end_this_one() {
    let mut log = LogMaker::new(KINDS[7], 1, 8);
    log.transaction(&[write(3, 1)]);
    let tid = log.tid;
    // By chance the next number, but committed long before, by a journal with another UUID.
    log.seconds = 500;
    log.format.uuid = [9; 16];
    log.open_transaction(&[write(3, 2)]);
    log.commit(0);
    assert_eq!(log.check().end, LogEnd::Stale { tid });
}

#[test]
fn a_block_that_belongs_outside_the_file_system_is_an_error() {
    let mut log = LogMaker::new(KINDS[1], 1, 8);
    log.transaction(&[write(FS_BLOCKS, 1)]);
    let error = log.recover().unwrap_err();
    assert!(
        matches!(error, JournalError::Target { target, .. } if target.get() == FS_BLOCKS),
        "{error}"
    );
}

#[test]
fn a_map_with_gaps_or_too_few_blocks_is_refused() {
    let log = LogMaker::new(KINDS[0], 1, 8);
    let device = MemoryDevice::from_image(&log.image);
    let open = |runs: &[LogRun]| Log::open(&device, runs, SIZE).unwrap_err();
    assert!(matches!(open(&[]), JournalError::Mapping { block: 0 }));
    let gap = [log.runs[0], log.runs[2]];
    assert!(matches!(open(&gap), JournalError::Mapping { block: 40 }));
    let short = &log.runs[..2];
    assert!(matches!(
        open(short),
        JournalError::TooShort {
            mapped: 48,
            needed: 128
        }
    ));
    let endless = LogRun {
        first: 0,
        len: u32::MAX,
        start: Pblk::new(u64::MAX),
    };
    open(&[endless]);
}

#[test]
fn random_damage_never_panics_or_runs_on() {
    let mut rng = Rng::new(seed_from_env("random_damage_never_panics_or_runs_on"));
    for round in 0..2000 {
        let kind = KINDS[round % KINDS.len()];
        let start = rng.between(1, 127) as u32;
        let mut log = LogMaker::new(kind, start, rng.next_u64() as u32);
        for _ in 0..rng.between(1, 6) {
            let changes: Vec<_> = (0..rng.between(0, 6))
                .map(|_| match rng.below(5) {
                    0 => Change::Revoke(rng.below(12)),
                    _ => write(rng.below(12), rng.next_u64() as u8),
                })
                .collect();
            log.transaction(&changes);
        }
        for _ in 0..rng.between(1, 8) {
            // Near the start of blocks, where the records are.
            let block = match rng.below(4) {
                0 => 0,
                _ => rng.below(128) as u32,
            };
            let reach = if rng.one_in(2) { 64 } else { 1024 };
            let at = rng.below(reach) as usize;
            let byte = match rng.below(3) {
                0 => 0,
                1 => 0xff,
                _ => rng.next_u64() as u8,
            };
            log.block_mut(block)[at] = byte;
        }
        if let Ok(recovery) = log.recover() {
            assert!(recovery.blocks.len() <= 128);
        }
    }
}
