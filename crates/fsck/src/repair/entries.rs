//! Entries of directories: which of them name an inode, and what becomes of each entry.

use crate::dir::is_other_policy;
use crate::error::Result;
use crate::inode_table::KIND_DIR;
use crate::maps;
use crate::survey::Survey;
use crate::volume::Volume;
use crate::xattr;
use extant_format::checksum::Crc32c;
use extant_format::dir::{self, DirEntry, DirLayout, EntryType, htree};
use extant_format::features::Incompat;
use extant_format::inline_data::{InlineData, InlineDir};
use extant_format::inode::{Inode, InodeFlags};
use extant_format::{Ino, Pblk};
use std::collections::{HashMap, HashSet};

/// Whether the content of an inode lies in the inode.
pub(super) fn is_inline(volume: &Volume, inode: &Inode) -> bool {
    inode.flags.contains(InodeFlags::INLINE_DATA) && volume.has_incompat(Incompat::INLINE_DATA)
}

/// The mapped blocks of a directory, with their place in it.
pub(super) fn blocks_of(volume: &Volume, ino: Ino, inode: &Inode) -> Result<Vec<(u32, Pblk)>> {
    let end = inode.size >> volume.block_size().log2();
    let runs = maps::runs(volume, ino, inode)?;
    let mut blocks = Vec::new();
    for run in runs {
        for i in 0..run.len {
            if u64::from(run.lblk + i) < end {
                blocks.push((run.lblk + i, Pblk::new(run.pblk + u64::from(i))));
            }
        }
    }
    Ok(blocks)
}

