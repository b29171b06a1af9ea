//! An older image that a new one shall be like.

use crate::args::Whereabouts;
use crate::failure::Outcome;
use crate::image_path::{ImagePath, shown, whole_image};
use extant::Filesystem;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::{Error, Result as EngineResult, ops};
use extant_format::superblock::Superblock;
use extant_format::{BlockSize, Ino};
use extant_mkfs::source::{FileType, NodeId, Tree};
use extant_mkfs::{Former, FormerRun};
use std::ffi::OsStr;
use std::sync::Arc;

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
        };
        let found = search.run();
        found.map_err(|e| {
            let image = shown(&self.place.image);
            format!("{image} cannot be read to be like it: {e}; extant check says more about it")
        })?;
        Ok(search.former)
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
        }
        Ok(())
    }

    /// Notes what the inode of a node has.
    fn found(&mut self, node: NodeId, inode: &Inode) -> EngineResult<()> {
        if let Some(seen) = self.seen.get_mut(node.index()) {
            *seen = true;
        }
        self.former.number(node, inode.ino().get());
        let has_blocks = matches!(inode.file_type(), FileType::Regular | FileType::Directory);
        if !self.has_blocks || !has_blocks {
            return Ok(());
        }
        let size = self.fs.block_size();
        let mut runs = Vec::new();
        for piece in ops::allocated(self.fs, inode) {
            let piece = piece?;
            let (Some(at), false) = (piece.device_offset, piece.unwritten) else {
                continue;
            };
            let block = |bytes: u64| u32::try_from(bytes >> size.log2()).ok();
            let len = u32::try_from(size.blocks_for(piece.len)).ok();
            let (Some(lblk), Some(len)) = (block(piece.offset), len) else {
                return Ok(());
            };
            runs.push(FormerRun {
                lblk,
                len,
                pblk: at >> size.log2(),
            });
        }
        self.former.blocks(node, runs);
        Ok(())
    }
}
