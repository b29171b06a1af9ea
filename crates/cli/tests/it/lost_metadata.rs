//! Copies that cannot have everything the files had: content is there, the rest is said, and older
//! files survive.

use crate::support::{Place, Run, change, extant, extant_with, ordinary_user, small_plan};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::{Output, tool};
use rustix::fs::{Mode, OFlags};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file system that is mounted for a test.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    fn new(place: &Place, kind: &str, options: &str) -> Self {
        Self::at(place.join("mounted"), kind, options)
    }

    /// Mounts nothing but memory, or a file system without a device, on a new directory.
    pub(crate) fn at(at: PathBuf, kind: &str, options: &str) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let options = ["-t", kind, "-o", options, "none"];
        tool("mount").args(options).arg(&at).ok();
        Self(at)
    }

    fn arg(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount").arg(&self.0).run();
    }
}

/// An image with these files of one byte each.
fn image_of(place: &Place, names: &[&str]) -> String {
    let mut plan = TreePlan::new();
    for name in names {
        plan.file(*name, Content::filled(1, 1)).mode(0o644);
    }
    let from = place.planted("files", &plan);
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "8M", "--from", &from, &image]).ok();
    image
}

/// What lies in a directory, by name.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lost+found")
        .collect();
    names.sort();
    names
}

