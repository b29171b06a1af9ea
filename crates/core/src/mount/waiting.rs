//! Changes that wait to be put in place: those made as a whole that no journal holds.
//!
//! They are in a log in blocks that are free before and afterwards. While it counts, the superblock
//! has a feature that nothing else knows: no other program takes what is there for a file system.
//!
//! # Order on the device
//!
//! Each of these is durable before the next.
//!
//! 1. The log, and whatever else goes to blocks that were free. Nothing refers to them.
//! 2. The superblock points to the log (`Passage::pointed`). Others find all as it was.
//! 3. The superblock has the feature (`announced`): the changes are made.
//! 4. What waits is written to its places.
//! 5. The superblock says so (`home`), is as it is to be (`released`), and forgets the log
//!    (`after`).
//!
//! # Invariants
//! - A superblock is believed only if the log knows both of its sectors: one that another program
//!   wrote since makes the log void.
//! - Nothing goes to its place before all of the log has been read and has the right sums.
//! - Nothing goes to a block of the log: what is cut off can be done again.
//! - A claim that was lost stops the writes, each before it is made: the device is one that the
//!   claim [guards](Held::guard).
//! - While something goes to its place, the superblock is whole and has the feature: a program that
//!   falls back on a copy where the superblock is torn finds all as it was, or as it is to be.

use super::held::Held;
use crate::fs::Unclaimed;
use crate::volume::place;
use crate::{Error, InPlace, Place, Result};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_format::waiting::{Entry, Head, List, Passage, Step, look};
use extant_format::{BlockSize, Expected, FormatError, Pblk, Structure};
use extant_jbd2::{ReplayedBlocks, ReplayedDevice};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// Changes that wait.
#[derive(Debug)]
pub(super) struct Waiting {
    /// As it was found, perhaps torn.
    found: Superblock,
    after: Superblock,
    step: Step,
    head: Head,
    /// In the order of their places.
    entries: Vec<Entry>,
}

/// Puts changes in place that wait on `device`, and returns how many blocks; `None` if none wait.
/// `claims`: nobody has claimed it yet, which multiple-mount protection asks for.
///
/// # Errors
/// [`Error::Corrupt`] when the log is damaged, or the superblock is another one: nothing is
/// written. [`Error::InUse`]. What the device says; then they wait as before.
pub(super) fn settle(device: &SharedDevice, claims: bool) -> Result<Option<u64>> {
    let Some(mut waiting) = Waiting::find(device)? else {
        return Ok(None);
    };
    let mut held = if claims {
        waiting.claim(device)?
    } else {
        Held::NONE
    };
    if held.is_one() {
        // Another host may have come first.
        waiting = match Waiting::find(device)? {
            Some(waiting) => waiting,
            None => return Ok(Some(0)),
        };
    }
    let guarded = held.guard(SharedDevice::clone(device));
    let placed = waiting.put_in_place(&*guarded, &mut held);
    placed.map_err(|e| held.why(e, |e| e))?;
    crate::event!(
        info,
        blocks = waiting.entries.len(),
        "put changes in place that waited"
    );
    Ok(Some(waiting.entries.len() as u64))
}

/// The device as it will be once changes are in place that wait there; `None` if none wait.
///
/// # Errors
/// As for [`settle`].
pub(super) fn in_front(device: &SharedDevice) -> Result<Option<SharedDevice>> {
    let Some(waiting) = Waiting::find(device)? else {
        return Ok(None);
    };
    waiting.way()?;
    waiting.verify(&**device)?;
    let entries = waiting.entries.iter().map(|entry| (entry.home, entry.at));
    let blocks = ReplayedBlocks::of(waiting.size(), entries);
    Ok(Some(Arc::new(ReplayedDevice::new(
        Arc::clone(device),
        blocks,
    ))))
}

