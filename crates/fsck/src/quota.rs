//! Quota files: their form, and what they say is used against what is.
//!
//! The files are those of the kernel's "vfsv1" format: blocks of 1 KiB; block 0 a header, block 1
//! the root of a tree over the four bytes of an id, whose leaves are blocks of up to fourteen
//! entries.

use crate::bytes::{le16, le32, le64};
use crate::error::Result;
use crate::maps;
use crate::report::Sink;
use crate::scan::{Usage, Usages};
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::Ino;
use extant_format::inode::FileType;
use std::collections::HashMap;

pub(crate) const BLOCK: usize = 1024;
pub(crate) const MAGICS: [u32; 3] = [0xd9c0_1f11, 0xd9c0_1927, 0xd9c0_3f14];
/// Levels of pointers above the entries.
pub(crate) const DEPTH: u32 = 4;
pub(crate) const LEAF_HEADER: usize = 16;
pub(crate) const ENTRY: usize = 72;
/// Larger files than this are not read.
pub(crate) const FILE_MAX: usize = 256 << 20;
/// Where the header says how many blocks there are, and which are free or have room.
const BLOCKS_AT: usize = 20;
const FREE_BLOCK_AT: usize = 24;
const FREE_ENTRY_AT: usize = 28;
/// Where a leaf, or a free block, names the next in its list, and the one before.
const NEXT_AT: usize = 0;
const PREVIOUS_AT: usize = 4;
const NAMES: [&str; 3] = ["user", "group", "project"];

/// Compares the quota files with what the scan counted.
pub(crate) fn check(volume: &Volume, usages: &Usages, sink: &mut Sink) -> Result<()> {
    let inodes = volume.sb.quota_inodes();
    for (kind, (ino, usages)) in inodes.into_iter().zip(usages).enumerate() {
        if let Some(ino) = ino {
            one(volume, ino, kind, usages, sink)?;
        }
    }
    Ok(())
}

fn one(
    volume: &Volume,
    ino: Ino,
    kind: usize,
    usages: &HashMap<u32, Usage>,
    sink: &mut Sink,
) -> Result<()> {
    let place = Place::ino(ino);
    let Some((_, inode)) = volume.inode(ino)? else {
        sink.say(Code::QuotaFile, place, "the inode cannot be read");
        return Ok(());
    };
    if inode.file_type() != Some(FileType::Regular) {
        sink.say(Code::QuotaFile, place, "the inode is no regular file");
        return Ok(());
    }
    if inode.size > FILE_MAX as u64 {
        let what = "size of the file";
        sink.number(Code::QuotaFile, place, what, inode.size, FILE_MAX as u64);
    }
    let blocks = volume.block_size().blocks_for(inode.size);
    let runs = maps::runs(volume, ino, &inode)?;
    let written: u64 = runs
        .iter()
        .filter(|run| !run.unwritten)
        .map(|run| u64::from(run.len))
        .sum();
    if written < blocks {
        let what = "blocks of the file, which has no holes";
        sink.number(Code::QuotaFile, place, what, written, blocks);
    }
    let bytes = maps::read_file(volume, ino, &inode, FILE_MAX)?;
    let magic = MAGICS.get(kind).copied().unwrap_or(0);
    if le32(&bytes, 0) != magic || le32(&bytes, 4) != 1 {
        let found = le32(&bytes, 0);
        sink.number(Code::QuotaFile, place, "magic", found, magic);
        return Ok(());
    }
    header(&bytes, place, sink);
    let mut reader = Reader::new(&bytes);
    reader.tree(1, DEPTH);
    for at in [FREE_BLOCK_AT, FREE_ENTRY_AT] {
        reader.list(le32(&bytes, at));
    }
    if let Some(block) = reader.wrong {
        let text = format!("block {block} of the tree is out of place, or its links are");
        sink.say(Code::QuotaFile, place, text);
    }
    let what = NAMES.get(kind).copied().unwrap_or("");
    let mut ids: Vec<u32> = usages
        .keys()
        .chain(reader.entries.keys())
        .copied()
        .collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let used = usages.get(&id).copied().unwrap_or_default();
        let said = reader.entries.get(&id);
        let (bytes, inodes) = said.map_or((0, 0), |entry| (le64(entry, 48), le64(entry, 24)));
        if !used.is(bytes, inodes) {
            let text = format!(
                "{what} {id} is charged {bytes} bytes and {inodes} inodes, uses {} and {}",
                used.bytes, used.inodes
            );
            sink.say(Code::QuotaUsage, place, text);
        }
    }
    Ok(())
}

