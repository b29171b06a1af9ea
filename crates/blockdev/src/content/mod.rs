//! What content is: recognised by its first bytes and its last ones.
//!
//! Commands that expect an ext4 file system, or are about to replace something, name what they find
//! instead. Nothing here reads more than [`HEAD_LEN`] and [`TAIL_LEN`] bytes, but for
//! [`lasting_marks`], and nothing opens what it recognises.
//!
//! Marks are searched from the most to the least telling: a magic number of eight bytes says more
//! than the two that end a boot sector, which file systems have as well as partition tables.

mod lasting;
mod marks;

pub use lasting::{LastingMark, lasting_marks};

use crate::{BlockDevice, DeviceResult};
use std::fmt;

/// Bytes at the front that are looked at: the mark of btrfs, which lies farthest in, ends within
/// them.
pub const HEAD_LEN: usize = 70 << 10;
/// Bytes at the end that are looked at: backups of partition tables, footers of disk images, RAID
/// superblocks.
pub const TAIL_LEN: usize = 16 << 10;

/// A kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Content {
    /// An empty file.
    Empty,
    /// Nothing but zeros where a file system begins.
    Zeros,
    /// A text file.
    Text,
    /// A disk with a GPT.
    Gpt,
    /// A disk with an MBR partition table.
    Mbr,
    /// An ext2 file system.
    Ext2,
    /// An ext3 file system.
    Ext3,
    /// An ext4 file system.
    Ext4,
    /// The external journal of an ext4 file system.
    ExtJournal,
    /// An XFS file system.
    Xfs,
    /// A btrfs file system.
    Btrfs,
    /// An F2FS file system.
    F2fs,
    /// A FAT file system.
    Fat,
    /// An exFAT file system.
    ExFat,
    /// An NTFS file system.
    Ntfs,
    /// A BitLocker volume.
    BitLocker,
    /// An HFS or HFS+ file system.
    HfsPlus,
    /// An APFS container.
    Apfs,
    /// A ReiserFS file system.
    ReiserFs,
    /// A JFS file system.
    Jfs,
    /// A SquashFS image.
    Squashfs,
    /// An EROFS image.
    Erofs,
    /// A cramfs image.
    Cramfs,
    /// A romfs image.
    Romfs,
    /// An ISO 9660 (CD or DVD) image.
    Iso9660,
    /// A UDF (DVD or Blu-ray) image.
    Udf,
    /// A swap area.
    Swap,
    /// A LUKS encrypted volume.
    Luks,
    /// An LVM physical volume.
    Lvm2,
    /// A member of a Linux software RAID.
    LinuxRaid,
    /// A disk of a RAID that a controller's firmware made.
    FirmwareRaid,
    /// A device of a ZFS pool.
    Zfs,
    /// A bcache device.
    Bcache,
    /// A bcachefs file system.
    Bcachefs,
    /// An OCFS2 file system.
    Ocfs2,
    /// A GFS2 file system.
    Gfs2,
    /// A Minix file system.
    Minix,
    /// A JFFS2 image.
    Jffs2,
    /// A UBI image.
    Ubi,
    /// A UBIFS image.
    Ubifs,
    /// An Android boot image.
    AndroidBoot,
    /// An Android super image, which has partitions of its own kind.
    AndroidSuper,
    /// The payload of an Android update.
    AndroidUpdate,
    /// A boot image of U-Boot.
    BootImage,
    /// A device tree, or an image for booting in its form (FIT).
    DeviceTree,
    /// A QCOW or QCOW2 disk image.
    Qcow,
    /// A QED disk image.
    Qed,
    /// A VMDK disk image.
    Vmdk,
    /// The description of a VMDK disk, whose data is in other files.
    VmdkDescriptor,
    /// A VDI disk image.
    Vdi,
    /// A VHD disk image.
    Vhd,
    /// A VHDX disk image.
    Vhdx,
    /// A Parallels disk image.
    Parallels,
    /// An EnCase (EWF) disk image.
    Ewf,
    /// A DMG disk image.
    Dmg,
    /// An Android sparse image.
    AndroidSparse,
    /// The index of an image in chunks, or of an archive of casync.
    ChunkIndex,
    /// An archive of casync.
    Catar,
    /// An undo file of e2fsprogs.
    E2Undo,
    /// Compressed with gzip.
    Gzip,
    /// Compressed with Zstandard.
    Zstd,
    /// Compressed with xz.
    Xz,
    /// Compressed with LZMA.
    Lzma,
    /// Compressed with lzip.
    Lzip,
    /// Compressed with lzop.
    Lzop,
    /// Compressed with bzip2.
    Bzip2,
    /// Compressed with LZ4.
    Lz4,
    /// Compressed with compress.
    Compress,
    /// A tar archive.
    Tar,
    /// A zip archive.
    Zip,
    /// A cpio archive.
    Cpio,
    /// A 7z archive.
    SevenZip,
    /// A RAR archive.
    Rar,
    /// A xar archive.
    Xar,
    /// An ar archive or a Debian package.
    Ar,
    /// An RPM package.
    Rpm,
    /// A Windows image (WIM).
    Wim,
    /// An SQLite database.
    Sqlite,
    /// A program or a library (ELF).
    Elf,
    /// A program for Windows or EFI.
    Pe,
    /// A PDF document.
    Pdf,
    /// Data of a kind that is not known.
    Unknown,
}

