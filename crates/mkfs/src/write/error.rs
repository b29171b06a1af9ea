//! Errors of writing a planned image.

use crate::maps::MapError;
use crate::place::PlaceError;
use crate::source::SourceError;
use extant_blockdev::DeviceError;
use extant_format::FormatError;

/// Result of writing.
pub type WriteResult<T> = Result<T, WriteError>;

/// An image that could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The source could not be read, or changed while it was.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The source does not fit the file system.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A number that does not fit the format.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl From<MapError> for WriteError {
    fn from(error: MapError) -> Self {
        Self::Place(error.into())
    }
}
