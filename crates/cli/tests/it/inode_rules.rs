//! One judgement of an inode: the table of rules, walked with an image for each, which the engine,
//! the check, e2fsck and the kernel are all asked about.

use crate::support::{Place, extant};
use extant::Filesystem;
use extant::errno::{ENOKEY, EPERM};
use extant_format::inode::rules::{LARGE, RULES, Reading, Report, Rule};
use extant_testkit::facility::{Facility, skip};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, dumpe2fs_header, e2fsck, mke2fs};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Bytes of a file that are compared.
const LOOKED_AT: u64 = 1 << 20;

/// How an inode comes to break a rule and no other that matters.
struct Specimen {
    rule: &'static str,
    base: &'static [&'static str],
    edits: &'static [&'static str],
    path: &'static str,
    /// e2fsck says nothing, though Linux does not read the inode.
    unsaid: bool,
}

const PLAIN: &[&str] = &["-t", "ext4"];
const INLINE: &[&str] = &["-t", "ext4", "-O", "inline_data", "-I", "256"];
const UNSUMMED: &[&str] = &["-t", "ext4", "-O", "^metadata_csum"];
const VALUES: &[&str] = &["-t", "ext4", "-O", "ea_inode"];

const fn specimen(
    rule: &'static str,
    base: &'static [&'static str],
    edits: &'static [&'static str],
    path: &'static str,
) -> Specimen {
    Specimen {
        rule,
        base,
        edits,
        path,
        unsaid: false,
    }
}

const fn unsaid(specimen: Specimen) -> Specimen {
    Specimen {
        unsaid: true,
        ..specimen
    }
}

#[rustfmt::skip]
const SPECIMENS: &[Specimen] = &[
    specimen("mode-type", PLAIN, &["sif /big mode 0"], "big"),
    specimen("inline-and-extents", PLAIN, &["sif /big flags 0x10080000"], "big"),
    specimen("inline-and-extents", INLINE, &["sif /dir flags 0x10080000"], "dir"),
    specimen("inline-without-feature", INLINE, &["feature -inline_data"], "small"),
    specimen("inline-without-content", INLINE, &["sif /null flags 0x10000000"], "null"),
    specimen("inline-without-attribute", INLINE, &["sif /fast flags 0x10000000"], "fast"),
    specimen("extents-without-feature", PLAIN, &["feature -extents"], "big"),
    specimen("extents-without-content", PLAIN, &["sif /null flags 0x80000"], "null"),
    specimen("extents-in-short-link", PLAIN, &["sif /fast flags 0x80000"], "fast"),
    specimen("resize-inode-form", PLAIN, &["sif <7> flags 0x80000"], "big"),
    specimen("index-without-directory", PLAIN, &["sif /big flags 0x81000"], "big"),
    specimen("index-without-directory", PLAIN, &["sif <9> flags 0x1000"], "big"),
    specimen("index-without-feature", UNSUMMED, &["feature -dir_index", "sif /dir flags 0x81000"], "dir"),
    specimen("index-without-feature-but-checksums", PLAIN, &["feature -dir_index", "sif /dir flags 0x81000"], "dir"),
    specimen("index-of-inline-directory", INLINE, &["sif /dir flags 0x10001000"], "dir"),
    specimen("casefold-without-feature", PLAIN, &["sif /dir flags 0x40080000"], "dir"),
    specimen("casefold-without-directory", PLAIN, &["sif <9> flags 0x40000000"], "big"),
    unsaid(specimen("value-without-feature", PLAIN, &["sif /big flags 0x280000"], "big")),
    unsaid(specimen("value-without-file", VALUES, &["sif /dir flags 0x280000"], "dir")),
    specimen("imagic-without-feature", PLAIN, &["sif /big flags 0x82000"], "big"),
    specimen("blocks-unit-without-feature", PLAIN, &["feature -huge_file", "sif /big flags 0xc0000"], "big"),
    specimen("verity-without-feature", PLAIN, &["sif /big flags 0x180000"], "big"),
    specimen("encrypted-without-feature", PLAIN, &["sif /big flags 0x80800"], "big"),
    specimen("journal-encrypted", PLAIN, &["sif <8> flags 0x80800"], "big"),
    unsaid(specimen("protected-link", PLAIN, &["sif /fast flags 0x10"], "fast")),
    specimen("protected-special", PLAIN, &["sif /null flags 0x10"], "null"),
    specimen("size-beyond-map", PLAIN, &["sif /big size 0x40000000000"], "big"),
    specimen("size-without-feature", PLAIN, &["feature -large_file", "sif /big size 0x80000000"], "big"),
    specimen("directory-cut-short", PLAIN, &["sif /dir size 1000"], "dir"),
    specimen("short-link-length", PLAIN, &["sif /fast size 4"], "fast"),
    specimen("short-link-length", PLAIN, &["sif /fast size 60"], "fast"),
    specimen("inline-link-length", INLINE, &["sif /middle size 61"], "middle"),
    specimen("inline-link-length", INLINE, &["sif /middle size 5000"], "middle"),
    specimen("attribute-block-outside", PLAIN, &["sif /big file_acl 9999999"], "big"),
    specimen("attribute-block-without-feature", PLAIN, &[LONG_ATTRIBUTE, "feature -ext_attr"], "big"),
    specimen("extents-unsaid", PLAIN, &["sif /big flags 0"], "big"),
    specimen("map-root", PLAIN, &["sif /big block[0] 0"], "big"),
];

