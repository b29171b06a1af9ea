//! Images that exist as a plan: their metadata and data are made when they are read.
//!
//! | module | owns |
//! |---|---|
//! | `fixed` | where the metadata of the file system itself lies |
//! | `directories` | large directories that were made lately |
//!
//! # Invariants
//!
//! * What is read is what [`build`](crate::build) writes for the same source and options: both ask
//!   the same functions for each block.
//! * A file of the source is compared with what the scan saw before and after each read. What has
//!   changed is an error, never other bytes.
//! * Memory is that of the plan, and of directories with a bound. No data is held.

mod directories;
mod fixed;

use crate::image::{BuildError, BuildOptions, Planned, Report, pool};
use crate::layout::{Draft, PlanResult};
use crate::metadata::{FinalMetadata, block_bitmap, encode_descriptors, finish, inode_bitmap};
use crate::place::{Content, InOrder, Piece, Placement};
use crate::source::{NodeId, SourceError, Tree};
use crate::verity::{DmVerityError, FsVerityError};
use crate::write::{Filler, InodeEncoder, Part, WriteError, WriteResult, fill_slots};
use directories::Directories;
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult};
use extant_format::superblock::SUPERBLOCK_OFFSET;
use extant_format::{Ino, Pblk};
use extant_sync::{LockClass, Mutex, Rank};
use fixed::{Fixed, What};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::iter::Peekable;
use std::ops::Range;
use std::path::PathBuf;
use std::slice::Iter;

static TOLD: LockClass = LockClass::new("changed files told", Rank::Leaf);

/// What is called with the first error of each file of the source.
type Tell = Box<dyn Fn(&SourceError) + Send + Sync>;

/// An image of a directory or archive that exists as a plan. Its bytes are those that
/// [`build`](crate::build) would write with the same options; each is made when it is read. Data
/// comes from the files of the source, or from the archive, which must stay as they were: a file
/// that has changed or is gone cannot be read any more, and everything else can.
///
/// The device refuses writes. [`CowDevice`](extant_blockdev::CowDevice) takes them elsewhere.
pub struct PlannedDevice {
    tree: Tree,
    draft: Draft,
    placement: Placement,
    /// Inodes that are not of the source.
    records: BTreeMap<Ino, Vec<u8>>,
    /// The first number that is not in use.
    end_ino: u32,
    done: FinalMetadata,
    descriptors: Vec<u8>,
    /// In order of the device, as the pieces of the placement are.
    fixed: Vec<Fixed>,
    directories: Directories,
    /// Files whose errors were told, by number, and archives, by name.
    told: Mutex<BTreeSet<Result<u32, PathBuf>>>,
    tell: Tell,
    name: String,
    size: u64,
}

/// Blocks with a content.
#[derive(Clone, Copy)]
enum Span<'d> {
    Fixed(&'d Fixed),
    Piece(Piece),
}

/// Spans in order of the device.
struct Spans<'d> {
    fixed: Peekable<Iter<'d, Fixed>>,
    pieces: Peekable<InOrder<'d>>,
    block_bits: u32,
}

/// A block that could not be made: because of a file of the source, if it is one.
struct Unmade {
    node: Option<NodeId>,
    error: WriteError,
}

impl From<WriteError> for Unmade {
    fn from(error: WriteError) -> Self {
        Self { node: None, error }
    }
}

impl PlannedDevice {
    /// Plans an image of `tree`, as [`build`](crate::build) does. Every regular file of a directory
    /// is opened once for its flags.
    ///
    /// `name` is what errors call the device. `tell` is called with the first error of each file of
    /// the source that cannot be read as it was, from any thread that reads the device.
    ///
    /// # Errors
    /// [`BuildError`]: the source does not fit, cannot be read, or changed since it was scanned.
    pub fn new(
        tree: Tree,
        options: &BuildOptions,
        name: impl Into<String>,
        tell: impl Fn(&SourceError) + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        if options.dm_verity.is_some() {
            return Err(DmVerityError::Served.into());
        }
        if options.fs_verity.is_some() {
            return Err(FsVerityError::Served.into());
        }
        let threads = pool(options)?;
        let planned = threads.install(|| {
            tree.prove().map_err(WriteError::from)?;
            tree.settle_flags().map_err(WriteError::from)?;
            Planned::of_tree(&tree, options)
        });
        let (mut draft, placement) = planned?;
        let done = finish(&draft)?;
        let end_ino = placement.last_ino() + 1;
        let descriptors = encode_descriptors(draft.layout().geometry(), &done)?;
        Ok(Self {
            fixed: fixed::list(&draft, &done, end_ino)?,
            records: draft.take_records(),
            size: draft.layout().options().size,
            directories: Directories::new(),
            told: Mutex::new(&TOLD, BTreeSet::new()),
            tell: Box::new(tell),
            name: name.into(),
            tree,
            placement,
            end_ino,
            done,
            descriptors,
            draft,
        })
    }

