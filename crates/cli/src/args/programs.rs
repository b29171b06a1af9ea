//! The command lines of what sets other programs up: shells, `man`, links of e2fsprogs.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Write a completion script for a shell
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant completions bash > /etc/bash_completion.d/extant
  extant completions fish > ~/.config/fish/completions/extant.fish")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Make links by which this program is called as mke2fs, e2fsck and others of e2fsprogs
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant links /usr/libexec/extant

With the directory first in PATH, scripts and image builders that call mkfs.ext4 and its relatives \
use this program. What is in the directory and is no such link is left as it is.")]
pub(crate) struct Links {
    /// The directory for the links, which exists
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// What the links name, as it is; by default this program where it lies now
    #[arg(long, value_name = "PATH")]
    pub(crate) target: Option<PathBuf>,
}

/// Write the manual pages
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant man | man -l -
  extant man --dir /usr/share/man/man1")]
pub(crate) struct Man {
    /// Write one page per command into this directory in place of the main page to standard output
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
