//! Metadata, transactions and space of the ext4 engine: what knows no files.
//!
//! The lower half of the engine. It caches blocks of metadata, keeps them in transactions of the
//! journal, and gives out blocks and numbers of inodes. Inodes, names and data are the business of
//! `extant-core`, which stands above it.
//!
//! | room | owns |
//! |---|---|
//! | [`error`] | the one error: evidence, errno, a sentence |
//! | [`clock`] | the time of day |
//! | [`event`] | what is told while it runs |
//! | `mutants` | mistakes that a test must find |
//! | [`meta`] | the metadata block cache, numbers of transactions, seals |
//! | [`volume`] | what is true of an open image |
//! | [`journal`] | handles, transactions, commit and checkpoint, log items |
//! | [`alloc`] | blocks and inodes: the two bitmaps, take, commit, give back |
//!
//! From `meta` to `alloc` that is their order: a room names and calls what is below it.
#![forbid(unsafe_code)]

pub mod alloc;
pub mod clock;
pub mod error;
pub mod event;
pub mod journal;
pub mod meta;
pub mod mutants;
pub mod volume;

pub use error::{Error, InPlace, Place, Result};
