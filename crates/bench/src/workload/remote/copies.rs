//! `cp -a` of many small files out of and into an image behind nbdkit, in seconds. The peer is the
//! same command on the file that nbdfuse shows.

use super::{Far, Place, allowed, figures};
use crate::args::{KernelForm, Side};
use crate::check;
use crate::peer::{self, Figures, Measured};
use crate::server::{Shown, Source};
use crate::source_tree::{self, SourceTree};
use crate::store::ImageShape;
use crate::workload::build::{command, path};
use extant_testkit::link::{Protocol, Speed};
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a file, on average.
const MEAN: u64 = 8 << 10;

/// Which way files are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Out,
    In,
}

/// See the module.
pub(super) struct Copies {
    copied: u64,
    peer_copied: u64,
    /// Trees by their number of files.
    trees: BTreeMap<u64, SourceTree>,
    /// Images of them, by that number.
    images: BTreeMap<u64, PathBuf>,
}

impl Copies {
    pub(super) fn new(copied: u64, peer_copied: u64) -> Self {
        Self {
            copied,
            peer_copied: peer_copied.min(copied),
            trees: BTreeMap::new(),
            images: BTreeMap::new(),
        }
    }

    fn files(&self, side: Side) -> u64 {
        match side {
            Side::Engine => self.copied,
            _ => self.peer_copied,
        }
    }

    pub(super) fn options(&self, side: Side, direction: Direction) -> String {
        let files = self.files(side);
        let scaled = if files < self.copied {
            let times = self.copied as f64 / files as f64;
            format!(" (figures are {times:.1} times those of {files} files)")
        } else {
            String::new()
        };
        let how = match side {
            Side::Nbdfuse => "nbdfuse, then extant cp -a",
            _ => "extant cp -a",
        };
        let which = match (side, direction) {
            (Side::Nbdfuse, Direction::Out) => " from the file it shows",
            (Side::Nbdfuse, Direction::In) => " into the file it shows",
            _ => "",
        };
        format!(
            "{} files of 8 KiB on average{scaled}; {how}{which}; nbdkit",
            self.copied
        )
    }

    /// The tree of so many files.
    fn tree(&mut self, place: &Place, files: u64) -> Result<&SourceTree, String> {
        match self.trees.entry(files) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                // Directories and links come on top.
                let entries = files * 6 / 5;
                let root = place.free(&format!("tree-{files}"))?;
                let tree = source_tree::generate(&root, entries, files * MEAN)
                    .map_err(|e| format!("source tree: {e}"))?;
                Ok(unknown.insert(tree))
            }
        }
    }

    /// An image of the tree of so many files.
    fn image(&mut self, place: &Place, files: u64) -> Result<PathBuf, String> {
        if let Some(image) = self.images.get(&files) {
            return Ok(image.clone());
        }
        let image = place.free(&format!("copy-out-{files}.img"))?;
        let tree = self.tree(place, files)?;
        let shape = shape(tree);
        let (inodes, size) = (shape.inodes.to_string(), format!("{}M", shape.mib));
        let root = path(&tree.root);
        let options = ["-q", "-F", "-t", "ext4", "-N", &inodes, "-d", root];
        let args = [&options[..], &[path(&image), &size]].concat();
        peer::measure(&mut [command("mke2fs", &args)]).map_err(|e| e.to_string())?;
        self.images.insert(files, image.clone());
        Ok(image)
    }

    pub(super) fn run(
        &mut self,
        place: &Place,
        side: Side,
        direction: Direction,
        speed: Speed,
    ) -> Result<Measured, String> {
        let files = self.files(side);
        let measured = match direction {
            Direction::Out => self.out(place, side, files, speed),
            Direction::In => self.into(place, side, files, speed),
        }?;
        let times = self.copied as f64 / files as f64;
        let scale = |(name, value): (&'static str, f64)| {
            let is_amount = matches!(name, "round trips" | "requests" | "MiB moved");
            (name, if is_amount { value * times } else { value })
        };
        Ok(Measured {
            value: measured.value * times,
            figures: measured.figures.into_iter().map(scale).collect(),
            ..measured
        })
    }

    fn out(
        &mut self,
        place: &Place,
        side: Side,
        files: u64,
        speed: Speed,
    ) -> Result<Measured, String> {
        let image = self.image(place, files)?;
        let tree = self.tree(place, files)?;
        let target = place.free("out")?;
        let measured = copy(place, side, &image, false, speed, |at| {
            ["cp", "-a", at, path(&target)].map(str::to_owned).into()
        })?;
        let compare = |source: &Path, below: &Path| same_file(source, &target.join(below));
        each(&tree.root, Path::new(""), &compare)?;
        place.free("out")?;
        Ok(measured)
    }

    fn into(
        &mut self,
        place: &Place,
        side: Side,
        files: u64,
        speed: Speed,
    ) -> Result<Measured, String> {
        let tree = self.tree(place, files)?;
        let image = place.store.fresh_image(KernelForm::Plain, shape(tree))?;
        let measured = copy(place, side, &image, true, speed, |at| {
            let args = ["cp", "-a", "-T", path(&tree.root), at];
            args.map(str::to_owned).into()
        })?;
        check::e2fsck(&image)?;
        let inside = check::independent_reader(&image)?;
        let compare = |source: &Path, below: &Path| same_inside(source, &inside, below);
        each(&tree.root, Path::new(""), &compare)?;
        Ok(measured)
    }
}

