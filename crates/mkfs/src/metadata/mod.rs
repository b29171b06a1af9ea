//! Bitmaps, descriptors and superblocks: what makes written blocks a file system.

mod copies;
mod write;

pub(crate) use copies::FormerCopies;
pub use write::{FinalMetadata, FormatWriteError, Target, finish, prepare, write_metadata};
pub(crate) use write::{block_bitmap, encode_descriptors, inode_bitmap};

use crate::defaults::FormatOptions;
use crate::layout::{Draft, plan};
use extant_blockdev::BlockDevice;

/// Makes an empty file system on `device`.
///
/// # Errors
/// What was asked for cannot be made, or the device failed.
pub fn format_empty(
    device: &dyn BlockDevice,
    options: &FormatOptions,
    target: Target,
) -> Result<FinalMetadata, FormatWriteError> {
    let mut draft = Draft::new(plan(options)?);
    draft.add_empty_directories()?;
    draft.add_reserved_files(None)?;
    prepare(device, &draft, target)?;
    write_metadata(device, &draft)
}
