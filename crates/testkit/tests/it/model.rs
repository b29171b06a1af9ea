//! The model agrees with the kernel about every operation, and its judge tells legal states from
//! illegal ones.

use extant_testkit::crash::{Content, CrashDevice};
use extant_testkit::model::{
    DataPromise, Found, FoundKind, History, Judge, Lane, Op, Recovered, Tag, Universe, tagged,
};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tree::Time;
use extant_testkit::{oracle, require};
use rustix::io::Errno;

#[test]
fn the_kernel_gives_every_result_that_the_model_expects() {
    require!(KernelExt4);
    let seed = seed_from_env("the_kernel_gives_every_result_that_the_model_expects");
    let image = tempfile::NamedTempFile::new().expect("a file");
    oracle::mke2fs(image.path(), 64 << 20, &["-t", "ext4"]);
    let mount = KernelMount::mount(image.path(), Mode::ReadWrite, "");
    let mut rng = Rng::new(seed);
    let mut lanes = Vec::new();
    for (number, universe) in [Universe::small(), Universe::wide(3, 4)].iter().enumerate() {
        std::fs::create_dir(mount.join(format!("lane{number}"))).expect("mkdir");
        let mut lane = Lane::new(number as u16, &format!("lane{number}/"));
        for _ in 0..1500 {
            let op = if rng.one_in(4) {
                rng.pick(&universe.all()).clone()
            } else {
                universe.random(&mut rng, lane.state())
            };
            // Syncing is slow and changes nothing here.
            if op != Op::Syncfs {
                lane.run_mounted(mount.path(), op).expect("as expected");
            }
        }
        lanes.push(lane);
    }
    let found = Recovered::of_directory(mount.path()).expect("the tree");
    mount.unmount();
    let history = History::new(seed, lanes);
    history.check_final(&found).expect("the final state");
    assert!(found.entries.len() > 20, "{} entries", found.entries.len());
}

/// A run of operations that all succeed, and trees to judge it by.
struct Run {
    device: CrashDevice,
    lanes: Vec<Lane>,
}

impl Run {
    fn new(lanes: u16) -> Run {
        let prefix = |n| match lanes {
            1 => String::new(),
            _ => format!("lane{n}/"),
        };
        Run {
            device: CrashDevice::over(Content::zeros(4096)),
            lanes: (0..lanes).map(|n| Lane::new(n, &prefix(n))).collect(),
        }
    }

    /// Does operations in the first lane.
    fn ops<const N: usize>(ops: [Op; N]) -> Run {
        let mut run = Run::new(1);
        for op in ops {
            run.done(0, op);
        }
        run
    }

    fn done(&mut self, lane: usize, op: Op) {
        let device = self.device.clone();
        self.lanes[lane]
            .run(Some(&device), op, |op, _| match op {
                Op::Write { len, .. } => Ok(*len),
                _ => Ok(0),
            })
            .expect("it succeeds");
    }

    /// Judges a tree found after a crash at the end of the run.
    fn judge(self, found: &Recovered) -> Result<Vec<usize>, String> {
        self.judge_promising(DataPromise::InOrder, found)
    }

    fn judge_promising(
        self,
        promise: DataPromise,
        found: &Recovered,
    ) -> Result<Vec<usize>, String> {
        let log = self.device.log();
        let history = History::new(7, self.lanes).promising(promise);
        let verdict = Judge::new(&history, &log).point(log.events().len(), found);
        println!("{verdict:?}");
        verdict.map_err(|e| e.to_string())
    }
}

fn create(path: &str) -> Op {
    Op::Create {
        path: path.to_owned(),
        mode: 0o644,
    }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir {
        path: path.to_owned(),
        mode: 0o755,
    }
}

