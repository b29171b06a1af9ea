//! `tar`: archives that other programs read.

use crate::support::{
    Place, as_mke2fs_keeps, change, extant, extant_with, faithful, on_a_terminal, small_plan,
};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write, mke2fs};
use extant_testkit::plan::{Content, NodeKind, TarForm, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::torture::TortureSpec;
use extant_testkit::tree::{Compare, Tree};
use std::path::Path;

/// Extracts with the system's tar and compares.
fn assert_extracts(place: &Place, archive: &str, plan: &TreePlan, compare: &Compare) {
    let back = place.join("back");
    std::fs::create_dir(&back).unwrap();
    tool("tar")
        .args([
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "--numeric-owner",
        ])
        .args(["-xpf", archive, "-C"])
        .arg(&back)
        .ok();
    plan.expected().assert_same(&Tree::snapshot(&back), compare);
}

#[test]
fn the_system_tar_reads_back_a_torture_tree() {
    require!(Root, KernelExt4, TmpfsXattrs);
    let place = Place::in_memory();
    let plan = TortureSpec::small().for_image(4096, 256, false).plan();
    let plan = plan.kept_by(TarForm::Pax);
    let image = place.kernel_image(&plan, 512 << 20, &[]);
    let archive = place.arg("out.tar");
    extant(["tar", &image, "-o", &archive]).ok();
    assert_extracts(&place, &archive, &plan, &faithful());
}

#[test]
fn archives_are_the_same_every_time_and_on_standard_output() {
    let place = Place::in_memory();
    let plan = small_plan();
    let image = place.image(&plan, &[]);
    let once = extant(["tar", &image]).ok().stdout;
    let again = extant(["tar", &image]).ok().stdout;
    assert!(once == again);
    assert_eq!(once.len() % 10_240, 0);
    extant(["tar", &image, "-o", &place.arg("out.tar")]).ok();
    assert!(std::fs::read(place.join("out.tar")).unwrap() == once);
    assert_extracts(&place, &place.arg("out.tar"), &plan, &as_mke2fs_keeps());
}

#[test]
fn an_archive_does_not_go_to_a_terminal() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let said = on_a_terminal(&["tar", &image]);
    assert!(
        said.starts_with("extant: an archive does not belong"),
        "{said:?}"
    );
    assert!(said.contains("-o"), "{said:?}");
}

#[test]
fn a_part_of_an_image_is_named_from_there_on() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let list = |path: &str| {
        extant([
            "tar",
            &format!("{image}:{path}"),
            "-o",
            &place.arg("part.tar"),
        ])
        .ok();
        tool("tar")
            .args(["-tf", &place.arg("part.tar")])
            .ok()
            .text()
    };
    assert_eq!(list("/etc"), "./\n.hidden\nabsolute\nhostname\nlink\nup\n");
    assert_eq!(list("/etc/hostname"), "hostname\n");
}

#[test]
fn long_names_targets_and_large_numbers_survive() {
    require!(Root);
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    let long = "n".repeat(255);
    plan.dir(long.clone());
    plan.file(format!("{long}/{long}"), Content::filled(1, 1000))
        .owner(3_000_000_000, 4_000_000_000)
        .time(-1_000_000_000, 5);
    plan.symlink("link", "t".repeat(900));
    plan.hard_link("hard", format!("{long}/{long}"));
    plan.special("null", NodeKind::CharDevice(1, 3));
    let image = place.image(&plan, &[]);
    extant(["tar", &image, "-o", &place.arg("out.tar")]).ok();
    assert_extracts(&place, &place.arg("out.tar"), &plan, &as_mke2fs_keeps());
}

#[test]
fn a_socket_is_reported_because_tar_cannot_hold_it() {
    require!(KernelExt4);
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.special("socket", NodeKind::Socket);
    plan.file("file", Content::filled(1, 10));
    let image = place.kernel_image(&plan, 16 << 20, &[]);
    let run = extant(["tar", &image, "-o", &place.arg("out.tar")]).fails(1);
    assert!(run.stderr.contains("socket was left out"), "{}", run.stderr);
}

