//! Directories: entries, checksums, duplicate names, and what they say about other inodes.

use crate::blockset::BlockSet;
use crate::encryption::Policies;
use crate::error::Result;
use crate::inode_table::InodeTable;
use crate::maps::{self, Run};
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Pass, Place, Progress, htree, xattr};
use extant_format::checksum::Crc32c;
use extant_format::dir::entry::ENTRY_HEADER_LEN;
use extant_format::dir::{self, DirEntry, DirLayout, EntryType, casefold, htree as format_htree};
use extant_format::features::{Compat, Incompat};
use extant_format::inline_data::{InlineData, InlineDir};
use extant_format::inode::{Inode, InodeFlags};
use extant_format::{FormatResult, Ino, Pblk};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Directories looked at by one task.
const TASK: usize = 64;
/// Bytes of a directory that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Findings about one directory after which the rest of it is not looked at.
const PROBLEMS_MAX: u64 = 64;

fn increase(counts: &mut HashMap<u32, u32>, ino: u32, by: u32) {
    let count = counts.entry(ino).or_default();
    *count = count.saturating_add(by);
}

/// Names found for inodes: almost all have one.
#[derive(Debug, Default)]
pub(crate) struct NameCounts {
    once: BlockSet,
    more: HashMap<u32, u32>,
}

impl NameCounts {
    fn count(&mut self, ino: Ino) {
        let n = u64::from(ino.get());
        let more = &mut self.more;
        self.once
            .insert(n..n + 1, &mut |_| increase(more, ino.get(), 1));
    }

    fn absorb(&mut self, other: Self) {
        let more = &mut self.more;
        for (ino, count) in other.more {
            increase(more, ino, count);
        }
        self.once.absorb(other.once, &mut |both| {
            for ino in both {
                increase(more, ino as u32, 1);
            }
        });
    }

    /// Names of an inode, `.` and `..` among them.
    pub(crate) fn get(&self, ino: Ino) -> u64 {
        let once = u64::from(self.once.contains(ino.get().into()));
        once + self.more.get(&ino.get()).map_or(0, |more| u64::from(*more))
    }
}

/// What all directories say.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) sink: Sink,
    pub(crate) counts: NameCounts,
    /// Directories and a directory that has an entry for them, `.` and `..` left out.
    pub(crate) parents: HashMap<Ino, Ino>,
    /// Directories and what their `..` names.
    pub(crate) dotdots: Vec<(Ino, Ino)>,
    /// Whether the root has an entry `lost+found` that is a directory.
    pub(crate) lost_found: bool,
}

impl Names {
    fn new() -> Self {
        Self {
            sink: Sink::new(),
            counts: NameCounts::default(),
            parents: HashMap::new(),
            dotdots: Vec::new(),
            lost_found: false,
        }
    }

    /// Takes note of an entry for a directory, and says so if it is not the first.
    fn parent(&mut self, child: Ino, parent: Ino) {
        let Some(first) = self.parents.insert(child, parent) else {
            return;
        };
        self.parents.insert(child, first.min(parent));
        let text = format!("the directory has names in inodes {first} and {parent}");
        self.sink.say(Code::DirHardLink, Place::ino(child), text);
    }

    fn absorb(mut self, other: Self) -> Self {
        self.sink.absorb(other.sink);
        self.counts.absorb(other.counts);
        for (child, parent) in other.parents {
            self.parent(child, parent);
        }
        self.dotdots.extend(other.dotdots);
        self.lost_found |= other.lost_found;
        self
    }
}

/// Looks into every directory.
pub(crate) fn run(
    volume: &Volume,
    table: &InodeTable,
    policies: &Policies,
    dirs: &[Ino],
    shared: &BlockSet,
    progress: &dyn Progress,
) -> Result<Names> {
    progress.begin(Pass::Directories, dirs.len() as u64);
    let hasher = RandomState::new();
    // Blocks that several claim are read once: then all directories are one task.
    let task = if shared.is_empty() {
        TASK
    } else {
        dirs.len().max(1)
    };
    dirs.par_chunks(task)
        .try_fold(Names::new, |mut names, some| {
            let mut once = Once {
                shared,
                seen: BlockSet::default(),
            };
            for &ino in some {
                let inodes = (table, policies);
                one(volume, inodes, ino, &hasher, &mut once, &mut names)?;
                progress.advance(1);
            }
            Ok(names)
        })
        .try_reduce(Names::new, |a, b| Ok(a.absorb(b)))
}

