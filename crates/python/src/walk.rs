//! `os.walk`.

use crate::ahead::{Ahead, Job};
use crate::call::outside;
use crate::error::{Failure, Kind};
use crate::names::{Name, Names};
use crate::path::{ImagePath, Text, bytes_of, give, join};
use crate::volume::Shared;
use extant::{FileType, Filesystem, NameReader};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What is left of a walk: an iterator of `(dirpath, dirnames, filenames)`.
#[pyclass(frozen, module = "extant._native")]
#[derive(Debug)]
pub(crate) struct Walk {
    shared: Arc<Shared>,
    is_bytes: bool,
    top_down: bool,
    follow_links: bool,
    on_error: Option<Py<PyAny>>,
    /// `None` while a thread makes a step.
    state: Mutex<Option<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The last first.
    steps: Vec<Step>,
    /// How many directories were entered.
    entered: usize,
    seen: Seen,
    /// What reads those that come next.
    ahead: Option<Ahead>,
    /// The directory given out last, whose list of directories the caller may have changed.
    given: Option<Given>,
}

#[derive(Debug)]
struct Given {
    path: Vec<u8>,
    depth: usize,
    dirs: Py<PyList>,
    listed: Listed,
}

#[derive(Debug)]
pub(crate) enum Step {
    Enter(Dir),
    /// As `Enter`, and a thread may have read it.
    Planned(Arc<Job>),
    Give(Py<PyTuple>),
}

/// The directory that is entered now.
enum Next {
    Alone(Dir),
    Planned(Arc<Job>),
}

impl Next {
    fn dir(&self) -> &Dir {
        match self {
            Self::Alone(dir) => dir,
            Self::Planned(job) => job.dir(),
        }
    }

    fn into_path(self) -> Vec<u8> {
        match self {
            Self::Alone(dir) => dir.path,
            Self::Planned(job) => job.dir().path.clone(),
        }
    }
}

impl State {
    /// Gives memory back, to be used again.
    fn give_back(&mut self, given: Given) {
        if let Some(ahead) = &mut self.ahead {
            ahead.give_back(given.listed);
        }
    }
}

/// A directory that is to be entered.
#[derive(Debug, Default)]
pub(crate) struct Dir {
    pub(crate) path: Vec<u8>,
    /// Its number, or 0 where that is not known or may be reached again: behind a link.
    pub(crate) ino: u32,
    /// How many directories of the walk it lies in.
    depth: usize,
    /// Its number stays the same, and the caller cannot have meant another directory.
    is_still: bool,
}

/// The directories that were entered. In a damaged file system one may lie in itself, or in two
/// others: to enter it again could go on for ever.
#[derive(Debug, Default)]
struct Seen {
    /// Those of a file system that nobody changes.
    all: HashSet<u32>,
    /// Elsewhere those that the directory lies in alone: others may have been moved.
    around: Vec<u32>,
}

impl Seen {
    /// Whether a directory with this number may be entered.
    fn enter(&mut self, dir: &Dir, ino: u32) -> bool {
        if dir.is_still {
            return ino == 0 || self.all.insert(ino);
        }
        self.around.truncate(dir.depth);
        let is_new = ino == 0 || !self.around.contains(&ino);
        self.around.push(ino);
        is_new
    }
}

/// Directories that a walk enters before a thread reads ahead of it.
const ALONE: usize = 8;

/// One directory: its names, and which of them are links to directories.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    names: Names,
    /// For each name, whether it leads to a directory.
    is_dir: Vec<bool>,
    dirs: usize,
    /// Which names are links to directories.
    links: Vec<usize>,
}

