//! What operands name: patterns, and commands that go on after one that cannot be read.

use crate::support::{Place, change, copy_of, extant, extant_with, small_plan};
use extant_testkit::oracle::{assert_clean, debugfs, dumpe2fs_header};
use std::os::unix::fs::FileExt;
use std::path::Path;

#[test]
fn a_pattern_stands_for_what_it_matches_in_the_image() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let list = |path: &str| extant(["ls", "-d", &format!("{image}:{path}")]).ok().text();
    assert_eq!(list("/usr/lib/*.so"), "/usr/lib/libone.so\n");
    assert_eq!(list("/*/hostname"), "/etc/hostname\n");
    assert_eq!(list("/[eu]*"), "/etc\n/usr\n");
    // Hidden names need a pattern with a dot, and only directories match before a slash.
    assert!(!list("/etc/*").contains(".hidden"));
    assert_eq!(list("/etc/.h*"), "/etc/.hidden\n");
    assert_eq!(list("/*/"), "/etc\n/lost+found\n/usr\n");
    let text = extant(["cat", &format!("{image}:/usr/lib/lib*.so*")]).ok();
    assert_eq!(text.stdout.len(), 105_000);
}

#[test]
fn a_pattern_that_nothing_matches_is_an_error() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let nothing = format!("{image}:/nothing*");
    for command in ["ls", "cat", "stat", "rm", "lsattr"] {
        let run = extant([command, &nothing]).fails(1);
        assert!(run.stderr.contains("/nothing*"), "{}", run.stderr);
    }
    extant(["rm", "-f", &nothing]).ok();
    let out = place.arg("out");
    extant(["cp", "-a", &nothing, &out]).fails(1);
}

#[test]
fn removing_everything_by_a_pattern_removes_everything_but_what_checkers_need() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    change(&image, ["rm", "-rf", &format!("{image}:/*")]).ok();
    assert_eq!(
        extant(["ls", "-a", &image]).ok().text(),
        ".\n..\nlost+found\n"
    );
    // That it is named in one image says nothing of another.
    let other = copy_of(&image, &place.arg("other.img"));
    let named = format!("{other}:/lost+found");
    extant(["rm", "-rf", &named, &format!("{image}:/*")]).ok();
    assert_eq!(extant(["ls", &image]).ok().text(), "lost+found\n");
    assert_eq!(extant(["ls", &other]).ok().text(), "");
}

#[test]
fn a_file_whose_name_has_a_star_is_meant_by_that_name() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let star = format!("{image}:/stars/*");
    extant(["mkdir", &format!("{image}:/stars")]).ok();
    change(&image, ["mv", &format!("{image}:/etc/hostname"), &star]).ok();
    change(&image, ["touch", &format!("{image}:/stars/other")]).ok();
    assert_eq!(extant(["ls", "-d", &star]).ok().text(), "/stars/*\n");
    change(&image, ["rm", &star]).ok();
    let left = extant(["ls", &format!("{image}:/stars")]).ok().text();
    assert_eq!(left, "other\n");
}

#[test]
fn a_directory_whose_name_is_like_a_pattern_is_meant_by_that_name() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    extant(["mkdir", "-p", &at("/app/[id]"), &at("/app/i")]).ok();
    extant(["touch", &at("/app/[id]/page"), &at("/app/i/other")]).ok();
    let list = |path: &str| extant(["ls", "-d", &at(path)]).ok().text();
    assert_eq!(list("/app/[id]/*"), "/app/[id]/page\n");
    assert_eq!(list("/a*/[id]/page"), "/app/[id]/page\n");
    assert_eq!(list("/app/[i]/*"), "/app/i/other\n");
    change(&image, ["rm", "-r", &at("/app/[id]/*")]).ok();
    assert_eq!(list("/app/*/*"), "/app/i/other\n");
}

#[test]
fn a_pattern_for_where_to_put_something_means_the_one_file_that_it_matches() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    let file = place.join("file");
    std::fs::write(&file, "text").unwrap();
    let file = file.display().to_string();
    change(&image, ["cp", &file, &at("/e*")]).ok();
    change(&image, ["mv", &at("/etc/file"), &at("/us*")]).ok();
    change(&image, ["ln", &at("/usr/lib/lib*"), &at("/e?c")]).ok();
    extant_with(["write", &at("/usr/fil?")], |command| {
        command.write_stdin("more");
    })
    .ok();
    assert_eq!(extant(["cat", &at("/usr/file")]).ok().text(), "more");
    assert!(
        extant(["ls", &at("/etc")])
            .ok()
            .text()
            .contains("libtwo.so.6")
    );
    for line in [
        ["cp", &file, &at("/usr/lib/lib*")],
        ["mv", &at("/usr/file"), &at("/usr/lib/lib*")],
    ] {
        let run = change(&image, line).fails(1);
        assert!(run.stderr.contains("matches 2 files"), "{}", run.stderr);
    }
}

