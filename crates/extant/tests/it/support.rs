//! An image to look into.

use extant::Filesystem;
use extant_testkit::oracle::mke2fs;
use extant_testkit::plan::{Content, TreePlan};
use std::path::PathBuf;
use tempfile::TempDir;

pub(crate) struct Image {
    pub(crate) dir: TempDir,
    pub(crate) path: PathBuf,
}

impl Image {
    /// An image of 32 MiB with what a plan says, made by `mke2fs -d`.
    pub(crate) fn of(plan: &TreePlan) -> Self {
        Self::with(plan, 32, &[])
    }

    /// One of this size, made with these options.
    pub(crate) fn with(plan: &TreePlan, mebibytes: u64, options: &[&str]) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .expect("a temporary directory");
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        plan.plant(&source);
        let path = dir.path().join("fs.img");
        mke2fs(
            &path,
            mebibytes << 20,
            &[&["-t", "ext4", "-d", source.to_str().unwrap()], options].concat(),
        );
        Self { dir, path }
    }

    pub(crate) fn open(&self) -> Filesystem {
        Filesystem::open(&self.path).expect("the image opens")
    }
}

/// Directories, files and links in all directions.
pub(crate) fn plan() -> TreePlan {
    let mut plan = TreePlan::new();
    plan.dir("a");
    plan.dir("a/b");
    plan.dir("a/b/c");
    plan.file("a/b/c/file", Content::filled(1, 10_000));
    plan.file("top", Content::filled(2, 300));
    plan.file(
        "sparse",
        Content::sparse(3, 1 << 20, [(8192, 4096), (512 << 10, 100)]),
    );
    plan.symlink("to-file", "a/b/c/file");
    plan.symlink("to-dir", "/a/b");
    plan.symlink("a/b/up", "../../top");
    plan.symlink("far-up", "../../../../top");
    plan.symlink("loop", "loop2");
    plan.symlink("loop2", "./loop");
    plan.symlink("nowhere", "missing/x");
    plan.symlink("slash", "a/b/");
    for i in 0..40 {
        let target = match i {
            0 => "top".to_owned(),
            _ => format!("chain{}", i - 1),
        };
        plan.symlink(format!("chain{i}"), target);
    }
    plan.symlink("chain40", "chain39");
    plan
}

/// A new image with nothing in it, for writing.
pub(crate) struct Blank(Image);

impl Blank {
    /// An image of this size, made by `mke2fs`.
    pub(crate) fn new(mebibytes: u64) -> Self {
        Self::with(mebibytes, &["-t", "ext4"])
    }

    /// An image of this size, made by `mke2fs` with these options.
    pub(crate) fn with(mebibytes: u64, options: &[&str]) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .expect("a temporary directory");
        let path = dir.path().join("fs.img");
        mke2fs(&path, mebibytes << 20, options);
        Self(Image { dir, path })
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0.path
    }

    pub(crate) fn open_writable(&self) -> Filesystem {
        Filesystem::open_writable(&self.0.path).expect("the image opens for writing")
    }

    /// Requires that e2fsck finds nothing.
    pub(crate) fn check(&self) {
        extant_testkit::oracle::assert_clean(&self.0.path);
    }
}
