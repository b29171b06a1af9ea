//! Which structures of an image stand for their like, and which of their fields are changed.

use super::super::anatomy::{Kind, Site, Tenant};
use super::super::bytes::{le, le16, le32};
use super::super::fields::{Field, Role, Row, fields_of, rows, value_of};
use super::values::Values;
use super::{Change, Subject};
use std::collections::BTreeMap;

/// Fields of the superblock that a reader of noise has no need of.
const SUPERBLOCK_TOO: [Row; 22] = [
    (0x2C, 4, "s_mtime", Role::Number),
    (0x30, 4, "s_wtime", Role::Number),
    (0x34, 2, "s_mnt_count", Role::Number),
    (0x36, 2, "s_max_mnt_count", Role::Number),
    (0x40, 4, "s_lastcheck", Role::Number),
    (0x44, 4, "s_checkinterval", Role::Number),
    (0x52, 2, "s_def_resgid", Role::Number),
    (0x68, 8, "s_uuid", Role::Number),
    (0x78, 1, "s_volume_name", Role::Letter),
    (0x88, 1, "s_last_mounted", Role::Letter),
    (0xCC, 1, "s_prealloc_blocks", Role::Number),
    (0xCD, 1, "s_prealloc_dir_blocks", Role::Number),
    (0x108, 4, "s_mkfs_time", Role::Number),
    (0x176, 1, "s_encryption_level", Role::Small),
    (0x180, 4, "s_snapshot_inum", Role::Inode),
    (0x198, 4, "s_first_error_time", Role::Number),
    (0x19C, 4, "s_first_error_ino", Role::Inode),
    (0x1A0, 8, "s_first_error_block", Role::Block),
    (0x248, 4, "s_overhead_clusters", Role::Number),
    (0x250, 4, "s_backup_bgs[1]", Role::Number),
    (0x274, 1, "s_wtime_hi", Role::Number),
    (0x279, 1, "s_last_error_time_hi", Role::Number),
];
const INODE_TOO: [Row; 4] = [
    (0x10, 4, "i_mtime", Role::Number),
    (0x6C + 4, 4, "i_obso_faddr", Role::Number),
    (0x88, 4, "i_mtime_extra", Role::Number),
    (0x98, 4, "i_version_hi", Role::Number),
];

/// Structures of one kind that are changed.
const OF_A_KIND: usize = 3;

/// All changes of single fields, in the order of the structures.
pub(super) fn changes(subject: &Subject) -> Vec<Change> {
    let values = Values::of(subject);
    let mut changes = Vec::new();
    for index in representatives(subject) {
        let site = &subject.anatomy.sites[index];
        let record = &subject.bytes[site.at..site.at + site.len];
        for field in fields(subject, site, record) {
            let old = value_of(site.kind, record, field);
            for (value, meaning) in values.worth_trying(site, field, old) {
                changes.push(Change::Field {
                    site: index,
                    field,
                    value,
                    meaning,
                });
            }
        }
    }
    changes
}

/// Structures that stand for all: some of each class.
pub(super) fn representatives(subject: &Subject) -> Vec<usize> {
    let sites = &subject.anatomy.sites;
    let mut classes: BTreeMap<(Kind, u64), Vec<usize>> = BTreeMap::new();
    for (index, site) in sites.iter().enumerate() {
        classes
            .entry((site.kind, class(subject, site)))
            .or_default()
            .push(index);
    }
    let mut chosen: Vec<usize> = classes
        .into_iter()
        .flat_map(|((kind, _), class)| {
            let most = match kind {
                Kind::Inode | Kind::DirLeaf => 1,
                _ => OF_A_KIND,
            };
            // The first ones and the last.
            let last = class.last().copied().filter(|_| class.len() > most);
            let mut some: Vec<usize> = class.into_iter().take(most).collect();
            if let (Some(last), true) = (last, kind != Kind::Inode) {
                some.push(last);
            }
            some
        })
        .collect();
    chosen.sort_unstable();
    chosen
}

