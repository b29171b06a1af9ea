//! The command line of `extant sync`.

use super::threads::Threads;
use clap::Args as ClapArgs;
use std::ffi::OsString;

/// Make a directory like another one, into an image or out of one, by changing what differs
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant sync --dry-run ./rootfs rootfs.img:/srv
  extant sync ./rootfs rootfs.img:/srv
  extant sync --delete --exclude /tmp ./rootfs rootfs.img:/srv
  extant sync --checksum --json old.img:/etc rootfs.img:/etc | jq .made
  extant sync --delete rootfs.img:/srv ./srv

SRC is a directory of the host, or an image or a directory in one. What is in it comes to be in the \
directory of the image, which is made if it is not there: not SRC itself, whether or not a `/` is \
behind it. Owners, permissions, times, extended attributes, hard links and devices are kept, as cp -a \
keeps them; from an image flags of chattr and projects as well.

A file of the same size and time is taken for the same. One of the same size and another time is read \
on both sides, and gets the time alone if the content is the same. What has other owners, permissions, \
times or attributes only is not copied.

What is new is made in a directory of its own, `.extant-sync`, and put in its place by renaming once \
all of it is complete and durable. If anything fails before, that directory is removed and the files \
of the image are as they were. After a crash the file system is consistent, and each name stands for \
its old file or for its new one; the same command again finishes the work.

Out of an image, DIR is changed in the same way and the image is only read. No symbolic link below DIR \
is passed, and nothing is removed that another file system holds.")]
pub(crate) struct Sync {
    /// What it is made like: a directory of the host, IMAGE or IMAGE:/path
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// The directory that is changed: in an image, or of the host if SRC is in an image
    #[arg(value_name = "IMAGE:/path|DIR")]
    pub(crate) dest: OsString,
    /// Remove what SRC does not have
    #[arg(long)]
    pub(crate) delete: bool,
    /// Say what would be done, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Compare the content of all files, whatever their times are
    #[arg(short, long)]
    pub(crate) checksum: bool,
    /// Leave alone what matches, on either side (`*.o`, `/var/cache`, `**/tmp/`); may be given more
    /// than once
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// Say nothing about what was done
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Say what was done as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) threads: Threads,
}
