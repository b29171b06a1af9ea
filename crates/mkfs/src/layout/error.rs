//! Why a file system cannot be made as asked.

use crate::maps::MapError;
use extant_format::FormatError;

/// Result of planning.
pub type PlanResult<T> = Result<T, PlanError>;

/// What was asked for, and what stands against it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Not enough room for the fixed structures.
    #[error("{size} bytes are too small: {what} does not fit")]
    TooSmall {
        /// Size asked for, in bytes.
        size: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// More than the format can hold.
    #[error("{size} bytes are too large: at most {limit} bytes with {because}")]
    TooLarge {
        /// Size asked for, in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
        /// What sets the limit.
        because: &'static str,
    },
    /// A number out of range.
    #[error("{what} cannot be {asked}: {limit}")]
    OutOfRange {
        /// What was chosen.
        what: &'static str,
        /// The choice.
        asked: String,
        /// The limit, in words.
        limit: String,
    },
    /// A feature this builder cannot make.
    #[error("the feature {feature} cannot be made: {why}")]
    Unsupported {
        /// Name of the feature.
        feature: String,
        /// Why.
        why: &'static str,
    },
    /// A feature the profile's readers do not know.
    #[error("the feature {feature} is not for profile {profile}: its readers do not know it")]
    NotInProfile {
        /// Name of the feature.
        feature: String,
        /// Name of the profile.
        profile: &'static str,
    },
    /// Two choices that exclude each other, or one that needs another.
    #[error("{asked} {conflict}")]
    Conflict {
        /// The choice.
        asked: &'static str,
        /// What stands against it, as the rest of a sentence.
        conflict: &'static str,
    },
    /// No room for what was to be placed.
    #[error("no space left: {what} needs {needed} blocks, {free} are free")]
    NoSpace {
        /// What was to be placed.
        what: &'static str,
        /// Blocks needed.
        needed: u64,
        /// Blocks free.
        free: u64,
    },
    /// The plan broke a rule of the format: a defect of this crate.
    #[error("the plan breaks the format: {0}")]
    Format(#[from] FormatError),
}

impl From<MapError> for PlanError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Format(error) => Self::Format(error),
            MapError::Unmappable { block, reach } => Self::OutOfRange {
                what: "a file of the file system itself",
                asked: format!("{block} blocks long"),
                limit: format!("its map reaches {reach}"),
            },
            MapError::BeyondIndirect { .. } => Self::Conflict {
                asked: "a file mapped by indirect blocks",
                conflict: "cannot use blocks past 2^32",
            },
        }
    }
}
