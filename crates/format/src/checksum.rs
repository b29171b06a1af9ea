//! CRC32C in the form ext4 and JBD2 use it, and the CRC16 of group descriptors without
//! `metadata_csum`.
//!
//! ext4 chains CRC32C without the final inversion: the state after one piece is the seed of the
//! next, and the stored value is that state. See the kernel's `checksums` page.

use crc::{CRC_16_MODBUS, Crc, Table};

/// A CRC32C state: the seed of what follows, and the value stored on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The state before any byte: all ones.
    pub const INIT: Self = Self(!0);

    /// Continues from a stored seed (`checksum_seed` of the superblock, or an earlier state).
    #[inline]
    #[must_use]
    pub const fn seeded(seed: u32) -> Self {
        Self(seed)
    }

    /// Returns the state after `bytes`.
    #[inline]
    #[must_use]
    pub fn update(self, bytes: &[u8]) -> Self {
        Self(raw_update(self.0, bytes))
    }

    /// Returns the state after the little-endian bytes of `value`.
    #[inline]
    #[must_use]
    pub fn update_u32(self, value: u32) -> Self {
        self.update(&value.to_le_bytes())
    }

    /// Returns the state after `count` zero bytes.
    #[must_use]
    pub fn update_zeros(self, count: usize) -> Self {
        const ZEROS: [u8; 64] = [0; 64];
        let mut state = self;
        let mut left = count;
        while left > 0 {
            let n = left.min(ZEROS.len());
            state = state.update(&ZEROS[..n]);
            left -= n;
        }
        state
    }

    /// Returns the value as stored in a 32-bit checksum field.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the low half, as stored in a 16-bit checksum field.
    #[inline]
    #[must_use]
    pub const fn low16(self) -> u16 {
        self.0 as u16
    }
}

#[cfg(feature = "std")]
#[inline]
fn raw_update(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

#[cfg(not(feature = "std"))]
fn raw_update(state: u32, bytes: &[u8]) -> u32 {
    static TABLE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&crc::CRC_32_ISCSI);
    // The crate inverts at the end and takes its initial value bit-reversed.
    let mut digest = TABLE.digest_with_initial(state.reverse_bits());
    digest.update(bytes);
    !digest.finalize()
}

static CRC16: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_MODBUS);

/// Computes the CRC16 (polynomial 0x8005, reflected) over the pieces, starting from all ones: the
/// checksum of group descriptors under `uninit_bg`.
#[must_use]
pub fn crc16(pieces: &[&[u8]]) -> u16 {
    let mut digest = CRC16.digest();
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_published_check_value_without_the_final_inversion() {
        // CRC-32C("123456789") = 0xe3069283 with the final inversion.
        assert_eq!(Crc32c::INIT.update(b"123456789").value(), !0xe306_9283);
        let split = Crc32c::INIT.update(b"1234").update(b"56789");
        assert_eq!(split, Crc32c::INIT.update(b"123456789"));
        assert_eq!(
            Crc32c::INIT.update_zeros(100),
            Crc32c::INIT.update(&[0; 100])
        );
    }

    #[test]
    fn crc16_matches_the_published_check_value() {
        assert_eq!(crc16(&[b"123456789"]), 0x4b37);
        assert_eq!(crc16(&[b"1234", b"56789"]), 0x4b37);
    }
}
