//! What is sound in the maps of inodes, and building maps anew.

use super::work::Work;
use crate::bitmaps;
use crate::error::Result;
use crate::maps::Run;
use crate::special;
use crate::survey::Survey;
use crate::volume::Volume;
use extant_format::bitmap;
use extant_format::extent::{self, Entries, Extent, ExtentNode, IndexEntry};
use extant_format::inode::{Inode, InodeFlags, MAP_BYTES};
use extant_format::{Group, Ino, Lblk, Pblk, indirect};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// So many extents behind one tell whether its length is wrong.
const LOOKED_AT: usize = 8;

/// The data runs that can still be made out in a map, ascending and inside the file system. What a
/// reader of the map as it is finds comes first; what else is in it fills the gaps: first what lies
/// where the nodes above say.
pub(super) fn salvage(volume: &Volume, ino: Ino, inode: &Inode) -> Result<Vec<Run>> {
    salvage_with(volume, None, ino, inode)
}

/// As [`salvage`]. Where the length of a run is what is wrong, it ends at the first block that is
/// free or that others claim.
pub(super) fn salvage_beside(survey: &Survey, ino: Ino, inode: &Inode) -> Result<Vec<Run>> {
    salvage_with(&survey.volume, Some(Taken::new(survey)), ino, inode)
}

fn salvage_with(
    volume: &Volume,
    taken: Option<Taken<'_>>,
    ino: Ino,
    inode: &Inode,
) -> Result<Vec<Run>> {
    let readable = crate::maps::runs(volume, ino, inode)?;
    if !inode.flags.contains(InodeFlags::EXTENTS) {
        return Ok(readable);
    }
    let end = inode.size.div_ceil(volume.block_size().bytes().into());
    let mut salvage = Salvage {
        volume,
        taken,
        end,
        runs: BTreeMap::new(),
        too_long: Vec::new(),
        astray: Vec::new(),
        seen: HashSet::new(),
    };
    for run in readable {
        salvage.take(run);
    }
    salvage.node(&inode.map, extent::MAX_DEPTH, 0..extent::LBLK_END)?;
    for run in std::mem::take(&mut salvage.too_long) {
        salvage.take_part(run)?;
    }
    // What lies astray and behind the end of the file is no part of it that anybody has missed.
    for run in std::mem::take(&mut salvage.astray) {
        if u64::from(run.lblk) + u64::from(run.len) <= end {
            salvage.take(run);
        }
    }
    Ok(salvage.runs.into_values().collect())
}

struct Salvage<'a> {
    volume: &'a Volume,
    /// What else is known of blocks, where that is asked.
    taken: Option<Taken<'a>>,
    /// How many blocks the size of the file says there are.
    end: u64,
    /// By their first logical block; none overlaps another.
    runs: BTreeMap<u32, Run>,
    /// What begins where the nodes above say, and ends behind that.
    too_long: Vec<Run>,
    /// What lies elsewhere than the nodes above say.
    astray: Vec<Run>,
    seen: HashSet<Pblk>,
}

