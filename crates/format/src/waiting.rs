//! Changes that wait to be put in place: a log in free blocks, for file systems whose journal does
//! not hold them, or that have none.
//!
//! No other program knows it. While it counts, the superblock has a feature that nothing knows
//! ([`FEATURE`]), so that Linux does not mount the file system and `e2fsck` leaves it alone. The
//! design is this project's, in `docs/design/staged.md`.
//!
//! | record | what it says |
//! |---|---|
//! | [`Pointer`] | where the head is: in bytes of the superblock that have no meaning |
//! | [`Head`] | how many blocks wait, and which superblocks there may be meanwhile |
//! | [`List`] | a block of [`Entry`]s: where a block belongs, where its content is, and its sum |
//!
//! Sums are not CRC32C: what ends with a CRC32C of its own has the same one whatever it is, and
//! blocks of directories and the superblock do.

use crate::superblock::{RawSuperblock, SUPERBLOCK_LEN, Superblock};
use crate::{Expected, FormatError, FormatResult, Pblk, Structure};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use zerocopy::FromBytes;

/// The bit of `feature_incompat` that the superblock has while changes wait.
pub const FEATURE: u32 = 1 << 29;

/// Bytes of a sector, which a device writes as a whole.
const SECTOR: usize = 512;
/// The last words of the superblock's reserve belong to the pointer.
const POINTER_AT: usize = 85;
const POINTER_MAGIC: u32 = u32::from_le_bytes(*b"EXTW");
const HEAD_MAGIC: &[u8; 8] = b"EXTWAITS";
const LIST_MAGIC: &[u8; 8] = b"EXTWLIST";
/// Where a block's own sum lies, which counts as zeros.
const SUM_AT: usize = 8;
/// Bytes of a list before its entries.
const LIST_HEADER: usize = 40;
/// Bytes of an entry.
const ENTRY: usize = 24;

/// How far changes that wait have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// They are in the log, and perhaps in their places.
    Waiting,
    /// They are in their places.
    Home,
}

impl Step {
    const fn word(self) -> u32 {
        match self {
            Self::Waiting => 1,
            Self::Home => 2,
        }
    }
}

/// Where the log of changes that wait begins, as the superblock says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// How far they have come.
    pub step: Step,
    /// The block of the [`Head`].
    pub head: Pblk,
    /// The number that all blocks of this log repeat.
    pub tag: u64,
}

impl Pointer {
    /// Returns the pointer of a superblock, if it has one that is whole.
    #[must_use]
    pub fn of(raw: &RawSuperblock) -> Option<Self> {
        let mut words = [0; 8];
        let stored = raw.reserved.get(POINTER_AT..)?;
        for (word, stored) in words.iter_mut().zip(stored) {
            *word = stored.get();
        }
        let [
            magic,
            step,
            head_lo,
            head_hi,
            tag_lo,
            tag_hi,
            sum_lo,
            sum_hi,
        ] = words;
        let sum = u64::from(sum_hi) << 32 | u64::from(sum_lo);
        if magic != POINTER_MAGIC || sum != Self::sum(&words) {
            return None;
        }
        let step = match step {
            1 => Step::Waiting,
            2 => Step::Home,
            _ => return None,
        };
        Some(Self {
            step,
            head: Pblk::new(u64::from(head_hi) << 32 | u64::from(head_lo)),
            tag: u64::from(tag_hi) << 32 | u64::from(tag_lo),
        })
    }

    fn sum(words: &[u32; 8]) -> u64 {
        let pairs = words.chunks_exact(2).take(3);
        let pairs = pairs.map(|pair| match pair {
            [low, high] => u64::from(*high) << 32 | u64::from(*low),
            _ => 0,
        });
        sum_of_words(pairs)
    }

    /// Puts the pointer into a superblock.
    pub fn put(self, raw: &mut RawSuperblock) {
        let mut words = [
            POINTER_MAGIC,
            self.step.word(),
            self.head.get() as u32,
            (self.head.get() >> 32) as u32,
            self.tag as u32,
            (self.tag >> 32) as u32,
            0,
            0,
        ];
        let sum = Self::sum(&words);
        words[6] = sum as u32;
        words[7] = (sum >> 32) as u32;
        let places = raw.reserved.iter_mut().skip(POINTER_AT);
        places.zip(words).for_each(|(place, word)| place.set(word));
    }

