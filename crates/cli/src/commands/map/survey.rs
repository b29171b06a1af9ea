//! What every block of an image is used for.
//!
//! Fixed metadata is known from the geometry, files from their maps; what the bitmaps call used and
//! neither explains are the blocks in between: nodes of maps, extended attributes, long links.

use crate::commands::info::free_runs;
use crate::failure::{Failure, Outcome, say};
use extant::FileType;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::{Result as EngineResult, ops};
use extant_format::{Group, Ino};
use std::ops::Range;

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub(super) enum Kind {
    Superblock,
    Descriptors,
    ReservedDescriptors,
    Bitmap,
    InodeTable,
    Journal,
    Directory,
    Data,
    Other,
    Free,
}

/// Number of kinds.
const KINDS: usize = Kind::ALL.len();

impl Kind {
    pub(super) const ALL: [Self; 10] = [
        Self::Superblock,
        Self::Descriptors,
        Self::ReservedDescriptors,
        Self::Bitmap,
        Self::InodeTable,
        Self::Journal,
        Self::Directory,
        Self::Data,
        Self::Other,
        Self::Free,
    ];

    /// For programs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Descriptors => "group-descriptors",
            Self::ReservedDescriptors => "reserved-descriptors",
            Self::Bitmap => "bitmap",
            Self::InodeTable => "inode-table",
            Self::Journal => "journal",
            Self::Directory => "directory",
            Self::Data => "data",
            Self::Other => "other",
            Self::Free => "free",
        }
    }

    /// For people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Descriptors => "group descriptors",
            Self::ReservedDescriptors => "kept for growth",
            Self::Bitmap => "bitmaps",
            Self::InodeTable => "inode tables",
            Self::Journal => "journal",
            Self::Directory => "directories",
            Self::Data => "file data",
            Self::Other => "maps and attributes",
            Self::Free => "free",
        }
    }
}

/// Blocks in a row that are used for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) kind: Kind,
}

/// What every block of an image is used for.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) block_size: u32,
    pub(super) blocks: u64,
    pub(super) blocks_per_group: u32,
    pub(super) groups: u32,
    /// Ascending, without gaps, neighbours of different kinds.
    pub(super) runs: Vec<Run>,
    /// What could not be looked at, as sentences.
    pub(super) problems: Vec<String>,
}

impl Survey {
    pub(super) fn of(fs: &Fs) -> EngineResult<Self> {
        let geometry = fs.geometry();
        let mut claims = Claims {
            fs,
            runs: Vec::new(),
            room: geometry.blocks_count(),
            problems: Vec::new(),
        };
        for group in geometry.groups() {
            claims.fixed(group)?;
        }
        for (ino, inode) in fs.inodes() {
            match inode {
                Ok(inode) => claims.file(&inode),
                Err(e) => claims.problems.push(format!("inode {ino}: {e}")),
            }
        }
        let Claims { runs, problems, .. } = claims;
        let mut survey = Self {
            block_size: fs.block_size().bytes(),
            blocks: geometry.blocks_count(),
            blocks_per_group: geometry.blocks_per_group(),
            groups: geometry.groups_count(),
            runs: Vec::new(),
            problems,
        };
        survey.sweep(fs, runs)?;
        Ok(survey)
    }

    /// Blocks of each kind.
    pub(super) fn totals(&self) -> [u64; KINDS] {
        let mut totals = [0; KINDS];
        for run in &self.runs {
            totals[run.kind as usize] += run.len;
        }
        totals
    }

    /// Says what could not be looked at.
    pub(super) fn outcome(&self) -> Outcome {
        for problem in &self.problems {
            say(problem);
        }
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(Failure::Said)
        }
    }

    /// Puts claims in order, the first one winning where two overlap, and fills what is between
    /// them from the bitmaps.
    fn sweep(&mut self, fs: &Fs, mut claims: Vec<Run>) -> EngineResult<()> {
        claims.sort_unstable_by_key(|run| (run.start, run.kind));
        let mut bitmaps = Bitmaps { fs, group: None };
        let mut at = fs.geometry().first_data_block().get();
        if at > 0 {
            // The boot block in front of a file system with 1 KiB blocks.
            self.push(0, at, Kind::Other);
        }
        for claim in claims {
            let end = claim.start.saturating_add(claim.len).min(self.blocks);
            let start = claim.start.max(at);
            if start >= end {
                continue;
            }
            bitmaps.fill(at..start, self)?;
            self.push(start, end, claim.kind);
            at = end;
        }
        bitmaps.fill(at..self.blocks, self)
    }

    fn push(&mut self, start: u64, end: u64, kind: Kind) {
        if start >= end {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.kind == kind && last.start + last.len == start => {
                last.len += end - start;
            }
            _ => self.runs.push(Run {
                start,
                len: end - start,
                kind,
            }),
        }
    }
}

