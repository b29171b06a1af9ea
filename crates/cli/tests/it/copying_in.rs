//! `cp` into an image: from the host, within it, and from another.

use crate::support::{
    Place, as_mke2fs_keeps, change, copy_of, copy_of_the_command, extant, extant_with, faithful,
    seen_by_linux, small_plan,
};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::plan::{Content, NodeKind, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::torture::TortureSpec;
use extant_testkit::tree::{Compare, Kind, Tree};
use std::path::Path;

/// The small plan without the name that is not UTF-8 on a path, for arguments.
fn source(place: &Place) -> String {
    place.planted("from", &small_plan())
}

fn empty_image(place: &Place, name: &str, size: u64) -> String {
    mke2fs(&place.join(name), size, &["-t", "ext4"]);
    place.arg(name)
}

/// The entries of a tree at and below a path, as a tree of their own.
fn below(tree: &Tree, path: &str) -> Tree {
    let mut part = Tree::new();
    for (name, entry) in &tree.entries {
        if let Some(rest) = name.strip_prefix(path.as_bytes()) {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            part.insert(rest.to_vec(), entry.clone());
        }
    }
    part
}

#[test]
fn a_torture_tree_copied_into_an_image_is_the_tree_to_linux() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let plan = TortureSpec::small().for_image(4096, 256, false).plan();
    let from = place.planted("t", &plan);
    let image = empty_image(&place, "fs.img", 512 << 20);
    let into = [format!("{from}/."), format!("{image}:/")];
    let args = |threads| {
        ["cp", "-a", "--threads", threads]
            .map(str::to_owned)
            .into_iter()
            .chain(into.clone())
    };
    change(&image, args("1")).ok();
    plan.expected()
        .assert_same(&seen_by_linux(&image), &faithful());
    // Again, over what is there, and by many threads.
    change(&image, args("7")).ok();
    plan.expected()
        .assert_same(&seen_by_linux(&image), &faithful());
}

#[test]
fn a_copy_into_an_image_does_not_depend_on_the_number_of_threads() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let mut plan = small_plan();
    plan.dir("many");
    for n in 0..300 {
        plan.file(format!("many/{n}"), Content::filled(n, n * 50));
    }
    let from = place.planted("from", &plan);
    for threads in ["1", "2", "8"] {
        let image = empty_image(&place, "fs.img", 32 << 20);
        let to = format!("{image}:/new");
        change(&image, ["cp", "-a", "--threads", threads, &from, &to]).ok();
        plan.expected()
            .assert_same(&below(&seen_by_linux(&image), "new"), &faithful());
    }
}

#[test]
fn places_in_an_image_are_named_as_cp_names_them() {
    let place = Place::new();
    let from = source(&place);
    let image = empty_image(&place, "fs.img", 16 << 20);
    let at = |path: &str| format!("{image}:{path}");
    let list = |path: &str| extant(["ls", &at(path)]).ok().text();
    let lib = format!("{from}/usr/lib");
    change(&image, ["cp", "-r", &lib, &at("/new")]).ok();
    assert!(list("/new").contains("libone.so\n"));
    change(&image, ["cp", "-r", &lib, &at("/new")]).ok();
    assert!(list("/new/lib").contains("libone.so\n"));
    change(&image, ["mkdir", &at("/into")]).ok();
    change(&image, ["cp", "-r", &format!("{lib}/."), &at("/into")]).ok();
    assert!(list("/into").contains("libone.so\n"));
    change(&image, ["cp", "-rT", &lib, &at("/into/lib")]).ok();
    assert!(list("/into/lib").contains("libone.so\n"));
    let hostname = format!("{from}/etc/hostname");
    change(&image, ["cp", &hostname, &at("/name")]).ok();
    let two = [
        "cp".to_owned(),
        hostname.clone(),
        format!("{from}/etc/link"),
    ];
    change(&image, two.iter().chain(&[at("/into")])).ok();
    assert!(list("/into").contains("hostname\n"));
    let link = extant(["stat", "--json", &at("/into/link")]).ok().lines();
    assert_eq!(link[0]["type"], "file", "one file asked for is followed");
    let run = change(&image, two.iter().chain(&[at("/nowhere")])).fails(1);
    assert!(run.stderr.contains("not a directory"), "{}", run.stderr);
    let run = change(&image, ["cp", &lib, &at("/other")]).fails(1);
    assert!(run.stderr.contains("-r"), "{}", run.stderr);
    assert!(!list("/").contains("other"));
    let gone = format!("{from}/gone");
    let run = change(&image, ["cp", &gone, &hostname, &at("/into")]).fails(1);
    assert!(run.stderr.contains("gone"), "{}", run.stderr);
    let no_parent = at("/no/such/dir/file");
    change(&image, ["cp", &hostname, &no_parent]).fails(1);
}

