//! Options that fstab lines for ext4 have, and what they mean to a mount that works in another way.
//!
//! Names and meanings are those of ext4(5) and mount(8). What asks for what is done in any case, or
//! for less, is taken. What asks for something that is not done is refused by its name, with what
//! to do instead: a line that was written for Linux then does what it says, or says why not.

/// What an option means that no mount does anything about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is the case anyway, or a matter of other programs.
    Nothing,
    /// As `Nothing`, if its value is a number.
    Number,
    /// It is not done, and this is what to do about that.
    Refused(&'static str),
}

/// Options that say nothing here: those of fstab, and what is the case anyway.
const NOTHING: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "noatime",
    "nodiratime",
    "diratime",
    "atime",
    "relatime",
    "norelatime",
    "lazytime",
    "acl",
    "user_xattr",
    "loop",
    "silent",
    "nomand",
    "nolazytime",
    "noiversion",
    "iversion",
    "i_version",
    "nostrictatime",
    "loud",
    "symfollow",
    // Of ext4: what is done, or promised, in any case.
    "data=ordered",
    // Promises less than that.
    "data=writeback",
    "data_err=ignore",
    "barrier",
    "barrier=1",
    // Caches are flushed all the same.
    "nobarrier",
    "barrier=0",
    "auto_da_alloc",
    "auto_da_alloc=1",
    "auto_da_alloc=0",
    "noauto_da_alloc",
    "journal_checksum",
    "nojournal_checksum",
    "bsddf",
    "block_validity",
    "noblock_validity",
    "dioread_lock",
    "dioread_nolock",
    "nodioread_nolock",
    "init_itable",
    "noinit_itable",
    "mblk_io_submit",
    "nomblk_io_submit",
    "prefetch_block_bitmaps",
    "no_prefetch_block_bitmaps",
    "bh",
    "nobh",
    "orlov",
    "oldalloc",
    "reservation",
    "noreservation",
    "check=none",
    "nocheck",
    "dax=never",
    "dax=inode",
    "debug",
    "warn_on_error",
    "nowarn_on_error",
    "inlinecrypt",
    "nombcache",
    "no_mbcache",
];

/// Options of ext4 with a number that says nothing here: how it goes about what is done in another
/// way.
const NUMBERS: &[&str] = &[
    "stripe",
    "init_itable",
    "inode_readahead_blks",
    "journal_ioprio",
    "max_batch_time",
    "min_batch_time",
    "mb_optimize_scan",
];

/// What belongs to SELinux.
const LABELS: &str =
    "no label is given to all files here: leave it out; the policy says what mounts of FUSE have";
/// What belongs to quota files that are ordinary files.
const QUOTA_FILES: &str = "limits are kept inside the file system, not in files with names: `extant tune --features quota` \
                           adds them, and usrquota and grpquota hold to them";
/// What only tests of Linux's ext4 ask for.
const FOR_TESTS: &str = "it is for tests of Linux's ext4: leave it out";

/// Options that ask for what is not done here, whole or with any value, and what to do about that.
const REFUSED: &[(&str, &str)] = &[
    (
        "strictatime",
        "reading does not change access times here: leave it out",
    ),
    (
        "errors=panic",
        "a process cannot stop the machine: errors=remount-ro stops all changes",
    ),
    (
        "data=journal",
        "data does not go through the journal here: leave it out, and use -o sync where all that is written is to be durable",
    ),
    (
        "data_err=abort",
        "an error of writing data is told to the program that syncs the file, and ends nothing else: leave it out",
    ),
    (
        "noacl",
        "access control lists are always kept to: leave it out",
    ),
    (
        "nouser_xattr",
        "extended attributes are always there: leave it out",
    ),
    (
        "remount",
        "the kernel changes a mount alone: `mount -i -o remount,...` asks it without asking extant",
    ),
    (
        "journal_async_commit",
        "a commit is durable when its commit block is, in this order: leave it out",
    ),
    (
        "journal_dev",
        "a journal on another device is read only, and named by its file: `extant mount --journal FILE -o ro`",
    ),
    (
        "journal_path",
        "a journal on another device is read only: `extant mount --journal FILE -o ro`",
    ),
    (
        "sb",
        "a backup superblock is for reading only: `extant mount --superblock N -o ro`, or `extant repair`",
    ),
    (
        "resuid",
        "the superblock says whose the reserve is: `extant tune --reserved-user`",
    ),
    (
        "resgid",
        "the superblock says whose the reserve is: `extant tune --reserved-group`",
    ),
    ("usrjquota", QUOTA_FILES),
    ("grpjquota", QUOTA_FILES),
    ("jqfmt", QUOTA_FILES),
    (
        "minixdf",
        "the space that is told is what files can have: leave it out",
    ),
    (
        "nouid32",
        "numbers of users and groups have 32 bits here: leave it out",
    ),
    (
        "max_dir_size_kb",
        "directories grow as long as there is space: leave it out",
    ),
    (
        "dax",
        "there is no DAX through FUSE: leave it out, or say dax=never",
    ),
    (
        "abort",
        "it ends a mount of Linux's ext4 for tests: `extant umount` ends this one",
    ),
    ("debug_want_extra_isize", FOR_TESTS),
    ("test_dummy_encryption", FOR_TESTS),
    (
        "mand",
        "there are no mandatory locks since Linux 5.15: leave it out",
    ),
    (
        "nosymfollow",
        "symbolic links are followed here: another mount of the directory, by `mount --bind`, can have it",
    ),
    (
        "loop",
        "the mount finds a loop device by itself where it has one: leave the name of the device out",
    ),
    (
        "sizelimit",
        "the superblock says how long the file system is: leave it out",
    ),
    (
        "encryption",
        "open the disk with cryptsetup, and mount what that shows",
    ),
    ("context", LABELS),
    ("fscontext", LABELS),
    ("defcontext", LABELS),
    ("rootcontext", LABELS),
];

/// Returns what an option that no mount does anything about means.
pub(crate) fn meaning(option: &str) -> Meaning {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    if NOTHING.contains(&option) || is_for_others(name) {
        return Meaning::Nothing;
    }
    if NUMBERS.contains(&name) {
        return match value {
            Some(_) => Meaning::Number,
            None => Meaning::Refused("it takes a number"),
        };
    }
    let refused = REFUSED
        .iter()
        .find(|(refused, _)| [option, name].contains(refused));
    Meaning::Refused(refused.map_or(
        "there is no such option; `extant mount --help` lists them",
        |(_, why)| why,
    ))
}

/// Options that fstab keeps for other programs.
fn is_for_others(name: &str) -> bool {
    name.starts_with("x-")
        || name.starts_with("X-")
        || matches!(name, "comment" | "helper" | "uhelper" | "user")
}
