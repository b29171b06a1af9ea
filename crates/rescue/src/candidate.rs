//! A deleted inode while it is looked at: its last copy, and its map.

use crate::Rescue;
use crate::Source;
use crate::error::{Error, Result};
use crate::fates::Fate;
use crate::maps::{Piece, Run, has_map, is_fast_symlink, runs_in_place, walk};
use crate::timeline::{Key, Life, Moment, Timeline, is_deleted};
use crate::tree::inline_rest;
use crate::volume::Volume;
use extant_format::features::{Compat, RoCompat};
use extant_format::inode::{FileType, Inode, InodeFlags, Timestamp};
use extant_format::orphan_file::OrphanBlock;
use extant_format::{Ino, Pblk, Tid};
use std::collections::HashSet;
use std::ops::Range;

/// A deleted file, while it is looked at.
pub(crate) struct Candidate {
    pub(crate) ino: Ino,
    pub(crate) key: Key,
    pub(crate) inode: Inode,
    pub(crate) source: Source,
    pub(crate) copy: Option<Moment>,
    pub(crate) gone: Option<Moment>,
    pub(crate) dtime: u32,
    pub(crate) last_change: Option<Timestamp>,
    pub(crate) runs: Vec<Run>,
    pub(crate) inline: Option<Vec<u8>>,
    /// Blocks of the map and of attributes.
    pub(crate) nodes: Vec<u64>,
    pub(crate) is_sound: bool,
    /// A node was read where it lies, and not in the log.
    pub(crate) in_place: bool,
    pub(crate) given: Vec<Range<u64>>,
    /// All blocks were freed by the last transaction that changed their bitmaps.
    pub(crate) is_untouched: bool,
    /// Its blocks are not looked at: inodes claim more than there are.
    pub(crate) too_much: bool,
}

/// Runs of all maps that are kept: of a small device, and at most.
const FEW_RUNS: usize = 1 << 20;
const MOST_RUNS: usize = 1 << 25;

/// Reading maps, and how much of them may still be kept.
struct Maps<'t> {
    timeline: &'t Timeline,
    runs: usize,
    blocks: u64,
}

impl<'t> Maps<'t> {
    /// Twice as many blocks as there are, as files come after one another in the same blocks.
    fn new(volume: &Volume, timeline: &'t Timeline) -> Self {
        let blocks = volume.blocks_on_device().saturating_mul(2);
        let runs = usize::try_from(blocks).unwrap_or(usize::MAX);
        Self {
            timeline,
            runs: runs.clamp(FEW_RUNS, MOST_RUNS),
            blocks,
        }
    }
}

impl Candidate {
    pub(crate) fn is_orphan(&self) -> bool {
        matches!(self.source, Source::OrphanList | Source::OrphanFile)
    }

    pub(crate) fn data(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let written = self.runs.iter().filter(|run| !run.unwritten);
        written.map(|run| run.pblk..run.pblk + u64::from(run.len))
    }
}

