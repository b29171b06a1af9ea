//! The command line of `quota`.

use crate::size;
use crate::time::parse_span;
use clap::{ArgGroup, Args as ClapArgs};
use std::ffi::OsString;
use std::time::Duration;

/// Show and set what users, groups and projects use and may use, where the image counts it
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("limits").args(["space_soft", "space_hard", "inode_soft", "inode_hard"]).multiple(true).requires("id"))]
#[command(group = ArgGroup::new("graces").args(["space_grace", "inode_grace"]).multiple(true).conflicts_with_all(["limits", "id"]))]
#[command(after_help = "\
Examples:
  extant quota rootfs.img
  extant quota rootfs.img --user --id 1000
  extant quota rootfs.img --user --id 1000 --space-soft 900M --space-hard 1G
  extant quota rootfs.img --project --id 42 --inode-hard 0
  extant quota rootfs.img --user --group --space-grace 3d
  extant quota --json rootfs.img | jq '.project.entries[] | select(.space > .space_soft)'

What is shown is what the image says: `extant check` compares it with what is in use, `extant df --by owner`
counts anew. Space is in bytes with --json. Images count if they have the feature quota, projects with the
feature project too. With none of --user, --group and --project, all kinds are shown that the image counts.
Limits that are not named stay as they are, and 0 takes a limit away. Who writes to the image is held to them
where it is mounted with -o usrquota, grpquota or prjquota. `extant chattr -p` gives files to projects.")]
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
    /// Set how much space may be exceeded for some time only
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) space_soft: Option<u64>,
    /// Set how much space may not be exceeded
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) space_hard: Option<u64>,
    /// Set how many inodes may be exceeded for some time only
    #[arg(long, value_name = "N")]
    pub(crate) inode_soft: Option<u64>,
    /// Set how many inodes may not be exceeded
    #[arg(long, value_name = "N")]
    pub(crate) inode_hard: Option<u64>,
    /// Set for how long soft limits of space may be exceeded, of all of a kind: 3600, 90m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) space_grace: Option<Duration>,
    /// The same for inodes
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) inode_grace: Option<Duration>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Quota {
    /// Whether limits or times of grace are to be set.
    pub(crate) fn changes_something(&self) -> bool {
        self.sets_limits() || self.space_grace.is_some() || self.inode_grace.is_some()
    }

    pub(crate) fn sets_limits(&self) -> bool {
        let all = [
            self.space_soft,
            self.space_hard,
            self.inode_soft,
            self.inode_hard,
        ];
        all.iter().any(Option::is_some)
    }
}
