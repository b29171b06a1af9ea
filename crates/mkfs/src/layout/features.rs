//! Which features the file system gets, and whether they go together.

use super::{PlanError, PlanResult};
use crate::defaults::{FormatOptions, JournalSize};
use extant_format::features::{Compat, Feature, Features, Incompat, RoCompat};

/// Features this builder can make.
const SUPPORTED: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGEDIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// The features of `options`, checked against the profile, this builder and each other.
pub(super) fn resolve(options: &FormatOptions) -> PlanResult<Features> {
    let mut features = options.profile.features();
    for change in &options.features.changes {
        match *change {
            crate::defaults::FeatureChange::Clear => features = Features::default(),
            crate::defaults::FeatureChange::Set(feature, on) => features.set(feature, on),
        }
    }
    if options.journal == JournalSize::None {
        // Both live in or beside the journal.
        features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT;
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        // Its checksums replace the older ones.
        features.ro_compat -= RoCompat::GDT_CSUM;
    }
    if features.ro_compat.contains(RoCompat::QUOTA) && options.quota_kinds()[2] {
        // Without it no file is of a project.
        features.ro_compat |= RoCompat::PROJECT;
    }
    if features.incompat.contains(Incompat::META_BG) && !asked_for_resize_inode(options) {
        // Meta block groups grow without reserved descriptors.
        features.compat -= Compat::RESIZE_INODE;
    }
    check_supported(features)?;
    check_profile(options, features)?;
    check_together(options, features)?;
    Ok(features)
}

fn asked_for_resize_inode(options: &FormatOptions) -> bool {
    options.resize_limit.is_some()
        || options
            .features
            .last_word(Feature::Compat(Compat::RESIZE_INODE))
            == Some(true)
}

fn check_supported(features: Features) -> PlanResult<()> {
    let beyond = Features {
        compat: features.compat.beyond(SUPPORTED.compat),
        incompat: features.incompat.beyond(SUPPORTED.incompat),
        ro_compat: features.ro_compat.beyond(SUPPORTED.ro_compat),
    };
    match beyond.names().into_iter().next() {
        None => Ok(()),
        Some(feature) => Err(PlanError::Unsupported {
            feature,
            why: "it says something about a file system in use, or no Linux reads it",
        }),
    }
}

fn check_profile(options: &FormatOptions, features: Features) -> PlanResult<()> {
    let refused = options.profile.refused();
    let asked = Features {
        compat: features.compat & refused.compat,
        incompat: features.incompat & refused.incompat,
        ro_compat: features.ro_compat & refused.ro_compat,
    };
    match asked.names().into_iter().next() {
        None => Ok(()),
        Some(feature) => Err(PlanError::NotInProfile {
            feature,
            profile: options.profile.name(),
        }),
    }
}

fn check_together(options: &FormatOptions, features: Features) -> PlanResult<()> {
    let Features {
        compat,
        incompat,
        ro_compat,
    } = features;
    let bigalloc = ro_compat.contains(RoCompat::BIGALLOC);
    let small_inodes = options.inode_size < 256;
    let rules: [(bool, &str, &str); 12] = [
        (
            bigalloc && !incompat.contains(Incompat::EXTENTS),
            "bigalloc",
            "needs the feature extent",
        ),
        (
            incompat.contains(Incompat::BIT64) && !incompat.contains(Incompat::EXTENTS),
            "64bit",
            "needs the feature extent: turn 64bit off as well (^64bit), or extent on",
        ),
        (
            options.cluster_size.is_some() && !bigalloc,
            "a cluster size",
            "needs the feature bigalloc",
        ),
        (
            compat.contains(Compat::RESIZE_INODE) && incompat.contains(Incompat::META_BG),
            "resize_inode",
            "and meta_bg exclude each other",
        ),
        (
            compat.contains(Compat::RESIZE_INODE) && !ro_compat.contains(RoCompat::SPARSE_SUPER),
            "resize_inode",
            "needs the feature sparse_super",
        ),
        (
            options.resize_limit.is_some() && !compat.contains(Compat::RESIZE_INODE),
            "a resize limit",
            "needs the feature resize_inode",
        ),
        (
            incompat.contains(Incompat::CSUM_SEED) && !ro_compat.contains(RoCompat::METADATA_CSUM),
            "metadata_csum_seed",
            "needs the feature metadata_csum",
        ),
        (
            compat.intersects(Compat::ORPHAN_FILE | Compat::FAST_COMMIT)
                && !compat.contains(Compat::HAS_JOURNAL),
            "orphan_file or fast_commit",
            "needs the feature has_journal",
        ),
        (
            ro_compat.contains(RoCompat::PROJECT) && small_inodes,
            "project",
            "needs inodes of at least 256 bytes",
        ),
        (
            incompat.contains(Incompat::INLINE_DATA) && small_inodes,
            "inline_data",
            "needs inodes of at least 256 bytes",
        ),
        (
            options.groups_per_flex.is_some() && !incompat.contains(Incompat::FLEX_BG),
            "a flexible group size",
            "needs the feature flex_bg",
        ),
        (
            options.journal_is_sized() && !compat.contains(Compat::HAS_JOURNAL),
            "a journal size",
            "needs the feature has_journal",
        ),
    ];
    match rules.into_iter().find(|(broken, ..)| *broken) {
        None => Ok(()),
        Some((_, asked, conflict)) => Err(PlanError::Conflict { asked, conflict }),
    }
}

impl FormatOptions {
    fn journal_is_sized(&self) -> bool {
        matches!(self.journal, JournalSize::Bytes(_))
    }
}
