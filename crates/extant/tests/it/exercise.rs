//! One file in every way of writing data, exercised at random in memory that is too small: through
//! memory, past it, and both in turns.

use crate::support::Blank;
use extant::{File, Filesystem, MountOptions, OpenOptions, OpenSpec, SharedDevice};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_core::fs::DataMode;
use extant_testkit::exercise::{Exercise, RangeChange, Seek, Subject};
use extant_testkit::facility::is_full_run;
use extant_testkit::rng::{Rng, seed_from_env};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How the file is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through memory.
    Buffered,
    /// Past memory.
    Direct,
    /// Each operation in either way.
    Mixed,
    /// Many operations in one way, then many in the other.
    Turns,
}

/// Where the image is.
enum Where {
    File(PathBuf),
    /// In a device that is memory, with direct access.
    Memory(SharedDevice),
}

/// A file of an image, by the public interface.
struct Ours {
    place: Where,
    mode: DataMode,
    way: Way,
    rng: Rng,
    /// Whether the next operation goes past memory, where there is a choice.
    is_direct: bool,
    // Drop order: files go before their file system.
    file: Option<File>,
    direct: Option<File>,
    fs: Option<Filesystem>,
}

impl Ours {
    fn new(place: Where, mode: DataMode, way: Way, seed: u64) -> io::Result<Ours> {
        let mut ours = Ours {
            place,
            mode,
            way,
            rng: Rng::new(seed ^ 1),
            is_direct: false,
            file: None,
            direct: None,
            fs: None,
        };
        ours.open()?;
        Ok(ours)
    }

    fn open(&mut self) -> io::Result<()> {
        let options = MountOptions::read_write()
            .data_mode(self.mode)
            .cache_bytes(256 << 10)
            .commit_interval(Duration::from_millis(20));
        let fs = match &self.place {
            Where::File(path) => Filesystem::open_spec(&OpenSpec::read_write(path), options)?,
            Where::Memory(device) => Filesystem::open_device(device.clone(), options.dax(true))?,
        };
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true);
        self.file = Some(how.open(&fs, "/file")?);
        self.direct = Some(how.direct(true).open(&fs, "/file")?);
        self.fs = Some(fs);
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.file = None;
        self.direct = None;
        match self.fs.take() {
            Some(fs) => Ok(fs.close()?),
            None => Ok(()),
        }
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("the file is open")
    }

    /// The file for the next transfer.
    fn chosen(&mut self) -> &File {
        let direct = match self.way {
            Way::Buffered => false,
            Way::Direct => true,
            Way::Mixed => self.rng.one_in(2),
            Way::Turns => {
                self.is_direct ^= self.rng.one_in(12);
                self.is_direct
            }
        };
        let file = if direct { &self.direct } else { &self.file };
        file.as_ref().expect("the file is open")
    }
}

impl Subject for Ours {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        // Short at the end of the file only.
        Ok(self.chosen().read_at(buf, offset)?)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        Ok(self.chosen().write_all_at(bytes, offset)?)
    }

    fn set_len(&mut self, size: u64) -> io::Result<()> {
        Ok(self.file().set_len(size)?)
    }

    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        if keep_size {
            self.file().allocate_keep_size(offset, len)?
        } else {
            self.file().allocate(offset, len)?
        }
        Ok(())
    }

    fn change_range(&mut self, offset: u64, len: u64, how: RangeChange) -> io::Result<bool> {
        match how {
            RangeChange::Punch => self.file().punch_hole(offset, len)?,
            RangeChange::Zero => self.file().zero_range(offset, len)?,
            RangeChange::Collapse => return moved(self.file().collapse_range(offset, len)),
            RangeChange::Insert => return moved(self.file().insert_range(offset, len)),
        }
        Ok(true)
    }

    fn seek(&mut self, offset: u64, what: Seek) -> io::Result<Option<u64>> {
        Ok(match what {
            Seek::Data => self.file().seek_data(offset)?,
            Seek::Hole => self.file().seek_hole(offset)?,
        })
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.file().metadata().len())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(self.file().sync_all()?)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.close()?;
        self.open()
    }
}

