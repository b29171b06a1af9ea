//! Features turned on and off.
//!
//! Those on which other structures depend come first, in an order in which each finds what it
//! needs; then those of which the superblock alone says something.

use super::{Settings, Tuning, checksums, external, files, inode_size, refused, wide};
use crate::error::Result;
use crate::inode_table::kind_of;
use crate::report::Sink;
use crate::volume::Volume;
use extant_format::Ino;
use extant_format::features::{Compat, Feature, Features, Incompat, RoCompat};
use extant_format::inode::{FileType, InodeFlags};
use extant_format::superblock::{RawSuperblock, Superblock};

/// Blocks that Linux wants in a journal beside those for fast commits.
const JOURNAL_BLOCKS_MIN: u64 = 1024;
/// Blocks that Linux sets aside for fast commits where the journal does not say how many.
const FAST_COMMIT_BLOCKS: u64 = 256;
/// UTF-8 of version 12.1, by which names are folded.
const UTF8: u16 = 1;
/// The half-MD4 hash, which directories have where nothing else is said.
const HALF_MD4: u8 = 1;

const JOURNAL: Feature = Feature::Compat(Compat::HAS_JOURNAL);
const FAST_COMMIT: Feature = Feature::Compat(Compat::FAST_COMMIT);
const ORPHAN_FILE: Feature = Feature::Compat(Compat::ORPHAN_FILE);
const DIR_INDEX: Feature = Feature::Compat(Compat::DIR_INDEX);
const RESIZE_INODE: Feature = Feature::Compat(Compat::RESIZE_INODE);
const SEED: Feature = Feature::Incompat(Incompat::CSUM_SEED);
pub(super) const WIDE: Feature = Feature::Incompat(Incompat::BIT64);
pub(super) const EXTENTS: Feature = Feature::Incompat(Incompat::EXTENTS);
const MMP: Feature = Feature::Incompat(Incompat::MMP);
const CASEFOLD: Feature = Feature::Incompat(Incompat::CASEFOLD);
const FILETYPE: Feature = Feature::Incompat(Incompat::FILETYPE);
const FLEX_BG: Feature = Feature::Incompat(Incompat::FLEX_BG);
const SUMS: Feature = Feature::RoCompat(RoCompat::METADATA_CSUM);
const GROUP_SUMS: Feature = Feature::RoCompat(RoCompat::GDT_CSUM);
const QUOTA: Feature = Feature::RoCompat(RoCompat::QUOTA);
const PROJECT: Feature = Feature::RoCompat(RoCompat::PROJECT);
const HUGE_FILE: Feature = Feature::RoCompat(RoCompat::HUGE_FILE);
const DIR_NLINK: Feature = Feature::RoCompat(RoCompat::DIR_NLINK);

/// What can be done with a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switch {
    /// It can be turned on.
    pub on: bool,
    /// It can be turned off.
    pub off: bool,
}

/// Returns whether a feature can be switched: nothing on the disk but the superblock depends on it,
/// or what does is put right.
#[must_use]
pub fn switch(feature: Feature) -> Switch {
    let (on, off) = match feature {
        JOURNAL | FAST_COMMIT | ORPHAN_FILE | DIR_INDEX => (true, true),
        RESIZE_INODE => (false, true),
        Feature::Compat(Compat::EXT_ATTR | Compat::STABLE_INODES) => (true, false),
        SEED | WIDE | MMP | CASEFOLD | FLEX_BG => (true, true),
        Feature::Incompat(
            Incompat::LARGEDIR
            | Incompat::EA_INODE
            | Incompat::ENCRYPT
            | Incompat::EXTENTS
            | Incompat::FILETYPE,
        ) => (true, false),
        SUMS | GROUP_SUMS | QUOTA | PROJECT | HUGE_FILE | DIR_NLINK => (true, true),
        Feature::RoCompat(RoCompat::LARGE_FILE | RoCompat::READONLY | RoCompat::EXTRA_ISIZE) => {
            (true, true)
        }
        Feature::RoCompat(RoCompat::VERITY | RoCompat::SPARSE_SUPER) => (true, false),
        _ => (false, false),
    };
    Switch { on, off }
}

/// What is asked for of features.
pub(super) struct Wanted<'a> {
    features: &'a [(Feature, bool)],
    settings: &'a Settings,
}

impl Wanted<'_> {
    /// The last that is said of a feature.
    fn of(&self, feature: Feature) -> Option<bool> {
        let said = self.features.iter().rev();
        let mut said = said.filter(|(which, _)| *which == feature);
        said.next().map(|(_, on)| *on)
    }
}

