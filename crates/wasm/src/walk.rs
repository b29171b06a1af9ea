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

/// The walk.
#[derive(Debug)]
pub(crate) struct Walk {
    start: Option<Arc<Inode>>,
    levels: Vec<Level>,
    entered: HashSet<Ino>,
    /// A directory that was given out and is listed next, with its path.
    pending: Option<(Vec<u8>, Arc<Inode>)>,
}

#[derive(Debug)]
struct Level {
    path: Vec<u8>,
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
        Self {
            start: Some(start),
            levels: Vec::new(),
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
            let (names, error) = names_of(fs, &dir);
            self.levels.push(Level {
                path: path.clone(),
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
                self.levels.pop();
                continue;
            };
            let mut path = level.path.clone();
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
