//! `ls`, `tree`, `cat`, `stat`, `find`, `info`.

use crate::support::{Place, extant, extant_with, on_a_terminal, small_plan};
use extant_testkit::plan::Content;
use extant_testkit::tool::tool;

#[test]
fn ls_lists_names_in_order_and_hides_dot_files() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let list = |args: &[&str]| extant(args).ok().text();
    assert_eq!(
        list(&["ls", &format!("{image}:/etc")]),
        "absolute\nhostname\nlink\nup\n"
    );
    assert_eq!(
        list(&["ls", "-a", &format!("{image}:etc/")]),
        ".\n..\n.hidden\nabsolute\nhostname\nlink\nup\n"
    );
    assert_eq!(list(&["ls", &image]), "etc\nloop\nlost+found\nusr\n");
    assert_eq!(list(&["ls", &format!("{image}:/etc/link")]), "/etc/link\n");
    let all = list(&["ls", "-R", &image]);
    assert!(all.contains("/usr/lib:\n"), "{all}");
}

#[test]
fn the_long_form_shows_what_ls_shows() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let text = extant(["ls", "-l", &format!("{image}:/usr/lib")])
        .ok()
        .text();
    let line = text
        .lines()
        .find(|line| line.ends_with("libone.so"))
        .expect("the file is listed");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[0], "-rwsr-xr-x");
    assert_eq!(words[1], "2");
    assert_eq!(words[4], "100000");
    assert!(words[5].starts_with("2017-07-14"), "{line}");
    let links = extant(["ls", "-l", &format!("{image}:/etc")]).ok().text();
    assert!(links.contains("link -> hostname\n"), "{links}");
    let short = extant(["ls", "-lh", &format!("{image}:/usr/lib")]).ok();
    let short = short.text();
    let line = short.lines().find(|line| line.ends_with("libone.so"));
    let size = line.and_then(|line| line.split_whitespace().nth(4));
    assert_eq!(size, Some("98K"), "{short}");
}

#[test]
fn json_keeps_names_that_are_not_utf_8() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let entries = extant(["ls", "--json", &format!("{image}:/usr/lib")])
        .ok()
        .lines();
    let odd = entries
        .iter()
        .find(|entry| !entry["path_hex"].is_null())
        .expect("one name is not UTF-8");
    let hex = odd["path_hex"].as_str().unwrap();
    assert!(hex.ends_with("62ff64206e616d651b5b33316d"), "{hex}");
    let one = entries
        .iter()
        .find(|entry| entry["path"] == "/usr/lib/libone.so")
        .expect("the file is listed");
    assert_eq!(one["type"], "file");
    assert_eq!(one["mode"], "4755");
    assert_eq!(one["links"], 2);
}

#[test]
fn output_to_programs_has_the_names_as_they_are() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let list = extant(["ls", &format!("{image}:/usr/lib")]).ok().stdout;
    let raw = b"b\xffd name\x1b[31m\n";
    assert!(list.windows(raw.len()).any(|window| window == raw));
}

#[test]
fn output_to_a_terminal_cannot_command_it() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let list = on_a_terminal(&["ls", &format!("{image}:/usr/lib")]);
    assert!(list.contains("b\\xffd name\\x1b[31m"), "{list:?}");
    assert!(!list.contains('\x1b'), "{list:?}");
}

#[test]
fn cat_writes_the_content_and_follows_links_inside_the_image() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let expected = Content::filled(1, 4).to_bytes();
    for path in ["etc/hostname", "etc/link", "etc/up", "etc/absolute"] {
        let run = extant(["cat", &format!("{image}:/{path}")]).ok();
        assert_eq!(run.stdout, expected, "{path}");
    }
    let sparse = Content::sparse(4, 4 << 20, [(0, 4096), (2 << 20, 8192)]);
    let run = extant(["cat", &format!("{image}:/usr/lib/sparse")]).ok();
    assert!(run.stdout == sparse.to_bytes());
}

