//! `fsync`: each worker appends 4 KiB to a file of its own and makes it durable, again and again.

use crate::args::{Config, Side};
use crate::check;
use crate::crew::{self, share};
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter};
use crate::workload::{Case, Shape, Workload};
use std::ffi::CString;
use std::path::Path;

/// Bytes of one append.
const APPEND: usize = 4096;

/// See the module.
pub(crate) struct Fsync {
    images: Images,
    operations: u64,
}

impl Fsync {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let needed = (config.operations * APPEND as u64 * 2) >> 20;
        if needed > config.image_mib {
            return Err(format!(
                "{} appends need an image of {needed} MiB",
                config.operations
            ));
        }
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            operations: config.operations,
        })
    }
}

impl Inside for Fsync {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let dir = mounted.make_dir(c"appended")?;
        let mut files = Vec::new();
        for worker in 0..case.workers {
            let file = CString::new(file_name(worker)).map_err(|e| e.to_string())?;
            files.push(mounted.create(&dir, &file)?);
        }
        mounted.sync()?;

        let append = |worker: usize| {
            let file = &files[worker];
            for i in 0..share(self.operations, case.workers, worker) {
                mounted.write_at(file, i * APPEND as u64, &content(worker, i))?;
                mounted.fsync(file)?;
            }
            Ok(())
        };
        meter.rate(mounted, self.operations, || {
            crew::timed(case.workers, append, || Ok(()))
        })
    }

    /// All that was appended, to a reader that did not write it.
    fn check(&self, image: &Path, case: &Case) -> Result<Figures, String> {
        let reader = check::independent_reader(image)?;
        for worker in 0..case.workers {
            let path = format!("/appended/{}", file_name(worker));
            let found = reader.read(&path).map_err(|e| format!("{path}: {e}"))?;
            let appends = share(self.operations, case.workers, worker);
            if found.len() as u64 != appends * APPEND as u64 {
                return Err(format!("{path} has {} bytes", found.len()));
            }
            let wrong = (0..appends)
                .zip(found.chunks(APPEND))
                .find(|(i, chunk)| *chunk != content(worker, *i));
            if let Some((i, _)) = wrong {
                return Err(format!("{path}: append {i} is not what was written"));
            }
        }
        Ok(Figures::new())
    }
}

fn file_name(worker: usize) -> String {
    format!("worker{worker:02}")
}

/// What append `i` of a worker writes.
fn content(worker: usize, i: u64) -> [u8; APPEND] {
    let mut content = [worker as u8; APPEND];
    content[..8].copy_from_slice(&i.to_le_bytes());
    content
}

impl Workload for Fsync {
    fn name(&self) -> &'static str {
        "fsync"
    }

    fn shape(&self) -> Shape {
        Shape {
            peers: &[Side::Mount, Side::Kernel],
            variants: &["default"],
            unit: "ops/s",
            better: "higher",
            workers: &[1, 2, 4, 8, 16],
            peers_have_workers: true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let work = format!(
            "{} appends of 4 KiB, each followed by fsync (a flush costs little on tmpfs)",
            self.operations
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(case, self)
    }
}
