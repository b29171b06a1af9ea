//! Everything below a directory, parents before children, names in the order of their bytes.
//!
//! Every directory is entered once. One that has a second place, which only a damaged file system
//! has, is a problem there, so the walk ends.

use crate::listing::{Named, names_of};
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_format::Ino;
use std::collections::HashSet;
use std::sync::Arc;

/// Directories whose path is longer than this are not entered.
const LONGEST_PATH: usize = 1 << 20;

/// Bytes, about, that names of directories on the way may take before no further one is entered: a
/// damaged file system can have a chain of directories that share their blocks.
const MOST_NAMES: usize = 256 << 20;

/// The walk.
#[derive(Debug)]
pub(crate) struct Walk {
    start: Option<Arc<Inode>>,
    levels: Vec<Level>,
    /// The path of the innermost level, which begins with those of the others.
    path: Vec<u8>,
    /// Bytes that the names of all levels take, and how many they may take.
    names: usize,
    most_names: usize,
    entered: HashSet<Ino>,
    /// A directory that was given out and is listed next, with its path.
    pending: Option<(Vec<u8>, Arc<Inode>)>,
}

#[derive(Debug)]
struct Level {
    /// How much of the walk's path is this one's.
    path_len: usize,
    /// Bytes that its names take.
    taken: usize,
    names: std::vec::IntoIter<Named>,
    last: Vec<u8>,
}

/// What a walk comes to, with its path below the start: empty for the start itself.
#[derive(Debug)]
pub(crate) enum Next {
    File(Vec<u8>, Arc<Inode>),
    Problem(Vec<u8>, String),
}

impl Walk {
    pub(crate) fn new(start: Arc<Inode>) -> Self {
        Self::bounded(start, MOST_NAMES)
    }

    /// A walk that enters no directory below names of more than so many bytes.
    pub(crate) fn bounded(start: Arc<Inode>, most_names: usize) -> Self {
        Self {
            start: Some(start),
            levels: Vec::new(),
            path: Vec::new(),
            names: 0,
            most_names,
            entered: HashSet::new(),
            pending: None,
        }
    }

    pub(crate) fn next(&mut self, fs: &Fs) -> Option<Next> {
        if let Some(start) = self.start.take() {
            return Some(self.give(Vec::new(), start));
        }
        if let Some((path, dir)) = self.pending.take() {
            if path.len() > LONGEST_PATH {
                let why = "the directory lies too deep to be entered";
                return Some(Next::Problem(path, why.to_owned()));
            }
            if self.names > self.most_names {
                let why = "the directories around it have too many names for it to be entered";
                return Some(Next::Problem(path, why.to_owned()));
            }
            let (names, error) = names_of(fs, &dir);
            let of_name = |named: &Named| size_of::<Named>() + named.name.capacity();
            let taken = names.iter().map(of_name).sum();
            self.names += taken;
            self.path.clone_from(&path);
            self.levels.push(Level {
                path_len: path.len(),
                taken,
                names: names.into_iter(),
                last: Vec::new(),
            });
            if let Some(e) = error {
                return Some(Next::Problem(path, e.to_string()));
            }
        }
        loop {
            let level = self.levels.last_mut()?;
            let Some(named) = level.names.next() else {
                self.names -= level.taken;
                self.levels.pop();
                continue;
            };
            // What a level further in has added is gone.
            self.path.truncate(level.path_len);
            let mut path = self.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&named.name);
            let is_twice = level.last == named.name;
            let why = if !is_sound_name(&named.name) {
                "no file may have such a name"
            } else if is_twice {
                "the directory has this name twice"
            } else {
                level.last = named.name;
                return Some(match fs.named_inode(named.ino) {
                    Ok(inode) => self.give(path, inode),
                    Err(e) => Next::Problem(path, e.to_string()),
                });
            };
            return Some(Next::Problem(path, why.to_owned()));
        }
    }

    fn give(&mut self, path: Vec<u8>, inode: Arc<Inode>) -> Next {
        if inode.is_dir() {
            if !self.entered.insert(inode.ino()) {
                let why = "the directory has a second place in the file system";
                return Next::Problem(path, why.to_owned());
            }
            self.pending = Some((path.clone(), Arc::clone(&inode)));
        }
        Next::File(path, inode)
    }
}

/// Whether a name can only be that of a file in its own directory.
fn is_sound_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}
