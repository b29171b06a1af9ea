//! `verity --fs-verity`: files of images that exist, beside those that `fsverity` makes.

use crate::fs_verity::{compare, names, of_fsverity, source};
use crate::support::{Place, extant};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::io::Write;
use std::path::Path;

/// What is asked of an image for the directory of files that get trees.
fn protect(image: &str, options: &[&str]) -> crate::support::Run {
    let verity = ["verity", image, "--fs-verity", "/sealed", "--json"];
    extant(verity.iter().chain(options))
}

/// What `debugfs` says of a file but for what protecting it changes: flags, blocks, checksum and
/// map.
fn record(image: &str, path: &str) -> String {
    let said = debugfs(Path::new(image), &format!("stat {path}"));
    let kept: Vec<&str> = said
        .lines()
        .take_while(|line| !line.starts_with("EXTENTS") && !line.starts_with("BLOCKS"))
        .filter(|line| !line.contains("Blockcount:") && !line.contains("checksum:"))
        // What lies in the record moves to a block.
        .filter(|line| !line.contains("inline data") && !line.contains("system.data"))
        .filter(|line| !line.contains("Extended attributes:"))
        .map(|line| line.split("Flags:").next().unwrap())
        .collect();
    assert!(kept.iter().any(|line| line.contains("mtime:")), "{said}");
    kept.join("\n")
}

#[test]
fn files_get_the_trees_that_fsverity_makes_and_keep_all_else() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (&["-b", "4096"], &[], &[]),
        (&["-b", "1024", "-I", "256"], &[], &["--block-size=1024"]),
        (
            &["-b", "4096", "-O", "^has_journal"],
            &["--fs-verity-hash", "sha512"],
            &["--hash-alg=sha512"],
        ),
        (
            &["-b", "4096", "-O", "orphan_file"],
            &[
                "--fs-verity-salt",
                "5eed00ff",
                "--fs-verity-block-size",
                "1K",
            ],
            &["--salt=5eed00ff", "--block-size=1024"],
        ),
        (&["-b", "4096", "-O", "bigalloc,^resize_inode"], &[], &[]),
        (&["-b", "4096", "-O", "inline_data,quota"], &[], &[]),
    ];
    for (made, ours, theirs) in cases {
        let options = [&["-q", "-F", "-t", "ext4"], made].concat();
        let _ = fs::remove_file(&image);
        mke2fs(Path::new(&image), 96 << 20, &options);
        extant(["cp", "-a", &format!("{from}/."), &format!("{image}:/")]).ok();
        // A program with rights.
        let capabilities = place.arg("capabilities");
        fs::write(&capabilities, [&[1, 0, 0, 2, 1][..], &[0; 15]].concat()).unwrap();
        let set = format!("ea_set -f {capabilities} /sealed/large security.capability");
        debugfs_write(
            Path::new(&image),
            &["set_inode_field /sealed/large mode 0106755", &set],
        );
        let before: Vec<String> = names()
            .iter()
            .map(|name| record(&image, &format!("/sealed/{name}")))
            .collect();
        let made = protect(&image, ours).ok().json();
        assert_eq!(made["fs_verity_files"], names().len());
        assert!(made.get("dm_verity").is_none());
        assert_clean(Path::new(&image));
        extant(["check", "--verity", &image]).ok();
        let dump = dumpe2fs_header(Path::new(&image));
        assert!(dump.has_feature("verity"));
        for (name, before) in names().iter().zip(before) {
            compare(&place, &image, name, theirs);
            let path = format!("/sealed/{name}");
            assert_eq!(record(&image, &path), before, "{name} {options:?}");
            let (digest, ..) = of_fsverity(&place, &place.join("tree/sealed").join(name), theirs);
            let told = made["fs_verity"].as_array().unwrap();
            let told = told.iter().find(|file| file["path"] == *path).unwrap();
            let algorithm = if theirs.contains(&"--hash-alg=sha512") {
                "sha512"
            } else {
                "sha256"
            };
            assert_eq!(told["digest"], format!("{algorithm}:{digest}"), "{name}");
            assert_eq!(told["already"], false);
            let back = extant(["cat", "--verify", &format!("{image}:{path}")]).ok();
            let host = fs::read(place.join("tree/sealed").join(name)).unwrap();
            assert!(back.stdout == host, "{name}: content");
        }
        let plain = debugfs(Path::new(&image), "stat /plain");
        assert!(!plain.contains("Flags: 0x180000"), "{plain}");
        let attribute = debugfs(
            Path::new(&image),
            "ea_get -x /sealed/large security.capability",
        );
        assert!(attribute.contains("01 00 00 02"), "{attribute}");
        extant(["truncate", "-s", "5", &format!("{image}:/sealed/large")]).fails(1);
        extant(["rm", "-r", &format!("{image}:/sealed")]).ok();
        assert_clean(Path::new(&image));
    }
}

