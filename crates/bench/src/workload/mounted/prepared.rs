//! The images that work begins with: made once, copied for each run.

use crate::args::{Config, KernelForm, Side};
use crate::peer;
use crate::side::kernel::Kernel;
use crate::side::{MountChoice, Mounted};
use crate::source_tree;
use crate::workload::Case;
use crate::workload::build::{command, path};
use crate::workload::inside::{Images, Inside, Meter};
use crate::workload::stream::Stream;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Where a tree is, and its copy.
pub(super) const TREE: &str = "tree";
/// Where a work tree of git is.
pub(super) const WORK_TREE: &str = "work";
/// Files of a directory of the work tree.
const OF_DIR: u64 = 50;
/// Files of the work tree that differ.
const CONTENTS: u64 = 100;

/// How much there is of everything.
#[derive(Clone, Copy)]
pub(super) struct Prepared {
    /// Entries of the tree, and bytes of its files.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// Files of the work tree.
    pub(super) files: u64,
    /// Rows that are inserted.
    pub(super) rows: u64,
}

impl Prepared {
    /// What the command line asks for.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            entries: config.entries,
            bytes: config.bytes,
            files: (config.entries * 2).min(50_000),
            rows: config.operations,
        }
    }

    /// How many inodes an image needs for two trees, or the work tree with what git keeps.
    pub(super) fn inodes(&self) -> u64 {
        (self.entries * 2).max(self.files + self.files / OF_DIR) * 5 / 4 + 4096
    }

    /// The archive of the tree.
    pub(super) fn archive(&self, images: &Images) -> Result<PathBuf, String> {
        let (archive, tree) = (images.store.path("tree.tar"), self.tree(images)?);
        if !archive.exists() {
            let mut pack = command("tar", &["-cf", path(&archive), "-C", path(&tree), "."]);
            peer::measure(std::slice::from_mut(&mut pack)).map_err(|e| e.to_string())?;
        }
        Ok(archive)
    }

    /// The tree.
    pub(super) fn tree(&self, images: &Images) -> Result<PathBuf, String> {
        let tree = images.store.path(TREE);
        if !tree.exists() {
            source_tree::generate(&tree, self.entries, self.bytes)
                .map_err(|e| format!("source tree: {e}"))?;
        }
        Ok(tree)
    }

    /// An image with the tree.
    pub(super) fn with_tree(&self, images: &Images) -> Result<PathBuf, String> {
        let tree = self.tree(images)?;
        template(images, "with-tree", |mounted| {
            let copy = ["-a", path(&tree), path(mounted.path())];
            peer::measure(&mut [command("cp", &copy)]).map_err(|e| e.to_string())?;
            Ok(())
        })
    }

    /// An image with a large file.
    pub(super) fn with_file(&self, images: &Images, stream: &Stream) -> Result<PathBuf, String> {
        template(images, "with-file", |mounted| {
            let case = Case {
                side: Side::Kernel,
                variant: "write",
                workers: 1,
                form: KernelForm::Plain,
            };
            stream.work(mounted, &case, &Meter::of_others()).map(drop)
        })
    }

    /// An image with a work tree of git, all of it committed.
    pub(super) fn with_work_tree(&self, images: &Images) -> Result<PathBuf, String> {
        template(images, "with-work-tree", |mounted| {
            let top = mounted.path().join(WORK_TREE);
            // Older than the index: git reads files again that are as old as that.
            let old = SystemTime::now() - Duration::from_secs(86_400);
            let text = |e: std::io::Error| e.to_string();
            for file in 0..self.files {
                let dir = top.join(format!("d{:05}", file / OF_DIR));
                fs::create_dir_all(&dir).map_err(text)?;
                let name = dir.join(format!("f{file:06}"));
                fs::write(&name, format!("{}\n", file % CONTENTS)).map_err(text)?;
                let times = FileTimes::new().set_modified(old);
                let opened = File::options().write(true).open(&name).map_err(text)?;
                opened.set_times(times).map_err(text)?;
            }
            let author = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
            let commit = ["commit", "-q", "-m", "All"];
            peer::measure(&mut [
                git(&top, &["init", "-q"]),
                git(&top, &["add", "."]),
                git(&top, &[&author[..], &commit].concat()),
            ])
            .map_err(text)?;
            Ok(())
        })
    }
}

/// Git in a work tree, as nobody has set it up.
pub(super) fn git(top: &Path, args: &[&str]) -> Command {
    let mut git = command("git", &["-c", "gc.auto=0", "-C", path(top)]);
    git.args(args);
    for variable in ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"] {
        git.env(variable, "/dev/null");
    }
    git
}

/// An image that Linux filled, once.
fn template(
    images: &Images,
    name: &str,
    fill: impl FnOnce(&Kernel) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let template = images.store.path(name);
    if template.exists() {
        return Ok(template);
    }
    let image = images.store.fresh_image(KernelForm::Plain, images.shape)?;
    let choice = MountChoice {
        delalloc: true,
        ..MountChoice::default()
    };
    let mounted = Kernel::mount(&image, KernelForm::Plain, choice)?;
    fill(&mounted)?;
    mounted.unmount()?;
    fs::rename(&image, &template).map_err(|e| e.to_string())?;
    Ok(template)
}
