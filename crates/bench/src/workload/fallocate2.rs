//! `fallocate2`: each worker has an unlinked file of its own, reserves the next 8 KiB of it until
//! it has 1 MiB, cuts it to nothing, and begins again. Allocation alone, without data.

use crate::args::{Config, Side};
use crate::crew::{self, share};
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use std::ffi::CString;
use std::path::Path;

/// Bytes of one call.
const STEP: u64 = 8 << 10;
/// Bytes at which a file is cut.
const MOST: u64 = 1 << 20;

/// What a call uses that each file, thread or CPU has its own of. Two files grow in different
/// groups, which at times get another place among all.
const OWN: &[&str] = &[
    "group",
    "preallocations",
    "locality group",
    "inode op",
    "inode map",
    "inode meta",
    "inode pages",
    "journal touched",
    "spare blocks",
    "meta bucket",
    "free blocks near a CPU",
    "groups by largest free block",
    "groups by average free run",
    "journal credits of a shard",
    "changes of a CPU",
    "handles of a CPU",
];

/// See the module.
pub(crate) struct Fallocate2 {
    images: Images,
    calls: u64,
}

impl Fallocate2 {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            calls: config.fallocations.unwrap_or(2_000_000),
        })
    }
}

impl Inside for Fallocate2 {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let dir = mounted.root()?;
        let mut files = Vec::new();
        for worker in 0..case.workers {
            let name = CString::new(format!("worker{worker:03}")).map_err(|e| e.to_string())?;
            files.push(mounted.create(&dir, &name)?);
            mounted.unlink(&dir, &name)?;
        }
        mounted.sync()?;
        let reserve = |worker: usize| {
            let file = &files[worker];
            for i in 0..share(self.calls, case.workers, worker) {
                let at = i * STEP % MOST;
                mounted.fallocate(file, at, STEP)?;
                if at + STEP == MOST {
                    mounted.truncate(file, 0)?;
                }
            }
            Ok(())
        };
        let measured = meter.rate(mounted, self.calls, || {
            crew::timed(case.workers, reserve, || Ok(()))
        })?;
        // More of them than there are goals meet in groups.
        if let (Side::Engine, 2, Some(locks)) = (case.side, case.workers, &measured.locks) {
            locks.expect_unshared(OWN)?;
        }
        Ok(measured)
    }

    fn check(&self, image: &Path, _: &Case) -> Result<Figures, String> {
        let figures = fragments::figures(image)?;
        match figures.get("files") {
            None => Ok(figures),
            Some(files) => Err(format!("{files} files are left of unlinked ones")),
        }
    }
}

impl Workload for Fallocate2 {
    fn name(&self) -> &'static str {
        "fallocate2"
    }

    fn shape(&self) -> Shape {
        Shape::rates(PEERS, &["default"], &[1, 2, 4, 16, 64])
    }

    fn options(&self, case: &Case) -> String {
        let work = format!("{} calls of 8 KiB in all", self.calls);
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(case, self)
    }
}