const LONG_ATTRIBUTE: &str = "ea_set /big user.long 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

/// What a reader finds at a path.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// The inode itself is refused.
    Refused(String),
    /// Type bits, size, sectors, and the content; an error where it cannot be read.
    Shown(u32, u64, Result<Vec<u8>, ()>),
}

impl Seen {
    fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

fn by_kernel(path: &Path) -> Seen {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(e) => return Seen::Refused(e.to_string()),
    };
    let kind = about.file_type();
    let content = if kind.is_symlink() {
        fs::read_link(path)
            .map(|target| target.as_os_str().as_bytes().to_vec())
            .map_err(drop)
    } else if kind.is_dir() {
        fs::read_dir(path)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|e| e.file_name().as_bytes().to_vec()))
                    .collect()
            })
            .map(joined)
            .map_err(drop)
    } else if kind.is_file() {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(LOOKED_AT).read_to_end(&mut bytes));
        read.map(|_| bytes).map_err(drop)
    } else {
        Ok(Vec::new())
    };
    Seen::Shown(about.mode() & 0o170_000, about.size(), content)
}

fn by_engine(fs: &Filesystem, path: &Path) -> Seen {
    let about = match fs.symlink_metadata(path) {
        Ok(about) => about,
        Err(e) => return Seen::Refused(e.to_string()),
    };
    let mode = u32::from(about.mode().bits());
    let content = match mode & 0o170_000 {
        0o120_000 => fs
            .read_link(path)
            .map(|target| target.as_os_str().as_bytes().to_vec())
            .map_err(drop),
        0o040_000 => fs
            .read_dir(path)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|e| e.file_name().as_bytes().to_vec()))
                    .collect()
            })
            .map(joined)
            .map_err(drop),
        0o100_000 => fs.open_file(path).map_err(drop).and_then(|file| {
            let mut bytes = vec![0; about.len().min(LOOKED_AT) as usize];
            let read = file.read_at(&mut bytes, 0).map_err(drop)?;
            assert_eq!(read, bytes.len());
            Ok(bytes)
        }),
        _ => Ok(Vec::new()),
    };
    Seen::Shown(mode & 0o170_000, about.len(), content)
}

fn joined(names: Vec<Vec<u8>>) -> Vec<u8> {
    let sorted: BTreeSet<Vec<u8>> = names.into_iter().collect();
    sorted.into_iter().collect::<Vec<_>>().join(&b'/')
}

/// The code of a check that a rule is said with; `None` where the walk over map or content says it
/// in its own words.
fn code_of(rule: &Rule) -> Option<&'static str> {
    Some(match rule.report {
        Report::Mode => "inode-mode",
        Report::Flags => "inode-flags:",
        Report::UnusedFlags => "inode-flags-unused",
        Report::Size => "inode-size",
        Report::Symlink => "symlink",
        Report::InlineData => "inline-data",
        Report::AttributeBlock => "xattr-location",
        Report::LargeFile => "large-file-feature",
        Report::Walk => return None,
    })
}

fn plant(dir: &Path) {
    fs::create_dir_all(dir.join("dir/sub")).unwrap();
    fs::write(dir.join("small"), "hello small\n").unwrap();
    fs::write(dir.join("big"), [b'B'; 9000]).unwrap();
    fs::write(dir.join("dir/a"), "aaa").unwrap();
    symlink("short", dir.join("fast")).unwrap();
    symlink("m".repeat(80), dir.join("middle")).unwrap();
    symlink("l".repeat(300), dir.join("slow")).unwrap();
}

