//! Changes that are made as a whole: after a crash at any write all of them are there, or none.

use super::engine::{Extant, Open, tree_of};
use super::runs::{amount, every};
use super::shapes::{CLUSTERS, DEFAULT, GROUPS, ORPHAN_FILE, PLAIN, SMALL_BLOCKS, Shape};
use super::waiting::{LARGE, SMALL_LOG, over_large};
use extant_blockdev::{MemoryDevice, SharedDevice};
use extant_core::Error;
use extant_core::fs::{Fs, MountOptions};
use extant_core::mount::Staged;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_testkit::crash::{Budget, Content, CrashDevice, FaultDevice, FaultRule, IoKind};
use extant_testkit::model::{Op, Recovered, Tag, Universe};
use extant_testkit::oracle;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Engine, Prepared, Script};
use std::path::Path;
use std::sync::Arc;

/// Set when the changes are committed.
pub(super) const COMMITTED: u64 = 1;

pub(super) fn options() -> MountOptions {
    MountOptions::read_write().background(false)
}

pub(super) fn staged(base: SharedDevice) -> Staged {
    let spool = Arc::new(MemoryDevice::new(base.size()));
    Staged::begin(base, spool, options()).unwrap()
}

/// Does a script on what is staged; what an operation cannot do is left out.
pub(super) fn perform(engine: &Extant, staged: &Staged, script: &Script) {
    let open = Open::of(Arc::clone(staged.fs()));
    for (number, op) in script.lanes[0].iter().enumerate() {
        let tag = Tag {
            lane: 0,
            op: number as u32,
        };
        let _ = engine.perform(&open, op, tag);
    }
    open.let_go();
}

pub(super) fn tree(content: &Content) -> Recovered {
    let fs = Fs::open(content.open(), MountOptions::read_only()).unwrap();
    tree_of(&fs).unwrap()
}

/// Whether the superblock is not one of which a crash has left one half. We alone make that whole
/// from the log; others need a backup, which small file systems do not have.
pub(super) fn has_whole_superblock(content: &Content) -> bool {
    let mut bytes = [0; SUPERBLOCK_LEN];
    content
        .open()
        .read_at(SUPERBLOCK_OFFSET, &mut bytes)
        .unwrap();
    Superblock::parse(&bytes).is_ok()
}

/// Commits a script with a recorded device, and looks at every image that a crash may leave: how
/// many held nothing of it, and how many all.
fn sweep(
    shape: &Shape,
    start: &Prepared,
    script: &Script,
    budget: Budget,
    others_every: u64,
    others: fn(&Path) -> Result<(), String>,
) -> [usize; 2] {
    let engine = Extant::default();
    let device = CrashDevice::over(start.content.clone());
    let changes = staged(Arc::new(device.clone()));
    perform(&engine, &changes, script);
    assert_eq!(device.log().writes(), 0, "{}: not staged", shape.name);
    changes.commit().unwrap();
    device.mark(COMMITTED);
    let (before, after) = (tree(&start.content), tree(&device.content()));
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("image");
    device.content().write_to(&place).unwrap();
    oracle::check_clean(&place).unwrap();
    let (mut seen, mut is_owed) = ([0; 2], false);
    for (number, image) in device.log().images(budget).enumerate() {
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
        // As a reader sees it, which replays into memory, and as it is put in place.
        let read = judge(&tree(image.content()), "reading");
        let recovering = image.record();
        let fs = Fs::open(Arc::new(recovering.clone()), options()).unwrap();
        let found = tree_of(&fs).unwrap();
        fs.close().unwrap();
        assert_eq!(judge(&found, "recovery"), read, "{}", shape.name);
        seen[read] += 1;
        is_owed |= (number as u64).is_multiple_of(others_every);
        if is_owed && has_whole_superblock(image.content()) {
            is_owed = false;
            image.write_to(&place);
            others(&place).unwrap_or_else(|e| panic!("{}: {e}", shape.name));
            let theirs = tree(&Content::of_file(&place));
            assert_eq!(judge(&theirs, "others"), read, "{}", shape.name);
            oracle::check_clean(&place).unwrap();
        }
    }
    seen
}

