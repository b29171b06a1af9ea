//! Journals the kernel left dirty replay to what e2fsck's replay leaves.

use extant_blockdev::{FileDevice, FileOptions, SharedDevice};
use extant_format::{BlockSize, Pblk};
use extant_jbd2::{JournalError, Log, LogRun, LogWriter, Recovery, WriterOptions};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{debugfs, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A file system of 32 MiB, filled by the kernel and stopped with its journal dirty.
fn crashed_image(dir: &TempDir, options: &[&str], mount: &str, how: Shutdown) -> PathBuf {
    let image = dir.path().join("crashed.img");
    mke2fs(&image, 32 << 20, options);
    let mounted = KernelMount::mount(&image, Mode::ReadWrite, mount);
    for i in 0..40 {
        let path = mounted.join(format!("dir{}", i % 5));
        fs::create_dir_all(&path).unwrap();
        let mut file = fs::File::create(path.join(format!("file{i}"))).unwrap();
        file.write_all(&vec![i as u8; 5000 * (i + 1)]).unwrap();
        // The journal's magic at the start of a logged data block, under data=journal.
        file.write_all_at(&0xC03B_3998u32.to_be_bytes(), 0).unwrap();
        file.sync_all().unwrap();
        if i % 3 == 2 {
            // Frees metadata, which writes revoke records.
            fs::remove_dir_all(mounted.join(format!("dir{}", i % 5))).unwrap();
        }
    }
    mounted.shutdown(how);
    image
}

pub(crate) fn journal_runs(image: &Path) -> Vec<LogRun> {
    let text = debugfs(image, "blocks <8>");
    let mut runs: Vec<LogRun> = Vec::new();
    let numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    for (index, block) in numbers.enumerate() {
        let block: u64 = block;
        match runs.last_mut() {
            Some(run) if run.start.get() + u64::from(run.len) == block => run.len += 1,
            _ => runs.push(LogRun {
                first: index as u32,
                len: 1,
                start: Pblk::new(block),
            }),
        }
    }
    runs
}

pub(crate) fn open(image: &Path) -> (SharedDevice, BlockSize, u64) {
    let header = dumpe2fs_header(image);
    let size = BlockSize::from_bytes(header.number("Block size") as u32).unwrap();
    let device = FileDevice::open(image).unwrap();
    (Arc::new(device), size, header.number("Block count"))
}

fn recover(image: &Path) -> Result<(Recovery, BlockSize), JournalError> {
    let (device, size, blocks) = open(image);
    let log = Log::open(device.as_ref(), &journal_runs(image), size)?;
    assert!(!log.is_clean(), "the kernel left the journal clean");
    Ok((log.recover(blocks)?, size))
}

/// Writes what a log holds home and empties the log.
pub(crate) fn write_home(image: &Path) -> Recovery {
    let runs = journal_runs(image);
    let (_, size, blocks) = open(image);
    let device: SharedDevice = Arc::new(FileOptions::read_write().open(image).unwrap());
    let log = Log::open(&*device, &runs, size).unwrap();
    let recovery = log.recover(blocks).unwrap();
    let written = recovery.write_home(&log).unwrap();
    assert_eq!(written.blocks, recovery.blocks.len() as u64);
    let (tid, seconds) = (recovery.next_tid, recovery.last_commit_seconds);
    LogWriter::start(device, runs, size, tid, seconds, WriterOptions::default()).unwrap();
    recovery
}

/// Has e2fsck replay the journal. Orphans of the replayed file system are deleted as well, which
/// is no part of the replay; the result says whether there were any. Their time of deletion is
/// always the same.
pub(crate) fn replay_with_e2fsck(image: &Path) -> bool {
    let command = tool("e2fsck").env("E2FSCK_TIME", "1700000000");
    let output = command.args(["-E", "journal_only", "-y"]).arg(image).run();
    assert!(output.code <= 1, "{output}");
    output.to_string().contains("orphaned inode")
}

/// Compares every block outside the journal with the image e2fsck has replayed.
pub(crate) fn assert_same_as_e2fsck(image: &Path, recovery: &Recovery, size: BlockSize) {
    let theirs = image.with_extension("theirs");
    fs::copy(image, &theirs).unwrap();
    let orphans = replay_with_e2fsck(&theirs);
    let theirs = fs::read(&theirs).unwrap();
    let mut ours = vec![0; theirs.len()];
    if orphans {
        // Our replay, and then the same deletion of orphans as in theirs.
        let replayed = image.with_extension("ours");
        fs::copy(image, &replayed).unwrap();
        write_home(&replayed);
        assert!(replay_with_e2fsck(&replayed), "our replay has no orphans");
        ours = fs::read(&replayed).unwrap();
    } else {
        let device = FileDevice::open(image).unwrap();
        recovery.blocks.read(&device, 0, &mut ours).unwrap();
    }
    let journal = journal_runs(image);
    for (index, (a, b)) in ours
        .chunks(size.len())
        .zip(theirs.chunks(size.len()))
        .enumerate()
    {
        let block = Pblk::new(index as u64);
        let in_journal = journal
            .iter()
            .any(|run| block >= run.start && block.get() < run.start.get() + u64::from(run.len));
        // e2fsck clears the flag for recovery and counts the check in the superblock.
        let superblock = index as u64 == 1024 / u64::from(size.bytes());
        assert!(
            in_journal || superblock || a == b,
            "block {index} differs from e2fsck's replay"
        );
    }
}

fn check(options: &[&str], mount: &str) {
    for how in [Shutdown::FlushLog, Shutdown::Now] {
        let dir = tempfile::tempdir().unwrap();
        let image = crashed_image(&dir, options, mount, how);
        let (recovery, size) = recover(&image).unwrap();
        assert!(recovery.transaction_count > 3, "{recovery:?}");
        assert!(recovery.images > 20);
        assert_same_as_e2fsck(&image, &recovery, size);
    }
}

#[test]
fn a_default_journal_replays_as_e2fsck_does() {
    require!(Root, LoopDevices, KernelExt4);
    check(&["-t", "ext4"], "");
}

/// A removed file that somebody still holds open is an orphan of the log. (A process that is being
/// started holds a file of ours open for a moment as well, so every test here may meet one.)
#[test]
fn a_log_with_orphans_replays_as_e2fsck_does() {
    require!(Root, LoopDevices, KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("orphans.img");
    mke2fs(&image, 32 << 20, &["-t", "ext4", "-O", "^orphan_file"]);
    let mounted = KernelMount::mount(&image, Mode::ReadWrite, "");
    let path = mounted.join("held");
    let held = fs::File::create(&path).unwrap();
    held.set_len(100_000).unwrap();
    fs::remove_file(&path).unwrap();
    mounted.sync();
    mounted.stop(Shutdown::FlushLog);
    drop(held);
    mounted.unmount();
    let copy = image.with_extension("copy");
    fs::copy(&image, &copy).unwrap();
    assert!(replay_with_e2fsck(&copy), "e2fsck met no orphan");
    let (recovery, size) = recover(&image).unwrap();
    assert_same_as_e2fsck(&image, &recovery, size);
}

#[test]
fn a_journal_without_checksums_replays_as_e2fsck_does() {
    require!(Root, LoopDevices, KernelExt4);
    check(&["-t", "ext4", "-O", "^metadata_csum"], "");
    check(&["-t", "ext4", "-O", "^metadata_csum"], "journal_checksum");
}

#[test]
fn a_32_bit_journal_replays_as_e2fsck_does() {
    require!(Root, LoopDevices, KernelExt4);
    check(&["-t", "ext4", "-O", "^64bit"], "");
    check(
        &["-t", "ext4", "-O", "^64bit,^metadata_csum", "-b", "1024"],
        "",
    );
}

#[test]
fn logged_file_data_replays_as_e2fsck_does() {
    require!(Root, LoopDevices, KernelExt4);
    check(&["-t", "ext4", "-J", "size=8"], "data=journal");
}

#[test]
fn a_log_that_has_wrapped_replays_as_e2fsck_does() {
    require!(Root, LoopDevices, KernelExt4);
    // The smallest journal: 1024 blocks of 1 KiB, gone around more than once.
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("wrapped.img");
    mke2fs(
        &image,
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    );
    let mounted = KernelMount::mount(&image, Mode::ReadWrite, "");
    for i in 0..400 {
        let file = fs::File::create(mounted.join(format!("file{}", i % 50))).unwrap();
        file.sync_all().unwrap();
    }
    mounted.shutdown(Shutdown::Now);
    let (recovery, size) = recover(&image).unwrap();
    assert!(recovery.transaction_count > 1);
    assert_same_as_e2fsck(&image, &recovery, size);
}

#[test]
fn pending_fast_commits_are_recognised() {
    require!(Root, LoopDevices, KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("fast.img");
    mke2fs(
        &image,
        64 << 20,
        &["-t", "ext4", "-O", "fast_commit", "-J", "size=16"],
    );
    let mounted = KernelMount::mount(&image, Mode::ReadWrite, "");
    // The first sync is a full commit, later ones of small changes are fast.
    for i in 0..4 {
        let mut file = fs::File::create(mounted.join(format!("file{i}"))).unwrap();
        file.write_all(b"content").unwrap();
        file.sync_all().unwrap();
    }
    mounted.shutdown(Shutdown::Now);
    let (recovery, _) = recover(&image).unwrap();
    assert!(recovery.fast_commits.unwrap().records().count() > 3);
}
