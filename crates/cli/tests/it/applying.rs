//! `extant apply`: what layers make of an image is what `umoci unpack` makes of their stack.

use crate::support::{Place, change, copy_of, extant, extant_with, seen_by_linux, small_plan};
use extant_testkit::layers::{Layout, Tar, docker_archive, stacks};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs, e2fsck_recover_beside, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Holes, Tree};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the unpacked tree and the mounted image agree on.
fn alike() -> Compare {
    Compare {
        holes: Holes::Ignore,
        ..Compare::default()
    }
}

/// Writes layers as archives; gives their paths.
fn archives(place: &Place, layers: &[Vec<u8>]) -> Vec<String> {
    let write = |(number, layer): (usize, &Vec<u8>)| {
        let name = format!("{number}.tar");
        fs::write(place.join(&name), layer).unwrap();
        place.arg(&name)
    };
    layers.iter().enumerate().map(write).collect()
}

/// An image of a layer.
fn base(place: &Place, name: &str, layer: &str) -> String {
    let image = place.arg(name);
    extant(["mkfs", "-q", "--size", "96M", &image, "--from", layer]).ok();
    image
}

/// What `umoci` unpacks of a layout.
fn unpacked(place: &Place, layout: &Layout) -> Tree {
    let bundle = place.arg("bundle");
    tool("umoci")
        .args(["unpack", "--image"])
        .arg(format!("{}:t", layout.0.display()))
        .arg(&bundle)
        .ok();
    Tree::snapshot(&place.join("bundle/rootfs"))
}

#[track_caller]
fn assert_is(image: &str, expected: &Tree) {
    assert_clean(Path::new(image));
    expected.assert_same(&seen_by_linux(image), &alike());
    let left = extant(["find", image, "--name", ".extant-*"]).ok();
    assert_eq!(left.text(), "");
}

#[test]
fn stacks_of_layers_are_what_umoci_unpacks() {
    require!(KernelExt4);
    for (name, layers) in stacks::all() {
        eprintln!("{name}");
        let place = Place::in_memory();
        let layers: Vec<Vec<u8>> = layers.into_iter().map(Tar::end).collect();
        let layout = Layout::of(place.join("layout"), &layers);
        let expected = unpacked(&place, &layout);
        let paths = archives(&place, &layers);
        let full: Vec<&str> = (paths.iter().zip(&layers))
            .filter(|(_, layer)| layer.len() > 1024)
            .map(|(path, _)| &**path)
            .collect();
        let (first, rest) = full.split_first().unwrap();
        // One after the other.
        let image = base(&place, "one.img", first);
        for layer in rest {
            change(&image, ["apply", "-q", layer, &image]).ok();
        }
        assert_is(&image, &expected);
        // All in one run, of which the first is on the image already.
        let image = base(&place, "all.img", first);
        let args = [&["apply", "-q"], &full[..], &[&image]].concat();
        change(&image, args).ok();
        assert_is(&image, &expected);
        // A whole container image.
        fs::write(place.join("docker.tar"), docker_archive(&layers, "x:1")).unwrap();
        for from in [
            format!("oci:{}:t", place.arg("layout")),
            place.arg("docker.tar"),
        ] {
            let image = place.arg("whole.img");
            extant(["mkfs", "-q", "--force", "--size", "96M", &image]).ok();
            change(&image, ["apply", "-q", &from, &image]).ok();
            assert_is(&image, &expected);
        }
    }
}

#[test]
fn what_layers_take_away_is_written_for_overlayfs_as_mkfs_writes_it() {
    require!(KernelExt4);
    for (name, layers) in stacks::all() {
        eprintln!("{name}");
        let place = Place::in_memory();
        let layers: Vec<Vec<u8>> = layers.into_iter().map(Tar::end).collect();
        let paths = archives(&place, &layers);
        let full: Vec<&str> = (paths.iter().zip(&layers))
            .filter(|(_, layer)| layer.len() > 1024)
            .map(|(path, _)| &**path)
            .collect();
        let made = place.arg("made.img");
        let mut args = vec!["mkfs", "-q", "--size", "96M", &made];
        for layer in &full {
            args.extend(["--from", layer]);
        }
        args.extend(["--whiteouts", "overlay"]);
        extant(args).ok();
        let (first, rest) = full.split_first().unwrap();
        let image = base(&place, "base.img", first);
        let args = [&["apply", "-q", "--whiteouts", "overlay"], rest, &[&*image]].concat();
        change(&image, args).ok();
        assert_is(&image, &seen_by_linux(&made));
    }
}