impl Salvage<'_> {
    /// Takes what a node maps of the logical blocks in `range`, which is what leads to it.
    fn node(&mut self, bytes: &[u8], deepest: u16, range: Range<u64>) -> Result<()> {
        let Ok(node) = ExtentNode::parse(bytes) else {
            return Ok(());
        };
        let depth = node.header().depth;
        if depth > deepest {
            return Ok(());
        }
        if node.is_leaf() {
            let extents: Vec<Extent> = node.extents().collect();
            let mut rest = &extents[..];
            while let Some((extent, after)) = rest.split_first() {
                let len = self.len_of(extent, after)?;
                self.extent(&Extent { len, ..*extent }, &range);
                rest = after;
            }
            return Ok(());
        }
        let entries: Vec<IndexEntry> = node.index_entries().collect();
        for (i, entry) in entries.iter().enumerate() {
            let physical = self.volume.physical();
            if physical.contains(&entry.child.get()) && self.seen.insert(entry.child) {
                let child = self.volume.block(entry.child)?;
                let start = u64::from(entry.lblk.get());
                let next = entries.get(i + 1).map(|next| u64::from(next.lblk.get()));
                // An entry out of order says nothing about where the one before it ends.
                let end = next.filter(|next| *next > start).unwrap_or(range.end);
                let below = start.max(range.start)..end.min(range.end);
                self.node(&child, depth - 1, below)?;
            }
        }
        Ok(())
    }

    /// How many blocks an extent maps that is followed by others in its node. Where its length is
    /// what is wrong, it ends where the next of them begins, in the file or on the device.
    fn len_of(&mut self, extent: &Extent, after: &[Extent]) -> Result<u32> {
        let physical = self.volume.physical();
        let (first, own) = (extent.lblk.get(), extent.pblk.get());
        let own_end = own.saturating_add(extent.len.into());
        let mut covered = 0;
        // In blocks from its first one.
        let (mut next, mut shared) = (extent.len, u64::MAX);
        for other in after.iter().take(LOOKED_AT) {
            let (start, block) = (other.lblk.get(), other.pblk.get());
            if other.len == 0 || !physical.contains(&block) {
                continue;
            }
            if start > first && u64::from(start) < extent.end() {
                covered += 1;
                next = next.min(start - first);
            }
            if block > own && block < own_end {
                shared = shared.min(block - own);
            }
        }
        // One extent alone that begins inside this one may be what is wrong.
        let end = u64::from(first) + u64::from(next);
        let is_too_long = covered > 1
            || covered == 1
                && (shared < u64::MAX
                    || own_end > physical.end
                    || extent.end() > self.end && end <= self.end);
        if is_too_long {
            self.own_len(own, u64::from(next).min(shared) as u32)
        } else {
            Ok(extent.len)
        }
    }

    /// How many of the blocks from `first` on are the file's own: behind them is what is free, or
    /// what others claim.
    fn own_len(&mut self, first: u64, len: u32) -> Result<u32> {
        match &mut self.taken {
            Some(taken) => taken.own_len(first, len),
            None => Ok(len),
        }
    }

    fn extent(&mut self, extent: &Extent, range: &Range<u64>) {
        let physical = self.volume.physical();
        let last = extent.pblk.get().saturating_add(extent.len.into());
        let is_sound = extent.len > 0
            && extent.end() <= extent::LBLK_END
            && physical.contains(&extent.pblk.get())
            && last <= physical.end;
        if !is_sound {
            return;
        }
        let run = Run {
            lblk: extent.lblk.get(),
            len: extent.len,
            pblk: extent.pblk.get(),
            unwritten: extent.unwritten,
        };
        if !range.contains(&run.lblk.into()) {
            self.astray.push(run)
        } else if extent.end() > range.end {
            self.too_long.push(run)
        } else {
            self.take(run)
        }
    }

    /// Takes what is in a run of the file, up to what is there already.
    fn take_part(&mut self, run: Run) -> Result<()> {
        let next = self.runs.range(run.lblk..).next();
        let next = next.map_or(self.end, |(start, _)| self.end.min((*start).into()));
        let room = next.saturating_sub(run.lblk.into());
        let len = u64::from(run.len).min(room) as u32;
        if len > 0 {
            let len = self.own_len(run.pblk, len)?;
            self.take(Run { len, ..run });
        }
        Ok(())
    }

    /// Takes a run where nothing is yet.
    fn take(&mut self, run: Run) {
        let end = |run: &Run| u64::from(run.lblk) + u64::from(run.len);
        let most = u32::try_from(end(&run).saturating_sub(1)).unwrap_or(u32::MAX);
        let last = self.runs.range(..=most).next_back();
        if last.is_none_or(|(_, last)| end(last) <= run.lblk.into()) {
            self.runs.insert(run.lblk, run);
        }
    }
}