/// Sees whether anybody has the file system open on which changes wait, as [`Unclaimed::watch`].
///
/// # Errors
/// As for [`Unclaimed::watch`] and [`settle`].
pub(super) fn unclaimed(device: &SharedDevice) -> Result<Option<Unclaimed>> {
    let Some(waiting) = Waiting::find(device)? else {
        return Ok(None);
    };
    waiting.by_its_sum(|superblock| Unclaimed::watch(device, superblock, std::thread::sleep))
}

impl Waiting {
    /// Finds changes that wait. `None` for anything else, among it what is no file system.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when changes wait and cannot be put in place.
    pub(super) fn find(device: &SharedDevice) -> Result<Option<Self>> {
        let mut bytes = [0; SUPERBLOCK_LEN];
        if device.size() < SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64 {
            return Ok(None);
        }
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let (is_announced, pointer) = look(&bytes);
        let Some(pointer) = pointer else {
            return Ok(None);
        };
        let is_torn = Superblock::parse(&bytes).is_err_and(|e| e.is_checksum());
        if !(is_announced || is_torn) {
            return Ok(None);
        }
        let found = Superblock::parse_unverified(&bytes).in_place(Place::Superblock)?;
        let size = found.block_size();
        let read = |block: Pblk| -> Result<Box<[u8]>> {
            if block.get() >= found.blocks_count() {
                let expected = Expected::AtMost(found.blocks_count() - 1);
                return Err(wrong("block of the log", block.get(), expected));
            }
            let mut content = vec![0; size.len()].into_boxed_slice();
            device.read_at(offset(size, block), &mut content)?;
            Ok(content)
        };
        let head = read(pointer.head).and_then(|block| {
            Head::parse(&block, pointer.tag).in_place(Place::Block(pointer.head))
        });
        let known = head.as_ref().ok().and_then(|head| head.sums.step(&bytes));
        let (head, step) = match (head, known) {
            (Ok(head), Some(step)) => (head, step),
            // Torn by another program: what that left is no matter of the log, which is void.
            _ if !is_announced => return Ok(None),
            (Err(e), _) => return Err(e),
            (Ok(_), None) => {
                let expected = Expected::Said(
                    "a superblock that nobody has written to since changes were to be put in place",
                );
                let what = Structure::Superblock;
                let source = FormatError::new(what, "changes that wait", 0, expected);
                return Err(Error::corrupt(Place::Superblock, source));
            }
        };
        let mut entries: Vec<Entry> = Vec::new();
        let mut log = vec![pointer.head];
        let mut next = head.lists;
        while (entries.len() as u64) < head.count {
            let list = List::parse(&read(next)?, head.tag).in_place(Place::Block(next))?;
            log.push(next);
            for entry in list.entries {
                // In their order, so that there is an end.
                let least = entries.last().map_or(0, |last| last.home.get() + 1);
                let most = found.blocks_count() - 1;
                if !(least..=most).contains(&entry.home.get()) {
                    let expected = Expected::Between(least, most);
                    return Err(wrong("place of a block", entry.home.get(), expected));
                }
                entries.push(entry);
            }
            next = list.next;
        }
        log.extend(entries.iter().map(|entry| entry.at));
        check_apart(&entries, &mut log, found.mmp_block())?;
        let (home, at) = place(size);
        let own = entries.binary_search_by_key(&home, |entry| entry.home);
        let Some(own) = own.ok().and_then(|own| entries.get(own)) else {
            let expected = Expected::Said("the superblock among the blocks that wait");
            return Err(wrong("superblock", 0, expected));
        };
        let block = read(own.at)?;
        let after = block.get(at..).unwrap_or_default();
        let after = Superblock::parse(after).in_place(Place::Block(own.at))?;
        if look(&after.encode()) != (false, None) {
            let expected = Expected::Said("a superblock with which nothing waits any more");
            return Err(wrong("superblock", 1, expected));
        }
        check_apart(&entries, &mut log, after.mmp_block())?;
        Ok(Some(Self {
            found,
            after,
            step,
            head,
            entries,
        }))
    }

