//! Numbers as the programs of e2fsprogs write them: with units of 1024, or counting blocks.

/// Bytes of the block that a number without a unit counts where no size of blocks is given.
pub(super) const DEFAULT_BLOCK: u64 = 1024;

/// How large something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// So many blocks.
    Blocks(u64),
    /// So many bytes.
    Bytes(u64),
}

impl Length {
    /// Reads a number of blocks, or one with a unit: `s` for sectors of 512 bytes, `k`, `m`, `g`,
    /// `t` for powers of 1024.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unit = text.chars().last()?.to_ascii_lowercase();
        let shift = match unit {
            's' => 9,
            'k' => 10,
            'm' => 20,
            'g' => 30,
            't' => 40,
            _ => return integer(text).map(Self::Blocks),
        };
        let number = integer(&text[..text.len() - 1])?;
        number.checked_mul(1 << shift).map(Self::Bytes)
    }

    /// Reads a number of bytes, which may have a unit.
    pub(super) fn parse_bytes(text: &str) -> Option<u64> {
        Some(match Self::parse(text)? {
            Self::Blocks(bytes) | Self::Bytes(bytes) => bytes,
        })
    }

    /// How many bytes it is, in whole blocks of this size; `None` if that is no number.
    pub(super) fn bytes(self, block: u64) -> Option<u64> {
        match self {
            Self::Blocks(blocks) => blocks.checked_mul(block),
            Self::Bytes(bytes) => Some(bytes / block * block),
        }
    }
}

/// Reads a number as strtoul(3) does in any base: hexadecimal behind `0x`, octal behind `0`.
pub(super) fn integer(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, base) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (&*lower, 10),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(base));
    is_number
        .then(|| u64::from_str_radix(digits, base).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_blocks_unless_they_have_a_unit() {
        for (text, length) in [
            ("10240", Length::Blocks(10_240)),
            ("0x10", Length::Blocks(16)),
            ("010", Length::Blocks(8)),
            ("0", Length::Blocks(0)),
            ("20480s", Length::Bytes(10 << 20)),
            ("10240k", Length::Bytes(10 << 20)),
            ("10M", Length::Bytes(10 << 20)),
            ("3g", Length::Bytes(3 << 30)),
            ("1T", Length::Bytes(1 << 40)),
        ] {
            assert_eq!(Length::parse(text), Some(length), "{text}");
        }
        for wrong in [
            "",
            "k",
            "10X",
            "1.5g",
            "-1",
            "+1",
            "10kk",
            "0x",
            "99999999t",
            "é",
        ] {
            assert_eq!(Length::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Length::Bytes(10_000).bytes(1024), Some(9216));
        assert_eq!(Length::Blocks(u64::MAX).bytes(1024), None);
    }
}
