//! The command line of commands about extended attributes, access control lists and file flags.

use clap::{Args as ClapArgs, Subcommand};
use std::ffi::OsString;

/// Show and change extended attributes in an image
#[derive(Debug, ClapArgs)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  extant xattr ls rootfs.img:/bin/ping
  extant xattr get rootfs.img:/bin/ping security.capability | xxd
  extant xattr set rootfs.img:/srv user.origin https://example.org
  extant xattr rm rootfs.img:/srv user.origin

Names are full names (user.origin). Symbolic links are followed unless --no-dereference is given.")]
pub(crate) struct Xattr {
    #[command(subcommand)]
    pub(crate) what: XattrDo,
    /// Symbolic links themselves, not what they point to
    #[arg(long, global = true)]
    pub(crate) no_dereference: bool,
    /// Tell what was changed, a line for each file
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum XattrDo {
    /// List the names of attributes
    #[command(after_help = "\
Examples:
  extant xattr ls rootfs.img:/bin/ping
  extant xattr ls -l rootfs.img:/bin/ping")]
    Ls {
        /// The file
        #[arg(value_name = "IMAGE:/path")]
        path: OsString,
        /// With values, as text or in hexadecimal
        #[arg(short = 'l', long)]
        values: bool,
    },
    /// Write the value of an attribute to standard output, as it is
    #[command(after_help = "\
Examples:
  extant xattr get rootfs.img:/bin/ping security.capability | xxd")]
    Get {
        /// The file
        #[arg(value_name = "IMAGE:/path")]
        path: OsString,
        /// The full name
        #[arg(value_name = "NAME")]
        name: OsString,
    },
    /// Give an attribute a value
    #[command(after_help = "\
Examples:
  extant xattr set rootfs.img:/srv user.origin https://example.org
  extant xattr set --replace rootfs.img:/srv user.origin 0x00ff")]
    Set {
        /// The file
        #[arg(value_name = "IMAGE:/path")]
        path: OsString,
        /// The full name
        #[arg(value_name = "NAME")]
        name: OsString,
        /// The value: text, 0x and hexadecimal digits, or `-` for standard input
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: OsString,
        /// Only if it does not exist
        #[arg(long, conflicts_with = "replace")]
        create: bool,
        /// Only if it exists
        #[arg(long)]
        replace: bool,
    },
    /// Remove an attribute
    #[command(after_help = "\
Examples:
  extant xattr set rootfs.img:/srv user.origin here
  extant xattr rm rootfs.img:/srv user.origin")]
    Rm {
        /// The file
        #[arg(value_name = "IMAGE:/path")]
        path: OsString,
        /// The full name
        #[arg(value_name = "NAME")]
        name: OsString,
    },
}

/// Show and change access control lists in an image
#[derive(Debug, ClapArgs)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  extant acl get rootfs.img:/srv
  extant acl set u:1000:rwx,g:adm:r-x rootfs.img:/srv
  extant acl set -d u:1000:rwx rootfs.img:/srv
  extant acl rm rootfs.img:/srv

Entries are those of setfacl(1): u:USER:rwx, g:GROUP:rwx, u::rwx, g::rwx, m::rwx, o::rwx, \
separated by commas. Names are looked up in the image. Unless the mask is given, it becomes the \
union of the entries that it covers. Symbolic links are followed.")]
pub(crate) struct AclArgs {
    #[command(subcommand)]
    pub(crate) what: AclDo,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AclDo {
    /// Show lists, as `getfacl -n` does
    #[command(after_help = "\
Examples:
  extant acl get rootfs.img:/srv")]
    Get {
        /// The files
        #[arg(required = true, value_name = "IMAGE:/path")]
        paths: Vec<OsString>,
    },
    /// Change entries, or add them
    #[command(after_help = "\
Examples:
  extant acl set u:1000:rwx,g:adm:r-x rootfs.img:/srv
  extant acl set -d u:1000:rwx rootfs.img:/srv")]
    Set {
        /// The entries
        #[arg(value_name = "ENTRIES")]
        entries: String,
        /// The files
        #[arg(required = true, value_name = "IMAGE:/path")]
        paths: Vec<OsString>,
        /// The default list, which directories hand to new files in them
        #[arg(short, long)]
        default: bool,
    },
    /// Remove the list
    #[command(after_help = "\
Examples:
  extant acl rm rootfs.img:/srv")]
    Rm {
        /// The files
        #[arg(required = true, value_name = "IMAGE:/path")]
        paths: Vec<OsString>,
        /// The default list, which directories hand to new files in them
        #[arg(short, long)]
        default: bool,
    },
}

/// Change file flags in an image
#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "extant chattr [OPTIONS] <+-=LETTERS> <IMAGE:/path>...
       extant chattr [OPTIONS] --project <N> [+-=LETTERS] <IMAGE:/path>..."
)]
#[command(after_help = "\
Examples:
  extant chattr +i rootfs.img:/etc/resolv.conf
  extant chattr -R =d rootfs.img:/var/cache
  extant chattr -R -p 42 +P rootfs.img:/srv/customer

Letters (those of chattr(1)):
  a\tAppend only
  i\tImmutable
  A\tNo access times
  S, D\tSynchronous changes; of a directory's names
  P\tThe project is inherited
  T\tTop of a directory hierarchy
  d\tNo dump
  e\tExtents; -e changes them into a map of indirect blocks, as ext3 has it, and = leaves them

Other letters are only stored. Immutable and append-only files refuse changes here as they do under \
Linux. Symbolic links are followed; with -R, those found on the way are left alone.")]
pub(crate) struct Chattr {
    /// Letters to add (+), to remove (-), or to set in place of all others (=)
    #[arg(value_name = "+-=LETTERS", allow_hyphen_values = true)]
    pub(crate) change: OsString,
    /// The files
    #[arg(required_unless_present = "project", value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Give the files to this project
    #[arg(short, long, value_name = "N")]
    pub(crate) project: Option<u32>,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// List file flags in an image
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant lsattr rootfs.img:/etc
  extant lsattr -d rootfs.img:/etc
  extant lsattr -Rp rootfs.img:/srv")]
pub(crate) struct Lsattr {
    /// Files, or directories whose files are listed
    #[arg(required = true, value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Directories themselves
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// Everything below directories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// With the project in front
    #[arg(short, long)]
    pub(crate) project: bool,
}
