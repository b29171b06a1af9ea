//! The command line of commands that change images.

use crate::size;
use clap::Args as ClapArgs;
use std::ffi::OsString;

/// The owner of what is made.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct NewOwner {
    /// Make what is new belong to this user and group, by number or by a name that the image knows
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) owner: Option<String>,
    /// Make what is new belong to this group
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
}

/// Make directories in an image
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant mkdir rootfs.img:/srv/www
  extant mkdir -p -m 700 --owner 33:33 rootfs.img:/var/lib/app/keys

With -p, the directories above that are made get the owner, too, and permissions 755.")]
pub(crate) struct Mkdir {
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Make those above as well; it is no failure if all exist
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, in octal or as for chmod; 755 if not given
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) owner: NewOwner,
}

/// Remove files and directories from an image
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant rm rootfs.img:/etc/machine-id
  extant rm -rf 'rootfs.img:/var/cache/*' rootfs.img:/tmp/build

Symbolic links are removed, not followed. A pattern that nothing matches is an error unless -f is \
given. `IMAGE:/*` leaves lost+found, which checkers need, and says so; name it to remove it.")]
pub(crate) struct Rm {
    /// Files and directories to remove
    #[arg(required = true, value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Remove directories with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub(crate) dir: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Move or rename files within an image
#[derive(Debug, ClapArgs)]
#[command(override_usage = "extant mv [OPTIONS] <IMAGE:/path>... <IMAGE:/path>")]
#[command(after_help = "\
Examples:
  extant mv rootfs.img:/etc/hosts rootfs.img:/etc/hosts.old
  extant mv rootfs.img:/a rootfs.img:/b rootfs.img:/dir/

If the last path is a directory, the others go into it. A file that is in the way is replaced in \
one step: whatever happens, either the old or the new one is there.")]
pub(crate) struct Mv {
    /// Files to move, and at last the destination
    #[arg(required = true, num_args = 1.., value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Replace nothing: a file in the way stays, and so does the file that would replace it
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Exchange the two files, whatever they are
    #[arg(long, conflicts_with = "no_clobber")]
    pub(crate) exchange: bool,
    /// The last path is the name to give, even if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Make links in an image
#[derive(Debug, ClapArgs)]
#[command(override_usage = "\
extant ln [OPTIONS] <IMAGE:/path>... <IMAGE:/link>
       extant ln -s [OPTIONS] <TARGET>... <IMAGE:/link>")]
#[command(after_help = "\
Examples:
  extant ln rootfs.img:/bin/busybox rootfs.img:/bin/vi
  extant ln -sf ../usr/lib/os-release rootfs.img:/etc/os-release
  extant ln -sfn /opt/app-2 rootfs.img:/opt/app

If the last path is a directory, the links go into it under the names of their targets. The \
target of a symbolic link is text: it is stored as it is, and need not exist. --owner and --group \
are about symbolic links: a hard link is the file that is there.")]
pub(crate) struct Ln {
    /// Targets of the links, and at last the place of the links
    #[arg(required = true, num_args = 1.., value_names = ["TARGET", "IMAGE:/link"])]
    pub(crate) paths: Vec<OsString>,
    /// Make symbolic links
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace what is in the way, in one step, unless it is a directory
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Take a symbolic link to a directory, as the last path, for a file to replace
    #[arg(short, long)]
    pub(crate) no_dereference: bool,
    /// The last path is the name to give, even if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) owner: NewOwner,
}

/// Change permissions in an image
#[derive(Debug, ClapArgs)]
#[command(override_usage = "\
extant chmod [OPTIONS] <MODE> <IMAGE:/path>...
       extant chmod [OPTIONS] --reference <FILE> <IMAGE:/path>...")]
#[command(after_help = "\
Examples:
  extant chmod 600 rootfs.img:/etc/shadow
  extant chmod -R u=rwX,go-w rootfs.img:/srv
  extant chmod +x rootfs.img:/init
  extant chmod --reference rootfs.img:/init rootfs.img:/bin/ping

MODE is octal or, as for chmod(1), [ugoa][+-=][rwxXstugo]..., separated by commas; without ugoa \
it is for all three, and no umask applies; +, - and = also take an octal number (-022). Octal modes leave the set-id bits of directories alone \
unless they have more than four digits. Symbolic links are followed; with -R, those found on the \
way are left alone.")]
pub(crate) struct Chmod {
    /// The permissions
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: OsString,
    /// The files
    #[arg(required_unless_present = "reference", value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Give the files the permissions of this one, in an image or outside, in place of MODE
    #[arg(long, value_name = "FILE")]
    pub(crate) reference: Option<OsString>,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Change owners in an image
#[derive(Debug, ClapArgs)]
#[command(disable_help_flag = true)]
#[command(override_usage = "\
extant chown [OPTIONS] <USER[:GROUP]> <IMAGE:/path>...
       extant chown [OPTIONS] --reference <FILE> <IMAGE:/path>...")]
#[command(after_help = "\
Examples:
  extant chown 1000:1000 rootfs.img:/home/me
  extant chown -R www-data: rootfs.img:/var/www
  extant chown :adm rootfs.img:/var/log
  extant chown --reference rootfs.img:/home/me rootfs.img:/var/www

Numbers are taken as they are. Names are looked up in the image, in its /etc/passwd and /etc/group, \
never on the host; `USER:` means the user's own group. Symbolic links are followed unless -h is \
given; with -R, those found on the way are changed themselves.

As on Linux, a file that gets another owner loses its set-ID bits and its capabilities, which were \
granted to the old owner's program. With --keep-privileges it keeps both: for a tree that gets its \
owners after it was put together.")]
pub(crate) struct Chown {
    /// User, group or both, by number or by name
    #[arg(value_name = "USER[:GROUP]")]
    pub(crate) owner: OsString,
    /// The files
    #[arg(required_unless_present = "reference", value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Give the files the owner and group of this one, in an image or outside, in place of
    /// USER[:GROUP]
    #[arg(long, value_name = "FILE")]
    pub(crate) reference: Option<OsString>,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Symbolic links themselves, not what they point to
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Keep set-ID bits and file capabilities, which a change of owner takes away
    #[arg(long)]
    pub(crate) keep_privileges: bool,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show this help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// Set the times of files in an image, and make them if they do not exist
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant touch rootfs.img:/.autorelabel
  extant touch -d '2026-01-31 12:00:00' rootfs.img:/etc/os-release
  extant touch -cm -d @0 rootfs.img:/var/cache
  extant touch --owner 33:33 --mode 600 rootfs.img:/var/log/app.log

Times are UTC unless they say otherwise (2026-01-31T12:00:00+01:00). Symbolic links are followed \
unless --no-dereference is given.")]
pub(crate) struct Touch {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Make no file; one that does not exist is no failure
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Only the time of the last access
    #[arg(short = 'a')]
    pub(crate) access: bool,
    /// Only the time of the last change of the content
    #[arg(short = 'm')]
    pub(crate) modification: bool,
    /// This time in place of now: YYYY-MM-DD, with hh:mm[:ss[.fraction]] and a zone, or @SECONDS
    /// since 1970
    #[arg(short = 'd', long, value_name = "DATE", allow_hyphen_values = true)]
    pub(crate) date: Option<String>,
    /// This time in place of now
    #[arg(
        short = 't',
        value_name = "[[CC]YY]MMDDhhmm[.ss]",
        conflicts_with = "date"
    )]
    pub(crate) stamp: Option<String>,
    /// Symbolic links themselves, not what they point to
    #[arg(long)]
    pub(crate) no_dereference: bool,
    /// Tell what was done, a line for each file
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) owner: NewOwner,
    /// Permissions of a file that is made, in octal or as for chmod; 644 if not given
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
}

/// Set the size of files in an image, and make them if they do not exist
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant truncate -s 0 rootfs.img:/var/log/messages
  extant truncate -s 1G rootfs.img:/swapfile
  extant truncate -s +4K rootfs.img:/data

What is added is a hole: it reads as zeros and takes no space.")]
pub(crate) struct Truncate {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// The size, or what to add (+) or take away (-), in bytes (K, M, G, T are powers of 1024)
    #[arg(short, long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    pub(crate) size: String,
    /// Make no file; one that does not exist is no failure
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
}

/// Reserve space for files in an image, and make them if they do not exist
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant fallocate -l 1G rootfs.img:/swapfile
  extant fallocate -n -l 64M rootfs.img:/var/log/wtmp

New space reads as zeros and is reserved: a later write there does not run out of space. `extant \
map` shows it as unwritten. The other modes are those of fallocate(1); --collapse-range and \
--insert-range take multiples of the block size.")]
pub(crate) struct Fallocate {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// How much to reserve, in bytes (K, M, G, T are powers of 1024)
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) length: String,
    /// Where in the files to begin
    #[arg(short = 'o', long, value_name = "SIZE", default_value = "0")]
    pub(crate) at: String,
    /// Leave the size of the files as it is, also if the range ends behind it
    #[arg(short = 'n', long)]
    pub(crate) keep_size: bool,
    /// Give the space of the range back: it reads as zeros from then on
    #[arg(short = 'p', long, group = "mode")]
    pub(crate) punch_hole: bool,
    /// Make the range zeros, and reserve its space
    #[arg(short = 'z', long, group = "mode")]
    pub(crate) zero_range: bool,
    /// Take the range out of the files: what follows moves up
    #[arg(short = 'c', long, group = "mode", conflicts_with = "keep_size")]
    pub(crate) collapse_range: bool,
    /// Put a hole into the files: what was there moves back
    #[arg(short = 'i', long, group = "mode", conflicts_with = "keep_size")]
    pub(crate) insert_range: bool,
}

