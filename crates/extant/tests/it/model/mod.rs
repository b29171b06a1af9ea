//! Random operations against the testkit's model of a file system: each is refused or done as the model
//! says, and the tree is the model's after each, also when it is opened again or recovered from its log.

use extant::{Error, Filesystem, MountOptions, OpenOptions, OpenSpec, Timestamp};
use extant_core::inode::Held;
use extant_core::ops;
use extant_format::Ino;
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Found, FoundKind, History, Lane, Op, Recovered, State, Tag, Universe};
use extant_testkit::model::{tagged, xattr_value};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::rng::seed_from_env;
use extant_testkit::tree::Time;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// One step of a run.
#[derive(Clone)]
enum Step {
    Do(Op),
    /// Closes the file system, has it checked, and opens it again.
    Reopen,
    /// Makes everything durable and looks at what a crash would leave now.
    Crash,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Do(op) => write!(f, "{op}"),
            Step::Reopen => f.write_str("reopen"),
            Step::Crash => f.write_str("sync and crash"),
        }
    }
}

/// What the model knows of the tree.
#[derive(Clone)]
struct Expected {
    state: State,
    universe: Universe,
}

impl std::fmt::Debug for Expected {
    /// Every run begins with an empty tree: only the steps tell something.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("empty")
    }
}

impl ReferenceStateMachine for Expected {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let mut universe = Universe::small();
        universe.files.push("a/sub/h".to_owned());
        universe.dirs.push("a/sub".to_owned());
        // What is opened here is a file.
        universe.allows = |op| !matches!(op, Op::Whiteout { .. });
        let state = State::new();
        Just(Self { state, universe }).boxed()
    }

    fn transitions(expected: &Self) -> BoxedStrategy<Step> {
        let possible = select(expected.universe.possible(&expected.state));
        prop_oneof![
            20 => possible.prop_map(Step::Do),
            4 => select(expected.universe.all()).prop_map(Step::Do),
            1 => Just(Step::Reopen),
            1 => Just(Step::Crash),
        ]
        .boxed()
    }

    fn apply(mut expected: Self, step: &Step) -> Self {
        if let Step::Do(op) = step {
            // Refused operations change nothing.
            let _ = expected.state.apply(op);
        }
        expected
    }
}

/// An image in use.
struct Actual {
    dir: TempDir,
    fs: Option<Filesystem>,
    lane: Lane,
}

impl Actual {
    fn new(options: &[&str], block_size: u64) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        mke2fs(&dir.path().join("fs.img"), 16 << 20, options);
        let mut actual = Self {
            dir,
            fs: None,
            lane: Lane::new(0, "").block_size(block_size),
        };
        actual.fs = Some(open(&actual.image()));
        actual
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("fs.img")
    }

    fn fs(&self) -> &Filesystem {
        self.fs.as_ref().unwrap()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Do(op) => {
                let fs = self.fs().clone();
                let text = op.to_string();
                let done = self.lane.run(None, op, |op, tag| perform(&fs, op, tag));
                if let Err(e) = done {
                    panic!("{text}: {e}");
                }
            }
            Step::Reopen => {
                self.close();
                self.fs = Some(open(&self.image()));
            }
            Step::Crash => {
                self.fs().sync().unwrap();
                let copy = self.dir.path().join("crashed.img");
                std::fs::copy(self.image(), &copy).unwrap();
                let fs = open(&copy);
                self.compare(&fs);
                fs.close().unwrap();
                assert_clean(&copy);
            }
        }
    }

    fn close(&mut self) {
        self.fs.take().unwrap().close().unwrap();
        assert_clean(&self.image());
    }

    fn compare(&self, fs: &Filesystem) {
        let mut found = Recovered::new();
        found.insert("", found_at(fs, Path::new("/")));
        for entry in fs.walk("/").unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().to_str().unwrap().trim_matches('/').to_owned();
            if !path.is_empty() {
                found.insert(path, found_at(fs, entry.path()));
            }
        }
        let history = History::new(0, vec![self.lane.clone()]);
        if let Err(e) = history.check_final(&found) {
            panic!("{e}");
        }
    }
}

fn open(image: &Path) -> Filesystem {
    let options = MountOptions::read_write().background(false);
    Filesystem::open_spec(&OpenSpec::read_write(image), options).unwrap()
}

