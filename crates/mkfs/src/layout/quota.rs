//! Quota files: what users, groups and projects use of the file system to be.
//!
//! How many blocks a file takes depends on the ids in it alone, so it is reserved before anything
//! else has its place, and filled when everything has.

use super::{Draft, PlanResult};
use extant_format::features::{Feature, RoCompat};
use extant_format::inode::{FileType, Inode, InodeFlags};
use extant_format::quota::{
    BLOCK_LEN, Edit, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaInfo, QuotaKind,
};
use extant_format::{FormatError, Ino, Pblk};
use std::collections::BTreeMap;
use std::ops::Range;

/// What an id uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    bytes: u64,
    inodes: u64,
}

/// What users, groups and projects use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage([BTreeMap<u32, Used>; 3]);

impl Usage {
    /// Charges the user, the group and the project of a file with its space and its inodes.
    pub fn charge(&mut self, (uid, gid): (u32, u32), project: u32, bytes: u64, inodes: u64) {
        for (ids, id) in self.0.iter_mut().zip([uid, gid, project]) {
            let used = ids.entry(id).or_default();
            used.bytes += bytes;
            used.inodes += inodes;
        }
    }

    /// The bytes of the quota file of a kind.
    fn file(&self, kind: QuotaKind) -> PlanResult<Vec<u8>> {
        let mut nothing = Nothing;
        let mut edit = Edit::new(&mut nothing, QuotaInfo::empty(kind));
        // A file without entries has its root all the same.
        edit.touch_header()?;
        let ids = QuotaKind::ALL.into_iter().zip(&self.0);
        let ids = ids.filter(|(of, _)| *of == kind).flat_map(|(_, ids)| ids);
        for (id, used) in ids {
            edit.set(&QuotaEntry {
                inodes: used.inodes,
                space: used.bytes,
                ..QuotaEntry::of(*id)
            })?;
        }
        let (info, blocks) = edit.finish()?;
        let mut bytes = vec![0; info.file_len() as usize];
        for (number, block) in blocks {
            let at = number as usize * BLOCK_LEN;
            bytes[at..at + BLOCK_LEN].copy_from_slice(&block);
        }
        Ok(bytes)
    }
}

/// A file that has nothing yet.
struct Nothing;

impl QuotaBlocks for Nothing {
    type Error = FormatError;

    fn read(&mut self, _: u32) -> Result<QuotaBlock, FormatError> {
        Ok([0; BLOCK_LEN])
    }

    fn corrupt(&self, _: u32, source: FormatError) -> FormatError {
        source
    }
}

/// A quota file that has its blocks.
#[derive(Clone, Debug)]
pub(super) struct QuotaFile {
    kind: QuotaKind,
    runs: Vec<Range<u64>>,
}

impl Draft {
    /// Returns whether there are quota files.
    #[must_use]
    pub fn keeps_quotas(&self) -> bool {
        self.superblock()
            .features()
            .has(Feature::RoCompat(RoCompat::QUOTA))
    }

    /// What the directories of an empty file system use.
    pub(super) fn usage_of_directories(&self) -> PlanResult<Usage> {
        let mut usage = Usage::default();
        for ino in [Ino::ROOT, self.superblock().first_ino()] {
            let Some(slot) = self.slot(ino) else { continue };
            let inode = Inode::parse(slot, &self.layout().inode_context(ino))?;
            let bytes = inode.sectors(self.layout().geometry().block_size()) << 9;
            usage.charge((inode.uid, inode.gid), 0, bytes, 1);
        }
        Ok(usage)
    }

    /// Makes the quota files, with as many blocks as the ids of `usage` take, and with what these
    /// use.
    pub(super) fn add_quota_files(&mut self, usage: &Usage) -> PlanResult<()> {
        let kinds = self.layout().options().quota_kinds();
        let is_project = self.superblock().has_ro_compat(RoCompat::PROJECT);
        for (kind, on) in QuotaKind::ALL.into_iter().zip(kinds) {
            let is_made = on || kind == QuotaKind::Project && is_project;
            if !is_made {
                continue;
            }
            let ino = match kind {
                QuotaKind::User => Ino::USER_QUOTA,
                QuotaKind::Group => Ino::GROUP_QUOTA,
                QuotaKind::Project => self.new_inode(false)?,
            };
            let len = usage.file(kind)?.len() as u64;
            let blocks = self.layout().geometry().block_size().blocks_for(len);
            let runs = self.allocate("a quota file", Pblk::new(0), blocks)?;
            let mut inode = self.blank_inode(FileType::Regular, 0o600);
            inode.flags |= InodeFlags::NO_ATIME;
            self.finish_file(ino, Inode { size: len, ..inode }, &runs)?;
            self.change_superblock(|raw| {
                let place = match kind {
                    QuotaKind::User => &mut raw.usr_quota_inum,
                    QuotaKind::Group => &mut raw.grp_quota_inum,
                    QuotaKind::Project => &mut raw.prj_quota_inum,
                };
                place.set(ino.get());
            })?;
            self.quota_files.push(QuotaFile { kind, runs });
        }
        self.put_usage(usage)
    }

    /// Fills the quota files anew, with what the ids use for which they have room.
    ///
    /// # Errors
    /// There are more ids than the files were made for.
    pub fn put_usage(&mut self, usage: &Usage) -> PlanResult<()> {
        let block_len = self.layout().geometry().block_size().len();
        for file in std::mem::take(&mut self.quota_files) {
            let bytes = usage.file(file.kind)?;
            let mut content = bytes.chunks(block_len);
            for at in file.runs.iter().cloned().flatten() {
                let mut block = content.next().unwrap_or_default().to_vec();
                block.resize(block_len, 0);
                self.put_block(Pblk::new(at), block);
            }
            if content.next().is_some() {
                return Err(super::PlanError::NoSpace {
                    what: "a quota file",
                    needed: bytes.len().div_ceil(block_len) as u64,
                    free: file.runs.iter().map(|run| run.end - run.start).sum(),
                });
            }
            self.quota_files.push(file);
        }
        Ok(())
    }
}
