//! Files that take the place of others, in images and outside: whole, or not at all; and what does
//! not fit into an image.

use crate::support::{Place, change, copy_of, extant, extant_with, seen_by_linux, small_plan};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use rustix::fs::OFlags;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What `stat` tells of a file in an image.
fn stat(image: &str, path: &str) -> serde_json::Value {
    extant(["stat", "--json", &format!("{image}:{path}")])
        .ok()
        .json()
}

fn content(image: &str, path: &str) -> Vec<u8> {
    extant(["cat", &format!("{image}:{path}")]).ok().stdout
}

/// Puts text into a file of an image, by `write`.
fn write(image: &str, path: &str, text: &str) -> crate::support::Run {
    extant_with(["write", &format!("{image}:{path}")], |command| {
        command.write_stdin(text);
    })
}

#[test]
fn a_file_of_an_image_keeps_all_but_its_content() {
    require!(KernelExt4);
    let place = Place::new();
    let image = place.image(&small_plan(), &["-O", "project"]);
    let at = |path: &str| format!("{image}:{path}");
    let one = at("/usr/lib/libtwo.so.6");
    change(&image, ["chown", "7:8", &one]).ok();
    change(&image, ["chmod", "6751", &one]).ok();
    change(&image, ["acl", "set", "u:9:rw,g:10:x", &one]).ok();
    change(&image, ["xattr", "set", &one, "user.kind", "library"]).ok();
    change(&image, ["xattr", "set", &one, "security.label", "x"]).ok();
    change(&image, ["chattr", "+Ad", &one]).ok();
    change(&image, ["chattr", "-p", "17", &one]).ok();
    // The directory would hand down other things.
    let dir = at("/usr/lib");
    change(&image, ["acl", "set", "-d", "u:77:rwx", &dir]).ok();
    let kept = |image: &str| {
        let mut all = stat(image, "/usr/lib/libtwo.so.6");
        for other in ["size", "blocks", "inode", "generation", "content"] {
            all.as_object_mut().unwrap().remove(other);
        }
        let is_time = |name: &str| name.ends_with("time");
        all.as_object_mut()
            .unwrap()
            .retain(|name, _| !is_time(name));
        all
    };
    let before = kept(&image);
    assert_eq!(before["mode"], "6771");
    fs::write(place.join("new"), "new content\n").unwrap();
    change(&image, ["cp", &place.arg("new"), &one]).ok();
    assert_eq!(kept(&image), before);
    assert_eq!(content(&image, "/usr/lib/libtwo.so.6"), b"new content\n");
    write(&image, "/usr/lib/libtwo.so.6", "newer\n").ok();
    assert_clean(Path::new(&image));
    assert_eq!(kept(&image), before);
    assert_eq!(content(&image, "/usr/lib/libtwo.so.6"), b"newer\n");
    let linux = seen_by_linux(&image);
    let file = &linux.entries[&b"usr/lib/libtwo.so.6"[..]];
    assert_eq!((file.uid, file.gid, file.mode), (7, 8, 0o6771));
    // What made a program powerful is not for another content.
    let program = at("/usr/lib/libone.so");
    let value = "0x0100000200040000000000000000000000000000";
    change(
        &image,
        ["xattr", "set", &program, "security.capability", value],
    )
    .ok();
    change(&image, ["cp", &place.arg("new"), &program]).ok();
    let left = extant(["xattr", "ls", &program]).ok().text();
    assert!(!left.contains("capability"), "{left}");
}

