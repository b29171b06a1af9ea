//! `fill`: a file is written once, by single KiB in random order; `fill4`: by four in a row.

use super::pattern::{self, WRITE};
use crate::args::Config;
use crate::crew;
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use extant_testkit::rng::Rng;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Seed of the order.
const SEED: u64 = 0xf111;

/// See the module.
pub(crate) struct Fill {
    images: Images,
    /// First writes of each row, in their order.
    rows: Vec<u32>,
    /// Writes in a row.
    row: u32,
}

impl Fill {
    /// Makes the scratch folder, for rows of so many writes.
    pub(crate) fn prepare(config: &Config, row: u32) -> Result<Self, String> {
        if config.fill_mib * 5 / 4 > config.image_mib {
            let mib = config.fill_mib;
            return Err(format!("a file of {mib} MiB needs a larger image"));
        }
        let writes = u32::try_from(config.fill_mib << 10).map_err(|e| e.to_string())?;
        let mut rows: Vec<u32> = (0..writes / row).map(|i| i * row).collect();
        let mut rng = Rng::new(SEED);
        for i in (1..rows.len()).rev() {
            rows.swap(i, rng.below(i as u64 + 1) as usize);
        }
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            rows,
            row,
        })
    }

    fn writes(&self) -> u64 {
        self.rows.len() as u64 * u64::from(self.row)
    }
}

impl Inside for Fill {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let dir = mounted.root()?;
        let file = mounted.create(&dir, c"filled")?;
        mounted.sync()?;
        let write = |worker: usize| {
            for &first in self.rows.iter().skip(worker).step_by(case.workers) {
                for i in first..first + self.row {
                    let at = u64::from(i) * WRITE as u64;
                    mounted.write_at(&file, at, &pattern::content(i.into()))?;
                }
            }
            Ok(())
        };
        meter.rate(mounted, self.writes(), || {
            crew::timed(case.workers, write, || mounted.fsync(&file))
        })
    }

    fn check(&self, image: &Path, _: &Case) -> Result<Figures, String> {
        pattern::through_kernel(image, "filled", |file| {
            let mut buffer = vec![0; 1 << 20];
            let writes = self.writes();
            let batch = (buffer.len() / WRITE) as u64;
            for first in (0..writes).step_by(batch as usize) {
                let count = batch.min(writes - first);
                let bytes = &mut buffer[..count as usize * WRITE];
                file.read_exact_at(bytes, first * WRITE as u64)
                    .map_err(|e| format!("write {first}: {e}"))?;
                let mut found = (first..).zip(bytes.chunks(WRITE));
                if let Some((i, _)) = found.find(|(i, bytes)| *bytes != pattern::content(*i)) {
                    return Err(format!("write {i} is not there"));
                }
            }
            Ok(())
        })?;
        fragments::figures(image)
    }
}

impl Workload for Fill {
    fn name(&self) -> &'static str {
        match self.row {
            1 => "fill",
            _ => "fill4",
        }
    }

    fn shape(&self) -> Shape {
        Shape::rates(PEERS, &["delalloc", "nodelalloc"], &[1])
    }

    fn options(&self, case: &Case) -> String {
        let work = format!(
            "{} writes of 1 KiB, {} in a row, rows in random order, each once; a final fsync is in \
             the time",
            self.writes(),
            self.row
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(case, self)
    }
}
