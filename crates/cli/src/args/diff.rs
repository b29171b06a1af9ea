//! The command line of `extant diff`.

use super::threads::Threads;
use clap::{Args as ClapArgs, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Say what differs between two images, or an image and a directory
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant diff old.img new.img
  extant diff --brief --ignore times,owners old.img:/etc new.img:/etc
  extant diff --json --blocks old.img new.img | jq .path
  extant diff --oci-layer layer.tar.zst old.img new.img

A and B are images (IMAGE means its root), paths in them, directories or files of the host. Compared \
are names, kinds, content, permissions, owners, times of the last change, extended attributes (access \
control lists and capabilities among them), hard links, and numbers of devices; between images also \
projects and flags of chattr. A hole is the same as zeros.

Each line is one difference, with what A has before what B has:
  - PATH\tOnly in A, with all that is below it
  + PATH\tOnly in B, with all that is below it
  k PATH\tThe kind: file, directory, symlink, ...
  c PATH\tThe content: the sizes, or the first byte that differs
  s PATH\tWhere a symbolic link leads
  m PATH\tPermissions
  o PATH\tOwner and group
  t PATH\tThe time of the last change of the content
  x PATH\tAn extended attribute
  n PATH\tThe number of a device
  p PATH\tThe project
  f PATH\tFlags of chattr
  l PATH\tWhich earlier name stands for the same file
  b PATH\tBlocks (--blocks): first block+number of blocks
  g\tA field of the superblock (--blocks)

Exit codes:
  0\tThere is no difference, or the layer was written
  1\tThere are differences
  2\tSomething could not be compared, or the command line makes no sense")]
pub(crate) struct Diff {
    /// What is compared: IMAGE, IMAGE:/path, or a path of the host
    #[arg(value_name = "A")]
    pub(crate) first: OsString,
    /// What it is compared with
    #[arg(value_name = "B")]
    pub(crate) second: OsString,
    /// One line for each file, with the letters of all that differs
    #[arg(long, conflicts_with_all = ["json", "stat", "quiet"])]
    pub(crate) brief: bool,
    /// How much differs, and no names
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub(crate) stat: bool,
    /// Say nothing; the exit code tells
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// One JSON object per line, and a summary at last
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not compare these
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "only"
    )]
    pub(crate) ignore: Vec<Aspect>,
    /// Compare these alone, beside names and kinds
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) only: Vec<Aspect>,
    /// Leave out what matches on either side (`*.o`, `/var/cache`, `**/tmp/`); may be given more
    /// than once
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// Compare two images block by block, too: where content lies, and fields of the superblock
    #[arg(long)]
    pub(crate) blocks: bool,
    /// Write the difference as a layer that makes B of A: a tar archive with whiteouts, compressed
    /// as its name says (`.gz`, `.zst`); `-` is standard output
    ///
    /// B is an image, and the layer has what differs as B has it: whole files, with owners, times,
    /// extended attributes and hard links. Flags of chattr, projects and layout have no place in
    /// it. `extant apply` puts it onto A, as do programs for containers.
    #[arg(
        long,
        value_name = "OUT",
        conflicts_with_all = ["json", "brief", "stat", "quiet", "ignore", "only", "blocks"]
    )]
    pub(crate) oci_layer: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

/// What can be compared or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Aspect {
    /// Content, and targets of symbolic links
    Content,
    /// Permissions
    Modes,
    /// Owners and groups
    Owners,
    /// Times of the last change
    Times,
    /// Extended attributes
    Xattrs,
    /// Hard links
    Links,
    /// Numbers of devices
    Devices,
    /// Projects
    Projects,
    /// Flags of chattr
    Flags,
}
