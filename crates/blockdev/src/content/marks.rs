//! The marks of formats: where they lie, and what they say.

use super::Content;

/// The mark of a GPT's header.
pub(super) const GPT: &[u8; 8] = b"EFI PART";

/// The first name in the list that describes a ZFS pool, with its length; and where in the list
/// that is.
pub(super) const ZFS_LIST: &[u8; 11] = b"\0\0\0\x07version";
pub(super) const ZFS_LIST_AT: u64 = 20;

/// Marks that nothing else has by chance: offset from the front, bytes.
#[rustfmt::skip]
const STRONG: &[(usize, &[u8], Content)] = &[
    (0, b"XFSB", Content::Xfs),
    (0x1_0040, b"_BHRfS_M", Content::Btrfs),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], Content::F2fs),
    (3, b"EXFAT   ", Content::ExFat),
    (3, b"NTFS    ", Content::Ntfs),
    (3, b"-FVE-FS-", Content::BitLocker),
    (32, b"NXSB", Content::Apfs),
    (0x1_0034, b"ReIsEr", Content::ReiserFs),
    (32_768, b"JFS1", Content::Jfs),
    (0, b"hsqs", Content::Squashfs),
    (0, b"sqsh", Content::Squashfs),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], Content::Erofs),
    (0, &[0x45, 0x3d, 0xcd, 0x28], Content::Cramfs),
    (512, &[0x45, 0x3d, 0xcd, 0x28], Content::Cramfs),
    (0, b"-rom1fs-", Content::Romfs),
    (32_769, b"CD001", Content::Iso9660),
    (32_769, b"BEA01", Content::Udf),
    (32_769, b"NSR02", Content::Udf),
    (32_769, b"NSR03", Content::Udf),
    (0, b"LUKS\xba\xbe", Content::Luks),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], Content::LinuxRaid),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], Content::LinuxRaid),
    (4120, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
        Content::Bcache),
    (0x4000 + 20, ZFS_LIST, Content::Zfs),
    (4120, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
        Content::Bcachefs),
    (1024, b"OCFSV2", Content::Ocfs2),
    (2048, b"OCFSV2", Content::Ocfs2),
    (4096, b"OCFSV2", Content::Ocfs2),
    (0x1_0000, &[0x01, 0x16, 0x19, 0x70], Content::Gfs2),
    (0, &[0x85, 0x19, 0x01, 0xe0], Content::Jffs2),
    (0, &[0x85, 0x19, 0x02, 0xe0], Content::Jffs2),
    (0, &[0x85, 0x19, 0x03, 0x20], Content::Jffs2),
    (0, b"UBI#", Content::Ubi),
    (0, &[0x31, 0x18, 0x10, 0x06], Content::Ubifs),
    (0, b"ANDROID!", Content::AndroidBoot),
    (0, b"VNDRBOOT", Content::AndroidBoot),
    (4096, b"gDla", Content::AndroidSuper),
    (0, b"CrAU", Content::AndroidUpdate),
    (0, &[0x27, 0x05, 0x19, 0x56], Content::BootImage),
    (0, &[0xd0, 0x0d, 0xfe, 0xed], Content::DeviceTree),
    (0, b"QFI\xfb", Content::Qcow),
    (0, b"QED\0", Content::Qed),
    (0, b"KDMV", Content::Vmdk),
    (0, b"COWD", Content::Vmdk),
    (0, b"# Disk DescriptorFile", Content::VmdkDescriptor),
    (64, &[0x7f, 0x10, 0xda, 0xbe], Content::Vdi),
    (0, b"conectix", Content::Vhd),
    (0, b"vhdxfile", Content::Vhdx),
    (0, b"WithoutFreeSpace", Content::Parallels),
    (0, b"WithouFreSpacExt", Content::Parallels),
    (0, b"EVF\x09\x0d\x0a\xff\x00", Content::Ewf),
    (0, &[0x3a, 0xff, 0x26, 0xed], Content::AndroidSparse),
    (0, b"\x30\0\0\0\0\0\0\0\xf9\x9f\x12\x7b\x9c\x4d\x82\x96", Content::ChunkIndex),
    (0, b"\x40\0\0\0\0\0\0\0\x51\xbb\x5b\xea\xbc\xfa\x96\x13", Content::Catar),
    (0, b"E2UNDO02", Content::E2Undo),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], Content::Zstd),
    (0, b"\xfd7zXZ\0", Content::Xz),
    (0, b"LZIP\x01", Content::Lzip),
    (0, b"\x89LZO\0\x0d\x0a\x1a\x0a", Content::Lzop),
    (0, &[0x04, 0x22, 0x4d, 0x18], Content::Lz4),
    (0, &[0x02, 0x21, 0x4c, 0x18], Content::Lz4),
    (0, b"PK\x03\x04", Content::Zip),
    (0, b"PK\x05\x06", Content::Zip),
    (0, b"7z\xbc\xaf\x27\x1c", Content::SevenZip),
    (0, b"Rar!\x1a\x07", Content::Rar),
    (0, b"xar!", Content::Xar),
    (0, b"!<arch>\n", Content::Ar),
    (0, &[0xed, 0xab, 0xee, 0xdb], Content::Rpm),
    (0, b"MSWIM\0\0\0", Content::Wim),
    (0, b"SQLite format 3\0", Content::Sqlite),
    (0, b"\x7fELF", Content::Elf),
    (0, b"%PDF-", Content::Pdf),
    (0, b"070701", Content::Cpio),
    (0, b"070702", Content::Cpio),
    (0, b"070707", Content::Cpio),
];

