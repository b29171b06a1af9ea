//! Fields of the superblock that may contradict each other: how that shows, and what a repair makes
//! of it.

use crate::volume::Volume;
use extant_format::features::{Compat, Features, Incompat, RoCompat};
use extant_format::superblock::RawSuperblock;
use extant_format::{Group, Ino, Pblk, indirect};

/// The first inode for users in every file system that is made.
const FIRST_INO: u32 = 11;
/// So many inodes are looked at that may be files of users though the superblock says otherwise.
const HIDDEN_MAX: u32 = 1 << 16;
/// Bytes in a descriptor of the largest size there may be.
const DESC_SIZE_MAX: u16 = 1024;

/// A contradiction.
pub(crate) struct FieldRule {
    pub(crate) is_broken: fn(&Volume) -> bool,
    /// What a check says.
    pub(crate) wrong: &'static str,
    /// What a repair says.
    pub(crate) mended: &'static str,
    pub(crate) fix: fn(&Volume, &mut RawSuperblock),
}

/// All that are damage.
pub(crate) const FIELD_RULES: &[FieldRule] = &[
    FieldRule {
        is_broken: |v| !v.geo.clusters_per_group().is_multiple_of(8),
        wrong: "the number of blocks or clusters of a group is no multiple of 8: bitmaps are of whole bytes",
        mended: "a group has a number of blocks that is a multiple of 8",
        fix: |v, raw| {
            let clusters = whole_group(v);
            let ratio = v.cluster_ratio() as u32;
            raw.clusters_per_group.set(clusters);
            raw.blocks_per_group.set(clusters.saturating_mul(ratio));
        },
    },
    FieldRule {
        is_broken: |v| {
            v.has_incompat(Incompat::CSUM_SEED) && !v.has_ro_compat(RoCompat::METADATA_CSUM)
        },
        wrong: "metadata_csum_seed needs the feature metadata_csum",
        mended: "feature metadata_csum_seed is off",
        // The seed stays: nothing reads it without the feature, and checksums that are there may
        // start from it.
        fix: |_, raw| {
            let bits = raw.feature_incompat.get() & !Incompat::CSUM_SEED.bits();
            raw.feature_incompat.set(bits);
        },
    },
    FieldRule {
        is_broken: |v| {
            let raw = v.sb.raw();
            !v.has_ro_compat(RoCompat::BIGALLOC)
                && raw.clusters_per_group.get() != raw.blocks_per_group.get()
        },
        wrong: "a group has other numbers of clusters and of blocks, but the feature bigalloc is off",
        mended: "clusters are blocks",
        fix: |_, raw| raw.clusters_per_group.set(raw.blocks_per_group.get()),
    },
    FieldRule {
        is_broken: |v| {
            let size = v.sb.raw().desc_size.get();
            let is_possible = size == 0 || (size.is_power_of_two() && size <= DESC_SIZE_MAX);
            !v.has_incompat(Incompat::BIT64) && !is_possible
        },
        wrong: "the size of descriptors is no size that they can have",
        mended: "the size of descriptors is not given: it is 32 without the feature 64bit",
        fix: |_, raw| raw.desc_size.set(0),
    },
    FieldRule {
        is_broken: |v| v.sb.raw().log_groups_per_flex > 31,
        wrong: "more than 2^31 groups are to be kept together",
        mended: "no groups are kept together",
        fix: |_, raw| raw.log_groups_per_flex = 0,
    },
    FieldRule {
        is_broken: |v| {
            v.has_ro_compat(RoCompat::ORPHAN_PRESENT) && !v.has_compat(Compat::ORPHAN_FILE)
        },
        wrong: "orphan_present needs the feature orphan_file",
        mended: "feature orphan_present is off",
        fix: |_, raw| {
            let bits = raw.feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits();
            raw.feature_ro_compat.set(bits);
        },
    },
    FieldRule {
        is_broken: |v| v.sb.reserved_blocks_count() > v.sb.blocks_count() / 2,
        wrong: "more than half of the blocks are reserved",
        mended: "a twentieth of the blocks is reserved",
        fix: |v, raw| {
            let blocks = v.sb.blocks_count() / 20;
            raw.r_blocks_count_lo.set(blocks as u32);
            raw.r_blocks_count_hi.set((blocks >> 32) as u32);
        },
    },
    FieldRule {
        is_broken: |v| v.has_compat(Compat::RESIZE_INODE) && v.has_incompat(Incompat::META_BG),
        wrong: "resize_inode and meta_bg exclude each other",
        mended: "feature resize_inode is off",
        fix: |_, raw| {
            let bits = raw.feature_compat.get() & !Compat::RESIZE_INODE.bits();
            raw.feature_compat.set(bits);
        },
    },
    FieldRule {
        is_broken: |v| {
            !v.has_compat(Compat::RESIZE_INODE) && v.sb.raw().reserved_gdt_blocks.get() != 0
        },
        wrong: "blocks are reserved for descriptors without the feature resize_inode",
        mended: "no blocks are reserved for descriptors",
        fix: |_, raw| raw.reserved_gdt_blocks.set(0),
    },
    FieldRule {
        is_broken: |v| right_reserve(v).is_some(),
        wrong: "blocks are reserved for descriptors that hold bitmaps or inode tables, and that no inode keeps",
        mended: "as many blocks are reserved for descriptors as the inode keeps for them, or as there is room for",
        fix: |v, raw| {
            if let Some(blocks) = right_reserve(v) {
                raw.reserved_gdt_blocks.set(blocks);
            }
        },
    },
    FieldRule {
        is_broken: hides_files,
        wrong: "the first inode for users lies behind files that are in use",
        mended: "the first inode for users is 11",
        fix: |_, raw| raw.first_ino.set(FIRST_INO),
    },
    FieldRule {
        is_broken: |v| {
            v.has_ro_compat(RoCompat::METADATA_CSUM) && v.has_ro_compat(RoCompat::GDT_CSUM)
        },
        wrong: "metadata_csum and uninit_bg exclude each other",
        mended: "feature uninit_bg is off",
        fix: |_, raw| {
            let bits = raw.feature_ro_compat.get() & !RoCompat::GDT_CSUM.bits();
            raw.feature_ro_compat.set(bits);
        },
    },
    FieldRule {
        is_broken: |v| !v.has_compat(Compat::HAS_JOURNAL) && v.has_incompat(Incompat::RECOVER),
        wrong: "a journal is to be replayed, but there is none",
        mended: "no journal is to be replayed",
        fix: |_, raw| {
            let bits = raw.feature_incompat.get() & !Incompat::RECOVER.bits();
            raw.feature_incompat.set(bits);
        },
    },
    FieldRule {
        is_broken: |v| !v.has_ro_compat(RoCompat::QUOTA) && names_quota(v.sb.raw()),
        wrong: "a quota file is named, but the feature quota is off",
        mended: "no quota file is named",
        fix: |_, raw| {
            raw.usr_quota_inum.set(0);
            raw.grp_quota_inum.set(0);
            raw.prj_quota_inum.set(0);
        },
    },
    FieldRule {
        is_broken: |v| !v.has_compat(Compat::ORPHAN_FILE) && v.sb.raw().orphan_file_inum.get() != 0,
        wrong: "an orphan file is named, but the feature orphan_file is off",
        mended: "no orphan file is named",
        fix: |_, raw| raw.orphan_file_inum.set(0),
    },
    FieldRule {
        is_broken: |v| {
            let raw = v.sb.raw();
            v.has_compat(Compat::HAS_JOURNAL)
                && raw.journal_inum.get() != 0
                && raw.journal_uuid != [0; 16]
        },
        wrong: "a journal in an inode and one on another device are named",
        mended: "the journal in an inode alone is named",
        fix: |_, raw| {
            raw.journal_uuid = [0; 16];
            raw.journal_dev.set(0);
        },
    },
    FieldRule {
        is_broken: |v| {
            let raw = v.sb.raw();
            let named = raw.journal_inum.get() != 0 || raw.journal_uuid != [0; 16];
            !v.has_compat(Compat::HAS_JOURNAL) && named
        },
        wrong: "a journal is named, but the feature has_journal is off",
        mended: "no journal is named",
        fix: |_, raw| {
            raw.journal_inum.set(0);
            raw.journal_uuid = [0; 16];
            raw.journal_dev.set(0);
        },
    },
];

