//! How much of an image stays after a small change of its source: `extant mkfs` with and without
//! `--like`, beside `mke2fs -d`. `EXTANT_FULL=1` takes a tree as large as a small Debian;
//! `EXTANT_ROOT_TREE=DIR` takes a copy of a real one.

use crate::support::{Place, extant, extant_with, faithful, seen_by_linux};
use extant_testkit::facility::is_full_run;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs, dumpe2fs_header, e2fsck};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const EPOCH: (&str, &str) = ("SOURCE_DATE_EPOCH", "1700000000");
const UUID: &str = "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e";
const SEED: &str = "1d0a7f60-5b1e-4a55-8c55-6f1f7e4c9a01";
/// Bytes of the chunks that are compared.
const CHUNKS: [usize; 2] = [64 << 10, 512 << 10];

/// Directories as Debian has them: their part of all files, how many files are in each directory
/// below, and the least and most bytes of a file, as powers of two.
const SHAPE: [(&str, u64, u64, u64, u64); 9] = [
    ("usr/share/doc", 30, 3, 9, 15),
    ("usr/share/locale", 12, 8, 10, 16),
    ("usr/share/man", 10, 60, 9, 14),
    ("usr/lib/python3", 15, 12, 9, 16),
    ("usr/lib/x86_64-linux-gnu", 12, 80, 12, 21),
    ("usr/bin", 9, 400, 12, 19),
    ("var/lib/dpkg/info", 7, 700, 6, 12),
    ("etc", 4, 8, 5, 12),
    ("usr/lib/modules", 1, 20, 12, 19),
];

/// A tree of so many files.
fn debian_like(files: u64) -> TreePlan {
    let mut plan = TreePlan::new();
    let mut rng = Rng::new(0xdeb1a);
    let mut made: HashSet<String> = HashSet::new();
    for (top, percent, together, least, most) in SHAPE {
        for number in 0..files * percent / 100 {
            let dir = format!("{top}/{:05x}", number / together * 7919 % 0xf_ffff);
            for (at, _) in dir.match_indices('/').chain([(dir.len(), "")]) {
                if made.insert(dir[..at].to_owned()) {
                    plan.dir(&dir[..at]).mode(0o755).time(1_600_000_000, 0);
                }
            }
            let power = rng.between(least, most - 1);
            let size = rng.between(1 << power, 2 << power);
            let name = format!("{dir}/{:04x}-{number}", rng.below(0xffff));
            plan.file(name, Content::filled(rng.next_u64(), size))
                .mode(0o644)
                .time(1_600_000_000, 0);
        }
    }
    plan
}

/// The parts of an image that are not zero, by their content, for each size of chunks.
fn parts(image: &Path) -> [Vec<u64>; 2] {
    let mut file = fs::File::open(image).expect("an image");
    let mut bytes = vec![0; CHUNKS[1]];
    let zeros = vec![0; CHUNKS[1]];
    let mut parts = [Vec::new(), Vec::new()];
    loop {
        let read = file.read(&mut bytes).expect("it is read");
        if read == 0 {
            return parts;
        }
        assert_eq!(read, bytes.len(), "files in memory are read in whole");
        if bytes == zeros {
            continue;
        }
        for (len, parts) in CHUNKS.into_iter().zip(&mut parts) {
            for chunk in bytes.chunks(len).filter(|chunk| *chunk != &zeros[..len]) {
                let mut hash = DefaultHasher::new();
                chunk.hash(&mut hash);
                parts.push(hash.finish());
            }
        }
    }
}

/// Percent of an image's chunks that another one has, for each size of chunks.
fn in_common(old: &[Vec<u64>; 2], new: &Path) -> [f64; 2] {
    let new = parts(new);
    [0, 1].map(|size| {
        let known: HashSet<u64> = old[size].iter().copied().collect();
        let same = new[size].iter().filter(|part| known.contains(part)).count();
        same as f64 * 100.0 / new[size].len() as f64
    })
}

