//! Files one after the other as one device.

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use std::ops::Range;

/// A part of the disk.
#[derive(Debug)]
pub(super) struct Extent {
    /// First byte on the disk.
    pub(super) start: u64,
    pub(super) len: u64,
    /// The file, and the first byte there; zeros if `None`.
    pub(super) place: Option<(SharedDevice, u64)>,
}

/// The disk.
#[derive(Debug)]
pub(super) struct Extents {
    name: String,
    /// In order, without gaps; none is empty.
    extents: Vec<Extent>,
    files: Vec<SharedDevice>,
    size: u64,
    writable: bool,
}

impl Extents {
    pub(super) fn new(
        name: String,
        mut extents: Vec<Extent>,
        files: Vec<SharedDevice>,
        writable: bool,
    ) -> Self {
        extents.retain(|extent| extent.len > 0);
        let size = extents.last().map_or(0, |last| last.start + last.len);
        Self {
            name,
            extents,
            files,
            size,
            writable,
        }
    }

    /// Calls `each` with the parts of a range, which lies on the disk: the extent, the first byte
    /// in it, and the part of the range.
    fn parts(
        &self,
        offset: u64,
        len: u64,
        mut each: impl FnMut(&Extent, u64, Range<u64>) -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        let first = self.extents.partition_point(|e| e.start + e.len <= offset);
        let mut done = 0;
        for extent in &self.extents[first..] {
            if done == len {
                break;
            }
            let within = offset + done - extent.start;
            let part = (extent.len - within).min(len - done);
            each(extent, within, done..done + part)?;
            done += part;
        }
        Ok(())
    }

    /// Disks with extents of zeros are not opened for writing.
    fn read_only(&self) -> DeviceError {
        DeviceError::ReadOnly {
            device: self.name.clone(),
        }
    }
}

impl BlockDevice for Extents {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        !self.writable
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        self.parts(offset, buf.len() as u64, |extent, within, range| {
            let part = &mut buf[range.start as usize..range.end as usize];
            match &extent.place {
                Some((file, place)) => file.read_at(place + within, part),
                None => {
                    part.fill(0);
                    Ok(())
                }
            }
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        self.parts(offset, buf.len() as u64, |extent, within, range| {
            let part = &buf[range.start as usize..range.end as usize];
            match &extent.place {
                Some((file, place)) => file.write_at(place + within, part),
                None => Err(self.read_only()),
            }
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        self.files.iter().try_for_each(|file| file.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("discard", offset, len)?;
        self.parts(offset, len, |extent, within, range| match &extent.place {
            Some((file, place)) => file.discard(place + within, range.end - range.start),
            None => Err(self.read_only()),
        })
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        self.parts(offset, len, |extent, within, range| match &extent.place {
            Some((file, place)) => file.zero(place + within, range.end - range.start),
            None => Err(self.read_only()),
        })
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size);
        let first = self.extents.partition_point(|e| e.start + e.len <= from);
        for extent in &self.extents[first..] {
            let at = extent.start.max(from);
            let stop = end.min(extent.start + extent.len);
            if at >= end {
                break;
            }
            let Some((file, place)) = &extent.place else {
                continue;
            };
            let start = place + (at - extent.start);
            if let Some(found) = file.next_data(start, start + (stop - at))? {
                let moved = |byte: u64| (at + byte.saturating_sub(start)).min(stop);
                return Ok(Some(moved(found.start)..moved(found.end)));
            }
        }
        Ok(None)
    }
}