#[test]
fn a_file_with_several_names_gets_its_new_content_under_all_of_them() {
    require!(KernelExt4);
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    let third = at("/etc/third");
    change(&image, ["ln", &at("/usr/lib/again"), &third]).ok();
    change(&image, ["ln", "-s", "/usr/lib", &at("/lib")]).ok();
    fs::write(place.join("new"), "new content\n").unwrap();
    let names = ["/usr/lib/libone.so", "/usr/lib/again", "/etc/third"];
    let check = |expected: &str| {
        for name in names {
            assert_eq!(content(&image, name), expected.as_bytes(), "{name}");
            assert_eq!(stat(&image, name)["links"], 3, "{name}");
        }
        let numbers = names.map(|name| stat(&image, name)["inode"].clone());
        assert_eq!(numbers[0], numbers[1]);
        assert_eq!(numbers[0], numbers[2]);
        let all = extant(["find", &image]).ok().text();
        assert!(!all.contains(".extant-"), "{all}");
    };
    change(&image, ["cp", &place.arg("new"), &at("/usr/lib/again")]).ok();
    check("new content\n");
    // By another path to one of its names.
    write(&image, "/lib/libone.so", "by a link\n").ok();
    assert_clean(Path::new(&image));
    check("by a link\n");
    // Two of its names at once: they are one file before and after.
    fs::create_dir(place.join("two")).unwrap();
    for name in ["again", "libone.so"] {
        fs::write(place.join("two").join(name), "both\n").unwrap();
    }
    let two = format!("{}/.", place.arg("two"));
    change(
        &image,
        ["cp", "-r", "--threads", "2", &two, &at("/usr/lib")],
    )
    .ok();
    check("both\n");
    // With -a a name stands for another file, and the others for theirs.
    change(
        &image,
        ["cp", "-aT", &place.arg("new"), &at("/usr/lib/again")],
    )
    .ok();
    assert_eq!(content(&image, "/usr/lib/again"), b"new content\n");
    assert_eq!(content(&image, "/etc/third"), b"both\n");
    assert_eq!(stat(&image, "/etc/third")["links"], 2);
}

#[test]
fn what_is_no_file_in_an_image_is_not_written_to() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = |path: &str| format!("{image}:{path}");
    change(&image, ["mknod", &at("/null"), "c", "1", "3"]).ok();
    fs::write(place.join("new"), "new content\n").unwrap();
    for path in ["/null", "/usr/pipe"] {
        let run = change(&image, ["cp", &place.arg("new"), &at(path)]).fails(1);
        assert!(run.stderr.contains("extant rm"), "{}", run.stderr);
        let run = write(&image, path, "text").fails(1);
        assert!(run.stderr.contains("extant rm"), "{}", run.stderr);
        assert_ne!(stat(&image, path)["type"], "file");
    }
    let fixed = at("/etc/hostname");
    let before = content(&image, "/etc/hostname");
    for flag in ["i", "a"] {
        change(&image, ["chattr", &format!("+{flag}"), &fixed]).ok();
        change(&image, ["cp", &place.arg("new"), &fixed]).fails(1);
        write(&image, "/etc/hostname", "text").fails(1);
        assert_eq!(content(&image, "/etc/hostname"), before);
        change(&image, ["chattr", &format!("-{flag}"), &fixed]).ok();
    }
    let names = extant(["ls", "-a", &at("/etc")]).ok().text();
    assert!(!names.contains(".extant-"), "{names}");
}

/// After Linux has recovered the image.
#[test]
fn a_kill_leaves_the_old_content_or_the_new_one() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let fresh = place.join("fresh.img");
    mke2fs(&fresh, 64 << 20, &["-t", "ext4", "-J", "size=4"]);
    let old = Content::filled(1, 6 << 20).to_bytes();
    let new = Content::filled(2, 7 << 20).to_bytes();
    fs::write(place.join("old"), &old).unwrap();
    fs::write(place.join("new"), &new).unwrap();
    let fresh = fresh.display().to_string();
    extant(["cp", &place.arg("old"), &format!("{fresh}:/f")]).ok();
    let mut random = Rng::new(seed_from_env("replacing"));
    for round in 0..10 {
        let image = copy_of(&fresh, &place.arg("fs.img"));
        let at = format!("{image}:/f");
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        if round % 2 == 0 {
            command.args(["cp", &place.arg("new"), &at]);
        } else {
            let input = fs::File::open(place.join("new")).unwrap();
            command.args(["write", &at]).stdin(Stdio::from(input));
        }
        let mut child = command.spawn().expect("the command runs");
        std::thread::sleep(Duration::from_millis(random.below(120)));
        // It may have ended already, which is fine as well.
        let _ = child.kill();
        child.wait().expect("the command ends");
        let mount = KernelMount::mount(Path::new(&image), Mode::ReadWrite, "");
        let found = fs::read(mount.join("f")).expect("the file is there");
        mount.unmount();
        let is_whole = found == old || found == new;
        assert!(is_whole, "round {round}: {} bytes", found.len());
    }
}