/// What is changed: a name, and whether it adds one small file.
type Change = (&'static str, bool, fn(&Path));

/// Any file of a tree that has so many bytes at least: the one in the middle.
fn file_of(root: &Path, bytes: u64) -> PathBuf {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let entry = entry.expect("an entry");
            let meta = entry.metadata().expect("a file");
            if meta.is_dir() {
                waiting.push(entry.path());
            } else if meta.is_file() && meta.len() >= bytes {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found.swap_remove(found.len() / 2)
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn write(path: PathBuf, bytes: &[u8]) {
    fs::write(path, bytes).expect("a file");
}

const CHANGES: [Change; 10] = [
    ("a small file, first by name", true, |root| {
        write(root.join("!first"), &content(1, 3000));
    }),
    ("a small file in the middle", true, |root| {
        let dir = file_of(root, 1);
        write(dir.with_file_name("m-new"), &content(2, 9000));
    }),
    ("a small file, last by name", true, |root| {
        write(root.join("zz"), &content(3, 20_000));
    }),
    ("a directory with three files", false, |root| {
        let dir = root.join("usr/share/0-new");
        fs::create_dir(&dir).expect("a directory");
        for seed in 4..7 {
            write(dir.join(seed.to_string()), &content(seed, 5000));
        }
    }),
    ("a file of 3 MiB", false, |root| {
        write(root.join("usr/lib/image"), &content(7, 3 << 20));
    }),
    ("other content of the same size", false, |root| {
        let path = file_of(root, 30_000);
        let len = fs::metadata(&path).expect("a file").len();
        write(path, &content(8, len as usize));
    }),
    ("a file grows by a block", false, |root| {
        let path = file_of(root, 50_000);
        let mut bytes = fs::read(&path).expect("a file");
        bytes.extend(content(9, 4096));
        write(path, &bytes);
    }),
    ("a file goes", false, |root| {
        fs::remove_file(file_of(root, 20_000)).expect("it goes");
    }),
    ("a file has another name", false, |root| {
        let path = file_of(root, 40_000);
        fs::rename(&path, path.with_file_name("another-name")).expect("renamed");
    }),
    ("permissions of a file", false, |root| {
        let path = file_of(root, 10_000);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
    }),
];

fn copy_tree(from: &str, to: &str) {
    let _ = fs::remove_dir_all(to);
    tool("cp").args(["-a", from, to]).ok();
}

fn mkfs(image: &str, source: &str, size: &str, more: &[&str]) {
    let args = ["mkfs", image, "--from", source, "--size", size, "-q"];
    extant_with(args.iter().chain(more), |command| {
        command.env(EPOCH.0, EPOCH.1);
    })
    .ok();
}

#[test]
fn a_small_change_of_the_source_is_a_small_change_of_the_image() {
    let place = Place::in_memory();
    let real = std::env::var("EXTANT_ROOT_TREE").ok();
    let is_large = real.is_some() || is_full_run();
    let source = match &real {
        Some(dir) => {
            copy_tree(dir, &place.arg("source"));
            place.arg("source")
        }
        None => place.planted("source", &debian_like(if is_large { 8600 } else { 2400 })),
    };
    let size = if is_large { "600M" } else { "256M" };
    let changed = place.arg("changed");
    let [old, new, like] = ["old.img", "new.img", "like.img"].map(|name| place.arg(name));
    let identity = ["--uuid", UUID, "--hash-seed", SEED];
    mkfs(&old, &source, size, &identity);
    assert_clean(old.as_ref());
    let theirs = |image: &str, source: &str| {
        let seed = format!("hash_seed={SEED}");
        let args = [
            "-q", "-F", "-t", "ext4", "-U", UUID, "-E", &seed, "-d", source, image, size,
        ];
        let _ = fs::remove_file(image);
        tool("mke2fs").args(args).env(EPOCH.0, EPOCH.1).ok();
    };
    let [their_old, their_new] = ["their-old.img", "their-new.img"].map(|name| place.arg(name));
    if is_large {
        theirs(&their_old, &source);
    }
    let known = parts(old.as_ref());
    println!("percent of equal chunks, of 64 and 512 KiB: extant, with --like, mke2fs -d");
    let mut worst = [100.0_f64; 4];
    let mut sums = [0.0; 2];
    for (what, adds, change) in CHANGES {
        copy_tree(&source, &changed);
        change(Path::new(&changed));
        mkfs(&new, &changed, size, &identity);
        mkfs(&like, &changed, size, &["--like", &old]);
        assert_clean(like.as_ref());
        let shares = [&new, &like].map(|image| in_common(&known, image.as_ref()));
        let mut line = format!("{what:32}");
        for share in shares {
            line.push_str(&format!("  {:5.1} {:5.1}", share[0], share[1]));
        }
        if is_large {
            theirs(&their_new, &changed);
            let share = in_common(&parts(their_old.as_ref()), their_new.as_ref());
            line.push_str(&format!("  {:5.1} {:5.1}", share[0], share[1]));
        }
        println!("{line}");
        if adds {
            worst[0] = worst[0].min(shares[0][1]);
            worst[3] = worst[3].min(shares[1][1]);
        }
        worst[1] = worst[1].min(shares[1][1]);
        worst[2] = worst[2].min(shares[1][0]);
        sums[0] += shares[0][1] / CHANGES.len() as f64;
        sums[1] += shares[1][1] / CHANGES.len() as f64;
    }
    println!("least and mean: {worst:.1?} {sums:.1?}");
    if real.is_some() {
        return;
    }
    // A chunk is less of a large tree than of a small one.
    let least = if is_large { [95.0, 97.0] } else { [92.5, 96.5] };
    assert!(worst[0] >= least[0], "an added file: {worst:?}");
    assert!(worst[1] >= least[1] && worst[2] >= 97.0, "like: {worst:?}");
    // Of some 340 chunks, what is unlike in three.
    assert!(worst[3] >= 99.0, "an added file, like: {worst:?}");
    assert!(sums[0] >= 94.5 && sums[1] >= 98.5, "{sums:?}");
}

/// Bytes of an image.
fn bytes_at(image: &str, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = fs::File::open(image).expect("an image");
    file.read_exact_at(&mut bytes, offset).expect("it is read");
    bytes
}

#[test]
fn copies_of_the_superblock_stay_as_long_as_they_are_true() {
    require!(LoopDevices, KernelExt4, Root);
    let place = Place::in_memory();
    let source = place.planted("source", &debian_like(100));
    let [old, new, fixed] = ["old.img", "new.img", "fixed.img"].map(|name| place.arg(name));
    // Groups of 8 MiB, of which 1, 3, 5 and 7 have copies behind the boot block.
    mkfs(&old, &source, "96M", &["--block-size", "1K"]);
    let copies = [1, 3, 5, 7].map(|group: u64| ((group << 13) + 1) << 10);
    let of = |image: &str| copies.map(|at| bytes_at(image, at, 2048));
    write(Path::new(&source).join("!new"), &content(1, 30_000));
    let like = ["--block-size", "1K", "--like", &old];
    mkfs(&new, &source, "96M", &like);
    assert_clean(new.as_ref());
    assert!(of(&old) == of(&new));
    let free = |image: &str| dumpe2fs_header(image.as_ref()).number("Free blocks");
    assert!(free(&old) > free(&new));
    // A copy leads to all files, and a checker mends the rest by it.
    let compare = Compare {
        mtime: false,
        ..faithful()
    };
    let expected = Tree::snapshot(Path::new(&source));
    let mount = KernelMount::mount(new.as_ref(), Mode::Untouched, "sb=8193");
    expected.assert_same(&Tree::snapshot(mount.path()), &compare);
    mount.unmount();
    fs::copy(&new, &fixed).expect("a copy");
    let run = e2fsck(fixed.as_ref(), &["-fy", "-b", "8193", "-B", "1024"]);
    assert!(run.code <= 1, "{run}");
    assert_clean(fixed.as_ref());
    expected.assert_same(&seen_by_linux(&fixed), &compare);
    // Another name is in all of them.
    let named = [&like[..], &["--label", "another"]].concat();
    mkfs(&new, &source, "96M", &named);
    assert_clean(new.as_ref());
    assert!(of(&old) != of(&new));
    for copy in of(&new) {
        assert_eq!(copy[0x78..0x7f], *b"another");
    }
    // So is that a group is in use, which was not.
    write(Path::new(&source).join("large"), &content(2, 70 << 20));
    mkfs(&new, &source, "96M", &like);
    assert_clean(new.as_ref());
    let (before, after) = (of(&old), of(&new));
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(one, two)| one[1024..] != two[1024..])
    );
    for copy in &after {
        assert!(copy[1024..] == bytes_at(&new, 2048, 1024));
    }
}

#[test]
fn what_is_not_data_stays_where_it_is_too() {
    let place = Place::new();
    let mut plan = debian_like(200);
    for number in 0..40 {
        let target = format!("../share/{}/{number}", "a-long-way/".repeat(7));
        plan.symlink(format!("usr/lib/modules/link{number}"), target);
    }
    let value = content(5, 900);
    for number in 0..6 {
        let name = format!("usr/share/doc/attributes{number}");
        plan.file(name, Content::filled(number, 5000))
            .xattr("user.large", [&value[..], &[number as u8]].concat());
    }
    let source = place.planted("source", &plan);
    let [old, new] = ["old.img", "new.img"].map(|name| place.arg(name));
    mkfs(&old, &source, "64M", &["--uuid", UUID, "--hash-seed", SEED]);
    // Links, blocks of attributes, and a directory that grows.
    fs::remove_file(Path::new(&source).join("usr/lib/modules/link0")).expect("it goes");
    let grows = Path::new(&source).join("var/lib/dpkg/info/00000");
    for number in 0..40 {
        write(grows.join(format!("{number}-{}", "n".repeat(200))), b"");
    }
    mkfs(&new, &source, "64M", &["--like", &old]);
    assert_clean(new.as_ref());
    let blocks = |image: &str, path: &str| debugfs(image.as_ref(), &format!("blocks {path}"));
    let acl = |image: &str, path: &str| {
        let stat = debugfs(image.as_ref(), &format!("stat {path}"));
        let found = stat.split("File ACL: ").nth(1).expect("a block");
        found
            .split_whitespace()
            .next()
            .expect("a number")
            .to_owned()
    };
    for number in 1..40 {
        let path = format!("/usr/lib/modules/link{number}");
        assert_eq!(blocks(&old, &path), blocks(&new, &path));
    }
    for number in 0..6 {
        let path = format!("/usr/share/doc/attributes{number}");
        assert_ne!(acl(&old, &path), "0");
        assert_eq!(acl(&old, &path), acl(&new, &path));
    }
    assert_eq!(blocks(&old, "/lost+found"), blocks(&new, "/lost+found"));
    let (short, long) = (
        blocks(&old, "/var/lib/dpkg/info/00000"),
        blocks(&new, "/var/lib/dpkg/info/00000"),
    );
    assert!(
        long.trim().starts_with(short.trim()) && long != short,
        "{short} {long}"
    );
}

#[test]
fn an_image_like_another_has_the_tree_and_keeps_what_is_in_both() {
    require!(LoopDevices, KernelExt4, Root);
    let place = Place::in_memory();
    let mut plan = debian_like(300);
    plan.file(
        "sparse",
        Content::sparse(5, 9 << 20, [(0, 4096), (5 << 20, 70_000)]),
    );
    plan.hard_link("again", "sparse");
    plan.symlink("link", "sparse");
    let source = place.planted("source", &plan);
    let [old, new] = ["old.img", "new.img"].map(|name| place.arg(name));
    mkfs(&old, &source, "96M", &["--label", "first"]);
    let kept = file_of(source.as_ref(), 100_000);
    let kept = kept
        .strip_prefix(&source)
        .expect("beneath")
        .display()
        .to_string();
    write(Path::new(&source).join("!new"), &content(1, 30_000));
    fs::remove_file(Path::new(&source).join("again")).expect("it goes");
    fs::remove_file(Path::new(&source).join("link")).expect("it goes");
    fs::create_dir(Path::new(&source).join("link")).expect("another kind");
    write(Path::new(&source).join("link/inside"), &content(2, 300_000));

    extant_with(
        ["mkfs", &new, "--from", &source, "--like", &old],
        |command| {
            command.env(EPOCH.0, EPOCH.1);
        },
    )
    .ok();
    assert_clean(new.as_ref());
    let compare = Compare {
        mtime: false,
        ..faithful()
    };
    Tree::snapshot(Path::new(&source)).assert_same(&seen_by_linux(&new), &compare);
    let where_it_is = |image: &str| {
        let request = format!("/{kept}");
        let blocks = debugfs(image.as_ref(), &format!("blocks {request}"));
        let ino = debugfs(image.as_ref(), &format!("stat {request}"));
        (blocks, ino.split_whitespace().nth(1).map(str::to_owned))
    };
    assert_eq!(where_it_is(&old), where_it_is(&new));
    let [one, two] = [&old, &new].map(|image| dumpe2fs_header(image.as_ref()));
    for field in [
        "Filesystem UUID",
        "Directory Hash Seed",
        "Filesystem volume name",
        "Block count",
        "Inode count",
    ] {
        assert_eq!(one.field(field), two.field(field), "{field}");
    }
    // What is like itself, and what is made again, is the same.
    let [again, threads] = ["again.img", "threads.img"].map(|name| place.arg(name));
    mkfs(&again, &source, "96M", &["--like", &new]);
    mkfs(
        &threads,
        &source,
        "96M",
        &["--like", &new, "--threads", "1"],
    );
    let bytes = |image: &str| fs::read(image).expect("an image");
    assert!(bytes(&again) == bytes(&threads));
    assert!(bytes(&again) == bytes(&new));

    // An image of another program, with other blocks, and one that is none.
    extant([
        "mkfs",
        &new,
        "--from",
        &source,
        "--like",
        &old,
        "--block-size",
        "1K",
    ])
    .ok();
    assert_clean(new.as_ref());
    let theirs = place.arg("theirs.img");
    tool("mke2fs")
        .args(["-q", "-t", "ext4", "-d", &source, &theirs, "128M"])
        .ok();
    extant(["mkfs", &new, "--from", &source, "--like", &theirs]).ok();
    assert_clean(new.as_ref());
    Tree::snapshot(Path::new(&source)).assert_same(&seen_by_linux(&new), &compare);
    let none = place.arg("none");
    fs::write(&none, "no image").expect("a file");
    extant(["mkfs", &new, "--from", &source, "--like", &none]).fails(1);
    extant([
        "mkfs", &new, "--from", &source, "--like", &old, "--size", "4M",
    ])
    .fails(1);
    // Where data goes is what the older image says.
    let both = extant([
        "mkfs", &new, "--from", &source, "--like", &old, "--layout", "dense",
    ]);
    let both = both.fails(2);
    assert!(both.stderr.contains("--layout"), "{}", both.stderr);
}

#[test]
fn a_dense_layout_has_its_free_space_behind_it() {
    let place = Place::in_memory();
    let source = place.planted("source", &debian_like(600));
    let image = place.arg("image");
    let free_runs = |layout: &str| {
        mkfs(&image, &source, "128M", &["--layout", layout]);
        assert_clean(image.as_ref());
        let map = extant(["map", "--json", &image]).ok().json();
        let runs = map["runs"].as_array().expect("runs").clone();
        runs.iter().filter(|run| run["kind"] == "free").count()
    };
    let (dense, steady) = (free_runs("dense"), free_runs("steady"));
    assert!(steady > dense + 2, "{dense} {steady}");
    // Without room there are no gaps, and the size is the same.
    let size_of = |layout: &str| {
        let args = ["--headroom", "0", "--layout", layout];
        mkfs(&image, &source, "auto", &args);
        assert_clean(image.as_ref());
        fs::metadata(&image).expect("an image").len()
    };
    assert_eq!(size_of("dense"), size_of("steady"));
}

#[test]
fn what_fits_alone_fits_like_an_older_image_too() {
    let place = Place::new();
    let source = place.arg("source");
    fs::create_dir(&source).expect("a directory");
    let file = |number: u64| Path::new(&source).join(format!("f{number:03}"));
    for number in 0..400 {
        write(file(number), &content(number, 20_000));
    }
    let [old, plain, new] = ["old.img", "plain.img", "new.img"].map(|name| place.arg(name));
    let blocks = ["--block-size", "1K"];
    mkfs(&old, &source, "12M", &blocks);
    for number in (0..400).step_by(2) {
        fs::remove_file(file(number)).expect("it goes");
    }
    let args = ["mkfs", &plain, "--from", &source, "--size", "12M", "--json"];
    let made = extant(args.iter().chain(&blocks)).ok().json();
    let free = made["free_blocks"].as_u64().expect("a number");
    // In 200 holes it needs blocks for its map, for which there is no room.
    let last = content(999, ((free - 1) << 10) as usize);
    write(Path::new(&source).join("last"), &last);
    mkfs(&plain, &source, "12M", &blocks);
    assert_clean(plain.as_ref());
    extant(["mkfs", &new, "--from", &source, "--like", &old]).ok();
    assert_clean(new.as_ref());
    let read = extant(["cat", &format!("{new}:/last")]).ok();
    assert!(read.stdout == last);
    let number = |image: &str| {
        let found = debugfs(image.as_ref(), "stat /f301");
        found.split_whitespace().nth(1).map(str::to_owned)
    };
    assert_eq!(number(&old), number(&new));
}
