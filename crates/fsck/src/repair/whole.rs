//! Changes that are written as a whole, by a log in blocks that are free before and afterwards.
//!
//! What changes of a sound file system as one leaves either what was there or all of it, whatever
//! write is the last: the log counts from one write of the superblock on, and the next opening puts
//! what is in it in place (`extant_format::waiting`, and `docs/design/staged.md`). Blocks that
//! nothing used before are written to their places first, since nothing leads there.
//!
//! Where there is no room for the log, changes are written in steps: see
//! [`in_progress`](super::in_progress).
//!
//! # Invariants
//! - Until the superblock says that the log counts, nothing is written but what nothing uses.
//! - Nothing goes to a block of the log.

use super::draft::Changes;
use super::in_progress::primary;
use crate::blockset::BlockSet;
use crate::error::{Error, Result};
use crate::survey::Survey;
use extant_blockdev::{BlockDevice, DeviceResult};
use extant_format::geometry::Geometry;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_format::waiting::{Entry, Head, List, Passage};
use extant_format::{BlockSize, Pblk};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// What a block of the log holds.
#[derive(Debug)]
enum Content {
    /// Its head, or a part of the list.
    Own(Box<[u8]>),
    /// What the block that begins at this byte is to hold.
    Of(u64),
}

/// The way by which changes are made as a whole.
#[derive(Debug)]
pub(super) struct Whole {
    way: Passage,
    size: BlockSize,
    /// Blocks that nothing used, by the bytes at which they begin, ascending.
    placed: Vec<u64>,
    /// Blocks of the log, by the bytes at which they begin.
    log: BTreeMap<u64, Content>,
    /// Where what waits belongs, in bytes, ascending.
    homes: Vec<u64>,
}

/// What changes, by the bytes at which blocks begin, ascending.
struct Changed {
    placed: Vec<u64>,
    homes: Vec<u64>,
}

impl Whole {
    /// The way for changes after which the file system is as `survey` has it. `None` where nothing
    /// changes but the superblock and copies, and where it is not possible.
    pub(super) fn of(changes: &Changes, survey: &Survey) -> Result<Option<Self>> {
        let Some(in_use) = changes.in_use() else {
            return Ok(None);
        };
        let (before, after) = (
            superblock_on(&**changes.base())?,
            superblock_on(&*changes.device())?,
        );
        let (Some(before), Some(after)) = (before, after) else {
            return Ok(None);
        };
        let size = before.block_size();
        let is_whole =
            before.blocks_count().saturating_mul(size.bytes().into()) <= changes.base().size();
        if before.raw().rev_level.get() == 0 || after.block_size() != size || !is_whole {
            return Ok(None);
        }
        let Some(changed) = changed(changes, survey, &before, &after)? else {
            return Ok(None);
        };
        let mut used = in_use.clone();
        survey
            .used
            .runs(0..survey.volume.geo.clusters_count(), &mut |run| {
                used.add(run)
            });
        let Some(room) = room(survey, &used, &changed, size) else {
            return Ok(None);
        };
        Self::laid_out(changes, &before, &after, changed, &room)
    }

    /// The log in the blocks of `room`, as many as it has.
    fn laid_out(
        changes: &Changes,
        before: &Superblock,
        after: &Superblock,
        changed: Changed,
        room: &[u64],
    ) -> Result<Option<Self>> {
        let size = before.block_size();
        let Changed { placed, homes } = changed;
        let tag = Entry::sum_of(&[before.encode(), after.encode()].concat());
        let block = |offset: u64| Pblk::new(offset >> size.log2());
        let mut free = room.iter().copied();
        let lists: Vec<u64> = {
            let count = 1 + lists_of(homes.len(), size);
            free.by_ref().take(count).collect()
        };
        let Some((head_at, lists)) = lists.split_first() else {
            return Ok(None);
        };
        // One on the way may have fields that do not fit each other.
        let Ok(way) = Passage::new(before, after, block(*head_at), tag) else {
            return Ok(None);
        };
        let own = primary(size.bytes().into());
        let mut log = BTreeMap::new();
        let mut entries = Vec::with_capacity(homes.len());
        for (home, at) in homes.iter().zip(free) {
            let mut content = changes.content(*home)?;
            if *home == own {
                put_superblock(&mut content, own, &way.after);
            }
            entries.push(Entry {
                home: block(*home),
                at: block(at),
                sum: Entry::sum_of(&content),
            });
            log.insert(at, Content::Of(*home));
        }
        for (number, (at, part)) in lists.iter().zip(entries.chunks(per_list(size))).enumerate() {
            let next = lists.get(number + 1).map_or(Pblk::new(0), |at| block(*at));
            let entries = part.to_vec();
            let list = List { entries, next }.encode(tag, size.len());
            log.insert(*at, Content::Own(list));
        }
        let head = Head {
            tag,
            count: homes.len() as u64,
            lists: lists.first().map_or(Pblk::new(0), |at| block(*at)),
            sums: way.sums(),
        };
        log.insert(*head_at, Content::Own(head.encode(size.len())));
        Ok(Some(Self {
            way,
            size,
            placed,
            log,
            homes,
        }))
    }

