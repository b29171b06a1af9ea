//! Features that `extant tune` turns on and off, beside `tune2fs` and `resize2fs` on a copy.

use crate::support::{Place, copy_of, extant, seen_by_linux, small_plan};
use crate::tuning::differences;
use extant_testkit::facility::Facility;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, e2fsck, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::path::Path;

/// Directories with an index whose leaves are full to the last byte, and ones without.
fn plan() -> TreePlan {
    let mut plan = small_plan();
    plan.dir("many");
    for i in 0..900 {
        let name = format!("many/{:0width$}", i, width = 20 + i % 9);
        plan.file(name, Content::empty());
    }
    plan.dir("few");
    for i in 0..12 {
        plan.file(
            format!("few/a name that is rather long {i}"),
            Content::filled(i, 100),
        );
    }
    plan
}

/// What Linux shows of an image, if it mounts it.
fn shown(image: &str) -> Option<Tree> {
    let mount = KernelMount::try_mount(Path::new(image), Mode::Untouched, "").ok()?;
    let tree = Tree::snapshot(mount.path());
    mount.unmount();
    Some(tree)
}

/// A change: what it is called here, and the program and the option that does it there.
type Step = (&'static str, &'static str, &'static str);

const STEPS: &[Step] = &[
    ("has_journal", "tune2fs", "has_journal"),
    ("^has_journal", "tune2fs", "^has_journal"),
    ("metadata_csum", "tune2fs", "metadata_csum"),
    ("^metadata_csum", "tune2fs", "^metadata_csum"),
    ("uninit_bg", "tune2fs", "uninit_bg"),
    ("^uninit_bg", "tune2fs", "^uninit_bg"),
    ("64bit", "resize2fs", "-b"),
    ("^64bit", "resize2fs", "-s"),
    ("quota", "tune2fs", "quota"),
    ("^quota", "tune2fs", "^quota"),
    ("project", "tune2fs", "project"),
    ("orphan_file", "tune2fs", "orphan_file"),
    ("^orphan_file", "tune2fs", "^orphan_file"),
    ("mmp", "tune2fs", "mmp"),
    ("^mmp", "tune2fs", "^mmp"),
    ("metadata_csum_seed", "tune2fs", "metadata_csum_seed"),
    ("^metadata_csum_seed", "tune2fs", "^metadata_csum_seed"),
    ("casefold", "tune2fs", "casefold"),
    ("^casefold", "tune2fs", "^casefold"),
    ("large_dir", "tune2fs", "large_dir"),
    ("ea_inode", "tune2fs", "ea_inode"),
    ("encrypt", "tune2fs", "encrypt"),
    ("verity", "tune2fs", "verity"),
    ("huge_file", "tune2fs", "huge_file"),
    ("^huge_file", "tune2fs", "^huge_file"),
    ("large_file", "tune2fs", "large_file"),
    ("dir_nlink", "tune2fs", "dir_nlink"),
    ("^dir_nlink", "tune2fs", "^dir_nlink"),
    ("extra_isize", "tune2fs", "extra_isize"),
    ("^extra_isize", "tune2fs", "^extra_isize"),
    ("dir_index", "tune2fs", "dir_index"),
    ("^dir_index", "tune2fs", "^dir_index"),
    ("extents", "tune2fs", "extents"),
    ("filetype", "tune2fs", "filetype"),
    ("flex_bg", "tune2fs", "flex_bg"),
    ("fast_commit", "tune2fs", "fast_commit"),
    ("^fast_commit", "tune2fs", "^fast_commit"),
    ("sparse_super", "tune2fs", "sparse_super"),
    ("^resize_inode", "tune2fs", "^resize_inode"),
    ("read-only", "tune2fs", "read-only"),
    ("^read-only", "tune2fs", "^read-only"),
];

/// Makes a change with e2fsprogs, and all that they ask for besides; false if they refuse.
fn by_theirs(step: &Step, image: &str) -> bool {
    let path = Path::new(image);
    // They want it freshly checked.
    e2fsck(path, &["-fy"]);
    let (_, program, option) = step;
    let run = match *program {
        "resize2fs" => tool("resize2fs").args(["-f", option, image]).run(),
        _ => tool("tune2fs").args(["-f", "-O", option, image]).run(),
    };
    if run.code != 0 {
        return false;
    }
    e2fsck(path, &["-fy"]);
    e2fsck(path, &["-fn"]).code == 0
}

/// What dumpe2fs says that is neither a feature nor follows from what is asked for.
const ASIDE: &[&str] = &[
    "Free blocks",
    "Free inodes",
    "Overhead clusters",
    "Journal",
    "Mount count",
    "Maximum mount count",
    "Directory Hash Seed",
    "Reserved GDT blocks",
    "MMP block number",
    "Orphan file inode",
    "Project quota inode",
    "Last checked",
    "Filesystem state",
    "Checksum seed",
    "Total journal",
    "Max transaction",
    "    mmp_",
];

fn told_apart(ours: &str, theirs: &str) -> Vec<String> {
    let mut found = differences(Path::new(ours), Path::new(theirs));
    found.retain(|line| {
        let line = line.split_once(": ").map_or("", |(_, line)| line);
        !ASIDE.iter().any(|aside| line.starts_with(aside))
    });
    found
}

const BASES: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,uninit_bg,^flex_bg",
    ],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal,^64bit"],
    &["-t", "ext4", "-b", "2048", "-O", "^resize_inode,^dir_index"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext3", "-b", "4096", "-I", "256"],
    &[
        "-t",
        "ext2",
        "-b",
        "1024",
        "-O",
        "^sparse_super,^resize_inode,^filetype",
    ],
    &["-t", "ext2", "-b", "4096", "-I", "256"],
];

