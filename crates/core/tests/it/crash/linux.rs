//! Both directions with Linux: what we leave dirty it recovers, and what it leaves dirty we
//! recover.

use super::engine::{Extant, tree_of};
use super::shapes::SHAPES;
use extant_blockdev::SharedDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_testkit::crash::{Content, CrashDevice};
use extant_testkit::model::{
    DataPromise, History, Judge, Lane, Op, Outcome, Recovered, Universe, perform_mounted,
};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Engine, Script};
use extant_testkit::tree::Tree;
use std::sync::Arc;

/// In which state the file system is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// In the middle of things: the last operations are not synced.
    Unsynced,
    /// After `syncfs`: everything is in the log, and nothing need be at home.
    Synced,
    /// Frozen: complete, clean, and still open.
    Frozen,
}

/// An open file system is copied, as a crash would leave it: Linux, `e2fsck` and we make the same
/// of the copy.
#[test]
fn what_we_leave_dirty_is_recovered_alike_by_linux_by_e2fsck_and_by_us() {
    require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("left dirty by us");
    let mut rng = Rng::new(seed);
    let engine = Extant {
        keeps_open: 2,
        ..Extant::default()
    };
    for shape in SHAPES {
        let start = shape.filled(&engine);
        let script = Script::random(&Universe::small(), &mut rng, &start, 120);
        let device = CrashDevice::over(start.content.clone());
        let open = engine.open(Arc::new(device.clone())).unwrap();
        let mut lane = start.lanes[0].clone();
        for op in &script.lanes[0] {
            lane.run(Some(&device), op.clone(), |op, tag| {
                engine.perform(&open, op, tag)
            })
            .unwrap_or_else(|e| panic!("{}: {e}", shape.name));
        }
        let mut frozen = None;
        for left in [Left::Unsynced, Left::Synced, Left::Frozen] {
            let name = format!("{}, {left:?}", shape.name);
            let mut freeze = || {
                // No orphans: those are no operations of the lane.
                open.let_go();
                frozen = Some(open.fs.freeze().unwrap());
                Ok(0)
            };
            let done = match left {
                Left::Unsynced => Ok(Outcome::Done),
                Left::Synced => lane.run(Some(&device), Op::Syncfs, |op, tag| {
                    engine.perform(&open, op, tag)
                }),
                Left::Frozen => lane.run(Some(&device), Op::Syncfs, |_, _| freeze()),
            };
            assert_eq!(done, Ok(Outcome::Done), "{name}");
            let history = History::new(seed, vec![lane.clone()]).promising(engine.promise());
            let log = device.log();
            let judge = Judge::new(&history, &log);
            let point = log.events().len();
            let there = recovered_alike(&engine, &device.content(), left, &name, |found| {
                judge.point(point, found).unwrap()[0]
            });
            let all = history.lanes()[0].len();
            println!("{name}: {there} of {all} operations");
            assert!(left == Left::Unsynced || there == all, "{name}");
        }
        drop(frozen);
    }
}

/// Has three recover copies of `content` to the same tree, which `judge` makes a number of.
fn recovered_alike(
    engine: &Extant,
    content: &Content,
    left: Left,
    name: &str,
    judge: impl Fn(&Recovered) -> usize,
) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    for name in ["kernel", "e2fsck"] {
        content.write_to(&place(name)).unwrap();
    }
    let is_clean = left == Left::Frozen;
    if is_clean {
        oracle::check_clean(&place("kernel")).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let to_recover = oracle::dumpe2fs_header(&place("kernel")).has_feature("needs_recovery");
    assert_eq!(to_recover, !is_clean, "{name}");
    let kernel = oracle::kernel_recover(&place("kernel")).unwrap();
    oracle::e2fsck_recover(&place("e2fsck")).unwrap();
    let e2fsck = oracle::kernel_reads(&place("e2fsck")).unwrap();
    let device = CrashDevice::over(content.clone());
    let ours = engine.open(Arc::new(device.clone())).unwrap();
    assert_eq!(ours.fs.was_replayed(), !is_clean, "{name}");
    let found = engine.tree(&ours).unwrap();
    engine.close(ours).unwrap();
    device.content().write_to(&place("ours")).unwrap();
    oracle::check_clean(&place("ours")).unwrap();
    let ours = oracle::kernel_reads(&place("ours")).unwrap();
    let trees: [(&str, &Tree); 3] = [
        ("the kernel", &kernel.tree),
        ("e2fsck", &e2fsck.tree),
        ("we", &ours.tree),
    ];
    oracle::same_recovery(&trees).unwrap_or_else(|e| panic!("{name}: {e}"));
    let there = judge(&kernel.found);
    assert_eq!(there, judge(&found), "{name}");
    there
}

/// The kernel works and is shut down with changes in the journal; its own recovery of a copy is the
/// measure.
#[test]
fn what_linux_leaves_dirty_we_recover_to_what_linux_recovers() {
    require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("left dirty by Linux");
    let mut rng = Rng::new(seed);
    let ways = [
        Shutdown::FlushLog,
        Shutdown::Now,
        Shutdown::Sync,
        Shutdown::Now,
    ];
    for (shape, how) in SHAPES.into_iter().zip(ways) {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        let made = shape.content();
        made.write_to(&place("kernel")).unwrap();
        let mount = KernelMount::mount(&place("kernel"), Mode::ReadWrite, "");
        // The device only keeps the marks.
        let marks = CrashDevice::over(Content::zeros(4096));
        let mut lane = Lane::new(0, "").block_size(shape.block_size);
        let universe = Universe::small();
        for _ in 0..120 {
            let op = universe.random(&mut rng, lane.state());
            let perform = |op: &Op, tag| perform_mounted(mount.path(), "", op, tag);
            lane.run(Some(&marks), op, perform)
                .unwrap_or_else(|e| panic!("{}: {e}", shape.name));
        }
        mount.shutdown(how);
        std::fs::copy(place("kernel"), place("ours")).unwrap();

        let device = Content::of_file(&place("ours"));
        let device: SharedDevice = Arc::new(CrashDevice::over(device));
        let options = MountOptions::read_write().background(false);
        let fs = Fs::open(Arc::clone(&device), options).unwrap();
        // What is frozen first is complete.
        let is_complete = matches!(how, Shutdown::Sync);
        assert_eq!(fs.was_replayed(), !is_complete, "{} {how:?}", shape.name);
        let found = tree_of(&fs).unwrap();
        fs.close().unwrap();
        let content = Content::of_device(&*device).unwrap();
        content.write_to(&place("ours")).unwrap();
        oracle::check_clean(&place("ours")).unwrap();
        let kernel = oracle::kernel_recover(&place("kernel")).unwrap();
        let ours = oracle::kernel_reads(&place("ours")).unwrap();
        let trees: [(&str, &Tree); 2] = [("the kernel", &kernel.tree), ("we", &ours.tree)];
        oracle::same_recovery(&trees).unwrap_or_else(|e| panic!("{}: {e}", shape.name));
        let history = History::new(seed, vec![lane]).promising(DataPromise::Delayed);
        let log = marks.log();
        let judge = Judge::new(&history, &log);
        let end = log.events().len();
        let there = judge.point(end, &kernel.found).unwrap();
        assert_eq!(there, judge.point(end, &found).unwrap(), "{}", shape.name);
        println!(
            "{} {how:?}: {} of {} operations",
            shape.name,
            there[0],
            history.lanes()[0].len()
        );
        if !matches!(how, Shutdown::Now) {
            assert_eq!(there[0], history.lanes()[0].len(), "{} {how:?}", shape.name);
        }
    }
}