fn found_at(fs: &Filesystem, path: &Path) -> Found {
    let meta = fs.symlink_metadata(path).unwrap();
    let kind = if meta.is_dir() {
        FoundKind::Directory
    } else if meta.is_file() {
        let content = fs.read(path).unwrap();
        FoundKind::File {
            size: meta.len(),
            data: vec![(0, content)],
        }
    } else {
        let target = fs.read_link(path).unwrap();
        FoundKind::Symlink(target.to_str().unwrap().to_owned())
    };
    Found {
        kind,
        mode: meta.mode().permissions(),
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink().into(),
        inode: meta.ino().into(),
        mtime: Time::new(meta.mtime().secs, meta.mtime().nanos),
        xattrs: fs
            .xattrs(path)
            .unwrap()
            .into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value))
            .filter(|(name, _)| name.starts_with("user."))
            .collect(),
    }
}

/// Does `op` as a program would that does not follow symbolic links.
fn perform(fs: &Filesystem, op: &Op, tag: Tag) -> Result<u64, Errno> {
    let mut count = 0;
    let done = match op {
        Op::Create { path, mode } => OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(fs, path)
            .map(drop),
        Op::Mkdir { path, mode } => fs.create_dir_with(path, *mode),
        Op::Symlink { path, target } => fs.symlink(target, path),
        Op::Link { from, to } => fs.hard_link(from, to),
        Op::Unlink { path } => fs.remove_file(path),
        Op::Rmdir { path } => fs.remove_dir(path),
        Op::Rename { from, to } => fs.rename(from, to),
        Op::RenameNew { from, to } => fs.rename_new(from, to),
        Op::Whiteout { .. } => return Err(Errno::NOSYS),
        Op::Exchange { from, to } => fs.exchange(from, to),
        Op::Temporary { path, mode } => {
            let dir = path.rsplit_once('/').map_or("/", |(dir, _)| dir);
            let file = fs.create_unnamed(dir, *mode);
            file.and_then(|file| fs.link_file(&file, path))
        }
        Op::Write { path, offset, len } => {
            refuse_symlink(fs, path, Errno::LOOP)?;
            let file = OpenOptions::new().write(true).open(fs, path);
            let bytes = tagged(tag, *offset, *len);
            file.and_then(|file| file.write_at(&bytes, *offset))
                .map(|written| count = written as u64)
        }
        Op::Allocate {
            path,
            offset,
            len,
            keep,
        } => {
            refuse_symlink(fs, path, Errno::LOOP)?;
            let file = OpenOptions::new().write(true).open(fs, path);
            let file = file.map_err(errno)?;
            let before = file.metadata().len();
            let done = match keep {
                true => file.allocate_keep_size(*offset, *len),
                false => file.allocate(*offset, *len),
            };
            // When space ran out, what the file grew by before stays.
            count = match file.metadata().len() {
                now if done.is_err() && now > before => return Ok(now - offset),
                _ => *len,
            };
            done
        }
        Op::Zero {
            path,
            offset,
            len,
            keeps_space,
        } => {
            refuse_symlink(fs, path, Errno::LOOP)?;
            let file = OpenOptions::new().write(true).open(fs, path);
            file.and_then(|file| match keeps_space {
                true => file.zero_range_keep_size(*offset, *len),
                false => file.punch_hole(*offset, *len),
            })
        }
        Op::Shift {
            path,
            offset,
            len,
            insert,
        } => {
            refuse_symlink(fs, path, Errno::LOOP)?;
            let file = OpenOptions::new().write(true).open(fs, path);
            file.and_then(|file| match insert {
                true => file.insert_range(*offset, *len),
                false => file.collapse_range(*offset, *len),
            })
        }
        Op::Truncate { path, size } => {
            refuse_symlink(fs, path, Errno::LOOP)?;
            fs.set_len(path, *size)
        }
        Op::Chmod { path, mode } => {
            refuse_symlink(fs, path, Errno::OPNOTSUPP)?;
            fs.set_permissions(path, *mode)
        }
        Op::Chown { path, uid, gid } => fs.set_owner(path, Some(*uid), Some(*gid)),
        Op::Utimens { path, mtime } => {
            let (secs, nanos) = (mtime.sec, mtime.nsec);
            let time = Timestamp { secs, nanos };
            fs.set_times(path, Some(time), Some(time))
        }
        Op::SetXattr { path, name, len } => fs.set_xattr(path, name, xattr_value(name, *len)),
        Op::RemoveXattr { path, name } => fs.remove_xattr(path, name),
        Op::Fsync { path } => return sync(fs, path, ops::fsync),
        Op::Fdatasync { path } => return sync(fs, path, ops::fdatasync),
        Op::Syncfs => fs.sync(),
    };
    done.map(|()| count).map_err(errno)
}

