//! The command line: every command, its options and its help. Those that change images are in
//! `change`.

mod apply;
mod attributes;
mod built;
mod change;
mod convert;
mod cp;
mod diff;
mod edit;
mod format;
mod line;
mod looking;
mod mount;
mod place;
mod programs;
mod quota;
mod relabel;
mod repair;
#[cfg(test)]
mod requirements;
mod rescue;
mod revert;
mod serve;
mod sources;
mod sync;
mod tables;
mod tar;
mod threads;
mod verity;

pub(crate) use apply::Apply;
pub(crate) use attributes::{AclArgs, AclDo, Chattr, Lsattr, Xattr, XattrDo};
pub(crate) use change::{
    Chmod, Chown, Fallocate, Ln, Mkdir, Mknod, Mv, NewOwner, Replay, Rm, Touch, Truncate, Write,
};
pub(crate) use convert::Convert;
pub(crate) use cp::Cp;
pub(crate) use diff::{Aspect, Diff};
pub(crate) use edit::{Edit, Session};
pub(crate) use format::SaidFormat;
pub(crate) use line::read;
pub(crate) use looking::{Algorithm, Cat, Cmp, Digest, Du, Find, Grep, Ls, Stat, Tree, When};
pub(crate) use mount::{Mount, Stats, Umount};
pub(crate) use place::{SuperblockAt, Whereabouts};
pub(crate) use programs::{Completions, Links, Man};
pub(crate) use quota::Quota;
pub(crate) use relabel::Relabel;
pub(crate) use repair::{ErrorsDo, Repair, Resize, Trim, Tune};
pub(crate) use rescue::{Deleted, Log, Recover};
pub(crate) use revert::Revert;
pub(crate) use serve::{NbdAt, Serve};
pub(crate) use sources::Sources;
pub(crate) use sync::Sync;
pub(crate) use tables::{Owners, Tables};
pub(crate) use tar::Tar;
pub(crate) use verity::{DmVerity, FsVerity, SealImage, Verity};

use crate::failure::{Failure, Outcome};
use crate::size;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Make, change and look into ext4 file system images, without root and without a mount
#[derive(Debug, Parser)]
#[command(
    name = "extant",
    version,
    long_version = built::TEXT,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  extant mkfs rootfs.img --from ./rootfs --size auto
  extant ls -l rootfs.img:/etc
  extant cp hostname rootfs.img:/etc/
  extant cp -a rootfs.img:/usr/share ./share
  extant ls --image-format raw of-a-guest.img#1:/etc

IMAGE:/path names a file inside an image; IMAGE alone means its root. An image is a file, a block \
device, or an address: nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH, https://HOST/FILE, \
s3://BUCKET/KEY, gs://, az://, fd:N. IMAGE#2 is partition 2 of a disk, IMAGE#root the one with this \
label; --partition or --offset chooses one for all images of a command. What an image is (raw, \
qcow2, VHD, ...) is seen, or said with --image-format: of a raw disk that a guest has written to, \
say raw.

`extant COMMAND --help` explains a command. `extant man` writes manual pages.

Exit codes (check, repair, tune and resize have their own):
  0\tEverything asked for was done
  1\tSomething failed
  2\tThe command line makes no sense"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) location: Whereabouts,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Whether `--mend` could help the command, and was not given.
    pub(crate) fn may_mend(&self) -> bool {
        let reads = match &self.command {
            Command::Cp(args) => !args.is_into_image(),
            command => !command.writes(),
        };
        reads && !self.location.mend
    }

    /// Refuses to be told where a file system is for a command that opens none.
    pub(crate) fn refuse_meaningless_location(&self) -> Outcome {
        let name = match self.command {
            Command::Umount(_) => "umount",
            Command::Stats(_) => "stats",
            Command::Completions(_) => "completions",
            Command::Links(_) => "links",
            Command::Man(_) => "man",
            _ => return Ok(()),
        };
        if self.location == Whereabouts::default() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "`extant {name}` opens no image: --partition, --offset, --superblock, --as-is, --mend, \
             --journal, --image-format and --undo mean nothing to it"
        )))
    }
}

