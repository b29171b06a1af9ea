//! Changes that are made as a whole and that no journal holds: after a crash at any write we find
//! all of them or none, and others find that too, or leave the file system alone.

use super::claimed::PROTECTED;
use super::engine::{Extant, tree_of};
use super::runs::{amount, every};
use super::shapes::{DEFAULT, SMALL_BLOCKS, Shape};
use super::staged::{COMMITTED, options, perform, staged, tree};
use extant_blockdev::{MemoryDevice, SharedDevice};
use extant_core::Error;
use extant_core::fs::{Fs, MountOptions, Notice, SuperblockChoice};
use extant_core::mount::Staged;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_format::waiting::{self, Entry, Head, List, Passage, Pointer, Sums};
use extant_format::{Pblk, Structure};
use extant_testkit::crash::{Budget, Content, CrashDevice, FaultDevice, FaultRule, IoKind};
use extant_testkit::model::{Op, Recovered, Universe};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Prepared, Script};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Extents and checksums, and no journal.
const UNLOGGED: Shape = Shape {
    name: "no journal",
    options: &["-O", "^has_journal,^resize_inode"],
    ..DEFAULT
};
/// As ext2 has it, in groups, with copies of the superblock.
const EXT2: Shape = Shape {
    name: "ext2",
    kib: 12 << 10,
    block_size: 1024,
    options: &[
        "-O",
        "^has_journal,^extent,^metadata_csum,^64bit,^flex_bg,^huge_file,^uninit_bg,^resize_inode",
        "-g",
        "4096",
    ],
};
/// Checksums, groups, and copies of the superblock.
const COPIES: Shape = Shape {
    name: "no journal, copies",
    kib: 12 << 10,
    block_size: 1024,
    options: &["-O", "^has_journal,^resize_inode", "-g", "2048"],
};
/// The log, of 1 MiB, is smaller than what is written over.
pub(super) const SMALL_LOG: Shape = Shape {
    name: "a small log",
    kib: 12 << 10,
    ..SMALL_BLOCKS
};

/// Bytes of a file that the log of `SMALL_LOG` does not hold.
pub(super) const LARGE: u64 = 1200 << 10;

fn write(path: &str, len: u64) -> Op {
    Op::Write {
        path: path.to_owned(),
        offset: 0,
        len,
    }
}

fn create(path: &str) -> Op {
    Op::Create {
        path: path.to_owned(),
        mode: 0o600,
    }
}

/// A file system with a large file, and a script that writes over it.
pub(super) fn over_large(shape: &Shape, len: u64) -> (Prepared, Script) {
    let engine = Extant::default();
    let filled = shape.filled(&engine);
    let device = CrashDevice::over(filled.content);
    let changes = staged(Arc::new(device.clone()));
    let make = Script::one(vec![create("large"), write("large", len)]);
    perform(&engine, &changes, &make);
    changes.commit().unwrap();
    let start = shape.beginning_with(device.content());
    let over = vec![
        write("large", len),
        create("new"),
        write("new", 40_000),
        Op::Unlink {
            path: "a/f".to_owned(),
        },
    ];
    (start, Script::one(over))
}

pub(super) fn superblock_of(content: &Content) -> [u8; SUPERBLOCK_LEN] {
    let mut bytes = [0; SUPERBLOCK_LEN];
    content.read(SUPERBLOCK_OFFSET, &mut bytes);
    bytes
}

/// Whether the superblock says that changes wait.
fn is_announced(content: &Content) -> bool {
    waiting::look(&superblock_of(content)).0
}

/// What another program makes of an image that a crash left.
type Others = fn(&Path, &Content) -> Result<(), String>;

/// e2fsck recovers it, or, where changes wait, does not touch it.
fn checked(place: &Path, content: &Content) -> Result<(), String> {
    if is_announced(content) {
        let before = fs::read(place).unwrap();
        let output = oracle::e2fsck(place, &["-fy"]);
        let is_untouched = fs::read(place).unwrap() == before;
        return if output.code >= 8 && is_untouched {
            Ok(())
        } else {
            Err(format!("e2fsck touches what it does not know:\n{output}"))
        };
    }
    if Superblock::parse(&superblock_of(content)).is_ok() {
        return oracle::e2fsck_recover_beside(place);
    }
    // One half of the superblock: it takes a copy, or finds none.
    let output = oracle::e2fsck(place, &["-fy"]);
    if output.code <= 1 || output.code >= 8 {
        Ok(())
    } else {
        Err(format!("e2fsck makes something of it:\n{output}"))
    }
}

