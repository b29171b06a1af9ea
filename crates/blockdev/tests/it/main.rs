//! Devices seen from outside.

mod batches;
mod contents;
mod direct;
mod files;
mod memory;
mod model;
mod overlay;
mod partitions;
mod specs;
mod uring;
mod windows;
