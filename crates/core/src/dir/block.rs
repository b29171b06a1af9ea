//! Reading directory blocks.

use super::state::DirState;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{self, Mapping, Runs, Target};
use crate::meta::BlockRef;
use crate::{Error, InPlace, Place, Result};
use extant_format::checksum::Crc32c;
use extant_format::dir::{DirLayout, EntryType, htree, verify_block_checksum};
use extant_format::features::Incompat;
use extant_format::inline_data::InlineDir;
use extant_format::inode::InodeFlags;
use extant_format::{Expected, FormatError, FormatResult, Ino, Lblk, Pblk, Structure};
use extant_sync::pin;
use std::ops::{ControlFlow, Range};

/// Most blocks that a listing reads ahead.
const READ_AHEAD: u64 = 64;
/// Most of them where several requests are under way at once.
const READ_FAR_AHEAD: u64 = 1024;

/// Bytes that a listing around the cache reads at once.
const AROUND_BYTES: u64 = 128 << 10;

/// A directory of no more blocks comes as a whole where a request is a message to a server.
const MOST_AT_ONCE: u64 = 32;
/// Bytes from the first of its blocks to the last that come with one request.
const MOST_BETWEEN: u64 = 384 << 10;

/// A directory that is being read: its inode, and how its entries are laid out.
pub(super) struct Directory<'a> {
    pub(super) fs: &'a Fs,
    pub(super) inode: &'a Inode,
    pub(super) layout: DirLayout,
    /// Whether indexes may have another level, and directories more bytes.
    pub(super) large_dir: bool,
    /// What is remembered about its blocks.
    state: Option<&'a DirState>,
    /// Whether what is found may be remembered: the lock of the index is held.
    still: bool,
}

impl<'a> Directory<'a> {
    /// Returns the directory of this inode.
    pub(super) fn new(fs: &'a Fs, inode: &'a Inode) -> Result<Self> {
        if !inode.is_dir() {
            return Err(Error::NotADirectory);
        }
        let superblock = fs.superblock();
        let encrypted = inode.is_encrypted();
        let layout = DirLayout {
            block_size: fs.block_size(),
            file_type: superblock.has_incompat(Incompat::FILETYPE),
            checksums: fs.checksum_seed().is_some(),
            hash_in_entry: encrypted && inode.flags().contains(InodeFlags::CASEFOLD),
            raw_names: encrypted,
            max_inode: Ino::new(superblock.inodes_count()),
        };
        let large_dir = superblock.has_incompat(Incompat::LARGEDIR);
        Ok(Self {
            fs,
            inode,
            layout,
            large_dir,
            state: None,
            still: false,
        })
    }

    /// Adds what is remembered about the directory. `still` says that the lock of its index is
    /// held.
    pub(super) fn with_state(mut self, state: Option<&'a DirState>, still: bool) -> Self {
        self.state = state;
        self.still = still;
        self
    }

    /// Returns where a block lies on the device; `None` for a hole.
    fn place(&self, lblk: Lblk) -> Result<Option<Pblk>> {
        if let Some(known) = self.state.and_then(|state| state.place(lblk)) {
            return Ok(Some(known));
        }
        let Target::Written(pblk) = map::lookup(self.fs, self.inode, lblk)?.target else {
            return Ok(None);
        };
        if let Some(state) = self.state.filter(|_| self.still) {
            state.note_place(lblk, pblk);
        }
        Ok(Some(pblk))
    }

    /// Tells whether names are compared without regard to case. Names that are encrypted as well
    /// cannot be.
    pub(super) fn is_casefolded(&self) -> bool {
        self.inode.flags().contains(InodeFlags::CASEFOLD) && !self.layout.raw_names
    }

    /// Tells whether the directory has an index.
    pub(super) fn is_indexed(&self) -> bool {
        self.inode.flags().contains(InodeFlags::INDEX)
    }

    /// Whole blocks the size spans.
    pub(super) fn blocks(&self) -> u64 {
        self.inode.size() >> self.fs.block_size().log2()
    }