/// One way of looking at the front and at the end.
type Look = fn(&[u8], &[u8]) -> Option<Content>;

/// See [`Content::of`].
pub(super) fn recognise(head: &[u8], tail: &[u8], size: u64) -> Content {
    if size == 0 {
        return Content::Empty;
    }
    let looks: [Look; 8] = [
        table,
        strong,
        ext,
        compressed,
        swap_or_volume,
        footer,
        cpio,
        boot_sector,
    ];
    if is_tar_header(head) {
        // The sum of a whole block says more than any mark, and a member may be a file with marks
        // of its own.
        return Content::Tar;
    }
    if let Some(found) = looks.iter().find_map(|look| look(head, tail)) {
        return found;
    }
    if head.iter().chain(tail).all(|&byte| byte == 0) {
        Content::Zeros
    } else if is_text(head) {
        Content::Text
    } else {
        Content::Unknown
    }
}

fn has(bytes: &[u8], at: usize, mark: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(mark))
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A GPT: its header is in the second sector, behind a boot sector.
fn table(head: &[u8], _: &[u8]) -> Option<Content> {
    // An image for CDs that is a disk as well has a GPT, and is written like a disk.
    [512, 4096]
        .iter()
        .any(|&at| has(head, at, GPT))
        .then_some(Content::Gpt)
}

fn strong(head: &[u8], _: &[u8]) -> Option<Content> {
    let found = STRONG.iter().find(|(at, mark, _)| has(head, *at, mark));
    found.map(|(.., content)| *content)
}

/// The magic number of ext2 has two bytes, so sizes beside it must be possible, too.
fn ext(head: &[u8], _: &[u8]) -> Option<Content> {
    const HAS_JOURNAL: u32 = 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    /// Features of ext2 and ext3: filetype, recover, meta_bg; sparse_super, large_file, btree_dir.
    const OLD_INCOMPAT: u32 = 0x2 | 0x4 | 0x10;
    const OLD_RO_COMPAT: u32 = 0x1 | 0x2 | 0x4;
    let superblock = head.get(1024..2048)?;
    if le16(superblock, 56) != 0xef53 || le32(superblock, 24) > 6 {
        return None;
    }
    let (compat, incompat, ro_compat) = (
        le32(superblock, 92),
        le32(superblock, 96),
        le32(superblock, 100),
    );
    Some(if incompat & JOURNAL_DEVICE != 0 {
        Content::ExtJournal
    } else if incompat & !OLD_INCOMPAT != 0 || ro_compat & !OLD_RO_COMPAT != 0 {
        Content::Ext4
    } else if compat & HAS_JOURNAL != 0 {
        Content::Ext3
    } else {
        Content::Ext2
    })
}

/// Compressed streams whose mark is short.
fn compressed(head: &[u8], _: &[u8]) -> Option<Content> {
    Some(match head {
        // Method 8 is the only one; the upper flags are reserved.
        [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0 => Content::Gzip,
        [0x1f, 0x9d, flags, ..] if (9..=16).contains(&(flags & 0x1f)) => Content::Compress,
        // A block's mark, or that of the end of a stream without blocks.
        [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..]
            if rest.starts_with(b"1AY&SY") || rest.starts_with(b"\x17rE8P\x90") =>
        {
            Content::Bzip2
        }
        // A skippable frame in front of others.
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Content::Zstd,
        // Properties, a dictionary of 64 KiB and more, an unknown size.
        [
            0x5d,
            0,
            0,
            _,
            _,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            ..,
        ] => Content::Lzma,
        _ => return None,
    })
}

/// Swap areas are marked at the end of their first page, physical volumes in one of the first four
/// sectors.
fn swap_or_volume(head: &[u8], _: &[u8]) -> Option<Content> {
    let is_swap = |page: usize| {
        [&b"SWAPSPACE2"[..], b"SWAP-SPACE", b"S1SUSPEND"]
            .iter()
            .any(|mark| has(head, page - 10, mark))
    };
    let is_volume = |sector: usize| {
        has(head, sector * 512, b"LABELONE") && has(head, sector * 512 + 24, b"LVM2")
    };
    if (12..=16).any(|log| is_swap(1 << log)) {
        Some(Content::Swap)
    } else {
        (0..4).any(is_volume).then_some(Content::Lvm2)
    }
}

/// Formats that are known by their end.
fn footer(head: &[u8], tail: &[u8]) -> Option<Content> {
    let last = tail.len().checked_sub(512)?;
    if has(tail, last, b"conectix") {
        // A fixed disk: the raw content, then this.
        Some(Content::Vhd)
    } else if has(tail, last, b"koly") {
        Some(Content::Dmg)
    } else if [512, 4096].iter().any(|sector| {
        tail.len()
            .checked_sub(*sector)
            .is_some_and(|at| has(tail, at, GPT))
    }) {
        // The front is gone, or belongs to something whose mark is weaker than this one.
        Some(Content::Gpt)
    } else if raid_at_end(tail) && !head.is_empty() {
        Some(Content::LinuxRaid)
    } else {
        None
    }
}

/// Version 1.0 of a RAID superblock lies 8 to 12 KiB before the end.
fn raid_at_end(tail: &[u8]) -> bool {
    let from = tail.len().saturating_sub(12 << 10);
    let to = tail.len().saturating_sub(8 << 10);
    (from..=to)
        .step_by(512)
        .any(|at| has(tail, at, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]))
}

