//! Batches: what stands between two flushes is under way together, and the flush behind it where
//! that is sound.

use super::device::NbdDevice;
use super::job::{Fault, Job};
use super::parts::Parts;
use super::wire::{Command, FUA, export};
use crate::{AlignedBuf, BlockDevice, DeviceError, DeviceResult, Request};
use std::sync::atomic::Ordering;

/// Most writes in front of a flush that are durable by themselves where the server is far, and
/// otherwise: servers write out what they have for each.
const FEW_DURABLE: usize = 8;
const ONE_DURABLE: usize = 1;
/// Bytes that one of them carries at most: the fewer there are, the less a server has to write out
/// one after the other.
const DURABLE_PIECE: u32 = 1 << 20;

/// A request of a group, and how it ended.
type Entry = (Request, DeviceResult<()>);

/// Which requests of a group a job is done for.
#[derive(Clone, Copy)]
enum Owner {
    /// That of the number.
    One(usize),
    /// Those that change a part of the server's block that begins here.
    Block(u64),
}

impl NbdDevice {
    /// Does what stands between two flushes of a batch, all under way together. Returns how the
    /// flush behind it ended, if that was done as well.
    pub(super) fn run_group(
        &self,
        group: &mut [Entry],
        is_before_flush: bool,
    ) -> Option<DeviceResult<()>> {
        for (request, result) in &mut *group {
            *result = self.check(request);
        }
        let mut parts = match self.parts_of(group) {
            Ok(parts) => parts,
            Err(error) => {
                // Which of the writes it concerns cannot be told.
                let mut error = Some(error);
                for (request, result) in &mut *group {
                    if result.is_ok() && self.is_partial_write(request) {
                        *result = Err(error.take().unwrap_or(DeviceError::Cancelled));
                    }
                }
                Parts::default()
            }
        };
        // What is read beyond what was asked for.
        let mut rooms: Vec<(usize, u64, AlignedBuf)> = Vec::new();
        for (number, (request, result)) in group.iter().enumerate() {
            if let Request::Read { offset, buf } = request
                && result.is_ok()
                && !self.is_whole(*offset, buf.len() as u64)
            {
                let around = self.around(*offset, buf.len() as u64);
                let len = (around.end - around.start) as usize;
                rooms.push((number, around.start, AlignedBuf::zeroed(len)));
            }
        }
        let piece = self.piece_for(group, is_before_flush);
        let (mut jobs, mut owners, mut slow) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (request, result)) in group.iter_mut().enumerate() {
            if result.is_err() {
                continue;
            }
            if !self.does(request) {
                slow.push(number);
                continue;
            }
            match request {
                Request::Read { offset, buf } if self.is_whole(*offset, buf.len() as u64) => {
                    self.read_jobs(*offset, std::iter::once(&mut buf[..]), &mut jobs);
                }
                // Into its room.
                Request::Read { .. } => {}
                Request::Write { offset, buf } => {
                    parts.put(*offset, &buf[..]);
                    let (at, whole) = self.whole_blocks(*offset, &buf[..]);
                    self.write_jobs(at, std::iter::once(whole), piece, &mut jobs);
                }
                Request::Zero { offset, len } => {
                    self.plain_jobs(Command::WriteZeroes, *offset..*offset + *len, &mut jobs);
                }
                Request::Discard { offset, len } => {
                    self.plain_jobs(Command::Trim, *offset..*offset + *len, &mut jobs);
                }
                Request::Flush => {}
            }
            owners.resize(jobs.len(), Owner::One(number));
        }
        for (number, start, room) in &mut rooms {
            self.read_jobs(*start, std::iter::once(&mut room[..]), &mut jobs);
            owners.resize(jobs.len(), Owner::One(*number));
        }
        for (at, block) in parts.blocks() {
            self.write_jobs(at, std::iter::once(block), piece, &mut jobs);
            owners.resize(jobs.len(), Owner::Block(at));
        }
        let flushed = self.perform_group(&mut jobs, is_before_flush && slow.is_empty());
        let faults: Vec<_> = jobs.iter_mut().map(fault_of).collect();
        drop(jobs);
        for (owner, fault) in owners.into_iter().zip(faults) {
            if let Some((command, fault)) = fault {
                self.note_fault(group, owner, command, &fault);
            }
        }
        for (number, start, room) in rooms {
            if let (Request::Read { offset, buf }, Ok(())) = &mut group[number] {
                let skip = (*offset - start) as usize;
                let end = skip + buf.len();
                buf.copy_from_slice(&room[skip..end]);
            }
        }
        drop(parts);
        for number in slow {
            let (request, result) = &mut group[number];
            *result = match request {
                Request::Discard { offset, len } => self.discard(*offset, *len),
                Request::Zero { offset, len } => self.zero(*offset, *len),
                _ => Ok(()),
            };
        }
        flushed
    }

    fn check(&self, request: &Request) -> DeviceResult<()> {
        match request {
            Request::Read { offset, buf } => self.check_range("read", *offset, buf.len() as u64),
            Request::Write { offset, buf } => {
                self.check_writable("write", *offset, buf.len() as u64)
            }
            Request::Discard { offset, len } => self.check_writable("discard", *offset, *len),
            Request::Zero { offset, len } => self.check_writable("zero", *offset, *len),
            Request::Flush => Ok(()),
        }
    }

    /// Whether the server does what is asked for as it is asked for, or what is put in its place.
    fn does(&self, request: &Request) -> bool {
        match request {
            Request::Zero { offset, len } => {
                self.can(export::WRITE_ZEROES) && self.is_whole(*offset, *len)
            }
            Request::Discard { offset, len } => {
                self.can(export::TRIM) && self.is_whole(*offset, *len)
            }
            _ => true,
        }
    }

    fn is_partial_write(&self, request: &Request) -> bool {
        match request {
            Request::Write { offset, buf } => !self.is_whole(*offset, buf.len() as u64),
            _ => false,
        }
    }

    /// The server's blocks of which the writes of a group change a part.
    fn parts_of(&self, group: &[Entry]) -> DeviceResult<Parts> {
        let sound = group.iter().filter(|(_, result)| result.is_ok());
        let writes = sound.filter_map(|(request, _)| match request {
            Request::Write { offset, buf } => Some((*offset, buf.len() as u64)),
            _ => None,
        });
        self.parts(writes)
    }

    /// Bytes of a write of a group at most: many where a few writes may be durable by themselves.
    fn piece_for(&self, group: &[Entry], is_before_flush: bool) -> u32 {
        let large = self.pool.export().largest.min(DURABLE_PIECE);
        let bytes = group.iter().map(|(request, _)| match request {
            Request::Write { buf, .. } => Some(buf.len() as u64),
            _ => None,
        });
        let most = u64::from(large) * FEW_DURABLE as u64;
        let fits = bytes.sum::<Option<u64>>().is_some_and(|all| all <= most);
        if is_before_flush && fits && self.in_flight() > 1 && self.can(export::FUA) {
            large
        } else {
            self.piece()
        }
    }

    /// Notes how a job failed at the requests that it was done for.
    fn note_fault(&self, group: &mut [Entry], owner: Owner, command: Command, fault: &Fault) {
        let note = |(request, result): &mut Entry| {
            if result.is_ok()
                && let Some((offset, len)) = request.range()
            {
                *result = Err(self.failed(command, offset, len, fault.clone()));
            }
        };
        match owner {
            Owner::One(number) => note(&mut group[number]),
            Owner::Block(at) => {
                let touches = |request: &Request| {
                    let range = request
                        .range()
                        .map(|(offset, len)| self.around(offset, len));
                    range.is_some_and(|range| range.contains(&at))
                };
                group
                    .iter_mut()
                    .filter(|(request, _)| self.is_partial_write(request) && touches(request))
                    .for_each(note);
            }
        }
    }

    /// Does the jobs of a group. Where they `end` with a flush, and there are few, that may be done
    /// as well: returns how it ended then.
    ///
    /// A few writes between two flushes, as of the block that ends a commit, may be durable at
    /// once: the second flush then has nothing left to do. Or it has, but need not wait for them
    /// where each takes a round trip. What others write meanwhile is not for it to make durable.
    fn perform_group(&self, jobs: &mut [Job<'_>], end: bool) -> Option<DeviceResult<()>> {
        if jobs.is_empty() {
            return None;
        }
        let is_far = self.in_flight() > 1;
        let most = if is_far { FEW_DURABLE } else { ONE_DURABLE };
        let are_few = jobs.len() <= most && jobs.iter().all(|job| job.command == Command::Write);
        let may_be_durable = end && are_few && self.can(export::FUA);
        let is_all_durable = may_be_durable && self.is_all_durable();
        let flushes_beside = may_be_durable && is_far && !is_all_durable;
        if is_all_durable || flushes_beside {
            for job in &mut *jobs {
                job.flags |= FUA;
            }
        }
        let changes = self.begin_changes(jobs);
        let flushed = if flushes_beside {
            Some(self.perform_beside_flush(jobs))
        } else {
            self.perform_timed(jobs);
            is_all_durable.then_some(Ok(()))
        };
        if changes {
            self.end_changes();
        }
        flushed
    }

    /// Does jobs that are durable when they end, while a flush makes durable what was written
    /// before. Returns how that ended.
    fn perform_beside_flush(&self, jobs: &mut [Job<'_>]) -> DeviceResult<()> {
        std::thread::scope(|scope| {
            let flush = std::thread::Builder::new().spawn_scoped(scope, || self.flush());
            self.pool.perform(jobs);
            match flush.map(|flush| flush.join()) {
                Ok(Ok(flushed)) => flushed,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // The system has no thread: one after the other.
                Err(_) => self.flush(),
            }
        })
    }

    /// Whether a flush would have nothing to do.
    pub(super) fn is_all_durable(&self) -> bool {
        self.has_flushed.load(Ordering::Acquire)
            && self.pool.lost().is_none()
            && self.pool.dirty().is_empty()
    }
}

/// How a job failed, if it did.
fn fault_of(job: &mut Job<'_>) -> Option<(Command, Fault)> {
    let fault = job.outcome.take()?.err()?;
    Some((job.command, fault))
}
