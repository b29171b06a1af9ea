//! Random operations against the testkit's model of a file system: each is refused or done as the
//! model says, and the tree is the model's after each, also when it is opened again or recovered
//! from its log.
//!
//! Meanwhile a few files are kept open, with or without names, and a directory is being listed.

mod listing;
mod open_files;

use extant::{
    DeviceNumber, Error, FileFlags, FileType, Filesystem, MountOptions, OpenOptions, OpenSpec,
    Timestamp,
};
use extant_core::inode::Held;
use extant_core::ops;
use extant_format::Ino;
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{
    DEFAULT_ACL, Found, FoundKind, History, Lane, Node, Op, Recovered, State, Tag, Universe,
};
use extant_testkit::model::{default_acl, tagged, xattr_value};
use extant_testkit::oracle::{assert_clean, dumpe2fs, mke2fs};
use extant_testkit::rng::seed_from_env;
use extant_testkit::tree::Time;
use listing::Listing;
use open_files::{Change, Kept};
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
    /// Makes everything durable, looks at what a crash would leave now, and asks how much is free.
    Crash,
    /// Opens a file, and keeps it open in this place instead of what was there.
    Keep(usize, String),
    /// Closes the file in this place.
    LetGo(usize),
    /// Does something to the file in this place.
    Change(usize, Change),
    /// Begins to list a directory, or goes on with the listing that is under way.
    List(String),
    /// Lists so many more names.
    ListMore(usize),
}

/// Places for files that are kept open.
const PLACES: usize = 2;

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Do(op) => write!(f, "{op}"),
            Step::Reopen => f.write_str("reopen"),
            Step::Crash => f.write_str("sync and crash"),
            Step::Keep(at, path) => write!(f, "open {path} as {at}"),
            Step::LetGo(at) => write!(f, "close {at}"),
            Step::Change(at, change) => write!(f, "{change:?} of {at}"),
            Step::List(path) => write!(f, "list {path}"),
            Step::ListMore(most) => write!(f, "list {most} more"),
        }
    }
}

/// What the model knows of the tree.
#[derive(Clone)]
struct Expected {
    state: State,
    universe: Universe,
    /// Which files are kept open.
    kept: [Option<u32>; PLACES],
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
        Self::empty(universe)
    }

    fn transitions(expected: &Self) -> BoxedStrategy<Step> {
        let possible = select(expected.universe.possible(&expected.state));
        let universe = &expected.universe;
        let place = 0..PLACES;
        let mut dirs = universe.dirs.clone();
        // The root has most names.
        dirs.extend(std::iter::repeat_n(String::new(), dirs.len()));
        let change = || prop_oneof![3 => changes(universe), 1 => just_changes()];
        // What is open, and what becomes of its names, is looked for: by chance it is rarely the
        // same file.
        let kept = expected.kept.iter().flatten();
        let names: Vec<String> = kept.flat_map(|id| expected.state.paths_of(*id)).collect();
        let (to_open, to_lose) = if names.is_empty() {
            (expected.state.files(), universe.files.clone())
        } else {
            (universe.files.clone(), names)
        };
        let to_open = if to_open.is_empty() {
            universe.files.clone()
        } else {
            to_open
        };
        let is_open = expected.kept.iter().any(Option::is_some);
        let lose = select(to_lose).prop_map(|path| Step::Do(Op::Unlink { path }));
        prop_oneof![
            1 + u32::from(is_open) * 4 => lose,
            8 => (1_usize..6).prop_map(Step::ListMore),
            1 + u32::from(is_open) * 8 => (place.clone(), change()).prop_map(|(at, change)| Step::Change(at, change)),
            24 => possible.prop_map(Step::Do),
            5 => select(universe.all()).prop_map(Step::Do),
            1 => Just(Step::Reopen),
            2 => Just(Step::Crash),
            4 => (place.clone(), select(to_open)).prop_map(|(at, path)| Step::Keep(at, path)),
            1 => place.prop_map(Step::LetGo),
            5 => select(dirs).prop_map(Step::List),
        ]
        .boxed()
    }

    fn apply(mut expected: Self, step: &Step) -> Self {
        match step {
            // Refused operations change nothing.
            Step::Do(op) => drop(expected.state.apply(op)),
            Step::Reopen => expected.kept = Default::default(),
            Step::Keep(at, path) => {
                let identity = expected.state.identity(path);
                if expected.state.size_of(path).is_some() && !expected.kept.contains(&identity) {
                    expected.kept[*at] = identity;
                }
            }
            Step::LetGo(at) => expected.kept[*at] = None,
            Step::Change(at, change) => {
                if let Some(op) = expected.by_name(*at, *change) {
                    let _ = expected.state.apply(&op);
                }
            }
            Step::Crash | Step::List(_) | Step::ListMore(_) => {}
        }
        expected
    }
}

