//! Damage to the files that are the file system's own: those for orphans, quotas, the journal and
//! room for descriptors.

use crate::kinds_of_damage::Image;
use crate::repair::in_memory;
use crate::support::problems;
use extant_format::features::{Compat, Feature};
use extant_format::{Ino, Pblk};
use extant_fsck::repair::tune::{self, Settings};
use extant_fsck::{Code, repair};
use extant_testkit::oracle;
use std::fs;

#[test]
fn the_feature_orphan_file_without_a_file_or_a_journal_goes() {
    let mut none = Image::new(&[]);
    none.debugfs(&["feature orphan_file"]);
    none.must_be_mended("no file", Code::OrphanFile);
    for more in ["ssv journal_inum 8", "clri <8>"] {
        let mut image = Image::new(&["-O", "orphan_file"]);
        image.debugfs(&["feature -has_journal", more]);
        image.must_be_mended(more, Code::OrphanFile);
    }
    // The file is there, and only its number is lost.
    let mut lost = Image::new(&["-O", "orphan_file"]);
    let number = lost.sb().orphan_file_ino();
    lost.superblock(0x280, &[0; 4]);
    let lost = lost.must_be_mended("no number", Code::OrphanFile);
    assert_eq!(lost.sb().orphan_file_ino(), number);
}

#[test]
fn a_journal_that_is_turned_off_takes_the_orphan_file_with_it() {
    let image = Image::new(&["-O", "orphan_file"]);
    let device = in_memory(&image.bytes);
    let settings = Settings {
        features: vec![(Feature::Compat(Compat::HAS_JOURNAL), false)],
        ..Settings::default()
    };
    let plan = tune::plan(device.clone(), &settings, repair::Options::default(), &()).unwrap();
    assert!(plan.is_complete(), "{}", problems(&plan.left));
    plan.apply().unwrap();
    let mut bytes = image.bytes.clone();
    device.read_at(0, &mut bytes).unwrap();
    fs::write(image.path(), &bytes).unwrap();
    oracle::assert_clean(image.path());
    let header = oracle::dumpe2fs_header(image.path());
    assert!(!header.has_feature("orphan_file") && !header.has_feature("has_journal"));
}

#[test]
fn an_empty_orphan_file_is_not_said_to_hold_orphans() {
    let mut image = Image::new(&["-O", "orphan_file"]);
    let bits = image.sb().raw().feature_ro_compat.get() | 0x1_0000;
    image.superblock(0x64, &bits.to_le_bytes());
    image.must_be_mended("orphan_present", Code::OrphanFile);
}

#[test]
fn the_size_of_the_inode_that_keeps_room_for_descriptors_is_possible() {
    for size in [0, 12_345, 1 << 40] {
        let mut image = Image::new(&[]);
        image.inode(Ino::RESIZE, |inode, _| inode.size = size);
        image.must_be_mended(&size.to_string(), Code::ResizeInode);
    }
}

#[test]
fn the_inode_that_keeps_room_for_descriptors_has_no_attributes() {
    for block in [1, 9000] {
        let mut image = Image::new(&[]);
        image.inode(Ino::RESIZE, |inode, _| inode.file_acl = Pblk::new(block));
        image.must_be_mended("attributes", Code::InodeReserved);
    }
}

/// As a change of features leaves it that is cut off.
#[test]
fn files_of_the_file_systems_own_that_are_all_zeros_are_found() {
    let features = ["-O", "quota,project,resize_inode,orphan_file"];
    let made = Image::new(&features);
    let own = [
        (Ino::new(3), Code::QuotaFile),
        (Ino::new(4), Code::QuotaFile),
        (Ino::RESIZE, Code::ResizeInode),
        (Ino::JOURNAL, Code::JournalInode),
        (made.sb().orphan_file_ino().unwrap(), Code::OrphanFile),
    ];
    for (ino, code) in own {
        let mut image = Image::new(&features);
        image.slot(ino).fill(0);
        image.must_be_mended(&ino.to_string(), code);
    }
}
