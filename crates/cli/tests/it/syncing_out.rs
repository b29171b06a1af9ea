//! `extant sync` out of an image, judged by `rsync` out of a kernel mount.

use crate::comparing::{GROWN, change_of, changed, diff, run_in};
use crate::lost_metadata::Mounted;
use crate::support::{Place, Run, copy_of, extant, ordinary_user};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{debugfs_write, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn sync<const N: usize>(args: [&str; N]) -> Run {
    extant(["sync"].into_iter().chain(args))
}

/// Has `rsync` make a directory like what Linux shows of an image.
fn rsync_out(image: &str, dest: &Path, options: &[&str]) -> String {
    let mount = KernelMount::mount(Path::new(image), Mode::Untouched, "");
    let from = format!("{}/", mount.path().display());
    let to = format!("{}/", dest.display());
    let all = ["-aHAX", "--exclude=/lost+found"];
    let run = tool("rsync")
        .args(all.iter().chain(options))
        .args([&from, &to])
        .ok();
    mount.unmount();
    run.text()
}

/// Lets time pass: rsync 3.5 takes times of one second for the same.
fn other_second() {
    std::thread::sleep(std::time::Duration::from_millis(1100));
}

/// What rsync would still change.
fn left_for_rsync(image: &str, dest: &Path) -> String {
    rsync_out(image, dest, &["-nic", "--delete"])
}

#[test]
fn a_directory_of_the_host_becomes_what_the_image_is() {
    require!(Root, KernelExt4);
    let seed = extant_testkit::rng::seed_from_env("syncing out");
    for round in 0..5 {
        let place = Place::in_memory();
        let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
        mke2fs(Path::new(&a), 96 << 20, &["-t", "ext4"]);
        changed(&a, GROWN);
        copy_of(&a, &b);
        other_second();
        let number = seed.wrapping_add(round * 15_485_863) | 1;
        let more = "mknod null c 1 3; mkfifo pipe; ln pipe pipe2; touch -h -d @1600000000.25 a/s3; \
                    chown -h 5:6 a/y/s2; setfacl -m u:7:r c/h1; setcap cap_net_raw+ep c/h2; \
                    setfattr -n user.d -v 1 a/x; chmod 4751 c/h1";
        changed(&b, &format!("{}\n{more}", change_of(number)));
        other_second();
        let [ours, theirs] = ["ours", "theirs"].map(|name| place.join(name));
        fs::create_dir(&ours).unwrap();
        rsync_out(&a, &ours, &[]);
        // What is in the way, of either kind.
        run_in(&ours, &change_of(number.rotate_left(17) | 1));
        run_in(
            &ours,
            "setfattr -n user.more -v 1 c; setfacl -m u:9:r a; setfacl -d -m u:9:r a",
        );
        let (dir, source) = (place.arg("ours"), format!("{b}:/"));
        let dry = sync(["-n", "--delete", "--json", &source, &dir])
            .ok()
            .json();
        let wet = sync(["--delete", "--json", &source, &dir]).ok().json();
        for key in ["made", "replaced", "removed", "described"] {
            assert_eq!(dry[key], wet[key], "seed {seed}, round {round}: {key}");
        }
        let told = diff(["--exclude", "/lost+found", &b, &dir]);
        let said = (told.code, told.text());
        assert_eq!(said, (0, String::new()), "seed {seed}: {}", told.stderr);
        // Into an empty directory: what is there already, rsync does not make what it should be
        // where names of one file part, or only permissions differ.
        fs::create_dir(&theirs).unwrap();
        rsync_out(&b, &theirs, &[]);
        let told = diff([&place.arg("theirs"), &dir]);
        let said = (told.code, told.text());
        assert_eq!(said, (0, String::new()), "seed {seed}: {}", told.stderr);
        assert_eq!(left_for_rsync(&b, &ours), "", "seed {seed}");
        assert!(!ours.join(".extant-sync").exists());
        // A second time there is nothing to do.
        let again = sync(["--delete", "--json", &source, &dir]).ok().json();
        for key in ["made", "replaced", "removed", "described", "bytes"] {
            assert_eq!(again[key], 0, "{key}");
        }
        // Into a directory that is not there.
        let new = place.arg("new");
        sync(["-q", &source, &new]).ok();
        let told = diff(["--exclude", "/lost+found", &b, &new]);
        assert_eq!((told.code, told.text()), (0, String::new()));
    }
}

#[test]
fn what_does_not_differ_stays_where_it_is_on_the_host() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    let script = "mkdir d; for n in same mode content touched; do echo $n > d/$n; done; \
                  ln d/same d/linked; find . -exec touch -d @1000000000 {} +";
    changed(&image, script);
    let (dest, source) = (place.arg("dest"), format!("{image}:/"));
    sync(["-q", &source, &dest]).ok();
    let number = |name: &str| fs::metadata(place.join("dest/d").join(name)).unwrap().ino();
    let numbers = || ["same", "mode", "content", "touched"].map(number);
    let before = numbers();
    changed(
        &image,
        "chmod 600 d/mode; echo CONTENT > d/content; touch -d @1000000005 d/touched; \
         ln d/same d/again; touch -d @1000000000 d d/content",
    );
    // Of the same size and time: taken for the same, unless that is looked into.
    let told = sync(["--json", &source, &dest]).ok().json();
    assert_eq!(
        (&told["made"], &told["replaced"], &told["bytes"]),
        (&1.into(), &0.into(), &0.into())
    );
    assert_eq!(numbers(), before);
    assert_eq!((number("again"), number("linked")), (before[0], before[0]));
    let told = sync(["--json", "--checksum", &source, &dest]).ok().json();
    assert_eq!(
        (&told["made"], &told["replaced"], &told["bytes"]),
        (&1.into(), &1.into(), &8.into())
    );
    let after = numbers();
    assert_ne!(after[2], before[2]);
    assert_eq!(
        [after[0], after[1], after[3]],
        [before[0], before[1], before[3]]
    );
    assert_eq!(left_for_rsync(&image, &place.join("dest")), "");
}

