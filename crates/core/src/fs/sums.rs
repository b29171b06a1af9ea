//! The sums that space accounting keeps, as they are.

use super::Fs;
use crate::Result;

/// What the accounting of space and of file data in memory holds. Sums are exact while nothing goes
/// on.
#[derive(Clone, Copy, Debug)]
pub struct SpaceSums {
    /// The lowest count of the places that blocks are granted from: at no moment below 0, unless a
    /// group turned out to be damaged.
    pub least: i64,
    /// Blocks that may be granted.
    pub grantable: i64,
    /// Blocks that are free on the device and yet somebody's: promised, or chosen and not mapped.
    pub promised: i64,
    /// Freed blocks that wait for a commit.
    pub pending: i64,
    /// Bytes of file data that the device does not have.
    pub dirty_bytes: i64,
    /// Bytes of memory that file data takes.
    pub memory_bytes: i64,
}

impl Fs {
    /// The sums, for tests that require that none was ever overdrawn.
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) when the file system is open for reading only.
    #[doc(hidden)]
    pub fn space_sums(&self) -> Result<SpaceSums> {
        let space = self.alloc()?.space_sums();
        let (dirty_bytes, memory_bytes) = self.data().sums();
        Ok(SpaceSums {
            least: space.least,
            grantable: space.grantable,
            promised: space.promised,
            pending: space.pending,
            dirty_bytes,
            memory_bytes,
        })
    }
}