/// Behind the end of a file its last block may have anything, which Linux hashes too.
#[test]
fn what_lies_behind_the_end_in_the_last_block_becomes_zeros() {
    let place = Place::in_memory();
    let image = place.arg("root.img");
    let tree = place.arg("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(place.join("tree/cut"), [b'Z'; 8192]).unwrap();
    for (ours, theirs) in [
        (&[][..], &[][..]),
        // Such a block may lie wholly behind the end.
        (&["--fs-verity-block-size", "1K"], &["--block-size=1024"]),
    ] {
        let _ = fs::remove_file(&image);
        let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-d", &tree];
        mke2fs(Path::new(&image), 16 << 20, &options);
        debugfs_write(Path::new(&image), &["set_inode_field /cut size 5000"]);
        assert_clean(Path::new(&image));
        let second = debugfs(Path::new(&image), "bmap /cut 1");
        let second = second.trim().parse::<usize>().unwrap() * 4096;
        let block = || fs::read(&image).unwrap()[second..second + 4096].to_vec();
        assert!(block().iter().all(|&byte| byte == b'Z'));
        let verity = ["verity", &image, "--fs-verity", "/cut"];
        let told = extant(verity.iter().chain(ours)).ok();
        let content = place.join("content");
        fs::write(&content, [b'Z'; 5000]).unwrap();
        let (digest, ..) = of_fsverity(&place, &content, theirs);
        assert_eq!(told.text(), format!("sha256:{digest} /cut\n"));
        let now = block();
        assert!(now[..5000 - 4096].iter().all(|&byte| byte == b'Z'));
        assert!(now[5000 - 4096..].iter().all(|&byte| byte == 0));
        assert_clean(Path::new(&image));
        extant(["check", "--verity", &image]).ok();

        let mut dirty = fs::read(&image).unwrap();
        dirty[second + 4095] = 1;
        fs::write(&image, dirty).unwrap();
        let run = extant(["check", "--verity", &image]);
        assert_eq!(run.code, 4, "{}", run.stderr);
        let said = format!("{}{}", run.text(), run.stderr);
        assert!(said.contains("byte 8191, behind the end"), "{said}");
    }
}

#[test]
fn copies_of_the_superblock_have_the_feature_too() {
    let place = Place::in_memory();
    let image = place.arg("root.img");
    let tree = source(&place);
    let options = ["-q", "-F", "-t", "ext4", "-b", "1024", "-d", &tree];
    mke2fs(Path::new(&image), 96 << 20, &options);
    let has_feature = || {
        let copy = tool("dumpe2fs")
            .args([
                "-h",
                "-o",
                "superblock=8193",
                "-o",
                "blocksize=1024",
                &image,
            ])
            .ok()
            .text();
        let mut lines = copy.lines();
        let features = lines.find(|line| line.contains("features:"));
        features.unwrap().contains("verity")
    };
    let place_of_copy = 8193 * 1024..8194 * 1024;
    let before = fs::read(&image).unwrap()[place_of_copy.clone()].to_vec();
    assert!(!has_feature());
    protect(&image, &[]).ok();
    assert!(has_feature());
    // As a crash between the commit and the copies leaves it. With another file, and with one that
    // is protected already.
    for path in ["/plain", "/sealed/one"] {
        let mut bytes = fs::read(&image).unwrap();
        bytes[place_of_copy.clone()].copy_from_slice(&before);
        fs::write(&image, bytes).unwrap();
        assert!(!has_feature());
        extant(["verity", &image, "--fs-verity", path]).ok();
        assert!(has_feature(), "{path}");
    }
    assert_clean(Path::new(&image));
}

#[test]
fn the_same_again_does_nothing_and_another_way_is_refused() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    extant([
        "mkfs",
        &image,
        "--from",
        &from,
        "--size",
        "128M",
        "--block-size",
        "4K",
    ])
    .ok();
    let list = place.arg("list");
    fs::write(&list, "# these\nsealed/one\n/sealed/large\n").unwrap();
    let of_list = ["verity", &image, "--fs-verity-list", &list];
    let told = extant(of_list).ok().text();
    let (digest, ..) = of_fsverity(&place, &place.join("tree/sealed/one"), &[]);
    assert!(
        told.contains(&format!("sha256:{digest} /sealed/one\n")),
        "{told}"
    );
    assert_eq!(told.lines().count(), 2, "{told}");

    for wrong in [
        &["--fs-verity-hash", "sha512"][..],
        &["--fs-verity-salt", "ab"],
        &["--fs-verity-block-size", "1K"],
    ] {
        let said = protect(&image, wrong).fails(1).stderr;
        assert!(
            said.contains("is protected already, by sha256, blocks of 4096 bytes"),
            "{said}"
        );
    }
    // So it is where nobody may change them.
    extant(["chattr", "+i", &format!("{image}:/sealed/one")]).ok();
    let again = extant(of_list).ok().text();
    assert!(
        again.contains(&format!("sha256:{digest} /sealed/one\n")),
        "{again}"
    );
    extant(["chattr", "-i", &format!("{image}:/sealed/one")]).ok();
    let said = extant(["verity", &image, "--fs-verity", "/nothing"])
        .fails(1)
        .stderr;
    assert!(said.contains("no such regular file in the image"), "{said}");
    fs::write(&list, "/plain\n/sealed\n").unwrap();
    let said = extant(of_list).fails(1).stderr;
    assert!(
        said.contains("line 2: /sealed is no regular file in the image"),
        "{said}"
    );
    extant(["verity", &image]).fails(2);
    extant(["verity", &image, "--fs-verity-salt", "ab"]).fails(2);
    let long = "ab".repeat(33);
    for wrong in [
        ["--fs-verity-block-size", "64K"],
        ["--fs-verity-block-size", "3000"],
        ["--fs-verity-salt", &long],
    ] {
        extant(
            ["verity", &image, "--fs-verity", "/plain"]
                .iter()
                .chain(&wrong),
        )
        .fails(2);
    }
    let dm = place.arg("tree.verity");
    let undo = place.arg("undo");
    extant(["verity", &image, "--dm-verity", &dm, "--undo", &undo]).fails(2);

    let made = protect(&image, &[]).ok().json();
    let already = made["fs_verity"].as_array().unwrap();
    let already = already.iter().filter(|file| file["already"] == true);
    assert_eq!(already.count(), 2);
    assert_eq!(made["fs_verity_files"], names().len());
    for name in names() {
        compare(&place, &image, name, &[]);
    }
    assert_clean(Path::new(&image));
}