/// Linux mounts it, or refuses that.
fn mounted(place: &Path, content: &Content) -> Result<(), String> {
    let whole = Superblock::parse(&superblock_of(content)).is_ok();
    let mounted = KernelMount::try_mount(place, Mode::ReadWrite, "");
    match (mounted, is_announced(content)) {
        (Ok(_), true) => Err("Linux mounts an image where changes wait".to_owned()),
        (Err(e), false) if whole => Err(format!("Linux does not mount it: {e}")),
        _ => Ok(()),
    }
}

/// Commits a script with a recorded device, and looks at every image that a crash may leave. Of
/// how many there was nothing, of how many all, and in how many changes waited.
fn sweep(
    shape: &Shape,
    start: &Prepared,
    script: &Script,
    budget: impl Fn() -> Budget,
    others_every: u64,
    others: Others,
) -> [usize; 3] {
    let engine = Extant::default();
    let device = CrashDevice::over(start.content.clone());
    let changes = staged(Arc::new(device.clone()));
    perform(&engine, &changes, script);
    assert_eq!(device.log().writes(), 0, "{}: not staged", shape.name);
    let report = changes.commit().unwrap();
    assert!(report.waited > 0, "{}: {report:?}", shape.name);
    assert_eq!(report.logged, 0, "{}: {report:?}", shape.name);
    device.mark(COMMITTED);
    let (before, after) = (tree(&start.content), tree(&device.content()));
    assert!(before != after, "nothing changes");
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("image");
    device.content().write_to(&place).unwrap();
    oracle::check_clean(&place).unwrap();
    let mut seen = [0; 3];
    for (number, image) in device.log().images(budget()).enumerate() {
        let judge = |found: &Recovered, by: &str| {
            let is_all = *found == after;
            assert!(
                is_all || (*found == before && !image.holds(COMMITTED)),
                "{}, point {}, by {by}: a part of the changes",
                shape.name,
                image.point()
            );
            usize::from(is_all)
        };
        // As a reader sees it, without touching it, and as it is put in place.
        let read = judge(&tree(image.content()), "reading");
        let recovering = image.record();
        let fs = Fs::open(Arc::new(recovering.clone()), options()).unwrap();
        let found = tree_of(&fs).unwrap();
        fs.close().unwrap();
        assert_eq!(judge(&found, "recovery"), read, "{}", shape.name);
        seen[read] += 1;
        let waits = is_announced(image.content());
        seen[2] += usize::from(waits);
        if waits && (number as u64).is_multiple_of(others_every) {
            // A crash of that as well. An opening that changes nothing else puts them in place.
            let recovering = image.record();
            drop(staged(Arc::new(recovering.clone())));
            assert!(!is_announced(&recovering.content()));
            for again in recovering.log().images(Budget::limited(10, 1)) {
                assert_eq!(judge(&tree(again.content()), "recovery, crashed"), 1);
            }
        }
        if (number as u64).is_multiple_of(others_every) || waits && seen[2] == 1 {
            image.write_to(&place);
            others(&place, image.content()).unwrap_or_else(|e| {
                panic!("{}, point {}: {e}", shape.name, image.point());
            });
            let theirs = tree(&Content::of_file(&place));
            judge(&theirs, "others");
        }
    }
    seen
}

#[test]
fn changes_without_a_journal_are_all_there_or_none_after_any_crash() {
    let seed = seed_from_env("changes that wait");
    let mut rng = Rng::new(seed);
    let engine = Extant::default();
    for shape in [UNLOGGED, EXT2, COPIES] {
        let start = shape.filled(&engine);
        let mut of_shape = [0; 3];
        for len in [1, 5, 50] {
            let script = loop {
                // One that changes something.
                let script = Script::random(&Universe::small(), &mut rng, &start, len);
                let device = CrashDevice::over(start.content.clone());
                let changes = staged(Arc::new(device.clone()));
                perform(&engine, &changes, &script);
                changes.commit().unwrap();
                if tree(&device.content()) != tree(&start.content) {
                    break script;
                }
            };
            let budget = || Budget::limited(amount(60, 2000), seed);
            let seen = sweep(&shape, &start, &script, budget, every(10), checked);
            let [none, all, waiting] = seen;
            println!(
                "{}, {len}: {none} none, {all} all, {waiting} waiting",
                shape.name
            );
            let counts = of_shape.iter_mut().zip(seen);
            counts.for_each(|(all, seen)| *all += seen);
        }
        let is_seen = of_shape.iter().all(|seen| *seen > 0);
        assert!(is_seen, "{}: {of_shape:?}", shape.name);
    }
}