#[test]
fn an_image_is_a_layer_and_so_is_a_directory_in_one() {
    require!(LoopDevices, KernelExt4, Root);
    let place = Place::in_memory();
    let plan = small_plan();
    let layer = place.image(&plan, &[]);
    let before = fs::read(&layer).unwrap();
    let mut under = TreePlan::new();
    under.dir("srv").mode(0o700);
    under.dir("usr").mode(0o700);
    under.dir("usr/lib").mode(0o700);
    under.file("usr/lib/stays", Content::filled(3, 9000));
    under.file("stays", Content::filled(4, 100_000));
    let made = |name: &str| {
        let dir = place.planted(name, &under);
        let image = base(&place, &format!("{name}.img"), &dir);
        (dir, image)
    };
    // What copying the mounted image over a directory gives, for the root and for a directory.
    for (from, root, to) in [("", "/", ""), (":/usr/lib", "/srv", "/srv")] {
        let (dir, image) = made(if from.is_empty() { "whole" } else { "part" });
        let mounted = KernelMount::mount(Path::new(&layer), Mode::Untouched, "");
        let source = mounted.join(from.trim_start_matches([':', '/']));
        tool("cp")
            .args(["-aT", &source.display().to_string(), &format!("{dir}{to}")])
            .ok();
        mounted.unmount();
        let expected = Tree::snapshot(Path::new(&dir));
        let layer = format!("{layer}{from}");
        let args = ["apply", "-q", &layer, &image, "--root", root];
        change(&image, args).ok();
        assert_is(&image, &expected);
    }
    assert!(fs::read(&layer).unwrap() == before);
    // It cannot be a part of what it goes onto.
    let (_, image) = made("itself");
    let before = fs::read(&image).unwrap();
    for from in [image.clone(), format!("{image}:/usr/lib")] {
        let run = extant(["apply", &from, &image, "--root", "/srv"]).fails(2);
        assert!(run.stderr.contains("extant cp"), "{}", run.stderr);
    }
    assert!(fs::read(&image).unwrap() == before);
    let shown = seen_by_linux(&image);
    let missing = format!("{layer}:/nowhere");
    let run = change(&image, ["apply", &missing, &image]).fails(1);
    assert!(run.stderr.contains("nowhere"), "{}", run.stderr);
    shown.assert_same(&seen_by_linux(&image), &alike());
}

#[test]
fn the_same_layers_give_the_same_bytes() {
    let place = Place::in_memory();
    let layers: Vec<Vec<u8>> = stacks::kinds().into_iter().map(Tar::end).collect();
    let paths = archives(&place, &layers);
    let whole = base(&place, "base.img", &paths[0]);
    let applied = ["a.img", "b.img"].map(|name| {
        let image = copy_of(&whole, &place.arg(name));
        extant_with(["apply", "-q", &paths[1], &image], |command| {
            command.env("SOURCE_DATE_EPOCH", "1700000000");
        })
        .ok();
        fs::read(image).unwrap()
    });
    assert!(applied[0] == applied[1]);
}

