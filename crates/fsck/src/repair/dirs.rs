//! Directories: entries that cannot be kept go, blocks are written anew, indexes that lie are
//! dropped.
//!
//! # Invariants
//! - A block is written anew only if something in it changes, so an index stays right when entries
//!   are taken from its leaves. Without an index, entries may lie in any block.

use super::entries::{Judge, Verdict, blocks_of, is_inline, naming};
use super::map_builder::Builder;
use super::salvage::{Found, FoundNames, Seeker};
use super::work::Work;
use crate::connectivity::parent_of;
use crate::dir::{is_false_space, is_longer_dot, is_over_tail};
use crate::error::Result;
use crate::maps::Run;
use crate::{Code, Place, xattr};
use extant_format::checksum::Crc32c;
use extant_format::dir::{
    self, DirBlockBuilder, DirEntry, DirLayout, EntryHash, EntryType, NewEntry, edit, htree,
};
use extant_format::inline_data::{InlineData, InlineDir, encode_dir};
use extant_format::inode::{Inode, InodeFlags};
use extant_format::{Ino, Pblk};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

const CODES: &[Code] = &[
    Code::DirHole,
    Code::DirAbandoned,
    Code::DirChecksum,
    Code::DirEntry,
    Code::DirEntryInode,
    Code::DirEntryUnused,
    Code::DirEntryType,
    Code::DirEntryTypeMissing,
    Code::DirEntryName,
    Code::DirEntryPolicy,
    Code::DirDuplicateName,
    Code::DirDot,
    Code::DirDotDot,
    Code::DirIndex,
    Code::DirIndexChecksum,
    Code::DirIndexHash,
    Code::DirIndexReference,
    Code::InlineData,
];

/// After these the index says nothing any more.
const INDEX_CODES: [Code; 5] = [
    Code::DirIndex,
    Code::DirIndexHash,
    Code::DirIndexReference,
    Code::DirDot,
    Code::DirHole,
];

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    let mut dirs = work.by_inode(CODES);
    let kept = one_name_each(work, &mut dirs)?;
    let loops: HashSet<Ino> = work.by_inode(&[Code::DirLoop]).into_keys().collect();
    for ino in &loops {
        if let Some(parent) = parent_of(&work.survey.parents, *ino) {
            dirs.entry(parent).or_default().insert(Code::DirLoop);
        }
    }
    let found = FoundNames::default();
    for (ino, codes) in dirs {
        let root = codes.contains(&Code::DirHardLink) && ino == Ino::ROOT;
        if work.survey.table.get(ino).is_dir() || root {
            let drop_index = INDEX_CODES.iter().any(|code| codes.contains(code));
            one(
                work,
                ino,
                &codes,
                &Names {
                    kept: &kept,
                    loops: &loops,
                    found: &found,
                },
                drop_index,
            )?;
        }
    }
    Ok(())
}

/// Which names go, and which were found.
struct Names<'a> {
    kept: &'a HashMap<Ino, (Ino, Vec<u8>)>,
    loops: &'a HashSet<Ino>,
    found: &'a FoundNames,
}

/// Chooses the one name that each directory keeps of which there are several: the one in the
/// directory that its `..` names, or the first.
fn one_name_each(
    work: &mut Work<'_>,
    dirs: &mut BTreeMap<Ino, BTreeSet<Code>>,
) -> Result<HashMap<Ino, (Ino, Vec<u8>)>> {
    let mut several: HashSet<Ino> = HashSet::new();
    for finding in work.findings(&[Code::DirHardLink]) {
        if let Some(ino) = finding.place.ino {
            several.insert(ino);
            // Of an entry for the root, the place is the directory that has it.
            dirs.entry(ino).or_default().insert(Code::DirHardLink);
        }
    }
    let dotdots: HashMap<Ino, Ino> = work.survey.dotdots.iter().copied().collect();
    let mut kept = HashMap::new();
    for (ino, names) in naming(work.survey, &several)? {
        let home = dotdots.get(&ino);
        let chosen = names.iter().find(|naming| Some(&naming.dir) == home);
        for naming in &names {
            dirs.entry(naming.dir)
                .or_default()
                .insert(Code::DirHardLink);
        }
        if let Some(chosen) = chosen.or(names.first())
            && names.len() > 1
        {
            kept.insert(ino, (chosen.dir, chosen.name.clone()));
        }
    }
    Ok(kept)
}