    /// Takes the pointer out of a superblock, if there is one.
    pub fn clear(raw: &mut RawSuperblock) {
        if Self::of(raw).is_some() {
            let places = raw.reserved.iter_mut().skip(POINTER_AT);
            places.for_each(|place| place.set(0));
        }
    }
}

/// The superblocks between the one before the changes and the one after them.
///
/// Of two that follow each other, either the second sectors differ in more than the checksum or the
/// first ones do. The pointer, which is in the second sector, is in all of them. So whatever a
/// crash leaves of a write of one of them has a pointer, and tells its step.
#[derive(Clone, Debug)]
pub struct Passage {
    /// As before, with the pointer: the log is written, and counts for nothing.
    pub pointed: Superblock,
    /// The log counts.
    pub announced: Superblock,
    /// All is in its place; the first sector is still the old one.
    pub home: Superblock,
    /// As afterwards, with the pointer.
    pub released: Superblock,
    /// As afterwards.
    pub after: Superblock,
}

impl Passage {
    /// Returns the way from a superblock to another, by a log whose head is in the block `head`.
    ///
    /// # Errors
    /// When one on the way would have fields that do not fit each other.
    pub fn new(
        before: &Superblock,
        after: &Superblock,
        head: Pblk,
        tag: u64,
    ) -> FormatResult<Self> {
        let step = Step::Waiting;
        let pointed = before.with(|raw| Pointer { step, head, tag }.put(raw))?;
        Self::from_pointed(&pointed, after)
    }

    /// Returns the way on from a superblock that has the pointer, announced or not.
    ///
    /// # Errors
    /// As for [`Passage::new`]; a superblock without a pointer.
    pub fn from_pointed(pointed: &Superblock, after: &Superblock) -> FormatResult<Self> {
        let bits = pointed.raw().feature_incompat.get();
        let announced = pointed.with(|raw| raw.feature_incompat.set(bits | FEATURE))?;
        let Some(Pointer { head, tag, .. }) = Pointer::of(announced.raw()) else {
            let expected = Expected::Said("where the log of the changes is");
            return Err(wrong(
                Structure::Superblock,
                "changes that wait",
                0,
                expected,
            ));
        };
        let after = after.with(|raw| {
            raw.feature_incompat
                .set(raw.feature_incompat.get() & !FEATURE);
            Pointer::clear(raw);
        })?;
        let step = Step::Home;
        let released = after.with(|raw| Pointer { step, head, tag }.put(raw))?;
        let mut bytes = released.encode();
        bytes[..SECTOR].copy_from_slice(&announced.encode()[..SECTOR]);
        Ok(Self {
            pointed: announced.with(|raw| raw.feature_incompat.set(bits & !FEATURE))?,
            announced,
            home: Superblock::parse_unverified(&bytes)?,
            released,
            after,
        })
    }

    /// Returns the sums by which the head knows these superblocks.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let first = |sb: &Superblock| sector_sums(&sb.encode()).0;
        let second = |sb: &Superblock| sector_sums(&sb.encode()).1;
        Sums {
            pointed: [first(&self.pointed), second(&self.pointed)],
            announced: [first(&self.announced), second(&self.announced)],
            home: second(&self.home),
            released: [first(&self.released), second(&self.released)],
        }
    }
}

fn sector_sums(bytes: &[u8; SUPERBLOCK_LEN]) -> (u64, u64) {
    let (first, second) = bytes.split_at(SECTOR);
    (sum_of(first), sum_of(second))
}

/// Sums of the sectors of the superblocks of a [`Passage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    pointed: [u64; 2],
    announced: [u64; 2],
    /// Of the second sector: the first one is that of `announced`.
    home: u64,
    released: [u64; 2],
}

impl Sums {
    const WORDS: usize = 7;

    /// Returns how far changes have come by a superblock that says that they wait, or of which a
    /// crash left one half; `None` for one that another program wrote since.
    #[must_use]
    pub fn step(&self, superblock: &[u8; SUPERBLOCK_LEN]) -> Option<Step> {
        let (first, second) = sector_sums(superblock);
        let is = |sector: [u64; 2]| sector == [first, second];
        let [before, pointed] = self.pointed;
        let [marked, announced] = self.announced;
        let [after, released] = self.released;
        if is([marked, announced]) || is([marked, pointed]) || is([before, announced]) {
            Some(Step::Waiting)
        } else if is([marked, self.home]) || is([after, self.home]) || is([marked, released]) {
            Some(Step::Home)
        } else {
            None
        }
    }

