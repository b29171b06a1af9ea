//! Little-endian numbers at byte offsets; zero past the end.

pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u16::from_le_bytes(*b))
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u64::from_le_bytes(*b))
}
