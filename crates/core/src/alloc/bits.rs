//! A bitmap whose image commit can keep, and the search for free runs.

use extant_format::bitmap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A bitmap as the device will have it. A clone is an image that later changes leave alone: it costs
/// two counts, and the first change after it a copy of the bits.
#[derive(Clone, Debug)]
pub(super) struct Bitmap {
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
    pub(super) fn bits(&self) -> &[u8] {
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
}

/// A run of at least `len` clear bits in `bits`, cut to `len`: the first there is. If there is none,
/// the longest run.
pub(super) fn find_run(map: &[u8], bits: Range<u32>, len: u32) -> Option<Range<u32>> {
    let mut longest: Option<Range<u32>> = None;
    for run in bitmap::clear_runs(map, bits) {
        let size = run.end - run.start;
        if size >= len {
            return Some(run.start..run.start + len);
        }
        if longest.as_ref().is_none_or(|l| l.end - l.start < size) {
            longest = Some(run);
        }
    }
    longest
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
    use extant_testkit::rng::{Rng, seed_from_env};

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

    #[test]
    fn runs_are_what_a_look_at_every_bit_finds() {
        let mut rng = Rng::new(seed_from_env("alloc_runs"));
        for _ in 0..2000 {
            let mut map = vec![0_u8; rng.between(1, 40) as usize];
            rng.fill(&mut map);
            if rng.one_in(2) {
                let mut other = map.clone();
                rng.fill(&mut other);
                map.iter_mut().zip(other).for_each(|(a, b)| *a &= b);
            }
            let end = rng.below(map.len() as u64 * 8 + 1) as u32;
            let start = rng.below(u64::from(end) + 1) as u32;
            let len = rng.between(1, 12) as u32;
            let free: Vec<bool> = (start..end).map(|b| !bitmap::test(&map, b)).collect();
            let run_at = |at: usize| free[at..].iter().take_while(|f| **f).count() as u32;
            let first = (0..free.len()).find(|&at| run_at(at) >= len);
            let longest = (0..free.len()).map(run_at).max().unwrap_or(0);
            match find_run(&map, start..end, len) {
                Some(run) if run.end - run.start == len => {
                    assert_eq!(first.map(|at| at as u32 + start), Some(run.start));
                }
                Some(run) => {
                    assert_eq!(first, None);
                    assert_eq!(run.end - run.start, longest);
                    assert!(is_clear(&map, run));
                }
                None => assert_eq!(longest, 0),
            }
        }
    }
}
