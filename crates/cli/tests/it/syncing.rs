//! `extant sync`: one directory like another, by what differs alone, judged by `rsync` and
//! `extant diff` over the two.

use crate::comparing::{GROWN, change_of, changed, diff, run_in};
use crate::support::{Place, Run, copy_of, extant, small_plan};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, e2fsck_recover_beside, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

fn sync<const N: usize>(args: [&str; N]) -> Run {
    extant(["sync"].into_iter().chain(args))
}

/// Expects that `rsync` would change nothing.
#[track_caller]
fn assert_rsync_is_content(source: &Path, image: &str, dir: &str) {
    let mount = KernelMount::mount(Path::new(image), Mode::Untouched, "");
    let from = format!("{}/", source.display());
    let to = format!("{}{dir}/", mount.path().display());
    let run = tool("rsync")
        .args(["-aniHAX", "--delete", "--exclude=/lost+found", &from, &to])
        .ok();
    mount.unmount();
    assert_eq!(run.text(), "");
}

/// The inode number of a file of an image.
fn number_of(image: &str, path: &str) -> u64 {
    let stat = extant(["stat", "--json", &format!("{image}:{path}")]).ok();
    stat.json()["inode"].as_u64().unwrap()
}

#[test]
fn a_tree_changed_at_random_becomes_what_the_other_is() {
    require!(KernelExt4);
    let seed = extant_testkit::rng::seed_from_env("syncing");
    for round in 0..5 {
        eprintln!("round {round}");
        let place = Place::in_memory();
        let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
        mke2fs(Path::new(&a), 96 << 20, &["-t", "ext4"]);
        changed(&a, GROWN);
        copy_of(&a, &b);
        let number = seed.wrapping_add(round * 15_485_863) | 1;
        changed(&a, &change_of(number.rotate_left(17) | 1));
        let more = "mknod null c 1 3; mkfifo pipe; ln pipe pipe2; touch -h -d @1600000000.25 a/s3; \
                    chattr +d b/h2; chown -h 5:6 a/y/s2; \
                    setfacl -m u:7:r c/h1; setcap cap_net_raw+ep c/h2; setfattr -n user.d -v 1 a/x";
        changed(&b, &format!("{}\n{more}", change_of(number)));
        let from = KernelMount::mount(Path::new(&b), Mode::Untouched, "");
        let dir = from.path().display().to_string();
        // Out of a directory of the host.
        let one = copy_of(&a, &place.arg("one.img"));
        let dry = sync(["-n", "--delete", "--json", &dir, &format!("{one}:/")])
            .ok()
            .json();
        assert!(fs::read(&one).unwrap() == fs::read(&a).unwrap());
        let wet = sync(["--delete", "--json", &dir, &format!("{one}:/")])
            .ok()
            .json();
        for key in ["made", "replaced", "removed", "described", "bytes"] {
            assert_eq!(dry[key], wet[key], "{key}");
        }
        assert_clean(Path::new(&one));
        let told = diff([&dir, &one]);
        assert_eq!(
            (told.code, told.text()),
            (0, String::new()),
            "{}",
            told.stderr
        );
        assert_rsync_is_content(from.path(), &one, "");
        // Out of an image, with what only images have.
        let two = copy_of(&a, &place.arg("two.img"));
        sync(["-q", "--delete", "--checksum", &b, &format!("{two}:/")]).ok();
        assert_clean(Path::new(&two));
        let told = diff([&b, &two]);
        assert_eq!(
            (told.code, told.text()),
            (0, String::new()),
            "{}",
            told.stderr
        );
        assert_rsync_is_content(from.path(), &two, "");
        // Into a directory that is not there.
        sync(["-q", &dir, &format!("{two}:/new")]).ok();
        assert_clean(Path::new(&two));
        let exclude = ["--exclude", "lost+found"];
        let told = extant([&["diff"][..], &exclude, &[&dir, &format!("{two}:/new")]].concat());
        assert_eq!(
            (told.code, told.text()),
            (0, String::new()),
            "{}",
            told.stderr
        );
        // A second time there is nothing to do.
        let again = sync(["--delete", "--json", &dir, &format!("{one}:/")])
            .ok()
            .json();
        for key in ["made", "replaced", "removed", "described", "bytes"] {
            assert_eq!(again[key], 0, "{key}");
        }
        from.unmount();
    }
}

