//! `os.walk`.

use crate::ahead::{Ahead, PLANNED};
use crate::call::outside;
use crate::names::Names;
use crate::path::{ImagePath, Text, bytes_of, give, join};
use crate::volume::Shared;
use extant::{FileType, Filesystem, NameReader};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
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
    /// What reads those that come next.
    ahead: Option<Ahead>,
    /// The directory given out last, whose list of directories the caller may have changed.
    given: Option<Given>,
}

#[derive(Debug)]
struct Given {
    path: Vec<u8>,
    dirs: Py<PyList>,
    below: Below,
}

#[derive(Debug)]
enum Step {
    Enter(Dir),
    Give(Py<PyTuple>),
}

/// A directory that is to be entered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dir {
    pub(crate) path: Vec<u8>,
    /// Its number, where it stays the same and the caller cannot have meant another.
    pub(crate) ino: Option<u32>,
}

/// What is known about the directories in a directory.
#[derive(Debug, Default)]
struct Below {
    inos: HashMap<Vec<u8>, u32>,
    links: HashSet<Vec<u8>>,
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
    below: Below,
}

impl Listed {
    /// How much memory it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.names.memory()
    }

    /// The names of directories, or those of all other files.
    fn of<'py>(&self, py: Python<'py>, dirs: bool, is_bytes: bool) -> PyResult<Bound<'py, PyList>> {
        let count = if dirs {
            self.dirs
        } else {
            self.is_dir.len() - self.dirs
        };
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
        self.below = Below::default();
    }

    /// Reads the names of a directory by its number. Returns `false` if that cannot be: why is
    /// said where it is read by its path.
    fn by_number(&mut self, reader: &mut NameReader, dir: &Dir) -> bool {
        dir.ino.is_some_and(|ino| {
            let read = reader.for_each_name(ino, as_path(&dir.path), |name, ino, file_type| {
                self.names.push(name, ino, file_type);
                ControlFlow::Continue(())
            });
            read.is_ok()
        })
    }

    /// Finds out which names lead to directories.
    fn look(&mut self, fs: &Filesystem, path: &[u8]) {
        let (names, below) = (&self.names, &mut self.below);
        let is_dir = names.iter().map(|name| match name.file_type {
            Some(FileType::Directory) => {
                below.inos.insert(name.bytes.to_vec(), name.ino);
                true
            }
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
                    below.links.insert(name.bytes.to_vec());
                }
                is_dir
            }
            Some(_) => false,
        });
        self.is_dir.extend(is_dir);
        self.dirs = self.is_dir.iter().filter(|is_dir| **is_dir).count();
    }
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
                    ino: None,
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

    /// Plans to enter the directories of a list.
    fn enter(
        &self,
        steps: &mut Vec<Step>,
        path: &[u8],
        dirs: &Bound<'_, PyList>,
        below: &Below,
    ) -> PyResult<()> {
        for dir in dirs.iter().rev() {
            let name = if let Ok(text) = dir.cast::<PyString>() {
                bytes_of(text)?
            } else {
                dir.cast::<PyBytes>()?.as_bytes().to_vec()
            };
            if self.follow_links || !below.links.contains(&name) {
                let ino = below.inos.get(&name).copied();
                steps.push(Step::Enter(Dir {
                    path: join(path, &name),
                    ino: ino.filter(|_| self.shared.is_still()),
                }));
            }
        }
        Ok(())
    }

    /// Has a thread read the directories that come next, where nothing can change them.
    fn go_ahead(&self, state: &mut State, fs: &Filesystem, now: &Dir) {
        if state.ahead.is_none() && state.entered == ALONE {
            state.ahead = self.shared.read_ahead(fs);
        }
        state.ahead = state.ahead.take().filter(Ahead::is_here);
        let Some(ahead) = &state.ahead else {
            return;
        };
        let next = || {
            state.steps.iter().rev().filter_map(|step| match step {
                Step::Enter(dir) => Some(dir),
                Step::Give(_) => None,
            })
        };
        if ahead.len() < PLANNED / 4 || !next().next().is_none_or(|first| ahead.knows(first)) {
            ahead.plan(now, next());
        }
    }

    fn step<'py>(
        &self,
        py: Python<'py>,
        state: &mut State,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if let Some(given) = state.given.take() {
            let dirs = given.dirs.bind(py);
            self.enter(&mut state.steps, &given.path, dirs, &given.below)?;
        }
        loop {
            let dir = match state.steps.pop() {
                None => return Ok(None),
                Some(Step::Give(tuple)) => return Ok(Some(tuple.into_bound(py))),
                Some(Step::Enter(dir)) => dir,
            };
            let fs = self.shared.fs()?;
            state.entered += 1;
            self.go_ahead(state, &fs, &dir);
            let listed = {
                let (dir, ahead) = (&dir, state.ahead.as_ref());
                outside(py, move || match ahead {
                    Some(ahead) => ahead.read(&fs, dir),
                    None => Listed::read(&fs, &mut fs.name_reader(), dir, Listed::default()),
                })
            };
            let mut listed = match listed {
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
            let files = listed.of(py, false, self.is_bytes)?;
            let below = std::mem::take(&mut listed.below);
            let path = dir.path;
            if let Some(ahead) = &state.ahead {
                ahead.give_back(listed);
            }
            let tuple = PyTuple::new(
                py,
                [
                    give(py, &path, self.is_bytes)?,
                    dirs.clone().into_any(),
                    files.into_any(),
                ],
            )?;
            if self.top_down {
                state.given = Some(Given {
                    path,
                    dirs: dirs.unbind(),
                    below,
                });
                return Ok(Some(tuple));
            }
            state.steps.push(Step::Give(tuple.unbind()));
            self.enter(&mut state.steps, &path, &dirs, &below)?;
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
