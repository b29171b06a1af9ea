//! Single fields for which e2fsck or Linux refuses a file system: found, and mended so that neither
//! does.

use crate::support::{problems, repair_whole};
use extant::Filesystem;
use extant_blockdev::{MemoryDevice, OpenSpec, SharedDevice};
use extant_format::Ino;
use extant_fsck::repair::{self, resize, tune};
use extant_fsck::{Code, Error, Options, Report};
use extant_testkit::hostile::meaning::{Subject, kinds};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{self, debugfs, debugfs_write, mke2fs};
use extant_testkit::require;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes in a block of the images.
const BLOCK: usize = 1024;
/// Where the superblock says what features there are that a reader may ignore.
const RO_COMPAT_AT: usize = 1024 + 0x64;
const ORPHAN_PRESENT: u32 = 0x1_0000;

/// An image without checksums, with a tree of a file, links and a device in it.
fn image(dir: &Path, kind: &str, features: &str) -> PathBuf {
    let path = dir.join("image");
    let tree = dir.join("tree");
    if !tree.exists() {
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), "some text").unwrap();
        std::fs::write(tree.join("doomed"), "another").unwrap();
        std::os::unix::fs::symlink("file", tree.join("short")).unwrap();
        std::os::unix::fs::symlink("long/".repeat(20), tree.join("long")).unwrap();
    }
    let features = format!("^metadata_csum,^uninit_bg,{features}");
    let options = ["-t", kind, "-b", "1024", "-J", "size=1", "-O", &features];
    mke2fs(
        &path,
        12 << 20,
        &[&options[..], &["-d", tree.to_str().unwrap()]].concat(),
    );
    debugfs_write(&path, &["mknod device c 1 3"]);
    path
}

fn poke(path: &Path, at: usize, new: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at..at + new.len()].copy_from_slice(new);
    std::fs::write(path, bytes).unwrap();
}

fn inode_of(path: &Path, name: &str) -> u32 {
    let told = debugfs(path, &format!("stat {name}"));
    let number = told.split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

fn first_block_of(path: &Path, file: &str) -> usize {
    let list = debugfs(path, &format!("blocks {file}"));
    list.split_whitespace().next().unwrap().parse().unwrap()
}

fn judged(path: &Path) -> Report {
    let device = OpenSpec::read_only(path).open().unwrap();
    extant_fsck::check(device, Options::default(), &()).unwrap()
}

fn linux_mounts(path: &Path) -> bool {
    KernelMount::try_mount(path, Mode::ReadOnly, "").is_ok()
}

/// Whether Linux does not mount it for reading, or leaves errors in it once it could write, or what
/// e2fsck does not accept.
fn linux_spoils(path: &Path) -> bool {
    let copy = path.with_extension("spoilt");
    std::fs::copy(path, &copy).unwrap();
    if !linux_mounts(&copy) {
        return true;
    }
    std::fs::copy(path, &copy).unwrap();
    KernelMount::mount(&copy, Mode::ReadWrite, "").unmount();
    let state = oracle::dumpe2fs_header(&copy);
    state.field("Filesystem state").contains("errors") || oracle::e2fsck(&copy, &["-fn"]).code != 0
}

/// Expects that others refuse it, that the check says why, and that a repair makes it right for
/// all.
fn is_found_and_mended(what: &str, path: &Path, code: Code) {
    let report = judged(path);
    assert!(report.has(code), "{what}: {}", problems(&report));
    assert!(!report.is_clean(), "{what}");
    let theirs = oracle::e2fsck(path, &["-fn"]);
    let is_refused = theirs.code != 0 || linux_spoils(path);
    assert!(is_refused, "{what}: e2fsck and Linux find nothing");
    repair_whole(what, path);
    assert!(linux_mounts(path), "{what}: Linux does not mount it");
    // Of a file in its inode debugfs shows the room behind the content too.
    let text = debugfs(path, "cat file");
    assert_eq!(text.trim_end_matches('\0'), "some text", "{what}");
}

/// Writes the number of an inode into the first slots of an orphan file.
fn name_as_orphans(path: &Path, numbers: &[u32]) {
    let bytes = std::fs::read(path).unwrap();
    let flags = bytes[RO_COMPAT_AT..RO_COMPAT_AT + 4].try_into().unwrap();
    let flags = u32::from_le_bytes(flags) | ORPHAN_PRESENT;
    poke(path, RO_COMPAT_AT, &flags.to_le_bytes());
    let slots: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    poke(path, first_block_of(path, "<12>") * BLOCK, &slots);
}

#[test]
fn what_can_be_no_orphan_is_found_in_an_orphan_file() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    for what in ["device", "short", "<12>", "twice", "unused"] {
        let path = image(dir.path(), "ext4", "orphan_file");
        let file = inode_of(&path, "file");
        let orphans = match what {
            "twice" => vec![file, file],
            "unused" => vec![1000],
            name => vec![inode_of(&path, name)],
        };
        name_as_orphans(&path, &orphans);
        is_found_and_mended(what, &path, Code::OrphanFile);
    }
}

