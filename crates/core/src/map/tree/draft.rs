//! An extent tree while it is being changed: only the nodes that matter are in memory, and nothing
//! is stored before all is known.

use super::super::budget::{Allowance, Everything};
use super::node::{Child, Entries, Home, Node, Slot, clip, joined, push_joined};
use crate::{Error, Place, Result};
use extant_format::extent::{Extent, LBLK_END, NodeContext};
use extant_format::{Expected, FormatError, Ino, Pblk, Structure};
use std::ops::Range;

/// Where nodes come from.
pub(super) trait Source {
    /// The image of a block.
    type Block: AsRef<[u8]>;

    /// Reads a node and checks it against what its parent says.
    fn node(&self, block: Pblk, context: &NodeContext) -> Result<Self::Block>;
}

/// A tree being changed.
#[derive(Debug)]
pub(super) struct Draft<S: Source> {
    pub(super) source: S,
    pub(super) ino: Ino,
    pub(super) root: Node<S::Block>,
    pub(super) root_context: NodeContext,
    /// Entries that a node in a block gets at most.
    pub(super) capacity: usize,
    /// Data that is mapped no more, as it was.
    pub(super) freed: Vec<Extent>,
    /// Nodes that are no more.
    pub(super) freed_nodes: Vec<Pblk>,
    /// Blocks of data mapped.
    pub(super) inserted: u64,
}

impl<S: Source> Draft<S> {
    /// Returns the tree whose root is `map`, which was validated.
    pub(super) fn new(
        source: S,
        ino: Ino,
        map: &[u8],
        physical: Range<u64>,
        capacity: usize,
    ) -> Result<Self> {
        Ok(Self {
            source,
            ino,
            root: Node::decode(map, Home::Root, Place::Inode(ino))?,
            root_context: NodeContext::root(physical),
            capacity,
            freed: Vec::new(),
            freed_nodes: Vec::new(),
            inserted: 0,
        })
    }

    /// Maps the blocks of `extent`, which nothing maps.
    ///
    /// # Errors
    /// When something maps one of them, or a node cannot be read. The draft is then of no use.
    pub(super) fn insert(&mut self, extent: Extent) -> Result<()> {
        insert(
            &self.source,
            self.ino,
            &mut self.root,
            &self.root_context,
            extent,
        )?;
        self.inserted += u64::from(extent.len);
        Ok(())
    }

    /// Makes written what is unwritten in `range`.
    ///
    /// # Errors
    /// When a node cannot be read.
    pub(super) fn convert(&mut self, range: &Range<u64>) -> Result<()> {
        convert(
            &self.source,
            self.ino,
            &mut self.root,
            &self.root_context,
            range,
        )
    }

    /// Unmaps and frees all of `free`; unmaps all of `range` and lets `again` map the same blocks,
    /// which stay the inode's, elsewhere.
    ///
    /// # Errors
    /// When a node cannot be read; what `again` says. The draft is then of no use.
    pub(super) fn remap(
        &mut self,
        free: &Range<u64>,
        range: &Range<u64>,
        again: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.remove(free, &mut Everything)?;
        let (freed, inserted) = (self.freed.len(), self.inserted);
        self.remove(range, &mut Everything)?;
        // What has moved away is no limit to what comes.
        self.tidy();
        let removed = self.freed.drain(freed..);
        let removed: u64 = removed.map(|extent| u64::from(extent.len)).sum();
        again(self)?;
        if self.inserted != inserted + removed {
            return Err(Error::Internal("blocks would get lost while they move"));
        }
        self.inserted = inserted;
        Ok(())
    }

    /// Makes true again what holds of a tree that is stored: no node but the root is empty, and the
    /// key of each is the first block it maps. A removal leaves that to be done.
    pub(super) fn tidy(&mut self) {
        tidy(&mut self.root, &mut self.freed_nodes);
        if self.root.len() == 0 && self.root.depth > 0 {
            self.root.entries = Entries::Extents(Vec::new());
            self.root.depth = 0;
            self.root.changed = true;
        }
    }

    /// Unmaps `range`, from its end on, as far as `allowance` goes. Returns where it stopped: from
    /// there on all is unmapped; `None` when all of `range` is.
    ///
    /// # Errors
    /// When a node cannot be read.
    pub(super) fn remove(
        &mut self,
        range: &Range<u64>,
        allowance: &mut impl Allowance,
    ) -> Result<Option<u64>> {
        let mut removal = Removal {
            source: &self.source,
            ino: self.ino,
            range,
            allowance,
            freed: &mut self.freed,
        };
        removal.node(&mut self.root, &self.root_context)
    }
}

