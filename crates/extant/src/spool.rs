//! Temporary files for what memory has no room for.

use crate::{Error, Result, SharedDevice};
use extant_blockdev::FileOptions;
use std::io;
use std::sync::Arc;

/// A temporary file of `size` bytes without a name, which takes room for what is written only.
pub(crate) fn spool(size: u64) -> Result<SharedDevice> {
    let folder = std::env::temp_dir();
    let failed = |e: io::Error| Error::host("make a temporary file in", &folder, e);
    let file = tempfile::tempfile_in(&folder).map_err(failed)?;
    let device = FileOptions::create(size)
        .adopt(file, folder.join("changes"))
        .map_err(|e| failed(io::Error::other(e)))?;
    Ok(Arc::new(device))
}
