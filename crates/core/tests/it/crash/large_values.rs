//! Attribute values in inodes of their own, crashed.

use super::engine::Extant;
use super::shapes::Shape;
use super::sweep_all;
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Op, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Script, Sweep};

const SHAPES: [Shape; 3] = [
    Shape {
        name: "values in inodes",
        kib: 16 << 10,
        block_size: 4096,
        options: &["-O", "ea_inode,^resize_inode"],
    },
    Shape {
        name: "values in inodes, small ones, orphan file",
        kib: 12 << 10,
        block_size: 1024,
        options: &["-O", "ea_inode,orphan_file,^resize_inode", "-I", "128"],
    },
    CHARGED,
];

/// Files pay for values, whatever else has them.
pub(super) const CHARGED: Shape = Shape {
    name: "values in inodes, charged to owners",
    kib: 12 << 10,
    block_size: 1024,
    options: &["-O", "ea_inode,quota,project,^resize_inode", "-I", "256"],
};

pub(super) fn universe() -> Universe {
    let values = [
        ("user.a", 60),
        ("user.a", 5000),
        ("user.bb", 250),
        ("user.bb", 9000),
        ("user.a", 20_000),
    ];
    Universe {
        xattrs: values.map(|(name, len)| (name.to_owned(), len)).to_vec(),
        allows: |op| {
            matches!(
                op,
                Op::SetXattr { .. }
                    | Op::RemoveXattr { .. }
                    | Op::Unlink { .. }
                    | Op::Create { .. }
                    | Op::Link { .. }
                    | Op::Rename { .. }
                    | Op::Chown { .. }
                    | Op::Fsync { .. }
                    | Op::Syncfs
            )
        },
        ..Universe::small()
    }
}

fn engine() -> Extant {
    Extant {
        keeps_open: 1,
        checkpoints: true,
        ..Extant::default()
    }
}

#[test]
fn each_change_of_a_large_value_is_there_or_not_after_any_crash() {
    for shape in SHAPES {
        let start = shape.filled(&engine());
        let scripts = Script::singles(&universe(), start.lanes[0].state());
        let sweep = Sweep {
            checked_every: 4,
            ..Sweep::of(if is_full_run() { 400 } else { 24 }, 1)
        };
        sweep_all(shape.name, &engine(), &start, &scripts, &sweep);
    }
}

#[test]
fn runs_of_changes_of_large_values_survive_any_crash() {
    let seed = seed_from_env("crash large values");
    let mut rng = Rng::new(seed);
    for shape in SHAPES {
        let start = shape.filled(&engine());
        let all = Script::singles(&universe(), start.lanes[0].state());
        let runs = if is_full_run() { 200 } else { 5 };
        let script = |rng: &mut Rng| {
            let ops = (0..25).flat_map(|_| rng.pick(&all).lanes.concat());
            Script::one(ops.collect())
        };
        let scripts: Vec<Script> = (0..runs).map(|_| script(&mut rng)).collect();
        let sweep = Sweep {
            checked_every: 8,
            ..Sweep::of(40, seed)
        };
        sweep_all(shape.name, &engine(), &start, &scripts, &sweep);
    }
}
