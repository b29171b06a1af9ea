//! imago's virtual disk as one of our devices.
//!
//! # Locking
//! imago takes any transfers from any threads at the same time. A discard takes mappings away that
//! a transfer may be using, so that imago asks for it to be alone: `mappings of a qcow2` is held
//! shared by everything else and exclusively by a discard.

use super::below::Below;
use super::guarded;
use super::header::Shape;
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult};
use extant_sync::{LockClass, Rank, RwLock};
use imago::{FormatAccess, Mapping};
use std::io;
use std::ops::Range;

/// Bytes of zeros that are written at once.
const ZEROS: u64 = 1 << 20;

static MAPPINGS_CLASS: LockClass = LockClass::new("mappings of a qcow2", Rank::ImageFormat);

/// The virtual disk.
#[derive(Debug)]
pub(super) struct Disk {
    access: RwLock<FormatAccess<Below>>,
    name: String,
    size: u64,
    read_only: bool,
    /// Bytes of a cluster.
    cluster: u64,
    /// Whether a cluster can be marked as zeros: not in images of version 2.
    has_zero_clusters: bool,
    /// As of the device below.
    parallel_writes: usize,
}

impl Disk {
    pub(super) fn new(
        access: FormatAccess<Below>,
        name: String,
        read_only: bool,
        shape: &Shape,
        parallel_writes: usize,
    ) -> Self {
        Self {
            parallel_writes,
            size: access.size(),
            cluster: shape.cluster,
            has_zero_clusters: shape.version >= 3,
            access: RwLock::new(&MAPPINGS_CLASS, access),
            name,
            read_only,
        }
    }

    /// The clusters that lie in a range as a whole, in bytes.
    fn whole_clusters(&self, offset: u64, len: u64) -> Range<u64> {
        let start = offset.next_multiple_of(self.cluster);
        let end = (offset + len) / self.cluster * self.cluster;
        start..end.max(start)
    }

    /// Writes zeros where a range may hold something else.
    fn write_zeros(&self, range: Range<u64>) -> DeviceResult<()> {
        for data in self.data_extents(range)? {
            let zeros = vec![0; (data.end - data.start).min(ZEROS) as usize];
            let mut at = data.start;
            while at < data.end {
                let part = (data.end - at).min(ZEROS);
                self.write_at(at, &zeros[..part as usize])?;
                at += part;
            }
        }
        Ok(())
    }

    /// What the device below said, or what imago says of the image.
    fn failed(&self, op: &'static str, offset: u64, len: u64, error: io::Error) -> DeviceError {
        match error.downcast::<DeviceError>() {
            Ok(below) => below,
            Err(source) => DeviceError::Io {
                op,
                device: self.name.clone(),
                offset,
                len,
                source,
            },
        }
    }
}

impl BlockDevice for Disk {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_range("read", offset, len)?;
        let access = self.access.read();
        guarded(|| access.read(buf, offset)).map_err(|e| self.failed("read", offset, len, e))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_writable("write", offset, len)?;
        let access = self.access.read();
        guarded(|| access.write(buf, offset)).map_err(|e| self.failed("write", offset, len, e))
    }

    fn flush(&self) -> DeviceResult<()> {
        if self.read_only {
            return Ok(());
        }
        let access = self.access.read();
        guarded(|| {
            access.flush()?;
            access.sync()
        })
        .map_err(|e| self.failed("flush", 0, self.size, e))
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.try_discard(offset, len).map(|_| ())
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.check_writable("discard", offset, len)?;
        if !self.has_zero_clusters {
            return Ok(false);
        }
        let whole = self.whole_clusters(offset, len);
        if !whole.is_empty() {
            let mut access = self.access.write();
            guarded(|| access.discard_to_zero(whole.start, whole.end - whole.start))
                .map_err(|e| self.failed("discard", offset, len, e))?;
        }
        Ok(true)
    }

    /// Whole clusters are marked as zeros. imago would mark others too, if what else is in them is
    /// zeros, which another thread may be writing over meanwhile: here they are written.
    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        let whole = self.whole_clusters(offset, len);
        let end = offset + len;
        if whole.is_empty() || !self.has_zero_clusters {
            return self.write_zeros(offset..end);
        }
        self.write_zeros(offset..whole.start)?;
        {
            let access = self.access.read();
            guarded(|| access.write_zeroes(whole.start, whole.end - whole.start))
                .map_err(|e| self.failed("zero", offset, len, e))?;
        }
        self.write_zeros(whole.end..end)
    }

    /// As large as the usual cluster.
    fn preferred_io(&self) -> u32 {
        64 << 10
    }

    fn parallel_writes(&self) -> usize {
        self.parallel_writes
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size);
        let access = self.access.read();
        let mut at = from;
        while at < end {
            let mapped = guarded(|| {
                let (mapping, len) = access.get_mapping(at, end - at)?;
                let is_hole = matches!(mapping, Mapping::Zero { .. } | Mapping::Eof { .. });
                Ok((is_hole, len))
            });
            let (is_hole, len) =
                mapped.map_err(|e| self.failed("find data in", at, end - at, e))?;
            if len == 0 {
                break;
            }
            if !is_hole {
                return Ok(Some(at..at + len.min(end - at)));
            }
            at += len;
        }
        Ok(None)
    }
}