impl Listed {
    /// How much memory it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.names.memory() + self.is_dir.capacity()
    }

    /// The names of directories, or those of all other files.
    fn of<'py>(&self, py: Python<'py>, dirs: bool, is_bytes: bool) -> PyResult<Bound<'py, PyList>> {
        let count = if dirs {
            self.dirs
        } else {
            self.is_dir.len() - self.dirs
        };
        if count == 0 {
            return Ok(PyList::empty(py));
        }
        let mut names = self
            .names
            .iter()
            .zip(&self.is_dir)
            .filter(|(_, is_dir)| **is_dir == dirs)
            .map(|(name, _)| Text(name.bytes, is_bytes));
        // A list that has its length from the beginning: there are so many names.
        PyList::new(
            py,
            (0..count).map(|_| names.next().unwrap_or(Text(b"", is_bytes))),
        )
    }

    /// The names of directories, the last first, and whether they are links.
    fn dirs_from_the_last(&self) -> impl Iterator<Item = (Name<'_>, bool)> {
        let of_dirs = self.is_dir.iter().enumerate().rev();
        of_dirs
            .filter(|(_, is_dir)| **is_dir)
            .filter_map(|(at, _)| {
                let is_link = self.links.binary_search(&at).is_ok();
                self.names.get(at).map(|name| (name, is_link))
            })
    }

    /// Reads a directory into the memory of another, which is not needed any more.
    pub(crate) fn read(
        fs: &Filesystem,
        reader: &mut NameReader,
        dir: &Dir,
        spare: Self,
    ) -> extant::Result<Self> {
        let mut listed = spare;
        listed.clear();
        if !listed.by_number(reader, dir) {
            listed.clear();
            fs.for_each_name(as_path(&dir.path), |name, ino, file_type| {
                listed.names.push(name, ino, file_type);
                ControlFlow::Continue(())
            })?;
        }
        listed.look(fs, &dir.path);
        Ok(listed)
    }

    fn clear(&mut self) {
        self.names.clear();
        self.is_dir.clear();
        self.links.clear();
    }

    /// Reads the names of a directory by its number. Returns `false` if that cannot be: why is
    /// said where it is read by its path.
    fn by_number(&mut self, reader: &mut NameReader, dir: &Dir) -> bool {
        if dir.ino == 0 || !dir.is_still || dir.depth == 0 {
            return false;
        }
        let read = reader.for_each_name(dir.ino, as_path(&dir.path), |name, ino, file_type| {
            self.names.push(name, ino, file_type);
            ControlFlow::Continue(())
        });
        read.is_ok()
    }

    /// Finds out which names lead to directories.
    fn look(&mut self, fs: &Filesystem, path: &[u8]) {
        let (names, links) = (&self.names, &mut self.links);
        let is_dir = names
            .iter()
            .enumerate()
            .map(|(n, name)| match name.file_type {
                Some(FileType::Directory) => true,
                Some(FileType::Symlink) | None => {
                    let at = join(path, name.bytes);
                    let is_dir = fs.metadata(as_path(&at)).is_ok_and(|found| found.is_dir());
                    let is_link = || match name.file_type {
                        Some(_) => true,
                        None => fs
                            .symlink_metadata(as_path(&at))
                            .is_ok_and(|found| found.is_symlink()),
                    };
                    if is_dir && is_link() {
                        links.push(n);
                    }
                    is_dir
                }
                Some(_) => false,
            });
        self.is_dir.extend(is_dir);
        self.dirs = self.is_dir.iter().filter(|is_dir| **is_dir).count();
    }
}

