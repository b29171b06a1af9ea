//! The index of one directory: node by node against the names in the leaves.

use crate::blockset::BlockSet;
use crate::error::Result;
use crate::maps::{self, Run};
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::checksum::Crc32c;
use extant_format::dir::{DirLayout, DxEntry, DxRoot, HashVersion, NameHasher, htree};
use extant_format::features::Incompat;
use extant_format::inode::{Inode, InodeFlags};
use extant_format::{FormatError, Ino};
use std::collections::HashMap;

/// The hashes of the names in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HashRange(Option<(u32, u32)>);

impl HashRange {
    pub(crate) fn add(&mut self, hash: u32) {
        self.0 = Some(match self.0 {
            None => (hash, hash),
            Some((low, high)) => (low.min(hash), high.max(hash)),
        });
    }
}

/// The index under check, filled while the directory's blocks are read in order.
pub(crate) struct Index<'a> {
    volume: &'a Volume,
    layout: DirLayout,
    casefold: bool,
    encrypted: bool,
    blocks: u64,
    hasher: Option<NameHasher>,
    ranges: HashMap<u32, HashRange>,
    root: Option<Root>,
}

struct Root {
    entries: Vec<DxEntry>,
    levels: u8,
    bytes: Vec<u8>,
}

/// The hashes a node may hold: from, and up to; with `more`, names of the last hash may be here
/// too.
#[derive(Clone, Copy)]
struct Bounds {
    from: u32,
    to: u64,
    /// The hash `to` continues what ended here.
    more: bool,
}

impl<'a> Index<'a> {
    pub(crate) fn new(volume: &'a Volume, inode: &Inode, layout: DirLayout) -> Self {
        let casefold =
            inode.flags.contains(InodeFlags::CASEFOLD) && volume.has_incompat(Incompat::CASEFOLD);
        Self {
            volume,
            layout,
            casefold,
            encrypted: inode.flags.contains(InodeFlags::ENCRYPT),
            blocks: inode.size >> volume.block_size().log2(),
            // Block 0 says which hash it is: `note` is called for it before any other.
            hasher: None,
            ranges: HashMap::new(),
            root: None,
        }
    }

    pub(crate) fn hasher(&self) -> Option<&NameHasher> {
        self.hasher.as_ref()
    }

    /// Whether blocks other than the first may be nodes.
    pub(crate) fn may_have_nodes(&self) -> bool {
        self.root.as_ref().is_some_and(|root| root.levels > 0)
    }

    pub(crate) fn note(&mut self, lblk: u32, range: HashRange) {
        if range != HashRange::default() {
            self.ranges.insert(lblk, range);
        }
    }

    /// Reads block 0.
    pub(crate) fn read_root(&mut self, block: &[u8], place: Place, sink: &mut Sink) {
        let large = self.volume.has_incompat(Incompat::LARGEDIR);
        let root = match DxRoot::parse(block, &self.layout, large) {
            Ok(root) => root,
            Err(e) => {
                sink.format(Code::DirIndex, place, e);
                return;
            }
        };
        let sb = &self.volume.sb;
        let version = root.hash_version.with_signedness(sb.hash_is_unsigned());
        if root.hash_version != root.hash_version.stored() {
            let text =
                "the index names a hash of unsigned letters: the superblock says what letters are";
            sink.say(Code::DirIndex, place, text);
            return;
        }
        let siphash = root.hash_version == HashVersion::SipHash;
        if siphash != (self.casefold && self.encrypted) {
            let text = "the hash of the index does not suit the directory's flags";
            sink.say(Code::DirIndex, place, text);
            return;
        }
        self.hasher = NameHasher::new(version, sb.hash_seed())
            .ok()
            .map(|hasher| hasher.casefolded(self.casefold));
        self.root = Some(Root {
            entries: root.entries.iter().collect(),
            levels: root.indirect_levels,
            bytes: block.to_vec(),
        });
    }