    /// Returns the content of a directory that lies in its inode.
    pub(super) fn inline(&self) -> Result<InlineDir<'a>> {
        let data = self.fs.inline_data(self.inode)?;
        InlineDir::new(&data, self.layout.max_inode).in_place(Place::Inode(self.inode.ino()))
    }

    /// Returns a block of the directory, verified; `None` for a hole.
    pub(super) fn block(&self, lblk: Lblk) -> Result<Option<BlockRef>> {
        self.place(lblk)?
            .map(|pblk| self.block_at(lblk, pblk))
            .transpose()
    }

    /// Calls `read` with a block of the directory, verified; `None` for a hole. A block in memory
    /// is borrowed only, or locked where it is changed in place: `read` must not wait.
    pub(super) fn with_block<R>(
        &self,
        lblk: Lblk,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let Some(pblk) = self.place(lblk)? else {
            return Ok(None);
        };
        let guard = pin();
        if let Some(block) = self.fs.cache().peek(pblk, &guard)
            && block.is_verified(Structure::DirBlock, Some(self.inode.ino()))
        {
            return Ok(Some(read(&block)));
        }
        drop(guard);
        let read = match self.state.and_then(|state| state.leaf_if_any(lblk)) {
            Some(leaf) => match leaf.with_draft(read) {
                Ok(answer) => return Ok(Some(answer)),
                Err(read) => read,
            },
            None => read,
        };
        self.bring_all();
        let block = self.block_at(lblk, pblk)?;
        Ok(Some(read(&block)))
    }

    /// Brings a small directory into memory as a whole, where a request is a message to a server: a
    /// descent of its index would send one after the other. What lies between its blocks comes too
    /// where that makes it one request; only on a file system that does not change, since it may be
    /// file data. A hint.
    fn bring_all(&self) {
        if self.blocks() > MOST_AT_ONCE || !self.fs.device().is_served() {
            return;
        }
        let mut blocks = Vec::new();
        self.add_first_blocks(&mut blocks);
        let ends = blocks.iter().min().zip(blocks.iter().max());
        if let Some((first, last)) = ends
            && self.fs.journal().is_err()
        {
            let span = first.get()..last.get().saturating_add(1);
            if span.end - span.start <= MOST_BETWEEN >> self.fs.block_size().log2() {
                blocks = span.map(Pblk::new).collect();
            }
        }
        self.fs.cache().prefetch_all(blocks);
    }

    /// Returns the directory has no block where it must have one.
    pub(super) fn hole(&self, lblk: Lblk) -> Error {
        let expected = Expected::Said("a block of the directory, not a hole");
        let source = FormatError::new(Structure::DirBlock, "address", 0, expected);
        Error::corrupt(Place::FileBlock(self.inode.ino(), lblk), source)
    }

    /// Returns a block whose address is known already.
    fn block_at(&self, lblk: Lblk, pblk: Pblk) -> Result<BlockRef> {
        let place = Place::FileBlock(self.inode.ino(), lblk);
        let owner = Some(self.inode.ino());
        self.fs
            .metadata(pblk, place, Structure::DirBlock, owner, self.check())
    }

    /// Returns what makes a block a sound block of this directory: its checksum. Which form of
    /// checksum it has shows in the block itself.
    fn check(&self) -> impl FnOnce(&[u8]) -> FormatResult<()> + use<> {
        let layout = self.layout;
        let seed = self.inode.seed().filter(|_| layout.checksums);
        let indexed = self.is_indexed();
        move |bytes| match seed {
            None => Ok(()),
            Some(seed) => verify(bytes, &layout, indexed, seed),
        }
    }

    /// Calls `visit` with the blocks of a range that are not holes, in order, until it breaks;
    /// reads ahead.
    pub(super) fn for_each_block<B>(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(Lblk, &[u8]) -> Result<ControlFlow<B>>,
    ) -> Result<Option<B>> {
        let end = range.end.min(self.blocks());
        // A map can name a block over and over; a directory cannot have more of them than there
        // are.
        let mut budget = self.fs.geometry().blocks_count();
        // A lookup mostly ends early: the window grows with what was needed.
        let mut window = 4;
        let mut next = range.start.min(end);
        while next < end {
            let upto = (next + window).min(end);
            let runs: Vec<_> =
                Runs::over(self.fs, self.inode, next..upto).collect::<Result<_>>()?;
            self.read_ahead(&runs);
            for run in &runs {
                let Target::Written(first) = run.target else {
                    continue;
                };
                for i in 0..run.len {
                    budget = budget.checked_sub(1).ok_or_else(|| self.too_large())?;
                    let lblk = Lblk::new(run.lblk.get().saturating_add(i as u32));
                    let pblk = Pblk::new(first.get().saturating_add(i));
                    let block = self.block_at(lblk, pblk)?;
                    if let ControlFlow::Break(value) = visit(lblk, &block)? {
                        return Ok(Some(value));
                    }
                }
            }
            next = upto;
            // Holes, which cost nothing, may be as long as they like.
            window = match runs.as_slice() {
                [only] if only.target == Target::Hole => window.saturating_mul(16).min(1 << 32),
                _ if window < READ_AHEAD => window * 2,
                _ if self.fs.device().in_flight() > 1 => (window * 2).min(READ_FAR_AHEAD),
                _ => READ_AHEAD,
            };
        }
        Ok(None)
    }

    /// Calls `visit` with the blocks that are not holes, in order, until it breaks. They come by
    /// way of `memory`, around the cache: for a file system that does not change.
    pub(super) fn for_each_block_around<B>(
        &self,
        memory: &mut Vec<u8>,
        mut visit: impl FnMut(Lblk, &[u8]) -> Result<ControlFlow<B>>,
    ) -> Result<Option<B>> {
        let size = self.fs.block_size();
        let most = (AROUND_BYTES / u64::from(size.bytes())).max(1);
        // As in `for_each_block`.
        let mut budget = self.fs.geometry().blocks_count();
        for run in Runs::over(self.fs, self.inode, 0..self.blocks()) {
            let run = run?;
            let Target::Written(first) = run.target else {
                continue;
            };
            let mut at = 0;
            while at < run.len {
                let count = (run.len - at).min(most);
                budget = (budget.checked_sub(count)).ok_or_else(|| self.too_large())?;
                let from = Pblk::new(first.get().saturating_add(at));
                let is_read = self.read_around(from, count, memory);
                for i in 0..count {
                    let lblk = Lblk::new(run.lblk.get().saturating_add((at + i) as u32));
                    let pblk = Pblk::new(from.get().saturating_add(i));
                    let piece = i as usize * size.len()..(i as usize + 1) * size.len();
                    let flow = match memory.get(piece).filter(|_| is_read) {
                        Some(block) => {
                            let place = Place::FileBlock(self.inode.ino(), lblk);
                            self.check()(block).in_place(place)?;
                            visit(lblk, block)?
                        }
                        // Says which of them cannot be read, and why.
                        None => visit(lblk, &self.block_at(lblk, pblk)?)?,
                    };
                    if let ControlFlow::Break(value) = flow {
                        return Ok(Some(value));
                    }
                }
                at += count;
            }
        }
        Ok(None)
    }

    /// Reads blocks that follow each other. Returns `false` if not all of them can be read.
    fn read_around(&self, first: Pblk, count: u64, memory: &mut Vec<u8>) -> bool {
        let size = self.fs.block_size();
        let physical = self.fs.physical();
        let Some(offset) = size.offset_of(first) else {
            return false;
        };
        if first.get() < physical.start || first.get().saturating_add(count) > physical.end {
            return false;
        }
        let len = count as usize * size.len();
        if memory.len() < len {
            memory.resize(len, 0);
        }
        let memory = memory.get_mut(..len).unwrap_or_default();
        self.fs.device().read_at(offset, memory).is_ok()
    }

    /// Asks for the written blocks of `runs` before they are needed one by one.
    fn read_ahead(&self, runs: &[Mapping]) {
        // Otherwise it is one read at most.
        let is_more = runs.len() > 1 || runs.iter().any(|run| run.len > READ_AHEAD);
        if is_more && self.fs.device().in_flight() > 1 {
            let mut blocks = Vec::new();
            add_blocks(runs, &mut blocks);
            return self.fs.cache().prefetch_all(blocks);
        }
        for run in runs {
            let Target::Written(first) = run.target else {
                continue;
            };
            let end = first.get().saturating_add(run.len);
            let mut at = first.get();
            while at < end && run.len > 1 {
                self.fs
                    .prefetch_around(Pblk::new(at), READ_AHEAD as u32, first.get()..end);
                at = (at / READ_AHEAD + 1).saturating_mul(READ_AHEAD);
            }
        }
    }

    /// Asks for a range of blocks before they are needed one by one.
    pub(super) fn read_ahead_range(&self, range: Range<u64>) -> Result<()> {
        let runs: Vec<_> = Runs::over(self.fs, self.inode, range).collect::<Result<_>>()?;
        self.read_ahead(&runs);
        Ok(())
    }

    /// Adds where the first blocks lie that a listing reads, as far as that is known.
    pub(super) fn add_first_blocks(&self, blocks: &mut Vec<Pblk>) {
        if self.inode.is_inline() {
            return;
        }
        let first = 0..self.blocks().min(READ_AHEAD);
        for run in Runs::over(self.fs, self.inode, first) {
            let Ok(run) = run else { return };
            add_blocks(&[run], blocks);
        }
    }

    fn too_large(&self) -> Error {
        let most = self.fs.geometry().blocks_count();
        let expected = Expected::AtMost(most);
        let source = FormatError::new(Structure::Inode, "size in blocks", self.blocks(), expected);
        Error::corrupt(Place::Inode(self.inode.ino()), source)
    }
}