#[test]
fn the_advice_for_an_image_that_is_too_small_is_right() {
    require!(KernelExt4);
    let mut random = Rng::new(seed_from_env("replacing"));
    for round in 0..6 {
        let place = Place::in_memory();
        let mut plan = TreePlan::new();
        let many = round % 2 == 0;
        let count = if many { 3000 } else { 12 };
        let size = if many { 3000 } else { 2 << 20 };
        plan.dir("d");
        for n in 0..count {
            let size = random.below(size);
            plan.file(format!("d/{n}"), Content::filled(n, size));
        }
        let from = place.planted("from", &plan);
        let image = place.arg("fs.img");
        let block = ["1K", "4K"][usize::from(random.below(2) > 0)];
        let inodes = if many { "256" } else { "64" };
        extant([
            "mkfs",
            "-q",
            "--size",
            "9M",
            "--block-size",
            block,
            "--inodes",
            inodes,
            &image,
        ])
        .ok();
        write(&image, "/kept", "text").ok();
        let before = extant(["ls", "-lR", &image]).ok().text();
        let to = format!("{image}:/to");
        let args = ["cp", "-a", &from, &to];
        let mut rounds = 0;
        // What is missing is the least; what names take comes to it.
        let said = loop {
            let run = change(&image, args);
            if run.code == 0 {
                break rounds;
            }
            rounds += 1;
            assert!(rounds <= 2, "{}", run.stderr);
            let advice = run
                .stderr
                .split('`')
                .find(|text| text.starts_with("extant resize"));
            let advice = advice.unwrap_or_else(|| panic!("{}", run.stderr));
            assert!(run.stderr.contains("missing"), "{}", run.stderr);
            assert_eq!(extant(["ls", "-lR", &image]).ok().text(), before);
            extant(advice.split(' ').skip(1)).ok();
        };
        assert!(said > 0, "round {round}: it fits");
        plan.expected().assert_same(
            &{
                let mount = KernelMount::mount(Path::new(&image), Mode::Untouched, "");
                let tree = extant_testkit::tree::Tree::snapshot(&mount.join("to"));
                mount.unmount();
                tree
            },
            &crate::support::faithful(),
        );
    }
}

#[test]
fn a_file_of_the_host_keeps_all_but_its_content() {
    require!(Root, TmpfsXattrs);
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &[]);
    let from = format!("{image}:/etc/hostname");
    let expected = content(&image, "/etc/hostname");
    let file = place.join("file");
    fs::write(&file, "older and longer than the new one").unwrap();
    std::os::unix::fs::chown(&file, Some(5), Some(6)).unwrap();
    tool("setfacl").args(["-m", "u:9:rw"]).arg(&file).ok();
    tool("setfattr")
        .args(["-n", "trusted.x", "-v", "y"])
        .arg(&file)
        .ok();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4760)).unwrap();
    fs::hard_link(&file, place.join("other")).unwrap();
    tool("setfacl")
        .args(["-d", "-m", "u:77:rwx"])
        .arg(place.path())
        .ok();
    let attributes = |path: &Path| {
        let all = tool("getfattr")
            .args(["-d", "-m", "-", "--absolute-names"])
            .arg(path)
            .ok();
        let text = all.text();
        let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = attributes(&file);
    assert_eq!(extant(["cp", &from, &place.arg("file")]).ok().stderr, "");
    assert_eq!(fs::read(&file).unwrap(), expected);
    let found = file.metadata().unwrap();
    assert_eq!((found.uid(), found.gid()), (5, 6));
    assert_eq!(found.mode() & 0o7777, 0o4760);
    assert_eq!(attributes(&file), before);
    // Its other name stays with the file that it was.
    let other = fs::read(place.join("other")).unwrap();
    assert_eq!(other, b"older and longer than the new one");
    // What was not there before has the permissions of the source.
    extant(["cp", &from, &place.arg("new")]).ok();
    assert_eq!(fs::read(place.join("new")).unwrap(), expected);
}

#[test]
fn pipes_and_devices_of_the_host_are_written_to() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let from = format!("{image}:/usr/lib/libone.so");
    let expected = content(&image, "/usr/lib/libone.so");
    let pipe = place.arg("pipe");
    tool("mkfifo").args([&pipe]).ok();
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read(pipe).unwrap())
    };
    extant(["cp", &from, &pipe]).ok();
    assert!(reader.join().unwrap() == expected);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    extant(["cp", &from, "/dev/null"]).ok();
    assert!(
        fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device()
    );
    // A link to one, as /dev/stdout is.
    let link = place.join("stdout");
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).unwrap();
    let run = extant(["cp", &from, &place.arg("stdout")]).ok();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(run.stdout == expected, "{} bytes", run.stdout.len());
    // So it is where a regular file is open.
    let out = place.join("out");
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["cp", &from, &place.arg("stdout")])
        .stdout(fs::File::create(&out).unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(fs::read(&out).unwrap() == expected);
    let run = extant(["cp", &from, "/dev/full"]).fails(1);
    assert!(run.stderr.contains("/dev/full"), "{}", run.stderr);
    for option in ["--partial", "--json"] {
        extant(["cp", option, &from, "/dev/null"]).fails(2);
        assert_eq!(extant(["cp", option, &from, "-"]).fails(2).stdout, b"");
    }
}

