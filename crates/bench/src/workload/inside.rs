//! What workloads inside an image have in common: a fresh image for each repetition, mounted by the
//! side that is measured, looked at by others afterwards.

use super::Case;
use crate::args::{Config, Side, WorkloadName};
use crate::check;
use crate::locks::{self, LockTable};
use crate::peer::{self, Figures, Measured};
use crate::side::engine::Engine;
use crate::side::kernel::Kernel;
use crate::side::{MountChoice, Mounted};
use crate::store::{ImageShape, Store};
use std::path::Path;

/// Work inside a mounted image.
pub(crate) trait Inside {
    /// Does the work of a case, and measures what counts of it with `meter`.
    fn work<M: Mounted>(&self, mounted: &M, case: &Case, meter: &Meter)
    -> Result<Measured, String>;

    /// Looks at the result after the unmount; `e2fsck -fn` has found nothing. What it learns
    /// besides goes with the result.
    fn check(&self, image: &Path, case: &Case) -> Result<Figures, String>;

    /// Bytes that the engine's caches may use, if not as many as usual.
    fn memory(&self, _case: &Case) -> Option<usize> {
        None
    }

    /// How the file system is mounted, where that is not as usual.
    fn choice(&self, _case: &Case, usual: MountChoice) -> MountChoice {
        usual
    }
}

/// The peers of workloads about allocation.
pub(crate) const PEERS: &[Side] = &[
    Side::Mount,
    Side::Kernel,
    Side::Fuse2fs,
    Side::Baseline,
    Side::BaselineCapped,
];

/// Fresh images for one workload.
pub(crate) struct Images {
    pub(crate) store: Store,
    pub(crate) shape: ImageShape,
    locks: bool,
    /// What workers share is listed, not judged.
    lists: bool,
}

impl Images {
    /// Makes the scratch folder for images with so many inodes.
    pub(crate) fn prepare(config: &Config, inodes: u64) -> Result<Self, String> {
        Ok(Self {
            store: Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?,
            shape: ImageShape {
                mib: config.image_mib,
                inodes,
                block_size: None,
            },
            locks: config.locks,
            lists: config.workload == WorkloadName::Shares,
        })
    }

    /// Runs a case on a fresh image.
    pub(crate) fn run(&self, case: &Case, inside: &impl Inside) -> Result<Measured, String> {
        let image = self.store.fresh_image(case.form, self.shape)?;
        self.run_on(&image, case, inside)
    }

    /// Runs a case on an image that is there.
    pub(crate) fn run_on(
        &self,
        image: &Path,
        case: &Case,
        inside: &impl Inside,
    ) -> Result<Measured, String> {
        let choice = MountChoice {
            delalloc: case.variant != "nodelalloc",
            baseline: match case.side {
                Side::Baseline => Some(usize::MAX),
                Side::BaselineCapped => Some(512),
                _ => None,
            },
            memory: inside.memory(case),
            ..MountChoice::default()
        };
        let choice = inside.choice(case, choice);
        let mut measured = match case.side {
            Side::Engine | Side::Baseline | Side::BaselineCapped => {
                self.on(Engine::mount(image, choice)?, case, inside)?
            }
            Side::Kernel => self.on(Kernel::mount(image, case.form, choice)?, case, inside)?,
            Side::Mount => self.on(Kernel::engine(image, choice)?, case, inside)?,
            Side::Fuse2fs => self.on(Kernel::fuse2fs(image, "", choice)?, case, inside)?,
            other => return Err(format!("{} has no such operations", other.name())),
        };
        check::e2fsck(image)?;
        measured.figures.extend(inside.check(image, case)?);
        Ok(measured)
    }

    fn on<M: Mounted>(
        &self,
        mounted: M,
        case: &Case,
        inside: &impl Inside,
    ) -> Result<Measured, String> {
        let here = !matches!(case.side, Side::Kernel | Side::Fuse2fs | Side::Mount);
        let meter = Meter {
            here,
            locks: here && self.locks,
            lists: self.lists,
        };
        let measured = inside.work(&mounted, case, &meter)?;
        mounted.unmount()?;
        Ok(measured)
    }

    /// The image and the side, for the options of a report. `more` is what the workload has to say.
    pub(crate) fn options(&self, case: &Case, more: &str) -> String {
        let side = match case.side {
            Side::Kernel if case.variant == "nodelalloc" => {
                "loop mount, -o nodelalloc, system calls"
            }
            Side::Kernel => "loop mount, system calls",
            Side::Fuse2fs => "fuse2fs, system calls",
            Side::Mount => {
                "mounted through FUSE by the engine, -o no_default_permissions, system calls"
            }
            Side::Baseline => "in process, unimproved forms",
            Side::BaselineCapped => {
                "in process, unimproved forms with 512 preallocations of a file at most"
            }
            _ => "in process, file device, caches of at most 1 GiB",
        };
        let locks = if self.locks { "; counting locks" } else { "" };
        format!(
            "{more}; {} MiB image on tmpfs, {}; {side}{locks}",
            self.shape.mib,
            case.form.name()
        )
    }
}

/// Measures the part of a case that counts.
pub(crate) struct Meter {
    here: bool,
    locks: bool,
    lists: bool,
}

impl Meter {
    /// One for work that other processes do.
    pub(crate) fn of_others() -> Self {
        Self {
            here: false,
            locks: false,
            lists: false,
        }
    }

    /// `operations` per second, of which `timed` takes the seconds it says.
    pub(crate) fn rate<M: Mounted>(
        &self,
        mounted: &M,
        operations: u64,
        timed: impl FnOnce() -> Result<f64, String>,
    ) -> Result<Measured, String> {
        let rate = || timed().map(|seconds| (operations as f64 / seconds, operations));
        self.value(mounted, rate)
    }

    /// The seconds that `timed` says it took for `operations`.
    pub(crate) fn seconds<M: Mounted>(
        &self,
        mounted: &M,
        operations: u64,
        timed: impl FnOnce() -> Result<f64, String>,
    ) -> Result<Measured, String> {
        self.value(mounted, || timed().map(|seconds| (seconds, operations)))
    }

    /// The value that `measured` comes to, which also says how many operations it took.
    pub(crate) fn value<M: Mounted>(
        &self,
        mounted: &M,
        measured: impl FnOnce() -> Result<(f64, u64), String>,
    ) -> Result<Measured, String> {
        peer::reset_peak_rss();
        let before = mounted.counters();
        locks::start();
        let (value, operations) = measured()?;
        Ok(Measured {
            value,
            peak_rss: peer::own_peak_rss().filter(|_| self.here),
            figures: mounted.counters().since(before, operations),
            locks: self.locks.then(|| LockTable::take(operations, !self.lists)),
        })
    }
}
