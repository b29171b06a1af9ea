//! Other files that an image names: backing files, extents.
//!
//! # Invariants
//! A file that an image names is opened only if it is a regular file and lies in the folder of the
//! image or below it, wherever the name and symbolic links lead; or if the caller allows others.
//! An image from elsewhere so cannot have `/etc/shadow` read as its content.

use crate::{FormatError, OpenHow};
use std::fs;
use std::path::{Path, PathBuf};

/// Finds the file that `device`, an image, names.
///
/// # Errors
/// `NotFollowed` where the rule says so; `File` where it is not there.
pub(crate) fn follow(device: &str, named: &Path, how: &OpenHow) -> Result<PathBuf, FormatError> {
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
    if !real.starts_with(&folder) {
        return Err(refused(format!(
            "it lies outside of {}: allow it (--outside), or copy it there",
            folder.display()
        )));
    }
    let found = fs::metadata(&real).map_err(|source| failed(&real, source))?;
    if !found.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    Ok(real)
}