/// Whether what the header says of blocks is inside the file.
fn header(bytes: &[u8], place: Place, sink: &mut Sink) {
    let blocks = le32(bytes, BLOCKS_AT);
    let most = bytes.len().div_ceil(BLOCK) as u64;
    if u64::from(blocks) > most {
        sink.number(Code::QuotaFile, place, "blocks of the file", blocks, most);
    }
    for (what, at) in [
        ("first free block", FREE_BLOCK_AT),
        ("first block with a free entry", FREE_ENTRY_AT),
    ] {
        let found = le32(bytes, at);
        if found != 0 && found >= blocks {
            let text = format!("{what} is {found}, and there are {blocks} blocks");
            sink.say(Code::QuotaFile, place, text);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Blocks there are, as the header says.
    blocks: u32,
    /// Nodes and leaves that were read, with their level.
    seen: HashMap<u32, u32>,
    entries: HashMap<u32, Vec<u8>>,
    wrong: Option<u32>,
}

/// The entries of a quota file as they lie in it, by id.
pub(crate) fn entries_of(bytes: &[u8]) -> HashMap<u32, Vec<u8>> {
    let mut reader = Reader::new(bytes);
    reader.tree(1, DEPTH);
    reader.entries
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            blocks: le32(bytes, BLOCKS_AT),
            seen: HashMap::new(),
            entries: HashMap::new(),
            wrong: None,
        }
    }

    fn block(&self, n: u32) -> Option<&[u8]> {
        let at = (n as usize).checked_mul(BLOCK)?;
        self.bytes.get(at..at.checked_add(BLOCK)?)
    }

    fn tree(&mut self, n: u32, depth: u32) {
        if n >= self.blocks {
            self.wrong.get_or_insert(n);
        }
        // A leaf is reached from several places; a node from one.
        if let Some(before) = self.seen.insert(n, depth) {
            if depth != 0 || before != 0 {
                self.wrong.get_or_insert(n);
            }
            return;
        }
        let Some(block) = self.block(n) else {
            self.wrong.get_or_insert(n);
            return;
        };
        if depth == 0 {
            self.leaf(n);
            return;
        }
        let below: Vec<u32> = (0..BLOCK / 4)
            .map(|i| le32(block, i * 4))
            .filter(|n| *n != 0)
            .collect();
        for n in below {
            self.tree(n, depth - 1);
        }
    }

    /// Looks at the links to other blocks with room that a leaf has: Linux does not change a leaf
    /// with others.
    fn links(&mut self, n: u32, block: &[u8]) {
        let leads_nowhere = |link: u32| link != 0 && !(2..self.blocks).contains(&link);
        if [NEXT_AT, PREVIOUS_AT]
            .iter()
            .any(|at| leads_nowhere(le32(block, *at)))
        {
            self.wrong.get_or_insert(n);
        }
    }

    /// Follows a list of blocks that are free, or have room, from its first one.
    fn list(&mut self, first: u32) {
        let (mut n, mut left) = (first, self.blocks);
        while n != 0 && n < self.blocks {
            let next = self.block(n).map(|block| le32(block, NEXT_AT));
            left = left.saturating_sub(1);
            match next {
                Some(next) if left > 0 && (next == 0 || (2..self.blocks).contains(&next)) => {
                    n = next
                }
                _ => {
                    self.wrong.get_or_insert(n);
                    return;
                }
            }
        }
    }

    fn leaf(&mut self, n: u32) {
        let Some(block) = self.block(n).map(<[u8]>::to_vec) else {
            return;
        };
        if usize::from(le16(&block, 8)) > (BLOCK - LEAF_HEADER) / ENTRY {
            self.wrong.get_or_insert(n);
        }
        self.links(n, &block);
        let entries = block.get(LEAF_HEADER..).unwrap_or_default();
        for entry in entries.chunks_exact(ENTRY) {
            if entry.iter().all(|byte| *byte == 0) {
                continue;
            }
            self.entries.insert(le32(entry, 0), entry.to_vec());
        }
    }
}
