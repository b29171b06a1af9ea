//! The error of this room: which table, which line, what is wrong with it.

use crate::source::SourceError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why tables could not be read, or could not be applied to a tree.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// A table that cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The table.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: io::Error,
    },
    /// A line that breaks the form of its table, or that cannot be applied.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The table.
        path: PathBuf,
        /// Which line, from 1.
        line: u32,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A table that is wrong as a whole.
    #[error("{} {problem}", path.display())]
    Table {
        /// The table.
        path: PathBuf,
        /// What is wrong, as the rest of a sentence.
        problem: String,
    },
    /// A file of the tree that cannot be as it was asked for.
    #[error("{path:?}: {problem}")]
    File {
        /// Its path in the tree, made printable.
        path: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The tree could not be changed, or a file of it not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl TableError {
    /// An error about a line.
    pub(super) fn line(path: &Path, line: u32, problem: impl Into<String>) -> Self {
        Self::Line {
            path: path.to_owned(),
            line,
            problem: problem.into(),
        }
    }

    /// An error about a whole table.
    pub(super) fn table(path: &Path, problem: impl Into<String>) -> Self {
        Self::Table {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Result of reading or applying tables.
pub type TableResult<T> = Result<T, TableError>;

/// What is wrong with a line, as a sentence without its place.
pub(super) type Parsed<T> = Result<T, String>;

/// What is wrong, and with which line.
pub(super) type AtLine = (u32, String);