#[test]
fn a_plain_copy_fills_the_file_that_is_there() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    std::fs::write(place.join("new"), "new content\n").unwrap();
    let new = place.arg("new");
    let stat = |path: &str| extant(["stat", "--json", &at(path)]).ok().lines()[0].clone();
    let before = stat("/usr/lib/libone.so");
    change(&image, ["cp", &new, &at("/usr/lib/libone.so")]).ok();
    let after = stat("/usr/lib/libone.so");
    assert_eq!(after["size"], 12);
    for same in ["mode", "uid", "gid", "links"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    change(&image, ["cp", &new, &at("/etc/up")]).ok();
    assert_eq!(stat("/etc/up")["type"], "symlink");
    let hostname = extant(["cat", &at("/etc/hostname")]).ok().text();
    assert_eq!(hostname, "new content\n");
    change(&image, ["ln", "-s", "../run/gone", &at("/etc/dangling")]).ok();
    let run = change(&image, ["cp", &new, &at("/etc/dangling")]).fails(1);
    assert!(run.stderr.contains("leads nowhere"), "{}", run.stderr);
    assert!(run.stderr.contains("extant rm"), "{}", run.stderr);
    change(&image, ["cp", "-a", &new, &at("/etc/dangling")]).ok();
    assert_eq!(stat("/etc/dangling")["type"], "file");
    let run = change(&image, ["cp", "-T", &new, &at("/etc")]).fails(1);
    assert!(run.stderr.contains("directory"), "{}", run.stderr);
    let run = change(
        &image,
        ["cp", "-rT", &place.arg("source"), &at("/etc/hostname")],
    )
    .fails(1);
    assert!(run.stderr.contains("in the way"), "{}", run.stderr);
}

#[test]
fn without_options_new_files_belong_to_root_and_keep_no_special_bits() {
    let place = Place::new();
    let from = source(&place);
    let image = empty_image(&place, "fs.img", 16 << 20);
    let at = |path: &str| format!("{image}:{path}");
    change(&image, ["cp", "-r", &from, &at("/r")]).ok();
    let stat = |path: &str| extant(["stat", "--json", &at(path)]).ok().lines()[0].clone();
    let one = stat("/r/usr/lib/libone.so");
    assert_eq!(one["mode"], "0755");
    assert_eq!((&one["uid"], &one["links"]), (&0.into(), &1.into()));
    assert!(one["mtime"].as_str().unwrap() > "2020");
    assert_eq!(stat("/r/etc/link")["type"], "symlink");
    let sparse = stat("/r/usr/lib/sparse");
    assert_eq!(sparse["size"], 4 << 20);
    assert!(sparse["blocks"].as_u64().unwrap() < 100, "{sparse}");
    let lib = format!("{from}/usr/lib");
    change(&image, ["cp", "-rp", &lib, &at("/p")]).ok();
    let one = stat("/p/libone.so");
    assert_eq!((&one["mode"], &one["links"]), (&"4755".into(), &1.into()));
    assert!(one["mtime"].as_str().unwrap().starts_with("2017"));
    change(&image, ["cp", "-a", "--owner", "7:8", &lib, &at("/o")]).ok();
    let one = stat("/o/libone.so");
    assert_eq!((&one["uid"], &one["gid"]), (&7.into(), &8.into()));
    assert_eq!((&one["mode"], &one["links"]), (&"4755".into(), &2.into()));
}

#[test]
fn files_are_copied_within_an_image_and_between_two() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let plan = small_plan();
    let image = place.image(&plan, &[]);
    let other = empty_image(&place, "other.img", 32 << 20);
    let within = [&format!("{image}:/usr"), &format!("{image}:/copy")];
    change(&image, ["cp", "-a", within[0], within[1]]).ok();
    let tree = seen_by_linux(&image);
    let usr = below(&tree, "usr");
    usr.assert_same(&below(&tree, "copy"), &faithful());
    let between = [&format!("{image}:/"), &format!("{other}:/")];
    change(&other, ["cp", "-a", between[0], between[1]]).ok();
    assert_clean(Path::new(&image));
    let all = Compare {
        root: true,
        ..faithful()
    };
    tree.assert_same(&seen_by_linux(&other), &all);
    below(&tree, "usr").assert_same(&below(&seen_by_linux(&other), "usr"), &faithful());
    plan.expected().assert_same(
        &tree,
        &Compare {
            ignore: vec![b"lost+found".to_vec(), b"copy".to_vec()],
            ..as_mke2fs_keeps()
        },
    );
}