#[test]
fn an_image_that_cannot_be_opened_keeps_no_other_from_being_changed() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let gone = place.arg("gone.img");
    for command in ["touch", "rm"] {
        let run = extant([command, &format!("{gone}:/x"), &format!("{image}:/new")]).fails(1);
        assert!(run.stderr.contains("gone.img"), "{}", run.stderr);
        let is_there = extant(["ls", &format!("{image}:/new")]).code == 0;
        assert_eq!(is_there, command == "touch");
    }
    assert_clean(Path::new(&image));
}

#[test]
fn patterns_choose_what_is_copied_moved_and_changed() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let out = place.arg("out");
    std::fs::create_dir(&out).unwrap();
    extant(["cp", "-a", &format!("{image}:/usr/lib/lib*"), &out]).ok();
    let mut names: Vec<_> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["libone.so", "libtwo.so.6"]);
    // Several files do not fit one name.
    let new = place.arg("new");
    extant(["cp", "-a", &format!("{image}:/usr/lib/lib*"), &new]).fails(1);
    assert!(!Path::new(&new).exists());
    change(&image, ["mkdir", &format!("{image}:/moved")]).ok();
    change(
        &image,
        [
            "mv",
            &format!("{image}:/usr/lib/*.so*"),
            &format!("{image}:/moved"),
        ],
    )
    .ok();
    assert_eq!(
        extant(["ls", &format!("{image}:/moved")]).ok().text(),
        "libone.so\nlibtwo.so.6\n"
    );
    change(&image, ["chmod", "600", &format!("{image}:/moved/*")]).ok();
    let modes = extant(["ls", "--json", &format!("{image}:/moved")])
        .ok()
        .lines();
    assert!(modes.iter().all(|file| file["mode"] == "0600"), "{modes:?}");
    change(
        &image,
        [
            "cp",
            "-a",
            &format!("{image}:/moved/lib*"),
            &format!("{image}:/etc/"),
        ],
    )
    .ok();
    extant(["stat", &format!("{image}:/etc/libone.so")]).ok();
}

#[test]
fn reading_goes_on_after_what_cannot_be_read() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let good = format!("{image}:/etc/hostname");
    let bad = format!("{image}:/gone");
    let no_image = place.arg("no.img");
    for command in ["cat", "ls", "stat", "lsattr"] {
        let expected = extant([command, &good]).ok().stdout;
        for wrong in [&bad, &no_image] {
            let run = extant([command, wrong, &good]).fails(1);
            assert!(
                run.stdout.ends_with(&expected),
                "{command}: {}",
                String::from_utf8_lossy(&run.stdout)
            );
        }
    }
    let out = place.arg("out");
    std::fs::create_dir(&out).unwrap();
    let no_file = format!("{no_image}:/x");
    extant(["cp", &bad, &no_file, &good, &out]).fails(1);
    assert!(Path::new(&out).join("hostname").exists());
    assert_clean(Path::new(&image));
}

#[test]
fn what_does_not_fit_leaves_the_file_that_is_there_as_it_is() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-m", "0"]);
    let inside = format!("{image}:/etc/hostname");
    let before = extant(["cat", &inside]).ok().stdout;
    let large = place.join("large");
    std::fs::write(&large, vec![7; 64 << 20]).unwrap();
    let large = large.display().to_string();
    let fails = |args: &[&str]| {
        let run = extant_with(args, |command| {
            command.pipe_stdin(&large).unwrap();
        });
        let run = run.fails(1);
        assert_clean(Path::new(&image));
        assert!(run.stderr.contains("no space"), "{}", run.stderr);
        assert!(!run.stderr.contains(".extant-new"), "{}", run.stderr);
        assert_eq!(extant(["cat", &inside]).ok().stdout, before, "{args:?}");
    };
    fails(&["cp", &large, &inside]);
    fails(&["cp", "-a", &large, &inside]);
    fails(&["cp", "/dev/stdin", &inside]);
    let names = extant(["ls", "-a", &format!("{image}:/etc")]).ok().text();
    assert!(!names.contains("extant-new"), "{names}");
}

