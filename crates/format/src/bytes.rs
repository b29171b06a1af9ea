//! Little-endian numbers in byte slices, without a way to panic.

/// Reads a little-endian `u16`; zero past the end, which callers exclude by checking lengths.
#[inline]
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..).and_then(|b| b.first_chunk::<2>()) {
        Some(b) => u16::from_le_bytes(*b),
        None => 0,
    }
}

/// Reads a little-endian `u32`; zero past the end, which callers exclude by checking lengths.
#[inline]
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..).and_then(|b| b.first_chunk::<4>()) {
        Some(b) => u32::from_le_bytes(*b),
        None => 0,
    }
}

/// Reads a little-endian `u64`; zero past the end, which callers exclude by checking lengths.
#[inline]
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|b| b.first_chunk::<8>()) {
        Some(b) => u64::from_le_bytes(*b),
        None => 0,
    }
}

/// Stores `value` at `at`; nothing past the end, which callers exclude by checking lengths.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|b| b.get_mut(..value.len())) {
        place.copy_from_slice(value);
    }
}
