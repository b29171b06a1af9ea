//! `extract`: every file of an image into a directory, with owners, modes, times and links.

use crate::args::{Config, Side};
use crate::peer::{self, Measured};
use crate::source_tree::{self, SourceTree};
use crate::store::Store;
use crate::workload::build::{Unmount, command, path};
use crate::workload::{Case, Shape, Workload};
use extant::Filesystem;
use extant::export::{ExportOptions, Preserve, to_directory};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// See the module.
pub(crate) struct Extract {
    store: Store,
    tree: SourceTree,
}

impl Extract {
    /// Generates a tree and an image of it, made by the kernel so that the layout is its own.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let store = Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?;
        let tree = source_tree::generate(&store.path("tree"), config.entries, config.bytes)
            .map_err(|e| format!("source tree: {e}"))?;
        let image = store.path("image");
        let mount = store.path("mnt");
        fs::create_dir_all(&mount).map_err(|e| e.to_string())?;
        let size = format!("{}M", tree.bytes.div_ceil(1 << 20) * 14 / 10 + 256);
        let inodes = (tree.entries + tree.entries / 10 + 64).to_string();
        let source = format!("{}/.", path(&tree.root));
        let unmount = Unmount(&mount);
        peer::measure(&mut [
            command(
                "mke2fs",
                &["-q", "-F", "-t", "ext4", "-N", &inodes, path(&image), &size],
            ),
            command("mount", &["-o", "loop", path(&image), path(&mount)]),
            command("cp", &["-a", &source, path(&mount)]),
            command("umount", &[path(&mount)]),
        ])
        .map_err(|e| e.to_string())?;
        drop(unmount);
        Ok(Self { store, tree })
    }

    fn run_side(&self, side: Side, workers: usize, target: &Path) -> Result<Measured, String> {
        let image = self.store.path("image");
        let text = |e: std::io::Error| e.to_string();
        match side {
            Side::Engine => peer::measure_here(|| extract_with_engine(&image, target, workers))
                .map(|(measured, ())| measured),
            Side::Kernel => {
                let mount = self.store.path("mnt");
                let source = format!("{}/.", path(&mount));
                let unmount = Unmount(&mount);
                let measured = peer::measure(&mut [
                    command("mount", &["-o", "loop,ro", path(&image), path(&mount)]),
                    command("cp", &["-a", &source, path(target)]),
                    command("umount", &[path(&mount)]),
                ])
                .map_err(text);
                drop(unmount);
                measured
            }
            Side::Debugfs => {
                let request = format!("rdump / {}", path(target));
                peer::measure(&mut [command("debugfs", &["-R", &request, path(&image)])])
                    .map_err(text)
            }
            other => Err(format!("{} does not extract", other.name())),
        }
    }
}

impl Workload for Extract {
    fn name(&self) -> &'static str {
        "extract"
    }

    fn shape(&self) -> Shape {
        Shape::seconds(&[Side::Kernel, Side::Debugfs])
    }

    fn options(&self, case: &Case) -> String {
        let what = format!(
            "{} entries, {} MB",
            self.tree.entries,
            self.tree.bytes / 1_000_000
        );
        match case.side {
            Side::Kernel => format!("{what}; loop mount + cp -a + umount"),
            Side::Debugfs => format!("{what}; rdump, which keeps neither xattrs nor hard links"),
            _ => what,
        }
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let target = self.store.path("out");
        let _ = fs::remove_dir_all(&target);
        fs::create_dir(&target).map_err(|e| e.to_string())?;
        let measured = self.run_side(case.side, case.workers, &target)?;
        check_copy(&target, &self.tree)?;
        let _ = fs::remove_dir_all(&target);
        Ok(measured)
    }
}

/// The engine's side: open, plan, copy everything `cp -a` would.
fn extract_with_engine(image: &Path, target: &Path, workers: usize) -> Result<(), String> {
    let fs = Filesystem::open(image).map_err(|e| e.to_string())?;
    let mut options = ExportOptions::new(Preserve::ALL);
    options.threads = workers;
    let report = to_directory(&fs, "/", target, &options).map_err(|e| e.to_string())?;
    if report.problem_count == 0 {
        Ok(())
    } else {
        Err(format!(
            "{} files were not copied: {:?}",
            report.problem_count,
            report.problems.first()
        ))
    }
}

/// A sample of files: same content, mode and modification time (to the second, as `rdump` keeps).
fn check_copy(target: &Path, tree: &SourceTree) -> Result<(), String> {
    for sample in &tree.samples {
        let (copy, source) = (target.join(&sample.path), tree.root.join(&sample.path));
        let at = |e: std::io::Error| format!("{}: {e}", copy.display());
        let (a, b) = (
            fs::metadata(&copy).map_err(at)?,
            fs::metadata(&source).map_err(at)?,
        );
        if (a.mode(), a.mtime(), a.len()) != (b.mode(), b.mtime(), b.len())
            || fs::read(&copy).map_err(at)? != fs::read(&source).map_err(at)?
        {
            return Err(format!("{} differs from its source", copy.display()));
        }
    }
    Ok(())
}