    /// Walks the index, after all blocks were read.
    pub(crate) fn check(
        mut self,
        ino: Ino,
        runs: &[Run],
        seed: Option<Crc32c>,
        sink: &mut Sink,
    ) -> Result<()> {
        let Some(root) = self.root.take() else {
            return Ok(());
        };
        let place = Place::ino(ino);
        if let Some(seed) = seed
            && let Err(e) = htree::verify_root_checksum(&root.bytes, seed)
        {
            sink.format(checksum_code(&e), place.at_lblk(maps::lblk(0)), e);
        }
        let mut walk = IndexWalk {
            index: &self,
            runs,
            seed,
            place,
            sink,
            referred: BlockSet::default(),
        };
        walk.referred.add(0..1);
        let bounds = Bounds {
            from: 0,
            to: 1 << 32,
            more: false,
        };
        walk.entries(&root.entries, root.levels, 0, bounds)?;
        let end = self.blocks;
        let mapped = runs
            .iter()
            .flat_map(|run| run.lblk..run.lblk.saturating_add(run.len));
        let missing = mapped
            .map(u64::from)
            .find(|lblk| *lblk < end && !walk.referred.contains(*lblk));
        if let Some(lblk) = missing {
            let text = "the index does not refer to this block";
            sink.say(
                Code::DirIndexReference,
                place.at_lblk(maps::lblk(lblk)),
                text,
            );
        }
        Ok(())
    }
}

fn checksum_code(e: &FormatError) -> Code {
    if e.is_checksum() {
        Code::DirIndexChecksum
    } else {
        Code::DirIndex
    }
}

struct IndexWalk<'a> {
    index: &'a Index<'a>,
    runs: &'a [Run],
    seed: Option<Crc32c>,
    place: Place,
    sink: &'a mut Sink,
    referred: BlockSet,
}

impl IndexWalk<'_> {
    /// Checks the pairs of a node at `lblk` and all below.
    fn entries(&mut self, pairs: &[DxEntry], levels: u8, lblk: u32, bounds: Bounds) -> Result<()> {
        for (i, pair) in pairs.iter().enumerate() {
            let from = if i == 0 { bounds.from } else { pair.hash };
            let next = pairs.get(i + 1);
            let below = Bounds {
                from,
                to: next.map_or(bounds.to, |next| u64::from(next.hash)),
                more: next.map_or(bounds.more, |next| next.hash & 1 == 1),
            };
            let out_of_order = i > 0
                && (pair.hash < bounds.from || (i > 1 && pair.hash < pairs[i - 1].hash))
                || u64::from(from) > bounds.to;
            if out_of_order {
                let place = self.place.at_lblk(maps::lblk(lblk.into()));
                let text = format!("hash {:#x} of pair {i} is out of order", pair.hash);
                self.sink.say(Code::DirIndexHash, place, text);
            }
            self.pair(pair.block.get(), levels, lblk, below)?;
        }
        Ok(())
    }

    fn pair(&mut self, target: u32, levels: u8, parent: u32, bounds: Bounds) -> Result<()> {
        let place = self.place.at_lblk(maps::lblk(target.into()));
        if u64::from(target) >= self.index.blocks {
            let text = format!("block {target} does not exist");
            let place = self.place.at_lblk(maps::lblk(parent.into()));
            self.sink.say(Code::DirIndexReference, place, text);
            return Ok(());
        }
        let number = u64::from(target);
        let mut again = false;
        self.referred
            .insert(number..number + 1, &mut |_| again = true);
        if again {
            let text = "the index refers to this block twice";
            self.sink.say(Code::DirIndexReference, place, text);
            return Ok(());
        }
        if levels == 0 {
            self.leaf(target, bounds, place);
            return Ok(());
        }
        let Some(at) = maps::lookup(self.runs, target) else {
            return Ok(());
        };
        let bytes = self.index.volume.block(at)?;
        let node = match htree::parse_node(&bytes, &self.index.layout) {
            Ok(node) => node,
            Err(e) => {
                self.sink.format(Code::DirIndex, place, e);
                return Ok(());
            }
        };
        if let Some(seed) = self.seed
            && let Err(e) = htree::verify_node_checksum(&bytes, seed)
        {
            self.sink.format(checksum_code(&e), place, e);
        }
        let pairs: Vec<DxEntry> = node.iter().collect();
        self.entries(&pairs, levels - 1, target, bounds)
    }

    /// The names of a leaf have hashes inside the bounds its pair gives.
    fn leaf(&mut self, lblk: u32, bounds: Bounds, place: Place) {
        let Some(HashRange(Some((low, high)))) = self.index.ranges.get(&lblk) else {
            return;
        };
        let end = bounds.to & !1;
        let above = u64::from(*high) > end || (u64::from(*high) == end && !bounds.more);
        if *low < bounds.from & !1 || above {
            let text = format!(
                "names with hashes {low:#x} to {high:#x} where {:#x} to {:#x} belong",
                bounds.from, bounds.to
            );
            self.sink.say(Code::DirIndexHash, place, text);
        }
    }
}