#[test]
fn what_does_not_differ_stays_where_it_is() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    let source = place.join("source");
    fs::create_dir(&source).unwrap();
    let script = "mkdir d; for n in same mode content touched; do echo $n > d/$n; done; \
                  ln d/same d/linked; find . -exec touch -d @1000000000 {} +";
    run_in(&source, script);
    let dir = place.arg("source");
    let dest = format!("{image}:/");
    sync(["-q", &dir, &dest]).ok();
    let numbers = |image: &str| {
        ["same", "mode", "content", "touched"].map(|name| number_of(image, &format!("/d/{name}")))
    };
    let before = numbers(&image);
    run_in(
        &source,
        "chmod 600 d/mode; echo CONTENT > d/content; touch -d @1000000005 d/touched; \
         ln d/same d/again; touch -d @1000000000 d d/content",
    );
    // Of the same size and time: taken for the same, unless that is looked into.
    let told = sync(["--json", &dir, &dest]).ok().json();
    assert_eq!(
        (&told["made"], &told["replaced"], &told["bytes"]),
        (&1.into(), &0.into(), &0.into())
    );
    assert_eq!(numbers(&image), before);
    assert_eq!(number_of(&image, "/d/again"), before[0]);
    assert_eq!(diff(["--ignore", "content", &dir, &image]).ok().text(), "");
    let told = sync(["--json", "--checksum", &dir, &dest]).ok().json();
    assert_eq!(
        (&told["made"], &told["replaced"], &told["bytes"]),
        (&1.into(), &1.into(), &8.into())
    );
    let after = numbers(&image);
    assert_ne!(after[2], before[2]);
    assert_eq!(
        (after[0], after[1], after[3]),
        (before[0], before[1], before[3])
    );
    assert_eq!(diff([&dir, &image]).ok().text(), "");
    assert_clean(Path::new(&image));
}

#[test]
fn what_the_source_does_not_have_goes_with_delete_only() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    changed(
        &image,
        "mkdir -p d/kept.o x way; echo > d/old; echo > x/f; echo > way/f; echo > lost+found/f",
    );
    let source = place.join("from");
    fs::create_dir(&source).unwrap();
    run_in(
        &source,
        "mkdir d; echo > d/new; echo > way; echo > d/left.o",
    );
    let dir = place.arg("from");
    let dest = format!("{image}:/");
    let at = |path: &str| extant(["stat", &format!("{image}:{path}")]).code == 0;
    let said = sync(["--exclude", "*.o", &dir, &dest]).fails(1).stderr;
    assert!(said.contains("--delete") && said.contains("/way"), "{said}");
    assert_clean(Path::new(&image));
    assert!(at("/d/new") && at("/d/old") && at("/x/f") && at("/way/f") && !at("/d/left.o"));
    let text = sync(["-n", "--delete", "--exclude", "*.o", &dir, &dest])
        .ok()
        .text();
    let expected = format!(
        "remove /x\nremove /d/old\nreplace /way\nset /\nset /d\n{image}: would be made: 1 (1 byte), \
         replaced: 1, removed: 2, set: 2\n"
    );
    assert_eq!(text.replace("1 bytes", "1 byte"), expected);
    sync(["-q", "--delete", "--exclude", "*.o", &dir, &dest]).ok();
    assert_clean(Path::new(&image));
    assert!(!at("/d/old") && !at("/x") && at("/d/kept.o") && at("/lost+found/f"));
    let told = diff(["--exclude", "*.o", "--exclude", "/lost+found", &dir, &image]);
    assert_eq!(
        (told.code, told.text()),
        (0, String::new()),
        "{}",
        told.stderr
    );
    // What cannot be read is not taken for gone.
    let other = place.image(&small_plan(), &[]);
    let copy = copy_of(&other, &place.arg("copy.img"));
    debugfs_write(Path::new(&other), &["sif /usr/lib block[5] 0x7fffffff"]);
    let said = sync(["--delete", &other, &format!("{copy}:/")])
        .fails(1)
        .stderr;
    assert!(said.contains("nothing is removed"), "{said}");
    extant(["stat", &format!("{copy}:/usr/lib/libone.so")]).ok();
    assert_clean(Path::new(&copy));
}