/// An entry that is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    ino: Ino,
    name: Vec<u8>,
    file_type: EntryType,
    hash: Option<EntryHash>,
}

impl Kept {
    pub(super) fn as_new(&self) -> NewEntry<'_> {
        NewEntry {
            ino: self.ino,
            name: &self.name,
            file_type: self.file_type,
            hash: self.hash,
        }
    }
}

/// One directory that is put right.
struct Directory<'a> {
    ino: Ino,
    parent: Ino,
    layout: DirLayout,
    seed: Crc32c,
    indexed: bool,
    drop_index: bool,
    judge: Judge<'a>,
    seeker: Seeker<'a>,
    /// New content of blocks.
    writes: Vec<(Pblk, Vec<u8>)>,
    /// Entries for which their block had no room.
    homeless: Vec<Kept>,
    told: Vec<(Code, Place, String)>,
    /// An entry got another name, which its index would not find.
    renamed: bool,
}

fn directory<'a>(
    work: &Work<'a>,
    ino: Ino,
    inode: &Inode,
    names: &'a Names<'a>,
    codes: &BTreeSet<Code>,
    drop_index: bool,
) -> Directory<'a> {
    let volume = work.volume();
    let parent = match ino {
        Ino::ROOT => Ino::ROOT,
        _ => parent_of(&work.survey.parents, ino).unwrap_or(Ino::ROOT),
    };
    let encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
    let twice = codes.contains(&Code::DirDuplicateName);
    let layout = volume.dir_layout(inode.flags);
    Directory {
        ino,
        parent,
        layout,
        seed: volume.inode_seed(ino, inode).unwrap_or(Crc32c::INIT),
        indexed: inode.flags.contains(InodeFlags::INDEX),
        drop_index,
        judge: Judge {
            survey: work.survey,
            dir: ino,
            encrypted,
            file_types: layout.file_type,
            kept: names.kept,
            loops: names.loops,
            seen: twice.then(HashSet::new),
            strict: crate::dir::is_strict(volume, inode.flags),
        },
        seeker: Seeker {
            survey: work.survey,
            layout,
            found: names.found,
        },
        writes: Vec::new(),
        homeless: Vec::new(),
        told: Vec::new(),
        renamed: false,
    }
}

