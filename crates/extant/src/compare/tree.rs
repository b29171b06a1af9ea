//! Pairs of directories, in the order in which they are told.
//!
//! What is to be told stands on a stack, the next on top: either it is known, or it is a pair of
//! directories to be looked at. The topmost pairs are looked at together, by all threads; each is
//! then replaced by what differs in it, and by the pairs of directories below. Then the content of
//! their files is compared. So the order is that of the trees, and threads have enough to do.

use super::attributes::{At, Both, is_same_time};
use super::content::{Content, Job, Verdict, by_all, no_bytes};
use super::side::{Found, Names, Side};
use super::{CompareOptions, Difference, Report, What, Which};
use crate::read_dir::join;
use crate::scouts::Scouts;
use crate::{Cause, Error, FileType, Result};
use extant_core::ops::{self, Ahead};
use extant_sync::{CountedAtomicU64, LockClass, Mutex, Rank};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pairs of directories that are looked at together.
const TOGETHER: usize = 256;
/// Threads at most, unless more are asked for, where a request to the device takes a round trip.
const MOST_FAR: usize = 32;
/// Directories whose path is longer than this are not entered.
const LONGEST_PATH: usize = 2 << 20;
/// Where checkers put what they find, which every new file system has.
const LOST_AND_FOUND: &[u8] = b"lost+found";

static LINKED: LockClass = LockClass::new("pairs with several names", Rank::Leaf);