impl Rescue {
    /// All deleted inodes, with what is known of their maps.
    pub(crate) fn candidates(&self, timeline: &mut Timeline) -> Result<Vec<Candidate>> {
        let volume = &self.volume;
        let (list, file) = self.orphans()?;
        let mut found = Vec::new();
        let mut in_place = Vec::new();
        let lives = &mut timeline.lives;
        volume.slots(&mut |ino, in_use, slot| {
            if ino < volume.sb.first_ino() {
                return Ok(());
            }
            let Some(inode) = volume.parse(slot, ino) else {
                return Ok(());
            };
            let key = Key::of(&inode);
            if in_use && inode.links > 0 {
                if let Some(lives) = lives.get_mut(&ino) {
                    let last = lives.iter_mut().rfind(|life| life.key == key);
                    if let Some(life) = last {
                        life.is_live = true;
                    }
                }
                return Ok(());
            }
            if inode.links > 0 {
                return Ok(());
            }
            let known = lives.entry(ino).or_default();
            if known.iter().all(|life| life.key != key) {
                known.push(Life::new(key));
            }
            let Some(life) = known.iter_mut().rfind(|life| life.key == key) else {
                return Ok(());
            };
            let orphan = match (list.contains(&ino), file.contains(&ino)) {
                (true, _) => Some(Source::OrphanList),
                (_, true) => Some(Source::OrphanFile),
                _ => None,
            };
            if in_use && let Some(source) = orphan {
                life.is_live = true;
                in_place.push((ino, inode, slot.to_vec(), source, 0));
                return Ok(());
            }
            life.note_end(volume, &inode);
            // Programs other than Linux leave size and map as they were.
            if life.copy.is_none() && inode.size > 0 && is_deleted(volume, &inode) {
                let dtime = inode.dtime;
                in_place.push((ino, inode, slot.to_vec(), Source::InodeTable, dtime));
            }
            Ok(())
        })?;
        let timeline: &Timeline = timeline;
        let mut maps = Maps::new(volume, timeline);
        let taken: HashSet<(Ino, u32)> = in_place.iter().map(|p| (p.0, p.1.generation)).collect();
        for (ino, inode, slot, source, dtime) in in_place {
            let life = Life {
                dtime,
                ..Life::new(Key::of(&inode))
            };
            found.push(self.candidate(&mut maps, ino, &life, inode, &slot, source)?);
        }
        let Some(journal) = &self.journal else {
            return Ok(found);
        };
        let log = journal.log()?;
        let history = journal.history()?;
        let mut numbers: Vec<Ino> = timeline.lives.keys().copied().collect();
        numbers.sort_unstable();
        let mut bytes = vec![0; volume.block_size().len()];
        for ino in numbers {
            for life in timeline.lives.get(&ino).into_iter().flatten() {
                if life.is_live || taken.contains(&(ino, life.key.generation)) {
                    continue;
                }
                let Some((at, image)) = life.copy else {
                    if life.dtime != 0 {
                        found.push(Candidate::unmapped(ino, life));
                    }
                    continue;
                };
                log.read_logged(&image, &mut bytes)
                    .map_err(Error::of_journal)?;
                let offset = volume
                    .geo
                    .locate_inode(ino)
                    .map_or(0, |at| at.offset as usize);
                let slot = bytes.get(offset..).unwrap_or_default();
                let Some(inode) = volume.parse(slot, ino) else {
                    continue;
                };
                let transaction = history.transactions.get(at as usize);
                let source = Source::Log {
                    tid: transaction.map_or(Tid::new(0), |found| found.tid),
                    committed: transaction
                        .and_then(|found| found.committed)
                        .map_or(0, |(seconds, _)| seconds),
                };
                let slot = slot.to_vec();
                found.push(self.candidate(&mut maps, ino, life, inode, &slot, source)?);
            }
        }
        Ok(found)
    }