#[test]
fn what_cannot_be_done_is_refused_and_nothing_is_changed() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 16 << 20, &["-t", "ext4"]);
    changed(
        &image,
        "mkdir d fixed fixed/in; echo 1 > d/f; echo 1 > fixed/f; echo > file; ln -s d link",
    );
    extant(["chattr", "+i", &format!("{image}:/fixed/f")]).ok();
    let source = |name: &str, script: &str| {
        fs::create_dir(place.join(name)).unwrap();
        run_in(&place.join(name), script);
        place.arg(name)
    };
    let large = source(
        "large",
        "mkdir d; head -c 20000000 /dev/zero | tr '\\0' x > d/large; echo > d/g",
    );
    let fixed = source("fixed", "mkdir fixed; echo 22 > fixed/f; echo > g");
    let gone = source("gone", "mkdir d; echo > g");
    let lost = source("lost", "echo > lost+found");
    let note = place.arg("note");
    fs::write(&note, "").unwrap();
    let before = fs::read(&image).unwrap();
    let dest = format!("{image}:/");
    for (args, code, why) in [
        (&[&*large, &*dest][..], 1, "are free"),
        (&[&fixed, &dest], 1, "chattr -ia"),
        (&["--delete", &gone, &dest], 1, "chattr -ia"),
        (&[&lost, &dest], 1, "checkers"),
        (&[&note, &dest], 2, "cp -a"),
        (&[&gone, &note], 2, "IMAGE:/path"),
        (&[&gone, &format!("{image}:/file")], 1, "is no directory"),
        (&[&gone, &format!("{image}:/none/none")], 1, "none"),
        (&[&format!("{image}:/d"), &dest], 1, "lie in each other"),
        (&[&dest, &format!("{image}:/d")], 1, "lie in each other"),
    ] {
        let said = extant([&["sync"], args].concat()).fails(code).stderr;
        assert!(said.contains(why), "{why}: {said}");
        assert_clean(Path::new(&image));
        let told = extant(["ls", "-R", "--mtree", &image]).ok().text();
        fs::write(place.join("now.img"), &before).unwrap();
        let was = extant(["ls", "-R", "--mtree", &place.arg("now.img")])
            .ok()
            .text();
        assert_eq!(told, was, "{why}");
    }
    // A link at the end of the destination is followed, and the image itself left out.
    let inside = place.arg("");
    let said = sync([
        "--exclude",
        "large",
        "--exclude",
        "*.img",
        &inside,
        &format!("{image}:/link"),
    ]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    extant(["stat", &format!("{image}:/d/gone/g")]).ok();
    let other = source("with-image", "echo > f");
    fs::copy(&image, place.join("with-image/own.img")).unwrap();
    let own = format!("{other}/own.img:/");
    let said = sync([&other, &own]).ok().stderr;
    assert!(said.contains("own.img"), "{said}");
    assert_clean(&place.join("with-image/own.img"));
    extant(["stat", &format!("{own}own.img")]).fails(1);
}

#[test]
fn flags_and_projects_come_from_images() {
    let place = Place::in_memory();
    let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
    for image in [&a, &b] {
        mke2fs(
            Path::new(image),
            16 << 20,
            &["-t", "ext4", "-O", "project,quota"],
        );
        extant(["write", &format!("{image}:/same")]).ok();
    }
    let at = |path: &str| format!("{b}:{path}");
    extant(["mkdir", &at("/d")]).ok();
    extant(["chattr", "-p", "7", &at("/d")]).ok();
    extant(["chattr", "+PA", &at("/d")]).ok();
    extant(["write", &at("/d/f")]).ok();
    extant(["chattr", "+i", &at("/d/f")]).ok();
    extant(["chattr", "-p", "5", &at("/same")]).ok();
    extant(["chattr", "+a", &at("/same")]).ok();
    sync(["-q", "--checksum", &b, &format!("{a}:/")]).ok();
    assert_clean(Path::new(&a));
    let told = diff(["--ignore", "times", &b, &a]);
    assert_eq!(
        (told.code, told.text()),
        (0, String::new()),
        "{}",
        told.stderr
    );
    // And back, where flags do not protect what is there.
    extant(["chattr", "-a", &at("/same")]).ok();
    sync(["-q", &b, &format!("{a}:/")]).ok();
    let told = diff(["--ignore", "times", &b, &a]);
    assert_eq!(
        (told.code, told.text()),
        (0, String::new()),
        "{}",
        told.stderr
    );
}

