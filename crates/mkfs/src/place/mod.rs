//! Where everything of a source goes: inode numbers, blocks, maps and attributes.
//!
//! | module | owns |
//! |---|---|
//! | `numbering` | inode numbers |
//! | `space` | the free space of a formatted image, handed out from the front |
//! | `apart` | metadata first, and data in regions behind it |
//! | `regions` | where data begins anew, so that most of it stays where it is in the next build |
//! | `former` | what an older image has in its place |
//! | `changed` | which chunks change anyway, beside an older image |
//! | `dirs` | how many blocks a directory needs, and their bytes |
//! | `kept` | places and pieces in few bytes |
//! | `usage` | what owners use, for quota files |
//! | `attrs` | extended attributes: in the inode, in shared blocks, in inodes of their own |
//! | [`error`] | [`PlaceError`] |
//!
//! # Order
//!
//! Inodes are numbered in the tree's canonical order, so the inodes of one directory are
//! neighbours in the table; data follows in the same order, so a walk of the image reads it front
//! to back. A placement depends on the tree and the file system's shape only: not on threads, not
//! on the order in which the source was read, and it reads no file content.
//!
//! With room for it, directories and other metadata come first and data behind them, both with gaps
//! that keep a small change of the source a small change of the image (`numbering`, `regions`).

mod apart;
mod attrs;
mod changed;
mod dirs;
pub mod error;
mod former;
mod kept;
mod numbering;
mod regions;
mod space;
mod usage;

pub use error::{PlaceError, PlaceResult};
pub use former::{Former, FormerRun};

pub(crate) use crate::maps::{FileMap, MapKind, Maps, Run};
use crate::source::{FileType, NodeId, Tree};
use crate::verity::Seals;
use attrs::AttrPlans;
pub(crate) use attrs::{AttrInode, NodeAttrs};
use changed::Changed;
pub(crate) use changed::Groups;
pub(crate) use dirs::{DirRules, Listing};
use extant_format::checksum::Crc32c;
use extant_format::{BlockSize, Ino};
use former::Kept;
pub(crate) use kept::InOrder;
use kept::{About, Pieces, Places, Where};
pub(crate) use numbering::Numbering;
use regions::Chunk;
use space::{Space, Use};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most names of a file, and most links of a directory that are counted.
pub const LINK_MAX: u32 = 65_000;
/// The longest symbolic link that lives in its inode.
pub(crate) const FAST_SYMLINK_MAX: usize = 59;
/// The directory for what a check finds without a name.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The shape of the file system that is filled.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) block_size: BlockSize,
    /// Blocks in an allocation unit, as a power of two.
    pub(crate) cluster_bits: u32,
    /// Block 0 of cluster 0.
    pub(crate) first_data_block: u64,
    pub(crate) inode_size: u16,
    pub(crate) extra_isize: u16,
    pub(crate) inodes_count: u32,
    pub(crate) lost_found_ino: Ino,
    /// The number of the first node that is neither the root nor `lost+found`.
    pub(crate) first_ino: u32,
    pub(crate) map_kind: MapKind,
    pub(crate) dirs: DirRules,
    /// Directories with too many subdirectories to count may say so.
    pub(crate) dir_nlink: bool,
    /// Bytes of the largest file.
    pub(crate) file_size_max: u64,
    pub(crate) ea_inode: bool,
    /// The checksum seed, where metadata has checksums.
    pub(crate) seed: Option<Crc32c>,
    /// The seed of attribute values' hashes, which are there without other checksums too.
    pub(crate) value_seed: Crc32c,
    /// Blocks of `lost+found`.
    pub(crate) lost_found_blocks: u32,
    /// Free clusters after all fixed metadata, ascending.
    pub(crate) free: Vec<Range<u64>>,
    /// Files that get trees of fs-verity.
    pub(crate) seals: Option<Seals>,
}

impl Shape {
    /// The seed of an inode's own blocks. Generations are 0: a builder's image is the first life
    /// of every inode.
    pub(crate) fn inode_seed(&self, ino: Ino) -> Option<Crc32c> {
        self.seed
            .map(|seed| seed.update_u32(ino.get()).update_u32(0))
    }

    /// The logical blocks of a file's hash tree, if it gets one.
    fn seal_of(&self, tree: &Tree, id: NodeId) -> Option<Range<u64>> {
        let seals = self.seals.as_ref().filter(|seals| seals.contains(id))?;
        Some(seals.blocks(tree.node(id).size))
    }

