//! `age`: files of all sizes are written, several at a time, made longer and removed, round after
//! round, in a file system that stays 70% or 95% full. The result is in how many pieces the files
//! are in the end; all sides follow the same trace. After each round the image is unmounted and
//! checked.

use super::pattern;
use crate::args::Config;
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use extant_testkit::oracle::dumpe2fs_header;
use extant_testkit::rng::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Directories that files are spread over.
const DIRS: u64 = 16;
/// Files that are written at a time.
const STREAMS: usize = 4;
/// Largest write.
const MOST: u64 = 128 << 10;

/// See the module.
pub(crate) struct Age {
    images: Images,
    rounds: u32,
    seed: u64,
}

impl Age {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let inodes = config.image_mib << 7;
        Ok(Self {
            images: Images::prepare(config, inodes)?,
            rounds: config.rounds,
            seed: config.seed,
        })
    }
}

/// One thing to do.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create(u64),
    Open(u64),
    Write { file: u64, offset: u64, len: u64 },
    Close(u64),
    Remove(u64),
}

/// A file that is being written.
#[derive(Clone, Copy, Debug)]
struct Stream {
    file: u64,
    /// How long it is by now.
    at: u64,
    /// How long it is going to be.
    end: u64,
}

/// What is to be done next, for every side alike.
struct Trace {
    rng: Rng,
    /// Bytes of a block.
    block: u64,
    /// Bytes that files may take, whole blocks counted.
    full: u64,
    used: u64,
    written: u64,
    /// Number of the next new file.
    next: u64,
    /// Sizes of files that nobody writes to.
    files: BTreeMap<u64, u64>,
    streams: Vec<Stream>,
}

impl Trace {
    fn blocks(&self, size: u64) -> u64 {
        size.next_multiple_of(self.block)
    }

    /// Sizes over four orders of magnitude, most of them small.
    fn size(&mut self) -> u64 {
        match self.rng.below(100) {
            0..60 => self.rng.between(100, 16 << 10),
            60..92 => self.rng.between(16 << 10, 256 << 10),
            _ => self.rng.between(256 << 10, 8 << 20),
        }
    }

    fn act(&mut self) -> Act {
        let streams = self.streams.iter();
        let planned: u64 = streams
            .map(|stream| self.blocks(stream.end) - self.blocks(stream.at))
            .sum();
        if self.used + planned > self.full && !self.files.is_empty() {
            return self.remove();
        }
        if self.streams.len() < STREAMS {
            return self.start();
        }
        let i = self.rng.below(self.streams.len() as u64) as usize;
        let Stream { file, at, end } = self.streams[i];
        if at == end {
            self.streams.swap_remove(i);
            self.files.insert(file, end);
            return Act::Close(file);
        }
        let len = self.rng.between(1, MOST).min(end - at);
        self.streams[i].at += len;
        self.used += self.blocks(at + len) - self.blocks(at);
        self.written += len;
        let offset = at;
        Act::Write { file, offset, len }
    }

    /// A new file, or one that gets longer.
    fn start(&mut self) -> Act {
        let more = self.size();
        if self.rng.one_in(4)
            && let Some((file, at)) = self.take_any()
        {
            let end = at + more;
            self.streams.push(Stream { file, at, end });
            return Act::Open(file);
        }
        let file = self.next;
        self.next += 1;
        self.streams.push(Stream {
            file,
            at: 0,
            end: more,
        });
        Act::Create(file)
    }

    fn remove(&mut self) -> Act {
        let (file, size) = self.take_any().unwrap_or_default();
        self.used -= self.blocks(size);
        Act::Remove(file)
    }

    fn take_any(&mut self) -> Option<(u64, u64)> {
        let from = self.rng.below(self.next.max(1));
        let mut all = self.files.range(from..).chain(self.files.range(..from));
        let (&file, &size) = all.next()?;
        self.files.remove(&file);
        Some((file, size))
    }
}

fn dir_name(dir: u64) -> CString {
    CString::new(format!("dir{dir:02}")).expect("names of ours have no zero byte")
}

fn name(file: u64) -> CString {
    CString::new(format!("file{file}")).expect("names of ours have no zero byte")
}

fn byte(file: u64) -> u8 {
    file as u8 | 1
}

/// One round of a trace.
struct Round<'a> {
    trace: &'a RefCell<Trace>,
    /// Whether it is the first one.
    first: bool,
    /// How much to write.
    bytes: u64,
}