    fn words(&self) -> [u64; Self::WORDS] {
        let ([a, b], [c, d], [e, f]) = (self.pointed, self.announced, self.released);
        [a, b, c, d, self.home, e, f]
    }

    fn of_words([a, b, c, d, home, e, f]: [u64; Self::WORDS]) -> Self {
        Self {
            pointed: [a, b],
            announced: [c, d],
            home,
            released: [e, f],
        }
    }
}

/// The first block of a log of changes that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number that all blocks of this log repeat.
    pub tag: u64,
    /// How many blocks wait.
    pub count: u64,
    /// The block of the first [`List`].
    pub lists: Pblk,
    /// The superblocks that there may be meanwhile.
    pub sums: Sums,
}

impl Head {
    /// Most blocks that may wait: their entries are in memory while they are put in place.
    pub const MAX_COUNT: u64 = 1 << 22;

    /// Reads a head, which has this tag.
    ///
    /// # Errors
    /// A wrong magic, checksum or tag, a number of blocks that cannot be.
    pub fn parse(block: &[u8], tag: u64) -> FormatResult<Self> {
        check(block, HEAD_MAGIC, tag)?;
        let count = le64(block, 24);
        if !(1..=Self::MAX_COUNT).contains(&count) {
            let expected = Expected::Between(1, Self::MAX_COUNT);
            return Err(wrong(Structure::Waiting, "count", count, expected));
        }
        let mut words = [0; Sums::WORDS];
        for (number, word) in words.iter_mut().enumerate() {
            *word = le64(block, 40 + number * 8);
        }
        Ok(Self {
            tag,
            count,
            lists: Pblk::new(le64(block, 32)),
            sums: Sums::of_words(words),
        })
    }

    /// Returns the block, which has `len` bytes.
    #[must_use]
    pub fn encode(&self, len: usize) -> Box<[u8]> {
        let mut block = vec![0; len].into_boxed_slice();
        put(&mut block, 0, HEAD_MAGIC);
        put(&mut block, 16, &self.tag.to_le_bytes());
        put(&mut block, 24, &self.count.to_le_bytes());
        put(&mut block, 32, &self.lists.get().to_le_bytes());
        for (number, word) in self.sums.words().iter().enumerate() {
            put(&mut block, 40 + number * 8, &word.to_le_bytes());
        }
        seal(&mut block);
        block
    }
}

/// A block that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it belongs.
    pub home: Pblk,
    /// Where its content is.
    pub at: Pblk,
    /// The sum of its content: see [`Entry::sum_of`].
    pub sum: u64,
}

impl Entry {
    /// Returns the sum of a block's content.
    #[must_use]
    pub fn sum_of(content: &[u8]) -> u64 {
        sum_of(content)
    }
}

/// A block of the list of what waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The blocks, in the order of their places.
    pub entries: Vec<Entry>,
    /// The next block of the list; 0 for none.
    pub next: Pblk,
}

impl List {
    /// Returns how many entries a block of `len` bytes has room for.
    #[must_use]
    pub const fn room(len: usize) -> usize {
        len.saturating_sub(LIST_HEADER) / ENTRY
    }

    /// Reads a block of the list, which has this tag.
    ///
    /// # Errors
    /// A wrong magic, checksum or tag, a number of entries that cannot be.
    pub fn parse(block: &[u8], tag: u64) -> FormatResult<Self> {
        check(block, LIST_MAGIC, tag)?;
        let (count, most) = (le64(block, 32), Self::room(block.len()) as u64);
        if !(1..=most).contains(&count) {
            let expected = Expected::Between(1, most);
            return Err(wrong(Structure::Waiting, "entries", count, expected));
        }
        let entry = |number: usize| {
            let at = LIST_HEADER + number * ENTRY;
            Entry {
                home: Pblk::new(le64(block, at)),
                at: Pblk::new(le64(block, at + 8)),
                sum: le64(block, at + 16),
            }
        };
        Ok(Self {
            entries: (0..count as usize).map(entry).collect(),
            next: Pblk::new(le64(block, 24)),
        })
    }

