//! `mkdir`, `rm`, `mv`, `ln`, `chmod`, `chown`, `touch`, `truncate`, `fallocate`, `write`,
//! `replay`.

use crate::support::{Place, change, copy_of, extant, extant_with, seen_by_linux, small_plan};
use extant_blockdev::OpenSpec;
use extant_testkit::images::kernel_filled;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::path::Path;
use std::time::Duration;

/// An image of the small plan, and paths in it.
struct Image {
    place: Place,
    path: String,
}

impl Image {
    fn new() -> Self {
        let place = Place::new();
        let path = place.image(&small_plan(), &[]);
        Self { place, path }
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.path)
    }

    /// Runs a command with `@/` in its arguments standing for the root of the image, checks the
    /// image, and gives what happened.
    #[track_caller]
    fn run(&self, line: &str) -> crate::support::Run {
        let args = line.split(' ').map(|word| match word.strip_prefix("@/") {
            Some(path) => self.at(&format!("/{path}")),
            None => word.to_owned(),
        });
        change(&self.path, args)
    }

    fn stat(&self, path: &str) -> serde_json::Value {
        extant(["stat", "--json", &self.at(path)]).ok().lines()[0].clone()
    }

    fn list(&self, path: &str) -> String {
        extant(["ls", "-a", &self.at(path)]).ok().text()
    }

    /// Writes text to a file in the image.
    fn write(&self, path: &str, text: &str) {
        extant_with(["write", &self.at(path)], |command| {
            command.write_stdin(text);
        })
        .ok();
    }
}

/// Commands that mean the same to coreutils under a mount: `@` stands for the image or the mount.
const AS_COREUTILS: &[&str] = &[
    "mkdir @/one @/two",
    "mkdir -p @/deep/er/est",
    "mkdir -p -m 2750 @/deep/set/gid",
    "mkdir -m u=rwx,go= @/private",
    "mkdir @/etc",
    "mkdir @/gone/dir",
    "touch @/one/a @/one/b @/two/c",
    "touch @/gone/file",
    "truncate -s 100K @/one/a",
    "truncate -s +5000 @/one/b",
    "truncate -s -1K @/one/a",
    "truncate -s -1T @/usr/lib/libtwo.so.6",
    "truncate -s 0 @/usr/lib/libone.so",
    "truncate -c -s 5 @/not/there",
    "fallocate -l 150K @/one/a",
    "fallocate -n -l 1M -o 50K @/two/c",
    "fallocate -l 64K @/two/reserved",
    "fallocate -l 64K @/two",
    "fallocate -p -o 3000 -l 70K @/one/a",
    "fallocate -z -l 1K -o 8K @/one/a",
    "fallocate -z -l 200K -o 100K @/two/c",
    "fallocate -i -o 8K -l 16K @/two/c",
    "fallocate -c -o 4K -l 8K @/two/c",
    "fallocate -c -o 0 -l 1M @/two/c",
    "fallocate -c -o 1 -l 4K @/two/c",
    "mknod @/two/zero c 1 5",
    "mknod -m 600 @/two/pipe p",
    "ln @/one/a @/one/hard",
    "ln @/one/a @/one/hard",
    "ln -f @/one/b @/one/hard",
    "ln -s ../usr/lib @/one/lib",
    "ln -s target @/one/lib",
    "ln -sfn elsewhere @/one/lib",
    "ln -sT /absolute @/one/absolute",
    "ln @/usr @/hard-dir",
    "mv @/one/b @/two",
    "mv @/two/b @/two/renamed",
    "mv @/usr @/two/",
    "mv @/two/usr @/two/usr/lib/inside",
    "mv @/one @/two @/deep",
    "mv @/deep/one/a @/deep/two/c",
    "mv @/etc/hostname @/deep/two/usr",
    "mv -T @/deep/er @/deep/two",
    "mv @/nothing @/deep",
    "mv -n @/etc/.hidden @/deep/two/c",
    "chmod 4711 @/deep/two/c",
    "chmod u+s,g=u,o-x @/deep/two/c",
    "chmod -R a+rX,o-w @/deep",
    "chmod 700 @/deep/set/gid",
    "chmod 00700 @/deep/set/gid",
    "chmod a-w,+x @/etc/link",
    "chmod -022 @/deep/two/c",
    "chmod =4750 @/deep/two",
    "chmod --reference @/deep/two/c @/etc/.hidden",
    "chmod --reference @/gone @/etc/.hidden",
    "chown 1000 @/etc/.hidden",
    "chown 5:6 @/deep/two/c",
    "chown -R :77 @/deep",
    "chown -h 8:9 @/etc/absolute",
    "chown --reference @/etc/.hidden @/etc/hostname",
    "rm @/etc",
    "rm @/nothing",
    "rm -f @/nothing @/etc/up",
    "rm -r @/deep/er @/deep/nothing",
    "rm -d @/private",
    "rm -d @/deep",
    "rm -r @/deep/two/usr/lib",
];

