//! Building a tree over a file system that is there.
//!
//! What is there is looked up when it is asked for, name by name, and is a node then like any
//! other.

use std::collections::{HashMap, HashSet};

use super::super::base::{Base, Over, Standing, Stands};
use super::super::error::{SourceError, SourceResult};
use super::super::model::{FileType, NodeId};
use super::{Content, GONE, Meta, TreeBuilder};
use crate::source::walk::{Found, file, parts};

/// What a builder knows of the file system below.
#[derive(Debug)]
pub(super) struct Ground {
    base: Box<dyn Base>,
    standing: HashMap<NodeId, Stands>,
    by_number: HashMap<u64, NodeId>,
    /// The rows of links that are there.
    rows: HashSet<u32>,
    /// Their names: they are looked up once, whatever becomes of them.
    fetched: HashSet<(NodeId, Box<[u8]>)>,
    /// Names that were taken away before the builder was made.
    removed: HashSet<(NodeId, Box<[u8]>)>,
    /// What could not be read.
    failed: Option<String>,
}

impl Ground {
    pub(super) fn again(over: Over) -> Self {
        let Over {
            base,
            standing,
            removed,
        } = over;
        let by_number = standing.iter();
        let by_number = by_number.map(|(id, stands)| (stands.number, *id)).collect();
        Self {
            base,
            standing,
            by_number,
            rows: HashSet::new(),
            fetched: HashSet::new(),
            removed: removed.into_iter().collect(),
            failed: None,
        }
    }
}

impl TreeBuilder {
    /// Makes a tree over a file system: it has what that has, until something is changed.
    ///
    /// # Errors
    ///
    /// [`SourceError::Base`] if its root cannot be read, or is no directory.
    pub fn over(base: Box<dyn Base>) -> SourceResult<Self> {
        let problem = |problem: String| SourceError::Base { problem };
        let root = base.find(b"").map_err(problem)?;
        let root = root.filter(|root| root.kind == FileType::Directory);
        let root = root.ok_or_else(|| problem("the root is no directory".to_owned()))?;
        let mut builder = Self::new(root.meta)?;
        let stands = Stands {
            number: root.number,
            path: Box::default(),
            is_described: false,
        };
        builder.ground = Some(Box::new(Ground {
            base,
            by_number: HashMap::from([(stands.number, NodeId::ROOT)]),
            standing: HashMap::from([(NodeId::ROOT, stands)]),
            rows: HashSet::new(),
            fetched: HashSet::new(),
            removed: HashSet::new(),
            failed: None,
        }));
        Ok(builder)
    }

    /// Puts a file at a path, whose directory has to be there. A directory joins one that is there,
    /// and gives it what it has; everything else takes the place of what had its name.
    ///
    /// # Errors
    ///
    /// Those of [`add`](Self::add) and [`link`](Self::link); [`SourceError::Addition`] for a path
    /// that leads to no directory.
    pub fn put(&mut self, path: &[u8], meta: Meta, content: Content<'_>) -> SourceResult<()> {
        let is_directory = matches!(content, Content::Directory);
        let path = &*cleaned(path);
        match file(self, path) {
            Ok(Found::File(node)) if is_directory && self.kind(node) == FileType::Directory => {
                self.set_meta(node, meta)
            }
            Ok(Found::File(NodeId::ROOT)) => Err(misplaced(path, "is the root")),
            Ok(Found::File(_) | Found::NoFile(..)) => {
                let node = self.add(meta, content)?;
                self.put_name(path, node)
            }
            Ok(Found::NoDirectory(..)) => Err(misplaced(path, "has no directory to be in")),
            Err(problem) => Err(misplaced(path, &problem)),
        }
    }

    /// Gives the file at a path another name, in place of what had that.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Self::put).
    pub fn put_link(&mut self, first: &[u8], path: &[u8]) -> SourceResult<()> {
        match file(self, &cleaned(first)) {
            Ok(Found::File(node)) => self.put_name(&cleaned(path), node),
            Ok(_) => Err(misplaced(first, "is not there")),
            Err(problem) => Err(misplaced(first, &problem)),
        }
    }

    fn put_name(&mut self, path: &[u8], node: NodeId) -> SourceResult<()> {
        use crate::source::walk::{Reached, directory, split_last};
        let (above, name) = split_last(path);
        let dir = match directory(self, above) {
            Ok(Reached::Directory(dir)) => dir,
            Ok(Reached::Missing(..)) => return Err(misplaced(path, "has no directory to be in")),
            Err(problem) => return Err(misplaced(path, &problem)),
        };
        let name = name.unwrap_or_default();
        match self.lookup(dir, name) {
            Some(_) => {
                self.relink(dir, name, node);
                Ok(())
            }
            None => self.link(dir, name, node),
        }
    }

    /// Notes that a source says what a file has.
    pub(super) fn describe(&mut self, id: NodeId) {
        let ground = self.ground.as_mut();
        if let Some(stands) = ground.and_then(|ground| ground.standing.get_mut(&id)) {
            stands.is_described = true;
        }
    }