impl Expected {
    fn empty(universe: Universe) -> BoxedStrategy<Self> {
        let state = State::new();
        let kept = Default::default();
        Just(Self {
            state,
            universe,
            kept,
        })
        .boxed()
    }

    /// What is done to an open file as an operation on its name.
    fn by_name(&self, at: usize, change: Change) -> Option<Op> {
        let paths = self.state.paths_of(self.kept[at]?);
        change.on(paths.first()?, &self.state)
    }
}

/// The model with names of which few fit a block, in directories that grow.
#[derive(Debug)]
struct LongNames;

impl ReferenceStateMachine for LongNames {
    type State = Expected;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Expected> {
        let mut universe = Universe::long_names("", 20);
        universe.allows = |op| {
            !matches!(
                op,
                Op::Whiteout { .. }
                    | Op::Allocate { .. }
                    | Op::Zero { .. }
                    | Op::Shift { .. }
                    | Op::Truncate { .. }
                    | Op::SetXattr { .. }
                    | Op::RemoveXattr { .. }
                    | Op::Inherit { .. }
            )
        };
        Expected::empty(universe)
    }

    fn transitions(expected: &Expected) -> BoxedStrategy<Step> {
        // By chance few directories get large, and few names stay while they are listed.
        let create = |path| Step::Do(Op::Create { path, mode: 0o640 });
        prop_oneof![
            3 => Expected::transitions(expected),
            3 => select(expected.universe.files.clone()).prop_map(create),
            1 => Just(Step::List(String::new())),
            3 => (1_usize..5).prop_map(Step::ListMore),
        ]
        .boxed()
    }

    fn apply(expected: Expected, step: &Step) -> Expected {
        <Expected as ReferenceStateMachine>::apply(expected, step)
    }
}

/// Changes of content at the places of the universe.
fn changes(universe: &Universe) -> impl Strategy<Value = Change> + use<> {
    let writes = select(universe.writes.clone());
    let appends = select(vec![1, 100, 4096, 9000]);
    let mut sizes = universe.sizes.clone();
    sizes.extend([0, 100]);
    prop_oneof![
        writes.prop_map(|(offset, len)| Change::Write { offset, len }),
        appends.prop_map(|len| Change::Append { len }),
        select(sizes).prop_map(|size| Change::Truncate { size }),
    ]
}

/// Syncs and reads.
fn just_changes() -> impl Strategy<Value = Change> {
    let at = select(vec![0, 1, 1000, 4095, 5000, 100_000, 1 << 30]);
    let len = select(vec![1, 100, 4096, 10_000]);
    prop_oneof![
        Just(Change::Fsync),
        Just(Change::Fdatasync),
        (at, len).prop_map(|(offset, len)| Change::Read { offset, len }),
    ]
}

/// An image in use.
struct Actual {
    dir: TempDir,
    kept: [Option<Kept>; PLACES],
    listing: Option<Listing>,
    fs: Option<Filesystem>,
    lane: Lane,
    /// Inodes that are in use beside those of the model.
    others: u64,
}

