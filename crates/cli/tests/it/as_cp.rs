//! Options of `cp` mean what they mean to GNU cp under a mount.

use crate::support::{Place, change, copy_of, extant, extant_with, faithful, seen_by_linux};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::plan::{Content, NodeKind, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::path::Path;

/// What is copied: links of all kinds, files with several names.
fn sources(plan: &mut TreePlan) {
    plan.dir("d").mode(0o755);
    plan.file("d/old", Content::filled(1, 5000))
        .time(1_000_000_000, 0);
    plan.file("d/new", Content::filled(2, 6000))
        .time(1_700_000_000, 5);
    plan.file("d/same", Content::filled(3, 7000))
        .time(1_500_000_000, 7);
    plan.file("d/a.o", Content::filled(4, 10));
    plan.dir("d/sub").mode(0o755);
    plan.file("d/sub/b.o", Content::filled(5, 10));
    plan.file("d/sub/c", Content::filled(6, 9000)).mode(0o640);
    plan.hard_link("d/sub/again", "d/old");
    plan.symlink("d/to-file", "sub/c");
    plan.symlink("d/to-dir", "sub");
    plan.symlink("d/sub/up", "../old");
    plan.special("d/pipe", NodeKind::Fifo);
    plan.symlink("link", "d");
    plan.symlink("file-link", "d/sub/c");
    plan.file("plain", Content::filled(7, 300))
        .time(1_600_000_000, 0);
}

/// What goes where something of the other sources goes.
fn rivals(plan: &mut TreePlan) {
    plan.dir("x").mode(0o755);
    plan.file("x/old", Content::filled(21, 400))
        .time(1_650_000_000, 0);
    plan.dir("x/d").mode(0o755);
    plan.file("x/d/old", Content::filled(22, 500))
        .time(1_650_000_000, 0);
    plan.file("x/d/new", Content::filled(23, 600))
        .time(1_650_000_000, 0);
    plan.hard_link("x/d/a.o", "x/d/new");
    plan.file("x/d/z", Content::filled(24, 700));
}

/// What is there before: files that are older and newer than those that come.
fn targets(plan: &mut TreePlan) {
    plan.dir("t").mode(0o755);
    plan.dir("t/d").mode(0o755);
    plan.file("t/d/old", Content::filled(11, 50))
        .time(1_400_000_000, 0);
    plan.file("t/d/new", Content::filled(12, 60))
        .time(1_400_000_000, 0);
    plan.file("t/d/same", Content::filled(13, 70))
        .time(1_500_000_000, 7);
    plan.file("t/plain", Content::filled(14, 80)).mode(0o600);
    plan.dir("e").mode(0o755);
}

/// Lines of options and operands: `@` is where the sources are, `%` where they go.
const LINES: &[&str] = &[
    "-r @/d %/t",
    "-ru @/d %/t",
    "-rn @/d %/t",
    "-au @/d %/t",
    "-an @/d %/t",
    "-a --remove-destination @/d %/t",
    "--remove-destination @/plain %/t",
    "@/plain %/t",
    "-n @/plain %/t",
    "-u @/plain %/t",
    "-rL @/d %/e",
    "-aL @/d %/e",
    "-rP @/link %/e",
    "-rH @/link %/e",
    "-rH @/d/. %/e",
    "-aH @/link %/e/new",
    "-P @/file-link %/e",
    "-H @/file-link %/e",
    "-L @/file-link %/e",
    "-a @/file-link %/e",
    "-rLP @/link %/e",
    "-rPL @/link %/e",
    "-t %/e @/plain @/d/old",
    "-rt %/e @/d @/plain",
    "-T @/plain %/e/named",
    "-rT @/d %/t/d",
    "-T @/plain %/e",
    "-t %/gone @/plain",
    "-t %/t/plain @/d/old",
    "@/plain @/gone %/e",
    "@/d/*.o @/d/sub/*.o %/e",
    "-r @/d/[st]* %/e",
];

/// Lines with sources that want the same place.
const MEETING: &[&str] = &[
    "-n @/d/old @/x/old @/plain %/e",
    "-u @/x/old @/d/old @/plain %/e",
    "@/plain @/d/old @/x/old %/e",
    "-n @/plain @/plain %/e",
    "-rn @/d @/x/d %/e",
    "-r @/d @/x/d %/e",
    "-a @/d @/x/d %/e",
    "-a @/d/. @/x/d/. %/e",
];

/// What the two must agree on. The times of directories are those of the moment.
fn alike() -> Compare {
    Compare {
        mtime: false,
        nlink: true,
        root: false,
        ..faithful()
    }
}

/// A line with its operands, as words.
fn words(line: &str, from: &str, to: &str) -> Vec<String> {
    let word = |word: &str| word.replace('%', to).replace('@', from);
    std::iter::once("cp")
        .chain(line.split(' '))
        .map(word)
        .collect()
}

/// Runs GNU cp by a shell.
fn theirs(line: &str, from: &str, to: &str) -> extant_testkit::tool::Output {
    let script = format!("umask 022; {}", words(line, from, to).join(" "));
    tool("sh").args(["-c", &script]).run()
}

#[track_caller]
fn same_outcome(line: &str, ours: &crate::support::Run, theirs: &extant_testkit::tool::Output) {
    let codes = (ours.code.min(1), theirs.code.min(1));
    assert_eq!(codes.0, codes.1, "{line}: {}{theirs}", ours.stderr);
}

#[test]
fn options_mean_within_an_image_what_they_mean_to_cp() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    sources(&mut plan);
    rivals(&mut plan);
    targets(&mut plan);
    // Where the content goes, the other name has it, too.
    plan.hard_link("t/other", "t/plain");
    let image = place.kernel_image(&plan, 32 << 20, &[]);
    for line in LINES.iter().chain(MEETING) {
        let copy = copy_of(&image, &place.arg("theirs.img"));
        let mine = copy_of(&image, &place.arg("ours.img"));
        let mount = KernelMount::mount(Path::new(&copy), Mode::ReadWrite, "");
        let root = mount.path().display().to_string();
        let expected = theirs(line, &root, &root);
        let inside = format!("{mine}:");
        let run = change(&mine, words(line, &inside, &inside));
        same_outcome(line, &run, &expected);
        let expected = Tree::snapshot(mount.path());
        mount.unmount();
        println!("{line}");
        expected.assert_same(&seen_by_linux(&mine), &alike());
    }
}

