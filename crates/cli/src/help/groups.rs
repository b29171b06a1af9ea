//! The groups of commands, and the options that mean something to each.

/// Commands by what they are for, in the order of the help.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    ("Make an image", &["mkfs", "convert"]),
    (
        "Look into an image",
        &[
            "ls", "tree", "cat", "stat", "find", "grep", "du", "digest", "cmp", "diff", "lsattr",
            "info", "df", "map",
        ],
    ),
    (
        "Take files out, or put them in",
        &["cp", "apply", "sync", "tar"],
    ),
    (
        "Change files in an image",
        &[
            "mkdir",
            "mknod",
            "rm",
            "mv",
            "ln",
            "chmod",
            "chown",
            "relabel",
            "touch",
            "truncate",
            "fallocate",
            "write",
            "xattr",
            "acl",
            "chattr",
            "edit",
        ],
    ),
    (
        "Check, repair and adjust an image",
        &[
            "check", "repair", "revert", "replay", "resize", "trim", "tune", "quota", "verity",
        ],
    ),
    (
        "Look into the past of an image",
        &["log", "deleted", "recover"],
    ),
    (
        "Mount or serve an image",
        &["mount", "umount", "stats", "serve"],
    ),
    ("Stand in for e2fsprogs", &["links"]),
    ("Help", &["completions", "man", "help"]),
];

const PART: &[&str] = &["partition", "offset"];
/// Of commands that change an image in a way that can be taken back.
const PART_AND_UNDO: &[&str] = &["partition", "offset", "undo"];
const PART_AND_JOURNAL: &[&str] = &["partition", "offset", "as_is", "journal"];
const ALL: &[&str] = &[
    "partition",
    "offset",
    "superblock",
    "as_is",
    "mend",
    "journal",
];
const ALL_AND_UNDO: &[&str] = &[
    "partition",
    "offset",
    "superblock",
    "as_is",
    "mend",
    "journal",
    "undo",
];

/// The options about the place of a file system that mean something to a command.
pub(super) fn location_options(path: &[&str]) -> &'static [&'static str] {
    match path {
        [
            "umount" | "stats" | "completions" | "links" | "man" | "help",
            ..,
        ] => &[],
        [
            "apply" | "mkdir" | "mknod" | "rm" | "mv" | "ln" | "chmod" | "chown" | "relabel"
            | "touch",
        ] => PART_AND_UNDO,
        ["truncate" | "fallocate" | "write" | "chattr" | "edit" | "replay"] => PART_AND_UNDO,
        ["repair" | "tune" | "resize" | "trim" | "verity"] => PART_AND_UNDO,
        ["mkfs" | "convert" | "revert" | "serve"] => PART,
        ["xattr" | "acl", "set" | "rm"] => PART_AND_UNDO,
        ["cp" | "quota" | "sync"] => ALL_AND_UNDO,
        ["check" | "log" | "deleted" | "recover"] => PART_AND_JOURNAL,
        _ => ALL,
    }
}

/// Whether a command writes what depends on the time.
pub(super) fn uses_the_time(path: &[&str]) -> bool {
    // Only commands that change images have no use for a backup of the superblock.
    let changes_images = || [PART, PART_AND_UNDO].contains(&location_options(path));
    matches!(
        path,
        [] | ["cp" | "find" | "quota" | "man" | "xattr" | "acl"]
    ) || changes_images()
}

/// Manual pages of other programs that tell more about a command.
pub(super) fn related(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "mkfs" => &[
            ("mke2fs", "8"),
            ("tar", "1"),
            ("fakeroot", "1"),
            ("setfiles", "8"),
        ],
        "convert" => &[("qemu-img", "1"), ("simg2img", "1")],
        "ls" => &[("ls", "1")],
        "tree" => &[("tree", "1")],
        "cat" => &[("cat", "1")],
        "stat" => &[("stat", "1")],
        "find" => &[("find", "1")],
        "diff" => &[("diff", "1"), ("cmp", "1")],
        "grep" => &[("grep", "1")],
        "du" => &[("du", "1")],
        "digest" => &[("sha256sum", "1"), ("cksum", "1")],
        "cmp" => &[("cmp", "1")],
        "cp" => &[("cp", "1"), ("fakeroot", "1")],
        "sync" => &[("rsync", "1"), ("fakeroot", "1")],
        "apply" => &[("tar", "1"), ("setfiles", "8")],
        "tar" => &[("tar", "1")],
        "info" => &[("dumpe2fs", "8")],
        "df" => &[("df", "1"), ("du", "1")],
        "quota" => &[("quota", "1"), ("setquota", "8")],
        "map" => &[("filefrag", "8")],
        "check" | "repair" => &[("e2fsck", "8")],
        "tune" => &[("tune2fs", "8")],
        "resize" => &[("resize2fs", "8")],
        "revert" => &[("e2undo", "8")],
        "log" => &[("debugfs", "8"), ("dumpe2fs", "8")],
        "deleted" | "recover" => &[("debugfs", "8")],
        "trim" => &[("fstrim", "8"), ("zerofree", "8")],
        "verity" => &[("veritysetup", "8")],
        "mkdir" => &[("mkdir", "1")],
        "mknod" => &[("mknod", "1")],
        "rm" => &[("rm", "1")],
        "mv" => &[("mv", "1")],
        "ln" => &[("ln", "1")],
        "chmod" => &[("chmod", "1")],
        "chown" => &[("chown", "1")],
        "relabel" => &[("setfiles", "8")],
        "touch" => &[("touch", "1")],
        "truncate" => &[("truncate", "1")],
        "fallocate" => &[("fallocate", "1")],
        "write" => &[("dd", "1")],
        "xattr" => &[("getfattr", "1"), ("setfattr", "1"), ("xattr", "7")],
        "acl" => &[("getfacl", "1"), ("setfacl", "1"), ("acl", "5")],
        "edit" => &[("debugfs", "8")],
        "chattr" | "lsattr" => &[("chattr", "1"), ("lsattr", "1")],
        "replay" => &[("e2fsck", "8")],
        "serve" => &[("qemu-nbd", "8"), ("nbdkit", "1"), ("nbdcopy", "1")],
        "mount" | "umount" => &[("mount", "8"), ("fstab", "5"), ("fusermount3", "1")],
        "links" => &[
            ("mke2fs", "8"),
            ("e2fsck", "8"),
            ("resize2fs", "8"),
            ("tune2fs", "8"),
            ("dumpe2fs", "8"),
        ],
        "man" => &[("man", "1")],
        _ => &[],
    }
}
