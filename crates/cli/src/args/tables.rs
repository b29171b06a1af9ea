//! Options of `extant mkfs` about what is put beside the source, and about owners, devices and
//! labels.

use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

const HEADING: &str = "Owners, devices and labels";

/// What is put beside the source, and who owns what.
#[derive(Debug, Clone, Default, PartialEq, ClapArgs)]
pub(crate) struct Tables {
    /// Put a file or a directory of the host at a path (`boot.conf=/boot/`, `./site=/srv/www`). May
    /// be given more than once
    ///
    /// A directory joins one that is there, and a file takes the place of one. With a slash at the
    /// end of the path, a file goes into that directory.
    #[arg(long, value_name = "HOST=/PATH", help_heading = HEADING)]
    pub(crate) add: Vec<OsString>,
    /// Put a small file with this text at a path; a line feed ends it (`/etc/hostname=box`). May be
    /// given more than once
    #[arg(long, value_name = "/PATH=TEXT", help_heading = HEADING)]
    pub(crate) write: Vec<OsString>,
    #[command(flatten)]
    pub(crate) owners: Owners,
}

/// Who owns what is put into an image, and what it is labelled as.
#[derive(Debug, Clone, Default, PartialEq, ClapArgs)]
pub(crate) struct Owners {
    /// Change the numbers of owners: COUNT from FROM on become those from TO on; `u:` or `g:` in
    /// front for users or groups alone. May be given more than once
    ///
    /// An owner in no range is an error. Access control lists are changed, too.
    #[arg(
        long,
        value_name = "[u:|g:]FROM:TO:COUNT",
        conflicts_with = "owner",
        help_heading = HEADING
    )]
    pub(crate) map_ids: Vec<String>,
    /// Take owners, permissions, capabilities and devices from a table. May be given more than once
    ///
    /// KIND is one of extant (PATTERN OWNER MODE), genext2fs, makedevs, fs_config (Android), mtree.
    /// Without it the lines say it, and a table that could be of two kinds is refused.
    #[arg(long, value_name = "[KIND:]TABLE", help_heading = HEADING)]
    pub(crate) owners: Vec<OsString>,
    /// Label files for SELinux by a policy's `file_contexts`, with what lies beside it (`.subs`,
    /// `.subs_dist`, `.local`, `.homedirs`)
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub(crate) contexts: Option<PathBuf>,
    /// Where the file system will be mounted (`/system`): tables and contexts name files by their
    /// paths there
    ///
    /// Lines about places outside of it are passed over. e2fsdroid has `-a` for it.
    #[arg(long, value_name = "/PATH", help_heading = HEADING)]
    pub(crate) mount_point: Option<OsString>,
}

impl Owners {
    /// Whether nothing is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            map_ids,
            owners,
            contexts,
            mount_point: _,
        } = self;
        map_ids.is_empty() && owners.is_empty() && contexts.is_none()
    }
}

impl Tables {
    /// Whether nothing is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { add, write, owners } = self;
        add.is_empty() && write.is_empty() && owners.is_empty()
    }
}