/// An image whose directory entries were given names that nothing honest writes: what is written
/// first, and bytes that take the place of others of the same length.
fn renamed_on_disk(place: &Place, commands: &str, from: &[u8], to: &[u8]) -> String {
    let image = place.join("fs.img");
    let plain = "^metadata_csum,^has_journal,^64bit,^dir_index,^inline_data";
    mke2fs(&image, 1 << 20, &["-t", "ext4", "-O", plain]);
    std::fs::write(place.join("payload"), "payload").unwrap();
    std::fs::write(
        place.join("commands"),
        commands.replace("PAYLOAD", &place.arg("payload")),
    )
    .unwrap();
    tool("debugfs")
        .args(["-w", "-f", &place.arg("commands")])
        .arg(&image)
        .ok();
    let mut bytes = std::fs::read(&image).unwrap();
    let at: Vec<usize> = (0..bytes.len() - from.len())
        .filter(|&at| bytes[at..].starts_with(from))
        .collect();
    assert_eq!(
        (at.len(), from.len()),
        (1, to.len()),
        "the name is there once"
    );
    bytes[at[0]..at[0] + to.len()].copy_from_slice(to);
    std::fs::write(&image, bytes).unwrap();
    image.display().to_string()
}

#[test]
fn an_archive_of_an_image_with_impossible_names_holds_the_rest_and_leads_nowhere() {
    let cases: [(&str, &[u8], &[u8]); 6] = [
        (
            "symlink target /tmp\nmkdir targes\ncd targes\nwrite PAYLOAD inside\ncd ..\n",
            b"targes",
            b"target",
        ),
        (
            "symlink escape /tmp/outside\nwrite PAYLOAD escapf\n",
            b"escapf",
            b"escape",
        ),
        ("write PAYLOAD AAAname\n", b"AAAname", b"../name"),
        ("write PAYLOAD AAAAname\n", b"AAAAname", b"/tmpname"),
        ("write PAYLOAD AAAnul\n", b"AAAnul", b"A\0Anul"),
        ("write PAYLOAD Z\nmkdir QQ\n", b"\x02\x02QQ", b"\x02\x02.."),
    ];
    for (commands, from, to) in cases {
        let place = Place::new();
        let commands = format!("write PAYLOAD a-good\n{commands}write PAYLOAD z-good\n");
        let image = renamed_on_disk(&place, &commands, from, to);
        let archive = place.arg("out.tar");
        if to.iter().any(|byte| matches!(byte, 0 | b'/')) {
            // No directory has such bytes in a name: its block is read up to there at most.
            let run = extant(["tar", &image, "-o", &archive]).fails(1);
            assert!(run.stderr.contains("corrupt"), "{}", run.stderr);
            let listed = tool("tar").args(["-tf", &archive]).ok().text();
            let mut listed = listed.lines();
            assert_eq!(listed.next(), Some("./"));
            assert!(listed.all(|name| ["a-good", "lost+found/"].contains(&name)));
            continue;
        }
        let run = extant(["tar", &image, "-o", &archive]).fails(1);
        let told = run.stderr.lines().filter(|line| !line.contains("--mend"));
        assert_eq!(told.count(), 1, "{}", run.stderr);
        let listed = tool("tar").args(["-tf", &archive]).ok().text();
        let listed: Vec<&str> = listed.lines().collect();
        let again = tool("bsdtar").args(["-tf", &archive]).ok().text();
        assert_eq!(again.lines().collect::<Vec<_>>(), listed);
        let mut members = listed.clone();
        members.dedup();
        assert_eq!(members, listed, "each name is there once");
        assert!(
            listed.contains(&"a-good") && listed.contains(&"z-good"),
            "{listed:?}"
        );
        for name in &listed {
            let below = name.split('/').any(|part| part == "..") || name.starts_with('/');
            assert!(!below && !name.contains("inside"), "{name}");
        }
        // The same into another image.
        let other = place.arg("other.img");
        extant(["mkfs", "-q", "--size", "4M", &other]).ok();
        let run = change(
            &other,
            ["cp", "-a", &format!("{image}:/."), &format!("{other}:/")],
        )
        .fails(1);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        extant(["cat", &format!("{other}:/z-good")]).ok();
    }
}

