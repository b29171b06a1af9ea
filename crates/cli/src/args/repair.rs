//! Arguments of `repair`, `tune`, `resize` and `trim`.

use crate::size;
use clap::{Args as ClapArgs, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Repair an image
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant repair --dry-run rootfs.img
  extant repair rootfs.img
  extant repair --revert rootfs.img.undo rootfs.img
  extant repair --undo /var/tmp/sdb1.undo /dev/sdb1

Everything is found out first, without writing. Then what can be read now is compared with what \
could be read after the repair: a repair that loses anything is refused by name, unless \
--allow-loss is given. Then the undo file is written and made durable, and then the image.

The undo file of a regular file is IMAGE.undo, or IMAGE.undo.1 and so on where that exists. For a \
device, --undo says where the undo file goes, or --no-undo that there is none.

A file without a name gets one in lost+found. Of a block that two files claim, one file gets a \
copy. What is not mended is named.

Exit codes (those of e2fsck):
  0\tNothing was wrong
  1\tAll was mended
  4\tErrors are left, or a dry run found errors
  8\tNothing was done: the image cannot be repaired or written, or something would be lost
  16\tThe command line makes no sense")]
pub(crate) struct Repair {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Only show what would be done; with --verbose also every byte that would change
    #[arg(short = 'n', long, conflicts_with = "revert")]
    pub(crate) dry_run: bool,
    /// Keep nothing: the repair cannot be taken back
    #[arg(long, conflicts_with_all = ["revert", "dry_run"])]
    pub(crate) no_undo: bool,
    /// Repair also if files are lost that can be read now; each is named
    #[arg(long, conflicts_with = "revert")]
    pub(crate) allow_loss: bool,
    /// Give up the content of a journal that cannot be replayed: changes that programs believe to
    /// be durable are lost
    #[arg(long, conflicts_with = "revert")]
    pub(crate) discard_journal: bool,
    /// Take a repair back with the undo file that it kept
    #[arg(long, value_name = "FILE")]
    pub(crate) revert: Option<PathBuf>,
    /// Every block that changes, with the bytes before and after
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing, or with --json only the sums: the exit code tells
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Change features of an image, and what it says about itself: label, UUID, reserve
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant tune --list rootfs.img
  extant tune --label data --uuid random rootfs.img
  extant tune --reserved-percent 1 --errors remount-ro rootfs.img
  extant tune --features '^has_journal' --undo tuned.undo rootfs.img
  extant tune --features has_journal,orphan_file --journal-size 16M rootfs.img

The image must be closed and sound. What will be written is worked out in memory, and checked first; \
the backups of the superblock are written too. Where checksums start from the UUID, a new UUID \
computes all of them anew.

Features that can be changed:
  on\tcasefold, dir_index, dir_nlink, ea_inode, encrypt, ext_attr, extents, extra_isize, fast_commit, \
filetype, flex_bg, has_journal, huge_file, large_dir, large_file, metadata_csum, metadata_csum_seed, mmp, \
orphan_file, project, quota, read-only, sparse_super, stable_inodes, uninit_bg, verity, 64bit
  off\tcasefold, dir_index, dir_nlink, extra_isize, fast_commit, flex_bg, has_journal, huge_file, \
large_file, metadata_csum, metadata_csum_seed, mmp, orphan_file, project, quota, read-only, \
resize_inode, uninit_bg, 64bit

Exit codes:
  0\tDone
  8\tNot done
  16\tThe command line makes no sense")]
pub(crate) struct Tune {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Show what can be changed (also without any other option)
    #[arg(long, exclusive = false)]
    pub(crate) list: bool,
    /// Label, at most 16 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<OsString>,
    /// UUID, or `random`, or `clear`
    #[arg(long, value_name = "UUID")]
    pub(crate) uuid: Option<String>,
    /// Percent of the blocks kept for root: 0 to 50
    #[arg(long, value_name = "N", conflicts_with = "reserved_blocks")]
    pub(crate) reserved_percent: Option<f64>,
    /// Blocks kept for root
    #[arg(long, value_name = "N")]
    pub(crate) reserved_blocks: Option<u64>,
    /// Number of the user that may take them
    #[arg(long, value_name = "UID")]
    pub(crate) reserved_user: Option<u32>,
    /// Number of the group that may take them
    #[arg(long, value_name = "GID")]
    pub(crate) reserved_group: Option<u32>,
    /// Reaction of Linux to an error that it finds
    #[arg(long, value_name = "WHAT")]
    pub(crate) errors: Option<ErrorsDo>,
    /// Mounts after which a check is due; -1 for never
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_mounts: Option<i16>,
    /// Days after which a check is due; 0 for never
    #[arg(long, value_name = "DAYS")]
    pub(crate) check_interval: Option<u32>,
    /// The time of the last check, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    pub(crate) last_check: Option<u64>,
    /// Default mount options to turn on, and off with `^`: `acl,^user_xattr`
    #[arg(long, value_name = "LIST")]
    pub(crate) mount_options: Vec<String>,
    /// Features to turn on, and off with `^`
    #[arg(long, value_name = "LIST")]
    pub(crate) features: Vec<String>,
    /// Quota files to make, and to give up with `^`: `user,group,^project`
    #[arg(long, value_name = "LIST")]
    pub(crate) quota: Vec<String>,
    /// Size of the journal that the feature has_journal makes
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) journal_size: Option<u64>,
    /// Block from which on the journal is put that the feature has_journal makes, if there is room
    #[arg(long, value_name = "BLOCK")]
    pub(crate) journal_location: Option<u64>,
    /// Block device with the journal: one that becomes that of the file system, which has none, or
    /// the one that it has, with `--features ^has_journal` or another UUID
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["journal_size", "journal_location"])]
    pub(crate) journal_device: Option<OsString>,
    /// Bytes of an inode: a power of two, more than now
    #[arg(long, value_name = "BYTES")]
    pub(crate) inode_size: Option<u32>,
    /// Size of the orphan file that the feature orphan_file makes
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) orphan_file_size: Option<u64>,
    /// Seconds between two updates of multiple-mount protection (feature mmp): 1 to 300
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=300))]
    pub(crate) mmp_interval: Option<u16>,
    /// Hash by which new directories are indexed
    #[arg(long, value_name = "NAME", value_parser = ["legacy", "half_md4", "tea"])]
    pub(crate) hash: Option<String>,
    /// Blocks that go to one disk of a RAID before the next
    #[arg(long, value_name = "BLOCKS")]
    pub(crate) stride: Option<u16>,
    /// Blocks that go to all data disks of a RAID
    #[arg(long, value_name = "BLOCKS")]
    pub(crate) stripe_width: Option<u32>,
    /// Mounts since the last check
    #[arg(long, value_name = "N")]
    pub(crate) mount_count: Option<u16>,
    /// Where it was mounted last, as it says itself, at most 63 bytes
    #[arg(long, value_name = "DIR")]
    pub(crate) last_mounted: Option<OsString>,
    /// Mount options that Linux takes before those it is given, as text, at most 63 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) mount_string: Option<OsString>,
    /// Have the superblock ask for a check
    #[arg(long)]
    pub(crate) force_check: bool,
    /// Have multiple-mount protection forget a host that had it open: only where it is certain that
    /// none has
    #[arg(long)]
    pub(crate) clear_mmp: bool,
}

