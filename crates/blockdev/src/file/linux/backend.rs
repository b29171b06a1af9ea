//! How transfers reach the kernel: by a system call each, or many at once through io_uring.
//!
//! What profits are batches, and large transfers past the page cache, which are cut into pieces
//! that are under way together. A single small transfer is a system call in any case: there is
//! nothing faster.

use super::FileDevice;
use super::Rings;
use super::direct::DirectFile;
use super::jobs::{Job, Outcome, Through};
use crate::file::Backend;
use crate::request::run_inline;
use crate::{BlockDevice, DeviceError, DeviceResult, Done, Request};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;

/// Bytes of the pieces that a large transfer is cut into.
const PIECE: usize = 256 << 10;
/// Transfers from here on are large.
const LARGE: u64 = 1 << 20;

/// The environment variable that decides where [`Backend::Auto`] leaves it open: `system` or
/// `io_uring`.
const VARIABLE: &str = "EXTANT_IO";

/// The rings for a file, if they are wanted and can be had.
pub(super) fn choose(
    wanted: Backend,
    path: &Path,
    file: &File,
    direct: Option<&File>,
) -> DeviceResult<Option<Rings>> {
    let said = std::env::var(VARIABLE).unwrap_or_default();
    let (tried, required) = match (wanted, said.as_str()) {
        (Backend::System, _) | (Backend::Auto, "system") => (false, false),
        (Backend::IoUring, _) => (true, true),
        (Backend::Auto, "io_uring") => (true, false),
        (Backend::Auto, _) => (direct.is_some(), false),
    };
    match tried.then(|| Rings::new(file, direct)) {
        None => Ok(None),
        Some(Ok(rings)) => Ok(Some(rings)),
        Some(Err(_)) if !required => Ok(None),
        Some(Err(source)) => Err(DeviceError::Open {
            op: "use io_uring for",
            path: path.to_owned(),
            source,
        }),
    }
}

impl FileDevice {
    /// Returns how transfers reach the kernel: never [`Backend::Auto`].
    pub fn backend(&self) -> Backend {
        match self.rings {
            Some(_) => Backend::IoUring,
            None => Backend::System,
        }
    }

    /// Does a batch through a ring. Gives it back when it is none for it.
    pub(super) fn run_batch(&self, mut batch: Vec<Request>) -> Result<Vec<Done>, Vec<Request>> {
        let Some(rings) = &self.rings else {
            return Err(batch);
        };
        let writes = |request: &Request| matches!(request, Request::Write { .. });
        let fits = |request: &Request| match request {
            Request::Read { offset, buf } => {
                self.check_range("read", *offset, buf.len() as u64).is_ok()
                    && self.goes_direct(*offset, buf)
            }
            Request::Write { offset, buf } => {
                self.check_writable("write", *offset, buf.len() as u64)
                    .is_ok()
                    && self.goes_direct(*offset, buf)
            }
            Request::Flush => self.writable,
            Request::Discard { .. } | Request::Zero { .. } => false,
        };
        if batch.len() < 2 || !batch.iter().all(fits) {
            return Err(batch);
        }
        let ranges: Vec<_> = batch
            .iter()
            .filter(|request| writes(request))
            .filter_map(Request::range)
            .map(|(offset, len)| offset..offset + len)
            .collect();
        let _regions = self.direct.as_ref().map(|direct| direct.lock_all(&ranges));
        let mut results: Vec<DeviceResult<()>> = batch.iter().map(|_| Ok(())).collect();
        let mut jobs: Vec<Job<'_, '_>> = batch
            .iter_mut()
            .map(|request| match request {
                Request::Read { offset, buf } => Job::Read(*offset, buf),
                Request::Write { offset, buf } => Job::Write(*offset, buf),
                _ => Job::Flush,
            })
            .collect();
        let ran = rings.run(self.through(), &mut jobs, |number, job, outcome| {
            let result = self.finish_job(job, outcome);
            let succeeded = result.is_ok();
            results[number] = result;
            succeeded
        });
        drop(jobs);
        if ran.is_err() {
            return Err(batch);
        }
        Ok(batch
            .into_iter()
            .zip(results)
            .map(|(request, result)| Done { request, result })
            .collect())
    }

    /// Does a batch, in whatever way.
    pub(super) fn do_batch(&self, batch: Vec<Request>) -> Vec<Done> {
        self.run_batch(batch)
            .unwrap_or_else(|batch| run_inline(self, batch))
    }

    /// Whether a transfer of `len` bytes is cut into pieces.
    fn goes_in_pieces(&self, len: u64) -> bool {
        let align = self.direct.as_ref().map_or(1, DirectFile::align);
        len >= LARGE && align <= PIECE as u64
    }

    fn through(&self) -> Through {
        match self.direct {
            Some(_) => Through::Direct,
            None => Through::Cache,
        }
    }

    /// Whether a transfer needs no copy.
    fn goes_direct(&self, offset: u64, buf: &[u8]) -> bool {
        self.direct
            .as_ref()
            .is_none_or(|direct| self.fits_direct(direct, offset, buf))
    }

    fn open_file(&self) -> &File {
        self.direct.as_ref().map_or(&self.file, DirectFile::file)
    }

