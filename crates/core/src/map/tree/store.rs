//! Putting a changed tree in place under a handle.

use super::Nodes;
use super::draft::Draft;
use super::node::{Entries, Home, Node, Slot};
use super::rebalance::loaded;
use super::space::{NewNodes, NodeSpace};
use crate::alloc::FreedKind;
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{FileType, Inode, LiveInode};
use crate::meta::BlockRef;
use crate::meta::Seal;
use crate::quota::Admission;
use crate::{Error, InPlace, Place, Result};
use extant_format::inode::{InodeFlags, MAP_BYTES};
use extant_format::{Pblk, Structure};
use std::sync::Arc;

/// Blocks that an inode gains and loses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charge {
    pub(crate) gained: u64,
    pub(crate) lost: u64,
}

/// The image of a node that changed.
struct Image<'d> {
    /// The image it replaces; `None` for a new node.
    old: Option<&'d BlockRef>,
    block: Pblk,
    data: Box<[u8]>,
}

/// Settles `draft` and makes it the map of `live`: `taken` become the inode's blocks, `also`
/// changes the rest of the record, and what the draft freed is freed. New nodes are paid from
/// `space`. What fails leaves `taken` to the caller.
pub(super) fn store<'f>(
    handle: &Handle<'f>,
    live: &Arc<LiveInode>,
    mut draft: Draft<Nodes<'f>>,
    taken: &mut Vec<Taken<'f>>,
    also: impl FnOnce(&mut Inode),
    space: &NodeSpace,
) -> Result<()> {
    let fs = handle.fs();
    draft.rebalance()?;
    let goal = near(&draft.root);
    let mut nodes = NewNodes::take(fs, goal, draft.new_nodes(), space, false)?;
    let size = fs.cluster_size();
    // Each has a cluster to itself.
    let blocks = |taken: &Taken<'_>| {
        let start = taken.start().get();
        (0..u64::from(taken.clusters())).map(move |i| Pblk::new(start + (i << size.bits())))
    };
    draft.place_new_nodes(&mut nodes.taken().iter().flat_map(blocks));
    let unmapped = draft.unmapped();
    let clusters = if size.is_block() {
        None
    } else {
        Some(draft.freed_clusters(size)?)
    };
    let freed = clusters
        .as_ref()
        .map_or(&unmapped, |clusters| &clusters.runs);
    let blocks_of = |taken: &[Taken<'_>]| taken.iter().map(|t| u64::from(t.len())).sum::<u64>();
    let inserted = if size.is_block() {
        draft.inserted
    } else {
        blocks_of(taken)
    };
    let charge = Charge {
        gained: inserted + blocks_of(nodes.taken()),
        lost: freed.iter().map(|&(_, len)| u64::from(len)).sum::<u64>()
            + ((draft.freed_nodes.len() as u64) << size.bits()),
    };
    charge.check(fs, &draft.source.inode)?;
    let _let_in = charge.admit(fs, live, space)?;
    let place = Place::Inode(live.ino());
    let mut map = [0; MAP_BYTES];
    draft.root.encode(&mut map).in_place(place)?;
    let mut images = Vec::new();
    encode_below(fs, &draft.root, &mut images)?;
    hold_groups(handle, freed, &draft.freed_nodes)?;
    handle.touch_inode(live)?;
    commit_all(handle, taken)?;
    nodes.commit(handle)?;

    // From here on nothing fails that could be undone.
    let seal = seal(&draft.source.inode);
    for image in &images {
        image.publish(handle, live, seal);
    }
    let changed = draft.root.changed;
    live.note_datasync(handle);
    live.update(handle, |inode| {
        if changed {
            inode.disk_mut().map = map;
        }
        charge.apply(fs, inode);
        also(inode);
    })?;
    drop(images);
    let inode = &draft.source.inode;
    if clusters.as_ref().is_some_and(|clusters| clusters.some_stay)
        && inode.file_type() == FileType::Regular
    {
        live.file_cache_in(fs).note_detached(handle.seq());
    }
    free(handle, inode, &unmapped, freed, &draft.freed_nodes)
}

/// Which checksum the nodes of an inode's map carry.
pub(super) fn seal(inode: &Inode) -> Seal {
    inode.seed().map_or(Seal::Plain, Seal::ExtentNode)
}

/// Makes taken blocks owned on the device. Those that could not be stay in `taken`.
pub(in crate::map) fn commit_all<'f>(
    handle: &Handle<'f>,
    taken: &mut Vec<Taken<'f>>,
) -> Result<()> {
    while let Some(taken) = taken.pop() {
        handle.alloc().commit_blocks(handle, taken)?;
    }
    Ok(())
}

