//! `--undo` and `extant revert`: each byte comes back, whatever the command was and however it
//! ended.

use crate::support::{Place, copy_of, extant, extant_with, small_plan};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, e2fsck, mke2fs};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An image that counts quotas, and what is put into it.
fn image(place: &Place) -> String {
    let image = place.image(&small_plan(), &["-O", "quota,project"]);
    // mke2fs does not count what it fills the image with.
    e2fsck(Path::new(&image), &["-fy"]);
    let overlay = place.join("overlay");
    fs::create_dir_all(overlay.join("dir")).unwrap();
    fs::write(overlay.join("dir/large"), vec![5; 3 << 20]).unwrap();
    for i in 0..200 {
        fs::write(overlay.join(format!("dir/file{i}")), format!("{i}\n")).unwrap();
    }
    // What was deleted lies in free blocks.
    let large = overlay.join("dir/large").display().to_string();
    let junk = format!("{image}:/junk");
    extant(["cp", &large, &junk]).ok();
    extant(["rm", &junk]).ok();
    fs::write(
        place.join("contexts"),
        "/.* system_u:object_r:default_t:s0\n",
    )
    .unwrap();
    image
}

#[test]
fn each_byte_comes_back_after_every_command_that_changes_an_image() {
    let place = Place::new();
    let base = image(&place);
    let image = place.arg("changed.img");
    let overlay = place.arg("overlay");
    let contexts = place.arg("contexts");
    let script = place.arg("script");
    fs::write(
        &script,
        format!("put -a {overlay} /put\nrm -r /usr/lib\nlabel edited\n"),
    )
    .unwrap();
    let at = |path: &str| format!("{image}:{path}");
    let [root, etc, name, lib] = [at("/"), at("/etc"), at("/etc/hostname"), at("/usr/lib")];
    let [new, more, large] = [at("/new"), at("/more"), at("/usr/lib/libone.so")];
    let before = fs::read(&base).unwrap();
    let commands: &[&[&str]] = &[
        &["write", &name],
        &["write", "--append", &large],
        &["cp", "-a", &overlay, &new],
        &["cp", &contexts, &large],
        &["apply", &overlay, &image],
        &["mkdir", "-p", &new],
        &["mknod", &new, "c", "1", "3"],
        &["rm", "-rf", &lib],
        &["mv", &name, &new],
        &["mv", "--exchange", &etc, &lib],
        &["ln", &name, &new],
        &["ln", "-s", "anything", &new],
        &["chmod", "-R", "700", &root],
        &["chown", "-R", "7:8", &root],
        &["relabel", &image, "--contexts", &contexts],
        &["touch", &name, &new],
        &["truncate", "-s", "10", &large],
        &["fallocate", "-l", "8M", &new],
        &["fallocate", "-p", "-l", "64K", &large],
        &["xattr", "set", &name, "user.origin", "here"],
        &["acl", "set", "u:1000:rw-", &name],
        &["chattr", "+i", &name],
        &["quota", &image, "--user", "--id", "7", "--space-hard", "1G"],
        &["edit", &image, "-f", &script],
        &["tune", "--uuid", "random", &image],
        &["resize", &image, "24M"],
        &["trim", &image],
    ];
    for command in commands {
        let undo = place.arg("undo");
        let _ = fs::remove_file(&undo);
        copy_of(&base, &image);
        extant_with([*command, &["--undo", &undo]].concat(), |run| {
            run.write_stdin("a text\n");
        })
        .ok();
        let changed = fs::read(&image).unwrap();
        assert!(changed != before, "{command:?} changes nothing");
        assert_clean(Path::new(&image));
        let mode = fs::metadata(&undo).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{command:?}");
        extant(["revert", "-q", &undo, &image]).ok();
        assert!(
            fs::read(&image).unwrap() == before,
            "{command:?}: not every byte is back"
        );
        // Once more: nothing is left to do, and nothing wrong with that.
        extant(["revert", &undo, &image]).ok();
        // What it made can be had again, and taken back again.
        fs::write(&image, &changed).unwrap();
        let told = extant(["revert", "--json", &undo, &image]).ok().json();
        assert!(told["restored_blocks"].as_u64().unwrap() > 0, "{told}");
        assert!(
            fs::read(&image).unwrap() == before,
            "{command:?}: after another time"
        );
    }
    // What is in `more` is a name that nothing uses.
    assert!(extant(["ls", &more]).code != 0);
}

