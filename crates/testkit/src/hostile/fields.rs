//! Which numbers a structure has, and what could be written over them.

use super::anatomy::{Anatomy, Kind, Site};
use super::bytes::{be32, le, le16, le32};
use crate::rng::Rng;

/// What a number means: it decides which values are worth writing over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A count, a size, a time, an identity.
    Number,
    /// One of a few: a type, a version, a logarithm.
    Small,
    /// Flags.
    Bits,
    /// Features: what they say decides how checksums are made.
    Features,
    /// The number of an inode.
    Inode,
    /// The number of a block.
    Block,
    /// A length or a place inside a structure.
    Length,
    /// A byte of a name.
    Letter,
    /// A checksum, which is put right when anything changes.
    Checksum,
}

/// A number inside a structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Byte offset in the structure.
    pub(super) at: usize,
    /// Bytes.
    pub(super) width: usize,
    /// The name the documentation of the format gives it.
    pub(super) name: &'static str,
    /// Which of several of this name, if there are.
    pub(super) nth: Option<usize>,
    pub(super) role: Role,
}

impl Field {
    pub(super) const fn new(at: usize, width: usize, name: &'static str, role: Role) -> Self {
        Self {
            at,
            width,
            name,
            nth: None,
            role,
        }
    }

    pub(super) const fn nth(self, n: usize) -> Self {
        Self {
            nth: Some(n),
            ..self
        }
    }

    const fn moved(self, by: usize) -> Self {
        Self {
            at: self.at + by,
            ..self
        }
    }
}