/// Blocks that are claimed more than once, and those of them that were read.
struct Once<'a> {
    shared: &'a BlockSet,
    seen: BlockSet,
}

impl Once<'_> {
    /// Marks `clusters` as read. Returns whether nothing of them was read before.
    fn mark_read(&mut self, clusters: Range<u64>) -> bool {
        let Self { shared, seen } = self;
        let mut is_new = true;
        shared.runs(clusters, &mut |run| {
            seen.insert(run, &mut |_| is_new = false);
        });
        is_new
    }
}

/// Something that goes through the names of a directory.
type NameWalk<'a> = dyn FnMut(&mut dyn FnMut(&[u8])) + 'a;

/// One directory under check.
struct Directory<'a> {
    volume: &'a Volume,
    table: &'a InodeTable,
    ino: Ino,
    place: Place,
    layout: DirLayout,
    seed: Option<Crc32c>,
    casefold: bool,
    encrypted: bool,
    /// Names have to be UTF-8.
    strict: bool,
    policies: &'a Policies,
    /// The policy that all have which it names.
    policy: Option<u64>,
    hasher: &'a RandomState,
    /// A hash of each name, to find duplicates.
    hashes: Vec<u64>,
    /// Findings there were before.
    problems: u64,
    seen_dot: bool,
    seen_dotdot: bool,
}

fn one(
    volume: &Volume,
    (table, policies): (&InodeTable, &Policies),
    ino: Ino,
    hasher: &RandomState,
    once: &mut Once<'_>,
    names: &mut Names,
) -> Result<()> {
    let Some((slot, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    let mut directory = Directory {
        volume,
        table,
        ino,
        place: Place::ino(ino),
        layout: volume.dir_layout(inode.flags),
        seed: volume.inode_seed(ino, &inode),
        casefold: inode.flags.contains(InodeFlags::CASEFOLD)
            && volume.has_incompat(Incompat::CASEFOLD),
        encrypted: inode.flags.contains(InodeFlags::ENCRYPT),
        strict: is_strict(volume, inode.flags),
        policies,
        policy: policies.of(ino),
        hasher,
        hashes: Vec::new(),
        problems: names.sink.total(),
        seen_dot: false,
        seen_dotdot: false,
    };
    let inline =
        inode.flags.contains(InodeFlags::INLINE_DATA) && volume.has_incompat(Incompat::INLINE_DATA);
    if inline {
        directory.inline(&inode, &slot, names);
        directory.duplicates(
            &mut |each| directory.inline_names(&inode, &slot, each),
            names,
        )
    } else {
        let runs = maps::runs(volume, ino, &inode)?;
        if !directory.blocks(&inode, &runs, once, names)? {
            return Ok(());
        }
        let blocks = || blocks_of(volume, &inode, &runs);
        let mut result = Ok(());
        directory.duplicates(
            &mut |each| {
                for (_, block) in blocks() {
                    match volume.block(block) {
                        Ok(bytes) => dir::entries(&bytes, &directory.layout)
                            .flatten()
                            .filter(|entry| entry.ino.is_some())
                            .for_each(|entry| each(entry.name)),
                        Err(e) => result = Err(e),
                    }
                }
            },
            names,
        )?;
        result
    }
}

/// Whether names of a directory with these flags have to be UTF-8: where they are folded, in a file
/// system that is strict. Encrypted names are exempt: their folding is not known here.
pub(crate) fn is_strict(volume: &Volume, flags: InodeFlags) -> bool {
    let strict = volume.sb.encoding().is_some_and(|(_, bits)| bits & 1 != 0);
    let folded = flags.contains(InodeFlags::CASEFOLD) && volume.has_incompat(Incompat::CASEFOLD);
    strict && folded && !flags.contains(InodeFlags::ENCRYPT)
}

/// The mapped blocks of a directory, with their place in it.
fn blocks_of<'a>(
    volume: &'a Volume,
    inode: &Inode,
    runs: &'a [Run],
) -> impl Iterator<Item = (u32, Pblk)> + 'a {
    let end = inode.size >> volume.block_size().log2();
    runs.iter()
        .flat_map(|run| {
            (0..run.len).map(move |i| (run.lblk + i, Pblk::new(run.pblk + u64::from(i))))
        })
        .take_while(move |(lblk, _)| u64::from(*lblk) < end)
}

