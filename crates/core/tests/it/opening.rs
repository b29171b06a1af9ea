//! Opening: dirty journals, features in the way, damaged and backup superblocks.

use crate::support::{Image, content, pattern};
use extant_blockdev::{BlockDevice, DeviceResult, FileDevice};
use extant_core::Error;
use extant_core::fs::{Fs, JournalChoice, MountOptions, Notice, SuperblockChoice};
use extant_format::{BlockSize, Ino, Pblk};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::debugfs_write;
use extant_testkit::require;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Overwrites bytes of the primary superblock, without repairing its checksum.
fn patch_superblock(image: &Image, offset: u64, bytes: &[u8]) {
    let device = FileDevice::open(image.path()).unwrap();
    device.write_at(1024 + offset, bytes).unwrap();
    device.flush().unwrap();
}

#[test]
fn a_dirty_journal_is_replayed_into_memory_and_the_image_stays_untouched() {
    require!(LoopDevices, KernelExt4);
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"],
        &["-t", "ext3", "-b", "4096"],
    ] {
        let image = Image::make(64, options, |_| ());
        let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
        let mut inos = Vec::new();
        for i in 0..50u64 {
            let dir = mount.join(format!("dir{}", i % 5));
            std::fs::create_dir_all(&dir).unwrap();
            let mut file = File::create(dir.join(i.to_string())).unwrap();
            let bytes = pattern(i, i as usize * 1000);
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            inos.push((Ino::new(file.metadata().unwrap().ino() as u32), bytes));
        }
        // A crash: what has reached the device while the file system is still mounted. Files are
        // there and their transactions in the log; most metadata has not been written in place.
        let before = std::fs::read(image.path()).unwrap();
        mount.unmount();
        std::fs::write(image.path(), &before).unwrap();
        let stale = image
            .try_open(MountOptions::read_only().journal(JournalChoice::Ignore))
            .unwrap();
        assert!(!stale.was_replayed());
        assert!(
            inos.iter().any(|(ino, _)| stale.inode(*ino).is_err()),
            "{options:?}: the kernel had written everything in place, nothing was tested"
        );
        let fs = image.open();
        assert!(fs.was_replayed());
        assert!(
            matches!(
                fs.notices(),
                [Notice::JournalReplayed { transactions, blocks }]
                    if *transactions > 0 && *blocks > 0
            ),
            "{:?}",
            fs.notices()
        );
        for (ino, bytes) in &inos {
            let inode = fs.inode(*ino).unwrap();
            assert!(content(&fs, &inode) == *bytes, "{options:?} {ino}");
        }
        assert!(before == std::fs::read(image.path()).unwrap());
        // What the kernel makes of it.
        KernelMount::mount(&image.path(), Mode::ReadWrite, "").unmount();
        let expected = image.open().statfs().unwrap();
        assert_eq!(fs.statfs().unwrap(), expected);
    }
}

#[test]
fn features_in_the_way_are_named() {
    let image = Image::make(8, &["-t", "ext4"], |_| ());
    let incompat = 0x60;
    patch_superblock(&image, incompat, &(0x2c2u32 | 1 | 1 << 30).to_le_bytes());
    let error = image.try_open(MountOptions::read_only()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the file system uses features that are not supported: compression, FEATURE_I30"
    );
    patch_superblock(&image, incompat, &8u32.to_le_bytes());
    let error = image.try_open(MountOptions::read_only()).unwrap_err();
    assert!(error.to_string().ends_with("journal_dev"), "{error}");
}

#[test]
fn unknown_ro_compat_features_do_not_hinder_reading() {
    let image = Image::make(8, &["-t", "ext4", "-O", "^metadata_csum"], |_| ());
    debugfs_write(
        &image.path(),
        &["set_super_value feature_ro_compat 0x4000006b"],
    );
    image.open().inode(Ino::ROOT).unwrap();
}

#[test]
fn a_damaged_superblock_is_refused_and_a_backup_leads_in() {
    let options = ["-t", "ext4", "-b", "4096", "-g", "2048"];
    let image = Image::make(64, &options, |tree| {
        std::fs::write(tree.join("file"), b"still here").unwrap();
    });
    let ino = image.ino("/file");
    patch_superblock(&image, 0x20, &0u32.to_le_bytes());
    let error = image.try_open(MountOptions::read_only()).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    // The descriptors after the primary superblock are gone as well.
    let device = FileDevice::open(image.path()).unwrap();
    device.write_at(4096, &[0xff; 4096]).unwrap();
    let backup = SuperblockChoice::Backup {
        block: Pblk::new(2048),
        block_size: BlockSize::K4,
    };
    let fs = image
        .try_open(MountOptions::read_only().superblock(backup))
        .unwrap();
    assert_eq!(content(&fs, &fs.inode(ino).unwrap()), b"still here");
}