/// Whether content moved. A cluster in more pieces than the log has room for is refused before
/// anything moves.
fn moved(done: extant::Result<()>) -> io::Result<bool> {
    match done {
        Err(e) if e.to_string().contains("moving a cluster in so many pieces") => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

/// Sectors of an image file.
const SECTOR: u64 = 512;

fn exercised(mode: DataMode, way: Way, block: &str) {
    exercised_on(mode, way, &["-b", block]);
}

fn exercised_on(mode: DataMode, way: Way, options: &[&str]) {
    let seed = seed_from_env(&format!("exercise {mode:?} {way:?} {options:?}"));
    let operations = if is_full_run() { 500_000 } else { 3_000 };
    let after = |word| {
        let mut found = options.iter().skip_while(|option| **option != word);
        found.nth(1).map(|bytes| bytes.parse::<u64>().unwrap())
    };
    let large = after("-b").filter(|&bytes| bytes > 4096);
    let mib = if large.is_some() { 192 } else { 24 };
    let image = Blank::with(mib, &[&["-t", "ext4"], options].concat());
    let place = Where::File(image.path().to_owned());
    let mut ours = Ours::new(place, mode, way, seed).unwrap();
    let usual = Exercise::new(seed, operations);
    let exercise = Exercise {
        aligned_to: if way == Way::Buffered { 1 } else { SECTOR },
        moved_by: after("-C").or(large).unwrap_or(usual.moved_by),
        ..usual
    };
    exercise.run(&mut ours);
    ours.close().unwrap();
    image.check();
}

#[test]
fn a_file_holds_what_was_written_with_delayed_allocation() {
    exercised(DataMode::Delayed, Way::Buffered, "1024");
    exercised(DataMode::Delayed, Way::Buffered, "4096");
}

#[test]
fn a_file_holds_what_was_written_with_blocks_chosen_at_once() {
    exercised(DataMode::Placed, Way::Buffered, "1024");
    exercised(DataMode::Placed, Way::Buffered, "4096");
}

#[test]
fn a_file_holds_what_was_written_through_to_the_device() {
    exercised(DataMode::Through, Way::Buffered, "1024");
    exercised(DataMode::Through, Way::Buffered, "4096");
}

#[test]
fn a_file_holds_what_was_written_past_memory() {
    exercised(DataMode::Delayed, Way::Direct, "1024");
    exercised(DataMode::Delayed, Way::Direct, "4096");
}

#[test]
fn a_file_holds_what_was_written_past_memory_and_through_it() {
    exercised(DataMode::Delayed, Way::Mixed, "1024");
    exercised(DataMode::Delayed, Way::Mixed, "4096");
    exercised(DataMode::Placed, Way::Mixed, "1024");
}

#[test]
fn a_file_holds_what_was_written_past_memory_and_through_it_by_turns() {
    exercised(DataMode::Delayed, Way::Turns, "1024");
    exercised(DataMode::Delayed, Way::Turns, "4096");
    exercised(DataMode::Placed, Way::Turns, "4096");
}

#[test]
fn a_file_in_large_blocks_holds_what_was_written() {
    for block in ["16384", "65536"] {
        let options = &["-b", block, "-N", "128", "-J", "size=64"];
        exercised_on(DataMode::Delayed, Way::Buffered, options);
        exercised_on(DataMode::Placed, Way::Turns, options);
        exercised_on(DataMode::Through, Way::Buffered, options);
        exercised_on(DataMode::Delayed, Way::Direct, options);
    }
}

#[test]
fn a_file_in_clusters_holds_what_was_written() {
    let small = &["-b", "1024", "-O", "bigalloc", "-C", "8192"];
    let large = &["-b", "2048", "-O", "bigalloc", "-C", "131072"];
    for options in [small, large] {
        exercised_on(DataMode::Delayed, Way::Buffered, options);
        exercised_on(DataMode::Placed, Way::Buffered, options);
        exercised_on(DataMode::Through, Way::Buffered, options);
        exercised_on(DataMode::Delayed, Way::Turns, options);
        exercised_on(DataMode::Placed, Way::Mixed, options);
    }
}

#[test]
fn a_file_holds_what_was_written_straight_to_memory() {
    for block in ["1024", "4096"] {
        let seed = seed_from_env(&format!("exercise dax, blocks of {block}"));
        let operations = if is_full_run() { 500_000 } else { 3_000 };
        let image = Blank::with(24, &["-t", "ext4", "-b", block]);
        let device = Arc::new(MemoryDevice::from_image(
            &std::fs::read(image.path()).unwrap(),
        ));
        let place = Where::Memory(device.clone());
        let mut ours = Ours::new(place, DataMode::Delayed, Way::Buffered, seed).unwrap();
        Exercise::new(seed, operations).run(&mut ours);
        ours.close().unwrap();
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        std::fs::write(image.path(), bytes).unwrap();
        image.check();
    }
}
