//! Directories whose blocks get another layout: with room for checksums, or without.
//!
//! Most blocks have the room that a checksum takes behind their last name. Where one has not, its
//! names move together, or the directory is built anew: a plain list, or an index over leaves that
//! are in the order of hashes.
//!
//! # Invariants
//! - A block that is written in place keeps all its names, also where the write arrives in part.
//! - A directory of which any name moves lies in new blocks, which nothing used before: it is the
//!   old one until its inode is written, and the new one from then on.

use super::super::entries::{blocks_of, is_inline};
use super::super::map_builder::Builder;
use super::super::work::Work;
use super::refused;
use crate::connectivity::parent_of;
use crate::error::Result;
use crate::maps::Run;
use crate::volume::Volume;
use extant_format::checksum::Crc32c;
use extant_format::dir::htree::{self, DxKind, DxRootInfo};
use extant_format::dir::{
    self, DirBlockBuilder, DirLayout, DxEntry, DxRoot, EntryHash, EntryType, HashVersion,
    NameHasher, NewEntry, edit,
};
use extant_format::features::{Compat, Incompat};
use extant_format::inode::{Inode, InodeFlags};
use extant_format::{Ino, Lblk, Pblk};

/// An entry of a directory.
struct Entry {
    ino: Ino,
    name: Vec<u8>,
    file_type: EntryType,
    hash: Option<EntryHash>,
}

impl Entry {
    fn as_new(&self) -> NewEntry<'_> {
        NewEntry {
            ino: self.ino,
            name: &self.name,
            file_type: self.file_type,
            hash: self.hash,
        }
    }
}

/// Gives the blocks of all directories the layout that they have in `then`, a volume with other
/// features. Checksums are written later.
pub(super) fn lay_out_anew(work: &mut Work<'_>, then: &Volume) -> Result<()> {
    for dir in work.survey.dirs.clone() {
        let volume = work.volume();
        let Some((_, inode)) = volume.inode(dir)? else {
            continue;
        };
        if is_inline(volume, &inode) {
            continue;
        }
        let directory = Directory {
            volume,
            ino: dir,
            old: volume.dir_layout(inode.flags),
            new: then.dir_layout(inode.flags),
            indexed: inode.flags.contains(InodeFlags::INDEX)
                && volume.has_compat(Compat::DIR_INDEX),
            inode,
        };
        let blocks = blocks_of(volume, dir, &directory.inode)?;
        match directory.laid_out(&blocks)? {
            Laid::InPlace(writes) => {
                for (at, bytes) in writes {
                    work.put_block(at, &bytes)?;
                }
            }
            Laid::Moved(content) => directory.put(work, &content)?,
            Laid::Nowhere => directory.build(work, &blocks)?,
        }
    }
    Ok(())
}

/// A directory in the new layout.
enum Laid {
    /// Blocks and what they become: no name moves.
    InPlace(Vec<(Pblk, Vec<u8>)>),
    /// All of its blocks, in order.
    Moved(Vec<Vec<u8>>),
    /// The names of a block do not fit into it any more.
    Nowhere,
}

/// Whether a block has got the new layout.
enum Fit {
    InPlace,
    Moved,
    No,
}

struct Directory<'a> {
    volume: &'a Volume,
    ino: Ino,
    inode: Inode,
    old: DirLayout,
    new: DirLayout,
    indexed: bool,
}