fn one(
    work: &mut Work<'_>,
    ino: Ino,
    codes: &BTreeSet<Code>,
    names: &Names<'_>,
    drop_index: bool,
) -> Result<()> {
    let volume = work.volume();
    let Some((slot, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    if is_inline(volume, &inode) {
        return inline(work, ino, &inode, slot, names, codes);
    }
    let blocks = blocks_of(volume, ino, &inode)?;
    let end = inode.size >> volume.block_size().log2();
    if blocks.is_empty() || (blocks.len() as u64) < end {
        return close_holes(work, ino);
    }
    if !blocks.iter().all(|(_, at)| work.owns(*at)) {
        return Ok(());
    }
    let mut directory = directory(work, ino, &inode, names, codes, drop_index);
    for (lblk, at) in blocks {
        let bytes = volume.block(at)?;
        directory.block(lblk, at, bytes);
    }
    let moved = directory.renamed || !directory.homeless.is_empty();
    if directory.indexed && !drop_index && (moved || directory.index_is_lost()) {
        return one(work, ino, codes, names, true);
    }
    directory.finish(work)
}

/// Makes a directory a plain list of entries, without an index.
pub(super) fn without_index(work: &mut Work<'_>, ino: Ino) -> Result<()> {
    let names = Names {
        kept: &HashMap::new(),
        loops: &HashSet::new(),
        found: &FoundNames::default(),
    };
    one(work, ino, &BTreeSet::new(), &names, true)
}

impl Directory<'_> {
    fn place(&self, lblk: u32, at: Pblk) -> Place {
        let lblk = extant_format::Lblk::new(lblk);
        Place::ino(self.ino).at_lblk(lblk).at_block(at)
    }

    fn tell(&mut self, code: Code, place: Place, text: impl Into<String>) {
        self.told.push((code, place, text.into()));
    }

    /// Whether the index has a checksum that cannot be put right.
    fn index_is_lost(&self) -> bool {
        self.told
            .iter()
            .any(|(code, _, text)| *code == Code::DirIndexChecksum && text.is_empty())
    }

    fn block(&mut self, lblk: u32, at: Pblk, mut bytes: Vec<u8>) {
        let place = self.place(lblk, at);
        let is_root = lblk == 0 && htree::is_root(&bytes, &self.layout);
        let is_node = lblk > 0 && htree::is_node(&bytes, &self.layout);
        if self.indexed && !self.drop_index && (is_root || is_node) {
            self.index_block(is_root, at, place, bytes);
            return;
        }
        let (entries, changed) = self.entries(lblk, &bytes, place);
        let dropped = self.drop_index && self.indexed && (is_root || is_node);
        if changed || dropped {
            self.rebuild(lblk, entries, &mut bytes);
            self.writes.push((at, bytes));
        } else if self.layout.checksums && dir::verify_block_checksum(&bytes, self.seed).is_err() {
            if dir::entry::has_tail(&bytes) {
                dir::entry::write_tail(&mut bytes, self.seed);
            } else {
                self.rebuild(lblk, entries, &mut bytes);
            }
            self.writes.push((at, bytes));
            self.tell(Code::DirChecksum, place, "computed anew");
        }
    }

    fn index_block(&mut self, is_root: bool, at: Pblk, place: Place, mut bytes: Vec<u8>) {
        if !self.layout.checksums {
            return;
        }
        let verify = if is_root {
            htree::verify_root_checksum
        } else {
            htree::verify_node_checksum
        };
        if verify(&bytes, self.seed).is_ok() {
            return;
        }
        if is_root {
            htree::write_root_checksum(&mut bytes, self.seed)
        } else {
            htree::write_node_checksum(&mut bytes, self.seed)
        }
        let text = match verify(&bytes, self.seed) {
            Ok(()) => "computed anew",
            Err(_) => "",
        };
        self.writes.push((at, bytes));
        self.tell(Code::DirIndexChecksum, place, text);
    }

    /// The entries of a block that stay, `.` and `..` of the first block left out, and whether any
    /// change.
    fn entries(&mut self, lblk: u32, bytes: &[u8], place: Place) -> (Vec<Kept>, bool) {
        let layout = self.layout;
        let mut kept = Vec::new();
        let mut changed = false;
        let mut dots = 0;
        let mut at = 0;
        for (number, entry) in dir::entries(bytes, &layout).enumerate() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    changed = true;
                    let names = self.seeker.names(bytes, place, at);
                    let count = names.len();
                    let text = format!(
                        "a record makes no sense; {count} names are found from there on ({e})"
                    );
                    self.tell(Code::DirEntry, place, text);
                    let names = names.iter().map(Found::as_entry);
                    kept.extend(names.filter_map(|entry| self.keep(&entry, place).0));
                    break;
                }
            };
            at = entry.offset + entry.rec_len;
            if is_over_tail(&layout, &entry) {
                changed = true;
                self.tell(
                    Code::DirChecksum,
                    place,
                    "the checksum gets its place again",
                );
            }
            let Some(ino) = entry.ino else {
                changed |= is_false_space(&entry);
                continue;
            };
            if lblk == 0 && number < 2 {
                let is_right = match number {
                    0 => entry.name == b"." && ino == self.ino,
                    _ => entry.name == b"..",
                } && !is_longer_dot(bytes, &entry);
                let kind = if layout.file_type { 2 } else { 0 };
                if is_right && entry.file_type.raw() == kind {
                    dots += 1;
                    if number == 1 {
                        self.parent = ino;
                    }
                    continue;
                }
                changed = true;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
            }
            let (entry, as_it_is) = self.keep(&entry, place);
            changed |= !as_it_is;
            kept.extend(entry);
        }
        if lblk == 0 && dots < 2 {
            changed = true;
            self.tell(Code::DirDot, place, "`.` and `..` are put right");
        }
        (kept, changed)
    }

    /// What is kept of an entry, and whether that is all of it.
    fn keep(&mut self, entry: &DirEntry<'_>, place: Place) -> (Option<Kept>, bool) {
        let Some(ino) = entry.ino else {
            return (None, true);
        };
        let mut kept = Kept {
            ino,
            name: entry.name.to_vec(),
            file_type: entry.file_type,
            hash: entry.hash,
        };
        let shown = entry.name.escape_ascii().to_string();
        let (code, text) = match self.judge.verdict(entry) {
            Verdict::Keep => return (Some(kept), true),
            Verdict::Retype(new) => {
                let (new_raw, old) = (new.raw(), kept.file_type.raw());
                kept.file_type = new;
                let text = format!("\"{shown}\": type is {new_raw}, was {old}");
                (Code::DirEntryType, text)
            }
            Verdict::Drop(why) => {
                let text = format!("\"{shown}\", which names inode {ino}, is removed: {why}");
                self.tell(Code::DirEntryUnused, place, text);
                return (None, false);
            }
            Verdict::Reform => {
                kept.name = Judge::as_text(&kept.name);
                self.renamed = true;
                let text = format!("\"{shown}\" is called \"{}\"", kept.name.escape_ascii());
                (Code::DirEntryName, text)
            }
            Verdict::Rename => {
                kept.name = self.judge.another_name(&kept.name);
                self.renamed = true;
                let text = format!("\"{shown}\" is called \"{}\"", kept.name.escape_ascii());
                (Code::DirDuplicateName, text)
            }
        };
        self.tell(code, place, text);
        (Some(kept), false)
    }

    /// Writes a block anew with these entries; those without room become homeless.
    fn rebuild(&mut self, lblk: u32, entries: Vec<Kept>, bytes: &mut [u8]) {
        let mut builder = DirBlockBuilder::new(bytes, &self.layout);
        if lblk == 0 {
            let dot = NewEntry::new(self.ino, b".", EntryType::Directory);
            let dotdot = NewEntry::new(self.parent, b"..", EntryType::Directory);
            let _ = builder.push(&dot) && builder.push(&dotdot);
        }
        for entry in entries {
            if !builder.push(&entry.as_new()) {
                self.homeless.push(entry);
            }
        }
        builder.finish(self.seed);
    }

    fn finish(self, work: &mut Work<'_>) -> Result<()> {
        for (at, bytes) in &self.writes {
            work.put_block(*at, bytes)?;
        }
        if self.indexed && self.drop_index {
            work.edit_inode(self.ino, |inode, _| inode.flags.remove(InodeFlags::INDEX))?;
            let text = "the index is dropped: the directory is a plain list";
            work.fix(Code::DirIndex, Place::ino(self.ino), text);
        }
        for (code, place, text) in self.told {
            work.fix(code, place, text);
        }
        for entry in &self.homeless {
            add(work, self.ino, &entry.as_new())?;
        }
        Ok(())
    }
}

