//! Owned buffers that any device can use as they are.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Alignment in bytes of every [`AlignedBuf`]: a page, which satisfies direct I/O on any
/// device Linux supports today.
pub const BUFFER_ALIGN: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; BUFFER_ALIGN]);

/// A buffer of bytes that starts on a page boundary and never moves while it lives.
///
/// The alignment lets a device transfer into it directly (O_DIRECT, io_uring).
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// Makes a buffer of `len` zero bytes.
    ///
    /// # Panics
    /// When memory is exhausted, as `Vec` does.
    pub fn zeroed(len: usize) -> Self {
        let pages = len.div_ceil(BUFFER_ALIGN);
        let pages = Page::new_vec_zeroed(pages).unwrap_or_else(|_| vec![Page([0; 4096]); pages]);
        Self { pages, len }
    }

    /// Makes a buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self {
            pages: self.pages.clone(),
            len: self.len,
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// What a write request carries: a buffer of its own, or one shared with other requests,
/// such as a committed image that goes to the log and to its home block.
#[derive(Debug, Clone)]
pub enum WriteBuf {
    /// The request owns the bytes.
    Owned(AlignedBuf),
    /// The bytes are shared and do not change.
    Shared(Arc<AlignedBuf>),
}

impl Deref for WriteBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(buf) => buf,
            Self::Shared(buf) => buf,
        }
    }
}

impl From<AlignedBuf> for WriteBuf {
    fn from(buf: AlignedBuf) -> Self {
        Self::Owned(buf)
    }
}

impl From<Arc<AlignedBuf>> for WriteBuf {
    fn from(buf: Arc<AlignedBuf>) -> Self {
        Self::Shared(buf)
    }
}