impl Directory<'_> {
    /// The blocks in the new layout, each with what it holds now.
    fn laid_out(&self, blocks: &[(u32, Pblk)]) -> Result<Laid> {
        let mut writes = Vec::new();
        let mut moved = false;
        for (i, (lblk, at)) in (0..).zip(blocks) {
            let mut bytes = self.volume.block(*at)?;
            match self.block(*lblk, &mut bytes) {
                Fit::InPlace if i == *lblk => {}
                Fit::Moved if i == *lblk => moved = true,
                _ => return Ok(Laid::Nowhere),
            }
            writes.push((*at, bytes));
        }
        Ok(if moved {
            Laid::Moved(writes.into_iter().map(|(_, bytes)| bytes).collect())
        } else {
            Laid::InPlace(writes)
        })
    }

    fn block(&self, lblk: u32, bytes: &mut [u8]) -> Fit {
        if self.indexed && lblk == 0 && htree::is_root(bytes, &self.old) {
            let large = self.volume.has_incompat(Incompat::LARGEDIR);
            let Ok(root) = DxRoot::parse(bytes, &self.old, large) else {
                return Fit::No;
            };
            let pairs: Vec<DxEntry> = root.entries.iter().collect();
            return self.index_block(bytes, DxKind::Root, &pairs);
        }
        if self.indexed && lblk > 0 && htree::is_node(bytes, &self.old) {
            let Ok(node) = htree::parse_node(bytes, &self.old) else {
                return Fit::No;
            };
            let pairs: Vec<DxEntry> = node.iter().collect();
            return self.index_block(bytes, DxKind::Inner, &pairs);
        }
        if edit::reach(bytes, &self.old, &self.new) {
            return Fit::InPlace;
        }
        let entries = self.entries(bytes);
        let mut builder = DirBlockBuilder::new(bytes, &self.new);
        let fits = entries.iter().all(|entry| builder.push(&entry.as_new()));
        builder.finish_unsealed();
        if fits { Fit::Moved } else { Fit::No }
    }

    /// Pairs stay where they are: how many there may be changes.
    fn index_block(&self, bytes: &mut [u8], kind: DxKind, pairs: &[DxEntry]) -> Fit {
        if htree::replace_pairs(bytes, &self.new, kind, pairs) {
            Fit::InPlace
        } else {
            Fit::No
        }
    }

    /// What a block of names holds, in order.
    fn entries(&self, bytes: &[u8]) -> Vec<Entry> {
        let found = dir::entries(bytes, &self.old).flatten();
        let named = found.filter_map(|entry| {
            Some(Entry {
                ino: entry.ino?,
                name: entry.name.to_vec(),
                file_type: entry.file_type,
                hash: entry.hash,
            })
        });
        named.collect()
    }

    /// Builds the directory anew, in as many blocks as it takes.
    fn build(&self, work: &mut Work<'_>, blocks: &[(u32, Pblk)]) -> Result<()> {
        let mut names = Vec::new();
        let mut root = None;
        for (lblk, at) in blocks {
            let bytes = self.volume.block(*at)?;
            let is_root = self.indexed && *lblk == 0 && htree::is_root(&bytes, &self.old);
            if is_root {
                let large = self.volume.has_incompat(Incompat::LARGEDIR);
                root = DxRoot::parse(&bytes, &self.old, large)
                    .ok()
                    .map(|root| root.hash_version);
            } else if !(self.indexed && htree::is_node(&bytes, &self.old)) {
                names.extend(self.entries(&bytes));
            }
        }
        names.retain(|entry| entry.name != b"." && entry.name != b"..");
        let parent = match self.ino {
            Ino::ROOT => Ino::ROOT,
            ino => parent_of(&work.survey.parents, ino).unwrap_or(Ino::ROOT),
        };
        let content = match root {
            Some(version) => self.index(parent, version, names)?,
            None => self.list(parent, &names),
        };
        self.put(work, &content)
    }

    fn empty(&self) -> Vec<u8> {
        vec![0; self.volume.block_size().len()]
    }

    /// A plain list.
    fn list(&self, parent: Ino, names: &[Entry]) -> Vec<Vec<u8>> {
        let dot = NewEntry::new(self.ino, b".", EntryType::Directory);
        let dotdot = NewEntry::new(parent, b"..", EntryType::Directory);
        let mut rest: Vec<NewEntry<'_>> = vec![dot, dotdot];
        rest.extend(names.iter().map(Entry::as_new));
        self.leaves(&rest)
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect()
    }

    /// Blocks with these entries, each with the number of the first.
    fn leaves(&self, entries: &[NewEntry<'_>]) -> Vec<(usize, Vec<u8>)> {
        let mut leaves = Vec::new();
        let mut next = 0;
        while next < entries.len() {
            let first = next;
            let mut bytes = self.empty();
            let mut builder = DirBlockBuilder::new(&mut bytes, &self.new);
            while let Some(entry) = entries.get(next)
                && builder.push(entry)
            {
                next += 1;
            }
            builder.finish_unsealed();
            leaves.push((first, bytes));
            if next == first {
                break;
            }
        }
        leaves
    }

    /// An index, and its leaves in the order of hashes.
    fn index(&self, parent: Ino, version: HashVersion, names: Vec<Entry>) -> Result<Vec<Vec<u8>>> {
        let sb = &self.volume.sb;
        let casefold = self.inode.flags.contains(InodeFlags::CASEFOLD)
            && self.volume.has_incompat(Incompat::CASEFOLD);
        let signed = version.with_signedness(sb.hash_is_unsigned());
        let hasher =
            NameHasher::new(signed, sb.hash_seed()).map(|hasher| hasher.casefolded(casefold));
        let mut hashed = Vec::with_capacity(names.len());
        for entry in names {
            let (major, minor) = match (entry.hash.filter(|_| self.old.hash_in_entry), &hasher) {
                (Some(stored), _) => (stored.hash & !1, stored.minor),
                (None, Ok(hasher)) => {
                    let hash = hasher.hash(&entry.name);
                    (hash.major, hash.minor)
                }
                (None, Err(e)) => return Err((*e).into()),
            };
            hashed.push((major, minor, entry));
        }
        hashed.sort_by(|a, b| (a.0, a.1, &a.2.name).cmp(&(b.0, b.1, &b.2.name)));
        let entries: Vec<NewEntry<'_>> =
            hashed.iter().map(|(_, _, entry)| entry.as_new()).collect();
        let leaves = self.leaves(&entries);
        let hash_at = |i: usize| hashed.get(i).map_or(0, |(major, ..)| *major);
        let mut pairs: Vec<DxEntry> = Vec::new();
        for (i, (first, _)) in leaves.iter().enumerate() {
            let mut hash = hash_at(*first);
            if i > 0 && *first > 0 && hash_at(first - 1) == hash {
                // Names of the hash are in the leaf before, too.
                hash |= 1;
            }
            pairs.push(DxEntry {
                hash,
                block: Lblk::new(i as u32 + 1),
            });
        }
        let mut blocks: Vec<Vec<u8>> = vec![self.empty()];
        blocks.extend(leaves.into_iter().map(|(_, bytes)| bytes));
        let most = htree::max_indirect_levels(self.volume.has_incompat(Incompat::LARGEDIR));
        let mut levels = 0;
        while pairs.len() > htree::root_limit(&self.new) {
            if levels == most {
                return Err(refused(&format!(
                    "the index of directory {} has no room for checksums: remove names from it, or turn large_dir on",
                    self.ino
                )));
            }
            let mut above = Vec::new();
            for some in pairs.chunks(htree::node_limit(&self.new)) {
                let mut bytes = self.empty();
                let block = Lblk::new(blocks.len() as u32);
                let is_whole = htree::encode_node(&mut bytes, &self.new, some, Crc32c::INIT);
                debug_assert!(is_whole);
                above.extend(some.first().map(|pair| DxEntry { block, ..*pair }));
                blocks.push(bytes);
            }
            pairs = above;
            levels += 1;
        }
        let info = DxRootInfo {
            ino: self.ino,
            parent,
            hash_version: version,
            indirect_levels: levels,
        };
        if let Some(root) = blocks.first_mut()
            && !htree::encode_root(root, &self.new, &info, &pairs, Crc32c::INIT)
        {
            return Err(refused(&format!("directory {} has no names", self.ino)));
        }
        Ok(blocks)
    }

    /// Writes the blocks into new ones, and has the inode lead there.
    fn put(&self, work: &mut Work<'_>, content: &[Vec<u8>]) -> Result<()> {
        let ratio = self.volume.cluster_ratio();
        let mut runs: Vec<Run> = Vec::new();
        let mut cluster = Pblk::new(0);
        for (lblk, bytes) in (0u32..).zip(content) {
            let inside = u64::from(lblk) % ratio;
            if inside == 0 {
                cluster = work.new_block()?.ok_or_else(|| {
                    refused(
                        "directories whose blocks have no room for checksums are built anew beside what they are, \
                         and there is no room for that: make the file system larger, or remove files",
                    )
                })?;
            }
            let at = Pblk::new(cluster.get() + inside);
            work.put_block(at, bytes)?;
            runs.push(Run {
                lblk,
                len: 1,
                pblk: at.get(),
                unwritten: false,
            });
        }
        if !Builder::rebuild(work, self.ino, &runs)? {
            return Err(refused(
                "there is no room for the map of a directory that grows",
            ));
        }
        let size = content.len() as u64 * u64::from(self.volume.block_size().bytes());
        work.edit_inode(self.ino, |inode, _| inode.size = size)?;
        Ok(())
    }
}
