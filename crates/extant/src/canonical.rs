//! The path of a file without symbolic links, `.` and `..`.

use crate::filesystem::bytes;
use crate::path::MAX_LINKS;
use crate::{Error, FileType, Filesystem, Result};
use extant_core::Error as EngineError;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Filesystem {
    /// Returns the absolute path of a file, without symbolic links, `.` and `..`. All of its parts
    /// must exist.
    ///
    /// ```
    /// # use extant::Filesystem;
    /// # fn main() -> extant::Result<()> {
    /// # let fs = Filesystem::format_device(extant::MemoryDevice::new(16 << 20))?;
    /// fs.create_dir_all("/usr/lib")?;
    /// fs.symlink("usr/lib", "/lib")?;
    /// assert_eq!(fs.canonicalize("lib/./..")?, std::path::Path::new("/usr"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such file, something on the way is no directory, or more than 40 symbolic
    /// links lead to it.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let named = |e: Error| Error::new(path, e.into_cause());
        let failed = |e: EngineError| Error::engine(path, e);
        if bytes(path).is_empty() {
            return Err(failed(EngineError::NotFound));
        }
        let mut found = PathBuf::from("/");
        let mut kind = FileType::Directory;
        let mut rest: Vec<OsString> = Vec::new();
        push_names(&mut rest, bytes(path));
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if kind != FileType::Directory {
                return Err(failed(EngineError::NotADirectory));
            }
            if matches!(name.as_bytes(), b"." | b"..") {
                // Whether the directory may be searched is asked by looking there.
                self.metadata(found.join(".")).map_err(named)?;
                if name.as_bytes() == b".." {
                    found.pop();
                }
                continue;
            }
            let at = found.join(&name);
            let seen = self.symlink_metadata(&at).map_err(named)?.file_type();
            if seen != FileType::Symlink {
                (found, kind) = (at, seen);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(failed(EngineError::Loop));
            }
            let target = self.read_link(&at).map_err(named)?;
            if target.is_absolute() {
                found = PathBuf::from("/");
            }
            push_names(&mut rest, bytes(&target));
        }
        Ok(found)
    }
}

/// Puts the names of `path` in front of the names to go, the next one last. A `/` at the end counts
/// as `/.`, which only directories have.
fn push_names(rest: &mut Vec<OsString>, path: &[u8]) {
    if path.ends_with(b"/") {
        rest.push(OsString::from("."));
    }
    let names = path.split(|&byte| byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    rest.extend(names.rev().map(|name| OsStr::from_bytes(name).to_owned()));
}