#[test]
fn commands_do_what_coreutils_do_under_a_mount() {
    require!(Root, KernelExt4);
    let image = Image::new();
    let copy = copy_of(&image.path, &image.place.arg("copy.img"));
    let mount = KernelMount::mount(Path::new(&copy), Mode::ReadWrite, "");
    for line in AS_COREUTILS {
        let ours = image.run(line);
        let root = mount.path().display().to_string();
        let words = line.split(' ').map(|word| match word.strip_prefix('@') {
            Some(path) => format!("{root}{path}"),
            None => word.to_owned(),
        });
        let theirs = tool("sh")
            .args(["-c", "umask 022; exec \"$@\"", "sh"])
            .args(words)
            .run();
        assert_eq!(
            ours.code.min(1),
            theirs.code.min(1),
            "{line}: {}{theirs}",
            ours.stderr
        );
    }
    let expected = Tree::snapshot(mount.path());
    mount.unmount();
    let compare = Compare {
        mtime: false,
        nlink: true,
        ..Compare::default()
    };
    expected.assert_same(&seen_by_linux(&image.path), &compare);
}

/// As [`AS_COREUTILS`], with patterns that a shell expands under the mount, and we in the image.
const PATTERNS: &[&str] = &[
    "mkdir @/g @/g/one @/g/two",
    "touch @/g/a1 @/g/a2 @/g/b1 @/g/.hidden @/g/one/x @/g/two/x",
    "chmod 600 @/g/a* @/g/*/x",
    "chmod -R u=rwX,g= @/g/[ot]*",
    "chown 3:4 @/g/?1",
    "chown -R 5 @/g/t*",
    "touch -d @5 @/g/*",
    "mkdir @/g/o*e/deep",
    "mv @/g/b* @/usr",
    "ln @/usr/b* @/g",
    "mv @/g/[ab]1 @/g/two",
    "rm @/g/a*",
    "rm @/g/zz*",
    "rm -f @/g/zz*",
    "rm @/g/*",
    "rm -rf @/g/*",
    "rmdir @/g",
    "rm -r @/usr/l*/*.so @/usr/[p]ipe",
];

#[test]
fn patterns_mean_in_an_image_what_they_mean_under_a_mount() {
    require!(Root, KernelExt4);
    let image = Image::new();
    let copy = copy_of(&image.path, &image.place.arg("copy.img"));
    let mount = KernelMount::mount(Path::new(&copy), Mode::ReadWrite, "");
    let root = mount.path().display().to_string();
    for line in PATTERNS {
        let ours = image.run(&line.replace("rmdir", "rm -d"));
        let theirs = line.replace("@/", &format!("{root}/"));
        let script = format!("umask 022; {theirs}");
        let theirs = tool("sh").args(["-c", &script]).run();
        let (ours_code, theirs_code) = (ours.code.min(1), theirs.code.min(1));
        assert_eq!(ours_code, theirs_code, "{line}: {}{theirs}", ours.stderr);
    }
    let expected = Tree::snapshot(mount.path());
    mount.unmount();
    let compare = Compare {
        mtime: false,
        nlink: true,
        ..Compare::default()
    };
    expected.assert_same(&seen_by_linux(&image.path), &compare);
    // All that is in the root, but for what checkers need.
    let run = image.run("rm -rf @/*").ok();
    assert!(run.stderr.contains("lost+found stays"), "{}", run.stderr);
    assert_eq!(image.list("/"), ".\n..\nlost+found\n");
    image.run("rm -rf @/*").ok();
    image.run("rm -r @/lost+found").ok();
    assert_eq!(image.list("/"), ".\n..\n");
}

