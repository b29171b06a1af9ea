//! Changes of trees against a model that knows every block.

use super::super::budget::Allowance;
use super::draft::{Draft, Source};
use super::node::{Entries, Home, Node, Slot};
use crate::{Error, Result};
use extant_format::extent::{
    Extent, ExtentNode, MAX_DEPTH, NodeContext, ROOT_BYTES, ROOT_CAPACITY,
};
use extant_format::{Ino, Lblk, Pblk};
use extant_testkit::rng::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;

const BLOCK: usize = 1024;
const INO: Ino = Ino::new(12);
const PHYSICAL: Range<u64> = 1..1 << 40;
/// Nodes are numbered from here on, data below.
const NODES: u64 = 1 << 39;

thread_local! {
    static CAP: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

/// From now on, nodes that this thread changes on an image get so many entries at most.
pub(super) fn cap(entries: usize) {
    CAP.set(entries);
}

/// See [`cap`].
pub(super) fn capped(capacity: usize) -> usize {
    CAP.get().min(capacity)
}

/// Nodes by block.
#[derive(Clone, Default)]
struct Shelf(Rc<RefCell<HashMap<u64, Rc<[u8]>>>>);

impl Source for Shelf {
    type Block = Rc<[u8]>;

    fn node(&self, block: Pblk, context: &NodeContext) -> Result<Self::Block> {
        let bytes = Rc::clone(&self.0.borrow()[&block.get()]);
        let node = ExtentNode::parse(&bytes).unwrap();
        node.validate(context).unwrap();
        node.fits(context).unwrap();
        Ok(bytes)
    }
}

/// A removal that frees so many blocks at most, and visits so many nodes.
struct Limit(u32, u32);

impl Allowance for Limit {
    fn data(&mut self, _: Pblk, len: u32) -> u32 {
        let granted = len.min(self.0);
        self.0 -= granted;
        granted
    }

    fn node(&mut self, _: Pblk) -> bool {
        let left = self.1.checked_sub(1);
        self.1 = left.unwrap_or(0);
        left.is_some()
    }
}

struct World {
    shelf: Shelf,
    map: Vec<u8>,
    capacity: usize,
    next_node: u64,
    /// What maps each block.
    model: BTreeMap<u32, (u64, bool)>,
    deepest: u16,
}

impl World {
    fn new(capacity: usize) -> Self {
        let mut map = vec![0; ROOT_BYTES];
        let empty = extant_format::extent::Entries::Extents(&[]);
        extant_format::extent::build_node(&mut map, empty).unwrap();
        Self {
            shelf: Shelf::default(),
            map,
            capacity,
            next_node: NODES,
            model: BTreeMap::new(),
            deepest: 0,
        }
    }

    fn draft(&self) -> Draft<Shelf> {
        Draft::new(self.shelf.clone(), INO, &self.map, PHYSICAL, self.capacity).unwrap()
    }

    /// Settles and stores, as under a handle.
    fn store(&mut self, mut draft: Draft<Shelf>) -> Result<()> {
        draft.rebalance()?;
        let count = draft.new_nodes() as u64;
        let mut blocks = (self.next_node..self.next_node + count).map(Pblk::new);
        self.next_node += count;
        draft.place_new_nodes(&mut blocks);
        assert_eq!(blocks.next(), None, "a block too many");
        fn put(node: &Node<Rc<[u8]>>, shelf: &Shelf) {
            if let Entries::Children(children) = &node.entries {
                for child in children {
                    if let Slot::Loaded(below) = &child.node {
                        put(below, shelf);
                    }
                }
            }
            if node.changed && !matches!(node.home, Home::Root) {
                let mut bytes = vec![0; BLOCK];
                node.encode(&mut bytes).unwrap();
                let block = node.block().unwrap().get();
                shelf.0.borrow_mut().insert(block, bytes.into());
            }
        }
        put(&draft.root, &self.shelf);
        if draft.root.changed {
            draft.root.encode(&mut self.map).unwrap();
        }
        for block in &draft.freed_nodes {
            let old = self.shelf.0.borrow_mut().remove(&block.get());
            assert!(old.is_some(), "freed a node that is none");
        }
        Ok(())
    }

    fn insert(&mut self, runs: &[Extent]) {
        let mut draft = self.draft();
        let outcome = runs.iter().try_for_each(|&run| draft.insert(run));
        match outcome.and_then(|()| self.store(draft)) {
            Ok(()) => {
                for run in runs {
                    for i in 0..run.len {
                        let before = self.model.insert(
                            run.lblk.get() + i,
                            (run.pblk.get() + u64::from(i), run.unwritten),
                        );
                        assert_eq!(before, None, "mapped over something");
                    }
                }
            }
            Err(Error::FileTooLarge) => {}
            Err(_) => {
                let taken = runs
                    .iter()
                    .any(|run| self.model.range(run.lblk.get()..run.end() as u32).count() > 0);
                assert!(taken, "refused what was free");
            }
        }
    }

    /// All extents, in order.
    fn extents(&self) -> Vec<Extent> {
        fn below(shelf: &Shelf, bytes: &[u8], found: &mut Vec<Extent>) {
            let node = ExtentNode::parse(bytes).unwrap();
            if node.is_leaf() {
                found.extend(node.extents());
                return;
            }
            for entry in node.index_entries() {
                let child = Rc::clone(&shelf.0.borrow()[&entry.child.get()]);
                below(shelf, &child, found);
            }
        }
        let mut found = Vec::new();
        below(&self.shelf, &self.map, &mut found);
        found
    }

    /// Frees `free` and maps `runs`, which are all there are from the first to the last, `by`
    /// blocks further on, unwritten if `zero`. Returns whether it was done: the tree may have
    /// become too deep.
    fn remap(&mut self, free: Range<u32>, runs: &[Extent], by: i64, zero: bool) -> bool {
        let moved = |run: &Extent| Extent {
            lblk: Lblk::new((i64::from(run.lblk.get()) + by) as u32),
            unwritten: run.unwritten | zero,
            ..*run
        };
        let range = match (runs.first(), runs.last()) {
            (Some(first), Some(last)) => first.lblk.get().into()..last.end(),
            _ => 0..0,
        };
        let mut draft = self.draft();
        draft
            .remap(&(free.start.into()..free.end.into()), &range, |draft| {
                runs.iter().try_for_each(|run| draft.insert(moved(run)))
            })
            .unwrap();
        let freed: BTreeSet<u64> = draft
            .unmapped()
            .into_iter()
            .flat_map(|(start, len)| (0..u64::from(len)).map(move |i| start.get() + i))
            .collect();
        let inserted = draft.inserted;
        match self.store(draft) {
            Ok(()) => {}
            Err(Error::FileTooLarge) => return false,
            Err(e) => panic!("{e}"),
        }
        assert_eq!(inserted, 0, "nothing is new");
        let doomed: Vec<u32> = self.model.range(free).map(|(&l, _)| l).collect();
        let expected: BTreeSet<u64> = doomed
            .iter()
            .map(|l| self.model.remove(l).unwrap().0)
            .collect();
        assert_eq!(freed, expected, "freed other blocks than were mapped");
        let all = range.start as u32..range.end as u32;
        let old: Vec<u32> = self.model.range(all).map(|(&l, _)| l).collect();
        let old: Vec<_> = old
            .iter()
            .map(|l| (*l, self.model.remove(l).unwrap()))
            .collect();
        for (lblk, (pblk, unwritten)) in old {
            let to = (i64::from(lblk) + by) as u32;
            let before = self.model.insert(to, (pblk, unwritten | zero));
            assert_eq!(before, None, "moved over something");
        }
        true
    }

    fn convert(&mut self, range: Range<u32>) {
        let mut draft = self.draft();
        draft
            .convert(&(range.start.into()..range.end.into()))
            .unwrap();
        if self.store(draft).is_ok() {
            self.model.range_mut(range).for_each(|(_, m)| m.1 = false);
        }
    }

    fn remove(&mut self, range: Range<u32>, mut limit: Limit) -> Option<u32> {
        let mut draft = self.draft();
        let stopped = draft
            .remove(&(range.start.into()..range.end.into()), &mut limit)
            .unwrap();
        let mut freed = BTreeSet::new();
        for (start, len) in draft.unmapped() {
            for i in 0..u64::from(len) {
                assert!(freed.insert(start.get() + i), "freed twice");
            }
        }
        self.store(draft).ok()?;
        let from = stopped.map_or(range.start, |at| u32::try_from(at).unwrap());
        let doomed: Vec<u32> = self.model.range(from..range.end).map(|(&l, _)| l).collect();
        let expected: BTreeSet<u64> = doomed
            .iter()
            .map(|l| self.model.remove(l).unwrap().0)
            .collect();
        assert_eq!(freed, expected, "freed other blocks than were mapped");
        stopped.map(|at| at as u32)
    }

    /// Everything the reader checks, what `e2fsck` checks, and the model.
    fn check(&mut self) {
        let mut found = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let root = NodeContext::root(PHYSICAL);
        let node = ExtentNode::parse(&self.map).unwrap();
        node.validate(&root).unwrap();
        assert!(node.header().depth <= MAX_DEPTH);
        self.deepest = self.deepest.max(node.header().depth);
        self.walk(&self.map, &root, &mut found, &mut seen);
        assert_eq!(found, self.model);
        assert_eq!(seen.len(), self.shelf.0.borrow().len(), "lost nodes");
        if !node.is_leaf() && node.len() == 1 {
            let child = node.index_entry(0).unwrap().child.get();
            let bytes = Rc::clone(&self.shelf.0.borrow()[&child]);
            let len = ExtentNode::parse(&bytes).unwrap().len();
            assert!(len > usize::from(ROOT_CAPACITY), "a level too many");
        }
    }

    fn walk(
        &self,
        bytes: &[u8],
        context: &NodeContext,
        found: &mut BTreeMap<u32, (u64, bool)>,
        seen: &mut BTreeSet<u64>,
    ) {
        let node = ExtentNode::parse(bytes).unwrap();
        if node.is_leaf() {
            for e in node.extents() {
                for i in 0..e.len {
                    found.insert(e.lblk.get() + i, (e.pblk.get() + u64::from(i), e.unwritten));
                }
            }
            return;
        }
        for (i, entry) in node.index_entries().enumerate() {
            let below = node.child_context(i, context).unwrap();
            let child = self.shelf.node(entry.child, &below).unwrap();
            assert!(seen.insert(entry.child.get()), "a node with two parents");
            let parsed = ExtentNode::parse(&child).unwrap();
            assert!(parsed.len() <= self.capacity);
            assert_eq!(parsed.first_block(0), Some(entry.lblk), "a wrong key");
            self.walk(&child, &below, found, seen);
        }
    }
}

fn extent(lblk: u32, pblk: u64, len: u32, unwritten: bool) -> Extent {
    Extent {
        lblk: Lblk::new(lblk),
        len,
        pblk: Pblk::new(pblk),
        unwritten,
    }
}

#[test]
fn random_changes_leave_what_the_model_says() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let capacity = 3 + rng.below(6) as usize;
        let universe = [60, 400, 3000][rng.below(3) as usize];
        let mut world = World::new(capacity);
        for _ in 0..400 {
            let at = rng.below(universe) as u32;
            let most = 1 + rng.below(universe / 8);
            let len = 1 + rng.below(most) as u32;
            match rng.below(10) {
                0..6 => {
                    let mut runs = Vec::new();
                    let mut lblk = at;
                    for _ in 0..=rng.below(4) {
                        let len = 1 + rng.below(5) as u32;
                        // Often side by side, so that extents join.
                        let near = 1_000_000 + u64::from(lblk);
                        let pblk = if rng.below(2) == 0 {
                            near
                        } else {
                            1 + rng.below(1 << 30)
                        };
                        runs.push(extent(lblk, pblk, len, rng.below(3) == 0));
                        lblk += len + rng.below(3) as u32;
                    }
                    world.insert(&runs);
                }
                6 | 7 => world.convert(at..at + len),
                8 => {
                    world.remove(at..at + len, Limit(u32::MAX, u32::MAX));
                }
                _ => {
                    let limit = Limit(rng.below(40) as u32, rng.below(6) as u32);
                    world.remove(at..u32::MAX, limit);
                }
            }
            world.check();
        }
        let mut end = u32::MAX;
        while let Some(next) = world.remove(0..end, Limit(7, 9)) {
            world.check();
            end = next;
        }
        assert!(world.model.is_empty(), "something remains mapped");
        world.check();
    }
}

