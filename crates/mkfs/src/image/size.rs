//! The smallest file system that holds a source.
//!
//! What files need does not depend on the size of the file system around them, as long as block
//! size and features stay: so it is counted once, in endless space, and then the smallest file
//! system with that much free is looked for.

use super::{BuildError, BuildOptions, Planned, Size, shape};
use crate::defaults::{FormatOptions, InodeDensity};
use crate::layout::{Draft, PlanError};
use crate::place::{PlaceError, Placement};
use crate::source::Tree;
use crate::verity::FsVerity;
use extant_format::BlockSize;

/// Free space an image shall have beyond its source.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Headroom {
    /// This many bytes.
    Bytes(u64),
    /// This share of what the source takes, in percent.
    Percent(f64),
    /// Room for small changes: 5 % of what the source takes, and at least 1 MiB. What is kept for
    /// privileged users counts as a part of it.
    ForChanges,
}

impl Default for Headroom {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl Headroom {
    /// Additional units on top of `units`, where a unit has `bytes` bytes.
    fn on(self, units: u64, bytes: u64) -> u64 {
        match self {
            Self::Bytes(more) => more.div_ceil(bytes),
            Self::Percent(percent) => (units as f64 * percent.max(0.0) / 100.0).ceil() as u64,
            Self::ForChanges => (units / 20).max((1 << 20) / bytes.min(1 << 20)),
        }
    }
}

/// Sizes are multiples of this, so that every block size and page size divides them.
const GRAIN: u64 = 64 << 10;
/// Steps after which the search gives up; each adds what is missing, so a few do.
const STEPS_MAX: u32 = 200;
/// Inodes left for what is made in the image later.
const SPARE_INODES: u64 = 16;

/// Options for an empty file system; as small as one can be for `Auto`.
pub(super) fn of_empty(options: &BuildOptions) -> Result<FormatOptions, BuildError> {
    let size = match options.size {
        Size::Bytes(bytes) => bytes,
        Size::Auto(headroom) => headroom.on(0, 1).saturating_add(1 << 20),
    };
    Ok(FormatOptions {
        size,
        ..options.format.clone()
    })
}

/// Places a tree in the smallest file system that holds it with headroom.
pub(super) fn smallest(
    tree: &Tree,
    format: &FormatOptions,
    headroom: Headroom,
    options: &BuildOptions,
) -> Result<(Draft, Placement), BuildError> {
    let sealed = options.fs_verity.as_ref();
    let mut format = FormatOptions {
        block_size: Some(format.block_size.unwrap_or(BlockSize::K4)),
        ..format.clone()
    };
    let asked = format.inodes;
    let needs = count(tree, &mut format, headroom, sealed)?;
    let tables = needs.inodes.saturating_mul(format.inode_size.into());
    let mut size = round(needs.bytes().saturating_add(tables));
    for _ in 0..STEPS_MAX {
        format.size = size;
        size = match draft_with_inodes(tree, &mut format, needs.inodes_of(size, asked)) {
            Ok(draft) => {
                let bits = draft.layout().geometry().cluster_bits();
                let free = draft.free_blocks() >> bits;
                let wanted =
                    needs.clusters_with(draft.superblock().reserved_blocks_count() >> bits);
                if free < wanted {
                    let missing = (wanted - free).saturating_mul(needs.cluster_bytes);
                    round(size.saturating_add(missing))
                } else {
                    match Planned::place(tree, &format, options) {
                        // Files cut at the borders of groups need a little more.
                        Err(BuildError::Place(PlaceError::NoSpace { .. })) => {
                            round(size + size / 100 + GRAIN)
                        }
                        other => return other,
                    }
                }
            }
            Err(error) if is_too_small(&error) => {
                least_possible(tree, &mut format, |size| needs.inodes_of(size, asked), size)?
            }
            Err(error) => return Err(error),
        };
    }
    Err(BuildError::Place(PlaceError::NoSpace {
        used: needs.clusters,
        more: 1,
    }))
}

/// The least size above `low`, which is too small, of a file system that can be made at all with
/// the inodes that a size asks for.
fn least_possible(
    tree: &Tree,
    format: &mut FormatOptions,
    inodes_of: impl Fn(u64) -> u64,
    mut low: u64,
) -> Result<u64, BuildError> {
    let mut can_be = |size: u64| {
        format.size = size;
        match draft_with_inodes(tree, format, inodes_of(size)) {
            Ok(_) => Ok(None),
            Err(error) if is_too_small(&error) => Ok(Some(error)),
            Err(error) => Err(error),
        }
    };
    let mut high = low;
    let mut steps = 0;
    loop {
        high = round(high.saturating_add(high / 8 + GRAIN));
        let Some(error) = can_be(high)? else {
            break;
        };
        low = high;
        steps += 1;
        if steps == STEPS_MAX {
            return Err(error);
        }
    }
    while low.saturating_add(GRAIN) < high {
        let middle = round(low.midpoint(high)).min(high - GRAIN);
        match can_be(middle)? {
            Some(_) => low = middle,
            None => high = middle,
        }
    }
    Ok(high)
}

/// A draft with at least so many inodes, and the format that gives them: a last group that is too
/// small to be worth having takes its share of them with it.
fn draft_with_inodes(
    tree: &Tree,
    format: &mut FormatOptions,
    inodes: u64,
) -> Result<Draft, BuildError> {
    const TRIES: u32 = 16;
    let mut wanted = inodes;
    let mut tries = 1;
    loop {
        format.inodes = density(wanted);
        let draft = shape::draft_for_files(format, tree)?;
        let found = u64::from(draft.superblock().inodes_count());
        if found >= inodes || tries == TRIES {
            return Ok(draft);
        }
        // As many groups less, as many inodes less: ask in proportion.
        let in_proportion = wanted.saturating_mul(inodes) / found.max(1);
        wanted = wanted.saturating_add(inodes - found).max(in_proportion);
        tries += 1;
    }
}

fn round(bytes: u64) -> u64 {
    bytes.div_ceil(GRAIN).saturating_mul(GRAIN)
}

/// Whether a larger file system could help.
fn is_too_small(error: &BuildError) -> bool {
    matches!(
        error,
        BuildError::Plan(
            PlanError::TooSmall { .. } | PlanError::NoSpace { .. } | PlanError::OutOfRange { .. }
        )
    )
}

/// What a tree needs.
struct Needs {
    /// Clusters of the source and of the headroom.
    clusters: u64,
    /// Free space was asked for, so the share kept for privileged users comes on top of it.
    has_headroom: bool,
    inodes: u64,
    cluster_bytes: u64,
}

impl Needs {
    /// Inodes of a file system of `size` bytes: no fewer than asked for.
    fn inodes_of(&self, size: u64, asked: InodeDensity) -> u64 {
        let more = match asked {
            InodeDensity::BySize => 0,
            InodeDensity::Ratio(bytes) => size / u64::from(bytes.max(1)),
            InodeDensity::Count(count) => count.into(),
        };
        self.inodes.max(more)
    }

