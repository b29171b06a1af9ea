//! `overwrite`: all workers together read and write 4 KiB here and there in 32 files that hold data
//! already, as often the one as the other.
//!
//! | variant | the engine | the kernel, fuse2fs | the ceiling |
//! |---|---|---|---|
//! | `direct` | past memory | `O_DIRECT` | `raw`: the same transfers within one backing file, no file system |
//! | `buffered` | through memory, which holds all | the same | |
//! | `dax` | a device in memory, direct access | | `memcpy`: the same transfers within memory, each worker anywhere in all of it |
//!
//! With `--locks` it is an error if a direct transfer shares anything with others: anything but the
//! mark of a reader in the thread's own row, and the count of changes under way in the CPU's own
//! line.
//!
//! Nothing is written back while `buffered` is measured; how long that takes afterwards is a figure
//! beside it.

use crate::args::{Config, Side};
use crate::check;
use crate::crew::{self, share};
use crate::peer::{Figures, Measured};
use crate::shared_memory::SharedMemory;
use crate::side::{MountChoice, Mounted};
use crate::workload::inside::{Images, Inside, Meter};
use crate::workload::{Case, Shape, Workload};
use extant_blockdev::AlignedBuf;
use extant_testkit::rng::Rng;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Bytes of one transfer.
const BLOCK: usize = 4096;
/// Files.
const FILES: u64 = 32;
/// Bytes written at once to fill a file.
const FILL: usize = 1 << 20;
/// Reads of a file before it is measured: more than there are rows of readers, four times over.
const MANY_READS: usize = 600;
/// Files of which all content is looked at afterwards.
const SAMPLED: usize = 4;
/// What direct transfers use that each thread or CPU has its own of.
const OWN: &[&str] = &["inode op", "changes of a CPU"];

/// See the module.
pub(crate) struct Overwrite {
    images: Images,
    transfers: u64,
    /// Blocks of a file.
    blocks: u64,
}