#[test]
fn a_run_that_is_killed_leaves_old_and_new_files_and_another_one_finishes_it() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let number_of = 1200_u32;
    let text =
        |word: &str, number: u32| format!("{word} {number}\n").repeat(1 + number as usize % 90);
    let write = |word: &str| {
        let dir = place.join(word).join("d");
        fs::create_dir_all(&dir).unwrap();
        for number in 0..number_of {
            fs::write(dir.join(format!("f{number}")), text(word, number)).unwrap();
        }
        place.arg(word)
    };
    let (old, new) = (write("old"), write("new"));
    let whole = place.arg("whole.img");
    mke2fs(Path::new(&whole), 96 << 20, &["-t", "ext4"]);
    sync(["-q", &old, &format!("{whole}:/")]).ok();
    let image = copy_of(&whole, &place.arg("fs.img"));
    let begun = Instant::now();
    sync(["-q", "--checksum", &new, &format!("{image}:/")]).ok();
    let takes = begun.elapsed();
    for percent in [10, 40, 60, 75, 85, 92, 98] {
        let image = copy_of(&whole, &place.arg("fs.img"));
        let mut run = Command::new(env!("CARGO_BIN_EXE_extant"));
        run.args(["sync", "-q", "--checksum", &new, &format!("{image}:/")]);
        let mut run = run.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(takes * percent / 100);
        let _ = run.kill();
        run.wait().unwrap();
        e2fsck_recover_beside(Path::new(&image)).unwrap();
        assert_clean(Path::new(&image));
        let mount = KernelMount::mount(Path::new(&image), Mode::Untouched, "");
        for number in 0..number_of {
            let path = mount.path().join(format!("d/f{number}"));
            let found = fs::read_to_string(&path).unwrap();
            let is_whole = found == text("old", number) || found == text("new", number);
            assert!(is_whole, "{}", path.display());
        }
        mount.unmount();
        sync(["-q", "--checksum", "--delete", &new, &format!("{image}:/")]).ok();
        assert_clean(Path::new(&image));
        let told = diff([&new, &image]);
        assert_eq!(
            (told.code, told.text()),
            (0, String::new()),
            "{}",
            told.stderr
        );
    }
}

#[test]
fn what_is_excluded_stays_in_directories_that_go() {
    require!(KernelExt4);
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    changed(
        &image,
        "mkdir -p x/sub x/deep/er x/cache/in y/z; for f in x/keep.o x/f x/sub/g x/deep/er/a.o \
         x/deep/er/h x/deep/i x/cache/in/c y/z/f; do echo $f > $f; done",
    );
    let other = copy_of(&image, &place.arg("other.img"));
    fs::create_dir(place.join("from")).unwrap();
    let source = place.arg("from");
    let rules = ["--delete", "--exclude=*.o", "--exclude=cache/"];
    let mount = KernelMount::mount(Path::new(&other), Mode::ReadWrite, "");
    tool("rsync")
        .args(["-aHAX", "--exclude=/lost+found"])
        .args(rules)
        .arg(format!("{source}/"))
        .arg(format!("{}/", mount.path().display()))
        .ok();
    mount.unmount();
    let dest = format!("{image}:/");
    let said = extant([&["sync", "--json"][..], &rules, &[&source, &dest]].concat()).ok();
    assert_eq!(said.json()["removed"], 5);
    assert_clean(Path::new(&image));
    let told = diff(["--ignore", "times", &other, &image]);
    assert_eq!((told.code, told.text()), (0, String::new()));
    for kept in ["x/keep.o", "x/deep/er/a.o", "x/cache/in/c"] {
        let text = extant(["cat", &format!("{image}:/{kept}")]).ok().text();
        assert_eq!(text, format!("{kept}\n"));
    }
    // Nothing else takes the place of such a directory.
    run_in(&place.join("from"), "echo > x");
    let said = extant([&["sync"][..], &rules, &[&source, &dest]].concat()).fails(1);
    assert!(said.stderr.contains("excluded"), "{}", said.stderr);
    extant(["stat", &format!("{image}:/x/keep.o")]).ok();
    sync(["-q", "--delete", &source, &dest]).ok();
    assert_eq!(diff(["--exclude", "lost+found", &source, &image]).code, 0);
    assert_clean(Path::new(&image));
}