impl Command {
    /// Whether it writes to images by itself, as opposed to programs that use a mount.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Self::Tar(args) if !args.extract)
            && !matches!(
                self,
                Self::Ls(_)
                    | Self::Tree(_)
                    | Self::Cat(_)
                    | Self::Stat(_)
                    | Self::Diff(_)
                    | Self::Du(_)
                    | Self::Cmp(_)
                    | Self::Digest(_)
                    | Self::Grep(_)
                    | Self::Info(_)
                    | Self::Df(_)
                    | Self::Map(_)
                    | Self::Check(_)
                    | Self::Log(_)
                    | Self::Deleted(_)
                    | Self::Recover(_)
                    | Self::Lsattr(_)
                    | Self::Mount(_)
                    | Self::Umount(_)
                    | Self::Stats(_)
                    | Self::Serve(_)
                    | Self::Completions(_)
                    | Self::Links(_)
                    | Self::Man(_)
            )
    }
}

/// Declares the commands: their names, and what they take.
macro_rules! commands {
    ($($name:literal $variant:ident($args:ty),)+) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($variant($args),)+
        }

        impl Command {
            /// The name of a command, and its command line without all others.
            fn alone(name: &OsStr) -> Option<(&'static str, clap::Command)> {
                $(if name == $name {
                    let command = clap::Command::new($name);
                    return Some(($name, <$args as ClapArgs>::augment_args(command)));
                })+
                None
            }
        }
    };
}

commands! {
    "mkfs" Mkfs(Box<Mkfs>),
    "convert" Convert(Box<Convert>),
    "ls" Ls(Ls),
    "tree" Tree(Tree),
    "cat" Cat(Cat),
    "stat" Stat(Stat),
    "find" Find(Box<Find>),
    "diff" Diff(Box<Diff>),
    "grep" Grep(Box<Grep>),
    "du" Du(Du),
    "digest" Digest(Digest),
    "cmp" Cmp(Cmp),
    "cp" Cp(Box<Cp>),
    "apply" Apply(Box<Apply>),
    "sync" Sync(Box<Sync>),
    "tar" Tar(Tar),
    "info" Info(Info),
    "df" Df(Df),
    "quota" Quota(Quota),
    "map" Map(Map),
    "check" Check(Check),
    "repair" Repair(Repair),
    "revert" Revert(Revert),
    "tune" Tune(Box<Tune>),
    "resize" Resize(Resize),
    "trim" Trim(Trim),
    "verity" Verity(SealImage),
    "log" Log(Log),
    "deleted" Deleted(Deleted),
    "recover" Recover(Recover),
    "mkdir" Mkdir(Mkdir),
    "mknod" Mknod(Mknod),
    "rm" Rm(Rm),
    "mv" Mv(Mv),
    "ln" Ln(Ln),
    "chmod" Chmod(Chmod),
    "chown" Chown(Chown),
    "relabel" Relabel(Relabel),
    "touch" Touch(Touch),
    "truncate" Truncate(Truncate),
    "fallocate" Fallocate(Fallocate),
    "write" Write(Write),
    "edit" Edit(Edit),
    "xattr" Xattr(Xattr),
    "acl" Acl(AclArgs),
    "chattr" Chattr(Chattr),
    "lsattr" Lsattr(Lsattr),
    "replay" Replay(Replay),
    "mount" Mount(Mount),
    "umount" Umount(Umount),
    "stats" Stats(Stats),
    "serve" Serve(Box<Serve>),
    "completions" Completions(Completions),
    "links" Links(Links),
    "man" Man(Man),
}