/// Returns where new nodes should lie: behind what the changed leaf maps.
fn near<B>(node: &Node<B>) -> Pblk {
    match &node.entries {
        Entries::Extents(extents) => extents.last().map_or_else(Pblk::default, |e| {
            Pblk::new(e.pblk.get().saturating_add(e.len.into()))
        }),
        Entries::Children(children) => {
            let below = loaded(node).last().map(near);
            below
                .or_else(|| children.last().and_then(|child| child.block()))
                .unwrap_or_default()
        }
    }
}

/// Images of all changed nodes below `node`, children before their parents.
fn encode_below<'d>(fs: &Fs, node: &'d Node<BlockRef>, images: &mut Vec<Image<'d>>) -> Result<()> {
    let Entries::Children(children) = &node.entries else {
        return Ok(());
    };
    for child in children {
        let Slot::Loaded(below) = &child.node else {
            continue;
        };
        encode_below(fs, below, images)?;
        if !below.changed {
            continue;
        }
        let block = below.block().ok_or(Error::NoSpace)?;
        let mut data = vec![0; fs.block_size().len()].into_boxed_slice();
        below.encode(&mut data).in_place(Place::Block(block))?;
        let old = match &below.home {
            Home::Block(_, old) => Some(old),
            Home::Root | Home::New(_) => None,
        };
        images.push(Image { old, block, data });
    }
    Ok(())
}

impl Image<'_> {
    fn publish(&self, handle: &Handle<'_>, live: &LiveInode, seal: Seal) {
        match self.old {
            Some(old) => {
                handle.edit(old, seal, |bytes| bytes.copy_from_slice(&self.data));
            }
            None => {
                let new = handle.create(self.block, seal, self.data.clone());
                // Its checksum is computed at commit: until then nobody may look at it.
                new.set_verified(Structure::ExtentNode, Some(live.ino()));
            }
        }
    }
}

impl Charge {
    fn sectors(self, fs: &Fs, inode: &Inode) -> u64 {
        let per_block = u64::from(fs.block_size().bytes() / 512);
        let now = inode.disk().sectors(fs.block_size());
        now.saturating_add(self.gained.saturating_mul(per_block))
            .saturating_sub(self.lost.saturating_mul(per_block))
    }

    /// Refuses more blocks than an inode can have.
    pub(crate) fn check(self, fs: &Fs, inode: &Inode) -> Result<()> {
        let huge = fs.inode_context(inode.ino()).huge_file;
        inode
            .disk()
            .clone()
            .set_sectors(self.sectors(fs, inode), fs.block_size(), huge)
            .map_err(|_| Error::FileTooLarge)
    }

    /// Asks the owners of the inode, unless it was let in before.
    pub(crate) fn admit<'f>(
        self,
        fs: &'f Fs,
        live: &LiveInode,
        space: &NodeSpace,
    ) -> Result<Admission<'f>> {
        if space.asks() {
            fs.admit_blocks(live, self.gained.saturating_sub(self.lost))
        } else {
            Ok(None)
        }
    }

    /// Charges the inode.
    pub(crate) fn apply(self, fs: &Fs, inode: &mut Inode) {
        let sectors = self.sectors(fs, inode);
        let huge = fs.inode_context(inode.ino()).huge_file;
        // Checked before: attributes, which others may have added since, are a block at most.
        let _ = inode.disk_mut().set_sectors(sectors, fs.block_size(), huge);
    }
}

/// Has what [`free`] changes in memory.
pub(in crate::map) fn hold_groups(
    handle: &Handle<'_>,
    freed: &[(Pblk, u32)],
    nodes: &[Pblk],
) -> Result<()> {
    handle.alloc().hold_groups(handle, freed)?;
    let mut nodes = nodes.iter();
    nodes.try_for_each(|&node| handle.alloc().hold_groups(handle, &[(node, 1)]))
}

/// Frees what lies in `freed`, clusters, of which blocks are among the data that was unmapped, and
/// nodes. All are tried; the first error is returned.
pub(in crate::map) fn free(
    handle: &Handle<'_>,
    inode: &Inode,
    unmapped: &[(Pblk, u32)],
    freed: &[(Pblk, u32)],
    nodes: &[Pblk],
) -> Result<()> {
    let is_metadata =
        inode.file_type() != FileType::Regular || inode.flags().contains(InodeFlags::EA_INODE);
    let mut result = Ok(());
    let mut free = |start: Pblk, len: u32, kind| {
        let freed = handle.alloc().free_blocks(handle, start, len, kind);
        if result.is_ok() {
            result = freed;
        }
    };
    if is_metadata {
        for &(start, len) in unmapped {
            for i in 0..len {
                handle.revoke(Pblk::new(start.get() + u64::from(i)));
            }
        }
    }
    let kind = if is_metadata {
        FreedKind::Metadata
    } else {
        FreedKind::Data
    };
    for &(start, len) in freed {
        free(start, len, kind);
    }
    for &node in nodes {
        handle.revoke(node);
        free(node, 1, FreedKind::Metadata);
    }
    result
}