fn cpio(head: &[u8], _: &[u8]) -> Option<Content> {
    // The binary form has numbers of 16 bits: a mark, and in the tenth the length of a name, which
    // is at least one character and its end.
    let [a, b, ..] = *head else { return None };
    let number = |at: usize| {
        let bytes = head.get(at..)?.first_chunk().copied()?;
        Some(if a == 0xc7 {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    };
    let is_cpio = matches!([a, b], [0xc7, 0x71] | [0x71, 0xc7])
        && number(20).is_some_and(|len| (2..4096).contains(&len));
    is_cpio.then_some(Content::Cpio)
}

/// A header has a name, and the sum of its bytes (those of the sum taken for blanks) in octal
/// digits.
fn is_tar_header(head: &[u8]) -> bool {
    let Some(header) = head.get(..512) else {
        return false;
    };
    let digits = header[148..156].trim_ascii_start();
    let end = digits
        .iter()
        .position(|byte| !(b'0'..=b'7').contains(byte))
        .unwrap_or(digits.len());
    let stored = digits[..end]
        .iter()
        .fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
    let bytes = header[..148].iter().chain(&header[156..]);
    let sum = bytes.fold(8 * u32::from(b' '), |sum, &byte| sum + u32::from(byte));
    end > 0 && header[0] != 0 && stored == sum
}

/// FAT, HFS, programs, and what is left: a boot sector with a table of partitions.
fn boot_sector(head: &[u8], _: &[u8]) -> Option<Content> {
    if [&b"H+"[..], b"HX", b"BD"]
        .iter()
        .any(|mark| has(head, 1024, mark))
        && hfs_is_sound(head)
    {
        return Some(Content::HfsPlus);
    }
    if is_minix(head) {
        return Some(Content::Minix);
    }
    if has(head, 0, b"MZ") && has(head, le32(head, 60) as usize, b"PE\0\0") {
        return Some(Content::Pe);
    }
    if !has(head, 510, &[0x55, 0xaa]) {
        return None;
    }
    if is_fat(head) {
        return Some(Content::Fat);
    }
    let entries = head.get(446..510)?.chunks(16);
    let is_entry =
        |entry: &[u8]| matches!(entry[0], 0 | 0x80) && entry[4] != 0 && le32(entry, 12) != 0;
    let is_blank = |entry: &[u8]| entry.iter().all(|&byte| byte == 0);
    let sound = entries
        .clone()
        .all(|entry| is_entry(entry) || is_blank(entry));
    (sound && entries.clone().any(is_entry)).then_some(Content::Mbr)
}

/// The magic number of Minix has two bytes; sizes of zones other than a block are not in use.
fn is_minix(head: &[u8]) -> bool {
    let at = |offset: usize| le16(head, 1024 + offset);
    let old = matches!(at(16), 0x137f | 0x138f | 0x2468 | 0x2478) && at(0) != 0 && at(10) == 0;
    let third = at(24) == 0x4d5a && le32(head, 1024) != 0 && at(12) == 0;
    old || third
}

/// HFS+ says a version of 4 or 5, HFS a block size that is a multiple of 512.
fn hfs_is_sound(head: &[u8]) -> bool {
    let be16 = |at| le16(head, at).swap_bytes();
    if has(head, 1024, b"BD") {
        let block = le32(head, 1024 + 20).swap_bytes();
        block >= 512 && block.is_multiple_of(512)
    } else {
        matches!(be16(1026), 4 | 5)
    }
}

/// The parameters of a FAT that must be possible: bytes of a sector, sectors of a cluster, reserved
/// sectors, copies of the table.
fn is_fat(head: &[u8]) -> bool {
    let sector = le16(head, 11);
    let cluster = head.get(13).copied().unwrap_or(0);
    let tables = head.get(16).copied().unwrap_or(0);
    matches!(head.first(), Some(0xeb | 0xe9))
        && sector.is_power_of_two()
        && (512..=4096).contains(&sector)
        && cluster.is_power_of_two()
        && le16(head, 14) > 0
        && matches!(tables, 1 | 2)
}

/// UTF-8 without control characters, but for a character that the end cuts.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty()
        && text.chars().all(|c| {
            !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}' | '\u{8}')
        })
}
