//! `extant diff`: what it tells is what `diff -r` and the tools for attributes tell of two mounts.

use crate::support::{Place, Run, copy_of, extant, small_plan};
use extant_testkit::layers::Layout;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Holes, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a script run in the root of a mounted image leaves.
pub(crate) fn changed(image: &str, script: &str) {
    let mount = KernelMount::mount(Path::new(image), Mode::ReadWrite, "");
    run_in(mount.path(), script);
    mount.unmount();
    assert_clean(Path::new(image));
}

/// Runs a script in a directory.
pub(crate) fn run_in(dir: &Path, script: &str) {
    tool("sh")
        .args(["-ec", &format!("cd \"$1\"\n{script}"), "sh"])
        .arg(dir)
        .ok();
}

/// A kernel's image with a small tree that has every kind of file, and a copy of it.
fn two(place: &Place) -> [String; 2] {
    let image = place.kernel_image(&small_plan(), 64 << 20, &["-I", "256"]);
    let copy = copy_of(&image, &place.arg("other.img"));
    [image, copy]
}

pub(crate) fn diff<const N: usize>(args: [&str; N]) -> Run {
    extant(["diff"].into_iter().chain(args))
}

#[test]
fn each_kind_of_difference_has_its_letter() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let [a, b] = two(&place);
    let base = "mkdir d; echo same > d/same; for f in content size mode owner time xattr link one two \
                flags gone kind; do echo $f > d/$f; done; ln -s here d/target; \
                mknod d/device c 1 3; ln d/one d/linked; setfattr -n user.a -v 1 d/xattr; \
                find d -exec touch -h -d @1000000000 {} +";
    changed(&a, base);
    fs::copy(&a, &b).unwrap();
    let other = "cd d; echo CONTENT > content; echo longer > size; chmod 4755 mode; \
                 chown 7:8 owner; touch -d @1000000001.5 time; \
                 setfattr -n user.a -v 2 xattr; setfattr -n user.b -v 2 xattr; \
                 ln -f two linked; echo -n > new; rm gone kind device; mkdir kind; \
                 mknod device c 1 5; ln -sfn there target; \
                 chattr +d flags; \
                 find . ! -name time -exec touch -h -d @1000000000 {} +";
    changed(&b, other);
    let told = diff([&a, &b]);
    assert_eq!(told.code, 1, "{}", told.stderr);
    let expected = "\
c /d/content: from byte 0 of 8
n /d/device: 1:3, 1:5
f /d/flags: ----------------------, ------d---------------
- /d/gone: file
k /d/kind: file, directory
c /d/linked: from byte 0 of 4
m /d/mode: 0644, 4755
+ /d/new: file
l /d/one: the same as /d/linked, by itself
o /d/owner: 0:0, 7:8
c /d/size: 5 bytes, 7 bytes
s /d/target: here, there
t /d/time: 2001-09-09T01:46:40Z, 2001-09-09T01:46:41.500000000Z
l /d/two: by itself, the same as /d/linked
x /d/xattr: user.a has other values
x /d/xattr: user.b only in B
";
    let flags = told.text();
    let flags = flags.lines().find(|line| line.starts_with("f ")).unwrap();
    assert!(flags.contains('d'), "{flags}");
    let without_flags = |text: &str| -> String {
        let lines = text.lines().filter(|line| !line.starts_with("f "));
        lines.map(|line| format!("{line}\n")).collect()
    };
    assert_eq!(without_flags(&told.text()), without_flags(expected));
    // The other way round the letters of what one side has change places.
    let back = diff([&b, &a]);
    assert!(back.text().contains("+ /d/gone: file\n"), "{}", back.text());
    let brief = diff(["--brief", &a, &b]).text();
    assert!(brief.contains("\nx /d/xattr\n"), "{brief}");
    assert_eq!(brief.lines().count(), told.text().lines().count() - 1);
    // Each aspect can be left out, and compared alone.
    let letters = |run: Run| -> BTreeSet<char> {
        run.text()
            .lines()
            .filter_map(|line| line.chars().next())
            .collect()
    };
    let all: BTreeSet<char> = letters(diff([&a, &b]));
    assert_eq!(all, "-+kcsmotxlnf".chars().collect());
    let kept: BTreeSet<char> = "-+k".chars().collect();
    for (aspect, of) in [
        ("content", "cs"),
        ("modes", "m"),
        ("owners", "o"),
        ("times", "t"),
        ("xattrs", "x"),
        ("links", "l"),
        ("devices", "n"),
        ("projects", ""),
        ("flags", "f"),
    ] {
        let of: BTreeSet<char> = of.chars().collect();
        let only = letters(diff(["--only", aspect, &a, &b]));
        assert_eq!(only, &kept | &of, "{aspect}");
        let without = letters(diff(["--ignore", aspect, &a, &b]));
        assert_eq!(without, &all - &of, "{aspect}");
    }
    // For programs.
    let objects = diff(["--json", &a, &b]).lines();
    let (summary, objects) = objects.split_last().unwrap();
    assert_eq!(objects.len(), told.text().lines().count());
    assert_eq!(summary["summary"]["differences"], objects.len());
    assert_eq!(summary["summary"]["same"], false);
    let of = |path: &str| {
        objects
            .iter()
            .find(|object| object["path"] == path)
            .unwrap()
    };
    assert_eq!(of("/d/mode")["a"], "0644");
    assert_eq!(of("/d/owner")["b"]["gid"], 8);
    assert_eq!(of("/d/content")["at"], 0);
    assert_eq!(of("/d/kind")["difference"], "kind");
    let quiet = diff(["-q", &a, &b]);
    assert_eq!((quiet.code, quiet.stdout.len()), (1, 0));
}