/// Refuses what is asked for and can never be.
fn check(sb: &Superblock, wanted: &Wanted<'_>) -> Result<()> {
    for (feature, on) in wanted.features {
        let possible = switch(*feature);
        let is_there = sb.features().has(*feature) == *on;
        if !is_there && !(if *on { possible.on } else { possible.off }) {
            let verb = if *on { "on" } else { "off" };
            let name = name_of(*feature);
            return Err(refused(&format!(
                "feature {name} cannot be turned {verb} here"
            )));
        }
    }
    if wanted.of(SUMS) == Some(true) && wanted.of(GROUP_SUMS) == Some(true) {
        let why = "metadata_csum and uninit_bg exclude each other: metadata_csum does what uninit_bg does";
        return Err(refused(why));
    }
    let has = |feature| {
        wanted
            .of(feature)
            .unwrap_or_else(|| sb.features().has(feature))
    };
    if wanted.of(WIDE) == Some(true) && !has(EXTENTS) {
        let why = "64bit needs the feature extent: turn extent on as well (extent,64bit)";
        return Err(refused(why));
    }
    Ok(())
}

fn name_of(feature: Feature) -> String {
    let mut one = Features::default();
    one.set(feature, true);
    one.names()
        .first()
        .map_or_else(String::new, ToString::to_string)
}

/// Switches all features that are asked for.
pub(super) fn switch_all(tuning: &mut Tuning<'_>, settings: &Settings) -> Result<()> {
    let wanted = Wanted {
        features: &settings.features,
        settings,
    };
    check(&tuning.survey.volume.sb, &wanted)?;
    let has = |tuning: &Tuning<'_>, feature| tuning.survey.volume.sb.features().has(feature);
    let goes =
        |tuning: &Tuning<'_>, feature| wanted.of(feature) == Some(false) && has(tuning, feature);
    let comes =
        |tuning: &Tuning<'_>, feature| wanted.of(feature) == Some(true) && !has(tuning, feature);

    if comes(tuning, FILETYPE) {
        types_on(tuning)?;
    }
    if let Some(bytes) = settings.inode_size {
        inode_size::grow(tuning, bytes)?;
    }
    let (kinds, _) = quota_kinds(tuning, &wanted);
    let has_projects = tuning.survey.volume.sb.quota_inodes()[2].is_some();
    let makes_projects = kinds[2] == Some(true) && !has_projects;
    files::announce(tuning, comes(tuning, ORPHAN_FILE), makes_projects)?;
    if goes(tuning, JOURNAL) || goes(tuning, ORPHAN_FILE) {
        files::orphan_file_off(tuning)?;
    }
    if goes(tuning, JOURNAL) {
        files::journal_off(tuning)?;
    }
    if goes(tuning, MMP) {
        files::mmp_off(tuning)?;
    }
    quotas(tuning, &wanted)?;
    if goes(tuning, WIDE) {
        wide::narrow(tuning)?;
    }
    if goes(tuning, SUMS) {
        checksums::off(tuning, wanted.of(GROUP_SUMS) != Some(false))?;
    }
    if comes(tuning, SUMS) {
        checksums::on(tuning)?;
    }
    group_sums(tuning, &wanted)?;
    if comes(tuning, WIDE) {
        wide::widen(tuning)?;
    }
    loose(tuning, &wanted)?;
    if let (true, Some(journal)) = (comes(tuning, JOURNAL), &settings.journal_device) {
        external::on(tuning, journal)?;
    } else if comes(tuning, JOURNAL) {
        files::journal_on(tuning, settings.journal_size, settings.journal_location)?;
    } else if settings.journal_size.is_some() || settings.journal_location.is_some() {
        return Err(refused(
            "there is a journal, whose size and place are not changed: turn it off first, and on again with a size",
        ));
    }
    if comes(tuning, ORPHAN_FILE) {
        files::orphan_file_on(tuning, settings.orphan_file_size)?;
    }
    if comes(tuning, MMP) {
        files::mmp_on(tuning, settings.mmp_interval)?;
    }
    plain(tuning, &wanted)
}

fn group_sums(tuning: &mut Tuning<'_>, wanted: &Wanted<'_>) -> Result<()> {
    let sb = &tuning.survey.volume.sb;
    let (is_on, has_all) = (sb.features().has(GROUP_SUMS), sb.has_metadata_csum());
    match wanted.of(GROUP_SUMS) {
        Some(true) if has_all => Err(refused(
            "metadata_csum does what uninit_bg does: turn metadata_csum off first, or with it",
        )),
        Some(true) if !is_on => checksums::group_sums_on(tuning),
        Some(false) if is_on => checksums::group_sums_off(tuning),
        _ => Ok(()),
    }
}