    fn size(&self) -> BlockSize {
        self.found.block_size()
    }

    /// Claims the file system, if it has multiple-mount protection.
    fn claim(&self, device: &SharedDevice) -> Result<Held> {
        self.by_its_sum(|superblock| Held::take(device, superblock))
    }

    /// Has `take` take the block of multiple-mount protection, whose sum may start from the UUID
    /// that is to come.
    fn by_its_sum<T>(&self, take: impl Fn(&Superblock) -> Result<T>) -> Result<T> {
        match take(&self.found) {
            Err(Error::Corrupt { source, .. }) if source.is_checksum() => take(&self.after),
            taken => taken,
        }
    }

    /// The superblocks on the way. Those that are to come are the ones that the head knows.
    fn way(&self) -> Result<Passage> {
        let way = Passage::from_pointed(&self.found, &self.after).in_place(Place::Superblock)?;
        if self.step == Step::Waiting && way.sums() != self.head.sums {
            let expected = Expected::Said("those of the head");
            return Err(wrong("sums of superblocks", 0, expected));
        }
        Ok(way)
    }

    /// Reads a block that waits.
    fn read(&self, device: &dyn BlockDevice, entry: &Entry, content: &mut [u8]) -> Result<()> {
        if entry.at.get() >= self.found.blocks_count() {
            let expected = Expected::AtMost(self.found.blocks_count() - 1);
            return Err(wrong("block of the log", entry.at.get(), expected));
        }
        device.read_at(offset(self.size(), entry.at), content)?;
        let sum = Entry::sum_of(content);
        if sum == entry.sum {
            return Ok(());
        }
        let expected = Expected::Exactly(entry.sum);
        let source = FormatError::new(Structure::Waiting, "sum of a block", sum, expected);
        Err(Error::corrupt(Place::Block(entry.at), source))
    }

    /// Reads all that waits.
    fn verify(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut content = vec![0; self.size().len()];
        let mut entries = self.entries.iter();
        entries.try_for_each(|entry| self.read(device, entry, &mut content))
    }

    /// Puts what waits in place, and forgets the log.
    fn put_in_place(&self, device: &dyn BlockDevice, held: &mut Held) -> Result<()> {
        let way = self.way()?;
        if self.step == Step::Waiting {
            self.verify(device)?;
            write_superblock(device, &way.announced)?;
            self.write_home(device)?;
            write_superblock(device, &way.home)?;
        }
        finish(device, &way, held)
    }

    /// Writes what waits to its places. The superblock itself stays as it is.
    fn write_home(&self, device: &dyn BlockDevice) -> Result<()> {
        let size = self.size().len();
        let (own, at) = place(self.size());
        let mut content = vec![0; PIECE.max(size)];
        let mut rest = &self.entries[..];
        while let Some(first) = rest.first() {
            let most = if first.home == own {
                1
            } else {
                content.len() / size
            };
            let count = run_of(rest, most, own);
            let (run, others) = rest.split_at(count);
            for (entry, content) in run.iter().zip(content.chunks_exact_mut(size)) {
                self.read(device, entry, content)?;
            }
            let content = &content[..count * size];
            let to = offset(self.size(), first.home);
            if first.home == own {
                let (before, after) = (&content[..at], &content[at + SUPERBLOCK_LEN..]);
                for (from, part) in [(0, before), (at + SUPERBLOCK_LEN, after)] {
                    if !part.is_empty() {
                        device.write_at(to + from as u64, part)?;
                    }
                }
            } else {
                device.write_at(to, content)?;
            }
            rest = others;
        }
        Ok(device.flush()?)
    }
}