#[test]
fn what_the_image_does_not_have_goes_with_delete_only() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    changed(
        &image,
        "mkdir d; echo > d/new; echo > way; echo > d/left.o; mkdir file; echo > file/in",
    );
    let dest = place.join("dest");
    fs::create_dir(&dest).unwrap();
    let script = "mkdir -p d/kept.o x/deep way; echo > d/old; echo > x/f; echo > way/f; \
                  echo > x/deep/kept.o; echo > file; ln -s . d/link";
    run_in(&dest, script);
    let (dir, source) = (place.arg("dest"), format!("{image}:/"));
    let at = |path: &str| dest.join(path).symlink_metadata().is_ok();
    let said = sync(["--exclude", "*.o", &source, &dir]).fails(1).stderr;
    assert!(said.contains("--delete") && said.contains("way"), "{said}");
    assert!(at("d/new") && at("d/old") && at("x/f") && at("way/f") && !at("d/left.o"));
    // It replaces no file while anything is missing.
    assert!(dest.join("file").is_file(), "{said}");
    let text = sync(["-n", "--delete", "--exclude", "*.o", &source, &dir])
        .ok()
        .text();
    let expected = format!(
        "remove /d/link\nremove /d/old\nremove /x/f\nreplace /file\nreplace /way\nset /d\nset /\n\
         {dir}: would be made: 3 (2 bytes), replaced: 2, removed: 3, set: 2\n"
    );
    let sorted = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    assert_eq!(sorted(&text), sorted(&expected));
    assert!(at("d/old"));
    sync(["-q", "--delete", "--exclude", "*.o", &source, &dir]).ok();
    assert!(!at("d/old") && !at("d/link") && !at("x/f"));
    assert!(at("d/kept.o") && at("x/deep/kept.o") && at("file/in") && dest.join("way").is_file());
    // What cannot be read is not taken for gone.
    fs::write(dest.join("more"), "").unwrap();
    debugfs_write(Path::new(&image), &["sif /d block[0] 0x7fff"]);
    let said = sync(["--delete", &source, &dir]).fails(1).stderr;
    assert!(said.contains("nothing is removed"), "{said}");
    assert!(at("more") && at("d/new"));
}