impl Directory<'_> {
    fn inline_dir<'i>(&self, inode: &'i Inode, slot: &'i [u8]) -> FormatResult<InlineDir<'i>> {
        let rest = xattr::inline_value(self.volume, inode, slot).unwrap_or_default();
        let data = InlineData::new(&inode.map, rest, inode.size);
        InlineDir::new(&data, self.layout.max_inode)
    }

    fn inline_names(&self, inode: &Inode, slot: &[u8], each: &mut dyn FnMut(&[u8])) {
        if let Ok(dir) = self.inline_dir(inode, slot) {
            dir.entries(&self.layout)
                .flatten()
                .filter(|entry| entry.ino.is_some())
                .for_each(|entry| each(entry.name));
        }
    }

    /// A directory inside its inode: no `.`, no `..`, no checksum.
    fn inline(&mut self, inode: &Inode, slot: &[u8], names: &mut Names) {
        let dir = match self.inline_dir(inode, slot) {
            Ok(dir) => dir,
            Err(e) => {
                names.sink.format(Code::InlineData, self.place, e);
                return;
            }
        };
        names.counts.count(self.ino);
        names.counts.count(dir.parent());
        names.dotdots.push((self.ino, dir.parent()));
        for entry in dir.entries(&self.layout) {
            match entry {
                Ok(entry) => {
                    free_space(&entry, self.place, names);
                    self.entry(&entry, self.place, names);
                }
                Err(e) => names.sink.format(Code::DirEntry, self.place, e),
            }
        }
    }

    fn abandon(&self, names: &mut Names, why: &str) {
        let text = format!("{why}: the rest of the directory was not looked at");
        names.sink.say(Code::DirAbandoned, self.place, text);
    }

    /// Looks at all blocks; returns whether it did, or gave up.
    fn blocks(
        &mut self,
        inode: &Inode,
        runs: &[Run],
        once: &mut Once<'_>,
        names: &mut Names,
    ) -> Result<bool> {
        let volume = self.volume;
        let indexed =
            inode.flags.contains(InodeFlags::INDEX) && volume.has_compat(Compat::DIR_INDEX);
        let mut index = indexed.then(|| htree::Index::new(volume, inode, self.layout));
        let end = inode.size >> volume.block_size().log2();
        let mut next = 0;
        let size = volume.block_size().len();
        let mut buf = Vec::new();
        for run in runs {
            if u64::from(run.lblk) >= end {
                break;
            }
            if u64::from(run.lblk) > next {
                self.hole(next, run.lblk.into(), names);
            }
            let len = u64::from(run.len).min(end - u64::from(run.lblk));
            if !once.mark_read(volume.clusters_of(run.pblk..run.pblk + len)) {
                self.abandon(
                    names,
                    "its blocks were read before, as another's or its own",
                );
                return Ok(false);
            }
            let mut done = 0;
            while done < len {
                let together = (len - done).min((READ_BYTES / size).max(1) as u64);
                buf.resize(together as usize * size, 0);
                volume.read(Pblk::new(run.pblk + done), &mut buf)?;
                for (i, block) in buf.chunks_exact(size).enumerate() {
                    let at = done + i as u64;
                    let lblk = run.lblk + at as u32;
                    let place = self
                        .place
                        .at_lblk(maps::lblk(lblk.into()))
                        .at_block(Pblk::new(run.pblk + at));
                    self.block(block, lblk, place, index.as_mut(), names);
                    if names.sink.total() - self.problems > PROBLEMS_MAX {
                        self.abandon(names, "too many problems");
                        return Ok(false);
                    }
                }
                done += together;
            }
            next = u64::from(run.lblk) + len;
        }
        if next < end {
            self.hole(next, end, names);
        }
        if !self.seen_dot {
            let text = "the directory has no entry for itself";
            names.sink.say(Code::DirDot, self.place, text);
        }
        if !self.seen_dotdot {
            let text = "the directory has no entry for its parent";
            names.sink.say(Code::DirDotDot, self.place, text);
        }
        if let Some(index) = index {
            index.check(self.ino, runs, self.seed, &mut names.sink)?;
        }
        Ok(true)
    }

    fn hole(&self, from: u64, to: u64, names: &mut Names) {
        let place = self.place.at_lblk(maps::lblk(from));
        let text = format!("{} blocks are not mapped", to - from);
        names.sink.say(Code::DirHole, place, text);
    }

    fn block(
        &mut self,
        block: &[u8],
        lblk: u32,
        place: Place,
        index: Option<&mut htree::Index<'_>>,
        names: &mut Names,
    ) {
        // Index nodes have a checksum of their own.
        let is_index = index.as_ref().is_some_and(|index| {
            (lblk == 0 && format_htree::is_root(block, &self.layout))
                || (lblk > 0
                    && format_htree::is_node(block, &self.layout)
                    && index.may_have_nodes())
        });
        if let Some(seed) = self.seed
            && !is_index
            && let Err(e) = dir::verify_block_checksum(block, seed)
        {
            names.sink.format(Code::DirChecksum, place, e);
        }
        let mut range = htree::HashRange::default();
        let hasher = index.as_ref().and_then(|index| index.hasher());
        for (number, entry) in dir::entries(block, &self.layout).enumerate() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    names.sink.format(Code::DirEntry, place, e);
                    break;
                }
            };
            if !is_index && is_over_tail(&self.layout, &entry) {
                let text = "a record lies over the place of the checksum";
                names.sink.say(Code::DirChecksum, place, text);
            }
            if lblk == 0 && number < 2 && self.dots(block, &entry, number, place, names) {
                continue;
            }
            free_space(&entry, place, names);
            if entry.ino.is_some() {
                if let Some(hasher) = hasher {
                    range.add(hasher.hash(entry.name).major);
                }
                self.entry(&entry, place, names);
            }
        }
        if let Some(index) = index {
            index.note(lblk, range);
            if lblk == 0 {
                index.read_root(block, place, &mut names.sink);
            }
        }
    }

    /// Checks `.` and `..`, the first two entries; returns whether this is one of them.
    fn dots(
        &mut self,
        block: &[u8],
        entry: &DirEntry<'_>,
        number: usize,
        place: Place,
        names: &mut Names,
    ) -> bool {
        let (name, code): (&[u8], Code) = match number {
            0 => (b".", Code::DirDot),
            _ => (b"..", Code::DirDotDot),
        };
        let Some(ino) = entry.ino.filter(|_| entry.name == name) else {
            return false;
        };
        if is_longer_dot(block, entry) {
            let text = format!("the name {} is not ended by a zero byte", shown(name));
            names.sink.say(code, place, text);
        }
        if number == 0 {
            self.seen_dot = true;
            if ino != self.ino {
                let what = "the directory's entry for itself";
                names
                    .sink
                    .number(code, place, what, ino.get(), self.ino.get());
            }
        } else {
            self.seen_dotdot = true;
            names.dotdots.push((self.ino, ino));
        }
        self.check_type(entry, crate::inode_table::KIND_DIR, place, names);
        names.counts.count(ino);
        true
    }

    fn check_type(&self, entry: &DirEntry<'_>, kind: u8, place: Place, names: &mut Names) {
        let expected = if self.layout.file_type { kind } else { 0 };
        let found = entry.file_type.raw();
        if found != expected {
            // The number 0 says nothing; others that are not known read as 0 too, and are wrong.
            let says_nothing = self.layout.file_type && entry.stored[1] == 0;
            let code = if says_nothing {
                Code::DirEntryTypeMissing
            } else {
                Code::DirEntryType
            };
            let what = "file type of an entry";
            names.sink.number(code, place, what, found, expected);
        }
    }

    fn entry(&mut self, entry: &DirEntry<'_>, place: Place, names: &mut Names) {
        let Some(ino) = entry.ino else { return };
        if names.sink.total() - self.problems > PROBLEMS_MAX {
            names.counts.count(ino);
            return;
        }
        let name = entry.name;
        if name == b"." || name == b".." {
            let code = match name.len() {
                1 => Code::DirDot,
                _ => Code::DirDotDot,
            };
            names.sink.say(code, place, "the name is used twice");
        }
        self.hashes.push(self.hash(name));
        if self.encrypted && name.len() < 16 && name != b"." && name != b".." {
            let text = format!("an encrypted name of {} bytes", name.len());
            names.sink.say(Code::DirEntryName, place, text);
        }
        if self.strict && std::str::from_utf8(name).is_err() {
            let text = format!("{} is no UTF-8, as every name here has to be", shown(name));
            names.sink.say(Code::DirEntryName, place, text);
        }
        let target = self.table.get(ino);
        if !target.is_in_use() {
            let text = format!("{} names inode {ino}, which is not in use", shown(name));
            names.sink.say(Code::DirEntryUnused, place, text);
            return;
        }
        if target.is_nameless() || target.is_ea_inode() {
            let text = format!("{} names inode {ino}, which has no names", shown(name));
            names.sink.say(Code::DirEntryInode, place, text);
            return;
        }
        if target.is_dir() {
            if ino == Ino::ROOT {
                let text = format!("{} names the root directory", shown(name));
                names.sink.say(Code::DirHardLink, place, text);
                return;
            }
            names.parent(ino, self.ino);
            if self.ino == Ino::ROOT && name == b"lost+found" {
                names.lost_found = true;
            }
        }
        self.check_type(entry, target.kind, place, names);
        names.counts.count(ino);
        if is_other_policy(self.policies, self.policy, ino, target.kind) {
            let how = match self.policies.of(ino) {
                Some(_) => "is encrypted by another policy",
                None => "is not encrypted",
            };
            let text = format!("{} names inode {ino}, which {how}", shown(name));
            names.sink.say(Code::DirEntryPolicy, place, text);
        }
    }

    /// A hash by which equal names are found.
    fn hash(&self, name: &[u8]) -> u64 {
        if self.casefold
            && !self.encrypted
            && let Some(folded) = casefold::fold_name(name)
        {
            return self.hasher.hash_one(folded.as_slice());
        }
        self.hasher.hash_one(name)
    }

    /// Looks for equal names among those with equal hashes.
    fn duplicates(&self, walk: &mut NameWalk<'_>, names: &mut Names) -> Result<()> {
        let mut hashes = self.hashes.clone();
        hashes.sort_unstable();
        let twice: HashSet<u64> = hashes
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
            .collect();
        if twice.is_empty() {
            return Ok(());
        }
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        let mut found: Vec<Vec<u8>> = Vec::new();
        walk(&mut |name| {
            if twice.contains(&self.hash(name)) && found.len() < PROBLEMS_MAX as usize {
                let folded = casefold::fold_name(name).filter(|_| self.casefold && !self.encrypted);
                if !seen.insert(folded.unwrap_or_else(|| name.to_vec())) {
                    found.push(name.to_vec());
                }
            }
        });
        for name in found {
            let text = format!("{} is there twice", shown(&name));
            names.sink.say(Code::DirDuplicateName, self.place, text);
        }
        Ok(())
    }
}