#[test]
fn what_is_made_gets_the_owner_and_the_permissions_that_are_asked_for() {
    require!(KernelExt4);
    let image = Image::new();
    let passwd = "me:x:1000:1001::/home/me:/bin/sh\n";
    image.write("/etc/passwd", passwd);
    image.write("/etc/group", "users:x:100:\n");
    let put = |args: &[&str]| {
        extant_with(args, |command| {
            command.write_stdin("text");
        })
    };
    image.run("mkdir -p -m 2750 --owner me: @/a/b").ok();
    image
        .run("touch --owner 7 --group users --mode 4711 @/a/f")
        .ok();
    image.run("ln -s --owner 8:9 target @/a/l").ok();
    image.run("mknod -m 2600 --group 5 @/a/p p").ok();
    put(&["write", "-m", "4750", "--owner", "me", &image.at("/a/w")]).ok();
    // What is there keeps what it has.
    image.run("touch --owner 66 --mode 600 @/a/f").ok();
    put(&["write", "--owner", "66", &image.at("/a/w")]).ok();
    std::fs::create_dir(image.place.join("d")).unwrap();
    std::fs::write(image.place.join("d/x"), "x").unwrap();
    let from = image.place.arg("d");
    image
        .run(&format!(
            "cp -r --owner me:users --mode u=rwXs,go= {from} @/a/d"
        ))
        .ok();
    image
        .run(&format!("cp -a --group 77 --mode 640 {from}/x @/a/x"))
        .ok();
    image
        .run(&format!("cp --mode 600 --owner 12 {from}/x @/a/f"))
        .ok();
    let linux = seen_by_linux(&image.path);
    for (path, owner, mode) in [
        ("a", (1000, 1001), 0o755),
        ("a/b", (1000, 1001), 0o2750),
        ("a/f", (12, 100), 0o600),
        ("a/l", (8, 9), 0o777),
        ("a/p", (0, 5), 0o2600),
        ("a/w", (1000, 0), 0o4750),
        ("a/d", (1000, 100), 0o4700),
        ("a/d/x", (1000, 100), 0o4600),
        ("a/x", (0, 77), 0o640),
    ] {
        let found = &linux.entries[path.as_bytes()];
        assert_eq!((found.uid, found.gid), owner, "{path}");
        assert_eq!(found.mode, mode, "{path}");
    }
    for (line, word) in [
        ("ln --owner 5 @/a/f @/a/g", "symbolic links"),
        ("mkdir --owner 5:6 --group 7 @/x", "says a group"),
        ("mkdir --owner nobody @/x", "nobody"),
        ("touch --mode 9 @/x", "no mode"),
    ] {
        let run = image.run(line).fails_somehow();
        assert!(run.stderr.contains(word), "{line}: {}", run.stderr);
    }
    assert!(!image.list("/").contains("x\n"), "{}", image.list("/"));
}

#[test]
fn what_was_done_is_told_when_that_is_asked_for() {
    let image = Image::new();
    let said = |line: &str| {
        let run = image.run(line).ok();
        run.text().replace(&image.path, "@")
    };
    assert_eq!(said("mkdir @/quiet"), "");
    assert_eq!(
        said("mkdir -pv @/a/b"),
        "created directory @:/a\ncreated directory @:/a/b\n"
    );
    assert_eq!(
        said("touch -v @/a/f @/etc/hostname"),
        "created @:/a/f\ntouched @:/etc/hostname\n"
    );
    assert_eq!(said("mv -v @/a/f @/a/b"), "renamed @:/a/f -> @:/a/b/f\n");
    assert_eq!(said("ln -v @/a/b/f @/a/g"), "@:/a/g => /a/b/f\n");
    assert_eq!(said("ln -sv target @/a/s"), "@:/a/s -> target\n");
    assert_eq!(said("chmod -v 600 @/a/g"), "mode of @:/a/g: 0644 -> 0600\n");
    assert_eq!(said("chown -v 3:4 @/a/g"), "owner of @:/a/g: 3:4\n");
    let flags = said("chattr -v +d @/a/g");
    assert!(flags.starts_with("flags of @:/a/g: ------d"), "{flags}");
    assert_eq!(
        said("xattr set -v @/a/g user.x y"),
        "set user.x of @:/a/g\n"
    );
    assert_eq!(
        said("xattr rm -v @/a/g user.x"),
        "removed user.x of @:/a/g\n"
    );
    assert_eq!(said("rm -v @/a/g"), "removed @:/a/g\n");
    let mut removed: Vec<String> = said("rm -rv @/a").lines().map(str::to_owned).collect();
    assert_eq!(removed.last().unwrap(), "removed directory @:/a");
    removed.sort();
    let expected = [
        "removed @:/a/b/f",
        "removed @:/a/s",
        "removed directory @:/a",
        "removed directory @:/a/b",
    ];
    assert_eq!(removed, expected);
    assert!(!image.list("/").contains("a\n"));
}