#[test]
fn layers_come_compressed_on_standard_input_and_as_directories() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let tree = place.planted("tree", &small_plan());
    let image = place.arg("fs.img");
    let expected = Tree::snapshot(Path::new(&tree));
    let tar = tool("tar").args(["-C", &tree, "--xattrs", "-c", "."]).ok();
    let fresh = || {
        extant(["mkfs", "-q", "--force", "--size", "64M", &image]).ok();
    };
    for program in ["gzip", "zstd", "xz", "bzip2", "lz4"] {
        fresh();
        let packed = tool(program).arg("-c").input(tar.stdout.clone()).ok();
        let run = extant_with(["apply", "-", &image], |command| {
            command.write_stdin(packed.stdout);
        })
        .ok();
        assert!(run.text().contains("made"), "{}", run.text());
        assert_clean(Path::new(&image));
        let how = Compare {
            whole_seconds: true,
            ..alike()
        };
        expected.assert_same(&seen_by_linux(&image), &how);
    }
    fresh();
    extant(["apply", "-q", &tree, &image]).ok();
    assert_is(&image, &expected);
    // Once more over itself, with a whiteout.
    fs::write(place.join("tree/etc/.wh.hostname"), "").unwrap();
    fs::remove_file(place.join("tree/etc/hostname")).unwrap();
    extant(["apply", "-q", &tree, &image]).ok();
    fs::remove_file(place.join("tree/etc/.wh.hostname")).unwrap();
    assert_clean(Path::new(&image));
    let how = Compare {
        mtime: false,
        ..alike()
    };
    Tree::snapshot(Path::new(&tree)).assert_same(&seen_by_linux(&image), &how);
}

#[test]
fn a_root_inside_the_image_holds_links_in() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "64M", &image]).ok();
    extant(["mkdir", "-p", &format!("{image}:/srv/box/usr/lib")]).ok();
    extant(["ln", "-s", "/usr/lib", &format!("{image}:/srv/box/lib")]).ok();
    extant(["ln", "-s", "srv/box", &format!("{image}:/short")]).ok();
    let layer = Tar::new().file("lib/one", b"1").file("../two", b"2");
    fs::write(place.join("bad.tar"), layer.end()).unwrap();
    let apply = |name: &str, root: &str| {
        let layer = place.arg(name);
        change(&image, ["apply", "--root", root, &layer, &image])
    };
    let refused = apply("bad.tar", "/srv/box").fails(1).stderr;
    assert!(refused.contains(".."), "{refused}");
    let layer = Tar::new()
        .file("lib/one", b"1")
        .symlink("up", "../../../..");
    let layer = layer.file("up/two", b"2");
    fs::write(place.join("good.tar"), layer.end()).unwrap();
    apply("good.tar", "/short").ok();
    for (path, text) in [("/srv/box/usr/lib/one", "1"), ("/srv/box/two", "2")] {
        assert_eq!(
            extant(["cat", &format!("{image}:{path}")]).ok().text(),
            text
        );
    }
    extant(["stat", &format!("{image}:/two")]).fails(1);
    let missing = apply("good.tar", "/none").fails(1).stderr;
    assert!(missing.contains("/none"), "{missing}");
    apply("good.tar", "none").fails(2);
}

