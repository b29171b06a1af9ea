//! The metadata block cache.