#[test]
fn changes_that_the_log_does_not_hold_are_all_there_or_none_after_any_crash() {
    let (start, script) = over_large(&SMALL_LOG, LARGE);
    let budget = || Budget::limited(amount(150, 3000), 1);
    let [none, all, waiting] = sweep(&SMALL_LOG, &start, &script, budget, every(10), checked);
    assert!(
        none > 10 && all > 10 && waiting > 10,
        "{none} {all} {waiting}"
    );
}

/// Linux never mounts a half of it.
#[test]
fn linux_mounts_all_or_nothing_of_changes_that_wait() {
    require!(Root, LoopDevices, KernelExt4);
    for shape in [UNLOGGED, COPIES, SMALL_LOG] {
        let (start, script) = over_large(&shape, LARGE);
        let budget = || Budget::limited(120, 2);
        let [none, all, waiting] = sweep(&shape, &start, &script, budget, 6, mounted);
        assert!(none > 5 && all > 5 && waiting > 5, "{none} {all} {waiting}");
    }
}

/// Commits `script` on a device that fails from the nth transfer of a kind on.
fn failing(start: &Prepared, script: &Script, rule: FaultRule) -> (Content, Result<(), Error>) {
    let device = CrashDevice::over(start.content.clone());
    let faulty = Arc::new(FaultDevice::new(Arc::new(device.clone())));
    let changes = staged(Arc::<FaultDevice>::clone(&faulty));
    perform(&Extant::default(), &changes, script);
    faulty.inject(rule.from_then_on());
    let committed = changes.commit().map(drop);
    (device.content(), committed)
}

#[test]
fn a_device_that_fails_leaves_changes_that_wait_or_none() {
    let (start, script) = over_large(&UNLOGGED, 200_000);
    let before = tree(&start.content);
    let (mut without, mut perhaps, mut waiting) = (0, 0, 0);
    for kind in [IoKind::Write, IoKind::Flush] {
        for nth in 0.. {
            let (left, committed) = failing(&start, &script, FaultRule::fail_nth(kind, nth));
            let found = tree(&left);
            match committed {
                Ok(()) => break,
                Err(Error::NotHome(_)) => {
                    assert!(found != before, "{kind:?} {nth}");
                    waiting += 1;
                }
                Err(Error::PerhapsMade(_)) => perhaps += 1,
                Err(_) => {
                    assert!(found == before, "{kind:?} {nth}");
                    without += 1;
                }
            }
            let device = CrashDevice::over(left);
            let fs = Fs::open(Arc::new(device.clone()), options()).unwrap();
            assert!(tree_of(&fs).unwrap() == found, "{kind:?} {nth}");
            fs.close().unwrap();
        }
    }
    assert!(
        without > 2 && perhaps > 0 && waiting > 3,
        "{without}, {perhaps}, {waiting}"
    );
}

/// An image where changes wait, and are not in their places yet.
fn cut_off(shape: &Shape) -> (Prepared, Content) {
    cut_off_over(shape, LARGE)
}

/// An image where changes wait that write over so many bytes of a file.
fn cut_off_over(shape: &Shape, len: u64) -> (Prepared, Content) {
    let (start, script) = over_large(shape, len);
    for nth in 0.. {
        let (left, committed) = failing(&start, &script, FaultRule::fail_nth(IoKind::Write, nth));
        match committed {
            Err(Error::NotHome(_)) if is_announced(&left) => return (start, left),
            Err(_) => {}
            Ok(()) => break,
        }
    }
    panic!("the device never failed after the commit");
}

