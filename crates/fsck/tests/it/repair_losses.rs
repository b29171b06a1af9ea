//! What a repair must not lose: what a journal holds, the content of blocks that two claim, the
//! names in a root that looks deleted, and what was written after the repair that is taken back.

use crate::cuts::bytes_of;
use crate::damage::Base;
use crate::support::logged_superblock;
use extant::{Filesystem, MountOptions};
use extant_blockdev::{BlockDevice, DeviceResult, MemoryDevice, SharedDevice};
use extant_format::jbd2::JournalSuperblock;
use extant_fsck::repair::{self, Options, Plan, revert, write_undo};
use extant_fsck::{Code, Error};
use extant_testkit::oracle::{self, debugfs, debugfs_write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Bytes in a block of the images.
const BLOCK: usize = 1024;

fn plan(device: SharedDevice) -> extant_fsck::Result<Plan> {
    repair::plan(device, Options::default().now(1_700_000_000), &())
}

fn content(device: &Arc<MemoryDevice>, path: &str) -> Vec<u8> {
    let device = Arc::clone(device) as SharedDevice;
    let fs = Filesystem::open_device(device, MountOptions::read_only()).unwrap();
    fs.read(path).unwrap()
}

fn first_block(path: &Path, of: &str) -> u64 {
    let list = debugfs(path, &format!("blocks {of}"));
    list.split_whitespace().next().unwrap().parse().unwrap()
}

/// An image whose journal holds a first block of `/large` full of nines; and the first block of the
/// journal.
fn with_waiting_journal(dir: &Path, requests: &[&str]) -> (Vec<u8>, u64) {
    with_logged(dir, None, requests)
}

/// Such an image, whose journal also holds the superblock with a label.
fn with_logged(dir: &Path, label: Option<&str>, requests: &[&str]) -> (Vec<u8>, u64) {
    let base = Base::new(dir);
    let (path, _) = base.damaged("ssv mnt_count 1");
    let block = first_block(&path, "/large");
    let log = first_block(&path, "<8>");
    let source = dir.join("nines");
    std::fs::write(&source, [9; BLOCK]).unwrap();
    let mut writes = vec!["jo".to_owned()];
    writes.push(format!("jw -b {block} {}", source.display()));
    if let Some(label) = label {
        let image = std::fs::read(&path).unwrap();
        let (number, block) = logged_superblock(&image, BLOCK, label.as_bytes());
        let source = dir.join("superblock");
        std::fs::write(&source, block).unwrap();
        writes.push(format!("jw -b {number} {}", source.display()));
    }
    writes.push("jc".to_owned());
    let writes: Vec<&str> = writes.iter().map(String::as_str).collect();
    debugfs_write(&path, &writes);
    if !requests.is_empty() {
        debugfs_write(&path, requests);
    }
    (std::fs::read(&path).unwrap(), log)
}

fn holds_nines(device: &Arc<MemoryDevice>) -> bool {
    let large = content(device, "/large");
    large.len() == 300_000 && large.starts_with(&[9; BLOCK]) && large.get(BLOCK) == Some(&7)
}

#[test]
fn what_waits_in_a_journal_is_replayed_also_when_its_inode_is_lost() {
    let lost: &[&[&str]] = &[
        &[],
        &["ssv journal_inum 0"],
        &["ssv journal_inum 12"],
        &["sif <8> mode 0"],
        &["sif <8> links_count 0"],
        &["clri <8>"],
        &["set_bg 0 inode_table 1"],
        &["feature -has_journal"],
    ];
    for requests in lost {
        let dir = tempfile::tempdir().unwrap();
        let (image, _) = with_waiting_journal(dir.path(), requests);
        let device = Arc::new(MemoryDevice::from_image(&image));
        let plan = plan(device.clone()).unwrap_or_else(|e| panic!("{requests:?}: {e}"));
        let replayed = plan
            .fixes
            .iter()
            .any(|fix| fix.code == Code::JournalReplayed);
        assert!(replayed, "{requests:?}: {:?}", plan.fixes);
        assert!(plan.is_complete(), "{requests:?}: {:?}", plan.left.findings);
        plan.apply().unwrap();
        assert!(holds_nines(&device), "{requests:?}");
        let path = dir.path().join("repaired");
        std::fs::write(&path, bytes_of(&device)).unwrap();
        let theirs = oracle::e2fsck(&path, &["-fn"]);
        assert_eq!(theirs.code, 0, "{requests:?}: {theirs}");
    }
}

#[test]
fn a_waiting_journal_that_cannot_be_read_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (image, log) = with_waiting_journal(dir.path(), &[]);
    let log = log as usize * BLOCK;
    // Its magic number; features that no reader knows.
    for (at, what) in [(0, 0u8), (0x28, 0x40)] {
        let mut image = image.clone();
        image[log + at] ^= what.max(1);
        let device = Arc::new(MemoryDevice::from_image(&image));
        let refused = plan(device.clone()).map(|plan| plan.fixes);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        assert!(bytes_of(&device) == image);
    }
}

