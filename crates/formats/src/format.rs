//! The formats: what they are called, and how they are recognised.

use crate::{simg, vhd, vmdk};
use extant_blockdev::{BlockDevice, DeviceResult};
use std::ffi::OsStr;
use std::path::Path;

/// A format of disk images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The bytes of the disk and nothing else.
    Raw,
    /// The copy-on-write format of QEMU, version 2 and 3.
    Qcow2,
    /// A VHD whose blocks come into being when they are written.
    Vhd,
    /// A VHD with all bytes of the disk, and a footer.
    VhdFixed,
    /// An Android sparse image.
    Simg,
    /// The description of a VMDK disk, whose data is in other files.
    Vmdk,
    /// A VMDK with everything in one file, which is sparse or a stream. It is recognised only.
    VmdkSparse,
    /// A raw image compressed with gzip.
    Gzip,
    /// A raw image compressed with Zstandard.
    Zstd,
    /// A raw image compressed with xz.
    Xz,
}

impl Format {
    /// Formats that can be made, in the order in which help names them.
    pub const MADE: [Self; 6] = [
        Self::Raw,
        Self::Qcow2,
        Self::Vhd,
        Self::VhdFixed,
        Self::Simg,
        Self::Vmdk,
    ];

    /// Returns the word that options and programs know the format by, such as `vhd-fixed`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vhd => "vhd",
            Self::VhdFixed => "vhd-fixed",
            Self::Simg => "simg",
            Self::Vmdk => "vmdk",
            Self::VmdkSparse => "vmdk-sparse",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }

    /// Returns what it is, as words that go after "is": `a fixed VHD disk image`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "a raw disk image",
            Self::Qcow2 => "a qcow2 disk image",
            Self::Vhd => "a dynamic VHD disk image",
            Self::VhdFixed => "a fixed VHD disk image",
            Self::Simg => "an Android sparse image",
            Self::Vmdk => "the description of a VMDK disk",
            Self::VmdkSparse => "a sparse VMDK disk image",
            Self::Gzip => "a raw image compressed with gzip",
            Self::Zstd => "a raw image compressed with Zstandard",
            Self::Xz => "a raw image compressed with xz",
        }
    }

    /// Returns the format with this [word](Self::word), if it can be made.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::MADE.into_iter().find(|format| format.word() == word)
    }

    /// Returns the format that the extension of a name stands for, if it stands for one:
    /// `.qcow2`, `.vhd` and `.vpc`, `.simg`, `.vmdk`, `.gz`, `.zst`, `.xz`. Others, such as
    /// `.img`, say nothing.
    #[must_use]
    pub fn from_extension(path: &Path) -> Option<Self> {
        let extension = path.extension().and_then(OsStr::to_str)?;
        Some(match extension.to_ascii_lowercase().as_str() {
            "raw" => Self::Raw,
            "qcow2" => Self::Qcow2,
            "vhd" | "vpc" => Self::Vhd,
            "simg" => Self::Simg,
            "vmdk" => Self::Vmdk,
            "gz" => Self::Gzip,
            "zst" => Self::Zstd,
            "xz" => Self::Xz,
            _ => return None,
        })
    }

    /// Returns whether the virtual disk can be written in place.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(
            self,
            Self::Raw | Self::Qcow2 | Self::Vhd | Self::VhdFixed | Self::Vmdk
        )
    }
}

/// Returns the format that a device holds, by its marks; `None` for a raw image, and for what is
/// not known here. At most some kilobytes are read. A format is returned also where the feature
/// for it was not built in: [`open`](crate::open) then says so.
///
/// # Errors
/// When the device cannot be read.
pub fn recognise(device: &dyn BlockDevice) -> DeviceResult<Option<Format>> {
    let size = device.size();
    let mut head = [0; 512];
    let len = head.len().min(usize::try_from(size).unwrap_or(usize::MAX));
    device.read_at(0, &mut head[..len])?;
    let head = &head[..len];
    Ok(if head.starts_with(b"QFI\xfb") {
        Some(Format::Qcow2)
    } else if head.starts_with(b"KDMV") || head.starts_with(b"COWD") {
        Some(Format::VmdkSparse)
    } else if vmdk::is_descriptor(head) {
        Some(Format::Vmdk)
    } else if simg::is_sparse(head) {
        Some(Format::Simg)
    } else if let Some(compressed) = compressed(head) {
        Some(compressed)
    } else {
        vhd::recognise(device, head)?
    })
}

/// Compressed streams, by their first bytes.
fn compressed(head: &[u8]) -> Option<Format> {
    Some(match head {
        // Method 8 is the only one; the upper flags are reserved.
        [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0 => Format::Gzip,
        // A frame, or a skippable one in front of others.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Format::Xz,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_extensions_stand_for_formats() {
        for format in Format::MADE {
            assert_eq!(Format::from_word(format.word()), Some(format));
        }
        assert_eq!(Format::from_word("gzip"), None);
        let of = |name: &str| Format::from_extension(Path::new(name));
        assert_eq!(of("a.QCOW2"), Some(Format::Qcow2));
        assert_eq!(of("a.img.xz"), Some(Format::Xz));
        assert_eq!((of("a.img"), of("qcow2"), of(".vhd")), (None, None, None));
    }
}