#[test]
fn changes_that_wait_are_put_in_place_by_the_next_opening_and_told() {
    let (start, left) = cut_off(&SMALL_LOG);
    let after = tree(&left);
    assert!(after != tree(&start.content), "nothing has changed");
    let device = CrashDevice::over(left.clone());
    let fs = Fs::open(Arc::new(device.clone()), options()).unwrap();
    let notices = fs.notices();
    assert!(
        notices
            .iter()
            .any(|notice| matches!(notice, Notice::ChangesPutInPlace { blocks } if *blocks > 1000)),
        "{notices:?}"
    );
    assert!(tree_of(&fs).unwrap() == after);
    fs.close().unwrap();
    let device = CrashDevice::over(left.clone());
    // Other changes as a whole come after them, and do not undo them.
    let changes = staged(Arc::new(device.clone()));
    assert!(!is_announced(&device.content()));
    perform(
        &Extant::default(),
        &changes,
        &Script::one(vec![create("later")]),
    );
    changes.commit().unwrap();
    assert!(tree(&device.content()) != after);
    let again = CrashDevice::over(device.content());
    let changes = staged(Arc::new(again.clone()));
    let unlink = Op::Unlink {
        path: "later".to_owned(),
    };
    perform(&Extant::default(), &changes, &Script::one(vec![unlink]));
    changes.commit().unwrap();
    let fs = Fs::open(again.content().open(), MountOptions::read_only()).unwrap();
    let found = tree_of(&fs).unwrap();
    assert!(found.entries.keys().eq(after.entries.keys()));
}

/// What is only tried leaves them where they are, and the claim to others.
#[test]
fn a_rehearsal_finds_changes_that_wait_in_place_and_writes_nothing() {
    for left in [cut_off(&SMALL_LOG).1, PROTECTED.empty().content] {
        let device = CrashDevice::over(left.clone());
        let base: SharedDevice = Arc::new(device.clone());
        let spool = Arc::new(MemoryDevice::new(base.size()));
        let changes = Staged::rehearse(base, spool, options()).unwrap();
        assert!(tree_of(changes.fs()).unwrap() == tree(&left));
        let script = Script::one(vec![create("later")]);
        perform(&Extant::default(), &changes, &script);
        assert!(tree_of(changes.fs()).unwrap() != tree(&left));
        let committed = changes.commit();
        assert!(matches!(committed, Err(Error::ReadOnly)), "{committed:?}");
        assert_eq!(device.log().writes(), 0);
    }
}

/// An image where changes wait, whose log has another superblock for the end. All sums are right;
/// `sums` are those of the head where it is to have others.
fn with_end(left: &Content, end: &Superblock, sums: Option<Sums>) -> Content {
    let mut changed = left.clone();
    let (_, pointer) = waiting::look(&superblock_of(left));
    let Pointer { head, tag, .. } = pointer.unwrap();
    let size = end.block_size();
    let at = |block| size.offset_of(block).unwrap();
    let block = |block| {
        let mut content = vec![0; size.len()];
        left.read(at(block), &mut content);
        content
    };
    let mut of_head = Head::parse(&block(head), tag).unwrap();
    let mut list = List::parse(&block(of_head.lists), tag).unwrap();
    // It is the first block that waits.
    let own = list.entries.first_mut().unwrap();
    assert_eq!(own.home.get(), SUPERBLOCK_OFFSET / size.len() as u64);
    let mut content = block(own.at);
    let within = (SUPERBLOCK_OFFSET % size.len() as u64) as usize;
    content[within..within + SUPERBLOCK_LEN].copy_from_slice(&end.encode());
    own.sum = Entry::sum_of(&content);
    of_head.sums = sums.unwrap_or(of_head.sums);
    changed.write(at(own.at), &content);
    changed.write(at(of_head.lists), &list.encode(tag, size.len()));
    changed.write(at(head), &of_head.encode(size.len()));
    changed
}

