//! Fast commits, replayed in memory.
//!
//! A fast commit says what changed in names and maps, and not which blocks hold that: the engine
//! makes the changes, over a device that is only read, and the checker, which shares no code with
//! it, judges what came of it.

use extant::{Filesystem, MountOptions, SharedDevice};
use extant_blockdev::OverlayDevice;
use std::sync::Arc;

/// Bytes of the pieces in which changes are kept: the least that a block has.
pub(crate) const PIECE: u32 = 1024;

/// The device as a mount would leave it that replays its journal and ends: what that writes is in
/// the overlay.
///
/// # Errors
/// When the engine cannot replay the journal.
pub(crate) fn in_memory(device: SharedDevice) -> extant::Result<Arc<OverlayDevice>> {
    let overlay = Arc::new(OverlayDevice::new(device, PIECE).keep_writes());
    let options = MountOptions::read_write().background(false);
    let fs = Filesystem::open_device(Arc::clone(&overlay) as SharedDevice, options)?;
    fs.close()?;
    Ok(overlay)
}
