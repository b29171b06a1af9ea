//! Tables of owners, permissions, devices and labels, applied to a tree before it is laid out.
//!
//! | module | owns |
//! |---|---|
//! | `rule` | what all dialects have in common: a list of rules |
//! | `own` | Extant's own tables |
//! | `device` | device tables of genext2fs and of Buildroot's `makedevs` |
//! | `android` | Android's `fs_config` |
//! | `mtree` | specifications of the BSDs' `mtree` |
//! | `detect` | which of them a table is in |
//! | `apply` | applying rules, the one place that does |
//! | `accounts` | numbers of users and groups by name |
//! | `capabilities` | file capabilities, from text or a mask |
//! | `ids` | maps of owners' numbers |
//! | [`contexts`] | labels of SELinux |
//! | `text` | reading tables, their fields and numbers |
//! | `error` | which table, which line, what is wrong |
//!
//! # Order
//!
//! A caller applies, in this order: sources, what is put into them, [`IdMap`], the tables one
//! after the other, each line after the one before, [`Contexts`]. What comes later counts.
//!
//! # Invariants
//!
//! * A table has at most 64 MiB and 2^21 lines, and lines count at most 2^18 devices. A path has at
//!   most 4095 bytes, and all that a table stands for at most 256 MiB. Patterns take time
//!   proportional to the product of their length and the name's; labels are looked up by automata,
//!   of which each and all together have bounded size.
//! * Nothing depends on the host: names of accounts are those of the tree.

mod accounts;
mod android;
mod apply;
mod capabilities;
pub mod contexts;
mod detect;
mod device;
mod error;
mod ids;
mod mtree;
mod own;
mod rule;
mod text;

pub use contexts::Contexts;
pub use detect::{Dialect, split_kind};
pub use error::{TableError, TableResult};
pub use ids::{IdMap, IdRange};

use crate::source::{self, NodeId, Timestamp, Tree};
use rule::{LINES_MAX, Rule, Which};
use std::path::{Path, PathBuf};

/// A table that was read.
#[derive(Debug, Clone)]
pub struct Table {
    path: PathBuf,
    rules: Vec<Rule>,
    /// Whether every file has to be named.
    is_complete: bool,
    /// The names of the directory that the root of the tree is, where the table is used.
    mount_point: Vec<Box<[u8]>>,
}

impl Table {
    /// Reads a table in the dialect that is said, or that all its lines have the form of.
    ///
    /// # Errors
    ///
    /// [`TableError::Io`] if it cannot be read, [`TableError::Line`] for a line that is wrong, with
    /// its number, and [`TableError::Table`] if several dialects are possible.
    pub fn read(path: &Path, dialect: Option<Dialect>) -> TableResult<Self> {
        Self::parse(path, &text::read(path)?, dialect)
    }

    /// Parses the text of a table that errors call `path`.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read) but the first.
    pub fn parse(path: &Path, text: &[u8], dialect: Option<Dialect>) -> TableResult<Self> {
        if text.iter().filter(|&&byte| byte == b'\n').count() > LINES_MAX {
            return Err(TableError::table(
                path,
                format!("has more than {LINES_MAX} lines"),
            ));
        }
        let dialect = match dialect {
            Some(dialect) => dialect,
            None => detect::detect(path, text)?,
        };
        let parsed = match dialect {
            Dialect::Own => own::parse(text),
            Dialect::Devices => device::parse_either(text),
            Dialect::Genext2fs => device::parse(text, device::Reader::Genext2fs),
            Dialect::Makedevs => device::parse(text, device::Reader::Makedevs),
            Dialect::FsConfig => android::parse(text),
            Dialect::Mtree => mtree::parse(text),
        };
        let rules = parsed.map_err(|(line, problem)| TableError::line(path, line, problem))?;
        Ok(Self {
            path: path.to_owned(),
            rules,
            is_complete: dialect == Dialect::FsConfig,
            mount_point: Vec::new(),
        })
    }

    /// Takes the paths of the table for those of a system where the tree is mounted at this
    /// absolute path. Lines about other places are passed over.
    #[must_use]
    pub fn mounted_at(mut self, path: &[u8]) -> Self {
        self.mount_point = source::walk::parts(path).map(Box::from).collect();
        let rules = std::mem::take(&mut self.rules).into_iter();
        self.rules = rules
            .filter_map(|mut rule| {
                match &mut rule.which {
                    Which::Path(path) => *path = beneath(&self.mount_point, path)?,
                    Which::Below(path) => {
                        let is_above = {
                            let mut names = source::walk::parts(path).zip(&self.mount_point);
                            names.all(|(a, b)| a == &**b)
                        };
                        *path = beneath(&self.mount_point, path)
                            .or_else(|| is_above.then(Box::default))?;
                    }
                    Which::Glob(_) => {}
                }
                Some(rule)
            })
            .collect();
        self
    }
}

/// Applies tables to a tree, one after the other, and gives it back with sentences about what named
/// nothing. What tables make has `now` as all its times, unless they say another one.
///
/// # Errors
///
/// [`TableError::Line`] for a line that names nothing in the tree, or something of another kind, or
/// an account that the tree does not have; [`TableError::Table`] where a table has to name every
/// file and does not.
pub fn apply(tree: Tree, tables: &[Table], now: Timestamp) -> TableResult<(Tree, Vec<String>)> {
    apply::apply(tree, tables, now)
}

/// The rest of a path that leads through these directories.
fn beneath(above: &[Box<[u8]>], path: &[u8]) -> Option<Box<[u8]>> {
    let mut names = source::walk::parts(path);
    if above.iter().any(|name| names.next() != Some(name)) {
        return None;
    }
    Some(names.collect::<Vec<_>>().join(&b'/').into())
}

/// The path of a file as people write it.
pub(crate) fn path_of(tree: &Tree, id: NodeId) -> String {
    format!("/{}", tree.path(id).display())
}
