//! What checks images, repairs, adjusts and takes back.

use super::held::Held;
use super::{at, inside};
use crate::support::{Place, extant, small_plan};
use extant_testkit::oracle::{debugfs, debugfs_write};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) fn run(held: &mut Held) {
    damage(held);
    undone(held);
    replay(held);
    sizes(held);
}

/// Damage of a group, of an inode, and of a block of a directory.
fn damage(held: &mut Held) {
    let place = Place::in_memory();
    let made = place.image(&small_plan(), &["-b", "1024"]);
    held.run(0, "check", &[&made]);
    debugfs_write(Path::new(&made), &["sif /etc links_count 9", "setb 30000"]);
    let block = debugfs(Path::new(&made), "bmap /usr/lib 0");
    let block: u64 = block.trim().parse().expect("a block");
    let file = File::options().write(true).open(&made).expect("a file");
    file.write_all_at(&[0xa5; 40], block * 1024 + 100)
        .expect("a write");
    drop(file);
    let image = at(&place, b"b\xffd.img");
    fs::rename(made, &image).expect("another name");
    let found = held.run(4, "check", &[&image]);
    assert!(found.len() > 3, "{found:?}");
    held.run(4, "check", &[&"-q", &image]);
    held.run(4, "repair", &[&"-n", &"--verbose", &image]);
    let mended = held.run(1, "repair", &[&image]);
    let summary = mended.last().expect("a summary");
    assert_eq!(summary["written"], true);
    let undo = at(&place, b"b\xffd.img.undo");
    let back = held.run(0, "repair", &[&"--revert", &undo, &image]);
    assert!(back[0]["restored_blocks"].as_u64() > Some(0));
    held.run(1, "repair", &[&"--no-undo", &image]);
    held.run(0, "repair", &[&image]);
}

fn undone(held: &mut Held) {
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &[]);
    let undo = place.arg("undo");
    extant(["rm", "--undo", &undo, &format!("{image}:/etc/hostname")]).ok();
    held.run(0, "revert", &[&undo, &image]);
}

fn replay(held: &mut Held) {
    let place = Place::in_memory();
    let made = place.image(&small_plan(), &["-b", "4096"]);
    let block = place.arg("block");
    fs::write(&block, vec![b'x'; 4096]).expect("a file");
    let write = format!("jw -b 8000 {block}");
    debugfs_write(Path::new(&made), &["jo", &write, "jc"]);
    let image = at(&place, b"b\xffd.img");
    fs::rename(made, &image).expect("another name");
    let done = held.run(0, "replay", &[&image]);
    assert_eq!(done[0]["replayed"], true);
    let done = held.run(1, "replay", &[&at(&place, b"none.img"), &image]);
    assert_eq!(done[0]["replayed"], false);
}

fn sizes(held: &mut Held) {
    let place = Place::in_memory();
    let made = place.image(&small_plan(), &[]);
    let image = at(&place, b"b\xffd.img");
    fs::rename(made, &image).expect("another name");
    held.run(0, "trim", &[&"-n", &image]);
    let done = held.run(0, "trim", &[&image]);
    assert!(done[0]["allocated"].as_u64() > Some(0));
    held.run(0, "resize", &[&"-P", &image]);
    held.run(0, "resize", &[&image, &"48M"]);
    held.run(0, "resize", &[&"--minimum", &image]);
    held.run(0, "ls", &[&inside(&image, b"/etc")]);
}