/// A device that takes note of what happens to it: the byte of a write, or nothing for a flush.
#[derive(Debug)]
struct Noting {
    inner: MemoryDevice,
    done: Mutex<Vec<Option<u64>>>,
}

impl BlockDevice for Noting {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.done.lock().unwrap().push(Some(offset));
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.done.lock().unwrap().push(None);
        self.inner.flush()
    }
}

#[test]
fn a_log_that_names_an_impossible_first_block_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (image, log) = with_waiting_journal(dir.path(), &[]);
    let at = log as usize * BLOCK;
    let sound = JournalSuperblock::parse(&image[at..at + BLOCK]).unwrap();
    // None, behind where it starts, behind its end.
    for first in [0, sound.start + 1, sound.max_len, u32::MAX] {
        let mut image = image.clone();
        let mut log = sound.clone();
        log.first = first;
        image[at..at + BLOCK].copy_from_slice(&log.encode());
        let device = Arc::new(MemoryDevice::from_image(&image));
        let plan = plan(device.clone()).unwrap();
        assert!(plan.is_complete(), "{first}: {:?}", plan.left.findings);
        plan.apply().unwrap();
        assert!(holds_nines(&device), "{first}");
        let path = dir.path().join("repaired");
        std::fs::write(&path, bytes_of(&device)).unwrap();
        oracle::assert_clean(&path);
    }
}

#[test]
fn a_journal_is_emptied_only_when_what_it_held_is_durable() {
    for label in [None, Some("logged")] {
        let dir = tempfile::tempdir().unwrap();
        let (image, log) = with_logged(dir.path(), label, &[]);
        let device = Arc::new(Noting {
            inner: MemoryDevice::from_image(&image),
            done: Mutex::default(),
        });
        let plan = plan(device.clone()).unwrap();
        plan.apply().unwrap();
        let done = device.done.lock().unwrap();
        let parts: Vec<&[Option<u64>]> = done.split(Option::is_none).collect();
        let (log, primary) = (&[Some(log * BLOCK as u64)][..], &[Some(BLOCK as u64)][..]);
        let [mark, home, ref rest @ .., []] = parts[..] else {
            panic!("{parts:?}");
        };
        // It asks for a check first.
        assert_eq!(mark, primary);
        assert!(!home.is_empty() && !home.contains(&log[0]) && !home.contains(&primary[0]));
        // The superblock that waited comes home, before the log is empty; then nothing waits, then
        // all is well. Backups are written with all else.
        match label {
            None => assert_eq!(rest, [log, primary, primary]),
            Some(label) => {
                let [superblock, emptied, recovered, .., last] = rest else {
                    panic!("{parts:?}");
                };
                assert_eq!(
                    [*superblock, *emptied, *recovered, *last],
                    [primary, log, primary, primary]
                );
                let label = label.as_bytes();
                assert_eq!(
                    crate::support::superblock(&bytes_of(&device.inner)).label(),
                    label
                );
            }
        }
    }
}