    /// Returns what the image is.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new(&self.draft, &self.done)
    }

    fn block_bits(&self) -> u32 {
        self.placement.shape.block_size.log2()
    }

    /// The spans that end after byte `from`, in order.
    fn spans(&self, from: u64) -> Spans<'_> {
        let first = from >> self.block_bits();
        let fixed = self
            .fixed
            .partition_point(|fixed| fixed.pblk + u64::from(fixed.blocks) <= first);
        Spans {
            fixed: self.fixed[fixed..].iter().peekable(),
            pieces: self.placement.pieces_after(first).peekable(),
            block_bits: self.block_bits(),
        }
    }

    /// Fills `buf` with the bytes of a span from its byte `from` on. What is not of a file's data
    /// is made in whole blocks.
    fn make(&self, span: Span<'_>, from: u64, buf: &mut [u8]) -> Result<(), Unmade> {
        if let Span::Piece(Piece {
            content: Content::File { node, lblk },
            ..
        }) = span
        {
            let at = (u64::from(lblk) << self.block_bits()) + from;
            return self.read_file(node, at, buf);
        }
        if let Span::Piece(Piece {
            content: content @ Content::Directory { ino, lblk },
            blocks,
            ..
        }) = span
        {
            let len = (blocks as usize) << self.block_bits();
            let made = self.directories.get((ino, lblk), len, || {
                let mut bytes = vec![0; len];
                self.fill(content, blocks, &mut bytes).map(|()| bytes)
            })?;
            let from = from as usize;
            buf.copy_from_slice(&made[from..from + buf.len()]);
            return Ok(());
        }
        let bits = self.block_bits();
        let end = from + buf.len() as u64;
        let blocks = (from >> bits) as u32..end.div_ceil(1 << bits) as u32;
        let skip = (from - (u64::from(blocks.start) << bits)) as usize;
        if skip == 0 && buf.len() == blocks.len() << bits {
            return self.make_blocks(span, blocks, buf);
        }
        let mut whole = vec![0; blocks.len() << bits];
        self.make_blocks(span, blocks, &mut whole)?;
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(())
    }

    /// Fills `bytes` with these blocks of a span, counted from its first one.
    fn make_blocks(
        &self,
        span: Span<'_>,
        blocks: Range<u32>,
        bytes: &mut [u8],
    ) -> Result<(), Unmade> {
        match span {
            Span::Fixed(fixed) => Ok(self.make_fixed(fixed, blocks, bytes)?),
            Span::Piece(piece) if blocks.len() == piece.blocks as usize => {
                Ok(self.fill(piece.content, piece.blocks, bytes)?)
            }
            Span::Piece(piece) => {
                let bits = self.block_bits();
                let mut whole = vec![0; (piece.blocks as usize) << bits];
                self.fill(piece.content, piece.blocks, &mut whole)?;
                let from = (blocks.start as usize) << bits;
                bytes.copy_from_slice(&whole[from..from + bytes.len()]);
                Ok(())
            }
        }
    }

    /// Fills `bytes` as the builder does.
    fn fill(&self, content: Content, blocks: u32, bytes: &mut [u8]) -> WriteResult<()> {
        Filler::new(&self.tree, &self.placement).fill(&Part { blocks, content }, bytes)
    }

    /// Reads data of a file, if it is what it was before and after.
    fn read_file(&self, node: NodeId, at: u64, buf: &mut [u8]) -> Result<(), Unmade> {
        let read = self.tree.open(node).and_then(|file| {
            file.read_at(at, buf)?;
            file.check_unchanged()
        });
        let unmade = |node, error: SourceError| Unmade {
            node,
            error: error.into(),
        };
        // An archive that has changed is no place to look for the file's data.
        self.tree
            .check_archive_of(node)
            .map_err(|error| unmade(None, error))?;
        read.map_err(|error| unmade(Some(node), error))
    }

    fn make_fixed(&self, fixed: &Fixed, blocks: Range<u32>, bytes: &mut [u8]) -> WriteResult<()> {
        bytes.fill(0);
        let len = bytes.len();
        match fixed.what {
            What::Superblock(group) => {
                let block_len = self.placement.shape.block_size.len() as u64;
                let is_primary = group.get() == 0;
                let at = if is_primary {
                    (SUPERBLOCK_OFFSET % block_len) as usize
                } else {
                    0
                };
                let copy = self.done.superblock.encode_for_group(group);
                bytes[at..at + copy.len()].copy_from_slice(&copy);
            }
            What::Descriptors(first) => {
                let from = ((first + blocks.start) as usize) << self.block_bits();
                bytes.copy_from_slice(&self.descriptors[from..from + len]);
            }
            What::BlockBitmap(group) => planned(block_bitmap(&self.draft, group, bytes))?,
            What::InodeBitmap(group) => inode_bitmap(&self.draft, group, bytes),
            What::Table(group) => {
                let geometry = self.draft.layout().geometry();
                let (per_group, per_block) =
                    (geometry.inodes_per_group(), geometry.inodes_per_block());
                let first = group.get() * per_group + 1;
                let end = (first + per_group).min(self.end_ino);
                let from = first + blocks.start * per_block;
                let to = (first + blocks.end * per_block).min(end);
                self.make_table(from..to, bytes)?;
            }
            What::Kept => {
                let kept = self.draft.block(Pblk::new(fixed.pblk)).unwrap_or_default();
                let from = (blocks.start as usize) << self.block_bits();
                let kept = kept.get(from..).unwrap_or_default();
                let len = kept.len().min(len);
                bytes[..len].copy_from_slice(&kept[..len]);
            }
        }
        Ok(())
    }

    fn make_table(&self, inos: Range<u32>, bytes: &mut [u8]) -> WriteResult<()> {
        let encoder = InodeEncoder::new(&self.tree, &self.placement, &self.draft);
        let fixed = |ino: Ino, slot: &mut [u8]| {
            let Some(record) = self.records.get(&ino) else {
                return Ok(false);
            };
            slot[..record.len()].copy_from_slice(record);
            Ok(true)
        };
        fill_slots(
            &encoder,
            inos,
            self.placement.shape.inode_size,
            &fixed,
            bytes,
        )
    }

    /// Makes an error of what could not be made, and tells of it once for each file.
    fn failed(&self, offset: u64, len: usize, unmade: Unmade) -> DeviceError {
        let Unmade { node, error } = unmade;
        if let WriteError::Source(error) = &error {
            let key = match (node, error) {
                (Some(node), _) => Ok(node.index() as u32),
                (None, SourceError::Changed { path, .. } | SourceError::Io { path, .. }) => {
                    Err(path.clone())
                }
                (None, _) => Err(PathBuf::new()),
            };
            if self.told.lock().insert(key) {
                (self.tell)(error);
            }
        }
        DeviceError::Io {
            op: "read",
            device: self.name.clone(),
            offset,
            len: len as u64,
            source: io::Error::other(error.to_string()),
        }
    }
}

