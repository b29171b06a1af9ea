//! Which numbers a structure has, and what could be written over them.

use super::anatomy::{Anatomy, Kind, Site};
use super::bytes::{be32, le, le16, le32};
use crate::rng::Rng;

/// A number inside a structure: byte offset and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) at: usize,
    pub(super) width: usize,
}

const fn field(at: usize, width: usize) -> Field {
    Field { at, width }
}

/// Offsets and widths in the superblock: counts, sizes, positions, features, journal, checks.
const SUPERBLOCK: [(usize, usize); 62] = [
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x38, 2),
    (0x3A, 2),
    (0x3C, 2),
    (0x3E, 2),
    (0x48, 4),
    (0x4C, 4),
    (0x50, 2),
    (0x54, 4),
    (0x58, 2),
    (0x5A, 2),
    (0x5C, 4),
    (0x60, 4),
    (0x64, 4),
    (0xC8, 4),
    (0xCE, 2),
    (0xD0, 8),
    (0xE0, 4),
    (0xE4, 4),
    (0xE8, 4),
    (0xEC, 8),
    (0xFC, 1),
    (0xFD, 1),
    (0xFE, 2),
    (0x100, 4),
    (0x104, 4),
    (0x10C, 8),
    (0x14C, 4),
    (0x150, 4),
    (0x154, 4),
    (0x158, 4),
    (0x15C, 2),
    (0x15E, 2),
    (0x160, 4),
    (0x164, 2),
    (0x166, 2),
    (0x168, 8),
    (0x170, 4),
    (0x174, 1),
    (0x175, 1),
    (0x178, 8),
    (0x194, 4),
    (0x240, 4),
    (0x244, 4),
    (0x24C, 4),
    (0x254, 8),
    (0x268, 4),
    (0x26C, 4),
    (0x270, 4),
    (0x27C, 2),
    (0x27E, 2),
    (0x280, 4),
];
const DESCRIPTOR: [(usize, usize); 20] = [
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 2),
    (0x0E, 2),
    (0x10, 2),
    (0x12, 2),
    (0x14, 4),
    (0x18, 2),
    (0x1A, 2),
    (0x1C, 2),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x2C, 2),
    (0x2E, 2),
    (0x30, 2),
    (0x32, 2),
    (0x38, 2),
    (0x3A, 2),
];
const INODE: [(usize, usize); 25] = [
    (0x00, 2),
    (0x02, 2),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 4),
    (0x14, 4),
    (0x18, 2),
    (0x1A, 2),
    (0x1C, 4),
    (0x20, 4),
    (0x20, 4),
    (0x24, 4),
    (0x64, 4),
    (0x68, 4),
    (0x6C, 4),
    (0x74, 2),
    (0x76, 2),
    (0x78, 2),
    (0x7A, 2),
    (0x7C, 2),
    (0x80, 2),
    (0x82, 2),
    (0x84, 4),
    (0x90, 4),
    (0x9C, 4),
];
const JOURNAL_SUPERBLOCK: [(usize, usize); 16] = [
    (0x00, 4),
    (0x04, 4),
    (0x0C, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x2C, 4),
    (0x40, 4),
    (0x50, 1),
    (0x54, 4),
    (0x58, 4),
    (0x30, 4),
];

/// The numbers of the structure in `record`, as far as it can be followed now.
pub(super) fn fields_of(kind: Kind, record: &[u8]) -> Vec<Field> {
    let fixed = |table: &[(usize, usize)]| {
        table
            .iter()
            .map(|(at, width)| field(*at, *width))
            .filter(|field| field.at + field.width <= record.len())
            .collect()
    };
    match kind {
        Kind::Superblock => fixed(&SUPERBLOCK),
        Kind::Descriptor => fixed(&DESCRIPTOR),
        Kind::Inode => inode_fields(record, fixed(&INODE)),
        Kind::ExtentNode => extent_fields(record, 0),
        Kind::Indirect | Kind::OrphanFile => words(0, record.len()),
        // A header of 24 bytes, a tree of numbers of blocks, records of 72 bytes behind 16.
        Kind::Quota => words(0, 600.min(record.len())),
        Kind::DirLeaf => dirent_fields(record),
        Kind::DirRoot => {
            let mut fields: Vec<_> = dirent_fields(&record[..24]);
            fields.extend([
                field(0x1C, 1),
                field(0x1D, 1),
                field(0x1E, 1),
                field(0x1F, 1),
            ]);
            fields.extend(index_fields(record, 0x20));
            fields
        }
        Kind::DirNode => index_fields(record, 8),
        Kind::XattrBlock => {
            let mut fields = words(0, 20);
            fields.extend(xattr_fields(record, 32));
            fields
        }
        Kind::JournalSuperblock => fixed(&JOURNAL_SUPERBLOCK),
        Kind::JournalDescriptor => words(0, 256.min(record.len())),
        Kind::JournalRevoke => words(0, 64),
        Kind::JournalCommit => words(0, 64),
        Kind::Mmp => fixed(&[(0, 4), (4, 4), (8, 8), (0x70, 2)]),
        Kind::BlockBitmap | Kind::InodeBitmap | Kind::Symlink | Kind::EaValue => {
            (0..record.len()).map(|at| field(at, 1)).collect()
        }
    }
}

