//! `live`: reserves every other block of a file, so that one more preallocation is alive after each call:
//! the block in between. What counts is the rate of calls when so many are alive already, and that it
//! does not fall as they get more.

use crate::args::{Config, Side};
use crate::crew;
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use std::path::Path;

/// Bytes of a block.
const BLOCK: u64 = 1 << 10;
/// Calls that are measured at least.
const LEAST: u64 = 10_000;

/// See the module.
pub(crate) struct Live {
    images: Images,
}

impl Live {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        Ok(Self {
            images: Images::prepare(config, 4096)?,
        })
    }
}

/// Preallocations that are to be alive, and calls to measure then.
fn counts(case: &Case) -> (u64, u64) {
    let alive = match case.variant {
        "1e3" => 1_000,
        "1e4" => 10_000,
        "1e5" => 100_000,
        _ => 1_000_000,
    };
    (alive, LEAST.max(alive / 10))
}

impl Inside for Live {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let (alive, calls) = counts(case);
        let dir = mounted.root()?;
        let file = mounted.create(&dir, c"file")?;
        // The calls lie in the middle of the file: whoever appends has nothing kept ready before it.
        mounted.truncate(&file, (alive + calls) * 2 * BLOCK)?;
        let reserve = |calls: std::ops::Range<u64>| {
            calls
                .into_iter()
                .try_for_each(|i| mounted.fallocate(&file, i * 2 * BLOCK, BLOCK))
        };
        reserve(0..alive)?;
        mounted.sync()?;
        let before = mounted.preallocations(&file);
        let capped = case.side == Side::BaselineCapped;
        if let Some(before) = before.filter(|&n| !capped && n < alive * 9 / 10) {
            return Err(format!(
                "{before} preallocations are alive instead of {alive}"
            ));
        }
        let mut measured = meter.rate(mounted, calls, || {
            crew::timed(1, |_| reserve(alive..alive + calls), || Ok(()))
        })?;
        let after = mounted.preallocations(&file);
        let figures = &mut measured.figures;
        figures.extend(before.map(|n| ("alive before", n as f64)));
        figures.extend(after.map(|n| ("alive after", n as f64)));
        Ok(measured)
    }

    fn check(&self, image: &Path, _: &Case) -> Result<Figures, String> {
        fragments::figures(image)
    }
}

impl Workload for Live {
    fn name(&self) -> &'static str {
        "live"
    }

    fn shape(&self) -> Shape {
        Shape::rates(PEERS, &["1e3", "1e4", "1e5", "1e6"], &[1])
    }

    fn options(&self, case: &Case) -> String {
        let (_, calls) = counts(case);
        let work = format!("{calls} calls of 1 KiB, 1 KiB apart, after as many as are to be alive");
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let (alive, calls) = counts(case);
        let shape = crate::store::ImageShape {
            mib: 256.max(((alive + calls) * 2 * BLOCK * 5 / 4) >> 20),
            block_size: Some(BLOCK as u32),
            ..self.images.shape
        };
        let image = self.images.store.fresh_image(case.form, shape)?;
        self.images.run_on(&image, case, self)
    }
}