/// A number of the plan that does not fit the format.
fn planned(result: PlanResult<()>) -> WriteResult<()> {
    result.map_err(|error| {
        WriteError::Device(DeviceError::Refused {
            place: "the plan".to_owned(),
            reason: error.to_string(),
        })
    })
}

impl<'d> Iterator for Spans<'d> {
    /// A span, and its bytes on the device.
    type Item = (Span<'d>, Range<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        let is_fixed = match (self.fixed.peek(), self.pieces.peek()) {
            (Some(fixed), Some(piece)) => fixed.pblk < piece.pblk,
            (fixed, _) => fixed.is_some(),
        };
        let (span, pblk, blocks) = if is_fixed {
            let fixed = self.fixed.next()?;
            (Span::Fixed(fixed), fixed.pblk, fixed.blocks)
        } else {
            let piece = self.pieces.next()?;
            (Span::Piece(piece), piece.pblk, piece.blocks)
        };
        let range = pblk << self.block_bits..(pblk + u64::from(blocks)) << self.block_bits;
        Some((span, range))
    }
}

impl fmt::Debug for PlannedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedDevice")
            .field("name", &self.name)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for PlannedDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let end = offset + buf.len() as u64;
        // Up to there it is filled.
        let mut done = offset;
        for (span, range) in self.spans(offset) {
            let (from, to) = (range.start.max(offset), range.end.min(end));
            if from >= to {
                break;
            }
            buf[(done - offset) as usize..(from - offset) as usize].fill(0);
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            let len = part.len();
            self.make(span, from - range.start, part)
                .map_err(|unmade| self.failed(from, len, unmade))?;
            done = to;
        }
        buf[(done - offset) as usize..].fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)
    }

    /// Does nothing: there is nothing that could be lost.
    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn preferred_io(&self) -> u32 {
        self.placement.shape.block_size.bytes().max(4096)
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size);
        let mut found: Option<Range<u64>> = None;
        for (_, range) in self.spans(from) {
            let range = range.start.max(from)..range.end.min(end);
            if range.is_empty() {
                break;
            }
            match &mut found {
                Some(found) if found.end == range.start => found.end = range.end,
                Some(_) => break,
                None => found = Some(range),
            }
        }
        Ok(found)
    }
}