    fn cluster_blocks(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// The first block of a cluster.
    pub(crate) fn cluster_start(&self, cluster: u64) -> u64 {
        self.first_data_block + (cluster << self.cluster_bits)
    }
}

/// One inode with its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Blocks of data and of the map above them.
    pub(crate) map: FileMap,
    /// Blocks charged, attributes included.
    pub(crate) charged: u64,
    /// Blocks of a directory.
    pub(crate) dir_blocks: u32,
    /// A directory with an index.
    pub(crate) indexed: bool,
    /// Extended attributes.
    pub(crate) attrs: NodeAttrs,
}

/// What a run of blocks holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Data of a regular file from a logical block on.
    File { node: NodeId, lblk: u32 },
    /// The tree and the descriptor of fs-verity of a file, from a logical block on. They are
    /// written when all of the file was hashed.
    Seal { node: NodeId, lblk: u32 },
    /// Blocks of a directory from a logical block on.
    Directory { ino: Ino, lblk: u32 },
    /// A long symbolic link.
    Symlink { node: NodeId },
    /// A block of a map.
    Tree { ino: Ino, index: u32 },
    /// A block of extended attributes.
    AttrBlock { index: u32 },
    /// Part of an attribute's value, in the inode with this index.
    AttrValue { index: u32, lblk: u32 },
}

/// Blocks to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) pblk: u64,
    pub(crate) blocks: u32,
    pub(crate) content: Content,
}

/// The plan of a filled image.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) shape: Shape,
    pub(crate) numbering: Numbering,
    pub(crate) maps: Maps,
    /// A row for each node of the tree.
    nodes: Places,
    /// `lost+found`, where the source has none.
    pub(crate) lost_found: Option<Placed>,
    pub(crate) attrs: AttrPlans,
    /// In ascending order on the device.
    pieces: Pieces,
    pub(crate) space: Space,
}

impl Placement {
    /// Places a tree in one dense row.
    ///
    /// # Errors
    /// [`PlaceError`]: no space, too few inodes, or something ext4 cannot hold.
    pub(crate) fn dense(tree: &Tree, shape: Shape) -> PlaceResult<Self> {
        let numbering = Numbering::dense(tree, &shape);
        Self::with(tree, shape, numbering, &Way::Dense)
    }

    /// Places a tree with gaps, as large as there is room for; without room in one dense row.
    ///
    /// # Errors
    /// Those of [`dense`](Self::dense).
    pub(crate) fn steady(tree: &Tree, shape: Shape) -> PlaceResult<Self> {
        for chunk in regions::chunks(tree, &shape) {
            let values = AttrPlans::new(tree, &shape, 0)?.inodes().len() as u64;
            let numbering = Numbering::apart(tree, &shape, values);
            let numbering = numbering.unwrap_or_else(|| Numbering::dense(tree, &shape));
            match Self::with(tree, shape.clone(), numbering, &Way::Apart(chunk)) {
                Err(PlaceError::NoSpace { .. }) => {}
                other => return other,
            }
        }
        Self::dense(tree, shape)
    }

    /// Places a tree so that what an older image has of it stays where it is. Where the space that
    /// is left between does not suffice, numbers alone stay, and without room for those nothing.
    ///
    /// # Errors
    /// Those of [`dense`](Self::dense).
    pub(crate) fn like(
        tree: &Tree,
        shape: Shape,
        former: &Former,
        groups: &Groups,
    ) -> PlaceResult<Self> {
        let values = AttrPlans::new(tree, &shape, 0)?.inodes().len() as u64;
        let first = Changed::new(groups).inodes();
        for way in [Way::Like(former, groups), Way::Dense] {
            let numbering = Numbering::kept(tree, &shape, |id| former.ino(id), &first, values);
            let numbering = numbering.unwrap_or_else(|| Numbering::dense(tree, &shape));
            match Self::with(tree, shape.clone(), numbering, &way) {
                Err(PlaceError::NoSpace { .. }) => {}
                other => return other,
            }
        }
        Self::dense(tree, shape)
    }

