//! Opening: dirty journals, features in the way, damaged and backup superblocks.

use crate::support::{Image, content, pattern};
use extant_blockdev::{BlockDevice, FileDevice};
use extant_core::Error;
use extant_core::fs::{JournalChoice, MountOptions, SuperblockChoice};
use extant_format::{BlockSize, Ino, Pblk};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::debugfs_write;
use extant_testkit::require;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

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
        "the superblock is corrupt: superblock: magic is 0x0, expected 0xef53"
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
        "the superblock is corrupt: superblock: blocks_count is 8192, expected at most 8191"
    );
}

#[test]
fn writing_is_refused_so_far() {
    let image = Image::make(8, &["-t", "ext4"], |_| ());
    let mut options = MountOptions::read_only();
    options.read_only = false;
    assert!(matches!(
        image.try_open(options),
        Err(Error::InvalidInput(_))
    ));
}

#[test]
fn opening_a_huge_sparse_image_reads_next_to_nothing() {
    let image = Image::make(1 << 20, &["-t", "ext4", "-E", "lazy_itable_init=1"], |_| ());
    let start = std::time::Instant::now();
    let fs = image.open();
    fs.inode(Ino::ROOT).unwrap();
    let took = start.elapsed();
    let stats = fs.cache().stats();
    assert!(stats.device_reads <= 4, "{stats:?}");
    // The promise is 10 ms; a busy machine gets more.
    assert!(took.as_millis() < 200, "{took:?}");
}
