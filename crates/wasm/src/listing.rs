//! Names and what is known of files, as numbers.
//!
//! JavaScript takes a hundred thousand files from two arrays much faster than from text.

use crate::failure::Failure;
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode, Metadata};
use extant_core::ops::{self, Cookie};
use extant_format::Ino;
use extant_format::inode::Timestamp;
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// Numbers of a file, in this order: inode, mode, user, group, size, units of 512 bytes, links,
/// seconds and nanoseconds of the times of content, access, record and creation, major and minor
/// number of a device, project. What there is not is no number.
pub const NUMBERS: usize = 18;

/// Problems that are told of one listing.
const MOST_PROBLEMS: usize = 1000;

/// What is in a directory.
#[derive(Debug, Default)]
pub struct Listing {
    /// For each name either [`NUMBERS`], or of a short listing two: the inode, and the file type as
    /// the bits of a mode.
    pub numbers: Vec<f64>,
    /// Names in the order of their bytes, each with a zero behind it.
    pub names: Vec<u8>,
    /// What could not be looked at: the number of the name or null, the error's number, a sentence.
    problems: Vec<Value>,
}

/// What is known of a file, as numbers.
pub(crate) fn numbers_of(found: &Metadata) -> [f64; NUMBERS] {
    let time = |time: Option<Timestamp>| match time {
        Some(time) => (time.secs as f64, f64::from(time.nanos)),
        None => (f64::NAN, f64::NAN),
    };
    let (mtime, atime) = (time(Some(found.mtime)), time(Some(found.atime)));
    let (ctime, crtime) = (time(Some(found.ctime)), time(found.crtime));
    let device = found.device.map_or((f64::NAN, f64::NAN), |number| {
        (f64::from(number.major), f64::from(number.minor))
    });
    [
        f64::from(found.ino.get()),
        f64::from(found.mode.bits()),
        f64::from(found.uid),
        f64::from(found.gid),
        found.size as f64,
        found.sectors as f64,
        f64::from(found.links),
        mtime.0,
        mtime.1,
        atime.0,
        atime.1,
        ctime.0,
        ctime.1,
        crtime.0,
        crtime.1,
        device.0,
        device.1,
        found.project.map_or(f64::NAN, f64::from),
    ]
}

/// The bits of a mode that say what a file is.
fn type_bits(kind: FileType) -> u16 {
    match kind {
        FileType::Fifo => 0o010_000,
        FileType::CharDevice => 0o020_000,
        FileType::Directory => 0o040_000,
        FileType::BlockDevice => 0o060_000,
        FileType::Regular => 0o100_000,
        FileType::Symlink => 0o120_000,
        FileType::Socket => 0o140_000,
    }
}

/// A name of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: Ino,
    kind: Option<FileType>,
}

/// Reads a directory, without itself and its parent, in the order of the names' bytes. When it
/// breaks in the middle, what came before is returned with the error.
pub(crate) fn names_of(fs: &Fs, dir: &Inode) -> (Vec<Named>, Option<extant_core::Error>) {
    let (mut names, mut position) = (Vec::new(), 0);
    let outcome = ops::readdir(fs, dir, Cookie::START, |entry| {
        // A `..` further on is a file that nobody could reach: kept, so that it is told.
        let is_own = position < 2 && matches!(entry.name, b"." | b"..");
        position += 1;
        if !is_own {
            names.push(Named {
                name: entry.name.to_vec(),
                ino: entry.ino,
                kind: entry.file_type,
            });
        }
        ControlFlow::<()>::Continue(())
    });
    names.sort_by(|a, b| a.name.cmp(&b.name));
    (names, outcome.err())
}

impl Listing {
    /// Lists a directory; with `whole` all that is known of each file.
    pub(crate) fn of(fs: &Fs, dir: &Inode, whole: bool) -> Result<Self, Failure> {
        if !dir.is_dir() {
            return Err(extant_core::Error::NotADirectory.into());
        }
        let (names, error) = names_of(fs, dir);
        let mut listing = Self::default();
        for (number, named) in names.iter().enumerate() {
            listing.names.extend_from_slice(&named.name);
            listing.names.push(0);
            if let Err(e) = listing.add(fs, named, whole) {
                listing.problem(Some(number), e);
            }
        }
        if let Some(e) = error {
            listing.problem(None, e);
        }
        Ok(listing)
    }

    fn add(&mut self, fs: &Fs, named: &Named, whole: bool) -> extant_core::Result<()> {
        if whole {
            let found = fs.named_inode(named.ino).map(|inode| ops::stat(fs, &inode));
            match found {
                Ok(found) => self.numbers.extend(numbers_of(&found)),
                Err(e) => {
                    self.numbers.push(f64::from(named.ino.get()));
                    self.numbers.extend([f64::NAN; NUMBERS - 1]);
                    return Err(e);
                }
            }
            return Ok(());
        }
        self.numbers.push(f64::from(named.ino.get()));
        let kind = match named.kind {
            Some(kind) => Ok(kind),
            // A directory of ext2 does not say it.
            None => fs.named_inode(named.ino).map(|inode| inode.file_type()),
        };
        let bits = kind
            .as_ref()
            .map_or(f64::NAN, |kind| type_bits(*kind).into());
        self.numbers.push(bits);
        kind.map(drop)
    }

    fn problem(&mut self, number: Option<usize>, e: extant_core::Error) {
        if self.problems.len() < MOST_PROBLEMS {
            let failure = Failure::from(e);
            self.problems
                .push(json!([number, failure.errno, failure.text]));
        }
    }

    /// Returns the problems, as JSON: an array of `[number of the name or null, errno, sentence]`.
    #[must_use]
    pub fn problems(&self) -> String {
        Value::from(self.problems.clone()).to_string()
    }
}
