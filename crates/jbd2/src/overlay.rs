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

    /// Returns images that lie as they are in blocks of the log's device, each as where it belongs
    /// and where it is.
    pub fn of(block_size: BlockSize, images: impl IntoIterator<Item = (Pblk, Pblk)>) -> Self {
        let escaped = false;
        let images = images.into_iter();
        Self {
            block_size,
            images: images
                .map(|(home, at)| (home, Image { at, escaped }))
                .collect(),
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

    /// The images that lie in a range of `len` bytes from byte `offset` of the device on.
    fn parts(&self, offset: u64, len: usize) -> impl Iterator<Item = Part> + '_ {
        let size = u64::from(self.block_size.bytes());
        let end = offset.saturating_add(len as u64);
        let first = Pblk::new(offset / size);
        let past = Pblk::new(end.div_ceil(size)).max(first);
        self.images.range(first..past).map(move |(block, image)| {
            let start = block.get() * size;
            let from = offset.max(start);
            let to = end.min(start + size);
            Part {
                range: (from - offset) as usize..(to - offset) as usize,
                image: *image,
                skip: from - start,
            }
        })
    }

    /// Puts the images that lie in a range of the device over what was read of it.
    fn patch(&self, log: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        if log.in_flight() > 1 {
            let mut results = self.patch_together(log, &mut [(offset, buf)]);
            return results.pop().unwrap_or(Ok(()));
        }
        for part in self.parts(offset, buf.len()) {
            if let Some(target) = buf.get_mut(part.range) {
                self.read_image(log, part.image, part.skip, target)?;
            }
        }
        Ok(())
    }

    /// Puts the images that lie in ranges of the device over what was read of them. Returns how
    /// that went for each.
    fn patch_all(
        &self,
        log: &dyn BlockDevice,
        read: &mut [(u64, &mut [u8])],
    ) -> Vec<DeviceResult<()>> {
        if log.in_flight() > 1 {
            return self.patch_together(log, read);
        }
        let each = read.iter_mut();
        each.map(|(offset, buf)| self.patch(log, *offset, buf))
            .collect()
    }

    /// Does as [`patch_all`](Self::patch_all), with one batch of reads of the log.
    fn patch_together(
        &self,
        log: &dyn BlockDevice,
        read: &mut [(u64, &mut [u8])],
    ) -> Vec<DeviceResult<()>> {
        let mut wanted = Vec::new();
        for (number, (offset, buf)) in read.iter().enumerate() {
            wanted.extend(self.parts(*offset, buf.len()).map(|part| (number, part)));
        }
        let request = |(_, part): &(usize, Part)| {
            let start = self.block_size.offset_of(part.image.at).unwrap_or(u64::MAX);
            Request::read(start.saturating_add(part.skip), part.range.len())
        };
        let mut results: Vec<DeviceResult<()>> = read.iter().map(|_| Ok(())).collect();
        if wanted.is_empty() {
            return results;
        }
        let done = log.submit(wanted.iter().map(request).collect()).wait();
        for ((number, part), done) in wanted.into_iter().zip(done) {
            let (Some((_, buf)), Some(result)) = (read.get_mut(number), results.get_mut(number))
            else {
                continue;
            };
            match (done.result, buf.get_mut(part.range)) {
                (Ok(()), Some(to)) => {
                    if let Some(bytes) = done.request.into_read_buf() {
                        to.copy_from_slice(&bytes);
                    }
                    restore(part.image, part.skip, to);
                }
                (Ok(()), None) => {}
                (Err(e), _) => *result = Err(e),
            }
        }
        results
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
        restore(image, skip, buf);
        Ok(())
    }
}

/// A part of a range that was read, and which image it is to show, from byte `skip` on.
struct Part {
    range: Range<usize>,
    image: Image,
    skip: u64,
}

/// Gives an image, of which `buf` has what follows byte `skip`, what was taken from it in the log.
fn restore(image: Image, skip: u64, buf: &mut [u8]) {
    if image.escaped && skip < MAGIC_LEN as u64 {
        let mut magic = [0; MAGIC_LEN];
        restore_escaped(&mut magic);
        let magic = magic.get(skip as usize..).unwrap_or(&[]);
        for (to, from) in buf.iter_mut().zip(magic) {
            *to = *from;
        }
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
        let mut done = self.inner.submit(batch).wait();
        let (mut read, mut numbers) = (Vec::new(), Vec::new());
        for (number, done) in done.iter_mut().enumerate() {
            if let (Ok(()), Request::Read { offset, buf }) = (&done.result, &mut done.request) {
                read.push((*offset, &mut buf[..]));
                numbers.push(number);
            }
        }
        let results = self.blocks.patch_all(&*self.log, &mut read);
        for (number, result) in numbers.into_iter().zip(results) {
            if let Some(done) = done.get_mut(number) {
                done.result = result;
            }
        }
        Completion::ended(done)
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

    fn keeps_what_is_read(&self) -> bool {
        self.inner.keeps_what_is_read()
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.inner.preferred_io()
    }
}
