//! What is copied, as options say: patterns, symbolic links, files that are there.

use crate::args::Cp;
use crate::failure::{Failure, Outcome};
use crate::path::last_name;
use extant::export::Existing;
use extant_mkfs::source::Excludes;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Which symbolic links in sources are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    None,
    /// Sources themselves.
    Named,
    All,
}

impl Follow {
    pub(super) const fn of(args: &Cp) -> Self {
        match (
            args.dereference,
            args.no_dereference,
            args.dereference_named,
        ) {
            (true, ..) => Self::All,
            (_, true, _) => Self::None,
            (.., true) => Self::Named,
            // As `cp` does.
            _ if args.archive || args.recursive => Self::None,
            _ => Self::Named,
        }
    }

    /// Whether a source that is a symbolic link is followed.
    pub(super) fn follows_named(self) -> bool {
        self != Self::None
    }
}

/// What becomes of files that are there.
pub(super) const fn existing(args: &Cp) -> Existing {
    if args.no_clobber {
        Existing::Keep
    } else if args.update {
        Existing::KeepNewer
    } else if args.remove_destination {
        Existing::RemoveFirst
    } else {
        Existing::Replace
    }
}

/// What is left out.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Exclusion {
    all: Excludes,
    /// The patterns that are about names alone, wherever they are.
    of_names: Excludes,
}

impl Exclusion {
    /// Reads patterns.
    pub(in crate::commands) fn new(patterns: &[OsString]) -> Outcome<Self> {
        let bytes = patterns.iter().map(|pattern| pattern.as_bytes());
        let is_name = |pattern: &&[u8]| {
            let pattern = pattern.strip_suffix(b"/").unwrap_or(pattern);
            !pattern.contains(&b'/')
        };
        let usage = |e| Failure::usage(format!("--exclude: {e}"));
        Ok(Self {
            all: Excludes::new(bytes.clone()).map_err(usage)?,
            of_names: Excludes::new(bytes.filter(is_name)).map_err(usage)?,
        })
    }

    pub(in crate::commands) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a source is left out by its own name.
    pub(in crate::commands) fn has_source(&self, path: &Path, is_dir: bool) -> bool {
        last_name(path).is_some_and(|name| self.of_names.excludes(&[name.as_bytes()], is_dir))
    }

    /// Whether a file is left out that has these names, from a source on.
    pub(in crate::commands) fn has(&self, names: &[&[u8]], is_dir: bool) -> bool {
        self.all.excludes(names, is_dir)
    }
}
