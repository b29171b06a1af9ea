//! Memory that any thread copies to and from, with nothing that keeps others away meanwhile: what a
//! copy costs by itself.
//!
//! Two copies that meet may mix. That would be no program if the memory were ordinary, so it is
//! made of atomics.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::Ordering;

const WORD: usize = size_of::<u64>();

/// See the module.
pub(crate) struct SharedMemory(Box<[AtomicU64]>);

impl SharedMemory {
    /// Memory of `bytes` bytes, a multiple of eight, all zeros.
    pub(crate) fn new(bytes: usize) -> Self {
        Self((0..bytes / WORD).map(|_| AtomicU64::new(0)).collect())
    }

    fn words(&self, at: usize, len: usize) -> &[AtomicU64] {
        assert!(at.is_multiple_of(WORD) && len.is_multiple_of(WORD));
        &self.0[at / WORD..][..len / WORD]
    }

    /// Copies `from` to byte `at`. Both are made of whole words.
    pub(crate) fn copy_in(&self, at: usize, from: &[u8]) {
        let words = self.words(at, from.len());
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: `from` may be read and `words` be stored to, as atomics may by reference. Both
        // have the length of `from`.
        unsafe {
            string::copy(words.as_ptr().cast_mut().cast(), from.as_ptr(), from.len());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        for (word, bytes) in words.iter().zip(from.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Fills `to` from byte `at` on. Both are made of whole words.
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) {
        let words = self.words(at, to.len());
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: `words` may be read and `to` be written. Both have the length of `to`.
        unsafe {
            string::copy(to.as_mut_ptr(), words.as_ptr().cast(), to.len());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        for (word, bytes) in words.iter().zip(to.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod string {
    /// Copies `len` bytes by the instruction that C libraries use for a few kilobytes, and measured
    /// as fast as theirs. The compiler does not see what it does to memory, which is what as many
    /// relaxed loads and stores of bytes would.
    ///
    /// # Safety
    /// The bytes at `from` may be read, those at `to` be written, and they do not overlap.
    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: the caller's word; the direction flag is clear on entry, as the ABI says.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_in_comes_out_and_nothing_else_changes() {
        let memory = SharedMemory::new(8192);
        let bytes: Vec<u8> = (0..4096_u32).map(|i| (i % 251) as u8 + 1).collect();
        memory.copy_in(1024, &bytes);
        let mut all = vec![9; 8192];
        memory.copy_out(0, &mut all);
        let (before, rest) = all.split_at(1024);
        let (inside, behind) = rest.split_at(4096);
        assert!(inside == bytes);
        assert!(before.iter().chain(behind).all(|&byte| byte == 0));
    }
}
