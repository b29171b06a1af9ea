//! Other files that an image names: backing files, extents.
//!
//! # Invariants
//! A file that an image names is opened only if it is a regular file and lies in the folder of the
//! image or below it, wherever the name and symbolic links lead; or if the caller allows others.
//! An image from elsewhere so cannot have `/etc/shadow` read as its content. For writing it is one
//! in the folder itself whose name begins with the image's own, so that no other image beside it is
//! written to either. All files are below the folder `/`: from there nothing is followed.
//!
//! What is judged is the file that is open. Its place is found once; from the folder on it is
//! opened name by name without following a symbolic link, so that one that appears meanwhile leads
//! nowhere.
//!
//! Files are locked as the image is: one that is written to against everything, one that is read
//! against writers where the image itself is guarded or written to.

use crate::{FormatError, OpenHow};
use extant_blockdev::{FileOptions, SharedDevice};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that an image names, found and not locked yet.
#[derive(Debug)]
pub(crate) struct Followed {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Device and inode number, which tell it apart whatever it is called.
    pub(crate) id: (u64, u64),
    /// The open file; `None` where the caller allows all, and it is opened as any other.
    file: Option<File>,
    options: FileOptions,
}

impl Followed {
    /// Makes a device of it, locked.
    ///
    /// # Errors
    /// Those of [`FileOptions::open`].
    pub(crate) fn device(self) -> Result<SharedDevice, FormatError> {
        Ok(Arc::new(match self.file {
            Some(file) => self.options.adopt(file, &self.path)?,
            None => self.options.open(&self.path)?,
        }))
    }
}

/// Finds the file that `device`, an image, names, to be read or also written.
///
/// # Errors
/// `NotFollowed` where the rule says so; `File` where it is not there.
pub(crate) fn follow(
    device: &str,
    named: &Path,
    how: &OpenHow,
    to_write: bool,
) -> Result<Followed, FormatError> {
    let refused = |reason: String| FormatError::NotFollowed {
        device: device.to_owned(),
        named: named.to_owned(),
        reason,
    };
    let Some(folder) = &how.folder else {
        return Err(refused(
            "where the image lies is not known, so what it names cannot be found".to_owned(),
        ));
    };
    let unlike_path = named.to_str().is_some_and(|name| {
        name.contains('\0') || name.starts_with("json:") || name.contains("://")
    });
    if unlike_path {
        return Err(refused("only names of files are followed".to_owned()));
    }
    let failed = |path: &Path, source| FormatError::File {
        op: "open",
        path: path.to_owned(),
        source,
    };
    let options = if to_write {
        FileOptions::read_write()
    } else {
        FileOptions::read_only().guarded(how.guarded || how.writable)
    };
    let path = folder.join(named);
    let real = fs::canonicalize(&path).map_err(|source| failed(&path, source))?;
    if how.outside {
        let found = fs::metadata(&real).map_err(|source| failed(&real, source))?;
        return Ok(Followed {
            id: (found.dev(), found.ino()),
            path: real,
            file: None,
            options,
        });
    }
    let folder = fs::canonicalize(folder).map_err(|source| failed(folder, source))?;
    if folder.parent().is_none() {
        return Err(refused(
            "the image lies in the folder /, below which all files are: move it and its files to a \
             folder of their own, or allow it (extant convert --outside)"
                .to_owned(),
        ));
    }
    let Ok(below) = real.strip_prefix(&folder) else {
        return Err(refused(format!(
            "it lies outside of {}: copy it there, or allow it (extant convert --outside)",
            folder.display()
        )));
    };
    // Looked at before opening, because opening a device may do something.
    let found = fs::symlink_metadata(&real).map_err(|source| failed(&real, source))?;
    let no_file = || refused("it is not a regular file".to_owned());
    if !found.is_file() {
        return Err(no_file());
    }
    if to_write && !is_its_own(&real, &folder, how) {
        return Err(refused(format!(
            "files that an image names are written to only if they lie in its folder and their \
             names begin with its own, such as {}: rename it, or open the image for reading",
            example(how)
        )));
    }
    let file = open_below(&folder, below, to_write).map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => refused(
            "a symbolic link or another file took its place while it was opened: try again"
                .to_owned(),
        ),
        errno => failed(&real, errno.into()),
    })?;
    let found = file.metadata().map_err(|source| failed(&real, source))?;
    if !found.is_file() {
        return Err(no_file());
    }
    Ok(Followed {
        id: (found.dev(), found.ino()),
        path: real,
        file: Some(file),
        options,
    })
}

