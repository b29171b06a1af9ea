//! One file before and after: type, owner, content, target, attributes.

use super::loss::Lost;
use super::view::{Map, Seen, View};
use crate::error::Result;
use crate::maps::Run;
use crate::special;
use crate::volume::Volume;
use extant_format::inode::{FileType, InodeFlags, MAP_BYTES, Mode};
use extant_format::{Ino, Pblk};
use std::ops::Range;

/// Blocks that are compared at once, in bytes.
const READ_BYTES: u64 = 256 << 10;

/// Blocks that change, as ascending runs that do not touch.
#[derive(Default)]
pub(super) struct Changed(Vec<Range<u64>>);

impl Changed {
    /// Takes note of a block behind all before it.
    pub(super) fn push(&mut self, block: u64) {
        match self.0.last_mut() {
            Some(last) if last.end == block => last.end += 1,
            _ => self.0.push(block..block + 1),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn touch(&self, blocks: &Range<u64>) -> bool {
        let at = self.0.partition_point(|run| run.end <= blocks.start);
        self.0.get(at).is_some_and(|run| run.start < blocks.end)
    }
}

/// The two sides.
pub(super) struct Sides<'a> {
    pub(super) before: &'a View,
    pub(super) after: &'a View,
    pub(super) changed: &'a Changed,
}

impl Sides<'_> {
    /// The first thing that a readable inode would lose. Names are not looked at here.
    pub(super) fn compare(&self, old: &Seen) -> Result<Option<Lost>> {
        let Some(new) = self.after.inode(old.ino)? else {
            return Ok(Some(Lost::Inode));
        };
        let type_changes = new.file_type != old.file_type;
        if old.file_type == FileType::Symlink {
            let target = self.before.target(old)?;
            let is_file = type_changes
                && target
                    .as_ref()
                    .is_some_and(|t| is_short_in_block(&self.before.volume, old, t));
            if target.is_none() || is_file {
                return self.doubtful_link(old, &new);
            }
        }
        self.same_inode(old, &new)
    }

    /// The first thing that a symbolic link would lose that may be a file: one without a target
    /// that can be read has nothing to lose, unless its map is that of a file or a directory, which
    /// it may become again.
    fn doubtful_link(&self, old: &Seen, new: &Seen) -> Result<Option<Lost>> {
        let is_file = self.before.is_file_called_link(old)?;
        let type_is_kept = match new.file_type {
            FileType::Symlink => !is_file || self.after.is_file_called_link(new)?,
            FileType::Regular | FileType::Directory => true,
            _ => false,
        };
        if !type_is_kept {
            return Ok(Some(Lost::Type));
        }
        let mut file = old.clone();
        file.inode.mode = Mode::new(new.file_type, old.inode.mode.permissions());
        file.file_type = new.file_type;
        if new.file_type == FileType::Directory && !self.before.begins_as_directory(&file)? {
            return Ok(Some(Lost::Type));
        }
        self.same_inode(&file, new)
    }

    fn same_inode(&self, old: &Seen, new: &Seen) -> Result<Option<Lost>> {
        if new.file_type != old.file_type {
            return Ok((!self.may_be_retyped(old, new)?).then_some(Lost::Type));
        }
        let (a, b) = (&old.inode, &new.inode);
        let owner =
            a.mode.permissions() == b.mode.permissions() && (a.uid, a.gid) == (b.uid, b.gid);
        let device = !old.file_type.is_device() || a.device() == b.device();
        if !owner || !device {
            return Ok(Some(Lost::Owner));
        }
        let lost = match old.file_type {
            FileType::Regular => self.content(old, new)?,
            FileType::Symlink => match self.before.target(old)? {
                Some(target) if self.after.target(new)?.as_ref() != Some(&target) => {
                    Some(Lost::Target)
                }
                _ => None,
            },
            _ => None,
        };
        if lost.is_some() {
            return Ok(lost);
        }
        let kept = self.after.attributes(new)?;
        let attributes = self.before.attributes(old)?;
        let mut gone = attributes
            .iter()
            .filter(|(name, value)| kept.get(*name) != Some(*value));
        let first = gone.next();
        Ok(first.map(|((index, suffix), _)| Lost::attribute(*index, suffix)))
    }

    /// Whether another type says more of the content: a file whose content is that of a directory,
    /// or a directory that has none. The root can be nothing else than a directory.
    fn may_be_retyped(&self, old: &Seen, new: &Seen) -> Result<bool> {
        let to_dir = new.file_type == FileType::Directory;
        let from_dir = old.file_type == FileType::Directory;
        let is_root = old.ino == Ino::ROOT;
        Ok(
            (to_dir && (is_root || self.before.begins_as_directory(old)?))
                || (from_dir && !self.before.names(old, &mut |_, _| {})?),
        )
    }