#[test]
fn options_mean_into_and_out_of_an_image_what_they_mean_to_cp() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let (mut from, mut to) = (TreePlan::new(), TreePlan::new());
    sources(&mut from);
    rivals(&mut from);
    targets(&mut to);
    let outside = place.planted("outside", &from);
    let image = place.kernel_image(&from, 32 << 20, &[]);
    let target = place.arg("target.img");
    std::fs::rename(&image, &target).unwrap();
    let before = place.kernel_image(&to, 32 << 20, &[]);
    let (source, mount_of) = (target, |image: &str| {
        KernelMount::mount(Path::new(image), Mode::ReadWrite, "")
    });
    for line in LINES.iter().chain(MEETING) {
        println!("{line}");
        // In. Patterns outside are a shell's.
        if !line.contains(['*', '[']) {
            let copy = copy_of(&before, &place.arg("theirs.img"));
            let mine = copy_of(&before, &place.arg("ours.img"));
            let mount = mount_of(&copy);
            let expected = theirs(line, &outside, &mount.path().display().to_string());
            let run = change(&mine, words(line, &outside, &format!("{mine}:")));
            same_outcome(line, &run, &expected);
            let expected = Tree::snapshot(mount.path());
            mount.unmount();
            expected.assert_same(&seen_by_linux(&mine), &alike());
        }
        // Out.
        let mount = mount_of(&source);
        let dirs = ["a", "b"].map(|name| {
            let _ = std::fs::remove_dir_all(place.join(name));
            place.planted(name, &to)
        });
        let expected = theirs(line, &mount.path().display().to_string(), &dirs[0]);
        mount.unmount();
        let run = extant(words(line, &format!("{source}:"), &dirs[1]));
        same_outcome(line, &run, &expected);
        let trees = [&dirs[0], &dirs[1]].map(|dir| Tree::snapshot(Path::new(dir)));
        trees[0].assert_same(&trees[1], &alike());
    }
}

