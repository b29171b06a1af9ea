//! Programs of others that build images, with ours in front of the real programs in their path.

use super::Links;
use crate::support::small_plan;
use extant_testkit::oracle::{assert_clean, dumpe2fs_header};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::path::Path;

/// The search path with our links before all others.
fn path(links: &Links) -> String {
    let others = std::env::var("PATH").unwrap_or_default();
    format!("{}:{others}:/usr/sbin:/sbin", links.arg("bin"))
}

/// Expects that it was ours that made an image.
#[track_caller]
fn assert_ours(image: &str) {
    let made = crate::support::extant(["mkfs", image, "--size", "1M", "--json"]);
    // What it has made is replaced without a question, and nothing else is.
    assert_eq!(made.code, 0, "{}", made.stderr);
}

#[test]
fn genimage_builds_a_disk() {
    let links = Links::new();
    let root = links.place.planted("root", &small_plan());
    let config = links.arg("genimage.cfg");
    let text = "image root.ext4 {\n  ext4 {\n    label = \"rootfs\"\n    use-mke2fs = true\n  }\n  \
                mountpoint = \"/\"\n  size = 64M\n}\nimage disk.img {\n  hdimage {\n    \
                partition-table-type = \"gpt\"\n  }\n  partition root {\n    \
                image = \"root.ext4\"\n  }\n}\n";
    fs::write(&config, text).unwrap();
    for dir in ["in", "out"] {
        fs::create_dir(links.place.join(dir)).unwrap();
    }
    let done = tool("genimage")
        .env("PATH", path(&links))
        .args(["--config", &config, "--rootpath", &root, "--inputpath"])
        .args([links.arg("in"), "--outputpath".into(), links.arg("out")])
        .args(["--tmppath".into(), links.arg("tmp")])
        .run();
    assert_eq!(done.code, 0, "{done}");
    let (image, disk) = (links.arg("out/root.ext4"), links.arg("out/disk.img"));
    assert_clean(Path::new(&image));
    let header = dumpe2fs_header(Path::new(&image));
    assert_eq!(header.field("Filesystem volume name"), "rootfs");
    assert!(!header.has_feature("huge_file"), "{header:?}");
    let listed = crate::support::extant(["ls", "-R", &format!("{disk}#1")])
        .ok()
        .text();
    assert!(listed.contains("libone.so"), "{listed}");
    assert_ours(&image);
}

#[test]
fn systemd_repart_fills_a_partition() {
    require!(Root, LoopDevices, KernelExt4);
    let links = Links::new();
    let root = links.place.planted("root", &small_plan());
    let definitions = links.arg("definitions");
    fs::create_dir(&definitions).unwrap();
    let text = "[Partition]\nType=linux-generic\nLabel=data\nFormat=ext4\nSizeMinBytes=64M\n\
                SizeMaxBytes=64M\nCopyFiles=/usr/lib:/lib\n";
    fs::write(format!("{definitions}/10-data.conf"), text).unwrap();
    let disk = links.arg("disk.img");
    let done = tool("systemd-repart")
        .env("PATH", path(&links))
        .env("SYSTEMD_LOG_LEVEL", "info")
        .args(["--empty=create", "--size=128M", "--dry-run=no"])
        .args(["--seed=0f5b1c2d-7c1f-4b52-a6e4-d8e9f6d0a3f5"])
        .args([
            format!("--definitions={definitions}"),
            format!("--root={root}"),
        ])
        .arg(&disk)
        .run();
    assert_eq!(done.code, 0, "{done}");
    let part = links.arg("part.img");
    let (from, to) = (format!("if={disk}"), format!("of={part}"));
    tool("dd")
        .args([&*from, &to, "bs=1M", "skip=1", "count=64"])
        .ok();
    assert_clean(Path::new(&part));
    let header = dumpe2fs_header(Path::new(&part));
    assert_eq!(header.field("Filesystem volume name"), "data");
    let listed = crate::support::extant(["ls", &format!("{disk}#1:/lib")])
        .ok()
        .text();
    assert!(listed.contains("libone.so"), "{listed}");
}

#[test]
fn buildroot_and_yocto_have_their_command_lines() {
    let links = Links::new();
    let root = links.place.planted("root", &small_plan());
    let image = links.arg("rootfs.ext4");
    // As fs/ext2/ext2.mk of buildroot has it.
    links
        .ours("mkfs.ext4")
        .args([
            "-d", &root, "-r", "1", "-N", "0", "-m", "5", "-L", "rootfs", "-I", "256",
        ])
        .args(["-O", "^64bit", &image, "60M"])
        .ok();
    assert_clean(Path::new(&image));
    // As classes/image_types.bbclass of Yocto has it: a file of this length, and a check that packs
    // directories and may mend.
    fs::remove_file(&image).unwrap();
    fs::File::create(&image).unwrap().set_len(70 << 20).unwrap();
    links
        .ours("mkfs.ext4")
        .args(["-F", "-i", "4096", &image, "-d", &root])
        .ok();
    let checked = links.ours("fsck.ext4").args(["-pvfD", &image]).run();
    assert_eq!(checked.code, 0, "{checked}");
    assert_clean(Path::new(&image));
    assert_ours(&image);
}