impl Overwrite {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let fill = (FILL / BLOCK) as u64;
        // Half of the image in all, in whole pieces.
        let blocks = ((config.image_mib << 20) / 2 / FILES / BLOCK as u64) / fill * fill;
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            transfers: config.transfers,
            blocks,
        })
    }

    fn bytes(&self) -> u64 {
        FILES * self.blocks * BLOCK as u64
    }

    /// Does the transfers of a worker with `transfer`, which is told a file, a block of it, whether
    /// to write, and the buffer.
    fn work_of(
        &self,
        case: &Case,
        worker: usize,
        mut transfer: impl FnMut(u64, u64, bool, &mut [u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut rng = Rng::new(0x0e_17_e7 + worker as u64);
        let mut from = AlignedBuf::zeroed(BLOCK);
        let mut into = AlignedBuf::zeroed(BLOCK);
        from.fill(worker as u8 | 1);
        for _ in 0..share(self.transfers, case.workers, worker) {
            let number = rng.next_u64();
            let (file, block) = ((number >> 1) % FILES, (number >> 8) % self.blocks);
            if number & 1 == 0 {
                stamp(&mut from, file, block);
                transfer(file, block, true, &mut from)?;
            } else {
                transfer(file, block, false, &mut into)?;
                expect(&into, file, block)?;
            }
        }
        Ok(())
    }

    /// Makes megabytes of `seconds`.
    fn rate(&self, measured: Measured) -> Measured {
        let bytes = self.transfers as f64 * BLOCK as f64;
        Measured {
            value: bytes / 1e6 / measured.value,
            ..measured
        }
    }

    /// A backing file without a file system: of its second and third quarter, the rest is there
    /// too.
    fn raw(&self, case: &Case) -> Result<Measured, String> {
        let path = self
            .images
            .store
            .fresh_image(case.form, self.images.shape)?;
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let first = (self.images.shape.mib << 20) / 4;
        for number in 0..FILES {
            let start = first + number * self.blocks * BLOCK as u64;
            self.fill(number, |offset, piece| {
                file.write_all_at(piece, start + offset).map_err(failed)
            })?;
        }
        let work = |worker| {
            self.work_of(case, worker, |number, block, writes, buf| {
                let at = first + (number * self.blocks + block) * BLOCK as u64;
                let done = if writes {
                    file.write_all_at(buf, at)
                } else {
                    file.read_exact_at(buf, at)
                };
                done.map_err(failed)
            })
        };
        let value = crew::timed(case.workers, work, || Ok(()))?;
        Ok(self.rate(Measured {
            value,
            ..Measured::default()
        }))
    }

    /// Memory, all of which any worker copies to and from.
    fn memcpy(&self, case: &Case) -> Result<Measured, String> {
        let memory = SharedMemory::new(self.bytes() as usize);
        for number in 0..FILES {
            let start = (number * self.blocks) as usize * BLOCK;
            self.fill(number, |offset, piece| {
                memory.copy_in(start + offset as usize, piece);
                Ok(())
            })?;
        }
        let work = |worker| {
            self.work_of(case, worker, |number, block, writes, buf| {
                let at = (number * self.blocks + block) as usize * BLOCK;
                if writes {
                    memory.copy_in(at, buf)
                } else {
                    memory.copy_out(at, buf)
                }
                Ok(())
            })
        };
        let value = crew::timed(case.workers, work, || Ok(()))?;
        Ok(self.rate(Measured {
            value,
            ..Measured::default()
        }))
    }

    /// Fills a file by pieces, each given to `write` with its offset.
    fn fill(
        &self,
        number: u64,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut piece = AlignedBuf::zeroed(FILL);
        let in_piece = (FILL / BLOCK) as u64;
        for first in (0..self.blocks).step_by(in_piece as usize) {
            for (i, block) in (0_u64..).zip(piece.chunks_mut(BLOCK)) {
                stamp(block, number, first + i);
            }
            write(first * BLOCK as u64, &piece)?;
        }
        Ok(())
    }
}

/// Says in a block which one it is, at both ends.
fn stamp(bytes: &mut [u8], file: u64, block: u64) {
    let own = (file << 32 | block).to_le_bytes();
    bytes[..8].copy_from_slice(&own);
    bytes[BLOCK - 8..].copy_from_slice(&own);
}

/// Whether a block is the one it should be.
fn expect(bytes: &[u8], file: u64, block: u64) -> Result<(), String> {
    let own = (file << 32 | block).to_le_bytes();
    if bytes[..8] == own && bytes[BLOCK - 8..] == own {
        Ok(())
    } else {
        Err(format!("block {block} of file {file} holds something else"))
    }
}

fn file_name(number: u64) -> String {
    format!("file{number:02}")
}

impl Inside for Overwrite {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let dir = mounted.make_dir(c"files")?;
        let mut files = Vec::new();
        for number in 0..FILES {
            let name = CString::new(file_name(number)).map_err(|e| e.to_string())?;
            let file = mounted.create(&dir, &name)?;
            mounted.fallocate(&file, 0, self.blocks * BLOCK as u64)?;
            self.fill(number, |offset, piece| {
                mounted.write_at(&file, offset, piece)
            })?;
            files.push(file);
        }
        mounted.sync()?;
        // Everything that comes once has come: nothing is measured but the transfers.
        let mut piece = AlignedBuf::zeroed(FILL);
        for file in &files {
            for at in (0..self.blocks * BLOCK as u64).step_by(FILL) {
                mounted.read_at(file, at, &mut piece)?;
            }
            mounted.read_at(file, 0, &mut piece)?;
            mounted.write_at(file, 0, &piece)?;
            // Readers of a lock leave it alone once there have been some.
            for _ in 0..MANY_READS {
                mounted.read_at(file, 0, &mut piece[..BLOCK])?;
            }
        }
        mounted.sync()?;
        let work = |worker| {
            self.work_of(case, worker, |number, block, writes, buf| {
                let (file, at) = (&files[number as usize], block * BLOCK as u64);
                if writes {
                    mounted.write_at(file, at, buf)
                } else {
                    mounted.read_at(file, at, buf)
                }
            })
        };
        let mut measured = meter.seconds(mounted, self.transfers, || {
            crew::timed(case.workers, work, || Ok(()))
        })?;
        if let (Side::Engine, "direct", Some(locks)) = (case.side, case.variant, &measured.locks) {
            locks.expect_unshared(OWN)?;
        }
        let start = Instant::now();
        mounted.sync()?;
        let syncfs = start.elapsed().as_secs_f64();
        measured.figures.insert("syncfs seconds", syncfs);
        Ok(self.rate(measured))
    }

    /// Some of the files, to a reader that did not write them.
    fn check(&self, image: &Path, case: &Case) -> Result<Figures, String> {
        let reader = check::independent_reader(image)?;
        for number in (0..FILES).step_by(FILES as usize / SAMPLED) {
            let path = format!("/files/{}", file_name(number));
            let found = reader.read(&path).map_err(|e| format!("{path}: {e}"))?;
            if found.len() as u64 != self.blocks * BLOCK as u64 {
                return Err(format!("{path} has {} bytes", found.len()));
            }
            let mut overwritten = 0;
            for (block, bytes) in (0_u64..).zip(found.chunks(BLOCK)) {
                expect(bytes, number, block).map_err(|e| format!("{path}: {e}"))?;
                overwritten += u64::from(bytes[BLOCK / 2] != 0);
            }
            if overwritten == 0 && self.transfers > 100 * FILES {
                let variant = case.variant;
                return Err(format!("{path}: nothing was overwritten in {variant}"));
            }
        }
        Ok(Figures::new())
    }

    fn choice(&self, case: &Case, usual: MountChoice) -> MountChoice {
        MountChoice {
            direct: case.variant == "direct",
            dax: case.variant == "dax",
            // All of it may be dirty without anybody writing it back.
            cache_bytes: Some(self.bytes() as usize * 16),
            delalloc: true,
            ..usual
        }
    }
}

impl Workload for Overwrite {
    fn name(&self) -> &'static str {
        "overwrite"
    }

    fn shape(&self) -> Shape {
        Shape {
            peers: &[
                Side::Raw,
                Side::Memcpy,
                Side::Kernel,
                Side::Fuse2fs,
                Side::Baseline,
            ],
            variants: &["direct", "buffered", "dax"],
            unit: "MB/s",
            better: "higher",
            workers: &[1, 2, 16],
            peers_have_workers: true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let work = format!(
            "{} transfers of 4 KiB in {FILES} files of {} MiB",
            self.transfers,
            (self.blocks * BLOCK as u64) >> 20
        );
        match (case.side, case.variant) {
            (Side::Raw, _) => format!("{work} laid end to end in the middle of a backing file"),
            (Side::Memcpy, _) => {
                format!("{work} laid end to end in memory, each worker anywhere in all of it")
            }
            (Side::Engine, "dax") => {
                let image = self.images.options(case, &work);
                format!("{image}, which is copied into a device in memory")
            }
            _ => self.images.options(case, &work),
        }
    }

    fn does(&self, side: Side, variant: &str) -> bool {
        match side {
            Side::Raw => variant == "direct",
            Side::Memcpy => variant == "dax",
            Side::Kernel | Side::Fuse2fs => variant != "dax",
            // Writing to memory has no other form.
            Side::Baseline => variant != "buffered",
            _ => true,
        }
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        match case.side {
            Side::Raw => self.raw(case),
            Side::Memcpy => self.memcpy(case),
            _ => self.images.run(case, self),
        }
    }
}
