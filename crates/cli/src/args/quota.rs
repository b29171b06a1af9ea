//! The command line of `quota`.

use clap::Args as ClapArgs;
use std::ffi::OsString;

/// Show what users, groups and projects use and may use, where the image counts it
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant quota rootfs.img
  extant quota rootfs.img --user --id 1000
  extant quota --json rootfs.img | jq '.project.entries[] | select(.space > .space_soft)'

What is shown is what the image says: `extant check` compares it with what is in use, `extant df --by owner`
counts anew. Space is in bytes with --json. Images count if they have the feature quota, projects with the
feature project too. With none of --user, --group and --project, all kinds are shown that the image counts.")]
pub(crate) struct Quota {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Of users
    #[arg(short, long)]
    pub(crate) user: bool,
    /// Of groups
    #[arg(short, long)]
    pub(crate) group: bool,
    /// Of projects
    #[arg(short, long)]
    pub(crate) project: bool,
    /// Of this number only
    #[arg(long, value_name = "N")]
    pub(crate) id: Option<u32>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