#[test]
fn what_is_the_same_is_the_same_in_every_layout() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let [a, b] = two(&place);
    let same = diff([&a, &b]).ok();
    assert_eq!(same.text(), "");
    // Holes are zeros, whether they have blocks or not.
    changed(
        &a,
        "truncate -s 3M sparse; printf x | dd of=sparse bs=1 seek=2000000 conv=notrunc",
    );
    changed(
        &b,
        "dd if=/dev/zero of=sparse bs=1M count=3; fallocate -l 3M sparse; \
         printf x | dd of=sparse bs=1 seek=2000000 conv=notrunc; sync",
    );
    let same = diff(["--ignore", "times", &a, &b]).ok();
    assert_eq!(same.text(), "");
    changed(&b, "printf y | dd of=sparse bs=1 seek=2999999 conv=notrunc");
    let told = diff(["--ignore", "times", &a, &b]);
    assert_eq!(told.text(), "c /sparse: from byte 2999999 of 3145728\n");
    changed(
        &b,
        "printf '\\0' | dd of=sparse bs=1 seek=2999999 conv=notrunc",
    );
    // Other blocks, other places, content in inodes.
    for options in [
        &["--block-size", "1K"][..],
        &["--features", "inline_data"],
        &["--features", "^extents,^64bit"],
    ] {
        let made = place.arg("made.img");
        let args = [
            &[
                "mkfs", "-q", "--force", "--size", "96M", &*made, "--from", &*a,
            ],
            options,
        ];
        extant(args.concat()).ok();
        let told = diff(["--ignore", "projects", &a, &made]);
        assert_eq!(
            (told.code, told.text()),
            (0, String::new()),
            "{options:?} {}",
            told.stderr
        );
        let text = diff(["--stat", &a, &made]).ok().text();
        assert!(text.starts_with("0 differences; "), "{text}");
    }
    // A directory of the host, with nothing in lost+found.
    let mount = KernelMount::mount(Path::new(&a), Mode::Untouched, "");
    let dir = mount.path().display().to_string();
    let told = diff([&dir, &a]);
    assert_eq!(
        (told.code, told.text()),
        (0, String::new()),
        "{}",
        told.stderr
    );
    let told = diff([&dir, &dir]);
    assert_eq!(
        (told.code, told.text()),
        (0, String::new()),
        "{}",
        told.stderr
    );
    mount.unmount();
}