fn errno(e: Error) -> Errno {
    Errno::from_raw_os_error(e.errno())
}

fn refuse_symlink(fs: &Filesystem, path: &str, with: Errno) -> Result<(), Errno> {
    match fs.symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => Err(with),
        Ok(_) => Ok(()),
        Err(e) => Err(errno(e)),
    }
}

/// Syncs a file or a directory.
fn sync(
    fs: &Filesystem,
    path: &str,
    how: fn(&extant_core::fs::Fs, &Held) -> extant_core::Result<()>,
) -> Result<u64, Errno> {
    refuse_symlink(fs, path, Errno::LOOP)?;
    let ino = Ino::new(fs.metadata(path).map_err(errno)?.ino());
    let held = fs.engine().hold(ino).unwrap();
    match how(fs.engine(), &held) {
        Ok(()) => Ok(0),
        Err(e) => Err(Errno::from_raw_os_error(e.errno())),
    }
}

/// How the images of a test are made.
trait Image {
    const OPTIONS: &'static [&'static str];
    const BLOCK_SIZE: u64;
}

struct Run<I>(std::marker::PhantomData<I>);

impl<I: Image> StateMachineTest for Run<I> {
    type SystemUnderTest = Actual;
    type Reference = Expected;

    fn init_test(_: &Expected) -> Actual {
        Actual::new(I::OPTIONS, I::BLOCK_SIZE)
    }

    fn apply(mut actual: Actual, _: &Expected, step: Step) -> Actual {
        actual.step(step);
        actual
    }

    fn check_invariants(actual: &Actual, _: &Expected) {
        actual.compare(actual.fs());
    }

    fn teardown(mut actual: Actual, _: Expected) {
        actual.close();
        let fs = Filesystem::open(actual.image()).unwrap();
        actual.compare(&fs);
    }
}

fn run<I: Image>(name: &str) {
    let seed = seed_from_env(name);
    let config = Config {
        cases: if is_full_run() { 1000 } else { 25 },
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 5000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes(seed));
    let mut runner = TestRunner::new_with_rng(config.clone(), rng);
    let steps = Expected::sequential_strategy(1..50);
    let outcome = runner.run(&steps, |(expected, steps, seen)| {
        Run::<I>::test_sequential(config.clone(), expected, steps, seen);
        Ok(())
    });
    if let Err(e) = outcome {
        panic!("{e}");
    }
}

fn seed_bytes(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

struct Ordinary;

impl Image for Ordinary {
    const OPTIONS: &'static [&'static str] = &["-t", "ext4", "-b", "4096", "-J", "size=4"];
    const BLOCK_SIZE: u64 = 4096;
}

#[test]
fn operations_do_what_the_model_says() {
    run::<Ordinary>("model");
}

struct SmallBlocks;

impl Image for SmallBlocks {
    const OPTIONS: &'static [&'static str] = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "^metadata_csum,^64bit",
    ];
    const BLOCK_SIZE: u64 = 1024;
}

#[test]
fn operations_with_small_blocks_do_what_the_model_says() {
    run::<SmallBlocks>("model, small blocks");
}

struct NoJournal;

impl Image for NoJournal {
    const OPTIONS: &'static [&'static str] =
        &["-t", "ext4", "-b", "2048", "-O", "^has_journal,^dir_index"];
    const BLOCK_SIZE: u64 = 2048;
}

#[test]
fn operations_without_a_journal_do_what_the_model_says() {
    run::<NoJournal>("model, no journal");
}

struct Clusters;

impl Image for Clusters {
    const OPTIONS: &'static [&'static str] = &[
        "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "4096",
    ];
    // What is taken out of a file, or put in, is whole clusters.
    const BLOCK_SIZE: u64 = 4096;
}

#[test]
fn operations_on_clusters_do_what_the_model_says() {
    run::<Clusters>("model, clusters");
}