#[test]
fn mkdir_makes_what_is_missing_and_leaves_what_is_there() {
    let image = Image::new();
    image.run("mkdir -p @/etc @/a/b/c @/").ok();
    assert_eq!(image.stat("/a/b/c")["mode"], "0755");
    image.run("mkdir -p -m 700 @/a/b @/a/d").ok();
    assert_eq!(image.stat("/a/b")["mode"], "0755");
    assert_eq!(image.stat("/a/d")["mode"], "0700");
    let run = image.run("mkdir @/etc @/later").fails(1);
    assert!(run.stderr.contains("/etc: "), "{}", run.stderr);
    assert!(image.list("/").contains("later\n"), "the others are done");
    image.run("mkdir -p @/etc/hostname/x").fails(1);
    image.run("mkdir -m 999 @/x").fails(2);
}

#[test]
fn rm_needs_to_be_told_to_remove_directories_and_never_removes_the_root() {
    let image = Image::new();
    let run = image.run("rm @/usr @/etc/hostname").fails(1);
    assert!(run.stderr.contains("with -r"), "{}", run.stderr);
    assert!(
        !image.list("/etc").contains("hostname"),
        "the others are done"
    );
    for root in ["/", "/etc/..", "/etc/.", "/.."] {
        let run = image.run(&format!("rm -rf @{root}")).fails(1);
        assert!(run.stderr.contains("not removed"), "{}", run.stderr);
    }
    image.run("rm -rf @/usr @/nothing").ok();
    assert!(!image.list("/").contains("usr"));
    let run = image.run("rm @/nothing").fails(1);
    assert!(run.stderr.contains("no such file"), "{}", run.stderr);
}

#[test]
fn rm_follows_no_link() {
    let image = Image::new();
    image.run("ln -s /usr/lib @/etc/lib").ok();
    image.run("rm -r @/etc").ok();
    assert!(image.list("/usr/lib").contains("libone.so"));
}

#[test]
fn a_large_directory_goes_and_its_space_comes_back() {
    let image = Image::new();
    let free =
        |image: &Image| extant(["info", "--json", &image.path]).ok().json()["free_blocks"].clone();
    let before = free(&image);
    let from = image.place.join("many");
    std::fs::create_dir(&from).unwrap();
    for n in 0..3000 {
        std::fs::write(from.join(format!("a-file-with-a-longer-name-{n}")), "x").unwrap();
    }
    change(
        &image.path,
        ["cp", "-r", from.to_str().unwrap(), &image.at("/many")],
    )
    .ok();
    assert_eq!(image.list("/many").lines().count(), 3002);
    image.run("rm -r @/many").ok();
    assert_eq!(free(&image), before);
}

#[test]
fn files_are_moved_within_one_image_only() {
    let image = Image::new();
    let other = copy_of(&image.path, &image.place.arg("other.img"));
    let run = image.run(&format!("mv @/etc {other}:/x")).fails(2);
    assert!(run.stderr.contains("cp -a"), "{}", run.stderr);
    let run = image.run("mv @/etc/hostname @/etc/hostname").fails(1);
    assert!(run.stderr.contains("onto itself"), "{}", run.stderr);
    let run = image.run("mv @/usr @/usr/lib/x").fails(1);
    assert!(run.stderr.contains("itself"), "{}", run.stderr);
    image.run("mv @/ @/etc").fails(1);
    // Two names of one file: coreutils leave one of them.
    image.run("mv -T @/usr/lib/libone.so @/usr/lib/again").ok();
    assert_eq!(image.stat("/usr/lib/again")["links"], 1);
    assert!(!image.list("/usr/lib").contains("libone.so"));
}

