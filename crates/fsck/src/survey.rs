//! The whole check, and what a repair needs of it besides the findings.

use crate::blockset::BlockSet;
use crate::encryption::Policies;
use crate::error::Result;
use crate::inode_table::InodeTable;
use crate::report::{Report, Sink};
use crate::scan::Usages;
use crate::volume::Volume;
use crate::xattr::EaReferences;
use crate::{
    Code, Place, Progress, bitmaps, connectivity, dir, journal, metadata, orphans, owners, quota,
    scan, superblock, verity as hashes, xattr,
};
use extant_blockdev::SharedDevice;
use extant_format::features::RoCompat;
use extant_format::superblock::State;
use extant_format::{Ino, Pblk};
use std::collections::HashSet;

/// What is judged.
pub(crate) struct Input {
    /// The file system, as recovery would leave it if that is asked for.
    pub(crate) device: SharedDevice,
    /// There was something to recover.
    pub(crate) recovered: bool,
    /// Whether the superblock as it lies, which a journal may replace, remembers errors.
    pub(crate) remembers_errors: bool,
    /// Whether the journal on a device of its own, if there is one, was looked at before.
    pub(crate) has_journal: bool,
    /// The bytes as they lie: a log that waits is no fault.
    pub(crate) as_is: bool,
    /// Content is compared with its hashes.
    pub(crate) verity: bool,
}

/// What a check learnt.
pub(crate) struct Survey {
    pub(crate) volume: Volume,
    pub(crate) table: InodeTable,
    pub(crate) orphans: HashSet<Ino>,
    /// All directories, ascending.
    pub(crate) dirs: Vec<Ino>,
    /// Directories and their parents, ascending.
    pub(crate) parents: Vec<(Ino, Ino)>,
    pub(crate) names: dir::NameCounts,
    /// Directories and what their `..` names.
    pub(crate) dotdots: Vec<(Ino, Ino)>,
    /// Clusters in use: what any map or fixed structure claims.
    pub(crate) used: BlockSet,
    /// Clusters that maps claim more than once.
    pub(crate) shared: BlockSet,
    /// Clusters of fixed structures that maps claim too.
    pub(crate) over_fixed: BlockSet,
    /// Blocks that several fixed structures lie in.
    pub(crate) contested: BlockSet,
    /// Attribute blocks and how many inodes refer to each, ascending.
    pub(crate) xattr_blocks: Vec<(Pblk, u32)>,
    /// References to inodes that hold values.
    pub(crate) ea: EaReferences,
    /// Policies of encrypted inodes.
    pub(crate) policies: Policies,
    pub(crate) usages: Usages,
    pub(crate) free_clusters: u64,
    pub(crate) free_inodes: u64,
    pub(crate) report: Report,
}

/// Checks everything. `sink` may hold findings already.
pub(crate) fn run(input: Input, sink: Sink, progress: &dyn Progress) -> Result<Survey> {
    crate::side_by_side(|| look_at_all(input, sink, progress))
}

fn look_at_all(input: Input, mut sink: Sink, progress: &dyn Progress) -> Result<Survey> {
    let Input {
        device,
        recovered,
        remembers_errors,
        has_journal,
        as_is,
        verity,
    } = input;
    let volume = Volume::open(device, &mut sink)?;
    superblock::check(&volume, recovered, &mut sink)?;
    if !(has_journal && volume.sb.has_external_journal()) {
        journal::check(&volume, recovered, as_is, &mut sink)?;
    }
    let orphans = orphans::collect(&volume, recovered, &mut sink)?;
    if remembers_errors || volume.sb.state().contains(State::ERRORS) {
        orphans::with_errors(&volume, &orphans, &mut sink);
    }
    let fixed = metadata::fixed(&volume, &mut sink);

    let (mut scan, table) = scan::run(&volume, &orphans, progress)?;
    if scan.needs_large_file {
        let text = "there are files of 2 GiB or more, but the feature large_file is off";
        scan.sink
            .say(Code::LargeFileFeature, Place::FILE_SYSTEM, text);
    }
    let xattr_blocks = xattr::blocks(&volume, &mut scan, progress)?;
    let mut used = fixed.clusters;
    let mut over_fixed = BlockSet::default();
    let claims = std::mem::take(&mut scan.claims);
    used.absorb(claims.once, &mut |both| over_fixed.add(both));
    let nothing = BlockSet::default();
    let shared = if volume.has_ro_compat(RoCompat::SHARED_BLOCKS) {
        &nothing
    } else {
        &claims.twice
    };
    owners::run(&volume, &table, shared, &over_fixed, &mut scan.sink)?;

    let mut names = dir::run(
        &volume,
        &table,
        &scan.policies,
        &scan.dirs,
        &claims.twice,
        progress,
    )?;
    let parents = connectivity::check(&volume, &table, &mut names, &scan.dirs);
    xattr::value_inodes(&volume, &table, &scan.ea, &mut scan.sink)?;
    let mut sums = bitmaps::run(&volume, &used, &table, progress)?;
    bitmaps::superblock(&volume, &mut sums);
    quota::check(&volume, &scan.usages, &mut scan.sink)?;

    if verity {
        let sealed = hashes::run(&volume, &scan.sealed, progress)?;
        scan.sink.absorb(sealed);
    }

    let mut totals = scan.totals;
    let free = sums.free_clusters << volume.geo.cluster_bits();
    totals.blocks = volume.geo.blocks_count().saturating_sub(free);
    for part in [scan.sink, names.sink, sums.sink] {
        sink.absorb(part);
    }
    Ok(Survey {
        shared: shared.clone(),
        table,
        orphans,
        dirs: scan.dirs,
        parents,
        names: names.counts,
        dotdots: names.dotdots,
        used,
        over_fixed,
        contested: fixed.contested,
        xattr_blocks,
        ea: scan.ea,
        policies: scan.policies,
        usages: scan.usages,
        free_clusters: sums.free_clusters,
        free_inodes: sums.free_inodes,
        report: sink.into_report(totals),
        volume,
    })
}