/// Drops nodes below `node` that are empty, and corrects the keys of the others.
fn tidy<B>(node: &mut Node<B>, freed: &mut Vec<Pblk>) {
    let Entries::Children(children) = &mut node.entries else {
        return;
    };
    let mut changed = false;
    children.retain_mut(|child| {
        let Slot::Loaded(below) = &mut child.node else {
            return true;
        };
        tidy(below, freed);
        let Some(first) = below.first() else {
            if let Home::Block(block, _) = below.home {
                freed.push(block);
            }
            changed = true;
            return false;
        };
        changed |= first != child.lblk;
        child.lblk = first;
        true
    });
    node.changed |= changed;
}

/// Returns the context of child `i`.
pub(super) fn child_context<B>(
    children: &[Child<B>],
    i: usize,
    context: &NodeContext,
) -> NodeContext {
    let at = |i: usize| children.get(i).map(|child| u64::from(child.lblk.get()));
    let end = at(i + 1).unwrap_or(LBLK_END).min(context.logical.end);
    NodeContext {
        logical: at(i).unwrap_or(0)..end,
        physical: context.physical.clone(),
        depth: None,
    }
}

/// Child `i` of a node of `depth`, read if it was not.
pub(super) fn load<'n, S: Source>(
    source: &S,
    ino: Ino,
    depth: u16,
    child: &'n mut Child<S::Block>,
    context: &mut NodeContext,
) -> Result<&'n mut Node<S::Block>> {
    context.depth = depth.checked_sub(1);
    if let Slot::Stored(block) = child.node {
        let bytes = source.node(block, context)?;
        let place = Place::InodeBlock(ino, block);
        // The image stays in memory for as long as the draft.
        let mut node = Node::decode(bytes.as_ref(), Home::Root, place)?;
        node.home = Home::Block(block, bytes);
        child.node = Slot::Loaded(Box::new(node));
    }
    match &mut child.node {
        Slot::Loaded(node) => Ok(node),
        Slot::Stored(_) => Err(Error::InvalidInput("a node that is not loaded")),
    }
}

/// Position of the child that `lblk` belongs to: the first one, if it lies before all.
pub(super) fn position<B>(children: &[Child<B>], lblk: u64) -> usize {
    children
        .partition_point(|child| u64::from(child.lblk.get()) <= lblk)
        .saturating_sub(1)
}

fn insert<S: Source>(
    source: &S,
    ino: Ino,
    node: &mut Node<S::Block>,
    context: &NodeContext,
    extent: Extent,
) -> Result<()> {
    let depth = node.depth;
    match &mut node.entries {
        Entries::Extents(extents) => {
            let at_end = insert_extent(ino, extents, context.logical.end, extent)?;
            node.changed = true;
            node.grew_at_end |= at_end;
        }
        Entries::Children(children) => {
            let i = position(children, extent.lblk.get().into());
            let mut below = child_context(children, i, context);
            let Some(child) = children.get_mut(i) else {
                return Err(empty_node(ino));
            };
            let loaded = load(source, ino, depth, child, &mut below)?;
            insert(source, ino, loaded, &below, extent)?;
            if extent.lblk < child.lblk {
                child.lblk = extent.lblk;
                node.changed = true;
            }
        }
    }
    Ok(())
}

/// Returns an inner node without entries, which validation does not let pass.
fn empty_node(ino: Ino) -> Error {
    let source = FormatError::new(Structure::ExtentNode, "entries", 0, Expected::AtLeast(1));
    Error::corrupt(Place::Inode(ino), source)
}

/// Puts `new` in its place among `extents`, which end before `end`, joined with its neighbours if
/// it can be. Returns whether it became the last.
fn insert_extent(ino: Ino, extents: &mut Vec<Extent>, end: u64, new: Extent) -> Result<bool> {
    let at = extents.partition_point(|e| e.lblk < new.lblk);
    let before = at.checked_sub(1).and_then(|i| extents.get(i));
    let free_from = before.map_or(0, Extent::end);
    let free_to = extents.get(at).map_or(end, |e| e.lblk.get().into());
    if free_from > new.lblk.get().into() || free_to < new.end() || new.len == 0 {
        let expected = Expected::Between(free_from, free_to);
        let found = new.lblk.get().into();
        let source = FormatError::new(Structure::ExtentNode, "inserted block", found, expected);
        return Err(Error::corrupt(Place::Inode(ino), source));
    }
    let at_end = at == extents.len();
    let left = at.checked_sub(1);
    let with_left = left.and_then(|i| Some((i, joined(extents.get(i)?, &new)?)));
    let i = match with_left {
        Some((i, both)) => {
            extents[i] = both;
            i
        }
        None => {
            extents.insert(at, new);
            at
        }
    };
    if let (Some(a), Some(b)) = (extents.get(i), extents.get(i + 1))
        && let Some(both) = joined(a, b)
    {
        extents[i] = both;
        extents.remove(i + 1);
    }
    Ok(at_end)
}

