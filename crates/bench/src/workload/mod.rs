//! One file per workload.

pub(crate) mod age;
pub(crate) mod append64;
pub(crate) mod build;
pub(crate) mod bulkstat;
pub(crate) mod compare;
pub(crate) mod edit;
pub(crate) mod extract;
pub(crate) mod fallocate2;
pub(crate) mod fill;
pub(crate) mod fsync;
mod inside;
pub(crate) mod live;
pub(crate) mod metadata;
pub(crate) mod mounted;
pub(crate) mod orphan;
pub(crate) mod overwrite;
mod pattern;
pub(crate) mod remote;
pub(crate) mod smallfiles;
pub(crate) mod sources;
pub(crate) mod sparse;
pub(crate) mod stream;

use crate::args::{KernelForm, Side};
use crate::peer::Measured;

/// Work that several sides can do.
pub(crate) trait Workload {
    /// The bench name.
    fn name(&self) -> &'static str;

    /// What can be asked of it.
    fn shape(&self) -> Shape;

    /// Unit of the results of a variant and which are better, where that is not as its shape says.
    fn unit(&self, _variant: &str) -> Option<(&'static str, &'static str)> {
        None
    }

    /// With how many workers a variant is run where none are asked for, if not as the shape says.
    fn workers(&self, _variant: &str) -> Option<&'static [usize]> {
        None
    }

    /// The options a case is run with, for the report.
    fn options(&self, case: &Case) -> String;

    /// Whether a side can do a variant.
    fn does(&self, _side: Side, _variant: &str) -> bool {
        true
    }

    /// Does the work once and checks the result before its time counts.
    fn run(&mut self, case: &Case) -> Result<Measured, String>;
}

/// One thing to measure: which side does what with how many threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// The side.
    pub(crate) side: Side,
    /// What.
    pub(crate) variant: &'static str,
    /// With how many threads.
    pub(crate) workers: usize,
    /// How the kernel's side is set up.
    pub(crate) form: KernelForm,
}

/// What can be asked of a workload, and how its results read.
pub(crate) struct Shape {
    /// The peers that can do this work.
    pub(crate) peers: &'static [Side],
    /// Its variants.
    pub(crate) variants: &'static [&'static str],
    /// Unit of the result.
    pub(crate) unit: &'static str,
    /// Which results are better: `higher` or `lower`.
    pub(crate) better: &'static str,
    /// Worker counts unless others are asked for; none means one per processor.
    pub(crate) workers: &'static [usize],
    /// Whether peers are run with each worker count too, not once.
    pub(crate) peers_have_workers: bool,
}

impl Shape {
    /// Work of which every side does so many operations per second with so many workers.
    pub(crate) fn rates(
        peers: &'static [Side],
        variants: &'static [&'static str],
        workers: &'static [usize],
    ) -> Self {
        Self {
            peers,
            variants,
            unit: "ops/s",
            better: "higher",
            workers,
            peers_have_workers: true,
        }
    }

    /// Work without variants, of which the engine alone has workers and the wall time is reported.
    pub(crate) fn seconds(peers: &'static [Side]) -> Self {
        Self {
            peers,
            variants: &["default"],
            unit: "s",
            better: "lower",
            workers: &[],
            peers_have_workers: false,
        }
    }
}
