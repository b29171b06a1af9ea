//! The images recovered from a log, and a device that shows them.

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_format::{BlockSize, Pblk};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The newest image of every block of a log, by home block.
#[derive(Clone, Debug)]
pub struct ReplayedBlocks {
    block_size: BlockSize,
    images: BTreeMap<Pblk, Arc<[u8]>>,
}

impl ReplayedBlocks {
    /// No images.
    pub(crate) fn new(block_size: BlockSize) -> Self {
        Self {
            block_size,
            images: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, block: Pblk, image: Arc<[u8]>) {
        self.images.insert(block, image);
    }

    /// The image of `block`, if the log held one.
    #[must_use]
    pub fn get(&self, block: Pblk) -> Option<&Arc<[u8]>> {
        self.images.get(&block)
    }

    /// All images, by ascending block.
    pub fn iter(&self) -> impl Iterator<Item = (Pblk, &Arc<[u8]>)> {
        self.images.iter().map(|(block, image)| (*block, image))
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Whether there is no image.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Lays the images over bytes that were read from byte `offset` of the file system.
    pub fn apply(&self, offset: u64, buf: &mut [u8]) {
        let size = u64::from(self.block_size.bytes());
        let end = offset.saturating_add(buf.len() as u64);
        let blocks = Pblk::new(offset / size)..Pblk::new(end.div_ceil(size));
        if blocks.is_empty() {
            return;
        }
        for (block, image) in self.images.range(blocks) {
            let start = block.get() * size;
            let from = offset.max(start);
            let to = end.min(start + size);
            let source = image.get((from - start) as usize..(to - start) as usize);
            let target = buf.get_mut((from - offset) as usize..(to - offset) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
    }
}

/// A device as it will be after replay: reads show the images of a log, writes are refused.
#[derive(Debug)]
pub struct ReplayedDevice {
    inner: SharedDevice,
    blocks: ReplayedBlocks,
}

impl ReplayedDevice {
    /// Lays `blocks` over `inner`, on which the file system starts at byte 0.
    #[must_use]
    pub fn new(inner: SharedDevice, blocks: ReplayedBlocks) -> Self {
        Self { inner, blocks }
    }

    /// The images.
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
        self.inner.read_at(offset, buf)?;
        self.blocks.apply(offset, buf);
        Ok(())
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

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.inner.preferred_io()
    }
}
