//! Images that are not simply a whole file system: disks, damaged and cut images.

use crate::support::{Place, copy_of, extant, small_plan};
use extant_testkit::oracle::mke2fs;
use extant_testkit::plan::Content;
use extant_testkit::tool::tool;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

#[test]
fn a_damaged_superblock_is_replaced_by_a_backup_when_asked() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-b", "1024"]);
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 1024], 1024).unwrap();
    let run = extant(["ls", &image]).fails(1);
    assert!(run.stderr.contains("block 8193"), "{}", run.stderr);
    assert!(run.stderr.contains("--superblock auto"), "{}", run.stderr);
    let hostname = Content::filled(1, 4).to_bytes();
    for which in ["auto", "8193"] {
        let path = format!("{image}:/etc/hostname");
        let run = extant(["cat", "--superblock", which, &path]).ok();
        assert_eq!(run.stdout, hostname);
    }
    let out = place.arg("out");
    extant([
        "cp",
        "-a",
        "--superblock",
        "auto",
        &format!("{image}:/etc"),
        &out,
    ])
    .ok();
    extant(["ls", "--superblock", "5", &image]).fails(1);
    // What changes images is refused until it is mended.
    extant(["touch", "--superblock", "auto", &format!("{image}:/x")]).fails(2);
    assert_eq!(extant(["repair", "-q", &image]).code, 1);
    extant(["ls", &image]).ok();
}

#[test]
fn an_image_that_was_cut_short_is_read_as_far_as_it_goes() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.file("large", Content::filled(9, 12 << 20));
    let image = place.image(&plan, &["-b", "4096", "-O", "^has_journal"]);
    // Behind the small files and inside the large one.
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    let run = extant(["cat", &format!("{image}:/etc/hostname")]).ok();
    assert_eq!(run.stdout, Content::filled(1, 4).to_bytes());
    assert!(
        run.stderr.contains("cut short") || run.stderr.contains("is lost"),
        "{}",
        run.stderr
    );
    extant(["cat", &format!("{image}:/large")]).fails(1);
    let out = place.arg("out");
    let run = extant(["cp", "-a", &format!("{image}:/."), &out]).fails(1);
    assert!(run.stderr.contains("/large"), "{}", run.stderr);
    assert!(place.join("out/etc/hostname").exists());
    extant(["touch", &format!("{image}:/x")]).fails(1);
    assert_eq!(extant(["check", &image]).code, 4);
}

/// A disk with a GPT and two partitions, of which the second holds a file system.
fn disk(place: &Place) -> String {
    let disk = place.join("disk.img");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let name = disk.display().to_string();
    let parts = [
        "-n",
        "1:2048:10239",
        "-c",
        "1:boot",
        "-n",
        "2:10240:110239",
        "-c",
        "2:root",
    ];
    tool("sgdisk").args(parts).arg(&name).ok();
    let part = place.join("part.img");
    mke2fs(&part, 32 << 20, &["-t", "ext4", "-L", "system"]);
    let bytes = std::fs::read(&part).unwrap();
    let file = OpenOptions::new().write(true).open(&disk).unwrap();
    file.write_all_at(&bytes, 10240 * 512).unwrap();
    name
}

#[test]
fn the_partitions_of_a_disk_are_listed() {
    let place = Place::new();
    let disk = disk(&place);
    let text = extant(["info", &disk]).ok().text();
    assert!(text.contains("2 partitions (gpt)"), "{text}");
    assert!(text.contains("system"), "{text}");
    let json = extant(["info", "--json", &disk]).ok().json();
    let parts = json["partitions"].as_array().unwrap();
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[0]["name"], "boot");
    assert!(parts[0]["filesystem"].is_null());
    assert_eq!(parts[1]["filesystem"], "ext4");
    assert_eq!(parts[1]["label"], "system");
    assert_eq!(parts[1]["start"], 10240 * 512);
    assert_eq!(parts[1]["size"], 100_000 * 512);
    extant(["info", "--partition", "2", &disk]).ok();
    extant(["info", "--partition", "1", &disk]).fails(1);
    let run = extant(["ls", &disk]).fails(1);
    assert!(run.stderr.contains("--partition"), "{}", run.stderr);
}

