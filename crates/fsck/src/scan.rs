//! The pass over all inode tables, by group and in parallel: checks every inode by itself and
//! gathers what the later passes need.

use crate::bytes::le32;
use crate::claims::Claims;
use crate::encryption::Policies;
use crate::error::Result;
use crate::inode::Checker;
use crate::inode_table::{InodeTable, Summary};
use crate::report::{Sink, Totals};
use crate::volume::Volume;
use crate::xattr::EaReferences;
use crate::{Pass, Progress};
use extant_format::group_desc::GroupFlags;
use extant_format::inode::InodeFlags;
use extant_format::{Group, Ino, Pblk};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};

/// Inodes of the first group that are the file system's own, and in use at all times.
const OWN_INODES: u32 = 10;
/// Flags in an inode.
const FLAGS_AT: usize = 0x20;
/// Bytes of an inode table that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Space and inodes charged to an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Those of them that are symbolic links with the target as inline data, which e2fsck does not
    /// charge.
    pub(crate) inline_links: u64,
}

impl Usage {
    /// As e2fsck counts it.
    pub(crate) fn of_e2fsck(self) -> Self {
        Self {
            inodes: self.inodes.saturating_sub(self.inline_links),
            ..self
        }
    }

    /// Whether a quota file says this, as the kernel or as e2fsck counts it.
    pub(crate) fn is(self, bytes: u64, inodes: u64) -> bool {
        let either = [self.inodes, self.of_e2fsck().inodes];
        self.bytes == bytes && either.contains(&inodes)
    }
}

/// What was charged to users, groups and projects.
pub(crate) type Usages = [HashMap<u32, Usage>; 3];

/// An attribute block: how many inodes refer to it, and one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrReference {
    pub(crate) count: u32,
    pub(crate) ino: Ino,
}

/// What the pass over some groups gathered.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) sink: Sink,
    pub(crate) claims: Claims,
    pub(crate) tables: Vec<(u32, Box<[Summary]>)>,
    pub(crate) dirs: Vec<Ino>,
    /// Files with the flag of fs-verity.
    pub(crate) sealed: Vec<Ino>,
    pub(crate) xattr_blocks: HashMap<Pblk, XattrReference>,
    pub(crate) ea: EaReferences,
    pub(crate) policies: Policies,
    pub(crate) usages: Usages,
    pub(crate) totals: Totals,
    /// There is a file that is too large without the feature `large_file`.
    pub(crate) needs_large_file: bool,
    /// Claims of this group were given up: too many of them are double.
    pub(crate) abandoned: bool,
    /// Claims there were before this group.
    pub(crate) claimed_before: u64,
}

impl Scan {
    pub(crate) fn new() -> Self {
        Self {
            sink: Sink::new(),
            claims: Claims::default(),
            tables: Vec::new(),
            dirs: Vec::new(),
            sealed: Vec::new(),
            xattr_blocks: HashMap::new(),
            ea: EaReferences::default(),
            policies: Policies::default(),
            usages: Usages::default(),
            totals: Totals::default(),
            needs_large_file: false,
            abandoned: false,
            claimed_before: 0,
        }
    }

    fn absorb(mut self, other: Self) -> Self {
        self.sink.absorb(other.sink);
        self.claims.absorb(other.claims);
        self.tables.extend(other.tables);
        self.dirs.extend(other.dirs);
        self.sealed.extend(other.sealed);
        for (block, theirs) in other.xattr_blocks {
            self.refer_to_xattr_block(block, theirs);
        }
        self.ea.absorb(other.ea);
        self.policies.absorb(other.policies);
        for (to, from) in self.usages.iter_mut().zip(other.usages) {
            for (id, usage) in from {
                let sum = to.entry(id).or_default();
                sum.bytes = sum.bytes.saturating_add(usage.bytes);
                sum.inodes = sum.inodes.saturating_add(usage.inodes);
                sum.inline_links = sum.inline_links.saturating_add(usage.inline_links);
            }
        }
        self.needs_large_file |= other.needs_large_file;
        self.totals.inodes += other.totals.inodes;
        self.totals.directories += other.totals.directories;
        self.totals.fragmented += other.totals.fragmented;
        self
    }