#[test]
fn links_are_of_one_image_and_symbolic_targets_are_text() {
    let image = Image::new();
    let other = copy_of(&image.path, &image.place.arg("other.img"));
    image.run(&format!("ln {other}:/etc/hostname @/x")).fails(2);
    image.run("ln /etc/hostname @/x").fails(2);
    let run = image.run("ln -s @/etc/hostname @/x").fails(2);
    assert!(run.stderr.contains("write /etc/hostname"), "{}", run.stderr);
    image.run("ln -s /not/there @/etc").ok();
    assert_eq!(image.stat("/etc/there")["target"], "/not/there");
    image.run("ln -sf other @/etc/there").ok();
    assert_eq!(image.stat("/etc/there")["target"], "other");
    image.run("ln -sfT x @/usr").fails(1);
    assert!(
        !image.list("/").contains(".extant"),
        "nothing is left behind"
    );
}

#[test]
fn owners_are_looked_up_in_the_image_and_nowhere_else() {
    let image = Image::new();
    let run = image.run("chown root @/etc/hostname").fails(1);
    assert!(run.stderr.contains("/etc/passwd"), "{}", run.stderr);
    image.write("/etc/passwd", "root:x:0:0::/:\nweb:x:4242:4343::/:\n");
    image.write("/etc/group", "web:x:4343:\nadm:x:4444:\n");
    let owner = |path: &str| {
        let stat = image.stat(path);
        (stat["uid"].as_u64().unwrap(), stat["gid"].as_u64().unwrap())
    };
    image.run("chown web @/etc/hostname").ok();
    assert_eq!(owner("/etc/hostname"), (4242, 0));
    image.run("chown web: @/etc/hostname").ok();
    assert_eq!(owner("/etc/hostname"), (4242, 4343));
    image.run("chown 1:adm @/etc/link").ok();
    assert_eq!(owner("/etc/hostname"), (1, 4444), "links are followed");
    image.run("chown -h :web @/etc/link").ok();
    assert_eq!(owner("/etc/link"), (0, 4343));
    image.run("chown 4242: @/etc/link").ok();
    assert_eq!(owner("/etc/hostname"), (4242, 4343));
    let run = image.run("chown nobody @/etc/hostname").fails(1);
    assert!(run.stderr.contains("no user \"nobody\""), "{}", run.stderr);
    image.run("chown -R 9:9 @/etc").ok();
    assert_eq!(owner("/etc/link"), (9, 9));
    image.run("chown : @/etc").fails(2);
}

#[test]
fn touch_sets_the_times_it_is_told() {
    let image = Image::new();
    let times = |path: &str| {
        let stat = image.stat(path);
        let text = |what: &str| stat[what].as_str().unwrap().to_owned();
        (text("atime"), text("mtime"))
    };
    let args = [
        "touch",
        "-d",
        "2026-01-31 12:00:30.5",
        &image.at("/etc/hostname"),
    ];
    change(&image.path, args).ok();
    let moment = "2026-01-31T12:00:30.500000000Z".to_owned();
    assert_eq!(times("/etc/hostname"), (moment.clone(), moment.clone()));
    image.run("touch -a -t 197001020000 @/etc/hostname").ok();
    assert_eq!(
        times("/etc/hostname"),
        ("1970-01-02T00:00:00Z".to_owned(), moment)
    );
    image.run("touch -m -d @-1 @/etc/link").ok();
    assert_eq!(times("/etc/hostname").1, "1969-12-31T23:59:59Z");
    image.run("touch --no-dereference -d @7 @/etc/link").ok();
    assert_eq!(times("/etc/link").1, "1970-01-01T00:00:07Z");
    image.run("touch -d 2446-05-10 @/").ok();
    assert_eq!(times("/").1, "2446-05-10T00:00:00Z");
    image.run("touch -c @/not @/there").ok();
    assert!(!image.list("/").contains("not"));
    image.run("touch @/new").ok();
    assert_eq!(image.stat("/new")["mode"], "0644");
    image.run("touch -d 2500-01-01 @/new").fails(2);
    image.run("touch -d yesterday @/new").fails(2);
}

