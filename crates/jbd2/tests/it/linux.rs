//! Logs we leave dirty are replayed by e2fsck and by the kernel to what we wrote.

use crate::kernel::{journal_runs, open, replay_with_e2fsck, write_home};
use extant_blockdev::{FileOptions, SharedDevice};
use extant_format::jbd2::{CompatFeatures, IncompatFeatures, JournalSuperblock, MAGIC};
use extant_format::{BlockSize, Pblk, Tid};
use extant_jbd2::{CommitTime, Log, LogImage, LogRun, LogTransaction, LogWriter, WriterOptions};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{
    assert_clean, debugfs, debugfs_write, dumpe2fs_header, e2fsck, mke2fs,
};
use extant_testkit::require;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Blocks of the file whose content goes through the log.
const BLOCKS: usize = 300;

/// Every kind of file system that differs for its journal: block size, features.
const KINDS: [(&str, &str); 8] = [
    ("1024", "metadata_csum,64bit"),
    ("1024", "metadata_csum,^64bit"),
    ("1024", "^metadata_csum,64bit"),
    ("1024", "^metadata_csum,^64bit"),
    ("4096", "metadata_csum,64bit"),
    ("4096", "metadata_csum,^64bit"),
    ("4096", "^metadata_csum,64bit"),
    ("4096", "^metadata_csum,^64bit"),
];

/// Journals of older systems: the kind, and compatible and incompatible features of the journal.
const OLDER: [((&str, &str), u32, u32); 5] = [
    // A CRC of each transaction in its commit block.
    (("1024", "^metadata_csum,^64bit"), 0x1, 0x0),
    (("4096", "^metadata_csum,64bit"), 0x1, 0x2),
    // Checksums v2, of which tags keep the lower half.
    (("1024", "^metadata_csum,^64bit"), 0x0, 0x8),
    (("4096", "metadata_csum,64bit"), 0x0, 0xa),
    // Checksums v3, as the others are here: with numbers that wrap.
    (("4096", "metadata_csum,64bit"), 0x0, 0x12),
];

/// A file system with one file, and a writer for its journal.
struct Guest {
    _dir: TempDir,
    image: PathBuf,
    device: SharedDevice,
    size: BlockSize,
    /// Blocks of the file.
    blocks: Vec<Pblk>,
    /// What the file must hold once the log is replayed.
    content: Vec<Vec<u8>>,
    writer: LogWriter,
}

impl Guest {
    fn new(kind: (&str, &str)) -> Self {
        Self::with(kind, |_| {})
    }

    /// A guest with a journal that was found to be as `tweak` makes it.
    fn with(
        (block_size, features): (&str, &str),
        tweak: impl FnOnce(&mut JournalSuperblock),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("fs.img");
        let options = [
            "-t", "ext4", "-b", block_size, "-O", features, "-J", "size=4",
        ];
        mke2fs(&image, 24 << 20, &options);
        let size = BlockSize::from_bytes(block_size.parse().unwrap()).unwrap();
        let source = dir.path().join("content");
        let content = vec![vec![0x11; size.len()]; BLOCKS];
        fs::write(&source, content.concat()).unwrap();
        debugfs_write(&image, &[&format!("write {} file", source.display())]);
        let blocks = debugfs(&image, "blocks file")
            .split_whitespace()
            .filter_map(|word| word.parse().ok().map(Pblk::new))
            .collect::<Vec<_>>();
        assert_eq!(blocks.len(), BLOCKS);
        debugfs_write(&image, &["features needs_recovery"]);
        change_journal(&image, size, journal_runs(&image)[0].start, tweak);
        let (device, size, writer) = writer_for(&image);
        Self {
            _dir: dir,
            image,
            device,
            size,
            blocks,
            content,
            writer,
        }
    }

    /// Logs new content for the blocks of the file at `changed`, revokes those at `revoked`, and
    /// commits.
    fn transaction(&mut self, changed: &[(usize, Vec<u8>)], revoked: &[usize]) {
        let images: Vec<_> = changed
            .iter()
            .map(|(index, bytes)| LogImage {
                block: self.blocks[*index],
                bytes,
            })
            .collect();
        let revokes: Vec<_> = revoked.iter().map(|index| self.blocks[*index]).collect();
        let tid = self.writer.next_tid();
        let tx = LogTransaction {
            tid,
            images: &images,
            revokes: &revokes,
        };
        self.writer.append(&tx).unwrap();
        let time = CommitTime {
            seconds: 1_800_000_000,
            nanoseconds: 5,
        };
        self.writer.commit(tid, time).unwrap();
        for (index, bytes) in changed {
            self.content[*index] = bytes.clone();
        }
    }

    /// Writes a block of the file past the log.
    fn write_directly(&mut self, index: usize, byte: u8) {
        self.content[index] = vec![byte; self.size.len()];
        let offset = self.size.offset_of(self.blocks[index]).unwrap();
        self.device.write_at(offset, &self.content[index]).unwrap();
    }

    fn block(&self, byte: u8) -> Vec<u8> {
        vec![byte; self.size.len()]
    }