fn write(path: &str, offset: u64, len: u64) -> Op {
    Op::Write {
        path: path.to_owned(),
        offset,
        len,
    }
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

fn truncate(path: &str, size: u64) -> Op {
    Op::Truncate {
        path: path.to_owned(),
        size,
    }
}

fn fsync(path: &str) -> Op {
    Op::Fsync {
        path: path.to_owned(),
    }
}

fn unlink(path: &str) -> Op {
    Op::Unlink {
        path: path.to_owned(),
    }
}

fn directory(mode: u16, inode: u64, nlink: u64) -> Found {
    Found {
        kind: FoundKind::Directory,
        mode,
        uid: 0,
        gid: 0,
        nlink,
        inode,
        mtime: Time::default(),
        xattrs: std::collections::BTreeMap::new(),
        no_dump: None,
    }
}

fn file(inode: u64, size: u64, data: Vec<(u64, Vec<u8>)>) -> Found {
    Found {
        kind: FoundKind::File { size, data },
        ..directory(0o644, inode, 1)
    }
}

/// The root with these files in it.
fn tree<const N: usize>(files: [(&str, Found); N]) -> Recovered {
    let mut tree = Recovered::new();
    tree.insert("", directory(0o755, 2, 3));
    tree.insert("lost+found", directory(0o700, 11, 2));
    for (path, found) in files {
        tree.insert(path, found);
    }
    tree
}

fn empty(inode: u64) -> Found {
    file(inode, 0, Vec::new())
}

/// What operation `op` of the first lane wrote at `offset`.
fn wrote(op: u32, offset: u64, len: u64) -> (u64, Vec<u8>) {
    (offset, tagged(Tag { lane: 0, op }, offset, len))
}

#[test]
fn what_was_not_synced_may_be_there_or_not() {
    let run = || Run::ops([create("a"), create("b")]);
    assert_eq!(run().judge(&tree([])), Ok(vec![0]));
    assert_eq!(run().judge(&tree([("a", empty(12))])), Ok(vec![1]));
    let both = tree([("a", empty(12)), ("b", empty(13))]);
    assert_eq!(run().judge(&both), Ok(vec![2]));
    // Later ones do not come without earlier ones.
    let why = run().judge(&tree([("b", empty(12))])).expect_err("illegal");
    assert!(
        why.contains("a is missing") || why.contains("b should not"),
        "{why}"
    );
    assert!(why.contains("seed 0x7"), "{why}");
}

#[test]
fn a_lost_fsync_is_refused() {
    let run = || Run::ops([create("a"), write("a", 0, 4096), fsync("a"), create("b")]);
    let whole = file(12, 4096, vec![wrote(1, 0, 4096)]);
    assert_eq!(run().judge(&tree([("a", whole.clone())])), Ok(vec![3]));
    let why = run().judge(&tree([])).expect_err("illegal");
    assert!(why.contains("a is missing"), "{why}");
    let why = run()
        .judge(&tree([("a", file(12, 4096, Vec::new()))]))
        .expect_err("illegal");
    assert!(
        why.contains("holds zeros at byte 0 (legal: operation 1)"),
        "{why}"
    );
    let why = run().judge(&tree([("a", empty(12))])).expect_err("illegal");
    assert!(why.contains("a has size 0, not 4096"), "{why}");
}

#[test]
fn fsync_promises_what_changed_the_file_and_no_later_operation() {
    let run = || {
        let mut run = Run::ops([create("a"), create("b"), create("c")]);
        run.done(0, fsync("b"));
        run
    };
    let both = tree([("a", empty(12)), ("b", empty(13))]);
    assert_eq!(run().judge(&both), Ok(vec![2]));
    run()
        .judge(&tree([("a", empty(12))]))
        .expect_err("b was synced");
    let syncfs = || {
        let mut run = run();
        run.done(0, Op::Syncfs);
        run
    };
    syncfs()
        .judge(&both)
        .expect_err("c was there before syncfs");
}

#[test]
fn fdatasync_promises_size_and_data_but_no_mode() {
    let chmod = Op::Chmod {
        path: "a".to_owned(),
        mode: 0o600,
    };
    let data = Op::Fdatasync {
        path: "a".to_owned(),
    };
    let run = || {
        let mut run = Run::ops([create("a"), write("a", 0, 4096), chmod.clone()]);
        run.done(0, data.clone());
        run
    };
    let whole = file(12, 4096, vec![wrote(1, 0, 4096)]);
    assert_eq!(run().judge(&tree([("a", whole)])), Ok(vec![2]));
    run()
        .judge(&tree([("a", empty(12))]))
        .expect_err("the size");
}

#[test]
fn what_was_written_and_cut_off_again_is_nothing_that_fdatasync_has_to_store() {
    let chown = || Op::Chown {
        path: "f".to_owned(),
        uid: 7,
        gid: 7,
    };
    let datasync = || Op::Fdatasync {
        path: "f".to_owned(),
    };
    let written = write("f", 0, 4096);
    let found = tree([("f", empty(12))]);
    let begun = [create("f"), fsync("f"), chown(), written.clone()];
    let mut run = Run::ops(begun);
    run.done(0, truncate("f", 0));
    run.done(0, datasync());
    run.judge_promising(DataPromise::Delayed, &found)
        .expect("the record had that size all the time");
    let mut run = Run::ops([create("f"), written, fsync("f"), chown()]);
    run.done(0, truncate("f", 0));
    run.done(0, datasync());
    run.judge_promising(DataPromise::Delayed, &found)
        .expect_err("the size was changed, and the owner before");
}

#[test]
fn half_a_rename_is_refused() {
    let run = || Run::ops([create("a"), create("b"), Op::Syncfs, rename("a", "b")]);
    let before = tree([("a", empty(12)), ("b", empty(13))]);
    assert!(run().judge(&before).is_ok());
    assert!(run().judge(&tree([("b", empty(12))])).is_ok());
    run().judge(&tree([])).expect_err("neither is there");
    run()
        .judge(&tree([("a", empty(12))]))
        .expect_err("b was there");
    let links = tree([("a", empty(12)), ("b", empty(12))]);
    let why = run().judge(&links).expect_err("two names of one file");
    assert!(why.contains("a should not be there"), "{why}");
}

#[test]
fn overwrites_may_be_torn_between_versions_since_the_last_sync() {
    let run = || {
        let mut run = Run::ops([create("a"), write("a", 0, 8192), write("a", 0, 4096)]);
        run.done(0, fsync("a"));
        run.done(0, write("a", 0, 4096));
        run.done(0, write("a", 512, 4096));
        run
    };
    let with = |parts| tree([("a", file(12, 8192, parts))]);
    let torn = vec![
        wrote(2, 0, 512),
        wrote(4, 512, 1024),
        wrote(5, 1536, 512),
        wrote(2, 2048, 2048),
        wrote(1, 4096, 4096),
    ];
    assert!(run().judge(&with(torn)).is_ok());
    let old = vec![wrote(1, 0, 512), wrote(2, 512, 3584), wrote(1, 4096, 4096)];
    let why = run().judge(&with(old)).expect_err("older than the fsync");
    assert!(
        why.contains("holds what operation 1 of lane 0 wrote at byte 0"),
        "{why}"
    );
    let inside = vec![wrote(2, 0, 100), wrote(4, 100, 3996), wrote(1, 4096, 4096)];
    run()
        .judge(&with(inside))
        .expect_err("torn inside a sector");
}

#[test]
fn stale_content_is_refused_wherever_it_comes_from() {
    let run = || {
        let mut run = Run::ops([create("a"), write("a", 0, 4096), unlink("a")]);
        run.done(0, create("b"));
        run.done(0, write("b", 4096, 4096));
        run.done(0, truncate("b", 0));
        run.done(0, write("b", 0, 4096));
        run
    };
    let with = |parts| tree([("b", file(12, 4096, parts))]);
    assert_eq!(run().judge(&with(vec![wrote(6, 0, 4096)])), Ok(vec![7]));
    let other = vec![wrote(1, 0, 4096)];
    let why = run().judge(&with(other)).expect_err("another file's block");
    assert!(why.contains("operation 1 of lane 0"), "{why}");
    let (_, bytes) = wrote(4, 4096, 4096);
    let why = run()
        .judge(&with(vec![(0, bytes)]))
        .expect_err("a block from before the truncation");
    assert!(why.contains("wrote at byte 4096"), "{why}");
    let junk = vec![(0, vec![0xc0, 0x3b, 0x39, 0x98])];
    let why = run()
        .judge(&with(junk))
        .expect_err("a block of the journal");
    assert!(why.contains("no write wrote"), "{why}");
}

#[test]
fn zeros_are_legal_only_where_a_hole_is() {
    let run = || Run::ops([create("a"), write("a", 10_000, 100), write("a", 0, 4096)]);
    let sparse = |parts| tree([("a", file(12, 10_100, parts))]);
    assert_eq!(
        run().judge(&sparse(vec![wrote(1, 10_000, 100)])),
        Ok(vec![2])
    );
    let whole = vec![wrote(2, 0, 4096), wrote(1, 10_000, 100)];
    assert_eq!(run().judge(&sparse(whole)), Ok(vec![3]));
    // Data comes before the transaction that maps it.
    run()
        .judge(&sparse(Vec::new()))
        .expect_err("mapped without data");
    let later = run().judge_promising(DataPromise::Delayed, &sparse(Vec::new()));
    assert_eq!(later, Ok(vec![3]));
}

#[test]
fn a_write_may_be_there_in_part() {
    let run = || {
        Run::ops([
            create("a"),
            write("a", 0, 4096),
            fsync("a"),
            write("a", 4096, 8192),
        ])
    };
    let part = file(12, 8192, vec![wrote(1, 0, 4096), wrote(3, 4096, 4096)]);
    assert_eq!(run().judge(&tree([("a", part)])), Ok(vec![3]));
    let beyond = file(12, 20_000, vec![wrote(1, 0, 4096), wrote(3, 4096, 8192)]);
    let why = run().judge(&tree([("a", beyond)])).expect_err("too long");
    assert!(why.contains("has size 20000"), "{why}");
}

#[test]
fn what_lies_behind_a_range_taken_out_moves_as_a_whole() {
    let collapse = || Op::Shift {
        path: "f".to_owned(),
        offset: 4096,
        len: 4096,
        insert: false,
    };
    let run = |how| {
        let mut run = Run::ops([create("f"), write("f", 0, 16_384), fsync("f")]);
        let device = run.device.clone();
        run.lanes[0]
            .run(Some(&device), collapse(), |_, _| Ok(how))
            .expect("it succeeds");
        run.done(0, write("f", 4096, 512));
        run
    };
    let judge = |how, size, data: Vec<(u64, Vec<u8>)>| {
        let found = tree([("f", file(12, size, data))]);
        run(how).judge_promising(DataPromise::Delayed, &found)
    };
    // What operation `op` wrote at `from` is found at `at`.
    let moved = |op, from, at, len| (at, wrote(op, from, len).1);
    let whole = || vec![wrote(1, 0, 4096), moved(1, 8192, 4096, 8192)];
    judge(1, 16_384, vec![wrote(1, 0, 16_384)]).expect("before");
    judge(1, 12_288, whole()).expect("after");
    judge(1, 12_288, vec![wrote(1, 0, 12_288)]).expect_err("shorter and not moved");
    // What was written to the block at its new place is found at its old one.
    let overwritten = vec![
        wrote(1, 0, 8192),
        moved(4, 4096, 8192, 512),
        moved(1, 8704, 8704, 7680),
    ];
    judge(1, 16_384, overwritten).expect("written over, not moved");
    let half = || {
        vec![
            wrote(1, 0, 4096),
            moved(1, 8192, 4096, 4096),
            moved(1, 12_288, 12_288, 4096),
        ]
    };
    judge(1, 16_384, half()).expect_err("one of two blocks moved");
    judge(0, 16_384, half()).expect("one of two blocks moved in several transactions");
    judge(0, 16_384, vec![moved(1, 4096, 0, 4096)]).expect_err("moved too far");
    judge(0, 16_384, vec![moved(1, 4096, 4096, 12_288)]).expect_err("a hole before what moves");
}

#[test]
fn links_and_counts_are_judged() {
    let link = Op::Link {
        from: "a".to_owned(),
        to: "b".to_owned(),
    };
    let run = || Run::ops([create("a"), link.clone(), Op::Syncfs]);
    let two = Found {
        nlink: 2,
        ..empty(12)
    };
    assert!(
        run()
            .judge(&tree([("a", two.clone()), ("b", two.clone())]))
            .is_ok()
    );
    let split = Found {
        inode: 13,
        ..two.clone()
    };
    let why = run()
        .judge(&tree([("a", two), ("b", split)]))
        .expect_err("two files");
    assert!(why.contains("no longer links of one file"), "{why}");
    let why = run()
        .judge(&tree([("a", empty(12)), ("b", empty(12))]))
        .expect_err("a forgotten count");
    assert!(why.contains("link count 1, not 2"), "{why}");
}

#[test]
fn lanes_are_cut_where_one_order_could_be() {
    let run = || {
        let mut run = Run::new(2);
        run.done(0, mkdir("d"));
        run.done(1, mkdir("e"));
        run.done(0, create("d/f"));
        run
    };
    let found = |paths: &[&str]| {
        let mut tree = tree([]);
        for (n, path) in paths.iter().enumerate() {
            let inode = 20 + n as u64;
            let found = if path.ends_with('f') {
                empty(inode)
            } else {
                directory(0o755, inode, 2)
            };
            tree.insert(*path, found);
        }
        tree
    };
    let both = &["lane0", "lane1"];
    let with = |more: &[&str]| found(&[both, more].concat());
    assert_eq!(run().judge(&with(&["lane0/d"])), Ok(vec![1, 0]));
    assert_eq!(run().judge(&with(&["lane0/d", "lane1/e"])), Ok(vec![1, 1]));
    let why = run()
        .judge(&with(&["lane0/d", "lane0/d/f"]))
        .expect_err("e was there before f was begun");
    assert!(why.contains("which ended before it began"), "{why}");
    // A sync in one lane makes durable what had ended in the others.
    let synced = || {
        let mut run = run();
        run.done(0, fsync("d/f"));
        run
    };
    let whole = with(&["lane0/d", "lane0/d/f", "lane1/e"]);
    assert_eq!(synced().judge(&whole), Ok(vec![2, 1]));
    synced()
        .judge(&with(&["lane0/d", "lane0/d/f"]))
        .expect_err("e was journaled before f");
    let stranger = with(&["lane0/d", "elsewhere"]);
    let why = run().judge(&stranger).expect_err("nobody made it");
    assert!(why.contains("elsewhere should not be there"), "{why}");
}

#[test]
fn a_failed_operation_may_be_there_or_not() {
    let run = || {
        let mut run = Run::ops([create("a"), Op::Syncfs]);
        let device = run.device.clone();
        let failing = |_: &Op, _| Err(Errno::IO);
        run.lanes[0]
            .run(Some(&device), create("b"), failing)
            .expect("an I/O error is no mistake of the engine");
        assert!(run.lanes[0].is_stopped());
        run
    };
    assert!(run().judge(&tree([("a", empty(12))])).is_ok());
    assert!(
        run()
            .judge(&tree([("a", empty(12)), ("b", empty(13))]))
            .is_ok()
    );
    run().judge(&tree([])).expect_err("a was synced");
}

#[test]
fn blocks_reserved_before_space_ran_out_may_have_changed_the_file() {
    let utimens = Op::Utimens {
        path: "a".to_owned(),
        mtime: Time { sec: 7, nsec: 0 },
    };
    let run = |result: Result<u64, Errno>| {
        let mut run = Run::ops([create("a"), utimens.clone()]);
        let device = run.device.clone();
        let allocate = Op::Allocate {
            path: "a".to_owned(),
            offset: 0,
            len: 100_000,
            keep: true,
        };
        run.lanes[0]
            .run(Some(&device), allocate, |_, _| result)
            .expect("what the model expects");
        run.done(0, Op::Syncfs);
        run
    };
    let now = tree([("a", empty(12))]);
    assert!(run(Ok(100_000)).judge(&now).is_ok());
    assert!(run(Err(Errno::NOSPC)).judge(&now).is_ok());
    let mut nothing = Run::ops([create("a"), utimens.clone()]);
    nothing.done(0, Op::Syncfs);
    nothing.judge(&now).expect_err("the time was set");
}

#[test]
fn a_whiteout_that_the_file_system_refuses_may_have_changed_the_directory() {
    let run = |to: &str, errno| {
        let mut run = Run::ops([
            mkdir("d"),
            create("d/f"),
            mkdir("d/sub"),
            mkdir("full"),
            create("full/f"),
            Op::Utimens {
                path: "d".to_owned(),
                mtime: Time { sec: 7, nsec: 0 },
            },
        ]);
        run.done(0, Op::Syncfs);
        let device = run.device.clone();
        let whiteout = Op::Whiteout {
            from: "d/sub".to_owned(),
            to: to.to_owned(),
        };
        run.lanes[0]
            .run(Some(&device), whiteout, |_, _| Err(errno))
            .expect("what the model expects");
        run.done(0, Op::Syncfs);
        run
    };
    let at = |sec| {
        let d = Found {
            mtime: Time { sec, nsec: 0 },
            ..directory(0o755, 12, 3)
        };
        tree([
            ("d", d),
            ("d/f", empty(13)),
            ("d/sub", directory(0o755, 14, 2)),
            ("full", directory(0o755, 15, 2)),
            ("full/f", empty(16)),
        ])
    };
    for sec in [7, 1_700_000_000] {
        run("full", Errno::NOTEMPTY)
            .judge(&at(sec))
            .expect("ext4 may have set the time");
    }
    // These are refused before a file system hears of them.
    for (to, errno) in [
        ("full/f", Errno::NOTDIR),
        ("d", Errno::NOTEMPTY),
        ("d/sub/f", Errno::INVAL),
    ] {
        run(to, errno).judge(&at(7)).expect("nothing was done");
        let why = run(to, errno).judge(&at(1_700_000_000));
        let why = why.expect_err("the time was set");
        assert!(why.contains("d was changed at"), "{why}");
    }
}

#[test]
fn an_unexpected_result_is_told() {
    let mut lane = Lane::new(0, "");
    let why = lane
        .run(None, unlink("a"), |_, _| Ok(0))
        .expect_err("there is no a");
    assert!(
        why.contains("gave success, the model expects No such file"),
        "{why}"
    );
}
