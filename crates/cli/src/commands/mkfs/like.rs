//! An older image that a new one shall be like.

use crate::args::Whereabouts;
use crate::failure::Outcome;
use crate::image_path::{ImagePath, how, shown, whole_image};
use extant::Filesystem;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::{Error, Result as EngineResult, ops};
use extant_format::geometry::Geometry;
use extant_format::superblock::{SUPERBLOCK_LEN, Superblock};
use extant_format::{BlockSize, Ino};
use extant_mkfs::source::{FileType, NodeId, Tree};
use extant_mkfs::{Former, FormerRun};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bytes of a table of descriptors whose copies are kept: those of 8 TiB.
const COPY_MAX: u64 = 4 << 20;
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Bytes of a symbolic link that lies in its inode.
const SHORT_LINK: u64 = 59;

/// The older image, open.
#[derive(Debug)]
pub(super) struct Like {
    place: ImagePath,
    fs: Filesystem,
}

impl Like {
    /// Opens the image that is named.
    pub(super) fn open(text: &OsStr) -> Outcome<Self> {
        let place = ImagePath::root_of(whole_image(text)?);
        let fs = place.open(&Whereabouts::default())?;
        Ok(Self { place, fs })
    }

    pub(super) fn superblock(&self) -> &Superblock {
        self.fs.engine().superblock()
    }

    /// Bytes of the file system.
    pub(super) fn size(&self) -> u64 {
        let superblock = self.superblock();
        superblock.blocks_count() << superblock.block_size().log2()
    }

    pub(super) fn hash_seed(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(self.superblock().hash_seed()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What it has of a tree that goes into blocks of this size. An error is a sentence.
    pub(super) fn former(&self, tree: &Tree, block_size: BlockSize) -> Result<Former, String> {
        let engine = self.fs.engine();
        let mut search = Search {
            fs: engine,
            tree,
            has_blocks: engine.block_size() == block_size,
            former: Former::new(),
            seen: vec![false; tree.len()],
            matched: HashSet::new(),
            gone: Vec::new(),
        };
        let found = search.run();
        found.map_err(|e| {
            let image = shown(&self.place.image);
            format!("{image} cannot be read to be like it: {e}; extant check says more about it")
        })?;
        let mut former = search.former;
        if engine.block_size() == block_size {
            self.copies(&mut former);
        }
        Ok(former)
    }

    /// Notes the copies of superblock and descriptors. What cannot be read is made anew.
    fn copies(&self, former: &mut Former) {
        let image = &self.place.image;
        let Ok(device) = image.open(&how(&Whereabouts::default(), image, false)) else {
            return;
        };
        let geometry = Geometry::new(self.superblock());
        let log2 = geometry.block_size().log2();
        for group in geometry
            .groups()
            .skip(1)
            .filter(|group| geometry.has_super(*group))
        {
            let Ok(header) = geometry.group_header(group) else {
                return;
            };
            let len = (header.descs.end - header.descs.start) << log2;
            let (Some(block), true) = (header.super_block, len <= COPY_MAX) else {
                return;
            };
            let mut superblock = vec![0; SUPERBLOCK_LEN];
            let mut descriptors = vec![0; len as usize];
            let read = device
                .read_at(block.get() << log2, &mut superblock)
                .and_then(|()| device.read_at(header.descs.start << log2, &mut descriptors));
            if read.is_ok() {
                former.copies(group.get(), superblock, &descriptors);
            }
        }
    }
}

/// Looks for the files of a tree in an image, by their names.
struct Search<'a> {
    fs: &'a Fs,
    tree: &'a Tree,
    has_blocks: bool,
    former: Former,
    /// Nodes that were found by one of their names.
    seen: Vec<bool>,
    /// Inodes that nodes were found for.
    matched: HashSet<Ino>,
    /// Inodes with names that the tree has not.
    gone: Vec<Ino>,
}

impl Search<'_> {
    fn run(&mut self) -> EngineResult<()> {
        let root = self.fs.inode(Ino::ROOT)?;
        self.found(NodeId::ROOT, &root)?;
        let mut waiting = vec![(NodeId::ROOT, root)];
        while let Some((dir, old)) = waiting.pop() {
            for (name, node) in self.tree.children(dir) {
                if self.seen.get(node.index()).copied().unwrap_or(true) {
                    continue;
                }
                let inode: Arc<Inode> = match ops::lookup(self.fs, &old, name) {
                    Ok(inode) => inode,
                    Err(Error::NotFound | Error::Encrypted) => continue,
                    Err(e) => return Err(e),
                };
                if inode.file_type() != self.tree.node(node).kind() {
                    continue;
                }
                self.found(node, &inode)?;
                if inode.is_dir() {
                    waiting.push((node, inode));
                }
            }
            self.names(dir, &old)?;
        }
        self.note_gone()
    }

