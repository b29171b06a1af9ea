//! `mke2fs` and `mkfs.ext4` beside the real ones.

use super::{Links, assert_alike, stderr};
use crate::support::{as_mke2fs_keeps, seen_by_linux, small_plan};
use extant_testkit::oracle::{assert_clean, dumpe2fs, dumpe2fs_header};
use extant_testkit::require;
use extant_testkit::tool::Output;
use extant_testkit::tool::tool;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Options that both take, and the size; a size of nothing means a file of 32 MiB that is there.
const SETS: &[(&str, &str, &str)] = &[
    ("mkfs.ext4", "", "64M"),
    ("mkfs.ext4", "", ""),
    ("mke2fs", "", "20000"),
    ("mke2fs", "-j", "20480s"),
    ("mkfs.ext2", "-b4096", "5000"),
    ("mkfs.ext3", "", "65536k"),
    ("mke2fs", "-Text4,small -t ext4", "16M"),
    ("mke2fs", "-t ext4 -T small -v", "16M"),
    ("mke2fs", "-t ext4 -T small -q", "16M"),
    ("mke2fs", "-T largefile", "600M"),
    ("mke2fs", "-t ext3 -T news,largefile4", "600m"),
    ("mkfs.ext4", "-F -b 4096 -I 512 -N 4000 -m 1.5", "1g"),
    (
        "mkfs.ext4",
        "-i 65536 -G 4 -g 8192 -e panic -M /srv/x",
        "0x10000",
    ),
    (
        "mkfs.ext4",
        "-O ^has_journal,^resize_inode -r 1 -o Linux",
        "30M",
    ),
    ("mkfs.ext4", "-O bigalloc -C 16384", "100M"),
    ("mkfs.ext4", "-O none", "10M"),
    ("mkfs.ext4", "-O meta_bg,^resize_inode -b 1024", "300M"),
    ("mkfs.ext4", "-O metadata_csum_seed,orphan_file", "64M"),
    ("mkfs.ext4", "-O ^64bit,^metadata_csum,uninit_bg", "64M"),
    ("mkfs.ext4", "-O sparse_super2 -E num_backup_sb=1", "64M"),
    ("mkfs.ext4", "-J size=8 -E stride=4,stripe-width=16", "256M"),
    ("mkfs.ext4", "-E resize=1000000,root_owner=7:8", "64M"),
    ("mkfs.ext4", "-E lazy_itable_init=1,nodiscard", "64M"),
    (
        "mkfs.ext4",
        "-E lazy_itable_init=0,lazy_journal_init=0",
        "64M",
    ),
    ("mkfs.ext4", "-E offset=1048576", "10M"),
    ("mkfs.ext4", "-b -2048 -L label", "64M"),
    ("mkfs.ext4", "-U 7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e", "1M"),
    ("mkfs.ext4", "-U clear -I 128 -D -K", "64M"),
    // As buildroot, genimage and Yocto call it.
    (
        "mkfs.ext4",
        "-r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit",
        "60M",
    ),
    (
        "mke2fs",
        "-t ext4 -I 256 -E root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0 -O ^large_file -O ^huge_file",
        "64M",
    ),
    ("mkfs.ext4", "-F -i 4096", ""),
    ("mkfs.ext4", "-n", ""),
    ("mkfs.ext4", "-nv -L x", ""),
    ("mkfs.ext4", "-O mmp,casefold -E encoding=utf8", "64M"),
    ("mkfs.ext4", "-L a-label-that-is-too-long", "64M"),
    ("mkfs.ext4", "-t ext4 -t ext3", "64M"),
    ("mkfs.ext4", "-t ext7", "64M"),
    ("mkfs.ext4", "-O nosuch", "64M"),
    ("mkfs.ext4", "-E nosuch=1", "64M"),
    ("mkfs.ext4", "-J nosuch=1", "64M"),
    ("mkfs.ext4", "-I 100", "64M"),
    ("mkfs.ext4", "-m 51", "64M"),
    ("mkfs.ext4", "-i 100", "64M"),
    ("mkfs.ext4", "-e nothing", "64M"),
    ("mkfs.ext4", "-U nothing", "64M"),
    ("mkfs.ext4", "-G 3", "64M"),
    ("mkfs.ext4", "-g 7", "64M"),
    ("mkfs.ext4", "-N 99999999", "64M"),
    ("mkfs.ext4", "-Z", "64M"),
    ("mkfs.ext4", "-b", ""),
    ("mkfs.ext4", "", "64X"),
    ("mkfs.ext4", "-E resize=10", "64M"),
    ("mkfs.ext4", "-O quota", "64M"),
    ("mkfs.ext4", "-O quota,project,orphan_file", "64M"),
    ("mkfs.ext4", "-O quota -E quotatype=prjquota", "64M"),
    ("mkfs.ext4", "-E quotatype=usrquota", "64M"),
    ("mkfs.ext4", "-O ^extent", "64M"),
    ("mkfs.ext4", "-O ^extent,^64bit", "64M"),
];