impl Content {
    /// Recognises content by its first and its last bytes, of which there are `size` together. Of
    /// less than [`HEAD_LEN`] and [`TAIL_LEN`] bytes less is recognised. The two may overlap; a
    /// stream, whose end is not known yet, has no tail.
    #[must_use]
    pub fn of(head: &[u8], tail: &[u8], size: u64) -> Self {
        marks::recognise(head, tail, size)
    }

    /// Recognises what is on a device.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn on(device: &dyn BlockDevice) -> DeviceResult<Self> {
        let size = device.size();
        let mut head = vec![0; HEAD_LEN.min(usize::try_from(size).unwrap_or(usize::MAX))];
        device.read_at(0, &mut head)?;
        let mut tail = vec![0; TAIL_LEN.min(head.len())];
        device.read_at(size - tail.len() as u64, &mut tail)?;
        Ok(Self::of(&head, &tail, size))
    }

    /// Returns whether it is an ext2, ext3 or ext4 file system.
    #[must_use]
    pub const fn is_ext(self) -> bool {
        matches!(self, Self::Ext2 | Self::Ext3 | Self::Ext4)
    }

    /// Returns whether it is a disk, or a file system or a volume that is written to, also in a
    /// format of disk images: what is precious as a whole, and never only a file.
    #[must_use]
    pub const fn is_disk(self) -> bool {
        let is_file_system = matches!(
            self,
            Self::Xfs
                | Self::Btrfs
                | Self::F2fs
                | Self::Fat
                | Self::ExFat
                | Self::Ntfs
                | Self::HfsPlus
                | Self::Apfs
                | Self::ReiserFs
                | Self::Jfs
                | Self::Bcachefs
                | Self::Ocfs2
                | Self::Gfs2
        );
        let is_volume = matches!(
            self,
            Self::Gpt
                | Self::Mbr
                | Self::ExtJournal
                | Self::BitLocker
                | Self::Luks
                | Self::Lvm2
                | Self::LinuxRaid
                | Self::FirmwareRaid
                | Self::Zfs
                | Self::Bcache
                | Self::AndroidSuper
        );
        let is_format = matches!(
            self,
            Self::Qcow
                | Self::Qed
                | Self::Vmdk
                | Self::Vdi
                | Self::Vhd
                | Self::Vhdx
                | Self::Parallels
                | Self::AndroidSparse
        );
        self.is_ext() || is_file_system || is_volume || is_format
    }

    /// Returns what it is, as words that go after "is" or "contains": `a tar archive`, `compressed
    /// with gzip`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.words().0
    }

    /// Returns what to do to get at an ext4 file system or at files in it, where there is something
    /// to do: words that begin with a verb.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        self.words().1
    }

    /// Says where an ext4 file system was looked for and this was found instead: what it is, and
    /// what to do. `None` for what is such a file system, and for what is not known.
    #[must_use]
    pub fn instead_of_ext(self) -> Option<String> {
        if self.is_ext() || self == Self::Unknown {
            return None;
        }
        let what = format!("no ext4 file system was found: this is {}", self.name());
        Some(match self.advice() {
            Some(advice) => format!("{what}; {advice}"),
            None => what,
        })
    }

    const fn words(self) -> (&'static str, Option<&'static str>) {
        const MOUNT: Option<&str> =
            Some("mount it with the kernel, or copy it into a directory or a tar archive");
        const CONVERT: Option<&str> = Some(
            "serve it (qemu-nbd -t -k SOCKET FILE) and name nbd+unix:///?socket=SOCKET, or convert \
             it first: qemu-img convert -O raw OLD NEW",
        );
        const PARTITION: Option<&str> =
            Some("name one of its partitions with IMAGE#N or --partition");
        match self {
            Self::Empty => ("an empty file", None),
            Self::Zeros => ("nothing but zeros where a file system begins", None),
            Self::Text => ("a text file", None),
            Self::Gpt => ("a disk with a GPT", PARTITION),
            Self::Mbr => ("a disk with an MBR partition table", PARTITION),
            Self::Ext2 => ("an ext2 file system", None),
            Self::Ext3 => ("an ext3 file system", None),
            Self::Ext4 => ("an ext4 file system", None),
            Self::ExtJournal => (
                "the external journal of an ext4 file system",
                Some("name the file system's own device"),
            ),
            Self::Xfs => ("an XFS file system", MOUNT),
            Self::Btrfs => ("a btrfs file system", MOUNT),
            Self::F2fs => ("an F2FS file system", MOUNT),
            Self::Fat => (
                "a FAT file system",
                Some("mount it with the kernel, or read it with mtools"),
            ),
            Self::ExFat => ("an exFAT file system", MOUNT),
            Self::Ntfs => ("an NTFS file system", MOUNT),
            Self::BitLocker => (
                "a BitLocker volume",
                Some("unlock it first, such as with cryptsetup open --type bitlk"),
            ),
            Self::HfsPlus => (
                "an HFS or HFS+ file system",
                Some("mount it with the kernel, or unpack it with 7z"),
            ),
            Self::Apfs => (
                "an APFS container",
                Some("copy its files on a Mac into a directory or a tar archive"),
            ),
            Self::ReiserFs => ("a ReiserFS file system", MOUNT),
            Self::Jfs => ("a JFS file system", MOUNT),
            Self::Squashfs => ("a SquashFS image", Some("unpack it first with unsquashfs")),
            Self::Erofs => (
                "an EROFS image",
                Some("mount it with the kernel, or unpack it with fsck.erofs --extract"),
            ),
            Self::Cramfs => ("a cramfs image", MOUNT),
            Self::Romfs => ("a romfs image", MOUNT),
            Self::Iso9660 => (
                "an ISO 9660 (CD or DVD) image",
                Some("mount it with the kernel, or unpack it with bsdtar"),
            ),
            Self::Udf => (
                "a UDF (DVD or Blu-ray) image",
                Some("mount it with the kernel, or unpack it with 7z"),
            ),
            Self::Swap => ("a swap area", None),
            Self::Luks => (
                "a LUKS encrypted volume",
                Some(
                    "unlock it first with cryptsetup open, and name the device it makes; without \
                     root, serve it with nbdkit --filter=luks and name its nbd:// address",
                ),
            ),
            Self::Lvm2 => (
                "an LVM physical volume",
                Some("activate it first with vgchange -ay, and name a logical volume"),
            ),
            Self::LinuxRaid => (
                "a member of a Linux software RAID",
                Some("assemble it first with mdadm, and name the device it makes"),
            ),
            Self::FirmwareRaid => (
                "a disk of a RAID that a controller's firmware made",
                Some("assemble it first with dmraid or mdadm, and name the device it makes"),
            ),
            Self::Zfs => (
                "a device of a ZFS pool",
                Some("import the pool, and copy its files into a directory or a tar archive"),
            ),
            Self::Bcache => (
                "a bcache device",
                Some("register it first, and name the device it makes"),
            ),
            Self::Bcachefs => ("a bcachefs file system", MOUNT),
            Self::Ocfs2 => ("an OCFS2 file system", MOUNT),
            Self::Gfs2 => ("a GFS2 file system", MOUNT),
            Self::Minix => ("a Minix file system", MOUNT),
            Self::Jffs2 => ("a JFFS2 image", Some("unpack it first with jefferson")),
            Self::Ubi => (
                "a UBI image",
                Some("unpack it first with ubireader_extract_files"),
            ),
            Self::Ubifs => (
                "a UBIFS image",
                Some("unpack it first with ubireader_extract_files"),
            ),
            Self::AndroidBoot => (
                "an Android boot image",
                Some("unpack it first with unpack_bootimg"),
            ),
            Self::AndroidSuper => (
                "an Android super image",
                Some("take its partitions out with lpunpack, and name one of them"),
            ),
            Self::AndroidUpdate => (
                "the payload of an Android update",
                Some("take its partitions out with payload-dumper-go, and name one of them"),
            ),
            Self::BootImage => (
                "a boot image of U-Boot",
                Some("unpack it first with dumpimage"),
            ),
            Self::DeviceTree => (
                "a device tree or a FIT image",
                Some("take a part of it out with dumpimage"),
            ),
            Self::Qcow => ("a QCOW or QCOW2 disk image", CONVERT),
            Self::Qed => ("a QED disk image", CONVERT),
            Self::Vmdk => ("a VMDK disk image", CONVERT),
            Self::VmdkDescriptor => (
                "the description of a VMDK disk, whose data is in other files",
                Some(
                    "name the flat file it describes, or convert it: qemu-img convert -O raw OLD NEW",
                ),
            ),
            Self::Vdi => ("a VDI disk image", CONVERT),
            Self::Vhd => ("a VHD disk image", CONVERT),
            Self::Vhdx => ("a VHDX disk image", CONVERT),
            Self::Parallels => ("a Parallels disk image", CONVERT),
            Self::Ewf => (
                "an EnCase (EWF) disk image",
                Some("convert it first with ewfexport -f raw"),
            ),
            Self::Dmg => ("a DMG disk image", Some("convert it first with dmg2img")),
            Self::AndroidSparse => (
                "an Android sparse image",
                Some("convert it first: simg2img OLD NEW"),
            ),
            Self::ChunkIndex => (
                "an index of chunks (casync)",
                Some("take out what it stands for: casync extract"),
            ),
            Self::Catar => (
                "an archive of casync",
                Some("unpack it first with casync extract"),
            ),
            Self::E2Undo => (
                "an undo file of e2fsprogs",
                Some("apply it to its image with e2undo"),
            ),
            Self::Gzip => ("compressed with gzip", Some("decompress it first: gzip -d")),
            Self::Zstd => (
                "compressed with Zstandard",
                Some("decompress it first: zstd -d"),
            ),
            Self::Xz => ("compressed with xz", Some("decompress it first: xz -d")),
            Self::Lzma => (
                "compressed with LZMA",
                Some("decompress it first: xz -d --format=lzma"),
            ),
            Self::Lzip => ("compressed with lzip", Some("decompress it first: lzip -d")),
            Self::Lzop => ("compressed with lzop", Some("decompress it first: lzop -d")),
            Self::Bzip2 => (
                "compressed with bzip2",
                Some("decompress it first: bzip2 -d"),
            ),
            Self::Lz4 => ("compressed with LZ4", Some("decompress it first: lz4 -d")),
            Self::Compress => (
                "compressed with compress",
                Some("decompress it first: gzip -d"),
            ),
            Self::Tar => (
                "a tar archive",
                Some("make an image of it: extant mkfs IMAGE --from ARCHIVE"),
            ),
            Self::Zip => ("a zip archive", Some("unpack it first with unzip")),
            Self::Cpio => (
                "a cpio archive",
                Some("turn it into tar first: bsdtar -cf NEW.tar @OLD"),
            ),
            Self::SevenZip => ("a 7z archive", Some("unpack it first with 7z x")),
            Self::Rar => ("a RAR archive", Some("unpack it first")),
            Self::Xar => ("a xar archive", Some("unpack it first with bsdtar")),
            Self::Ar => (
                "an ar archive or a Debian package",
                Some(
                    "unpack it first: dpkg-deb --fsys-tarfile gives the files of a package as tar",
                ),
            ),
            Self::Rpm => (
                "an RPM package",
                Some("turn it into tar first: bsdtar -cf NEW.tar @OLD"),
            ),
            Self::Wim => (
                "a Windows image (WIM)",
                Some("unpack it first with wimlib-imagex"),
            ),
            Self::Sqlite => ("an SQLite database", None),
            Self::Elf => ("a program or a library (ELF)", None),
            Self::Pe => ("a program for Windows or EFI", None),
            Self::Pdf => ("a PDF document", None),
            Self::Unknown => ("data of a kind that is not known", None),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
