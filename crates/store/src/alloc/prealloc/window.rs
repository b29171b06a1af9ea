//! How much is taken for a file beyond what it asks for.

use super::FileRequest;
use std::ops::Range;

/// What files of each size get at once: an aligned window of so many bytes around what is asked
/// for. Up to the first size, which doubles up to there, it is the whole file.
const CLASSES: [(u64, u64); 3] = [(1 << 20, 1 << 20), (4 << 20, 2 << 20), (8 << 20, 4 << 20)];
/// What larger ones get.
const LARGEST: u64 = 8 << 20;
/// What the smallest ones get.
const SMALLEST: u64 = 16 << 10;

/// The size of the window for a file of `size` bytes.
fn window_bytes(size: u64) -> u64 {
    match CLASSES.iter().find(|(most, _)| size <= *most) {
        Some((most, _)) if *most == CLASSES[0].0 => size.max(SMALLEST).next_power_of_two(),
        Some((_, window)) => *window,
        None => LARGEST,
    }
}

/// The logical clusters to take at once for `ask`, which is in clusters, of 2^`log2` bytes: a range
/// around those asked for, within `gap`, which holds the first of them.
pub(super) fn window(ask: &FileRequest, log2: u32, gap: Range<u32>) -> Range<u32> {
    let lblk = ask.lblk.get();
    let end = lblk.saturating_add(ask.len.max(1));
    let asked = lblk..end.min(gap.end);
    if ask.no_prealloc {
        return asked;
    }
    let size = ask.size.max(u64::from(end) << log2);
    let blocks = u32::try_from(window_bytes(size) >> log2).unwrap_or(u32::MAX);
    if blocks <= ask.len {
        return asked;
    }
    // A write at the end goes on there: what lies before is mapped, or a hole.
    let appends = u64::from(end) << log2 >= ask.size;
    let start = if appends {
        lblk
    } else {
        lblk / blocks * blocks
    };
    let end = end.checked_next_multiple_of(blocks).unwrap_or(u32::MAX);
    start.max(gap.start)..end.min(gap.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_format::Lblk;

    fn ask(lblk: u32, len: u32, size: u64) -> FileRequest {
        FileRequest {
            lblk: Lblk::new(lblk),
            len,
            size,
            reserved: false,
            no_prealloc: false,
            privileged: false,
        }
    }

    const ALL: Range<u32> = 0..u32::MAX;

    #[test]
    fn a_growing_file_gets_as_much_again() {
        let of = |lblk, len| window(&ask(lblk, len, 0), 12, ALL);
        assert_eq!(of(0, 1), 0..4);
        assert_eq!(of(4, 1), 4..8);
        assert_eq!(of(8, 2), 8..16);
        assert_eq!(of(128, 2), 128..256);
        assert_eq!(of(256, 2), 256..512);
        assert_eq!(of(1024, 1), 1024..2048);
        assert_eq!(of(10_000, 1), 10_000..10_240);
        assert_eq!(of(0, 5000), 0..5000);
    }

    #[test]
    fn what_is_asked_for_in_the_middle_gets_its_whole_window() {
        let of = |lblk, size| window(&ask(lblk, 1, size), 10, ALL);
        assert_eq!(of(3, 16 << 10), 0..16);
        assert_eq!(of(5, 64 << 10), 0..64);
        assert_eq!(of(2500, 3 << 20), 2048..4096);
        assert_eq!(of(100_000, 1 << 30), 98_304..106_496);
        let near_end = window(&ask(u32::MAX - 2, 1, 1 << 50), 12, ALL);
        assert_eq!(near_end, u32::MAX - 2047..u32::MAX);
    }

    #[test]
    fn it_keeps_off_what_waits_already_and_off_more_than_was_wanted() {
        let mut one = ask(100, 10, 1 << 30);
        assert_eq!(window(&one, 12, 90..105), 90..105);
        assert_eq!(window(&one, 12, 100..3000), 100..2048);
        one.no_prealloc = true;
        assert_eq!(window(&one, 12, 90..105), 100..105);
        // A block as large as a window.
        assert_eq!(window(&ask(0, 1, 1), 16, ALL), 0..1);
    }
}