#[test]
fn a_dry_run_says_what_a_run_does_and_changes_nothing() {
    let place = Place::in_memory();
    let below = Tar::layer().dir("d/").file("d/old", b"o").file("f", b"f");
    let above = Tar::layer()
        .file(".wh.d", b"")
        .file("f", b"other")
        .dir("new/")
        .file("new/x", b"xx");
    let paths = archives(&place, &[below.end(), above.end()]);
    let image = base(&place, "fs.img", &paths[0]);
    let before = fs::read(&image).unwrap();
    let run = extant(["apply", "-n", &paths[1], &image]).ok();
    assert_eq!(
        run.text(),
        format!(
            "remove /d\nreplace /f\nadd /new\nset /\n{image}: would be made: 3 (7 bytes), \
             replaced: 1, removed: 1, set: 1\n"
        )
    );
    let told = |args: &[&str]| {
        let args = [&["apply", "--json"], args, &[&paths[1], &image]].concat();
        extant(args).ok().json()
    };
    let dry = told(&["--dry-run"]);
    assert!(fs::read(&image).unwrap() == before);
    let changes = dry["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 4);
    assert_eq!(changes[0]["change"], "remove");
    assert_eq!(changes[0]["path"], "/d");
    let wet = told(&[]);
    assert_clean(Path::new(&image));
    assert_eq!(wet["dry_run"], false);
    for key in ["made", "replaced", "removed", "described", "bytes"] {
        assert_eq!(dry[key], wet[key], "{key}");
    }
    assert_eq!((&wet["made"], &wet["bytes"]), (&3.into(), &7.into()));
    // The second time there is nothing that is not there, but files are put there again.
    extant(["stat", &format!("{image}:/d")]).fails(1);
    assert_eq!(told(&["-n"])["removed"], 0);
}

/// Whatever an image held it holds afterwards, and the command says so.
#[track_caller]
fn refused(place: &Place, image: &str, args: &[&str], why: &str) {
    let before = place.arg("before.tar");
    let after = place.arg("after.tar");
    extant(["tar", image, "-o", &before]).ok();
    let run = extant([&["apply"], args, &[image]].concat());
    let said = run.fails(1).stderr;
    assert!(said.contains(why), "{why}: {said}");
    assert_clean(Path::new(image));
    extant(["tar", image, "-o", &after]).ok();
    assert!(
        fs::read(before).unwrap() == fs::read(after).unwrap(),
        "{why}"
    );
}

#[test]
fn what_cannot_be_done_whole_leaves_all_files_as_they_were() {
    let place = Place::in_memory();
    let below = Tar::layer()
        .dir("d/")
        .file("d/f", b"old")
        .dir("fixed/")
        .dir("fixed/deep/")
        .file("fixed/deep/f", b"old")
        .file("fixed/f", b"old");
    let large: Vec<u8> = (0..20_u32 << 20).map(|n| (n % 251) as u8).collect();
    let value = "v".repeat(9000);
    let above = |tar: Tar| tar.file("d/f", b"new").file("d/g", b"new").end();
    let too_large = Tar::layer().file("large", &large);
    let no_place = Tar::layer()
        .pax(b'x', &[("SCHILY.xattr.user.large", &value)])
        .file("e", b"e");
    let cut = {
        let mut tar = above(Tar::layer());
        tar.truncate(1800);
        tar
    };
    let lost = Tar::layer().link("h", "nowhere");
    let layers = [
        below.end(),
        above(too_large),
        above(no_place),
        cut,
        above(lost),
        above(Tar::layer().file("fixed/f", b"new")),
        above(Tar::layer().dir(".extant-apply/")),
        above(Tar::layer().file(".wh.d", b"")),
        above(Tar::layer().file(".wh.fixed", b"")),
        above(Tar::layer().file("fixed/.wh..wh..opq", b"")),
    ];
    let paths = archives(&place, &layers);
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "16M", &image, "--from", &paths[0]]).ok();
    for name in ["f", "deep/f"] {
        extant(["chattr", "+i", &format!("{image}:/fixed/{name}")]).ok();
    }
    refused(&place, &image, &[&paths[1]], "Nothing was changed");
    refused(&place, &image, &[&paths[2]], "nothing was applied");
    refused(&place, &image, &[&paths[2]], "fs.img:/e: copied without");
    refused(&place, &image, &[&paths[3]], "3.tar");
    refused(&place, &image, &[&paths[4]], "nowhere");
    refused(&place, &image, &[&paths[5]], "chattr");
    refused(&place, &image, &[&paths[6]], "uses itself");
    refused(&place, &image, &[&paths[8]], "chattr");
    refused(&place, &image, &[&paths[9]], "chattr");
    let how = ["--whiteouts", "refuse", &paths[7]];
    refused(&place, &image, &how, "--whiteouts refuse");
    // A layer of a container image that is not what its digest says.
    let layers = [layers[0].clone(), above(Tar::layer())];
    let layout = Layout::of(place.join("layout"), &layers);
    let plain = layout.path_of(&extant_testkit::layers::digest(&layers[0]));
    let mut bytes = fs::read(&plain).unwrap();
    bytes[600] ^= 1;
    fs::write(plain, bytes).unwrap();
    refused(&place, &image, &[&place.arg("layout")], "digest");
}

#[test]
fn what_a_run_left_behind_is_removed_by_the_next() {
    let place = Place::in_memory();
    let paths = archives(
        &place,
        &[
            Tar::layer().file("f", b"f").end(),
            Tar::layer().file("g", b"g").end(),
        ],
    );
    let image = base(&place, "fs.img", &paths[0]);
    let stage = format!("{image}:/.extant-apply");
    extant(["mkdir", "-m", "700", &stage]).ok();
    extant(["cp", &paths[0], &format!("{stage}/0")]).ok();
    let said = change(&image, ["apply", &paths[1], &image]).ok().stderr;
    assert!(said.contains("broken off"), "{said}");
    extant(["stat", &stage]).fails(1);
    // Something else of that name is nobody's to remove.
    extant(["write", &stage]).ok();
    refused(&place, &image, &[&paths[1]], "another name");
}

