//! One request on its way: what is asked, where its data lies, and how it ended.

use super::wire::{Command, FUA};
use std::io::IoSlice;
use std::ops::Range;

/// The data of a request, in the caller's memory.
#[derive(Debug)]
pub(super) enum Data<'b> {
    None,
    /// Filled one after the other.
    Into(Vec<&'b mut [u8]>),
    /// Sent one after the other.
    From(Vec<&'b [u8]>),
    /// Lengths and flags of extents, as the server tells them.
    Extents(Vec<(u32, u32)>),
}

/// How a request failed.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The server answered with an error.
    Server { errno: u32, text: String },
    /// The connection broke after the request was sent and before it was answered.
    Unanswered(String),
    /// There is no connection, for the reason given.
    NoConnection { reason: String, errno: i32 },
}

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The server cannot have all of it.
    Unsent,
    /// All of it was handed over.
    Sent,
}

/// A request.
#[derive(Debug)]
pub(super) struct Job<'b> {
    pub(super) command: Command,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) data: Data<'b>,
    pub(super) stage: Stage,
    /// `None` until it is known.
    pub(super) outcome: Option<Result<(), Fault>>,
}

impl<'b> Job<'b> {
    fn new(command: Command, offset: u64, len: u32, data: Data<'b>) -> Self {
        Self {
            command,
            flags: 0,
            offset,
            len,
            data,
            stage: Stage::Unsent,
            outcome: None,
        }
    }

    /// Makes a request without data.
    pub(super) fn plain(command: Command, offset: u64, len: u32) -> Self {
        Self::new(command, offset, len, Data::None)
    }

    pub(super) fn read(offset: u64, into: Vec<&'b mut [u8]>) -> Self {
        let len = into.iter().map(|slice| slice.len()).sum::<usize>() as u32;
        Self::new(Command::Read, offset, len, Data::Into(into))
    }

    pub(super) fn write(offset: u64, from: Vec<&'b [u8]>) -> Self {
        let len = from.iter().map(|slice| slice.len()).sum::<usize>() as u32;
        Self::new(Command::Write, offset, len, Data::From(from))
    }

    pub(super) fn block_status(offset: u64, len: u32) -> Self {
        Self::new(Command::BlockStatus, offset, len, Data::Extents(Vec::new()))
    }

    /// Whether it ends only when what it changes is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.flags & FUA != 0
    }

    /// What is to be sent after the request, without its first `skip` bytes.
    pub(super) fn add_payload<'s>(&'s self, mut skip: usize, to: &mut Vec<IoSlice<'s>>) {
        let Data::From(slices) = &self.data else {
            return;
        };
        for slice in slices {
            let from = skip.min(slice.len());
            skip -= from;
            if from < slice.len() {
                to.push(IoSlice::new(&slice[from..]));
            }
        }
    }

    /// Bytes of what is to be sent after the request.
    pub(super) fn payload_len(&self) -> usize {
        match &self.data {
            Data::From(_) => self.len as usize,
            _ => 0,
        }
    }

    /// Gives the memory of a part of what is read to `fill`, piece by piece.
    pub(super) fn fill_part<E>(
        &mut self,
        part: Range<u32>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Data::Into(slices) = &mut self.data else {
            return Ok(());
        };
        let (mut at, end) = (part.start as usize, part.end as usize);
        let mut start = 0;
        for slice in slices {
            let stop = start + slice.len();
            if at < stop && at < end {
                let to = end.min(stop);
                fill(&mut slice[at - start..to - start])?;
                at = to;
            }
            start = stop;
        }
        Ok(())
    }
}

/// Cuts slices, one after the other, into groups of at most `most` bytes. Gives each group to `put`
/// with the place of its first byte.
pub(super) fn cut_shared<'b>(
    offset: u64,
    slices: impl Iterator<Item = &'b [u8]>,
    most: usize,
    mut put: impl FnMut(u64, Vec<&'b [u8]>),
) {
    let (mut at, mut room, mut group) = (offset, most, Vec::new());
    for mut slice in slices {
        while !slice.is_empty() {
            let (now, rest) = slice.split_at(slice.len().min(room));
            group.push(now);
            room -= now.len();
            slice = rest;
            if room == 0 {
                put(at, std::mem::take(&mut group));
                (at, room) = (at + most as u64, most);
            }
        }
    }
    if !group.is_empty() {
        put(at, group);
    }
}

/// As [`cut_shared`], for slices that are filled.
pub(super) fn cut_mut<'b>(
    offset: u64,
    slices: impl Iterator<Item = &'b mut [u8]>,
    most: usize,
    mut put: impl FnMut(u64, Vec<&'b mut [u8]>),
) {
    let (mut at, mut room, mut group) = (offset, most, Vec::new());
    for mut slice in slices {
        while !slice.is_empty() {
            let (now, rest) = slice.split_at_mut(slice.len().min(room));
            room -= now.len();
            group.push(now);
            slice = rest;
            if room == 0 {
                put(at, std::mem::take(&mut group));
                (at, room) = (at + most as u64, most);
            }
        }
    }
    if !group.is_empty() {
        put(at, group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_cut_at_whole_groups() {
        let bytes: Vec<u8> = (0..100).collect();
        let slices = [&bytes[..3], &[], &bytes[3..50], &bytes[50..]];
        let mut got = Vec::new();
        cut_shared(1000, slices.into_iter(), 16, |at, group| {
            got.push((at, group.concat()));
        });
        assert_eq!(got.len(), 7);
        for (n, (at, part)) in got.iter().enumerate() {
            assert_eq!(*at, 1000 + 16 * n as u64);
            assert_eq!(part[..], bytes[16 * n..(16 * n + 16).min(100)]);
        }
    }

    #[test]
    fn a_part_is_found_in_the_slices() {
        let mut bytes = [0_u8; 30];
        let (a, b) = bytes.split_at_mut(7);
        let mut job = Job::read(0, vec![a, b]);
        job.fill_part(5..12, |piece| {
            piece.fill(9);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(n, &b)| (b == 9) == (5..12).contains(&n))
        );
    }
}
