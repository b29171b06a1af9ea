//! The multiple-mount protection block.
