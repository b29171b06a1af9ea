//! What a copy lacks that the file had.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Something that a file had and that could not be given to its copy.
#[derive(Clone, Debug)]
pub struct Missing {
    what: Attribute,
    source: Arc<io::Error>,
}

/// What a file has besides its content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attribute {
    /// The user it belongs to. The copy has no set-ID bits either.
    Owner(u32),
    /// The group it belongs to. The copy has no set-ID bits either.
    Group(u32),
    /// Permissions, set-ID and sticky bits.
    Mode(u16),
    /// One extended attribute. Of a file that lost its access control list, the group is given what
    /// the list says for it, which may be less than the mode shows.
    Xattr(OsString),
    /// Lacking an extended attribute, which the copy has.
    NoXattr(OsString),
    /// All extended attributes from some point on, as the image does not give them.
    Xattrs,
    /// Access and modification time.
    Times,
    /// Being the same file as another name: the copy is a file of its own.
    HardLink,
}

impl Missing {
    pub(super) fn new(what: Attribute, source: impl Into<io::Error>) -> Self {
        Self {
            what,
            source: Arc::new(source.into()),
        }
    }

    /// Returns what is missing.
    #[must_use]
    pub fn what(&self) -> &Attribute {
        &self.what
    }

    /// Returns why it is missing.
    #[must_use]
    pub fn source(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(uid) => write!(f, "its owner {uid}"),
            Self::Group(gid) => write!(f, "its group {gid}"),
            Self::Mode(mode) => write!(f, "its mode {mode:04o}"),
            Self::Xattr(name) => match name.as_bytes() {
                b"system.posix_acl_access" => f.write_str("its access control list"),
                b"system.posix_acl_default" => f.write_str("its default access control list"),
                name => write!(f, "its attribute {}", crate::Escaped(name)),
            },
            Self::NoXattr(name) => {
                let name = crate::Escaped(name.as_bytes());
                write!(f, "losing the attribute {name}")
            }
            Self::Xattrs => f.write_str("its extended attributes"),
            Self::Times => f.write_str("its times"),
            Self::HardLink => f.write_str("being a hard link"),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.source)
    }
}