impl Inside for Round<'_> {
    fn work<M: Mounted>(&self, mounted: &M, _: &Case, meter: &Meter) -> Result<Measured, String> {
        let dirs = (0..DIRS).map(|dir| {
            if self.first {
                mounted.make_dir(&dir_name(dir))
            } else {
                mounted.open_dir(&dir_name(dir))
            }
        });
        let dirs = dirs.collect::<Result<Vec<_>, _>>()?;
        let dir = |file: u64| &dirs[(file % DIRS) as usize];
        let mut trace = self.trace.borrow_mut();
        let until = trace.written + self.bytes;
        let mut open: BTreeMap<u64, M::File> = BTreeMap::new();
        for stream in &trace.streams {
            let file = stream.file;
            open.insert(file, mounted.open(dir(file), &name(file))?);
        }
        let mut buffer = vec![0; MOST as usize];
        meter.seconds(mounted, 1, || {
            let start = Instant::now();
            while trace.written < until {
                match trace.act() {
                    Act::Create(file) => {
                        open.insert(file, mounted.create(dir(file), &name(file))?);
                    }
                    Act::Open(file) => {
                        open.insert(file, mounted.open(dir(file), &name(file))?);
                    }
                    Act::Write { file, offset, len } => {
                        let data = &mut buffer[..len as usize];
                        data.fill(byte(file));
                        mounted.write_at(&open[&file], offset, data)?;
                    }
                    Act::Close(file) => drop(open.remove(&file)),
                    Act::Remove(file) => mounted.unlink(dir(file), &name(file))?,
                }
            }
            mounted.sync()?;
            Ok(start.elapsed().as_secs_f64())
        })
    }

    fn check(&self, _: &Path, _: &Case) -> Result<Figures, String> {
        Ok(Figures::new())
    }
}

impl Age {
    fn age(&self, case: &Case) -> Result<Measured, String> {
        let (block, percent) = match case.variant {
            "4k-70" => (4096, 70),
            "4k-95" => (4096, 95),
            "1k-70" => (1024, 70),
            _ => (1024, 95),
        };
        let shape = crate::store::ImageShape {
            block_size: Some(block),
            ..self.images.shape
        };
        let image = self.images.store.fresh_image(case.form, shape)?;
        let header = dumpe2fs_header(&image);
        let free = header.number("Free blocks") - header.number("Reserved block count");
        // A hundredth is for directories and the nodes of maps.
        let room = free * u64::from(block) / 100 * 99;
        let trace = RefCell::new(Trace {
            rng: Rng::new(self.seed),
            block: block.into(),
            full: room / 100 * percent,
            used: 0,
            written: 0,
            next: 0,
            files: BTreeMap::new(),
            streams: Vec::new(),
        });
        let mut seconds = 0.0;
        for round in 0..self.rounds {
            let round = Round {
                trace: &trace,
                first: round == 0,
                bytes: room,
            };
            seconds += self.images.run_on(&image, case, &round)?.value;
        }
        let trace = trace.into_inner();
        check_content(&image, &trace)?;
        let mut figures = fragments::figures(&image)?;
        figures.insert("s in all", seconds);
        figures.insert("written MiB", (trace.written >> 20) as f64);
        let value = figures.remove("extents per file").unwrap_or(0.0);
        Ok(Measured {
            value,
            figures,
            ..Measured::default()
        })
    }
}

/// The files that the trace left, with their sizes, and their content at both ends.
fn check_content(image: &Path, trace: &Trace) -> Result<(), String> {
    let being_written = trace.streams.iter().map(|stream| (stream.file, stream.at));
    let files = trace.files.iter().map(|(&file, &size)| (file, size));
    pattern::through_kernel(image, ".", |root| {
        for (file, size) in files.chain(being_written) {
            let path = format!("dir{:02}/file{file}", file % DIRS);
            let at = |e: std::io::Error| format!("{path}: {e}");
            let flags = rustix::fs::OFlags::RDONLY;
            let open = rustix::fs::openat(root, &path, flags, rustix::fs::Mode::empty());
            let open = std::fs::File::from(open.map_err(|e| at(e.into()))?);
            let found = open.metadata().map_err(at)?.len();
            if found != size {
                return Err(format!("{path} has {found} bytes instead of {size}"));
            }
            for offset in [0, size.saturating_sub(1)].into_iter().filter(|_| size > 0) {
                let mut found = [0];
                open.read_exact_at(&mut found, offset).map_err(at)?;
                if found != [byte(file)] {
                    return Err(format!("{path}: byte {offset} is not what was written"));
                }
            }
        }
        Ok(())
    })
}

impl Workload for Age {
    fn name(&self) -> &'static str {
        "age"
    }

    fn shape(&self) -> Shape {
        Shape {
            peers: PEERS,
            variants: &["4k-70", "4k-95", "1k-70", "1k-95"],
            unit: "extents/file",
            better: "lower",
            workers: &[1],
            peers_have_workers: true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let work = format!(
            "{} rounds, each writes as much as there is room, seed {}; checked after each",
            self.rounds, self.seed
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        self.age(case)
    }
}
