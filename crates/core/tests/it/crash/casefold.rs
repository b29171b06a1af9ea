//! Directories that do not tell upper from lower case: each operation spells the names its own way.

use super::engine::Extant;
use super::runs::{RandomPlan, amount, every, random_runs};
use super::shapes::Shape;
use extant_testkit::crash::Content;
use extant_testkit::model::Universe;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::debugfs_write;
use extant_testkit::rng::seed_from_env;
use extant_testkit::sweep::Prepared;

const FOLDED: Shape = Shape {
    name: "folded names",
    kib: 8 << 10,
    block_size: 1024,
    options: &["-O", "casefold,^resize_inode", "-E", "encoding=utf8"],
};

/// The directories of so many lanes do not tell case apart, nor does what is made in them.
fn lanes(engine: &Extant, lanes: u16) -> Prepared {
    let made = FOLDED.lanes(engine, lanes);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    made.content.write_to(&path).unwrap();
    for lane in 0..lanes {
        // Extents, and the flag.
        let request = format!("set_inode_field /lane{lane} flags 0x40080000");
        debugfs_write(&path, &[&request]);
    }
    Prepared {
        content: Content::of_file(&path),
        ..made
    }
}

/// Of how many images others see one: none where the kernel knows no such directories.
fn others(start: &Prepared) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    start.content.write_to(&path).unwrap();
    match KernelMount::try_mount(&path, Mode::ReadWrite, "") {
        Ok(_) => every(60),
        Err(error) => {
            eprintln!("SKIPPED: needs a kernel with casefold ({error}): what it recovers");
            0
        }
    }
}

fn engine() -> Extant {
    Extant {
        keeps_open: 1,
        checkpoints: true,
        respells: true,
        ..Extant::default()
    }
}

#[test]
fn names_of_any_spelling_survive_any_crash() {
    let seed = seed_from_env("crash runs of folded names");
    let start = lanes(&engine(), 2);
    let others_every = others(&start);
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let plan = RandomPlan {
        universe: Universe {
            files: own(&[
                "f",
                "\u{e9}t\u{e9}",
                "sub/f",
                "sub/\u{e9}t\u{e9}",
                "sub/name",
                "other/f",
            ]),
            dirs: own(&["sub", "other", "sub/dir"]),
            syncs: 15,
            ..Universe::small()
        },
        runs: amount(2, 30),
        len: 80,
        images: amount(200, 3000),
        others_every,
    };
    random_runs(FOLDED.name, seed, &engine(), &start, &plan);
}

#[test]
fn an_index_of_folded_names_survives_any_crash() {
    let seed = seed_from_env("crash runs of an index of folded names");
    let start = lanes(&engine(), 1);
    let others_every = others(&start);
    let plan = RandomPlan {
        universe: Universe::long_names("", 40),
        runs: amount(2, 30),
        len: 120,
        images: amount(200, 3000),
        others_every,
    };
    random_runs("an index of folded names", seed, &engine(), &start, &plan);
}
