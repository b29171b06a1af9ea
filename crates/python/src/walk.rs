//! `os.walk`.

use crate::call::outside;
use crate::names::Names;
use crate::path::{ImagePath, bytes_of, give, join};
use crate::volume::Shared;
use extant::{FileType, Filesystem};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::collections::HashSet;
use std::ffi::OsStr;
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
    /// The directory given out last, whose list of directories the caller may have changed.
    given: Option<Given>,
}

#[derive(Debug)]
struct Given {
    path: Vec<u8>,
    dirs: Py<PyList>,
    links: HashSet<Vec<u8>>,
}

#[derive(Debug)]
enum Step {
    Enter(Vec<u8>),
    Give(Py<PyTuple>),
}

/// One directory: its names, and which of them are links to directories.
struct Listed {
    names: Names,
    /// For each name, whether it leads to a directory.
    is_dir: Vec<bool>,
    links: HashSet<Vec<u8>>,
}

impl Listed {
    fn read(fs: &Filesystem, path: &[u8]) -> extant::Result<Self> {
        let names = Names::read(fs, as_path(path))?;
        let mut links = HashSet::new();
        let is_dir = names.iter().map(|name| match name.file_type {
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
                    links.insert(name.bytes.to_vec());
                }
                is_dir
            }
            Some(_) => false,
        });
        let is_dir = is_dir.collect();
        Ok(Self {
            names,
            is_dir,
            links,
        })
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
                steps: vec![Step::Enter(top.bytes().to_vec())],
                given: None,
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
        links: &HashSet<Vec<u8>>,
    ) -> PyResult<()> {
        for dir in dirs.iter().rev() {
            let name = if let Ok(text) = dir.cast::<PyString>() {
                bytes_of(text)?
            } else {
                dir.cast::<PyBytes>()?.as_bytes().to_vec()
            };
            if self.follow_links || !links.contains(&name) {
                steps.push(Step::Enter(join(path, &name)));
            }
        }
        Ok(())
    }

    fn step<'py>(
        &self,
        py: Python<'py>,
        state: &mut State,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if let Some(given) = state.given.take() {
            let dirs = given.dirs.bind(py);
            self.enter(&mut state.steps, &given.path, dirs, &given.links)?;
        }
        loop {
            let path = match state.steps.pop() {
                None => return Ok(None),
                Some(Step::Give(tuple)) => return Ok(Some(tuple.into_bound(py))),
                Some(Step::Enter(path)) => path,
            };
            let fs = self.shared.fs()?;
            let listed = {
                let path = &path;
                outside(py, move || Listed::read(&fs, path))
            };
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
            let (dirs, files) = (PyList::empty(py), PyList::empty(py));
            for (name, is_dir) in listed.names.iter().zip(&listed.is_dir) {
                let name = give(py, name.bytes, self.is_bytes)?;
                if *is_dir { &dirs } else { &files }.append(name)?;
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
                    links: listed.links,
                });
                return Ok(Some(tuple));
            }
            state.steps.push(Step::Give(tuple.unbind()));
            self.enter(&mut state.steps, &path, &dirs, &listed.links)?;
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
