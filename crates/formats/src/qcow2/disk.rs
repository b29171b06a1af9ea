//! imago's virtual disk as one of our devices.
//!
//! # Locking
//! imago takes any transfers from any threads at the same time. A discard takes mappings away that
//! a transfer may be using, so that imago asks for it to be alone: `mappings of a qcow2` is held
//! shared by everything else and exclusively by a discard.
//!
//! # Power loss
//! imago writes its tables in an order, and the device below does not keep it. So a cluster that
//! becomes free may be used again on the device before the mapping that led to it is gone there. A
//! discard therefore has all on the device before anything else can take what it freed; only then
//! is the device below told, too, of clusters that nothing else used. A write
//! frees a cluster only where one is compressed, and there it also has to have the rest of the
//! cluster in its new place before its mapping changes: in images that have such clusters, each
//! cluster is written alone, in imago's order, and is on the device before the next one.

use super::below::Below;
use super::guarded;
use super::header::Shape;
use crate::mapped::{self, Part, Tables};
use extant_blockdev::{BlockDevice, Completion, DeviceError, DeviceResult, Request, SharedDevice};
use extant_sync::{LockClass, Rank, RwLock, RwLockReadGuard};
use imago::{FormatAccess, Mapping};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of zeros that are written at once.
const ZEROS: u64 = 1 << 20;

static MAPPINGS_CLASS: LockClass = LockClass::new("mappings of a qcow2", Rank::ImageFormat);

/// The virtual disk.
#[derive(Debug)]
pub(super) struct Disk {
    access: RwLock<FormatAccess<Below>>,
    /// What holds the image itself.
    below: SharedDevice,
    name: String,
    size: u64,
    read_only: bool,
    /// Bytes of a cluster.
    cluster: u64,
    /// Whether a cluster can be marked as zeros: not in images of version 2.
    has_zero_clusters: bool,
    /// Whether writes may free clusters, since some are compressed.
    is_careful: bool,
    /// Whether what imago writes is on the device below in the order in which it is written.
    in_order: Arc<AtomicBool>,
    /// As of the device below.
    parallel_writes: usize,
}

impl Disk {
    pub(super) fn new(
        access: FormatAccess<Below>,
        below: SharedDevice,
        name: String,
        read_only: bool,
        shape: &Shape,
        in_order: Arc<AtomicBool>,
    ) -> Self {
        Self {
            parallel_writes: if shape.has_compressed {
                1
            } else {
                below.parallel_writes()
            },
            below,
            in_order,
            is_careful: shape.has_compressed,
            size: access.size(),
            cluster: shape.cluster,
            has_zero_clusters: shape.version >= 3,
            access: RwLock::new(&MAPPINGS_CLASS, access),
            name,
            read_only,
        }
    }

    fn mapped(&self) -> Mapped<'_> {
        Mapped {
            disk: self,
            access: self.access.read(),
        }
    }

    /// The clusters that lie in a range as a whole, in bytes.
    fn whole_clusters(&self, offset: u64, len: u64) -> Range<u64> {
        let start = offset.next_multiple_of(self.cluster);
        let end = (offset + len) / self.cluster * self.cluster;
        start..end.max(start)
    }

    /// Where on the device below a range lies, as far as nothing but this disk uses what is there.
    fn places(
        &self,
        access: &FormatAccess<Below>,
        range: Range<u64>,
    ) -> io::Result<Vec<Range<u64>>> {
        let mut places: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (mapping, len) = access.get_mapping(at, range.end - at)?;
            if len == 0 {
                break;
            }
            at += len;
            let Mapping::Raw {
                storage,
                offset,
                writable: true,
                ..
            } = mapping
            else {
                continue;
            };
            match places.last_mut() {
                _ if !storage.is_on(&self.below) => {}
                Some(last) if last.end == offset => last.end += len,
                _ => places.push(offset..offset + len),
            }
        }
        Ok(places)
    }

    /// Changes a range, alone, cluster by cluster; each is on the device before the next.
    fn carefully(
        &self,
        op: &'static str,
        range: Range<u64>,
        mut change: impl FnMut(&FormatAccess<Below>, Range<u64>) -> io::Result<()>,
    ) -> DeviceResult<()> {
        let mut at = range.start;
        while at < range.end {
            let next = (at / self.cluster + 1) * self.cluster;
            let part = at..next.min(range.end);
            let access = self.access.write();
            self.in_order.store(true, Ordering::Relaxed);
            let done = guarded(|| {
                change(&access, part.clone())?;
                access.flush()?;
                access.sync()
            });
            self.in_order.store(false, Ordering::Relaxed);
            done.map_err(|e| self.failed(op, at, part.end - at, e))?;
            at = part.end;
        }
        Ok(())
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

/// The mappings, which no discard takes away meanwhile.
struct Mapped<'d> {
    disk: &'d Disk,
    access: RwLockReadGuard<'d, FormatAccess<Below>>,
}

