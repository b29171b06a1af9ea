//! Other files that an image names: backing files, extents.
//!
//! # Invariants
//! A file that an image names is opened only if it is a regular file and lies in the folder of the
//! image or below it, wherever the name and symbolic links lead; or if the caller allows others.
//! An image from elsewhere so cannot have `/etc/shadow` read as its content. For writing it is one
//! in the folder itself whose name begins with the image's own, so that no other image beside it is
//! written to either. All files are below the folder `/`: from there nothing is followed.

use crate::{FormatError, OpenHow};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Finds the file that `device`, an image, names, to be read or also written.
///
/// # Errors
/// `NotFollowed` where the rule says so; `File` where it is not there.
pub(crate) fn follow(
    device: &str,
    named: &Path,
    how: &OpenHow,
    to_write: bool,
) -> Result<PathBuf, FormatError> {
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
    let path = folder.join(named);
    let real = fs::canonicalize(&path).map_err(|source| failed(&path, source))?;
    if how.outside {
        return Ok(real);
    }
    let folder = fs::canonicalize(folder).map_err(|source| failed(folder, source))?;
    if folder.parent().is_none() {
        return Err(refused(
            "the image lies in the folder /, below which all files are: move it and its files to a \
             folder of their own, or allow it (extant convert --outside)"
                .to_owned(),
        ));
    }
    if !real.starts_with(&folder) {
        return Err(refused(format!(
            "it lies outside of {}: copy it there, or allow it (extant convert --outside)",
            folder.display()
        )));
    }
    let found = fs::metadata(&real).map_err(|source| failed(&real, source))?;
    if !found.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    if to_write && !is_its_own(&real, &folder, how) {
        return Err(refused(format!(
            "files that an image names are written to only if they lie in its folder and their \
             names begin with its own, such as {}: rename it, or open the image for reading",
            example(how)
        )));
    }
    Ok(real)
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