#[test]
fn a_run_that_is_killed_leaves_old_and_new_files_and_another_one_finishes_it() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let number_of = 1500_u32;
    let layer = |text: &str| {
        let mut tar = Tar::layer().dir("d/");
        for number in 0..number_of {
            let content = format!("{text} {number}\n").repeat(1 + number as usize % 90);
            tar = tar.file(&format!("d/f{number}"), content.as_bytes());
        }
        tar
    };
    let layers = [
        layer("old").end(),
        layer("new")
            .file("d/.wh.f7x", b"")
            .dir("e/")
            .file("e/g", b"g")
            .end(),
    ];
    let layout = Layout::of(place.join("layout"), &layers);
    let expected = unpacked(&place, &layout);
    let paths = archives(&place, &layers);
    let whole = base(&place, "base.img", &paths[0]);
    let image = copy_of(&whole, &place.arg("fs.img"));
    let begun = Instant::now();
    extant(["apply", "-q", &paths[1], &image]).ok();
    let takes = begun.elapsed();
    let mut seen = Vec::new();
    for percent in [20, 50, 75, 85, 92, 98] {
        let image = copy_of(&whole, &place.arg("fs.img"));
        let mut run = Command::new(env!("CARGO_BIN_EXE_extant"));
        run.args(["apply", "-q", &paths[1], &image]);
        let mut run = run.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(takes * percent / 100);
        let _ = run.kill();
        run.wait().unwrap();
        e2fsck_recover_beside(Path::new(&image)).unwrap();
        assert_clean(Path::new(&image));
        let was_left = extant(["stat", &format!("{image}:/.extant-apply")]).code == 0;
        let mut new = 0;
        for number in (0..number_of).step_by(11) {
            let path = format!("{image}:/d/f{number}");
            let text = extant(["cat", &path]).ok().text();
            let times = 1 + number as usize % 90;
            let is_new = text == format!("new {number}\n").repeat(times);
            assert!(
                is_new || text == format!("old {number}\n").repeat(times),
                "{path}"
            );
            new += usize::from(is_new);
        }
        seen.push((percent, was_left, new));
        extant(["apply", "-q", &paths[1], &image]).ok();
        assert_is(&image, &expected);
    }
    eprintln!("killed at percent, with the stage left, and so many new files: {seen:?}");
}

#[test]
fn fakeroot_is_heard_or_a_directory_is_refused() {
    require!(Root);
    let place = Place::new();
    let image = place.arg("public/fs.img");
    let script = "set -e; cd \"$1\"; mkdir tree; echo a > tree/f; chown 5:6 tree/f; \
                  mknod tree/null c 1 3; \"$2\" mkfs -q --size 8M fs.img; \
                  \"$2\" apply -q tree fs.img";
    let public = place.arg("public");
    crate::support::ordinary_user(&place, "fakeroot")
        .args(["bash", "-c", script, "bash", &public, &place.arg("extant")])
        .ok();
    assert_clean(Path::new(&image));
    let manifest = extant(["ls", "-R", "--mtree", &image]).ok().text();
    assert!(manifest.contains("uid=5 gid=6"), "{manifest}");
    assert!(manifest.contains("type=char"), "{manifest}");
    let run = crate::support::ordinary_user(&place, "")
        .env("LD_PRELOAD", "/nowhere/libfakeroot-sysv.so")
        .args(["apply", &place.arg("public/tree"), &image])
        .run();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.code, 1, "{said}");
    assert!(said.contains("tar archive"), "{said}");
}

#[test]
fn the_image_is_no_part_of_a_directory_that_it_lies_in() {
    let place = Place::in_memory();
    fs::write(place.join("f"), "f").unwrap();
    symlink("f", place.join("l")).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "16M", &image]).ok();
    let dir = place.path().display().to_string();
    change(&image, ["apply", "-q", &dir, &image]).ok();
    extant(["stat", &format!("{image}:/f")]).ok();
    extant(["stat", &format!("{image}:/fs.img")]).fails(1);
}