/// A journal that waits is part of what was there.
#[test]
fn a_journal_that_waits_comes_back_too() {
    let place = Place::new();
    let base = image(&place);
    let block = place.arg("block");
    fs::write(&block, vec![b'x'; 4096]).unwrap();
    debugfs_write(
        Path::new(&base),
        &["jo", &format!("jw -b 2000 {block}"), "jc"],
    );
    let before = fs::read(&base).unwrap();
    let undo = place.arg("undo");
    for command in [
        &["replay", &base][..],
        &["rm", &format!("{base}:/etc/hostname")],
        &["trim", &base],
    ] {
        let _ = fs::remove_file(&undo);
        extant([command, &["--undo", &undo]].concat()).ok();
        assert!(fs::read(&base).unwrap() != before);
        extant(["revert", &undo, &base]).ok();
        assert!(fs::read(&base).unwrap() == before, "{command:?}");
    }
}

#[test]
fn an_image_that_was_changed_since_or_is_another_one_is_left_alone() {
    let place = Place::new();
    let base = image(&place);
    let (undo, cut) = (place.arg("undo"), place.arg("cut"));
    let at = |path: &str| format!("{base}:{path}");
    extant(["rm", "-r", "--undo", &undo, &at("/etc")]).ok();
    let after = fs::read(&base).unwrap();
    // Without the end, as a command leaves it that is killed.
    let whole = fs::read(&undo).unwrap();
    fs::write(&cut, &whole[..whole.len() - 4096]).unwrap();
    let refused = |undo: &str, image: &str, why: &str| {
        let bytes = fs::read(image).unwrap();
        let run = extant(["revert", undo, image]).fails(1);
        assert!(run.stderr.contains(why), "{}", run.stderr);
        assert!(fs::read(image).unwrap() == bytes, "{why}: it is changed");
    };
    // A block that the command wrote, and that is written since.
    let differs = |(a, b): (&[u8], &[u8])| a != b;
    let twin = copy_of(&base, &place.arg("twin"));
    extant(["revert", &undo, &twin]).ok();
    let before = fs::read(&twin).unwrap();
    let pairs = || after.chunks(4096).zip(before.chunks(4096));
    let block = pairs().rposition(differs).unwrap();
    let mut since = after.clone();
    since[block * 4096 + 7] ^= 1;
    fs::write(&twin, &since).unwrap();
    refused(&undo, &twin, "was written since");
    // Somebody has opened it: seen also where there is no end.
    fs::write(&twin, &after).unwrap();
    extant(["touch", &format!("{twin}:/new")]).ok();
    refused(&undo, &twin, "Nothing is taken back");
    refused(&cut, &twin, "opened by another program since");
    let other = place.join("other.img");
    mke2fs(&other, 32 << 20, &["-t", "ext4"]);
    refused(&undo, other.to_str().unwrap(), "Nothing is taken back");
    refused(&cut, other.to_str().unwrap(), "Nothing is taken back");
    let longer = place.join("longer.img");
    mke2fs(&longer, 33 << 20, &["-t", "ext4"]);
    refused(&undo, longer.to_str().unwrap(), "for a device of");
    // A byte of the undo file, anywhere.
    for at in [3, 20, 5000, whole.len() / 2, whole.len() - 4096 + 41] {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        fs::write(place.join("bad"), bad).unwrap();
        let run = extant(["revert", &place.arg("bad"), &base]);
        let is_back = fs::read(&base).unwrap() == before;
        assert!(run.code == 1 || is_back, "byte {at}: {}", run.stderr);
        fs::write(&base, &after).unwrap();
    }
    extant(["revert", &cut, &base]).ok();
    assert!(fs::read(&base).unwrap() == before);
}