/// Adds an entry to a directory; returns whether there was room.
pub(super) fn add(work: &mut Work<'_>, dir: Ino, entry: &NewEntry<'_>) -> Result<bool> {
    let volume = work.volume();
    let Some((slot, inode)) = volume.inode(dir)? else {
        return Ok(false);
    };
    let layout = volume.dir_layout(inode.flags);
    if is_inline(volume, &inode) {
        return add_inline(work, dir, &inode, slot, entry);
    }
    if inode.flags.contains(InodeFlags::INDEX) {
        without_index(work, dir)?;
    }
    let seed = volume.inode_seed(dir, &inode).unwrap_or(Crc32c::INIT);
    let need = layout.min_rec_len(entry.name);
    for (_, at) in blocks_of(volume, dir, &inode)? {
        if !work.owns(at) {
            return Ok(false);
        }
        let mut bytes = volume.block(at)?;
        let Ok(Some(room)) = edit::find_room(&bytes, &layout, need) else {
            continue;
        };
        if edit::insert(&mut bytes, &layout, &room, entry) {
            if layout.checksums {
                dir::entry::write_tail(&mut bytes, seed);
            }
            work.put_block(at, &bytes)?;
            return Ok(true);
        }
    }
    let mut bytes = vec![0; volume.block_size().len()];
    let mut builder = DirBlockBuilder::new(&mut bytes, &layout);
    let fits = builder.push(entry);
    builder.finish(seed);
    Ok(fits && append(work, dir, &bytes)?)
}