/// A superblock that waits for itself, and one that the head does not know: opened, neither is
/// ever in place.
#[test]
fn a_log_that_ends_with_what_still_waits_is_refused_and_not_followed() {
    for shape in [UNLOGGED, SMALL_LOG] {
        let (_, left) = cut_off(&shape);
        let now = Superblock::parse(&superblock_of(&left)).unwrap();
        let way = Passage::from_pointed(&now, &now).unwrap();
        let unpointed = now.with(Pointer::clear).unwrap();
        let known = |end| Some(Passage::from_pointed(&now, end).unwrap().sums());
        let hostile = [
            with_end(&left, &now, None),
            with_end(&left, &now, known(&now)),
            with_end(&left, &unpointed, known(&unpointed)),
            with_end(&left, &way.pointed, known(&way.pointed)),
            // Nothing waits with it, but it is another one than the log was made for.
            with_end(&left, &way.after, None),
        ];
        for (number, content) in hostile.into_iter().enumerate() {
            let device = CrashDevice::over(content);
            let over_backup = MountOptions::read_only().superblock(SuperblockChoice::Backup {
                block: Pblk::new(32_768),
                block_size: now.block_size(),
            });
            for options in [options(), MountOptions::read_only(), over_backup] {
                let opened = Fs::open(Arc::new(device.clone()), options);
                let refused = opened.map(drop).unwrap_err();
                let what = format!("{}, {number}: {refused}", shape.name);
                assert!(
                    matches!(&refused, Error::Corrupt { source, .. } if source.structure == Structure::Waiting),
                    "{what}"
                );
            }
            assert_eq!(device.log().writes(), 0, "{number}");
        }
        // With the sums that belong to it, it is the end of these changes.
        let sound = with_end(&left, &way.after, known(&way.after));
        for options in [MountOptions::read_only(), options()] {
            let device = CrashDevice::over(sound.clone());
            Fs::open(Arc::new(device), options)
                .unwrap()
                .close()
                .unwrap();
        }
    }
}

/// An image where changes wait, whose log has other entries beside the superblock. All sums are
/// right; those of `others` are filled in. They get the blocks of the head and of the list, and the
/// entries that there were.
fn with_entries(
    left: &Content,
    others: impl Fn([Pblk; 2], &[Entry]) -> Vec<(Pblk, Pblk)>,
) -> Content {
    let mut changed = left.clone();
    let (_, pointer) = waiting::look(&superblock_of(left));
    let Pointer { head, tag, .. } = pointer.unwrap();
    let size = Superblock::parse(&superblock_of(left))
        .unwrap()
        .block_size();
    let at = |block| size.offset_of(block).unwrap();
    let block = |content: &Content, block| {
        let mut bytes = vec![0; size.len()];
        content.read(at(block), &mut bytes);
        bytes
    };
    let mut of_head = Head::parse(&block(left, head), tag).unwrap();
    let list = List::parse(&block(left, of_head.lists), tag).unwrap();
    let others = others([head, of_head.lists], &list.entries);
    of_head.count = 1 + others.len() as u64;
    changed.write(at(head), &of_head.encode(size.len()));
    let others = others.into_iter().map(|(home, from)| Entry {
        home,
        at: from,
        sum: Entry::sum_of(&block(&changed, from)),
    });
    let list = List {
        entries: list.entries.iter().take(1).copied().chain(others).collect(),
        next: Pblk::new(0),
    };
    changed.write(at(of_head.lists), &list.encode(tag, size.len()));
    changed
}

/// Opened, it is refused as a log that has a wrong `field`, and nothing is written.
#[track_caller]
fn assert_log_refused(content: Content, field: &str) {
    let device = CrashDevice::over(content);
    for options in [options(), MountOptions::read_only()] {
        let opened = Fs::open(Arc::new(device.clone()), options);
        let refused = opened.map(drop).unwrap_err();
        let is_it = matches!(
            &refused,
            Error::Corrupt { source, .. }
                if source.structure == Structure::Waiting && source.field == field
        );
        assert!(is_it, "{refused}");
    }
    assert_eq!(device.log().writes(), 0);
}