    fn clusters_with(&self, reserved: u64) -> u64 {
        if self.has_headroom {
            self.clusters.saturating_add(reserved)
        } else {
            self.clusters
        }
    }

    fn bytes(&self) -> u64 {
        self.clusters.saturating_mul(self.cluster_bytes)
    }
}

/// Counts blocks and inodes in a file system that is certainly large enough.
fn count(
    tree: &Tree,
    format: &mut FormatOptions,
    headroom: Headroom,
    sealed: Option<&FsVerity>,
) -> Result<Needs, BuildError> {
    let inodes = tree.len() as u64 + 1024;
    format.inodes = density(inodes);
    let block = u64::from(format.block_size.map_or(4096, BlockSize::bytes));
    let generous = (64 << 20) + tree.len() as u64 * (4096 + block) + (16 << 20);
    let mut draft = None;
    for factor in [1, 4, 16, 64] {
        format.size = round(generous * factor);
        match shape::draft_for_files(format, tree) {
            Ok(found) => {
                draft = Some(found);
                break;
            }
            Err(error) if is_too_small(&error) && factor < 64 => {}
            Err(error) => return Err(error),
        }
    }
    let Some(draft) = draft else {
        return Err(BuildError::Place(PlaceError::NoSpace { used: 0, more: 1 }));
    };
    let mut endless = shape::of(&draft, sealed)?;
    endless.free = std::iter::once(0..1 << 47).collect();
    endless.inodes_count = u32::MAX;
    let placement = Placement::dense(tree, endless)?;
    let used = placement.space.used();
    let cluster_bytes = block << draft.layout().geometry().cluster_bits();
    let last = u64::from(placement.last_ino());
    let more = headroom.on(used, cluster_bytes);
    Ok(Needs {
        has_headroom: more > 0 && headroom != Headroom::ForChanges,
        inodes: (last + SPARE_INODES).saturating_add(headroom_inodes(headroom, last)),
        clusters: used.saturating_add(more),
        cluster_bytes,
    })
}

fn headroom_inodes(headroom: Headroom, inodes: u64) -> u64 {
    match headroom {
        Headroom::Bytes(bytes) => bytes / 16_384,
        Headroom::Percent(percent) => Headroom::Percent(percent).on(inodes, 1),
        Headroom::ForChanges => (inodes / 20).max(64),
    }
}

fn density(inodes: u64) -> InodeDensity {
    InodeDensity::Count(u32::try_from(inodes).unwrap_or(u32::MAX))
}