impl Tune {
    /// Whether anything is to be changed.
    pub(crate) fn changes_something(&self) -> bool {
        let numbers = self.reserved_blocks.is_some()
            || self.reserved_percent.is_some()
            || self.reserved_user.is_some()
            || self.reserved_group.is_some()
            || self.max_mounts.is_some()
            || self.check_interval.is_some()
            || self.last_check.is_some()
            || self.journal_size.is_some()
            || self.journal_location.is_some()
            || self.inode_size.is_some()
            || self.journal_device.is_some()
            || self.orphan_file_size.is_some()
            || self.mmp_interval.is_some()
            || self.stride.is_some()
            || self.stripe_width.is_some()
            || self.mount_count.is_some();
        let names = self.label.is_some()
            || self.uuid.is_some()
            || self.errors.is_some()
            || self.last_mounted.is_some()
            || self.mount_string.is_some()
            || self.hash.is_some();
        let lists = [&self.mount_options, &self.features, &self.quota];
        let lists = lists.iter().any(|list| !list.is_empty());
        numbers || names || lists || self.force_check || self.clear_mmp
    }
}

/// Make the file system in an image larger or smaller
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant resize rootfs.img 4G
  extant resize --minimum rootfs.img
  extant resize --print-minimum rootfs.img
  extant resize --partition 2 disk.img

The image must be closed and sound. Without SIZE the file system fills its image, partition or \
device. An image file that is too short is extended with a hole. An image file that is longer than \
the smaller file system is cut to its length, unless there is an undo file. Everything is worked \
out and checked before it is written.

Exit codes:
  0\tDone
  8\tNot done
  16\tThe command line makes no sense")]
pub(crate) struct Resize {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Bytes that the file system is to have (K, M, G, T are powers of 1024)
    #[arg(value_name = "SIZE", value_parser = size::parse)]
    pub(crate) size: Option<u64>,
    /// Make it as small as its content allows, in as many rounds as that takes; with --undo in one
    #[arg(short = 'M', long, conflicts_with = "size")]
    pub(crate) minimum: bool,
    /// Only say how small --minimum would make it, in blocks; nothing is written
    #[arg(short = 'P', long, conflicts_with_all = ["size", "minimum"])]
    pub(crate) print_minimum: bool,
    /// Say what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Give back space that an image holds and does not use
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant trim rootfs.img
  extant trim --dry-run rootfs.img
  extant trim --json --partition 2 disk.img | jq .given_back

Free blocks, parts of inode tables without an inode in use, and what an empty journal still holds \
become holes of the file, unallocated clusters of a qcow2 image, or discards on a device or an NBD \
server. What is in the image stays as it is; what was deleted cannot be had back afterwards.

A journal that was not closed is replayed first. Then the image is checked, and one that is not \
sound is refused: nothing is given back that any file uses, whatever the bitmaps say.")]
pub(crate) struct Trim {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Only say how much would be given back; nothing is written
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Say what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What Linux does when it finds an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ErrorsDo {
    /// Go on
    Continue,
    /// Go on, reading only
    RemountRo,
    /// Stop the machine
    Panic,
}
