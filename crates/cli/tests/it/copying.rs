//! `cp`: out of an image, and nothing lost on the way.

use crate::support::{Place, as_mke2fs_keeps, copy_of_the_command, extant, faithful, small_plan};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::plan::Content;
use extant_testkit::torture::TortureSpec;
use extant_testkit::tree::Tree;
use extant_testkit::{require, tool::tool};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn an_archive_copy_of_a_torture_tree_is_the_tree() {
    require!(Root, KernelExt4, TmpfsXattrs);
    let place = Place::in_memory();
    let plan = TortureSpec::small().for_image(4096, 256, true).plan();
    let image = place.kernel_image(&plan, 512 << 20, &["-O", "ea_inode"]);
    let out = place.join("out");
    extant(["cp", "-a", &image, &place.arg("out")]).ok();
    plan.expected()
        .assert_same(&Tree::snapshot(&out), &faithful());
}

#[test]
fn a_copy_does_not_depend_on_the_number_of_threads() {
    let place = Place::in_memory();
    let plan = small_plan();
    let image = place.image(&plan, &[]);
    for threads in ["1", "2", "7"] {
        let out = format!("out{threads}");
        extant(["cp", "-a", "--threads", threads, &image, &place.arg(&out)]).ok();
        plan.expected()
            .assert_same(&Tree::snapshot(&place.join(&out)), &as_mke2fs_keeps());
    }
}

#[test]
fn destinations_are_named_as_cp_names_them() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let from = format!("{image}:/usr/lib");
    extant(["cp", "-r", &from, &place.arg("new")]).ok();
    assert!(place.join("new/libone.so").is_file());
    std::fs::create_dir(place.join("there")).unwrap();
    extant(["cp", "-r", &from, &place.arg("there")]).ok();
    assert!(place.join("there/lib/libone.so").is_file());
    extant(["cp", "-rT", &from, &place.arg("there")]).ok();
    assert!(place.join("there/libone.so").is_file());
    extant(["cp", &format!("{image}:/etc/link"), &place.arg("there")]).ok();
    assert!(
        place
            .join("there/link")
            .symlink_metadata()
            .unwrap()
            .is_file()
    );
    extant([
        "cp",
        &format!("{image}:/etc/hostname"),
        &place.arg("renamed"),
    ])
    .ok();
    assert_eq!(
        std::fs::read(place.join("renamed")).unwrap(),
        Content::filled(1, 4).to_bytes()
    );
    let two = [
        "cp".to_owned(),
        format!("{image}:/etc/hostname"),
        format!("{image}:/usr/lib/libone.so"),
    ];
    let there = [place.arg("there")];
    extant(two.iter().chain(&there)).ok();
    let nowhere = [place.arg("nowhere")];
    extant(two.iter().chain(&nowhere)).fails(1);
    let run = extant(["cp", &from, &place.arg("other")]).fails(1);
    assert!(run.stderr.contains("-r"), "{}", run.stderr);
    assert!(!place.join("other").exists());
}

#[test]
fn without_archive_special_bits_and_times_stay_behind() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    extant(["cp", "-r", &format!("{image}:/usr/lib"), &place.arg("out")]).ok();
    let one = place.join("out/libone.so").metadata().unwrap();
    assert_eq!(one.permissions().mode() & 0o7000, 0);
    assert_eq!(one.permissions().mode() & 0o700, 0o700);
    assert_eq!(one.nlink(), 1, "without -a each name is a file of its own");
    assert!(one.mtime() > 1_700_000_000);
    let sparse = place.join("out/sparse").metadata().unwrap();
    assert_eq!(sparse.len(), 4 << 20);
    assert!(sparse.blocks() * 512 < 1 << 20, "holes stay holes");
}

#[test]
fn copying_again_replaces_files_and_joins_directories() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let out = place.arg("out");
    std::fs::create_dir_all(place.join("out/etc")).unwrap();
    std::fs::write(place.join("out/etc/hostname"), "old and long").unwrap();
    std::fs::write(place.join("out/etc/mine"), "kept").unwrap();
    extant(["cp", "-a", &image, &out]).ok();
    extant(["cp", "-a", &image, &out]).ok();
    assert_eq!(
        std::fs::read(place.join("out/etc/hostname")).unwrap(),
        Content::filled(1, 4).to_bytes()
    );
    assert_eq!(std::fs::read(place.join("out/etc/mine")).unwrap(), b"kept");
}

#[test]
fn a_file_in_the_way_of_a_directory_is_reported() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    std::fs::create_dir(place.join("out")).unwrap();
    std::fs::write(place.join("out/usr"), "in the way").unwrap();
    let run = extant(["cp", "-a", &image, &place.arg("out")]).fails(1);
    assert!(run.stderr.contains("usr"), "{}", run.stderr);
    assert!(
        place.join("out/etc/hostname").is_file(),
        "the rest is there"
    );
    assert_eq!(std::fs::read(place.join("out/usr")).unwrap(), b"in the way");
}

#[test]
fn a_user_who_is_not_root_gets_a_copy_and_a_note() {
    require!(Root);
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).unwrap();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::create_dir(place.join("public")).unwrap();
    std::fs::set_permissions(place.join("public"), all).unwrap();
    let binary = place.join("extant");
    copy_of_the_command(&binary);
    let output = tool("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&binary)
        .args(["cp", "-a", &image, &place.arg("public/out")])
        .ok();
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.contains("only root may keep owners"), "{note}");
    let one = place.join("public/out/usr/lib/libone.so");
    let mode = one.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755, "no set-id bit for the wrong owner");
}

#[test]
fn a_copy_that_is_killed_leaves_the_older_file_as_it_was() {
    const SIZE: usize = 40 << 20;
    let place = Place::new();
    let (image, out) = (place.join("image"), place.join("out"));
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    std::fs::write(place.join("large"), vec![7; SIZE]).unwrap();
    let inside = format!("{}:/large", image.display());
    extant(["cp", &place.arg("large"), &inside]).ok();
    std::fs::create_dir(&out).unwrap();
    let file = out.join("file");
    std::fs::write(&file, "the older one").unwrap();
    let is_begun = || std::fs::read_dir(&out).unwrap().count() > 1;
    let mut killed = 0;
    for _ in 0..50 {
        let mut copy = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(["cp", &inside])
            .arg(&file)
            .spawn()
            .unwrap();
        while !is_begun() && copy.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        copy.kill().unwrap();
        let was_killed = copy.wait().unwrap().signal().is_some();
        let is_done = std::fs::metadata(&file).unwrap().len() == SIZE as u64;
        assert!(was_killed || is_done);
        if is_done {
            // It was quicker.
            std::fs::write(&file, "the older one").unwrap();
            continue;
        }
        killed += 1;
        assert_eq!(std::fs::read(&file).unwrap(), b"the older one");
        for left in std::fs::read_dir(&out).unwrap() {
            let left = left.unwrap().path();
            if left != file {
                std::fs::remove_file(left).unwrap();
            }
        }
        if killed == 3 {
            break;
        }
    }
    assert_eq!(killed, 3, "it was always quicker");
    extant(["cp", &inside, &file.display().to_string()]).ok();
    assert!(std::fs::read(&file).unwrap() == vec![7; SIZE]);
    assert_clean(&image);
}