#[test]
fn an_image_in_a_source_is_left_out_of_that_source_only() {
    let place = Place::in_memory();
    let (dir, other) = (place.join("d"), place.join("other"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&other).unwrap();
    std::fs::write(dir.join("file"), "file").unwrap();
    std::fs::write(other.join("init"), "init").unwrap();
    let tar = place.arg("base.tar");
    let from = ["-C", &place.arg("other"), "init"];
    tool("tar").args(["-cf", &tar]).args(from).ok();
    let (image, dir) = (place.arg("d/init"), place.arg("d"));
    for base in [&tar, &place.arg("other")] {
        for _ in 0..2 {
            extant(["mkfs", &image, "--from", base, "--from", &dir, "-q"]).ok();
            let read = |path| extant(["cat", &format!("{image}:{path}")]).ok().text();
            assert_eq!(read("/init"), "init");
            assert_eq!(read("/file"), "file");
        }
    }
    let patterns = ["--exclude", "!init", "-q"];
    extant(["mkfs", &image, "--from", &dir].iter().chain(&patterns)).ok();
    extant(["cat", &format!("{image}:/init")]).fails(1);
}

#[test]
fn compressed_archives_are_unpacked_beside_an_image_with_a_bare_name() {
    let place = Place::in_memory();
    let dir = place.join("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), "file").unwrap();
    let tar = place.arg("d.tar.gz");
    tool("tar")
        .args(["-czf", &tar, "-C", &place.arg("d"), "."])
        .ok();
    let made = |image: &str| {
        extant_with(["mkfs", image, "--from", "d.tar.gz", "-q"], |command| {
            let nowhere = place.join("nowhere");
            command.current_dir(place.path()).env("TMPDIR", nowhere);
        })
    };
    for image in ["new.img", "./other.img", "d/third.img"] {
        made(image).ok();
        let file = format!("{}:/file", place.arg(image));
        assert_eq!(extant(["cat", &file]).ok().text(), "file");
    }
}

/// Extracts by GNU tar into a directory.
fn by_gnu_tar(archive: &str, dir: &str) {
    tool("tar")
        .args([
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "--numeric-owner",
        ])
        .args(["-xpf", archive, "-C", dir])
        .ok();
}

#[test]
fn an_archive_put_into_an_image_is_what_gnu_tar_extracts_under_a_mount() {
    require!(Root, KernelExt4, TmpfsXattrs);
    let place = Place::in_memory();
    let plan = TortureSpec::small().for_image(4096, 256, false).plan();
    let plan = plan.kept_by(TarForm::Pax);
    let from = place.planted("from", &plan);
    for (extension, compress) in [("tar", "cat"), ("tar.gz", "gzip -1"), ("tar.xz", "xz -0")] {
        let archive = place.arg(&format!("a.{extension}"));
        let script = format!(
            "cd '{from}' && tar --xattrs --xattrs-include=* --acls --numeric-owner --sparse \
             --format=pax -c . | {compress} > '{archive}'"
        );
        tool("sh").args(["-c", &script]).ok();
        let image = place.arg("fs.img");
        extant(["mkfs", "-q", "-f", "--size", "512M", &image]).ok();
        extant(["mkdir", &format!("{image}:/srv")]).ok();
        let into = format!("{image}:/srv");
        if extension == "tar" {
            extant_with(["tar", "-x", &into], |command| {
                command.pipe_stdin(&archive).unwrap();
            })
            .ok();
        } else {
            extant(["tar", "-xf", &archive, &into]).ok();
        }
        assert_clean(Path::new(&image));
        let srv = |image: &str, prepare: &dyn Fn(&Path)| {
            let mount = KernelMount::mount(Path::new(image), Mode::ReadWrite, "");
            prepare(&mount.join("srv"));
            let tree = Tree::snapshot(&mount.join("srv"));
            mount.unmount();
            tree
        };
        let found = srv(&image, &|_| {});
        extant(["mkfs", "-q", "-f", "--size", "512M", &image]).ok();
        extant(["mkdir", &into]).ok();
        let expected = srv(&image, &|dir| {
            by_gnu_tar(&archive, &dir.display().to_string())
        });
        expected.assert_same(&found, &faithful());
    }
}

#[test]
fn an_archive_joins_and_replaces_what_is_there_as_gnu_tar_does() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let mut plan = small_plan();
    plan.dir("srv").mode(0o700);
    plan.dir("srv/kept");
    plan.file("srv/kept/stays", Content::filled(1, 10));
    plan.file("srv/file", Content::filled(2, 100));
    plan.hard_link("srv/other", "srv/file");
    plan.symlink("srv/lib", "../usr/lib");
    plan.symlink("srv/gone", "nowhere");
    let image = place.kernel_image(&plan, 32 << 20, &[]);
    let mut new = TreePlan::new();
    new.dir("kept").mode(0o750).owner(3, 4);
    new.file("kept/added", Content::filled(3, 20)).owner(3, 4);
    new.file("kept/.wh.stays", Content::empty());
    new.file("kept/.wh..wh..opq", Content::empty());
    new.file("file", Content::filled(4, 5000)).mode(0o4755);
    new.symlink("gone", "kept");
    new.file("manifest.json", Content::filled(5, 30));
    new.special("pipe", NodeKind::Fifo);
    new.special("null", NodeKind::CharDevice(0, 0));
    let from = place.planted("from", &new);
    let archive = place.arg("a.tar");
    tool("tar")
        .args(["--format=pax", "-cf", &archive, "-C", &from])
        .args(["kept", "file", "gone", "manifest.json", "pipe", "null"])
        .ok();
    let copy = place.arg("copy.img");
    std::fs::copy(&image, &copy).unwrap();
    let run = change(&image, ["tar", "-xvf", &archive, &format!("{image}:/srv")]).ok();
    assert!(run.text().contains("replace /srv/file\n"), "{}", run.text());
    let mount = KernelMount::mount(Path::new(&copy), Mode::ReadWrite, "");
    by_gnu_tar(&archive, &mount.join("srv").display().to_string());
    let expected = Tree::snapshot(mount.path());
    mount.unmount();
    // A directory that only gets other files keeps its time, as those of layers do.
    let compare = Compare {
        mtime: false,
        ..faithful()
    };
    expected.assert_same(&crate::support::seen_by_linux(&image), &compare);
}

#[test]
fn what_cannot_be_put_into_an_image_leaves_it_as_it_is() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let before = extant(["ls", "-lR", &image]).ok().text();
    let archive = place.arg("a.tar");
    extant(["tar", &image, "-f", &archive]).ok();
    let mut bytes = std::fs::read(&archive).unwrap();
    std::fs::write(place.join("short.tar"), &bytes[..bytes.len() / 2 - 300]).unwrap();
    bytes[3] ^= 1;
    std::fs::write(place.join("spoilt.tar"), &bytes).unwrap();
    std::fs::write(place.join("large"), vec![7; 64 << 20]).unwrap();
    tool("tar")
        .args(["-cf", &place.arg("large.tar"), "-C"])
        .arg(place.path())
        .arg("large")
        .ok();
    tool("tar")
        .args([
            "-Pcf",
            &place.arg("up.tar"),
            "--transform",
            "s,^,../,",
            "-C",
        ])
        .arg(place.path())
        .arg("short.tar")
        .ok();
    for name in ["short.tar", "spoilt.tar", "large.tar", "up.tar", "gone.tar"] {
        let run = change(
            &image,
            ["tar", "-xf", &place.arg(name), &format!("{image}:/etc")],
        );
        assert_eq!(run.code, 1, "{name}: {}", run.stderr);
        assert_eq!(extant(["ls", "-lR", &image]).ok().text(), before, "{name}");
    }
    for (args, word) in [
        (
            &["tar", "-x", "-f", &archive, &image, &image][..],
            "name one",
        ),
        (&["tar", "-x", "-c", &image], "cannot be used with"),
    ] {
        let run = extant(args).fails_somehow();
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
    let run = change(
        &image,
        ["tar", "-xf", &archive, &format!("{image}:/etc/hostname")],
    )
    .fails(1);
    assert!(run.stderr.contains("no directory"), "{}", run.stderr);
}

#[test]
fn several_paths_are_one_archive_with_names_from_the_root() {
    let place = Place::in_memory();
    let plan = small_plan();
    let image = place.image(&plan, &[]);
    let at = |path: &str| format!("{image}:{path}");
    let names = |args: &[&str]| {
        let archive = place.arg("part.tar");
        let all = [&["tar"], args, &["-o", &archive]].concat();
        extant(all).ok();
        let mut names: Vec<String> = tool("tar")
            .args(["--quoting-style=escape", "-tf", &archive])
            .ok()
            .text()
            .lines()
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    };
    let all_of = |paths: &[&str]| {
        let mut all: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        all.sort();
        all
    };
    let etc = [
        "etc/",
        "etc/.hidden",
        "etc/absolute",
        "etc/hostname",
        "etc/link",
        "etc/up",
    ];
    assert_eq!(
        names(&[&at("/etc/"), &at("/usr/pipe")]),
        all_of(&[&etc[..], &["usr/pipe"]].concat())
    );
    // However many a pattern matches.
    assert_eq!(names(&[&at("/e*")]), all_of(&etc));
    // Nothing is there twice, whichever comes first.
    for paths in [["/etc", "/etc/hostname"], ["/etc/hostname", "/etc"]] {
        assert_eq!(names(&[&at(paths[0]), &at(paths[1])]), all_of(&etc));
    }
    assert_eq!(
        names(&[
            "--exclude",
            "[ahu]*",
            "--exclude",
            "/etc/link",
            &at("/[el]*"),
            &at("/usr/pipe")
        ]),
        all_of(&["etc/", "etc/.hidden", "loop", "lost+found/", "usr/pipe"])
    );
    assert_eq!(
        names(&["--exclude", "/usr", "--exclude", "link", &image]).len(),
        1 + etc.len() - 1 + 2
    );
    // Links between them are links.
    extant([
        "tar",
        &at("/usr/lib/again"),
        &at("/usr/lib/libone.so"),
        "-o",
        &place.arg("l.tar"),
    ])
    .ok();
    let told = tool("tar").args(["-tvf", &place.arg("l.tar")]).ok().text();
    assert!(told.contains("link to usr/lib/again"), "{told}");
    let run = extant(["tar", &at("/etc/../usr"), &at("/etc")]).fails(2);
    assert!(run.stderr.contains(".."), "{}", run.stderr);
    let other = place.arg("other.img");
    std::fs::copy(&image, &other).unwrap();
    let run = extant(["tar", &image, &other]).fails(2);
    assert!(run.stderr.contains("two images"), "{}", run.stderr);
    extant(["tar", &image, &at("/gone")]).fails(1);
}

#[test]
fn archives_are_compressed_as_options_and_names_say() {
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &[]);
    let plain = extant(["tar", &image]).ok().stdout;
    for (option, name, program) in [
        ("-z", "a.tar.gz", "gzip"),
        ("--zstd", "a.tar.zst", "zstd"),
        ("-J", "a.tar.xz", "xz"),
        ("", "b.tgz", "gzip"),
        ("", "c.tar", "cat"),
    ] {
        extant(["tar", "-cf", &place.arg(name), &image]).ok();
        let packed = std::fs::read(place.join(name)).unwrap();
        let args: &[&str] = if program == "cat" { &[] } else { &["-dc"] };
        let unpacked = tool(program).args(args).input(packed.clone()).ok().stdout;
        assert!(unpacked == plain, "{name}");
        if !option.is_empty() {
            let again = extant(["tar", option, &image]).ok().stdout;
            assert!(again == packed, "{option}");
        }
    }
    let run = extant(["tar", "-f", &place.arg("d.tar.bz2"), &image]).fails(2);
    assert!(run.stderr.contains(".bz2"), "{}", run.stderr);
    let run = extant(["tar", "-v", &format!("{image}:/etc")]).ok();
    assert!(run.stderr.contains("hostname\n"), "{}", run.stderr);
}

#[test]
fn a_file_whose_list_cannot_be_read_opens_nothing_to_its_group() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let file = format!("{image}:/usr/lib/libone.so");
    change(&image, ["acl", "set", "u:9:rwx,g::r", &file]).ok();
    change(&image, ["chmod", "6675", &file]).ok();
    // No attributes lie there.
    let block = debugfs(Path::new(&image), "bmap /usr/lib/libtwo.so.6 0");
    let break_it = format!("sif /usr/lib/libone.so file_acl {}", block.trim());
    debugfs_write(Path::new(&image), &[&break_it]);
    let archive = place.arg("out.tar");
    let run = extant(["tar", "-o", &archive, &image]).fails(1);
    assert!(run.stderr.contains("extended attributes"), "{}", run.stderr);
    let list = tool("tar").args(["-tvf", &archive]).ok().text();
    let lines = list
        .lines()
        .filter(|line| line.contains("lib/libone.so") || line.contains("again"));
    let lines: Vec<&str> = lines.collect();
    assert!(lines.len() == 2, "{list}");
    for line in lines {
        assert_eq!(&line[1..10], "rw----r-x", "{line}");
    }
}
