//! What directories hand down to what is made in them, and which names are one in them.

use extant::{Error, FileFlags, Filesystem, Metadata};
use extant_format::dir::fold_name;
use std::collections::HashSet;
use std::path::Path;

/// Flags that a directory hands down, and that one which is empty can be given.
const HANDED_DOWN: FileFlags = FileFlags::SECURE_DELETION
    .union(FileFlags::UNDELETABLE)
    .union(FileFlags::COMPRESSED)
    .union(FileFlags::SYNC)
    .union(FileFlags::NO_DUMP)
    .union(FileFlags::NO_ATIME)
    .union(FileFlags::NO_COMPRESS)
    .union(FileFlags::NO_TAIL)
    .union(FileFlags::DIR_SYNC)
    .union(FileFlags::PROJECT_INHERIT)
    .union(FileFlags::CASEFOLD)
    .union(FileFlags::DAX);

/// What a directory hands down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) struct Rules {
    flags: FileFlags,
    /// The project, if it is handed down.
    project: Option<u32>,
}

impl Rules {
    pub(in crate::commands) fn of(dir: &Metadata) -> Self {
        let flags = FileFlags::from_bits_retain(dir.flags()) & HANDED_DOWN;
        let hands_down = flags.contains(FileFlags::PROJECT_INHERIT);
        Self {
            flags,
            project: dir.project().filter(|_| hands_down),
        }
    }

    /// Whether names that differ in case only are one.
    pub(in crate::commands) fn ignores_case(self) -> bool {
        self.flags.contains(FileFlags::CASEFOLD)
    }

    /// Whether a project is handed down that is not the one of all that has none.
    pub(in crate::commands) fn give_a_project(self) -> bool {
        self.project.is_some_and(|project| project != 0)
    }

    /// Whether what was made by `other` rules may go into a directory with these.
    pub(in crate::commands) fn let_in(self, other: Self) -> bool {
        !self.flags.contains(FileFlags::PROJECT_INHERIT) || self.project == other.project
    }

    /// Has a directory, which is empty, hand down the same.
    pub(in crate::commands) fn give(self, fs: &Filesystem, dir: &Path) -> Result<(), Error> {
        let has = Self::of(&fs.symlink_metadata(dir)?);
        if let Some(project) = self.project
            && has.project != self.project
        {
            fs.set_project(dir, project)?;
        }
        let (set, clear) = (self.flags & !has.flags, has.flags & !self.flags);
        if (set | clear).is_empty() {
            return Ok(());
        }
        fs.set_flags(dir, set, clear)
    }

    /// Has a directory that hands this down take what belongs to other projects, too.
    pub(in crate::commands) fn take_any_project(
        self,
        fs: &Filesystem,
        dir: &Path,
    ) -> Result<(), Error> {
        if !self.flags.contains(FileFlags::PROJECT_INHERIT) {
            return Ok(());
        }
        fs.set_flags(dir, FileFlags::empty(), FileFlags::PROJECT_INHERIT)
    }
}

/// The names of a directory that were seen so far, where some may be one.
pub(in crate::commands) struct Names(Option<HashSet<Vec<u8>>>);

impl Names {
    pub(in crate::commands) fn new(ignores_case: bool) -> Self {
        Self(ignores_case.then(HashSet::new))
    }

    /// Notes a name; whether it is none of those before.
    pub(in crate::commands) fn is_new(&mut self, name: &[u8]) -> bool {
        self.0.as_mut().is_none_or(|seen| seen.insert(folded(name)))
    }

    /// Whether names that differ in case only are one.
    pub(in crate::commands) const fn ignore_case(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a name is `other`, which is written in small letters.
    pub(in crate::commands) fn is(&self, name: &[u8], other: &[u8]) -> bool {
        name == other || (self.ignore_case() && folded(name) == other)
    }
}

/// What stands for a name where case is ignored.
fn folded(name: &[u8]) -> Vec<u8> {
    fold_name(name).unwrap_or_else(|| name.to_vec())
}
