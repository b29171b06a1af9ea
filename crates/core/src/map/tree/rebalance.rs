//! Bringing a changed tree into a form that can be stored: full nodes split, empty ones gone, no
//! level too few or too many.

use super::draft::{Draft, Source, load};
use super::node::{Child, Entries, Home, Node, Slot};
use crate::{Error, Result};
use extant_format::Pblk;
use extant_format::extent::{LBLK_END, MAX_DEPTH, NodeContext, ROOT_CAPACITY};

impl<S: Source> Draft<S> {
    /// Splits, drops and moves nodes until each can be stored.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] when the tree would become too deep; a node that cannot be read.
    pub(super) fn rebalance(&mut self) -> Result<()> {
        if let Entries::Children(_) = self.root.entries {
            rebalance_children(&mut self.root, self.capacity, &mut self.freed_nodes);
        }
        self.grow()?;
        self.shrink()
    }

    /// Puts levels between the root and its entries until they fit.
    fn grow(&mut self) -> Result<()> {
        while self.root.len() > usize::from(ROOT_CAPACITY) {
            let depth = self.root.depth;
            if depth >= MAX_DEPTH {
                return Err(Error::FileTooLarge);
            }
            let mut below = Node::new(depth, self.root.entries.split_off(0));
            below.grew_at_end = self.root.grew_at_end;
            let children = split(below, self.capacity)
                .into_iter()
                .filter_map(into_child)
                .collect();
            self.root.entries = Entries::Children(children);
            self.root.depth = depth + 1;
            self.root.changed = true;
        }
        Ok(())
    }

    /// Takes the entries of an only child into the root while they fit.
    fn shrink(&mut self) -> Result<()> {
        loop {
            let depth = self.root.depth;
            let changed = self.root.changed;
            let Entries::Children(children) = &mut self.root.entries else {
                return Ok(());
            };
            match &mut children[..] {
                [] => {
                    self.root.entries = Entries::Extents(Vec::new());
                    self.root.depth = 0;
                    self.root.changed = true;
                    return Ok(());
                }
                [only] => {
                    let loaded = match &only.node {
                        Slot::Loaded(node) => node.changed,
                        Slot::Stored(_) => false,
                    };
                    if !changed && !loaded {
                        return Ok(());
                    }
                    let mut context = NodeContext {
                        logical: only.lblk.get().into()..LBLK_END,
                        ..self.root_context.clone()
                    };
                    let node = load(&self.source, self.ino, depth, only, &mut context)?;
                    if node.len() > usize::from(ROOT_CAPACITY) {
                        return Ok(());
                    }
                    let below = node.depth;
                    let entries = node.entries.split_off(0);
                    if let Home::Block(block, _) = node.home {
                        self.freed_nodes.push(block);
                    }
                    self.root.entries = entries;
                    self.root.depth = below;
                    self.root.changed = true;
                }
                _ => return Ok(()),
            }
        }
    }

    /// New nodes that need a block.
    pub(super) fn new_nodes(&self) -> usize {
        fn count<B>(node: &Node<B>) -> usize {
            let own = usize::from(matches!(node.home, Home::New(None)));
            own + loaded(node).map(count).sum::<usize>()
        }
        count(&self.root)
    }

    /// Gives each new node its block.
    pub(super) fn place_new_nodes(&mut self, blocks: &mut impl Iterator<Item = Pblk>) {
        fn place<B>(node: &mut Node<B>, blocks: &mut impl Iterator<Item = Pblk>) {
            if let Home::New(block @ None) = &mut node.home {
                *block = blocks.next();
            }
            if let Entries::Children(children) = &mut node.entries {
                for child in children {
                    if let Slot::Loaded(node) = &mut child.node {
                        place(node, blocks);
                    }
                }
            }
        }
        place(&mut self.root, blocks);
    }
}

/// Returns the children that are in memory.
pub(super) fn loaded<B>(node: &Node<B>) -> impl Iterator<Item = &Node<B>> {
    let children = match &node.entries {
        Entries::Children(children) => &children[..],
        Entries::Extents(_) => &[],
    };
    children.iter().filter_map(|child| match &child.node {
        Slot::Loaded(node) => Some(&**node),
        Slot::Stored(_) => None,
    })
}

/// Settles what is below an inner node.
fn rebalance_children<B>(node: &mut Node<B>, capacity: usize, freed: &mut Vec<Pblk>) {
    let Entries::Children(children) = &mut node.entries else {
        return;
    };
    let before = children.len();
    let mut balanced = Vec::with_capacity(before + 1);
    for (i, child) in std::mem::take(children).into_iter().enumerate() {
        let Slot::Loaded(below) = child.node else {
            balanced.push(child);
            continue;
        };
        let key = child.lblk;
        let pieces = rebalance(*below, capacity, freed);
        node.changed |= pieces.len() != 1 || pieces.iter().any(|p| p.first() != Some(key));
        node.grew_at_end |= i + 1 == before && pieces.len() > 1;
        balanced.extend(pieces.into_iter().filter_map(into_child));
    }
    *children = balanced;
}

/// Settles a node in a block and what is below it: what it becomes, one node or more, or none.
fn rebalance<B>(mut node: Node<B>, capacity: usize, freed: &mut Vec<Pblk>) -> Vec<Node<B>> {
    rebalance_children(&mut node, capacity, freed);
    if node.len() == 0 {
        if let Home::Block(block, _) = node.home {
            freed.push(block);
        }
        return Vec::new();
    }
    split(node, capacity)
}

/// Splits a node that holds more than `capacity` entries: full nodes and a rest where it grew at
/// its end, equal ones otherwise.
fn split<B>(mut node: Node<B>, capacity: usize) -> Vec<Node<B>> {
    let len = node.len();
    if len <= capacity {
        return vec![node];
    }
    node.changed = true;
    let count = len.div_ceil(capacity);
    let per = if node.grew_at_end {
        capacity
    } else {
        len.div_ceil(count)
    };
    let mut after = Vec::with_capacity(count);
    for piece in (1..len.div_ceil(per)).rev() {
        let mut new = Node::new(node.depth, node.entries.split_off(piece * per));
        new.grew_at_end = node.grew_at_end;
        after.push(new);
    }
    let mut pieces = vec![node];
    pieces.extend(after.into_iter().rev());
    pieces
}

fn into_child<B>(node: Node<B>) -> Option<Child<B>> {
    Some(Child {
        lblk: node.first()?,
        node: Slot::Loaded(Box::new(node)),
    })
}