fn mode(path: impl AsRef<Path>) -> u32 {
    path.as_ref().symlink_metadata().unwrap().mode() & 0o7777
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the command as root of a user namespace, which knows one user and one group. `None`, and a
/// named skip, where the machine has none.
fn in_user_namespace(place: &Place, args: &[&str]) -> Option<Output> {
    if ordinary_user(place, "unshare")
        .args(["-r", "true"])
        .run()
        .code
        != 0
    {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test");
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs user namespaces: {test}");
        return None;
    }
    let run = ordinary_user(place, "unshare").arg("-r");
    Some(run.arg(place.join("extant")).args(args).run())
}

#[test]
fn files_are_copied_to_where_attributes_and_lists_cannot_be_kept_and_the_exit_code_says_so() {
    require!(Root);
    let place = Place::new();
    let image = image_of(&place, &["a", "b", "c"]);
    let at = |name: &str| format!("{image}:/{name}");
    extant(["xattr", "set", &at("b"), "user.a", "1"]).ok();
    // What shows as the group's permissions are those of the list's mask: another user's.
    extant(["acl", "set", "u:77:rw,g::-", &at("c")]).ok();
    assert_eq!(
        extant(["stat", "--json", &at("c")]).ok().lines()[0]["mode"],
        "0664"
    );
    let ramfs = Mounted::new(&place, "ramfs", "mode=755");
    std::fs::write(ramfs.arg("b"), "older").unwrap();
    let run = extant(["cp", "-a", &format!("{image}:/."), &ramfs.arg("")]).fails(1);
    assert_eq!(names(&ramfs.0), ["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        assert_eq!(std::fs::read(ramfs.arg(name)).unwrap().len(), 1, "{name}");
    }
    assert!(
        run.stderr
            .contains("/b: copied without its attribute user.a")
    );
    assert!(
        run.stderr
            .contains("/c: copied without its access control list")
    );
    assert!(!run.stderr.contains("/a:"), "{}", run.stderr);
    assert_eq!(
        mode(ramfs.arg("c")),
        0o604,
        "a lost list opens nothing to the group"
    );
    extant(["cp", "-a", &at("a"), &ramfs.arg("d")]).ok();
}

#[test]
fn an_older_file_survives_a_copy_that_has_no_space() {
    require!(Root);
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.file("big", Content::filled(1, 3 << 20));
    let image = place.image(&plan, &[]);
    let small = Mounted::new(&place, "tmpfs", "size=1M");
    std::fs::write(small.arg("big"), "precious").unwrap();
    for how in ["-a", "-r", "-p"] {
        let run = extant(["cp", how, &format!("{image}:/big"), &small.arg("")]).fails(1);
        assert!(run.stderr.contains("No space"), "{}", run.stderr);
        assert_eq!(std::fs::read(small.arg("big")).unwrap(), b"precious");
        assert_eq!(names(&small.0), ["big"], "nothing is left beside it");
    }
}

#[test]
fn a_user_gets_attributes_of_read_only_files_and_directories() {
    require!(Root);
    let place = Place::new();
    let image = image_of(&place, &["ro"]);
    let at = format!("{image}:/ro");
    extant(["mkdir", &format!("{image}:/dir")]).ok();
    extant(["cp", &at, &format!("{image}:/dir/in")]).ok();
    for path in [&at, &format!("{image}:/dir"), &format!("{image}:/dir/in")] {
        extant(["xattr", "set", path, "user.a", "1"]).ok();
        extant(["chown", "65534:65534", path]).ok();
        extant(["chmod", "a-w", path]).ok();
    }
    let out = place.arg("public/out");
    let run = ordinary_user(&place, "").args(["cp", "-a", &format!("{image}:/."), &out]);
    assert_eq!(run.run().code, 0);
    assert_eq!(names(Path::new(&out)), ["dir", "ro"]);
    assert_eq!(mode(place.join("public/out/ro")), 0o444);
    assert_eq!(mode(place.join("public/out/dir")), 0o555);
    for path in ["ro", "dir", "dir/in"] {
        let shown = tool("getfattr")
            .args(["--only-values", "-n", "user.a"])
            .arg(place.join("public/out").join(path))
            .ok();
        assert_eq!(shown.text(), "1", "{path}");
    }
}

#[test]
fn root_of_a_user_namespace_gets_all_content_and_hears_which_owners_it_has_not() {
    require!(Root);
    let place = Place::new();
    let image = image_of(&place, &["shadow", "setgid", "marked", "plain"]);
    let at = |name: &str| format!("{image}:/{name}");
    for name in ["shadow", "setgid"] {
        extant(["chown", "0:42", &at(name)]).ok();
    }
    extant(["chmod", "6755", &at("setgid")]).ok();
    extant(["xattr", "set", &at("marked"), "trusted.a", "1"]).ok();
    let out = place.arg("public/out");
    let from = format!("{image}:/.");
    let Some(run) = in_user_namespace(&place, &["cp", "-a", &from, &out]) else {
        return;
    };
    let said = said(&run);
    assert_eq!(run.code, 1, "{said}");
    assert_eq!(
        names(Path::new(&out)),
        ["marked", "plain", "setgid", "shadow"]
    );
    assert!(
        said.contains("/shadow: copied without its group 42"),
        "{said}"
    );
    assert!(
        said.contains("/marked: copied without its attribute trusted.a"),
        "{said}"
    );
    assert!(!said.contains("/plain"), "{said}");
    assert_eq!(
        mode(place.join("public/out/setgid")),
        0o755,
        "no powers of a group it is not of"
    );
}

#[test]
fn a_file_that_nobody_may_use_is_copied_with_no_permissions() {
    let place = Place::new();
    let image = image_of(&place, &["secret"]);
    let at = format!("{image}:/secret");
    extant(["chmod", "0", &at]).ok();
    for (how, to) in [("-r", "r"), ("-a", "a"), ("-p", "p")] {
        extant(["cp", how, &at, &place.arg(to)]).ok();
        assert_eq!(mode(place.join(to)), 0, "{how}");
        let back = format!("{image}:/{to}");
        change(&image, ["cp", how, &place.arg(to), &back]).ok();
        let found = extant(["stat", "--json", &back]).ok().lines()[0].clone();
        assert_eq!(found["mode"], "0000", "{how}");
    }
}

#[test]
fn a_hard_link_whose_first_name_is_in_the_way_has_its_content_under_the_others() {
    let place = Place::new();
    let image = image_of(&place, &["a"]);
    for name in ["b", "c"] {
        let new = format!("{image}:/{name}");
        extant(["ln", &format!("{image}:/a"), &new]).ok();
    }
    let out = place.join("out");
    std::fs::create_dir_all(out.join("a/full")).unwrap();
    std::fs::write(out.join("c"), "older").unwrap();
    let run = extant(["cp", "-a", &format!("{image}:/."), &place.arg("out")]).fails(1);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(out.join("a/full").is_dir());
    let (b, c) = (
        out.join("b").metadata().unwrap(),
        out.join("c").metadata().unwrap(),
    );
    assert_eq!((b.len(), b.nlink(), b.ino()), (1, 2, c.ino()));
    // Again, with all links there.
    std::fs::remove_dir_all(out.join("a")).unwrap();
    for _ in 0..2 {
        extant(["cp", "-a", &format!("{image}:/."), &place.arg("out")]).ok();
        assert_eq!(names(&out), ["a", "b", "c"]);
        assert_eq!(out.join("a").metadata().unwrap().nlink(), 3);
    }
}

/// A directory of the host on tmpfs whose second file has an attribute that no block of 4 KiB
/// holds.
fn with_a_large_attribute(place: &Place) -> String {
    let mut plan = TreePlan::new();
    for (seed, name) in (1..).zip(["a", "b", "c"]) {
        plan.file(name, Content::filled(seed, 1000));
    }
    let from = place.planted("from", &plan);
    rustix::fs::setxattr(
        place.join("from/b"),
        "user.large",
        &[b'v'; 6000],
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    from
}

#[test]
fn an_attribute_that_does_not_fit_is_named_with_the_way_out_and_everything_else_is_copied() {
    require!(TmpfsXattrs);
    let place = Place::in_memory();
    let from = with_a_large_attribute(&place);
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "8M", &image]).ok();
    let to = format!("{image}:/to");
    let run = change(&image, ["cp", "-a", "--threads", "1", &from, &to]).fails(1);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    for word in ["/to/b", "user.large", "ea_inode"] {
        assert!(run.stderr.contains(word), "{word}: {}", run.stderr);
    }
    for file in extant(["ls", "--json", &to]).ok().lines() {
        assert_eq!(file["size"], 1000, "{file}");
    }
    // The way out is one.
    extant(["tune", "--features", "ea_inode", &image]).ok();
    change(&image, ["cp", "-aT", &from, &to]).ok();
    let shown = extant(["xattr", "get", &format!("{to}/b"), "user.large"]).ok();
    assert!(shown.stdout.len() >= 6000);
}

#[test]
fn an_image_without_inodes_says_so_and_not_that_it_has_no_space() {
    let place = Place::new();
    let mut plan = TreePlan::new();
    for n in 0..40 {
        plan.file(format!("{n:02}"), Content::filled(n, 10));
    }
    let from = place.planted("from", &plan);
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "8M", "--inodes", "32", &image]).ok();
    let run = change(&image, ["cp", "-r", &from, &format!("{image}:/to")]).fails(1);
    assert!(run.stderr.contains("inodes are in use"), "{}", run.stderr);
    assert!(run.stderr.contains("--inodes"), "{}", run.stderr);
}

