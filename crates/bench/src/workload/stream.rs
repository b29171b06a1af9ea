//! `stream`: one file from its start to its end by 1 MiB: `write`, with a final `fsync`, and
//! `read`, of a file system that was just mounted.

use crate::args::Config;
use crate::crew;
use crate::peer::{Figures, Measured};
use crate::side::engine::Engine;
use crate::side::{MountChoice, Mounted};
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::pattern;
use crate::workload::{Case, Shape, Workload};
use std::ffi::CStr;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of one transfer.
const PIECE: usize = 1 << 20;
/// The file.
pub(crate) const NAME: &CStr = c"stream";

/// See the module.
pub(crate) struct Stream {
    images: Images,
    /// Pieces of the file.
    pub(crate) pieces: u64,
}

impl Stream {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            // A quarter of the image.
            pieces: (config.image_mib / 4).max(1),
        })
    }

    fn write<M: Mounted>(&self, mounted: &M) -> Result<(), String> {
        let dir = mounted.root()?;
        let file = mounted.create(&dir, NAME)?;
        let mut piece = vec![0; PIECE];
        for i in 0..self.pieces {
            fill(&mut piece, i);
            mounted.write_at(&file, i * PIECE as u64, &piece)?;
        }
        mounted.fsync(&file)?;
        mounted.close(file)
    }

    fn read<M: Mounted>(&self, mounted: &M) -> Result<(), String> {
        let dir = mounted.root()?;
        let file = mounted.open(&dir, NAME)?;
        let mut piece = vec![0; PIECE];
        for i in 0..self.pieces {
            mounted.read_at(&file, i * PIECE as u64, &mut piece)?;
            // All of it is looked at afterwards: here a look must not cost what is measured.
            if piece[..8] != i.to_le_bytes() {
                return Err(format!("piece {i} is another one's"));
            }
        }
        mounted.close(file)
    }
}

/// What piece `i` holds.
fn fill(piece: &mut [u8], i: u64) {
    piece.fill(i as u8 | 1);
    piece[..8].copy_from_slice(&i.to_le_bytes());
}

impl Inside for Stream {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let work = |_| match case.variant {
            "read" => self.read(mounted),
            _ => self.write(mounted),
        };
        let measured = meter.seconds(mounted, self.pieces, || crew::timed(1, work, || Ok(())))?;
        Ok(Measured {
            value: self.pieces as f64 * PIECE as f64 / 1e6 / measured.value,
            ..measured
        })
    }

    fn check(&self, image: &Path, _: &Case) -> Result<Figures, String> {
        pattern::through_kernel(image, "stream", |file| {
            let (mut found, mut expected) = (vec![0; PIECE], vec![0; PIECE]);
            for i in 0..self.pieces {
                fill(&mut expected, i);
                file.read_exact_at(&mut found, i * PIECE as u64)
                    .map_err(|e| format!("piece {i}: {e}"))?;
                if found != expected {
                    return Err(format!("piece {i} does not hold what was written"));
                }
            }
            Ok(())
        })?;
        Ok(Figures::new())
    }
}

impl Workload for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn shape(&self) -> Shape {
        Shape {
            unit: "MB/s",
            ..Shape::rates(PEERS, &["write", "read"], &[1])
        }
    }

    fn options(&self, case: &Case) -> String {
        let work = format!("{} MiB by 1 MiB", self.pieces);
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let image = self
            .images
            .store
            .fresh_image(case.form, self.images.shape)?;
        if case.variant == "read" {
            let choice = MountChoice {
                delalloc: true,
                ..MountChoice::default()
            };
            let engine = Engine::mount(&image, choice)?;
            self.write(&engine)?;
            engine.unmount()?;
        }
        self.images.run_on(&image, case, self)
    }
}
