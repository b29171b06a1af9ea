//! The log as `debugfs` dumps it.

use crate::support::{Image, device};
use extant_format::{Pblk, Tid};
use extant_rescue::{Check, LogState, LogView, Rescue, Use, Verdict};
use extant_testkit::journal_device::JournalDevice;
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{debugfs, dumpe2fs, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What `debugfs logdump` says: of each transaction its blocks, each with its place in the log, and
/// its records, each with its type.
#[derive(Debug, Default, PartialEq, Eq)]
struct Dump {
    images: BTreeSet<(u32, u64, u32)>,
    records: BTreeSet<(u32, u32, u32)>,
    revoked: BTreeMap<u32, usize>,
}

fn number(text: &str) -> u32 {
    text.trim_end_matches([',', ':', ')']).parse().unwrap()
}

fn dumped(image: &Path, options: &str) -> Dump {
    let mut dump = Dump::default();
    let mut tid = 0;
    for line in debugfs(image, &format!("logdump {options}")).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Found", "expected", "sequence", t, "type", kind, .., at] => {
                tid = number(t);
                dump.records.insert((tid, number(kind), number(at)));
            }
            [
                "FS",
                "block",
                home,
                "logged",
                "at",
                "journal",
                "block",
                at,
                ..,
            ] => {
                let home = home.parse().unwrap();
                dump.images.insert((tid, home, number(at)));
            }
            ["Revoke", "FS", "block", ..] => *dump.revoked.entry(tid).or_default() += 1,
            _ => {}
        }
    }
    dump
}

fn ours(view: &LogView) -> Dump {
    let mut dump = Dump::default();
    for found in &view.transactions {
        let tid = found.tid.get();
        let images = found.images.iter();
        dump.images
            .extend(images.map(|i| (tid, i.image.home.get(), i.image.at)));
        let records = found.records.iter();
        dump.records
            .extend(records.map(|r| (tid, r.kind.raw(), r.block)));
        if !found.revoked.is_empty() {
            dump.revoked.insert(tid, found.revoked.len());
        }
    }
    dump
}

/// Files made, changed and removed over several transactions, some with revoked blocks.
fn fill(mount: &KernelMount) {
    for n in 0..40 {
        let dir = mount.join(format!("dir{}", n % 4));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("file{n}")), vec![n as u8; 3000 * (n + 1)]).unwrap();
        if n % 8 == 7 {
            mount.sync();
            fs::remove_dir_all(dir).unwrap();
        }
        if n % 16 == 15 {
            mount.sync();
        }
    }
}

const KINDS: [&[&str]; 5] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext4", "-b", "2048", "-O", "^metadata_csum"],
    &["-t", "ext4", "-b", "1024", "-O", "^64bit,^extents"],
];

#[test]
fn a_log_that_was_not_closed_is_what_debugfs_dumps() {
    require!(KernelExt4);
    for options in KINDS {
        let image = Image::new(48 << 20, options);
        let mount = image.mount();
        fill(&mount);
        mount.shutdown(Shutdown::FlushLog);
        let view = image.rescue().log(None, None).unwrap();
        let dump = dumped(&image.path, "-a");
        assert!(
            dump.images.len() > 20 && !dump.revoked.is_empty(),
            "{dump:?}"
        );
        assert_eq!(ours(&view), dump, "{options:?}");
        for found in &view.transactions {
            assert_eq!(found.state, LogState::Waiting, "{options:?}");
            assert!(found.committed.is_some());
        }
        let header = dumpe2fs_header(&image.path);
        let sb = &view.journal.superblock;
        assert_eq!(u64::from(sb.max_len), header.number("Total journal blocks"));
        assert_eq!(u64::from(sb.start), header.number("Journal start"));
        let has_sums = header.has_feature("metadata_csum");
        let checks = view.transactions.iter().flat_map(|t| &t.images);
        let expected = if has_sums {
            Check::Right
        } else {
            Check::Absent
        };
        assert!(checks.into_iter().all(|view| view.image.check == expected));
    }
}