/// Beginnings of what the real one tells of itself beside what it makes.
const ADVICE: &[&str] = &[
    "128-byte inodes",
    "Extents are not enabled",
    "64-bit filesystem support",
    "Multiple mount protection",
    "Discard succeeded",
];

/// What a program printed, with what names the image and the step taken out.
fn told(output: &Output, image: &str) -> Vec<String> {
    let text = output.text().replace(image, "IMAGE");
    let lines = text.lines().map(|line| {
        // The real one shows groups that are done, over and over.
        let line = line.replace('\u{8}', "");
        let end = line.rfind("done").map(|at| &line[at..]);
        match (line.split_once(':'), end) {
            (Some((step, _)), Some(end)) if line.contains("/") => format!("{step}: {end}"),
            (Some(("Filesystem UUID", _)), _) => "Filesystem UUID:".to_owned(),
            _ => line,
        }
    });
    lines
        .filter(|line| !ADVICE.iter().any(|advice| line.starts_with(advice)))
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[test]
fn the_same_options_make_the_same_file_system_and_say_the_same() {
    let links = Links::new();
    for (name, options, size) in SETS {
        let what = format!("{name} {options} {size}");
        let run = |is_ours: bool| {
            let image = links.arg(if is_ours { "ours.img" } else { "theirs.img" });
            let _ = fs::remove_file(&image);
            if size.is_empty() {
                File::create(&image).unwrap().set_len(32 << 20).unwrap();
            }
            let program = links.program(name, is_ours);
            let mut args: Vec<&str> = options.split_whitespace().collect();
            args.push(&image);
            args.extend(Some(*size).filter(|size| !size.is_empty()));
            let output = program.args(args).run();
            (output, image)
        };
        let ((ours, our_image), (theirs, their_image)) = (run(true), run(false));
        assert_eq!(ours.code, theirs.code, "{what}: {ours} {theirs}");
        if ours.code != 0 {
            assert_eq!(ours.code, 1, "{what}");
            assert!(
                stderr(&ours).contains(&format!("{name}: ")),
                "{what}: {ours}"
            );
            continue;
        }
        assert_eq!(
            told(&ours, &our_image),
            told(&theirs, &their_image),
            "{what}"
        );
        if options.starts_with("-n") {
            assert!(
                fs::read(&our_image).unwrap().iter().all(|byte| *byte == 0),
                "{what}"
            );
            continue;
        }
        let len = |image: &str| fs::metadata(image).unwrap().len();
        assert_eq!(len(&our_image), len(&their_image), "{what}");
        if options.contains("offset") {
            let part = |image: &str| {
                let part = format!("{image}.part");
                let from = format!("if={image}");
                let to = format!("of={part}");
                tool("dd").args([&*from, &to, "bs=1M", "skip=1"]).ok();
                part
            };
            let (ours, theirs) = (part(&our_image), part(&their_image));
            assert_alike(Path::new(&ours), Path::new(&theirs), &what);
            continue;
        }
        assert_alike(Path::new(&our_image), Path::new(&their_image), &what);
        assert_clean(Path::new(&our_image));
    }
}

#[test]
fn a_directory_or_an_archive_fills_the_file_system() {
    require!(Root, KernelExt4, LoopDevices);
    let links = Links::new();
    let source = links.place.planted("source", &small_plan());
    let archive = links.arg("source.tar");
    tool("tar")
        .args([
            "--sparse",
            "--numeric-owner",
            "-C",
            &source,
            "-cf",
            &archive,
            ".",
        ])
        .ok();
    let theirs = links.arg("theirs.img");
    tool("mke2fs")
        .args(["-qt", "ext4", "-d", &source, &theirs, "32M"])
        .ok();
    let expected = seen_by_linux(&theirs);
    for (from, name) in [(&source, "dir.img"), (&archive, "tar.img")] {
        let image = links.arg(name);
        let made = links
            .ours("mkfs.ext4")
            .args(["-d", from, &image, "32M"])
            .ok();
        assert!(
            made.text()
                .contains("\nCopying files into the device: done\n"),
            "{made}"
        );
        assert_clean(Path::new(&image));
        expected.assert_same(&seen_by_linux(&image), &as_mke2fs_keeps());
    }
    let through_stdin = links.arg("stdin.img");
    let bytes = fs::read(&archive).unwrap();
    links
        .ours("mke2fs")
        .args(["-q", "-text4", "-d", "-", &through_stdin, "32M"])
        .input(bytes)
        .ok();
    let seen = seen_by_linux(&through_stdin);
    expected.assert_same(&seen, &as_mke2fs_keeps());
}

#[test]
fn what_is_there_is_written_in_place_and_keeps_its_length() {
    let links = Links::new();
    let image = links.arg("img");
    fs::write(&image, vec![0xa5; 8 << 20]).unwrap();
    let open = File::options().read(true).open(&image).unwrap();
    // Without a terminal nothing is asked, as mke2fs has it.
    links.ours("mkfs.ext4").args(["-q", &image, "4M"]).ok();
    assert_eq!(open.metadata().unwrap().len(), 8 << 20);
    assert_eq!(
        dumpe2fs_header(Path::new(&image)).number("Block count"),
        4096
    );
    assert_clean(Path::new(&image));
    let head = fs::read(&image).unwrap();
    assert!(head[4 << 20..].iter().all(|byte| *byte == 0xa5));
    assert!(!head[..4 << 20].windows(64).any(|bytes| bytes == [0xa5; 64]));
    links.ours("mkfs.ext4").args(["-q", &image, "16M"]).ok();
    assert_eq!(open.metadata().unwrap().len(), 16 << 20);
    assert_eq!(
        dumpe2fs_header(Path::new(&image)).number("Block count"),
        16_384
    );
    assert_clean(Path::new(&image));
    let kept = fs::read(&image).unwrap();
    let refused = links
        .ours("mkfs.ext4")
        .args(["-q", "-E", "zz", &image])
        .run();
    assert_eq!(refused.code, 1, "{refused}");
    assert!(stderr(&refused).contains("zz"), "{refused}");
    assert_eq!(fs::read(&image).unwrap(), kept);
}

#[test]
fn a_person_is_asked_before_something_is_lost() {
    let links = Links::new();
    let image = links.arg("img");
    tool("mke2fs")
        .args(["-qF", "-Lprecious", &image, "8M"])
        .ok();
    let before = fs::read(&image).unwrap();
    let program = links.arg("bin/mkfs.ext4");
    let asked = |answer: &str, option: &str| {
        let command = format!("'{program}' {option} '{image}'");
        tool("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .input(format!("{answer}\n"))
            .run()
    };
    let no = asked("n", "-q");
    assert!(no.text().contains("precious"), "{no}");
    assert_eq!(no.code, 1, "{no}");
    assert_eq!(fs::read(&image).unwrap(), before);
    let yes = asked("y", "-q");
    assert_eq!(yes.code, 0, "{yes}");
    assert_ne!(fs::read(&image).unwrap(), before);
    let forced = asked("n", "-qF");
    assert_eq!(forced.code, 0, "{forced}");
}

#[test]
fn mke2fs_conf_is_heard() {
    let links = Links::new();
    let conf = links.arg("mke2fs.conf");
    fs::write(
        &conf,
        "[defaults]\n\tbase_features = sparse_super,filetype,resize_inode,dir_index,ext_attr\n\
         \tblocksize = 2048\n\tinode_size = 512\n\tfs_type = mine\n\treserved_ratio = 2.5\n\
         [fs_types]\n\tmine = {\n\t\tfeatures = has_journal,extent\n\t\tinode_ratio = 32768\n\
         \t\tdefault_mntopts = user_xattr\n\t\terrors = remount-ro\n\
         \t\toptions = num_backup_sb=1,stride=2\n\t}\n\
         \tsmall = {\n\t\tdefault_features = ^extent\n\t}\n",
    )
    .unwrap();
    for (options, name) in [
        ("", "mke2fs"),
        ("-O large_file", "mke2fs"),
        ("-t mine", "mkfs.ext4"),
    ] {
        let make = |is_ours| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            let program = links.program(name, is_ours).env("MKE2FS_CONFIG", &conf);
            let args = options
                .split_whitespace()
                .chain(["-q", "-F", &image, "64M"]);
            program.args(args).ok();
            image
        };
        let (ours, theirs) = (make(true), make(false));
        assert_alike(Path::new(&ours), Path::new(&theirs), options);
    }
    fs::write(&conf, "[defaults]\nfs_type = ext4\n[fs_types]\next4 = {\n").unwrap();
    let image = links.arg("none");
    let broken = links.ours("mke2fs").env("MKE2FS_CONFIG", &conf);
    let broken = broken.args([&image, "10M"]).run();
    assert_eq!(broken.code, 1, "{broken}");
    assert!(stderr(&broken).contains("line 4: "), "{broken}");
    fs::write(&conf, "[fs_types]\next4 = {\nhash_alg = tea\n}\n").unwrap();
    let refused = links.ours("mkfs.ext4").env("MKE2FS_CONFIG", &conf);
    let refused = refused.args([&image, "10M"]).run();
    assert!(stderr(&refused).contains("hash_alg"), "{refused}");
    // Without any file the settings that are built in are those of the system's.
    let (ours, theirs) = (links.arg("ours"), links.arg("theirs"));
    let bare = links
        .ours("mkfs.ext4")
        .env("MKE2FS_CONFIG", "/nonexistent/conf");
    bare.args(["-q", "-F", &ours, "600M"]).ok();
    tool("mkfs.ext4").args(["-q", "-F", &theirs, "600M"]).ok();
    assert_alike(Path::new(&ours), Path::new(&theirs), "built in");
}

#[test]
fn settings_that_belong_to_a_feature_are_heard() {
    let links = Links::new();
    let conf = links.arg("mke2fs.conf");
    for (settings, options) in [
        ("num_backup_sb = 0", "-O sparse_super2"),
        ("num_backup_sb = 1", "-O sparse_super2"),
        ("num_backup_sb = 1", "-O sparse_super2 -E num_backup_sb=2"),
        ("num_backup_sb = 1", ""),
        ("encoding = utf8", "-O casefold"),
        ("encoding = utf8-12.1", "-O casefold"),
        ("encoding = ascii", "-O casefold"),
        ("encoding = ascii", ""),
        ("warn_y2038_dates = 0", ""),
    ] {
        let what = format!("{settings} {options}");
        // Without, inodes have 128 bytes.
        let size = if settings.starts_with("warn") {
            ""
        } else {
            "inode_size = 256"
        };
        let features = "features = has_journal,extent,64bit";
        let text = format!("[fs_types]\next4 = {{\n{features}\n{size}\n{settings}\n}}\n");
        fs::write(&conf, text).unwrap();
        let make = |is_ours| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            let _ = fs::remove_file(&image);
            let program = links.program("mkfs.ext4", is_ours);
            let args = ["-q", "-F", "-b", "1024", &image, "64M"];
            let args = options.split_whitespace().chain(args);
            (program.env("MKE2FS_CONFIG", &conf).args(args).run(), image)
        };
        let ((ours, our_image), (theirs, their_image)) = (make(true), make(false));
        assert_eq!(ours.code, theirs.code, "{what}: {ours} {theirs}");
        if ours.code == 0 {
            assert_alike(Path::new(&our_image), Path::new(&their_image), &what);
            assert!(ours.stderr.is_empty(), "{what}: {ours}");
        } else {
            assert!(
                stderr(&ours).contains("mke2fs.conf: encoding = ascii: "),
                "{ours}"
            );
        }
    }
    // What the real one makes and ours does not is refused by name.
    for (setting, options) in [
        ("encoding_flags = strict", "-O casefold"),
        ("num_backup_sb = 9", "-O sparse_super2"),
        ("creator_os = hurd", "-q"),
        ("make_hugefiles = 1", "-q"),
    ] {
        fs::write(&conf, format!("[fs_types]\next4 = {{\n{setting}\n}}\n")).unwrap();
        let image = links.arg("none");
        let program = links.ours("mkfs.ext4").env("MKE2FS_CONFIG", &conf);
        let args = options.split_whitespace().chain([&*image, "64M"]);
        let refused = program.args(args).run();
        assert_eq!(refused.code, 1, "{setting}: {refused}");
        let name = setting.split(' ').next().unwrap();
        assert!(stderr(&refused).contains(name), "{setting}: {refused}");
        assert!(!Path::new(&image).exists(), "{setting}");
    }
}

