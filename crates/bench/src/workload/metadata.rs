//! `metadata`: create, stat and unlink many empty files.
//!
//! Every variant begins with a fresh image. What it needs beforehand (files to look at or remove)
//! is made and made durable before the clock starts.

use crate::args::{Config, Side};
use crate::check;
use crate::crew::{self, share};
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter};
use crate::workload::{Case, Shape, Workload};
use std::ffi::{CStr, CString};
use std::path::Path;

/// Locks and atomics of which each file or CPU has its own when names are looked up that are known.
const OWN: &[&str] = &[];

/// Looks at files that `stat` times, at least: with fewer the engine would be done before a clock
/// says much.
const LOOKS: u64 = 2_000_000;

/// See the module.
pub(crate) struct Metadata {
    images: Images,
    files: u64,
}

/// The directories and names of one run.
struct Plan {
    /// Name of each directory.
    dirs: Vec<CString>,
    /// For each worker: the place of its directory in `dirs`, and the names it uses there.
    workers: Vec<(usize, Vec<CString>)>,
}

impl Plan {
    fn new(files: u64, case: &Case) -> Self {
        let shared = case.variant == "create-shared";
        let dirs = if shared { 1 } else { case.workers };
        Self {
            dirs: (0..dirs).map(|d| name(format!("d{d:02}"))).collect(),
            workers: (0..case.workers)
                .map(|w| {
                    let names = 0..share(files, case.workers, w);
                    let names = names.map(|i| name(format!("w{w:02}-{i:07}"))).collect();
                    (if shared { 0 } else { w }, names)
                })
                .collect(),
        }
    }
}

fn name(text: String) -> CString {
    CString::new(text).expect("names of ours have no zero byte")
}

/// What is done to one file.
type Step<'a, M> = dyn Fn(&<M as Mounted>::Dir, &CStr) -> Result<(), String> + Sync + 'a;

impl Metadata {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let inodes = config.files + config.files / 8 + 1024;
        Ok(Self {
            images: Images::prepare(config, inodes)?,
            files: config.files,
        })
    }

    /// How often every file is looked at.
    fn looks(&self, side: Side) -> u64 {
        match side {
            // It would take a quarter of an hour.
            Side::Fuse2fs => 1,
            _ => LOOKS.div_ceil(self.files.max(1)),
        }
    }
}

impl Inside for Metadata {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let plan = Plan::new(self.files, case);
        let dirs = plan
            .dirs
            .iter()
            .map(|d| mounted.make_dir(d))
            .collect::<Result<Vec<_>, _>>()?;
        let each = |worker: usize, op: &Step<'_, M>| {
            let (dir, names) = &plan.workers[worker];
            names.iter().try_for_each(|name| op(&dirs[*dir], name))
        };
        let create = |worker| each(worker, &|dir, name| mounted.create(dir, name).map(drop));
        let stat = |worker| {
            each(worker, &|dir, name| match mounted.stat(dir, name)? {
                0 => Ok(()),
                size => Err(format!("an empty file has {size} bytes")),
            })
        };
        let unlink = |worker| each(worker, &|dir, name| mounted.unlink(dir, name));
        let nothing = || Ok(());
        let workers = case.workers;
        match case.variant {
            "stat" => {
                crew::timed(workers, create, nothing)?;
                crew::timed(workers, stat, nothing)?;
            }
            "unlink" => {
                crew::timed(workers, create, nothing)?;
            }
            _ => {}
        }
        match case.variant {
            // What making the files left to be brought home is not part of looking at them.
            "stat" => mounted.quiesce()?,
            _ => mounted.sync()?,
        }

        let sync = || mounted.sync();
        let looks = match case.variant {
            "stat" => self.looks(case.side),
            _ => 1,
        };
        let measured = meter.rate(mounted, self.files * looks, || match case.variant {
            "stat" => crew::timed(
                workers,
                |worker| (0..looks).try_for_each(|_| stat(worker)),
                nothing,
            ),
            "unlink" => crew::timed(workers, unlink, sync),
            _ => crew::timed(workers, create, sync),
        })?;
        if let (Side::Engine, "stat", Some(locks)) = (case.side, case.variant, &measured.locks) {
            locks.expect_unshared(OWN)?;
        }
        Ok(measured)
    }

    /// The right number of names in each directory, to a reader that did not write them.
    fn check(&self, image: &Path, case: &Case) -> Result<Figures, String> {
        let reader = check::independent_reader(image)?;
        let plan = Plan::new(self.files, case);
        for (at, dir) in plan.dirs.iter().enumerate() {
            let made = plan.workers.iter().filter(|(d, _)| *d == at);
            let expected = match case.variant {
                "unlink" => 0,
                _ => made.map(|(_, names)| names.len()).sum(),
            };
            let path = format!("/{}", dir.to_string_lossy());
            let entries = reader.read_dir(&path).map_err(|e| format!("{path}: {e}"))?;
            let mut found = 0;
            for entry in entries {
                let entry = entry.map_err(|e| format!("{path}: {e}"))?;
                let entry = entry.file_name();
                found += usize::from(entry != "." && entry != "..");
            }
            if found != expected {
                return Err(format!("{path} has {found} names instead of {expected}"));
            }
        }
        Ok(Figures::new())
    }
}

impl Workload for Metadata {
    fn name(&self) -> &'static str {
        "metadata"
    }

    fn shape(&self) -> Shape {
        Shape {
            peers: &[Side::Mount, Side::Kernel, Side::Fuse2fs],
            variants: &["create-own", "create-shared", "stat", "unlink"],
            unit: "ops/s",
            better: "higher",
            workers: &[1, 2],
            peers_have_workers: true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let timed = match (case.variant, self.looks(case.side)) {
            ("stat", looks) => format!(
                "every file looked at once before the clock starts, then {looks} times in a row of all"
            ),
            _ => "a final syncfs is in the time".to_owned(),
        };
        let work = format!(
            "{} files, operations relative to a directory that is open; {timed}",
            self.files
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(case, self)
    }
}