#[test]
fn changes_made_as_a_whole_are_all_there_or_none_after_any_crash() {
    let seed = seed_from_env("staged changes");
    let mut rng = Rng::new(seed);
    let engine = Extant::default();
    for shape in [SMALL_BLOCKS, DEFAULT, PLAIN, ORPHAN_FILE, CLUSTERS, GROUPS] {
        let start = shape.filled(&engine);
        for len in [1, 5, 50] {
            let script = Script::random(&Universe::small(), &mut rng, &start, len);
            let budget = Budget::limited(amount(60, 2000), seed);
            let others = oracle::e2fsck_recover_beside;
            let [none, all] = sweep(&shape, &start, &script, budget, every(10), others);
            println!("{}, {len}: {none} without, {all} with", shape.name);
        }
    }
}

/// A log that has room for the changes and for nothing beside them.
#[test]
fn changes_that_fill_the_log_are_all_there_or_none_after_any_crash() {
    let engine = Extant::default();
    let fits = |kib: u64| {
        let (start, script) = over_large(&SMALL_LOG, kib << 10);
        let changes = staged(Arc::new(CrashDevice::over(start.content)));
        perform(&engine, &changes, &script);
        changes.commit().unwrap().logged > 0
    };
    let (mut most, mut too_much) = (600, LARGE >> 10);
    assert!(fits(most) && !fits(too_much));
    while most + 1 < too_much {
        let middle = u64::midpoint(most, too_much);
        if fits(middle) {
            most = middle;
        } else {
            too_much = middle;
        }
    }
    let (start, script) = over_large(&SMALL_LOG, most << 10);
    let budget = Budget::limited(amount(100, 2000), 1);
    let others = oracle::e2fsck_recover_beside;
    let [none, all] = sweep(&SMALL_LOG, &start, &script, budget, every(10), others);
    assert!(none > 5 && all > 5, "{none} without, {all} with");
}

/// Both outcomes are seen, and Linux sees the same.
#[test]
fn the_moment_of_the_commit_divides_the_images_for_linux_too() {
    require!(Root, LoopDevices, KernelExt4);
    let engine = Extant::default();
    let start = DEFAULT.filled(&engine);
    let script = Script::one(vec![
        Op::Mkdir {
            path: "new".to_owned(),
            mode: 0o755,
        },
        Op::Write {
            path: "f".to_owned(),
            offset: 0,
            len: 50_000,
        },
        Op::Unlink {
            path: "a/f".to_owned(),
        },
    ]);
    let linux = |place: &Path| oracle::kernel_recover(place).map(drop);
    let budget = Budget::limited(400, 1);
    let [none, all] = sweep(&DEFAULT, &start, &script, budget, 20, linux);
    assert!(none > 20 && all > 20, "{none} without, {all} with");
}

#[test]
fn what_is_not_committed_leaves_no_trace() {
    let engine = Extant::default();
    let start = DEFAULT.filled(&engine);
    let device = CrashDevice::over(start.content.clone());
    let changes = staged(Arc::new(device.clone()));
    let mut rng = Rng::new(3);
    let script = Script::random(&Universe::small(), &mut rng, &start, 30);
    perform(&engine, &changes, &script);
    drop(changes);
    assert_eq!(device.log().writes(), 0);
    // Nothing is written either where nothing has changed but the times of the superblock.
    let changes = staged(Arc::new(device.clone()));
    changes.commit().unwrap();
    assert_eq!(tree(&device.content()), tree(&start.content));
}

/// Each transfer to the device fails once: all or nothing, and the error says which where that is
/// known.
#[test]
fn a_device_that_fails_leaves_all_or_nothing() {
    let engine = Extant::default();
    let start = SMALL_BLOCKS.filled(&engine);
    let script = Script::one(vec![
        Op::Create {
            path: "new".to_owned(),
            mode: 0o600,
        },
        Op::Write {
            path: "new".to_owned(),
            offset: 0,
            len: 200_000,
        },
    ]);
    let before = tree(&start.content);
    let (mut without, mut perhaps, mut waiting) = (0, 0, 0);
    for kind in [IoKind::Write, IoKind::Flush] {
        for nth in 0.. {
            let device = CrashDevice::over(start.content.clone());
            let faulty = FaultDevice::new(Arc::new(device.clone()));
            let faulty = Arc::new(faulty);
            let changes = staged(Arc::<FaultDevice>::clone(&faulty));
            perform(&engine, &changes, &script);
            faulty.inject(FaultRule::fail_nth(kind, nth).from_then_on());
            let committed = changes.commit();
            let found = tree(&device.content());
            match committed {
                Ok(_) => break,
                Err(Error::NotHome(_)) => {
                    assert_ne!(found, before, "{kind:?} {nth}");
                    waiting += 1;
                }
                Err(Error::PerhapsMade(_)) => perhaps += 1,
                Err(_) => {
                    assert_eq!(found, before, "{kind:?} {nth}");
                    without += 1;
                }
            }
            let fs = Fs::open(Arc::new(device.clone()), options()).unwrap();
            assert_eq!(tree_of(&fs).unwrap(), found, "{kind:?} {nth}");
            fs.close().unwrap();
        }
    }
    assert!(
        without > 5 && perhaps > 0 && waiting > 5,
        "{without}, {perhaps}, {waiting}"
    );
}