/// Hands on every sound entry of a directory that names something, with its block.
pub(super) fn each(
    survey: &Survey,
    ino: Ino,
    each: &mut dyn FnMut(u32, &DirEntry<'_>),
) -> Result<()> {
    let volume = &survey.volume;
    let Some((slot, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    let layout = volume.dir_layout(inode.flags);
    if is_inline(volume, &inode) {
        let rest = xattr::inline_value(volume, &inode, &slot).unwrap_or_default();
        let data = InlineData::new(&inode.map, rest, inode.size);
        if let Ok(inline) = InlineDir::new(&data, layout.max_inode) {
            let named = inline.entries(&layout).flatten();
            named
                .filter(|entry| entry.ino.is_some())
                .for_each(|entry| each(0, &entry));
        }
        return Ok(());
    }
    for (lblk, at) in blocks_of(volume, ino, &inode)? {
        let bytes = volume.block(at)?;
        let named = dir::entries(&bytes, &layout).flatten();
        named
            .filter(|entry| entry.ino.is_some())
            .for_each(|entry| each(lblk, &entry));
    }
    Ok(())
}

/// A name of an inode.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
    pub(super) kind: u8,
}

/// All names of some inodes, `.` and `..` left out.
pub(super) fn naming(survey: &Survey, targets: &HashSet<Ino>) -> Result<HashMap<Ino, Vec<Naming>>> {
    let mut found: HashMap<Ino, Vec<Naming>> = HashMap::new();
    if targets.is_empty() {
        return Ok(found);
    }
    for &dir in &survey.dirs {
        each(survey, dir, &mut |_, entry| {
            let Some(ino) = entry.ino.filter(|ino| targets.contains(ino)) else {
                return;
            };
            if entry.name != b"." && entry.name != b".." {
                found.entry(ino).or_default().push(Naming {
                    dir,
                    name: entry.name.to_vec(),
                    kind: entry.file_type.raw(),
                });
            }
        })?;
    }
    Ok(found)
}

/// Whether what an inode maps begins as a directory of its own does.
pub(super) fn is_really_dir(volume: &Volume, ino: Ino, inode: &Inode) -> Result<bool> {
    let runs = super::map_builder::salvage(volume, ino, inode)?;
    let Some(at) = maps::lookup(&runs, 0) else {
        return Ok(false);
    };
    let bytes = volume.block(at)?;
    let layout = volume.dir_layout(inode.flags);
    let mut entries = dir::entries(&bytes, &layout).flatten();
    let is_dot = entries
        .next()
        .is_some_and(|e| e.name == b"." && e.ino == Some(ino));
    Ok(is_dot && entries.next().is_some_and(|e| e.name == b".."))
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// It records another type than its inode has.
    Retype(EntryType),
    /// It goes, for this reason.
    Drop(&'static str),
    /// The name is there already.
    Rename,
    /// The name is not of the form that it has to have.
    Reform,
}

/// Judges the entries of one directory, in order.
pub(super) struct Judge<'a> {
    pub(super) survey: &'a Survey,
    pub(super) dir: Ino,
    pub(super) encrypted: bool,
    pub(super) file_types: bool,
    /// The one name that directories keep of which there are several.
    pub(super) kept: &'a HashMap<Ino, (Ino, Vec<u8>)>,
    /// Directories that contain themselves, whose name here goes.
    pub(super) loops: &'a HashSet<Ino>,
    /// Names so far, where a name is there twice.
    pub(super) seen: Option<HashSet<Vec<u8>>>,
    /// Names have to be UTF-8.
    pub(super) strict: bool,
}

impl Judge<'_> {
    pub(super) fn verdict(&mut self, entry: &DirEntry<'_>) -> Verdict {
        let Some(ino) = entry.ino else {
            return Verdict::Keep;
        };
        let name = entry.name;
        if name == b"." || name == b".." {
            return Verdict::Drop("the name is used twice");
        }
        if self.encrypted && name.len() < 16 {
            return Verdict::Drop("an encrypted name is longer");
        }
        let target = self.survey.table.get(ino);
        if !target.is_in_use() {
            return Verdict::Drop("its inode is not in use");
        }
        if target.is_nameless() || target.is_ea_inode() {
            return Verdict::Drop("its inode has no names");
        }
        if target.is_dir() {
            if ino == Ino::ROOT {
                return Verdict::Drop("it names the root directory");
            }
            if let Some((dir, kept)) = self.kept.get(&ino)
                && (*dir != self.dir || kept != name)
            {
                return Verdict::Drop("the directory has another name");
            }
            if self.loops.contains(&ino) {
                return Verdict::Drop("the directory would contain itself");
            }
        }
        let policy = self.survey.policies.of(self.dir);
        if is_other_policy(&self.survey.policies, policy, ino, target.kind) {
            return Verdict::Drop("it is not encrypted as the directory is");
        }
        if self.strict && std::str::from_utf8(name).is_err() {
            return Verdict::Reform;
        }
        let folded = self.seen.is_some().then(|| self.folded(name));
        if let (Some(seen), Some(folded)) = (&mut self.seen, folded)
            && !seen.insert(folded)
        {
            return if self.encrypted {
                // Another one cannot be made without the key.
                Verdict::Drop("the encrypted name is there twice")
            } else {
                Verdict::Rename
            };
        }
        let kind = if self.file_types { target.kind } else { 0 };
        if entry.file_type.raw() != kind && (target.kind != 0 || kind == KIND_DIR) {
            return Verdict::Retype(EntryType::from_raw(kind));
        }
        Verdict::Keep
    }

    /// A name as text, with `_` in the place of what is none; as long as it was, or shorter.
    pub(super) fn as_text(name: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for chunk in name.utf8_chunks() {
            text.extend_from_slice(chunk.valid().as_bytes());
            if !chunk.invalid().is_empty() {
                text.push(b'_');
            }
        }
        text
    }

    /// The form of a name by which equal ones are found.
    fn folded(&self, name: &[u8]) -> Vec<u8> {
        let volume = &self.survey.volume;
        let inode = volume.inode(self.dir).ok().flatten();
        let casefold = inode.is_some_and(|(_, inode)| {
            inode.flags.contains(InodeFlags::CASEFOLD) && volume.has_incompat(Incompat::CASEFOLD)
        });
        dir::casefold::fold_name(name)
            .filter(|_| casefold && !self.encrypted)
            .unwrap_or_else(|| name.to_vec())
    }

    /// A name like this one that is not taken.
    pub(super) fn another_name(&mut self, name: &[u8]) -> Vec<u8> {
        for i in 0u32.. {
            let tail = format!("~{i}");
            let room = dir::entry::NAME_MAX - tail.len();
            let mut new = name.get(..room.min(name.len())).unwrap_or(name).to_vec();
            new.extend_from_slice(tail.as_bytes());
            let folded = self.folded(&new);
            if self.seen.as_mut().is_none_or(|seen| seen.insert(folded)) {
                return new;
            }
        }
        name.to_vec()
    }
}

/// Writes the checksum of block `lblk` of a directory, in the form that the block has; `seed` is
/// that of the directory.
pub(super) fn seal(bytes: &mut [u8], layout: &DirLayout, lblk: u32, indexed: bool, seed: Crc32c) {
    if indexed && lblk == 0 && htree::is_root(bytes, layout) {
        htree::write_root_checksum(bytes, seed);
    } else if indexed && lblk > 0 && htree::is_node(bytes, layout) {
        htree::write_node_checksum(bytes, seed);
    } else {
        dir::entry::write_tail(bytes, seed);
    }
}