    fn with(tree: &Tree, shape: Shape, numbering: Numbering, way: &Way<'_>) -> PlaceResult<Self> {
        check_lost_and_found(tree)?;
        let attrs = AttrPlans::new(tree, &shape, numbering.end())?;
        let needed = numbering.end() - 1 + attrs.inodes().len() as u64;
        if needed > u64::from(shape.inodes_count) {
            return Err(PlaceError::NoInodes {
                needed,
                available: shape.inodes_count.into(),
            });
        }
        let space = Space::dense(shape.free.clone());
        let mut placer = Placer {
            tree,
            kept: Vec::new(),
            kept_lost_found: None,
            attr_blocks: BTreeMap::new(),
            plan: Self {
                maps: Maps::new(shape.map_kind, shape.block_size),
                nodes: Places::with_capacity(tree.len()),
                lost_found: None,
                attrs,
                pieces: Pieces::default(),
                numbering,
                space,
                shape,
            },
        };
        match way {
            Way::Dense => placer.place_all()?,
            Way::Apart(chunk) => placer.place_apart(*chunk)?,
            Way::Like(former, groups) => placer.place_like(former, groups)?,
        }
        placer.place_attr_values()?;
        let mut plan = placer.plan;
        // Map blocks are taken after the data they map, attribute blocks after both: already in
        // order, except where a run was cut and its tail went on elsewhere.
        plan.pieces.sort(Where {
            maps: &plan.maps,
            attrs: &plan.attrs,
        });
        Ok(plan)
    }

    /// The number of the last inode in use.
    pub(crate) fn last_ino(&self) -> u32 {
        (self.numbering.end() - 1) as u32 + self.attrs.inodes().len() as u32
    }

    /// The numbers of all inodes but the root's and that of `lost+found`, in runs.
    pub(crate) fn ino_runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let values = self.numbering.end() as u32..self.last_ino() + 1;
        self.numbering.runs().chain(std::iter::once(values))
    }

    /// Bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        let blocks: u64 = self.pieces().map(|piece| u64::from(piece.blocks)).sum();
        blocks << self.shape.block_size.log2()
    }

    /// Where a node of the tree is.
    pub(crate) fn placed(&self, tree: &Tree, id: NodeId) -> Placed {
        let about = about(tree, id, &self.attrs, &self.shape);
        self.nodes.get(id, about, &self.maps)
    }

    /// All pieces, in ascending order on the device.
    pub(crate) fn pieces(&self) -> InOrder<'_> {
        self.pieces_after(0)
    }

    /// The pieces that end after a block.
    pub(crate) fn pieces_after(&self, block: u64) -> InOrder<'_> {
        self.pieces.after(
            block,
            Where {
                maps: &self.maps,
                attrs: &self.attrs,
            },
        )
    }

    /// Everything a directory holds, `lost+found` included where the root lacks one.
    pub(crate) fn listing<'t>(&'t self, tree: &'t Tree, id: NodeId) -> Listing<'t> {
        listing(tree, &self.numbering, id)
    }

    /// The empty `lost+found`.
    pub(crate) fn lost_found_listing<'t>(&'t self, tree: &'t Tree) -> Listing<'t> {
        Listing {
            ino: self.shape.lost_found_ino,
            parent: Ino::ROOT,
            tree,
            numbering: &self.numbering,
            entries: &[],
            made: None,
        }
    }
}

fn about(tree: &Tree, id: NodeId, attrs: &AttrPlans, shape: &Shape) -> About {
    About {
        is_dir: tree.kind(id) == FileType::Directory,
        attrs: attrs.of(tree.xattr_set(id)),
        cluster_bits: shape.cluster_bits,
    }
}

/// A checker would offer to delete a file of that name.
fn check_lost_and_found(tree: &Tree) -> PlaceResult<()> {
    match tree.child(NodeId::ROOT, LOST_AND_FOUND) {
        Some(id) if !tree.node(id).is_dir() => Err(PlaceError::LostAndFound {
            path: tree.path(id),
        }),
        _ => Ok(()),
    }
}

fn listing<'t>(tree: &'t Tree, numbering: &'t Numbering, id: NodeId) -> Listing<'t> {
    let entries = tree.entries(id);
    let made = (id == NodeId::ROOT && numbering.lost_found().is_none())
        .then(|| entries.partition_point(|entry| tree.name(entry) < LOST_AND_FOUND));
    Listing {
        ino: numbering.ino(id),
        parent: numbering.ino(tree.node(id).parent()),
        tree,
        numbering,
        entries,
        made,
    }
}

/// How a tree is placed.
enum Way<'a> {
    /// In one row.
    Dense,
    /// Data in regions that begin with such chunks.
    Apart(Chunk),
    /// Around what an older image has in its place.
    Like(&'a Former, &'a Groups),
}