/// Make an ext4 image, empty or from directories, tar archives and container images
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "\
Examples:
  extant mkfs rootfs.img --from ./rootfs --size auto
  docker export c1 | extant mkfs rootfs.img --from -
  docker save app | extant mkfs app.img --from - --config-out app.json
  extant mkfs rootfs.img --from oci:./layout:v1 --from ./overlay
  extant mkfs empty.img --size 16G --label data
  SOURCE_DATE_EPOCH=0 extant mkfs rootfs.img --from rootfs.tar.zst --owner 0:0
  extant mkfs rootfs.img --from ./rootfs --owners table --contexts file_contexts
  extant mkfs rootfs.img --from ./rootfs --add ./overlay=/ --write /etc/hostname=box
  extant mkfs disk.qcow2 --from ./rootfs --size 4G
  extant mkfs rootfs.img --from ./rootfs --dm-verity append --json | jq -r .dm_verity.root_hash
  extant mkfs rootfs.img --from ./rootfs --fs-verity /usr/bin --fs-verity '*.so'

An image appears under its name only when it is complete. An image inside DIR is left out of \
itself. With SOURCE_DATE_EPOCH set, the same input gives the same bytes; that holds for every \
command that changes images.")]
pub(crate) struct Mkfs {
    /// The image to make: a file, which appears when it is complete, or a block device
    ///
    /// Images that `extant mkfs` made are replaced, and so are empty files and zeros. Anything else
    /// (a disk with partitions, another file system, an archive, a text) is named, and you are
    /// asked. Without a terminal it is left alone, unless --force is given. An image in use
    /// (mounted, locked by a virtual machine, behind a loop device) is never replaced.
    pub(crate) image: PathBuf,
    /// Replace what is there, whatever it is, unless it is in use
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What the file of the image is: raw, qcow2, vhd, vhd-fixed, simg (Android sparse), vmdk
    /// (flat, in two files) or caibx (in chunks, as casync makes them)
    ///
    /// By default the extension of its name says it (`.qcow2`, `.vhd`, `.simg`, `.vmdk`, `.caibx`),
    /// and others mean raw. Chunks are put into the directory that EXTANT_CHUNK_STORE names, or
    /// into `default.castr` beside the image.
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    #[command(flatten)]
    pub(crate) plan: Plan,
    #[command(flatten)]
    pub(crate) verity: Verity,
    /// Write the configuration of the container image to this file, as JSON: entry point,
    /// environment, user
    #[arg(long, value_name = "FILE", requires = "from")]
    pub(crate) config_out: Option<PathBuf>,
    /// Say nothing about what was made
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Say what was made as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A file system to be made: its size, what fills it, its format, its identity.
#[derive(Debug, Clone, Default, PartialEq, ClapArgs)]
pub(crate) struct Plan {
    /// Size of the file system (64M, 10G), or `auto` for the smallest that holds the source and the
    /// headroom
    ///
    /// With a source the default is `auto`. Without one, and within a partition or behind an
    /// offset, the default is all the room there is.
    #[arg(long, value_name = "SIZE|auto")]
    pub(crate) size: Option<String>,
    /// With `--size auto`, free space beside what the source needs and the reserved share; 0 makes
    /// the smallest image
    ///
    /// By default there is room for small changes: 5 % of what the source takes, and at least 1
    /// MiB.
    #[arg(long, value_name = "SIZE|N%")]
    pub(crate) headroom: Option<String>,
    #[command(flatten)]
    pub(crate) sources: Sources,
    /// Leave out what matches (`*.o`, `/var/cache`, `**/tmp/`); may be given more than once
    #[arg(long, value_name = "PATTERN", requires = "from")]
    pub(crate) exclude: Vec<OsString>,
    /// Make everything in the image belong to this user and group
    #[arg(long, value_name = "UID[:GID]", requires = "from")]
    pub(crate) owner: Option<String>,
    /// Give everything in the image this time, in seconds since 1970
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "from",
        allow_hyphen_values = true
    )]
    pub(crate) mtime: Option<i64>,
    #[command(flatten)]
    pub(crate) tables: Tables,
    /// Block size: 1K to 64K
    #[arg(long, value_name = "BYTES", value_parser = size::parse, help_heading = "Format")]
    pub(crate) block_size: Option<u64>,
    /// Inode size: 128 to 4096
    #[arg(long, value_name = "BYTES", value_parser = size::parse, help_heading = "Format")]
    pub(crate) inode_size: Option<u64>,
    /// Number of inodes, rounded to whole blocks of them
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "inode_ratio",
        help_heading = "Format"
    )]
    pub(crate) inodes: Option<u32>,
    /// Make one inode for so many bytes
    #[arg(long, value_name = "BYTES", value_parser = size::parse, help_heading = "Format")]
    pub(crate) inode_ratio: Option<u64>,
    /// Features to turn on, and off with `^`: `inline_data,^has_journal`; `none` turns off all
    #[arg(long, value_name = "LIST", help_heading = "Format")]
    pub(crate) features: Vec<String>,
    /// The readers that must understand it: default, latest, linux-3.10, grub, android
    #[arg(long, value_name = "NAME", help_heading = "Format")]
    pub(crate) profile: Option<String>,
    /// Size of the journal, or `none`
    #[arg(long, value_name = "SIZE|none", help_heading = "Format")]
    pub(crate) journal_size: Option<String>,
    /// Percent of the blocks kept for root: 0 to 50
    #[arg(long, value_name = "N", help_heading = "Format")]
    pub(crate) reserved_percent: Option<f64>,
    /// Quota files to make, with the feature quota: user, group, project
    ///
    /// They say what each owner uses from the start. `--features quota` makes those of users and
    /// groups, and with `project` that of projects.
    #[arg(long, value_name = "LIST", help_heading = "Format")]
    pub(crate) quota: Option<String>,
    /// How inode tables are initialised
    #[arg(long, value_name = "HOW", help_heading = "Format")]
    pub(crate) table_init: Option<TableInit>,
    /// Where data goes: steady or dense
    ///
    /// `steady` leaves gaps where there is free space for them, so that a small change of the
    /// source is a small change of the image. `dense` has all in one row.
    #[arg(long, value_name = "HOW", help_heading = "Format")]
    pub(crate) layout: Option<Layout>,
    /// Make the image like this older one: what is in both keeps its inode numbers and its blocks
    ///
    /// Size, block size, inodes, label, UUID and hash seed are those of the older image, too,
    /// where no option says otherwise.
    #[arg(
        long,
        value_name = "IMAGE",
        requires = "from",
        conflicts_with = "layout"
    )]
    pub(crate) like: Option<OsString>,
    /// Label, at most 16 bytes
    #[arg(long, value_name = "TEXT", help_heading = "Identity")]
    pub(crate) label: Option<OsString>,
    /// UUID
    #[arg(long, value_name = "UUID", help_heading = "Identity")]
    pub(crate) uuid: Option<String>,
    /// Seed of the directory hash, written as a UUID
    #[arg(long, value_name = "UUID", help_heading = "Identity")]
    pub(crate) hash_seed: Option<String>,
    /// Owner of the root directory
    #[arg(long, value_name = "UID[:GID]", help_heading = "Identity")]
    pub(crate) root_owner: Option<String>,
    /// Permissions of the root directory, in octal
    #[arg(long, value_name = "MODE", help_heading = "Identity")]
    pub(crate) root_mode: Option<String>,
    /// Threads; one per processor if not given
    #[arg(long, value_name = "N", value_parser = threads::parse_threads)]
    pub(crate) threads: Option<usize>,
}