#[test]
fn an_older_file_of_an_image_survives_a_copy_that_has_no_space() {
    let place = Place::new();
    let image = image_of(&place, &["old"]);
    std::fs::write(place.join("old"), vec![7; 12 << 20]).unwrap();
    let at = format!("{image}:/old");
    for how in ["-a", "-p", "-r"] {
        let run = change(&image, ["cp", how, &place.arg("old"), &at]).fails(1);
        assert!(run.stderr.contains("space"), "{how}: {}", run.stderr);
        assert!(
            run.stderr.contains("extant resize"),
            "{how}: {}",
            run.stderr
        );
        assert_eq!(extant(["cat", &at]).ok().stdout.len(), 1, "{how}");
        let found = extant(["ls", "-a", "--json", &image]).ok().text();
        assert!(!found.contains(".extant-"), "{how}: {found}");
    }
}

/// Makes a chain of directories on the host with a file in each, whatever paths the system takes.
fn chain(root: &Path, depth: usize) {
    std::fs::create_dir(root).unwrap();
    let place = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(root, place, Mode::empty()).unwrap();
    for _ in 0..depth {
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(&at, "f", new, Mode::from_raw_mode(0o644)).unwrap();
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", place, Mode::empty()).unwrap();
    }
}

/// How many directories of a chain are there, each with its file.
fn length(root: &Path) -> usize {
    let place = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(root, place, Mode::empty()).unwrap();
    let mut length = 0;
    while let Ok(next) = rustix::fs::openat(&at, "d", place, Mode::empty()) {
        let file = rustix::fs::statat(&at, "f", rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        assert!(file.is_ok(), "level {length}");
        (at, length) = (next, length + 1);
    }
    length
}

#[test]
fn a_tree_deeper_than_any_path_is_copied_archived_listed_and_removed_in_seconds() {
    const DEPTH: usize = 4200;
    let place = Place::in_memory();
    chain(&place.join("deep"), DEPTH);
    let image = place.arg("fs.img");
    let quick = |args: &[&str]| -> Run {
        extant_with(args, |command| {
            command.timeout(std::time::Duration::from_secs(120));
        })
    };
    quick(&["mkfs", "-q", "--from", &place.arg("deep"), &image]).ok();
    quick(&["cp", "-a", &format!("{image}:/."), &place.arg("out")]).ok();
    assert_eq!(length(&place.join("out")), DEPTH);
    quick(&["tar", &format!("{image}:/d"), "-o", &place.arg("deep.tar")]).ok();
    quick(&[
        "mkfs",
        "-q",
        "--from",
        &place.arg("deep.tar"),
        &place.arg("again.img"),
    ])
    .ok();
    let found = quick(&["find", &format!("{image}:/d")]).ok();
    assert_eq!(found.text().lines().count(), 2 * DEPTH - 1);
    quick(&["rm", "-r", &format!("{image}:/d")]).ok();
    extant_testkit::oracle::assert_clean(Path::new(&image));
    assert_eq!(extant(["ls", &image]).ok().text(), "f\nlost+found\n");
}

#[test]
fn what_cannot_be_removed_is_said_and_the_rest_is_removed() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let kept = format!("{image}:/usr/lib/libtwo.so.6");
    extant(["chattr", "+i", &kept]).ok();
    let run = change(&image, ["rm", "-r", &format!("{image}:/usr")]).fails(1);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("libtwo"), "{}", run.stderr);
    let left = extant(["ls", &format!("{image}:/usr/lib")]).ok().text();
    assert_eq!(left, "libtwo.so.6\n");
    assert!(std::fs::metadata(&image).unwrap().permissions().mode() & 0o200 != 0);
}

