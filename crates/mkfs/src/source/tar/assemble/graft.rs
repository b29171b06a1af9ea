//! Directories over what other sources hold.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::super::super::error::{SourceError, SourceResult};
use super::super::super::model::{FileType, NodeId, Tree};
use super::super::super::whiteout::{Mark, PREFIX};
use super::super::{Checked, Problem};
use super::Assembly;

impl Assembly<'_> {
    /// Puts the tree of the directory `source` over what there is, as its entries in an archive
    /// would be: directories join, everything else takes the place of what had its name. Gives what
    /// there is to say about it.
    pub(in super::super::super) fn graft(
        &mut self,
        tree: &Tree,
        source: &Path,
    ) -> SourceResult<Vec<String>> {
        for dir in tree.ids().filter(|id| tree.node(*id).is_dir()) {
            for entry in tree.entries(dir) {
                let name = tree.name(entry);
                if !name.starts_with(PREFIX) {
                    continue;
                }
                let mut path = tree.path(dir).as_os_str().as_bytes().to_vec();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                let time = tree.node(entry.node()).times.mtime();
                let acted: Checked<()> = self
                    .passes_over(&path)
                    .and_then(|_| refuse_full(tree, entry.node(), &path))
                    .and_then(|_| self.take_away(&path, time));
                acted.map_err(|problem| {
                    let path = source.join(tree.path(entry.node()));
                    refusal(path, problem)
                })?;
            }
        }
        // Nothing is missed by the hard links of a directory.
        self.removed.forget();
        self.join(tree, source)
    }

    fn join(&mut self, tree: &Tree, source: &Path) -> SourceResult<Vec<String>> {
        // Symbolic links that directories take the place of: how many, and the first of them.
        let mut links = 0_u64;
        let mut first_link = None;
        // What has been added, for other names of it.
        let mut added: Vec<Option<NodeId>> = vec![None; tree.len()];
        self.builder
            .set_meta_from(NodeId::ROOT, tree, NodeId::ROOT)?;
        self.implied.remove(&NodeId::ROOT);
        let mut waiting = vec![(NodeId::ROOT, NodeId::ROOT)];
        while let Some((from, to)) = waiting.pop() {
            for (name, child) in tree.children(from) {
                if name.starts_with(PREFIX) {
                    continue;
                }
                let old = self.builder.lookup(to, name);
                if !tree.node(child).is_dir() {
                    let slot = &mut added[child.index()];
                    let node = match *slot {
                        Some(node) => node,
                        None => *slot.insert(self.builder.add_from(tree, child)?),
                    };
                    match old {
                        Some(_) => self.builder.relink(to, name, node),
                        None => self.builder.link(to, name, node)?,
                    }
                    continue;
                }
                let dir = match old {
                    Some(old) if self.builder.kind(old) == FileType::Directory => {
                        self.builder.set_meta_from(old, tree, child)?;
                        self.implied.remove(&old);
                        old
                    }
                    Some(old) => {
                        if let Some(target) = self.builder.symlink_target(old) {
                            links += 1;
                            let target = String::from_utf8_lossy(target).into_owned();
                            first_link.get_or_insert_with(|| (tree.path(child), target));
                        }
                        let dir = self.builder.add_from(tree, child)?;
                        self.replace_by_directory(to, name, dir);
                        dir
                    }
                    None => {
                        let dir = self.builder.add_from(tree, child)?;
                        self.builder.link(to, name, dir)?;
                        dir
                    }
                };
                waiting.push((child, dir));
            }
        }
        let told = first_link.map(|(path, target)| {
            let what = match links {
                1 => "a directory takes the place of a symbolic link".to_owned(),
                _ => format!("{links} directories take the place of symbolic links"),
            };
            let source = source.display();
            let path = path.display();
            format!("{source}: {what} of the sources before it ({path} was one to {target:?})")
        });
        Ok(told.into_iter().collect())
    }
}

/// Refuses a directory that is a whiteout with something in it, which would be lost.
fn refuse_full(tree: &Tree, node: NodeId, path: &[u8]) -> Checked<()> {
    match tree.children(node).next() {
        Some((name, _)) if Mark::of(path)? != Some(Mark::Housekeeping) => {
            let name = String::from_utf8_lossy(name);
            Err(format!(
                "a whiteout, which has nothing in it, but {name:?} lies there: give the directory \
                 another name, or leave it out with --exclude"
            )
            .into())
        }
        _ => Ok(()),
    }
}

fn refusal(path: PathBuf, problem: Problem) -> SourceError {
    match problem {
        Problem::Text(problem) => SourceError::Refused { path, problem },
        Problem::Source(error) => error,
    }
}