/// Adds a block to a directory; returns whether there was room.
fn append(work: &mut Work<'_>, dir: Ino, bytes: &[u8]) -> Result<bool> {
    let volume = work.volume();
    let (Some((_, inode)), Some(at)) = (volume.inode(dir)?, work.new_block()?) else {
        return Ok(false);
    };
    let mut runs = crate::maps::runs(volume, dir, &inode)?;
    let end = inode.size >> volume.block_size().log2();
    runs.push(Run {
        lblk: u32::try_from(end).unwrap_or(u32::MAX),
        len: 1,
        pblk: at.get(),
        unwritten: false,
    });
    if !Builder::rebuild(work, dir, &runs)? {
        return Ok(false);
    }
    work.put_block(at, bytes)?;
    let size = u64::from(volume.block_size().bytes());
    work.edit_inode(dir, |inode, _| inode.size = inode.size.saturating_add(size))
}

/// Moves the blocks of a directory together, or gives it its first.
fn close_holes(work: &mut Work<'_>, dir: Ino) -> Result<()> {
    let volume = work.volume();
    let place = Place::ino(dir);
    let Some((_, inode)) = volume.inode(dir)? else {
        return Ok(());
    };
    let mut runs = crate::maps::runs(volume, dir, &inode)?;
    if runs.is_empty() {
        work.edit_inode(dir, |inode, _| {
            inode.size = 0;
            inode.flags.remove(InodeFlags::INDEX);
        })?;
        Builder::rebuild(work, dir, &[])?;
        let parent = parent_of(&work.survey.parents, dir).unwrap_or(Ino::ROOT);
        let bytes = first_block(work, dir, &inode, parent);
        if append(work, dir, &bytes)? {
            work.fix(Code::DirHole, place, "the directory got a first block");
        }
        return Ok(());
    }
    let last = |run: &Run| Pblk::new(run.pblk + u64::from(run.len.saturating_sub(1)));
    let owned = |run: &Run| work.owns(Pblk::new(run.pblk)) && work.owns(last(run));
    if !runs.iter().all(owned) {
        return Ok(());
    }
    if volume.cluster_ratio() > 1 {
        // Blocks keep their place inside clusters.
        match gathered(work, &runs)? {
            Some(gathered) => runs = gathered,
            None => return Ok(()),
        }
    }
    let mut next = 0;
    for run in &mut runs {
        run.lblk = next;
        run.unwritten = false;
        next = run.lblk.saturating_add(run.len);
    }
    if Builder::rebuild(work, dir, &runs)? {
        let size = u64::from(next) << volume.block_size().log2();
        work.edit_inode(dir, |inode, _| inode.size = size)?;
        without_index(work, dir)?;
        let text = "blocks were moved together where one was missing";
        work.fix(Code::DirHole, place, text);
    }
    Ok(())
}

