//! `mkfs`: images from the command line.

use crate::support::{Place, extant, extant_with, small_plan};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use extant_testkit::plan::{SparseForm, TarForm};
use extant_testkit::require;
use extant_testkit::tree::{Compare, Holes, Tree};
use rustix::fs::IFlags;
use std::path::Path;

fn source(place: &Place) -> String {
    let source = place.join("tree");
    std::fs::create_dir(&source).unwrap();
    small_plan().plant(&source);
    source.display().to_string()
}

fn faithful() -> Compare {
    Compare {
        holes: Holes::NoneLost(4096),
        ignore: vec![b"lost+found".to_vec()],
        ..Compare::default()
    }
}

#[test]
fn a_directory_becomes_an_image_and_comes_back_the_same() {
    let place = Place::in_memory();
    let (from, image) = (source(&place), place.arg("new.img"));
    extant(["mkfs", &image, "--from", &from, "--size", "auto"]).ok();
    assert_clean(Path::new(&image));
    extant(["cp", "-a", &image, &place.arg("back")]).ok();
    let back = Tree::snapshot(&place.join("back"));
    small_plan().expected().assert_same(&back, &faithful());
}

#[test]
fn an_archive_on_standard_input_becomes_an_image() {
    let place = Place::in_memory();
    let mut tar = Vec::new();
    small_plan()
        .write_tar(&mut tar, TarForm::Pax, SparseForm::Pax10)
        .unwrap();
    let image = place.arg("new.img");
    extant_with(["mkfs", &image, "--from", "-", "-q"], |command| {
        command.write_stdin(tar);
    })
    .ok();
    assert_clean(Path::new(&image));
    extant(["cp", "-a", &image, &place.arg("back")]).ok();
    let back = Tree::snapshot(&place.join("back"));
    small_plan().expected().assert_same(&back, &faithful());
}

#[test]
fn an_exported_archive_makes_the_same_tree_again() {
    let place = Place::in_memory();
    let first = place.image(&small_plan(), &[]);
    let (tar, second) = (place.arg("out.tar"), place.arg("second.img"));
    extant(["tar", &first, "-o", &tar]).ok();
    extant(["mkfs", &second, "--from", &tar]).ok();
    extant(["cp", "-a", &second, &place.arg("back")]).ok();
    let back = Tree::snapshot(&place.join("back"));
    small_plan().expected().assert_same(
        &back,
        &Compare {
            // mke2fs keeps whole seconds, and not the root's.
            whole_seconds: true,
            root: false,
            ..faithful()
        },
    );
}

#[test]
fn options_reach_the_file_system() {
    let place = Place::new();
    let image = place.arg("new.img");
    let uuid = "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e";
    extant([
        "mkfs",
        &image,
        "--size",
        "64M",
        "--block-size",
        "2K",
        "--inode-size",
        "512",
        "--inodes",
        "5000",
        "--features",
        "^has_journal,inline_data",
        "--label",
        "system",
        "--uuid",
        uuid,
        "--reserved-percent",
        "1",
        "--root-owner",
        "7:8",
        "--root-mode",
        "750",
    ])
    .ok();
    assert_clean(Path::new(&image));
    let dump = dumpe2fs_header(Path::new(&image));
    assert_eq!(dump.number("Block size"), 2048);
    assert_eq!(dump.number("Block count"), 32 << 10);
    assert_eq!(dump.number("Inode size"), 512);
    assert!((4900..5100).contains(&dump.number("Inode count")));
    assert_eq!(dump.field("Filesystem volume name"), "system");
    assert_eq!(dump.field("Filesystem UUID"), uuid);
    assert!(!dump.has_feature("has_journal"));
    assert!(dump.has_feature("inline_data"));
    let root = &extant(["stat", "--json", &image]).ok().lines()[0];
    assert_eq!(root["mode"], "0750");
    assert_eq!((&root["uid"], &root["gid"]), (&7.into(), &8.into()));
}

