//! Where the newest image of each block lies in a log, and a device that shows those images.
//!
//! The images stay in the log, which nobody writes while a file system is open for reading: a few
//! bytes of memory for each of them is all that a replay costs.

use extant_blockdev::{
    BlockDevice, Completion, DeviceError, DeviceResult, Done, Request, SharedDevice,
};
use extant_format::jbd2::restore_escaped;
use extant_format::{BlockSize, Pblk};
use std::collections::BTreeMap;
use std::ops::Range;

/// An image in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    /// The block of the device that holds it.
    pub(crate) at: Pblk,
    /// Its first four bytes are the journal's magic, and lie there as zeros.
    pub(crate) escaped: bool,
}

/// Where the newest image of every block of a log lies, by home block.
#[derive(Clone, Debug)]
pub struct ReplayedBlocks {
    block_size: BlockSize,
    images: BTreeMap<Pblk, Image>,
}

impl ReplayedBlocks {
    /// No images.
    pub(crate) fn new(block_size: BlockSize) -> Self {
        Self {
            block_size,
            images: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, block: Pblk, image: Image) {
        self.images.insert(block, image);
    }

    /// Returns whether the log held an image of `block`.
    #[must_use]
    pub fn contains(&self, block: Pblk) -> bool {
        self.images.contains_key(&block)
    }

    /// Returns all blocks the log held images of, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Pblk> {
        self.images.keys().copied()
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Returns whether there is no image.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// All images with their home blocks, ascending.
    pub(crate) fn images(&self) -> impl Iterator<Item = (Pblk, Image)> {
        self.images.iter().map(|(block, image)| (*block, *image))
    }

    /// Reads from byte `offset` of the file system on `device`, which also holds the log, as it
    /// will be after replay.
    ///
    /// # Errors
    /// As for [`BlockDevice::read_at`].
    pub fn read(&self, device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.read_with(device, device, offset, buf)
    }

    /// Reads as [`read`](Self::read) does, with the log on a device of its own.
    fn read_with(
        &self,
        device: &dyn BlockDevice,
        log: &dyn BlockDevice,
        offset: u64,
        buf: &mut [u8],
    ) -> DeviceResult<()> {
        let size = u64::from(self.block_size.bytes());
        let end = offset.saturating_add(buf.len() as u64);
        let first = Pblk::new(offset / size);
        let past = Pblk::new(end.div_ceil(size));
        let one = first.get().saturating_add(1) >= past.get();
        if !(one && self.contains(first)) {
            device.read_at(offset, buf)?;
        }
        self.patch(log, offset, buf)
    }

    /// Puts the images that lie in a range of the device over what was read of it.
    fn patch(&self, log: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let size = u64::from(self.block_size.bytes());
        let end = offset.saturating_add(buf.len() as u64);
        let first = Pblk::new(offset / size);
        let past = Pblk::new(end.div_ceil(size));
        if first >= past {
            return Ok(());
        }
        for (block, image) in self.images.range(first..past) {
            let start = block.get() * size;
            let from = offset.max(start);
            let to = end.min(start + size);
            let part = (from - offset) as usize..(to - offset) as usize;
            if let Some(target) = buf.get_mut(part) {
                self.read_image(log, *image, from - start, target)?;
            }
        }
        Ok(())
    }

    /// Fills `buf` with an image from byte `skip` on.
    fn read_image(
        &self,
        log: &dyn BlockDevice,
        image: Image,
        skip: u64,
        buf: &mut [u8],
    ) -> DeviceResult<()> {
        let start = self.block_size.offset_of(image.at).unwrap_or(u64::MAX);
        log.read_at(start.saturating_add(skip), buf)?;
        if image.escaped && skip < MAGIC_LEN as u64 {
            let mut magic = [0; MAGIC_LEN];
            restore_escaped(&mut magic);
            let magic = magic.get(skip as usize..).unwrap_or(&[]);
            for (to, from) in buf.iter_mut().zip(magic) {
                *to = *from;
            }
        }
        Ok(())
    }
}

/// Bytes of the magic number at the front of a record of the log.
const MAGIC_LEN: usize = 4;

/// A device as it will be after replay of its log: reads show the images, writes are refused.
#[derive(Debug)]
pub struct ReplayedDevice {
    inner: SharedDevice,
    /// The device that the log is on: mostly `inner`.
    log: SharedDevice,
    blocks: ReplayedBlocks,
}

impl ReplayedDevice {
    /// Lays `blocks` of the log on `inner` over `inner`, on which the file system starts at byte 0.
    #[must_use]
    pub fn new(inner: SharedDevice, blocks: ReplayedBlocks) -> Self {
        let log = SharedDevice::clone(&inner);
        Self::with_log(inner, log, blocks)
    }

    /// Lays `blocks` of a log that is on the device `log` over `inner`.
    #[must_use]
    pub fn with_log(inner: SharedDevice, log: SharedDevice, blocks: ReplayedBlocks) -> Self {
        Self { inner, log, blocks }
    }

    /// Returns the blocks the log held images of.
    #[must_use]
    pub fn blocks(&self) -> &ReplayedBlocks {
        &self.blocks
    }
}

impl BlockDevice for ReplayedDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.blocks.read_with(&*self.inner, &*self.log, offset, buf)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    /// Ends before it returns. Reads are those of the device below, together.
    fn submit(&self, batch: Vec<Request>) -> Completion {
        let is_read = |request: &Request| matches!(request, Request::Read { .. });
        if !batch.iter().all(is_read) {
            let one = |mut request| {
                let result = match &mut request {
                    Request::Read { offset, buf } => self.read_at(*offset, buf),
                    Request::Flush => Ok(()),
                    _ => Err(DeviceError::ReadOnly {
                        device: self.name(),
                    }),
                };
                Done { request, result }
            };
            return Completion::ended(batch.into_iter().map(one).collect());
        }
        let patched = self.inner.submit(batch).wait().into_iter().map(|mut done| {
            if let (Ok(()), Request::Read { offset, buf }) = (&done.result, &mut done.request) {
                done.result = self.blocks.patch(&*self.log, *offset, buf);
            }
            done
        });
        Completion::ended(patched.collect())
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.inner.prefetch(ranges);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn is_served(&self) -> bool {
        self.inner.is_served()
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.inner.preferred_io()
    }
}
