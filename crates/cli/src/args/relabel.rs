//! The command line of `extant relabel`.

use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

/// Label files in an image for SELinux
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant relabel rootfs.img --contexts file_contexts
  extant relabel rootfs.img:/etc rootfs.img:/usr/bin --contexts file_contexts

Each file gets the context that `setfiles` would give it, by its path in the image and its type. \
Files whose context is right already are not written to.")]
pub(crate) struct Relabel {
    /// Images, or files and directories in them with all that is below
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// A policy's `file_contexts`, with what lies beside it (`.subs`, `.subs_dist`, `.local`,
    /// `.homedirs`)
    #[arg(long, value_name = "FILE")]
    pub(crate) contexts: PathBuf,
    /// Where the file system will be mounted (`/system`): the contexts name files by their paths
    /// there
    #[arg(long, value_name = "/PATH")]
    pub(crate) mount_point: Option<OsString>,
}