/// Those that are no damage: Linux mounts the file system, and works with it.
pub(crate) const SOFT_RULES: &[FieldRule] = &[
    FieldRule {
        is_broken: |v| v.has_incompat(Incompat::BIT64) && !v.has_incompat(Incompat::EXTENTS),
        wrong: "64bit needs the feature extent: without it no file reaches the whole device",
        mended: "feature extent is on",
        fix: |_, raw| {
            let bits = raw.feature_incompat.get() | Incompat::EXTENTS.bits();
            raw.feature_incompat.set(bits);
        },
    },
    FieldRule {
        is_broken: |v| v.sb.raw().rev_level.get() == 0 && v.sb.features() != Features::default(),
        wrong: "there are feature flags, which revision 0 of the format does not have",
        mended: "the revision is 1",
        fix: |_, raw| raw.raise_revision(),
    },
];

/// The number of clusters that groups have, where the one that is given cannot be: the other field
/// that gives it, if it can be and leaves the number of groups, or the next multiple of 8.
fn whole_group(volume: &Volume) -> u32 {
    let geo = &volume.geo;
    let most = volume.block_size().bytes() * 8;
    // Linux counts blocks of a group in 16 bits.
    let most = most.min(u32::from(u16::MAX) & !7);
    let groups = |clusters: u32| {
        let blocks = u64::from(clusters) << geo.cluster_bits();
        let data = geo.blocks_count() - geo.first_data_block().get();
        data.div_ceil(blocks.max(1))
    };
    let other = volume.sb.raw().clusters_per_group.get();
    let is_possible = |clusters: u32| {
        clusters > 0
            && clusters <= most
            && clusters.is_multiple_of(8)
            && groups(clusters) == u64::from(geo.groups_count())
    };
    if is_possible(other) {
        other
    } else {
        geo.clusters_per_group().next_multiple_of(8).min(most)
    }
}

