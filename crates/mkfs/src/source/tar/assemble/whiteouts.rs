//! What a layer takes away from those below it.
//!
//! A whiteout acts on lower layers only, never on entries of its own layer, whatever order they
//! stand in. So all of a layer's whiteouts are acted on first, and its entries come afterwards.

use std::collections::{HashMap, HashSet};

use super::super::super::Whiteouts;
use super::super::super::builder::{Content, Meta};
use super::super::super::error::SourceResult;
use super::super::super::model::{FileType, NodeId, Times, Timestamp, Xattr};
use super::super::super::walk::end_of;
use super::super::super::whiteout::Mark;
use super::super::Checked;
use super::{Assembly, Below};

/// What the layer at hand has taken away, and what is to be said of directories at the end.
#[derive(Default)]
pub(super) struct Removed {
    /// The nodes that had names, by directory and name.
    names: HashMap<(NodeId, Box<[u8]>), NodeId>,
    /// Directories that took the place of others, to be empty.
    emptied: HashMap<NodeId, NodeId>,
    root_is_emptied: bool,
    /// Whether hard links may lead to what is gone.
    is_found: bool,
    /// Directories that hide what still lower layers have in them.
    opaque: HashSet<NodeId>,
    /// Marks that were made for what layers have taken away.
    marks: HashSet<NodeId>,
}

impl Removed {
    pub(super) fn may_be_found(&mut self, is_found: bool) {
        self.is_found = is_found;
    }

    /// Ends a layer.
    pub(super) fn forget(&mut self) {
        self.names.clear();
        self.emptied.clear();
        self.root_is_emptied = false;
        self.is_found = false;
    }
}

impl Assembly<'_> {
    /// Acts on a whiteout of the layer at hand, if the path is one. Comes before all entries of the
    /// layer.
    pub(in super::super) fn take_away(&mut self, path: &[u8], time: Timestamp) -> Checked<()> {
        let how = match self.below {
            // Refused when its own turn comes.
            Below::Nothing | Below::Layers(Whiteouts::Refuse | Whiteouts::Keep) => return Ok(()),
            Below::Layers(how) => how,
        };
        if self.is_excluded(path, false) {
            return Ok(());
        }
        let make = (how == Whiteouts::Overlay).then_some(time);
        match Mark::of(path)? {
            None | Some(Mark::Housekeeping) => Ok(()),
            Some(Mark::Hides { dir, name }) => self.hide(dir, name, make),
            Some(Mark::Opaque { dir }) => self.empty(dir, make),
        }
    }

    /// Takes a name away; with a time, leaves the mark that overlayfs has for it.
    fn hide(&mut self, dir: &[u8], name: &[u8], mark: Option<Timestamp>) -> Checked<()> {
        let Some(dir) = self.directory_at(dir, mark)? else {
            return Ok(());
        };
        let gone = self.builder.unlink(dir, name);
        if let Some(node) = gone.filter(|node| !self.removed.marks.contains(node)) {
            let key = (dir, Box::from(name));
            self.removed.names.entry(key).or_insert(node);
        }
        if let Some(time) = mark {
            let marker = Content::Device {
                kind: FileType::CharDevice,
                major: 0,
                minor: 0,
            };
            let marker = self.builder.add(Meta::plain(0, Times::all(time)), marker)?;
            self.builder.link(dir, name, marker)?;
            self.removed.marks.insert(marker);
        }
        Ok(())
    }

    /// Takes away all that is in a directory; with a time, notes that it is opaque.
    fn empty(&mut self, dir: &[u8], mark: Option<Timestamp>) -> Checked<()> {
        let Some(mut way) = self.way_to(dir, mark)? else {
            return Ok(());
        };
        let Some((mut node, name)) = way.pop() else {
            return Ok(());
        };
        if !way.is_empty() {
            let new = self.builder.add_emptied(node)?;
            self.builder.relink(end_of(&way), &name, new);
            self.removed.emptied.insert(new, node);
            if self.implied.remove(&node) {
                self.implied.insert(new);
            }
            if self.removed.opaque.remove(&node) {
                self.removed.opaque.insert(new);
            }
            node = new;
        } else if !self.removed.root_is_emptied {
            for (name, node) in self.builder.unlink_root() {
                if self.removed.marks.contains(&node) {
                    continue;
                }
                self.removed
                    .names
                    .entry((NodeId::ROOT, name))
                    .or_insert(node);
            }
            self.removed.root_is_emptied = true;
        }
        if mark.is_some() {
            self.removed.opaque.insert(node);
        }
        Ok(())
    }

    /// Whether an entry of this path is a whiteout, and no file of the image.
    pub(super) fn passes_over(&self, path: &[u8]) -> Checked<bool> {
        if !Mark::is_in(path) {
            return Ok(false);
        }
        match self.below {
            Below::Layers(Whiteouts::Keep) => Ok(false),
            Below::Layers(Whiteouts::Apply | Whiteouts::Overlay) => Ok(Mark::of(path)?.is_some()),
            Below::Layers(Whiteouts::Refuse) => {
                Err("a whiteout, which --whiteouts refuse does not take".into())
            }
            Below::Nothing => Err(
                "a whiteout: this is one layer of a container image, which says with it what the \
                 layers below lose; give the whole image (oci:DIR, docker-archive:FILE), the \
                 layers below as sources before this one, or the flat tree (docker export); \
                 --whiteouts overlay keeps it as overlayfs has it, and --exclude '.wh.*' leaves \
                 such names out"
                    .into(),
            ),
        }
    }

    /// Whether a node is what overlayfs has in the place of something that is gone.
    pub(super) fn is_marker(&self, node: NodeId) -> bool {
        self.below == Below::Layers(Whiteouts::Overlay)
            && self.builder.kind(node) == FileType::CharDevice
            && self.builder.rdev(node) == Some((0, 0))
    }

    /// Gives the name of something else to a new directory. For overlayfs it hides what that hid: a
    /// mark or a file hides a directory of its name in the layers below, which is not to come back.
    pub(super) fn replace_by_directory(&mut self, parent: NodeId, name: &[u8], new: NodeId) {
        if self.below == Below::Layers(Whiteouts::Overlay) {
            self.removed.opaque.insert(new);
        }
        self.builder.relink(parent, name, new);
    }

    /// The node of a name: one that is there; for hard links at the end of a layer, also one that
    /// the layer has taken away. The mark that is left of one is none.
    pub(super) fn lookup(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let is_file = |node: &NodeId| !self.removed.marks.contains(node);
        let found = self.builder.lookup(dir, name).filter(is_file);
        if found.is_some() || !self.removed.is_found {
            return found;
        }
        if let Some(&node) = self.removed.names.get(&(dir, Box::from(name))) {
            return Some(node);
        }
        let before = *self.removed.emptied.get(&dir)?;
        self.builder.lookup(before, name).filter(is_file)
    }

    /// Writes down which directories are opaque.
    pub(super) fn mark_opaque(&mut self) -> SourceResult<()> {
        for node in std::mem::take(&mut self.removed.opaque) {
            let xattr = Xattr {
                name: Box::from(&b"trusted.overlay.opaque"[..]),
                value: b"y"[..].into(),
            };
            self.builder.set_xattr(node, xattr)?;
        }
        Ok(())
    }
}