/// The names that `diff -r` tells of, with how: only on a side, or different.
fn of_diff(a: &Path, b: &Path) -> BTreeSet<(char, String)> {
    let output = std::process::Command::new("diff")
        .args(["-rq", "--no-dereference"])
        .args([a, b])
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    assert!(output.status.code().unwrap() < 2);
    let below = |path: &str, root: &Path| {
        let root = root.display().to_string();
        path.strip_prefix(&root).unwrap_or(path).to_owned()
    };
    let mut found = BTreeSet::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(rest) = line.strip_prefix("Only in ") {
            let (dir, name) = rest.split_once(": ").unwrap();
            let is_first = Path::new(dir).starts_with(a);
            let root = if is_first { a } else { b };
            let sign = if is_first { '-' } else { '+' };
            found.insert((sign, format!("{}/{name}", below(dir, root))));
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let path = words
            .iter()
            .find(|word| Path::new(word).starts_with(a))
            .unwrap();
        // It tells of all devices and pipes that they are what they are.
        let is_same_kind = line.contains(" while ") && {
            let (one, other) = line.split_once(" while ").unwrap();
            one.split_once(" is a ").unwrap().1 == other.split_once(" is a ").unwrap().1
        };
        if !is_same_kind {
            found.insert(('c', below(path, a)));
        }
    }
    found
}

/// The names that `extant diff` tells of, in the same form.
fn of_extant(a: &str, b: &str) -> BTreeSet<(char, String)> {
    let told = diff(["--only", "content", a, b]);
    assert!(told.code < 2, "{}", told.stderr);
    let lines = told.text();
    let lines = lines.lines().map(|line| {
        let (letter, rest) = line.split_once(' ').unwrap();
        let path = rest.split(": ").next().unwrap();
        let letter = match letter {
            "k" | "s" => "c",
            other => other,
        };
        (letter.chars().next().unwrap(), path.to_owned())
    });
    lines.collect()
}

/// A tree of some hundred files, changed at random.
pub(crate) const GROWN: &str = "for d in a b c a/x a/y b/z; do mkdir -p $d; for n in 1 2 3 4 5 6 7 8 9; do \
                     head -c $((n * n * 900)) /dev/urandom > $d/f$n; ln -s f$n $d/s$n; done; \
                     ln $d/f1 $d/h1; ln $d/f2 $d/h2; mkdir $d/empty; done; \
                     truncate -s 5M a/holes; find . -exec touch -h -d @1500000000 {} +";

/// A script that changes the tree in a way that a number chooses, with times that no other sets.
pub(crate) fn change_of(mut number: u64) -> String {
    let own = number % 1_000_000;
    let mut next = |most: u64| {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number % most
    };
    let dirs = ["a", "b", "c", "a/x", "a/y", "b/z"];
    // What was changed before may be in the way.
    let mut script = "set +e\n".to_owned();
    for step in 0..40 {
        let dir = dirs[next(6) as usize];
        let (one, other) = (next(9) + 1, next(9) + 1);
        script += &match next(14) {
            0 => format!("rm -f {dir}/f{one}\n"),
            1 => format!("echo {step} > {dir}/n{one}\n"),
            2 => format!(
                "printf {step} | dd of={dir}/f{one} bs=1 seek=$(({one} * 800)) conv=notrunc\n"
            ),
            3 => format!("ln -sfn new{step} {dir}/s{one}\n"),
            4 => format!("rm -rf {dir}/f{one}; mkdir {dir}/f{one}; echo > {dir}/f{one}/in\n"),
            5 => {
                format!("rm -f {dir}/s{one}; cp -a {dir}/h1 {dir}/s{one} || echo > {dir}/s{one}\n")
            }
            6 => format!("chmod {one}{other}5 {dir}/h1 || :\n")
                .replace('8', "7")
                .replace('9', "6"),
            7 => format!("chown {one}:{other} {dir}/h2 || :\n"),
            8 => format!("touch -d @15{own:06}{one}0 {dir}/h1 || :\n"),
            9 => format!("rm -f {dir}/h1; cp -a {dir}/f1 {dir}/h1 || echo > {dir}/h1\n"),
            10 => format!("[ -d {dir}/f{one} ] || ln -f {dir}/h2 {dir}/f{one} || :\n"),
            11 => format!("truncate -s {step}00 {dir}/f{one} || :\n"),
            12 => format!("rmdir {dir}/empty && echo > {dir}/empty || :\n"),
            _ => format!("setfattr -n user.k{one} -v {step} {dir}/h2 || :\n"),
        };
    }
    script + "set -e\n"
}

