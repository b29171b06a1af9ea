//! Copies that do not fetch what they write over.
//!
//! An ordinary store to memory that is not in the cache reads the line first, to keep what it does
//! not write, and pushes something else out. Data on a device is read again later if at all, so for
//! copies of whole lines both are a waste: a processor that has stores past its caches is told to
//! use them. That is also how data gets to persistent memory.
#![allow(unsafe_code)]

/// Copies `src` to `dst`, which are of one length, past the cache where the processor can and it is
/// long enough to matter. Done when it returns: the stores are in front of any later one.
///
/// # Panics
/// When the lengths differ.
pub(crate) fn copy(dst: &mut [u8], src: &[u8]) {
    assert_eq!(dst.len(), src.len());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if dst.len() >= SHORTEST {
        return lines::copy(dst, src);
    }
    dst.copy_from_slice(src);
}

/// Bytes from which on it matters.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SHORTEST: usize = 1024;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod lines {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LINE: usize = 64;
    const WORD: usize = size_of::<__m128i>();

    /// Copies whole lines of `dst` past the cache, and what is before and behind them through it.
    /// The lengths are one.
    pub(super) fn copy(dst: &mut [u8], src: &[u8]) {
        let before = dst.as_ptr().align_offset(LINE).min(dst.len());
        let (dst_before, dst) = dst.split_at_mut(before);
        let (src_before, src) = src.split_at(before);
        dst_before.copy_from_slice(src_before);
        let (dst_lines, dst_behind) = dst.as_chunks_mut::<LINE>();
        let (src_lines, src_behind) = src.as_chunks::<LINE>();
        for (to, from) in dst_lines.iter_mut().zip(src_lines) {
            let (to, from) = (to.as_mut_ptr(), from.as_ptr());
            // SAFETY: `to` and `from` point to LINE bytes each, that may be written and read, in
            // four words. `to` is aligned to LINE, as the first line is by `align_offset` and lines
            // follow each other. SSE2 is part of x86-64.
            unsafe {
                let words = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(i * WORD).cast()));
                for (i, word) in words.into_iter().enumerate() {
                    _mm_stream_si128(to.add(i * WORD).cast(), word);
                }
            }
        }
        dst_behind.copy_from_slice(src_behind);
        // SAFETY: as any code of x86-64 may. Without it others might see later stores, such as one
        // that unlocks, before these.
        unsafe { _mm_sfence() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        let src: Vec<u8> = (0..8192_u32).map(|i| (i * 31 % 251) as u8 + 1).collect();
        for len in [0, 1, 63, 64, 1023, 1024, 1025, 1087, 1088, 4096, 4099] {
            for to in [0, 1, 15, 16, 48, 63, 64] {
                for from in [0, 1, 7, 16] {
                    let mut dst = vec![0; 8192];
                    copy(&mut dst[to..to + len], &src[from..from + len]);
                    assert_eq!(dst[to..to + len], src[from..from + len]);
                    let others = dst[..to].iter().chain(&dst[to + len..]);
                    assert!(others.copied().all(|byte| byte == 0), "{len} {to} {from}");
                }
            }
        }
    }
}
