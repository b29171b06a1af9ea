//! Arguments of `revert`, and which commands it takes back.

use super::{Args, Command};
use crate::failure::{Failure, Outcome};
use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

/// Take changes back, with the undo file that --undo kept
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant rm -rf --undo cleaned.undo rootfs.img:/var/cache
  extant revert cleaned.undo rootfs.img
  extant chown -R 0:0 --undo owned.undo rootfs.img:/srv
  extant revert --json owned.undo rootfs.img

Each byte becomes what it was before the command, also where that was killed. The file of an image \
that `extant resize` made longer stays so: what is past its file system is zeros.

The undo file is read as a whole first. An image that was changed since, and another image, are \
refused and stay as they are; of an undo file whose command was cut off, the superblock alone tells \
that.

What is cut off can be run again, as often as needed. Until it has come to its end, the image is \
marked: Linux does not mount it, and nothing here or of e2fsprogs repairs or changes it. Several \
commands are taken back in reverse order, each with its own undo file. The undo file stays.")]
pub(crate) struct Revert {
    /// The undo file
    #[arg(value_name = "UNDO")]
    pub(crate) file: PathBuf,
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Say what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

impl Args {
    /// Refuses to keep what was there for a command that changes no image, or makes one anew.
    pub(crate) fn refuse_meaningless_undo(&self) -> Outcome {
        let is_final = matches!(
            self.command,
            Command::Mkfs(_) | Command::Convert(_) | Command::Revert(_)
        );
        let writes = match &self.command {
            Command::Cp(args) => args.is_into_image(),
            // A tree in a file of its own leaves the image as it is.
            Command::Verity(args) => args.dm.dm_verity.as_ref().is_none_or(|to| to == "append"),
            command => command.writes() && !is_final,
        };
        if self.location.undo.is_none() || writes {
            return Ok(());
        }
        Err(Failure::usage(
            "--undo is for commands that change what is in an image and can be taken back, which this one is not",
        ))
    }
}
