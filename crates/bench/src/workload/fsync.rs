//! `fsync`: each worker appends 4 KiB to a file of its own and makes it durable, again and again.

use crate::args::{Config, Side};
use crate::check;
use crate::crew::{self, share};
use crate::locks::{self, LockTable};
use crate::peer::{self, Measured};
use crate::side::Mounted;
use crate::side::engine::Engine;
use crate::side::kernel::Kernel;
use crate::store::{ImageShape, Store};
use crate::workload::{Case, Shape, Workload};
use std::ffi::CString;
use std::path::Path;

/// Bytes of one append.
const APPEND: usize = 4096;

/// See the module.
pub(crate) struct Fsync {
    store: Store,
    operations: u64,
    shape: ImageShape,
    locks: bool,
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
            store: Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?,
            operations: config.operations,
            shape: ImageShape {
                mib: config.image_mib,
                inodes: 4096,
            },
            locks: config.locks,
        })
    }

    /// Runs a case on a mounted image, which is unmounted in the end.
    fn measure<M: Mounted>(&self, mounted: M, case: &Case) -> Result<Measured, String> {
        let dir = mounted.make_dir(c"appended")?;
        let mut files = Vec::new();
        for worker in 0..case.workers {
            let file = CString::new(file_name(worker)).map_err(|e| e.to_string())?;
            files.push(std::sync::Mutex::new(mounted.create(&dir, &file)?));
        }
        mounted.sync()?;

        peer::reset_peak_rss();
        let before = mounted.counters();
        locks::start();
        let append = |worker: usize| {
            let file = files[worker].lock().map_err(|e| e.to_string())?;
            for i in 0..share(self.operations, case.workers, worker) {
                mounted.write_at(&file, i * APPEND as u64, &content(worker, i))?;
                mounted.fsync(&file)?;
            }
            Ok(())
        };
        let seconds = crew::timed(case.workers, append, || Ok(()))?;
        let here = case.side == Side::Engine;
        let measured = Measured {
            value: self.operations as f64 / seconds,
            peak_rss: peer::own_peak_rss().filter(|_| here),
            figures: mounted.counters().since(before, self.operations),
            locks: (here && self.locks).then(|| LockTable::take(self.operations)),
        };
        drop((files, dir));
        mounted.unmount()?;
        Ok(measured)
    }

    /// All that was appended, to a reader that did not write it.
    fn check(&self, image: &Path, case: &Case) -> Result<(), String> {
        check::e2fsck(image)?;
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
        Ok(())
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
            peers: &[Side::Kernel],
            variants: &["default"],
            unit: "ops/s",
            better: "higher",
            workers: &[1, 2, 4, 8, 16],
            peers_have_workers: true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let side = match case.side {
            Side::Kernel => "loop mount, pwrite and fsync",
            _ => "in process, file device",
        };
        let locks = if self.locks { "; counting locks" } else { "" };
        format!(
            "{} appends of 4 KiB, each followed by fsync, {} MiB image on tmpfs (a flush costs little there), {}; {side}{locks}",
            self.operations,
            self.shape.mib,
            case.form.name()
        )
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let image = self.store.fresh_image(case.form, self.shape)?;
        let measured = match case.side {
            Side::Engine => self.measure(Engine::mount(&image)?, case)?,
            Side::Kernel => self.measure(Kernel::mount(&image, case.form)?, case)?,
            other => return Err(format!("{} does not sync", other.name())),
        };
        self.check(&image, case)?;
        Ok(measured)
    }
}