/// The project of a file, and its flags of those that directories hand down, as `debugfs` shows
/// them.
fn rules_of(image: &str, path: &str) -> (u32, u32) {
    let shown = debugfs(Path::new(image), &format!("stat {path}"));
    let word = |what: &str| {
        let behind = shown
            .split(what)
            .nth(1)
            .unwrap_or_else(|| panic!("{shown}"));
        behind.split_whitespace().next().unwrap().to_owned()
    };
    let flags = word("Flags:");
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap();
    // P, F and A.
    (word("Project:").parse().unwrap(), flags & 0x6000_0080)
}

#[test]
fn what_is_new_gets_the_project_and_flags_that_its_directory_hands_down() {
    const P: u32 = 0x2000_0000;
    const A: u32 = 0x80;
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(
        Path::new(&image),
        16 << 20,
        &["-t", "ext4", "-O", "project,quota"],
    );
    let at = |path: &str| format!("{image}:{path}");
    for path in ["/plain", "/seven", "/five", "/gone", "/gone/deep", "/old"] {
        extant(["mkdir", &at(path)]).ok();
    }
    extant(["chattr", "-p", "7", &at("/seven")]).ok();
    extant(["chattr", "+PA", &at("/seven")]).ok();
    extant(["chattr", "-p", "5", &at("/"), &at("/five")]).ok();
    extant(["chattr", "+P", &at("/"), &at("/five")]).ok();
    let mut layer = Tar::layer().file(".wh.gone", b"").file("old", b"o");
    let mut expected = vec![("/old".to_owned(), (5, 0))];
    for (dir, project, flags) in [
        ("", 5, P),
        ("plain/", 0, 0),
        ("seven/", 7, P | A),
        ("five/", 5, P),
    ] {
        layer = layer
            .file(&format!("{dir}made"), b"made")
            .dir(&format!("{dir}new/"))
            .dir(&format!("{dir}new/deep/"))
            .file(&format!("{dir}new/deep/f"), b"f");
        for (name, of_it) in [
            ("made", flags & A),
            ("new", flags),
            ("new/deep", flags),
            ("new/deep/f", flags & A),
        ] {
            expected.push((format!("/{dir}{name}"), (project, of_it)));
        }
    }
    let paths = archives(&place, &[layer.end()]);
    extant(["apply", "-q", &paths[0], &image]).ok();
    // With what each project has used.
    assert_clean(Path::new(&image));
    for (path, rules) in expected {
        assert_eq!(rules_of(&image, &path), rules, "{path}");
    }
    extant(["stat", &at("/gone")]).fails(1);
    let left = extant(["find", &image, "--name", ".extant-*"]).ok();
    assert_eq!(left.text(), "");
}

#[test]
fn a_file_of_one_project_gets_no_name_in_a_directory_of_another() {
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(
        Path::new(&image),
        16 << 20,
        &["-t", "ext4", "-O", "project,quota"],
    );
    let at = |path: &str| format!("{image}:{path}");
    for (path, project) in [("/five", "5"), ("/seven", "7")] {
        extant(["mkdir", &at(path)]).ok();
        extant(["chattr", "-p", project, &at(path)]).ok();
        extant(["chattr", "+P", &at(path)]).ok();
    }
    let layer = Tar::layer().file("five/f", b"f").link("seven/f", "five/f");
    let paths = archives(&place, &[layer.end()]);
    refused(&place, &image, &[&paths[0]], "nothing was applied");
}

/// An image with directories that ignore case, and one in one of them that does not.
fn ignoring_case(place: &Place, options: &[&str]) -> String {
    let image = place.arg("fs.img");
    let options = [&["-t", "ext4", "-O", "casefold"], options].concat();
    mke2fs(Path::new(&image), 16 << 20, &options);
    let at = |path: &str| format!("{image}:{path}");
    extant(["mkdir", &at("/cf"), &at("/other")]).ok();
    extant(["chattr", "+F", &at("/cf")]).ok();
    extant(["mkdir", &at("/cf/plain")]).ok();
    extant(["chattr", "-F", &at("/cf/plain")]).ok();
    extant(["mkdir", &at("/cf/dir")]).ok();
    extant(["write", &at("/cf/file")]).ok();
    image
}