/// What is known to be used for something.
struct Claims<'a> {
    fs: &'a Fs,
    runs: Vec<Run>,
    /// Blocks that files may still claim: a sound file system has each block once.
    room: u64,
    problems: Vec<String>,
}

impl Claims<'_> {
    fn add(&mut self, blocks: Range<u64>, kind: Kind) {
        if blocks.start < blocks.end {
            self.runs.push(Run {
                start: blocks.start,
                len: blocks.end - blocks.start,
                kind,
            });
        }
    }

    /// The fixed metadata of a group.
    fn fixed(&mut self, group: Group) -> EngineResult<()> {
        let geometry = self.fs.geometry();
        if let Ok(header) = geometry.group_header(group) {
            if let Some(block) = header.super_block {
                self.add(block.get()..block.get() + 1, Kind::Superblock);
            }
            self.add(header.descs.clone(), Kind::Descriptors);
            self.add(header.reserved_gdt.clone(), Kind::ReservedDescriptors);
        }
        let desc = self.fs.group(group)?;
        for block in [desc.block_bitmap, desc.inode_bitmap] {
            self.add(block.get()..block.get().saturating_add(1), Kind::Bitmap);
        }
        let table = desc.inode_table.get();
        let table_end = table.saturating_add(geometry.inode_table_blocks().into());
        self.add(table..table_end, Kind::InodeTable);
        Ok(())
    }

    /// The blocks that a file's map names.
    fn file(&mut self, inode: &Inode) {
        let kind = match inode.file_type() {
            _ if inode.ino() == Ino::JOURNAL => Kind::Journal,
            // Its map holds the blocks kept for growth.
            _ if inode.ino() == Ino::RESIZE => return,
            FileType::Directory => Kind::Directory,
            FileType::Regular => Kind::Data,
            _ => return,
        };
        let log2 = self.fs.block_size().log2();
        let block_size = self.fs.block_size();
        let mut found = Vec::new();
        for piece in ops::allocated(self.fs, inode) {
            match piece {
                Ok(piece) => {
                    let Some(offset) = piece.device_offset else {
                        continue;
                    };
                    let (start, len) = (offset >> log2, block_size.blocks_for(piece.len));
                    let Some(room) = self.room.checked_sub(len) else {
                        self.problems.push(format!(
                            "inode {}: its blocks belong to other files as well",
                            inode.ino()
                        ));
                        return;
                    };
                    self.room = room;
                    found.push(start..start.saturating_add(len));
                }
                Err(e) => self.problems.push(format!("inode {}: {e}", inode.ino())),
            }
        }
        for blocks in found {
            self.add(blocks, kind);
        }
    }
}

/// What the block bitmaps say, asked in ascending order.
struct Bitmaps<'a> {
    fs: &'a Fs,
    /// The group looked at last, its blocks, and the free ones.
    group: Option<(Group, Range<u64>, Vec<Range<u64>>)>,
}

impl Bitmaps<'_> {
    /// Gives a range that nothing claims to the survey, as free or otherwise used.
    fn fill(&mut self, range: Range<u64>, survey: &mut Survey) -> EngineResult<()> {
        let mut at = range.start;
        while at < range.end {
            self.load(at)?;
            let Some((_, blocks, free)) = &self.group else {
                return Ok(());
            };
            let end = blocks.end.min(range.end).max(at + 1);
            let first = free.partition_point(|run| run.end <= at);
            for run in free.iter().skip(first) {
                if run.start >= end {
                    break;
                }
                let (from, to) = (run.start.max(at), run.end.min(end));
                survey.push(at, from, Kind::Other);
                survey.push(from, to, Kind::Free);
                at = to;
            }
            survey.push(at, end, Kind::Other);
            at = end;
        }
        Ok(())
    }

    /// Looks at the group of a block.
    fn load(&mut self, block: u64) -> EngineResult<()> {
        if let Some((_, blocks, _)) = &self.group
            && blocks.contains(&block)
        {
            return Ok(());
        }
        let geometry = self.fs.geometry();
        let found = geometry.group_of_block(extant_format::Pblk::new(block));
        let Ok(group) = found else {
            self.group = None;
            return Ok(());
        };
        let first = geometry.group_first_block(group).map_or(0, |b| b.get());
        let last = geometry.group_last_block(group).map_or(first, |b| b.get());
        let bits = geometry.cluster_bits();
        let free = free_runs(self.fs, group)?
            .into_iter()
            .map(|run| {
                let at = |cluster: u32| first + (u64::from(cluster) << bits);
                at(run.start)..at(run.end).min(last + 1)
            })
            .collect();
        self.group = Some((group, first..last + 1, free));
        Ok(())
    }
}
