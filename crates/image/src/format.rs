//! What an image is said to be.

use std::fmt;
use std::str::FromStr;

/// A format of disk images that somebody says an image has, so that it is not seen from its
/// content. Read from its word: `raw`, and with the feature `formats` `qcow2`, `vhd` (of either
/// kind), `vhd-fixed`, `vmdk`, `simg`, `gzip`, `zstd`, `xz` and `caibx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageFormat(known::Format);

/// The formats that this build has.
#[cfg(feature = "formats")]
mod known {
    pub(crate) use extant_formats::Format;

    pub(super) const RAW: Format = Format::Raw;

    pub(super) const fn word(format: Format) -> &'static str {
        format.word()
    }

    pub(super) fn all() -> Vec<Format> {
        Format::SAID.to_vec()
    }
}

/// Without formats all is raw.
#[cfg(not(feature = "formats"))]
mod known {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct Format;

    pub(super) const RAW: Format = Format;

    pub(super) const fn word(_: Format) -> &'static str {
        "raw"
    }

    pub(super) fn all() -> Vec<Format> {
        vec![RAW]
    }
}

impl ImageFormat {
    /// The bytes of a disk and nothing else, whatever they look like.
    pub const RAW: Self = Self(known::RAW);

    /// Returns the word that it is read from.
    #[must_use]
    pub const fn word(self) -> &'static str {
        known::word(self.0)
    }

    /// Returns the words that are known here.
    #[must_use]
    pub fn words() -> Vec<&'static str> {
        known::all().into_iter().map(known::word).collect()
    }

    /// The format as the library of formats knows it.
    #[cfg(feature = "formats")]
    pub(crate) const fn known(self) -> known::Format {
        self.0
    }
}

/// A word that stands for no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no format of images: use one of {}", ImageFormat::words().join(", "))]
pub struct UnknownFormat {
    word: String,
}

impl FromStr for ImageFormat {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        let mut all = known::all().into_iter();
        let found = all.find(|format| known::word(*format) == word);
        found.map(Self).ok_or_else(|| UnknownFormat {
            word: word.to_owned(),
        })
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_formats_and_others_are_listed() {
        for word in ImageFormat::words() {
            assert_eq!(word.parse::<ImageFormat>().map(ImageFormat::word), Ok(word));
        }
        assert_eq!("raw".parse(), Ok(ImageFormat::RAW));
        let error = "vdi".parse::<ImageFormat>().expect_err("no such format");
        assert!(error.to_string().contains("use one of raw"), "{error}");
    }
}
