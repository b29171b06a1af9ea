//! Files and directories that Linux keeps inside their inodes, and that outgrow them.

use super::engine::Extant;
use super::runs::{RandomPlan, amount, busy, every, random_runs};
use super::shapes::Shape;
use super::sweep_all;
use extant_core::fs::DataMode;
use extant_testkit::crash::Content;
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Op, Universe};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::debugfs;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Prepared, Script, Sweep};

pub(super) const INLINE: Shape = Shape {
    name: "inline data",
    kib: 12 << 10,
    block_size: 1024,
    options: &["-O", "inline_data,^resize_inode"],
};

/// A file system that Linux has filled with what fits inode records, and some that has attributes
/// besides.
fn filled() -> Prepared {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    INLINE.content().write_to(&path).unwrap();
    let mount = KernelMount::mount(&path, Mode::ReadWrite, "");
    let mut lane = INLINE.empty().lanes[0].clone();
    let own = str::to_owned;
    let create = |name| Op::Create {
        path: own(name),
        mode: 0o644,
    };
    let write = |name, len| Op::Write {
        path: own(name),
        offset: 0,
        len,
    };
    let ops = [
        Op::Mkdir {
            path: own("a"),
            mode: 0o755,
        },
        Op::Mkdir {
            path: own("b"),
            mode: 0o755,
        },
        create("f"),
        write("f", 40),
        create("g"),
        write("g", 100),
        create("a/f"),
        Op::SetXattr {
            path: own("g"),
            name: own("user.a"),
            len: 10,
        },
        create("b/g"),
        write("b/g", 70),
    ];
    for op in ops {
        lane.run_mounted(mount.path(), op).unwrap();
    }
    lane.mark_durable();
    mount.unmount();
    // Linux puts an empty file there with its first byte.
    for name in ["/a", "/b", "/f", "/g", "/b/g"] {
        let flags = debugfs(&path, &format!("stat {name}"));
        assert!(flags.contains("Flags: 0x10000000"), "{name}: {flags}");
    }
    Prepared {
        content: Content::of_file(&path),
        lanes: vec![lane],
        bystanders: Vec::new(),
    }
}

#[test]
fn what_lies_inside_inodes_outgrows_them_under_any_operation_and_crash() {
    require!(Root, LoopDevices, KernelExt4);
    let start = filled();
    for mode in [DataMode::Delayed, DataMode::Through] {
        let engine = Extant {
            keeps_open: 1,
            checkpoints: true,
            mode,
            ..Extant::default()
        };
        let scripts = Script::singles(&Universe::small(), start.lanes[0].state());
        let sweep = Sweep {
            checked_every: 8,
            others_every: every(150),
            ..Sweep::of(if is_full_run() { 4000 } else { 12 }, 1)
        };
        let report = sweep_all(INLINE.name, &engine, &start, &scripts, &sweep);
        assert!(report.distinct > 100, "{report}");
    }
}

/// Few bytes here and there, so that files stay in their inodes for a while, and attributes that
/// want the same room.
fn small() -> Universe {
    Universe {
        writes: vec![(0, 30), (10, 60), (50, 40), (0, 100), (120, 20), (90, 2000)],
        sizes: vec![0, 20, 59, 61, 99, 3000],
        xattrs: vec![("user.a".to_owned(), 10), ("user.b".to_owned(), 60)],
        ..busy(10)
    }
}

#[test]
fn runs_among_small_files_survive_any_crash() {
    let seed = seed_from_env("crash runs among small files");
    let mut rng = Rng::new(seed);
    let start = INLINE.empty();
    for mode in [DataMode::Delayed, DataMode::Placed, DataMode::Through] {
        let engine = Extant {
            keeps_open: 1,
            checkpoints: true,
            mode,
            ..Extant::default()
        };
        let mut script = |_| Script::random(&small(), &mut rng, &start, 120);
        let scripts: Vec<Script> = (0..amount(1, 40)).map(&mut script).collect();
        let sweep = Sweep {
            checked_every: 8,
            others_every: every(60),
            ..Sweep::of(amount(100, 4000), seed)
        };
        let report = sweep_all(INLINE.name, &engine, &start, &scripts, &sweep);
        assert!(report.distinct > 50, "{report}");
    }
}

/// So many names in three directories that those fill their inodes, and some names that never fit
/// there.
pub(super) fn names() -> Universe {
    let dirs = ["d", "d/sub", "e", "e/d"].map(str::to_owned);
    let long = "n".repeat(90);
    let name = |dir: &String, n: usize| match n {
        0 => format!("{dir}/{long}"),
        1..4 => format!("{dir}/name-of-{n}"),
        _ => format!("{dir}/{n}"),
    };
    let files = dirs
        .iter()
        .flat_map(|dir| (0..11).map(move |n| name(dir, n)));
    Universe {
        files: files.collect(),
        dirs: dirs.to_vec(),
        writes: vec![(0, 30), (10, 200)],
        xattrs: vec![("user.a".to_owned(), 10), ("user.b".to_owned(), 60)],
        syncs: 12,
        allows: |op| {
            !matches!(
                op,
                Op::Allocate { .. } | Op::Zero { .. } | Op::Shift { .. } | Op::Truncate { .. }
            )
        },
        ..Universe::small()
    }
}

#[test]
fn names_in_inodes_survive_any_crash() {
    let seed = seed_from_env("crash runs of names in inodes");
    let shapes = [
        INLINE,
        Shape {
            name: "inline data, larger inodes, no index",
            options: &["-O", "inline_data,^dir_index,^resize_inode", "-I", "512"],
            ..INLINE
        },
    ];
    for shape in shapes {
        let engine = Extant {
            keeps_open: 1,
            checkpoints: true,
            ..Extant::default()
        };
        let start = shape.lanes(&engine, 2);
        let plan = RandomPlan {
            universe: names(),
            runs: amount(2, 40),
            len: 120,
            images: amount(150, 4000),
            others_every: every(60),
        };
        random_runs(shape.name, seed, &engine, &start, &plan);
    }
}