/// Refuses a log that would be written over before all of it is in its place: one of whose blocks
/// something goes to, or that has one of them twice. Claims are written to the block `mmp`, which
/// is no part of any log. `log` are the head, the lists, and where the content is.
fn check_apart(entries: &[Entry], log: &mut [Pblk], mmp: Option<Pblk>) -> Result<()> {
    log.sort_unstable();
    let twice = log.windows(2).find_map(|pair| match pair {
        [one, two] if one == two => Some(*one),
        _ => None,
    });
    if let Some(block) = twice {
        let expected = Expected::Said("one that is in the log once");
        return Err(wrong("block of the log", block.get(), expected));
    }
    let is_in_log = |block: &Pblk| log.binary_search(block).is_ok();
    if let Some(entry) = entries.iter().find(|entry| is_in_log(&entry.home)) {
        let expected = Expected::Said("one that is no part of the log");
        return Err(wrong("place of a block", entry.home.get(), expected));
    }
    let Some(mmp) = mmp else {
        return Ok(());
    };
    let is_home = entries.binary_search_by_key(&mmp, |entry| entry.home);
    if is_in_log(&mmp) || is_home.is_ok() {
        let expected = Expected::Said("another one than that of multiple-mount protection");
        return Err(wrong("place of a block", mmp.get(), expected));
    }
    Ok(())
}

/// How many of these follow each other in their places, at most so many, without the block `own`.
fn run_of(entries: &[Entry], most: usize, own: Pblk) -> usize {
    let follows = |pair: &&[Entry]| match pair {
        [one, two] => one.home.checked_add(1) == Some(two.home) && two.home != own,
        _ => false,
    };
    let pairs = entries.windows(2).take(most.saturating_sub(1));
    pairs.take_while(follows).count() + 1
}

/// What is to be made on a device by way of a log: the content of blocks, from `front`, at last the
/// superblock.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    /// Guarded by the claim.
    pub(super) device: &'a SharedDevice,
    pub(super) front: &'a dyn BlockDevice,
    pub(super) before: &'a Superblock,
    pub(super) after: &'a Superblock,
    /// Blocks that change, in ascending order.
    pub(super) blocks: &'a [Pblk],
    /// Blocks that are free before and after, and are not written otherwise.
    pub(super) room: &'a [Range<u64>],
}

impl Planned<'_> {
    /// Writes the log, for which there is room, and then all of it to its places. Everything is
    /// durable on return.
    ///
    /// # Errors
    /// What the device says, and [`Error::InUse`] when the claim was lost: nothing is changed then.
    /// [`Error::PerhapsMade`], [`Error::NotHome`].
    pub(super) fn make(&self, held: &mut Held) -> Result<()> {
        let (waiting, way) = self.write_log()?;
        self.device.flush()?;
        let device = &**self.device;
        write_superblock(device, &way.pointed)?;
        write_superblock(device, &way.announced)
            .map_err(|e| held.why(e, |e| Error::PerhapsMade(Arc::new(e))))?;
        let made = (|| {
            waiting.write_home(device)?;
            write_superblock(device, &way.home)?;
            finish(device, &way, held)
        })();
        made.map_err(|e| Error::NotHome(Arc::new(e)))
    }

    /// How many blocks have lists.
    fn lists(&self) -> u64 {
        let room = List::room(self.before.block_size().len()).max(1);
        self.blocks.len().div_ceil(room) as u64
    }

    /// Refuses a log for which there is no room.
    ///
    /// # Errors
    /// [`Error::TooManyChanges`].
    pub(super) fn check_room(&self) -> Result<()> {
        let count = self.blocks.len() as u64;
        let needed = 1 + self.lists() + count;
        let capacity: u64 = self.room.iter().map(|run| run.end - run.start).sum();
        if needed > capacity || count > Head::MAX_COUNT {
            let capacity = capacity.min(Head::MAX_COUNT);
            return Err(Error::TooManyChanges { needed, capacity });
        }
        Ok(())
    }

    /// Writes the log. Nothing says yet that there is one.
    fn write_log(&self) -> Result<(Waiting, Passage)> {
        let size = self.before.block_size();
        let (own, at) = place(size);
        let count = self.blocks.len() as u64;
        let lists = self.lists();
        let mut free = self.room.iter().flat_map(Range::clone).map(Pblk::new);
        let mut take = || free.next().ok_or(Error::Internal("too few free blocks"));
        let head_at = take()?;
        let tag = tag(self.before, self.after);
        let way = Passage::new(self.before, self.after, head_at, tag);
        let way = way.in_place(Place::Superblock)?;
        let lists_at = (0..lists).map(|_| take()).collect::<Result<Vec<_>>>()?;
        let mut out = Gathered::new(&**self.device, size);
        let mut entries = Vec::with_capacity(self.blocks.len());
        for home in self.blocks {
            let mut content = vec![0; size.len()];
            self.front.read_at(offset(size, *home), &mut content)?;
            if *home == own
                && let Some(place) = content.get_mut(at..at + SUPERBLOCK_LEN)
            {
                place.copy_from_slice(&way.after.encode());
            }
            let entry = Entry {
                home: *home,
                at: take()?,
                sum: Entry::sum_of(&content),
            };
            out.put(entry.at, &content)?;
            entries.push(entry);
        }
        let room = List::room(size.len()).max(1);
        for (number, part) in entries.chunks(room).enumerate() {
            let list = List {
                entries: part.to_vec(),
                next: lists_at.get(number + 1).copied().unwrap_or(Pblk::new(0)),
            };
            let Some(at) = lists_at.get(number) else {
                return Err(Error::Internal("too few blocks for lists"));
            };
            out.put(*at, &list.encode(tag, size.len()))?;
        }
        let head = Head {
            tag,
            count,
            lists: lists_at.first().copied().unwrap_or(Pblk::new(0)),
            sums: way.sums(),
        };
        out.put(head_at, &head.encode(size.len()))?;
        out.write()?;
        let waiting = Waiting {
            found: way.announced.clone(),
            after: way.after.clone(),
            step: Step::Waiting,
            head,
            entries,
        };
        Ok((waiting, way))
    }
}