#[test]
fn an_orphan_whose_last_block_is_anothers_does_not_change_it() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("sif /small bmap[0] B");
    let said = debugfs(&path, "imap /small");
    let ino: u32 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    let orphan = format!("ssv last_orphan {ino}");
    debugfs_write(&path, &[&orphan, "sif /small dtime 0"]);
    let device = Arc::new(MemoryDevice::from_image(&std::fs::read(&path).unwrap()));
    let plan = plan(device.clone()).unwrap();
    assert!(plan.is_complete(), "{:?}", plan.left.findings);
    plan.apply().unwrap();
    assert!(content(&device, "/large") == vec![7; 300_000]);
}

#[test]
fn a_root_without_links_keeps_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("sif <2> links_count 0");
    let device = Arc::new(MemoryDevice::from_image(&std::fs::read(&path).unwrap()));
    let plan = plan(device.clone()).unwrap();
    assert!(plan.is_complete(), "{:?}", plan.left.findings);
    plan.apply().unwrap();
    assert!(content(&device, "/large") == vec![7; 300_000]);
    assert!(content(&device, "/small") == b"small");
    std::fs::write(&path, bytes_of(&device)).unwrap();
    oracle::assert_clean(&path);
}

#[test]
fn an_undo_file_takes_back_only_what_the_repair_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("sif /large links_count 5");
    let image = std::fs::read(&path).unwrap();
    let device = Arc::new(MemoryDevice::from_image(&image));
    let plan = plan(device.clone()).unwrap();
    let mut undo = Vec::new();
    write_undo(&plan.changes, &mut undo).unwrap();
    let changes: Vec<_> = plan.changes.iter().map(Result::unwrap).collect();

    // Nothing, or a part, may have been written.
    revert(&*device, || Ok(&undo[..])).unwrap();
    device
        .write_at(changes[0].offset, &changes[0].after)
        .unwrap();
    revert(&*device, || Ok(&undo[..])).unwrap();
    assert!(bytes_of(&device) == image);

    plan.apply().unwrap();
    let mut since = changes[0].after.clone();
    since[500] ^= 1;
    device.write_at(changes[0].offset, &since).unwrap();
    let written_since = bytes_of(&device);
    let refused = revert(&*device, || Ok(&undo[..])).unwrap_err();
    let place = format!("byte {}", changes[0].offset);
    assert!(refused.to_string().contains(&place), "{refused}");
    assert!(bytes_of(&device) == written_since);

    // The same blocks in another file system.
    device.write_at(0, &image).unwrap();
    device.write_at(1024 + 0x68, &[5; 16]).unwrap();
    let other = bytes_of(&device);
    assert!(revert(&*device, || Ok(&undo[..])).is_err());
    assert!(bytes_of(&device) == other);
}

/// What lies in the blocks of a log that begins at byte `log`, up to its end: 1 a descriptor, 2 a
/// commit, 5 what is revoked, 0 an image.
fn kinds_of_log(image: &[u8], log: usize) -> Vec<u8> {
    let blocks = image[log + BLOCK..].chunks(BLOCK);
    let kinds = blocks.map(|block| {
        let is_record = block.starts_with(&[0xC0, 0x3B, 0x39, 0x98]);
        if is_record { block[7] } else { 0 }
    });
    let mut kinds: Vec<u8> = kinds.take(40).collect();
    let end = kinds.iter().rposition(|kind| *kind == 2).unwrap();
    kinds.truncate(end + 1);
    kinds
}

