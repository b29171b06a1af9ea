//! Listing a directory that may change meanwhile.

use super::block::Directory;
use super::form::Form;
use super::htree::{Fault, Way, default_hasher, index_hasher, leaf_of};
use super::lookup::while_still;
use super::readdir::{Cookie, readdir};
use super::{Entry, Found};
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode};
use crate::meta::BlockRef;
use crate::{Error, InPlace, Place, Result};
use extant_format::dir::entry::ENTRY_HEADER_LEN;
use extant_format::dir::{DirEntry, HashVersion, NameHasher, entries};
use extant_format::features::Compat;
use extant_format::{Expected, FormatError, Lblk, Structure};
use std::ops::{ControlFlow, Range};

/// Most leaves that names of equal hashes may tie together.
const MOST_TIED: usize = 4096;
/// Most blocks that are read ahead when a listing begins.
const READ_AHEAD: u64 = 2048;

/// Cookies that stand before `.`, before `..`, and before all names.
const DOT: u64 = 0;
const DOT_DOT: u64 = 1;
const NAMES: u64 = 2;
/// No cookie is higher.
const END: u64 = i64::MAX as u64;

/// Calls `visit` with the entries of `dir` from `from` on, `.` and `..` first, until it breaks or
/// the directory ends. Returns the value it broke with. `visit` may change the directory.
///
/// An entry that is there throughout is listed exactly once, over any number of calls; one that
/// comes or goes meanwhile is listed once or not at all. Directories that have an index, or get one
/// when they grow, are listed in the order of a hash of their names, which is what the cookies
/// stand for: so it does not matter where entries move. Others are listed by position, and there
/// entries do not move. (Two names of the same 63-bit hash follow each other by name; only if the
/// first of them goes while a listing stands between them may the second be missed.)
///
/// Cookies of [`readdir`] and of this function are not each other's.
///
/// # Errors
/// As for [`readdir`].
pub fn readdir_live<B>(
    fs: &Fs,
    dir: &Held,
    from: Cookie,
    mut visit: impl FnMut(Entry<'_>) -> ControlFlow<B>,
) -> Result<Option<B>> {
    if fs.journal().is_err() {
        return readdir(fs, &dir.snapshot(), from, visit);
    }
    let mut at = from.to_raw();
    loop {
        let batch = while_still(dir, |inode| Batch::collect(fs, inode, at))?;
        for listed in &batch.listed {
            let Some(name) = batch.name(listed) else {
                continue;
            };
            let flow = visit(Entry {
                name,
                ino: listed.found.ino,
                file_type: listed.found.file_type,
                next: Cookie::from_raw(listed.key.saturating_add(1)),
            });
            if let ControlFlow::Break(value) = flow {
                return Ok(Some(value));
            }
        }
        match batch.next {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
}

/// Entries that were together at one moment.
#[derive(Default)]
struct Batch {
    blocks: Vec<BlockRef>,
    /// In the order of their keys.
    listed: Vec<Listed>,
    /// Where to go on behind them; `None` at the end.
    next: Option<u64>,
}

struct Listed {
    /// The cookie before the entry.
    key: u64,
    name: Name,
    found: Found,
}

/// Where a name is.
#[derive(Clone)]
enum Name {
    Dot,
    DotDot,
    /// In this block of the batch.
    In(usize, Range<usize>),
    /// On its own.
    Owned(Box<[u8]>),
}

impl Batch {
    fn name<'a>(&'a self, listed: &'a Listed) -> Option<&'a [u8]> {
        match &listed.name {
            Name::Dot => Some(b"."),
            Name::DotDot => Some(b".."),
            Name::In(block, range) => self.blocks.get(*block)?.bytes().get(range.clone()),
            Name::Owned(name) => Some(name),
        }
    }

    /// Returns the entries from `at` on, as many as lie together.
    fn collect(fs: &Fs, inode: &Inode, at: u64) -> Result<Self> {
        let dir = Directory::new(fs, inode)?;
        match order(&dir)? {
            Some(hasher) => by_hash(&dir, &hasher, at),
            None => by_position(&dir, at),
        }
    }
}

/// Returns the hash that the directory is listed by; `None` if it is listed by position.
fn order(dir: &Directory<'_>) -> Result<Option<NameHasher>> {
    // Such names are hashed by what is not known here; they are not written to.
    if dir.layout.raw_names {
        return Ok(None);
    }
    if dir.inode.is_inline() {
        // As when it gets a block, which it may before the listing ends.
        let indexes = dir.fs.superblock().has_compat(Compat::DIR_INDEX);
        return Ok(default_hasher(dir).filter(|_| indexes));
    }
    match dir.form() {
        Ok(Form::One(hasher)) => Ok(Some(hasher)),
        Ok(Form::Indexed) => index_hasher(dir),
        Ok(Form::Linear) | Err(_) => Ok(None),
    }
}

/// Returns the entries of the block at a position, or of a directory in its inode.
fn by_position(dir: &Directory<'_>, at: u64) -> Result<Batch> {
    let log2 = dir.fs.block_size().log2();
    let mut batch = Batch::default();
    let mut last = None;
    let end = if dir.inode.is_inline() {
        u64::MAX
    } else {
        (at >> log2).saturating_add(1) << log2
    };
    let next = readdir(dir.fs, dir.inode, Cookie::from_raw(at), |entry| {
        // The cookie behind an entry is the end of its record: in this block.
        if entry.next.to_raw() > end {
            return ControlFlow::Break(last.unwrap_or(end));
        }
        last = Some(entry.next.to_raw());
        batch.listed.push(Listed {
            key: entry.next.to_raw().saturating_sub(1),
            name: Name::Owned(entry.name.into()),
            found: Found {
                ino: entry.ino,
                file_type: entry.file_type,
            },
        });
        ControlFlow::Continue(())
    })?;
    batch.next = next;
    Ok(batch)
}

/// Returns the entries of the leaf that has the names of a key, and of those that share hashes with
/// it.
fn by_hash(dir: &Directory<'_>, hasher: &NameHasher, at: u64) -> Result<Batch> {
    if at == DOT {
        read_ahead(dir)?;
    }
    if at > END {
        return Ok(Batch::default());
    }
    let mut batch = Batch::default();
    // The low bit is the index's own.
    let hash = ((at >> 32) as u32) << 1;
    let leaves = match (dir.inode.is_inline(), dir.is_indexed()) {
        (false, true) => leaves_of(dir, hash).map_err(Fault::into_error)?,
        (is_inline, _) => Leaves {
            lblks: [Lblk::new(0)].into_iter().filter(|_| !is_inline).collect(),
            start: None,
            end: None,
        },
    };
    if dir.inode.is_inline() {
        for entry in dir.inline()?.entries(&dir.layout) {
            let entry = entry.in_place(Place::Inode(dir.inode.ino()))?;
            add(&mut batch, hasher, hash, &entry, |_| {
                Name::Owned(entry.name.into())
            });
        }
    }
    let end = leaves.end.map(|end| u64::from(end >> 1) << 32);
    let from = match leaves.start {
        Some(_) => 0,
        None => hash,
    };
    for lblk in leaves.lblks {
        let block = dir.existing_block(lblk)?;
        let number = batch.blocks.len();
        for entry in entries(&block, &dir.layout) {
            let entry = entry.in_place(Place::FileBlock(dir.inode.ino(), lblk))?;
            add(&mut batch, hasher, from, &entry, |name| {
                Name::In(number, name)
            });
        }
        batch.blocks.push(block);
    }
    if let Some(start) = leaves.start {
        let least = u64::from(start >> 1) << 32;
        for listed in &mut batch.listed {
            if listed.key < least || end.is_some_and(|end| listed.key >= end) {
                listed.key = least;
            }
        }
    }
    spread(&mut batch);
    batch
        .listed
        .retain(|listed| listed.key >= at && end.is_none_or(|end| listed.key < end));
    if at <= DOT_DOT {
        let parent = super::parent(dir.fs, dir.inode)?;
        let dots = [
            (DOT, Name::Dot, dir.inode.ino()),
            (DOT_DOT, Name::DotDot, parent),
        ];
        let dots = dots.into_iter().filter(|(key, ..)| *key >= at);
        batch.listed.splice(
            0..0,
            dots.map(|(key, name, ino)| Listed {
                key,
                name,
                found: Found {
                    ino,
                    file_type: Some(FileType::Directory),
                },
            }),
        );
    }
    if let Some(end) = end.filter(|end| *end <= at) {
        // Sorted pairs only lead forward.
        let expected = Expected::AtLeast((at >> 31).saturating_add(1));
        let source = FormatError::new(Structure::DirIndex, "hash", end >> 31, expected);
        return Err(Error::corrupt(Place::Inode(dir.inode.ino()), source));
    }
    batch.next = end;
    Ok(batch)
}

/// Leaves that are listed together.
struct Leaves {
    lblks: Vec<Lblk>,
    /// Their lowest hash, if names with other hashes than theirs may be in them.
    start: Option<u32>,
    /// The lowest hash that is in none of them; `None` if they are the last.
    end: Option<u32>,
}

fn leaves_of(dir: &Directory<'_>, hash: u32) -> Result<Leaves, Fault> {
    let leaf = leaf_of(dir, |_| hash)?;
    let mut leaves = Leaves {
        lblks: vec![leaf.lblk],
        start: None,
        end: leaf.next,
    };
    if dir.is_casefolded() {
        // Other versions of Linux may fold names otherwise, and hash them by that.
        leaves.start = Some(Way::to(dir, |_| hash)?.start(dir));
    }
    if leaf.next.is_none_or(|next| next & 1 == 0) {
        return Ok(leaves);
    }
    let mut way = Way::to(dir, |_| hash)?;
    while leaves.end.is_some_and(|end| end & 1 == 1) && way.forward(dir)? {
        if leaves.lblks.len() >= MOST_TIED {
            let expected = Expected::AtMost(MOST_TIED as u64);
            let found = MOST_TIED as u64 + 1;
            let source =
                FormatError::new(Structure::DirIndex, "leaves of one hash", found, expected);
            let place = Place::Inode(dir.inode.ino());
            return Err(Fault::Index(Error::corrupt(place, source)));
        }
        leaves.lblks.push(way.leaf);
        leaves.end = way.next(dir).map(|pair| pair.hash);
    }
    Ok(leaves)
}

/// Adds an entry if the hash of its name is at least `hash`; `name` is told where in its block that
/// lies.
fn add(
    batch: &mut Batch,
    hasher: &NameHasher,
    hash: u32,
    entry: &DirEntry<'_>,
    name: impl FnOnce(Range<usize>) -> Name,
) {
    let Some(ino) = entry.ino else { return };
    if entry.name == b"." || entry.name == b".." {
        return;
    }
    let key = key(hasher, entry.name);
    if key >> 32 < u64::from(hash >> 1) {
        return;
    }
    let start = entry.offset + ENTRY_HEADER_LEN;
    batch.listed.push(Listed {
        key,
        name: name(start..start + entry.name.len()),
        found: super::block::found(ino, entry.file_type),
    });
}

/// Sorts names by key, and gives those of equal keys keys of their own.
fn spread(batch: &mut Batch) {
    let mut listed = std::mem::take(&mut batch.listed);
    listed.sort_by(|a, b| {
        let names = || batch.name(a).cmp(&batch.name(b));
        a.key.cmp(&b.key).then_with(names)
    });
    let mut least = NAMES;
    for entry in &mut listed {
        entry.key = entry.key.max(least);
        least = entry.key.saturating_add(1);
    }
    batch.listed = listed;
}

/// Returns the 63-bit hash of a name: what the index sorts by, and a second half that the index
/// does not know.
fn key(hasher: &NameHasher, name: &[u8]) -> u64 {
    let hash = hasher.hash(name);
    let minor = match hasher.version() {
        // It has no second half of its own.
        HashVersion::Legacy | HashVersion::LegacyUnsigned => fnv(name),
        _ => hash.minor,
    };
    u64::from(hash.major >> 1) << 32 | u64::from(minor)
}

/// FNV-1a of 32 bits (Fowler, Noll, Vo).
fn fnv(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Asks for the blocks of a listing that begins: by hash they come in no order.
fn read_ahead(dir: &Directory<'_>) -> Result<()> {
    let end = dir.blocks().min(READ_AHEAD);
    if end > 1 {
        dir.read_ahead_range(0..end)?;
    }
    Ok(())
}
