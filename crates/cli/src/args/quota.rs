//! The command line of `quota`.

use crate::size;
use crate::time::parse_span;
use clap::{ArgGroup, Args as ClapArgs};
use std::ffi::OsString;
use std::time::Duration;

/// Show and set what users, groups and projects use and may use
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

The figures are those that the image records: `extant check` compares them with what is in use, and \
`extant df --by owner` counts anew. With --json, space is in bytes.

An image counts if it has the feature quota; projects need the feature project too. Without \
--user, --group and --project, every kind that the image counts is shown. Limits that are not named \
stay as they are, and 0 takes a limit away. Limits hold where the image is mounted with -o \
usrquota, grpquota or prjquota. `extant chattr -p` gives files to projects.")]
pub(crate) struct Quota {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// The figures of users
    #[arg(short, long)]
    pub(crate) user: bool,
    /// The figures of groups
    #[arg(short, long)]
    pub(crate) group: bool,
    /// The figures of projects
    #[arg(short, long)]
    pub(crate) project: bool,
    /// Only those of this number
    #[arg(long, value_name = "N")]
    pub(crate) id: Option<u32>,
    /// Set the limit of space that may be exceeded for some time only
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) space_soft: Option<u64>,
    /// Set the limit of space that may not be exceeded
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) space_hard: Option<u64>,
    /// Set the number of inodes that may be exceeded for some time only
    #[arg(long, value_name = "N")]
    pub(crate) inode_soft: Option<u64>,
    /// Set the number of inodes that may not be exceeded
    #[arg(long, value_name = "N")]
    pub(crate) inode_hard: Option<u64>,
    /// Set for how long the soft limits of space of a kind may be exceeded: 3600, 90m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) space_grace: Option<Duration>,
    /// Set for how long the soft limits of inodes of a kind may be exceeded
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