#[test]
fn a_link_to_nothing_leads_to_where_the_file_is_made() {
    let links = Links::new();
    fs::create_dir(links.arg("dir")).unwrap();
    symlink("second", links.arg("first")).unwrap();
    symlink("dir/made.img", links.arg("second")).unwrap();
    for options in [&["-q"][..], &["-q", "-E", "offset=1M"]] {
        let program = links.ours("mkfs.ext4").args(options);
        program.args([&links.arg("first"), "8M"]).ok();
        let made = links.arg("dir/made.img");
        assert!(fs::metadata(&made).unwrap().len() >= 8 << 20);
        assert!(
            fs::symlink_metadata(links.arg("first"))
                .unwrap()
                .is_symlink()
        );
        if options.len() == 1 {
            assert_clean(Path::new(&made));
        }
        fs::remove_file(made).unwrap();
    }
    symlink("no/where", links.arg("nowhere")).unwrap();
    let nowhere = links.ours("mkfs.ext4").args([&links.arg("nowhere"), "8M"]);
    let nowhere = nowhere.run();
    assert_eq!(nowhere.code, 1, "{nowhere}");
}

#[test]
fn the_same_moment_gives_the_same_bytes() {
    let links = Links::new();
    let source = links.place.planted("source", &small_plan());
    for variable in ["SOURCE_DATE_EPOCH", "E2FSPROGS_FAKE_TIME"] {
        let make = |name: &str| {
            let image = links.arg(name);
            let program = links.ours("mkfs.ext4").env(variable, "1700000000");
            program.args(["-qF", "-d", &source, &image, "32M"]).ok();
            fs::read(image).unwrap()
        };
        assert!(make("one.img") == make("two.img"), "{variable}");
    }
    let wrong = links.ours("mkfs.ext4").env("SOURCE_DATE_EPOCH", "soon");
    let wrong = wrong.args([&links.arg("none"), "10M"]).run();
    assert_eq!(wrong.code, 1, "{wrong}");
    assert!(
        stderr(&wrong).contains("SOURCE_DATE_EPOCH is soon"),
        "{wrong}"
    );
}