#[test]
fn the_verdict_is_that_of_diff_and_of_mtree_for_trees_changed_at_random() {
    require!(KernelExt4);
    let seed = extant_testkit::rng::seed_from_env("comparing");
    for round in 0..6 {
        let number = seed.wrapping_add(round * 7919) | 1;
        eprintln!("round {round}");
        let place = Place::in_memory();
        let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
        mke2fs(Path::new(&a), 96 << 20, &["-t", "ext4"]);
        changed(&a, GROWN);
        // In the odd rounds the content lies elsewhere.
        if round % 2 == 0 {
            copy_of(&a, &b);
        } else {
            extant(["mkfs", "-q", "--size", "128M", &b, "--from", &a]).ok();
        }
        changed(&b, &change_of(number));
        let one = KernelMount::mount(Path::new(&a), Mode::Untouched, "");
        let other = KernelMount::mount(Path::new(&b), Mode::Untouched, "");
        let expected = of_diff(one.path(), other.path());
        assert!(expected.len() > 5, "{expected:?}");
        assert_eq!(of_extant(&a, &b), expected);
        // Whatever the sides are.
        let dir = one.path().display().to_string();
        assert_eq!(of_extant(&dir, &b), expected);
        let full = |a: &str| {
            let told = diff(["--ignore", "projects,flags", a, &b]);
            (told.code, told.text())
        };
        assert_eq!(full(&dir), full(&a));
        one.unmount();
        other.unmount();
        assert_eq!(of_mtree(&a, &b), attributes_of_extant(&a, &b));
    }
}

/// The paths of which our own specifications say different things, where both have them as one
/// kind.
fn of_mtree(a: &str, b: &str) -> BTreeSet<String> {
    let lines = |image: &str| -> BTreeMap<String, BTreeMap<String, String>> {
        let text = extant(["ls", "-R", "--mtree", image]).ok().text();
        let lines = text.lines().filter(|line| line.starts_with('.'));
        lines
            .map(|line| {
                let (path, rest) = line.split_once(' ').unwrap_or((line, ""));
                let words = rest.split(' ').filter_map(|word| word.split_once('='));
                let words = words.map(|(key, value)| (key.to_owned(), value.to_owned()));
                (path.to_owned(), words.collect())
            })
            .collect()
    };
    let (one, other) = (lines(a), lines(b));
    assert!(one.len() > 100, "{}", one.len());
    let mut told = BTreeSet::new();
    for (path, words) in &one {
        let Some(others) = other.get(path) else {
            continue;
        };
        if words.get("type") != others.get("type") {
            continue;
        }
        let is_link = words.get("type").is_some_and(|kind| kind == "link");
        let differs = ["uid", "gid", "mode", "time", "link", "device"]
            .iter()
            .any(|key| !(is_link && *key == "mode") && words.get(*key) != others.get(*key));
        if differs {
            told.insert(path.trim_start_matches('.').to_owned());
        }
    }
    told
}

fn attributes_of_extant(a: &str, b: &str) -> BTreeSet<String> {
    let told = diff(["--json", "--ignore", "xattrs,links,projects,flags", a, b]).lines();
    let kinds = ["mode", "owner", "time", "target", "device"];
    let told = told.iter().filter(|object| {
        let kind = object["difference"].as_str();
        kind.is_some_and(|kind| kinds.contains(&kind))
    });
    told.map(|object| object["path"].as_str().unwrap().trim_start_matches('/'))
        .map(|path| {
            if path.is_empty() {
                String::new()
            } else {
                format!("/{path}")
            }
        })
        .collect()
}

