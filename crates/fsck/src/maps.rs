//! Walking the map of one inode: extent tree or indirect blocks.
//!
//! # Invariants
//! - What is handed on lies inside the file system, and the logical blocks of data runs ascend.
//! - A walk ends: nodes of extent trees lie in disjoint logical ranges and get shallower, an
//!   indirect block is followed once only, and after [`PROBLEMS_MAX`] problems the inode is given
//!   up.

use crate::error::Result;
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::checksum::Crc32c;
use extant_format::extent::{self, ExtentNode, NodeContext};
use extant_format::indirect::{self, DIRECT};
use extant_format::inode::{Inode, InodeFlags};
use extant_format::{FormatError, Ino, Lblk, Pblk, Structure};
use std::collections::HashSet;

/// Problems in one inode's map after which the rest of it is not looked at.
const PROBLEMS_MAX: u64 = 16;

/// A piece of an inode's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A block of the map itself.
    Node(Pblk),
    /// A run of data.
    Data(Run),
}

/// Blocks of a file that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) lblk: u32,
    pub(crate) len: u32,
    pub(crate) pblk: u64,
    pub(crate) unwritten: bool,
}

/// Walks the map of `inode`, handing its pieces to `each` and problems to `sink`.
pub(crate) fn walk(
    volume: &Volume,
    ino: Ino,
    inode: &Inode,
    sink: &mut Sink,
    each: &mut dyn FnMut(Piece),
) -> Result<()> {
    let mut walk = Walk {
        volume,
        place: Place::ino(ino),
        seed: volume.inode_seed(ino, inode),
        problems: sink.total(),
        gave_up: false,
        sink,
        each,
        seen: HashSet::new(),
        pending: None,
    };
    if inode.flags.contains(InodeFlags::EXTENTS) {
        walk.extents(inode)
    } else {
        walk.indirect(inode)?;
        walk.flush();
        Ok(())
    }
}

/// The data runs of an inode, in order, problems left out: for callers that only read what is
/// sound.
pub(crate) fn runs(volume: &Volume, ino: Ino, inode: &Inode) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut ignored = Sink::new();
    walk(volume, ino, inode, &mut ignored, &mut |piece| {
        if let Piece::Data(run) = piece {
            runs.push(run);
        }
    })?;
    Ok(runs)
}

struct Walk<'a> {
    volume: &'a Volume,
    place: Place,
    seed: Option<Crc32c>,
    sink: &'a mut Sink,
    /// Findings there were before this walk.
    problems: u64,
    gave_up: bool,
    each: &'a mut dyn FnMut(Piece),
    /// Indirect blocks that were followed.
    seen: HashSet<u32>,
    /// The last run of an indirect map, which may grow.
    pending: Option<Run>,
}