/// Structures of a kind with the same class are much the same.
fn class(subject: &Subject, site: &Site) -> u64 {
    match site.kind {
        Kind::Inode if site.owner < 11 => u64::from(site.owner),
        Kind::Inode => {
            let record = &subject.bytes[site.at..site.at + site.len];
            let (mode, flags) = (le16(record, 0), le32(record, 0x20));
            let depth = if flags & 0x8_0000 != 0 {
                u64::from(le16(record, 0x2E))
            } else {
                (0..3).filter(|n| le32(record, 0x58 + n * 4) != 0).count() as u64
            };
            let body = 128 + usize::from(le16(record, 0x80));
            let in_body = record.len() > 128 && le32(record, body) == 0xEA02_0000;
            let fast = mode & 0xF000 == 0xA000 && le32(record, 4) < 60;
            let parts = [
                u64::from(mode & 0xF000),
                u64::from(flags) << 16,
                depth << 48,
                u64::from(le32(record, 0x68) != 0) << 52,
                u64::from(in_body) << 53,
                u64::from(fast) << 54,
                u64::from(le16(record, 0x1A) == 0) << 55,
                u64::from(le(record, 4, 4) == 0) << 56,
            ];
            parts.iter().fold(1 << 57, |all, part| all | part)
        }
        // A few directories; large ones have many blocks.
        Kind::DirLeaf => u64::from(site.owner.min(40)),
        _ => 0,
    }
}

/// The fields of a structure that are changed: of long rows the first ones and the last.
fn fields(subject: &Subject, site: &Site, record: &[u8]) -> Vec<Field> {
    let mut fields = fields_of(site.kind, record);
    match site.kind {
        Kind::Superblock => fields.extend(rows(&SUPERBLOCK_TOO, record.len())),
        Kind::Inode => fields.extend(rows(&INODE_TOO, record.len())),
        Kind::BlockBitmap | Kind::InodeBitmap => return bitmap_bytes(subject, site),
        _ => {}
    }
    let last = fields.iter().filter_map(|field| field.nth).max();
    let first_ones = match site.kind {
        Kind::Inode | Kind::XattrBlock => 6,
        Kind::JournalDescriptor | Kind::Quota | Kind::JournalCommit => 12,
        _ => 4,
    };
    let is_last = |n: usize| last.is_some_and(|last| n + 1 >= last);
    fields.retain(|field| {
        let wanted = field.nth.is_none_or(|n| n < first_ones || is_last(n));
        wanted && field.role != Role::Checksum
    });
    fields.sort_by_key(|field| field.at);
    fields.dedup_by_key(|field| (field.at, field.width));
    fields
}

/// The first bytes of a bitmap, those in the middle, at the end and behind it.
fn bitmap_bytes(subject: &Subject, site: &Site) -> Vec<Field> {
    let layout = &subject.anatomy.layout;
    let bits = match site.kind {
        Kind::BlockBitmap => layout.clusters_per_group,
        _ => layout.inodes_per_group as usize,
    };
    let end = bits / 8;
    [0, 1, end / 2, end.saturating_sub(1), end, site.len - 1]
        .into_iter()
        .filter(|at| *at < site.len)
        .map(|at| Field::new(at, 1, "byte", Role::Bits).nth(at))
        .collect()
}

/// A few inodes that stand for all, each of another class.
pub(super) fn tenants(subject: &Subject) -> Vec<Tenant> {
    let sites = &subject.anatomy.sites;
    representatives(subject)
        .into_iter()
        .filter(|index| sites[*index].kind == Kind::Inode)
        .filter_map(|index| {
            let ino = sites[index].owner;
            let tenants = &subject.anatomy.tenants;
            tenants.iter().find(|tenant| tenant.ino == ino).copied()
        })
        .collect()
}