struct Placer<'t> {
    tree: &'t Tree,
    plan: Placement,
    /// Blocks that nodes have in an older image and keep.
    kept: Vec<Option<Box<Kept>>>,
    /// Those of a `lost+found` that the tree has not.
    kept_lost_found: Option<Box<Kept>>,
    /// Which block of attributes nodes have, where that is known before they are placed.
    attr_blocks: BTreeMap<NodeId, u32>,
}

impl Placer<'_> {
    fn place_all(&mut self) -> PlaceResult<()> {
        for id in self.tree.ids() {
            let placed = self.place(id)?;
            self.note(id, &placed);
            self.place_lost_found(id)?;
        }
        Ok(())
    }

    /// Keeps where the next node is.
    fn note(&mut self, id: NodeId, placed: &Placed) {
        let plan = &mut self.plan;
        let about = about(self.tree, id, &plan.attrs, &plan.shape);
        plan.nodes.push(placed, about, &plan.maps);
    }

    /// Places `lost+found` behind the root, where the source has none.
    fn place_lost_found(&mut self, behind: NodeId) -> PlaceResult<()> {
        if behind == NodeId::ROOT && self.plan.numbering.lost_found().is_none() {
            let ino = self.plan.shape.lost_found_ino;
            let blocks = self.plan.shape.lost_found_blocks;
            let kept = self.kept_lost_found.take();
            self.plan.lost_found = Some(self.place_directory(ino, blocks, false, kept)?);
        }
        Ok(())
    }

    /// Blocks of a directory, and whether it has an index.
    fn directory_shape(&self, id: NodeId) -> PlaceResult<(u32, bool)> {
        let numbering = &self.plan.numbering;
        let shape = self
            .plan
            .shape
            .dirs
            .shape(&listing(self.tree, numbering, id))?;
        let blocks = match numbering.lost_found() {
            // An index leads to every block, so an indexed one has no reserve.
            Some(found) if found == id && !shape.indexed => {
                shape.blocks.max(self.plan.shape.lost_found_blocks)
            }
            _ => shape.blocks,
        };
        Ok((blocks, shape.indexed))
    }

    fn place(&mut self, id: NodeId) -> PlaceResult<Placed> {
        let node = self.tree.node(id);
        self.check_limits(id)?;
        let ino = self.plan.numbering.ino(id);
        let placed = match node.kind() {
            FileType::Directory => {
                let (blocks, indexed) = self.directory_shape(id)?;
                let kept = self.take_kept(id);
                self.place_directory(ino, blocks, indexed, kept)?
            }
            FileType::Regular => self.place_file(id, ino)?,
            FileType::Symlink => self.place_symlink(id, ino)?,
            _ => Placed::default(),
        };
        self.with_attrs(id, placed)
    }

    /// Adds the attributes of a node.
    fn with_attrs(&mut self, id: NodeId, mut placed: Placed) -> PlaceResult<Placed> {
        placed.attrs = self.plan.attrs.of(self.tree.xattr_set(id));
        placed.charged += self.value_blocks(self.tree.xattr_set(id));
        let index = match self.attr_blocks.get(&id) {
            Some(index) => Some(*index),
            None => self.plan.attrs.block_for(self.tree.xattr_set(id)),
        };
        if let Some(index) = index {
            let pblk = match self.plan.attrs.block_address(index) {
                Some(pblk) => pblk,
                None => {
                    let pblk = self.take_block()?;
                    self.plan.attrs.put_block(index, pblk);
                    self.plan.pieces.push_attr_block(index);
                    pblk
                }
            };
            placed.attrs.block = pblk;
            placed.charged += self.plan.shape.cluster_blocks();
        }
        Ok(placed)
    }

    fn take_kept(&mut self, id: NodeId) -> Option<Box<Kept>> {
        self.kept.get_mut(id.index())?.take()
    }

    /// Blocks charged for the values in inodes of their own: to each inode that has them, as if it
    /// did not share.
    fn value_blocks(&self, set: u32) -> u64 {
        let shape = &self.plan.shape;
        self.plan
            .attrs
            .own_values(set)
            .map(|len| shape.block_size.blocks_for(len))
            .map(|blocks| blocks.next_multiple_of(shape.cluster_blocks()))
            .sum()
    }

    /// Refuses what no inode can say: sizes and link counts beyond the format.
    fn check_limits(&self, id: NodeId) -> PlaceResult<()> {
        let node = self.tree.node(id);
        if !node.is_dir() {
            if node.kind() == FileType::Regular && node.size > self.plan.shape.file_size_max {
                return Err(PlaceError::FileTooLarge {
                    path: self.tree.path(id),
                    found: node.size,
                    limit: self.plan.shape.file_size_max,
                    indirect: self.plan.shape.map_kind == MapKind::Indirect,
                });
            }
            if node.nlink > LINK_MAX {
                let path = self.tree.path(id);
                return Err(PlaceError::TooManyLinks {
                    path,
                    found: node.nlink,
                    limit: LINK_MAX,
                });
            }
            return Ok(());
        }
        let made = id == NodeId::ROOT && self.plan.numbering.lost_found().is_none();
        let found = node.nlink + u32::from(made);
        if found > LINK_MAX && !self.plan.shape.dir_nlink {
            return Err(PlaceError::TooManySubdirectories {
                path: self.tree.path(id),
                found,
                limit: LINK_MAX,
            });
        }
        Ok(())
    }

    fn place_directory(
        &mut self,
        ino: Ino,
        blocks: u32,
        indexed: bool,
        kept: Option<Box<Kept>>,
    ) -> PlaceResult<Placed> {
        let content = |lblk| Content::Directory { ino, lblk };
        let (map, charged) = match kept {
            Some(kept) => self.place_kept(ino, *kept, u64::MAX, content)?,
            None => self.place_runs(ino, std::iter::once(0..u64::from(blocks)), content)?,
        };
        Ok(Placed {
            map,
            charged,
            dir_blocks: blocks,
            indexed,
            ..Placed::default()
        })
    }

    fn place_file(&mut self, id: NodeId, ino: Ino) -> PlaceResult<Placed> {
        let seal = self.plan.shape.seal_of(self.tree, id);
        let border = seal.as_ref().map_or(u64::MAX, |seal| seal.start);
        let content = |lblk| {
            if u64::from(lblk) < border {
                Content::File { node: id, lblk }
            } else {
                Content::Seal { node: id, lblk }
            }
        };
        let (map, charged) = match self.take_kept(id) {
            Some(kept) => self.place_kept(ino, *kept, border, content)?,
            None => {
                let log2 = self.plan.shape.block_size.log2();
                let ranges = logical_blocks(self.tree, id, log2).chain(seal);
                self.place_runs_apart(ino, ranges, border, content)?
            }
        };
        Ok(Placed {
            map,
            charged,
            ..Placed::default()
        })
    }

    fn place_symlink(&mut self, id: NodeId, ino: Ino) -> PlaceResult<Placed> {
        let len = self.tree.symlink_target(id).unwrap_or_default().len();
        if len <= FAST_SYMLINK_MAX {
            return Ok(Placed::default());
        }
        // One byte of the block is kept for the terminator that Linux expects.
        let limit = self.plan.shape.block_size.len().min(4096) - 1;
        if len > limit {
            return Err(PlaceError::SymlinkTooLong {
                path: self.tree.path(id),
                found: len as u64,
                limit: limit as u64,
            });
        }
        let content = |_| Content::Symlink { node: id };
        let (map, charged) = match self.take_kept(id) {
            Some(kept) => self.place_kept(ino, *kept, u64::MAX, content)?,
            None => self.place_runs(ino, std::iter::once(0..1), content)?,
        };
        Ok(Placed {
            map,
            charged,
            ..Placed::default()
        })
    }

    fn place_attr_values(&mut self) -> PlaceResult<()> {
        for index in 0..self.plan.attrs.inodes().len() as u32 {
            let inode = &self.plan.attrs.inodes()[index as usize];
            let (ino, bytes) = (inode.ino, inode.len);
            let blocks = self.plan.shape.block_size.blocks_for(bytes);
            let (map, charged) = self.place_runs(ino, std::iter::once(0..blocks), |lblk| {
                Content::AttrValue { index, lblk }
            })?;
            self.plan.attrs.put_inode(index, map, charged);
        }
        Ok(())
    }

    /// Takes one block for metadata: with `bigalloc` a cluster of its own.
    fn take_block(&mut self) -> PlaceResult<u64> {
        let cluster = self.plan.space.take(1, Use::Metadata)?.start;
        Ok(self.plan.shape.cluster_start(cluster))
    }

    /// Takes space for ranges of logical blocks, ascending and apart, and maps them. Returns the
    /// map and the blocks charged.
    fn place_runs(
        &mut self,
        ino: Ino,
        ranges: impl Iterator<Item = Range<u64>>,
        content: impl Fn(u32) -> Content,
    ) -> PlaceResult<(FileMap, u64)> {
        self.place_runs_apart(ino, ranges, u64::MAX, content)
    }

    /// As [`place_runs`](Self::place_runs); no run begins before the logical block `border` and
    /// ends behind it.
    fn place_runs_apart(
        &mut self,
        ino: Ino,
        ranges: impl Iterator<Item = Range<u64>>,
        border: u64,
        content: impl Fn(u32) -> Content,
    ) -> PlaceResult<(FileMap, u64)> {
        let what = use_of(content(0));
        let mut taken = Taken {
            border,
            ..Taken::default()
        };
        for range in ranges {
            if range.end >= 1 << 32 {
                return Err(PlaceError::Unmappable {
                    block: range.end - 1,
                    reach: (1 << 32) - 1,
                });
            }
            self.take_range(range, what, &mut taken)?;
        }
        self.map_runs(ino, &taken.runs, taken.clusters, content)
    }

    fn map_runs(
        &mut self,
        ino: Ino,
        runs: &[Run],
        clusters: u64,
        content: impl Fn(u32) -> Content,
    ) -> PlaceResult<(FileMap, u64)> {
        let plan = &mut self.plan;
        let (shape, space) = (&plan.shape, &mut plan.space);
        let map = plan.maps.add(runs, || {
            space
                .take(1, Use::Metadata)
                .map(|cluster| shape.cluster_start(cluster.start))
        })?;
        for number in plan.maps.run_numbers(map) {
            let lblk = plan.maps.run(number).lblk;
            plan.pieces.push_run(number, content(lblk));
        }
        let mut clusters = clusters;
        for (index, _) in plan.maps.tree_blocks(map) {
            plan.pieces.push_tree(index, ino);
            clusters += 1;
        }
        Ok((map, clusters << plan.shape.cluster_bits))
    }

    fn take_range(&mut self, range: Range<u64>, what: Use, taken: &mut Taken) -> PlaceResult<()> {
        let bits = self.plan.shape.cluster_bits;
        let per = self.plan.shape.cluster_blocks();
        let mut at = range.start;
        while at < range.end {
            let logical = at >> bits;
            let (physical, count) = match taken.last {
                Some((last, cluster)) if last == logical => (cluster, 1),
                _ => {
                    let got = self
                        .plan
                        .space
                        .take(((range.end - 1) >> bits) - logical + 1, what)?;
                    let count = got.end - got.start;
                    taken.clusters += count;
                    (got.start, count)
                }
            };
            taken.last = Some((logical + count - 1, physical + count - 1));
            let end = range.end.min((logical + count) << bits);
            let pblk = self.plan.shape.cluster_start(physical) + at % per;
            taken.push(Run {
                lblk: at as u32,
                len: (end - at) as u32,
                pblk,
            });
            at = end;
        }
        Ok(())
    }
}

