//! `sparse`: 1 KiB after each 7 KiB of a hole, one file, from its start to its end.

use super::pattern::{self, WRITE};
use crate::args::Config;
use crate::crew::{self, share};
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes from one write to the next.
const STRIDE: u64 = 8 << 10;
/// Writes that are read back.
const SAMPLES: u64 = 20_000;

/// See the module.
pub(crate) struct Sparse {
    images: Images,
    writes: u64,
}

impl Sparse {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let needed = (config.writes * 5120) >> 20;
        if needed > config.image_mib {
            let writes = config.writes;
            return Err(format!("{writes} writes need an image of {needed} MiB"));
        }
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            writes: config.writes,
        })
    }
}

impl Inside for Sparse {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let dir = mounted.root()?;
        let file = mounted.create(&dir, c"sparse")?;
        mounted.sync()?;
        let write = |worker: usize| {
            let before: u64 = (0..worker)
                .map(|w| share(self.writes, case.workers, w))
                .sum();
            let own = before..before + share(self.writes, case.workers, worker);
            own.into_iter()
                .try_for_each(|i| mounted.write_at(&file, i * STRIDE, &pattern::content(i)))
        };
        meter.rate(mounted, self.writes, || {
            crew::timed(case.workers, write, || mounted.fsync(&file))
        })
    }

    fn check(&self, image: &Path, _: &Case) -> Result<Figures, String> {
        pattern::through_kernel(image, "sparse", |file| {
            let mut gap = [0; STRIDE as usize - WRITE];
            for i in (0..self.writes).step_by(self.writes.div_ceil(SAMPLES).max(1) as usize) {
                pattern::expect(file, i * STRIDE, i)?;
                let at = i * STRIDE + WRITE as u64;
                let len = file.read_at(&mut gap, at).map_err(|e| e.to_string())?;
                if gap[..len].iter().any(|&byte| byte != 0) {
                    return Err(format!("the gap at byte {at} is not zeros"));
                }
            }
            Ok(())
        })?;
        fragments::figures(image)
    }
}

impl Workload for Sparse {
    fn name(&self) -> &'static str {
        "sparse"
    }

    fn shape(&self) -> Shape {
        Shape::rates(PEERS, &["delalloc", "nodelalloc"], &[1])
    }

    fn options(&self, case: &Case) -> String {
        let work = format!(
            "{} writes of 1 KiB, 7 KiB between them; a final fsync is in the time",
            self.writes
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(case, self)
    }
}
