//! An index for a directory that outgrows its one block.

use super::block::Directory;
use super::growth::Growth;
use super::split::{Item, halve, used};
use crate::{Error, InPlace, Place, Result};
use extant_format::Lblk;
use extant_format::checksum::Crc32c;
use extant_format::dir::htree::{DxEntry, DxKind, DxRootInfo, encode_root};
use extant_format::dir::{NameHasher, NewEntry};

/// Returns the directory as an index root and two leaves, with one more entry.
pub(super) fn convert(
    dir: &Directory<'_>,
    hasher: &NameHasher,
    entry: &NewEntry<'_>,
) -> Result<Growth> {
    let lblk = Lblk::new(0);
    let block = dir.existing_block(lblk)?;
    let place = Place::FileBlock(dir.inode.ino(), lblk);
    let mut all = used(&block, &dir.layout, 0).in_place(place)?;
    // The root has room for nothing else in front.
    let parent = match all.get(..2) {
        Some([dot, dotdot]) if dot.name == b"." && dotdot.name == b".." => dotdot.ino,
        _ => return Err(super::lookup::no_parent(dir.inode.ino())),
    };
    all.push(*entry);
    let items = all.iter().skip(2).map(|entry| Item::new(hasher, *entry));
    let items: Vec<_> = items.collect();
    let halves = halve(&items, &dir.layout).ok_or(Error::NoSpace)?;
    let pairs = [(0, 1), (halves.hash, 2)].map(|(hash, lblk)| DxEntry {
        hash,
        block: Lblk::new(lblk),
    });
    let info = DxRootInfo {
        ino: dir.inode.ino(),
        parent,
        hash_version: hasher.version(),
        indirect_levels: 0,
    };
    let mut root = dir.empty_block();
    if !encode_root(&mut root, &dir.layout, &info, &pairs, Crc32c::INIT) {
        return Err(Error::NoSpace);
    }
    Ok(Growth {
        leaf: Some((lblk, block.clone())),
        edited: vec![(block, dir.node_seal(DxKind::Root), root)],
        created: vec![
            (dir.leaf_seal(), halves.low),
            (dir.leaf_seal(), halves.high),
        ],
        becomes_indexed: true,
    })
}
