//! `append64`: many workers let files of their own grow by 4 KiB at a time with `fallocate`, all at
//! once. The result that counts is in how many pieces the files are.

use crate::args::Config;
use crate::crew::{self, share};
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use std::ffi::CString;
use std::path::Path;

/// Bytes of one call.
const STEP: u64 = 4 << 10;

/// See the module.
pub(crate) struct Append64 {
    images: Images,
    calls: u64,
}

impl Append64 {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let calls = config.fallocations.unwrap_or(1 << 18);
        let needed = (calls * STEP * 3 / 2) >> 20;
        if needed > config.image_mib {
            return Err(format!("{calls} appends need an image of {needed} MiB"));
        }
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            calls,
        })
    }
}

impl Inside for Append64 {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let dir = mounted.make_dir(c"appended")?;
        let mut files = Vec::new();
        for worker in 0..case.workers {
            let name = CString::new(format!("worker{worker:03}")).map_err(|e| e.to_string())?;
            files.push(mounted.create(&dir, &name)?);
        }
        mounted.sync()?;
        let append = |worker: usize| {
            (0..share(self.calls, case.workers, worker))
                .try_for_each(|i| mounted.fallocate(&files[worker], i * STEP, STEP))
        };
        meter.rate(mounted, self.calls, || {
            crew::timed(case.workers, append, || mounted.sync())
        })
    }

    fn check(&self, image: &Path, case: &Case) -> Result<Figures, String> {
        let figures = fragments::figures(image)?;
        match figures.get("files") {
            Some(&files) if files == case.workers as f64 => Ok(figures),
            other => Err(format!("{other:?} files instead of {}", case.workers)),
        }
    }
}

impl Workload for Append64 {
    fn name(&self) -> &'static str {
        "append64"
    }

    fn shape(&self) -> Shape {
        Shape::rates(PEERS, &["default"], &[64])
    }

    fn options(&self, case: &Case) -> String {
        let work = format!(
            "{} calls of 4 KiB in all; a final syncfs is in the time",
            self.calls
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(case, self)
    }
}