/// An image that has room for a tree.
fn shape(tree: &SourceTree) -> ImageShape {
    ImageShape {
        mib: tree.bytes.div_ceil(1 << 20) * 14 / 10 + 256,
        inodes: tree.entries + tree.entries / 10 + 64,
        block_size: None,
    }
}

/// Runs `extant` with the arguments for where the image's root is.
fn copy(
    place: &Place,
    side: Side,
    image: &Path,
    is_writable: bool,
    speed: Speed,
    args: impl FnOnce(&str) -> Vec<String>,
) -> Result<Measured, String> {
    let text = |e: std::io::Error| e.to_string();
    let far = place.behind_a_link(Protocol::Nbd, image, is_writable, speed)?;
    match side {
        Side::Engine => {
            let command = place.extant.run(args(&format!("{}:/", far.address)));
            let measured = peer::measure(&mut [command]).map_err(text)?;
            let figures = counted(&far, speed, measured.value)?;
            Ok(Measured {
                figures,
                ..measured
            })
        }
        Side::Nbdfuse => {
            let start = Instant::now();
            let shown = Shown::new(&place.serving, &Source::Uri(&far.address), is_writable)?;
            let command = place
                .extant
                .run(args(&format!("{}:/", path(&shown.file()))));
            let measured = peer::measure(&mut [command]).map_err(text)?;
            let value = start.elapsed().as_secs_f64();
            let figures = counted(&far, speed, value)?;
            let peak_rss = measured.peak_rss.max(shown.peak_rss());
            shown.end()?;
            Ok(Measured {
                value,
                peak_rss,
                figures,
                ..measured
            })
        }
        other => Err(format!("{} copies no files", other.name())),
    }
}

/// What went over the link in so many seconds, and how much longer that is than it had to be.
fn counted(far: &Far, speed: Speed, seconds: f64) -> Result<Figures, String> {
    let counts = far.counts()?;
    let mut figures = figures(&counts);
    if let Some(allowed) = allowed(&counts, speed) {
        figures.insert("times the link's bound", seconds / allowed);
    }
    Ok(figures)
}

/// Calls `compare` for each entry below `root`, with its path and that below the root.
fn each(
    root: &Path,
    below: &Path,
    compare: &dyn Fn(&Path, &Path) -> Result<(), String>,
) -> Result<(), String> {
    let dir = root.join(below);
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    for entry in fs::read_dir(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let below = below.join(entry.file_name());
        compare(&entry.path(), &below)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            each(root, &below, compare)?;
        }
    }
    Ok(())
}

/// Content or target, mode, and time of change to the second, as `mke2fs -d` keeps it.
fn same_file(source: &Path, copy: &Path) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", copy.display());
    let (a, b) = (
        source.symlink_metadata().map_err(at)?,
        copy.symlink_metadata().map_err(at)?,
    );
    let is_same = (a.mode(), a.mtime()) == (b.mode(), b.mtime())
        && if a.is_file() {
            fs::read(source).map_err(at)? == fs::read(copy).map_err(at)?
        } else if a.is_symlink() {
            fs::read_link(source).map_err(at)? == fs::read_link(copy).map_err(at)?
        } else {
            true
        };
    if is_same {
        Ok(())
    } else {
        Err(format!("{} differs from its source", copy.display()))
    }
}

/// Content or target in an image, as a reader sees it that did not write it.
fn same_inside(source: &Path, image: &ext4_view::Ext4, below: &Path) -> Result<(), String> {
    let inside = format!("/{}", path(below));
    let failed = |e: ext4_view::Ext4Error| format!("{inside}: {e}");
    let at = |e: std::io::Error| format!("{}: {e}", source.display());
    let kind = source.symlink_metadata().map_err(at)?;
    let found = image.symlink_metadata(&inside).map_err(failed)?;
    let is_same = if kind.is_file() {
        image.read(&inside).map_err(failed)? == fs::read(source).map_err(at)?
    } else if kind.is_symlink() {
        let target = image.read_link(&inside).map_err(failed)?;
        let expected = fs::read_link(source).map_err(at)?;
        AsRef::<[u8]>::as_ref(&target) == expected.as_os_str().as_bytes()
    } else {
        found.is_dir()
    };
    if is_same {
        Ok(())
    } else {
        Err(format!("{inside} differs from its source"))
    }
}