#[test]
fn a_log_that_was_closed_still_has_its_old_transactions() {
    require!(KernelExt4);
    for options in KINDS {
        let image = Image::new(48 << 20, options);
        for _ in 0..2 {
            let mount = image.mount();
            fill(&mount);
            mount.unmount();
        }
        let view = image.rescue().log(None, None).unwrap();
        let (ours, dump) = (ours(&view), dumped(&image.path, "-aO"));
        assert!(!dump.images.is_empty(), "{dump:?}");
        // debugfs ends where the numbers do not go on, which is at each mount.
        assert!(
            dump.images.is_subset(&ours.images),
            "{options:?}\n{dump:?}\n{ours:?}"
        );
        assert!(dump.records.is_subset(&ours.records), "{options:?}");
        assert!(view.transactions.iter().all(|t| t.state == LogState::Old));
        assert!(ours.images.len() > 40);
        // One after the other in time, as their numbers are.
        let times: Vec<_> = view.transactions.iter().map(|t| t.committed).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}

#[test]
fn blocks_are_what_debugfs_says_they_are() {
    require!(KernelExt4);
    let image = Image::new(48 << 20, &["-t", "ext4", "-b", "1024"]);
    let mount = image.mount();
    fill(&mount);
    // A map with a node, and attributes in a block.
    let holes = File::create(mount.join("holes")).unwrap();
    for n in 0..40 {
        holes.write_all_at(&[7; 1024], n * 8192).unwrap();
    }
    drop(holes);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(mount.join("holes"), "user.long", &[b'x'; 700], flags).unwrap();
    mount.unmount();
    let view = image.rescue().log(None, None).unwrap();
    let images = view.transactions.iter().flat_map(|t| &t.images);
    let owned: BTreeMap<u64, &extant_rescue::ImageView> = images
        .filter(|view| view.used_for.ino().is_some())
        .map(|view| (view.image.home.get(), view))
        .collect();
    let list: Vec<String> = owned.keys().map(u64::to_string).collect();
    let said = debugfs(&image.path, &format!("icheck {}", list.join(" ")));
    let said: BTreeMap<u64, u32> = said
        .lines()
        .filter_map(|line| {
            let (block, ino) = line.split_once('\t')?;
            Some((block.parse().ok()?, ino.parse().ok()?))
        })
        .collect();
    let ours: BTreeMap<u64, u32> = owned
        .iter()
        .map(|(block, view)| (*block, view.used_for.ino().unwrap().get()))
        .collect();
    assert_eq!(ours, said);
    let has = |of: &dyn Fn(&Use) -> bool| owned.values().any(|view| of(&view.used_for));
    assert!(has(&|of| matches!(of, Use::Directory { .. })));
    assert!(has(&|of| matches!(of, Use::MapNode { .. })));
    assert!(has(&|of| matches!(of, Use::Attributes { .. })));
    let node = owned
        .values()
        .find(|v| matches!(v.used_for, Use::MapNode { .. }));
    assert_eq!(node.unwrap().path.as_deref(), Some(&b"/holes"[..]));
    // Fixed structures, by the descriptors that dumpe2fs shows.
    let groups = dumpe2fs(&image.path).groups;
    let mut seen = 0;
    for view in view.transactions.iter().flat_map(|t| &t.images) {
        let of = |group: extant_format::Group| &groups[group.get() as usize];
        let home = view.image.home.get();
        match view.used_for {
            Use::BlockBitmap(group) => assert_eq!(home, of(group).block_bitmap),
            Use::InodeBitmap(group) => assert_eq!(home, of(group).inode_bitmap),
            Use::InodeTable { group, .. } => {
                assert!(of(group).inode_table.as_ref().unwrap().contains(&home));
            }
            _ => continue,
        }
        seen += 1;
    }
    assert!(seen > 10);
    // Only what is asked for.
    let block = *owned.keys().next().unwrap();
    let only = image.rescue().log(None, Some(Pblk::new(block))).unwrap();
    let mut homes = only.transactions.iter().flat_map(|t| &t.images);
    assert!(homes.all(|view| view.image.home.get() == block));
    let tid = view.transactions[0].tid.get();
    let only = image.rescue().log(Some(Tid::new(tid)), None).unwrap();
    assert_eq!(only.transactions.len(), 1);
}

#[test]
fn a_damaged_block_of_the_log_is_told() {
    require!(KernelExt4);
    let image = Image::new(48 << 20, &["-t", "ext4", "-b", "1024"]);
    let mount = image.mount();
    fill(&mount);
    mount.unmount();
    let view = image.rescue().log(None, None).unwrap();
    // How many transactions there are depends on when Linux ends them.
    let largest = view.transactions.iter().max_by_key(|t| t.images.len());
    let hit = largest.unwrap().images.last().unwrap().image.at;
    let place = debugfs(&image.path, &format!("bmap <8> {hit}"));
    let place: u64 = place.trim().parse().unwrap();
    let file = File::options().write(true).open(&image.path).unwrap();
    file.write_all_at(b"other", place * 1024 + 100).unwrap();
    let view = image.rescue().log(None, None).unwrap();
    let wrong: Vec<_> = view
        .transactions
        .iter()
        .flat_map(|t| &t.images)
        .filter(|view| view.image.check == Check::Wrong)
        .map(|view| view.image.at)
        .collect();
    assert_eq!(wrong, [hit]);
}

#[test]
fn records_of_fast_commits_are_those_debugfs_dumps() {
    require!(KernelExt4);
    let image = Image::new(100 << 20, &["-t", "ext4", "-O", "fast_commit"]);
    let mount = image.mount();
    fs::create_dir(mount.join("d")).unwrap();
    mount.sync();
    for n in 0..5 {
        let file = File::create(mount.join(format!("d/f{n}"))).unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        file.sync_all().unwrap();
    }
    fs::remove_file(mount.join("d/f1")).unwrap();
    File::open(mount.join("d/f2")).unwrap().sync_all().unwrap();
    mount.shutdown(Shutdown::Now);
    let view = image.rescue().log(None, None).unwrap();
    let text = debugfs(&image.path, "logdump -a");
    let theirs: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("tag ")?.split(',').next())
        .filter(|name| *name != "PAD")
        .collect();
    let ours: Vec<&str> = view
        .fast_commits
        .iter()
        .filter(|tag| tag.name != "pad")
        .map(|tag| match tag.name {
            "create" => "CREAT_DENTRY",
            "link" => "ADD_ENTRY",
            "unlink" => "DEL_ENTRY",
            "inode" => "INODE",
            "add-range" => "ADD_RANGE",
            "del-range" => "DEL_RANGE",
            "head" => "HEAD",
            "tail" => "TAIL",
            other => other,
        })
        .collect();
    assert!(theirs.len() > 10, "{text}");
    assert_eq!(ours, theirs);
    let tails = view.fast_commits.iter().filter(|tag| tag.name == "tail");
    assert!(tails.clone().count() > 1);
    assert!(tails.clone().all(|tag| tag.is_right == Some(true)));
    let name = |n: &str| n.as_bytes().to_vec();
    let created = view.fast_commits.iter().filter(|tag| tag.name == "create");
    assert!(created.into_iter().any(|tag| tag.entry == Some(name("f2"))));
}

