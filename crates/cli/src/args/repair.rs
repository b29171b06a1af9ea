//! Arguments of `repair`.

use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

/// Repair an image
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant repair --dry-run rootfs.img
  extant repair --undo rootfs.undo rootfs.img
  extant repair --revert rootfs.undo rootfs.img

Everything is found out first, without writing; then, unless it is a dry run, the undo file is written
and made durable, and then the image. No file that could be read is deleted: what has no name gets one in
lost+found, and of blocks that two files claim one gets a copy. What is not mended is named. Exit codes are
those of e2fsck: 0 nothing was wrong, 1 all was mended, 4 errors are left (or, in a dry run, were found), 8
the image cannot be repaired or written, 16 the command line makes no sense.")]
pub(crate) struct Repair {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Only show what would be done; with --verbose also every byte that would change
    #[arg(short = 'n', long, conflicts_with_all = ["undo", "revert"])]
    pub(crate) dry_run: bool,
    /// Keep what the changed blocks held in this new file
    #[arg(long, value_name = "FILE")]
    pub(crate) undo: Option<PathBuf>,
    /// Take a repair back with the undo file that it kept
    #[arg(long, value_name = "FILE", conflicts_with = "undo")]
    pub(crate) revert: Option<PathBuf>,
    /// Every block that changes, with the bytes before and after
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing, or with --json only the sums: the exit code tells
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
