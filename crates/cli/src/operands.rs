//! What operands name: patterns are looked up in the image, and a command that reads goes on after
//! one that cannot be read.

use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome};
use crate::glob;
use crate::image_path::ImagePath;
use crate::images::{Images, Problems};
use extant::{Filesystem, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Reads what each operand names. What fails is said, and the others are read all the same.
pub(crate) fn read_each(
    operands: &[OsString],
    location: &Whereabouts,
    mut read: impl FnMut(&Filesystem, &ImagePath) -> Outcome,
) -> Outcome {
    let mut problems = Problems::default();
    for (fs, at) in found(operands, &mut Images::new(location), &mut problems)? {
        match read(&fs, &at) {
            Err(Failure::PipeClosed) => return Err(Failure::PipeClosed),
            outcome => problems.check(outcome),
        }
    }
    problems.outcome()
}

/// The places that operands stand for, with their images open for reading. What cannot be opened is
/// said.
pub(crate) fn found(
    operands: &[OsString],
    images: &mut Images<'_>,
    problems: &mut Problems,
) -> Outcome<Vec<(Filesystem, ImagePath)>> {
    let places = operands.iter().map(|text| ImagePath::parse(text));
    let places = places.collect::<Outcome<Vec<_>>>()?;
    let mut all = Vec::new();
    for at in places {
        let opened = images
            .readable(&at)
            .and_then(|fs| Ok((expand(&fs, &at)?, fs)));
        match opened {
            Ok((places, fs)) => all.extend(places.into_iter().map(|at| (fs.clone(), at))),
            Err(Failure::Usage(text)) => return Err(Failure::Usage(text)),
            Err(failure) => problems.note(failure),
        }
    }
    Ok(all)
}

/// What a place stands for: itself, or where its path is a pattern and no file has that name, all
/// that match, in order. A pattern that nothing matches stands for itself, too: there is no such
/// file then.
pub(crate) fn expand(fs: &Filesystem, at: &ImagePath) -> Outcome<Vec<ImagePath>> {
    let path = at.path.as_os_str().as_bytes();
    if !glob::is_pattern(path) || fs.symlink_metadata(&at.path).is_ok() {
        return Ok(vec![at.clone()]);
    }
    let mut found = matching(fs, path).map_err(|e| at.failure(&e))?;
    if found.is_empty() {
        return Ok(vec![at.clone()]);
    }
    found.sort();
    let place = |path| ImagePath { path, ..at.clone() };
    Ok(found.into_iter().map(place).collect())
}

/// The one place that something is to be put at: what a pattern matches, if that is one file;
/// itself, if it matches none.
pub(crate) fn expand_one(fs: &Filesystem, at: &ImagePath) -> Outcome<ImagePath> {
    match &expand(fs, at)?[..] {
        [one] => Ok(one.clone()),
        all => Err(Failure::new(format!(
            "{} matches {} files: name the one that is meant",
            at.shown(),
            all.len()
        ))),
    }
}

/// All paths that a pattern matches, name by name. A directory in which a file is called just like
/// the pattern has only that one to offer: names with brackets are names first. As in a shell, a
/// name that begins with a dot is only matched by a pattern that does.
fn matching(fs: &Filesystem, pattern: &[u8]) -> Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("/")];
    let mut names = pattern
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .peekable();
    let only_dirs = pattern.ends_with(b"/");
    while let Some(name) = names.next() {
        let must_be_dir = names.peek().is_some() || only_dirs;
        let mut next = Vec::new();
        for dir in &found {
            if !glob::is_pattern(name) {
                let path = dir.join(OsStr::from_bytes(name));
                if exists(fs, &path, must_be_dir)? {
                    next.push(path);
                }
                continue;
            }
            let literal = dir.join(OsStr::from_bytes(name));
            if exists(fs, &literal, must_be_dir)? {
                next.push(literal);
                continue;
            }
            for entry in entries(fs, dir)? {
                let is_hidden = entry.starts_with(b".") && !name.starts_with(b".");
                if is_hidden || !glob::matches(name, &entry) {
                    continue;
                }
                let path = dir.join(OsStr::from_bytes(&entry));
                if !must_be_dir || exists(fs, &path, true)? {
                    next.push(path);
                }
            }
        }
        found = next;
    }
    Ok(found)
}

fn entries(fs: &Filesystem, dir: &Path) -> Result<Vec<Vec<u8>>> {
    let entries = match fs.read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if is_no_match(&e) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().as_bytes().to_vec();
        // Ciphertext in an encrypted directory may have any bytes: what is no name leads nowhere
        // else.
        if !name.contains(&b'/') && !name.contains(&0) {
            names.push(name);
        }
    }
    Ok(names)
}

fn exists(fs: &Filesystem, path: &Path, as_dir: bool) -> Result<bool> {
    let found = if as_dir {
        fs.metadata(path)
    } else {
        fs.symlink_metadata(path)
    };
    match found {
        Ok(found) => Ok(!as_dir || found.is_dir()),
        Err(e) if is_no_match(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether an error says that there is no such file or directory, as opposed to one that cannot be
/// looked for. Symbolic links without an end lead to none.
fn is_no_match(e: &extant::Error) -> bool {
    use std::io::ErrorKind;
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || e.errno() == extant::errno::ELOOP
}
