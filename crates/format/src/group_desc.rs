//! Block group descriptors of 32 and 64 bytes.