#[test]
fn projects_are_compared_between_images() {
    let place = Place::in_memory();
    let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
    mke2fs(
        Path::new(&a),
        16 << 20,
        &["-t", "ext4", "-O", "project,quota"],
    );
    extant(["write", &format!("{a}:/f")]).ok();
    copy_of(&a, &b);
    extant(["chattr", "-p", "42", &format!("{b}:/f")]).ok();
    assert_eq!(diff([&a, &b]).text(), "p /f: 0, 42\n");
    assert_eq!(diff(["--ignore", "projects", &a, &b]).ok().text(), "");
}

#[test]
fn blocks_are_compared_where_that_is_asked_for() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let [a, b] = two(&place);
    diff(["--blocks", &a, &b]).ok();
    debugfs_write(Path::new(&b), &["ssv mkfs_time 20200101000000"]);
    changed(
        &a,
        "head -c 20000 /dev/zero | tr '\\0' x > moved; touch -d @1000000000 moved .",
    );
    changed(
        &b,
        "echo > before; head -c 20000 /dev/zero | tr '\\0' x > moved; sync; rm before; \
         touch -d @1000000000 moved .",
    );
    let told = diff(["--blocks", &a, &b]);
    assert_eq!(told.code, 1, "{}", told.stderr);
    let text = told.text();
    assert!(text.contains("g Filesystem created: "), "{text}");
    let line = text.lines().find(|line| line.starts_with("b /moved: "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let shown = |image: &str| {
        let blocks = extant_testkit::oracle::debugfs(Path::new(image), "blocks /moved");
        let first = blocks.split_whitespace().next().unwrap().to_owned();
        let count = blocks.split_whitespace().count();
        format!("{first}+{count}")
    };
    assert_eq!(line, format!("b /moved: {}, {}", shown(&a), shown(&b)));
    // The content is the same, and so is everything else.
    assert_eq!(diff([&a, &b]).ok().text(), "");
    let objects = diff(["--blocks", "--json", &a, &b]).lines();
    let moved = objects
        .iter()
        .find(|object| object["path"] == "/moved")
        .unwrap();
    assert_eq!(moved["same_content"], true);
    let refused = diff(["--blocks", &a, &place.arg("")]).fails(2).stderr;
    assert!(refused.contains("two images"), "{refused}");
}

#[test]
fn what_cannot_be_compared_is_trouble_and_no_verdict() {
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &[]);
    let copy = copy_of(&image, &place.arg("copy.img"));
    fs::write(place.join("note"), "text").unwrap();
    let note = place.arg("note");
    let dir = place.arg("source");
    for (a, b, about) in [
        (&*image, &*note, "is a file without a file system"),
        (&*note, &*dir, "is a directory"),
        (&*image, &*format!("{copy}:/none"), "/none"),
        (&*image, "/none/at/all", "/none/at/all"),
    ] {
        let said = diff([a, b]).fails(2).stderr;
        assert!(said.contains(about), "{said}");
    }
    diff(["--only", "nonsense", &image, &copy]).fails_somehow();
    // Two files are compared as files.
    fs::write(place.join("other"), "teXt").unwrap();
    let told = diff(["--only", "content", &note, &place.arg("other")]);
    assert_eq!((told.code, &*told.text()), (1, "c /: from byte 2 of 4\n"));
    // A directory that cannot be read leaves the rest to be compared.
    debugfs_write(
        Path::new(&copy),
        &[
            "sif /usr/lib block[5] 0x7fffffff",
            "sif /etc/hostname mode 0100700",
        ],
    );
    let told = diff(["--ignore", "times", &image, &copy]);
    assert_eq!(told.code, 2, "{}", told.text());
    assert!(told.stderr.contains("copy.img"), "{}", told.stderr);
    assert!(told.text().contains("m /etc/hostname: "), "{}", told.text());
}