    /// Returns the block, which has `len` bytes and room for the entries.
    #[must_use]
    pub fn encode(&self, tag: u64, len: usize) -> Box<[u8]> {
        let mut block = vec![0; len].into_boxed_slice();
        put(&mut block, 0, LIST_MAGIC);
        put(&mut block, 16, &tag.to_le_bytes());
        put(&mut block, 24, &self.next.get().to_le_bytes());
        put(&mut block, 32, &(self.entries.len() as u64).to_le_bytes());
        for (number, entry) in self.entries.iter().enumerate() {
            let at = LIST_HEADER + number * ENTRY;
            put(&mut block, at, &entry.home.get().to_le_bytes());
            put(&mut block, at + 8, &entry.at.get().to_le_bytes());
            put(&mut block, at + 16, &entry.sum.to_le_bytes());
        }
        seal(&mut block);
        block
    }
}

fn wrong(what: Structure, field: &'static str, found: u64, expected: Expected) -> FormatError {
    FormatError::new(what, field, found, expected)
}

/// Whether a block is what its reader takes it for.
fn check(block: &[u8], magic: &[u8; 8], tag: u64) -> FormatResult<()> {
    let short = || FormatError::short(Structure::Waiting, block.len(), 1024);
    if block.len() < 1024 {
        return Err(short());
    }
    let (expected, found) = (u64::from_le_bytes(*magic), le64(block, 0));
    if found != expected {
        let expected = Expected::Exactly(expected);
        return Err(wrong(Structure::Waiting, "magic", found, expected));
    }
    let (stored, computed) = (le64(block, SUM_AT), sum_of_block(block));
    if stored != computed {
        let expected = Expected::Exactly(computed);
        return Err(wrong(Structure::Waiting, "sum", stored, expected).at(SUM_AT));
    }
    let found = le64(block, 16);
    if found != tag {
        let expected = Expected::Exactly(tag);
        return Err(wrong(Structure::Waiting, "tag", found, expected));
    }
    Ok(())
}

/// The sum of words: each is taken in by an exclusive or, a multiplication (by the prime of FNV)
/// and an exclusive or of the upper half with the lower one.
fn sum_of_words(words: impl Iterator<Item = u64>) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    words.fold(START, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(PRIME);
        sum ^ sum >> 32
    })
}

/// The sum of bytes, whose number is a multiple of 8, as words.
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks().0;
    sum_of_words(words.iter().map(|word| u64::from_le_bytes(*word)))
}

/// The sum of a block, of which its own place counts as zeros.
fn sum_of_block(block: &[u8]) -> u64 {
    let words = block.as_chunks().0.iter().enumerate();
    sum_of_words(words.map(|(number, word)| {
        if number == SUM_AT / 8 {
            0
        } else {
            u64::from_le_bytes(*word)
        }
    }))
}

fn seal(block: &mut [u8]) {
    let sum = sum_of_block(block);
    put(block, SUM_AT, &sum.to_le_bytes());
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    let places = block.iter_mut().skip(at);
    places.zip(bytes).for_each(|(place, byte)| *place = *byte);
}