    /// The bytes at which blocks of the log begin, ascending.
    pub(super) fn log(&self) -> impl Iterator<Item = u64> + '_ {
        self.log.keys().copied()
    }

    /// What a block of the log holds while that counts; `None` for another block.
    pub(super) fn in_log(&self, changes: &Changes, offset: u64) -> Result<Option<Vec<u8>>> {
        Ok(match self.log.get(&offset) {
            None => None,
            Some(Content::Own(bytes)) => Some(bytes.to_vec()),
            Some(Content::Of(home)) => {
                let mut content = changes.content(*home)?;
                if *home == primary(self.size.bytes().into()) {
                    put_superblock(&mut content, *home, &self.way.after);
                }
                Some(content)
            }
        })
    }

    /// What the block with the primary superblock holds meanwhile, one after the other.
    pub(super) fn primaries(&self, before: &[u8], after: &[u8]) -> Vec<Vec<u8>> {
        let own = primary(self.size.bytes().into());
        let Passage {
            pointed,
            announced,
            home,
            released,
            after: last,
        } = &self.way;
        let with = |block: &[u8], sb: &Superblock| {
            let mut block = block.to_vec();
            put_superblock(&mut block, own, sb);
            block
        };
        vec![
            with(before, pointed),
            with(before, announced),
            with(after, home),
            with(after, released),
            with(after, last),
        ]
    }

    /// Writes all changes and makes them durable.
    ///
    /// # Errors
    /// Of the device: nothing is changed then. [`Error::PerhapsMade`], [`Error::NotHome`].
    pub(super) fn write(&self, changes: &Changes) -> Result<()> {
        let device = &**changes.base();
        changes.copy_contents()?;
        changes.zero_parts()?;
        let mut out = Gathered::new(device);
        for offset in &self.placed {
            out.put(*offset, &changes.content(*offset)?)?;
        }
        out.write()?;
        let zeros = self.zeros_of_log(device)?;
        for offset in self.log() {
            let content = self.in_log(changes, offset)?.unwrap_or_default();
            out.put(offset, &content)?;
        }
        out.write()?;
        device.flush()?;
        put(device, &self.way.pointed)?;
        put(device, &self.way.announced).map_err(|e| Error::PerhapsMade(Box::new(e)))?;
        let made = (|| {
            self.write_home(changes)?;
            put(device, &self.way.home)?;
            put(device, &self.way.released)?;
            put(device, &self.way.after)
        })();
        made.map_err(|e: Error| Error::NotHome(Box::new(e)))?;
        // What was a hole, or zeros, is that again. Nothing uses it: all is made, whatever fails
        // here.
        let zeroed = zeros
            .into_iter()
            .try_for_each(|run| device.zero(run.start, run.end - run.start));
        let _ = zeroed.and_then(|()| device.flush());
        Ok(())
    }

    /// The runs of blocks of the log that hold zeros now, in bytes.
    fn zeros_of_log(&self, device: &dyn BlockDevice) -> Result<Vec<Range<u64>>> {
        let mut zeros: Vec<Range<u64>> = Vec::new();
        let mut block = vec![0; self.size.len()];
        for offset in self.log() {
            device.read_at(offset, &mut block)?;
            if block.iter().any(|byte| *byte != 0) {
                continue;
            }
            let end = offset + block.len() as u64;
            match zeros.last_mut() {
                Some(last) if last.end == offset => last.end = end,
                _ => zeros.push(offset..end),
            }
        }
        Ok(zeros)
    }

    /// Writes what waits to its places, but for the superblock itself.
    fn write_home(&self, changes: &Changes) -> Result<()> {
        let device = &**changes.base();
        let own = primary(self.size.bytes().into());
        let mut out = Gathered::new(device);
        for offset in &self.homes {
            let content = changes.content(*offset)?;
            if *offset == own {
                let at = (SUPERBLOCK_OFFSET - own) as usize;
                let (before, rest) = content.split_at(at.min(content.len()));
                let after = rest.get(SUPERBLOCK_LEN..).unwrap_or_default();
                out.put(own, before)?;
                out.put(SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64, after)?;
            } else {
                out.put(*offset, &content)?;
            }
        }
        out.write()?;
        Ok(device.flush()?)
    }
}