/// A file that takes all the room there is, to the last block.
fn filled(path: &Path) -> fs::File {
    let mut file = fs::File::create(path).unwrap();
    // What a large write leaves goes to smaller ones.
    for len in [64 << 10, 4 << 10, 512] {
        while file.write_all(&vec![1; len]).is_ok() {}
    }
    file.sync_all().unwrap();
    file
}

#[test]
fn what_cannot_be_kept_is_not_done() {
    require!(Root);
    let place = Place::new();
    let base = image(&place);
    let before = fs::read(&base).unwrap();
    let small = place.join("small.img");
    mke2fs(&small, 1 << 20, &["-t", "ext2", "-b", "1024"]);
    let mount = KernelMount::mount(&small, Mode::ReadWrite, "");
    let undo = mount.join("undo").display().to_string();
    let overlay = place.arg("overlay");
    let at = |path: &str| format!("{base}:{path}");
    let lib = at("/usr/lib/libone.so");
    for command in [
        &["chown", "-R", "7:8", &at("/")][..],
        &["cp", &format!("{overlay}/dir/large"), &lib],
        &["fallocate", "-z", "-l", "100K", &lib],
        &["trim", &base],
        &["resize", &base, "64M"],
    ] {
        // What is there takes more room than is left.
        let filler = mount.join("filler");
        drop(filled(&filler));
        let code = if command[0] == "resize" { 8 } else { 1 };
        let run = extant([command, &["--undo", &undo]].concat()).fails(code);
        assert!(run.stderr.contains("Nothing is changed"), "{}", run.stderr);
        assert!(fs::read(&base).unwrap() == before, "{command:?}");
        assert!(
            !Path::new(&undo).exists(),
            "{command:?}: an undo file of nothing"
        );
        fs::remove_file(&filler).unwrap();
    }
    // There is room for its beginning alone: the image is not longer afterwards.
    let filler = mount.join("filler");
    let file = filled(&filler);
    let len = file.metadata().unwrap().len();
    file.set_len(len - (10 << 10)).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let run = extant(["resize", "--undo", &undo, &base, "64M"]).fails(1);
    assert!(run.stderr.contains("Nothing is changed"), "{}", run.stderr);
    let told = &run.stderr;
    assert!(!told.contains("A PART OF THE CHANGES"), "{told}");
    assert!(fs::read(&base).unwrap() == before, "resize");
    assert!(!Path::new(&undo).exists());
    fs::remove_file(&filler).unwrap();
    // There is room for its beginning: what was changed until then is taken back.
    let large = at("/usr/large");
    extant(["cp", &format!("{overlay}/dir/large"), &large]).ok();
    let before = fs::read(&base).unwrap();
    let run = extant_with(["write", "--at", "0", "--undo", &undo, &large], |run| {
        run.write_stdin(vec![6; 3 << 20]);
    })
    .fails(1);
    assert!(run.stderr.contains("Nothing is changed"), "{}", run.stderr);
    assert!(fs::read(&base).unwrap() == before, "a part is changed");
    assert!(!Path::new(&undo).exists());
    // Without it, the same is done.
    let run = extant_with(["write", "--at", "0", &large], |run| {
        run.write_stdin(vec![6; 3 << 20]);
    });
    run.ok();
    assert!(fs::read(&base).unwrap() != before);
    mount.unmount();
}