#[test]
fn a_device_with_a_name_is_found_in_the_list_of_orphans() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    for what in ["device", "short"] {
        let path = image(dir.path(), "ext4", "^orphan_file");
        let number = inode_of(&path, what);
        poke(&path, 1024 + 0xE8, &number.to_le_bytes());
        is_found_and_mended(what, &path, Code::OrphanList);
    }
}

/// Linux does not delete them then: it forgets a list, and refuses to mount for reading where a
/// file has some.
#[test]
fn files_that_wait_to_be_deleted_are_found_where_errors_are_remembered() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "orphan_file");
    let file = inode_of(&path, "file");
    name_as_orphans(&path, &[file]);
    assert!(judged(&path).is_clean());
    debugfs_write(&path, &["ssv state 3"]);
    is_found_and_mended("a file of orphans", &path, Code::OrphanFile);

    let path = image(dir.path(), "ext4", "^orphan_file");
    let doomed = inode_of(&path, "doomed");
    let kill = format!("sif <{doomed}> links_count 0");
    debugfs_write(&path, &[&kill, "unlink doomed"]);
    poke(&path, 1024 + 0xE8, &doomed.to_le_bytes());
    let report = judged(&path);
    assert!(report.is_clean(), "{}", problems(&report));
    debugfs_write(&path, &["ssv state 3"]);
    is_found_and_mended("a list of orphans", &path, Code::OrphanList);
}

/// By the arithmetic of e2fsck such a number reaches back into the groups before.
#[test]
fn more_unused_inodes_than_a_group_has_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext2", "^has_journal");
    let header = oracle::dumpe2fs_header(&path);
    let one_more = header.number("Inodes per group") + 1;
    let write = format!("set_bg 0 itable_unused {one_more}");
    debugfs_write(&path, &[&write]);
    is_found_and_mended("unused inodes", &path, Code::GroupUnusedInodes);
}

#[test]
fn a_flag_for_extents_without_the_feature_is_found_on_reserved_inodes_too() {
    let dir = tempfile::tempdir().unwrap();
    for (what, also) in [
        ("the list of bad blocks", "sif <1> uid 0"),
        ("a spare inode", "sif <9> links_count 1"),
    ] {
        let path = image(dir.path(), "ext3", "has_journal");
        let number = if also.contains("<1>") { 1 } else { 9 };
        let flags = format!("sif <{number}> flags 0x80000");
        debugfs_write(&path, &[&flags, also]);
        is_found_and_mended(what, &path, Code::InodeFlags);
    }
}

/// Linux counts the blocks of a file in 32 bits, so that the last number is no block.
#[test]
fn a_block_with_the_last_number_of_all_is_none() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "extent");
    // The first logical block of the first extent in the inode.
    let at = inode_at(&path, "file") + 0x28 + 12;
    poke(&path, at, &u32::MAX.to_le_bytes());
    let report = judged(&path);
    assert!(report.has(Code::ExtentNode), "{}", problems(&report));
    assert_ne!(oracle::e2fsck(&path, &["-fn"]).code, 0);
    repair_whole("repaired", &path);
}

#[test]
fn a_log_with_fast_commits_and_no_room_for_them_is_found() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "^fast_commit");
    let log = first_block_of(&path, "<8>") * BLOCK;
    poke(&path, log + 0x28, &0x20u32.to_be_bytes());
    is_found_and_mended("fast commits", &path, Code::JournalSuperblock);
}