/// What changes. `None` where that is the superblock and copies of it and of descriptors alone,
/// where the log has no room for so many blocks, and where the block of multiple-mount protection
/// is one of them, which the log must not hold.
fn changed(
    changes: &Changes,
    survey: &Survey,
    before: &Superblock,
    after: &Superblock,
) -> Result<Option<Changed>> {
    let size = before.block_size();
    let own = primary(size.bytes().into());
    let copies = copies(before)
        .chain(copies(after))
        .map(|block| block << size.log2());
    let plain: BTreeSet<u64> = copies.chain([own]).collect();
    let (mut placed, mut homes) = (Vec::new(), Vec::new());
    for change in changes.over_zeros() {
        let offset = change?.offset;
        if !changes.is_fresh(offset) {
            homes.push(offset);
        } else if survey
            .used
            .contains(survey.volume.cluster_of(offset >> size.log2()))
        {
            placed.push(offset);
        }
    }
    if placed.is_empty() && homes.iter().all(|home| plain.contains(home)) {
        return Ok(None);
    }
    if let Err(at) = homes.binary_search(&own) {
        homes.insert(at, own);
    }
    let mmp = [before.mmp_block(), after.mmp_block()];
    let mut mmp = mmp.iter().flatten().map(|at| at.get() << size.log2());
    if mmp.any(|at| homes.binary_search(&at).is_ok()) || homes.len() as u64 > Head::MAX_COUNT {
        return Ok(None);
    }
    Ok(Some(Changed { placed, homes }))
}

/// The blocks that hold copies of a superblock and of descriptors.
fn copies(sb: &Superblock) -> impl Iterator<Item = u64> {
    let geo = Geometry::new(sb);
    let others = geo.groups().skip(1);
    others
        .filter_map(move |group| {
            let header = geo.group_header(group).ok();
            header.filter(|_| geo.has_super(group))
        })
        .flat_map(|header| {
            let start = header.super_block.map_or(header.descs.start, Pblk::get);
            start..header.descs.end
        })
}

/// As many blocks as the log takes, by the bytes at which they begin, ascending; `None` if there
/// are fewer that are not `used`, as clusters.
fn room(survey: &Survey, used: &BlockSet, changed: &Changed, size: BlockSize) -> Option<Vec<u64>> {
    let volume = &survey.volume;
    let needed = 1 + lists_of(changed.homes.len(), size) + changed.homes.len();
    let mut room = Vec::with_capacity(needed);
    let mut next = 0;
    let mut take = |clusters: Range<u64>| {
        for cluster in clusters {
            let first = volume.block_of_cluster(cluster).get();
            for block in first..first + volume.cluster_ratio() {
                if room.len() == needed || block >= volume.geo.blocks_count() {
                    return;
                }
                room.push(block << size.log2());
            }
        }
    };
    let end = volume.geo.clusters_count();
    used.runs(0..end, &mut |run| {
        take(next..run.start);
        next = run.end;
    });
    take(next..end);
    (room.len() == needed).then_some(room)
}

/// Entries in a block of the list.
fn per_list(size: BlockSize) -> usize {
    List::room(size.len()).max(1)
}

/// How many blocks the list of so many entries takes.
fn lists_of(entries: usize, size: BlockSize) -> usize {
    entries.div_ceil(per_list(size))
}

/// The superblock on a device, if it is sound.
fn superblock_on(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    let mut bytes = vec![0; SUPERBLOCK_LEN];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(Superblock::parse(&bytes).ok())
}

/// Puts a superblock into its block, which begins at a byte of the device.
fn put_superblock(block: &mut [u8], offset: u64, sb: &Superblock) {
    let at = (SUPERBLOCK_OFFSET - offset) as usize;
    if let Some(place) = block.get_mut(at..at + SUPERBLOCK_LEN) {
        place.copy_from_slice(&sb.encode());
    }
}

/// Writes the superblock. It is durable on return.
fn put(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    device.write_at(SUPERBLOCK_OFFSET, &sb.encode())?;
    Ok(device.flush()?)
}

/// What follows each other, which is written at once.
struct Gathered<'a> {
    device: &'a dyn BlockDevice,
    start: u64,
    content: Vec<u8>,
}

impl<'a> Gathered<'a> {
    fn new(device: &'a dyn BlockDevice) -> Self {
        Self {
            device,
            start: 0,
            content: Vec::new(),
        }
    }

    fn put(&mut self, offset: u64, content: &[u8]) -> DeviceResult<()> {
        let end = self.start + self.content.len() as u64;
        if end != offset || self.content.len() >= PIECE {
            self.write()?;
            self.start = offset;
        }
        self.content.extend_from_slice(content);
        Ok(())
    }

    fn write(&mut self) -> DeviceResult<()> {
        if !self.content.is_empty() {
            self.device.write_at(self.start, &self.content)?;
            self.content.clear();
        }
        Ok(())
    }
}
