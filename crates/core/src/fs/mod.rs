//! Mount, state and statfs.
