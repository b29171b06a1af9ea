//! Directories of many blocks: of names so long that three or four fit one, where every second new
//! name splits a block.

use super::engine::Extant;
use super::runs::{RandomPlan, amount, every, random_runs};
use super::shapes::{DEFAULT, PLAIN, SMALL_BLOCKS, Shape};
use super::sweep_all;
use extant_testkit::crash::Content;
use extant_testkit::model::{Op, Universe};
use extant_testkit::oracle::debugfs;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Prepared, Script, Sweep};

/// No index: names lie in any block, and new blocks come at the end.
const LINEAR: Shape = Shape {
    name: "1 KiB blocks, no index",
    options: &["-O", "^dir_index,^resize_inode"],
    ..SMALL_BLOCKS
};

/// Names of the directory before a run, of twice as many that there may be.
const NAMES: usize = 30;
/// Names of that length in a block of 1 KiB, at most.
const IN_BLOCK: usize = 4;

/// Blocks of a directory whose index is full, but for another level: the root, and what that can
/// lead to.
const FULL: u64 = 124;

fn engine() -> Extant {
    Extant {
        keeps_open: 1,
        checkpoints: true,
        ..Extant::default()
    }
}

/// What debugfs says about the directory `path`.
fn said(content: &Content, request: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    content.write_to(&image).unwrap();
    debugfs(&image, request)
}

/// Blocks of 1 KiB that a directory has.
fn blocks(content: &Content, path: &str) -> u64 {
    let stat = said(content, &format!("stat {path}"));
    let size = stat.split("Size: ").nth(1).expect("a size");
    let size = size.split_whitespace().next().expect("a number");
    size.parse::<u64>().expect("a number") / 1024
}

/// How large a directory is when `script` ran without a crash.
fn blocks_after(start: &Prepared, script: &Script, path: &str) -> u64 {
    let end = start.done(&engine(), script);
    blocks(&end.unwrap_or_else(|e| panic!("{e}")).content, path)
}

#[test]
fn each_name_that_comes_or_goes_is_there_or_not_after_any_crash() {
    for shape in [SMALL_BLOCKS, LINEAR] {
        let start = shape.with_names(&engine(), NAMES);
        let before = blocks(&start.content, "/d");
        // More than fit into the blocks that are there, and a few of those that are there.
        let enough = (NAMES + 6).max(IN_BLOCK * before as usize + 1);
        let (mut new, there) = (0, NAMES - 4);
        let universe = Universe::long_names("d/", enough);
        let files = universe.files[there..].to_vec();
        let universe = Universe {
            files,
            writes: Vec::new(),
            ..universe
        };
        let mut scripts = Script::singles(&universe, start.lanes[0].state());
        let stays = amount(6, 1);
        scripts.retain(|_| {
            new += 1;
            new % stays == 0
        });
        let created = (NAMES..enough).map(|n| universe.files[n - there].clone());
        let created = created.map(|path| Op::Create { path, mode: 0o644 });
        let all = Script::one(created.chain([Op::Syncfs]).collect());
        let after = blocks_after(&start, &all, "/d");
        assert!(after > before, "{}: {before} to {after}", shape.name);
        scripts.push(all);
        let sweep = Sweep {
            checked_every: 16,
            ..Sweep::of(amount(40, 4000), 1)
        };
        sweep_all(shape.name, &engine(), &start, &scripts, &sweep);
    }
}

#[test]
fn directories_that_split_survive_any_crash() {
    let seed = seed_from_env("crash runs of directories that split");
    for shape in [SMALL_BLOCKS, PLAIN, LINEAR] {
        let start = shape.with_names(&engine(), NAMES);
        let plan = RandomPlan {
            universe: Universe::long_names("d/", 2 * NAMES),
            runs: amount(1, 20),
            len: 120,
            images: amount(200, 3000),
            others_every: every(150),
        };
        random_runs(shape.name, seed, &engine(), &start, &plan);
    }
}

/// A directory `d` whose index needs another level before the next block of names; all names are of
/// one file.
pub(super) fn full_index(engine: &Extant) -> Prepared {
    let name = |n: usize| format!("d/{n:04}{}", "name".repeat(60));
    let first = || name(0);
    let mkdir = Op::Mkdir {
        path: "d".to_owned(),
        mode: 0o755,
    };
    let create = Op::Create {
        path: first(),
        mode: 0o644,
    };
    let done = |start: &Prepared, ops| {
        let done = start.done(engine, &Script::one(ops));
        done.unwrap_or_else(|e| panic!("{e}"))
    };
    let mut start = done(&SMALL_BLOCKS.empty(), vec![mkdir, create]);
    let mut names = 1;
    loop {
        let missing = FULL.saturating_sub(blocks(&start.content, "/d"));
        if missing == 0 {
            return start;
        }
        // A new name takes a block at most.
        let more = names..names + missing as usize;
        names = more.end;
        let link = |n| Op::Link {
            from: first(),
            to: name(n),
        };
        start = done(&start, more.map(link).collect());
    }
}

#[test]
fn an_index_that_gets_another_level_survives_any_crash() {
    let seed = seed_from_env("crash runs of an index that grows");
    let start = full_index(&engine());
    let levels = |content: &Content| {
        let dump = said(content, "htree_dump /d");
        let levels = dump.split("Indirect levels: ").nth(1).expect("levels");
        levels.chars().next().expect("a number")
    };
    assert_eq!(levels(&start.content), '0');
    let universe = Universe {
        syncs: 25,
        ..Universe::long_names("d/", 100)
    };
    let new = |count: usize| {
        let paths = universe.files[..count].iter().cloned();
        paths.map(|path| Op::Create { path, mode: 0o644 })
    };
    let grows = |count: &usize| {
        let end = start.done(&engine(), &Script::one(new(*count).collect()));
        levels(&end.unwrap_or_else(|e| panic!("{e}")).content) == '1'
    };
    // Which names split a block is a matter of their hashes.
    let enough = [4, 8, 16, 32, 64, 100].into_iter().find(grows);
    let enough = enough.expect("another level");
    let mut rng = Rng::new(seed);
    let script = |_| {
        let mut state = start.lanes[0].state().clone();
        let mut ops = Vec::new();
        for op in new(enough) {
            state.apply(&op).expect("a new name");
            ops.push(op);
            ops.extend(rng.one_in(4).then_some(Op::Syncfs));
        }
        for _ in 0..20 {
            let op = universe.random(&mut rng, &state);
            let _ = state.apply(&op);
            ops.push(op);
        }
        Script::one(ops)
    };
    let scripts: Vec<Script> = (0..amount(1, 20)).map(script).collect();
    let sweep = Sweep {
        checked_every: 16,
        others_every: every(150),
        ..Sweep::of(amount(150, 3000), seed)
    };
    sweep_all("another level", &engine(), &start, &scripts, &sweep);
}

#[test]
fn runs_of_threads_in_one_directory_survive_any_crash() {
    let seed = seed_from_env("crash runs of threads in one directory");
    for (shape, threads) in [(SMALL_BLOCKS, 2), (DEFAULT, 4)] {
        let engine = engine();
        let start = shape.lanes_together(&engine, threads);
        let plan = RandomPlan {
            universe: Universe::long_names("", 24),
            runs: amount(2, 30),
            len: 60,
            images: amount(200, 3000),
            others_every: every(150),
        };
        random_runs(shape.name, seed, &engine, &start, &plan);
    }
}
