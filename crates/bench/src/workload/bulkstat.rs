//! `bulkstat`: every inode of a file system is looked at, by all threads together.
//!
//! | variant | the engine | others |
//! |---|---|---|
//! | `cold` | through its cache of inodes, just mounted | threads that list the directories and stat every name, just mounted |
//! | `cycle` | the same, with room for an eighth of the inodes: most go again at once | as above |
//! | `recycle` | the same once more, through a cache that has what was looked at last | the same once more |
//! | `warm` | through its cache, where all inodes are already | the same once more |
//! | `tables` | straight from the inode tables, just mounted | as `cold`: there is no such way |
//!
//! With `--locks` it is an error if workers that find all inodes in memory share anything but, once
//! for some hundred inodes, the counter of parts.

use crate::args::{Config, KernelForm, Side};
use crate::crew;
use crate::peer::{Figures, Measured};
use crate::side::engine::Engine;
use crate::side::{MountChoice, Mounted, Visit};
use crate::store::ImageShape;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Files in a directory.
const IN_DIR: u64 = 1000;
/// Bytes that caches account for an inode.
const INODE_BYTES: u64 = 512;
/// Times the room for all inodes that is given where none is to go: each CPU has an equal share of
/// it, however few inodes its threads meet.
const AMPLE: usize = 8;

/// Looks at inodes that `warm` times, at least: once over half a million is done before a clock
/// says much.
const LOOKS: u64 = 5_000_000;

/// What workers share that look at inodes in memory: the taking of the next part of the tables.
const RARE: &[&str] = &["bulkstat parts"];

/// See the module.
pub(crate) struct Bulkstat {
    images: Images,
    inodes: u64,
    /// Where the image is to stay, or is already.
    keep: Option<PathBuf>,
    /// The image, once it is made.
    image: Option<PathBuf>,
}

impl Bulkstat {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let inodes = config.inodes;
        let mut images = Images::prepare(config, inodes + inodes / 8 + 4096)?;
        // Room for the inode tables and the directories.
        let mib = ((inodes * 400) >> 20) + 256;
        images.shape = ImageShape {
            mib,
            ..images.shape
        };
        Ok(Self {
            images,
            inodes,
            keep: config.keep.clone(),
            image: None,
        })
    }

    /// Directories, and files in all of them.
    fn counts(&self) -> (u64, u64) {
        let dirs = (self.inodes / (IN_DIR + 1)).max(1);
        (dirs, self.inodes - dirs)
    }

    /// How often every inode is looked at.
    fn looks(&self, case: &Case) -> u64 {
        match (case.variant, case.side) {
            // Of `fuse2fs` once takes half a minute.
            ("warm", side) if side != Side::Fuse2fs => LOOKS.div_ceil(self.inodes.max(1)),
            _ => 1,
        }
    }

    /// The image with the files in it.
    fn image(&mut self) -> Result<PathBuf, String> {
        if let Some(image) = &self.image {
            return Ok(image.clone());
        }
        let image = match &self.keep {
            // Of an earlier run; the count of its inodes is checked each time.
            Some(kept) if kept.exists() => kept.clone(),
            Some(kept) => {
                self.images.shape.format(KernelForm::Plain, kept)?;
                self.fill(kept).inspect_err(|_| {
                    let _ = std::fs::remove_file(kept);
                })?;
                kept.clone()
            }
            None => {
                let store = &self.images.store;
                let made = store.fresh_image(KernelForm::Plain, self.images.shape)?;
                self.fill(&made)?;
                let image = store.path("bulkstat");
                std::fs::rename(&made, &image).map_err(|e| e.to_string())?;
                image
            }
        };
        self.image = Some(image.clone());
        Ok(image)
    }

    /// Makes the directories and files.
    fn fill(&self, image: &Path) -> Result<(), String> {
        let (dirs, files) = self.counts();
        let engine = Engine::mount(image, MountChoice::default())?;
        for dir in 0..dirs {
            let name = CString::new(format!("d{dir:05}")).map_err(|e| e.to_string())?;
            let opened = engine.make_dir(&name)?;
            for file in 0..crew::share(files, dirs as usize, dir as usize) {
                let name = CString::new(format!("f{file:04}")).map_err(|e| e.to_string())?;
                engine.create(&opened, &name)?;
            }
        }
        engine.unmount()
    }
}

impl Inside for Bulkstat {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let how = match case.variant {
            "tables" => Visit::Tables,
            _ => Visit::Cache,
        };
        let visit = || {
            let visited = mounted.visit_inodes(how, case.workers)?;
            // The engine also visits the root and what a file system has for itself.
            if (self.inodes..self.inodes + 16).contains(&visited) {
                Ok(())
            } else {
                Err(format!("{visited} inodes instead of {}", self.inodes))
            }
        };
        if matches!(case.variant, "warm" | "recycle") {
            visit()?;
        }
        // The workers are started by the side.
        let looks = self.looks(case);
        let measured = meter.rate(mounted, self.inodes * looks, || {
            crew::timed(1, |_| (0..looks).try_for_each(|_| visit()), || Ok(()))
        })?;
        if let (Side::Engine, "warm", Some(locks)) = (case.side, case.variant, &measured.locks) {
            locks.expect_unshared(RARE)?;
        }
        Ok(measured)
    }

    fn check(&self, _: &Path, _: &Case) -> Result<Figures, String> {
        Ok(Figures::new())
    }

    fn memory(&self, case: &Case) -> Option<usize> {
        let all = (self.inodes * INODE_BYTES) as usize;
        // A quarter of the memory is for inodes.
        Some(match case.variant {
            "cycle" | "recycle" => all / 8 * 4,
            _ => all * 4 * AMPLE,
        })
    }
}

impl Workload for Bulkstat {
    fn name(&self) -> &'static str {
        "bulkstat"
    }

    fn shape(&self) -> Shape {
        Shape {
            peers: PEERS,
            variants: &["cold", "cycle", "recycle", "warm", "tables"],
            unit: "inodes/s",
            better: "higher",
            workers: &[1, 2, 4, 16],
            peers_have_workers: true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let how = match (case.variant, self.looks(case)) {
            ("warm", 1) => "all in memory".to_owned(),
            ("warm", looks) => format!("all in memory, {looks} times in a row"),
            ("cycle", _) => "just mounted, room for an eighth (engine)".to_owned(),
            ("recycle", _) => "once more, room for an eighth (engine)".to_owned(),
            _ => "just mounted".to_owned(),
        };
        let (dirs, _) = self.counts();
        let work = format!("{} inodes in {dirs} directories, {how}", self.inodes);
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let image = self.image()?;
        self.images.run_on(&image, case, self)
    }
}