/// Compares two trees, and calls `tell` with each difference, until it breaks.
///
/// Names that one side does not have are told with no name below them. An empty `lost+found` in the
/// root of a file system is no difference where the other side is no root of one.
///
/// ```no_run
/// use extant::Filesystem;
/// use extant::compare::{Aspects, CompareOptions, Side, compare};
/// use std::ops::ControlFlow;
///
/// # fn main() -> extant::Result<()> {
/// let (old, new) = (Filesystem::open("old.img")?, Filesystem::open("new.img")?);
/// let (old, new) = (Side::image(&old, "/"), Side::image(&new, "/"));
/// let options = CompareOptions::new(Aspects::ALL);
/// let report = compare(&old, &new, &options, |difference| {
///     println!("{}: {:?}", difference.path.display(), difference.what);
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(report.problem_count, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When one of the two starts does not exist or cannot be looked at. What cannot be read below them
/// is in the report, and the rest is compared.
pub fn compare(
    first: &Side,
    second: &Side,
    options: &CompareOptions<'_>,
    tell: impl FnMut(Difference) -> ControlFlow<()>,
) -> Result<Report> {
    let sides = [first, second];
    for side in sides {
        side.prepare()?;
    }
    let (one, other) = (first.begin()?, second.begin()?);
    let roots = [first.is_root(&one.1), second.is_root(&other.1)];
    let scouts = [(first, &one.1), (second, &other.1)].map(|(side, found)| {
        let inside = found.inside.as_ref().filter(|_| found.is_dir())?;
        Scouts::start(side.filesystem()?.fs(), inside.inode.ino(), Ahead::Maps)
    });
    let work = Work {
        sides,
        roots,
        options,
        threads: threads(options.threads, sides),
        scouts,
        linked: Mutex::new(&LINKED, HashMap::new()),
    };
    let mut telling = Telling {
        tell,
        has_content: options.aspects.content,
        report: Report::default(),
        first_names: [HashMap::new(), HashMap::new()],
    };
    let start = At {
        told: Path::new("/"),
        dirs: [&one.0, &other.0],
        name: None,
    };
    let mut looked = Looked::default();
    work.both(&start, [one.1, other.1], &mut looked);
    let mut stack = Stack {
        work: &work,
        slots: Vec::new(),
        entered: [HashSet::new(), HashSet::new()],
        bytes: no_bytes(),
    };
    stack.put(vec![Taken::Looked(looked)], &mut telling.report);
    while let Some(told) = stack.next(&mut telling.report) {
        if telling.tell_all(told).is_break() {
            telling.report.is_cut_short = true;
            break;
        }
    }
    let mut report = telling.report;
    report.bytes = *stack.bytes.get_mut();
    [report.first_names, _] = telling.first_names;
    Ok(report)
}

fn threads(asked: usize, sides: [&Side; 2]) -> usize {
    let far = sides.map(|side| side.filesystem().map_or(1, |fs| ops::in_flight(fs.fs())));
    match asked {
        0 => std::thread::available_parallelism()
            .map_or(1, usize::from)
            .max(far[0].max(far[1]).min(MOST_FAR)),
        asked => asked.min(64),
    }
}

/// What both sides have, of one name.
struct Pair {
    /// As it is told.
    path: PathBuf,
    paths: [PathBuf; 2],
    found: [Found; 2],
}

/// What is on the stack.
enum Slot {
    /// Directories to be looked at.
    Pair(Box<Pair>),
    /// What was found.
    Told(Vec<Told>),
}

enum Told {
    Entry(Entry),
    Problem(Which, Error),
}

/// A file with differences, or with what may be one.
struct Entry {
    path: PathBuf,
    differences: Vec<What>,
    /// Its content, if that was read, and its size.
    content: Option<(Arc<Verdict>, u64)>,
    /// Its two numbers, if it has several names on one of the sides, and whether it has on each.
    numbers: Option<[((u64, u64), bool); 2]>,
}

/// What looking at one pair of directories gave.
#[derive(Default)]
struct Looked {
    told: Vec<Told>,
    below: Vec<Pair>,
    jobs: Vec<Job>,
    common: u64,
}

impl Looked {
    fn only_in(&mut self, side: Which, path: PathBuf, kind: FileType) {
        self.differs(path, What::OnlyIn(side, kind));
    }

    fn differs(&mut self, path: PathBuf, what: What) {
        self.told.push(Told::Entry(Entry {
            path,
            differences: vec![what],
            content: None,
            numbers: None,
        }));
    }

    fn problem(&mut self, side: Which, problem: Error) {
        self.told.push(Told::Problem(side, problem));
    }
}

/// The numbers of a file on the two sides.
type Numbers = [(u64, u64); 2];

/// What all threads work with.
struct Work<'a> {
    sides: [&'a Side; 2],
    /// Whether they are roots of file systems.
    roots: [bool; 2],
    options: &'a CompareOptions<'a>,
    threads: usize,
    scouts: [Option<Scouts>; 2],
    /// What is known of pairs that have several names on both sides.
    linked: Mutex<HashMap<Numbers, Arc<Verdict>>>,
}

/// What is still to be told, the next last.
struct Stack<'a> {
    work: &'a Work<'a>,
    slots: Vec<Slot>,
    /// Directories of images that were come to, by number.
    entered: [HashSet<u64>; 2],
    bytes: CountedAtomicU64,
}

/// What was taken from the stack, and looked at where that was to be done.
enum Taken {
    Told(Vec<Told>),
    Looked(Looked),
}