#[test]
fn extents_move_across_leaves_as_the_model_says() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut world = World::new(3 + rng.below(6) as usize);
        let mut lblk = 0;
        for i in 0..rng.between(1, 120) {
            let len = 1 + rng.below(4) as u32;
            let pblk = match rng.below(2) {
                0 => 1_000_000 + u64::from(lblk),
                _ => 10 + 7 * i,
            };
            world.insert(&[extent(lblk, pblk, len, rng.below(3) == 0)]);
            lblk += len + rng.below(3) as u32;
        }
        for _ in 0..60 {
            let at = rng.below(u64::from(lblk)) as u32;
            let len = 1 + rng.below(9) as u32;
            let part = 1 + rng.below(12) as usize;
            let mut all = world.extents();
            match rng.below(4) {
                // A range is taken out, by one change or by many.
                0 | 1 => {
                    let cut = |e: Extent| super::node::clip(&e, &(u64::from(at + len)..1 << 32));
                    all = all.into_iter().filter_map(cut).collect();
                    let by = -i64::from(len);
                    if rng.below(2) == 0 {
                        world.remap(at..at + len, &all, by, false);
                    } else {
                        world.remove(at..at + len, Limit(u32::MAX, u32::MAX));
                        for part in all.chunks(part) {
                            if !world.remap(0..0, part, by, false) {
                                break;
                            }
                            world.check();
                        }
                    }
                }
                // A hole is put in.
                2 => {
                    let cut = |e: Extent| super::node::clip(&e, &(u64::from(at)..1 << 32));
                    all = all.into_iter().filter_map(cut).collect();
                    for part in all.rchunks(part) {
                        if !world.remap(0..0, part, len.into(), false) {
                            break;
                        }
                        world.check();
                    }
                }
                // Zeros, in place.
                _ => {
                    let range = u64::from(at)..u64::from(at + 4 * len);
                    let cut = |e: Extent| super::node::clip(&e, &range);
                    all = all.into_iter().filter_map(cut).collect();
                    for part in all.chunks(part) {
                        world.remap(0..0, part, 0, true);
                    }
                }
            }
            world.check();
        }
    }
}