/// Which quota files are asked for, by features and by what is said of single ones; and whether the
/// feature `project` comes.
fn quota_kinds(tuning: &Tuning<'_>, wanted: &Wanted<'_>) -> ([Option<bool>; 3], bool) {
    let sb = &tuning.survey.volume.sb;
    let has_project = sb.features().has(PROJECT);
    let mut kinds = wanted.settings.quotas;
    let project_comes = wanted.of(PROJECT) == Some(true) && !has_project;
    match wanted.of(QUOTA) {
        Some(false) => kinds = [Some(false); 3],
        Some(true) if kinds == [None; 3] && !sb.features().has(QUOTA) => {
            kinds = [Some(true), Some(true), has_project.then_some(true)];
        }
        _ => {}
    }
    if project_comes {
        kinds[2] = Some(true);
    }
    if wanted.of(PROJECT) == Some(false) && has_project {
        kinds[2] = Some(false);
    }
    (kinds, project_comes)
}

/// Quota files that come and go: by features, and by what is said of single ones.
fn quotas(tuning: &mut Tuning<'_>, wanted: &Wanted<'_>) -> Result<()> {
    let (kinds, project_comes) = quota_kinds(tuning, wanted);
    let sb = &tuning.survey.volume.sb;
    let has_project = sb.features().has(PROJECT);
    let there = sb.quota_inodes().map(|ino| ino.is_some());
    let change = |kind: usize| kinds[kind].filter(|on| *on != there[kind]);
    let changes = [change(0), change(1), change(2)];
    if kinds[2] == Some(true) && tuning.survey.volume.inode_size() == 128 {
        return Err(refused(
            "inodes of 128 bytes have no room for the number of a project",
        ));
    }
    if changes == [None; 3] && !project_comes && !(kinds[2] == Some(false) && has_project) {
        return Ok(());
    }
    files::quotas(tuning, changes, kinds[2])
}

/// Has entries of directories say of which type what they name is. The superblock comes first: with
/// the feature, an entry without a type is as good as one with it; without it, a type is read as a
/// part of the length of the name.
fn types_on(tuning: &mut Tuning<'_>) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    tuning.put(&sb.with(|raw| switch_raw(raw, FILETYPE, true))?)?;
    tuning.draft.end_step();
    tuning.settle()
}

/// Features whose structures a repair puts right where it finds them otherwise.
fn loose(tuning: &mut Tuning<'_>, wanted: &Wanted<'_>) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    let changes = |feature, on| wanted.of(feature) == Some(on) && sb.features().has(feature) != on;
    let sparse = Feature::RoCompat(RoCompat::SPARSE_SUPER);
    let (index, sparse, resize) = (
        changes(DIR_INDEX, false),
        changes(sparse, true),
        changes(RESIZE_INODE, false),
    );
    if !index && !sparse && !resize {
        return Ok(());
    }
    if resize {
        files::forget(tuning, Ino::RESIZE)?;
    }
    tuning.put(&sb.with(|raw| {
        if index {
            switch_raw(raw, DIR_INDEX, false);
        }
        if sparse {
            switch_raw(raw, Feature::RoCompat(RoCompat::SPARSE_SUPER), true);
        }
        if resize {
            switch_raw(raw, RESIZE_INODE, false);
            raw.reserved_gdt_blocks.set(0);
        }
    })?)?;
    tuning.settle()
}

/// Switches a feature in a superblock.
pub(super) fn switch_raw(raw: &mut RawSuperblock, feature: Feature, on: bool) {
    let (word, bits) = match feature {
        Feature::Compat(bit) => (&mut raw.feature_compat, bit.bits()),
        Feature::Incompat(bit) => (&mut raw.feature_incompat, bit.bits()),
        Feature::RoCompat(bit) => (&mut raw.feature_ro_compat, bit.bits()),
    };
    let now = word.get();
    word.set(if on { now | bits } else { now & !bits });
}

/// Features of which the superblock alone says something.
fn plain(tuning: &mut Tuning<'_>, wanted: &Wanted<'_>) -> Result<()> {
    let mut sb = tuning.draft.superblock()?;
    for (feature, _) in wanted.features {
        let Some(on) = wanted.of(*feature) else {
            continue;
        };
        if sb.features().has(*feature) == on || is_structural(*feature) {
            continue;
        }
        may_be_plain(tuning, &sb, *feature, on)?;
        let seed = sb.checksum_seed();
        sb = sb.with(|raw| {
            switch_raw(raw, *feature, on);
            match *feature {
                SEED => raw.checksum_seed.set(if on { seed } else { 0 }),
                CASEFOLD => {
                    raw.encoding.set(if on { UTF8 } else { 0 });
                    raw.encoding_flags.set(0);
                }
                DIR_INDEX if raw.def_hash_version == 0 => raw.def_hash_version = HALF_MD4,
                _ => {}
            }
        })?;
    }
    tuning.wanted = sb;
    Ok(())
}

