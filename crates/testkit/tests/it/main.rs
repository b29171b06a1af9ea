//! The fixtures tested: a test is worth what its measure is worth.

mod crash;
mod hostile;
mod images;
mod kernel;
mod model;
mod oracles;
mod plans;
mod sweep;
mod trees;
