//! Making a directory of the host like one of an image.

use crate::support::{Image, plan};
use extant::compare::{Aspects, CompareOptions, Side, compare};
use extant::sync::{Change, STAGE, SyncOptions, SyncReport, to_host};
use extant::{Cause, Filesystem};
use std::cell::RefCell;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What `compare` says of an image and a directory.
fn differences(fs: &Filesystem, dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let options = CompareOptions::new(Aspects::ALL);
    let sides = (Side::image(fs, "/"), Side::host(dir));
    let report = compare(&sides.0, &sides.1, &options, |difference| {
        all.push(format!("{difference:?}"));
        ControlFlow::Continue(())
    });
    assert_eq!(report.unwrap().problem_count, 0);
    all
}

fn counts(report: &SyncReport) -> [u64; 5] {
    let SyncReport {
        made,
        replaced,
        removed,
        described,
        bytes,
        ..
    } = report;
    [*made, *replaced, *removed, *described, *bytes]
}

#[test]
fn what_differs_only_is_changed_and_said_beforehand() {
    let image = Image::of(&plan());
    let fs = image.open();
    let dest = image.dir.path().join("dest");
    let mut options = SyncOptions::default();
    options.delete = true;
    options.checksum = true;
    let first = to_host(&fs, "/", &dest, &options).unwrap();
    assert_eq!(first.copied.problem_count, 0, "{:?}", first.copied.problems);
    assert_eq!(differences(&fs, &dest), Vec::<String>::new());
    let again = to_host(&fs, "/", &dest, &options).unwrap();
    assert_eq!(counts(&again), [0; 5]);

    let untouched = fs::metadata(dest.join("sparse")).unwrap().ino();
    fs::write(dest.join("top"), "other").unwrap();
    fs::remove_file(dest.join("a/b/c/file")).unwrap();
    fs::create_dir(dest.join("more")).unwrap();
    fs::write(dest.join("more/file"), "").unwrap();
    fs::remove_file(dest.join("to-dir")).unwrap();
    fs::create_dir(dest.join("to-dir")).unwrap();
    let told = RefCell::new(Vec::new());
    let tell = |change: Change, path: &Path| told.borrow_mut().push((change, path.to_owned()));
    options.dry_run = true;
    options.told = Some(&tell);
    let dry = to_host(&fs, "/", &dest, &options).unwrap();
    assert_eq!(fs::read(dest.join("top")).unwrap(), b"other");
    for (change, path) in [
        (Change::Remove, "/more"),
        (Change::Replace, "/top"),
        (Change::Replace, "/to-dir"),
        (Change::Add, "/a/b/c/file"),
        (Change::Describe, "/a/b/c"),
    ] {
        let expected = (change, path.into());
        assert!(told.borrow().contains(&expected), "{expected:?}: {told:?}");
    }
    options.dry_run = false;
    let wet = to_host(&fs, "/", &dest, &options).unwrap();
    assert_eq!(wet.copied.problem_count, 0, "{:?}", wet.copied.problems);
    assert_eq!(counts(&wet)[..4], counts(&dry)[..4]);
    assert_eq!(counts(&wet)[..3], [3, 2, 1]);
    assert_eq!(differences(&fs, &dest), Vec::<String>::new());
    assert_eq!(fs::metadata(dest.join("sparse")).unwrap().ino(), untouched);
    assert!(!dest.join(STAGE).exists());
}

#[test]
fn what_is_excluded_or_spared_stays() {
    let image = Image::of(&plan());
    let fs = image.open();
    let dest = image.dir.path().join("dest");
    fs::create_dir_all(dest.join("gone/deep")).unwrap();
    for name in [
        "gone/deep/kept.o",
        "gone/file",
        "gone/deep/file",
        "spared",
        "top",
    ] {
        fs::write(dest.join(name), "mine").unwrap();
    }
    let number = |name: &str| {
        let found = fs::metadata(dest.join(name)).unwrap();
        (found.dev(), found.ino())
    };
    let spare = [number("spared"), number("top")];
    let is_object = |path: &Path, _: bool| path.extension().is_some_and(|end| end == "o");
    let mut options = SyncOptions::default();
    options.delete = true;
    options.exclude = Some(&is_object);
    options.spare = &spare;
    let report = to_host(&fs, "/", &dest, &options).unwrap();
    // The image has something in the place of one of them.
    let problem = report.copied.problems.first().map(extant::Error::cause);
    assert!(matches!(problem, Some(Cause::NotKept(_))), "{problem:?}");
    assert!(report.is_removal_left && dest.join("gone/file").exists());
    options.spare = &spare[..1];
    let report = to_host(&fs, "/", &dest, &options).unwrap();
    assert_eq!(
        report.copied.problem_count, 0,
        "{:?}",
        report.copied.problems
    );
    assert_eq!(report.spared, [dest.join("spared")]);
    assert!(dest.join("gone/deep/kept.o").exists() && dest.join("spared").exists());
    assert!(!dest.join("gone/deep/file").exists() && !dest.join("gone/file").exists());
    assert_eq!(fs::metadata(dest.join("top")).unwrap().len(), 300);
}

/// Names are read a directory at a time, and looked at one after the other.
#[test]
fn what_goes_while_it_is_looked_at_is_not_there() {
    let image = Image::of(&plan());
    let fs = image.open();
    let dest = image.dir.path().join("dest");
    to_host(&fs, "/", &dest, &SyncOptions::default()).unwrap();
    fs::write(dest.join("0-first"), "").unwrap();
    fs::write(dest.join("zz-goes"), "").unwrap();
    // A name that both have, and one of the host's alone.
    let goes = |path: &Path, _: bool| {
        if path == Path::new("0-first") {
            fs::remove_file(dest.join("top")).unwrap();
            fs::remove_file(dest.join("zz-goes")).unwrap();
        }
        false
    };
    let mut options = SyncOptions::default();
    options.delete = true;
    options.exclude = Some(&goes);
    let report = to_host(&fs, "/", &dest, &options).unwrap();
    assert_eq!(
        report.copied.problem_count, 0,
        "{:?}",
        report.copied.problems
    );
    assert_eq!(counts(&report)[..3], [1, 0, 1]);
    assert_eq!(differences(&fs, &dest), Vec::<String>::new());
}