impl Actual {
    fn new(options: &[&str], block_size: u64) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        mke2fs(&dir.path().join("fs.img"), 16 << 20, options);
        let mut actual = Self {
            dir,
            kept: Default::default(),
            listing: None,
            fs: None,
            lane: Lane::new(0, "").block_size(block_size),
            others: 0,
        };
        actual.fs = Some(open(&actual.image()));
        let space = actual.fs().statfs().unwrap();
        actual.others = space.inodes - space.free_inodes - 1;
        actual
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("fs.img")
    }

    fn fs(&self) -> &Filesystem {
        self.fs.as_ref().unwrap()
    }

    fn step(&mut self, step: Step) {
        for kept in self.kept.iter_mut().flatten() {
            kept.note_content(self.lane.state());
        }
        match step {
            Step::Do(op) => {
                let fs = self.fs().clone();
                self.run(op, |op, tag| perform(&fs, op, tag));
            }
            Step::Reopen => {
                self.close();
                self.fs = Some(open(&self.image()));
            }
            Step::Crash => self.crash(),
            Step::Keep(at, path) => {
                let identity = self.lane.state().identity(&path);
                // What is remembered of a file without a name is remembered once.
                let is_kept = |kept: &Kept| identity == Some(kept.identity);
                if let (Some(identity), Some(_)) = (identity, self.lane.state().size_of(&path))
                    && !self.kept.iter().flatten().any(is_kept)
                {
                    let file = OpenOptions::new()
                        .read(true)
                        .write(true)
                        .open(self.fs(), &path);
                    self.kept[at] = Some(Kept::new(file.unwrap(), identity));
                }
            }
            Step::LetGo(at) => self.kept[at] = None,
            Step::Change(at, change) => self.change(at, change),
            Step::List(_) if self.listing.is_some() => self.list(1),
            Step::List(path) => {
                self.listing = self.lane.state().identity(&path).and_then(|identity| {
                    let ino = Ino::new(
                        self.fs()
                            .metadata(Path::new("/").join(&path))
                            .unwrap()
                            .ino(),
                    );
                    Listing::begin(ino, identity, self.lane.state())
                });
            }
            Step::ListMore(most) => self.list(most),
        }
        // A directory that has gone is not listed any more.
        if let Some(listing) = &mut self.listing
            && !listing.note(self.lane.state())
        {
            self.listing = None;
        }
    }

    fn run(&mut self, op: Op, perform: impl FnOnce(&Op, Tag) -> Result<u64, Errno>) {
        let text = op.to_string();
        if let Err(e) = self.lane.run(None, op, perform) {
            panic!("{text}: {e}");
        }
    }

    /// Does something to an open file.
    fn change(&mut self, at: usize, change: Change) {
        let Some(mut kept) = self.kept[at].take() else {
            return;
        };
        let state = self.lane.state();
        let paths = state.paths_of(kept.identity);
        match paths.first().map(|path| (path, change.on(path, state))) {
            Some((path, Some(op))) => {
                let size = state.size_of(path).unwrap();
                self.run(op, |_, tag| kept.perform(change, tag, size).map_err(errno));
            }
            Some((_, None)) => drop(kept.perform(change, self.lane.next_tag(), 0)),
            None => kept.perform_nameless(change, self.lane.next_tag()),
        }
        self.kept[at] = Some(kept);
    }

    /// Goes on with a listing.
    fn list(&mut self, most: usize) {
        if let Some(mut listing) = self.listing.take() {
            if listing.go_on(self.fs(), most) {
                self.listing = Some(listing)
            } else {
                listing.end()
            }
        }
    }

    /// Makes everything durable, and compares what a crash would leave.
    fn crash(&self) {
        self.fs().sync().unwrap();
        let space = self.fs().statfs().unwrap();
        let state = self.lane.state();
        let kept = self.kept.iter().flatten();
        let mut nameless: Vec<u32> = kept
            .filter(|kept| !kept.is_named(state))
            .map(|kept| kept.identity)
            .collect();
        nameless.sort_unstable();
        nameless.dedup();
        let used = (state.inodes() + nameless.len()) as u64 + self.others;
        assert_eq!(space.inodes - space.free_inodes, used, "inodes in use");

        let copy = self.dir.path().join("crashed.img");
        std::fs::copy(self.image(), &copy).unwrap();
        let fs = open(&copy);
        self.compare(&fs);
        fs.close().unwrap();
        assert_clean(&copy);
        // Others count as we do; what has no name is gone by now.
        if nameless.is_empty() {
            let dump = dumpe2fs(&copy);
            assert_eq!(dump.number("Free inodes"), space.free_inodes);
            assert_eq!(dump.number("Free blocks"), space.free);
            let directories: u64 = dump.groups.iter().map(|group| group.directories).sum();
            assert_eq!(directories, space.directories);
        }
    }

    fn close(&mut self) {
        self.kept = Default::default();
        self.listing = None;
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
    } else if !meta.is_symlink() {
        let DeviceNumber { major, minor } = meta.rdev().unwrap_or_default();
        FoundKind::Node(match meta.file_type() {
            FileType::Socket => Node::Socket,
            FileType::BlockDevice => Node::Block(major, minor),
            _ => Node::Char(major, minor),
        })
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
            .filter(|(name, _)| name.starts_with("user.") || name.starts_with("system.posix_acl_"))
            .collect(),
        no_dump: Some(meta.flags() & FileFlags::NO_DUMP.bits() != 0),
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
        Op::Mknod { path, mode, node } => {
            let (file_type, (major, minor)) = match *node {
                Node::Socket => (FileType::Socket, (0, 0)),
                Node::Char(major, minor) => (FileType::CharDevice, (major, minor)),
                Node::Block(major, minor) => (FileType::BlockDevice, (major, minor)),
            };
            let device = DeviceNumber { major, minor };
            fs.create_special(path, file_type, device, *mode)
        }
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
        Op::NoDump { path, on } => {
            refuse_symlink(fs, path, Errno::LOOP)?;
            let (flag, none) = (FileFlags::NO_DUMP, FileFlags::empty());
            let (set, clear) = if *on { (flag, none) } else { (none, flag) };
            fs.set_flags(path, set, clear)
        }
        Op::Inherit { path, on } => match on {
            true => fs.set_xattr(path, DEFAULT_ACL, default_acl()),
            false => fs.remove_xattr(path, DEFAULT_ACL),
        },
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
        // What would be opened.
        Ok(meta) if with == Errno::LOOP && !meta.is_file() && !meta.is_dir() => Err(Errno::NXIO),
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
    type Machine: ReferenceStateMachine<State = Expected, Transition = Step>;
    const OPTIONS: &'static [&'static str];
    const BLOCK_SIZE: u64;
    /// Steps of a run are fewer than these.
    const STEPS: usize = 50;
}