#[test]
fn what_is_not_there_is_said_with_image_and_path() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let run = extant(["cat", &format!("{image}:/etc/nothing")]).fails(1);
    assert_eq!(
        run.stderr,
        format!("extant: {image}:/etc/nothing: no such file or directory\n")
    );
    let run = extant(["cat", &format!("{image}:/loop")]).fails(1);
    assert!(run.stderr.contains("too many levels of symbolic links"));
    let run = extant(["cat", &format!("{image}:/etc")]).fails(1);
    assert!(run.stderr.contains("is a directory"));
    let run = extant(["ls", &place.arg("gone.img")]).fails(1);
    assert!(run.stderr.contains("gone.img"), "{}", run.stderr);
    std::fs::write(place.join("text"), vec![b'x'; 5000]).unwrap();
    let run = extant(["ls", &place.arg("text")]).fails(1);
    assert!(run.stderr.contains("this is a text file"), "{}", run.stderr);
}

#[test]
fn errors_that_an_image_remembers_are_told_and_it_is_read_all_the_same() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-O", "^metadata_csum"]);
    let commands = ["set_super_value state 2", "set_super_value error_count 1"];
    extant_testkit::oracle::debugfs_write(std::path::Path::new(&image), &commands);
    let run = extant(["cat", &format!("{image}:/etc/hostname")]).ok();
    assert_eq!(
        run.stderr,
        format!(
            "extant: warning: {image}: the file system remembers an error; it should be checked\n"
        )
    );
    assert_eq!(run.stdout, Content::filled(1, 4).to_bytes());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.file("large", Content::filled(9, 4 << 20));
    let image = place.image(&plan, &[]);
    let script = format!(
        "set -o pipefail; '{}' cat '{image}:/large' | head -c 10 | wc -c",
        env!("CARGO_BIN_EXE_extant")
    );
    let output = assert_cmd::Command::new("bash")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "10");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn tree_draws_branches_and_counts() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let text = extant(["tree", &format!("{image}:/etc")]).ok().text();
    assert_eq!(
        text,
        "/etc\n├── .hidden\n├── absolute -> /etc/hostname\n├── hostname\n├── link -> hostname\n\
         └── up -> ../../../../etc/hostname\n\n0 directories, 5 files\n"
    );
    let text = extant(["tree", "-L", "1", "-d", &image]).ok().text();
    assert_eq!(
        text,
        "/\n├── etc\n├── lost+found\n└── usr\n\n3 directories, 0 files\n"
    );
}

#[test]
fn stat_tells_everything() {
    let place = Place::in_memory();
    let mut plan = small_plan();
    plan.node_mut("etc/hostname").xattr("user.origin", "here");
    let image = place.image(&plan, &[]);
    let run = extant(["stat", "--json", &format!("{image}:/etc/hostname")]).ok();
    let found = &run.lines()[0];
    assert_eq!(found["size"], 4);
    assert_eq!(found["xattrs"][0]["name"], "user.origin");
    assert_eq!(found["xattrs"][0]["value"], "here");
    assert_eq!(found["xattrs"][0]["value_hex"], "68657265");
    let text = extant(["stat", &format!("{image}:/etc/hostname")])
        .ok()
        .text();
    assert!(text.contains("Xattr: user.origin = \"here\""), "{text}");
    let link = extant(["stat", "--json", &format!("{image}:/etc/link")]).ok();
    assert_eq!(link.lines()[0]["target"], "hostname");
}

