//! A bitmap whose image commit can keep.

use extant_format::bitmap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A bitmap as the device will have it. A clone is an image that later changes leave alone: it
/// costs two counts, and the first change after it a copy of the bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bitmap {
    bits: Arc<[u8]>,
    /// The checksum of exactly these bits, once somebody asked.
    checksum: Arc<OnceLock<u32>>,
}

impl Bitmap {
    pub(super) fn new(bits: &[u8]) -> Self {
        Self {
            bits: bits.into(),
            checksum: Arc::default(),
        }
    }

    /// The bits, to read.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// The bits, to keep.
    pub(super) fn image(&self) -> Arc<[u8]> {
        Arc::clone(&self.bits)
    }

    /// The bits, to change.
    pub(super) fn edit(&mut self) -> &mut [u8] {
        match Arc::get_mut(&mut self.checksum) {
            Some(checksum) => drop(checksum.take()),
            None => self.checksum = Arc::default(),
        }
        Arc::make_mut(&mut self.bits)
    }

    /// The checksum with which descriptors vouch for a bitmap of `bits` bits, worked out once for
    /// each image.
    pub(super) fn checksum(&self, seed: u32, bits: u32) -> u32 {
        *self
            .checksum
            .get_or_init(|| bitmap::checksum(seed, &self.bits, bits))
    }

    /// Whether anybody asked for the checksum of these bits.
    #[cfg(any(test, feature = "inspect"))]
    pub(crate) fn has_checksum(&self) -> bool {
        self.checksum.get().is_some()
    }
}

/// Whether all bits of the range are clear.
pub(super) fn is_clear(map: &[u8], bits: Range<u32>) -> bool {
    bitmap::next_set(map, bits.start, bits.end).is_none()
}

/// Whether all bits of the range are set.
pub(super) fn is_set(map: &[u8], bits: Range<u32>) -> bool {
    bitmap::next_clear(map, bits.start, bits.end).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_its_bits_and_checksum_when_the_bitmap_changes() {
        let mut map = Bitmap::new(&[0; 64]);
        let before = map.checksum(1, 512);
        let image = map.clone();
        bitmap::set(map.edit(), 5);
        assert_eq!(image.bits(), [0; 64]);
        assert_eq!(image.checksum(1, 512), before);
        assert_ne!(map.checksum(1, 512), before);
        // Without a clone the change is made in place, and still noticed.
        let middle = map.checksum(1, 512);
        let at = map.bits().as_ptr();
        drop(image);
        bitmap::set(map.edit(), 6);
        assert_eq!(map.bits().as_ptr(), at);
        assert_ne!(map.checksum(1, 512), middle);
    }
}