#[test]
fn directories_that_ignore_case_hand_that_down() {
    const F: u32 = 0x4000_0000;
    let place = Place::in_memory();
    let image = ignoring_case(&place, &[]);
    let layer = Tar::layer()
        .dir("cf/new/")
        .file("cf/new/Aa", b"aa")
        .dir("cf/plain/new/")
        .dir("other/new/")
        .file("other/new/a", b"a")
        .file("other/new/A", b"A")
        .file("cf/FILE", b"other")
        .file("cf/.wh.Dir", b"");
    let inside = Tar::layer().dir("plain/in/").dir("in/").file("in/Bb", b"b");
    let again = Tar::layer()
        .file("cf/.wh..wh..opq", b"")
        .file("cf/FiLe", b"3");
    let paths = archives(&place, &[layer.end(), inside.end(), again.end()]);
    let text = |path: &str| extant(["cat", &format!("{image}:{path}")]).ok().text();
    extant(["apply", "-q", &paths[0], &image]).ok();
    extant(["apply", "-q", "--root", "/cf", &paths[1], &image]).ok();
    assert_clean(Path::new(&image));
    for (path, flags) in [
        ("/cf/new", F),
        ("/cf/in", F),
        ("/cf/plain/new", 0),
        ("/cf/plain/in", 0),
        ("/other/new", 0),
    ] {
        let shown = debugfs(Path::new(&image), &format!("stat {path}"));
        let has = shown.contains(&format!("Flags: 0x{:x}", F | 0x8_0000));
        assert_eq!(has, flags == F, "{path}: {shown}");
    }
    assert_eq!(text("/cf/NEW/aA"), "aa");
    assert_eq!(text("/cf/in/BB"), "b");
    assert_eq!(text("/other/new/a") + &text("/other/new/A"), "aA");
    assert_eq!(text("/cf/file"), "other");
    extant(["stat", &format!("{image}:/cf/dir")]).fails(1);
    extant(["apply", "-q", &paths[2], &image]).ok();
    assert_clean(Path::new(&image));
    assert_eq!(text("/cf/file"), "3");
    let names = extant(["ls", &format!("{image}:/cf")]).ok().text();
    assert_eq!(names.lines().count(), 1, "{names}");
}

#[test]
fn names_that_are_one_where_case_is_ignored_are_refused() {
    let place = Place::in_memory();
    let image = ignoring_case(&place, &["-E", "encoding_flags=strict"]);
    let layers = [
        Tar::layer().file("cf/x", b"1").file("cf/X", b"2"),
        Tar::layer()
            .dir("cf/new/")
            .dir("cf/new/deep/")
            .file("cf/new/deep/\u{e4}", b"1")
            .file("cf/new/deep/\u{c4}", b"2"),
    ];
    let paths = archives(&place, &layers.map(|layer| layer.file("f", b"new").end()));
    for path in &paths {
        refused(&place, &image, &[path], "ignores case");
    }
    // Two that are one directory, which is there.
    let layer = Tar::layer().dir("cf/dir/").file("cf/Dir/f", b"2");
    fs::write(place.join("both.tar"), layer.end()).unwrap();
    refused(&place, &image, &[&place.arg("both.tar")], "a name already");
    fs::create_dir_all(place.join("tree/cf")).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    fs::write(place.join("tree/cf").join(name), "x").unwrap();
    refused(&place, &image, &[&place.arg("tree")], "is not UTF-8");
}

#[test]
fn lost_and_found_stays_a_directory() {
    let place = Place::in_memory();
    let layers = [
        Tar::layer().file("f", b"f").file("lost+found", b"x").end(),
        Tar::layer().file("srv/lost+found", b"x").end(),
    ];
    let paths = archives(&place, &layers);
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "16M", &image]).ok();
    refused(&place, &image, &[&paths[0]], "has to be a directory");
    let exclude = ["--exclude", "lost+found", &paths[0]];
    extant([&["apply", "-q"], &exclude[..], &[&image]].concat()).ok();
    extant(["apply", "-q", &paths[1], &image]).ok();
    assert_clean(Path::new(&image));
    extant(["stat", &format!("{image}:/f")]).ok();
    extant(["stat", &format!("{image}:/srv/lost+found")]).ok();
}