#[test]
fn sources_are_normalised_as_asked() {
    let place = Place::new();
    let (from, image) = (source(&place), place.arg("new.img"));
    extant([
        "mkfs",
        &image,
        "--from",
        &from,
        "--owner",
        "5:6",
        "--mtime",
        "1000",
        "--exclude",
        "*.so",
    ])
    .ok();
    let found = extant(["find", &image, "--json"]).ok().lines();
    assert!(found.iter().all(|e| e["path"] != "/usr/lib/libone.so"));
    let host = found.iter().find(|e| e["path"] == "/etc/hostname").unwrap();
    assert_eq!((&host["uid"], &host["gid"]), (&5.into(), &6.into()));
    assert_eq!(host["mtime"], "1970-01-01T00:16:40Z");
}

#[test]
fn flags_of_chattr_are_those_of_the_source() {
    require!(KernelExt4);
    let place = Place::new();
    let (disk, image) = (place.path().join("disk"), place.arg("new.img"));
    mke2fs(&disk, 8 << 20, &["-t", "ext4"]);
    let mount = KernelMount::mount(&disk, Mode::ReadWrite, "");
    std::fs::create_dir(mount.join("dir")).unwrap();
    // With content, without, and with a hole.
    for (name, flags, content, len) in [
        ("plain", IFlags::empty(), "text", 4),
        ("sealed", IFlags::IMMUTABLE | IFlags::NODUMP, "text", 4),
        ("log", IFlags::APPEND | IFlags::NOATIME, "", 0),
        ("hole", IFlags::NODUMP, "text", 1 << 20),
    ] {
        std::fs::write(mount.join(name), content).unwrap();
        let file = std::fs::File::options().write(true).open(mount.join(name));
        let file = file.unwrap();
        file.set_len(len).unwrap();
        let all = rustix::fs::ioctl_getflags(&file).unwrap();
        rustix::fs::ioctl_setflags(&file, all | flags).unwrap();
    }
    extant(["mkfs", &image, "--from", mount.path().to_str().unwrap()]).ok();
    for name in ["sealed", "log"] {
        let file = std::fs::File::open(mount.join(name)).unwrap();
        let all = rustix::fs::ioctl_getflags(&file).unwrap();
        let without = all - (IFlags::IMMUTABLE | IFlags::APPEND);
        rustix::fs::ioctl_setflags(&file, without).unwrap();
    }
    mount.unmount();
    let listed = extant(["lsattr", &format!("{image}:/")]).ok().text();
    let shown = |name: &str| {
        let line = listed.lines().find(|line| line.ends_with(name));
        let flags = line.and_then(|line| line.split_whitespace().next());
        let flags = flags.unwrap_or_else(|| panic!("{name}: {listed}"));
        flags.replace(['-', 'e'], "")
    };
    assert_eq!(shown("plain"), "");
    assert_eq!(shown("sealed"), "id");
    assert_eq!(shown("log"), "aA");
    assert_eq!(shown("hole"), "d");
}

#[test]
fn with_a_source_date_the_same_input_gives_the_same_bytes() {
    let place = Place::in_memory();
    let from = source(&place);
    let images = ["1", "2"].map(|threads| {
        let image = place.arg(threads);
        extant_with(
            ["mkfs", &image, "--from", &from, "--threads", threads],
            |command| {
                command.env("SOURCE_DATE_EPOCH", "1600000000");
            },
        )
        .ok();
        std::fs::read(image).unwrap()
    });
    assert!(images[0] == images[1]);
}

#[test]
fn a_failure_leaves_no_image_and_keeps_the_old_one() {
    let place = Place::new();
    let (from, image) = (source(&place), place.arg("new.img"));
    let run = extant(["mkfs", &image, "--from", &from, "--size", "192K"]).fails(1);
    assert!(run.stderr.contains("was not made"), "{}", run.stderr);
    assert!(!Path::new(&image).exists());
    extant(["mkfs", &image, "--from", &place.arg("gone")]).fails(1);
    assert!(!Path::new(&image).exists());
    std::fs::write(&image, "old").unwrap();
    extant(["mkfs", &image, "--from", &from, "--size", "192K"]).fails(1);
    assert_eq!(std::fs::read(&image).unwrap(), b"old");
    let left: Vec<_> = std::fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn an_offset_makes_the_file_system_in_place() {
    let place = Place::new();
    let disk = place.arg("disk.img");
    std::fs::write(&disk, vec![0xaa; 1 << 20]).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&disk)
        .unwrap()
        .set_len(33 << 20)
        .unwrap();
    extant(["mkfs", &disk, "--offset", "1M", "--size", "32M"]).ok();
    assert_eq!(
        std::fs::read(&disk).unwrap()[..1 << 20],
        vec![0xaa; 1 << 20]
    );
    let list = extant(["ls", &disk, "--offset", "1M"]).ok().text();
    assert_eq!(list, "lost+found\n");
    extant(["mkfs", &disk, "--offset", "1M", "--size", "64M"]).fails(1);
}

