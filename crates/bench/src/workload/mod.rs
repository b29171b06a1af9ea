//! One file per workload.

pub(crate) mod build;
pub(crate) mod extract;

use crate::args::Side;
use crate::peer::Measured;

/// Work that several sides can do.
pub(crate) trait Workload {
    /// The bench name.
    fn name(&self) -> &'static str;

    /// The peers that can do this work.
    fn peers(&self) -> &'static [Side];

    /// The options a side is run with, for the report.
    fn options(&self, side: Side) -> String;

    /// Does the work once and checks the result before its time counts.
    fn run(&mut self, side: Side, workers: usize) -> Result<Measured, String>;
}