#[test]
fn nothing_goes_while_anything_of_the_source_is_missing() {
    let place = Place::new();
    let source = place.image(&small_plan(), &[]);
    extant(["write", &format!("{source}:/way")]).ok();
    debugfs_write(Path::new(&source), &["sif /usr/lib block[5] 0x7fffffff"]);
    let fresh = |name: &str, options: &[&str]| {
        let image = place.arg(name);
        mke2fs(Path::new(&image), 32 << 20, options);
        image
    };
    // Of a directory that is new a part cannot be read: it may be what was in the old one.
    let image = fresh("a.img", &["-t", "ext4"]);
    extant(["mkdir", &format!("{image}:/old"), &format!("{image}:/way")]).ok();
    for file in ["old/f", "way/f"] {
        extant(["write", &format!("{image}:/{file}")]).ok();
    }
    let dest = format!("{image}:/");
    let said = sync(["--delete", &source, &dest]).fails(1).stderr;
    assert!(said.contains("nothing is removed"), "{said}");
    assert!(said.contains("/way") && said.contains("stays"), "{said}");
    for file in ["old/f", "way/f", "etc"] {
        extant(["stat", &format!("{image}:/{file}")]).ok();
    }
    assert_clean(Path::new(&image));
    // Nor does it take the place of a file.
    let image = fresh("b.img", &["-t", "ext4"]);
    extant(["write", &format!("{image}:/usr")]).ok();
    let said = sync(["--delete", &source, &format!("{image}:/")]).fails(1);
    assert!(said.stderr.contains("/usr stays"), "{}", said.stderr);
    let stat = extant(["stat", "--json", &format!("{image}:/usr")]).ok();
    assert_eq!(stat.json()["type"], "file");
    extant(["stat", &format!("{image}:/etc")]).ok();
    assert_clean(Path::new(&image));
    // A name that differs in case only is none of the two, if the other one went.
    let image = fresh("c.img", &["-t", "ext4", "-O", "casefold"]);
    extant(["mkdir", &format!("{image}:/cf")]).ok();
    extant(["chattr", "+F", &format!("{image}:/cf")]).ok();
    extant(["write", &format!("{image}:/cf/Foo")]).ok();
    fs::create_dir_all(place.join("from/cf")).unwrap();
    fs::write(place.join("from/cf/foo"), "").unwrap();
    let dest = format!("{image}:/");
    let said = sync(["--delete", &place.arg("from"), &dest]).fails(1);
    assert!(said.stderr.contains("in case only"), "{}", said.stderr);
    extant(["stat", &format!("{image}:/cf/Foo")]).ok();
    assert_clean(Path::new(&image));
}

#[test]
fn directories_that_take_no_names_are_refused_before_anything_goes() {
    let place = Place::new();
    let image = place.arg("fs.img");
    mke2fs(
        Path::new(&image),
        16 << 20,
        &["-t", "ext4", "-O", "encrypt"],
    );
    for dir in ["gone", "secret"] {
        extant(["mkdir", &format!("{image}:/{dir}")]).ok();
    }
    debugfs_write(Path::new(&image), &["sif secret flags 0x80800"]);
    fs::create_dir_all(place.join("from/secret")).unwrap();
    fs::write(place.join("from/secret/new"), "").unwrap();
    let (source, dest) = (place.arg("from"), format!("{image}:/"));
    let before = fs::read(&image).unwrap();
    let said = sync(["--delete", &source, &dest]).fails(1).stderr;
    assert!(said.contains("/secret is encrypted"), "{said}");
    extant(["stat", &format!("{image}:/gone")]).ok();
    let said = sync(["-n", "--delete", &source, &dest]).fails(1).stderr;
    assert!(said.contains("/secret is encrypted"), "{said}");
    fs::write(&image, &before).unwrap();
    extant([
        "sync",
        "-q",
        "--delete",
        "--exclude",
        "/secret",
        &source,
        &dest,
    ])
    .ok();
    extant(["stat", &format!("{image}:/gone")]).fails(1);
}

#[test]
fn an_attribute_that_has_no_room_stops_nothing_else() {
    let place = Place::new();
    let [a, b] = ["a.img", "b.img"].map(|name| place.arg(name));
    for (image, block) in [(&a, "1024"), (&b, "4096")] {
        let options = ["-t", "ext4", "-O", "project,quota", "-b", block];
        mke2fs(Path::new(image), 16 << 20, &options);
        extant(["mkdir", &format!("{image}:/d"), &format!("{image}:/p")]).ok();
    }
    extant(["chattr", "-p", "7", &format!("{a}:/p")]).ok();
    extant(["chattr", "+P", &format!("{a}:/p")]).ok();
    extant(["write", &format!("{b}:/p/f")]).ok();
    extant(["chattr", "+d", &format!("{b}:/p/f")]).ok();
    fs::write(place.join("value"), [b'1'; 3000]).unwrap();
    let set = format!("ea_set -f {} d user.large", place.arg("value"));
    debugfs_write(Path::new(&b), &[&set]);
    let run = sync(["--json", &b, &format!("{a}:/")]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("/d"), "{}", run.stderr);
    assert_eq!(run.json()["made"], 1);
    assert_clean(Path::new(&a));
    // Flags come all the same, and no project where the destination hands one down.
    let told = diff([
        "--only",
        "flags,projects,content",
        "--exclude",
        "/p",
        &b,
        &a,
    ]);
    assert_eq!((told.code, told.text()), (0, String::new()));
    let told = diff([
        "--only",
        "flags,projects,content",
        &format!("{b}:/p"),
        &format!("{a}:/p"),
    ]);
    assert!(!told.text().contains("/f"), "{}", told.text());
}