    /// Notes how many names a directory has, and which of them are gone.
    fn names(&mut self, dir: NodeId, old: &Inode) -> EngineResult<()> {
        let mut count = 0;
        let mut lost_found = None;
        for (name, ino) in entries(self.fs, old)? {
            if self.tree.child(dir, &name).is_some() {
                count += 1;
            } else if dir == NodeId::ROOT && name == LOST_AND_FOUND {
                // An image gets its own.
                lost_found = Some(ino);
            } else {
                count += 1;
                self.gone.push(ino);
            }
        }
        self.former.names(dir, count);
        if let Some(ino) = lost_found.filter(|_| self.has_blocks) {
            let runs = self.runs_of(&*self.fs.inode(ino)?)?;
            self.former.lost_found(runs);
        }
        Ok(())
    }

    /// Notes what is gone, and which of it may be a new file under another name: one of the same
    /// size.
    fn note_gone(&mut self) -> EngineResult<()> {
        let mut sizes: BTreeMap<u64, VecDeque<Arc<Inode>>> = BTreeMap::new();
        let mut known = std::mem::take(&mut self.matched);
        let mut waiting = std::mem::take(&mut self.gone);
        waiting.reverse();
        while let Some(ino) = waiting.pop() {
            if !known.insert(ino) {
                continue;
            }
            let inode = self.fs.inode(ino)?;
            for run in self
                .runs_of(&inode)?
                .into_iter()
                .filter(|_| self.has_blocks)
            {
                self.former.gone(run.pblk..run.pblk + u64::from(run.len));
            }
            if inode.is_dir() {
                waiting.extend(entries(self.fs, &inode)?.into_iter().map(|(_, ino)| ino));
            } else if inode.file_type() == FileType::Regular && inode.size() > 0 {
                sizes.entry(inode.size()).or_default().push_back(inode);
            }
        }
        for id in self.tree.ids() {
            let is_new = !self.seen.get(id.index()).copied().unwrap_or(true);
            if is_new && self.tree.kind(id) == FileType::Regular {
                let alike = sizes.get_mut(&self.tree.node(id).size);
                if let Some(inode) = alike.and_then(VecDeque::pop_front) {
                    self.found(id, &inode)?;
                }
            }
        }
        Ok(())
    }

    /// Notes what the inode of a node has.
    fn found(&mut self, node: NodeId, inode: &Inode) -> EngineResult<()> {
        if let Some(seen) = self.seen.get_mut(node.index()) {
            *seen = true;
        }
        self.former.number(node, inode.ino().get());
        self.matched.insert(inode.ino());
        if !self.has_blocks {
            return Ok(());
        }
        let attrs = inode.disk().file_acl.get();
        if attrs != 0 {
            self.former.attr_block(node, attrs);
        }
        let runs = self.runs_of(inode)?;
        self.former.blocks(node, runs);
        Ok(())
    }

    /// The blocks of an inode that may have some.
    fn runs_of(&self, inode: &Inode) -> EngineResult<Vec<FormerRun>> {
        let mut runs = Vec::new();
        let has_blocks = match inode.file_type() {
            FileType::Regular | FileType::Directory => true,
            FileType::Symlink => inode.size() > SHORT_LINK,
            _ => false,
        };
        if !has_blocks {
            return Ok(runs);
        }
        let size = self.fs.block_size();
        for piece in ops::allocated(self.fs, inode) {
            let piece = piece?;
            let (Some(at), false) = (piece.device_offset, piece.unwritten) else {
                continue;
            };
            let block = |bytes: u64| u32::try_from(bytes >> size.log2()).ok();
            let len = u32::try_from(size.blocks_for(piece.len)).ok();
            let (Some(lblk), Some(len)) = (block(piece.offset), len) else {
                return Ok(Vec::new());
            };
            runs.push(FormerRun {
                lblk,
                len,
                pblk: at >> size.log2(),
            });
        }
        Ok(runs)
    }
}

/// The names in a directory but `.` and `..`, and what they stand for.
fn entries(fs: &Fs, dir: &Inode) -> EngineResult<Vec<(Vec<u8>, Ino)>> {
    let mut found = Vec::new();
    let listed = ops::readdir(fs, dir, ops::Cookie::START, |entry| {
        if entry.name != b"." && entry.name != b".." {
            found.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::<()>::Continue(())
    });
    match listed {
        // Names without their key are unknown.
        Ok(_) | Err(Error::Encrypted) => Ok(found),
        Err(e) => Err(e),
    }
}
