//! Reading a quota file.

use super::{Grace, Quota};
use crate::data::read_at;
use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use crate::{Error, InPlace, Place, Result};
use extant_format::inode::InodeFlags;
use extant_format::quota::{
    self, BLOCK_LEN, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaInfo, QuotaKind,
};
use extant_format::{Expected, FormatError, Lblk, Structure};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// A quota file, open.
#[derive(Debug)]
pub(crate) struct QuotaFile<'a> {
    info: QuotaInfo,
    blocks: Blocks<'a>,
}

impl<'a> QuotaFile<'a> {
    /// The file that counts this kind, if the file system has one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the inode is no file of ours or its header breaks the format; [`Error::Device`].
    pub(crate) fn open(fs: &'a Fs, kind: QuotaKind) -> Result<Option<Self>> {
        let [user, group, project] = fs.superblock().quota_inodes();
        let ino = match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
            QuotaKind::Project => project,
        };
        let Some(ino) = ino else { return Ok(None) };
        let inode = fs.inode(ino)?;
        let refuse = |field, found: u64, expected| {
            let error = FormatError::new(Structure::Quota, field, found, Expected::Said(expected));
            Error::corrupt(Place::Inode(ino), error)
        };
        if inode.file_type() != FileType::Regular {
            let found = u64::from(inode.disk().mode.bits());
            return Err(refuse("mode", found, "that of a regular file"));
        }
        if inode
            .flags()
            .intersects(InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA)
        {
            let found = u64::from(inode.flags().bits());
            return Err(refuse("flags", found, "neither encryption nor inline data"));
        }
        let mut blocks = Blocks {
            fs,
            inode,
            last: None,
        };
        let header = blocks.read(0)?;
        let info = QuotaInfo::parse(&header, kind, blocks.inode.size());
        let info = info.in_place(blocks.place(0))?;
        Ok(Some(Self { info, blocks }))
    }

    /// For how long soft limits may be exceeded.
    pub(crate) fn grace(&self) -> Grace {
        Grace {
            space: Duration::from_secs(self.info.space_grace.into()),
            inodes: Duration::from_secs(self.info.inode_grace.into()),
        }
    }

    /// What is said of `id`; where nothing is, nothing is in use and there are no limits.
    pub(crate) fn get(&mut self, id: u32) -> Result<Quota> {
        let entry = quota::find(&mut self.blocks, &self.info, id)?;
        Ok(entry.unwrap_or_else(|| QuotaEntry::of(id)).into())
    }

    /// Calls `visit` with what is said of every id, ascending.
    pub(crate) fn for_each(
        &mut self,
        visit: &mut dyn FnMut(Quota) -> ControlFlow<()>,
    ) -> Result<()> {
        quota::for_each(&mut self.blocks, &self.info, &mut |entry| {
            visit(Quota::from(*entry))
        })
    }
}

/// The blocks of a quota file.
#[derive(Debug)]
struct Blocks<'a> {
    fs: &'a Fs,
    inode: Arc<Inode>,
    /// The last one read: ids that lie near each other were often added together, to one leaf.
    last: Option<(u32, QuotaBlock)>,
}

impl Blocks<'_> {
    fn place(&self, block: u32) -> Place {
        let byte = u64::from(block) * BLOCK_LEN as u64;
        let lblk = byte >> self.fs.block_size().log2();
        // A file has at most 2³² blocks of the smallest size, which is that of a quota file's.
        let lblk = u32::try_from(lblk).unwrap_or(u32::MAX);
        Place::FileBlock(self.inode.ino(), Lblk::new(lblk))
    }
}

impl QuotaBlocks for Blocks<'_> {
    type Error = Error;

    fn read(&mut self, block: u32) -> Result<QuotaBlock> {
        if let Some((at, bytes)) = &self.last
            && *at == block
        {
            return Ok(*bytes);
        }
        let mut bytes = [0; BLOCK_LEN];
        let offset = u64::from(block) * BLOCK_LEN as u64;
        // What lies past the end of the file is read as a hole.
        read_at(self.fs, &self.inode, offset, &mut bytes)?;
        self.last = Some((block, bytes));
        Ok(bytes)
    }

    fn corrupt(&self, block: u32, source: FormatError) -> Error {
        Error::corrupt(self.place(block), source)
    }
}