    /// Reads the map of a deleted inode, and keeps of it what may be kept.
    fn candidate(
        &self,
        maps: &mut Maps<'_>,
        ino: Ino,
        life: &Life,
        inode: Inode,
        slot: &[u8],
        source: Source,
    ) -> Result<Candidate> {
        let volume = &self.volume;
        let mut found = Candidate {
            source,
            copy: life.copy.map(|(at, _)| at),
            inline: None,
            is_sound: true,
            ..Candidate::unmapped(ino, life)
        };
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            let rest = inline_rest(volume, &inode, slot);
            let data = extant_format::inline_data::InlineData::new(&inode.map, rest, inode.size);
            let mut bytes = vec![0; data.stored()];
            data.read(0, &mut bytes);
            found.inline = Some(bytes);
        } else if inode.file_type() == Some(FileType::Symlink) && is_fast_symlink(volume, &inode) {
            let len = usize::try_from(inode.size).ok();
            let target = len.and_then(|len| inode.map.get(..len));
            // Linux clears the target of one that it deletes.
            let target = target.filter(|target| !target.contains(&0));
            found.inline = target.map(<[u8]>::to_vec);
            found.is_sound = target.is_some();
        } else if has_map(volume, &inode) {
            let seed = volume.inode_seed(ino, inode.generation);
            let log = match &self.journal {
                Some(journal) => Some(journal.log()?),
                None => None,
            };
            let (mut runs, mut nodes) = (Vec::new(), Vec::new());
            let mut in_place = false;
            let is_from_log = matches!(source, Source::Log { .. });
            let timeline = maps.timeline;
            let mut read = |block: u64, buf: &mut [u8]| {
                let image = timeline
                    .image_before(block, life.gone)
                    .filter(|_| is_from_log);
                match (image, &log) {
                    (Some((_, image)), Some(log)) => {
                        log.read_logged(&image, buf).map_err(Error::of_journal)
                    }
                    _ => {
                        in_place = true;
                        volume.read(block, buf)
                    }
                }
            };
            found.is_sound = walk(volume, &inode, seed, &mut read, &mut |piece| match piece {
                Piece::Node(block) => nodes.push(block),
                Piece::Data(run) if runs.len() < maps.runs => runs.push(run),
                Piece::Data(_) => found.too_much = true,
            })?;
            found.in_place = in_place;
            if found.too_much {
                // A part would be taken for all.
                found.is_sound = false;
                (runs, nodes) = (Vec::new(), Vec::new());
            }
            maps.runs -= runs.len();
            (found.runs, found.nodes) = (runs, nodes);
        }
        let blocks: u64 = found.data().map(|run| run.end - run.start).sum();
        match maps.blocks.checked_sub(blocks) {
            Some(rest) => maps.blocks = rest,
            None => found.too_much = true,
        }
        found.inode = inode;
        Ok(found)
    }

    /// Orphans by the list, and by the file.
    fn orphans(&self) -> Result<(HashSet<Ino>, HashSet<Ino>)> {
        let volume = &self.volume;
        let mut list = HashSet::new();
        let mut next = volume.sb.orphan_list_head();
        while let Some(ino) = next
            && list.insert(ino)
        {
            next = volume
                .inode(ino)?
                .and_then(|(inode, _)| inode.next_orphan());
        }
        let mut file = HashSet::new();
        let marked = volume.features.compat.contains(Compat::ORPHAN_FILE)
            && volume.has_ro_compat(RoCompat::ORPHAN_PRESENT);
        let Some(ino) = volume.sb.orphan_file_ino().filter(|_| marked) else {
            return Ok((list, file));
        };
        let Some((inode, _)) = volume.inode(ino)? else {
            return Ok((list, file));
        };
        let seed = volume.inode_seed(ino, inode.generation);
        let mut blocks = Vec::new();
        runs_in_place(volume, &inode, seed, &mut |piece| {
            if let Piece::Data(run) = piece {
                blocks.push(run);
            }
        })?;
        let mut bytes = vec![0; volume.block_size().len()];
        for run in blocks {
            for pblk in run.pblk..run.pblk + u64::from(run.len) {
                volume.read(pblk, &mut bytes)?;
                let seed = volume.seed.map(|seed| {
                    let block = Pblk::new(pblk);
                    extant_format::orphan_file::block_seed(seed, ino, inode.generation, block)
                });
                if let Ok(block) = OrphanBlock::parse(&bytes, volume.block_size(), seed) {
                    file.extend(block.orphans().map(|(_, ino)| ino));
                }
            }
        }
        Ok((list, file))
    }
}

impl Candidate {
    /// A deleted inode of which no copy with content is there.
    fn unmapped(ino: Ino, life: &Life) -> Self {
        Self {
            ino,
            key: life.key,
            inode: empty_inode(),
            // Stands for: no content.
            source: Source::Directory,
            copy: None,
            gone: life.gone,
            dtime: life.dtime,
            last_change: life.last_change,
            runs: Vec::new(),
            inline: None,
            nodes: Vec::new(),
            is_sound: false,
            in_place: false,
            given: Vec::new(),
            is_untouched: false,
            too_much: false,
        }
    }

    /// Takes in what became of a block; the last mount begins with the moment `session`.
    pub(crate) fn take(&mut self, block: u64, fate: Fate, session: Moment) {
        let is_lost = match fate {
            Fate::InUse => !self.is_orphan(),
            Fate::GivenAway => true,
            Fate::Free => {
                self.is_untouched = false;
                self.is_orphan()
            }
            Fate::Untouched(freed) => {
                self.is_untouched &=
                    freed >= session && self.gone.is_some_and(|gone| freed >= gone);
                self.is_orphan()
            }
        };
        if is_lost {
            match self.given.last_mut() {
                Some(last) if last.end == block => last.end = block + 1,
                _ => self.given.push(block..block + 1),
            }
        }
    }
}

fn empty_inode() -> Inode {
    Inode {
        mode: extant_format::inode::Mode::from_bits(0),
        links: 0,
        uid: 0,
        gid: 0,
        flags: InodeFlags::empty(),
        generation: 0,
        dtime: 0,
        size: 0,
        blocks: 0,
        version: 0,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        atime: Timestamp::default(),
        crtime: None,
        file_acl: Pblk::new(0),
        project: None,
        extra_isize: 0,
        map: [0; extant_format::inode::MAP_BYTES],
    }
}
