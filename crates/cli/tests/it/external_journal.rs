//! File systems whose journal is on a device of its own.

use crate::support::{Place, extant};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::mke2fs;
use extant_testkit::require;
use extant_testkit::tree::{Compare, Tree};
use std::fs;
use std::path::Path;

/// Makes `fs.img` with its journal in `journal.img`, and has Linux leave it with much that only the
/// journal knows. What is in it once Linux has recovered it.
fn left_by_linux(place: &Place, block_size: &str) -> Tree {
    let (image, journal) = (place.join("fs.img"), place.join("journal.img"));
    mke2fs(&journal, 8 << 20, &["-b", block_size, "-O", "journal_dev"]);
    let journal_loop = LoopDevice::attach(&journal, Access::ReadWrite).unwrap();
    let device = format!("device={}", journal_loop.path().display());
    mke2fs(
        &image,
        32 << 20,
        &["-t", "ext4", "-b", block_size, "-J", &device],
    );
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
    for dir in ["a", "b", "c"] {
        let dir = mount.join(dir);
        fs::create_dir(&dir).unwrap();
        for number in 0..50 {
            let content = vec![number; 700 * usize::from(number)];
            fs::write(dir.join(format!("file{number}")), content).unwrap();
        }
    }
    mount.sync();
    fs::remove_dir_all(mount.join("b")).unwrap();
    mount.shutdown(Shutdown::FlushLog);
    // Linux recovers copies.
    for name in ["fs", "journal"] {
        let copy = place.join(&format!("{name}.copy"));
        fs::copy(place.join(&format!("{name}.img")), copy).unwrap();
    }
    drop(journal_loop);
    let copy = LoopDevice::attach(&place.join("journal.copy"), Access::ReadWrite).unwrap();
    let options = format!("journal_path={}", copy.path().display());
    let mount = KernelMount::mount(&place.join("fs.copy"), Mode::ReadOnly, &options);
    let tree = Tree::snapshot(mount.path());
    mount.unmount();
    tree
}

fn copied(image: &str, journal: &str, to: &Path) -> Tree {
    fs::create_dir(to).unwrap();
    let from = format!("{image}:/.");
    let to_text = to.display().to_string();
    extant(["cp", "-a", "--journal", journal, &from, &to_text]).ok();
    Tree::snapshot(to)
}

#[test]
fn what_waits_in_a_journal_elsewhere_is_seen() {
    require!(Root, LoopDevices, KernelExt4);
    for block_size in ["1024", "2048", "4096"] {
        let place = Place::in_memory();
        let recovered = left_by_linux(&place, block_size);
        let (image, journal) = (place.arg("fs.img"), place.arg("journal.img"));
        let before = [fs::read(&image).unwrap(), fs::read(&journal).unwrap()];
        let found = copied(&image, &journal, &place.join("copy"));
        let compare = Compare {
            ignore: vec![b"lost+found".to_vec()],
            ..Compare::default()
        };
        recovered.assert_same(&found, &compare);
        assert!(found.get("b").is_none() && found.get("c/file49").is_some());

        // The checker takes it as well, and neither has written anything.
        let check = extant(["check", "--journal", &journal, &image]);
        assert_eq!(check.code, 0, "{}{}", check.text(), check.stderr);
        assert!(
            check.text().contains("replayed in memory"),
            "{}",
            check.text()
        );
        assert!(before == [fs::read(&image).unwrap(), fs::read(&journal).unwrap()]);

        // Without it nothing is guessed.
        let run = extant(["ls", &image]).fails(1);
        assert!(run.stderr.contains("external journal"), "{}", run.stderr);
        let run = extant(["check", &image]);
        assert_eq!(run.code, 8);
        assert!(run.stderr.contains("--journal"), "{}", run.stderr);
    }
}

#[test]
fn what_is_not_its_journal_is_refused() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::in_memory();
    left_by_linux(&place, "4096");
    let (image, journal) = (place.arg("fs.img"), place.arg("journal.img"));
    let other = place.join("other.img");
    mke2fs(&other, 8 << 20, &["-b", "4096", "-O", "journal_dev"]);
    let empty = place.join("empty.img");
    fs::write(&empty, []).unwrap();
    let zeros = place.join("zeros.img");
    fs::write(&zeros, vec![0; 1 << 20]).unwrap();
    let damaged = place.join("damaged.img");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[4096] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    let short = place.join("short.img");
    fs::write(&short, &fs::read(&journal).unwrap()[..1 << 20]).unwrap();
    for (wrong, says) in [
        (other.as_path(), "that of the file system is"),
        (&empty, "on the device that was given for it: superblock"),
        (&zeros, "magic"),
        (Path::new(&image), "an external journal, not a file system"),
        (&damaged, "magic"),
        (&short, "blocks"),
        (&place.join("none"), "No such file"),
    ] {
        let wrong = wrong.display().to_string();
        let run = extant(["ls", "--journal", &wrong, &image]).fails(1);
        assert!(run.stderr.contains(says), "{wrong}: {}", run.stderr);
        let run = extant(["check", "--journal", &wrong, &image]);
        assert_eq!(run.code, 8, "{wrong}: {}{}", run.text(), run.stderr);
        assert!(run.stderr.contains(says), "{wrong}: {}", run.stderr);
    }
    let at = format!("{image}:/dir");
    extant(["mkdir", "--journal", &journal, &at]).fails(2);
    extant(["tune", "--journal", &journal, "--label", "x", &image]).fails(16);
    extant(["repair", "--journal", &journal, &image]).fails(16);
}

#[test]
fn a_mount_for_reading_sees_it_as_well() {
    require!(Root, LoopDevices, KernelExt4, Fuse);
    let place = Place::in_memory();
    let recovered = left_by_linux(&place, "4096");
    let (image, journal, point) = (
        place.arg("fs.img"),
        place.arg("journal.img"),
        place.arg("dir"),
    );
    fs::create_dir(&point).unwrap();
    extant(["mount", "--journal", &journal, &image, &point]).ok();
    let found = Tree::snapshot(Path::new(&point));
    let refused = fs::create_dir(place.join("dir/new")).unwrap_err();
    extant(["umount", &point]).ok();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    recovered.assert_same(&found, &Compare::default());
}
