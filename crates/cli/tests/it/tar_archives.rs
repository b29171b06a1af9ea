//! `tar`: archives that other programs read.

use crate::support::{
    Place, as_mke2fs_keeps, change, extant, extant_with, faithful, on_a_terminal, small_plan,
};
use extant_testkit::oracle::mke2fs;
use extant_testkit::plan::{Content, NodeKind, TarForm, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::torture::TortureSpec;
use extant_testkit::tree::{Compare, Tree};

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
            // No directory has such bytes in a name: its block is not read.
            let run = extant(["tar", &image, "-o", &archive]).fails(1);
            assert!(run.stderr.contains("corrupt"), "{}", run.stderr);
            let listed = tool("tar").args(["-tf", &archive]).ok().text();
            assert_eq!(listed, "./\n");
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