#[test]
fn a_file_that_cannot_be_protected_is_named_and_the_others_are() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-d", &from];
    mke2fs(Path::new(&image), 128 << 20, &options);
    let at = |name: &str| format!("{image}:/sealed/{name}");
    extant(["chattr", "+i", &at("one")]).ok();
    extant(["chattr", "+a", &at("block")]).ok();
    extant(["chattr", "-e", &at("level")]).ok();
    extant(["ln", "-s", "one", &at("link")]).ok();
    extant(["mkdir", &at("sub")]).ok();
    extant(["ln", &at("more"), &at("sub/again")]).ok();
    let run = protect(&image, &[]).fails(1);
    for name in ["one", "block", "level"] {
        let path = format!("/sealed/{name}: ");
        assert!(run.stderr.contains(&path), "{name}: {}", run.stderr);
    }
    assert!(run.stderr.contains("indirect blocks"), "{}", run.stderr);
    let made = run.json();
    assert_eq!(made["fs_verity_files"], names().len() - 3);
    for name in names() {
        if !["one", "block", "level"].contains(&name) {
            compare(&place, &image, name, &[]);
        }
    }
    assert_clean(Path::new(&image));
    for (change, name) in [("-i", "one"), ("-a", "block"), ("+e", "level")] {
        extant(["chattr", change, &at(name)]).ok();
    }
    let made = protect(&image, &[]).ok().json();
    assert_eq!(made["fs_verity_files"], names().len());
    for name in names() {
        compare(&place, &image, name, &[]);
    }
    assert_clean(Path::new(&image));
}

