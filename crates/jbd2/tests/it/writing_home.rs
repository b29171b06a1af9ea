//! Recovered images are written home, and a crash in the middle of it costs nothing.

use crate::recording_device::RecordingDevice;
use crate::synthetic::{Change, FS_BLOCKS, KINDS, LogMaker, SIZE, filled, write};
use crate::writing::{Rig, start};
use extant_blockdev::BlockDevice;
use extant_format::jbd2::MAGIC;
use extant_jbd2::{JournalError, Log, WriterOptions};
use extant_testkit::rng::{Rng, seed_from_env};
use std::sync::Arc;

/// A log of many images, escaped and revoked ones among them.
fn busy_log(kind: (u32, u32)) -> LogMaker {
    let mut log = LogMaker::new(kind, 100, 8);
    let mut magic = filled(3);
    magic[..4].copy_from_slice(&MAGIC.to_be_bytes());
    log.transaction(&[write(9, 1), write(200, 1), Change::Write(10, magic)]);
    log.transaction(&[write(11, 2), write(9, 2), Change::Revoke(200)]);
    let all: Vec<_> = (20..70).map(|block| write(block, block as u8)).collect();
    log.transaction(&all);
    log.open_transaction(&[write(9, 99)]);
    log
}

fn assert_home(log: &LogMaker, image: &[u8]) {
    for (block, data) in log.expected() {
        let at = block as usize * SIZE.len();
        assert_eq!(image[at..at + SIZE.len()], data, "block {block}");
    }
    let revoked = 200 * SIZE.len();
    assert_eq!(image[revoked], 0xee, "a revoked block is left alone");
}

fn write_home(device: &dyn BlockDevice, log: &LogMaker) -> Result<u32, JournalError> {
    let opened = Log::open(device, &log.runs, SIZE)?;
    let recovery = opened.recover(FS_BLOCKS)?;
    let written = recovery.write_home(&opened)?;
    assert_eq!(written.blocks, recovery.blocks.len() as u64);
    assert!(written.blocks == 0 || written.writes <= 2, "{written:?}");
    Ok(recovery.next_tid.get())
}

#[test]
fn images_are_written_home_and_the_log_is_emptied() {
    let devices = [RecordingDevice::new, RecordingDevice::far];
    for (kind, device) in KINDS
        .into_iter()
        .flat_map(|kind| devices.map(|new| (kind, new)))
    {
        let log = busy_log(kind);
        let device = Arc::new(device(&log.image));
        let next = write_home(&*device, &log).unwrap();
        assert_home(&log, &device.image());
        let writer = start(&device, &log.runs, next, WriterOptions::default()).unwrap();
        drop(writer);
        let opened = Log::open(&*device, &log.runs, SIZE).unwrap();
        assert!(opened.is_clean());
        assert_eq!(opened.superblock().sequence.get(), next);
        let ops = device.op_count();
        assert_eq!(write_home(&*device, &log).unwrap(), next + 1);
        assert_eq!(device.op_count(), ops + 1, "a flush");
    }
}

#[test]
fn a_crash_while_writing_home_loses_nothing() {
    let mut rng = Rng::new(seed_from_env("a_crash_while_writing_home_loses_nothing"));
    let log = busy_log(KINDS[7]);
    for device in [RecordingDevice::new, RecordingDevice::far] {
        let device = Arc::new(device(&log.image));
        let next = write_home(&*device, &log).unwrap();
        start(&device, &log.runs, next, WriterOptions::default()).unwrap();
        let mut crashes = device.crashes();
        for op in device.ops() {
            crashes.follow(&op);
            for image in crashes.images(&mut rng, 4) {
                let crashed = RecordingDevice::new(&image);
                write_home(&crashed, &log).unwrap();
                assert_home(&log, &crashed.image());
            }
        }
    }
}

#[test]
fn a_failing_device_is_named_with_the_block() {
    let log = busy_log(KINDS[7]);
    for (good, far) in [(0, false), (1, false), (2, false), (0, true), (1, true)] {
        let device = if far {
            RecordingDevice::far(&log.image)
        } else {
            RecordingDevice::new(&log.image)
        };
        device.fail_after(good);
        let error = write_home(&device, &log).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("replaying"), "{text}");
        write_home(&device, &log).unwrap();
        assert_home(&log, &device.image());
    }
}

#[test]
fn an_image_of_the_journal_itself_is_refused() {
    for target in [400, 439, 300, 389] {
        let mut rig = Rig::new(KINDS[7], 5);
        rig.transaction(&[(3, filled(1)), (target, filled(2))], &[]);
        let ops = rig.device.op_count();
        let log = Log::open(&*rig.device, &rig.runs, SIZE).unwrap();
        let recovery = log.recover(FS_BLOCKS).unwrap();
        let error = recovery.write_home(&log).unwrap_err();
        assert!(matches!(error, JournalError::TargetInLog { target: t } if t.get() == target));
        assert_eq!(rig.device.op_count(), ops);
    }
}