    fn content(&self, old: &Seen, new: &Seen) -> Result<Option<Lost>> {
        let most = self.before.volume.rules.largest_size(&old.inode);
        // Nothing reads a file whose size cannot be: what is mapped says how long it is.
        let is_possible = old.is_inline || old.inode.size <= most;
        let is_cut = new.inode.size < old.inode.size;
        if is_cut && (is_possible || self.holds_more(old, new.inode.size)?) {
            return Ok(Some(Lost::Size(new.inode.size)));
        }
        let size = if is_possible {
            old.inode.size
        } else {
            most.min(new.inode.size)
        };
        let differs = match (old.is_inline, new.is_inline) {
            (false, false) => {
                // Behind the end of these is what proves the content.
                let verity = old.inode.flags.contains(InodeFlags::VERITY);
                let end = if verity { u64::MAX } else { size };
                self.mapped(&self.before.map(old)?, &self.after.map(new)?, end)?
            }
            (true, true) => {
                let mut bytes = self.before.inline_bytes(old);
                let mut theirs = self.after.inline_bytes(new);
                // What is not stored reads as zeros.
                let stored = bytes.len().max(theirs.len());
                let len = usize::try_from(size).unwrap_or(usize::MAX).min(stored);
                bytes.resize(len, 0);
                theirs.resize(len, 0);
                first_difference(&bytes, &theirs)
            }
            (true, false) => {
                let bytes = self.before.inline_bytes(old);
                let map = self.after.map(new)?;
                let found = self.runs_unlike(self.after, &map, &bytes, size)?;
                lower(found, self.holes_unlike(&map, &bytes, size))
            }
            (false, true) => {
                let bytes = self.after.inline_bytes(new);
                let map = self.before.map(old)?;
                let found = self.runs_unlike(self.before, &map, &bytes, size)?;
                // What could not be read may be seen again.
                let holes = map.is_sound.then(|| self.holes_unlike(&map, &bytes, size));
                lower(found, holes.flatten())
            }
        };
        Ok(differs.map(Lost::Content))
    }

    /// Whether anything but zeros is mapped from byte `from` of a file on.
    fn holds_more(&self, seen: &Seen, from: u64) -> Result<bool> {
        let first = from >> self.before.volume.block_size().log2();
        let map = self.before.map(seen)?;
        for run in map.runs.iter().filter(|run| !run.unwritten) {
            let mut parts = Vec::new();
            let blocks = run.pblk..run.pblk + u64::from(run.len);
            self.before.content_of(blocks, &mut |part| parts.push(part));
            for part in parts {
                let lblk = u64::from(run.lblk) + (part.start - run.pblk);
                let before = first.saturating_sub(lblk).min(part.end - part.start);
                let mut done = before;
                while done < part.end - part.start {
                    let together = self.together(part.end - part.start - done);
                    let at = Some(part.start + done);
                    let bytes = self.read_blocks(self.before, at, together)?;
                    let behind = from.saturating_sub(self.byte_of(lblk + done));
                    let behind = usize::try_from(behind).unwrap_or(usize::MAX);
                    let rest = bytes.get(behind..).unwrap_or_default();
                    if rest.iter().any(|byte| *byte != 0) {
                        return Ok(true);
                    }
                    done += together;
                }
            }
        }
        Ok(false)
    }

    /// The first byte before `end` that a map leads to and that is not as in `bytes`, behind whose
    /// end are zeros.
    fn runs_unlike(&self, view: &View, map: &Map, bytes: &[u8], end: u64) -> Result<Option<u64>> {
        for run in map.runs.iter().filter(|run| !run.unwritten) {
            let mut parts = Vec::new();
            let blocks = run.pblk..run.pblk + u64::from(run.len);
            view.content_of(blocks, &mut |part| parts.push(part));
            for part in parts {
                let lblk = u64::from(run.lblk) + (part.start - run.pblk);
                if let Some(byte) = self.unlike(view, lblk, part, bytes, end)? {
                    return Ok(Some(byte));
                }
            }
        }
        Ok(None)
    }

    /// The first of `bytes` before `end` that is not zero where a map leads nowhere.
    fn holes_unlike(&self, map: &Map, bytes: &[u8], end: u64) -> Option<u64> {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let bytes = bytes.get(..end).unwrap_or(bytes);
        let size = self.before.volume.block_size().len();
        let mut blocks = bytes.chunks(size).enumerate();
        blocks.find_map(|(lblk, block)| {
            let (at, _) = piece(&map.runs, lblk as u64, 1);
            let byte = block.iter().position(|byte| *byte != 0);
            byte.filter(|_| at.is_none())
                .map(|byte| (lblk * size + byte) as u64)
        })
    }