#[test]
fn a_partition_is_named_with_its_image() {
    let place = Place::new();
    let disk = disk(&place);
    let plain = copy_of(&place.arg("part.img"), &place.arg("plain.img"));
    let file = place.join("file");
    std::fs::write(&file, "text").unwrap();
    let file = file.display().to_string();
    extant(["cp", &file, &format!("{disk}#2:/one")]).ok();
    extant([
        "cp",
        "-a",
        &format!("{disk}#2:/one"),
        &format!("{plain}:/two"),
    ])
    .ok();
    extant([
        "cp",
        "-a",
        &format!("{plain}:/two"),
        &format!("{disk}#2:/three"),
    ])
    .ok();
    let mv = [
        "mv",
        &format!("{disk}#2:/three"),
        &format!("{disk}#2:/four"),
    ];
    extant(mv).ok();
    let text = extant(["cat", "--partition", "2", &format!("{disk}:/four")]).ok();
    assert_eq!(text.text(), "text");
    let list = extant(["ls", &format!("{disk}#2"), &plain]).ok().text();
    assert!(list.contains("four") && list.contains("two"), "{list}");
    for wrong in [format!("{disk}#1"), format!("{disk}#9")] {
        let run = extant(["ls", &wrong]).fails(1);
        assert!(!run.stderr.is_empty());
    }
    extant(["check", "--partition", "2", &disk]).ok();
}

#[test]
fn partitions_that_cannot_be_used_together_are_refused_with_what_to_do() {
    let place = Place::new();
    let disk = disk(&place);
    let plain = copy_of(&place.arg("part.img"), &place.arg("plain.img"));
    let (of_disk, of_plain) = (format!("{disk}:/."), format!("{plain}:/"));
    for paths in [[&of_disk, &of_plain], [&of_plain, &of_disk]] {
        let run = extant(["cp", "-a", "--partition", "2", paths[0], paths[1]]).fails(1);
        assert!(run.stderr.contains("partition"), "{}", run.stderr);
    }
    // The same bytes by another name, and no file system in the other partition.
    let run = extant([
        "cp",
        "-a",
        "--offset",
        "5242881",
        &format!("{disk}:/."),
        &format!("{disk}#2:/"),
    ]);
    assert!(run.fails(1).stderr.contains("lie over each other"));
    let two = [format!("{disk}#1:/."), format!("{disk}#2:/")];
    let run = extant(["cp", "-a", &two[0], &two[1]]).fails(1);
    assert!(run.stderr.contains("nothing but zeros"), "{}", run.stderr);
}

#[test]
fn what_is_no_ext4_file_system_is_named_by_every_command() {
    let place = Place::new();
    let text = place.join("text");
    std::fs::write(&text, "some text\n".repeat(400)).unwrap();
    let shell = |script: &str| {
        tool("sh").args(["-c", script, "sh"]).arg(place.path()).ok();
    };
    shell(
        "cd $1; gzip -k text; zstd -q text; xz -k text; tar -cf tar text; : > empty; truncate -s 1M zeros; \
         truncate -s 64K swap; mkswap -q swap 2> /dev/null; mkfifo pipe",
    );
    for (name, words) in [
        ("text", "text"),
        ("text.gz", "text"),
        ("text.zst", "text"),
        ("text.xz", "text"),
        ("tar", "mkfs"),
        ("empty", "empty"),
        ("zeros", "zeros"),
        ("swap", "swap"),
    ] {
        let image = place.arg(name);
        for (command, code) in [
            (&["ls"][..], 1),
            (&["info"], 1),
            (&["tar"], 1),
            (&["check"], 8),
            (&["repair"], 8),
            (&["resize", "--minimum"], 8),
            (&["tune", "--list"], 8),
            (&["rm", "-f"], 1),
        ] {
            let operand = if command[0] == "rm" {
                format!("{image}:/x")
            } else {
                image.clone()
            };
            let args = command.iter().copied().chain([operand.as_str()]);
            if command[0] == "info" && matches!(name, "tar" | "swap") {
                let told = extant(args).ok().text();
                assert!(told.contains(words), "{name}: {told}");
                continue;
            }
            let run = extant(args).fails(code);
            let is_read = !matches!(command[0], "repair" | "resize" | "rm");
            let words = if name.starts_with("text.") && !is_read {
                "which is only read: convert it first"
            } else {
                words
            };
            assert!(
                run.stderr.contains(words),
                "{command:?} {name}: {}",
                run.stderr
            );
        }
    }
    let run = extant(["ls", &place.arg("pipe")]).fails(1);
    assert!(run.stderr.contains("pipe"), "{}", run.stderr);
}
