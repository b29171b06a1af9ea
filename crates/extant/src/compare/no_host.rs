//! The host as a side of a comparison, on systems other than Linux: it is refused.

use super::side::Found;
use crate::{Error, Result};
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

fn refused(path: &Path) -> Error {
    let why = "files of the host are compared on Linux only";
    Error::host("look at", path, io::Error::new(ErrorKind::Unsupported, why))
}

/// A directory, of which there is none.
pub(super) struct Directory(Infallible);

impl Directory {
    pub(super) fn read(path: &Path) -> Result<Self> {
        Err(refused(path))
    }

    pub(super) fn len(&self) -> usize {
        match self.0 {}
    }

    pub(super) fn get(&self, _: usize) -> Option<&[u8]> {
        match self.0 {}
    }

    pub(super) fn look(&self, _: &[u8], _: impl FnOnce() -> PathBuf, _: bool) -> Result<Found> {
        match self.0 {}
    }
}

pub(super) fn begin(start: &Path) -> Result<(PathBuf, Found)> {
    Err(refused(start))
}

pub(super) fn target(path: &Path) -> Result<Vec<u8>> {
    Err(refused(path))
}

pub(super) fn xattrs(path: &Path, _: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    Err(refused(path))
}

/// A file to read, of which there is none.
pub(super) struct Reading<'a>(Infallible, &'a Path);

impl<'a> Reading<'a> {
    pub(super) fn open(path: &'a Path, _: &Found) -> Result<Self> {
        Err(refused(path))
    }

    pub(super) fn path(&self) -> &Path {
        self.1
    }

    pub(super) fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
        match self.0 {}
    }

    pub(super) fn seek_data(&self, _: u64) -> Result<Option<u64>> {
        match self.0 {}
    }
}