#[test]
fn an_undo_file_takes_it_back_and_dm_verity_covers_it() {
    let place = Place::in_memory();
    let from = source(&place);
    let (image, undo) = (place.arg("root.img"), place.arg("undo"));
    extant([
        "mkfs",
        &image,
        "--from",
        &from,
        "--size",
        "128M",
        "--block-size",
        "4K",
    ])
    .ok();
    let before = fs::read(&image).unwrap();
    protect(&image, &["--undo", &undo]).ok();
    assert!(fs::read(&image).unwrap() != before);
    extant(["revert", &undo, &image]).ok();
    assert!(fs::read(&image).unwrap() == before);

    let made = protect(&image, &["--dm-verity", "append"]).ok().json();
    assert_eq!(made["fs_verity_files"], names().len());
    let dm = &made["dm_verity"];
    tool("veritysetup")
        .args(["verify", &image, &image, dm["root_hash"].as_str().unwrap()])
        .arg(format!("--hash-offset={}", dm["hash_offset"]))
        .ok();
    for name in names() {
        compare(&place, &image, name, &[]);
    }
}

#[test]
fn files_are_told_where_the_tree_over_all_fails() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-d", &from];
    mke2fs(Path::new(&image), 128 << 20, &options);
    // What lies behind the file system is not written over.
    let mut long = fs::File::options().append(true).open(&image).unwrap();
    long.write_all(&[7; 8192]).unwrap();
    drop(long);
    let (digest, ..) = of_fsverity(&place, &place.join("tree/sealed/one"), &[]);
    let asked = ["verity", &image, "--dm-verity", "append", "--fs-verity"];
    let run = extant(asked.iter().chain(&["/sealed/one"])).fails(1);
    assert_eq!(run.text(), format!("sha256:{digest} /sealed/one\n"));
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    let run = extant(asked.iter().chain(&["/sealed/one", "--json"])).fails(1);
    let told = run.json();
    assert_eq!(told["fs_verity"][0]["digest"], format!("sha256:{digest}"));
    assert!(told.get("dm_verity").is_none(), "{told}");
    let run = extant(["verity", &image, "--dm-verity", "append"]).fails(1);
    assert_eq!(run.text(), "");
    compare(&place, &image, "one", &[]);
}