/// Whether an inode of this type cannot be in a directory with this policy. Devices, pipes and
/// sockets have none.
pub(crate) fn is_other_policy(
    policies: &Policies,
    of_dir: Option<u64>,
    ino: Ino,
    kind: u8,
) -> bool {
    let can_have = [EntryType::Regular, EntryType::Directory, EntryType::Symlink];
    let has_one = can_have.iter().any(|can| can.raw() == kind);
    of_dir.is_some() && has_one && policies.of(ino) != of_dir
}

/// Whether another byte than zero follows the name of an entry `.` or `..`, as none ever does.
pub(crate) fn is_longer_dot(block: &[u8], entry: &DirEntry<'_>) -> bool {
    let end = entry.offset + ENTRY_HEADER_LEN + entry.name.len();
    block.get(end).is_some_and(|byte| *byte != 0)
}

/// Whether a record that is no checksum tail lies over the place of one.
pub(crate) fn is_over_tail(layout: &DirLayout, entry: &DirEntry<'_>) -> bool {
    let end = layout.entries_len();
    layout.checksums && entry.offset < end && entry.offset + entry.rec_len > end
}

/// Whether a record is free space with a name longer than there is room for, which Linux takes for
/// damage.
pub(crate) fn is_false_space(entry: &DirEntry<'_>) -> bool {
    entry.ino.is_none() && ENTRY_HEADER_LEN + usize::from(entry.stored[0]) > entry.rec_len
}

fn free_space(entry: &DirEntry<'_>, place: Place, names: &mut Names) {
    if is_false_space(entry) {
        let (len, name) = (entry.rec_len, entry.stored[0]);
        let text = format!("free space of {len} bytes with a name of {name}");
        names.sink.say(Code::DirEntry, place, text);
    }
}

/// A name as findings show it: quoted, bytes that are not plain text escaped.
fn shown(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}