/// Copies of blocks in clusters of their own, one behind the other; `None` when there is no room.
fn gathered(work: &mut Work<'_>, runs: &[Run]) -> Result<Option<Vec<Run>>> {
    let volume = work.volume();
    let ratio = volume.cluster_ratio();
    let mut gathered: Vec<Run> = Vec::new();
    let blocks = runs
        .iter()
        .flat_map(|run| run.pblk..run.pblk + u64::from(run.len));
    for (n, from) in (0..).zip(blocks) {
        let bytes = volume.block(Pblk::new(from))?;
        let at = match gathered.last_mut() {
            Some(last) if n % ratio != 0 => {
                last.len += 1;
                Pblk::new(last.pblk + u64::from(last.len) - 1)
            }
            _ => {
                let Some(at) = work.new_block()? else {
                    return Ok(None);
                };
                gathered.push(Run {
                    lblk: u32::try_from(n).unwrap_or(u32::MAX),
                    len: 1,
                    pblk: at.get(),
                    unwritten: false,
                });
                at
            }
        };
        work.put_block(at, &bytes)?;
    }
    Ok(Some(gathered))
}

/// The first block of a directory: `.` and `..`.
pub(super) fn first_block(work: &Work<'_>, dir: Ino, inode: &Inode, parent: Ino) -> Vec<u8> {
    let volume = work.volume();
    let layout = volume.dir_layout(inode.flags);
    let mut bytes = vec![0; volume.block_size().len()];
    let mut builder = DirBlockBuilder::new(&mut bytes, &layout);
    let dot = NewEntry::new(dir, b".", EntryType::Directory);
    let dotdot = NewEntry::new(parent, b"..", EntryType::Directory);
    let _ = builder.push(&dot) && builder.push(&dotdot);
    builder.finish(volume.inode_seed(dir, inode).unwrap_or(Crc32c::INIT));
    bytes
}

/// The entries of a directory in its inode, and its parent.
pub(super) fn inline_entries(
    work: &Work<'_>,
    inode: &Inode,
    slot: &[u8],
    parent: Ino,
) -> (Vec<Kept>, Option<Ino>) {
    let volume = work.volume();
    let layout = volume.dir_layout(inode.flags);
    let rest = xattr::inline_value(volume, inode, slot).unwrap_or_default();
    let mut map = inode.map;
    let data = InlineData::new(&map, rest, inode.size);
    let found = InlineDir::new(&data, layout.max_inode)
        .map(|inline| inline.parent())
        .ok();
    if found.is_none()
        && let Some(to) = map.get_mut(..4)
    {
        to.copy_from_slice(&parent.get().to_le_bytes());
    }
    let mut kept = Vec::new();
    let data = InlineData::new(&map, rest, inode.size);
    if let Ok(inline) = InlineDir::new(&data, layout.max_inode) {
        for entry in inline.entries(&layout).flatten() {
            if let Some(ino) = entry.ino {
                kept.push(Kept {
                    ino,
                    name: entry.name.to_vec(),
                    file_type: entry.file_type,
                    hash: entry.hash,
                });
            }
        }
    }
    (kept, found)
}

/// Writes a directory into its inode; returns whether it fits there.
fn put_inline(
    work: &mut Work<'_>,
    dir: Ino,
    inode: &Inode,
    mut slot: Vec<u8>,
    parent: Ino,
    entries: &[Kept],
) -> Result<bool> {
    let volume = work.volume();
    let layout = volume.dir_layout(inode.flags);
    let Some(value) = xattr::inline_value(volume, inode, &slot) else {
        return Ok(false);
    };
    // Of an empty value there is nothing to write, and it may lie anywhere.
    let start = (value.as_ptr() as usize).checked_sub(slot.as_ptr() as usize);
    let mut rest = value.to_vec();
    let mut new = inode.clone();
    let list: Vec<NewEntry<'_>> = entries.iter().map(Kept::as_new).collect();
    if !encode_dir(&mut new.map, &mut rest, &layout, parent, &list) {
        return Ok(false);
    }
    if !rest.is_empty()
        && let Some(start) = start
        && let Some(to) = slot.get_mut(start..start + rest.len())
    {
        to.copy_from_slice(&rest);
    }
    work.put_inode(dir, &new, &mut slot)?;
    Ok(true)
}

