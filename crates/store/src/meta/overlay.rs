//! Newer images of blocks than the device has.

use extant_format::Pblk;
use std::fmt;
use std::sync::Arc;

/// Blocks whose newest image is in memory and not on the device in its place: committed ones that
/// wait for their checkpoint.
///
/// Asked before every read of the device, so an answer must be quick and must not wait.
pub trait Overlay: Send + Sync + fmt::Debug {
    /// The newest image of `block`, one block long; `None` if that is on the device.
    fn image(&self, block: Pblk) -> Option<Arc<[u8]>>;
}