#[test]
fn find_takes_what_meets_all_conditions() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let find = |args: &[&str]| {
        let start = [&["find", &image], args].concat();
        extant(start).ok().text()
    };
    assert_eq!(find(&["--name", "*.so"]), "/usr/lib/libone.so\n");
    assert_eq!(
        find(&["--name", "*.so*", "--type", "f"]),
        "/usr/lib/libone.so\n/usr/lib/libtwo.so.6\n"
    );
    assert_eq!(find(&["--size", "+1M", "--type", "f"]), "/usr/lib/sparse\n");
    assert_eq!(
        find(&["--perm", "-4000"]),
        "/usr/lib/again\n/usr/lib/libone.so\n"
    );
    assert_eq!(find(&["--type", "p"]), "/usr/pipe\n");
    assert_eq!(find(&["--path-glob", "/etc/*k"]), "/etc/link\n");
    assert_eq!(
        find(&["--max-depth", "1", "--min-depth", "1", "--type", "d"]),
        "/etc\n/lost+found\n/usr\n"
    );
    assert_eq!(find(&["--name", "link", "-0"]), "/etc/link\0");
    let lines = extant(["find", &image, "--name", "link", "--json"])
        .ok()
        .lines();
    assert_eq!(lines[0]["target"], "hostname");
    // Conditions of the inode alone are asked of all inodes first; the walk agrees.
    for conditions in [
        &["--type", "f"][..],
        &["--type", "l,p"],
        &["--uid", "0"],
        &["--size", "-5K"],
    ] {
        let usr = format!("{image}:/usr");
        let below = [&["find", &usr], conditions].concat();
        let below = extant(below).ok().text();
        let all = find(conditions);
        let of_all: Vec<&str> = all.lines().filter(|l| l.starts_with("/usr")).collect();
        assert_eq!(below.lines().collect::<Vec<_>>(), of_all, "{conditions:?}");
    }
    extant(["find", &image, "--type", "x"]).fails(2);
    extant(["find", &image, "--size", "huge"]).fails(2);
}

#[test]
fn df_tells_what_is_in_use_and_whose() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.file("theirs", Content::filled(9, 200_000)).owner(7, 8);
    let image = place.image(&plan, &[]);
    let df = |args: &[&str]| {
        let start = [&["df", "--json", &image], args].concat();
        extant(start).ok().json()
    };
    let plain = df(&[]);
    let info = extant(["info", "--json", &image]).ok().json();
    assert_eq!(plain["inodes"], info["inodes"]);
    assert_eq!(plain["free_inodes"], info["free_inodes"]);
    let size = plain["size"].as_u64().unwrap();
    let free = info["free_blocks"].as_u64().unwrap() * info["block_size"].as_u64().unwrap();
    assert_eq!(plain["used"].as_u64().unwrap() + free, size);
    assert!(plain["parts"].is_null());
    let owners = df(&["--by", "owner"]);
    let parts = owners["parts"].as_array().unwrap();
    let theirs = parts.iter().find(|part| part["key"] == "7").unwrap();
    assert_eq!(
        (&theirs["files"], &theirs["bytes"]),
        (&1.into(), &200_000.into())
    );
    let files: u64 = parts.iter().map(|p| p["files"].as_u64().unwrap()).sum();
    let found = extant(["find", &image, "--json"]).ok().lines();
    let mut inodes: Vec<u64> = found.iter().map(|f| f["inode"].as_u64().unwrap()).collect();
    inodes.sort_unstable();
    inodes.dedup();
    // The journal and the list of resized descriptors have no names; hard links are one file.
    assert!(
        (inodes.len()..inodes.len() + 3).contains(&(files as usize)),
        "{files}, {inodes:?}"
    );
    let types = df(&["--by", "type"]);
    let fifos = types["parts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["key"] == "pipe");
    assert_eq!(fifos.unwrap()["files"], 1);
    let text = extant(["df", &image, "--by", "group"]).ok().text();
    assert!(text.lines().any(|l| l.starts_with("8 ")), "{text}");
    extant(["df", &format!("{image}:/etc")]).fails(2);
}