/// Blocks that follow each other, which are written at once.
struct Gathered<'a> {
    device: &'a dyn BlockDevice,
    size: BlockSize,
    start: Pblk,
    content: Vec<u8>,
}

impl<'a> Gathered<'a> {
    fn new(device: &'a dyn BlockDevice, size: BlockSize) -> Self {
        Self {
            device,
            size,
            start: Pblk::new(0),
            content: Vec::new(),
        }
    }

    fn put(&mut self, at: Pblk, content: &[u8]) -> Result<()> {
        let blocks = (self.content.len() / self.size.len()) as u64;
        if self.start.checked_add(blocks) != Some(at) || self.content.len() >= PIECE {
            self.write()?;
            self.start = at;
        }
        self.content.extend_from_slice(content);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        if !self.content.is_empty() {
            let offset = offset(self.size, self.start);
            self.device.write_at(offset, &self.content)?;
            self.content.clear();
        }
        Ok(())
    }
}

/// Everything is in its place: the superblock is to say so, and no more.
fn finish(device: &dyn BlockDevice, way: &Passage, held: &mut Held) -> Result<()> {
    held.reseal(&way.after)?;
    write_superblock(device, &way.released)?;
    write_superblock(device, &way.after)
}

/// Writes the superblock. It is durable on return.
fn write_superblock(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    device.write_at(SUPERBLOCK_OFFSET, &superblock.encode())?;
    Ok(device.flush()?)
}

/// A number that tells this log from those before it, and follows from what is changed alone.
fn tag(before: &Superblock, after: &Superblock) -> u64 {
    Entry::sum_of(&[before.encode(), after.encode()].concat())
}

fn offset(size: BlockSize, block: Pblk) -> u64 {
    size.offset_of(block).unwrap_or(u64::MAX)
}

fn wrong(field: &'static str, found: u64, expected: Expected) -> Error {
    let source = FormatError::new(Structure::Waiting, field, found, expected);
    Error::corrupt(Place::Superblock, source)
}
