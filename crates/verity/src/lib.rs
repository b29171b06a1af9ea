//! The formats of dm-verity and fs-verity: hash trees, superblocks, descriptors.
//!
//! Internal to Extant: any version may change it. Programs use the crates `extant` and
//! `extant-mkfs`.
//!
//! Both formats hash blocks, and blocks of hashes, until one hash is left. They differ in what is
//! hashed in front of a block, and in what says where the tree is.
//!
//! | module | owns |
//! |---|---|
//! | `hash` | [`Algorithm`], [`Digest`], and [`Salted`], which hashes blocks |
//! | `shape` | [`Shape`]: how many levels a tree has, and where the blocks of each are |
//! | [`dm`] | the superblock of dm-verity, and where it and its tree are |
//! | [`fs`] | the descriptor of fs-verity, and where ext4 keeps it and the tree |
//! | `build` | [`Builder`]: a tree of blocks that come in their order |
//! | `walk` | [`Verifier`]: whether blocks are those that a root hash was made of |
//!
//! # Absent
//!
//! No input and output, no threads: builders and readers bring their own.

#![deny(unsafe_code)]

mod build;
pub mod dm;
pub mod fs;
mod hash;
mod shape;
mod walk;

pub use build::Builder;
pub use hash::{Algorithm, Digest, Salted};
pub use shape::Shape;
pub use walk::{Verifier, WalkError};