#[test]
fn nothing_is_copied_into_itself() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    change(&image, ["ln", "-s", "/usr/lib", &at("/to-lib")]).ok();
    for (from, to) in [
        ("/usr", "/usr/lib/copy"),
        ("/usr", "/usr"),
        ("/usr", "/to-lib/copy"),
        ("/", "/etc"),
    ] {
        let run = change(&image, ["cp", "-a", &at(from), &at(to)]).fails(1);
        assert!(
            run.stderr.contains("into itself"),
            "{from} {to}: {}",
            run.stderr
        );
    }
    let content = Content::filled(2, 100_000).to_bytes();
    for flags in ["-T", "-aT"] {
        for to in ["/usr/lib/libone.so", "/usr/lib/again"] {
            let from = at("/usr/lib/libone.so");
            let run = change(&image, ["cp", flags, &from, &at(to)]).fails(1);
            assert!(run.stderr.contains("to be copied"), "{}", run.stderr);
            assert!(extant(["cat", &from]).ok().stdout == content);
        }
    }
}

#[test]
fn an_image_in_the_source_is_left_out_of_itself() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let run = change(
        &image,
        [
            "cp",
            "-r",
            place.path().to_str().unwrap(),
            &format!("{image}:/all"),
        ],
    )
    .ok();
    assert!(run.stderr.contains("left out"), "{}", run.stderr);
    let list = extant(["ls", &format!("{image}:/all")]).ok().text();
    assert_eq!(list, "source\n");
    let run = change(&image, ["cp", &image, &format!("{image}:/me")]).fails(1);
    assert!(run.stderr.contains("the image itself"), "{}", run.stderr);
}

#[test]
fn what_comes_through_a_pipe_is_copied_to_its_end() {
    let place = Place::new();
    let image = empty_image(&place, "fs.img", 16 << 20);
    let content = Content::filled(9, 3_000_000).to_bytes();
    let to = format!("{image}:/piped");
    extant_with(["cp", "/dev/stdin", &to], |command| {
        command.write_stdin(content.clone());
    })
    .ok();
    assert_clean(Path::new(&image));
    assert!(extant(["cat", &to]).ok().stdout == content);
}

#[test]
fn a_named_pipe_is_read_once_also_where_room_is_counted() {
    let place = Place::new();
    let image = empty_image(&place, "fs.img", 16 << 20);
    let large = place.arg("large");
    std::fs::write(&large, Content::filled(1, 9 << 20).to_bytes()).unwrap();
    let to = format!("{image}:/to");
    extant(["mkdir", &to]).ok();
    extant(["cp", &large, &to]).ok();
    let pipe = place.arg("pipe");
    tool("mkfifo").args([&pipe]).ok();
    let content = Content::filled(2, 100_000).to_bytes();
    let writer = {
        let (pipe, content) = (pipe.clone(), content.clone());
        std::thread::spawn(move || std::fs::write(pipe, content))
    };
    // There is no room for both, so that it is counted what goes.
    extant(["cp", &large, &pipe, &to]).ok();
    writer.join().unwrap().unwrap();
    assert!(extant(["cat", &format!("{to}/pipe")]).ok().stdout == content);
    assert_clean(Path::new(&image));
}

#[test]
fn an_odd_destination_keeps_no_other_file_from_being_updated() {
    let place = Place::new();
    let image = place.image(&crate::support::small_plan(), &[]);
    let [odd, other] = ["loop", "other"].map(|name| {
        std::fs::write(place.join(name), name).unwrap();
        place.arg(name)
    });
    let run = extant(["cp", "-u", &odd, &other, &format!("{image}:/")]).fails(1);
    assert!(run.stderr.contains("/loop"), "{}", run.stderr);
    let found = extant(["cat", &format!("{image}:/other")]).ok();
    assert_eq!(found.text(), "other");
}

#[test]
fn extended_attributes_are_copied_unless_they_are_not_wanted() {
    require!(TmpfsXattrs);
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    for name in ["a", "b", "c"] {
        plan.file(name, Content::empty());
    }
    plan.node_mut("a").xattr("user.x", "y");
    plan.node_mut("b").xattr("user.x", vec![b'y'; 700]);
    let from = place.planted("from", &plan);
    let image = empty_image(&place, "fs.img", 16 << 20);
    let to = format!("{image}:/");
    let names = |dir: &str| {
        let list = |name| extant(["xattr", "ls", "-l", &format!("{image}:/{dir}/{name}")]);
        ["a", "b", "c"].map(|name| list(name).ok().text())
    };
    change(&image, ["cp", "-a", &from, &to]).ok();
    let long = format!("user.x={:?}\n", "y".repeat(700));
    assert_eq!(names("from"), ["user.x=\"y\"\n", &long, ""]);
    for (flags, dir) in [("-a", "bare"), ("-rp", "plain")] {
        let to = format!("{to}{dir}");
        let mut args = vec!["cp", flags, &from, &to];
        args.extend((flags == "-a").then_some("--no-xattrs"));
        assert_eq!(change(&image, args).ok().stderr, "");
        assert_eq!(names(dir), ["", "", ""]);
    }
}

