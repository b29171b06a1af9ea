//! Devices seen from outside.

mod batches;
mod contents;
mod cow;
mod direct_io;
mod examples;
mod files;
mod memory;
mod model;
mod nbd;
mod overlay;
mod partitions;
mod specs;
mod uring;
mod windows;