#[test]
fn what_needs_a_size_or_a_place_says_so() {
    let links = Links::new();
    let none = links.arg("none");
    let missing = links.ours("mkfs.ext4").arg(&none).run();
    assert_eq!(missing.code, 1, "{missing}");
    assert!(
        stderr(&missing).contains("does not exist and no size was specified"),
        "{missing}"
    );
    let empty = links.arg("empty");
    File::create(&empty).unwrap();
    let sizeless = links.ours("mkfs.ext4").arg(&empty).run();
    assert_eq!(sizeless.code, 1, "{sizeless}");
    let nowhere = links
        .ours("mkfs.ext4")
        .args([&links.arg("no/where"), "10M"])
        .run();
    assert_eq!(nowhere.code, 1, "{nowhere}");
    let no_disk = links.ours("mkfs.ext4").args(["/dev/null", "10M"]).run();
    assert_eq!(no_disk.code, 1, "{no_disk}");
    let unsourced = links.ours("mkfs.ext4");
    let unsourced = unsourced.args(["-d", "/nonexistent", &none, "10M"]).run();
    assert_eq!(unsourced.code, 1, "{unsourced}");
    assert!(!Path::new(&none).exists());
    let only_shown = links.ours("mkfs.ext4").args(["-n", &none, "10M"]).ok();
    assert!(
        only_shown.text().contains("10240 1k blocks"),
        "{only_shown}"
    );
    let odd = links
        .ours("mkfs.ext4")
        .args(["-b", "3000", &none, "10M"])
        .run();
    assert_eq!(odd.code, 1, "{odd}");
    assert!(!Path::new(&none).exists());
    let version = links.ours("mke2fs").arg("-V").ok();
    assert!(
        stderr(&version).starts_with("mke2fs 1.47.0 (extant "),
        "{version}"
    );
}

