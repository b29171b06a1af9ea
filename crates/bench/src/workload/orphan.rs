//! `orphan`: what noting orphans costs truncations, and unlinks of files that are open.
//!
//! | variant | one operation |
//! |---|---|
//! | `list`, `file` | a truncation: each worker cuts a file of its own from 4 KiB to 1 byte, a byte at a time, makes it 4 KiB long again, and begins anew |
//! | `list-blocks`, `file-blocks` | a truncation that frees a block: each worker reserves 256 KiB and cuts the file block by block |
//! | `list-unlink`, `file-unlink` | a file is made, unlinked while it is open, and closed |
//!
//! Orphans are noted on the list or in the orphan file, as the first word says; of all sides alike.
//!
//! With `--locks` it is an error if truncations by a byte share anything, with orphans in the
//! orphan file.

use crate::args::{Config, KernelForm, Side};
use crate::crew::{self, share};
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use std::ffi::CString;
use std::path::Path;

/// Bytes of a file that is cut byte by byte.
const SIZE: u64 = 4 << 10;
/// Bytes of a block.
const BLOCK: u64 = 4 << 10;
/// Bytes of a file that is cut block by block.
const LARGE: u64 = 256 << 10;

/// What a truncation uses that each file, thread or CPU has its own of.
const OWN: &[&str] = &[
    "inode op",
    "inode pages",
    "inode meta",
    "file writeback",
    "folio",
    "blocks promised to a file",
    "placed blocks",
    "preallocations",
    "orphan file slot",
    "orphan file free slots",
    "journal credits of a shard",
    "changes of a CPU",
    "handles of a CPU",
];

/// See the module.
pub(crate) struct Orphan {
    images: Images,
    truncations: u64,
}

impl Orphan {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            truncations: config.truncations,
        })
    }

    fn operations(&self, case: &Case) -> u64 {
        // The others take longer.
        match kind(case) {
            Kind::Bytes => self.truncations,
            Kind::Blocks | Kind::Unlink => (self.truncations / 4).max(1),
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Bytes,
    Blocks,
    Unlink,
}

fn kind(case: &Case) -> Kind {
    match case.variant {
        "list-blocks" | "file-blocks" => Kind::Blocks,
        "list-unlink" | "file-unlink" => Kind::Unlink,
        _ => Kind::Bytes,
    }
}

/// The case with the kind of image that its variant asks for.
fn with_form(case: &Case) -> Case {
    let form = if case.variant.starts_with("file") {
        KernelForm::OrphanFile
    } else {
        case.form
    };
    Case { form, ..*case }
}

fn name(worker: usize) -> Result<CString, String> {
    CString::new(format!("worker{worker:03}")).map_err(|e| e.to_string())
}

impl Inside for Orphan {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let kind = kind(case);
        let operations = self.operations(case);
        let mut dirs = Vec::new();
        let mut files = Vec::new();
        for worker in 0..case.workers {
            let dir = mounted.make_dir(&name(worker)?)?;
            let file = mounted.create(&dir, c"file")?;
            if matches!(kind, Kind::Bytes) {
                mounted.write_at(&file, 0, &[worker as u8 | 1; SIZE as usize])?;
                mounted.fsync(&file)?;
            }
            files.push(file);
            dirs.push(dir);
        }
        mounted.sync()?;
        let work = |worker: usize| {
            let file = &files[worker];
            let mut size = match kind {
                Kind::Bytes => SIZE,
                _ => 0,
            };
            for _ in 0..share(operations, case.workers, worker) {
                match kind {
                    Kind::Bytes => {
                        size = if size == 1 { SIZE } else { size - 1 };
                        mounted.truncate(file, size)?;
                    }
                    Kind::Blocks => {
                        if size == 0 {
                            size = LARGE;
                            mounted.fallocate(file, 0, size)?;
                        }
                        size -= BLOCK;
                        mounted.truncate(file, size)?;
                    }
                    Kind::Unlink => {
                        let open = mounted.create(&dirs[worker], c"open")?;
                        mounted.unlink(&dirs[worker], c"open")?;
                        mounted.close(open)?;
                    }
                }
            }
            Ok(())
        };
        let measured = meter.rate(mounted, operations, || {
            crew::timed(case.workers, work, || Ok(()))
        })?;
        if let (Side::Engine, "file", Some(locks)) = (case.side, case.variant, &measured.locks) {
            locks.expect_unshared(OWN)?;
        }
        Ok(measured)
    }

    fn check(&self, image: &Path, case: &Case) -> Result<Figures, String> {
        let reader = crate::check::independent_reader(image)?;
        for worker in 0..case.workers {
            let dir = format!("/worker{worker:03}");
            let entries = reader
                .read_dir(&dir[..])
                .map_err(|e| format!("{dir}: {e}"))?;
            // `.`, `..` and the file.
            let found = entries.count();
            if found != 3 {
                return Err(format!("{dir} has {found} entries instead of 3"));
            }
        }
        Ok(Figures::new())
    }
}

impl Workload for Orphan {
    fn name(&self) -> &'static str {
        "orphan"
    }

    fn shape(&self) -> Shape {
        Shape::rates(
            PEERS,
            &[
                "list",
                "file",
                "list-blocks",
                "file-blocks",
                "list-unlink",
                "file-unlink",
            ],
            &[1, 2, 4, 10, 20, 40],
        )
    }

    fn options(&self, case: &Case) -> String {
        let operations = self.operations(case);
        let work = match kind(case) {
            Kind::Bytes => format!("{operations} truncations by a byte in all"),
            Kind::Blocks => format!("{operations} truncations by a block in all"),
            Kind::Unlink => format!("{operations} files unlinked while open in all"),
        };
        self.images.options(&with_form(case), &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.images.run(&with_form(case), self)
    }
}