/// Whether a feature is switched before those of which the superblock alone says something.
fn is_structural(feature: Feature) -> bool {
    matches!(
        feature,
        JOURNAL
            | ORPHAN_FILE
            | WIDE
            | MMP
            | SUMS
            | GROUP_SUMS
            | QUOTA
            | PROJECT
            | RESIZE_INODE
            | FILETYPE
    ) || feature == Feature::RoCompat(RoCompat::SPARSE_SUPER)
}

/// Refuses what something on the disk, or another feature, is against.
fn may_be_plain(tuning: &Tuning<'_>, sb: &Superblock, feature: Feature, on: bool) -> Result<()> {
    let why = match (feature, on) {
        (FAST_COMMIT, true) => return room_for_fast_commits(tuning, sb),
        (SEED, true) if !sb.has_metadata_csum() => "metadata_csum_seed needs metadata_csum",
        (CASEFOLD, false) if any(tuning, |_, flags| flags.contains(InodeFlags::CASEFOLD))? => {
            "there are directories whose names are folded (chattr +F)"
        }
        (FLEX_BG, false) if !lie_in_their_groups(tuning) => {
            "bitmaps or inode tables lie in other groups than their own"
        }
        (HUGE_FILE, false) if any(tuning, |_, flags| flags.contains(InodeFlags::HUGE_FILE))? => {
            "there are files of 2 TiB or more"
        }
        (DIR_NLINK, false) if any(tuning, |inode, _| inode.is_dir && inode.links == 1)? => {
            "there are directories with more than 64,998 others in them"
        }
        (Feature::RoCompat(RoCompat::EXTRA_ISIZE), true) if sb.inode_size() < 256 => {
            "inodes of 128 bytes have no room for more fields"
        }
        (Feature::RoCompat(RoCompat::LARGE_FILE), false)
            if any(tuning, |inode, _| inode.size >= 1 << 31)? =>
        {
            "there are files of 2 GiB or more"
        }
        _ => return Ok(()),
    };
    Err(refused(why))
}

/// Whether bitmaps and inode tables lie in the groups that they are of.
fn lie_in_their_groups(tuning: &Tuning<'_>) -> bool {
    let volume = &tuning.survey.volume;
    let table = u64::from(volume.geo.inode_table_blocks());
    volume
        .geo
        .groups()
        .zip(&volume.groups)
        .all(|(group, state)| {
            let (first, last) = (
                volume.geo.group_first_block(group),
                volume.geo.group_last_block(group),
            );
            let (Ok(first), Ok(last)) = (first, last) else {
                return false;
            };
            let desc = &state.desc;
            let table = desc.inode_table.get()..desc.inode_table.get() + table;
            let own = first.get()..last.get() + 1;
            let bitmaps = [desc.block_bitmap, desc.inode_bitmap];
            bitmaps.iter().all(|at| own.contains(&at.get()))
                && own.start <= table.start
                && table.end <= own.end
        })
}

/// What is asked of an inode.
struct Asked {
    is_dir: bool,
    links: u16,
    size: u64,
}

/// Whether any inode in use is so.
fn any(tuning: &Tuning<'_>, is: impl Fn(&Asked, InodeFlags) -> bool) -> Result<bool> {
    let volume = &tuning.survey.volume;
    let dir = kind_of(Some(FileType::Directory));
    for (ino, summary) in tuning.survey.table.in_use() {
        let Some((_, inode)) = volume.inode(ino)? else {
            continue;
        };
        let asked = Asked {
            is_dir: summary.kind == dir,
            links: inode.links,
            size: if inode.file_type() == Some(FileType::Regular) && ino >= volume.sb.first_ino() {
                inode.size
            } else {
                0
            },
        };
        if is(&asked, inode.flags) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a journal of which Linux could not set blocks for fast commits aside: it would not mount
/// the file system.
fn room_for_fast_commits(tuning: &Tuning<'_>, sb: &Superblock) -> Result<()> {
    let journal = sb.journal_ino().filter(|_| sb.features().has(JOURNAL));
    let Some(ino) = journal else {
        return Err(refused("fast_commit needs a journal"));
    };
    let volume = Volume::open(tuning.draft.device(), &mut Sink::new())?;
    let blocks = match volume.inode(ino)? {
        Some((_, inode)) => inode.size / u64::from(volume.block_size().bytes()),
        None => 0,
    };
    let needed = JOURNAL_BLOCKS_MIN + FAST_COMMIT_BLOCKS;
    if blocks < needed {
        Err(refused(&format!(
            "the journal has {blocks} blocks, and fast_commit needs {needed} for Linux to mount it: turn the journal \
             off, and on again with a larger size"
        )))
    } else {
        Ok(())
    }
}