#[test]
fn nothing_outside_the_directory_is_touched() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    changed(
        &image,
        "mkdir -p in/deep gone; echo inside > in/deep/file; chmod 700 in; echo > link",
    );
    let (dest, outside) = (place.join("dest"), place.join("outside"));
    for dir in [&dest, &outside] {
        fs::create_dir(dir).unwrap();
    }
    fs::create_dir(outside.join("deep")).unwrap();
    fs::write(outside.join("deep/file"), "outside").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).unwrap();
    // Links where the image has directories or files, one left by somebody for the next run, and
    // one in what goes.
    symlink(&outside, dest.join("in")).unwrap();
    symlink(outside.join("deep/file"), dest.join("link")).unwrap();
    symlink(&outside, dest.join(".extant-sync")).unwrap();
    fs::create_dir(dest.join("goes")).unwrap();
    symlink(&outside, dest.join("goes/link")).unwrap();
    let source = format!("{image}:/");
    sync(["--delete", &source, &place.arg("dest")]).ok();
    assert_eq!(fs::read(outside.join("deep/file")).unwrap(), b"outside");
    assert_eq!(fs::metadata(&outside).unwrap().mode() & 0o777, 0o755);
    assert_eq!(fs::read_dir(outside.join("deep")).unwrap().count(), 1);
    assert!(!dest.join("goes").exists());
    assert_eq!(left_for_rsync(&image, &dest), "");
    // The image itself stays where it is.
    let own = place.join("own");
    fs::create_dir_all(own.join("sub")).unwrap();
    fs::copy(&image, own.join("sub/fs.img")).unwrap();
    fs::write(own.join("sub/other"), "").unwrap();
    let from = format!("{}:/", own.join("sub/fs.img").display());
    let said = sync(["--delete", &from, &place.arg("own")]).ok().stderr;
    assert!(said.contains("in use"), "{said}");
    assert!(own.join("sub/fs.img").is_file() && !own.join("sub/other").exists());
    for (args, code, why) in [
        ([&*source, &image], 2, "IMAGE:/path"),
        ([&format!("{image}:/link"), &place.arg("dest")], 2, "cp -a"),
        ([&source, "/"], 1, "root directory"),
    ] {
        let said = extant([&["sync", "-n", "--delete"][..], &args].concat())
            .fails(code)
            .stderr;
        assert!(said.contains(why), "{why}: {said}");
    }
}

#[test]
fn what_is_mounted_below_stays() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 16 << 20, &["-t", "ext4"]);
    changed(&image, "echo inside > replaced");
    let (source, has) = (format!("{image}:/"), place.arg("has"));
    let told = |options: &[&str]| {
        let rest = ["--delete", &source, &has];
        let said = extant([&["sync"][..], options, &rest].concat()).fails(1);
        said.stderr.matches("has something mounted over it").count()
    };
    // A directory with nothing in it, and with something.
    let at = place.join("has/mounted");
    let below = Mounted::at(at.clone(), "tmpfs", "size=1M");
    assert_eq!([told(&["-n"]), told(&[])], [1, 1]);
    fs::write(at.join("file"), "").unwrap();
    assert_eq!(told(&["-n"]), 1);
    // Files and directories over others, of another file system and of the same one, and over what
    // is to be replaced.
    for dir in ["from", "below/deep", "to"] {
        fs::create_dir_all(place.join("has").join(dir)).unwrap();
    }
    for file in ["from/kept", "over", "replaced", "below/deep/file"] {
        fs::write(place.join("has").join(file), "outside").unwrap();
    }
    let binds = [
        Bind::new(&at.join("file"), &place.join("has/over")),
        Bind::new(&place.join("has/from"), &place.join("has/to")),
        Bind::new(
            &place.join("has/from/kept"),
            &place.join("has/below/deep/file"),
        ),
        Bind::new(&place.join("has/from/kept"), &place.join("has/replaced")),
    ];
    assert_eq!([told(&["-n"]), told(&[])], [5, 5]);
    drop(binds);
    for file in ["from/kept", "below/deep/file", "replaced"] {
        let content = fs::read(place.join("has").join(file)).unwrap();
        assert_eq!(content, b"outside", "{file}");
    }
    drop(below);
    sync(["--delete", &source, &has]).ok();
    assert_eq!(left_for_rsync(&image, &place.join("has")), "");
}