    pub(crate) fn refer_to_xattr_block(&mut self, block: Pblk, more: XattrReference) {
        let known = self
            .xattr_blocks
            .entry(block)
            .or_insert(XattrReference { count: 0, ..more });
        known.count = known.count.saturating_add(more.count);
        known.ino = known.ino.min(more.ino);
    }
}

/// How many of a group's inodes have to be looked at.
pub(crate) fn inodes_to_look_at(volume: &Volume, group: u32) -> u32 {
    let Some(state) = volume.groups.get(group as usize) else {
        return 0;
    };
    let all = volume.geo.inodes_per_group();
    if !state.located {
        0
    } else if !state.trusted {
        all
    } else {
        let is_unused = state.desc.flags.contains(GroupFlags::INODE_UNINIT);
        // A count that cannot be is not believed.
        let used = if is_unused {
            0
        } else {
            all.checked_sub(state.desc.itable_unused).unwrap_or(all)
        };
        // Nor is that the file system's own inodes are not in use, the root directory among them.
        if group == 0 && used < OWN_INODES.min(all) {
            all
        } else {
            used
        }
    }
}

/// Looks at every inode.
pub(crate) fn run(
    volume: &Volume,
    orphans: &HashSet<Ino>,
    progress: &dyn Progress,
) -> Result<(Scan, InodeTable)> {
    let groups = volume.geo.groups_count();
    progress.begin(Pass::Inodes, groups.into());
    let checker = Checker::new(volume, orphans);
    let mut scan = (0..groups)
        .into_par_iter()
        .try_fold(Scan::new, |mut scan, group| {
            scan_group(&checker, group, &mut scan)?;
            progress.advance(1);
            Ok::<_, crate::Error>(scan)
        })
        .try_reduce(Scan::new, |a, b| Ok(a.absorb(b)))?;
    let mut table = InodeTable::new(groups, volume.geo.inodes_per_group());
    for (group, summaries) in std::mem::take(&mut scan.tables) {
        table.set(group, summaries);
    }
    scan.dirs.sort_unstable();
    scan.sealed.sort_unstable();
    scan.policies.sort();
    Ok((scan, table))
}

fn scan_group(checker: &Checker<'_>, group: u32, scan: &mut Scan) -> Result<()> {
    let volume = checker.volume;
    let count = inodes_to_look_at(volume, group);
    if count == 0 {
        return Ok(());
    }
    // By group, so that the verdict does not depend on how the groups are shared out.
    scan.abandoned = false;
    scan.claimed_before = scan.claims.total();
    let size = usize::from(volume.inode_size());
    let batch = (READ_BYTES / size).max(1);
    let mut summaries: Vec<Summary> = Vec::new();
    let mut buf = Vec::new();
    let mut index = 0;
    while index < count {
        let Ok(first) = volume.geo.inode_at(Group::new(group), index) else {
            break;
        };
        let Some(offset) = volume.inode_offset(first) else {
            break;
        };
        let together = (batch as u32).min(count - index);
        buf.resize(together as usize * size, 0);
        volume.read_bytes(offset, &mut buf)?;
        for (i, slot) in buf.chunks_exact(size).enumerate() {
            let ino = Ino::new(first.get() + i as u32);
            let summary = checker.inode(ino, slot, scan)?;
            if summary.is_in_use() {
                scan.totals.inodes += 1;
                summaries.resize((index as usize) + i, Summary::default());
                summaries.push(summary);
                if le32(slot, FLAGS_AT) & InodeFlags::VERITY.bits() != 0 {
                    scan.sealed.push(ino);
                }
                if summary.is_dir() {
                    scan.totals.directories += 1;
                    // What an orphan without links holds goes with it; it says nothing any more.
                    if !(summary.is_orphan() && summary.links == 0) {
                        scan.dirs.push(ino);
                    }
                }
            }
        }
        index += together;
    }
    if !summaries.is_empty() {
        scan.tables.push((group, summaries.into_boxed_slice()));
    }
    Ok(())
}
