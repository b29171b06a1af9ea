//! What of a file could not be read.

use crate::Cause;
use crate::error::ImageError;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Ranges that are kept; more are only counted.
const KEPT: usize = 1000;
/// Ranges that are told.
const TOLD: usize = 3;

/// The parts of a file that could not be read.
#[derive(Clone, Debug)]
pub struct Unread {
    ranges: Vec<Range<u64>>,
    count: u64,
    bytes: u64,
    reason: ImageError,
    is_kept: bool,
}

impl Unread {
    /// Returns the ranges in bytes of the file, ascending, at most the first thousand. Of a file
    /// that is [not kept](Self::is_kept) it is the first one found: the rest was not read.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Returns how many ranges there are, also those beyond the ones kept.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns how many bytes could not be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns why the first of them could not.
    #[must_use]
    pub fn reason(&self) -> &ImageError {
        &self.reason
    }

    /// Returns whether there is a copy, with zeros in the place of what could not be read.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes ")?;
        for (number, range) in self.ranges.iter().take(TOLD).enumerate() {
            let between = if number == 0 { "" } else { ", " };
            write!(
                f,
                "{between}{}-{}",
                range.start,
                range.end.saturating_sub(1)
            )?;
        }
        let told = self.ranges.len().min(TOLD) as u64;
        if self.count > told {
            let (more, bytes) = (self.count - told, self.bytes);
            write!(f, " and {more} ranges more, {bytes} bytes in all,")?;
        }
        write!(f, " cannot be read: {}; ", self.reason)?;
        f.write_str(if self.is_kept {
            "the copy has zeros there"
        } else {
            "it is left out"
        })
    }
}

/// Collects what of a file cannot be read.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    ranges: Vec<Range<u64>>,
    count: u64,
    bytes: u64,
    reason: Option<ImageError>,
    last: Option<Range<u64>>,
}

impl Gaps {
    pub(super) fn is_empty(&self) -> bool {
        self.reason.is_none()
    }

    /// Takes in a range that lies behind all that may come, of which some may come after it.
    pub(super) fn add_last(&mut self, range: Range<u64>, why: ImageError) {
        self.reason.get_or_insert(why);
        self.last = Some(range);
    }

    /// Takes in a range, which lies behind those before.
    pub(super) fn add(&mut self, range: Range<u64>, why: impl Into<ImageError>) {
        self.reason.get_or_insert_with(|| why.into());
        if range.is_empty() {
            return;
        }
        self.bytes += range.end - range.start;
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => {
                self.count += 1;
                if self.ranges.len() < KEPT {
                    self.ranges.push(range);
                }
            }
        }
    }

    /// What a report says of it; `None` where all was read.
    pub(super) fn cause(mut self, is_kept: bool) -> Option<Cause> {
        if let (Some(last), Some(why)) = (self.last.take(), self.reason.clone()) {
            self.add(last, why);
        }
        let unread = Unread {
            ranges: self.ranges,
            count: self.count,
            bytes: self.bytes,
            reason: self.reason?,
            is_kept,
        };
        Some(Cause::Unread(Arc::new(unread)))
    }

    /// Fills `buf` from byte `at` of a file. What cannot be read of it, block by block, becomes
    /// zeros and is taken in. Returns how many bytes were read or filled: fewer than there is room
    /// for where the file ends.
    pub(super) fn read(&mut self, fs: &Fs, inode: &Inode, at: u64, buf: &mut [u8]) -> usize {
        match ops::read(fs, inode, at, buf) {
            Ok(read) => read,
            Err(_) => self.read_blocks(fs, inode, at, buf),
        }
    }

    fn read_blocks(&mut self, fs: &Fs, inode: &Inode, at: u64, buf: &mut [u8]) -> usize {
        let size = u64::from(fs.block_size().bytes());
        let left = inode.size().saturating_sub(at);
        let end = at + left.min(buf.len() as u64);
        let mut from = at;
        while from < end {
            let to = end.min((from / size + 1) * size);
            let bytes = (from - at) as usize..(to - at) as usize;
            let Some(block) = buf.get_mut(bytes) else {
                break;
            };
            match ops::read(fs, inode, from, block) {
                Ok(read) => block.get_mut(read..).unwrap_or_default().fill(0),
                Err(e) => {
                    block.fill(0);
                    self.add(from..to, e);
                }
            }
            from = to;
        }
        (end - at) as usize
    }
}