#[test]
fn a_log_whose_superblock_has_no_place_for_needed_features_is_found() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "64bit");
    let log = first_block_of(&path, "<8>") * BLOCK;
    poke(&path, log + 4, &3u32.to_be_bytes());
    is_found_and_mended("the first version", &path, Code::JournalSuperblock);
    // Without such features it will do.
    let path = image(dir.path(), "ext3", "has_journal");
    let log = first_block_of(&path, "<8>") * BLOCK;
    poke(&path, log + 4, &3u32.to_be_bytes());
    assert!(judged(&path).is_clean());
    assert!(linux_mounts(&path));
}

/// Linux reads the size before it replays the journal.
#[test]
fn a_size_beyond_the_device_is_found_although_the_journal_holds_the_right_one() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "64bit");
    let copy = dir.path().join("superblock");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&copy, &whole[1024..2048]).unwrap();
    let write = format!("jw -b 1 {}", copy.display());
    debugfs_write(&path, &["jo", &write, "jc"]);
    assert!(judged(&path).is_clean());
    let blocks = (whole.len() / BLOCK + 1) as u32;
    poke(&path, 1024 + 4, &blocks.to_le_bytes());
    let report = judged(&path);
    assert!(report.has(Code::DeviceTooShort), "{}", problems(&report));
    assert!(!report.is_clean());
    assert!(!linux_mounts(&path));
    // Which of the two sizes is right nothing tells but the device.
    let device = OpenSpec::read_write(&path).open().unwrap();
    let refused = repair::plan(device, repair::Options::default(), &()).unwrap_err();
    assert!(refused.to_string().contains("12583936"), "{refused}");
}

/// Whatever is missing, the verdict is that: no failure of a device that works.
#[test]
fn an_image_that_was_cut_short_is_judged_and_changed_by_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (fstype, options) in [
        ("ext4", "64bit"),
        ("ext4", "^flex_bg"),
        ("ext3", "has_journal"),
    ] {
        let path = image(dir.path(), fstype, options);
        let whole = std::fs::read(&path).unwrap();
        let mut cuts: Vec<usize> = (2048..whole.len())
            .step_by(whole.len() / 60 + 333)
            .collect();
        cuts.extend([2048, 4096, whole.len() - 1]);
        for len in cuts {
            let name = format!("{fstype} {options}, {len} bytes");
            let device = || Arc::new(MemoryDevice::from_image(&whole[..len])) as SharedDevice;
            for as_is in [false, true] {
                let options = Options::default().as_is(as_is);
                let report = extant_fsck::check(device(), options, &())
                    .unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(
                    report.has(Code::DeviceTooShort),
                    "{name}: {}",
                    problems(&report)
                );
                assert!(!report.is_clean(), "{name}");
            }
            let options = repair::Options::default;
            let label = tune::Settings {
                label: Some(b"new".to_vec()),
                ..tune::Settings::default()
            };
            for refused in [
                repair::plan(device(), options(), &()).map(drop),
                tune::plan(device(), &label, options(), &()).map(drop),
                resize::plan(device(), resize::Size::Minimum, options(), &()).map(drop),
                resize::minimum(device(), options(), &()).map(drop),
            ] {
                let why = refused.unwrap_err();
                assert!(matches!(why, Error::TooShort { .. }), "{name}: {why}");
            }
        }
    }
}

/// e2fsck takes them for zeros; what changes such a file needs its blocks.
#[test]
fn a_quota_file_with_holes_is_found_and_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "quota");
    // debugfs does not charge its owner with the device.
    oracle::e2fsck(&path, &["-fy"]);
    assert!(judged(&path).is_clean());
    debugfs_write(&path, &["sif <3> size 0x10000"]);
    let report = judged(&path);
    assert!(report.has(Code::QuotaFile), "{}", problems(&report));
    repair_whole("repaired", &path);
}

/// It is looked for before the journal is replayed.
#[test]
fn multiple_mount_protection_without_a_block_is_found_although_the_journal_has_none_of_it() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "64bit");
    let copy = dir.path().join("superblock");
    std::fs::write(&copy, &std::fs::read(&path).unwrap()[1024..2048]).unwrap();
    let write = format!("jw -b 1 {}", copy.display());
    debugfs_write(&path, &["jo", &write, "jc"]);
    let before = std::fs::read(&path).unwrap()[1024 + 0x61];
    poke(&path, 1024 + 0x61, &[before | 1]);
    is_found_and_mended("mmp", &path, Code::Mmp);
}