fn base(place: &Place, options: &[&str]) -> String {
    let source = place.join("source");
    if !source.exists() {
        place.planted("source", &plan());
    }
    let image = place.join("base.img");
    let _ = std::fs::remove_file(&image);
    let source = source.display().to_string();
    let all = [options, &["-d", &source, "-N", "4096"]].concat();
    mke2fs(&image, 48 << 20, &all);
    image.display().to_string()
}

/// Each change is one of e2fsprogs, and what one of the two refuses the other does not make of it
/// what is sound.
#[test]
fn random_changes_give_what_tune2fs_gives() {
    let seed = seed_from_env("features tuned");
    let mut rng = Rng::new(seed);
    let rounds = std::env::var("EXTANT_TUNINGS")
        .ok()
        .and_then(|n| n.parse().ok());
    let place = Place::new();
    let mut wrong = String::new();
    let (mut done, mut refused) = (0, 0);
    for _ in 0..rounds.unwrap_or(12) {
        let options = *rng.pick(BASES);
        let base = base(&place, options);
        let (ours, theirs) = (place.arg("ours.img"), place.arg("theirs.img"));
        copy_of(&base, &ours);
        copy_of(&base, &theirs);
        let mut told = format!("{options:?}");
        for _ in 0..rng.between(1, 4) {
            let step = *rng.pick(STEPS);
            told.push_str(&format!(" {}", step.0));
            let (before, was) = (
                copy_of(&ours, &place.arg("before")),
                copy_of(&theirs, &place.arg("was")),
            );
            let run = extant(["tune", "--features", step.0, &ours]);
            let here = run.code == 0;
            let there = by_theirs(&step, &theirs);
            let clean = e2fsck(Path::new(&ours), &["-fn"]);
            if clean.code != 0 {
                wrong.push_str(&format!("{told}: {clean}\n"));
                break;
            }
            if here && there {
                done += 1;
                let apart = told_apart(&ours, &theirs);
                if !apart.is_empty() {
                    wrong.push_str(&format!("{told}: {apart:#?}\n"));
                    break;
                }
                if let (true, Some(a), Some(b)) = (
                    Facility::KernelExt4.check().is_ok(),
                    shown(&ours),
                    shown(&theirs),
                ) {
                    // Directories that grow may grow differently.
                    let compare = Compare {
                        blocks: false,
                        ..Compare::same_image()
                    };
                    a.assert_same(&b, &compare);
                }
                continue;
            }
            refused += 1;
            if there && !is_known_refusal(&run.stderr) {
                wrong.push_str(&format!("{told}: refused here alone: {}\n", run.stderr));
            }
            // Both go on from what they had.
            copy_of(&before, &ours);
            copy_of(&was, &theirs);
            if here {
                told.push('!');
            }
        }
        println!("{told}");
    }
    println!("seed {seed}: {done} done by both, {refused} refused by one or both");
    assert!(wrong.is_empty(), "{wrong}");
}

/// What e2fsprogs do and is refused here, with a reason.
fn is_known_refusal(why: &str) -> bool {
    [
        "fast_commit needs",
        "no room for more fields",
        "metadata_csum does what uninit_bg does",
    ]
    .iter()
    .any(|known| why.contains(known))
}

/// Each change on a file system with full directories, there and back: Linux sees the same files.
#[test]
fn features_go_and_come_back_and_files_stay() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    for options in [BASES[0], BASES[2], BASES[7]] {
        let image = base(&place, options);
        let was = seen_by_linux(&image);
        for features in [
            "^has_journal",
            "metadata_csum",
            "^metadata_csum",
            "^uninit_bg",
            "uninit_bg",
            "has_journal",
            "metadata_csum,^uninit_bg",
            "orphan_file",
            "quota,project",
            "^quota",
            "mmp",
            "^mmp",
            "extents,64bit",
            "^64bit",
            "^dir_index",
            "dir_index",
        ] {
            extant(["tune", "--features", features, &image]).ok();
            assert_clean(Path::new(&image));
            extant(["check", &image]).ok();
            was.assert_same(&seen_by_linux(&image), &Compare::same_image());
        }
        let header = dumpe2fs_header(Path::new(&image));
        assert!(header.has_feature("has_journal") && header.has_feature("metadata_csum"));
        // Linux uses all of it.
        let mount = KernelMount::mount(Path::new(&image), Mode::ReadWrite, "");
        for i in 0..300 {
            std::fs::write(mount.join(format!("many/new {i}")), "text").unwrap();
        }
        mount.unmount();
        assert_clean(Path::new(&image));
    }
}