/// Where data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// With gaps that keep a small change small
    Steady,
    /// In one row, with the free space behind it
    Dense,
}

/// How inode tables are initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableInit {
    /// All of them now
    Full,
    /// Those of unused inodes are left to the kernel after the first mount
    Lazy,
}

/// Show what an image holds: its file system, its partitions, or what else it is
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant info rootfs.img
  extant info --features rootfs.img
  extant info --json --groups disk.img --partition 2 | jq '.group_list[0]'
  extant info disk.img
  extant info disk.img#2

For a whole disk, its partitions are listed, with what is in each; IMAGE#N chooses one. Anything \
else that is recognised is named, with what to do to get at its content.")]
pub(crate) struct Info {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Every feature, and what it means for readers that do not know it
    #[arg(long)]
    pub(crate) features: bool,
    /// Every block group
    #[arg(long)]
    pub(crate) groups: bool,
    /// Free extents by size
    #[arg(long)]
    pub(crate) free: bool,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how much space and how many inodes are in use, and by which owners
#[derive(Debug, ClapArgs)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  extant df rootfs.img
  extant df rootfs.img --by owner
  extant df --json --by project rootfs.img | jq '.parts[0]'

Parts are listed by the space they take, largest first. Every file counts once, however many names \
it has. Space is what is allocated; bytes are what files contain, holes included.")]
pub(crate) struct Df {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Divide what is in use
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<DfBy>,
    /// Sizes with units, as always
    #[arg(short = 'h', long, conflicts_with = "json")]
    pub(crate) human_readable: bool,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show this help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// What `df` divides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DfBy {
    /// Number of the user that owns a file
    Owner,
    /// Number of its group
    Group,
    /// Its type: file, directory, ...
    Type,
    /// Its project number, where the image has projects
    Project,
}

/// Show where the blocks of a file or of the whole image lie
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant map rootfs.img
  extant map rootfs.img:/usr/bin/python3
  extant map rootfs.img --svg map.svg
  extant map rootfs.img --used --json
  extant map rootfs.img --used --bmap > rootfs.img.bmap
  extant map rootfs.img --block 2000 --block 1

In the picture, hold the pointer over a colour to see its meaning and the block it begins at. With \
--bmap, the map is what bmaptool reads: `bmaptool copy --bmap rootfs.img.bmap rootfs.img /dev/sdX` \
writes the blocks that are used, and compares their checksums.")]
pub(crate) struct Map {
    /// The image, or a file in it
    #[arg(value_name = "IMAGE[:/path]")]
    pub(crate) path: OsString,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw a picture of the image into this file
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) svg: Option<PathBuf>,
    /// Only which blocks are used, for whatever
    #[arg(long, conflicts_with = "svg")]
    pub(crate) used: bool,
    /// With --used, a block map of bmaptool's format (2.0), with a SHA-256 of each range
    #[arg(
        long,
        requires = "used",
        conflicts_with_all = ["json", "svg", "block"]
    )]
    pub(crate) bmap: bool,
    /// Only what this block of the file system is used for, and by which file; may be given more
    /// than once. With --json, one object per line
    #[arg(long, value_name = "N", conflicts_with_all = ["svg", "used"])]
    pub(crate) block: Vec<u64>,
}

/// Check whether an image is consistent
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant check rootfs.img
  extant check --json --partition 2 disk.img | jq -r 'select(.code).code' | sort | uniq -c
  extant check --quiet crashed.img || echo needs repair
  extant check --verity rootfs.img

Nothing is written. A journal that was not closed is replayed in memory first, so that the check \
judges what the next mount will see; with --as-is it judges the bytes as they lie. Warnings leave \
the exit code at 0. With --json, each finding is one object, and the sums are the last one.

Exit codes (those of e2fsck):
  0\tThe image is clean
  4\tErrors were found
  8\tNo verdict is possible
  16\tThe command line makes no sense")]
pub(crate) struct Check {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing, or with --json only the sums: the exit code tells
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Read all files that fs-verity protects, and compare their content with their hashes
    #[arg(long)]
    pub(crate) verity: bool,
}
