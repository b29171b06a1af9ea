//! `extant tune --inode-size` beside `tune2fs -I` on a copy: names, content and attributes stay,
//! and both say the same of the file system.

use crate::support::{Place, copy_of, extant, seen_by_linux, small_plan};
use crate::tuning::differences;
use extant_testkit::facility::Facility;
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write};
use extant_testkit::plan::Content;
use extant_testkit::tool::tool;
use extant_testkit::tree::Compare;
use std::path::Path;

/// Features of ext4 that ext3 has not, off.
const EXT3: &str = "^extent,^64bit,^flex_bg,^metadata_csum,^huge_file,^dir_nlink,^extra_isize";
/// And without a journal.
const EXT2: &str =
    "^has_journal,^extent,^64bit,^flex_bg,^metadata_csum,^huge_file,^dir_nlink,^extra_isize";

/// Options of `mke2fs`, and the sizes that inodes get one after the other. `tune2fs` wants each
/// group to have its own tables.
const BASES: &[(&[&str], &[&str])] = &[
    (&["-I", "128", "-O", EXT2], &["256", "1024"]),
    (&["-b", "1024", "-I", "128", "-O", EXT3], &["256"]),
    (
        &["-b", "1024", "-I", "128", "-O", "^flex_bg,^metadata_csum"],
        &["256", "512"],
    ),
    (&["-b", "1024", "-O", "^flex_bg,quota"], &["512"]),
    (&["-b", "4096", "-O", "^flex_bg,orphan_file"], &["1024"]),
];

/// What of `dumpe2fs` is said by where tables are put, which each of the two chooses.
const ASIDE: &[&str] = &[
    "Free blocks",
    "Overhead",
    "Required extra isize",
    "Desired extra",
];

#[test]
fn larger_inodes_are_those_of_tune2fs() {
    let place = Place::new();
    for (options, sizes) in BASES {
        let _ = std::fs::remove_dir_all(place.join("source"));
        let mut plan = small_plan();
        plan.dir("many");
        for i in 0..300 {
            plan.file(format!("many/{i}"), Content::filled(i, 900));
        }
        let all = [&["-N", "1024"], *options].concat();
        let base = place.image(&plan, &all);
        let long = format!("ea_set /etc/hostname user.long {}", "x".repeat(300));
        let requests = [
            "ea_set /usr/lib/libtwo.so.6 user.small value",
            &long,
            "sif /many/7 uid 70000",
            "rm /many/30",
        ];
        debugfs_write(Path::new(&base), &requests);
        // debugfs keeps no account of quotas, and e2fsck counts before it packs directories.
        for _ in 0..2 {
            assert!(tool("e2fsck").args(["-fy", &base]).run().code <= 1);
        }
        let (ours, theirs) = (place.arg("ours.img"), place.arg("theirs.img"));
        copy_of(&base, &ours);
        copy_of(&base, &theirs);
        for size in *sizes {
            let what = format!("{options:?}, {size}");
            extant(["tune", "--inode-size", size, &ours]).ok();
            tool("tune2fs").args(["-I", size]).arg(&theirs).ok();
            assert_clean(Path::new(&ours));
            extant(["check", &ours]).ok();
            let mut apart = differences(Path::new(&ours), Path::new(&theirs));
            apart.retain(|line| {
                let line = line.split_once(": ").map_or("", |(_, line)| line);
                !ASIDE.iter().any(|aside| line.starts_with(aside))
            });
            assert!(apart.is_empty(), "{what}: {apart:#?}");
            for other in [&base, &theirs] {
                let told = extant(["diff", other, &ours]);
                assert_eq!((told.code, told.text()), (0, String::new()), "{what}");
            }
            let names = extant(["find", &ours]).ok().text().lines().count();
            assert!(names > 300, "{what}: {names} names");
            let listed = debugfs(Path::new(&ours), "ea_list /usr/lib/libtwo.so.6");
            assert!(listed.contains("user.small"), "{what}: {listed}");
            if Facility::KernelExt4.check().is_ok() {
                let compare = Compare::same_image();
                seen_by_linux(&ours).assert_same(&seen_by_linux(&base), &compare);
            }
        }
    }
}
