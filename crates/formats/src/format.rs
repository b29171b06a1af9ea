//! The formats: what they are called, and how they are recognised.

use crate::{FormatError, simg, vhd, vmdk};
use extant_blockdev::{BlockDevice, Content, DeviceError, DeviceResult};
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
    /// The index of an image in chunks, which are in a store of casync or desync. It is recognised
    /// only: the crates `extant-image` and `extant-remote` open what it stands for.
    Caibx,
}

/// How an index of casync begins: the length of its head, and its mark.
const INDEX: &[u8; 16] = b"\x30\0\0\0\0\0\0\0\xf9\x9f\x12\x7b\x9c\x4d\x82\x96";

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
            Self::Caibx => "caibx",
        }
    }

    /// Formats that an image may be said to have, in the order in which help names them.
    pub const SAID: [Self; 10] = [
        Self::Raw,
        Self::Qcow2,
        Self::Vhd,
        Self::VhdFixed,
        Self::Vmdk,
        Self::Simg,
        Self::Gzip,
        Self::Zstd,
        Self::Xz,
        Self::Caibx,
    ];

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
            Self::Caibx => "the index of an image in chunks (casync)",
        }
    }

    /// Returns the format with this [word](Self::word), if it can be made.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::MADE.into_iter().find(|format| format.word() == word)
    }

    /// Returns the format that the extension of a name stands for, if it stands for one:
    /// `.qcow2`, `.vhd` and `.vpc`, `.simg`, `.vmdk`, `.caibx`, `.gz`, `.zst`, `.xz`. Others, such
    /// as `.img`, say nothing.
    #[must_use]
    pub fn from_extension(path: &Path) -> Option<Self> {
        let extension = path.extension().and_then(OsStr::to_str)?;
        Some(match extension.to_ascii_lowercase().as_str() {
            "raw" => Self::Raw,
            "qcow2" => Self::Qcow2,
            "vhd" | "vpc" => Self::Vhd,
            "simg" => Self::Simg,
            "vmdk" => Self::Vmdk,
            "caibx" => Self::Caibx,
            "gz" => Self::Gzip,
            "zst" => Self::Zstd,
            "xz" => Self::Xz,
            _ => return None,
        })
    }

    /// Returns the format in which to open a device that somebody says is of this one: the same, or
    /// for [`Format::Vhd`] the kind of VHD that it is. Only marks of this format are looked for,
    /// whatever else the device may look like; anything can be raw.
    ///
    /// # Errors
    /// `NotAsSaid` where there is no mark of this format; `Device` when the device cannot be read.
    pub fn on(self, device: &dyn BlockDevice) -> Result<Self, FormatError> {
        let head = front(device, SECTOR)?;
        let found = match self {
            Self::Raw => Some(Self::Raw),
            Self::Vhd | Self::VhdFixed => {
                let at_end = vhd::at_end(device)?.map(|footer| footer.format);
                let found = at_end.or_else(|| by_front(&head));
                found.filter(|found| [Self::Vhd, Self::VhdFixed].contains(found))
            }
            other => by_front(&head).filter(|found| *found == other),
        };
        let is_as_said = |found: &Self| self != Self::VhdFixed || *found == Self::VhdFixed;
        found
            .filter(is_as_said)
            .ok_or_else(|| FormatError::NotAsSaid {
                device: device.name(),
                said: self.name(),
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

/// Bytes at the front that have the mark of a format.
const SECTOR: u64 = 512;

/// Bytes at the front in which a disk says that it is one: a table of partitions, the superblock of
/// a file system.
const DISK_HEAD: u64 = 8 << 10;

/// Where the code of a boot sector ends and its table begins. Marks of formats lie in front.
const TABLE_AT: usize = 446;

/// Returns the format that a device holds, by its marks; `None` for a raw image, and for what is
/// not known here. At most some kilobytes are read. A format is returned also where the feature
/// for it was not built in: [`open`](crate::open) then says so.
///
/// What uses a disk writes what it likes to it, marks of formats too. So the footer of a fixed VHD
/// that fits its file goes before any mark in front, which belongs to the disk in it. Where a mark
/// stands in front of what is a disk as well, none is believed: [`Format::on`] takes a person's
/// word.
///
/// # Errors
/// `Refused` where two marks contradict each other; when the device cannot be read.
pub fn recognise(device: &dyn BlockDevice) -> DeviceResult<Option<Format>> {
    let head = front(device, SECTOR)?;
    let at_end = vhd::at_end(device)?;
    let Some(seen) = by_front(&head) else {
        return Ok(at_end.map(|footer| footer.format));
    };
    if at_end.is_some_and(|footer| footer.is_fixed_and_fits) {
        if seen == Format::Qcow2 && qcow2_may_end_at(&head, device.size()) {
            return Err(ambiguous(
                device,
                seen,
                "ends as a fixed VHD does",
                Format::VhdFixed,
            ));
        }
        return Ok(Some(Format::VhdFixed));
    }
    match disk_behind_mark(device)? {
        None => Ok(Some(seen)),
        Some(disk) => {
            let also = format!("is {} as well", disk.name());
            Err(ambiguous(device, seen, &also, Format::Raw))
        }
    }
}

/// The first `len` bytes of a device, or all.
fn front(device: &dyn BlockDevice, len: u64) -> DeviceResult<Vec<u8>> {
    let mut head = vec![0; device.size().min(len) as usize];
    device.read_at(0, &mut head)?;
    Ok(head)
}

/// The format that the first sector speaks for.
fn by_front(head: &[u8]) -> Option<Format> {
    if head.starts_with(b"QFI\xfb") {
        Some(Format::Qcow2)
    } else if head.starts_with(b"KDMV") || head.starts_with(b"COWD") {
        Some(Format::VmdkSparse)
    } else if vmdk::is_descriptor(head) {
        Some(Format::Vmdk)
    } else if simg::is_sparse(head) {
        Some(Format::Simg)
    } else if head.starts_with(INDEX) {
        Some(Format::Caibx)
    } else if vhd::is_copy(head) {
        Some(Format::Vhd)
    } else {
        compressed(head)
    }
}

/// What a device is whose first sector begins with the mark of a format, if that is a disk: with a
/// table of partitions, or with a file system that leaves the first sector to others.
fn disk_behind_mark(device: &dyn BlockDevice) -> DeviceResult<Option<Content>> {
    let mut head = front(device, DISK_HEAD)?;
    let mark = TABLE_AT.min(head.len());
    head[..mark].fill(0);
    let found = Content::of(&head, &[], device.size());
    let is_disk = found.is_ext()
        || matches!(
            found,
            Content::Gpt | Content::Mbr | Content::ExtJournal | Content::Lvm2
        );
    Ok(is_disk.then_some(found))
}

/// Whether a qcow2 with this first sector may have just so many bytes: it consists of clusters.
fn qcow2_may_end_at(head: &[u8], size: u64) -> bool {
    let word = |at: usize| {
        let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let (version, cluster_bits) = (word(4), word(20));
    matches!(version, 2 | 3)
        && (9..=21).contains(&cluster_bits)
        && size.is_multiple_of(1 << cluster_bits)
}

/// The refusal of a device that two marks speak of.
fn ambiguous(device: &dyn BlockDevice, seen: Format, also: &str, other: Format) -> DeviceError {
    let said: Vec<String> = [other, seen]
        .into_iter()
        .filter(|format| Format::SAID.contains(format))
        .map(|format| format!("--image-format {}", format.word()))
        .collect();
    DeviceError::Refused {
        place: device.name(),
        reason: format!(
            "it begins as {} does, and {also}, as where a guest wrote such a mark to its disk: say \
             what it is with {}",
            seen.name(),
            said.join(" or ")
        ),
    }
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
