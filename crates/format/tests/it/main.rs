//! Checks of the format against what the reference tools say, and against arbitrary bytes.

mod dir_bytes;
mod dir_hash;
mod positions;
mod xattr_bytes;
