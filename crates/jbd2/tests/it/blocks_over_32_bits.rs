//! Blocks whose numbers have more than 32 bits: logged by us, replayed by us, by e2fsck and by the
//! kernel.
//!
//! The file system is 17 TiB large and a sparse file in memory.

use crate::kernel::{journal_runs, open};
use crate::linux::{change_journal, writer_in};
use extant_format::jbd2::{CompatFeatures, IncompatFeatures, MAGIC};
use extant_format::superblock::Superblock;
use extant_format::{BlockSize, Pblk, Tid};
use extant_jbd2::{CommitTime, Log, LogImage, LogRun, LogTransaction, LogWriter};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{e2fsck, mke2fs};
use extant_testkit::require;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Blocks that nothing uses, and others whose numbers differ from theirs in bit 32 alone.
const LOW: u64 = 20_000;
const HIGH: u64 = (1 << 32) + LOW;
/// How many of each are looked at.
const COUNT: u64 = 6;

/// Of the file system, and compatible and incompatible ones of the journal: no checksums, v1, v2,
/// v3.
const FEATURES: [(&str, [(u32, u32); 2]); 2] = [
    ("^metadata_csum,uninit_bg", [(0x0, 0x2), (0x1, 0x2)]),
    ("metadata_csum", [(0x0, 0xa), (0x0, 0x12)]),
];

fn block(byte: u8) -> Vec<u8> {
    vec![byte; 4096]
}

fn escaped(byte: u8) -> Vec<u8> {
    let mut bytes = block(byte);
    bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    bytes
}

fn commit(writer: &mut LogWriter, images: &[(u64, Vec<u8>)], revokes: &[u64]) {
    let tid = writer.next_tid();
    let images: Vec<_> = images
        .iter()
        .map(|(number, bytes)| LogImage {
            block: Pblk::new(*number),
            bytes,
        })
        .collect();
    let revokes: Vec<_> = revokes.iter().copied().map(Pblk::new).collect();
    let tx = LogTransaction {
        tid,
        images: &images,
        revokes: &revokes,
    };
    writer.append(&tx).unwrap();
    let time = CommitTime {
        seconds: 1_800_000_000,
        nanoseconds: 0,
    };
    writer.commit(tid, time).unwrap();
}

/// Leaves a log dirty, and returns what the blocks hold when it is replayed.
fn leave_a_log(image: &Path, runs: &[LogRun], salt: u8) -> Vec<(u64, Vec<u8>)> {
    let (device, _, mut writer) = writer_in(image, runs.to_vec());
    let zeros = vec![0; 4096 * COUNT as usize];
    for start in [LOW, HIGH] {
        device.write_at(start * 4096, &zeros).unwrap();
    }
    let at = |n| block(n ^ salt);
    commit(
        &mut writer,
        &[
            (HIGH, at(1)),
            (HIGH + 1, escaped(2)),
            (HIGH + 2, at(3)),
            (HIGH + 3, at(4)),
            (LOW + 3, at(5)),
            (LOW + 4, at(6)),
            (HIGH + 4, at(7)),
        ],
        &[],
    );
    // One of each two is revoked, and the one of the same lower bits is not.
    commit(&mut writer, &[(HIGH + 2, at(8))], &[HIGH + 3, LOW + 4]);
    vec![
        (LOW, block(0)),
        (LOW + 1, block(0)),
        (LOW + 2, block(0)),
        (LOW + 3, at(5)),
        (LOW + 4, block(0)),
        (LOW + 5, block(0)),
        (HIGH, at(1)),
        (HIGH + 1, escaped(2)),
        (HIGH + 2, at(8)),
        (HIGH + 3, block(0)),
        (HIGH + 4, at(7)),
        (HIGH + 5, block(0)),
    ]
}

fn assert_holds(want: &[(u64, Vec<u8>)], who: &str, read: impl Fn(u64, &mut [u8])) {
    let mut found = block(0);
    for (number, bytes) in want {
        read(number * 4096, &mut found);
        assert!(found == *bytes, "{who}: block {number} differs");
    }
}

fn assert_device_holds(image: &Path, want: &[(u64, Vec<u8>)], who: &str) {
    let file = File::open(image).unwrap();
    assert_holds(want, who, |offset, bytes| {
        file.read_exact_at(bytes, offset).unwrap();
    });
}

/// An image whose log is dirty.
struct Dirty {
    image: PathBuf,
    runs: Vec<LogRun>,
    salt: u8,
}

impl Dirty {
    /// Begins a log with these features, and leaves it dirty. Returns what the blocks hold when it
    /// is replayed.
    fn begin(&mut self, (compat, incompat): (u32, u32)) -> Vec<(u64, Vec<u8>)> {
        let file = File::options().read(true).write(true).open(&self.image);
        let file = file.unwrap();
        let mut record = [0; 1024];
        file.read_exact_at(&mut record, 1024).unwrap();
        let mut superblock = Superblock::parse(&record).unwrap();
        superblock.set_needs_recovery(true);
        file.write_all_at(&superblock.encode(), 1024).unwrap();
        change_journal(&self.image, BlockSize::K4, self.runs[0].start, |journal| {
            journal.compat = CompatFeatures::from_bits_retain(compat);
            journal.incompat = IncompatFeatures::from_bits_retain(incompat);
            journal.checksum_type = if incompat & 0x18 == 0 { 0 } else { 4 };
            journal.sequence = Tid::new(u32::MAX - 1);
        });
        self.salt += 0x10;
        leave_a_log(&self.image, &self.runs, self.salt)
    }
}

#[test]
fn blocks_beyond_32_bits_are_logged_and_replayed() {
    for (checksums, journals) in FEATURES {
        // Files of 16 TiB are too large for other file systems.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let image = dir.path().join("fs.img");
        let features = format!("64bit,^resize_inode,sparse_super2,{checksums}");
        let extended = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
        let options = [
            "-t", "ext4", "-b", "4096", "-N", "139264", "-J", "size=4", "-O", &features, "-E",
            extended,
        ];
        mke2fs(&image, 17 << 40, &options);
        let mut dirty = Dirty {
            runs: journal_runs(&image),
            image: image.clone(),
            salt: 0,
        };
        for kind in journals {
            let who = |name: &str| format!("{name}, {checksums}, {kind:x?}");
            let want = dirty.begin(kind);
            let (device, size, blocks) = open(&image);
            assert!(blocks > HIGH + COUNT);
            let log = Log::open(&*device, &dirty.runs, size).unwrap();
            let written = log.superblock();
            let features = (written.compat.bits(), written.incompat.bits());
            // There are revokes by now.
            assert_eq!(features, (kind.0, kind.1 | 1));
            let recovery = log.recover(blocks).unwrap();
            assert_eq!(recovery.transaction_count, 2, "{recovery:?}");
            assert_holds(&want, &who("we"), |offset, bytes| {
                recovery.blocks.read(&*device, offset, bytes).unwrap();
            });
            drop(log);
            drop(device);

            let output = e2fsck(&image, &["-E", "journal_only", "-y"]);
            assert!(output.text().contains("recovering journal"), "{output}");
            assert_device_holds(&image, &want, &who("e2fsck"));

            require!(Root, LoopDevices, KernelExt4);
            let want = dirty.begin(kind);
            KernelMount::mount(&image, Mode::ReadWrite, "noinit_itable").unmount();
            assert_device_holds(&image, &want, &who("the kernel"));
        }
        // Nothing else used these blocks.
        assert_eq!(e2fsck(&image, &["-fn"]).code, 0);
    }
}