#[test]
fn patterns_leave_out_what_matches_on_either_side() {
    let place = Place::in_memory();
    let run = |name: &str, script: &str| {
        let dir = place.join(name);
        fs::create_dir_all(&dir).unwrap();
        run_in(&dir, script);
    };
    run(
        "a",
        "mkdir -p keep cache/sub; echo 1 > keep/x.o; echo 1 > keep/x.c; echo > cache/sub/f",
    );
    run(
        "b",
        "mkdir -p keep; echo 2 > keep/x.o; echo 1 > keep/x.c; echo 3 > keep/y.o",
    );
    let [a, b] = ["a", "b"].map(|name| place.arg(name));
    let told = diff(["--only", "content", &a, &b]);
    assert_eq!(
        told.text(),
        "- /cache: directory\nc /keep/x.o: from byte 0 of 2\n+ /keep/y.o: file\n"
    );
    let args = [
        "--only",
        "content",
        "--exclude",
        "*.o",
        "--exclude",
        "/cache/",
        &a,
        &b,
    ];
    assert_eq!(diff(args).ok().text(), "");
}

#[test]
fn a_name_of_any_bytes_is_told_without_loss() {
    let place = Place::in_memory();
    for name in ["a", "b"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    let odd = std::ffi::OsStr::from_bytes(b"b\xff\n\x1b[2J");
    fs::write(place.join("a").join(odd), "").unwrap();
    let told = diff([
        "--json",
        "--ignore",
        "times",
        &place.arg("a"),
        &place.arg("b"),
    ]);
    let object = &told.lines()[0];
    assert_eq!(object["path_hex"], "2f62ff0a1b5b324a");
    assert_eq!(object["difference"], "only-in-a");
}

/// What a layer has, by the names of its members.
fn members(layer: &str) -> Vec<String> {
    let listed = tool("tar").args(["-tf", layer]).ok().text();
    listed.lines().map(str::to_owned).collect()
}

/// What `umoci` unpacks of layers.
fn unpacked(place: &Place, name: &str, layers: &[Vec<u8>]) -> Tree {
    let layout = Layout::of(place.join(&format!("{name}-layout")), layers);
    let bundle = place.arg(name);
    tool("umoci")
        .args(["unpack", "--image"])
        .arg(format!("{}:t", layout.0.display()))
        .arg(&bundle)
        .ok();
    Tree::snapshot(&place.join(name).join("rootfs"))
}

/// The tree of a mounted image as one layer, by GNU tar.
fn whole(mount: &Path) -> Vec<u8> {
    let tar = tool("tar")
        .args(["--format=pax", "--xattrs", "--xattrs-include=*", "-C"])
        .arg(mount)
        .args(["-c", "."])
        .ok();
    tar.stdout
}

#[test]
fn a_layer_of_the_difference_makes_the_one_of_the_other() {
    require!(KernelExt4);
    let seed = extant_testkit::rng::seed_from_env("layers");
    let alike = Compare {
        holes: Holes::Ignore,
        ..Compare::default()
    };
    for round in 0..4 {
        eprintln!("round {round}");
        let place = Place::in_memory();
        let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
        mke2fs(Path::new(&a), 96 << 20, &["-t", "ext4"]);
        changed(&a, GROWN);
        copy_of(&a, &b);
        let more = "mknod null c 1 3; mkfifo pipe; setfacl -m u:7:r a/f3; chmod 4755 a/f4; \
                    setcap cap_net_raw+ep b/f3; touch -h -d @1600000000.25 a/s3; \
                    rm -rf c/empty; ln -s nowhere c/empty; \
                    mkdir -p very/$(printf '%0120d' 7)/deep; echo > very/$(printf '%0120d' 7)/deep/f";
        let script = change_of(seed.wrapping_add(round * 104_729) | 1);
        changed(
            &b,
            &format!(
                "{script}\n[ -d a/f3 ] && rm -r a/f3; [ -d b/f3 ] && rm -r b/f3; \
                              [ -d a/f4 ] && rm -r a/f4; touch a/f3 b/f3 a/f4\n{more}"
            ),
        );
        let layer = place.arg("layer.tar");
        diff(["--oci-layer", &layer, &a, &b]).ok();
        let bytes = fs::read(&layer).unwrap();
        let expected = {
            let mount = KernelMount::mount(Path::new(&b), Mode::Untouched, "");
            let tree = Tree::snapshot(mount.path());
            mount.unmount();
            tree
        };
        // By the program of others, over the whole of the first.
        let mount = KernelMount::mount(Path::new(&a), Mode::Untouched, "");
        let base = whole(mount.path());
        // A directory of the host is a base as well as an image.
        let dir = mount.path().display().to_string();
        let of_dir = place.arg("of-dir.tar");
        diff(["--oci-layer", &of_dir, &dir, &b]).ok();
        mount.unmount();
        assert!(fs::read(&of_dir).unwrap() == bytes);
        expected.assert_same(&unpacked(&place, "bundle", &[base, bytes.clone()]), &alike);
        // By ourselves.
        let applied = copy_of(&a, &place.arg("applied.img"));
        extant(["apply", "-q", &layer, &applied]).ok();
        assert_clean(Path::new(&applied));
        let told = diff([&applied, &b]);
        assert_eq!(
            (told.code, told.text()),
            (0, String::new()),
            "{}",
            told.stderr
        );
        // Compressed as the name says, with the same bytes, and on standard output.
        for (name, program) in [("l.tar.gz", "gzip"), ("l.tar.zst", "zstd")] {
            let packed = place.arg(name);
            diff(["--oci-layer", &packed, &a, &b]).ok();
            let plain = tool(program).args(["-dc", &packed]).ok().stdout;
            assert!(plain == bytes, "{name}");
        }
        let out = diff(["--oci-layer", "-", &a, &b]).ok();
        assert!(out.stdout == bytes);
        // Nothing differs from itself.
        let empty = place.arg("empty.tar");
        diff(["--oci-layer", &empty, &b, &b]).ok();
        assert_eq!(members(&empty), ["./"]);
    }
}

#[test]
fn a_layer_has_what_differs_and_no_more() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
    mke2fs(Path::new(&a), 32 << 20, &["-t", "ext4"]);
    let base = "mkdir -p d/e same; echo 1 > d/e/f; echo 1 > d/gone; echo 1 > same/f; \
                echo 1 > was; echo 1 > l1; ln l1 l2; mkdir was-dir; echo > was-dir/f; \
                find . -exec touch -h -d @1000000000 {} +";
    changed(&a, base);
    copy_of(&a, &b);
    changed(
        &b,
        "echo 2 > d/e/f; rm d/gone was; mkdir was; echo > was/new; ln l2 l3; rm -r was-dir; \
         echo > was-dir; find . -exec touch -h -d @1000000000 {} +",
    );
    let layer = place.arg("layer.tar");
    diff(["--oci-layer", &layer, &a, &b]).ok();
    let expected = [
        "./",
        "d/",
        "d/.wh.gone",
        "d/e/",
        "d/e/f",
        "l1",
        "l2",
        "l3",
        "was/",
        "was/.wh..wh..opq",
        "was/new",
        "was-dir",
    ];
    assert_eq!(members(&layer), expected);
    // What no layer can hold is refused or told.
    changed(&b, "echo > d/.wh.odd");
    let said = diff(["--oci-layer", &layer, &a, &b]).fails(2).stderr;
    assert!(said.contains("d/.wh.odd"), "{said}");
    assert_eq!(members(&layer), expected);
    changed(
        &b,
        "rm d/.wh.odd; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
    );
    let said = diff(["--oci-layer", &layer, &a, &b]).fails(2).stderr;
    assert!(said.contains("socket"), "{said}");
    let said = diff(["--oci-layer", &layer, &a, &place.arg("")])
        .fails(2)
        .stderr;
    assert!(said.contains("extant mkfs"), "{said}");
    diff(["--oci-layer", &place.arg("layer.tar.xz"), &a, &b]).fails(2);
    diff(["--oci-layer", &a, &a, &b]).fails(2);
    assert_clean(Path::new(&a));
}