#[test]
fn the_target_of_a_link_is_kept_where_a_second_block_or_another_size_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for what in ["block[4]", "size"] {
        let path = image(dir.path(), "ext2", "^has_journal");
        let number = inode_of(&path, "long");
        let block = first_block_of(&path, "long");
        let value = match what {
            "size" => 1,
            _ => first_block_of(&path, "file"),
        };
        let write = format!("sif <{number}> {what} {value}");
        debugfs_write(&path, &[&write]);
        is_found_and_mended(what, &path, Code::Symlink);
        let told = debugfs(&path, "stat long");
        assert!(told.contains("Size: 100"), "{told}");
        assert_eq!(first_block_of(&path, "long"), block);
        let target = "long/".repeat(20);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[block * BLOCK..][..100], *target.as_bytes());
    }
}

/// Where the record of a file's inode lies.
fn inode_at(path: &Path, name: &str) -> usize {
    let told = debugfs(path, &format!("imap {name}"));
    let (_, place) = told.split_once("located at block ").expect("a place");
    let (block, offset) = place.split_once(", offset ").expect("an offset");
    let offset = offset.trim().trim_start_matches("0x");
    block.parse::<usize>().unwrap() * BLOCK + usize::from_str_radix(offset, 16).unwrap()
}

/// Linux does not mount with such a journal, whether anything waits in it or not.
#[test]
fn a_journal_elsewhere_whose_superblock_is_of_the_first_version_is_found() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let kind = kinds()
        .into_iter()
        .find(|kind| kind.name() == "other-journal");
    let made = Subject::new(kind.unwrap(), dir.path()).unchanged();
    let mut journal = made.journal.unwrap();
    let judged = |journal: &[u8]| {
        let image: SharedDevice = Arc::new(MemoryDevice::from_image(&made.image));
        let journal: SharedDevice = Arc::new(MemoryDevice::from_image(journal));
        extant_fsck::check_with_journal(image, Some(journal), Options::default(), &())
    };
    let report = judged(&journal).unwrap();
    assert!(report.is_clean(), "{}", problems(&report));
    assert!(!report.has(Code::JournalExternal), "it was looked at");
    // The magic number of the journal, and the second version.
    let head = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4];
    let at = journal.windows(8).position(|bytes| bytes == head).unwrap();
    journal[at + 7] = 3;
    let refused = judged(&journal).unwrap_err();
    assert!(refused.to_string().contains("blocktype"), "{refused}");
    // Nothing waits in it any more.
    journal[at + 0x1C..at + 0x20].fill(0);
    let report = judged(&journal).unwrap();
    let is_found = report.has(Code::JournalSuperblock) && !report.is_clean();
    assert!(is_found, "{}", problems(&report));
}

#[test]
fn blocks_of_one_cluster_in_two_places_are_found_and_brought_together() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let content = dir.path().join("content");
    let bytes: Vec<u8> = (0..24 * BLOCK).map(|n| (n / BLOCK) as u8 + 1).collect();
    std::fs::write(&content, &bytes).unwrap();
    let options = ["-t", "ext4", "-b", "1024", "-C", "4096", "-O"];
    let features = ["bigalloc,^metadata_csum,^uninit_bg,^resize_inode"];
    mke2fs(&path, 24 << 20, &[&options[..], &features].concat());
    let write = format!("write {} file", content.display());
    debugfs_write(&path, &[&write]);
    let first = first_block_of(&path, "file");
    // The second half of the first cluster lies in one behind the file's.
    let apart = first + 24 + 2;
    let root = inode_at(&path, "file") + 0x28;
    let extent = |lblk: u32, len: u16, pblk: usize| {
        let mut entry = lblk.to_le_bytes().to_vec();
        entry.extend(len.to_le_bytes());
        entry.extend(0u16.to_le_bytes());
        entry.extend((pblk as u32).to_le_bytes());
        entry
    };
    let extents = [
        extent(0, 2, first),
        extent(2, 2, apart),
        extent(4, 20, first + 4),
    ];
    poke(&path, root + 2, &3u16.to_le_bytes());
    poke(&path, root + 12, &extents.concat());
    poke(&path, apart * BLOCK, &bytes[2 * BLOCK..4 * BLOCK]);
    poke(&path, (first + 2) * BLOCK, &[0xEE; 2 * BLOCK]);
    let report = judged(&path);
    assert!(report.has(Code::ExtentMisaligned), "{}", problems(&report));
    let theirs = oracle::e2fsck(&path, &["-fn"]);
    assert_ne!(theirs.code, 0);
    repair_whole("repaired", &path);
    let mount = KernelMount::mount(&path, Mode::ReadOnly, "");
    assert!(std::fs::read(mount.join("file")).unwrap() == bytes);
    mount.unmount();
}

