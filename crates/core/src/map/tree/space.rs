//! What the blocks for new nodes of a map are paid from.

use super::store::commit_all;
use crate::alloc::{Alloc, Request, Taken};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::{Error, Result};
use extant_format::Pblk;
use std::cell::Cell;

/// What a change of a map may spend on new nodes.
///
/// As in Linux, nodes that map more for a caller are paid from what it may have. What finishes
/// something that was let in before may use the last blocks: writeback, and changes that map
/// nothing new: holes, truncation, what was reserved becoming data.
#[derive(Debug)]
pub(crate) struct NodeSpace {
    /// Clusters that are promised: nodes take of these first, and what is left stays the caller's.
    promised: Cell<u32>,
    finishes: Cell<bool>,
}

impl NodeSpace {
    /// Makes the space for a caller that asks for more blocks.
    pub(crate) fn of_caller() -> Self {
        Self {
            promised: Cell::new(0),
            finishes: Cell::new(false),
        }
    }

    /// For finishing what was let in, for which `promised` clusters are promised.
    pub(crate) fn finishing(promised: u32) -> Self {
        Self {
            promised: Cell::new(promised),
            finishes: Cell::new(true),
        }
    }

    /// Returns what is left of the promise.
    pub(crate) fn promised(&self) -> u32 {
        self.promised.get()
    }

    /// Tells whether a caller asks for more, and may be refused it.
    pub(in crate::map) fn asks(&self) -> bool {
        !self.finishes.get()
    }

    /// Notes that nothing is mapped that was not.
    pub(super) fn set_nothing_new(&self) {
        self.finishes.set(true);
    }
}

/// Blocks taken for new nodes, each a cluster. Those that are not used are promised to the caller
/// again, as they were.
pub(in crate::map) struct NewNodes<'f, 's> {
    alloc: &'f Alloc,
    taken: Vec<Taken<'f>>,
    /// Clusters that are granted and not taken.
    left: u32,
    /// Clusters that came out of the caller's promise.
    of_promise: u32,
    space: &'s NodeSpace,
}

impl<'f, 's> NewNodes<'f, 's> {
    /// Takes blocks for `count` new nodes, together as far as possible. What is not promised is
    /// granted all at once, or nothing of it: so what cannot be done keeps no small change from its
    /// node.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(in crate::map) fn take(
        fs: &'f Fs,
        goal: Pblk,
        count: usize,
        space: &'s NodeSpace,
        below_32_bits: bool,
    ) -> Result<Self> {
        let count = u32::try_from(count).map_err(|_| Error::NoSpace)?;
        let of_promise = count.min(space.promised.get());
        let alloc = fs.alloc()?;
        alloc.reserve_space(count - of_promise, space.finishes.get())?;
        space.promised.set(space.promised.get() - of_promise);
        let mut nodes = Self {
            alloc,
            taken: Vec::new(),
            left: count,
            of_promise,
            space,
        };
        while nodes.left > 0 {
            let behind =
                |last: &Taken<'_>| Pblk::new(last.start().get().saturating_add(last.len().into()));
            let request = Request {
                goal: nodes.taken.last().map_or(goal, behind),
                len: fs.cluster_size().blocks().saturating_mul(nodes.left),
                min: 1,
                below_32_bits,
                privileged: false,
            };
            let got = alloc.take_promised(&request)?;
            nodes.left = nodes.left.saturating_sub(got.clusters());
            nodes.taken.push(got);
        }
        Ok(nodes)
    }

    /// Returns where they lie.
    pub(in crate::map) fn taken(&self) -> &[Taken<'f>] {
        &self.taken
    }

    /// Makes them owned on the device.
    pub(in crate::map) fn commit(&mut self, handle: &Handle<'f>) -> Result<()> {
        commit_all(handle, &mut self.taken)
    }
}

impl Drop for NewNodes<'_, '_> {
    fn drop(&mut self) {
        let mut back = self.left;
        for taken in self.taken.drain(..) {
            back += taken.clusters();
            taken.into_promise();
        }
        let promised = back.min(self.of_promise);
        self.space
            .promised
            .set(self.space.promised.get() + promised);
        if back > promised {
            self.alloc.return_space(back - promised);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MountOptions;
    use crate::inode::{Caller, FileType};
    use crate::lifecycle::NewInode;
    use crate::map::{self, MapGuard};
    use crate::ops;
    use extant_format::{Ino, Lblk};
    use extant_testkit::crash::Content;
    use extant_testkit::oracle::mke2fs;

    #[test]
    fn nodes_are_paid_by_whoever_maps_more_and_by_nobody_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, 16 << 20, &["-t", "ext4", "-b", "1024", "-m", "5"]);
        let options = MountOptions::read_write().background(false);
        let fs = Fs::open(Content::of_file(&image).open(), options).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        // Each has as many extents as the root of its tree has room for.
        let [more, part] = [&b"more"[..], b"part"].map(|name| {
            let new = NewInode::new(FileType::Regular, 0o600, ops::now());
            let file = ops::create(&fs, &root, name, &new).unwrap();
            for i in 0..4 {
                let mode = ops::FallocateMode::default();
                ops::fallocate(&fs, &file, (i * 100) << 10, 10 << 10, mode).unwrap();
            }
            file
        });
        let take = |privileged| {
            fs.alloc()?.take_blocks(&Request {
                goal: Pblk::new(0),
                len: 1,
                min: 1,
                below_32_bits: false,
                privileged,
            })
        };
        let map_one = |lblk: u32, taken: Taken<'_>| {
            let pblk = taken.start();
            let handle = fs.start(20).unwrap();
            let guard = MapGuard::lock(more.live());
            let edit = |tree: &mut map::Tree<'_>| tree.insert(Lblk::new(lblk), pblk, 1, true);
            map::change(&handle, more.live(), &guard, vec![taken], edit, |_| ())
        };
        let anybody = fs.spending_for(&Caller::new(1005, 1005));
        let one = take(false).unwrap();
        let mut all: Vec<_> = std::iter::from_fn(|| take(false).ok()).collect();
        let free = fs.alloc().unwrap().free_counts();
        assert!(matches!(map_one(1000, one), Err(Error::NoSpace)));
        assert_eq!(fs.alloc().unwrap().free_counts(), free);
        let back = take(false).expect("what was to be mapped");
        drop(anybody);
        map_one(1000, back).unwrap();
        all.extend(std::iter::from_fn(|| take(false).ok()));
        // What others have reserved is used up too, and still a reserved block becomes data.
        let _anybody = fs.spending_for(&Caller::new(1005, 1005));
        let handle = fs.start(20).unwrap();
        let guard = MapGuard::lock(part.live());
        let before = fs.alloc().unwrap().free_counts().blocks;
        map::convert(&handle, part.live(), &guard, 103..105).unwrap();
        drop((guard, handle));
        assert_eq!(fs.alloc().unwrap().free_counts().blocks, before - 1);
    }
}