struct Run<I>(std::marker::PhantomData<I>);

impl<I: Image> StateMachineTest for Run<I> {
    type SystemUnderTest = Actual;
    type Reference = I::Machine;

    fn init_test(_: &Expected) -> Actual {
        Actual::new(I::OPTIONS, I::BLOCK_SIZE)
    }

    fn apply(mut actual: Actual, _: &Expected, step: Step) -> Actual {
        actual.step(step);
        actual
    }

    fn check_invariants(actual: &Actual, _: &Expected) {
        actual.compare(actual.fs());
        for kept in actual.kept.iter().flatten() {
            kept.check(actual.lane.state());
        }
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
    let steps = I::Machine::sequential_strategy(1..I::STEPS);
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
    type Machine = Expected;
    const OPTIONS: &'static [&'static str] = &["-t", "ext4", "-b", "4096", "-J", "size=4"];
    const BLOCK_SIZE: u64 = 4096;
}

#[test]
fn operations_do_what_the_model_says() {
    run::<Ordinary>("model");
}

struct SmallBlocks;

impl Image for SmallBlocks {
    type Machine = Expected;
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
    type Machine = Expected;
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
    type Machine = Expected;
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

struct Names;

impl Image for Names {
    type Machine = LongNames;
    const OPTIONS: &'static [&'static str] = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
    const BLOCK_SIZE: u64 = 1024;
    const STEPS: usize = 100;
}

#[test]
fn operations_with_long_names_do_what_the_model_says() {
    run::<Names>("model, long names");
}