    /// Ends a job: what is missing is transferred by system calls, which also tell what is wrong.
    fn finish_job(&self, job: &mut Job<'_, '_>, outcome: Outcome) -> DeviceResult<()> {
        let moved = match outcome {
            Outcome::Moved(moved) => moved,
            Outcome::Cancelled => return Err(DeviceError::Cancelled),
            Outcome::Failed(source) => {
                let (op, offset, len) = match job {
                    Job::Read(at, to) => ("read", *at, to.len() as u64),
                    Job::Write(at, from) => ("write", *at, from.len() as u64),
                    Job::ReadMany(at, to) => ("read", *at, to.iter().map(|s| s.len() as u64).sum()),
                    Job::WriteMany(at, from) => {
                        ("write", *at, from.iter().map(|s| s.len() as u64).sum())
                    }
                    Job::Flush => ("flush", 0, self.size()),
                };
                return Err(self.failed(op, offset, len, source));
            }
        };
        let file = self.open_file();
        match job {
            Job::Read(at, to) => match to.get_mut(moved..) {
                Some(rest) => self.read_full(file, *at + moved as u64, rest),
                None => Ok(()),
            },
            Job::Write(at, from) => match from.get(moved..) {
                Some(rest) => self.write_full(file, *at + moved as u64, rest),
                None => Ok(()),
            },
            Job::ReadMany(_, to) if to.iter().map(|s| s.len()).sum::<usize>() == moved => Ok(()),
            Job::ReadMany(at, to) => to
                .iter_mut()
                .try_fold(*at, |at, slice| {
                    self.read_full(file, at, slice)?;
                    Ok(at + slice.len() as u64)
                })
                .map(drop),
            Job::WriteMany(_, from) if from.iter().map(|s| s.len()).sum::<usize>() == moved => {
                Ok(())
            }
            Job::WriteMany(at, from) => self.write_vectored_full(file, *at, from),
            Job::Flush => Ok(()),
        }
    }

    /// Reads a large aligned range in pieces that are under way together. `false` if that is not
    /// for it.
    pub(super) fn read_large(
        &self,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> DeviceResult<bool> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let Some(rings) = self.rings.as_ref().filter(|_| self.goes_in_pieces(len)) else {
            return Ok(false);
        };
        let mut at = offset;
        let mut jobs = Vec::new();
        let mut rest = bufs;
        while !rest.is_empty() {
            let (count, bytes) = piece(rest.iter().map(|buf| buf.len()));
            let (now, after) = rest.split_at_mut(count);
            match now {
                [buf] => {
                    let mut place = at;
                    for part in buf.chunks_mut(PIECE) {
                        jobs.push(Job::Read(place, part));
                        place += PIECE as u64;
                    }
                }
                many => jobs.push(Job::ReadMany(at, many)),
            }
            at += bytes as u64;
            rest = after;
        }
        self.run_all(rings, &mut jobs)
    }

    /// Writes a large aligned range in pieces that are under way together. `false` if that is not
    /// for it.
    pub(super) fn write_large(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<bool> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let Some(rings) = self.rings.as_ref().filter(|_| self.goes_in_pieces(len)) else {
            return Ok(false);
        };
        let mut at = offset;
        let mut jobs = Vec::new();
        let mut rest = bufs;
        while !rest.is_empty() {
            let (count, bytes) = piece(rest.iter().map(|buf| buf.len()));
            let (now, after) = rest.split_at(count);
            match now {
                [buf] => {
                    let mut place = at;
                    for part in buf.chunks(PIECE) {
                        jobs.push(Job::Write(place, part));
                        place += PIECE as u64;
                    }
                }
                many => jobs.push(Job::WriteMany(at, many)),
            }
            at += bytes as u64;
            rest = after;
        }
        self.run_all(rings, &mut jobs)
    }

    fn run_all(&self, rings: &Rings, jobs: &mut [Job<'_, '_>]) -> DeviceResult<bool> {
        let mut result = Ok(true);
        let ran = rings.run(self.through(), jobs, |_, job, outcome| {
            let ended = self.finish_job(job, outcome);
            let succeeded = ended.is_ok();
            if let (Err(e), Ok(_)) = (ended, &result) {
                result = Err(e);
            }
            succeeded
        });
        match ran {
            Ok(()) => result,
            Err(_) => Ok(false),
        }
    }
}

/// How many of the buffers of these lengths make a piece, and its bytes: one if that is large, or
/// as many as are needed.
fn piece(lens: impl Iterator<Item = usize>) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for len in lens {
        if count > 0 && bytes + len > PIECE || count == super::MAX_SLICES {
            break;
        }
        count += 1;
        bytes += len;
    }
    (count, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_put_together_until_a_piece_is_full() {
        assert_eq!(piece([PIECE * 9, 5].into_iter()), (1, PIECE * 9));
        assert_eq!(piece([PIECE / 2, PIECE / 2, 1].into_iter()), (2, PIECE));
        assert_eq!(piece([1, PIECE].into_iter()), (1, 1));
        assert_eq!(
            piece(std::iter::repeat_n(1, 5000)).0,
            super::super::MAX_SLICES
        );
        assert_eq!(piece(std::iter::empty()), (0, 0));
    }
}