fn convert<S: Source>(
    source: &S,
    ino: Ino,
    node: &mut Node<S::Block>,
    context: &NodeContext,
    range: &Range<u64>,
) -> Result<()> {
    let depth = node.depth;
    match &mut node.entries {
        Entries::Extents(extents) => node.changed |= convert_extents(extents, range),
        Entries::Children(children) => {
            let first = position(children, range.start);
            for i in first..children.len() {
                let mut below = child_context(children, i, context);
                if i > first && below.logical.start >= range.end {
                    break;
                }
                let loaded = load(source, ino, depth, &mut children[i], &mut below)?;
                convert(source, ino, loaded, &below, range)?;
            }
        }
    }
    Ok(())
}

fn convert_extents(extents: &mut Vec<Extent>, range: &Range<u64>) -> bool {
    let concerns = |e: &Extent| e.unwritten && clip(e, range).is_some();
    if !extents.iter().any(concerns) {
        return false;
    }
    let mut new = Vec::with_capacity(extents.len() + 2);
    for extent in extents.iter() {
        if !concerns(extent) {
            push_joined(&mut new, *extent);
            continue;
        }
        if let Some(before) = clip(extent, &(0..range.start)) {
            push_joined(&mut new, before);
        }
        if let Some(inside) = clip(extent, range) {
            let unwritten = false;
            push_joined(
                &mut new,
                Extent {
                    unwritten,
                    ..inside
                },
            );
        }
        if let Some(after) = clip(extent, &(range.end..LBLK_END)) {
            push_joined(&mut new, after);
        }
    }
    *extents = new;
    true
}

/// A removal under way.
struct Removal<'a, S, A> {
    source: &'a S,
    ino: Ino,
    range: &'a Range<u64>,
    allowance: &'a mut A,
    freed: &'a mut Vec<Extent>,
}

impl<S: Source, A: Allowance> Removal<'_, S, A> {
    /// Removes below `node`, from the end. Returns where it had to stop.
    fn node(&mut self, node: &mut Node<S::Block>, context: &NodeContext) -> Result<Option<u64>> {
        let depth = node.depth;
        match &mut node.entries {
            Entries::Extents(extents) => {
                let before = self.freed.len();
                let stopped = self.extents(extents);
                node.changed |= self.freed.len() != before;
                Ok(stopped)
            }
            Entries::Children(children) => self.children(children, depth, context),
        }
    }

    fn children(
        &mut self,
        children: &mut [Child<S::Block>],
        depth: u16,
        context: &NodeContext,
    ) -> Result<Option<u64>> {
        for i in (0..children.len()).rev() {
            let mut below = child_context(children, i, context);
            if below.logical.start >= self.range.end {
                continue;
            }
            if below.logical.end <= self.range.start {
                break;
            }
            let child = &mut children[i];
            let allowed = child.block().is_none_or(|block| self.allowance.node(block));
            if !allowed {
                return Ok(Some(below.logical.end.min(self.range.end)));
            }
            let loaded = load(self.source, self.ino, depth, child, &mut below)?;
            if let Some(stopped) = self.node(loaded, &below)? {
                return Ok(Some(stopped));
            }
        }
        Ok(None)
    }

    fn extents(&mut self, extents: &mut Vec<Extent>) -> Option<u64> {
        for i in (0..extents.len()).rev() {
            let extent = extents[i];
            if extent.end() <= self.range.start {
                break;
            }
            let Some(doomed) = clip(&extent, self.range) else {
                continue;
            };
            let granted = self.allowance.data(doomed.pblk, doomed.len).min(doomed.len);
            let keep = doomed.len - granted;
            let from = u64::from(doomed.lblk.get()) + u64::from(keep);
            if granted > 0 {
                self.freed.extend(clip(&doomed, &(from..doomed.end())));
                let before = clip(&extent, &(0..from));
                let after = clip(&extent, &(doomed.end()..LBLK_END));
                extents.splice(i..=i, before.into_iter().chain(after));
            }
            if keep > 0 {
                return Some(from);
            }
        }
        None
    }
}