#[test]
fn a_new_file_that_does_not_fit_is_not_left_half() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let write = |args: &[&str], input: usize| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_extant"));
        let output = command
            .args(args)
            .write_stdin(vec![5; input])
            .output()
            .unwrap();
        assert_clean(Path::new(&image));
        output.status.code()
    };
    let new = format!("{image}:/new");
    assert_eq!(write(&["write", &new], 64 << 20), Some(1));
    extant(["stat", &new]).fails(1);
    let old = format!("{image}:/etc/hostname");
    let before = extant(["cat", &old]).ok().stdout;
    assert_eq!(write(&["write", &old], 64 << 20), Some(1));
    assert_eq!(extant(["cat", &old]).ok().stdout, before);
    assert_eq!(write(&["write", "--append", &old], 64 << 20), Some(1));
    assert_eq!(extant(["cat", &old]).ok().stdout, before);
    // What fits in the place of the old content is written, also where nothing else is free.
    let block = extant(["info", "--json", &image]).ok().json()["block_size"]
        .as_u64()
        .unwrap();
    let free = extant(["df", "--json", &image]).ok().json();
    let free = free["size"].as_u64().unwrap() - free["used"].as_u64().unwrap();
    let most = usize::try_from(free / block * block).unwrap();
    assert_eq!(write(&["write", &old], most - (1 << 20)), Some(0));
    assert_eq!(write(&["write", &old], most - (1 << 20)), Some(0));
}

/// Has the blocks of a directory hold nothing that makes sense.
fn spoil_directory(image: &str, path: &str) {
    let told = debugfs(Path::new(image), &format!("blocks {path}"));
    let block: u64 = told.split_whitespace().next().unwrap().parse().unwrap();
    let size = dumpe2fs_header(Path::new(image)).number("Block size");
    let file = std::fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(&vec![0xff; size as usize], block * size)
        .unwrap();
}

#[test]
fn changing_goes_on_after_what_cannot_be_looked_at() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    for name in ["/spoilt", "/to"] {
        change(&image, ["mkdir", &at(name)]).ok();
    }
    for n in 0..6 {
        extant(["touch", &at(&format!("/file{n}"))]).ok();
    }
    spoil_directory(&image, "/spoilt");
    let bad = at("/spoilt/*");
    let bad = bad.as_str();
    extant(["mv", bad, &at("/file0"), &at("/to")]).fails(1);
    extant(["stat", &at("/to/file0")]).ok();
    // One that matches nothing that can be looked at is several all the same.
    extant(["mv", bad, &at("/file1"), &at("/new")]).fails(1);
    extant(["stat", &at("/file1")]).ok();
    extant(["rm", bad, &at("/file1")]).fails(1);
    extant(["stat", &at("/file1")]).fails(1);
    extant(["chmod", "600", bad, &at("/file2")]).fails(1);
    extant(["chown", "7", bad, &at("/file2")]).fails(1);
    extant(["chattr", "+A", bad, &at("/file2")]).fails(1);
    extant(["touch", "-t", "200001010000", bad, &at("/file2")]).fails(1);
    extant(["truncate", "-s", "5", bad, &at("/file2")]).fails(1);
    let found = extant(["stat", "--json", &at("/file2")]).ok().lines()[0].clone();
    assert_eq!((&found["mode"], &found["uid"]), (&"0600".into(), &7.into()));
    assert_eq!(found["size"], 5);
    assert!(found["flags"].as_str().unwrap().contains('A'), "{found}");
    extant(["cp", bad, &at("/file3"), &at("/to")]).fails(1);
    extant(["stat", &at("/to/file3")]).ok();
}

#[test]
fn changing_goes_on_after_an_image_that_cannot_be_opened() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let broken = place.arg("broken");
    std::fs::write(&broken, vec![0; 1 << 20]).unwrap();
    let inside = |image: &str, name: &str| format!("{image}:/{name}");
    let run = extant([
        "touch",
        &inside(&broken, "one"),
        &inside(&image, "two"),
        &inside(&broken, "three"),
        &inside(&image, "four"),
    ])
    .fails(1);
    assert_eq!(run.stderr.matches("broken").count(), 1, "{}", run.stderr);
    for name in ["two", "four"] {
        extant(["stat", &inside(&image, name)]).ok();
    }
    assert_clean(Path::new(&image));
    extant(["--as-is", "rm", &inside(&image, "two")]).fails(2);
}
