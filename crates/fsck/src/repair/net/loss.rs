//! What a repair would lose, told to a person.

use extant_format::Ino;
use extant_format::xattr::name::AttributeName;
use extant_format::xattr::name::full_name;
use std::fmt;

/// A file that could be reached and read before a repair, and could not be as it was after it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The inode.
    pub ino: Ino,
    /// A name it has before, from the root on: bytes, since names need not be UTF-8.
    pub path: Vec<u8>,
    /// What of it is lost.
    pub what: Lost,
}

/// What of a file is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// No name leads to it any more.
    Name,
    /// It cannot be read any more.
    Inode,
    /// It is a file of another type.
    Type,
    /// It has another owner, other permissions, or is another device.
    Owner,
    /// It is shorter: so many bytes are left.
    Size(u64),
    /// Its content differs, from this byte on.
    Content(u64),
    /// The target of a symbolic link differs.
    Target,
    /// An attribute is not there, or has another value.
    Attribute {
        /// Its name with the prefix, as far as there is one.
        name: Vec<u8>,
    },
}

impl Lost {
    pub(super) fn attribute(index: u8, suffix: &[u8]) -> Self {
        let name = full_name(&AttributeName { index, suffix });
        Self::Attribute {
            name: name.unwrap_or_else(|| suffix.to_vec()),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("no name would lead to it any more"),
            Self::Inode => f.write_str("it could not be read any more"),
            Self::Type => f.write_str("it would be a file of another type"),
            Self::Owner => f.write_str("its owner, permissions or device number would be others"),
            Self::Size(bytes) => write!(f, "only {bytes} bytes of it would be left"),
            Self::Content(byte) => write!(f, "its content would differ from byte {byte} on"),
            Self::Target => f.write_str("its target would be another"),
            Self::Attribute { name } => {
                write!(f, "its attribute \"{}\" would be lost", name.escape_ascii())
            }
        }
    }
}

/// One line: `inode 12, "/a/b": no name would lead to it any more`.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.escape_ascii();
        write!(f, "inode {}, \"{path}\": {}", self.ino, self.what)
    }
}