/// Opens a file below a folder by a path of names alone, none of which is a symbolic link now.
fn open_below(folder: &Path, below: &Path, to_write: bool) -> Result<File, Errno> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What is no regular file any more is not waited for, and becomes no terminal.
    let last = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let access = if to_write {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    let mut at: OwnedFd = openat(CWD, folder, step, Mode::empty())?;
    let root = fstat(openat(CWD, "/", step, Mode::empty())?)?;
    let mut names = below.iter().peekable();
    while let Some(name) = names.next() {
        // A folder that was moved to the top meanwhile has everything below it.
        let here = fstat(&at)?;
        if (here.st_dev, here.st_ino) == (root.st_dev, root.st_ino) {
            return Err(Errno::LOOP);
        }
        if names.peek().is_none() {
            let file = openat(at.as_fd(), name, access | last, Mode::empty())?;
            return Ok(File::from(file));
        }
        at = openat(at.as_fd(), name, step, Mode::empty())?;
    }
    Err(Errno::ISDIR)
}

/// The image's name without its extension.
fn stem(how: &OpenHow) -> Option<&OsStr> {
    how.file_name
        .as_deref()
        .and_then(|name| Path::new(name).file_stem())
}

/// Whether a file belongs to the image: it is another one in its folder, and called
/// `disk-flat.vmdk` or `disk.1` where the image is `disk.vmdk`, but not `disks.vmdk`.
fn is_its_own(real: &Path, folder: &Path, how: &OpenHow) -> bool {
    let (Some(stem), Some(name)) = (stem(how), real.file_name()) else {
        return false;
    };
    let rest = name.as_bytes().strip_prefix(stem.as_bytes());
    let goes_on = rest.is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_punctuation));
    goes_on && real.parent() == Some(folder) && how.file_name.as_deref() != Some(name)
}

/// A name that would do.
fn example(how: &OpenHow) -> String {
    let stem = stem(how).unwrap_or_else(|| OsStr::new("disk"));
    format!("{:?}", format!("{}-flat.vmdk", stem.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    /// A folder with the file `a/b/file`.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().canonicalize().expect("a directory");
        fs::create_dir_all(folder.join("in/a/b")).expect("directories");
        fs::write(folder.join("in/a/b/file"), "inside").expect("a file");
        fs::create_dir_all(folder.join("out/b")).expect("directories");
        fs::write(folder.join("out/b/file"), "secret").expect("a file");
        (dir, folder)
    }

    #[test]
    fn links_that_appear_after_a_place_was_judged_are_not_followed() {
        // Each name of the path in turn becomes a link to what lies outside.
        for (name, target) in [
            ("in/a/b/file", "out/b/file"),
            ("in/a/b", "out/b"),
            ("in/a", "out"),
        ] {
            let (_dir, folder) = folder();
            let (inside, below) = (folder.join("in"), Path::new("a/b/file"));
            let mut text = String::new();
            let mut file = open_below(&inside, below, false).expect("the file");
            file.read_to_string(&mut text).expect("content");
            assert_eq!(text, "inside");
            fs::rename(folder.join(name), folder.join("away")).expect("a rename");
            symlink(folder.join(target), folder.join(name)).expect("a link");
            for to_write in [false, true] {
                let opened = open_below(&inside, below, to_write);
                let errno = opened.expect_err(name);
                assert!([Errno::LOOP, Errno::NOTDIR].contains(&errno), "{errno}");
            }
        }
    }

    #[test]
    fn a_pipe_that_appears_is_not_waited_for() {
        let (_dir, folder) = folder();
        let path = folder.join("in/a/b/file");
        fs::remove_file(&path).expect("a file");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, &path, kind, 0o600.into(), 0).expect("a pipe");
        let opened = open_below(&folder.join("in"), Path::new("a/b/file"), false);
        assert!(!opened.expect("a pipe").metadata().expect("it").is_file());
    }

    #[test]
    fn nothing_is_below_a_folder_that_became_the_top() {
        let opened = open_below(Path::new("/"), Path::new("etc/hostname"), false);
        assert_eq!(opened.expect_err("the top"), Errno::LOOP);
    }
}