#[test]
fn a_device_is_written_to_unless_it_holds_a_file_system_or_is_in_use() {
    require!(Root, LoopDevices);
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let from = format!("{image}:/usr/lib/libone.so");
    let expected = content(&image, "/usr/lib/libone.so");
    let disk = copy_of(&image, &place.arg("disk.img"));
    let before = fs::read(&disk).unwrap();
    let device = LoopDevice::attach(Path::new(&disk), Access::ReadWrite).unwrap();
    let to = device.path().display().to_string();
    for args in [&["cp", &from, &to][..], &["tar", &image, "-o", &to]] {
        let run = extant(args).fails(1);
        assert!(run.stderr.contains("ext4"), "{}", run.stderr);
        assert!(run.stderr.contains("wipefs"), "{}", run.stderr);
    }
    drop(device);
    assert!(fs::read(&disk).unwrap() == before);
    let empty = place.join("empty");
    fs::File::create(&empty).unwrap().set_len(8 << 20).unwrap();
    let device = LoopDevice::attach(&empty, Access::ReadWrite).unwrap();
    let to = device.path().display().to_string();
    let held = fs::File::options()
        .write(true)
        .custom_flags(OFlags::EXCL.bits().cast_signed())
        .open(&to)
        .unwrap();
    let run = extant(["cp", &from, &to]).fails(1);
    assert!(run.stderr.contains("in use"), "{}", run.stderr);
    drop(held);
    extant(["cp", &from, &to]).ok();
    // It was synchronized: the file behind the device has it.
    assert!(fs::read(&empty).unwrap().starts_with(&expected));
}

#[test]
fn an_ordinary_user_is_told_whose_a_replaced_file_was() {
    require!(Root);
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &[]);
    let user = || crate::support::ordinary_user(&place, "");
    user().args(["--version"]).ok();
    tool("chmod").args(["644", &image]).ok();
    let file = place.join("public/file");
    fs::write(&file, "older").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let to = file.display().to_string();
    let from = format!("{image}:/etc/hostname");
    let run = user().args(["cp", &from, &to]).run();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.code, 1, "{said}");
    assert!(said.contains("its owner 0"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), content(&image, "/etc/hostname"));
}

#[test]
fn names_that_are_not_found_are_told() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.dir("hidden");
    let image = place.image(&plan, &[]);
    let at = |path: &str| format!("{image}:{path}");
    let again = at("/usr/lib/again");
    change(&image, ["ln", &again, &at("/hidden/third")]).ok();
    let other = copy_of(&image, &place.arg("other.img"));
    for image in [&image, &other] {
        debugfs_write(Path::new(image), &["sif /hidden block[0] 0"]);
    }
    fs::write(place.join("new"), "new content\n").unwrap();
    let new = place.arg("new");
    let copied = extant(["cp", &new, &again]).fails(1);
    let written = write(&other, "/usr/lib/again", "new content\n").fails(1);
    for (image, run) in [(&image, copied), (&other, written)] {
        assert!(run.stderr.contains("1 of its 3 names"), "{}", run.stderr);
        for name in ["/usr/lib/libone.so", "/usr/lib/again"] {
            assert_eq!(content(image, name), b"new content\n");
        }
    }
    // The file that is there now has no other names.
    extant(["cp", &new, &again]).ok();
}

#[test]
fn an_ordinary_user_hands_no_powers_of_a_file_to_another_content() {
    require!(Root);
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &[]);
    let user = || crate::support::ordinary_user(&place, "");
    user().args(["--version"]).ok();
    tool("chmod").args(["644", &image]).ok();
    let from = format!("{image}:/etc/hostname");
    for (group, before, after) in [(65534, 0o6755, 0o755), (6, 0o2674, 0o644)] {
        let file = place.join("public").join(group.to_string());
        fs::write(&file, "older").unwrap();
        std::os::unix::fs::chown(&file, Some(65534), Some(group)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
        let run = user()
            .args(["cp", &from, &file.display().to_string()])
            .run();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(said.contains("its group 6"), group == 6, "{said}");
        assert_eq!(run.code == 0, group != 6, "{said}");
        assert_eq!(fs::read(&file).unwrap(), content(&image, "/etc/hostname"));
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, after, "{said}");
    }
}
