//! Walking a range of a file, run by run.

use super::extents::{Found, Leaf, find_leaf};
use super::{Mapping, Target, check_owned, indirect};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, Place, Result};
use extant_format::inode::InodeFlags;
use extant_format::{Expected, FormatError, Lblk, Structure};
use std::ops::Range;

/// The runs of a range of logical blocks, ascending and without gaps: holes are runs as well.
///
/// Runs that continue each other come as one. The leaf of an extent tree is kept between steps, so
/// that a walk reads each node once.
#[derive(Debug)]
pub struct Runs<'a> {
    walk: Walk,
    fs: &'a Fs,
    inode: &'a Inode,
}

/// A walk that does not borrow what it walks over; see [`Runs`].
#[derive(Debug)]
pub struct Walk {
    next: u64,
    end: u64,
    leaf: Option<Leaf>,
    /// Physical blocks the runs so far lie in.
    mapped: u64,
    /// Nodes of pointers entered so far.
    nodes: u64,
    /// Read ahead to see whether it continues the run before.
    ahead: Option<Mapping>,
    /// Leaves of a tree of extents met so far.
    leaves: u32,
}

impl Walk {
    /// Returns a walk over the logical blocks of `range`, which may end at 2^32 at most.
    #[must_use]
    pub fn over(range: Range<u64>) -> Self {
        Self {
            next: range.start,
            end: range.end.min(1 << 32),
            leaf: None,
            mapped: 0,
            nodes: 0,
            ahead: None,
            leaves: 0,
        }
    }

    /// Leaves of a tree of extents met so far.
    pub(super) fn leaves(&self) -> u32 {
        self.leaves
    }

    /// Goes on with the logical blocks of `range`.
    fn go_to(&mut self, range: &Range<u64>) {
        self.next = range.start;
        self.end = range.end.min(1 << 32);
        self.ahead = None;
    }

    /// Returns the next run, or `None` at the end of the range. `fs` and `inode` must be the same
    /// at each call.
    ///
    /// # Errors
    /// When a node of the map breaks the format, or the device fails. The walk is then over.
    pub fn next(&mut self, fs: &Fs, inode: &Inode) -> Result<Option<Mapping>> {
        let result = self.try_next(fs, inode);
        if result.is_err() {
            self.next = self.end;
            self.ahead = None;
        }
        result
    }

    fn try_next(&mut self, fs: &Fs, inode: &Inode) -> Result<Option<Mapping>> {
        let first = match self.ahead.take() {
            Some(mapping) => Some(mapping),
            None => self.step(fs, inode)?,
        };
        let Some(mut run) = first else {
            return Ok(None);
        };
        while let Some(next) = self.step(fs, inode)? {
            if run.is_followed_by(&next) {
                run.len += next.len;
            } else {
                self.ahead = Some(next);
                break;
            }
        }
        Ok(Some(run))
    }

    /// One answer of the map, cut to the range.
    fn step(&mut self, fs: &Fs, inode: &Inode) -> Result<Option<Mapping>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let lblk = Lblk::new(self.next as u32);
        let mut mapping = if inode.flags().contains(InodeFlags::EXTENTS) {
            self.step_extents(fs, inode, lblk)?
        } else {
            let (mapping, enters) = indirect::answer(fs, inode, lblk)?;
            self.nodes = self.nodes.saturating_add(enters.into());
            mapping
        };
        mapping.len = mapping.len.min(self.end - self.next).max(1);
        check_owned(fs, inode, &mapping)?;
        self.next += mapping.len;
        self.count(fs, inode, &mapping)?;
        Ok(Some(mapping))
    }

    /// Refuses a file with more blocks than the file system has: a map that points at the same
    /// blocks, or the same empty node, over and over would otherwise keep a reader busy for ever.
    fn count(&mut self, fs: &Fs, inode: &Inode, mapping: &Mapping) -> Result<()> {
        if mapping.target != Target::Hole {
            self.mapped = self.mapped.saturating_add(mapping.len);
        }
        let blocks = fs.geometry().blocks_count();
        let (field, found) = if self.mapped > blocks {
            ("mapped blocks", self.mapped)
        } else if self.nodes > blocks {
            ("nodes of the map", self.nodes)
        } else {
            return Ok(());
        };
        let source = FormatError::new(Structure::Inode, field, found, Expected::AtMost(blocks));
        Err(Error::corrupt(Place::Inode(inode.ino()), source))
    }

    fn step_extents(&mut self, fs: &Fs, inode: &Inode, lblk: Lblk) -> Result<Mapping> {
        if let Some(leaf) = self
            .leaf
            .as_ref()
            .filter(|leaf| leaf.covers(lblk.get().into()))
        {
            return leaf.lookup(inode, lblk);
        }
        self.leaves = self.leaves.saturating_add(1);
        match find_leaf(fs, inode, lblk)? {
            Found::Leaf(leaf) => {
                let mapping = leaf.lookup(inode, lblk);
                self.leaf = Some(leaf);
                mapping
            }
            Found::Hole(end) => Ok(Mapping {
                lblk,
                len: end.saturating_sub(lblk.get().into()).max(1),
                target: Target::Hole,
            }),
        }
    }
}

/// Returns the runs of several ranges, which ascend, of an image whose map the caller keeps from
/// changing; with each, how many leaves of the tree were met by then.
///
/// # Errors
/// As for [`lookup`](super::lookup).
pub(crate) fn runs_of_all(
    fs: &Fs,
    inode: &Inode,
    ranges: &[Range<u64>],
) -> Result<Vec<(Mapping, u32)>> {
    let mut walk = Walk::over(0..0);
    let mut runs = Vec::with_capacity(ranges.len());
    for range in ranges {
        walk.go_to(range);
        while let Some(run) = walk.next(fs, inode)? {
            runs.push((run, walk.leaves));
        }
    }
    Ok(runs)
}

impl<'a> Runs<'a> {
    /// Returns the runs of `range`, in logical blocks; it may end at 2^32 at most.
    #[must_use]
    pub fn over(fs: &'a Fs, inode: &'a Inode, range: Range<u64>) -> Self {
        Self {
            walk: Walk::over(range),
            fs,
            inode,
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Mapping>;

    fn next(&mut self) -> Option<Self::Item> {
        self.walk.next(self.fs, self.inode).transpose()
    }
}