#[test]
fn what_is_no_file_system_is_refused_with_evidence() {
    let image = Image::make(8, &["-t", "ext4"], |_| ());
    patch_superblock(&image, 0x38, &[0, 0]);
    assert_eq!(
        image
            .try_open(MountOptions::read_only())
            .unwrap_err()
            .to_string(),
        "no ext4 file system was found: superblock: magic is 0x0, expected 0xef53"
    );
    File::options()
        .write(true)
        .open(image.path())
        .unwrap()
        .set_len(1500)
        .unwrap();
    assert!(
        image
            .try_open(MountOptions::read_only())
            .unwrap_err()
            .is_corruption()
    );
}

#[test]
fn an_image_cut_short_is_refused() {
    let image = Image::make(8, &["-t", "ext4", "-b", "1024"], |_| ());
    let file = File::options().write(true).open(image.path()).unwrap();
    file.set_len((8 << 20) - 1024).unwrap();
    let error = image.try_open(MountOptions::read_only()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the file system has 8388608 bytes and the device only 8387584: the image was cut short, \
         or the device shrank"
    );
}

#[test]
fn a_device_open_for_reading_cannot_be_written() {
    let image = Image::make(8, &["-t", "ext4"], |_| ());
    let error = image.try_open(MountOptions::read_write()).unwrap_err();
    assert!(matches!(error, Error::Device(_)), "{error}");
    assert_eq!(error.errno(), 30);
}

#[test]
fn a_file_system_smaller_than_its_device_opens() {
    let image = Image::make(8, &["-t", "ext4"], |_| ());
    let file = File::options().write(true).open(image.path()).unwrap();
    file.set_len((9 << 20) + 513).unwrap();
    let fs = image.open();
    assert_eq!(
        fs.geometry().blocks_count() * u64::from(fs.block_size().bytes()),
        8 << 20
    );
    assert_eq!(fs.notices(), []);
}

#[test]
fn a_backup_of_another_block_size_is_refused() {
    let image = Image::make(64, &["-t", "ext4", "-b", "4096", "-g", "2048"], |_| ());
    let backup = SuperblockChoice::Backup {
        block: Pblk::new(2048 * 4),
        block_size: BlockSize::MIN,
    };
    let error = image
        .try_open(MountOptions::read_only().superblock(backup))
        .unwrap_err();
    assert!(error.to_string().contains("block_size is 4096"), "{error}");
}

#[test]
fn a_journal_that_is_not_there_is_not_replayed_but_told() {
    let options = ["-t", "ext4", "-O", "^has_journal,^metadata_csum"];
    let image = Image::make(8, &options, |tree| {
        std::fs::write(tree.join("file"), b"here").unwrap();
    });
    assert_eq!(image.open().notices(), []);
    debugfs_write(&image.path(), &["feature needs_recovery"]);
    let fs = image.open();
    assert!(!fs.was_replayed());
    assert_eq!(fs.notices(), [Notice::NoJournalToReplay]);
    assert_eq!(content(&fs, &image.inode(&fs, "/file")), b"here");
}

#[test]
fn errors_and_a_lost_journal_replay_are_told() {
    let image = Image::make(8, &["-t", "ext4", "-O", "^metadata_csum"], |_| ());
    debugfs_write(
        &image.path(),
        &[
            "set_super_value state 2",
            "set_super_value error_count 3",
            "set_super_value last_error_time 100",
            "set_super_value last_error_ino 17",
            "set_super_value last_error_line 5",
            "set_super_value last_error_func ext4_lookup",
            "feature needs_recovery",
        ],
    );
    let ignored = image
        .try_open(MountOptions::read_only().journal(JournalChoice::Ignore))
        .unwrap();
    let told: Vec<_> = ignored.notices().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "the file system remembers 3 errors, the latest in ext4_lookup:5, inode 17; \
             it should be checked",
            "the journal was not replayed; what is shown may be inconsistent",
        ]
    );
    // The log itself is clean: nothing is in it.
    let fs = image.open();
    let last = fs.notices().last().unwrap();
    let (transactions, blocks) = (0, 0);
    assert_eq!(
        *last,
        Notice::JournalReplayed {
            transactions,
            blocks
        }
    );
    assert!(!last.is_warning() && fs.notices()[0].is_warning());
}

