//! Comparing the content of one pair of files piece by piece, whatever the two are.

use super::Which;
use super::content::{Job, Outcome};
use super::host::Reading;
use super::side::{Found, Side, Tree};
use crate::{Error, Result};
use std::path::Path;

/// Bytes of each file that are compared at once.
pub(super) const PIECE: usize = 256 << 10;

/// A file to read.
enum Open<'a> {
    Image(crate::File),
    Host(Reading<'a>),
}

impl<'a> Open<'a> {
    fn new(side: &Side, path: &'a Path, found: &Found) -> Result<Self> {
        if let (Tree::Image(fs), Some(inside)) = (&side.tree, &found.inside) {
            return fs.open_same(inside.inode.id(), path).map(Self::Image);
        }
        Reading::open(path, found).map(Self::Host)
    }

    /// Fills the buffer, all of which the file has.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let from = at + done as u64;
            let read = match self {
                Self::Image(file) => file.read_at(rest, from)?,
                Self::Host(file) => file.read_at(rest, from)?,
            };
            if read == 0 {
                let path = match self {
                    Self::Image(file) => file.path(),
                    Self::Host(file) => file.path(),
                };
                let shorter = std::io::Error::other("it became shorter while it was compared");
                return Err(Error::host("compare", path, shorter));
            }
            done += read;
        }
        Ok(())
    }

    /// The first byte at or behind `at` that may be another than zero.
    fn next_data(&self, at: u64) -> Result<Option<u64>> {
        match self {
            Self::Image(file) => file.seek_data(at),
            Self::Host(file) => file.seek_data(at),
        }
    }
}

/// Compares the content of a pair, both of the same size.
pub(super) fn compare(sides: [&Side; 2], job: &Job, buffers: &mut [Vec<u8>; 2]) -> Outcome {
    let [one, other] = &job.found;
    let first = Open::new(sides[0], &job.paths[0], one).map_err(|e| (Which::First, e))?;
    let second = Open::new(sides[1], &job.paths[1], other).map_err(|e| (Which::Second, e))?;
    let size = one.size;
    let (mut at, mut bytes) = (0, 0);
    while at < size {
        // One piece is read quicker than it is asked for holes.
        if size > PIECE as u64 {
            let data = first.next_data(at).map_err(|e| (Which::First, e))?;
            let other = second.next_data(at).map_err(|e| (Which::Second, e))?;
            let Some(next) = data.into_iter().chain(other).min() else {
                break;
            };
            // A file of the host may have grown behind what is compared.
            at = next.max(at);
            if at >= size {
                break;
            }
        }
        let len = (size - at).min(PIECE as u64) as usize;
        let [one, other] = buffers;
        one.resize(PIECE, 0);
        other.resize(PIECE, 0);
        let (Some(one), Some(other)) = (one.get_mut(..len), other.get_mut(..len)) else {
            break;
        };
        first.read(at, one).map_err(|e| (Which::First, e))?;
        second.read(at, other).map_err(|e| (Which::Second, e))?;
        bytes += len as u64;
        if one != other {
            let differs = one
                .iter()
                .zip(&*other)
                .position(|(one, other)| one != other);
            return Ok((bytes, Some(at + differs.unwrap_or(0) as u64)));
        }
        at += len as u64;
    }
    Ok((bytes, None))
}