    /// The row of a name that is there in the file system below, looked up for the first time.
    pub(super) fn fetch(&mut self, parent: NodeId, name: &[u8]) -> Option<u32> {
        let ground = self.ground.as_ref()?;
        let dir = ground.standing.get(&parent)?;
        let key = (parent, Box::from(name));
        let is_known = ground.removed.contains(&key) || ground.fetched.contains(&key);
        if is_known || ground.failed.is_some() {
            return None;
        }
        let path = joined(&dir.path, name);
        let found = ground.base.find(&path);
        let fetched = found.and_then(|found| match found {
            None => Ok(None),
            Some(found) => {
                let row = self.stand(parent, name, path, found);
                row.map(Some).map_err(|e| e.to_string())
            }
        });
        fetched.unwrap_or_else(|problem| {
            if let Some(ground) = &mut self.ground {
                ground.failed = Some(problem);
            }
            None
        })
    }

    /// Adds a file that is there, under one of its names.
    fn stand(
        &mut self,
        parent: NodeId,
        name: &[u8],
        path: Vec<u8>,
        found: Standing,
    ) -> SourceResult<u32> {
        let Standing {
            number,
            kind,
            meta,
            size,
            target,
            device: (major, minor),
        } = found;
        let known = self.ground.as_ref().and_then(|ground| {
            let known = ground.by_number.get(&number);
            known.copied()
        });
        let node = match known {
            Some(node) => node,
            None => {
                let content = match kind {
                    FileType::Directory => Content::Directory,
                    FileType::Symlink => Content::Symlink(&target),
                    FileType::Regular => Content::Hole(size),
                    FileType::CharDevice | FileType::BlockDevice => {
                        Content::Device { kind, major, minor }
                    }
                    FileType::Fifo => Content::Fifo,
                    FileType::Socket => Content::Socket,
                };
                self.add(meta, content)?
            }
        };
        self.link(parent, name, node)?;
        let row = self.links.len() as u32 - 1;
        if let Some(ground) = &mut self.ground {
            ground.rows.insert(row);
            ground.fetched.insert((parent, Box::from(name)));
            ground.by_number.insert(number, node);
            let path = path.into_boxed_slice();
            ground.standing.entry(node).or_insert(Stands {
                number,
                path,
                is_described: false,
            });
        }
        Ok(row)
    }

    /// Looks up all names in a directory.
    pub(super) fn fetch_all(&mut self, dir: NodeId) {
        let Some(ground) = &mut self.ground else {
            return;
        };
        let Some(stands) = ground.standing.get(&dir) else {
            return;
        };
        match ground.base.names(&stands.path) {
            Ok(names) => {
                for name in names {
                    self.find(dir, &name);
                }
            }
            Err(problem) => ground.failed = Some(problem),
        }
    }

    /// What lies below, for the finished tree: with the names that were taken away.
    pub(super) fn take_ground(&mut self) -> SourceResult<Option<Over>> {
        let Some(ground) = self.ground.take() else {
            return Ok(None);
        };
        let Ground {
            base,
            standing,
            rows,
            removed,
            failed,
            ..
        } = *ground;
        if let Some(problem) = failed {
            return Err(SourceError::Base { problem });
        }
        let links = rows.into_iter().map(|row| self.links[row as usize]);
        let gone = links.filter(|link| link.node == GONE);
        let gone = gone.map(|link| (link.parent, Box::from(self.rows.name_at(link.name))));
        let mut removed: Vec<(NodeId, Box<[u8]>)> = gone.chain(removed).collect();
        removed.sort_unstable();
        Ok(Some(Over {
            base,
            standing,
            removed,
        }))
    }
}

impl Over {
    /// With the numbers that the nodes have in the finished tree, which has so many; others are
    /// left out.
    pub(super) fn renumbered(self, numbers: &[u32], len: usize) -> Self {
        let new = |old: NodeId| {
            let number = numbers.get(old.index()).copied();
            number.filter(|new| (*new as usize) < len).map(NodeId)
        };
        Self {
            base: self.base,
            standing: self
                .standing
                .into_iter()
                .filter_map(|(id, stands)| Some((new(id)?, stands)))
                .collect(),
            removed: self
                .removed
                .into_iter()
                .filter_map(|(dir, name)| Some((new(dir)?, name)))
                .collect(),
        }
    }
}

/// A path without names that say nothing.
pub(in crate::source) fn cleaned(path: &[u8]) -> Vec<u8> {
    let names = parts(path).filter(|name| *name != b".");
    names.collect::<Vec<_>>().join(&b'/')
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        [] => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}

fn misplaced(path: &[u8], problem: &str) -> SourceError {
    SourceError::Addition {
        path: String::from_utf8_lossy(path).into_owned(),
        problem: problem.to_owned(),
    }
}