impl Tables for Mapped<'_> {
    /// What imago itself would read or write in one place. It changes no table for a write there.
    fn find(&self, offset: u64, len: u64, writes: bool) -> (Part, u64) {
        let Disk { below, .. } = self.disk;
        let found = guarded(|| {
            let (mapping, len) = self.access.get_mapping(offset, len)?;
            let part = match mapping {
                Mapping::Raw {
                    storage,
                    offset: at,
                    writable,
                    ..
                } if storage.is_on(below) && (!writes || writable && !self.disk.is_careful) => {
                    // The device may end within the last cluster.
                    let end = at.checked_add(len);
                    if end.is_some_and(|end| end <= below.size()) {
                        Part::Below(at)
                    } else {
                        Part::Other
                    }
                }
                Mapping::Zero { .. } | Mapping::Eof { .. } => Part::Zeros,
                _ => Part::Other,
            };
            Ok((part, len))
        });
        // The disk itself says what is wrong.
        found.unwrap_or((Part::Other, len))
    }

    fn settle(&self) -> DeviceResult<()> {
        guarded(|| self.access.flush()).map_err(|e| self.disk.failed("flush", 0, self.disk.size, e))
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
        if let Some(done) = mapped::read(self, &*self.below, offset, buf, || self.mapped()) {
            return done;
        }
        let access = self.access.read();
        guarded(|| access.read(buf, offset)).map_err(|e| self.failed("read", offset, len, e))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_writable("write", offset, len)?;
        if let Some(done) = mapped::write(self, &*self.below, offset, buf, || self.mapped()) {
            return done;
        }
        if self.is_careful {
            return self.carefully("write", offset..offset + len, |access, part| {
                let bytes = (part.start - offset) as usize..(part.end - offset) as usize;
                access.write(&buf[bytes], part.start)
            });
        }
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
            let freed = guarded(|| {
                let freed = self.places(&access, whole.clone())?;
                access.discard_to_zero(whole.start, whole.end - whole.start)?;
                access.flush()?;
                access.sync()?;
                Ok(freed)
            });
            let freed = freed.map_err(|e| self.failed("discard", offset, len, e))?;
            let end = self.below.size();
            for place in freed {
                let stop = place.end.min(end);
                if place.start < stop {
                    self.below.discard(place.start, stop - place.start)?;
                }
            }
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
        if self.is_careful {
            self.carefully("zero", whole.clone(), |access, part| {
                access.write_zeroes(part.start, part.end - part.start)
            })?;
        } else {
            let access = self.access.read();
            guarded(|| access.write_zeroes(whole.start, whole.end - whole.start))
                .map_err(|e| self.failed("zero", offset, len, e))?;
        }
        self.write_zeros(whole.end..end)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        mapped::read_vectored(self, &*self.below, offset, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        mapped::write_vectored(self, &*self.below, offset, bufs)
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        mapped::submit(self, &*self.below, batch, || self.mapped())
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight()
    }

    fn is_served(&self) -> bool {
        self.below.is_served()
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