impl Stack<'_> {
    /// What is told next.
    fn next(&mut self, report: &mut Report) -> Option<Vec<Told>> {
        loop {
            match self.slots.pop()? {
                Slot::Told(told) => return Some(told),
                pair => {
                    self.slots.push(pair);
                    self.look(report);
                }
            }
        }
    }

    /// Looks at the topmost pairs, together.
    fn look(&mut self, report: &mut Report) {
        let mut slots = Vec::new();
        let mut pairs = 0;
        while pairs < TOGETHER
            && let Some(slot) = self.slots.pop()
        {
            pairs += usize::from(matches!(slot, Slot::Pair(_)));
            slots.push(slot);
        }
        let numbered: Vec<(usize, &Pair)> = (slots.iter().enumerate())
            .filter_map(|(number, slot)| match slot {
                Slot::Pair(pair) => Some((number, &**pair)),
                Slot::Told(_) => None,
            })
            .collect();
        let states = by_all(
            self.work.threads,
            &numbered,
            Vec::new,
            |all, (number, pair)| {
                all.push((*number, self.work.directory(pair)));
            },
        );
        let mut looked: HashMap<usize, Looked> = states.into_iter().flatten().collect();
        let taken = slots
            .into_iter()
            .enumerate()
            .filter_map(|(number, slot)| match slot {
                Slot::Told(told) => Some(Taken::Told(told)),
                Slot::Pair(_) => looked.remove(&number).map(Taken::Looked),
            });
        let taken = taken.collect();
        self.put(taken, report);
    }

    /// Compares the content of what was looked at, and puts all of it on the stack.
    fn put(&mut self, mut taken: Vec<Taken>, report: &mut Report) {
        let mut jobs = Vec::new();
        for one in &mut taken {
            if let Taken::Looked(looked) = one {
                jobs.append(&mut looked.jobs);
                report.common += looked.common;
            }
        }
        let content = Content {
            sides: self.work.sides,
            threads: self.work.threads,
            bytes: &self.bytes,
        };
        content.compare(&jobs);
        let mut slots = Vec::new();
        for one in taken {
            match one {
                Taken::Told(told) => slots.push(Slot::Told(told)),
                Taken::Looked(looked) => {
                    if !looked.told.is_empty() {
                        slots.push(Slot::Told(looked.told));
                    }
                    for pair in looked.below {
                        slots.push(self.enter(pair));
                    }
                }
            }
        }
        self.slots.extend(slots.into_iter().rev());
    }

    /// A pair of directories as it goes on the stack: one that has a second place makes a tree
    /// without end.
    fn enter(&mut self, pair: Pair) -> Slot {
        let mut problems = Vec::new();
        for (side, which) in [Which::First, Which::Second].into_iter().enumerate() {
            let found = &pair.found[side];
            let cause = if found.inside.is_some() && !self.entered[side].insert(found.number.1) {
                Cause::DirectoryTwice
            } else if pair.paths[side].as_os_str().len() > LONGEST_PATH {
                Cause::TooDeep
            } else {
                continue;
            };
            let problem = Error::new(&*pair.paths[side], cause);
            problems.push(Told::Problem(which, problem));
        }
        if problems.is_empty() {
            Slot::Pair(Box::new(pair))
        } else {
            Slot::Told(problems)
        }
    }
}