    /// The first byte before `end` that two maps lead to with another content.
    fn mapped(&self, old: &Map, new: &Map, end: u64) -> Result<Option<u64>> {
        for run in old.runs.iter().filter(|run| !run.unwritten) {
            let mut parts = Vec::new();
            let blocks = run.pblk..run.pblk + u64::from(run.len);
            self.before.content_of(blocks, &mut |part| parts.push(part));
            for part in parts {
                let lblk = u64::from(run.lblk) + (part.start - run.pblk);
                if let Some(byte) = self.part(lblk, part, &new.runs, end)? {
                    return Ok(Some(byte));
                }
            }
        }
        if !old.is_sound {
            // What could not be read may be seen again.
            return Ok(None);
        }
        for run in new.runs.iter().filter(|run| !run.unwritten) {
            let mut lblk = u64::from(run.lblk);
            let last = lblk + u64::from(run.len);
            while lblk < last {
                let (is_mapped, len) = piece(&old.runs, lblk, last - lblk);
                if is_mapped.is_none() {
                    let pblk = run.pblk + (lblk - u64::from(run.lblk));
                    let blocks = pblk..pblk + len;
                    if let Some(byte) = self.unlike(self.after, lblk, blocks, &[], end)? {
                        return Ok(Some(byte));
                    }
                }
                lblk += len;
            }
        }
        Ok(None)
    }

    /// Compares blocks of a file with where they are after.
    fn part(
        &self,
        mut lblk: u64,
        mut blocks: Range<u64>,
        new: &[Run],
        end: u64,
    ) -> Result<Option<u64>> {
        while blocks.start < blocks.end && self.byte_of(lblk) < end {
            let (at, len) = piece(new, lblk, blocks.end - blocks.start);
            let here = blocks.start..blocks.start + len;
            if at != Some(here.start) || self.changed.touch(&here) {
                let mut done = 0;
                while done < len {
                    let together = self.together(len - done);
                    let bytes = self.read_blocks(self.before, Some(here.start + done), together)?;
                    let theirs = self.read_blocks(self.after, at.map(|at| at + done), together)?;
                    let first = self.byte_of(lblk + done);
                    let found = first_difference(&bytes, &theirs).map(|byte| first + byte);
                    if let Some(byte) = found.filter(|byte| *byte < end) {
                        return Ok(Some(byte));
                    }
                    done += together;
                }
            }
            blocks.start += len;
            lblk += len;
        }
        Ok(None)
    }

    /// The first byte before `end` of blocks of a file that is not as in `bytes`, behind whose end
    /// are zeros.
    fn unlike(
        &self,
        view: &View,
        lblk: u64,
        blocks: Range<u64>,
        bytes: &[u8],
        end: u64,
    ) -> Result<Option<u64>> {
        let mut at = blocks.start;
        while at < blocks.end {
            let first = self.byte_of(lblk + (at - blocks.start));
            if first >= end {
                return Ok(None);
            }
            let together = self.together(blocks.end - at);
            let theirs = self.read_blocks(view, Some(at), together)?;
            let mut wanted = vec![0; theirs.len()];
            let from = usize::try_from(first).unwrap_or(usize::MAX);
            for (to, byte) in wanted.iter_mut().zip(bytes.get(from..).unwrap_or_default()) {
                *to = *byte;
            }
            let found = first_difference(&theirs, &wanted).map(|byte| first + byte);
            if let Some(byte) = found.filter(|byte| *byte < end) {
                return Ok(Some(byte));
            }
            at += together;
        }
        Ok(None)
    }

    fn byte_of(&self, lblk: u64) -> u64 {
        lblk << self.before.volume.block_size().log2()
    }

    fn together(&self, blocks: u64) -> u64 {
        let most = READ_BYTES >> self.before.volume.block_size().log2();
        blocks.min(most.max(1))
    }

    fn read_blocks(&self, view: &View, at: Option<u64>, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * self.before.volume.block_size().len()];
        if let Some(at) = at {
            view.volume.read(Pblk::new(at), &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// Whether a target lies in a block that would fit the inode, where each program that makes links
/// has it.
fn is_short_in_block(volume: &Volume, seen: &Seen, target: &[u8]) -> bool {
    !seen.is_inline
        && special::has_map(volume, &seen.inode, seen.file_type)
        && target.len() < MAP_BYTES
}

/// Where a logical block is, if it is mapped and written, and how many from there on are so side by
/// side, at most `len`.
fn piece(runs: &[Run], lblk: u64, len: u64) -> (Option<u64>, u64) {
    let at = runs.partition_point(|run| u64::from(run.lblk) + u64::from(run.len) <= lblk);
    let Some(run) = runs.get(at) else {
        return (None, len);
    };
    let first = u64::from(run.lblk);
    if first > lblk {
        return (None, len.min(first - lblk));
    }
    let left = len.min(first + u64::from(run.len) - lblk);
    let place = (!run.unwritten).then(|| run.pblk + (lblk - first));
    (place, left)
}

fn lower(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    Some(common.unwrap_or_else(|| a.len().min(b.len())) as u64)
}