#[test]
fn a_change_of_owner_takes_privileges_unless_they_are_to_be_kept() {
    let place = Place::new();
    let image = image_of(&place, &["a", "b"]);
    let capability = "0x0100000200040000000000000000000000000000";
    let privileges = |name: &str| {
        let at = format!("{image}:/{name}");
        let found = extant(["stat", "--json", &at]).ok().lines()[0].clone();
        let capable = extant(["xattr", "get", &at, "security.capability"]).code == 0;
        (
            found["uid"].as_u64(),
            found["mode"].as_str().map(str::to_owned),
            capable,
        )
    };
    for name in ["a", "b"] {
        let at = format!("{image}:/{name}");
        extant(["chmod", "6755", &at]).ok();
        extant(["xattr", "set", &at, "security.capability", capability]).ok();
    }
    change(&image, ["chown", "5:6", &format!("{image}:/a")]).ok();
    let root = format!("{image}:/");
    assert_eq!(privileges("a"), (Some(5), Some("0755".to_owned()), false));
    change(
        &image,
        ["chown", "--keep-privileges", "7:8", &format!("{image}:/b")],
    )
    .ok();
    assert_eq!(privileges("b"), (Some(7), Some("6755".to_owned()), true));
    change(&image, ["chown", "-R", "--keep-privileges", "9:9", &root]).ok();
    assert_eq!(privileges("b"), (Some(9), Some("6755".to_owned()), true));
}