/// Adds the written blocks of runs, of which no more than are read ahead.
fn add_blocks(runs: &[Mapping], blocks: &mut Vec<Pblk>) {
    for run in runs {
        if let Target::Written(first) = run.target {
            let end = first.get().saturating_add(run.len.min(READ_FAR_AHEAD));
            blocks.extend((first.get()..end).map(Pblk::new));
        }
    }
}

/// Checks the checksum of a directory block, whatever kind of block its content says it is.
fn verify(bytes: &[u8], layout: &DirLayout, indexed: bool, seed: Crc32c) -> FormatResult<()> {
    if indexed && htree::is_root(bytes, layout) {
        htree::verify_root_checksum(bytes, seed)
    } else if indexed && htree::is_node(bytes, layout) {
        htree::verify_node_checksum(bytes, seed)
    } else {
        verify_block_checksum(bytes, seed)
    }
}

/// Returns the number of a block of a directory, which has no more than 2^32.
pub(super) fn block_number(at: u64) -> Result<Lblk> {
    u32::try_from(at)
        .map(Lblk::new)
        .map_err(|_| Error::FileTooLarge)
}

/// Returns what an entry says.
pub(super) fn found(ino: Ino, file_type: EntryType) -> super::Found {
    super::Found {
        ino,
        file_type: file_type.file_type(),
    }
}