fn le32(block: &[u8], at: usize) -> u32 {
    let bytes = block.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn le64(block: &[u8], at: usize) -> u64 {
    u64::from(le32(block, at + 4)) << 32 | u64::from(le32(block, at))
}

/// The feature words and the pointer of something that looks like a superblock: whether it says
/// that changes wait, and where. The superblock may be one of which a crash left one half.
#[must_use]
pub fn look(bytes: &[u8; SUPERBLOCK_LEN]) -> (bool, Option<Pointer>) {
    let Ok((raw, _)) = RawSuperblock::read_from_prefix(bytes) else {
        return (false, None);
    };
    let is_one = raw.magic.get() == crate::superblock::MAGIC;
    let waits = is_one && raw.feature_incompat.get() & FEATURE != 0;
    (waits, Pointer::of(&raw).filter(|_| is_one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Incompat, RoCompat};
    use crate::superblock::MAGIC;

    /// A file system of 100 blocks of 4 KiB, before changes and after them.
    fn both(checksums: bool) -> (Superblock, Superblock) {
        let mut raw = RawSuperblock::zeroed();
        raw.magic.set(MAGIC);
        raw.rev_level.set(1);
        raw.log_block_size.set(2);
        raw.log_cluster_size.set(2);
        raw.blocks_per_group.set(32_768);
        raw.clusters_per_group.set(32_768);
        raw.inodes_per_group.set(64);
        raw.inodes_count.set(64);
        raw.blocks_count_lo.set(100);
        raw.inode_size.set(256);
        raw.first_ino.set(11);
        raw.checksum_type = 1;
        raw.feature_incompat.set(Incompat::EXTENTS.bits());
        if checksums {
            raw.feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
        }
        let before = Superblock::from_raw(raw).unwrap();
        let after = before.with(|raw| {
            raw.wtime.set(7);
            raw.uuid = [7; 16];
            raw.mount_opts[0] = b'x';
        });
        (before, after.unwrap())
    }

    /// What a crash leaves of a write of `to` over `from`: each of the sectors is the old one or
    /// the new one.
    fn torn(from: &Superblock, to: &Superblock) -> [[u8; SUPERBLOCK_LEN]; 2] {
        let (from, to) = (from.encode(), to.encode());
        let mix = |first: &[u8; SUPERBLOCK_LEN], second: &[u8; SUPERBLOCK_LEN]| {
            let mut bytes = *second;
            bytes[..SECTOR].copy_from_slice(&first[..SECTOR]);
            bytes
        };
        [mix(&from, &to), mix(&to, &from)]
    }

    #[test]
    fn whatever_is_left_of_a_write_tells_how_far_the_changes_are() {
        for checksums in [false, true] {
            let (before, after) = both(checksums);
            let way = Passage::new(&before, &after, Pblk::new(70), 9).unwrap();
            assert_eq!(way.after.encode(), after.encode());
            let again = Passage::from_pointed(&way.announced, &way.released).unwrap();
            assert_eq!(again.sums(), way.sums());
            let step = |bytes: &[u8; SUPERBLOCK_LEN]| way.sums().step(bytes);
            assert_eq!(step(&way.announced.encode()), Some(Step::Waiting));
            assert_eq!(step(&way.home.encode()), Some(Step::Home));
            // Nothing of the first and of the last write needs to be told apart: only one sector
            // changes.
            for (from, to) in [(&before, &way.pointed), (&way.released, &way.after)] {
                assert_eq!(from.encode()[..SECTOR], to.encode()[..SECTOR]);
            }
            assert_eq!(
                way.announced.encode()[..SECTOR],
                way.home.encode()[..SECTOR]
            );
            for (from, to, at) in [
                (&way.pointed, &way.announced, Step::Waiting),
                (&way.home, &way.released, Step::Home),
            ] {
                for left in torn(from, to) {
                    let (waits, pointer) = look(&left);
                    assert!(pointer.is_some());
                    let is_known = waits || Superblock::parse(&left).is_err();
                    // Without a checksum, one sector is written, and this is the other superblock.
                    let is_whole = left == from.encode() || left == to.encode();
                    assert!(is_known || is_whole);
                    if is_known {
                        assert_eq!(step(&left), Some(at), "{checksums}");
                    }
                }
            }
            // Somebody else has written since.
            let other = way.announced.with(|raw| raw.wtime.set(8)).unwrap();
            assert_eq!(step(&other.encode()), None);
            assert_eq!(step(&before.encode()), None);
        }
    }

    #[test]
    fn records_are_read_as_they_were_written_and_not_when_damaged() {
        let (before, after) = both(true);
        let way = Passage::new(&before, &after, Pblk::new(70), 9).unwrap();
        let head = Head {
            tag: 9,
            count: 41,
            lists: Pblk::new(71),
            sums: way.sums(),
        };
        let entry = |number: u64| Entry {
            home: Pblk::new(number),
            at: Pblk::new(1 << 40 | number),
            sum: number,
        };
        let list = List {
            entries: (0..List::room(1024) as u64).map(entry).collect(),
            next: Pblk::new(72),
        };
        assert_eq!(list.entries.len(), 41);
        let (mut of_head, mut of_list) = (head.encode(1024), list.encode(9, 1024));
        assert_eq!(Head::parse(&of_head, 9), Ok(head));
        assert_eq!(List::parse(&of_list, 9), Ok(list));
        assert!(Head::parse(&of_head, 8).is_err(), "of another log");
        assert!(List::parse(&of_head, 9).is_err(), "a head is no list");
        for at in 0..1024 {
            of_head[at] ^= 1;
            of_list[at] ^= 1;
            assert!(Head::parse(&of_head, 9).is_err(), "{at}");
            assert!(List::parse(&of_list, 9).is_err(), "{at}");
            of_head[at] ^= 1;
            of_list[at] ^= 1;
        }
        assert!(Head::parse(&of_head[..1000], 9).is_err());
        assert!(List::parse(&[], 9).is_err());
    }
}
