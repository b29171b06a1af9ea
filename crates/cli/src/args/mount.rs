//! The commands that mount.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Mount an image on a directory, through FUSE
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant mount disk.img /mnt
  extant mount disk.img /mnt -o ro
  extant mount disk.img /mnt -o allow_other,threads=8 --foreground
  extant mount --partition 1 whole-disk.img /mnt
  extant umount /mnt

The image is read by a process that can open no other file, no connection and no program, and takes no more than
its share of memory (--no-sandbox turns that off).

Returns when the mount works, and goes on in the background. Root needs nothing but /dev/fuse; other users need
fusermount3 (package fuse3). Options of -o:
  ro, rw                    for reading only, or for writing as well (default)
  allow_other               other users may use it, as far as its permissions allow them
  no_default_permissions    permissions are not checked where root mounts and lets nobody else in: files are made and
                            removed faster. Not for what is exported, or a layer of an overlay
  dev, suid, noexec         device nodes and set-user-ID work (as they do where mount(8) mounts for root, but for nodev and
                            nosuid); programs cannot be started
  no_blkdev                 root's mount gets no loop device, by which the kernel tells of sync and syncfs and waits until
                            the image is complete in umount
  sync, dirsync             changes, or those of names, are synchronous
  commit=SECONDS            age at which changes are committed (5)
  errors=continue, errors=remount-ro
                            damage that a change meets is recorded only, or ends all changes (what the superblock says)
  noload                    with ro: what the journal holds is left out
  discard                   what becomes free is given back to the device
  usrquota, grpquota, prjquota
                            users, groups, projects are held to their limits (the kernel
                            gathers no writes then, but those to mapped memory)
  nodelalloc                places of new blocks are chosen at once
  offset=BYTES, partition=N where in the file the file system is, as --offset and --partition
  log=FILE                  warnings and errors of the mount are written to the end of this file (in the foreground
                            they go to standard error)
  threads=N                 threads that answer the kernel
  io_uring                  requests come through io_uring, where the kernel offers it: quicker for many
                            small ones, slower for much data
  memory=MIB                most memory that the confined process takes (half of the machine's; at least 512)
  writeback_cache           the kernel gathers writes: quicker for programs that write little at a time, slower for
                            many small files (no_writeback_cache, the default: passes each on at once)
  direct_io                 data of files goes past the kernel's memory: quicker for large files read or written once by
                            large pieces, slower for small files and pieces
  seek_holes                lseek tells of holes; what was written to mapped memory and is not synced yet still counts
                            as one. Without, or with writeback_cache, it takes all for data
  direct_from=BYTES         aligned transfers so long are kept in the kernel's memory only (64 KiB)
Those that fstab and mount(8) add (defaults, noauto, nofail, x-...) are accepted, and those of ext4 that say what is
done in any case (data=ordered, barrier, stripe=N, ...).

The mount ends with `extant umount`, umount, or SIGTERM, SIGINT or SIGHUP to the process; the image is clean
then. In fstab: /srv/disk.img /mnt fuse.extant defaults,allow_other 0 0, with a link
/sbin/mount.fuse.extant to this program.")]
pub(crate) struct Mount {
    /// The image or block device
    pub(crate) image: PathBuf,
    /// The directory, which should be empty
    #[arg(value_name = "DIR")]
    pub(crate) point: PathBuf,
    /// Options, separated by commas; may be given more than once
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// For reading only, as -o ro
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground until the mount ends
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Do not confine the process that reads the image: for images that are trusted, where the kernel cannot
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Be the process that reads the image, started by another
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
    /// Say on standard output when the mount works, then let go of the terminal
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,
    /// Be called by mount(8), which leaves options out that it takes for the default
    #[arg(long, hide = true)]
    pub(crate) as_helper: bool,
    /// What mount(8) passes to its helpers and means nothing here
    #[arg(short = 'n', hide = true)]
    pub(crate) no_mtab: bool,
    /// What mount(8) passes to its helpers and means nothing here
    #[arg(short = 's', hide = true)]
    pub(crate) sloppy: bool,
    /// What mount(8) passes to its helpers and means nothing here
    #[arg(short = 'v', hide = true)]
    pub(crate) verbose: bool,
    /// Only look whether the command line makes sense: what mount(8) wants of its helpers with -f
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    /// The namespace, which mount(8) passes to its helpers
    #[arg(short = 'N', hide = true)]
    pub(crate) namespace: Option<PathBuf>,
    /// The type, which mount(8) passes to its helpers
    #[arg(short = 't', hide = true)]
    pub(crate) kind: Option<String>,
}

/// Show what a mount has done: requests and how long they took, journal, caches
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant stats /mnt
  extant stats /mnt | grep -v _bucket

The text is in the format of Prometheus.")]
pub(crate) struct Stats {
    /// The directory that is mounted on
    #[arg(value_name = "DIR")]
    pub(crate) point: PathBuf,
}

/// Unmount what `extant mount` has mounted
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant umount /mnt
  extant umount --lazy /mnt

Returns when everything is in the image and the image is clean.")]
pub(crate) struct Umount {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) point: PathBuf,
    /// Free the directory at once also if it is in use, and end the mount when it no longer is
    #[arg(short, long)]
    pub(crate) lazy: bool,
}
