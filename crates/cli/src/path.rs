//! Paths: last names, and symbolic links at the end.

use extant::{Error, Filesystem, Metadata};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The last name of a path, if it gives the file a name: `..`, `a/.` and `/` do not.
pub(crate) fn last_name(path: &Path) -> Option<&OsStr> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/')? + 1;
    let bytes = bytes.get(..end)?;
    let start = bytes
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1);
    match bytes.get(start..)? {
        b"." | b".." => None,
        name => Some(OsStr::from_bytes(name)),
    }
}

/// Where a path leads to: if its last name is a symbolic link, the path of what that points to.
pub(crate) fn follow(fs: &Filesystem, path: &Path) -> Result<PathBuf, Error> {
    let mut path = path.to_owned();
    // Fails first if the links have no end, or lead nowhere.
    fs.metadata(&path)?;
    while fs.symlink_metadata(&path)?.is_symlink() {
        let target = fs.read_link(&path)?;
        path = match path.parent() {
            // Joining an absolute target replaces the path, as following it does.
            Some(parent) => parent.join(target),
            None => target,
        };
    }
    Ok(path)
}

/// Whether there is a directory at a path, or a symbolic link to one.
pub(crate) fn is_dir(fs: &Filesystem, path: &Path) -> Result<bool, Error> {
    Ok(look(fs, path)?.is_some_and(|found| found.is_dir()))
}

/// What is at a path, links followed; `None` if nothing is.
pub(crate) fn look(fs: &Filesystem, path: &Path) -> Result<Option<Metadata>, Error> {
    existing(fs.metadata(path))
}

/// What is at a path, which may be a link itself; `None` if nothing is.
pub(crate) fn look_at_link(fs: &Filesystem, path: &Path) -> Result<Option<Metadata>, Error> {
    existing(fs.symlink_metadata(path))
}

fn existing(found: Result<Metadata, Error>) -> Result<Option<Metadata>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if crate::images::is_missing(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Where something called `name` goes that is put at `dest`: into it if it is a directory, unless
/// `exactly` there.
pub(crate) fn destination(dest: &Path, dest_is_dir: bool, exactly: bool, name: &Path) -> PathBuf {
    match last_name(name) {
        Some(name) if dest_is_dir && !exactly => dest.join(name),
        _ => dest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_last_names() {
        for (path, name) in [
            ("a", Some("a")),
            ("/a/b", Some("b")),
            ("/a/b//", Some("b")),
            ("a/.", None),
            ("a/..", None),
            ("a/.../", Some("...")),
            (".", None),
            ("/", None),
            ("", None),
        ] {
            let found = last_name(Path::new(path));
            assert_eq!(found, name.map(OsStr::new), "{path}");
        }
    }
}