#[test]
fn of_a_damaged_journal_the_transactions_before_the_damage_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("ssv mnt_count 1");
    let log = first_block(&path, "<8>") as usize * BLOCK;
    let list = debugfs(&path, "blocks /large");
    let large: Vec<&str> = list.split_whitespace().take(3).collect();
    let mut writes = vec!["jo -c".to_owned()];
    for (number, block) in [9, 8, 6].into_iter().zip(&large) {
        let source = dir.path().join(format!("of {number}").replace(' ', "-"));
        std::fs::write(&source, [number; BLOCK]).unwrap();
        writes.push(format!("jw -b {block} {}", source.display()));
    }
    // The second transaction is to be damaged. The last revokes what the first holds.
    let revoking = format!("jw -r {}", large[0]);
    let ends = [vec!["jc".to_owned()], vec![revoking, "jc".to_owned()]];
    for (end, revoked) in ends.into_iter().zip([false, true]) {
        let (path, _) = base.damaged("ssv mnt_count 1");
        let requests: Vec<&str> = writes.iter().chain(&end).map(String::as_str).collect();
        debugfs_write(&path, &requests);
        let image = std::fs::read(&path).unwrap();
        let kinds = kinds_of_log(&image, log);
        assert!(kinds.starts_with(&[1, 0, 2, 1, 0, 2, 1, 0, 2]), "{kinds:?}");
        // Descriptor, image, commit of the second transaction.
        for (at, byte) in [(4, 40), (5, 500), (6, 0x38)] {
            let mut image = image.clone();
            image[log + at * BLOCK + byte] ^= 1;
            let device = Arc::new(MemoryDevice::from_image(&image));
            let plan = plan(device.clone()).unwrap();
            assert!(plan.is_complete(), "{:?}", plan.left.findings);
            let told: String = plan.fixes.iter().map(|fix| format!("{fix}\n")).collect();
            let says = "damaged: 1 transactions were replayed";
            assert!(told.contains(says), "{told}");
            plan.apply().unwrap();
            let first = if revoked { 7 } else { 9 };
            let large = content(&device, "/large");
            let found: Vec<u8> = large.chunks(BLOCK).take(3).map(|block| block[1]).collect();
            assert_eq!(
                found,
                [first, 7, 7],
                "block {at}, revoked: {revoked}: {told}{kinds:?}"
            );
            let path = dir.path().join("repaired");
            std::fs::write(&path, bytes_of(&device)).unwrap();
            oracle::assert_clean(&path);
        }
    }
}

/// Features with files of the file system's own.
const OWN_FILES: &str = "quota,project,orphan_file";

#[test]
fn files_of_the_file_systems_own_that_are_gone_are_not_named_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::with(dir.path(), &["-O", OWN_FILES]);
    let header = oracle::dumpe2fs_header(base.path());
    for name in [
        "User quota inode",
        "Project quota inode",
        "Orphan file inode",
    ] {
        let (path, _) = base.damaged(&format!("clri <{}>", header.field(name)));
        let device = Arc::new(MemoryDevice::from_image(&std::fs::read(&path).unwrap()));
        let plan = plan(device.clone()).unwrap();
        let told: String = plan.fixes.iter().map(|fix| format!("{fix}\n")).collect();
        let left = &plan.left.findings;
        assert!(plan.is_complete(), "{name}: {told}{left:?}");
        plan.apply().unwrap();
        std::fs::write(&path, bytes_of(&device)).unwrap();
        oracle::assert_clean(&path);
        assert!(
            content(&device, "/huge") == vec![5; 1_500_000],
            "{name}: {told}"
        );
    }
}

#[test]
fn a_users_file_that_is_named_as_the_file_systems_own_stays() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::with(dir.path(), &["-O", OWN_FILES]);
    for field in [
        "usr_quota_inum",
        "grp_quota_inum",
        "prj_quota_inum",
        "orphan_file_inum",
        "journal_inum",
    ] {
        let (path, said) = base.damaged(&format!("ssv {field} I"));
        let before = oracle::dumpe2fs_header(base.path());
        let device = Arc::new(MemoryDevice::from_image(&std::fs::read(&path).unwrap()));
        let plan = plan(device.clone()).unwrap();
        let told: String = plan.fixes.iter().map(|fix| format!("{fix}\n")).collect();
        assert!(!told.is_empty(), "{field}: {said}");
        assert!(
            plan.is_complete(),
            "{field}: {told}{:?}",
            plan.left.findings
        );
        plan.apply().unwrap();
        assert!(
            content(&device, "/huge") == vec![5; 1_500_000],
            "{field}: {told}"
        );
        std::fs::write(&path, bytes_of(&device)).unwrap();
        oracle::assert_clean(&path);
        // The right one was found.
        let after = oracle::dumpe2fs_header(&path);
        for name in [
            "User quota inode",
            "Group quota inode",
            "Project quota inode",
            "Orphan file inode",
            "Journal inode",
        ] {
            assert_eq!(after.field(name), before.field(name), "{field}: {told}");
        }
    }
}