#[test]
fn the_source_is_not_overwritten_by_its_image() {
    let place = Place::new();
    let tar = place.arg("tree.tar");
    std::fs::write(&tar, "precious").unwrap();
    extant(["mkfs", &tar, "--from", &tar]).fails(2);
    assert_eq!(std::fs::read(&tar).unwrap(), b"precious");
}

#[test]
fn options_that_make_no_sense_are_refused_before_anything_is_made() {
    let place = Place::new();
    let image = place.arg("new.img");
    for wrong in [
        &["--block-size", "3K"][..],
        &["--inode-size", "100"],
        &["--features", "no_such_feature"],
        &["--profile", "dos"],
        &["--uuid", "123"],
        &["--label", "longer than sixteen"],
        &["--reserved-percent", "80"],
        &["--root-mode", "999"],
        &["--headroom", "10%"],
        &["--size", "lots"],
        &["--owner", "0"],
        &["--threads", "1000000"],
        &["--mtime", "99999999999"],
    ] {
        let mut args = vec!["mkfs", &image];
        if !wrong.contains(&"--size") {
            args.extend(["--size", "16M"]);
        }
        args.extend_from_slice(wrong);
        extant(&args).fails(2);
        assert!(!Path::new(&image).exists(), "{wrong:?}");
    }
    let run = extant(["mkfs", &image]).fails(2);
    assert!(run.stderr.contains("--size"), "{}", run.stderr);
}

#[test]
fn each_feature_is_made_and_passes_e2fsck_or_is_refused_by_name() {
    let place = Place::in_memory();
    let (from, image) = (source(&place), place.arg("new.img"));
    let mut made = vec!["--from", &from, "--size", "32M", "-q", "--features"];
    for feature in [
        "inline_data",
        "casefold",
        "encrypt",
        "verity",
        "mmp",
        "orphan_file",
        "fast_commit",
        "project",
        "quota",
        "quota,project,orphan_file",
        "stable_inodes",
        "large_dir",
        "ea_inode",
        "bigalloc",
        "meta_bg,^resize_inode",
        "sparse_super2",
        "metadata_csum_seed",
        "uninit_bg,^metadata_csum",
        "^metadata_csum",
        "^64bit",
        "^extent,^64bit",
        "^has_journal",
        "^dir_index",
        "^flex_bg",
        "none",
    ] {
        made.push(feature);
        extant(["mkfs", &image].iter().chain(&made)).ok();
        made.pop();
        assert_clean(Path::new(&image));
        let dump = dumpe2fs_header(Path::new(&image));
        for part in feature.split(',').filter(|&part| part != "none") {
            let name = part.trim_start_matches('^');
            assert_eq!(dump.has_feature(name), name == part, "{feature}");
        }
        let listed = extant(["ls", &format!("{image}:/usr/lib/libone.so")]);
        listed.ok();
    }
    std::fs::remove_file(&image).unwrap();
    made.pop();
    for features in [
        &["--quota", "user", "--features", "^quota"][..],
        &["--quota", "all"],
    ] {
        let run = extant(["mkfs", &image].iter().chain(&made).chain(features)).fails(2);
        let says = features.last().unwrap();
        assert!(run.stderr.contains(says), "{}", run.stderr);
        assert!(!Path::new(&image).exists());
    }
    made.push("--features");
    for feature in ["shared_blocks", "journal_dev", "compression"] {
        made.push(feature);
        let run = extant(["mkfs", &image].iter().chain(&made)).fails(2);
        made.pop();
        assert!(run.stderr.contains(feature), "{}", run.stderr);
        assert!(!Path::new(&image).exists());
    }
}

