//! A label as the superblock stores it.

use crate::{Error, Result};
use extant_format::superblock::Superblock;

/// Bytes of a label.
const LEN: usize = 16;

/// What a file system is called, as it is stored: with zeros behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label([u8; LEN]);

impl Label {
    /// Checks and pads a label.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for more than 16 bytes, or a zero among them.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let mut label = [0; LEN];
        match label.get_mut(..bytes.len()) {
            Some(place) if !bytes.contains(&0) => place.copy_from_slice(bytes),
            _ => {
                return Err(Error::InvalidInput(
                    "a label has at most 16 bytes, none of which is zero",
                ));
            }
        }
        Ok(Self(label))
    }

    /// Returns the label without the zeros behind it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0
            .split(|byte| *byte == 0)
            .next()
            .map_or(Vec::new(), <[u8]>::to_vec)
    }

    /// Returns `superblock` with this label.
    pub fn in_superblock(self, superblock: &Superblock) -> Superblock {
        let changed = superblock.with(|raw| raw.volume_name = self.0);
        // No other field depends on it.
        changed.unwrap_or_else(|_| superblock.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_at_most_sixteen_bytes_and_none_is_zero() {
        for good in [&b""[..], b"root", b"sixteen bytes at", b"\xff\xfe"] {
            assert_eq!(Label::new(good).unwrap().bytes(), good);
        }
        assert!(Label::new(b"seventeen bytes at").is_err());
        assert!(Label::new(b"a\0b").is_err());
    }
}