/// Which blocks are in use, as bitmaps say and as others claim them. A map that is broken claims
/// nothing itself.
struct Taken<'a> {
    survey: &'a Survey,
    /// By group; `None` where there is no bitmap to believe.
    bitmaps: BTreeMap<Group, Option<Vec<u8>>>,
}

impl<'a> Taken<'a> {
    fn new(survey: &'a Survey) -> Self {
        Self {
            survey,
            bitmaps: BTreeMap::new(),
        }
    }

    /// How many of `len` blocks in a row are of what has the first of them.
    fn own_len(&mut self, first: u64, len: u32) -> Result<u32> {
        // A bitmap without the first of them says nothing of the others.
        let is_known = self.is_marked(first)? == Some(true);
        for i in 1..len {
            let block = first + u64::from(i);
            let cluster = self.survey.volume.cluster_of(block);
            let is_of_others = self.survey.used.contains(cluster);
            if is_of_others || is_known && self.is_marked(block)? == Some(false) {
                return Ok(i);
            }
        }
        Ok(len)
    }

    /// Whether the bitmap of its group has a block.
    fn is_marked(&mut self, block: u64) -> Result<Option<bool>> {
        let volume = &self.survey.volume;
        let per_group = u64::from(volume.geo.clusters_per_group());
        let cluster = volume.cluster_of(block);
        let group = Group::new((cluster / per_group) as u32);
        let bits = match self.bitmaps.entry(group) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(bitmaps::believed(volume, group)?),
        };
        let bit = (cluster % per_group) as u32;
        Ok(bits.as_ref().map(|bits| bitmap::test(bits, bit)))
    }
}

/// Builds a map of the form an inode's flags say, with nodes in new blocks.
pub(super) struct Builder<'w, 'a> {
    work: &'w mut Work<'a>,
    ino: Ino,
    generation: u32,
    runs: &'w [Run],
    /// There was no room for a node.
    full: bool,
}

impl Builder<'_, '_> {
    /// Gives an inode the map that `runs` say. Returns whether there was room for its nodes; if
    /// not, nothing of the inode has changed.
    pub(super) fn rebuild(work: &mut Work<'_>, ino: Ino, runs: &[Run]) -> Result<bool> {
        let Some((mut slot, mut inode)) = work.volume().inode(ino)? else {
            return Ok(false);
        };
        let mut builder = Builder {
            work,
            ino,
            generation: inode.generation,
            runs,
            full: false,
        };
        let map = if inode.flags.contains(InodeFlags::EXTENTS) {
            builder.extents()?
        } else {
            builder.indirect()?
        };
        if builder.full {
            return Ok(false);
        }
        inode.map = map;
        work.put_inode(ino, &inode, &mut slot)?;
        Ok(true)
    }

    fn block(&mut self) -> Result<Pblk> {
        let block = self.work.new_block()?;
        self.full |= block.is_none();
        Ok(block.unwrap_or(Pblk::new(0)))
    }

    fn extents(&mut self) -> Result<[u8; MAP_BYTES]> {
        let leaves = extents_of(self.runs);
        let mut root = [0; MAP_BYTES];
        let capacity = usize::from(extent::block_capacity(self.work.volume().block_size()));
        let most = usize::from(extent::ROOT_CAPACITY);
        if leaves.len() <= most {
            extent::build_node(&mut root, Entries::Extents(&leaves))?;
            return Ok(root);
        }
        let mut level = Vec::new();
        for some in leaves.chunks(capacity) {
            let first = some.first().map_or(Lblk::new(0), |extent| extent.lblk);
            level.push(self.node(first, Entries::Extents(some))?);
        }
        let mut depth = 1;
        while level.len() > most {
            let mut above = Vec::new();
            for some in level.chunks(capacity) {
                let first = some.first().map_or(Lblk::new(0), |entry| entry.lblk);
                above.push(self.node(first, Entries::Index(depth, some))?);
            }
            level = above;
            depth += 1;
        }
        extent::build_node(&mut root, Entries::Index(depth, &level))?;
        Ok(root)
    }

