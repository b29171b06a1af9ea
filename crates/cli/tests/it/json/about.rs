//! What tells about an image as a whole: its superblock, its space, its blocks.

use super::held::Held;
use super::{at, inside, looking};
use crate::quotas::counted;
use crate::support::{Place, extant};
use extant_testkit::oracle::debugfs_write;
use extant_testkit::tool::tool;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn run(held: &mut Held) {
    let place = Place::in_memory();
    let image = looking::image(&place);
    info(held, &place, &image);
    disk(held, &place);
    other(held, &place);
    for by in ["owner", "group", "type", "project"] {
        held.run(0, "df", &[&image, &"--by", &by]);
    }
    held.run(0, "df", &[&image]);
    held.run(0, "map", &[&image]);
    held.run(0, "map", &[&image, &"--used"]);
    for name in [&b"text"[..], b"b\xffd", b"hole"] {
        held.run(
            0,
            "map",
            &[&inside(&image, &[&b"/dir/"[..], name].concat())],
        );
    }
    let odd = held.run(0, "map", &[&inside(&image, b"/dir/b\xffd")]);
    let number = |field: &serde_json::Value| field.as_u64().expect("a number");
    let place_of_it = number(&odd[0]["extents"][0]["device_offset"]);
    let block = (place_of_it / number(&odd[0]["block_size"])).to_string();
    let of_blocks = held.run(0, "map", &[&image, &"--block", &block, &"--block", &"1"]);
    assert_eq!(of_blocks[0]["path_hex"], "2f6469722f62ff64");
    mounted(held);
    let users = Place::in_memory();
    let of_users = counted(&users, "quota,project");
    held.run(0, "quota", &[&of_users]);
    held.run(0, "quota", &[&of_users, &"--user", &"--id", &"7"]);
    // The map of a file that cannot be one.
    debugfs_write(Path::new(&image), &["sif /dir/text block[0] 0x1234"]);
    held.run(1, "map", &[&image]);
}

/// An image that is mounted, with a name that is no UTF-8 on such a directory.
fn mounted(held: &mut Held) {
    let mount = crate::mounting::Mount::new();
    let image = at(&mount.place, b"b\xffd");
    fs::rename(mount.image(), &image).expect("another name");
    let odd = at(&mount.place, b"d\xff");
    let _detached = crate::mount_manners::MountedOn(odd.clone().into());
    fs::create_dir(&odd).expect("a directory");
    extant([OsStr::new("mount"), &image, &odd]).ok();
    let all = held.run(0, "mount", &[]);
    extant([OsStr::new("umount"), &odd]).ok();
    let is_it = |line: &serde_json::Value| {
        let hex = line["directory_hex"].as_str();
        hex.is_some_and(|hex| hex.ends_with("64ff"))
    };
    assert!(all.iter().any(is_it), "{all:?}");
}

/// The qcow2 image of a disk.
fn as_qcow2(place: &Place, disk: &OsStr) -> OsString {
    let target = at(place, b"container.qcow2");
    let all = [OsStr::new("convert"), OsStr::new("--force"), disk, &target];
    extant(all).ok();
    target
}

fn info(held: &mut Held, place: &Place, image: &OsStr) {
    let odd = OsStr::from_bytes(b"b\xffd");
    for option in ["-L", "-M"] {
        tool("tune2fs").arg(option).arg(odd).arg(image).ok();
    }
    let mut requests = vec!["ssv error_count 2".to_owned()];
    for which in ["first", "last"] {
        for (field, value) in [
            ("time", "20261126120000"),
            ("ino", "12"),
            ("block", "34"),
            ("func", "ext4_lookup"),
            ("line", "1855"),
        ] {
            requests.push(format!("ssv {which}_error_{field} {value}"));
        }
    }
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    debugfs_write(Path::new(image), &requests);
    held.run(0, "info", &[&image, &"--groups", &"--free"]);
    held.run(0, "info", &[&as_qcow2(place, image)]);
    let cut = at(place, b"cut.img");
    fs::copy(image, &cut).expect("a copy");
    let file = File::options().write(true).open(&cut).expect("a file");
    file.set_len(40 << 20).expect("it is cut");
    held.run(0, "info", &[&cut]);
}

fn disk(held: &mut Held, place: &Place) {
    let disk = at(place, b"disk.img");
    File::create(&disk)
        .expect("a file")
        .set_len(64 << 20)
        .expect("a disk");
    let parts = ["-n", "1:2048:10239", "-c", "1:boot", "-n", "2:10240:110239"];
    tool("sgdisk").args(parts).arg(&disk).ok();
    let name = disk.to_str().expect("a name");
    extant(["mkfs", "-q", "--partition", "2", name]).ok();
    let label = [&b"tune"[..], b"--partition", b"2", b"--label", b"b\xffd"];
    let args = label.iter().map(|word| OsStr::from_bytes(word));
    extant(args.chain([disk.as_os_str()])).ok();
    held.run(0, "info", &[&disk]);
    held.run(0, "info", &[&as_qcow2(place, &disk)]);
}

fn other(held: &mut Held, place: &Place) {
    let luks = at(place, b"luks.img");
    let mut bytes = vec![0; 1 << 20];
    bytes[..8].copy_from_slice(b"LUKS\xba\xbe\x00\x02");
    fs::write(&luks, bytes).expect("a file");
    held.run(0, "info", &[&luks]);
    held.run(0, "info", &[&as_qcow2(place, &luks)]);
}