/// Linux asks for a block of the root directory; the others do not.
#[test]
fn a_root_directory_that_lies_in_its_inode_is_found_and_gets_a_block() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext4", "inline_data");
    let kept = dir.path().join("kept");
    std::fs::write(&kept, "more text").unwrap();
    let write = format!("write {} kept", kept.display());
    debugfs_write(&path, &["mkdir small", "cd small", &write]);
    let (root, small) = (inode_at(&path, "/"), inode_at(&path, "small"));
    let bytes = std::fs::read(&path).unwrap();
    let mut record = bytes[small..small + 256].to_vec();
    // It names its parent first, which is the root itself.
    record[0x28..0x2C].copy_from_slice(&2u32.to_le_bytes());
    poke(&path, root, &record);
    assert!(!linux_mounts(&path));
    let report = judged(&path);
    let finding = report
        .findings
        .iter()
        .find(|finding| finding.code == Code::InlineData && finding.place.ino == Some(Ino::ROOT));
    assert!(finding.is_some(), "{}", problems(&report));
    repair_whole("repaired", &path);
    let mount = KernelMount::mount(&path, Mode::ReadOnly, "");
    let text = std::fs::read_to_string(mount.join("kept")).unwrap();
    assert_eq!(text, "more text");
    assert!(mount.join("lost+found").is_dir());
    mount.unmount();
}

/// Its references are counted elsewhere.
#[test]
fn an_inode_that_holds_a_value_has_one_link() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let (path, last) = with_value_inode(dir.path(), "ea_inode");
    let write = format!("sif <{last}> links_count 4097");
    debugfs_write(&path, &[&write]);
    is_found_and_mended("links", &path, Code::LinkCount);
}

/// An image whose file has the value of an attribute in an inode of its own, and the number of
/// that.
fn with_value_inode(dir: &Path, features: &str) -> (PathBuf, u64) {
    let path = image(dir, "ext4", features);
    let value = dir.join("value");
    std::fs::write(&value, [b'v'; 3000]).unwrap();
    let set = format!("ea_set -f {} file user.large", value.display());
    debugfs_write(&path, &[&set]);
    // debugfs does not charge the file with the value.
    oracle::e2fsck(&path, &["-fy"]);
    assert!(judged(&path).is_clean());
    // The last inode in use is the one that was made last.
    let header = oracle::dumpe2fs_header(&path);
    let last = header.number("Inode count") - header.number("Free inodes");
    (path, last)
}

/// What cannot be read is no value: the attribute goes, and the file stays. Left, it hides the
/// content of a file that lies in its attributes from e2fsck.
#[test]
fn the_value_of_an_attribute_does_not_grow_over_what_it_maps_far_behind() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let (path, value) = with_value_inode(dir.path(), "ea_inode,inline_data");
    let at = inode_at(&path, &format!("<{value}>")) + 0x28 + 12;
    poke(&path, at, &0x1000u32.to_le_bytes());
    is_found_and_mended("a value", &path, Code::XattrHash);
}

/// Without a checksum no reader believes that inodes were never used; a new one among them takes
/// that back.
#[test]
fn a_new_inode_is_not_called_unused() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "ext2", "^has_journal");
    let header = oracle::dumpe2fs_header(&path);
    let used = header.number("Inode count") - header.number("Free inodes");
    let unused = header.number("Inodes per group") - used;
    let write = format!("set_bg 0 itable_unused {unused}");
    debugfs_write(&path, &[&write]);
    assert!(judged(&path).is_clean());
    let fs = Filesystem::open_writable(&path).unwrap();
    fs.write("/new", b"content").unwrap();
    fs.close().unwrap();
    let theirs = oracle::e2fsck(&path, &["-fn"]);
    assert_eq!(theirs.code, 0, "{theirs}");
    let report = judged(&path);
    assert!(report.is_clean(), "{}", problems(&report));
}