/// What the space for a content is for.
const fn use_of(content: Content) -> Use {
    match content {
        Content::File { .. } | Content::Seal { .. } => Use::Data,
        _ => Use::Metadata,
    }
}

/// Space taken for one file.
#[derive(Default)]
struct Taken {
    runs: Vec<Run>,
    clusters: u64,
    /// The last cluster: where it is in the file and on the device.
    last: Option<(u64, u64)>,
    /// The logical block that always begins a run.
    border: u64,
}

impl Taken {
    /// Adds a run, as part of the last one where it goes on there.
    fn push(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut()
            && u64::from(run.lblk) != self.border
            && u64::from(last.lblk) + u64::from(last.len) == u64::from(run.lblk)
            && last.pblk + u64::from(last.len) == run.pblk
        {
            last.len += run.len;
            return;
        }
        self.runs.push(run);
    }
}

/// The blocks of a file that are stored, ascending and apart.
fn logical_blocks(tree: &Tree, id: NodeId, log2: u32) -> impl Iterator<Item = Range<u64>> + '_ {
    merged(tree.extents(id).map(move |e| {
        let end = e.logical.saturating_add(e.len);
        e.logical >> log2..end.div_ceil(1 << log2)
    }))
}

/// Ranges in ascending order, with those that touch or overlap made one.
fn merged(ranges: impl Iterator<Item = Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let mut ranges = ranges.peekable();
    std::iter::from_fn(move || {
        let mut current = ranges.next()?;
        while let Some(next) = ranges.next_if(|next| next.start <= current.end) {
            current.end = current.end.max(next.end);
        }
        Some(current)
    })
}