#[test]
fn tables_are_left_to_linux_where_that_is_asked_for() {
    let links = Links::new();
    for (option, is_zeroed) in [
        ("lazy_itable_init=1", false),
        ("lazy_itable_init=0", true),
        ("nodiscard", true),
    ] {
        let zeroed = |is_ours: bool| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            let program = links.program("mkfs.ext4", is_ours);
            program.args(["-q", "-F", "-E", option, &image, "64M"]).ok();
            let groups = dumpe2fs(Path::new(&image)).groups;
            groups
                .iter()
                .all(|group| group.flags.contains("ITABLE_ZEROED"))
        };
        assert_eq!(zeroed(true), is_zeroed, "{option}");
        if option.starts_with("lazy") {
            assert_eq!(zeroed(false), is_zeroed, "{option}");
        }
    }
}

#[test]
fn an_archive_is_not_overwritten_by_what_it_fills() {
    let links = Links::new();
    let source = links.place.planted("source", &small_plan());
    let [archive, other] = ["source.tar", "other.tar"].map(|name| links.arg(name));
    tool("tar").args(["-C", &source, "-cf", &archive, "."]).ok();
    fs::hard_link(&archive, &other).unwrap();
    let before = fs::read(&archive).unwrap();
    for name in [&archive, &other] {
        for more in ["-q", "-Eoffset=4096"] {
            let ours = links.ours("mkfs.ext4");
            let run = ours.args(["-F", more, "-d", name, &archive, "8M"]).run();
            assert!(run.code != 0, "{run}");
            assert!(stderr(&run).contains("source as well"), "{run}");
            assert!(fs::read(&archive).unwrap() == before);
        }
    }
}
