//! Telling the processor what is about to be used.
//!
//! A thread that follows one pointer after another through memory that is in no cache waits for
//! each of them. If the first ones can be had early, the processor fetches while other work is
//! done. All of it is hints: they change nothing, and an address may be anything.

#![allow(unsafe_code)]

/// Bytes that a processor fetches at once.
const LINE: usize = 64;

/// Has the first `len` bytes from `address` on brought near, which are about to be changed. What
/// lies there does not matter, nor whether anything does.
#[inline]
pub fn prefetch(address: usize, len: usize) {
    let first = address & !(LINE - 1);
    let lines = (address - first + len).div_ceil(LINE);
    for i in 0..lines {
        fetch(first.wrapping_add(i * LINE));
    }
}

#[inline]
fn fetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads and writes nothing that a program could see, and never faults,
        // whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_will_do() {
        let here = [0_u8; 200];
        for address in [0, 1, usize::MAX - 64, here.as_ptr().addr()] {
            for len in [0, 1, 64, 200] {
                prefetch(address, len);
            }
        }
        assert_eq!(here, [0; 200]);
    }
}
