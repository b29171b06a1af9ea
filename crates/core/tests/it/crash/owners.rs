//! What owners use is counted in the same transaction: e2fsck counts again after each recovery.

use super::engine::{Extant, REFUSED};
use super::runs::{amount, busy};
use super::shapes::Shape;
use super::sweep_all;
use extant_blockdev::FileDevice;
use extant_core::fs::{DataMode, Fs, MountOptions};
use extant_core::ops;
use extant_core::quota::{QuotaChange, QuotaKind, SideChange};
use extant_testkit::crash::Content;
use extant_testkit::model::{Op, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Prepared, Script, Sweep};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SHAPES: [Shape; 4] = [
    Shape {
        name: "quotas, 1 KiB blocks",
        kib: 6 << 10,
        block_size: 1024,
        options: &["-O", "quota,project,^resize_inode"],
    },
    Shape {
        name: "quotas, orphan file",
        kib: 16 << 10,
        block_size: 4096,
        options: &["-O", "quota,orphan_file,^resize_inode"],
    },
    Shape {
        name: "quotas, clusters",
        kib: 16 << 10,
        block_size: 1024,
        options: &["-O", "quota,project,bigalloc,^resize_inode", "-C", "4096"],
    },
    Shape {
        name: "quotas, values in inodes",
        kib: 16 << 10,
        block_size: 1024,
        options: &["-O", "quota,project,ea_inode,^resize_inode"],
    },
];

fn engine() -> Extant {
    Extant {
        keeps_open: 1,
        checkpoints: true,
        writes_back: 5,
        ..Extant::default()
    }
}

#[test]
fn each_operation_alone_is_counted_after_any_crash() {
    // Files that lose their last name while they are open are counted until they are closed.
    let engine = engine();
    let shapes = amount(1, SHAPES.len());
    for shape in &SHAPES[..shapes] {
        let start = shape.filled(&engine);
        let scripts = Script::singles(&Universe::small(), start.lanes[0].state());
        let sweep = Sweep {
            checked_every: 6,
            closes: true,
            ..Sweep::of(amount(5, 4000), 1)
        };
        sweep_all(shape.name, &engine, &start, &scripts, &sweep);
    }
}

/// Operations by chance, in which files and directories change hands.
fn given_away(universe: &Universe, rng: &mut Rng, start: &Prepared) -> Script {
    let mut script = Script::random(universe, rng, start, 120);
    let has_large = universe.xattrs.iter().any(|(_, len)| *len > 1024);
    // Random ones give away few files, and give few attributes.
    for ops in &mut script.lanes {
        let mut given = Vec::new();
        for op in std::mem::take(ops) {
            let made = match &op {
                Op::Create { path, .. } | Op::Mkdir { path, .. } => Some(path.clone()),
                _ => None,
            };
            given.push(op);
            if let (Some(path), true, true) = (&made, has_large, rng.one_in(2)) {
                let (name, len) = rng.pick(&universe.xattrs).clone();
                let path = path.clone();
                given.push(Op::SetXattr { path, name, len });
            }
            given.extend(made.map(|path| Op::Chown {
                path,
                uid: rng.below(8) as u32 * 0x0101_0007,
                gid: rng.below(1 << 31) as u32,
            }));
        }
        *ops = given;
    }
    script
}

/// Many names, and attributes; with those that are charged by inode where the shape has them.
fn busy_with(shape: &Shape) -> Universe {
    let mut universe = busy(8);
    if shape.options.iter().any(|o| o.contains("ea_inode")) {
        for (name, len) in [("user.a", 3000), ("user.bb", 3000), ("user.bb", 9000)] {
            universe.xattrs.push((name.to_owned(), len));
        }
    }
    universe
}

/// A file system on which the owners of [`given_away`] may have little.
fn with_limits(content: &Content) -> Content {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    content.write_to(&path).unwrap();
    let device = Arc::new(FileDevice::open(&path).unwrap());
    let fs = Fs::open(device, MountOptions::read_write().background(false)).unwrap();
    let hard = |most| SideChange {
        hard: Some(most),
        soft: None,
    };
    for user in 0..8 {
        let in_use = ops::quota(&*fs, QuotaKind::User, 0).unwrap().unwrap();
        let change = match user {
            0 => QuotaChange {
                space: hard(in_use.space + (60 << 10)),
                inodes: hard(in_use.inodes + 8),
            },
            _ => QuotaChange {
                space: hard(16 << 10),
                inodes: hard(2),
            },
        };
        ops::set_quota(&*fs, QuotaKind::User, user * 0x0101_0007, change).unwrap();
    }
    fs.close().unwrap();
    drop(fs);
    Content::of_file(&path)
}

#[test]
fn runs_of_many_owners_at_their_limits_are_counted_after_any_crash() {
    let seed = seed_from_env("crash runs of limited owners");
    let mut rng = Rng::new(seed);
    let before = REFUSED.load(Ordering::Relaxed);
    for shape in SHAPES {
        let start = shape.beginning_with(with_limits(&shape.content()));
        let engine = Extant {
            limited: true,
            mode: if shape.options.contains(&"-C") || rng.one_in(2) {
                DataMode::Delayed
            } else {
                DataMode::Through
            },
            ..engine()
        };
        let universe = busy_with(&shape);
        let scripts: Vec<Script> = (0..amount(2, 30))
            .map(|_| given_away(&universe, &mut rng, &start))
            .collect();
        let sweep = Sweep {
            checked_every: 6,
            closes: true,
            ..Sweep::of(amount(80, 3000), seed)
        };
        sweep_all(shape.name, &engine, &start, &scripts, &sweep);
    }
    let refused = REFUSED.load(Ordering::Relaxed) - before;
    assert!(refused > 0, "{refused}");
}

#[test]
fn runs_among_many_owners_are_counted_after_any_crash() {
    let seed = seed_from_env("crash runs among owners");
    let mut rng = Rng::new(seed);
    let engine = engine();
    for shape in SHAPES {
        let start = shape.empty();
        let universe = busy_with(&shape);
        let mut script = |_| given_away(&universe, &mut rng, &start);
        let scripts: Vec<Script> = (0..amount(2, 30)).map(&mut script).collect();
        let sweep = Sweep {
            checked_every: 6,
            closes: true,
            ..Sweep::of(amount(100, 3000), seed)
        };
        let report = sweep_all(shape.name, &engine, &start, &scripts, &sweep);
        assert!(report.distinct > 50, "{report}");
    }
}
