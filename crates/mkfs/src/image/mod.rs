//! From a source to an image: size, place, write.
//!
//! | module | owns |
//! |---|---|
//! | `size` | the smallest file system that holds a source |
//! | `shape` | what a formatter's draft leaves for files |
//! | `fingerprint` | the identity of a reproducible image |

mod fingerprint;
mod shape;
mod size;

pub use size::Headroom;

use crate::defaults::FormatOptions;
use crate::layout::{Draft, PlanError, SMALL_FILE_MAX, plan};
use crate::metadata::{FinalMetadata, FormatWriteError, Target, prepare, write_metadata};
use crate::output::{Output, OutputError, Replaces};
use crate::place::{Former, Groups, PlaceError, Placement};
use crate::source::{NodeId, Tree};
use crate::verity::{
    DevicePlan, DmVerity, DmVerityError, DmVerityReport, FsVerity, FsVerityError, Tail,
};
use crate::write::{
    InodeEncoder, Progress, Sink, TableShape, WriteError, write_contents, write_tables,
};
use extant_blockdev::BlockDevice;
use extant_format::features::{Compat, Feature, RoCompat};
use extant_format::{Group, Ino};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Threads at most that write to a device that is far, each a mebibyte at a time.
const MOST_FAR_THREADS: usize = 16;

/// How large the file system shall be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// This many bytes.
    Bytes(u64),
    /// As small as it can be and still hold the source and this much free space.
    Auto(Headroom),
}

/// What to build, besides the source. Made with [`BuildOptions::new`], changed field by field.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The file system. Its `size` is taken from the field below.
    pub format: FormatOptions,
    /// How large it shall be.
    pub size: Size,
    /// Threads that read and write; one for each processor if `None`.
    pub threads: Option<NonZero<usize>>,
    /// Which file a new image may take the name of; if `None`, the one that has it when writing
    /// begins.
    pub replaces: Option<Replaces>,
    /// A hash tree over the image, for dm-verity.
    pub dm_verity: Option<DmVerity>,
    /// Hash trees of files, for fs-verity; they turn the feature `verity` on.
    pub fs_verity: Option<FsVerity>,
    /// Where data and numbers go.
    pub arrangement: Arrangement,
    /// An older image that the new one shall be like: what it has of the tree stays where it is.
    /// Nodes are those of the tree that is built.
    pub like: Option<Arc<Former>>,
}

/// Where data and numbers go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrangement {
    /// With gaps, where there is free space for them, so that a small change of the source is a
    /// small change of the image.
    #[default]
    Steady,
    /// In one row, with the free space behind it.
    Dense,
}

impl BuildOptions {
    /// Takes the file system and its size; one thread for each processor works on it.
    #[must_use]
    pub fn new(format: FormatOptions, size: Size) -> Self {
        Self {
            format,
            size,
            threads: None,
            replaces: None,
            dm_verity: None,
            fs_verity: None,
            arrangement: Arrangement::default(),
            like: None,
        }
    }

    /// Sets the number of threads; `None` is one for each processor.
    #[must_use]
    pub fn threads(mut self, threads: Option<NonZero<usize>>) -> Self {
        self.threads = threads;
        self
    }
}

/// What was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Bytes of the file system.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the file system.
    pub blocks: u64,
    /// Blocks not in use.
    pub free_blocks: u64,
    /// Blocks of the journal; none in a file system without one.
    pub journal_blocks: u32,
    /// Inodes of the file system.
    pub inodes: u32,
    /// Inodes not in use.
    pub free_inodes: u32,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// The hash tree, where one was asked for.
    pub dm_verity: Option<DmVerityReport>,
}

impl Report {
    /// What a draft became.
    pub(crate) fn new(draft: &Draft, done: &FinalMetadata) -> Self {
        let superblock = &done.superblock;
        Self {
            size: superblock.blocks_count() << superblock.block_size().log2(),
            block_size: superblock.block_size().bytes(),
            blocks: superblock.blocks_count(),
            free_blocks: superblock.free_blocks_count(),
            journal_blocks: draft.layout().journal_blocks(),
            inodes: superblock.inodes_count(),
            free_inodes: superblock.free_inodes_count(),
            uuid: superblock.uuid(),
            dm_verity: None,
        }
    }