/// A directory or a file that is mounted over another one, until it goes.
struct Bind(PathBuf);

impl Bind {
    fn new(what: &Path, over: &Path) -> Self {
        tool("mount").arg("--bind").arg(what).arg(over).ok();
        Self(over.to_owned())
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        tool("umount").arg(&self.0).run();
    }
}

/// Its files have devices of their own.
#[test]
fn files_of_an_overlay_are_replaced_and_removed() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 16 << 20, &["-t", "ext4"]);
    changed(
        &image,
        "echo inside > replaced; mkdir dir; echo inside > dir/replaced",
    );
    let lower = Mounted::at(place.join("lower"), "tmpfs", "size=1M");
    let upper = Mounted::at(place.join("upper"), "tmpfs", "size=1M");
    for name in ["dir/replaced", "replaced", "goes", "gone/deep/file"] {
        let at = place.join("lower").join(name);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, "outside").unwrap();
    }
    for name in ["upper/files", "upper/work"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        place.arg("lower"),
        place.arg("upper/files"),
        place.arg("upper/work")
    );
    let overlay = Mounted::at(place.join("overlay"), "overlay", &layers);
    let source = format!("{image}:/");
    sync(["--delete", &source, &place.arg("overlay")]).ok();
    assert_eq!(left_for_rsync(&image, &place.join("overlay")), "");
    drop(overlay);
    drop((lower, upper));
}

#[test]
fn what_only_root_keeps_is_told_and_counted() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let user = || ordinary_user(&place, "");
    user();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    changed(
        &image,
        "mkdir -p closed/deep gone; echo > closed/deep/file; echo > tool; chmod 4755 tool; \
         echo > given; chown 7:7 given; setfattr -n trusted.t -v 1 given; chmod 500 closed/deep; \
         echo > gone/file; chmod 500 gone closed",
    );
    let source = format!("{image}:/");
    fs::set_permissions(&image, fs::Permissions::from_mode(0o644)).unwrap();
    let dest = place.arg("public/dest");
    fs::create_dir(&dest).unwrap();
    std::os::unix::fs::chown(&dest, Some(65534), Some(65534)).unwrap();
    let exclude = ["--exclude", "/lost+found"];
    let sync = || {
        let args = ["sync", "--json", "--delete", &source, &dest];
        let run = user().args(args).args(exclude).run();
        assert_eq!(run.code, 0, "{run}");
        let told: serde_json::Value = serde_json::from_str(&run.text()).unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        (told, stderr)
    };
    let (told, said) = sync();
    assert!(said.contains("only root may keep owners"), "{said}");
    assert!(said.contains("attributes were left out"), "{said}");
    let mode = |name: &str| fs::metadata(format!("{dest}/{name}")).unwrap().mode() & 0o7777;
    assert_eq!(mode("tool"), 0o755, "no powers of another owner");
    assert_eq!(
        (mode("closed"), mode("closed/deep"), mode("gone")),
        (0o500, 0o500, 0o500)
    );
    assert_eq!(told["xattrs_not_kept"], 1);
    // A second time it is said again, and there is nothing to do.
    let (told, _) = sync();
    for key in ["made", "replaced", "removed", "described", "bytes"] {
        assert_eq!(told[key], 0, "{key}");
    }
    assert!(told["owners_not_kept"].as_u64().unwrap() > 5);
    assert_eq!(told["xattrs_not_kept"], 1);
    // What forbids its owner to write goes all the same.
    changed(&image, "rm -r gone");
    let (told, _) = sync();
    assert_eq!(told["removed"], 1);
    assert!(!Path::new(&dest).join("gone").exists());
}