/// No undo file, and not a single write: the time of the image stays too.
#[test]
fn what_asks_for_nothing_new_writes_nothing() {
    let place = Place::new();
    let image = place.arg("disk.img");
    let undo = place.arg("undo");
    let uuid = "12345678-9abc-def0-1234-56789abcdef0";
    let once = format!("--uuid={uuid}");
    let times = |image: &str| {
        let about = fs::metadata(image).unwrap();
        (about.modified().unwrap(), about.len())
    };
    for features in [
        "",
        "quota,project",
        "^metadata_csum",
        "^has_journal",
        "orphan_file",
    ] {
        let made = [
            "-t", "ext4", "-b", "1024", "-L", "same", "-U", uuid, "-m", "5",
        ];
        let _ = fs::remove_file(&image);
        mke2fs(
            Path::new(&image),
            24 << 20,
            &[&made[..], &["-O", features]].concat(),
        );
        // What mke2fs leaves to be counted is counted.
        e2fsck(Path::new(&image), &["-fy"]);
        let label = ["tune", &image, "--label=same"];
        let tuned: &[&[&str]] = &[
            &label,
            &["tune", &image, &once],
            &[
                "tune",
                &image,
                "--reserved-percent=5",
                "--errors=continue",
                "--max-mounts=-1",
            ],
            &[
                "tune",
                &image,
                "--features=extent,^bigalloc",
                "--inode-size=256",
            ],
            &["resize", &image],
            &["resize", &image, "24M"],
            &["repair", &image],
        ];
        // The first of each may round what mke2fs has chosen otherwise.
        for command in tuned {
            extant(*command).ok();
        }
        let judge = |command: &[&str]| {
            let (before, was) = (fs::read(&image).unwrap(), times(&image));
            for undoes in [false, true] {
                let end: &[&str] = if undoes { &["--undo", &undo] } else { &[] };
                extant([command, end].concat()).ok();
                let name = format!("{features:?} {command:?} {end:?}");
                assert!(fs::read(&image).unwrap() == before, "{name}: it is changed");
                assert_eq!(times(&image), was, "{name}: it is written to");
                assert!(
                    !Path::new(&undo).exists(),
                    "{name}: an undo file of nothing"
                );
            }
        };
        for command in tuned {
            judge(command);
        }
        extant(["resize", "--minimum", &image]).ok();
        judge(&["resize", "--minimum", &image]);
    }
}

#[test]
fn an_undo_file_is_of_one_image_and_of_a_command_that_changes_it() {
    let place = Place::new();
    let base = image(&place);
    let before = fs::read(&base).unwrap();
    let other = copy_of(&base, &place.arg("other.img"));
    let undo = place.arg("undo");
    let hostname = place.join("hostname");
    let at = |image: &str| format!("{image}:/etc/hostname");
    extant(["rm", "--undo", &undo, &at(&base), &at(&other)]).fails(1);
    assert!(fs::read(&other).unwrap() == before);
    extant(["revert", &undo, &base]).ok();
    assert!(fs::read(&base).unwrap() == before);
    // One that is there is never written over.
    let kept = fs::read(&undo).unwrap();
    extant(["rm", "--undo", &undo, &at(&base)]).fails(1);
    assert!(fs::read(&base).unwrap() == before);
    assert!(fs::read(&undo).unwrap() == kept);
    fs::remove_file(&undo).unwrap();
    for command in [
        &["ls", &base][..],
        &["info", &base],
        &["mkfs", &place.arg("new.img"), "--size", "8M"],
        &["convert", &base, &place.arg("new.img")],
        &["cp", &at(&base), &place.arg("hostname")],
        &["trim", "--dry-run", &base],
        &[
            "sync",
            "--dry-run",
            &place.arg("overlay"),
            &format!("{base}:/etc"),
        ],
    ] {
        extant([command, &["--undo", &undo]].concat()).fails(2);
        assert!(!Path::new(&undo).exists(), "{command:?}");
    }
    assert!(!hostname.exists(), "it is copied nevertheless");
    assert!(fs::read(&base).unwrap() == before);
    // A script that fails changes nothing, and leaves no undo file of nothing.
    let line = "rm /missing";
    extant(["edit", &base, "-e", line, "--undo", &undo]).fails(1);
    assert!(fs::read(&base).unwrap() == before);
    assert!(!Path::new(&undo).exists());
    extant(["edit", &base, "-e", "rm --undo x /etc/hostname"]).fails(2);
    assert!(fs::read(&base).unwrap() == before);
}

