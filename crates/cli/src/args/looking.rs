//! The command line of what looks into images: listing, finding, reading, comparing.

use super::threads::Threads;
use crate::size;
use clap::{Args as ClapArgs, ValueEnum};
use std::ffi::OsString;

/// List directories and files
#[derive(Debug, ClapArgs)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  extant ls rootfs.img
  extant ls -l rootfs.img:/etc
  extant ls -lhS 'rootfs.img:/usr/bin/p*'
  extant ls -R --json rootfs.img:/usr | jq .path
  extant ls -R --mtree rootfs.img > manifest

Names are in the order of their bytes, owners are called as the image's own /etc/passwd and \
/etc/group call them, and times are UTC. With --json, one object per line; names that are not UTF-8 \
come in hexadecimal as well (path_hex). With -R --mtree, a specification of mtree(5), which `extant \
mkfs --owners mtree:FILE` reads back.")]
pub(crate) struct Ls {
    /// Directories and files to list; patterns are looked up in the image
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// Mode, links, owner, size, time
    #[arg(short)]
    pub(crate) long: bool,
    /// As -l, with the numbers of owners in place of their names
    #[arg(short = 'n', long)]
    pub(crate) numeric_uid_gid: bool,
    /// Directories below as well
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Names that begin with a dot as well
    #[arg(short, long)]
    pub(crate) all: bool,
    /// As -a, without `.` and `..`
    #[arg(short = 'A', long)]
    pub(crate) almost_all: bool,
    /// Inode numbers
    #[arg(short, long)]
    pub(crate) inode: bool,
    /// The directory itself, not what is in it
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// A mark behind names: / directory, * program, @ symbolic link, | pipe, = socket
    #[arg(short = 'F', long)]
    pub(crate) classify: bool,
    /// With -l, sizes with units (powers of 1024)
    #[arg(short = 'h', long, conflicts_with = "json")]
    pub(crate) human_readable: bool,
    /// Largest first
    #[arg(short = 'S', conflicts_with = "by_time")]
    pub(crate) by_size: bool,
    /// Changed last first
    #[arg(short = 't')]
    pub(crate) by_time: bool,
    /// The other way round
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Colours for kinds of files, as LS_COLORS says or as ls has them
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "never",
        default_missing_value = "always",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with = "json"
    )]
    pub(crate) color: When,
    /// One name a line, as always
    #[arg(short = '1')]
    pub(crate) one: bool,
    /// One JSON object per line, with everything known
    #[arg(long)]
    pub(crate) json: bool,
    /// With -R, a specification of mtree: owners, permissions, times, devices and links
    #[arg(
        long,
        requires = "recursive",
        conflicts_with_all = ["json", "long", "directory", "numeric_uid_gid"]
    )]
    pub(crate) mtree: bool,
    #[command(flatten)]
    pub(crate) threads: Threads,
    /// Show this help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// When something is done that a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// In any case
    Always,
    /// Where standard output is a terminal
    Auto,
    /// In no case
    Never,
}

/// Show everything below a directory as a tree
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant tree rootfs.img:/etc
  extant tree --max-depth 2 rootfs.img

For programs there is `extant ls -R --json`.")]
pub(crate) struct Tree {
    /// Where to start; patterns are looked up in the image
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// Levels to show
    #[arg(short = 'L', long, value_name = "N")]
    pub(crate) max_depth: Option<usize>,
    /// Directories only
    #[arg(short, long)]
    pub(crate) dirs: bool,
}

/// Write the content of files to standard output
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant cat rootfs.img:/etc/os-release
  extant cat rootfs.img:/boot/vmlinuz > vmlinuz
  extant cat --verify rootfs.img:/boot/vmlinuz > vmlinuz")]
pub(crate) struct Cat {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/path")]
    pub(crate) paths: Vec<OsString>,
    /// Compare files that fs-verity protects with their hashes; nothing that differs is written
    #[arg(long)]
    pub(crate) verify: bool,
}

/// Show all that is known about a file
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant stat rootfs.img:/etc/passwd
  extant stat --json rootfs.img:/bin/ping | jq .xattrs")]