/// Where the log can be written to only so far, nothing is told as protected.
#[test]
fn no_digest_is_told_where_the_last_commit_fails() {
    let place = Place::in_memory();
    let tree = place.arg("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(place.join("tree/file"), [3; 9000]).unwrap();
    let (digest, ..) = of_fsverity(&place, &place.join("tree/file"), &[]);
    let image = place.arg("root.img");
    // The feature is there, so nothing is committed between opening and closing.
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity", "-d"];
    let log = [&tree, "-J", "size=4,location=32M"];
    let mut lost = 0;
    // Bytes of the log that can be written, in KiB.
    for most in (0..).step_by(8) {
        assert!(most < 4096, "the log is large enough some time");
        let _ = fs::remove_file(&image);
        mke2fs(Path::new(&image), 64 << 20, &[&options[..], &log].concat());
        let limited = format!(
            "trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"",
            32_768 + most
        );
        let run = tool("bash")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_extant")])
            .args(["verity", &image, "--fs-verity", "/file"])
            .run();
        if run.code == 0 {
            assert_eq!(run.text(), format!("sha256:{digest} /file\n"));
            break;
        }
        assert_eq!((run.code, run.text().as_str()), (1, ""), "{run}");
        lost += u32::from(run.to_string().contains("may be lost"));
        extant(["verity", &image, "--fs-verity", "/file"]).ok();
        assert_clean(Path::new(&image));
    }
    assert!(lost > 0, "closing failed");
}

#[test]
fn where_there_is_no_room_the_file_is_as_it_was() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    extant([
        "mkfs",
        &image,
        "--from",
        &from,
        "--block-size",
        "4K",
        "--headroom",
        "0",
    ])
    .ok();
    let free = || dumpe2fs_header(Path::new(&image)).number("Free blocks");
    let fill = (free() * 4096).to_string();
    let filler = format!("{image}:/filler");
    extant(["touch", &filler]).ok();
    // As much as there is, but for what the file's own map takes.
    let run = extant(["fallocate", "-l", &fill, &filler]);
    assert!(run.code <= 1, "{}", run.stderr);
    let before = free();
    let said = extant(["verity", &image, "--fs-verity", "/sealed/large"])
        .fails(1)
        .stderr;
    assert!(said.contains("no space is left"), "{said}");
    assert_eq!(free(), before);
    assert_clean(Path::new(&image));
    let large = debugfs(Path::new(&image), "stat /sealed/large");
    assert!(large.contains("Flags: 0x80000"), "{large}");
}

/// Under Linux: the others are read and written to, and the files are what they were.
#[test]
fn linux_mounts_the_image_and_writes_to_the_others() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-d", &from];
    mke2fs(Path::new(&image), 128 << 20, &options);
    protect(&image, &[]).ok();
    let mount = KernelMount::mount(Path::new(&image), Mode::ReadWrite, "");
    assert_eq!(fs::read_to_string(mount.join("plain")).unwrap(), "plain\n");
    fs::write(mount.join("plain"), "new\n").unwrap();
    fs::rename(mount.join("sealed/one"), mount.join("one")).unwrap();
    fs::remove_file(mount.join("sealed/levels")).unwrap();
    mount.unmount();
    assert_clean(Path::new(&image));
    compare(&place, &image, "large", &[]);
}

#[test]
fn linux_measures_the_digests_and_verifies_what_it_reads() {
    require!(Root, LoopDevices, FsVerity);
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-d", &from];
    mke2fs(Path::new(&image), 128 << 20, &options);
    protect(&image, &[]).ok();
    let mount = KernelMount::mount(Path::new(&image), Mode::ReadWrite, "");
    for name in names() {
        let path = mount.join("sealed").join(name);
        let host = place.join("tree/sealed").join(name);
        assert!(
            fs::read(&path).unwrap() == fs::read(&host).unwrap(),
            "{name}"
        );
        let (digest, ..) = of_fsverity(&place, &host, &[]);
        let measured = tool("fsverity").arg("measure").arg(&path).ok().text();
        assert!(
            measured.starts_with(&format!("sha256:{digest} ")),
            "{measured}"
        );
        assert!(
            fs::File::options().write(true).open(&path).is_err(),
            "{name}"
        );
    }
    mount.unmount();
    assert_clean(Path::new(&image));
}