/// Put in place, such a log is gone when that is cut off.
#[test]
fn a_log_that_goes_to_its_own_blocks_is_refused_and_not_begun() {
    let (_, left) = cut_off(&UNLOGGED);
    let home = "place of a block";
    let of_log = "block of the log";
    // What one has for its place is where the content of the other is.
    let crossed = with_entries(&left, |_, old| {
        vec![(old[1].home, old[2].home), (old[2].home, old[2].at)]
    });
    assert_log_refused(crossed, home);
    assert_log_refused(
        with_entries(&left, |_, old| vec![(old[1].at, old[1].at)]),
        home,
    );
    assert_log_refused(
        with_entries(&left, |_, old| vec![(old[0].at, old[1].at)]),
        home,
    );
    for number in [0, 1] {
        let over = with_entries(&left, |log, old| vec![(log[number], old[1].at)]);
        assert_log_refused(over, home);
    }
    let twice = with_entries(&left, |_, old| {
        vec![(old[1].home, old[1].at), (old[2].home, old[1].at)]
    });
    assert_log_refused(twice, of_log);
    assert_log_refused(
        with_entries(&left, |_, old| vec![(old[1].home, old[0].at)]),
        of_log,
    );
    assert_log_refused(
        with_entries(&left, |[head, _], old| vec![(old[1].home, head)]),
        of_log,
    );
    // Otherwise there is nothing wrong with what is made here.
    let sound = with_entries(&left, |_, old| vec![(old[1].home, old[1].at)]);
    let device = CrashDevice::over(sound);
    let opened = Fs::open(Arc::new(device.clone()), MountOptions::read_only());
    assert!(
        !matches!(&opened, Err(Error::Corrupt { source, .. }) if source.structure == Structure::Waiting),
        "{opened:?}"
    );
}

#[test]
fn a_log_on_the_block_of_multiple_mount_protection_is_refused_and_not_begun() {
    let (_, left) = cut_off_over(&PROTECTED, 5000);
    let superblock = Superblock::parse(&superblock_of(&left)).unwrap();
    let mmp = superblock.mmp_block().unwrap();
    let home = "place of a block";
    assert_log_refused(with_entries(&left, |_, old| vec![(mmp, old[1].at)]), home);
    assert_log_refused(with_entries(&left, |_, old| vec![(old[1].home, mmp)]), home);
}

/// A log that is damaged, or void since somebody else has written to the superblock.
#[test]
fn changes_that_cannot_be_put_in_place_leave_the_device_as_it_is() {
    let (_, left) = cut_off(&UNLOGGED);
    let bytes = superblock_of(&left);
    let (_, pointer) = waiting::look(&bytes);
    let head = pointer.unwrap().head.get();
    let size = UNLOGGED.block_size;
    let mut foreign = left.clone();
    let other = Superblock::parse(&bytes).unwrap();
    let other = other
        .with(|raw| raw.wtime.set(raw.wtime.get() ^ 1))
        .unwrap();
    foreign.write(SUPERBLOCK_OFFSET, &other.encode());
    let mut damaged = vec![foreign];
    // The head, the list, and content.
    for block in [head, head + 1, head + 20, head + 200] {
        let mut one = left.clone();
        let mut byte = [0];
        one.read(block * size + 40, &mut byte);
        one.write(block * size + 40, &[byte[0] ^ 0x10]);
        damaged.push(one);
    }
    for (number, content) in damaged.into_iter().enumerate() {
        let device = CrashDevice::over(content);
        for options in [options(), MountOptions::read_only()] {
            let opened = Fs::open(Arc::new(device.clone()), options);
            let refused = opened.map(drop).unwrap_err();
            assert!(refused.is_corruption(), "{number}: {refused}");
        }
        assert_eq!(device.log().writes(), 0, "{number}");
    }
    // Without the pointer nothing tells what the feature means.
    let mut lost = left.clone();
    let plain = Superblock::parse(&bytes).unwrap();
    let plain = plain.with(Pointer::clear).unwrap();
    lost.write(SUPERBLOCK_OFFSET, &plain.encode());
    let refused = Fs::open(lost.open(), options()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
}

#[test]
fn what_fits_neither_into_the_log_nor_into_free_blocks_is_refused_whole() {
    // More than half of what there is.
    for shape in [UNLOGGED, SMALL_LOG] {
        let (start, script) = over_large(&shape, shape.kib * 1024 * 6 / 10);
        let device = CrashDevice::over(start.content.clone());
        let changes = staged(Arc::new(device.clone()));
        perform(&Extant::default(), &changes, &script);
        let refused = changes.commit();
        assert!(
            matches!(refused, Err(Error::TooManyChanges { .. })),
            "{refused:?}"
        );
        assert!(tree(&device.content()) == tree(&start.content));
    }
}
