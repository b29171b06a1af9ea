//! What a package holds: files, links and directories by their paths.

use crate::programs::Done;
use std::collections::BTreeMap;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A directory.
    Dir,
    /// A directory in which all may make files, and each remove its own.
    Shared,
    /// A regular file.
    File {
        /// Permissions.
        mode: u32,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// A symbolic link.
    Link(String),
}

impl Item {
    /// A file that all may read.
    pub(super) fn text(bytes: impl Into<Vec<u8>>) -> Self {
        let (mode, bytes) = (0o644, bytes.into());
        Self::File { mode, bytes }
    }

    /// A file that all may run.
    pub(super) fn program(bytes: impl Into<Vec<u8>>) -> Self {
        let (mode, bytes) = (0o755, bytes.into());
        Self::File { mode, bytes }
    }

    /// Whether it is a directory.
    pub(super) fn is_dir(&self) -> bool {
        matches!(self, Self::Dir | Self::Shared)
    }

    /// The permissions, as an archive has them.
    pub(super) fn mode(&self) -> u32 {
        match self {
            Self::Dir => 0o755,
            Self::Shared => 0o1777,
            Self::File { mode, .. } => *mode,
            Self::Link(_) => 0o777,
        }
    }

    /// How many bytes of content there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::File { bytes, .. } => bytes.len(),
            Self::Dir | Self::Shared | Self::Link(_) => 0,
        }
    }
}

/// Items by their paths, which have no slash in front. Directories that items lie in are items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content(BTreeMap<String, Item>);

impl Content {
    /// Nothing.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds an item, and the directories above it.
    pub(super) fn add(&mut self, path: &str, item: Item) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Item::Dir);
        }
        self.0.insert(path.to_owned(), item);
    }

    /// All of it, below this directory.
    pub(super) fn below(&self, dir: &str) -> Self {
        let mut moved = Self::new();
        for (path, item) in &self.0 {
            moved.add(&format!("{dir}/{path}"), item.clone());
        }
        moved
    }

    /// The items, each behind the directory that it is in.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Item)> {
        self.0.iter().map(|(path, item)| (path.as_str(), item))
    }

    /// All of it with some files replaced: those for which `change` gives another name and content.
    pub(super) fn changed(
        &self,
        change: impl Fn(&str, &Item) -> Done<Option<(String, Item)>>,
    ) -> Done<Self> {
        let mut changed = Self::new();
        for (path, item) in &self.0 {
            match change(path, item)? {
                Some((path, item)) => changed.add(&path, item),
                None => changed.add(path, item.clone()),
            }
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, Item};

    #[test]
    fn directories_come_before_what_is_in_them() {
        let mut content = Content::new();
        content.add("b/c/file", Item::text("x"));
        content.add("a", Item::Link("b".into()));
        content.add("b", Item::Dir);
        let paths: Vec<&str> = content.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a", "b", "b/c", "b/c/file"]);
        let moved = content.below("usr");
        let moved: Vec<&str> = moved.iter().map(|(path, _)| path).collect();
        assert_eq!(moved, ["usr", "usr/a", "usr/b", "usr/b/c", "usr/b/c/file"]);
    }
}