/// The bytes of a name in a list of the caller's.
fn name_of<'a>(name: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    let Ok(text) = name.cast::<PyString>() else {
        return Ok(Cow::Borrowed(name.cast::<PyBytes>()?.as_bytes()));
    };
    Ok(match text.to_str() {
        Ok(utf8) => Cow::Borrowed(utf8.as_bytes()),
        Err(_) => Cow::Owned(bytes_of(text)?),
    })
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Walk {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        top: &ImagePath,
        top_down: bool,
        follow_links: bool,
        on_error: Option<Py<PyAny>>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            is_bytes: top.is_bytes,
            top_down,
            follow_links,
            on_error,
            state: Mutex::new(Some(State {
                steps: vec![Step::Enter(Dir {
                    path: top.bytes().to_vec(),
                    is_still: shared.is_still(),
                    ..Dir::default()
                })],
                ..State::default()
            })),
        }
    }

    /// The state, for the time of a step.
    fn take(&self) -> PyResult<State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = || PyValueError::new_err("walk already executing");
        state.take().ok_or_else(busy)
    }

    fn put(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    /// Plans to enter the directories of a list, and returns how many these are.
    fn enter(&self, py: Python<'_>, steps: &mut Vec<Step>, given: &Given) -> PyResult<usize> {
        let (before, depth) = (steps.len(), given.depth + 1);
        // The caller seldom changes the list. Where it is another one, names are looked for.
        let mut expected = given.listed.dirs_from_the_last();
        let mut others: Option<HashMap<&[u8], (Name<'_>, bool)>> = None;
        for dir in given.dirs.bind(py).iter().rev() {
            let name = name_of(&dir)?;
            let known = match &others {
                Some(others) => others.get(&*name).copied(),
                None => match expected.next() {
                    Some(next) if next.0.bytes == &*name => Some(next),
                    _ => {
                        let all = given.listed.dirs_from_the_last();
                        let others = others.insert(all.map(|dir| (dir.0.bytes, dir)).collect());
                        others.get(&*name).copied()
                    }
                },
            };
            if known.is_some_and(|(_, is_link)| is_link) && !self.follow_links {
                continue;
            }
            let ino = match known {
                Some((known, false)) => known.ino,
                _ => 0,
            };
            steps.push(Step::Enter(Dir {
                path: join(&given.path, &name),
                ino,
                depth,
                is_still: self.shared.is_still(),
            }));
        }
        Ok(steps.len() - before)
    }

    /// Has a thread read the directories that come next, where nothing can change them. So many of
    /// the last steps are `new`. Returns what was read of the one that is entered now.
    fn go_ahead(
        &self,
        state: &mut State,
        now: &Next,
        new: usize,
    ) -> PyResult<Option<extant::Result<Listed>>> {
        state.entered += 1;
        if state.ahead.is_none() && state.entered == ALONE {
            let fs = self.shared.fs()?;
            state.ahead = self.shared.read_ahead(&fs);
        }
        state.ahead = state.ahead.take().filter(Ahead::is_here);
        let Some(ahead) = &mut state.ahead else {
            return Ok(None);
        };
        let ready = match now {
            Next::Planned(job) => ahead.take(job),
            Next::Alone(_) => None,
        };
        ahead.plan(&mut state.steps, new);
        Ok(ready)
    }

    /// Refuses to enter a directory once more, which only damage leads to.
    fn check(&self, py: Python<'_>, seen: &mut Seen, dir: &Dir) -> PyResult<()> {
        // By way of links it is the caller's own wish.
        if self.follow_links {
            return Ok(());
        }
        let top = (dir.depth == 0).then(|| {
            let fs = self.shared.fs()?;
            let ino = outside(py, move || {
                let found = fs.metadata(as_path(&dir.path));
                Ok::<_, Failure>(found.map_or(0, |found| found.ino()))
            })?;
            Ok::<_, PyErr>(ino)
        });
        let ino = top.transpose()?.unwrap_or(dir.ino);
        if seen.enter(dir, ino) {
            return Ok(());
        }
        let failure = Failure {
            kind: Kind::Damaged,
            errno: extant::errno::EUCLEAN,
            text: "the directory lies in itself, or in two others".to_owned(),
            path: Some(dir.path.clone()),
            other: None,
        };
        Err(failure.raise(py))
    }

    /// Reads a directory, where that has not been done.
    fn list(
        &self,
        py: Python<'_>,
        ahead: &mut Option<Ahead>,
        next: &Next,
        ready: Option<extant::Result<Listed>>,
    ) -> PyResult<Listed> {
        if let Some(listed) = ready {
            self.shared.check_open()?;
            return listed.map_err(|e| Failure::from(e).raise(py));
        }
        let fs = self.shared.fs()?;
        let spare = ahead.as_mut().map(Ahead::spare).unwrap_or_default();
        let ahead = ahead.as_ref();
        outside(py, move || match (ahead, next) {
            (Some(ahead), Next::Planned(job)) => ahead.read(&fs, job, spare),
            (Some(ahead), Next::Alone(dir)) => ahead.read_here(&fs, dir, spare),
            (None, _) => Listed::read(&fs, &mut fs.name_reader(), next.dir(), spare),
        })
    }

    fn step<'py>(
        &self,
        py: Python<'py>,
        state: &mut State,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut new = 0;
        if let Some(given) = state.given.take() {
            new = self.enter(py, &mut state.steps, &given)?;
            state.give_back(given);
        }
        loop {
            let next = match state.steps.pop() {
                None => return Ok(None),
                Some(Step::Give(tuple)) => return Ok(Some(tuple.into_bound(py))),
                Some(Step::Enter(dir)) => Next::Alone(dir),
                Some(Step::Planned(job)) => Next::Planned(job),
            };
            // The first of the new is this one.
            let ready = self.go_ahead(state, &next, std::mem::take(&mut new).saturating_sub(1))?;
            let checked = self.check(py, &mut state.seen, next.dir());
            if let (Err(_), Next::Planned(job), Some(_)) = (&checked, &next, &state.ahead) {
                job.withdraw();
            }
            let listed = checked.and_then(|()| self.list(py, &mut state.ahead, &next, ready));
            let listed = match listed {
                Ok(listed) => listed,
                Err(e) if e.is_instance_of::<PyOSError>(py) => {
                    if let Some(on_error) = &self.on_error {
                        on_error.call1(py, (e.into_value(py),))?;
                    }
                    continue;
                }
                Err(e) => return Err(e),
            };
            let dirs = listed.of(py, true, self.is_bytes)?;
            let tuple = PyTuple::new(
                py,
                [
                    give(py, &next.dir().path, self.is_bytes)?,
                    dirs.clone().into_any(),
                    listed.of(py, false, self.is_bytes)?.into_any(),
                ],
            )?;
            let given = Given {
                depth: next.dir().depth,
                path: next.into_path(),
                dirs: dirs.unbind(),
                listed,
            };
            if self.top_down {
                state.given = Some(given);
                return Ok(Some(tuple));
            }
            state.steps.push(Step::Give(tuple.unbind()));
            new = self.enter(py, &mut state.steps, &given)?;
            state.give_back(given);
        }
    }
}

#[pymethods]
impl Walk {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut state = self.take()?;
        let stepped = self.step(py, &mut state);
        // An exception ends it, as it ends a generator.
        self.put(if stepped.is_ok() {
            state
        } else {
            State::default()
        });
        stepped
    }
}