    fn escaped(&self, byte: u8) -> Vec<u8> {
        let mut bytes = self.block(byte);
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes
    }

    /// Lets e2fsck replay one copy and the kernel another, and compares the file.
    fn check(&self) {
        let want = self.content.concat();
        let theirs = self.image.with_extension("e2fsck");
        fs::copy(&self.image, &theirs).unwrap();
        let output = e2fsck(&theirs, &["-fy"]);
        assert!(output.code <= 1, "{output}");
        assert!(output.text().contains("recovering journal"), "{output}");
        let dumped = self.image.with_extension("dump");
        debugfs(&theirs, &format!("dump file {}", dumped.display()));
        assert!(
            fs::read(&dumped).unwrap() == want,
            "e2fsck replayed something else"
        );
        assert_clean(&theirs);
        // What they leave is a journal we go on with.
        let (_, _, mut again) = writer_for(&theirs);
        again.close().unwrap();
        assert_clean(&theirs);

        require!(Root, LoopDevices, KernelExt4);
        let theirs = self.image.with_extension("kernel");
        fs::copy(&self.image, &theirs).unwrap();
        let mounted = KernelMount::mount(&theirs, Mode::ReadWrite, "");
        let found = fs::read(mounted.join("file")).unwrap();
        assert!(found == want, "the kernel replayed something else");
        fs::write(mounted.join("more"), "and goes on").unwrap();
        mounted.unmount();
        assert_clean(&theirs);
    }
}

/// Changes the journal's superblock, which is in block `first`.
pub(crate) fn change_journal(
    image: &Path,
    size: BlockSize,
    first: Pblk,
    tweak: impl FnOnce(&mut JournalSuperblock),
) {
    let file = fs::File::options().read(true).write(true).open(image);
    let file = file.unwrap();
    let offset = size.offset_of(first).unwrap();
    let mut record = [0; JournalSuperblock::LEN];
    file.read_exact_at(&mut record, offset).unwrap();
    let mut superblock = JournalSuperblock::parse(&record).unwrap();
    tweak(&mut superblock);
    file.write_all_at(&superblock.encode(), offset).unwrap();
}

/// A writer for the journal of an image that needs no recovery.
fn writer_for(image: &Path) -> (SharedDevice, BlockSize, LogWriter) {
    writer_in(image, journal_runs(image))
}

/// A writer for the journal of an image, which lies at these runs.
pub(crate) fn writer_in(image: &Path, runs: Vec<LogRun>) -> (SharedDevice, BlockSize, LogWriter) {
    let header = dumpe2fs_header(image);
    let options = WriterOptions {
        keeps_fast_commits: false,
        metadata_csum: header.has_feature("metadata_csum"),
        sixty_four_bit: header.has_feature("64bit"),
    };
    let (_, size, blocks) = open(image);
    let file = FileOptions::read_write().open(image);
    let device: SharedDevice = Arc::new(file.unwrap());
    let log = Log::open(&*device, &runs, size).unwrap();
    assert!(log.is_clean());
    let tid = log.recover(blocks).unwrap().next_tid;
    let writer = LogWriter::start(device.clone(), runs, size, tid, 0, options).unwrap();
    (device, size, writer)
}

/// Five transactions with everything a log may have, and one that is not committed.
fn fill(guest: &mut Guest) {
    let changed: Vec<_> = (0..BLOCKS)
        .map(|index| match index % 7 {
            0 => (index, guest.escaped(index as u8)),
            _ => (index, guest.block(index as u8)),
        })
        .collect();
    guest.transaction(&changed, &[]);
    guest.transaction(&[(5, guest.block(0xa5)), (6, guest.escaped(0xa6))], &[]);
    guest.transaction(&[], &[]);
    guest.transaction(&[(7, guest.block(0xa7))], &[8, 9]);
    guest.write_directly(8, 0xd8);
    guest.write_directly(9, 0xd9);
    guest.transaction(&[(9, guest.block(0xb9))], &[]);
    // Begun and never committed.
    let images = [LogImage {
        block: guest.blocks[5],
        bytes: &guest.block(0xff),
    }];
    let tid = guest.writer.next_tid();
    let tx = LogTransaction {
        tid,
        images: &images,
        revokes: &[],
    };
    guest.writer.append(&tx).unwrap();
    let dump = debugfs(&guest.image, "logdump");
    assert!(dump.contains("descriptor block"), "{dump}");
    assert!(dump.contains("revoke table"), "{dump}");
}

#[test]
fn a_log_of_ours_is_replayed_by_linux() {
    for kind in KINDS {
        let mut guest = Guest::new(kind);
        fill(&mut guest);
        guest.check();
    }
}