#[test]
fn patterns_leave_files_out() {
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    sources(&mut plan);
    let image = place.image(&plan, &[]);
    let outside = place.arg("source");
    let found = |dir: &Path| {
        let all = tool("find")
            .arg(dir)
            .args(["-mindepth", "1", "-printf", "%P\n"])
            .ok();
        let mut all: Vec<String> = all.text().lines().map(str::to_owned).collect();
        all.sort();
        all
    };
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["*.o", "to-*", "/sub/up"],
            &["new", "old", "pipe", "same", "sub", "sub/again", "sub/c"],
        ),
        (&["/sub", "/?*", "!/same"], &["same"]),
        (
            &["/sub/*", "/[a-p]*", "to-file"],
            &["same", "sub", "to-dir"],
        ),
    ];
    for (patterns, expected) in cases {
        let excludes: Vec<&str> = patterns.iter().flat_map(|p| ["--exclude", *p]).collect();
        let out = place.join("out");
        let args = [&["cp", "-r"], &excludes[..]].concat();
        let run = |from: &str, to: &str| extant(args.iter().copied().chain([from, to])).ok();
        run(&format!("{image}:/d"), &place.arg("out"));
        assert_eq!(found(&out), *expected, "{patterns:?}");
        std::fs::remove_dir_all(&out).unwrap();
        for from in [format!("{outside}/d"), format!("{image}:/d")] {
            run(&from, &format!("{image}:/in"));
            assert_clean(Path::new(&image));
            extant(["cp", "-r", &format!("{image}:/in"), &place.arg("out")]).ok();
            assert_eq!(found(&out), *expected, "{patterns:?} of {from}");
            std::fs::remove_dir_all(&out).unwrap();
            extant(["rm", "-r", &format!("{image}:/in")]).ok();
        }
    }
    // A source by its own name; what has a slash is about what is in it.
    let into = place.arg("into");
    std::fs::create_dir(&into).unwrap();
    let sources = format!("{image}:/[dp]*");
    extant([
        "cp",
        "-r",
        "--exclude",
        "pl*",
        "--exclude",
        "/d",
        &sources,
        &into,
    ])
    .ok();
    assert!(place.join("into/d/new").exists() && !place.join("into/plain").exists());
    let run = extant(["cp", "-r", "--exclude", "[", &sources, &into]).fails(2);
    assert!(run.stderr.contains("--exclude"), "{}", run.stderr);
}

#[test]
fn links_that_lead_round_are_not_followed_for_ever() {
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.dir("a");
    plan.dir("a/b");
    plan.file("a/b/f", Content::filled(1, 10));
    plan.symlink("a/b/round", "..");
    plan.symlink("a/gone", "nowhere");
    // Each level leads twice to the next.
    plan.dir("many");
    for level in 0..30 {
        plan.dir(format!("many/{level}"));
        for name in ["x", "y"] {
            plan.symlink(format!("many/{level}/{name}"), format!("../{}", level + 1));
        }
    }
    plan.dir("many/30");
    for file in 0..20 {
        plan.file(format!("many/30/{file}"), Content::filled(2, 1));
    }
    let image = place.image(&plan, &["-N", "512"]);
    for (from, is_inside) in [(place.arg("source"), false), (format!("{image}:"), true)] {
        let to = format!("{image}:/in");
        let run = change(&image, ["cp", "-rL", &format!("{from}/a"), &to]).fails(1);
        assert!(run.stderr.contains("that it is in"), "{}", run.stderr);
        assert!(run.stderr.contains("gone"), "{}", run.stderr);
        assert_eq!(extant(["cat", &format!("{to}/b/f")]).ok().stdout.len(), 10);
        extant(["rm", "-r", &to]).ok();
        if is_inside {
            let run = extant(["cp", "-rL", &format!("{from}/many/0"), &place.arg("out")]).fails(1);
            assert!(run.stderr.contains("several times"), "{}", run.stderr);
            let other = place.arg("other.img");
            mke2fs(Path::new(&other), 64 << 20, &["-t", "ext4"]);
            let (many, to) = (format!("{from}/many/0"), format!("{other}:/many"));
            let run = extant(["cp", "-rL", &many, &to]).fails(1);
            assert!(run.stderr.contains("several times"), "{}", run.stderr);
            let found = extant(["find", &to]).ok().text().lines().count();
            assert!((1000..=4096).contains(&found), "{found}");
            let run = extant(["cp", "-rL", &format!("{from}/a"), &place.arg("round")]).fails(1);
            assert!(run.stderr.contains("that it is in"), "{}", run.stderr);
            assert!(place.join("round/b/f").exists());
        }
    }
}