#[test]
fn what_was_made_is_told_to_programs() {
    let place = Place::new();
    let (from, image) = (source(&place), place.arg("new.img"));
    let made = extant(["mkfs", &image, "--from", &from, "--json"])
        .ok()
        .json();
    let dump = dumpe2fs_header(Path::new(&image));
    assert_eq!(made["image"], image);
    assert_eq!(made["uuid"], dump.field("Filesystem UUID"));
    assert_eq!(made["blocks"], dump.number("Block count"));
    assert_eq!(made["free_blocks"], dump.number("Free blocks"));
    assert_eq!(made["free_inodes"], dump.number("Free inodes"));
    let length = std::fs::metadata(&image).unwrap().len();
    assert_eq!(made["size"], length);
    extant(["mkfs", &image, "--size", "1M", "--json", "-q"]).fails(2);
}

#[test]
fn an_image_in_its_own_source_is_left_out_of_itself() {
    let place = Place::new();
    let from = source(&place);
    let image = format!("{from}/usr/[the image]*.img");
    for _ in 0..2 {
        extant(["mkfs", &image, "--from", &from]).ok();
        let list = extant(["ls", &format!("{image}:/usr")]).ok().text();
        assert_eq!(list, "lib\npipe\n");
    }
}

#[test]
fn a_build_that_is_killed_leaves_nothing_behind() {
    let place = Place::in_memory();
    let out = place.join("out");
    let from = place.join("large");
    std::fs::create_dir(&out).unwrap();
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("data"), vec![0x5a; 128 << 20]).unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_extant"))
        .arg("mkfs")
        .arg(out.join("new.img"))
        .arg("--from")
        .arg(&from)
        .spawn()
        .unwrap();
    let open_files = format!("/proc/{}/fd", child.id());
    let writes = || {
        std::fs::read_dir(&open_files).is_ok_and(|mut entries| {
            entries.any(|entry| {
                let target = entry.and_then(|entry| std::fs::read_link(entry.path()));
                target.is_ok_and(|target| target.starts_with(&out))
            })
        })
    };
    while !writes() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the build was too quick to be killed");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
}

#[test]
fn the_smallest_sizes_are_made_or_refused_as_too_small() {
    let place = Place::new();
    let image = place.arg("new.img");
    for size in ["0", "1k", "8k", "40k", "100k", "200k", "1M"] {
        let run = extant(["mkfs", &image, "--size", size, "-q"]);
        if run.code == 0 {
            assert_clean(Path::new(&image));
        } else {
            let run = run.fails(1);
            assert!(run.stderr.contains("too small"), "{size}: {}", run.stderr);
        }
    }
    assert_clean(Path::new(&image));
}

#[test]
fn archives_on_standard_input_are_called_that() {
    let place = Place::new();
    let run = extant_with(["mkfs", &place.arg("new.img"), "--from", "-"], |command| {
        command.write_stdin("this is no archive");
    });
    let run = run.fails(1);
    assert!(run.stderr.contains("standard input"), "{}", run.stderr);
}

#[test]
fn an_image_that_outgrows_its_partition_does_not_touch_the_next() {
    let place = Place::in_memory();
    let (from, disk) = (place.join("tree"), place.arg("disk.img"));
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("data"), vec![0x5a; 6 << 20]).unwrap();
    // A boot record with two partitions: 4 MiB from 1 MiB on, and 16 MiB from 5 MiB on.
    let mut bytes = vec![0xaa; 32 << 20];
    bytes[..512].fill(0);
    for (entry, start, sectors) in [(446, 2048_u32, 8192_u32), (462, 10240, 32768)] {
        bytes[entry + 4] = 0x83;
        bytes[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        bytes[entry + 12..entry + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(&disk, bytes).unwrap();
    let from = from.display().to_string();
    let before = std::fs::read(&disk).unwrap();
    let args = ["mkfs", &disk, "--from", &from, "--partition"];
    for (more, why) in [
        (&["1"][..], "no space left"),
        (&["1", "--size", "auto"], "too large"),
    ] {
        let run = extant(args.iter().chain(more).copied()).fails(1);
        assert!(run.stderr.contains(why), "{}", run.stderr);
        assert!(std::fs::read(&disk).unwrap() == before);
    }
    // Without a size, the file system fills the partition.
    let made = extant(args.iter().copied().chain(["2", "--json"]))
        .ok()
        .stdout;
    let made = String::from_utf8(made).unwrap();
    assert!(made.contains("16777216"), "{made}");
    assert!(std::fs::read(&disk).unwrap()[..5 << 20] == before[..5 << 20]);
    extant(["ls", &disk, "--partition", "2"]).ok();
}
