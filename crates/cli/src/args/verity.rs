//! Hash trees that are made with an image.

use super::threads::parse_threads;
use crate::size;
use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

/// The options about hash trees.
#[derive(Debug, Clone, Default, PartialEq, ClapArgs)]
pub(crate) struct Verity {
    #[command(flatten)]
    pub(crate) dm: DmVerity,
    #[command(flatten)]
    pub(crate) fs: FsVerity,
}

/// The options about a hash tree for dm-verity.
#[derive(Debug, Clone, Default, PartialEq, ClapArgs)]
pub(crate) struct DmVerity {
    /// Write a hash tree for dm-verity while the image is written: `append` puts it behind the file
    /// system, anything else is the file that it goes to
    ///
    /// The tree is the one of `veritysetup format`. The root hash is told on standard output, with
    /// the salt and where the tree is. The size of the file system does not change; where the place
    /// of an image that is made says how large it is, the file system is made smaller by the tree.
    /// A file that is there is replaced if it has such a tree, or with --force.
    #[arg(long, value_name = "append|FILE", help_heading = "Verity")]
    pub(crate) dm_verity: Option<OsString>,
    /// The salt, at most 256 bytes in hexadecimal, or `none`; by default 32 bytes that follow from
    /// the UUID
    #[arg(
        long,
        value_name = "HEX|none",
        requires = "dm_verity",
        help_heading = "Verity"
    )]
    pub(crate) dm_verity_salt: Option<String>,
    /// The hash function: sha256 or sha512
    #[arg(
        long,
        value_name = "NAME",
        requires = "dm_verity",
        help_heading = "Verity"
    )]
    pub(crate) dm_verity_hash: Option<String>,
    /// Data hashed at a time; by default a block of the file system, at most 4K
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = size::parse,
        requires = "dm_verity",
        help_heading = "Verity"
    )]
    pub(crate) dm_verity_data_block_size: Option<u64>,
    /// Bytes of a block of hashes; by default 4K
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = size::parse,
        requires = "dm_verity",
        help_heading = "Verity"
    )]
    pub(crate) dm_verity_hash_block_size: Option<u64>,
}

/// The options about hash trees of fs-verity.
#[derive(Debug, Clone, Default, PartialEq, ClapArgs)]
pub(crate) struct FsVerity {
    /// Protect what matches by fs-verity (`/usr/bin`, `*.so`, `**/conf/`): regular files, and those
    /// in directories that match; may be given more than once
    ///
    /// Each file gets its tree behind its content, as `fsverity enable` has ext4 put it, and cannot
    /// be written to. The feature `verity` is turned on. Patterns are those of --exclude. One that
    /// matches no regular file is refused.
    #[arg(long, value_name = "PATTERN", help_heading = "Verity")]
    pub(crate) fs_verity: Vec<OsString>,
    /// Protect the files whose paths this file lists, one a line
    #[arg(long, value_name = "FILE", help_heading = "Verity")]
    pub(crate) fs_verity_list: Option<PathBuf>,
    /// The salt of fs-verity, at most 32 bytes in hexadecimal; by default none
    #[arg(long, value_name = "HEX|none", help_heading = "Verity")]
    pub(crate) fs_verity_salt: Option<String>,
    /// The hash function of fs-verity: sha256 or sha512
    #[arg(long, value_name = "NAME", help_heading = "Verity")]
    pub(crate) fs_verity_hash: Option<String>,
    /// Bytes of a block of fs-verity; by default a block of the file system, at most 4K
    #[arg(long, value_name = "BYTES", value_parser = size::parse, help_heading = "Verity")]
    pub(crate) fs_verity_block_size: Option<u64>,
}

/// Make hash trees for an image that exists, or for files in it
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant verity old.img --dm-verity old.verity
  extant verity old.img --dm-verity append --json | jq -r .dm_verity.root_hash
  extant verity old.img --fs-verity /usr/bin --fs-verity '*.so'

The trees are those that `extant mkfs` makes with these options.

With --fs-verity the image is changed through its journal, file by file: a crash leaves each with \
fs-verity or as it was, and the same command again goes on. Content, times, owners and attributes \
stay. Digests are told on standard output, as `fsverity digest` has them.

With --dm-verity the whole file system is read, and not changed. It has to be closed: what a journal \
still has is put in place first (extant replay), and what is written to the image afterwards no \
longer agrees with the tree. The tree is written first, and its superblock when the tree is durable; \
a file of its own appears when it is complete.

With both, files are protected first.")]
pub(crate) struct SealImage {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    #[command(flatten)]
    pub(crate) dm: DmVerity,
    #[command(flatten)]
    pub(crate) fs: FsVerity,
    /// Write the tree over anything that is in its place
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Say nothing about what was made
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Say what was made as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads; one per processor if not given
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_threads,
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) threads: usize,
}
