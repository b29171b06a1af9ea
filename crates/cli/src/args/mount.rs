//! The commands that mount.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Mount an image on a directory, through FUSE
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant mount disk.img /mnt
  extant mount disk.img /mnt -o ro
  extant mount bad.img /mnt -o ro,mend
  extant mount disk.img /mnt -o allow_other,threads=8 --foreground
  extant mount --partition 1 whole-disk.img /mnt
  extant umount /mnt

The command returns when the mount works; the mount goes on in the background. Root needs nothing \
but /dev/fuse; other users need fusermount3 (package fuse3).

The image is read by a process that can open no other file, make no connection and start no \
program, and that takes no more than its share of memory. --no-sandbox turns that off. An image that \
is no plain file (nbd://host/export, https://host/file with -o ro, disk.qcow2) is reached by another \
process, which serves it to that one.

Options of -o:
  ro, rw\tRead only, or write as well (the default)
  allow_other\tLet other users use the mount, as far as its permissions allow them
  no_default_permissions\tLeave permissions unchecked where root mounts and lets no other user in: \
files are made and removed faster. Not for what is exported, or a layer of an overlay
  fakeroot\tLet the user who mounts, and nobody else, do with files what root may: change any of \
them, give them to others, set set-user-ID. What is recorded is what was asked for
  uid=N, gid=N\tShow all files as those of this user or group, and check that. The image keeps its \
own, and new files get those of their directory
  umask=OCTAL\tShow all permissions but these; with fmask=OCTAL for what is no directory, with \
dmask=OCTAL for directories. The image keeps its own
  idmap\tLet users be mapped, by mounts of what is mounted (mount_setattr(2)). Writing is then on \
the account of a file's owner
  grpid\tGive new files the group of their directory
  dev, suid\tLet device nodes and set-user-ID work. Mounts that mount(8) makes for root have both, \
unless it is given nodev or nosuid
  noexec\tLet no program be started
  no_blkdev\tDo without the loop device of root's mounts. By it the kernel tells of sync and \
syncfs, and waits in umount until the image is complete
  sync, dirsync\tMake all changes synchronous, or those of names
  commit=SECONDS\tCommit changes at this age [default: 5]
  errors=continue\tOnly record damage that a change meets
  errors=remount-ro\tEnd all changes when one meets damage. Without errors= the superblock decides
  noload\tWith ro: leave out what the journal holds
  mend\tWith ro: show a damaged image as `extant repair` would leave it, without touching it
  discard\tGive space that becomes free back to the device
  usrquota, grpquota, prjquota\tHold users, groups or projects to their limits. The kernel then \
gathers no writes but those to mapped memory
  nodelalloc\tChoose the place of new blocks as soon as they are written
  offset=BYTES, partition=N\tWhere in the file the file system is, as --offset and --partition
  image_format=FORMAT\tWhat the image is, as --image-format
  log=FILE\tAppend warnings and errors of the mount to this file. Otherwise they go to standard \
error in the foreground, and to the system's log in the background
  threads=N\tThreads that answer the kernel
  no_io_uring\tTake requests by the device alone, and not through io_uring where the kernel offers \
that. It does once root has written Y to /sys/module/fuse/parameters/enable_uring
  io_uring\tTake them through io_uring also where there are many processors, and warn where that \
cannot be
  memory=MIB\tMost memory that the confined process takes, at least 512 [default: half of the \
machine's]
  writeback_cache\tLet the kernel gather writes: quicker for programs that write little at a time, \
slower for many small files
  no_writeback_cache\tPass each write on at once (the default)
  direct_io\tLet data of files go past the kernel's memory: quicker for large files that are read \
or written once in large pieces, slower for small files and pieces
  direct_from=BYTES\tKeep aligned transfers of this length or more in the kernel's memory only \
[default: 64K]
  seek_holes\tLet lseek tell of holes. A page that was written to mapped memory and is not synced \
yet still counts as a hole. Without it, or with writeback_cache, all is taken for data

Options that fstab and mount(8) add (defaults, noauto, nofail, x-...) are accepted. So are those of \
ext4 that ask for what is done in any case (data=ordered, barrier, stripe=N, ...). Others are refused.

The mount ends with `extant umount`, with umount(8), or when the process gets SIGTERM, SIGINT or \
SIGHUP. The image is clean then.

In fstab, with a link /sbin/mount.fuse.extant to this program:
  /srv/disk.img /mnt fuse.extant defaults,allow_other 0 0")]
pub(crate) struct Mount {
    /// The image or block device, or an address of one; without it and DIR, what is mounted is
    /// listed
    #[arg(value_name = "IMAGE")]
    pub(crate) asked_image: Option<PathBuf>,
    /// The directory, which should be empty
    #[arg(value_name = "DIR")]
    pub(crate) asked_point: Option<PathBuf>,
    /// The image, where there is something to mount.
    #[arg(skip)]
    pub(crate) image: PathBuf,
    /// The directory, where there is something to mount.
    #[arg(skip)]
    pub(crate) point: PathBuf,
    /// List what is mounted, as JSON: an object on each line
    #[arg(long, conflicts_with = "asked_image")]
    pub(crate) json: bool,
    /// Options, separated by commas; may be given more than once
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Mount for reading only, as -o ro
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground until the mount ends
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Do not confine the process that reads the image: for trusted images on a kernel that cannot
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Be the process that reads the image, started by another
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
    /// Be the process that reaches the image for the one that reads it, started by another
    #[arg(long, hide = true)]
    pub(crate) carrier: bool,
    /// Read the disk that another process serves at standard input
    #[arg(long, hide = true)]
    pub(crate) carried: bool,
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

/// Show what a mount has done: requests and their times, journal, caches
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

The command returns when everything is in the image and the image is clean.")]
pub(crate) struct Umount {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) point: PathBuf,
    /// Free the directory at once even if it is in use; the mount ends when it is no longer used
    #[arg(short, long)]
    pub(crate) lazy: bool,
}
