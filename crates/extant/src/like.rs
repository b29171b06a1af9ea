//! An older image that a new one shall be like (feature `mkfs`).

use crate::{Error, Filesystem, MountOptions, Result};
use extant_blockdev::SharedDevice;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::{Error as EngineError, Result as EngineResult, ops};
use extant_format::geometry::Geometry;
use extant_format::superblock::{SUPERBLOCK_LEN, Superblock};
use extant_format::{BlockSize, Ino};
use extant_image::{How, ImageLocation};
use extant_mkfs::defaults::InodeDensity;
use extant_mkfs::source::{FileType, NodeId, Tree};
use extant_mkfs::{FormatOptions, Former, FormerRun};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of a table of descriptors whose copies are kept: those of 8 TiB.
const COPY_MAX: u64 = 4 << 20;
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Bytes of a symbolic link that lies in its inode.
const SHORT_LINK: u64 = 59;

/// An older image, whose files keep their numbers and blocks in a new one where they can: so that
/// what has not changed differs in as few bytes as can be.
///
/// ```no_run
/// use extant::Like;
/// use extant::image::{How, ImageLocation};
/// use extant::mkfs::source::{SourceOptions, read_source};
/// use extant::mkfs::{BuildOptions, FormatOptions, Silent, Size, build};
/// use std::path::Path;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let old = Like::open(&ImageLocation::parse("old.img")?, &How::reading())?;
/// let tree = read_source(Path::new("rootfs"), SourceOptions::default())?;
/// let mut format = FormatOptions::new(old.size(), 1_700_000_000);
/// old.liken(&mut format);
/// let mut options = BuildOptions::new(format, Size::Bytes(old.size()));
/// options.like = Some(Arc::new(old.former(&tree, old.block_size())?));
/// build(Some(&tree), Path::new("new.img"), None, &options, &Silent)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Like {
    fs: Filesystem,
    device: SharedDevice,
}

impl Like {
    /// Opens the image at a location, for reading.
    ///
    /// # Errors
    /// As for [`Filesystem::open`].
    pub fn open(location: &ImageLocation, how: &How) -> Result<Self> {
        let device = location.open(how).map_err(EngineError::from);
        let device = device.map_err(|e| Error::engine(PathBuf::new(), e))?;
        Self::on(device)
    }

    /// Opens the image on a device, for reading.
    ///
    /// # Errors
    /// As for [`Filesystem::open_device`].
    pub fn on(device: SharedDevice) -> Result<Self> {
        let fs = Filesystem::open_device(Arc::clone(&device), MountOptions::read_only())?;
        Ok(Self { fs, device })
    }

    fn superblock(&self) -> &Superblock {
        self.fs.fs().superblock()
    }

    /// Returns the bytes of the file system.
    #[must_use]
    pub fn size(&self) -> u64 {
        let superblock = self.superblock();
        superblock.blocks_count() << superblock.block_size().log2()
    }

    /// Returns the block size.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.superblock().block_size()
    }

    /// Returns what the hash of names begins with.
    #[must_use]
    pub fn hash_seed(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(self.superblock().hash_seed()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Takes from the older image how a file system is made: sizes of blocks and of inodes, how
    /// many of these there are, identity and label.
    pub fn liken(&self, format: &mut FormatOptions) {
        let old = self.superblock();
        format.block_size = Some(old.block_size());
        format.inode_size = old.inode_size();
        format.uuid = old.uuid();
        format.hash_seed = self.hash_seed();
        format.inodes = InodeDensity::Count(old.inodes_count());
        format.label = old.label().to_vec();
    }

    /// Returns what the older image has of a tree that goes into blocks of this size.
    ///
    /// # Errors
    /// When it is damaged or cannot be read.
    pub fn former(&self, tree: &Tree, block_size: BlockSize) -> Result<Former> {
        let engine = self.fs.fs();
        let mut search = Search {
            fs: engine,
            tree,
            has_blocks: engine.block_size() == block_size,
            former: Former::new(),
            seen: vec![false; tree.len()],
            matched: HashSet::new(),
            gone: Vec::new(),
        };
        search
            .run()
            .map_err(|e| Error::engine(self.device.name(), e))?;
        let mut former = search.former;
        if engine.block_size() == block_size {
            self.copies(&mut former);
        }
        Ok(former)
    }

    /// Notes the copies of superblock and descriptors. What cannot be read is made anew.
    fn copies(&self, former: &mut Former) {
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
            let read = self
                .device
                .read_at(block.get() << log2, &mut superblock)
                .and_then(|()| {
                    let at = header.descs.start << log2;
                    self.device.read_at(at, &mut descriptors)
                });
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
                    Err(EngineError::NotFound | EngineError::Encrypted) => continue,
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
        Ok(_) | Err(EngineError::Encrypted) => Ok(found),
        Err(e) => Err(e),
    }
}
