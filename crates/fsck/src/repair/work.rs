//! What all stages of a repair use: the survey, the draft, free space, and changing inodes and
//! blocks.

use super::draft::Draft;
use super::options::Options;
use super::space::Space;
use crate::error::Result;
use crate::survey::Survey;
use crate::volume::Volume;
use crate::{Code, Finding, Place};
use extant_format::inode::Inode;
use extant_format::superblock::Superblock;
use extant_format::{Ino, Pblk};
use std::collections::{BTreeMap, BTreeSet};

/// One round of a repair.
pub(super) struct Work<'a> {
    pub(super) survey: &'a Survey,
    pub(super) draft: &'a mut Draft,
    pub(super) space: Space,
    /// Seconds since 1970.
    pub(super) now: u32,
}

impl<'a> Work<'a> {
    pub(super) fn new(survey: &'a Survey, draft: &'a mut Draft, options: Options) -> Self {
        let space = Space::new()
            .besides(&draft.reserved().clusters)
            .apart_from(draft.in_use());
        Self {
            survey,
            space,
            draft,
            now: options.now,
        }
    }

    pub(super) fn volume(&self) -> &'a Volume {
        &self.survey.volume
    }

    /// When files are deleted that are: in a deleted inode a number up to that of inodes is read as
    /// the next orphan.
    pub(super) fn deletion_time(&self) -> u32 {
        let inodes = self.volume().geo.inodes_count();
        self.now.max(inodes.saturating_add(1))
    }

    /// Findings with one of these codes.
    pub(super) fn findings(&self, codes: &'static [Code]) -> impl Iterator<Item = &'a Finding> {
        let all = &self.survey.report.findings;
        all.iter().filter(|finding| codes.contains(&finding.code))
    }

    /// The inodes that findings with one of these codes are about, with those codes.
    pub(super) fn by_inode(&self, codes: &'static [Code]) -> BTreeMap<Ino, BTreeSet<Code>> {
        let mut found: BTreeMap<Ino, BTreeSet<Code>> = BTreeMap::new();
        for finding in self.findings(codes) {
            if let Some(ino) = finding.place.ino {
                found.entry(ino).or_default().insert(finding.code);
            }
        }
        found
    }

    pub(super) fn has(&self, code: Code) -> bool {
        self.survey.report.has(code)
    }

    pub(super) fn fix(&mut self, code: Code, place: Place, text: impl Into<String>) {
        self.draft.fix(code, place, text);
    }

    pub(super) fn put_block(&mut self, at: Pblk, bytes: &[u8]) -> Result<()> {
        let offset = self.volume().block_size().offset_of(at).unwrap_or(u64::MAX);
        self.draft.write(offset, bytes)
    }

    /// Whether a block belongs to the file whose map leads to it, and to no other. Others are not
    /// written: their content is also another file's, or the file system's own.
    pub(super) fn owns(&self, at: Pblk) -> bool {
        let cluster = self.volume().cluster_of(at.get());
        !self.survey.shared.contains(cluster) && !self.survey.over_fixed.contains(cluster)
    }

    /// Whether nothing else lies in a block of a fixed structure, neither another one nor what a
    /// map leads to. Only then is the structure written there.
    pub(super) fn is_alone(&self, at: Pblk) -> bool {
        let cluster = self.volume().cluster_of(at.get());
        !self.survey.contested.contains(at.get()) && !self.survey.over_fixed.contains(cluster)
    }

    /// A block for a new structure, zeroed; `None` when there is no room.
    pub(super) fn new_block(&mut self) -> Result<Option<Pblk>> {
        self.space.take(self.survey)
    }

    /// Changes an inode: `change` gets its fields, and the bytes of its slot for what the fields do
    /// not hold. What is left of the checksum is computed anew. Returns whether there is such an
    /// inode.
    pub(super) fn edit_inode(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut Inode, &mut [u8]),
    ) -> Result<bool> {
        let volume = self.volume();
        let Some((mut slot, mut inode)) = volume.inode(ino)? else {
            return Ok(false);
        };
        change(&mut inode, &mut slot);
        self.put_inode(ino, &inode, &mut slot)?;
        Ok(true)
    }

    pub(super) fn put_inode(&mut self, ino: Ino, inode: &Inode, slot: &mut [u8]) -> Result<()> {
        let volume = self.volume();
        inode.encode(slot, &volume.inode_context(ino))?;
        let offset = volume.inode_offset(ino).unwrap_or(u64::MAX);
        self.draft.write(offset, slot)
    }

    /// The primary superblock as it is now in the draft.
    pub(super) fn superblock(&self) -> Result<Superblock> {
        self.draft.superblock()
    }

    pub(super) fn put_superblock(&mut self, sb: &Superblock) -> Result<()> {
        self.draft.put_superblock(sb)
    }
}

/// Marks an inode as deleted: nothing is left of it.
pub(super) fn delete(inode: &mut Inode, now: u32) {
    inode.links = 0;
    inode.dtime = now;
}