fn words(from: usize, to: usize) -> Vec<Field> {
    (from..to).step_by(4).map(|at| field(at, 4)).collect()
}

fn inode_fields(record: &[u8], mut fields: Vec<Field>) -> Vec<Field> {
    let flags = le32(record, 0x20);
    if flags & 0x1000_0000 != 0 && le16(record, 0) & 0xF000 == 0x4000 {
        // Names behind the number of the parent.
        fields.push(field(0x28, 4));
        let names = dirent_fields(&record[0x2C..0x64]).into_iter();
        fields.extend(names.map(|name| field(name.at + 0x2C, name.width)));
    } else if flags & 0x8_0000 != 0 {
        fields.extend(extent_fields(&record[..0x64], 0x28));
    } else {
        fields.extend(words(0x28, 0x64));
    }
    if record.len() > 128 {
        let body = 128 + usize::from(le16(record, 0x80));
        if le32(record, body) == 0xEA02_0000 {
            fields.push(field(body, 4));
            fields.extend(xattr_fields(record, body + 4));
        }
    }
    fields
}

fn extent_fields(record: &[u8], from: usize) -> Vec<Field> {
    let mut fields = vec![
        field(from, 2),
        field(from + 2, 2),
        field(from + 4, 2),
        field(from + 6, 2),
    ];
    let leaf = le16(record, from + 6) == 0;
    for i in 0..usize::from(le16(record, from + 2)) {
        let at = from + 12 + i * 12;
        if at + 12 > record.len() {
            break;
        }
        fields.push(field(at, 4));
        if leaf {
            fields.extend([field(at + 4, 2), field(at + 6, 2), field(at + 8, 4)]);
        } else {
            fields.extend([field(at + 4, 4), field(at + 8, 2)]);
        }
    }
    fields
}

fn dirent_fields(record: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut at = 0;
    while at + 8 <= record.len() {
        fields.extend([
            field(at, 4),
            field(at + 4, 2),
            field(at + 6, 1),
            field(at + 7, 1),
        ]);
        // First and last byte of the name.
        let name = usize::from(record[at + 6]);
        if name > 0 && at + 8 + name <= record.len() {
            fields.extend([field(at + 8, 1), field(at + 7 + name, 1)]);
        }
        let step = usize::from(le16(record, at + 4));
        if step < 8 {
            break;
        }
        at += step;
    }
    fields
}

fn index_fields(record: &[u8], from: usize) -> Vec<Field> {
    let mut fields = vec![field(from, 2), field(from + 2, 2), field(from + 4, 4)];
    for i in 1..usize::from(le16(record, from + 2)) {
        let at = from + i * 8;
        if at + 8 > record.len() {
            break;
        }
        fields.extend([field(at, 4), field(at + 4, 4)]);
    }
    fields
}

fn xattr_fields(record: &[u8], from: usize) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut at = from;
    while at + 16 <= record.len() && le32(record, at) != 0 {
        fields.extend([field(at, 1), field(at + 1, 1), field(at + 2, 2)]);
        fields.extend([field(at + 4, 4), field(at + 8, 4), field(at + 12, 4)]);
        at += 16 + usize::from(record[at]).next_multiple_of(4);
    }
    fields
}

/// Whether the numbers of this structure are big-endian.
pub(super) fn big_endian(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::JournalSuperblock
            | Kind::JournalDescriptor
            | Kind::JournalRevoke
            | Kind::JournalCommit
    )
}

/// The number in `field` of the structure in `record`.
pub(super) fn value_of(kind: Kind, record: &[u8], field: Field) -> u64 {
    if big_endian(kind) && field.width == 4 {
        u64::from(be32(record, field.at))
    } else {
        le(record, field.at, field.width)
    }
}

/// A number to write over `old`: a boundary, a neighbour, a flipped bit, noise, or an address
/// that closes a loop or leaves the image.
pub(super) fn new_value(
    anatomy: &Anatomy,
    site: &Site,
    field: Field,
    old: u64,
    rng: &mut Rng,
) -> u64 {
    let layout = &anatomy.layout;
    let max = u64::MAX >> (64 - field.width * 8);
    let value = match rng.below(14) {
        0 => 0,
        1 => max,
        2 => max / 2 + rng.below(2),
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 | 6 => old ^ 1 << rng.below(field.width as u64 * 8),
        7 => rng.next_u64(),
        8 => rng.below(64),
        9 => old.wrapping_mul(2),
        // Itself, or another structure.
        10 => (site.at / layout.block) as u64,
        11 => {
            let other = rng.pick(&anatomy.sites);
            (other.at / layout.block) as u64
        }
        12 => match rng.below(4) {
            0 => u64::from(site.owner),
            1 => 2,
            2 => u64::from(layout.inodes) + rng.below(2),
            _ => u64::from(rng.pick(&anatomy.sites).owner),
        },
        _ => match rng.below(4) {
            0 => layout.blocks + rng.below(2),
            1 => layout.blocks - 1,
            2 => layout.block as u64 + rng.below(3) - 1,
            _ => rng.below(layout.blocks),
        },
    };
    value & max
}