pub(crate) struct Stat {
    /// The files; symbolic links stand for themselves
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Find files by name, type, size, owner, time or mode, also in the spelling of find(1)
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant find rootfs.img:/ --name '*.so' --json
  extant find rootfs.img --type f --size +100M
  extant find rootfs.img --perm /6000 --type f
  extant find rootfs.img:/etc --max-depth 1 --print0 | xargs -0 -n1 echo
  extant find rootfs.img:/etc -name '*.conf' -o -type l -printf '%p -> %l\\n'
  extant find rootfs.img:/var -path '*/cache/*' -prune -o -newermt 2020-01-01 -print
  extant find rootfs.img:/etc -name hostname -exec extant cat {} \\;
  extant find rootfs.img:/var/cache -type f -mtime -7 -delete

All conditions given must hold. With --json, one object per line. What is spelled with one dash is \
an expression of find(1), with its meaning there; it is asked where the other conditions hold.

Tests of find(1):
  -name, -iname GLOB\tThe last name matches; with i in any case
  -path, -ipath GLOB\tThe path in the image matches; `*` matches `/` too
  -type LETTERS\tThe type is one of f,d,l,c,b,p,s
  -size [+-]N[cwbkMG]\tIt takes so many units, rounded up; without a letter, of 512 bytes
  -empty\tA file of no bytes, or a directory with nothing in it
  -perm [-/]MODE\tThe mode is this, has all these bits or any of them; octal or as in u+w
  -user, -group NAME\tThe owner has this name in the image's own /etc/passwd, or this number
  -uid, -gid, -links, -inum [+-]N\tThe number is this, more or less
  -nouser, -nogroup\tNo name in the image's own files has this number
  -mtime, -atime, -ctime [+-]N\tThe age in whole days; -mmin, -amin, -cmin in minutes
  -newer, -anewer, -cnewer FILE\tChanged after FILE was: IMAGE:/path, or a file of the host
  -newerXY REFERENCE\tTime X (a, B, c, m) is later than time Y of the file, or with t than this date
  -xattr, -xattrname NAME\tThere are extended attributes, or one of this name
  -true, -false\tAlways, never

What find(1) does where they hold:
  -print, -print0\tWrites the path, and the end of the line or a zero byte
  -printf FORMAT\tWrites what %p %P %f %h %H %s %b %k %d %i %n %m %M %y %Y %l %u %U %g %G say, and the \
times %a %c %t, %Ak %Ck %Tk %Bk
  -ls\tWrites a line as `ls -dils` does
  -delete\tRemoves it from the image, which is opened for writing; goes depth first
  -exec COMMAND {} ;\tRuns COMMAND, in which {} is IMAGE:/path; true if that exits with 0
  -exec COMMAND {} +\tRuns COMMAND with as many as fit
  -prune\tDoes not go into this directory
  -quit\tEnds

Operators: ( ), ! or -not, -a or nothing, -o, and the comma. -depth, -maxdepth N and -mindepth N hold \
for the whole. With SOURCE_DATE_EPOCH set, ages are counted from then.")]
pub(crate) struct Find {
    /// Where to start; patterns are looked up in the image
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// The name matches this pattern (`*`, `?`, `[a-z]`)
    #[arg(long, value_name = "GLOB")]
    pub(crate) name: Option<OsString>,
    /// The whole path matches this pattern; `*` matches `/` too
    #[arg(long, value_name = "GLOB")]
    pub(crate) path_glob: Option<OsString>,
    /// The type is one of these: f, d, l, c, b, p, s
    #[arg(long = "type", value_name = "LETTERS", value_delimiter = ',')]
    pub(crate) types: Vec<char>,
    /// The size is this, more than it (+1M) or less (-1M)
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    pub(crate) size: Option<String>,
    /// The mode is this (755), has all these bits (-4000) or any of them (/6000), in octal
    #[arg(long, value_name = "[-/]MODE", allow_hyphen_values = true)]
    pub(crate) perm: Option<String>,
    /// The owner is this user number
    #[arg(long, value_name = "UID")]
    pub(crate) uid: Option<u32>,
    /// The group is this number
    #[arg(long, value_name = "GID")]
    pub(crate) gid: Option<u32>,
    /// The inode number is this
    #[arg(long, value_name = "N")]
    pub(crate) inum: Option<u32>,
    /// Levels to go down at most
    #[arg(long, value_name = "N")]
    pub(crate) max_depth: Option<usize>,
    /// Levels to go down before anything is shown
    #[arg(long, value_name = "N")]
    pub(crate) min_depth: Option<usize>,
    /// Put this in front of each path that is shown, such as the directory of a mount
    #[arg(long, value_name = "TEXT", conflicts_with = "json")]
    pub(crate) prefix: Option<OsString>,
    /// End each path with a zero byte in place of a new line
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) print0: bool,
    /// One JSON object per line, with everything known
    #[arg(long)]
    pub(crate) json: bool,
    /// Words of find(1), which the command line is given in this form.
    #[arg(long, hide = true, allow_hyphen_values = true)]
    pub(crate) expression: Vec<OsString>,
}

