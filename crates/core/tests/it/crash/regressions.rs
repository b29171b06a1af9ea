//! What sweeps have found, as short as it gets.

use super::engine::Extant;
use super::shapes::{DEFAULT, SMALL_BLOCKS};
use super::sweep_all;
use extant_testkit::model::Op;
use extant_testkit::sweep::{Prepared, Script, Sweep};

fn create(path: &str) -> Op {
    Op::Create {
        path: path.to_owned(),
        mode: 0o644,
    }
}

fn write(path: &str, offset: u64, len: u64) -> Op {
    Op::Write {
        path: path.to_owned(),
        offset,
        len,
    }
}

fn fdatasync(path: &str) -> Op {
    Op::Fdatasync {
        path: path.to_owned(),
    }
}

fn survives(name: &str, start: &Prepared, ops: Vec<Op>) {
    let scripts = [Script::one(ops)];
    sweep_all(
        name,
        &Extant::default(),
        start,
        &scripts,
        &Sweep::of(500, 1),
    );
}

#[test]
fn fdatasync_of_a_directory_makes_its_names_durable() {
    let start = DEFAULT.filled(&Extant::default());
    let ops = vec![create("a/new"), fdatasync("a"), create("more")];
    survives("fdatasync of a directory", &start, ops);
}

#[test]
fn fdatasync_of_a_new_file_makes_the_file_durable() {
    let start = DEFAULT.filled(&Extant::default());
    let ops = vec![create("new"), fdatasync("new"), create("more")];
    survives("fdatasync of a new file", &start, ops);
}

#[test]
fn fdatasync_makes_extents_durable_that_lie_outside_the_inode() {
    let engine = Extant::default();
    let mut ops = vec![create("pieces")];
    ops.extend((0..12).map(|i| write("pieces", 4096 * i, 1024)));
    let start = SMALL_BLOCKS.empty().done(&engine, &Script::one(ops));
    let start = start.unwrap_or_else(|e| panic!("{e}"));
    let ops = vec![
        write("pieces", 2048, 1024),
        fdatasync("pieces"),
        create("more"),
    ];
    survives("fdatasync of a deep file", &start, ops);
}