impl Work<'_> {
    /// Looks at two directories.
    fn directory(&self, pair: &Pair) -> Looked {
        let mut looked = Looked::default();
        let mut path = Vec::new();
        let mut lists = Vec::with_capacity(2);
        for (side, which) in [Which::First, Which::Second].into_iter().enumerate() {
            let (path, found) = (&pair.paths[side], &pair.found[side]);
            let (names, problem) = self.sides[side].names(path, found);
            if let Some(problem) = problem {
                looked.problem(which, problem);
            }
            if let Some(scouts) = &self.scouts[side] {
                scouts.passed(names.len());
            }
            lists.push(List {
                names,
                next: 0,
                which,
                is_stored: found.has_stored_names(),
            });
        }
        let [first, second] = &mut lists[..] else {
            return looked;
        };
        loop {
            first.skip_bad(&mut looked);
            second.skip_bad(&mut looked);
            let (one, other) = (first.get(), second.get());
            let order = match (one, other) {
                (None, None) => return looked,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.cmp(other),
            };
            match order {
                Ordering::Less => self.one_sided(pair, first, &mut looked),
                Ordering::Greater => self.one_sided(pair, second, &mut looked),
                Ordering::Equal => {
                    self.named_alike(pair, [first, second], &mut path, &mut looked);
                }
            }
            first.next += usize::from(order != Ordering::Greater);
            second.next += usize::from(order != Ordering::Less);
        }
    }

    /// Whether the user leaves something out.
    fn is_excluded(&self, path: &Path, is_dir: bool) -> bool {
        let exclude = self.options.exclude;
        exclude.is_some_and(|exclude| exclude(path.strip_prefix("/").unwrap_or(path), is_dir))
    }

    /// Looks at a name that one side has.
    fn one_sided(&self, pair: &Pair, list: &List, looked: &mut Looked) {
        let Some(name) = list.get() else { return };
        let side = &self.sides[list.side()];
        match side.look(&list.names, list.next, name, false) {
            Ok(Some(found)) => self.only_there(pair, list, &found, looked),
            Ok(None) => {}
            Err(e) => looked.problem(list.which, e),
        }
    }

    /// Tells of a file that one side has.
    fn only_there(&self, pair: &Pair, list: &List, found: &Found, looked: &mut Looked) {
        let Some(name) = list.get() else { return };
        let side = &self.sides[list.side()];
        let path = join(&pair.path, name);
        if self.is_excluded(&path, found.is_dir()) {
            return;
        }
        let is_top = pair.path.as_os_str() == "/" && name == LOST_AND_FOUND;
        let is_of_one_root = self.roots[list.side()] && !self.roots[1 - list.side()];
        if is_top && is_of_one_root && found.is_dir() {
            let (names, problem) = side.names(&list.names.path_of(name), found);
            if problem.is_none() && names.get(0).is_none() {
                return;
            }
        }
        looked.only_in(list.which, path, found.kind);
    }

    /// Looks at a name that both sides have.
    fn named_alike(&self, pair: &Pair, lists: [&List; 2], path: &mut Vec<u8>, looked: &mut Looked) {
        let Some(name) = lists[0].get() else { return };
        let xattrs_matter = self.options.aspects.xattrs;
        let found = lists.map(|list| {
            let side = self.sides[list.side()];
            side.look(&list.names, list.next, name, xattrs_matter)
        });
        let found = match found {
            [Ok(Some(one)), Ok(Some(other))] => [one, other],
            // What has gone since its name was read is not there.
            [Ok(Some(one)), Ok(None)] => return self.only_there(pair, lists[0], &one, looked),
            [Ok(None), Ok(Some(other))] => return self.only_there(pair, lists[1], &other, looked),
            found => {
                for (list, found) in lists.iter().zip(found) {
                    if let Err(e) = found {
                        looked.problem(list.which, e);
                    }
                }
                return;
            }
        };
        if self.options.exclude.is_some() {
            // In one buffer: there are many.
            path.clear();
            path.extend_from_slice(pair.path.as_os_str().as_bytes());
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let path = Path::new(OsStr::from_bytes(path));
            if self.is_excluded(path, found[0].is_dir() || found[1].is_dir()) {
                return;
            }
        }
        let at = At {
            told: &pair.path,
            dirs: [&pair.paths[0], &pair.paths[1]],
            name: Some(name),
        };
        self.both(&at, found, looked);
    }

    /// Compares what both sides have, but for what is below.
    fn both(&self, at: &At<'_>, found: [Found; 2], looked: &mut Looked) {
        looked.common += 1;
        let [one, other] = &found;
        if one.kind != other.kind {
            let what = What::Kind(one.kind, other.kind);
            return looked.differs(at.path(), what);
        }
        let aspects = self.options.aspects;
        let mut differences = Vec::new();
        let content = if aspects.content && one.kind == FileType::Regular {
            self.content(at, &found, &mut differences, looked)
        } else {
            None
        };
        let compared = Both {
            sides: self.sides,
            at,
            found: [one, other],
        };
        let mut problems = Vec::new();
        compared.attributes(aspects, &mut differences, &mut problems);
        for (side, problem) in problems {
            looked.problem(side, problem);
        }
        let has_several = |found: &Found| found.names > 1 && !found.is_dir();
        let numbers = (aspects.links && (has_several(one) || has_several(other)))
            .then(|| [one, other].map(|found| (found.number, has_several(found))));
        if !differences.is_empty() || content.is_some() || numbers.is_some() {
            looked.told.push(Told::Entry(Entry {
                path: at.path(),
                differences,
                content: content.map(|verdict| (verdict, one.size)),
                numbers,
            }));
        }
        if one.is_dir() {
            looked.below.push(Pair {
                path: at.path(),
                paths: [at.on(0), at.on(1)],
                found,
            });
        }
    }

    /// Says what differs in the content of two files, or that it is to be read.
    fn content(
        &self,
        at: &At<'_>,
        found: &[Found; 2],
        differences: &mut Vec<What>,
        looked: &mut Looked,
    ) -> Option<Arc<Verdict>> {
        let [one, other] = found;
        if one.size != other.size {
            differences.push(What::Content {
                sizes: (one.size, other.size),
                at: None,
            });
            return None;
        }
        if one.size == 0 || self.options.trust_times && is_same_time(one, other) {
            return None;
        }
        let verdict = if one.names > 1 && other.names > 1 {
            let mut linked = self.linked.lock();
            let numbers = [one.number, other.number];
            if let Some(known) = linked.get(&numbers) {
                return Some(Arc::clone(known));
            }
            let verdict = Arc::new(Verdict::default());
            linked.insert(numbers, Arc::clone(&verdict));
            verdict
        } else {
            Arc::new(Verdict::default())
        };
        looked.jobs.push(Job {
            found: found.clone(),
            paths: [at.on(0), at.on(1)],
            verdict: Arc::clone(&verdict),
        });
        Some(verdict)
    }
}