/// Show how much space directories and files take
#[derive(Debug, ClapArgs)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  extant du -sh rootfs.img:/usr
  extant du -hd 1 rootfs.img
  extant du -ac --apparent-size rootfs.img:/etc
  extant du --json rootfs.img | jq -r 'select(.space > 1000000).path'

Without -h or -b, space is in units of 1024 bytes, rounded up. A file with several names counts once, \
and so does what several operands have in common.")]
pub(crate) struct Du {
    /// Directories and files; patterns are looked up in the image
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// Files as well, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    pub(crate) all: bool,
    /// Only what is named
    #[arg(short, long, conflicts_with = "max_depth")]
    pub(crate) summarize: bool,
    /// Sizes with units (powers of 1024)
    #[arg(short = 'h', long, conflicts_with_all = ["json", "inodes"])]
    pub(crate) human_readable: bool,
    /// The sum of all that is named, last
    #[arg(short = 'c', long)]
    pub(crate) total: bool,
    /// Stay in one file system, as always
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Levels below what is named to show; what is deeper is counted
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<usize>,
    /// What files contain, holes included, in place of what is allocated
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// As --apparent-size, in bytes
    #[arg(short, long, conflicts_with_all = ["human_readable", "inodes"])]
    pub(crate) bytes: bool,
    /// Numbers of inodes in place of space
    #[arg(long, conflicts_with = "apparent_size")]
    pub(crate) inodes: bool,
    /// One JSON object per line: path, space, bytes, inodes
    #[arg(long)]
    pub(crate) json: bool,
    /// Show this help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// Compare two files byte by byte, each of an image or of the host
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant cmp rootfs.img:/etc/hosts rootfs/etc/hosts
  extant cat rootfs.img:/etc/fstab | extant cmp rootfs.img:/etc/fstab -
  extant cmp -s rootfs.img:/etc/hosts old.img:/etc/hosts && echo the same

Exit codes (those of cmp):
  0\tThe files are the same
  1\tThey differ
  2\tOne cannot be read, or the command line makes no sense")]
pub(crate) struct Cmp {
    /// A file: IMAGE:/path, one of the host, or `-` for standard input
    #[arg(value_name = "A")]
    pub(crate) one: OsString,
    /// The file to compare it with
    #[arg(value_name = "B")]
    pub(crate) other: OsString,
    /// Say nothing: the exit code tells
    #[arg(short, long, visible_alias = "quiet", conflicts_with_all = ["verbose", "json"])]
    pub(crate) silent: bool,
    /// Every byte that differs: its number, and both values in octal
    #[arg(short = 'l', long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Compare at most this many bytes (K, M, G, T are powers of 1024)
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) bytes: Option<u64>,
    /// Leave out the first bytes of both files, or of each
    #[arg(short, long, value_name = "SKIP[:SKIP]")]
    pub(crate) ignore_initial: Option<String>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write digests of files, or check them
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant digest rootfs.img:/boot/vmlinuz
  extant digest -r rootfs.img:/usr --prefix . > SHA256SUMS
  extant digest --check SHA256SUMS --prefix . rootfs.img
  extant digest --algorithm sha512 'rootfs.img:/etc/host*'

Lines are those of sha256sum: what it is, two spaces, the path. `sha256sum -c SHA256SUMS` accepts them \
where the image is mounted or its files are extracted, with --prefix DIR for the directory. With \
--check, the paths of a list are looked up in the image, without the prefix.")]
pub(crate) struct Digest {
    /// Files, or with -r directories; with --check, the image or the directory that paths begin at
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// Which digest; with --check, the one that has this length if not given
    #[arg(long, short, value_name = "NAME")]
    pub(crate) algorithm: Option<Algorithm>,
    /// All regular files below directories
    #[arg(short, long, conflicts_with = "check")]
    pub(crate) recursive: bool,
    /// Put this in front of each path; with --check, take it away
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<OsString>,
    /// Compare files with the digests in this list; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) check: Option<OsString>,
    /// With --check, name only what differs
    #[arg(short, long, requires = "check", conflicts_with = "recursive")]
    pub(crate) quiet: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    /// As sha256sum writes it
    Sha256,
    /// As sha512sum writes it
    Sha512,
    /// As sha1sum writes it; no protection against people
    Sha1,
    /// As md5sum writes it; no protection against people
    Md5,
    /// CRC-32C, which finds accidents
    Crc32c,
}

/// Find lines of files that match a pattern
#[derive(Debug, ClapArgs)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  extant grep root rootfs.img:/etc/passwd
  extant grep -rn --include '*.conf' -i 'nameserver' rootfs.img:/etc || echo none
  extant grep -Erl '^(root|www-data):' rootfs.img:/etc
  extant grep -c '' 'rootfs.img:/etc/host*'

Patterns are those of grep, and mean bytes, as with LC_ALL=C. Back-references are refused. A file with a \
zero byte in it is a binary one: that it matches is said once, unless -a is given.

Exit codes (those of grep):
  0\tA line was found
  1\tNone was found
  2\tSomething could not be read, or the command line makes no sense")]
pub(crate) struct Grep {
    /// The pattern, unless it is given with -e, then files; with -r, directories
    #[arg(required = true, value_name = "PATTERN|IMAGE:/path")]
    pub(crate) words: Vec<OsString>,
    /// A pattern; may be given more than once
    #[arg(short = 'e', long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) regexp: Vec<OsString>,
    /// Extended regular expressions
    #[arg(short = 'E', long, conflicts_with = "fixed_strings")]
    pub(crate) extended_regexp: bool,
    /// Patterns are text
    #[arg(short = 'F', long)]
    pub(crate) fixed_strings: bool,
    /// In any case: A to Z
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Lines that do not match
    #[arg(short = 'v', long)]
    pub(crate) invert_match: bool,
    /// What matches is a whole word
    #[arg(short, long)]
    pub(crate) word_regexp: bool,
    /// What matches is a whole line
    #[arg(short = 'x', long)]
    pub(crate) line_regexp: bool,
    /// All files below directories; symbolic links are not followed
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Only files whose names match this (`*.conf`)
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<OsString>,
    /// No files whose names match this
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<OsString>,
    /// No directories whose names match this
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude_dir: Vec<OsString>,
    /// The number of each line
    #[arg(short = 'n', long)]
    pub(crate) line_number: bool,
    /// Only the names of files that have such a line
    #[arg(short = 'l', long, conflicts_with_all = ["count", "only_matching"])]
    pub(crate) files_with_matches: bool,
    /// Only how many lines there are in each file
    #[arg(short = 'c', long)]
    pub(crate) count: bool,
    /// Only what matches of each line
    #[arg(short = 'o', long, conflicts_with = "invert_match")]
    pub(crate) only_matching: bool,
    /// The path in front of each line, as with -r and with several files
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    pub(crate) with_filename: bool,
    /// No path in front of lines
    #[arg(short = 'h', long, overrides_with = "with_filename")]
    pub(crate) no_filename: bool,
    /// Take binary files for text
    #[arg(short = 'a', long)]
    pub(crate) text: bool,
    /// Say nothing, and end with the first line that is found
    #[arg(short, long, visible_alias = "silent")]
    pub(crate) quiet: bool,
    /// One JSON object for each line, or for each file with -l and -c
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
    /// Show this help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}