#[test]
fn older_checksums_and_numbers_that_wrap_are_replayed_by_linux() {
    for (kind, compat, incompat) in OLDER {
        let mut guest = Guest::with(kind, |superblock| {
            superblock.compat = CompatFeatures::from_bits_retain(compat);
            superblock.incompat = IncompatFeatures::from_bits_retain(incompat);
            superblock.checksum_type = if incompat & 0x18 == 0 { 0 } else { 4 };
            // Recovery of a clean log passes over a number.
            superblock.sequence = Tid::new(u32::MAX - 3);
        });
        fill(&mut guest);
        let written = guest.writer.superblock();
        let (found, features) = (written.compat.bits(), written.incompat.bits());
        // There are revokes by now.
        assert_eq!((found, features), (compat, incompat | 1), "{kind:?}");
        assert_eq!(written.sequence, Tid::new(u32::MAX - 2));
        assert_eq!(guest.writer.next_tid(), Tid::new(3));
        guest.check();
    }
}

#[test]
fn a_log_of_ours_that_wrapped_is_replayed_by_linux() {
    for kind in KINDS {
        let mut guest = Guest::new(kind);
        // Around the ring until a transaction lies on both sides of its end.
        let mut round = 0;
        loop {
            let changed: Vec<_> = (0..200).map(|i| (i, guest.block(round))).collect();
            guest.transaction(&changed, &[]);
            let last = guest.writer.live().last().unwrap();
            if last.start + last.len > guest.writer.superblock().max_len {
                break;
            }
            for (block, bytes) in guest.blocks.iter().zip(&guest.content) {
                let offset = guest.size.offset_of(*block).unwrap();
                guest.device.write_at(offset, bytes).unwrap();
            }
            guest.writer.queue_tail(None).unwrap();
            round += 1;
        }
        guest.transaction(&[(3, guest.escaped(0x33))], &[]);
        guest.check();
    }
}

#[test]
fn a_log_filled_to_its_last_block_is_replayed_by_linux() {
    for kind in [KINDS[1], KINDS[4], KINDS[6]] {
        let mut guest = Guest::new(kind);
        while guest.writer.free() > 400 {
            let byte = guest.writer.free() as u8;
            let changed: Vec<_> = (0..BLOCKS).map(|i| (i, guest.block(byte))).collect();
            guest.transaction(&changed, &[]);
        }
        while guest.writer.free() > 0 {
            let mut count = BLOCKS.min(guest.writer.free() as usize - 1);
            while guest.writer.needed(count, 0) > guest.writer.free() {
                count -= 1;
            }
            let changed: Vec<_> = (0..count).map(|i| (i, guest.block(0x77))).collect();
            guest.transaction(&changed, &[]);
        }
        guest.check();
    }
}

#[test]
fn a_closed_journal_of_ours_is_clean_to_linux() {
    for kind in KINDS {
        let mut guest = Guest::new(kind);
        guest.transaction(&[(7, guest.block(0xa7))], &[8]);
        guest.write_directly(7, 0xa7);
        guest.device.flush().unwrap();
        guest.writer.close().unwrap();
        debugfs_write(&guest.image, &["features ^needs_recovery"]);
        assert_clean(&guest.image);
        assert!(debugfs(&guest.image, "logdump").contains("Journal starts at block 0"));
    }
}

#[test]
fn a_log_the_kernel_left_is_written_home_as_e2fsck_does() {
    require!(Root, LoopDevices, KernelExt4);
    for (block_size, features) in [KINDS[0], KINDS[7]] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("fs.img");
        let options = [
            "-t", "ext4", "-b", block_size, "-O", features, "-J", "size=4",
        ];
        mke2fs(&image, 24 << 20, &options);
        let mounted = KernelMount::mount(&image, Mode::ReadWrite, "");
        for i in 0..50 {
            fs::create_dir_all(mounted.join(format!("dir{i}/inner"))).unwrap();
            fs::write(mounted.join(format!("dir{i}/file")), vec![i; 3000]).unwrap();
            if i % 4 == 3 {
                mounted.sync();
                fs::remove_dir_all(mounted.join(format!("dir{}", i - 2))).unwrap();
            }
        }
        mounted.shutdown(Shutdown::FlushLog);
        let theirs = dir.path().join("theirs.img");
        fs::copy(&image, &theirs).unwrap();
        let orphans = replay_with_e2fsck(&theirs);

        let runs = journal_runs(&image);
        let (_, size, _) = open(&image);
        assert!(write_home(&image).transaction_count > 3);
        if orphans {
            assert!(replay_with_e2fsck(&image), "our replay has no orphans");
        }

        let (ours, theirs) = (fs::read(&image).unwrap(), fs::read(&theirs).unwrap());
        for (index, (a, b)) in ours
            .chunks(size.len())
            .zip(theirs.chunks(size.len()))
            .enumerate()
        {
            let number = index as u64;
            let in_journal = runs.iter().any(|run| {
                (run.start.get()..run.start.get() + u64::from(run.len)).contains(&number)
            });
            // e2fsck clears the flag for recovery and counts the check in the superblock.
            let superblock = number == 1024 / u64::from(size.bytes());
            assert!(in_journal || superblock || a == b, "block {index} differs");
        }
        debugfs_write(&image, &["features ^needs_recovery"]);
        assert_eq!(e2fsck(&image, &["-fn"]).code, 0);
    }
}