#[test]
fn standard_input_goes_to_a_file() {
    let image = Image::new();
    let write = |args: &[&str], input: &[u8]| {
        let run = extant_with(args, |command| {
            command.write_stdin(input);
        });
        assert_clean(Path::new(&image.path));
        run
    };
    let file = image.at("/new");
    let content = Content::filled(3, 5_000_001).to_bytes();
    write(&["write", "-m", "u=rw,go=", &file], &content).ok();
    assert!(extant(["cat", &file]).ok().stdout == content);
    assert_eq!(image.stat("/new")["mode"], "0600");
    write(&["write", "--append", &file], b"end").ok();
    write(&["write", "--at", "1K", &file], b"middle").ok();
    let mut expected = [&content[..], b"end"].concat();
    expected[1024..1030].copy_from_slice(b"middle");
    assert!(extant(["cat", &file]).ok().stdout == expected);
    write(&["write", &image.at("/etc/up")], b"short\n").ok();
    assert_eq!(
        extant(["cat", &image.at("/etc/hostname")]).ok().text(),
        "short\n"
    );
    write(&["write", &file], b"").ok();
    assert_eq!(image.stat("/new")["size"], 0);
    write(&["write", "--at", "1G", &file], b"far").ok();
    assert_eq!(image.stat("/new")["size"], (1u64 << 30) + 3);
    write(&["write", &image.at("/etc")], b"x").fails(1);
    write(&["write", &image.at("/no/dir")], b"x").fails(1);
    write(&["write", &image.path], b"x").fails(2);
    write(&["write", "--append", "--at", "1", &file], b"x").fails(2);
}

#[test]
fn replay_closes_an_image_that_linux_left_dirty() {
    require!(KernelExt4);
    let dirty = kernel_filled(&[], 4096, true);
    let place = Place::in_memory();
    let image = copy_of(&dirty.path().display().to_string(), &place.arg("dirty.img"));
    extant(["ls", &image]).ok();
    let untouched = std::fs::read(&image).unwrap() == std::fs::read(dirty.path()).unwrap();
    assert!(untouched, "reading leaves the image as it is");
    let told = change(&image, ["replay", "--json", &image]).ok().lines();
    assert_eq!(told[0]["replayed"], true);
    assert!(told[0]["transactions"].as_u64() > Some(0), "{told:?}");
    let compare = Compare::default();
    dirty.tree().assert_same(&seen_by_linux(&image), &compare);
    let again = change(&image, ["replay", &image]).ok().text();
    assert!(
        again.ends_with(": there was no journal to replay\n"),
        "{again}"
    );
    extant(["replay", &place.arg("gone.img"), &image]).fails(1);
}

#[test]
fn a_dirty_image_is_replayed_before_it_is_changed() {
    require!(KernelExt4);
    let dirty = kernel_filled(&[], 1024, true);
    let place = Place::in_memory();
    let image = copy_of(&dirty.path().display().to_string(), &place.arg("dirty.img"));
    change(&image, ["mkdir", &format!("{image}:/added")]).ok();
    let compare = Compare {
        ignore: vec![b"lost+found".to_vec(), b"added".to_vec()],
        root: false,
        ..Compare::default()
    };
    dirty.tree().assert_same(&seen_by_linux(&image), &compare);
}

