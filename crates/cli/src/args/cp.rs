//! The command line of `cp`.

use super::Owners;
use super::threads::Threads;
use crate::image_path::ImagePath;
use clap::Args as ClapArgs;
use std::ffi::OsString;

/// Copy files out of images, into them, and between them
#[derive(Debug, ClapArgs)]
#[command(override_usage = "\
extant cp [OPTIONS] <SOURCE>... <DEST>
       extant cp [OPTIONS] -t <DIR> <SOURCE>...")]
#[command(after_help = "\
Examples:
  extant cp rootfs.img:/etc/hostname .
  extant cp -a rootfs.img:/usr/share ./share
  extant cp hostname resolv.conf rootfs.img:/etc/
  extant cp -a --owner 0:0 ./overlay/. rootfs.img:/
  extant cp -a old.img:/home new.img:/
  extant cp -a ./overlay/. rootfs.img:/ --owners table --contexts file_contexts
  extant cp -a --verify rootfs.img:/usr/bin ./bin
  extant cp -a --mend --partial bad.img:/home ./saved
  extant cp -ru --exclude '*.o' ./tree rootfs.img:/srv
  extant cp 'rootfs.img:/etc/host*' -t ./overlay
  echo myhost | extant cp - rootfs.img:/etc/hostname
  extant cp rootfs.img:/etc/hostname - | cat

SOURCE and DEST are files of the host or IMAGE:/path; at least one of them is in an image. `-` is \
standard input as SOURCE, and standard output as DEST. When DEST is outside, a SOURCE that is IMAGE \
alone means its root.

If DEST exists, a directory goes into it under its own name; otherwise the directory becomes DEST. \
The root of an image, and a SOURCE that ends in `/.`, goes into DEST itself. Holes stay holes.

A file that exists is replaced once the new one is complete, and stays if anything fails before. \
Without -a or -p, it keeps its owner, permissions and attributes. What does not fit into an image is \
refused before anything is made.

Out of an image, nothing is ever written outside DEST, whatever links the image holds. Content comes \
first: a file is copied even if its owner, mode, times, attributes or lists cannot all be set; what \
it lacks is said, and the exit code is 1. Without its owner and group a file gets no set-ID bits. \
Only root can keep owners and make device nodes; for other users a note says so, and that is no \
failure. Owners that `fakeroot` or `pseudo` pretend are honoured in both directions. A file of which \
a part cannot be read is named, with its bytes and the reason, and left out; the others are copied.

Into an image, no privilege is needed. Without -a or -p, new files belong to root and have the \
permissions of the source (no umask applies), and symbolic links in DEST are followed. With -a, everything in the way but directories is replaced.

With -a, tables say who owns what is put into an image and how it is labelled, as for `extant mkfs`. \
Their paths are those in the image, and only what is copied changes; what a table makes where it is \
missing is made.")]
pub(crate) struct Cp {
    /// Files to copy, and at last the destination
    #[arg(required = true, num_args = 1.., value_names = ["SOURCE", "DEST"])]
    pub(crate) paths: Vec<OsString>,
    /// Keep everything: modes, owners, times, extended attributes, links, devices (implies -r)
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Copy directories with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Keep modes, owners and times
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// DEST is the name to give, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub(crate) no_target_directory: bool,
    /// Copy all of SOURCE... into this directory
    #[arg(short, long, value_name = "DIR")]
    pub(crate) target_directory: Option<OsString>,
    /// Copy a file only if it is newer than the one that is there, or none is there
    #[arg(short, long, conflicts_with = "no_clobber")]
    pub(crate) update: bool,
    /// Replace no file that is there; that is no failure
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Remove a file that is there before the new one is made: for images with no room for both
    #[arg(long, conflicts_with_all = ["update", "no_clobber"])]
    pub(crate) remove_destination: bool,
    /// Follow all symbolic links in SOURCE
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "dereference_named"])]
    pub(crate) dereference: bool,
    /// Follow no symbolic link in SOURCE: the default with -r and -a
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "dereference_named"])]
    pub(crate) no_dereference: bool,
    /// Follow a SOURCE that is a symbolic link, and no other: the default without -r and -a
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    pub(crate) dereference_named: bool,
    /// Leave out what matches (`*.o`, `/cache`, `**/tmp/`), as for `extant mkfs`; may be given more
    /// than once
    ///
    /// A pattern without `/` matches a name at any depth, that of a SOURCE too. With one, it is
    /// about names from SOURCE on.
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<OsString>,
    /// Tell what was copied, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Make what is put into an image belong to this user and group, by number or by a name that
    /// the image knows
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) owner: Option<String>,
    /// Make what is put into an image belong to this group
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Change the permissions of what is put into an image, in octal or as for chmod
    /// (`u=rwX,go=rX`); symbolic links have none
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
    /// Out of an image, compare files that fs-verity protects with their hashes first; one that
    /// differs is not copied
    #[arg(long)]
    pub(crate) verify: bool,
    /// Out of an image, copy also files of which a part cannot be read, with zeros there; they are
    /// named
    #[arg(long)]
    pub(crate) partial: bool,
    /// Out of images, say what was copied and what was not as one JSON object
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,
    /// With -a, leave out extended attributes and access control lists
    #[arg(long)]
    pub(crate) no_xattrs: bool,
    #[command(flatten)]
    pub(crate) owners: Owners,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

impl Cp {
    /// Where to, and what: the last operand, if no directory is named, and the others.
    pub(crate) fn dest_and_sources(&self) -> Option<(&OsString, &[OsString])> {
        match (&self.target_directory, self.paths.split_last()) {
            (Some(dir), Some(_)) => Some((dir, &self.paths)),
            (None, Some((dest, sources))) if !sources.is_empty() => Some((dest, sources)),
            _ => None,
        }
    }

    /// Whether it changes an image.
    pub(crate) fn is_into_image(&self) -> bool {
        self.dest_and_sources()
            .is_some_and(|(dest, _)| matches!(ImagePath::inside_if_any(dest), Ok(Some(_))))
    }
}