fn inline(
    work: &mut Work<'_>,
    ino: Ino,
    inode: &Inode,
    slot: Vec<u8>,
    names: &Names<'_>,
    codes: &BTreeSet<Code>,
) -> Result<()> {
    let mut directory = directory(work, ino, inode, names, codes, false);
    let (found, parent) = inline_entries(work, inode, &slot, directory.parent);
    let mut kept = Vec::new();
    for mut entry in found {
        let judged = dir::DirEntry {
            offset: 0,
            rec_len: 0,
            ino: Some(entry.ino),
            name: &entry.name,
            file_type: entry.file_type,
            hash: entry.hash,
            stored: [0, entry.file_type.raw()],
        };
        match directory.judge.verdict(&judged) {
            Verdict::Keep => {}
            Verdict::Retype(new) => entry.file_type = new,
            Verdict::Drop(_) => continue,
            Verdict::Rename => entry.name = directory.judge.another_name(&entry.name),
            Verdict::Reform => entry.name = Judge::as_text(&entry.name),
        }
        kept.push(entry);
    }
    let before = work.volume().inode(ino)?.map(|(slot, _)| slot);
    let parent = parent.unwrap_or(directory.parent);
    while !put_inline(work, ino, inode, slot.clone(), parent, &kept)? && kept.pop().is_some() {}
    let after = work.volume().inode(ino)?.map(|(slot, _)| slot);
    if before != after {
        let code = codes.first().copied().unwrap_or(Code::DirEntry);
        let text = format!("written anew, with {} entries", kept.len());
        work.fix(code, Place::ino(ino), text);
    }
    Ok(())
}

fn add_inline(
    work: &mut Work<'_>,
    dir: Ino,
    inode: &Inode,
    slot: Vec<u8>,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    let (mut kept, parent) = inline_entries(work, inode, &slot, Ino::ROOT);
    kept.push(Kept {
        ino: entry.ino,
        name: entry.name.to_vec(),
        file_type: entry.file_type,
        hash: None,
    });
    put_inline(work, dir, inode, slot, parent.unwrap_or(Ino::ROOT), &kept)
}

/// Makes `..` of a directory name `parent`.
pub(super) fn set_parent(work: &mut Work<'_>, dir: Ino, parent: Ino) -> Result<bool> {
    let volume = work.volume();
    let Some((slot, inode)) = volume.inode(dir)? else {
        return Ok(false);
    };
    if is_inline(volume, &inode) {
        let (kept, _) = inline_entries(work, &inode, &slot, parent);
        return put_inline(work, dir, &inode, slot, parent, &kept);
    }
    let Some((0, at)) = blocks_of(volume, dir, &inode)?.first().copied() else {
        return Ok(false);
    };
    if !work.owns(at) {
        return Ok(false);
    }
    let layout = volume.dir_layout(inode.flags);
    let mut bytes = volume.block(at)?;
    let mut entries = dir::entries(&bytes, &layout).flatten().skip(1);
    let Some(offset) = entries.next().filter(|e| e.name == b"..").map(|e| e.offset) else {
        return Ok(false);
    };
    if let Some(to) = bytes.get_mut(offset..offset + 4) {
        to.copy_from_slice(&parent.get().to_le_bytes());
    }
    let seed = volume.inode_seed(dir, &inode).unwrap_or(Crc32c::INIT);
    let indexed = inode.flags.contains(InodeFlags::INDEX) && htree::is_root(&bytes, &layout);
    if layout.checksums && indexed {
        htree::write_root_checksum(&mut bytes, seed);
    } else if layout.checksums {
        dir::entry::write_tail(&mut bytes, seed);
    }
    work.put_block(at, &bytes)?;
    Ok(true)
}

/// Has the entries of a directory in its inode, and its `..`, name other inodes.
pub(super) fn renumber_inline(
    work: &mut Work<'_>,
    dir: Ino,
    now: &dyn Fn(Ino) -> Ino,
) -> Result<bool> {
    let Some((slot, inode)) = work.volume().inode(dir)? else {
        return Ok(false);
    };
    let (mut kept, parent) = inline_entries(work, &inode, &slot, Ino::ROOT);
    kept.iter_mut().for_each(|entry| entry.ino = now(entry.ino));
    let parent = now(parent.unwrap_or(Ino::ROOT));
    put_inline(work, dir, &inode, slot, parent, &kept)
}
