//! Writing a planned image, each block once.
//!
//! | module | owns |
//! |---|---|
//! | `segments` | cuts the plan into stretches that are written with one call |
//! | `fill` | fills a stretch: file data, directories, maps, attributes |
//! | `inodes` | inodes, from nodes of the source |
//! | `tables` | inode tables, group by group |
//! | [`error`] | [`WriteError`] |
//!
//! # Invariants
//!
//! * What is written depends on the plan and the source's bytes only, never on which thread came
//!   first: every block is made by one function from the plan.
//! * Memory is one segment a thread, whatever the size of the image.

pub mod error;
mod fill;
mod inodes;
mod segments;
mod tables;

pub use error::{WriteError, WriteResult};
pub(crate) use fill::{Filler, Sink};
pub(crate) use inodes::InodeEncoder;
pub(crate) use segments::Part;
pub(crate) use tables::{TableShape, fill_slots, write_tables};

use crate::place::Placement;
use crate::source::Tree;
use crate::verity::Sealer;
use rayon::iter::{ParallelBridge, ParallelIterator};
use segments::Segments;

/// Told how a long piece of work goes on, from any thread.
pub trait Progress: Sync {
    /// The work that follows amounts to `total`.
    fn start(&self, total: u64);

    /// That much more is done, in the unit of the total.
    fn advance(&self, amount: u64);
}

/// Progress nobody looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _total: u64) {}

    fn advance(&self, _amount: u64) {}
}

/// Writes everything placed but inodes and the formatter's own metadata.
///
/// # Errors
/// The first error any thread met; the device then holds part of the data.
pub(crate) fn write_contents(
    tree: &Tree,
    placement: &Placement,
    sink: Sink<'_>,
    progress: &dyn Progress,
) -> WriteResult<()> {
    let block = placement.shape.block_size.len() as u64;
    let sealer = Sealer::new(tree, placement, sink, progress);
    let sealer = sealer.as_ref();
    Segments::new(placement.pieces(), block)
        .par_bridge()
        .map_init(
            || Filler::new(tree, placement).sealed_by(sealer),
            |filler, segment| filler.write(&segment, sink, progress),
        )
        .collect::<WriteResult<()>>()?;
    sealer.map_or(Ok(()), Sealer::finish_empty)
}