impl Walk<'_> {
    /// Gives up once there were too many problems, and says so. Returns whether the walk is over.
    fn give_up_if_hopeless(&mut self) -> bool {
        let problems = self.sink.total().saturating_sub(self.problems);
        if problems >= PROBLEMS_MAX && !self.gave_up {
            self.gave_up = true;
            self.sink.say(
                Code::MapAbandoned,
                self.place,
                "too many problems: the rest of its map was not looked at",
            );
        }
        self.gave_up
    }

    fn wrong(&mut self, block: Option<Pblk>, e: FormatError) {
        let code = match (e.structure, e.is_checksum()) {
            (Structure::IndirectBlock, _) => Code::IndirectPointer,
            (_, true) => Code::ExtentChecksum,
            _ => Code::ExtentNode,
        };
        let place = block.map_or(self.place, |block| self.place.at_block(block));
        self.sink.format(code, place, e);
    }

    fn extents(&mut self, inode: &Inode) -> Result<()> {
        let context = NodeContext::root(self.volume.physical());
        self.node(&inode.map, &context, None)
    }

    /// Looks at one node and all below it.
    fn node(&mut self, bytes: &[u8], context: &NodeContext, at: Option<Pblk>) -> Result<()> {
        let node = match ExtentNode::parse(bytes) {
            Ok(node) => node,
            Err(e) => {
                self.wrong(at, e);
                return Ok(());
            }
        };
        if let (Some(_), Some(seed)) = (at, self.seed)
            && let Err(e) = extent::verify_checksum(bytes, seed)
        {
            self.wrong(at, e);
        }
        let capacity = (bytes.len() / extent::ENTRY_BYTES - 1) as u64;
        let max = u64::from(node.header().max);
        if max + 2 < capacity {
            let place = at.map_or(self.place, |block| self.place.at_block(block));
            let what = "room for entries in an extent node";
            self.sink
                .number(Code::ExtentNode, place, what, max, capacity);
        }
        if let Err(e) = node.validate(context) {
            self.wrong(at, e);
            return Ok(());
        }
        if node.is_leaf() {
            for extent in node.extents() {
                (self.each)(Piece::Data(Run {
                    lblk: extent.lblk.get(),
                    len: extent.len,
                    pblk: extent.pblk.get(),
                    unwritten: extent.unwritten,
                }));
            }
            return Ok(());
        }
        let mut block = vec![0; self.volume.block_size().len()];
        for (i, entry) in node.index_entries().enumerate() {
            let Some(below) = node.child_context(i, context) else {
                continue;
            };
            if self.give_up_if_hopeless() {
                return Ok(());
            }
            (self.each)(Piece::Node(entry.child));
            self.volume.read(entry.child, &mut block)?;
            if let Ok(child) = ExtentNode::parse(&block)
                && let Some(first) = child.first_block(0)
                && first != entry.lblk
            {
                let place = self.place.at_block(entry.child);
                let (found, first) = (entry.lblk.get(), first.get());
                let what = "first block of an index entry";
                self.sink
                    .number(Code::ExtentIndexStart, place, what, found, first);
            }
            self.node(&block, &below, Some(entry.child))?;
        }
        Ok(())
    }

    fn indirect(&mut self, inode: &Inode) -> Result<()> {
        let pointers = indirect::root_pointers(&inode.map);
        let per_block = u64::from(indirect::pointers_per_block(self.volume.block_size()));
        let mut lblk = 0;
        for (i, &pointer) in pointers.iter().enumerate() {
            let level = (i as u32 + 1).saturating_sub(DIRECT);
            self.pointer(pointer, i, lblk, level, None)?;
            lblk += per_block.pow(level);
        }
        Ok(())
    }

    /// Follows one pointer; `level` is the number of indirect blocks on the way to data.
    fn pointer(
        &mut self,
        pointer: u32,
        at: usize,
        lblk: u64,
        level: u32,
        block: Option<Pblk>,
    ) -> Result<()> {
        let target = match indirect::check_pointer(pointer, at, &self.volume.physical()) {
            Ok(Some(target)) => target,
            Ok(None) => return Ok(()),
            Err(e) => {
                self.wrong(block, e);
                return Ok(());
            }
        };
        if level == 0 {
            self.data(lblk, target);
            return Ok(());
        }
        self.flush();
        (self.each)(Piece::Node(target));
        if !self.seen.insert(pointer) {
            self.sink.say(
                Code::IndirectPointer,
                self.place.at_block(target),
                "an indirect block is used twice in one map",
            );
            return Ok(());
        }
        let bytes = self.volume.block(target)?;
        let per_block = u64::from(indirect::pointers_per_block(self.volume.block_size()));
        let span = per_block.pow(level - 1);
        for (i, below) in indirect::pointers(&bytes).enumerate() {
            if below != 0 {
                self.pointer(below, i, lblk + i as u64 * span, level - 1, Some(target))?;
                if self.give_up_if_hopeless() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn data(&mut self, lblk: u64, block: Pblk) {
        let Ok(lblk) = u32::try_from(lblk) else {
            return;
        };
        if let Some(run) = &mut self.pending
            && u64::from(run.lblk) + u64::from(run.len) == u64::from(lblk)
            && run.pblk + u64::from(run.len) == block.get()
        {
            run.len += 1;
            return;
        }
        self.flush();
        self.pending = Some(Run {
            lblk,
            len: 1,
            pblk: block.get(),
            unwritten: false,
        });
    }

    fn flush(&mut self) {
        if let Some(run) = self.pending.take() {
            (self.each)(Piece::Data(run));
        }
    }
}

/// Reads a whole file of whole blocks through its runs, at most `limit` bytes of it; holes are
/// zeros.
pub(crate) fn read_file(volume: &Volume, ino: Ino, inode: &Inode, limit: usize) -> Result<Vec<u8>> {
    let size = u64::from(volume.block_size().bytes());
    let len = inode.size.min(limit as u64);
    let mut bytes = vec![0; len as usize];
    for run in runs(volume, ino, inode)? {
        // Beyond what a number of the host can count, where that has 32 bits.
        let start = u64::from(run.lblk) * size;
        if start >= len || run.unwritten {
            continue;
        }
        let end = len.min(start + u64::from(run.len) * size);
        if let Some(part) = bytes.get_mut(start as usize..end as usize) {
            volume.read(Pblk::new(run.pblk), part)?;
        }
    }
    Ok(bytes)
}

/// The block of the device that holds logical block `lblk`, if it is mapped and written.
pub(crate) fn lookup(runs: &[Run], lblk: u32) -> Option<Pblk> {
    let at = runs.partition_point(|run| run.lblk <= lblk);
    let run = runs.get(at.checked_sub(1)?)?;
    let offset = lblk - run.lblk;
    (offset < run.len && !run.unwritten).then(|| Pblk::new(run.pblk + u64::from(offset)))
}

/// The logical block of an [`Lblk`] place, for findings.
pub(crate) fn lblk(n: u64) -> Lblk {
    Lblk::new(u32::try_from(n).unwrap_or(u32::MAX))
}