#[test]
fn a_layer_has_nothing_that_is_excluded_and_takes_away_what_became_a_socket() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
    mke2fs(Path::new(&a), 32 << 20, &["-t", "ext4"]);
    changed(
        &a,
        "echo > .wh.odd; mkdir d; echo > d/s; find . -exec touch -d @1000000000 {} +",
    );
    copy_of(&a, &b);
    changed(
        &b,
        "mkdir -p new/cache new/in; for f in new/f new/f.o new/cache/c new/in/g.o new/in/g; do \
         echo $f > $f; done; ln new/f new/linked.o; ln new/f old.o; \
         find . -exec touch -d @1000000000 {} +",
    );
    let layer = place.arg("layer.tar");
    let excludes = ["--exclude", "*.o", "--exclude", "cache/"];
    let write =
        |more: &[&str]| extant([&["diff", "--oci-layer", &layer], more, &[&a, &b]].concat());
    write(&excludes).ok();
    let expected = ["./", "new/", "new/f", "new/in/", "new/in/g"];
    assert_eq!(members(&layer), expected);
    let applied = copy_of(&a, &place.arg("applied.img"));
    extant(["apply", "-q", &layer, &applied]).ok();
    assert_clean(Path::new(&applied));
    let told = extant([&["diff"][..], &excludes, &[&applied, &b]].concat());
    assert_eq!((told.code, told.text()), (0, String::new()));
    // What became a socket is no longer what it was.
    changed(
        &b,
        "rm -r new old.o d/s; cd d; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'; \
         cd ..; find . -exec touch -d @1000000000 {} +",
    );
    let said = write(&[]).fails(2).stderr;
    assert!(said.contains("socket"), "{said}");
    assert_eq!(members(&layer), ["./", "d/", "d/.wh.s"]);
    // No name says that a name of layers is gone.
    changed(&b, "rm .wh.odd d/s");
    let said = write(&[]).fails(2).stderr;
    assert!(said.contains("/.wh.odd") && said.contains("gone"), "{said}");
    write(&["--exclude", ".wh.odd"]).ok();
}