/// e2fsck asks, and with `-n` its exit code does not say so.
#[test]
fn numbers_of_64_bits_without_extents_are_a_warning_that_a_repair_mends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let features = "^extents,^64bit,^has_journal,^metadata_csum,^uninit_bg,^resize_inode";
    // In a single group the first half of a descriptor of 64 bytes is one of 32.
    mke2fs(
        &path,
        4 << 20,
        &["-t", "ext4", "-b", "1024", "-O", features],
    );
    debugfs_write(&path, &["mkdir kept"]);
    let incompat = std::fs::read(&path).unwrap()[1024 + 0x60];
    poke(&path, 1024 + 0x60, &[incompat | 0x80]);
    poke(&path, 1024 + 0xFE, &64u16.to_le_bytes());
    let theirs = oracle::e2fsck(&path, &["-fn"]);
    assert!(theirs.text().contains("needs extents"), "{theirs}");
    let report = judged(&path);
    assert!(report.has(Code::FeatureAlone), "{}", problems(&report));
    assert!(report.is_clean(), "a warning: {}", problems(&report));
    repair_whole("64bit alone", &path);
    let theirs = oracle::e2fsck(&path, &["-fn"]);
    assert!(!theirs.text().contains("needs extents"), "{theirs}");
    assert!(debugfs(&path, "stat kept").contains("directory"));
}

/// As `e2fsck` looks for it, and where the one field that says the size of groups is wrong as well.
#[test]
fn a_backup_is_found_where_groups_have_no_usual_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for (features, wrong) in [
        ("meta_bg,^resize_inode", &[(0x28, 0xFFFF)][..]),
        ("resize_inode", &[(0x28, 0xFFFF), (0x20, 0xFFFF_FFFF)]),
        ("resize_inode", &[(0x28, 0xFFFF), (0x24, 0)]),
        ("sparse_super2", &[(0x28, 0xFFFF)]),
    ] {
        let options = ["-t", "ext4", "-b", "1024", "-g", "256", "-O", features];
        mke2fs(&path, 4 << 20, &options);
        debugfs_write(&path, &["mkdir kept"]);
        oracle::e2fsck(&path, &["-fy"]);
        for (at, value) in wrong {
            poke(&path, 1024 + at, &u32::to_le_bytes(*value));
        }
        let device = OpenSpec::read_only(&path).open().unwrap();
        let (block, size) = extant_fsck::find_backup_superblock(&*device)
            .unwrap()
            .unwrap();
        assert_eq!((block.get(), size.bytes()), (257, 1024), "{features}");
        repair_whole(features, &path);
        assert!(debugfs(&path, "stat kept").contains("directory"));
    }
}

/// The wrong size of a group leads into a file that is an image itself.
#[test]
fn a_backup_of_another_file_system_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (path, inner) = (dir.path().join("image"), dir.path().join("inner"));
    mke2fs(
        &inner,
        4 << 20,
        &["-t", "ext4", "-b", "1024", "-g", "256", "-L", "inner"],
    );
    mke2fs(
        &path,
        12 << 20,
        &["-t", "ext4", "-b", "1024", "-L", "outer"],
    );
    debugfs_write(&path, &[&format!("write {} inner", inner.display())]);
    let backup: u32 = debugfs(&path, "bmap inner 257").trim().parse().unwrap();
    // Where the first of its backups lies, behind block 1 as that of a first group would.
    poke(&path, 1024 + 0x20, &(backup - 1).to_le_bytes());
    poke(&path, 1024 + 0x28, &0xFFFF_u32.to_le_bytes());
    let device = OpenSpec::read_only(&path).open().unwrap();
    let (block, _) = extant_fsck::find_backup_superblock(&*device)
        .unwrap()
        .unwrap();
    assert_eq!(block.get(), 8193);
    repair_whole("outer", &path);
    assert_eq!(
        oracle::dumpe2fs_header(&path).field("Filesystem volume name"),
        "outer"
    );
}