#[test]
fn a_command_that_is_killed_leaves_an_image_that_we_and_linux_recover_alike() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    for dir in 0..20 {
        plan.dir(format!("{dir}"));
        for file in 0..100 {
            plan.file(format!("{dir}/{file}"), Content::filled(file, 5000));
        }
    }
    let from = place.planted("from", &plan);
    for milliseconds in [10, 40, 100, 250, 600] {
        let image = place.join("fs.img");
        // A small journal, so that it is committed and checkpointed many times on the way.
        mke2fs(
            &image,
            64 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        );
        let image = image.display().to_string();
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(["cp", "-r", "--threads", "2", &from, &format!("{image}:/to")])
            .spawn()
            .expect("the command runs");
        std::thread::sleep(Duration::from_millis(milliseconds));
        // It may have ended already, which is fine as well.
        let _ = child.kill();
        child.wait().expect("the command ends");
        let copy = copy_of(&image, &place.arg("copy.img"));
        KernelMount::mount(Path::new(&copy), Mode::ReadWrite, "").unmount();
        assert_clean(Path::new(&copy));
        change(&image, ["replay", &image]).ok();
        seen_by_linux(&copy).assert_same(&seen_by_linux(&image), &Compare::default());
    }
}

#[test]
fn an_image_in_use_is_left_alone() {
    let image = Image::new();
    let before = std::fs::read(&image.path).unwrap();
    let user = OpenSpec::read_write(&image.path).open().unwrap();
    for args in [
        ["mkdir", &image.at("/x")],
        ["rm", &image.at("/etc/hostname")],
        ["replay", &image.path],
    ] {
        let run = extant(args).fails(1);
        assert!(run.stderr.contains("is open elsewhere"), "{}", run.stderr);
    }
    extant(["ls", &image.path]).ok();
    drop(user);
    assert!(std::fs::read(&image.path).unwrap() == before);
    image.run("mkdir @/x").ok();
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_left_alone() {
    require!(Root, LoopDevices, KernelExt4);
    let image = Image::new();
    let mount = KernelMount::mount(Path::new(&image.path), Mode::ReadWrite, "");
    let run = extant(["mkdir", &image.at("/x")]).fails(1);
    assert!(run.stderr.contains("mounted"), "{}", run.stderr);
    mount.unmount();
    image.run("mkdir @/x").ok();
}

#[test]
fn what_cannot_be_written_is_refused_with_advice_and_left_alone() {
    let place = Place::new();
    let image = place.join("fs.img");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    debugfs_write(&image, &["feature shared_blocks"]);
    let before = std::fs::read(&image).unwrap();
    let at = format!("{}:/x", place.arg("fs.img"));
    let run = extant(["mkdir", &at]).fails(1);
    assert!(run.stderr.contains("shared_blocks"), "{}", run.stderr);
    assert!(run.stderr.contains("extant mkfs"), "{}", run.stderr);
    assert!(std::fs::read(&image).unwrap() == before);
    std::fs::write(place.join("text"), vec![b'x'; 5000]).unwrap();
    extant(["mkdir", &format!("{}:/x", place.arg("text"))]).fails(1);
    extant(["mkdir", &format!("{}:/x", place.arg("gone.img"))]).fails(1);
    let run = extant(["mkdir", &place.arg("gone.img")]).fails(2);
    assert!(run.stderr.contains("IMAGE:/path"), "{}", run.stderr);
    let run = extant(["mkdir", "--as-is", &at]).fails(2);
    assert!(run.stderr.contains("--as-is"), "{}", run.stderr);
}

#[test]
fn attributes_and_lists_are_what_linux_sees() {
    require!(LoopDevices, KernelExt4);
    let image = Image::new();
    image.run("xattr set @/etc/hostname user.origin here").ok();
    image
        .run("xattr set --create @/etc/hostname user.bytes 0x00ff")
        .ok();
    image
        .run("xattr set --create @/etc/hostname user.bytes x")
        .fails(1);
    image
        .run("xattr set @/etc/hostname user.bytes 0xf")
        .fails(2);
    image
        .run("xattr set --replace @/etc/hostname user.none x")
        .fails(1);
    image.run("xattr set @/etc/hostname trusted.t gone").ok();
    image.run("xattr rm @/etc/hostname trusted.t").ok();
    image.run("xattr rm @/etc/hostname trusted.t").fails(1);
    let list = image.run("xattr ls -l @/etc/hostname").ok().text();
    assert_eq!(list, "user.bytes=0x00ff\nuser.origin=\"here\"\n");
    let value = image.run("xattr get @/etc/hostname user.bytes").ok();
    assert_eq!(value.stdout, [0, 0xff]);
    image.run("xattr get @/etc/hostname user.none").fails(1);

    image.run("chmod 640 @/etc/hostname").ok();
    image.run("acl set u:1000:rw-,g:7:5 @/etc/hostname").ok();
    image.run("acl set -d u:1000:7 @/etc").ok();
    image.run("acl set -d u:1000:7 @/etc/hostname").fails(1);
    image.run("acl set u:nobody-knows:7 @/etc").fails(1);
    image.run("acl set x @/etc").fails(2);
    let shown = image.run("acl get @/etc/hostname").ok().text();
    let entries = "user::rw-\nuser:1000:rw-\ngroup::r--\ngroup:7:r-x\nmask::rwx\nother::---\n";
    assert!(shown.ends_with(entries), "{shown}");
    assert_eq!(image.stat("/etc/hostname")["mode"], "0670");
    let default = image.run("acl get @/etc").ok().text();
    assert!(default.contains("default:user:1000:rwx\n"), "{default}");
    let mount = KernelMount::mount(Path::new(&image.path), Mode::ReadOnly, "");
    let mut value = [0; 256];
    let file = mount.path().join("etc/hostname");
    let name = "system.posix_acl_access";
    let len = rustix::fs::getxattr(&file, name, &mut value[..]).unwrap();
    assert_eq!(len, 4 + 6 * 8);
    mount.unmount();
    image.run("acl rm @/etc/hostname").ok();
    image.run("acl rm -d @/etc").ok();
    let shown = image.run("acl get @/etc/hostname").ok().text();
    assert!(
        shown.ends_with("user::rw-\ngroup::r--\nother::---\n"),
        "{shown}"
    );
    assert!(!image.run("acl get @/etc").ok().text().contains("default"));
}

#[test]
fn flags_are_what_linux_sees_and_forbid_what_they_forbid_there() {
    require!(LoopDevices, KernelExt4);
    let image = Image::new();
    image.run("chattr +i @/etc/hostname").ok();
    let listed = image.run("lsattr @/etc/hostname").ok().text();
    assert_eq!(listed, "----i---------e------- /etc/hostname\n");
    for line in [
        "rm @/etc/hostname",
        "mv @/etc/hostname @/moved",
        "mv @/usr/lib/libone.so @/etc/hostname",
        "ln @/etc/hostname @/linked",
        "chmod 600 @/etc/hostname",
        "chown 1 @/etc/hostname",
        "touch @/etc/hostname",
        "truncate -s 0 @/etc/hostname",
        "fallocate -l 1M @/etc/hostname",
        "xattr set @/etc/hostname user.x y",
        "acl set u:1:7 @/etc/hostname",
    ] {
        let run = image.run(line).fails(1);
        assert!(
            run.stderr.contains("not permitted"),
            "{line}: {}",
            run.stderr
        );
    }
    image.run("chattr =a @/etc/hostname").ok();
    image.run("truncate -s 0 @/etc/hostname").fails(1);
    image.run("rm @/etc/hostname").fails(1);
    image.run("write @/etc/hostname").fails(1);
    image.run("write --append @/etc/hostname").ok();
    image.run("chattr -a @/etc/hostname").ok();
    image.run("chattr +i @/etc").ok();
    image.run("touch @/etc/new").fails(1);
    image.run("mkdir @/etc/new").fails(1);
    image.run("rm @/etc/hostname").fails(1);
    image.run("chattr -R =d @/etc").ok();
    image.run("touch @/etc/new").ok();
    for (line, code) in [
        ("chattr +j @/etc/hostname", 1),
        ("chattr +F @/etc", 1),
        ("chattr +? @/etc", 2),
    ] {
        image.run(line).fails(code);
    }
    image.run("chattr -e @/etc/hostname").ok();
    let listed = image.run("lsattr @/etc/hostname").ok().text();
    assert_eq!(listed, "------d--------------- /etc/hostname\n");
    image.run("chattr +e @/etc/hostname").ok();
    let mount = KernelMount::mount(Path::new(&image.path), Mode::ReadOnly, "");
    let listed = tool("lsattr").arg(mount.path().join("etc/new")).ok().text();
    mount.unmount();
    assert!(listed.starts_with("------d-------e------- "), "{listed}");
}