    /// Returns the bytes of the image: those of the file system, and of the hash tree where it lies
    /// behind it.
    #[must_use]
    pub fn image_size(&self) -> u64 {
        let tree = self.dm_verity.as_ref();
        let behind = tree.filter(|tree| tree.hash_offset > 0);
        behind.map_or(self.size, |tree| tree.end)
    }
}

/// An image that could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// What was asked for cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The source does not fit.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Reading the source or writing the image failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Writing the fixed metadata failed.
    #[error(transparent)]
    Metadata(#[from] FormatWriteError),
    /// The image cannot be put where it was asked for.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The hash tree for dm-verity cannot be made.
    #[error(transparent)]
    DmVerity(#[from] DmVerityError),
    /// Hash trees of fs-verity cannot be made.
    #[error(transparent)]
    FsVerity(#[from] FsVerityError),
    /// Threads could not be started.
    #[error("cannot start worker threads: {0}")]
    Threads(String),
}

/// Builds an image of `tree` under the name `path`, which appears when it is complete. Without a
/// tree the file system is empty.
///
/// With `window`, the file system is made in place at the first of these bytes of something that
/// exists, and nothing past the last of them is touched.
///
/// # Errors
/// [`BuildError`]; a new image then does not appear.
pub fn build(
    tree: Option<&Tree>,
    path: &Path,
    window: Option<Range<u64>>,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Report, BuildError> {
    let output = |size| {
        let Some(window) = window else {
            let replaces = options.replaces;
            let replaces = replaces.unwrap_or_else(|| Replaces::what_is_at(path));
            return Ok(Output::create_over(path, size, replaces)?);
        };
        let limit = window.end.saturating_sub(window.start);
        if size > limit {
            let because = "the room that is there";
            return Err(PlanError::TooLarge {
                size,
                limit,
                because,
            }
            .into());
        }
        Ok(Output::in_place(path, &window, size)?)
    };
    build_into(tree, output, options, progress)
}

/// Builds an image of `tree` in what `output` makes of its size in bytes, such as a device of the
/// caller's ([`Output::on_device`]). Each block is written once, in an order that depends on the
/// threads, and nothing is read. Without a tree the file system is empty.
///
/// # Errors
/// [`BuildError`]; what was made then holds part of an image.
pub fn build_into(
    tree: Option<&Tree>,
    output: impl FnOnce(u64) -> Result<Output, BuildError> + Send,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Report, BuildError> {
    pool(options)?.install(|| {
        let made = Planned::new(tree, options).and_then(|planned| {
            let output = output(planned.image_len())?;
            let tail = planned.dm_verity.as_ref().map(DevicePlan::tail);
            let tail = tail.transpose()?.flatten();
            let report = planned.write(&output, tail.as_ref(), progress)?;
            Ok((output, tail, report))
        });
        if let (Err(_), Some(tree)) = (&made, tree) {
            // That its source is damaged explains more.
            tree.prove().map_err(WriteError::from)?;
        }
        let (output, tail, report) = made?;
        // An image that is there has its tree.
        tail.map_or(Ok(()), Tail::commit)?;
        output.commit()?;
        Ok(report)
    })
}

/// The threads that build.
pub(crate) fn pool(options: &BuildOptions) -> Result<rayon::ThreadPool, BuildError> {
    threads_of(options.threads)
}

/// So many threads, or one for each processor.
pub(crate) fn threads_of(count: Option<NonZero<usize>>) -> Result<rayon::ThreadPool, BuildError> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(count.map_or(0, NonZero::get))
        .build()
        .map_err(|e| BuildError::Threads(e.to_string()))
}

/// Everything decided, nothing written.
pub(crate) struct Planned<'t> {
    draft: Draft,
    files: Option<(&'t Tree, Placement)>,
    dm_verity: Option<DevicePlan>,
}

impl<'t> Planned<'t> {
    pub(crate) fn new(tree: Option<&'t Tree>, options: &BuildOptions) -> Result<Self, BuildError> {
        let planned = Self::of_size(tree, options)?;
        let limit = options.dm_verity.as_ref().and_then(DmVerity::limit);
        let (Some(limit), Size::Bytes(size)) = (limit, options.size) else {
            return Ok(planned);
        };
        let over = planned.image_len().saturating_sub(limit);
        if over == 0 {
            return Ok(planned);
        }
        // The tree of what is left is smaller still.
        let grain = u64::from(planned.draft.superblock().block_size().bytes()).max(4096);
        let mut smaller = options.clone();
        smaller.size = Size::Bytes(size.saturating_sub(over.next_multiple_of(grain)));
        Self::of_size(tree, &smaller)
    }

    fn of_size(tree: Option<&'t Tree>, options: &BuildOptions) -> Result<Self, BuildError> {
        let (draft, files) = if let Some(tree) = tree {
            let (draft, placement) = Self::of_tree(tree, options)?;
            (draft, Some((tree, placement)))
        } else {
            let format = size::of_empty(options)?;
            let mut draft = Draft::new(plan(&format)?);
            draft.add_empty_directories()?;
            draft.add_reserved_files(None)?;
            (draft, None)
        };
        let superblock = draft.superblock();
        let (block_size, blocks) = (superblock.block_size().bytes(), superblock.blocks_count());
        let plan = |asked| DevicePlan::new(asked, superblock.uuid(), block_size, blocks);
        let dm_verity = options.dm_verity.as_ref().map(plan).transpose()?;
        Ok(Self {
            draft,
            files,
            dm_verity,
        })
    }

    /// Bytes of the image, with what lies behind the file system.
    fn image_len(&self) -> u64 {
        let alone = self.draft.layout().options().size;
        let plan = self.dm_verity.as_ref();
        plan.map_or(alone, |plan| plan.image_len(alone))
    }

    /// Places a tree in a file system of the size that is asked for.
    ///
    /// # Errors
    /// What was asked for cannot be made, or the tree does not fit.
    pub(crate) fn of_tree(
        tree: &Tree,
        options: &BuildOptions,
    ) -> Result<(Draft, Placement), BuildError> {
        let mut format = options.format.clone();
        if options.fs_verity.is_some() {
            format.features.turn_on(Feature::RoCompat(RoCompat::VERITY));
        }
        match options.size {
            Size::Bytes(bytes) => {
                format.size = bytes;
                Self::place(tree, &format, options)
            }
            Size::Auto(headroom) => size::smallest(tree, &format, headroom, options),
        }
    }

    /// Places a tree in a file system of a given size.
    fn place(
        tree: &Tree,
        format: &FormatOptions,
        options: &BuildOptions,
    ) -> Result<(Draft, Placement), BuildError> {
        let mut draft = shape::draft_for_files(format, tree)?;
        let shape = shape::of(&draft, options.fs_verity.as_ref())?;
        let placement = match (&options.like, options.arrangement) {
            (Some(former), _) => {
                draft.keep_copies(former.former_copies().clone());
                Placement::like(tree, shape, former, &Groups::of(&draft))?
            }
            (None, Arrangement::Steady) => Placement::steady(tree, shape)?,
            (None, Arrangement::Dense) => Placement::dense(tree, shape)?,
        };
        declare(tree, &mut draft)?;
        let shape = &placement.shape;
        for run in placement.space.used_runs() {
            let blocks = shape.cluster_start(run.start)..shape.cluster_start(run.end);
            draft.take("files", blocks)?;
        }
        for run in placement.ino_runs() {
            draft.take_inodes(run, &BTreeMap::new());
        }
        draft.take_inodes(0..0, &directories(tree, &placement, &draft)?);
        if draft.keeps_quotas() {
            draft.put_usage(&placement.usage(tree))?;
        }
        Ok((draft, placement))
    }

    fn write(
        mut self,
        output: &Output,
        tail: Option<&Tail>,
        progress: &dyn Progress,
    ) -> Result<Report, BuildError> {
        let zeroed = output.is_zeroed();
        match self.dm_verity.take() {
            None => self.write_to(output.device(), zeroed, progress),
            Some(plan) => plan.seal(output, tail, |device| {
                self.write_to(device, zeroed, progress)
            }),
        }
    }

    fn write_to(
        mut self,
        device: &dyn BlockDevice,
        zeroed: bool,
        progress: &dyn Progress,
    ) -> Result<Report, BuildError> {
        let target = if zeroed {
            Target::Zeroed
        } else {
            Target::Unknown
        };
        prepare(device, &self.draft, target)?;
        if let Some((tree, placement)) = &self.files {
            let records = self.draft.take_records();
            let sink = Sink { device, zeroed };
            progress.start(placement.bytes());
            // Writing is slower, and one file is written by one thread at a time: what is left to
            // be compared with its digest takes the others.
            with_threads(device, || -> Result<(), BuildError> {
                let mut proven = Ok(());
                let written = rayon::in_place_scope(|scope| {
                    scope.spawn(|_| proven = tree.prove());
                    write_contents(tree, placement, sink, progress)
                });
                proven.map_err(WriteError::from)?;
                written?;
                tree.check_archive().map_err(WriteError::from)?;
                write_inodes(tree, placement, &self.draft, &records, sink)
            })?;
        }
        let done = write_metadata(device, &self.draft)?;
        Ok(Report::new(&self.draft, &done))
    }
}

/// Does work that writes to a device by several threads: one for each processor, and more where
/// they wait for a device that is far.
fn with_threads<T: Send>(device: &dyn BlockDevice, work: impl FnOnce() -> T + Send) -> T {
    let wanted = device.in_flight().min(MOST_FAR_THREADS);
    if wanted <= rayon::current_num_threads() {
        return work();
    }
    match rayon::ThreadPoolBuilder::new().num_threads(wanted).build() {
        Ok(pool) => pool.install(work),
        // Those that there are do it, too.
        Err(_) => work(),
    }
}

/// Turns on the features that Linux turns on when a file first needs them: without, a checker takes
/// large sizes for damage and does not see attributes.
fn declare(tree: &Tree, draft: &mut Draft) -> Result<(), BuildError> {
    let large = tree.ids().any(|id| tree.node(id).size > SMALL_FILE_MAX);
    let attributes = tree.ids().any(|id| !tree.xattrs(id).is_empty());
    draft.change_superblock(|raw| {
        if large {
            let bits = raw.feature_ro_compat.get() | RoCompat::LARGE_FILE.bits();
            raw.feature_ro_compat.set(bits);
        }
        if attributes {
            let bits = raw.feature_compat.get() | Compat::EXT_ATTR.bits();
            raw.feature_compat.set(bits);
        }
    })?;
    Ok(())
}

/// Directories in each group, those the draft knows left out.
fn directories(
    tree: &Tree,
    placement: &Placement,
    draft: &Draft,
) -> Result<BTreeMap<Group, u32>, BuildError> {
    let mut counts = BTreeMap::new();
    let known = placement.numbering.lost_found();
    for id in tree
        .ids()
        .skip(1)
        .filter(|id| tree.node(*id).is_dir() && Some(*id) != known)
    {
        let ino = placement.numbering.ino(id);
        let group = draft
            .layout()
            .geometry()
            .locate_inode(ino)
            .map_err(PlanError::from)?
            .group;
        *counts.entry(group).or_default() += 1;
    }
    Ok(counts)
}

/// Writes the tables of all groups with inodes in use.
fn write_inodes(
    tree: &Tree,
    placement: &Placement,
    draft: &Draft,
    records: &BTreeMap<Ino, Vec<u8>>,
    sink: Sink<'_>,
) -> Result<(), BuildError> {
    let layout = draft.layout();
    let geometry = layout.geometry();
    let end = placement.last_ino() + 1;
    let groups = (end - 1).div_ceil(geometry.inodes_per_group()) as usize;
    let tables: Vec<_> = layout
        .places()
        .iter()
        .take(groups)
        .map(|p| p.inode_table)
        .collect();
    let encoder = InodeEncoder::new(tree, placement, draft);
    let shape = TableShape {
        block_size: geometry.block_size(),
        inode_size: geometry.inode_size() as u16,
        inodes_per_group: geometry.inodes_per_group(),
        tables: &tables,
    };
    let fixed = |ino: Ino, slot: &mut [u8]| {
        let Some(record) = records.get(&ino) else {
            return Ok(false);
        };
        slot[..record.len()].copy_from_slice(record);
        Ok(true)
    };
    debug_assert!(tree.node(NodeId::ROOT).is_dir());
    Ok(write_tables(&encoder, shape, 1..end, &fixed, sink)?)
}