    fn node(&mut self, lblk: Lblk, entries: Entries<'_>) -> Result<IndexEntry> {
        let volume = self.work.volume();
        let child = self.block()?;
        let mut bytes = vec![0; volume.block_size().len()];
        extent::build_node(&mut bytes, entries)?;
        let context = volume.inode_context(self.ino);
        if let Some(seed) = context.inode_seed(self.generation) {
            extent::store_checksum(&mut bytes, seed)?;
        }
        if !self.full {
            self.work.put_block(child, &bytes)?;
        }
        Ok(IndexEntry { lblk, child })
    }

    fn indirect(&mut self) -> Result<[u8; MAP_BYTES]> {
        let per_block = u64::from(indirect::pointers_per_block(
            self.work.volume().block_size(),
        ));
        let mut root = [0; indirect::ROOT_POINTERS];
        let mut lblk = 0;
        for (i, pointer) in root.iter_mut().enumerate() {
            let level = (i as u32 + 1).saturating_sub(indirect::DIRECT);
            *pointer = self.pointer(level, lblk, per_block)?;
            lblk += per_block.pow(level);
        }
        Ok(indirect::encode_root(&root))
    }

    /// The pointer to what maps the blocks from `lblk` on, `level` indirect blocks above them; 0
    /// for a hole.
    fn pointer(&mut self, level: u32, lblk: u64, per_block: u64) -> Result<u32> {
        let span = per_block.pow(level);
        let Some(run) = first_run_in(self.runs, lblk..lblk + span) else {
            return Ok(0);
        };
        if level == 0 {
            let block = run.pblk + (lblk - u64::from(run.lblk));
            return Ok(block as u32);
        }
        let mut pointers = Vec::new();
        for i in 0..per_block {
            let below = self.pointer(level - 1, lblk + i * (span / per_block), per_block)?;
            pointers.push(below);
        }
        let mut bytes = vec![0; self.work.volume().block_size().len()];
        indirect::encode_pointers(&mut bytes, &pointers);
        let block = self.block()?;
        if !self.full {
            self.work.put_block(block, &bytes)?;
        }
        Ok(block.get() as u32)
    }
}

fn first_run_in(runs: &[Run], range: Range<u64>) -> Option<Run> {
    let end = |run: &Run| u64::from(run.lblk) + u64::from(run.len);
    let at = runs.partition_point(|run| end(run) <= range.start);
    let run = runs.get(at)?;
    (u64::from(run.lblk) < range.end).then_some(*run)
}

/// Runs as extents: joined where they touch, cut where they are too long for one.
fn extents_of(runs: &[Run]) -> Vec<Extent> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last)
                if last.unwritten == run.unwritten
                    && last.lblk + last.len == run.lblk
                    && last.pblk + u64::from(last.len) == run.pblk =>
            {
                last.len += run.len;
            }
            _ => joined.push(*run),
        }
    }
    let mut extents = Vec::new();
    for run in joined {
        let most = if run.unwritten {
            extent::MAX_UNWRITTEN_LEN
        } else {
            extent::MAX_WRITTEN_LEN
        };
        let mut done = 0;
        while done < run.len {
            let len = most.min(run.len - done);
            extents.push(Extent {
                lblk: Lblk::new(run.lblk + done),
                len,
                pblk: Pblk::new(run.pblk + u64::from(done)),
                unwritten: run.unwritten,
            });
            done += len;
        }
    }
    extents
}

/// Whether an inode's map leads to blocks, as the scan sees it.
pub(super) fn is_mapped(volume: &Volume, ino: Ino, inode: &Inode) -> bool {
    let inline = inode.flags.contains(InodeFlags::INLINE_DATA)
        && volume.has_incompat(extant_format::features::Incompat::INLINE_DATA);
    let by_type = inode
        .file_type()
        .is_some_and(|file_type| special::has_map(volume, inode, file_type));
    (ino == Ino::BAD_BLOCKS || by_type) && !inline
}
