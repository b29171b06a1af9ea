//! The command line of `extant edit`, and the file system that its lines share.

use super::Whereabouts;
use crate::images::Identity;
use clap::Args as ClapArgs;
use extant::Filesystem;
use extant_image::ImageLocation;
use std::ffi::OsString;
use std::path::PathBuf;

/// Change an image by a script: all of it is done, or nothing
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant edit rootfs.img -e 'put -a ./app /srv/app' -e 'ln -sf /srv/app/run /usr/bin/run'
  extant edit rootfs.img -f changes
  printf 'expect exists /etc/fstab\\nrm -f /etc/machine-id\\n' | extant edit rootfs.img

A line of a script is a command as it is typed without `extant` and without IMAGE: in front of its \
paths: mkdir, mknod, rm, mv, ln, chmod, chown, touch, truncate, fallocate, xattr, acl, chattr, \
and these:
  label TEXT, uuid UUID\tGive the file system a label, a UUID (or random, clear), as `extant tune` does
  put [OPTIONS] SOURCE... /path\tCopy files of the host into the image, as cp does
  get [OPTIONS] /path... DEST\tCopy files out of it, at once
  tar-in [OPTIONS] ARCHIVE /dir\tPut an archive into a directory, as `extant tar -x` does
  apply [OPTIONS] LAYER...\tPut layers onto the image, as `extant apply` does
  write [OPTIONS] /path <<END\tThe lines up to END become the file's content; `<<< TEXT`: this text
  expect CONDITION\tFail, unless it holds
  if CONDITION, else, end\tWhat is between is done if it holds, or if not

CONDITION is exists, absent, size=BYTES, sha256=HEX or target=TEXT, and a path. Words are separated \
by spaces, quoted as in a shell ('...', \"...\", \\); # begins a comment. A line that begins with { is \
a JSON object: {\"do\": \"write\", \"args\": [\"/etc/hostname\"], \"input\": \"box\\n\"}.

Without -f and -e at a terminal, lines are typed at a prompt and each is run at once; `commit` puts all of them into \
the image, and `help` says what else there is. A line that fails changes nothing, and does not end it.

The script is read as a whole first. If a line fails, nothing is changed, and its number is told. \
Changes wait in memory, or in a temporary file (TMPDIR) where they are many, and reach the image in \
one transaction of its journal: a crash leaves all of them or nothing, for any program that looks next. Where there is no journal, or one that is too \
small, they go through free blocks: after a crash, `extant` finishes the work, and nothing else opens the image before.")]
pub(crate) struct Edit {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// The script; `-` is standard input, as is the default where that is no terminal
    #[arg(short, long, value_name = "SCRIPT", conflicts_with = "lines")]
    pub(crate) file: Option<PathBuf>,
    /// A line of the script; may be given more than once
    #[arg(short = 'e', long = "line", value_name = "LINE")]
    pub(crate) lines: Vec<OsString>,
    /// Do everything but change the image or, by `get`, the host
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// One JSON object for each line that is done, and one for the whole
    #[arg(long)]
    pub(crate) json: bool,
    /// At a terminal, neither read nor keep the lines that are typed, for the next time
    #[cfg(feature = "prompt")]
    #[arg(long, conflicts_with_all = ["file", "lines"])]
    pub(crate) no_history: bool,
}

/// A file system that several commands change together.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) image: ImageLocation,
    pub(crate) fs: Filesystem,
}

impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        self.image == other.image
    }
}

impl Eq for Session {}

impl Whereabouts {
    /// The file system of an image that is open already, if it is this one, whatever it is called.
    pub(crate) fn opened(&self, image: &ImageLocation) -> Option<Filesystem> {
        let session = self.session.as_ref()?;
        let is_it = session.image == *image
            || session.image.partition() == image.partition()
                && Identity::of(image).is_some_and(|id| Some(id) == Identity::of(&session.image));
        is_it.then(|| session.fs.clone())
    }
}
