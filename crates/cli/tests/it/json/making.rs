//! What makes images, hash trees for them, and copies in other formats.

use super::held::Held;
use super::{at, inside};
use crate::support::Place;
use std::ffi::OsStr;
use std::fs;

pub(super) fn run(held: &mut Held) {
    let place = Place::in_memory();
    let source = at(&place, b"source");
    fs::create_dir(&source).expect("a directory");
    fs::write(place.join("source/sealed"), vec![7; 10_000]).expect("a file");
    let image = at(&place, b"b\xffd.img");
    let made = held.run(
        0,
        "mkfs",
        &[
            &image,
            &"--from",
            &source,
            &"--dm-verity",
            &"append",
            &"--fs-verity",
            &"/sealed",
        ],
    );
    assert_eq!(made[0]["fs_verity_files"], 1);
    let sealed = held.run(0, "stat", &[&inside(&image, b"/sealed")]);
    assert!(sealed[0]["fs_verity"].is_string());
    held.run(0, "check", &[&"--verity", &image]);
    let tree = held.run(0, "verity", &[&image, &"--dm-verity", &at(&place, b"tree")]);
    assert_eq!(
        tree[0]["dm_verity"]["root_hash"],
        made[0]["dm_verity"]["root_hash"]
    );
    fs::write(at(&place, b"source/b\xffd"), "another").expect("a file");
    let plain = at(&place, b"plain.img");
    let made = held.run(0, "mkfs", &[&plain, &"--from", &source, &"--size", &"8M"]);
    assert!(made[0]["dm_verity"].is_null());
    let made = held.run(0, "verity", &[&plain, &"--fs-verity", &"*"]);
    assert_eq!(made[0]["fs_verity_files"], 2);
    for format in ["raw", "qcow2", "vhd", "vhd-fixed", "simg", "vmdk", "caibx"] {
        // A name that is no UTF-8 cannot stand in the descriptor of a VMDK.
        let name = if format == "vmdk" {
            &b"vmdk"[..]
        } else {
            b"b\xffd.copy"
        };
        let (target, store) = (at(&place, name), at(&place, b"store"));
        let mut args: Vec<&dyn AsRef<OsStr>> =
            vec![&"--force", &"--format", &format, &image, &target];
        if format == "caibx" {
            args.extend::<[&dyn AsRef<OsStr>; 2]>([&"--store", &store]);
        }
        let done = held.run(0, "convert", &args);
        assert_eq!(done[0]["format"], format);
    }
}