#[test]
fn what_does_not_fit_into_an_image_is_refused_before_anything_is_made() {
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    for n in 0..40 {
        plan.file(format!("{n:02}"), Content::filled(n, 1 << 20));
    }
    let from = place.planted("from", &plan);
    let image = empty_image(&place, "fs.img", 16 << 20);
    let to = format!("{image}:/to");
    let before = extant(["ls", "-R", &image]).ok().text();
    let run = change(&image, ["cp", "-a", "--threads", "1", &from, &to]).fails(1);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("no space"), "{}", run.stderr);
    assert_eq!(extant(["ls", "-R", &image]).ok().text(), before);
    change(&image, ["cp", &format!("{from}/00"), &to]).ok();
}

#[test]
fn devices_pipes_and_sockets_are_made() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    plan.special("null", NodeKind::CharDevice(1, 3)).mode(0o666);
    plan.special("big", NodeKind::BlockDevice(300, 70_000));
    plan.special("fifo", NodeKind::Fifo).owner(4, 5);
    plan.special("socket", NodeKind::Socket);
    let from = place.planted("from", &plan);
    let image = empty_image(&place, "fs.img", 16 << 20);
    change(&image, ["cp", "-a", &from, &format!("{image}:/dev")]).ok();
    plan.expected()
        .assert_same(&below(&seen_by_linux(&image), "dev"), &faithful());
    change(&image, ["cp", "-r", &from, &format!("{image}:/again")]).ok();
    let again = seen_by_linux(&image);
    let null = &again.entries[&b"again/null"[..]];
    assert_eq!((&null.kind, null.mode), (&Kind::CharDevice(1, 3), 0o666));
}

#[test]
fn a_directory_may_be_joined_through_a_link_in_the_image() {
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.dir("usr");
    plan.dir("usr/lib");
    plan.symlink("lib", "usr/lib");
    let image = place.image(&plan, &[]);
    let mut overlay = TreePlan::new();
    overlay.dir("lib");
    overlay.file("lib/added", Content::filled(1, 10));
    let from = place.planted("overlay", &overlay);
    change(
        &image,
        ["cp", "-a", &format!("{from}/."), &format!("{image}:/")],
    )
    .ok();
    let run = extant(["ls", &format!("{image}:/usr/lib")]).ok();
    assert_eq!(run.text(), "added\n");
    let link = extant(["stat", "--json", &format!("{image}:/lib")])
        .ok()
        .lines();
    assert_eq!(link[0]["type"], "symlink");
}

#[test]
fn the_offset_applies_to_every_image_of_the_command() {
    let place = Place::new();
    let disk = place.arg("disk.img");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(17 << 20)
        .unwrap();
    extant(["mkfs", "-q", &disk, "--offset", "1M"]).ok();
    std::fs::write(place.join("file"), "content").unwrap();
    extant([
        "cp",
        "--offset",
        "1M",
        &place.arg("file"),
        &format!("{disk}:/"),
    ])
    .ok();
    let bytes = std::fs::read(&disk).unwrap();
    assert!(bytes[..1 << 20].iter().all(|&byte| byte == 0));
    std::fs::write(place.join("part.img"), &bytes[1 << 20..]).unwrap();
    assert_clean(&place.join("part.img"));
    let content = extant(["cat", &format!("{}:/file", place.arg("part.img"))]);
    assert_eq!(content.ok().text(), "content");
}

#[test]
fn no_privilege_is_needed_to_give_files_away_in_an_image() {
    require!(Root);
    let place = Place::new();
    let image = empty_image(&place, "fs.img", 16 << 20);
    std::fs::write(place.join("file"), "content").unwrap();
    let binary = place.join("extant");
    copy_of_the_command(&binary);
    tool("chmod")
        .args(["755", place.path().to_str().unwrap()])
        .ok();
    tool("chown").args(["65534:65534", &image]).ok();
    let run = |args: &[&str]| {
        tool("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(&binary)
            .args(args)
            .run()
    };
    let to = format!("{image}:/file");
    assert_eq!(
        run(&["cp", "-a", "--owner", "3:4", &place.arg("file"), &to]).code,
        0
    );
    assert_clean(Path::new(&image));
    let file = extant(["stat", "--json", &to]).ok().lines()[0].clone();
    assert_eq!((&file["uid"], &file["gid"]), (&3.into(), &4.into()));
    tool("chown").args(["0:0", &image]).ok();
    let copy = copy_of(&image, &place.arg("before.img"));
    let refused = run(&["rm", &to]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.code, 1);
    assert!(said.contains("cannot be written"), "{said}");
    assert!(std::fs::read(&image).unwrap() == std::fs::read(copy).unwrap());
}