/// Make device nodes, pipes and sockets in an image
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant mknod rootfs.img:/dev/null c 1 3
  extant mknod -m 600 --group 5 rootfs.img:/run/control p

TYPE is b for a block device, c (or u) for a character device, p for a pipe, s for a socket.")]
pub(crate) struct Mknod {
    /// The node
    #[arg(value_name = "IMAGE:/path")]
    pub(crate) path: OsString,
    /// What it is
    #[arg(value_name = "TYPE", value_parser = ["b", "c", "u", "p", "s"])]
    pub(crate) kind: String,
    /// Major number of a device
    #[arg(value_name = "MAJOR", requires = "minor")]
    pub(crate) major: Option<u32>,
    /// Minor number of a device
    #[arg(value_name = "MINOR")]
    pub(crate) minor: Option<u32>,
    /// Permissions, in octal or as for chmod; 644 if not given
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
    #[command(flatten)]
    pub(crate) owner: NewOwner,
}

/// Write standard input to a file in an image
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  echo myhost | extant write rootfs.img:/etc/hostname
  extant write --append rootfs.img:/etc/fstab < more
  echo secret | extant write -m 600 --owner 33:33 rootfs.img:/etc/key
  extant write --at 1M disk.img:/swapfile < header

Without --append or --at, the file has what is written once all of it is there, and until then its \
old content. A file that exists keeps its owner, permissions and attributes; symbolic links are \
followed.")]
pub(crate) struct Write {
    /// The file, which is made if it does not exist
    #[arg(value_name = "IMAGE:/path")]
    pub(crate) path: OsString,
    /// Append to the file
    #[arg(short, long)]
    pub(crate) append: bool,
    /// Write over the content from this byte on, and leave the rest
    #[arg(long, value_name = "BYTES", value_parser = size::parse, conflicts_with = "append")]
    pub(crate) at: Option<u64>,
    /// Permissions of a file that is made, in octal or as for chmod; 644 if not given
    #[arg(short, long, value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: Option<String>,
    #[command(flatten)]
    pub(crate) owner: NewOwner,
}

/// Finish what was going on in an image when it was last in use
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant replay crashed.img
  extant replay --json --partition 2 disk.img

The command replays the journal onto the image, deletes files that were open without a name, and \
marks the image clean, as mounting it would. Commands that only read replay a journal in memory and \
leave the image as it is; commands that change an image do this first.")]
pub(crate) struct Replay {
    /// The images
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<OsString>,
    /// One JSON object per image
    #[arg(long)]
    pub(crate) json: bool,
}
