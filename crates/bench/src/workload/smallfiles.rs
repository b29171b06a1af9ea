//! `smallfiles`: many workers create files of 2 KiB in directories of their own, and remove them,
//! with a `syncfs` after each of both.

use crate::args::Config;
use crate::crew::{self, share};
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use std::ffi::CString;
use std::path::Path;

/// Bytes of a file.
const SIZE: usize = 2 << 10;
/// Files that are read back in each directory.
const SAMPLES: u64 = 16;

/// See the module.
pub(crate) struct Smallfiles {
    images: Images,
    files: u64,
}

impl Smallfiles {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let inodes = config.files + config.files / 8 + 4096;
        Ok(Self {
            images: Images::prepare(config, inodes)?,
            files: config.files,
        })
    }
}

fn name(i: u64) -> CString {
    CString::new(format!("file{i:07}")).expect("names of ours have no zero byte")
}

fn content(worker: usize, i: u64) -> [u8; SIZE] {
    let mut content = [worker as u8 | 1; SIZE];
    content[..8].copy_from_slice(&i.to_le_bytes());
    content
}

impl Inside for Smallfiles {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let dirs = (0..case.workers)
            .map(|w| CString::new(format!("d{w:03}")).map_err(|e| e.to_string()))
            .map(|name| mounted.make_dir(&name?))
            .collect::<Result<Vec<_>, _>>()?;
        mounted.sync()?;
        let names = |worker| 0..share(self.files, case.workers, worker);
        let sync = || mounted.sync();
        let create = |worker: usize| {
            names(worker).try_for_each(|i| {
                let file = mounted.create(&dirs[worker], &name(i))?;
                mounted.write_at(&file, 0, &content(worker, i))
            })
        };
        let unlink =
            |worker: usize| names(worker).try_for_each(|i| mounted.unlink(&dirs[worker], &name(i)));
        let look = |worker: usize| {
            let step = share(self.files, case.workers, worker).div_ceil(SAMPLES);
            names(worker)
                .step_by(step.max(1) as usize)
                .try_for_each(|i| {
                    let mut found = [0; SIZE + 1];
                    let len = mounted.read(&dirs[worker], &name(i), &mut found)?;
                    if found[..len] == content(worker, i) {
                        Ok(())
                    } else {
                        Err(format!("file {i} of worker {worker} has other content"))
                    }
                })
        };
        let (mut created, mut removed) = (0.0, 0.0);
        let mut measured = meter.seconds(mounted, self.files, || {
            created = crew::timed(case.workers, create, sync)?;
            (0..case.workers).try_for_each(look)?;
            removed = crew::timed(case.workers, unlink, sync)?;
            Ok(created + removed)
        })?;
        measured.figures.insert("create s", created);
        measured.figures.insert("unlink s", removed);
        Ok(measured)
    }

    fn check(&self, image: &Path, _: &Case) -> Result<Figures, String> {
        let figures = fragments::figures(image)?;
        match figures.get("files") {
            None => Ok(figures),
            Some(files) => Err(format!("{files} files are left of removed ones")),
        }
    }
}

impl Workload for Smallfiles {
    fn name(&self) -> &'static str {
        "smallfiles"
    }

    fn shape(&self) -> Shape {
        Shape {
            peers: PEERS,
            variants: &["delalloc", "nodelalloc"],
            unit: "s",
            better: "lower",
            workers: &[64],
            peers_have_workers: true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let work = format!(
            "{} files of 2 KiB, a directory for each worker; a syncfs after creating and one after \
             removing are in the time",
            self.files
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(case, self)
    }
}
