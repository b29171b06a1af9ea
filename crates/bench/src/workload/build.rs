//! `build`: an image from a directory tree, everything included, flushed at the end.

use crate::args::{Config, Side};
use crate::check;
use crate::peer::{self, Measured};
use crate::source_tree::{self, SourceTree};
use crate::store::Store;
use crate::workload::{Case, Shape, Workload};
use extant_mkfs::defaults::{FormatOptions, InodeDensity};
use extant_mkfs::source::{ScanOptions, scan_directory};
use extant_mkfs::{BuildOptions, Silent, Size};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Image size for a tree of `bytes` bytes: room for every peer's overhead, in MiB.
pub(crate) fn image_mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20) * 14 / 10 + 256
}

/// See the module.
pub(crate) struct Build {
    store: Store,
    tree: SourceTree,
    mib: u64,
}

impl Build {
    /// Generates the source tree.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let store = Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?;
        let tree = source_tree::generate(&store.path("tree"), config.entries, config.bytes)
            .map_err(|e| format!("source tree: {e}"))?;
        Ok(Self {
            mib: image_mib(tree.bytes),
            store,
            tree,
        })
    }

    /// The inode count every side is asked for.
    fn inodes(&self) -> u64 {
        self.tree.entries + self.tree.entries / 10 + 64
    }

    fn run_side(&self, side: Side, workers: usize, image: &Path) -> Result<Measured, String> {
        let size = format!("{}M", self.mib);
        let inodes = self.inodes().to_string();
        let text = |e: std::io::Error| e.to_string();
        match side {
            Side::Engine => peer::measure_here(|| {
                build_with_engine(
                    &self.tree.root,
                    image,
                    self.mib << 20,
                    self.inodes(),
                    workers,
                )
            })
            .map(|(measured, ())| measured),
            Side::Mke2fs => peer::measure(&mut [command(
                "mke2fs",
                &[
                    "-q",
                    "-F",
                    "-t",
                    "ext4",
                    "-N",
                    &inodes,
                    "-d",
                    path(&self.tree.root),
                    path(image),
                    &size,
                ],
            )])
            .map_err(text),
            Side::Genext2fs => {
                let blocks = (self.mib * 256).to_string();
                peer::measure(&mut [command(
                    "genext2fs",
                    &[
                        "-B",
                        "4096",
                        "-b",
                        &blocks,
                        "-N",
                        &inodes,
                        "-d",
                        path(&self.tree.root),
                        path(image),
                    ],
                )])
                .map_err(text)
            }
            Side::Kernel => {
                let mount = self.store.path("mnt");
                fs::create_dir_all(&mount).map_err(text)?;
                let source = format!("{}/.", path(&self.tree.root));
                let unmount = Unmount(&mount);
                let measured = peer::measure(&mut [
                    command(
                        "mke2fs",
                        &["-q", "-F", "-t", "ext4", "-N", &inodes, path(image), &size],
                    ),
                    command("mount", &["-o", "loop", path(image), path(&mount)]),
                    command("cp", &["-a", &source, path(&mount)]),
                    command("umount", &[path(&mount)]),
                ])
                .map_err(text);
                drop(unmount);
                measured
            }
            other => Err(format!("{} does not build images", other.name())),
        }
    }
}

/// Unmounts if something is still mounted there, also after a failure.
pub(crate) struct Unmount<'a>(pub(crate) &'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-q")
            .arg(self.0)
            .stderr(std::process::Stdio::null())
            .status();
    }
}

/// A command with its arguments.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// A path of ours as text; all of them are ASCII.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("scratch paths are ASCII")
}

impl Workload for Build {
    fn name(&self) -> &'static str {
        "build"
    }

    fn shape(&self) -> Shape {
        Shape::seconds(&[Side::Kernel, Side::Mke2fs, Side::Genext2fs])
    }

    fn options(&self, case: &Case) -> String {
        let what = format!(
            "{} entries, {} MB, image {} MiB",
            self.tree.entries,
            self.tree.bytes / 1_000_000,
            self.mib
        );
        match case.side {
            Side::Kernel => format!("{what}; mke2fs + loop mount + cp -a + umount"),
            Side::Genext2fs => format!("{what}; ext2, 4 KiB blocks"),
            _ => what,
        }
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let image = self.store.path("image");
        let _ = fs::remove_file(&image);
        let measured = self.run_side(case.side, case.workers, &image)?;
        check_image(case.side, &image, &self.tree)?;
        let _ = fs::remove_file(&image);
        Ok(measured)
    }
}

/// Reads a whole file of an image.
type Reader = dyn Fn(&str) -> Result<Vec<u8>, String>;

/// `e2fsck -fn`, then a sample of files read back by a reader that did not write them.
pub(crate) fn check_image(side: Side, image: &Path, tree: &SourceTree) -> Result<(), String> {
    check::e2fsck(image)?;
    let read: Box<Reader> = if side == Side::Genext2fs {
        // An ext2 without file types in its directories, which ext4-view does not read.
        let fs = extant::Filesystem::open(image).map_err(|e| e.to_string())?;
        Box::new(move |file| fs.read(file).map_err(|e| e.to_string()))
    } else {
        let fs = ext4_view::Ext4::load_from_path(image).map_err(|e| format!("ext4-view: {e}"))?;
        Box::new(move |file| fs.read(file).map_err(|e| e.to_string()))
    };
    for sample in &tree.samples {
        let inside = format!("/{}", path(&sample.path));
        let found = read(&inside).map_err(|e| format!("{inside}: {e}"))?;
        let expected = fs::read(tree.root.join(&sample.path)).map_err(|e| e.to_string())?;
        if found != expected {
            return Err(format!("{inside}: content differs from the source"));
        }
    }
    Ok(())
}

/// The engine's side: scan, plan, write, flush.
fn build_with_engine(
    source: &Path,
    image: &Path,
    size: u64,
    inodes: u64,
    workers: usize,
) -> Result<(), String> {
    let threads = std::num::NonZero::new(workers);
    let mut options = ScanOptions::default();
    options.threads = threads;
    let tree = scan_directory(source, &options).map_err(|e| e.to_string())?;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let mut format = FormatOptions::new(size, now);
    format.inodes = InodeDensity::Count(inodes as u32);
    let options = BuildOptions::new(format, Size::Bytes(size)).threads(threads);
    extant_mkfs::build(Some(&tree), image, None, &options, &Silent).map_err(|e| e.to_string())?;
    Ok(())
}
