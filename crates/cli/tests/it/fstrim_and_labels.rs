//! What programs ask of a mounted file system as a whole: `fstrim`, and labels.

use crate::mount_ends::loops_over;
use crate::mounting::{Mount, wait_until};
use crate::support::extant;
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

const MIB: u64 = 1 << 20;

fn mount(image: &Path, point: &Path, options: &str) {
    let both = [image, point].map(|path| path.display().to_string());
    extant(["mount", "-o", options, &both[0], &both[1]]).ok();
}

fn umount(point: &Path) {
    extant(["umount", &point.display().to_string()]).ok();
}

/// Waits until the image is complete: other tests may have a copy of the mount in a namespace of
/// their own.
fn unmount_linux(point: &Path, image: &Path) {
    rustix::mount::unmount(point, UnmountFlags::NOFOLLOW).unwrap();
    wait_until("Linux lets go of it", || loops_over(image).is_empty());
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

fn fstrim(args: &[&str]) -> Result<u64, String> {
    let run = run("fstrim", &[args, &["--verbose"]].concat());
    if run.status.success() {
        let said = String::from_utf8(run.stdout).unwrap();
        let bytes = said
            .split('(')
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        Ok(bytes.unwrap().parse().unwrap())
    } else {
        Err(String::from_utf8(run.stderr).unwrap())
    }
}

fn free_bytes(point: &Path) -> u64 {
    let found = rustix::fs::statvfs(point).unwrap();
    found.f_bfree * found.f_frsize
}

/// Without a hole.
fn fill(image: &Path, size: u64) {
    fs::write(image, vec![0xa5; usize::try_from(size).unwrap()]).unwrap();
    let image = image.display().to_string();
    let made = run(
        "mke2fs",
        &["-F", "-q", "-t", "ext4", "-E", "nodiscard", &image],
    );
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn fstrim_makes_holes_of_all_that_is_free_as_under_linux() {
    require!(Fuse);
    require!(LoopDevices);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    let at = point.display().to_string();
    fill(&image, 48 * MIB);
    let full = 48 * MIB / 512;
    mount(&image, &point, "rw");
    let content = (0..5_u32 << 20)
        .map(|n| (n >> 3) as u8 | 1)
        .collect::<Vec<u8>>();
    fs::write(dir.at("kept"), &content).unwrap();
    fs::write(dir.at("gone"), &content).unwrap();
    File::open(&point).unwrap().sync_all().unwrap();
    fs::remove_file(dir.at("gone")).unwrap();
    File::open(&point).unwrap().sync_all().unwrap();
    umount(&point);
    let copy = dir.place.join("copy");
    fs::copy(&image, &copy).unwrap();
    // A fresh mount has nothing kept ready for files.
    mount(&image, &point, "rw");
    let told = fstrim(&[&at]).unwrap();
    assert_eq!(told, free_bytes(&point));
    let past = (64 * MIB).to_string();
    let (inside, length) = ((8 * MIB).to_string(), (16 * MIB).to_string());
    let part = fstrim(&["--offset", &inside, "--length", &length, &at]).unwrap();
    assert!(part > 0 && part <= 16 * MIB, "{part}");
    let refused = fstrim(&["--offset", &past, "--length", "4096", &at]).unwrap_err();
    assert!(refused.contains("Invalid argument"), "{refused}");
    assert!(fs::read(dir.at("kept")).unwrap() == content);
    umount(&point);
    assert_clean(&image);
    let left = fs::metadata(&image).unwrap().blocks();
    assert!(full - left >= told / 512 * 9 / 10, "{full} {left} {told}");
    let linux = |args: &[&str]| {
        let run = run("mount", args);
        assert!(run.status.success(), "{run:?}");
    };
    linux(&["-o", "loop", &copy.display().to_string(), &at]);
    let by_linux = fstrim(&[&at]);
    let refused_by_linux = fstrim(&["--offset", &past, "--length", "4096", &at]);
    unmount_linux(&point, &copy);
    assert_eq!(by_linux, Ok(told));
    assert!(refused_by_linux.unwrap_err().contains("Invalid argument"));
    mount(&image, &point, "ro");
    assert!(fs::read(dir.at("kept")).unwrap() == content);
    let refused = fstrim(&[&at]).unwrap_err();
    assert!(refused.contains("Read-only file system"), "{refused}");
    umount(&point);
}

/// Gets or sets the label of what is mounted, as programs do.
fn label(point: &Path, new: Option<&str>) -> Result<String, String> {
    const SCRIPT: &str = r#"
        open(my $dir, "<", $ARGV[0]) or die "open: $!";
        my $label = "\0" x 256;
        if (@ARGV > 1) {
            substr($label, 0, length $ARGV[1]) = $ARGV[1];
            ioctl($dir, 0x41009432, $label) or die "$!\n";
        } else {
            ioctl($dir, 0x81009431, $label) or die "$!\n";
        }
        print $label =~ /^([^\0]*)/;
    "#;
    let mut script = Command::new("perl");
    script.args(["-e", SCRIPT]).arg(point).args(new);
    let run = script.output().unwrap();
    if run.status.success() {
        Ok(String::from_utf8(run.stdout).unwrap())
    } else {
        Err(String::from_utf8(run.stderr).unwrap())
    }
}

#[test]
fn the_label_of_a_mount_is_read_and_changed_as_under_linux() {
    require!(Fuse);
    require!(LoopDevices);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    let at = point.display().to_string();
    // Several groups, so that there are backups.
    let options = ["-t", "ext4", "-b", "1024", "-L", "before"];
    mke2fs(&image, 64 * MIB, &options);
    let copy = dir.place.join("copy");
    fs::copy(&image, &copy).unwrap();
    let mut told = Vec::new();
    for by_linux in [false, true] {
        let file = if by_linux { &copy } else { &image };
        if by_linux {
            let args = ["-o", "loop", &file.display().to_string(), &at];
            assert!(run("mount", &args).status.success());
        } else {
            mount(file, &point, "rw")
        }
        let answers = [
            label(&point, None),
            label(&point, Some("seventeen letters")),
            label(&point, Some("sixteen letters!")),
            label(&point, None),
            label(&point, Some("")),
            label(&point, None),
            label(&point, Some("after")),
            label(&point, None),
        ];
        if by_linux {
            unmount_linux(&point, file)
        } else {
            umount(&point)
        }
        assert_clean(file);
        assert_eq!(
            dumpe2fs_header(file).field("Filesystem volume name"),
            "after"
        );
        let of_backup = ["-h", "-o", "superblock=8193", "-o", "blocksize=1024"];
        let header = run(
            "dumpe2fs",
            &[&of_backup[..], &[&file.display().to_string()]].concat(),
        );
        let header = String::from_utf8(header.stdout).unwrap();
        assert!(header.contains("volume name:   after\n"), "{header}");
        told.push(answers);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0][0], Ok("before".to_owned()));
    assert_eq!(told[0][1], Err("Invalid argument\n".to_owned()));
    mount(&image, &point, "ro");
    assert_eq!(label(&point, None), Ok("after".to_owned()));
    assert_eq!(
        label(&point, Some("other")),
        Err("Read-only file system\n".to_owned())
    );
    umount(&point);
}

#[test]
fn only_root_and_whoever_mounted_may_trim_and_label() {
    require!(Fuse);
    require!(Root);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    mount(&image, &point, "rw,allow_other");
    let as_somebody = |args: &[&str]| {
        let run = Command::new("setpriv")
            .args(["--reuid", "12345", "--regid", "12345", "--clear-groups"])
            .args(args)
            .arg(&point)
            .output()
            .unwrap();
        String::from_utf8_lossy(&run.stderr).into_owned()
    };
    fs::set_permissions(
        dir.place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let told = as_somebody(&["fstrim"]);
    let refused = told.starts_with("fstrim:") && told.contains("Operation not permitted");
    assert!(refused, "{told}");
    umount(&point);
    assert_clean(&image);
}

#[test]
fn a_change_of_flags_that_changes_none_sets_the_time_of_change_as_under_linux() {
    require!(Fuse);
    require!(LoopDevices);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    let at = point.display().to_string();
    let file = dir.at("file");
    let mut told = Vec::new();
    for by_linux in [false, true] {
        if by_linux {
            let args = ["-o", "loop", &image.display().to_string(), &at];
            assert!(run("mount", &args).status.success());
        } else {
            mount(&image, &point, "rw")
        }
        fs::write(&file, "text").unwrap();
        let changes = ["+A", "+A", "-s", "+Ai", "+Ai", "-i", "=A", "-A"].map(|change| {
            let changed = || {
                let found = fs::metadata(&file).unwrap();
                (found.ctime(), found.ctime_nsec())
            };
            let before = changed();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let run = run("chattr", &[change, &file.display().to_string()]);
            assert!(run.status.success(), "{run:?}");
            changed() != before
        });
        told.push(changes);
        fs::remove_file(&file).unwrap();
        if by_linux {
            unmount_linux(&point, &image)
        } else {
            umount(&point)
        }
        assert_clean(&image);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], [true; 8]);
    // And in an image.
    let inside = format!("{}:/", image.display());
    let changed = || extant(["stat", "--json", &inside]).ok().lines()[0]["ctime"].clone();
    extant(["chattr", "+A", &inside]).ok();
    let before = changed();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    extant(["chattr", "+A", &inside]).ok();
    assert_ne!(changed(), before);
    assert_clean(&image);
}