fn names_quota(raw: &RawSuperblock) -> bool {
    let quotas = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
    quotas.iter().any(|ino| ino.get() != 0)
}

/// Whether an inode in use lies between the first that users can have and the one that the
/// superblock says is it.
fn hides_files(volume: &Volume) -> bool {
    let sb = &volume.sb;
    let end = sb.first_ino().get().min(FIRST_INO + HIDDEN_MAX);
    let own: Vec<Ino> = [sb.journal_ino(), sb.orphan_file_ino()]
        .into_iter()
        .chain(sb.quota_inodes())
        .flatten()
        .collect();
    let is_file = |ino: Ino| {
        let mut is_sound = true;
        let offset = volume.inode_offset(ino)?;
        let mut slot = vec![0; usize::from(volume.inode_size())];
        volume.read_bytes(offset, &mut slot).ok()?;
        let inode = volume.parse_inode(&slot, ino, &mut |_| is_sound = false)?;
        Some(is_sound && inode.links > 0 && inode.file_type().is_some())
    };
    let mut all = (FIRST_INO..end).map(Ino::new);
    all.any(|ino| !own.contains(&ino) && is_file(ino) == Some(true))
}

/// How many blocks are reserved for descriptors, where those that are said to be reach over bitmaps
/// or inode tables, and the inode that keeps them has not as many.
fn right_reserve(volume: &Volume) -> Option<u16> {
    if !volume.has_compat(Compat::RESIZE_INODE) {
        return None;
    }
    let range = volume.geo.group_header(Group::new(0)).ok()?.reserved_gdt;
    let located = volume.groups.iter().filter(|state| state.located);
    let places = located.flat_map(|state| {
        let desc = &state.desc;
        [desc.block_bitmap, desc.inode_bitmap, desc.inode_table].map(Pblk::get)
    });
    let first = places.filter(|block| range.contains(block)).min()?;
    let room = first - range.start;
    let kept = kept_for_descriptors(volume, range.start).unwrap_or(0);
    if kept == range.end - range.start {
        // The descriptor is what is wrong.
        return None;
    }
    u16::try_from(if (1..=room).contains(&kept) {
        kept
    } else {
        room
    })
    .ok()
}

/// How many blocks from `first` on the inode keeps that is for descriptors.
fn kept_for_descriptors(volume: &Volume, first: u64) -> Option<u64> {
    let (_, inode) = volume.inode(Ino::RESIZE).ok()??;
    let root = *indirect::root_pointers(&inode.map).get(13)?;
    if !volume.physical().contains(&root.into()) {
        return None;
    }
    let top = volume.block(Pblk::new(root.into())).ok()?;
    let per_block = indirect::pointers_per_block(volume.block_size());
    let used = volume.geo.classic_desc_blocks();
    let is_kept = |i: &u32| {
        let slot = (used + i) % per_block;
        u64::from(indirect::pointer(&top, slot as usize)) == first + u64::from(*i)
    };
    Some((0..per_block).take_while(is_kept).count() as u64)
}
