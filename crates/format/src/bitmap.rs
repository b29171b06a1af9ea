//! Block and inode bitmaps: bits, runs and checksums.