#[test]
fn a_journal_in_endless_pieces_is_refused() {
    // A journal of 2^21 blocks on a file system that claims about as many: its map of pointers
    // names one block of pointers wherever one is needed, and that names two blocks in turns.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = [
        "-q", "-F", "-t", "ext3", "-b", "4096", "-J", "size=4", "-N", "16",
    ];
    extant_testkit::oracle::mke2fs(&path, 64 << 20, &options);
    let small = FileDevice::open_read_only(&path).unwrap();
    let small = Fs::open(Arc::new(small), MountOptions::read_only()).unwrap();
    let inodes = small.geometry().inodes_per_group() * 40;
    let text = extant_testkit::oracle::debugfs(&path, "stat <8>");
    let first = |name: &str| -> u64 {
        let at = text.find(name).unwrap_or_else(|| panic!("{text}")) + name.len();
        let digits: String = text[at..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
    };
    let (indirect, data) = (first("(IND):"), first("(0-11):"));
    let device = FileDevice::open(&path).unwrap();
    let pointers: Vec<u8> = (0..1024u64)
        .flat_map(|i| ((data + i % 2 * 2) as u32).to_le_bytes())
        .collect();
    device.write_at(indirect * 4096, &pointers).unwrap();
    // The journal claims more blocks than there are pieces for; its inode agrees.
    device
        .write_at(data * 4096 + 0x10, &0x20_0000u32.to_be_bytes())
        .unwrap();
    device.flush().unwrap();
    let block = indirect.to_string();
    // A block of pointers to the block of pointers: found after the journal.
    let twice = data + 12;
    device
        .write_at(twice * 4096, &(indirect as u32).to_le_bytes().repeat(1024))
        .unwrap();
    let thrice = data + 13;
    device
        .write_at(thrice * 4096, &(twice as u32).to_le_bytes().repeat(1024))
        .unwrap();
    device.flush().unwrap();
    debugfs_write(
        &path,
        &[
            "set_inode_field <8> size 0x200000000",
            &format!("set_inode_field <8> block[IND] {block}"),
            &format!("set_inode_field <8> block[DIND] {twice}"),
            &format!("set_inode_field <8> block[TIND] {thrice}"),
            "set_super_value blocks_count 0x140000",
            &format!("set_super_value inodes_count {inodes}"),
            "feature needs_recovery",
        ],
    );
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    let device = FileDevice::open_read_only(&path).unwrap();
    let error = Fs::open(Arc::new(device), MountOptions::read_only()).unwrap_err();
    assert!(
        error.to_string().contains("pieces of the journal"),
        "{error}"
    );
}

/// A device that counts what is read from it.
#[derive(Debug)]
struct Counting {
    inner: FileDevice,
    bytes: extant_sync::ShardedCounter,
}

impl BlockDevice for Counting {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.bytes.add(buf.len() as i64);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        unreachable!("the engine wrote")
    }

    fn flush(&self) -> DeviceResult<()> {
        unreachable!("the engine flushed")
    }
}

#[test]
fn opening_a_huge_sparse_image_reads_next_to_nothing() {
    let image = Image::make(1 << 20, &["-t", "ext4", "-E", "lazy_itable_init=1"], |_| ());
    let device = Arc::new(Counting {
        inner: FileDevice::open_read_only(image.path()).unwrap(),
        bytes: extant_sync::ShardedCounter::new(),
    });
    let start = std::time::Instant::now();
    let fs = Fs::open(device.clone(), MountOptions::read_only()).unwrap();
    fs.inode(Ino::ROOT).unwrap();
    let took = start.elapsed();
    let stats = fs.cache().stats();
    assert!(stats.device_reads <= 4, "{stats:?}");
    assert!(device.bytes.sum() <= 256 << 10, "{:?}", device.bytes);
    assert!(stats.live_bytes <= 256 << 10, "{stats:?}");
    // The promise is 10 ms; a busy machine gets more.
    assert!(took.as_millis() < 200, "{took:?}");

    // Counting space reads the 8192 descriptors once, and keeps none of them.
    let before = device.bytes.sum();
    let start = std::time::Instant::now();
    let space = fs.statfs().unwrap();
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());
    assert!(space.free > 250 << 20, "{space:?}");
    let read = device.bytes.sum() - before;
    assert!(read <= 1 << 20, "{read} bytes read");
    assert_eq!(fs.statfs().unwrap(), space);
    assert!(device.bytes.sum() - before - read <= 64 << 10);
}
