//! Taking trees out.

use crate::support::{Image, plan};
use extant::export::{ExportOptions, Preserve, Progress, to_directory, to_tar};
use extant_testkit::tree::{Compare, Holes, Tree};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_tree_comes_out_whole_and_the_progress_adds_up() {
    let image = Image::of(&plan());
    let fs = image.open();
    let (planned, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let tell = |progress: Progress| match progress {
        Progress::Planned { files, .. } => planned.store(files, Ordering::SeqCst),
        Progress::Done { files, .. } => {
            done.fetch_add(files, Ordering::SeqCst);
        }
        other => panic!("{other:?}"),
    };
    let mut options = ExportOptions::new(Preserve::ALL);
    options.progress = Some(&tell);
    options.threads = 4;
    let out = image.dir.path().join("out");
    let report = to_directory(&fs, "/", &out, &options).unwrap();
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    assert_eq!(report.files, 3);
    assert_eq!(report.directories, 5);
    assert_eq!(planned.load(Ordering::SeqCst), done.load(Ordering::SeqCst));
    let compare = Compare {
        holes: Holes::NoneLost(4096),
        whole_seconds: true,
        root: false,
        ..Compare::default()
    };
    plan()
        .expected()
        .assert_same(&Tree::snapshot(&out), &compare);
}

#[test]
fn one_file_becomes_the_destination() {
    let image = Image::of(&plan());
    let fs = image.open();
    let out = image.dir.path().join("one");
    let options = ExportOptions::new(Preserve::NONE);
    to_directory(&fs, "/a/b/c/file", &out, &options).unwrap();
    assert_eq!(std::fs::read(&out).unwrap().len(), 10_000);
    let e = to_directory(&fs, "/", image.dir.path().join("no/where"), &options).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::NotFound);
    assert!(to_directory(&fs, "/missing", &out, &options).is_err());
}

#[test]
fn directories_that_forbid_writing_are_filled_before_they_do() {
    let mut plan = plan();
    plan.node_mut("a/b").mode(0o500);
    plan.node_mut("a/b/c").mode(0o000);
    let image = Image::of(&plan);
    let fs = image.open();
    for (name, preserve) in [("all", Preserve::ALL), ("none", Preserve::NONE)] {
        let out = image.dir.path().join(name);
        let report = to_directory(&fs, "/", &out, &ExportOptions::new(preserve)).unwrap();
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
        let mode = |path: &str| out.join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("a/b"), 0o500);
        assert_eq!(mode("a/b/c"), 0);
        let restored = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(out.join("a/b/c"), restored.clone()).unwrap();
        assert!(out.join("a/b/c/file").is_file());
        std::fs::set_permissions(out.join("a/b"), restored).unwrap();
    }
}

#[test]
fn an_archive_stops_when_nobody_takes_it() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            match self.0.checked_sub(bytes.len()) {
                Some(left) => {
                    self.0 = left;
                    Ok(bytes.len())
                }
                None => Err(std::io::ErrorKind::StorageFull.into()),
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let image = Image::of(&plan());
    let e = to_tar(&image.open(), "/", Full(20_000), None).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::StorageFull);
}