/// A fresh image of such a file system.
fn make(place: &Place, options: &[&str]) -> PathBuf {
    let tree = place.join("tree");
    if !tree.exists() {
        plant(&tree);
    }
    let base = place.join(&options.join("").replace('^', "no-"));
    if !base.exists() {
        let tree = tree.display().to_string();
        let all: Vec<&str> = options.iter().copied().chain(["-d", &tree]).collect();
        mke2fs(&base, 8 << 20, &all);
        debugfs_write(&base, &["mknod null c 1 3"]);
    }
    let image = place.join("image");
    fs::copy(base, &image).unwrap();
    image
}

#[test]
fn engine_check_e2fsck_and_kernel_judge_inodes_alike() {
    if skip(&[Facility::Root, Facility::LoopDevices, Facility::KernelExt4]).is_some() {
        return;
    }
    let place = Place::new();
    for rule in RULES {
        assert!(
            SPECIMENS.iter().any(|specimen| specimen.rule == rule.name),
            "no image breaks {}",
            rule.name
        );
    }
    let mut wrong = Vec::new();
    for specimen in SPECIMENS {
        let image = make(&place, specimen.base);
        debugfs_write(&image, specimen.edits);
        let rule = RULES
            .iter()
            .find(|rule| rule.name == specimen.rule)
            .unwrap();
        let mut note = |what: String| {
            wrong.push(format!("{} ({:?}): {what}", rule.name, specimen.edits));
        };

        let theirs = e2fsck(&image, &["-fn"]).code != 0;
        let check = extant(["check", image.to_str().unwrap()]);
        let ours = check.code != 0;
        if theirs == specimen.unsaid || ours != (theirs || specimen.unsaid) {
            let harmless = rule.report == Report::UnusedFlags && !ours && !theirs;
            if !harmless {
                note(format!(
                    "e2fsck complains: {theirs}; check: {}",
                    check.text()
                ));
            }
        }
        if code_of(rule).is_some_and(|code| !check.text().contains(code)) {
            note(format!("not said as {:?}: {}", code_of(rule), check.text()));
        }

        let Ok(mount) = KernelMount::try_mount(&image, Mode::ReadOnly, "errors=continue") else {
            if Filesystem::open_writable(&image).is_ok() || rule.reading != Reading::Refused {
                note("the kernel refuses the file system, and we do not".to_owned());
            }
            continue;
        };
        let kernel = by_kernel(&mount.join(specimen.path));
        mount.unmount();
        let fs = Filesystem::open(&image).unwrap();
        let engine = by_engine(&fs, &Path::new("/").join(specimen.path));
        let fits = match rule.reading {
            Reading::Refused => kernel.is_refused() && engine.is_refused(),
            Reading::Withheld => !kernel.is_refused() && engine.is_refused(),
            // The kernel may have been built without fs-verity, which we do not need to read.
            Reading::Shown if rule.name == "verity-without-feature" => !engine.is_refused(),
            Reading::Shown => !kernel.is_refused() && kernel == engine,
        };
        if !fits {
            note(format!("kernel: {kernel:.200?}; engine: {engine:.200?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_repair_of_a_link_keeps_its_target() {
    let place = Place::new();
    let edits: &[(&[&str], &str, &str)] = &[
        (INLINE, "middle", "sif /middle size 0"),
        (INLINE, "middle", "sif /middle size 1"),
        (INLINE, "middle", "sif /middle size 0x10000000000"),
        (INLINE, "middle", "sif /middle size 200"),
        (INLINE, "fast", "sif /fast flags 0x10000000"),
        (PLAIN, "fast", "sif /fast flags 0x10000000"),
        (PLAIN, "fast", "sif /fast flags 0x80000"),
        (PLAIN, "fast", "sif /fast flags 0x10"),
        (PLAIN, "fast", "sif /fast size 0"),
        (PLAIN, "fast", "sif /fast size 60"),
        (PLAIN, "fast", "sif /fast size 0x10000000000"),
        (PLAIN, "slow", "sif /slow size 1"),
        (PLAIN, "slow", "sif /slow flags 0"),
        (PLAIN, "slow", "sif /slow flags 0x10080000"),
    ];
    for (base, name, edit) in edits {
        let image = make(&place, base);
        let link = Path::new("/").join(name);
        let before = Filesystem::open(&image).unwrap().read_link(&link).unwrap();
        debugfs_write(&image, &[edit]);
        let path = image.to_str().unwrap();
        assert_eq!(extant(["check", path]).code, 4, "{edit}");
        let repair = extant(["repair", path]);
        assert_eq!(repair.code, 1, "{edit}: {}{}", repair.text(), repair.stderr);
        assert_clean(&image);
        let after = Filesystem::open(&image).unwrap().read_link(&link).unwrap();
        assert_eq!(after, before, "{edit}");
    }
}

#[test]
fn a_file_that_is_a_hole_behind_what_its_inode_holds_reads_and_copies_whole() {
    let place = Place::new();
    let tree = place.join("holes");
    fs::create_dir(&tree).unwrap();
    for (name, size) in [("hole", 3 << 20), ("short", 100), ("large", 3 << 30)] {
        File::create(tree.join(name))
            .unwrap()
            .set_len(size)
            .unwrap();
    }
    fs::write(tree.join("full"), "text").unwrap();
    let image = place.join("image");
    let source = tree.display().to_string();
    mke2fs(&image, 8 << 20, &[INLINE, &["-d", &source]].concat());
    let path = image.to_str().unwrap();
    assert_eq!(
        extant(["check", path])
            .ok()
            .text()
            .matches("warning")
            .count(),
        0
    );
    assert!(extant(["cat", &format!("{path}:/hole")]).ok().stdout == vec![0; 3 << 20]);
    let out = place.arg("out");
    extant(["cp", "-a", &format!("{path}:/."), &out]).ok();
    for (name, size) in [
        ("hole", 3 << 20),
        ("short", 100),
        ("large", 3_u64 << 30),
        ("full", 4),
    ] {
        let about = fs::metadata(Path::new(&out).join(name)).unwrap();
        assert_eq!(about.len(), size);
        assert!(about.blocks() < 64, "{name} has {} sectors", about.blocks());
    }
    let tar = extant(["tar", &format!("{path}:/short")]).ok().stdout;
    assert!(tar.len() >= 1024);

    // What is changed there is changed right, wherever it lies.
    let fs = Filesystem::open_writable(&image).unwrap();
    let mut open = extant::OpenOptions::new();
    let file = open.write(true).open(&fs, "/hole").unwrap();
    file.write_all_at(b"behind", 1 << 20).unwrap();
    let file = open.write(true).open(&fs, "/short").unwrap();
    file.write_all_at(b"front", 0).unwrap();
    let file = open.write(true).open(&fs, "/large").unwrap();
    file.set_len(50).unwrap();
    fs.close().unwrap();
    assert_clean(&image);
    let fs = Filesystem::open(&image).unwrap();
    let hole = fs.read("/hole").unwrap();
    assert!(hole.len() == 3 << 20 && hole[1 << 20..].starts_with(b"behind\0"));
    assert!(hole[..1 << 20].iter().all(|byte| *byte == 0));
    let short = fs.read("/short").unwrap();
    assert!(short.len() == 100 && short.starts_with(b"front\0"));
    assert_eq!(fs.read("/large").unwrap(), [0; 50]);
}

#[test]
fn no_command_takes_a_file_system_without_a_root() {
    let place = Place::new();
    for edit in [
        "sif / mode 0100755",
        "sif / mode 0",
        "sif / links_count 0",
        "sif / flags 0",
        "sif / flags 0x10080000",
        "sif / size 0",
        "sif / block[0] 0",
    ] {
        let image = make(&place, PLAIN);
        debugfs_write(&image, &[edit]);
        let path = image.to_str().unwrap();
        let (root, out) = (format!("{path}:/"), place.arg("out"));
        let commands: [&[&str]; 6] = [
            &["ls", &root],
            &["stat", &root],
            &["tar", &root],
            &["cp", "-r", &root, &out],
            &["mkdir", &format!("{path}:/new")],
            &["df", path],
        ];
        for command in commands {
            let run = extant(command).fails(1);
            assert!(run.stderr.contains("inode 2 "), "{edit}: {}", run.stderr);
        }
    }
}

#[test]
fn features_for_keys_and_verity_hinder_no_other_file() {
    let place = Place::new();
    let image = make(&place, &["-t", "ext4", "-O", "encrypt,verity,^inline_data"]);
    let path = image.to_str().unwrap();
    extant(["mkdir", &format!("{path}:/new")]).ok();
    extant(["rm", &format!("{path}:/small")]).ok();
    assert_clean(&image);
    debugfs_write(
        &image,
        &[
            "sif /dir flags 0x80800",
            "sif /big flags 0x80800",
            "symlink other x",
        ],
    );
    let fs = Filesystem::open_writable(&image).unwrap();
    let errno = |result: extant::Result<()>| result.unwrap_err().errno();
    assert_eq!(errno(fs.write("/big", b"text")), ENOKEY);
    assert_eq!(errno(fs.create_dir("/dir/new")), ENOKEY);
    assert_eq!(errno(fs.symlink("to", "/dir/link")), ENOKEY);
    assert_eq!(errno(fs.rename("/other", "/dir/other")), ENOKEY);
    assert_eq!(errno(fs.rename("/dir/a", "/a")), ENOKEY);
    // Names go without a key.
    fs.remove_file("/dir/a").unwrap();
    fs.remove_dir("/dir/sub").unwrap();
    fs.remove_dir("/dir").unwrap();
    fs.remove_file("/big").unwrap();
    fs.write("/plain", b"text").unwrap();
    fs.close().unwrap();
    assert_clean(&image);

    debugfs_write(&image, &["sif /plain flags 0x180000"]);
    let fs = Filesystem::open_writable(&image).unwrap();
    assert_eq!(errno(fs.write("/plain", b"other")), EPERM);
    assert_eq!(fs.read("/plain").unwrap(), b"text");
    fs.close().unwrap();
}

#[test]
fn a_file_of_2_gib_turns_its_feature_on() {
    let place = Place::new();
    let options = &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "^large_file,^resize_inode",
    ];
    let image = make(&place, options);
    let fs = Filesystem::open_writable(&image).unwrap();
    let file = extant::OpenOptions::new()
        .write(true)
        .open(&fs, "/small")
        .unwrap();
    file.set_len(LARGE - 1).unwrap();
    drop(file);
    fs.close().unwrap();
    assert!(!dumpe2fs_header(&image).has_feature("large_file"));
    assert_clean(&image);
    let fs = Filesystem::open_writable(&image).unwrap();
    let file = extant::OpenOptions::new()
        .write(true)
        .open(&fs, "/small")
        .unwrap();
    file.write_all_at(b"x", LARGE - 1).unwrap();
    drop(file);
    fs.close().unwrap();
    assert!(dumpe2fs_header(&image).has_feature("large_file"));
    assert_clean(&image);

    debugfs_write(&image, &["feature -large_file"]);
    let path = image.to_str().unwrap();
    let check = extant(["check", path]);
    assert!(
        check.code == 4 && check.text().contains("large-file-feature"),
        "{}",
        check.text()
    );
    assert_eq!(extant(["repair", path]).code, 1);
    assert!(dumpe2fs_header(&image).has_feature("large_file"));
    assert_clean(&image);
}

#[test]
fn the_inode_that_keeps_blocks_for_descriptors_needs_large_files_too() {
    let place = Place::new();
    let image = make(&place, &["-t", "ext4", "-b", "4096"]);
    debugfs_write(&image, &["feature -large_file"]);
    let path = image.to_str().unwrap();
    assert_ne!(e2fsck(&image, &["-fn"]).code, 0);
    assert_eq!(extant(["check", path]).code, 4);
    assert_eq!(extant(["repair", path]).code, 1);
    assert_clean(&image);
}

#[test]
fn a_name_of_what_has_none_is_refused() {
    let place = Place::new();
    let image = make(&place, PLAIN);
    debugfs_write(&image, &["link <8> journal"]);
    let path = image.to_str().unwrap();
    for command in ["cat", "stat"] {
        let run = extant([command, &format!("{path}:/journal")]).fails(1);
        assert!(run.stderr.contains("inode 8 "), "{}", run.stderr);
    }
    let out = place.arg("out");
    let run = extant(["cp", "-r", &format!("{path}:/."), &out]).fails(1);
    assert!(run.stderr.contains("inode 8 "), "{}", run.stderr);
    assert!(!Path::new(&out).join("journal").exists());
    assert!(Path::new(&out).join("big").exists());
}