#[test]
fn a_tree_grows_to_five_levels_and_shrinks_back_into_the_inode() {
    let mut world = World::new(4);
    for i in 0..3000 {
        world.insert(&[extent(2 * i, 10 + 7 * u64::from(i), 1, false)]);
        if i % 100 == 0 {
            world.check();
        }
    }
    world.check();
    assert_eq!(world.deepest, MAX_DEPTH);
    let mut left = 3000;
    while left > 0 {
        left -= 50;
        world.remove(2 * left..u32::MAX, Limit(u32::MAX, u32::MAX));
        world.check();
    }
    assert_eq!(ExtentNode::parse(&world.map).unwrap().header().depth, 0);
    assert!(world.shelf.0.borrow().is_empty());
}

#[test]
fn appending_fills_nodes_completely() {
    let mut world = World::new(8);
    for i in 0..64 {
        world.insert(&[extent(2 * i, 10 + 7 * u64::from(i), 1, false)]);
    }
    world.check();
    // Eight full leaves and an inner node above.
    assert_eq!(world.shelf.0.borrow().len(), 9);
}

#[test]
fn many_runs_in_one_change_give_each_leaf_one_image() {
    let mut world = World::new(8);
    let runs: Vec<_> = (0..30)
        .map(|i| extent(3 * i, 5 + 9 * u64::from(i), 1, i % 2 == 0))
        .collect();
    world.insert(&runs);
    world.check();
    assert_eq!(world.next_node - NODES, 4);
}

#[test]
fn a_change_that_fails_leaves_no_trace() {
    let mut world = World::new(4);
    for i in 0..20 {
        world.insert(&[extent(2 * i, 10 + 7 * u64::from(i), 1, false)]);
    }
    let map = world.map.clone();
    world.insert(&[extent(101, 5, 3, false), extent(10, 9, 1, true)]);
    world.insert(&[extent(101, 5, 3, false), extent(36, 9, 4, false)]);
    assert_eq!(world.map, map);
    world.check();
}

#[test]
fn extents_stay_within_the_lengths_the_format_has() {
    let mut world = World::new(8);
    world.insert(&[extent(0, 1000, 32_768, false)]);
    world.insert(&[extent(32_768, 33_768, 1, false)]);
    world.insert(&[extent(40_000, 100_000, 32_767, true)]);
    world.insert(&[extent(72_767, 132_767, 1, true)]);
    assert_eq!(ExtentNode::parse(&world.map).unwrap().len(), 4);
    world.check();
    world.convert(40_000..72_768);
    assert_eq!(ExtentNode::parse(&world.map).unwrap().len(), 3);
    world.check();
}