#[test]
fn noise_in_one_node_of_a_map_takes_nothing_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    oracle::mke2fs(&path, 16 << 20, &options);
    let source = dir.path().join("islands");
    let islands = std::fs::File::create(&source).unwrap();
    for i in 0..600_u64 {
        islands
            .write_all_at(&[i as u8 | 1; BLOCK], i * 2 * BLOCK as u64)
            .unwrap();
    }
    debugfs_write(&path, &[&format!("write {} islands", source.display())]);
    oracle::assert_clean(&path);
    let sound = std::fs::read(&path).unwrap();
    let leaves: Vec<usize> = (0..sound.len() / BLOCK)
        .filter(|block| {
            let bytes = &sound[block * BLOCK..][..BLOCK];
            // The magic number of a node, and one of the entries that a leaf of the file has.
            bytes.starts_with(&[0x0a, 0xf3]) && bytes[6..8] == [0, 0]
        })
        .collect();
    assert!(leaves.len() > 4, "{leaves:?}");
    let before = content(&Arc::new(MemoryDevice::from_image(&sound)), "/islands");
    for far in [700_u32, 100_000, 0xf000_0000] {
        let mut image = sound.clone();
        // An entry of the second leaf claims what others map, or what none does.
        let at = leaves[1] * BLOCK + 12;
        image[at + 4 * 12..][..4].copy_from_slice(&far.to_le_bytes());
        image[at + 4 * 12 + 4..][..2].copy_from_slice(&300_u16.to_le_bytes());
        let device = Arc::new(MemoryDevice::from_image(&image));
        let plan = plan(device.clone()).unwrap();
        assert_eq!(plan.losses_count, 0, "{far}: {:?}", plan.losses);
        assert!(plan.is_complete(), "{far}: {:?}", plan.left.findings);
        plan.apply().unwrap();
        let after = content(&device, "/islands");
        let differing = before.chunks(BLOCK).zip(after.chunks(BLOCK));
        let differing = differing.filter(|(a, b)| a != b).count();
        assert!(differing <= 84, "{far}: {differing} blocks differ");
        std::fs::write(&path, bytes_of(&device)).unwrap();
        oracle::assert_clean(&path);
    }
}

#[test]
fn a_group_whose_table_is_said_to_be_that_of_another_gets_its_own_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "ea_inode,^metadata_csum,uninit_bg",
    ];
    oracle::mke2fs(&path, 16 << 20, &options);
    let value = dir.path().join("value");
    std::fs::write(&value, [b'v'; 5000]).unwrap();
    let requests = [
        format!("write {} file", value.display()),
        format!("ea_set -f {} /file user.huge", value.display()),
        // Somewhere else an error is left, which is no reason to leave this.
        "sif /file links_count 3".to_owned(),
    ];
    debugfs_write(&path, &requests.each_ref().map(String::as_str));
    let mut image = std::fs::read(&path).unwrap();
    // Descriptors of 64 bytes, behind the superblock.
    image.copy_within(2048..2112, 2112);
    let device = Arc::new(MemoryDevice::from_image(&image));
    let plan = plan(device.clone()).unwrap();
    assert_eq!(plan.losses_count, 0, "{:?}", plan.losses);
    assert!(
        plan.is_complete(),
        "{:?}\n{:?}",
        plan.fixes,
        plan.left.findings
    );
    plan.apply().unwrap();
    assert_eq!(content(&device, "/file"), [b'v'; 5000]);
    std::fs::write(&path, bytes_of(&device)).unwrap();
    oracle::assert_clean(&path);
}

/// What lies in the blocks of the device between those of the islands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// They lie in a row.
    Nothing,
    Free,
    AnotherFile,
}