/// What is new needs no room in the log.
#[test]
fn new_content_may_be_larger_than_the_log() {
    let engine = Extant::default();
    let shape = Shape {
        name: "many groups",
        kib: 64 << 10,
        ..SMALL_BLOCKS
    };
    let start = shape.empty();
    let device = CrashDevice::over(start.content.clone());
    let changes = staged(Arc::new(device.clone()));
    let create = Op::Create {
        path: "large".to_owned(),
        mode: 0o600,
    };
    let write = Op::Write {
        path: "large".to_owned(),
        offset: 0,
        len: 8 << 20,
    };
    perform(&engine, &changes, &Script::one(vec![create, write]));
    let report = changes.commit().unwrap();
    assert!(report.placed >= 8 << 10, "{report:?}");
    assert!(report.logged < 100, "{report:?}");
    assert_eq!(report.waited, 0, "{report:?}");
}

/// Neither within the changes, nor afterwards on the device.
#[test]
fn an_attempt_that_finds_no_room_leaves_what_was_there() {
    let engine = Extant::default();
    let (start, script) = over_large(&DEFAULT, 100_000);
    let device = CrashDevice::over(start.content.clone());
    let mut changes = staged(Arc::new(device.clone()));
    let before = tree_of(changes.fs()).unwrap();
    let mut attempt = |writes: u64| {
        let spool = FaultDevice::new(Arc::new(MemoryDevice::new(start.content.size())));
        spool.inject(FaultRule::fail_nth(IoKind::Write, writes).from_then_on());
        let done = changes.attempt(Arc::new(spool), |trial| {
            perform(&engine, &trial, &script);
            Ok::<_, Error>(((), trial))
        });
        (done, tree_of(changes.fs()).unwrap())
    };
    let (mut writes, mut found) = (0, None);
    while found.is_none() {
        let (done, left) = attempt(writes);
        match done {
            Ok(()) => found = Some(left),
            Err(_) => assert!(left == before, "after {writes} writes"),
        }
        writes += 1;
    }
    assert!(writes > 5, "{writes}");
    let found = found.unwrap();
    assert!(found != before);
    assert!(tree(&device.content()) == tree(&start.content));
    changes.commit().unwrap();
    assert!(tree(&device.content()) == found);
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("image");
    device.content().write_to(&place).unwrap();
    oracle::check_clean(&place).unwrap();
}

/// Such a block is no part of what is committed: a change of it would be lost.
#[test]
fn a_file_that_leads_into_the_journal_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("image");
    oracle::mke2fs(&place, 16 << 20, &["-t", "ext4", "-b", "1024"]);
    let text = dir.path().join("text");
    std::fs::write(&text, "some text").unwrap();
    oracle::debugfs_write(&place, &[&format!("write {} a", text.display())]);
    let blocks = oracle::debugfs(&place, "blocks <8>");
    let journal = blocks.split_whitespace().next().unwrap();
    oracle::debugfs_write(&place, &[&format!("sif a block[5] {journal}")]);
    let device = CrashDevice::over(Content::of_file(&place));
    let changes = staged(Arc::new(device.clone()));
    let open = Open::of(Arc::clone(changes.fs()));
    let write = Op::Write {
        path: "a".to_owned(),
        offset: 0,
        len: 4,
    };
    let tag = Tag { lane: 0, op: 0 };
    let done = Extant::default().perform(&open, &write, tag);
    assert!(done.is_err(), "{done:?}");
    open.let_go();
    assert_eq!(device.log().writes(), 0);
}
