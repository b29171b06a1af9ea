//! The command line of `extant apply`.

use super::Owners;
use super::threads::Threads;
use clap::Args as ClapArgs;
use std::ffi::OsString;

/// Put layers onto an image that exists
#[derive(Debug, ClapArgs)]
#[command(override_usage = "extant apply [OPTIONS] <LAYER>... <IMAGE>")]
#[command(after_help = "\
Examples:
  extant apply update.tar.zst rootfs.img
  extant apply --dry-run oci:./layout:v1 rootfs.img
  docker save app | extant apply - rootfs.img
  extant apply ./overlay rootfs.img --root /srv --owner 0:0
  extant apply old.img:/srv rootfs.img --root /srv

A LAYER is what `extant mkfs --from` takes: a directory, a tar archive (plain or compressed), `-` \
for one on standard input, another image of a file system or a directory in one, or a container \
image (an OCI layout, an archive of one, what `docker save` writes), whose layers are applied one \
after the other. Digests are compared. Whiteouts take \
away what the image and the layers before have; everything else joins a directory that is there, or \
takes the place of what had its name.

All layers are read before anything is written. What is new is made in a directory of its own, \
`.extant-apply`, and put in its place by renaming once all of it is complete. If anything fails \
before, such as for want of space, that directory is removed and the files of the image are as they \
were. After a crash the file system is consistent, and each name stands for its old file or for its \
new one; the same command again finishes the work.")]
pub(crate) struct Apply {
    /// Layers from the lowest, and at last the image
    #[arg(required = true, num_args = 1.., value_names = ["LAYER", "IMAGE"])]
    pub(crate) paths: Vec<OsString>,
    /// The directory of the image that is the root of the layers; symbolic links in it lead nowhere
    /// outside
    #[arg(long, value_name = "/PATH", default_value = "/")]
    pub(crate) root: OsString,
    /// What becomes of whiteouts (`.wh.NAME`, `.wh..wh..opq`): apply, overlay or refuse
    ///
    /// `apply` takes away what they name. `overlay` does so, too, and writes them as overlayfs has
    /// them: character devices 0:0 and `trusted.overlay.opaque`.
    #[arg(long, value_name = "HOW", default_value = "apply")]
    pub(crate) whiteouts: String,
    /// Which image of an index: linux/amd64, linux/arm/v7
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub(crate) platform: Option<String>,
    /// Leave out what matches (`*.o`, `/var/cache`, `**/tmp/`); may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// Make everything that the layers bring belong to this user and group
    #[arg(long, value_name = "UID[:GID]")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) owners: Owners,
    /// Say what would be done, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Say nothing about what was done
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Say what was done as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) threads: Threads,
}