/// Offset, width, name and meaning.
pub(super) type Row = (usize, usize, &'static str, Role);

/// The fields of a table that lie in a record of `len` bytes.
pub(super) fn rows(table: &[Row], len: usize) -> impl Iterator<Item = Field> {
    table
        .iter()
        .map(|&(at, width, name, role)| Field::new(at, width, name, role))
        .filter(move |field| field.at + field.width <= len)
}

/// Offsets and widths in the superblock: counts, sizes, positions, features, journal, checks.
const SUPERBLOCK: [Row; 62] = [
    (0x00, 4, "s_inodes_count", Role::Number),
    (0x04, 4, "s_blocks_count_lo", Role::Number),
    (0x08, 4, "s_r_blocks_count_lo", Role::Number),
    (0x0C, 4, "s_free_blocks_count_lo", Role::Number),
    (0x10, 4, "s_free_inodes_count", Role::Number),
    (0x14, 4, "s_first_data_block", Role::Number),
    (0x18, 4, "s_log_block_size", Role::Small),
    (0x1C, 4, "s_log_cluster_size", Role::Small),
    (0x20, 4, "s_blocks_per_group", Role::Number),
    (0x24, 4, "s_clusters_per_group", Role::Number),
    (0x28, 4, "s_inodes_per_group", Role::Number),
    (0x38, 2, "s_magic", Role::Number),
    (0x3A, 2, "s_state", Role::Bits),
    (0x3C, 2, "s_errors", Role::Small),
    (0x3E, 2, "s_minor_rev_level", Role::Small),
    (0x48, 4, "s_creator_os", Role::Small),
    (0x4C, 4, "s_rev_level", Role::Small),
    (0x50, 2, "s_def_resuid", Role::Number),
    (0x54, 4, "s_first_ino", Role::Inode),
    (0x58, 2, "s_inode_size", Role::Length),
    (0x5A, 2, "s_block_group_nr", Role::Number),
    (0x5C, 4, "s_feature_compat", Role::Features),
    (0x60, 4, "s_feature_incompat", Role::Features),
    (0x64, 4, "s_feature_ro_compat", Role::Features),
    (0xC8, 4, "s_algorithm_usage_bitmap", Role::Bits),
    (0xCE, 2, "s_reserved_gdt_blocks", Role::Number),
    (0xD0, 8, "s_journal_uuid", Role::Number),
    (0xE0, 4, "s_journal_inum", Role::Inode),
    (0xE4, 4, "s_journal_dev", Role::Number),
    (0xE8, 4, "s_last_orphan", Role::Inode),
    (0xEC, 8, "s_hash_seed", Role::Number),
    (0xFC, 1, "s_def_hash_version", Role::Small),
    (0xFD, 1, "s_jnl_backup_type", Role::Small),
    (0xFE, 2, "s_desc_size", Role::Length),
    (0x100, 4, "s_default_mount_opts", Role::Bits),
    (0x104, 4, "s_first_meta_bg", Role::Number),
    (0x10C, 8, "s_jnl_blocks", Role::Number),
    (0x14C, 4, "s_jnl_blocks[16]", Role::Number),
    (0x150, 4, "s_blocks_count_hi", Role::Number),
    (0x154, 4, "s_r_blocks_count_hi", Role::Number),
    (0x158, 4, "s_free_blocks_count_hi", Role::Number),
    (0x15C, 2, "s_min_extra_isize", Role::Length),
    (0x15E, 2, "s_want_extra_isize", Role::Length),
    (0x160, 4, "s_flags", Role::Bits),
    (0x164, 2, "s_raid_stride", Role::Number),
    (0x166, 2, "s_mmp_update_interval", Role::Number),
    (0x168, 8, "s_mmp_block", Role::Block),
    (0x170, 4, "s_raid_stripe_width", Role::Number),
    (0x174, 1, "s_log_groups_per_flex", Role::Small),
    (0x175, 1, "s_checksum_type", Role::Small),
    (0x178, 8, "s_kbytes_written", Role::Number),
    (0x194, 4, "s_error_count", Role::Number),
    (0x240, 4, "s_usr_quota_inum", Role::Inode),
    (0x244, 4, "s_grp_quota_inum", Role::Inode),
    (0x24C, 4, "s_backup_bgs[0]", Role::Number),
    (0x254, 8, "s_encrypt_algos", Role::Number),
    (0x268, 4, "s_lpf_ino", Role::Inode),
    (0x26C, 4, "s_prj_quota_inum", Role::Inode),
    (0x270, 4, "s_checksum_seed", Role::Number),
    (0x27C, 2, "s_encoding", Role::Small),
    (0x27E, 2, "s_encoding_flags", Role::Bits),
    (0x280, 4, "s_orphan_file_inum", Role::Inode),
];
const DESCRIPTOR: [Row; 20] = [
    (0x00, 4, "bg_block_bitmap_lo", Role::Block),
    (0x04, 4, "bg_inode_bitmap_lo", Role::Block),
    (0x08, 4, "bg_inode_table_lo", Role::Block),
    (0x0C, 2, "bg_free_blocks_count_lo", Role::Number),
    (0x0E, 2, "bg_free_inodes_count_lo", Role::Number),
    (0x10, 2, "bg_used_dirs_count_lo", Role::Number),
    (0x12, 2, "bg_flags", Role::Bits),
    (0x14, 4, "bg_exclude_bitmap_lo", Role::Block),
    (0x18, 2, "bg_block_bitmap_csum_lo", Role::Checksum),
    (0x1A, 2, "bg_inode_bitmap_csum_lo", Role::Checksum),
    (0x1C, 2, "bg_itable_unused_lo", Role::Number),
    (0x20, 4, "bg_block_bitmap_hi", Role::Number),
    (0x24, 4, "bg_inode_bitmap_hi", Role::Number),
    (0x28, 4, "bg_inode_table_hi", Role::Number),
    (0x2C, 2, "bg_free_blocks_count_hi", Role::Number),
    (0x2E, 2, "bg_free_inodes_count_hi", Role::Number),
    (0x30, 2, "bg_used_dirs_count_hi", Role::Number),
    (0x32, 2, "bg_itable_unused_hi", Role::Number),
    (0x38, 2, "bg_block_bitmap_csum_hi", Role::Checksum),
    (0x3A, 2, "bg_inode_bitmap_csum_hi", Role::Checksum),
];
const INODE: [Row; 25] = [
    (0x00, 2, "i_mode", Role::Bits),
    (0x02, 2, "i_uid", Role::Number),
    (0x04, 4, "i_size_lo", Role::Number),
    (0x08, 4, "i_atime", Role::Number),
    (0x0C, 4, "i_ctime", Role::Number),
    (0x14, 4, "i_dtime", Role::Inode),
    (0x18, 2, "i_gid", Role::Number),
    (0x1A, 2, "i_links_count", Role::Number),
    (0x1C, 4, "i_blocks_lo", Role::Number),
    (0x20, 4, "i_flags", Role::Bits),
    (0x20, 4, "i_flags", Role::Bits),
    (0x24, 4, "i_version", Role::Number),
    (0x64, 4, "i_generation", Role::Number),
    (0x68, 4, "i_file_acl_lo", Role::Block),
    (0x6C, 4, "i_size_high", Role::Number),
    (0x74, 2, "i_blocks_high", Role::Number),
    (0x76, 2, "i_file_acl_high", Role::Number),
    (0x78, 2, "i_uid_high", Role::Number),
    (0x7A, 2, "i_gid_high", Role::Number),
    (0x7C, 2, "i_checksum_lo", Role::Checksum),
    (0x80, 2, "i_extra_isize", Role::Length),
    (0x82, 2, "i_checksum_hi", Role::Checksum),
    (0x84, 4, "i_ctime_extra", Role::Number),
    (0x90, 4, "i_crtime", Role::Number),
    (0x9C, 4, "i_projid", Role::Number),
];
const JOURNAL_SUPERBLOCK: [Row; 16] = [
    (0x00, 4, "h_magic", Role::Number),
    (0x04, 4, "h_blocktype", Role::Small),
    (0x0C, 4, "s_blocksize", Role::Length),
    (0x10, 4, "s_maxlen", Role::Number),
    (0x14, 4, "s_first", Role::Number),
    (0x18, 4, "s_sequence", Role::Number),
    (0x1C, 4, "s_start", Role::Number),
    (0x20, 4, "s_errno", Role::Number),
    (0x24, 4, "s_feature_compat", Role::Bits),
    (0x28, 4, "s_feature_incompat", Role::Bits),
    (0x2C, 4, "s_feature_ro_compat", Role::Bits),
    (0x40, 4, "s_nr_users", Role::Number),
    (0x50, 1, "s_checksum_type", Role::Small),
    (0x54, 4, "s_num_fc_blks", Role::Number),
    (0x58, 4, "s_head", Role::Number),
    (0x30, 4, "s_uuid", Role::Number),
];

const MMP: [Row; 4] = [
    (0, 4, "mmp_magic", Role::Number),
    (4, 4, "mmp_seq", Role::Number),
    (8, 8, "mmp_time", Role::Number),
    (0x70, 2, "mmp_check_interval", Role::Number),
];

/// The numbers of the structure in `record`, as far as it can be followed now.
pub(super) fn fields_of(kind: Kind, record: &[u8]) -> Vec<Field> {
    let fixed = |table: &[Row]| rows(table, record.len()).collect();
    match kind {
        Kind::Superblock => fixed(&SUPERBLOCK),
        Kind::Descriptor => fixed(&DESCRIPTOR),
        Kind::Inode => inode_fields(record, fixed(&INODE)),
        Kind::ExtentNode => extent_fields(record, 0),
        Kind::Indirect => words(0, record.len(), "pointer", Role::Block),
        Kind::OrphanFile => words(0, record.len(), "orphan", Role::Inode),
        // A header of 24 bytes, a tree of numbers of blocks, records of 72 bytes behind 16.
        Kind::Quota => words(0, 600.min(record.len()), "quota word", Role::Number),
        Kind::DirLeaf => dirent_fields(record),
        Kind::DirRoot => {
            let mut fields: Vec<_> = dirent_fields(&record[..24]);
            fields.extend([
                Field::new(0x1C, 1, "hash_version", Role::Small),
                Field::new(0x1D, 1, "info_length", Role::Length),
                Field::new(0x1E, 1, "indirect_levels", Role::Small),
                Field::new(0x1F, 1, "unused_flags", Role::Bits),
            ]);
            fields.extend(index_fields(record, 0x20));
            fields
        }
        Kind::DirNode => index_fields(record, 8),
        Kind::XattrBlock => {
            let mut fields = words(0, 20, "h_word", Role::Number);
            fields.extend(xattr_fields(record, 32));
            fields
        }
        Kind::JournalSuperblock => fixed(&JOURNAL_SUPERBLOCK),
        Kind::JournalDescriptor => words(0, 256.min(record.len()), "tag word", Role::Block),
        Kind::JournalRevoke => words(0, 64, "revoke word", Role::Block),
        Kind::JournalCommit => words(0, 64, "commit word", Role::Number),
        Kind::Mmp => fixed(&MMP),
        Kind::BlockBitmap | Kind::InodeBitmap | Kind::Symlink | Kind::EaValue => (0..record.len())
            .map(|at| Field::new(at, 1, "byte", Role::Bits).nth(at))
            .collect(),
    }
}

fn words(from: usize, to: usize, name: &'static str, role: Role) -> Vec<Field> {
    (from..to)
        .step_by(4)
        .map(|at| Field::new(at, 4, name, role).nth((at - from) / 4))
        .collect()
}

fn inode_fields(record: &[u8], mut fields: Vec<Field>) -> Vec<Field> {
    let flags = le32(record, 0x20);
    if flags & 0x1000_0000 != 0 && le16(record, 0) & 0xF000 == 0x4000 {
        // Names behind the number of the parent.
        fields.push(Field::new(0x28, 4, "inline parent", Role::Inode));
        let names = dirent_fields(&record[0x2C..0x64]).into_iter();
        fields.extend(names.map(|name| name.moved(0x2C)));
    } else if flags & 0x8_0000 != 0 {
        fields.extend(extent_fields(&record[..0x64], 0x28));
    } else {
        fields.extend(words(0x28, 0x64, "i_block", Role::Block));
    }
    if record.len() > 128 {
        let body = 128 + usize::from(le16(record, 0x80));
        if le32(record, body) == 0xEA02_0000 {
            fields.push(Field::new(body, 4, "ibody h_magic", Role::Number));
            fields.extend(xattr_fields(record, body + 4));
        }
    }
    fields
}

fn extent_fields(record: &[u8], from: usize) -> Vec<Field> {
    let mut fields = vec![
        Field::new(from, 2, "eh_magic", Role::Number),
        Field::new(from + 2, 2, "eh_entries", Role::Number),
        Field::new(from + 4, 2, "eh_max", Role::Number),
        Field::new(from + 6, 2, "eh_depth", Role::Small),
    ];
    let leaf = le16(record, from + 6) == 0;
    for i in 0..usize::from(le16(record, from + 2)) {
        let at = from + 12 + i * 12;
        if at + 12 > record.len() {
            break;
        }
        let mut add = |field: Field| fields.push(field.nth(i));
        if leaf {
            add(Field::new(at, 4, "ee_block", Role::Number));
            add(Field::new(at + 4, 2, "ee_len", Role::Number));
            add(Field::new(at + 6, 2, "ee_start_hi", Role::Number));
            add(Field::new(at + 8, 4, "ee_start_lo", Role::Block));
        } else {
            add(Field::new(at, 4, "ei_block", Role::Number));
            add(Field::new(at + 4, 4, "ei_leaf_lo", Role::Block));
            add(Field::new(at + 8, 2, "ei_leaf_hi", Role::Number));
        }
    }
    fields
}

fn dirent_fields(record: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let (mut at, mut n) = (0, 0);
    while at + 8 <= record.len() {
        let mut add = |field: Field| fields.push(field.nth(n));
        add(Field::new(at, 4, "dirent inode", Role::Inode));
        add(Field::new(at + 4, 2, "dirent rec_len", Role::Length));
        add(Field::new(at + 6, 1, "dirent name_len", Role::Length));
        add(Field::new(at + 7, 1, "dirent file_type", Role::Small));
        // First and last byte of the name.
        let name = usize::from(record[at + 6]);
        if name > 0 && at + 8 + name <= record.len() {
            add(Field::new(at + 8, 1, "dirent name first", Role::Letter));
            add(Field::new(
                at + 7 + name,
                1,
                "dirent name last",
                Role::Letter,
            ));
        }
        let step = usize::from(le16(record, at + 4));
        if step < 8 {
            break;
        }
        at += step;
        n += 1;
    }
    fields
}

fn index_fields(record: &[u8], from: usize) -> Vec<Field> {
    let mut fields = vec![
        Field::new(from, 2, "dx limit", Role::Number),
        Field::new(from + 2, 2, "dx count", Role::Number),
        Field::new(from + 4, 4, "dx block", Role::Small).nth(0),
    ];
    for i in 1..usize::from(le16(record, from + 2)) {
        let at = from + i * 8;
        if at + 8 > record.len() {
            break;
        }
        fields.push(Field::new(at, 4, "dx hash", Role::Number).nth(i));
        fields.push(Field::new(at + 4, 4, "dx block", Role::Small).nth(i));
    }
    fields
}

fn xattr_fields(record: &[u8], from: usize) -> Vec<Field> {
    let mut fields = Vec::new();
    let (mut at, mut n) = (from, 0);
    while at + 16 <= record.len() && le32(record, at) != 0 {
        let mut add = |field: Field| fields.push(field.nth(n));
        add(Field::new(at, 1, "e_name_len", Role::Length));
        add(Field::new(at + 1, 1, "e_name_index", Role::Small));
        add(Field::new(at + 2, 2, "e_value_offs", Role::Length));
        add(Field::new(at + 4, 4, "e_value_inum", Role::Inode));
        add(Field::new(at + 8, 4, "e_value_size", Role::Length));
        add(Field::new(at + 12, 4, "e_hash", Role::Number));
        at += 16 + usize::from(record[at]).next_multiple_of(4);
        n += 1;
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
