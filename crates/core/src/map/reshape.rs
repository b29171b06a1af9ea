//! A map of indirect blocks made of a tree of extents, and the other way round: the data stays where it is.
//!
//! All happens in one transaction, or not at all.

use super::tree::whole;
use super::{
    GROUP, MapGuard, NewRuns, Target, Walk, check_indirect, indirect_insert, indirect_remove,
    insert_many_credits, report,
};
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode};
use crate::journal::Handle;
use crate::{Error, InPlace, Place, Result};
use extant_format::Pblk;
use extant_format::extent::{Entries, Extent, LBLK_END, block_capacity, build_node};
use extant_format::features::Incompat;
use extant_format::indirect::pointers_per_block;
use extant_format::inode::{InodeFlags, MAP_BYTES};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Runs of a map at most, as it says them, which bounds memory and time.
const MOST_RUNS: usize = 1 << 18;

/// Another map for an inode, made up while nobody can change the one it has.
pub(crate) struct Reshape {
    /// The record, with an empty map of the other kind.
    empty: Inode,
    runs: Vec<Extent>,
    old_nodes: Vec<Pblk>,
    credits: u32,
}

impl Reshape {
    /// What becomes of the map of `live`: extents if it has none, otherwise indirect blocks.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason, when the other kind cannot say what this one does, the file system does not
    /// have it, or it takes more changes than a transaction has; when a node is broken or cannot be read.
    pub(crate) fn make(fs: &Fs, live: &LiveInode) -> Result<Self> {
        let inode = live.snapshot();
        let made = match inode.flags().contains(InodeFlags::EXTENTS) {
            true => to_pointers(fs, &inode),
            false => to_extents(fs, &inode),
        };
        let reshape = made.inspect_err(|e| {
            if e.is_corruption() {
                fs.report(e);
            }
        })?;
        match reshape.credits > fs.journal()?.max_credits() {
            true => Err(too_many_pieces()),
            false => Ok(reshape),
        }
    }

    /// The record as it would be, with an empty map.
    pub(crate) fn empty(&self) -> &Inode {
        &self.empty
    }

    /// Blocks that [`store`](Self::store) changes at most.
    pub(crate) fn credits(&self) -> u32 {
        self.credits
    }

    /// Puts it in place; `also` changes the rest of the record in the same image.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::QuotaExceeded`] for its nodes; [`Error::FileTooLarge`] when the map does not reach as far.
    /// Nothing has changed then.
    pub(crate) fn store<'f>(
        self,
        handle: &Handle<'f>,
        live: &Arc<LiveInode>,
        guard: &MapGuard<'_>,
        also: impl FnOnce(&mut Inode),
    ) -> Result<()> {
        debug_assert!(guard.is_of(live), "the guard is another inode's");
        let Self {
            empty,
            runs,
            old_nodes,
            ..
        } = self;
        let extents = empty.flags().contains(InodeFlags::EXTENTS);
        let also = |inode: &mut Inode| {
            inode.disk_mut().flags.set(InodeFlags::EXTENTS, extents);
            also(inode);
        };
        let stored = match extents {
            true => whole::build(handle, live, empty, &runs, old_nodes, also),
            false => indirect_insert::build(handle, live, empty, &runs, old_nodes, also),
        };
        stored.inspect_err(|e| report(handle, e))
    }
}

fn to_pointers(fs: &Fs, inode: &Arc<Inode>) -> Result<Reshape> {
    check_indirect(fs)?;
    let runs = runs_of(fs, inode)?;
    if runs.iter().any(|run| run.unwritten) {
        return Err(unsupported(
            "space that is reserved (fallocate) in files mapped by indirect blocks",
        ));
    }
    let end = |run: &Extent| run.pblk.get().saturating_add(run.len.into());
    if runs.iter().any(|run| end(run) > 1 << 32) {
        return Err(unsupported(
            "blocks beyond 2^32 in files mapped by indirect blocks",
        ));
    }
    let old_nodes = whole::nodes(fs, inode)?;
    let mut empty = Inode::clone(inode);
    let disk = empty.disk_mut();
    disk.flags.remove(InodeFlags::EXTENTS);
    disk.map = [0; MAP_BYTES];
    let per_node = pointers_per_block(fs.block_size());
    finish(fs, empty, runs, old_nodes, per_node)
}

fn to_extents(fs: &Fs, inode: &Arc<Inode>) -> Result<Reshape> {
    if !fs.superblock().has_incompat(Incompat::EXTENTS) {
        return Err(unsupported("extents (the file system does not have them)"));
    }
    if inode.is_inline() {
        return Err(unsupported("extents of content that lies in its inode"));
    }
    let runs = runs_of(fs, inode)?;
    let old_nodes = indirect_remove::nodes(fs, inode)?;
    let mut empty = Inode::clone(inode);
    let disk = empty.disk_mut();
    disk.flags.insert(InodeFlags::EXTENTS);
    disk.map = [0; MAP_BYTES];
    build_node(&mut disk.map, Entries::Extents(&[])).in_place(Place::Inode(inode.ino()))?;
    let per_node = block_capacity(fs.block_size()).into();
    finish(fs, empty, runs, old_nodes, per_node)
}

/// What a file maps, in ascending order. A broken map that names blocks or nodes over and over is found out.
fn runs_of(fs: &Fs, inode: &Inode) -> Result<Vec<Extent>> {
    let mut runs: Vec<Extent> = Vec::new();
    let mut walk = Walk::over(0..LBLK_END);
    let mut met = 0;
    while let Some(run) = walk.next(fs, inode)? {
        let (pblk, unwritten) = match run.target {
            Target::Written(pblk) => (pblk, false),
            Target::Unwritten(pblk) => (pblk, true),
            Target::Hole => continue,
        };
        met += 1;
        if met > MOST_RUNS {
            return Err(too_many_pieces());
        }
        let len = u32::try_from(run.len).map_err(|_| Error::FileTooLarge)?;
        match runs.last_mut() {
            Some(last)
                if last.unwritten == unwritten
                    && last.end() == u64::from(run.lblk.get())
                    && last.pblk.get() + u64::from(last.len) == pblk.get() =>
            {
                last.len += len;
            }
            _ => runs.push(Extent {
                lblk: run.lblk,
                len,
                pblk,
                unwritten,
            }),
        }
    }
    Ok(runs)
}

/// Counts what it takes. A node of the new map has room for `per_node` entries.
fn finish(
    fs: &Fs,
    empty: Inode,
    runs: Vec<Extent>,
    old_nodes: Vec<Pblk>,
    per_node: u32,
) -> Result<Reshape> {
    // Out of range cannot be: the nodes were validated.
    let group = |block: &Pblk| fs.geometry().group_of_block(*block).unwrap_or_default();
    let freed_in: BTreeSet<_> = old_nodes.iter().map(group).collect();
    let many = runs.len() as u32;
    let new = NewRuns {
        runs: many,
        leaves: many / per_node.max(1) + 1,
        groups: 0,
        blocks: runs.iter().map(|run| run.len).sum(),
    };
    let credits = insert_many_credits(fs, &empty, new) + GROUP * freed_in.len() as u32;
    Ok(Reshape {
        empty,
        runs,
        old_nodes,
        credits,
    })
}

fn too_many_pieces() -> Error {
    unsupported("another kind of map for a file in so many pieces")
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        features: what.to_owned(),
    }
}
