//! Extended attributes and access control lists: changing them.

use crate::path::LastLink;
use crate::{Error, FileFlags, Filesystem, Result};
use extant_core::ops::{self, AclKind, SetXattr};
use extant_format::acl::Acl;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Filesystem {
    /// Gives an extended attribute a value, by full name (`user.origin`), whether it exists or not.
    /// Access control lists come in the form of the system calls; [`set_acl`](Self::set_acl) takes
    /// typed ones. A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// When there is no such file; when such a file cannot have an attribute of that name; when the
    /// value does not fit, by itself (64 KiB) or beside the others (they share one block), or no
    /// space is left.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.set_xattr_if(path, name, value, SetXattr::Any)
    }

    /// Sets an attribute on the condition that it does not exist yet, or that it does.
    ///
    /// # Errors
    /// As for [`set_xattr`](Self::set_xattr); when the condition does not hold.
    pub fn set_xattr_if(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
        condition: SetXattr,
    ) -> Result<()> {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        self.on(path.as_ref(), LastLink::Keep, |file| {
            ops::setxattr(self.by(), file, name, value, condition)
        })
    }

    /// Removes an extended attribute. A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// When there is no such file, or it has no such attribute.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.on(path.as_ref(), LastLink::Keep, |file| {
            ops::removexattr(self.by(), file, name)
        })
    }

    /// Sets file flags and clears others, as `chattr` does. Symbolic links are followed.
    /// [`Metadata::flags`](crate::Metadata::flags) and
    /// [`Metadata::lsattr`](crate::Metadata::lsattr) show them.
    ///
    /// # Errors
    /// When there is no such file, or a flag cannot be changed.
    pub fn set_flags(
        &self,
        path: impl AsRef<Path>,
        set: FileFlags,
        clear: FileFlags,
    ) -> Result<()> {
        self.on(path.as_ref(), LastLink::Follow, |file| {
            ops::chattr(self.by(), file, set, clear)
        })
    }

    /// Gives a file to a project, which pays for it from then on. Symbolic links are followed. Of a
    /// directory nothing else is given, and what is made in it later only if it has the flag that
    /// projects are inherited. [`Metadata::project`](crate::Metadata::project) shows it.
    ///
    /// # Errors
    /// When there is no such file, the file system has no projects, the project has used up its
    /// quota, or the caller does not own the file.
    pub fn set_project(&self, path: impl AsRef<Path>, project: u32) -> Result<()> {
        self.on(path.as_ref(), LastLink::Follow, |file| {
            ops::set_project(self.by(), file, project)
        })
    }

    /// Returns an access control list of a file, or `None` if its permissions say all. Symbolic
    /// links are followed.
    ///
    /// # Errors
    /// When there is no such file, or the list is corrupt.
    pub fn acl(&self, path: impl AsRef<Path>, kind: AclKind) -> Result<Option<Acl>> {
        let path = path.as_ref();
        let held = self.hold(path, LastLink::Follow)?;
        ops::getacl(self.fs(), &held, kind).map_err(|e| Error::engine(path, e))
    }

    /// Sets an access control list, or removes it. The permissions of the file follow the access
    /// list. Symbolic links are followed.
    ///
    /// # Errors
    /// When there is no such file, no space is left, or something that is no directory is given a
    /// default list.
    pub fn set_acl(&self, path: impl AsRef<Path>, kind: AclKind, acl: Option<&Acl>) -> Result<()> {
        self.on(path.as_ref(), LastLink::Follow, |file| {
            ops::setacl(self.by(), file, kind, acl)
        })
    }
}
