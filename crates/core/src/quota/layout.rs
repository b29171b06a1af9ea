//! Where a quota file lies, and reading its blocks.

use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use crate::map::{Mapping, Target, runs_of};
use crate::{Error, Place, Result};
use extant_format::inode::InodeFlags;
use extant_format::quota::{BLOCK_LEN, QuotaBlock, QuotaBlocks};
use extant_format::{Expected, FormatError, Ino, Lblk, Pblk, Structure};

/// The runs of a quota file.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    ino: Ino,
    /// Its size in bytes.
    size: u64,
    /// All of it, ascending.
    runs: Vec<Mapping>,
}

impl Layout {
    /// # Errors
    /// [`Error::Corrupt`] when the inode is no file of ours or its map breaks the format;
    /// [`Error::Device`].
    pub(super) fn of(fs: &Fs, inode: &Inode) -> Result<Self> {
        let refuse = |field, found: u64, expected| {
            let error = FormatError::new(Structure::Quota, field, found, Expected::Said(expected));
            Error::corrupt(Place::Inode(inode.ino()), error)
        };
        if inode.file_type() != FileType::Regular {
            let found = u64::from(inode.disk().mode.bits());
            return Err(refuse("mode", found, "that of a regular file"));
        }
        let not_ours = InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA;
        if inode.flags().intersects(not_ours) {
            let found = u64::from(inode.flags().bits());
            return Err(refuse("flags", found, "neither encryption nor inline data"));
        }
        let blocks = fs.block_size().blocks_for(inode.size());
        Ok(Self {
            ino: inode.ino(),
            size: inode.size(),
            runs: runs_of(fs, inode, 0..blocks)?,
        })
    }

    pub(super) fn ino(&self) -> Ino {
        self.ino
    }

    /// Size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Its last block, if it has any.
    pub(super) fn last(&self) -> Option<Pblk> {
        let run = self.runs.last()?;
        let start = run.target.pblk()?;
        Some(Pblk::new(start.get() + run.len.saturating_sub(1)))
    }

    /// Refuses a file that has not all of its blocks, or others than its own: one that changes has
    /// to.
    pub(super) fn check_whole(&self, fs: &Fs) -> Result<()> {
        for run in &self.runs {
            let Target::Written(start) = run.target else {
                let expected = Expected::Said("of blocks that were written");
                let found = u64::from(run.lblk.get());
                let error = FormatError::new(Structure::Quota, "map", found, expected);
                return Err(Error::corrupt(Place::FileBlock(self.ino, run.lblk), error));
            };
            let mut left = run.len;
            let mut at = start.get();
            while left > 0 {
                let some = u32::try_from(left).unwrap_or(1 << 20);
                fs.alloc()?.check_in_use(Pblk::new(at), some)?;
                at = at.saturating_add(some.into());
                left -= u64::from(some);
            }
        }
        Ok(())
    }

    /// The file has more blocks: a run that follows the last one.
    pub(super) fn extend(&mut self, run: Mapping, size: u64) {
        self.runs.push(run);
        self.size = size;
    }

    /// Where the quota block is, and how far inside.
    pub(super) fn locate(&self, fs: &Fs, block: u32) -> (Option<Pblk>, usize) {
        let size = fs.block_size();
        let byte = u64::from(block) * BLOCK_LEN as u64;
        let lblk = byte >> size.log2();
        let inside = byte & (size.len() as u64 - 1);
        let after = self.runs.partition_point(|run| run.end() <= lblk);
        let pblk = self.runs.get(after).and_then(|run| {
            let step = lblk.checked_sub(run.lblk.get().into())?;
            match run.target.advanced(step) {
                Target::Written(pblk) => Some(pblk),
                Target::Unwritten(_) | Target::Hole => None,
            }
        });
        (pblk, inside as usize)
    }

    pub(super) fn place(&self, fs: &Fs, block: u32) -> Place {
        let byte = u64::from(block) * BLOCK_LEN as u64;
        let lblk = byte >> fs.block_size().log2();
        // A file has at most 2³² blocks of the smallest size, which is that of a quota file's.
        let lblk = u32::try_from(lblk).unwrap_or(u32::MAX);
        Place::FileBlock(self.ino, Lblk::new(lblk))
    }
}

/// The blocks of a quota file.
#[derive(Debug)]
pub(super) struct Blocks<'a> {
    fs: &'a Fs,
    layout: &'a Layout,
    /// The last one read: ids that lie near each other were often added together, to one leaf.
    last: Option<(u32, QuotaBlock)>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(fs: &'a Fs, layout: &'a Layout) -> Self {
        Self {
            fs,
            layout,
            last: None,
        }
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
        // What lies past the end of the file, or in a hole, is zeros.
        if let (Some(pblk), inside) = self.layout.locate(self.fs, block) {
            let whole = self.fs.cache().read(pblk)?;
            let part = whole.bytes().get(inside..inside + BLOCK_LEN);
            bytes.copy_from_slice(part.ok_or(Error::Internal("a block smaller than 1 KiB"))?);
        }
        self.last = Some((block, bytes));
        Ok(bytes)
    }

    fn corrupt(&self, block: u32, source: FormatError) -> Error {
        Error::corrupt(self.layout.place(self.fs, block), source)
    }
}