#[test]
fn a_journal_on_another_device_is_read_there() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let (image, journal) = (dir.path().join("image"), dir.path().join("journal"));
    mke2fs(&journal, 8 << 20, &["-O", "journal_dev", "-b", "1024"]);
    let attached = JournalDevice::attach(&journal).unwrap();
    let device_option = format!("device={}", attached.path().display());
    mke2fs(
        &image,
        48 << 20,
        &["-t", "ext4", "-b", "1024", "-J", &device_option],
    );
    let option = format!("journal_path={}", attached.path().display());
    let mount = KernelMount::mount(&image, Mode::ReadWrite, &option);
    fill(&mount);
    mount.shutdown(Shutdown::FlushLog);
    drop(attached);
    let why = Rescue::open(device(&image), None).unwrap_err();
    assert!(why.to_string().contains("--journal"), "{why}");
    let rescue = Rescue::open(device(&image), Some(device(&journal))).unwrap();
    let view = rescue.log(None, None).unwrap();
    assert!(view.journal.is_external);
    let dump = dumped(&image, &format!("-a -f {}", journal.display()));
    assert!(dump.images.len() > 20, "{dump:?}");
    assert_eq!(ours(&view).images, dump.images);
    let deleted = rescue.deleted().unwrap();
    assert!(
        deleted
            .files
            .iter()
            .any(|file| file.verdict == Verdict::Likely)
    );
}