#[test]
fn standard_input_and_output_are_files() {
    let place = Place::new();
    mke2fs(&place.join("fs.img"), 16 << 20, &["-t", "ext4"]);
    let image = place.arg("fs.img");
    let at = |path: &str| format!("{image}:{path}");
    let content = Content::filled(9, 3_000_000).to_bytes();
    let put = |args: &[&str]| {
        let run = extant_with(args, |command| {
            command.write_stdin(content.clone());
        });
        assert_clean(Path::new(&image));
        run
    };
    put(&["cp", "-", &at("/piped")]).ok();
    let run = extant(["cp", &at("/piped"), "-"]).ok();
    assert!(run.stdout == content);
    // Over what is there, and with -a.
    extant(["chmod", "600", &at("/piped")]).ok();
    put(&["cp", "-", &at("/piped")]).ok();
    put(&["cp", "-a", "-", &at("/again")]).ok();
    let stat = |path: &str| extant(["stat", "--json", &at(path)]).ok().json();
    assert_eq!(stat("/piped")["mode"], "0600");
    assert_eq!(stat("/again")["size"], content.len());
    let run = put(&["cp", "-", &at("/")]).fails(1);
    assert!(run.stderr.contains("no name"), "{}", run.stderr);
    for (args, word) in [
        (&["cp", "-", "-", &at("/x")][..], "once"),
        (&["cp", "-", "out"], "into an image"),
        (&["cp", &at("/piped"), &at("/again"), "-"], "one file"),
        (&["cp", "-v", &at("/piped"), "-"], "-v"),
    ] {
        let run = put(args).fails(2);
        assert!(run.stderr.contains(word), "{args:?}: {}", run.stderr);
    }
    extant(["cp", &at("/"), "-"]).fails(1);
    extant(["cp", &at("/gone"), "-"]).fails(1);
}

#[test]
fn what_was_copied_is_told_when_that_is_asked_for() {
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.dir("d");
    plan.file("d/f", Content::filled(1, 10));
    plan.hard_link("d/g", "d/f");
    let image = place.image(&plan, &[]);
    let said = |args: &[&str]| {
        let run = extant(args).ok();
        let text = run
            .text()
            .replace(&image, "IMG")
            .replace(&place.arg(""), "");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (inside, out) = (format!("{image}:/d"), place.arg("out"));
    assert_eq!(
        said(&["cp", "-av", &inside, &out]),
        ["IMG:/d -> out", "IMG:/d/f -> out/f", "IMG:/d/g -> out/g"]
    );
    assert_eq!(
        said(&["cp", "-av", &out, &format!("{image}:/new")]),
        [
            "IMG:/new/g => IMG:/new/f",
            "out -> IMG:/new",
            "out/f -> IMG:/new/f"
        ]
    );
    assert_eq!(
        said(&["cp", "-v", &format!("{image}:/d/f"), &format!("{image}:/h")]),
        ["IMG:/d/f -> IMG:/h"]
    );
    assert!(said(&["cp", "-nrv", &inside, &format!("{image}:/new"), "-T"]).is_empty());
}

#[test]
fn of_sources_that_meet_the_newest_stays_where_that_is_asked_for() {
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    sources(&mut plan);
    rivals(&mut plan);
    let from = place.planted("from", &plan);
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "16M", &image]).ok();
    let read = |path: &str| extant(["cat", &format!("{image}:{path}")]).ok().stdout;
    let at = |path: &str| format!("{from}/{path}");
    for (n, [first, second]) in [["d", "x/d"], ["x/d", "d"]].into_iter().enumerate() {
        let to = format!("/{n}");
        let inside = format!("{image}:{to}");
        extant(["mkdir", &inside]).ok();
        let args = ["cp", "-a", "-u", &at(first), &at(second), &inside];
        change(&image, args).ok();
        assert!(read(&format!("{to}/d/old")) == Content::filled(22, 500).to_bytes());
        assert!(read(&format!("{to}/d/new")) == Content::filled(2, 6000).to_bytes());
        assert!(read(&format!("{to}/d/sub/again")) == Content::filled(1, 5000).to_bytes());
        assert!(read(&format!("{to}/d/z")) == Content::filled(24, 700).to_bytes());
    }
    // Many threads, and what is there in the end is whole and of the last.
    let inside = format!("{image}:/many");
    extant(["mkdir", &inside]).ok();
    for (name, n) in [("a", 1), ("b", 2), ("c", 3)] {
        let dir = place.join(&format!("{name}/d"));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..200 {
            let content = Content::filled(n * 1000 + file, 5000).to_bytes();
            std::fs::write(dir.join(file.to_string()), content).unwrap();
        }
    }
    let dirs = ["a/d", "b/d", "c/d"].map(|dir| place.arg(dir));
    let args = [
        "cp",
        "-r",
        "--threads",
        "8",
        &dirs[0],
        &dirs[1],
        &dirs[2],
        &inside,
    ];
    change(&image, args).ok();
    for file in 0..200 {
        assert!(read(&format!("/many/d/{file}")) == Content::filled(3000 + file, 5000).to_bytes());
    }
    let files = ["a/d/7", "b/d/7"].map(|file| place.arg(file));
    let run = change(&image, ["cp", &files[0], &files[1], &inside]).fails(1);
    assert!(run.stderr.contains("another source"), "{}", run.stderr);
    assert!(read("/many/7") == Content::filled(1007, 5000).to_bytes());
}
