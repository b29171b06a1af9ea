//! The error of this room: which file or archive member, what was found, what was expected.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a source could not be turned into a [`Tree`](super::Tree), or its data not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A system call on a file of the source failed.
    #[error("cannot {action} {}: {error}", named(path))]
    Io {
        /// What was being done, as a verb ("open", "read").
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: io::Error,
    },
    /// A file that was there when the source was scanned is gone or another file.
    #[error("{}: vanished while the image was made ({found})", path.display())]
    Vanished {
        /// The file.
        path: PathBuf,
        /// What is found in its place.
        found: String,
    },
    /// A file changed between the scan and the end of reading it.
    #[error("{}: changed while it was read: {field} is {found}, was {expected}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What changed ("size", "modification time").
        field: &'static str,
        /// The value found now.
        found: String,
        /// The value found by the scan.
        expected: String,
    },
    /// A name that ext4 cannot store.
    #[error("{}: the name {name:?} in it {problem}", directory.display())]
    Name {
        /// The directory that has the name.
        directory: PathBuf,
        /// The name, made printable.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A symbolic link whose target ext4 cannot store.
    #[error("{}: symbolic link target of {found} bytes, expected 1 to 4095", path.display())]
    SymlinkTarget {
        /// The link.
        path: PathBuf,
        /// Its length in bytes.
        found: usize,
    },
    /// A pattern that cannot be understood.
    #[error("the pattern {pattern:?} {problem}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// More of something than an image can hold.
    #[error("the source has more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Something that is no source, although it could be read.
    #[error("{} {what}: {advice}", named(path))]
    NotASource {
        /// The source (`-` for the standard input).
        path: PathBuf,
        /// What it is, as the rest of a sentence.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The file system that sources are put over cannot be read.
    #[error("{problem}")]
    Base {
        /// What could not be read, and why.
        problem: String,
    },
    /// Something that cannot be put where it was asked for.
    #[error("{path}: {problem}")]
    Addition {
        /// The path in the tree, made printable.
        path: String,
        /// What is wrong, as the rest of a sentence or a sentence.
        problem: String,
    },
    /// Something in a source that cannot go into an image, or not where it should.
    #[error("{}: {problem}", named(path))]
    Refused {
        /// The source, or the file in it.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// An archive that breaks its format, or asks for what an image cannot hold.
    #[error(
        "{}: at byte {offset}{}: {problem}",
        named(archive),
        member_text(member)
    )]
    Archive {
        /// The archive (`-` for the standard input).
        archive: PathBuf,
        /// Byte offset of the header in the (decompressed) archive.
        offset: u64,
        /// The member the header is about, as far as it is known.
        member: Option<String>,
        /// What is wrong.
        problem: String,
    },
}

/// A source as people call it.
fn named(path: &Path) -> std::path::Display<'_> {
    if path.as_os_str() == "-" {
        Path::new("standard input").display()
    } else {
        path.display()
    }
}

fn member_text(member: &Option<String>) -> String {
    member
        .as_ref()
        .map(|m| format!(", member {m:?}"))
        .unwrap_or_default()
}

impl SourceError {
    /// A failed system call on `path`.
    pub(crate) fn io(action: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            error: error.into(),
        }
    }
}

/// Result of reading a source.
pub type SourceResult<T> = Result<T, SourceError>;