#[test]
fn info_agrees_with_what_was_asked_of_mke2fs() {
    let place = Place::new();
    let options = [
        "-L",
        "system",
        "-U",
        "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e",
        "-b",
        "1024",
    ];
    let image = place.image(&small_plan(), &options);
    let found = extant(["info", "--json", "--groups", "--free", &image])
        .ok()
        .json();
    assert_eq!(found["kind"], "ext4");
    assert_eq!(found["label"], "system");
    assert_eq!(found["uuid"], "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e");
    assert_eq!(found["block_size"], 1024);
    assert_eq!(found["blocks"], 32 << 10);
    assert_eq!(found["group_list"].as_array().unwrap().len(), 4);
    let free: u64 = found["free_extents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["blocks"].as_u64().unwrap())
        .sum();
    assert_eq!(found["free_blocks"], free);
    let text = extant(["info", "--features", &image]).ok().text();
    assert!(text.contains("label system"), "{text}");
    assert!(text.contains("  metadata_csum\n"), "{text}");
    extant(["info", &format!("{image}:/etc")]).fails(2);
}

#[test]
fn offsets_and_partitions_lead_to_the_file_system() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let disk = place.join("disk.img");
    let content = std::fs::read(&image).unwrap();
    // An MBR whose second partition begins at 1 MiB.
    let mut whole = vec![0u8; 1 << 20];
    let entry = &mut whole[0x1ce..0x1de];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&2048u32.to_le_bytes());
    entry[12..16].copy_from_slice(&((content.len() / 512) as u32).to_le_bytes());
    whole[510..512].copy_from_slice(&[0x55, 0xaa]);
    whole.extend_from_slice(&content);
    std::fs::write(&disk, whole).unwrap();
    let disk = disk.display().to_string();
    for place in [["--partition", "2"], ["--offset", "1M"]] {
        let list = extant(["ls", &disk].iter().chain(&place)).ok().text();
        assert_eq!(list, "etc\nloop\nlost+found\nusr\n");
    }
    let run = extant(["ls", &disk]).fails(1);
    assert!(run.stderr.contains("--partition"), "{}", run.stderr);
    extant(["ls", &disk, "--partition", "2", "--offset", "1M"]).fails(2);
    extant_with(["ls", &disk, "--offset", "1X"], |_| {}).fails(2);
}

#[test]
fn info_tells_of_recorded_errors_and_of_a_journal_that_was_not_closed() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    for change in [
        "ssv error_count 3",
        "ssv first_error_time 20200102030405",
        "ssv first_error_func ext4_lookup",
        "ssv first_error_line 1855",
        "ssv first_error_ino 12",
        "ssv state 2",
        "feature needs_recovery",
    ] {
        tool("debugfs").args(["-w", "-R", change, &image]).ok();
    }
    let found = extant(["info", "--json", &image]).ok().json();
    assert_eq!(found["state"], "errors");
    assert_eq!(found["error_count"], 3);
    assert_eq!(found["first_error"]["function"], "ext4_lookup");
    assert_eq!(found["first_error"]["inode"], 12);
    assert_eq!(found["journal_dirty"], true);
    assert_eq!(found["journal_replayed"], true);
    let text = extant(["info", &image]).ok().text();
    for part in [
        "errors; the journal was not closed and is replayed in memory",
        "3 recorded",
        "first at 2020-01-02T03:04:05Z in ext4_lookup:1855, inode 12",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let as_is = extant(["info", "--as-is", "--json", &image]).ok().json();
    assert_eq!(as_is["journal_dirty"], true);
    assert_eq!(as_is["journal_replayed"], false);
}

#[test]
fn what_is_no_file_system_is_called_so_by_every_command() {
    let place = Place::new();
    let (text, noise) = (place.join("text"), place.join("noise"));
    std::fs::write(&text, "no image\n").unwrap();
    std::fs::write(&noise, vec![7; 1 << 20]).unwrap();
    for (image, evidence) in [
        (&text, "this is a text file"),
        (&noise, "superblock: magic is 0x707, expected 0xef53"),
    ] {
        let image = image.display().to_string();
        let inside = format!("{image}:/");
        for (command, argument) in [
            ("info", &image),
            ("df", &image),
            ("quota", &image),
            ("map", &image),
            ("tune", &image),
            ("replay", &image),
            ("ls", &inside),
            ("tree", &inside),
            ("stat", &inside),
            ("find", &inside),
            ("mkdir", &inside),
        ] {
            let run = extant([command, argument]).fails_somehow();
            let expected = format!("no ext4 file system was found: {evidence}");
            assert!(run.stderr.contains(&expected), "{command}: {}", run.stderr);
        }
        for command in ["check", "repair"] {
            let run = extant([command, &image]).fails_somehow();
            let expected = "no ext4 file system was found: ";
            assert!(run.stderr.contains(expected), "{command}: {}", run.stderr);
        }
    }
}
