//! Indirect block maps of ext2 and ext3.