/// An image with a file of blocks that lie apart, and where the extents of it are, in bytes.
fn with_islands(dir: &Path, count: usize, between: Between) -> (Vec<u8>, usize) {
    let source = dir.join("source");
    std::fs::create_dir_all(&source).unwrap();
    let file = std::fs::File::create(source.join("islands")).unwrap();
    let step = 7 * BLOCK;
    for at in (0..count * 7).map(|i| i * BLOCK) {
        let island = [(at / step) as u8 + 1; BLOCK];
        if at % step == 0 {
            file.write_all_at(&island, at as u64).unwrap();
        } else if between != Between::Nothing && at < (count - 1) * step {
            file.write_all_at(&[0xee; BLOCK], at as u64).unwrap();
        }
    }
    let path = dir.join("islands");
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-d"];
    let source = source.display().to_string();
    oracle::mke2fs(&path, 12 << 20, &[&options[..], &[&source]].concat());
    if between != Between::Nothing {
        let holes = (0..count - 1).map(|i| format!("punch /islands {} {}", i * 7 + 1, i * 7 + 6));
        let holes: Vec<String> = holes.collect();
        debugfs_write(&path, &holes.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if between == Between::AnotherFile {
        let other = dir.join("other");
        std::fs::write(&other, vec![0xdd; 130 * BLOCK]).unwrap();
        let put = format!("write {} other", other.display());
        // It takes the first blocks that are free.
        debugfs_write(&path, &[&put]);
    }
    let image = std::fs::read(&path).unwrap();
    // Inode N is part of block group 0
    // 	located at block B, offset 0xO
    let said = debugfs(&path, "imap /islands");
    let place = said.split_once("at block ").unwrap().1.trim();
    let (block, offset) = place.split_once(", offset 0x").unwrap();
    let slot = block.parse::<usize>().unwrap() * BLOCK + usize::from_str_radix(offset, 16).unwrap();
    let map = slot + 40;
    let le16 = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
    assert_eq!(le16(map), 0xf30a);
    let node = match le16(map + 6) {
        0 => map,
        1 => usize::from(le16(map + 16)) * BLOCK,
        depth => panic!("{depth} levels"),
    };
    assert_eq!(usize::from(le16(node + 2)), count);
    (image, node + 12)
}

#[test]
fn an_extent_that_is_too_long_takes_nothing_from_those_behind_it() {
    // In the inode, and in a node.
    for (count, between) in [
        (4, Between::Nothing),
        (20, Between::Nothing),
        (4, Between::Free),
        (20, Between::Free),
        (20, Between::AnotherFile),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (start, extents) = with_islands(dir.path(), count, between);
        let path = dir.path().join("repaired");
        let files = |device: &Arc<MemoryDevice>| {
            let other = (between == Between::AnotherFile).then(|| content(device, "/other"));
            (content(device, "/islands"), other)
        };
        let (whole, other) = files(&Arc::new(MemoryDevice::from_image(&start)));
        std::fs::write(&path, &start).unwrap();
        let blocks = debugfs(&path, "blocks /islands").split_whitespace().count();
        for (number, len) in (0..count - 1).flat_map(|i| [(i, 0xfff_u16), (i, 0x8fff), (i, 0x80)]) {
            let what = format!("{len:#x} blocks in {number} of {count}, {between:?}");
            let mut image = start.clone();
            image[extents + 12 * number + 4..][..2].copy_from_slice(&len.to_le_bytes());
            let device = Arc::new(MemoryDevice::from_image(&image));
            let plan = plan(device.clone()).unwrap();
            assert!(plan.is_complete(), "{what}: {:?}", plan.left.findings);
            plan.apply().unwrap();
            std::fs::write(&path, bytes_of(&device)).unwrap();
            oracle::check_clean(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
            let (mut now, still) = files(&device);
            assert!(still == other, "{what}");
            let at = number * 7 * BLOCK;
            if len > 0x8000 {
                // What an unwritten extent maps reads as zeros.
                let unwritten = at..at + BLOCK;
                assert_eq!(now[unwritten.clone()], [0; BLOCK], "{what}");
                now[unwritten.clone()].copy_from_slice(&whole[unwritten]);
            }
            assert!(now == whole, "{what}");
            // No hole has a block that nothing was written to.
            let mapped = debugfs(&path, "blocks /islands");
            let mapped = mapped.split_whitespace().count();
            assert_eq!(mapped, blocks, "{what}");
        }
    }
}