/// A trim does not write the superblock: one that is cut off is told from one after which the image
/// was used all the same.
#[test]
fn a_trim_that_is_cut_off_is_not_taken_back_over_what_is_newer() {
    let place = Place::new();
    let base = image(&place);
    let before = fs::read(&base).unwrap();
    let (undo, cut) = (place.arg("undo"), place.arg("cut"));
    extant(["trim", "--undo", &undo, &base]).ok();
    let whole = fs::read(&undo).unwrap();
    // Without the end and the sums, as a command leaves it that is killed.
    fs::write(&cut, &whole[..whole.len() - 4096]).unwrap();
    let trimmed = copy_of(&base, &place.arg("trimmed.img"));
    let large = place.arg("overlay/dir/large");
    extant(["cp", &large, &format!("{base}:/new")]).ok();
    let since = fs::read(&base).unwrap();
    for undo in [&undo, &cut] {
        let run = extant(["revert", undo, &base]).fails(1);
        assert!(
            run.stderr.contains("Nothing is taken back"),
            "{}",
            run.stderr
        );
        assert!(fs::read(&base).unwrap() == since, "what is newer is gone");
    }
    extant(["revert", &cut, &trimmed]).ok();
    assert!(fs::read(&trimmed).unwrap() == before);
}

/// The partition is that of the command, and positions count from its start.
#[test]
fn a_partition_is_taken_back_alone() {
    let place = Place::new();
    let base = image(&place);
    let disk = place.join("disk.img");
    let mut bytes = vec![0xa5; 1 << 20];
    bytes.extend(fs::read(&base).unwrap());
    bytes.extend([0x5a; 4096]);
    fs::write(&disk, &bytes).unwrap();
    let disk = disk.display().to_string();
    let undo = place.arg("undo");
    let offset = ["--offset", "1M"];
    let file = format!("{disk}:/etc/hostname");
    extant([&offset[..], &["rm", "--undo", &undo, &file]].concat()).ok();
    assert!(fs::read(&disk).unwrap() != bytes);
    extant(["revert", &undo, &disk]).fails(1);
    extant([&offset[..], &["revert", &undo, &disk]].concat()).ok();
    assert!(fs::read(&disk).unwrap() == bytes);
}

#[test]
fn a_command_that_is_killed_at_any_time_is_taken_back() {
    let place = Place::new();
    let base = image(&place);
    let image = place.arg("changed.img");
    let undo = place.arg("undo");
    let before = fs::read(&base).unwrap();
    let mut rng = Rng::new(seed_from_env("kills of commands with --undo"));
    let overlay = place.arg("overlay");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        command.args(["cp", "-a", "--undo", &undo, &overlay]);
        command.arg(format!("{image}:/usr/lib"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    copy_of(&base, &image);
    let begun = Instant::now();
    assert!(run().wait().unwrap().success());
    let whole = begun.elapsed();
    let mut changed = 0;
    for i in 0..30 {
        copy_of(&base, &image);
        let _ = fs::remove_file(&undo);
        let mut child = run();
        let wait = whole.as_micros() as u64 * 5 / 4;
        std::thread::sleep(Duration::from_micros(rng.below(wait.max(1))));
        child.kill().unwrap();
        child.wait().unwrap();
        let left = fs::read(&image).unwrap();
        changed += usize::from(left != before);
        if left == before {
            continue;
        }
        extant(["revert", &undo, &image]).ok();
        assert!(
            fs::read(&image).unwrap() == before,
            "kill {i}: not every byte is back"
        );
        if i % 10 == 0 {
            assert_eq!(e2fsck(Path::new(&image), &["-fn"]).code, 0);
        }
    }
    println!("{changed} of 30 kills left a changed image");
}

#[test]
fn a_tree_that_was_put_behind_a_file_system_is_taken_back() {
    let place = Place::new();
    let base = image(&place);
    let before = fs::read(&base).unwrap();
    let undo = place.arg("undo");
    let append = ["verity", "--dm-verity", "append", "--undo", &undo, &base];
    extant(append).ok();
    let sealed = fs::read(&base).unwrap();
    assert!(sealed.len() > before.len() && sealed.starts_with(&before));
    extant(["revert", &undo, &base]).ok();
    let after = fs::read(&base).unwrap();
    let (kept, behind) = after.split_at(before.len());
    assert!(kept == before);
    assert!(behind.iter().all(|byte| *byte == 0));
}
