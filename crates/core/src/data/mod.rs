//! File data.