/// The names of one of two directories, and how far they were gone through.
struct List {
    names: Names,
    next: usize,
    which: Which,
    is_stored: bool,
}

impl List {
    fn get(&self) -> Option<&[u8]> {
        self.names.get(self.next)
    }

    fn side(&self) -> usize {
        self.which.of(0, 1)
    }

    /// Goes past names that no file can have.
    fn skip_bad(&mut self, looked: &mut Looked) {
        while let Some(name) = self.names.get(self.next)
            && let Err(e) = self.names.check(self.next, name, self.is_stored)
        {
            looked.problem(self.which, e);
            self.next += 1;
        }
    }
}

/// Telling, one after the other.
struct Telling<T> {
    tell: T,
    /// Whether content is compared.
    has_content: bool,
    report: Report,
    /// The first names of files with several.
    first_names: [HashMap<(u64, u64), PathBuf>; 2],
}

impl<T: FnMut(Difference) -> ControlFlow<()>> Telling<T> {
    fn tell_all(&mut self, told: Vec<Told>) -> ControlFlow<()> {
        for one in told {
            match one {
                Told::Problem(side, problem) => self.report.problem(side, problem),
                Told::Entry(entry) => self.entry(entry)?,
            }
        }
        ControlFlow::Continue(())
    }

    fn entry(&mut self, entry: Entry) -> ControlFlow<()> {
        let mut is_same = true;
        if let Some((verdict, size)) = &entry.content {
            let (at, failed) = verdict.get();
            is_same = at.is_none() && failed.is_none();
            if let Some((side, problem)) = failed {
                self.report.problem(*side, problem.clone());
            }
            if at.is_some() {
                let sizes = (*size, *size);
                self.one(&entry.path, What::Content { sizes, at })?;
            }
        }
        for mut what in entry.differences {
            match &mut what {
                What::Content { .. } => is_same = false,
                What::Layout {
                    is_same_content, ..
                } => *is_same_content = self.has_content.then_some(is_same),
                _ => {}
            }
            self.one(&entry.path, what)?;
        }
        let Some(numbers) = entry.numbers else {
            return ControlFlow::Continue(());
        };
        let mut earlier = self
            .first_names
            .iter_mut()
            .zip(numbers)
            .map(|(names, number)| {
                let (number, has_several) = number;
                if !has_several {
                    return None;
                }
                let known = names.get(&number).cloned();
                if known.is_none() {
                    names.insert(number, entry.path.clone());
                }
                known
            });
        let (one, other) = (earlier.next().flatten(), earlier.next().flatten());
        drop(earlier);
        if one == other {
            return ControlFlow::Continue(());
        }
        self.one(&entry.path, What::Link(one, other))
    }

    fn one(&mut self, path: &Path, what: What) -> ControlFlow<()> {
        self.report.differences += 1;
        (self.tell)(Difference {
            path: path.to_owned(),
            what,
        })
    }
}