#[test]
fn a_closed_pipe_does_not_change_the_verdict() {
    let place = Place::in_memory();
    for name in ["a", "b"] {
        fs::create_dir(place.join(name)).unwrap();
        fs::write(place.join(name).join("f"), name).unwrap();
        for number in 0..3000 {
            fs::write(place.join(name).join(format!("{name}{number}")), "").unwrap();
        }
    }
    let bin = env!("CARGO_BIN_EXE_extant");
    let code = |args: &str| {
        let script = format!("{bin} diff {args} | true; exit ${{PIPESTATUS[0]}}");
        let status = std::process::Command::new("bash")
            .args(["-c", &script])
            .current_dir(place.path())
            .status();
        status.unwrap().code()
    };
    assert_eq!(code("a b"), Some(1));
    assert_eq!(code("--json a b"), Some(1));
    assert_eq!(code("--json a a"), Some(0));
    assert_eq!(code("--stat a b"), Some(1));
    assert_eq!(code("--oci-layer - a b"), Some(2));
}

#[test]
fn directories_in_circles_and_names_twice_are_told_and_end() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-O", "^metadata_csum"]);
    let copy = copy_of(&image, &place.arg("copy.img"));
    debugfs_write(
        Path::new(&copy),
        &["link /etc /usr/lib/circle", "link /usr /usr/lib/above"],
    );
    for (a, b) in [(&copy, &copy), (&image, &copy), (&copy, &image)] {
        let told = diff(["--ignore", "times", a, b]);
        assert!(matches!(told.code, 1 | 2), "{}: {}", told.code, told.stderr);
    }
    let told = diff([&copy, &copy]).fails(2);
    assert!(told.stderr.contains("second place"), "{}", told.stderr);
    diff(["--oci-layer", &place.arg("layer.tar"), &image, &copy]).fails_somehow();
    let target = copy_of(&image, &place.arg("target.img"));
    extant(["sync", "--delete", &copy, &format!("{target}:/")]).fails(1);
    assert_clean(Path::new(&target));
}
