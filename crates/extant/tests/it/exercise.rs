//! One file in every way of writing data, exercised at random in memory that is too small.

use crate::support::Blank;
use extant::{File, Filesystem, MountOptions, OpenOptions, OpenSpec};
use extant_core::fs::DataMode;
use extant_testkit::exercise::{Exercise, Seek, Subject};
use extant_testkit::facility::is_full_run;
use extant_testkit::rng::seed_from_env;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A file of an image, by the public interface.
struct Ours {
    path: PathBuf,
    mode: DataMode,
    // Drop order: the file goes before its file system.
    file: Option<File>,
    fs: Option<Filesystem>,
}

impl Ours {
    fn new(image: &Blank, mode: DataMode) -> io::Result<Ours> {
        let mut ours = Ours {
            path: image.path().to_owned(),
            mode,
            file: None,
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
        let fs = Filesystem::open_spec(&OpenSpec::read_write(&self.path), options)?;
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true);
        self.file = Some(how.open(&fs, "/file")?);
        self.fs = Some(fs);
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.file = None;
        match self.fs.take() {
            Some(fs) => Ok(fs.close()?),
            None => Ok(()),
        }
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("the file is open")
    }
}

impl Subject for Ours {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self
                .file()
                .read_at(&mut buf[done..], offset + done as u64)?
            {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        Ok(self.file().write_all_at(bytes, offset)?)
    }

    fn set_len(&mut self, size: u64) -> io::Result<()> {
        Ok(self.file().set_len(size)?)
    }

    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        match keep_size {
            true => self.file().allocate_keep_size(offset, len)?,
            false => self.file().allocate(offset, len)?,
        }
        Ok(())
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

fn exercised(mode: DataMode, block: &str) {
    let seed = seed_from_env(&format!("exercise {mode:?}, blocks of {block}"));
    let operations = if is_full_run() { 500_000 } else { 3_000 };
    let image = Blank::with(24, &["-t", "ext4", "-b", block]);
    let mut ours = Ours::new(&image, mode).unwrap();
    Exercise::new(seed, operations).run(&mut ours);
    ours.close().unwrap();
    image.check();
}

#[test]
fn a_file_holds_what_was_written_with_delayed_allocation() {
    exercised(DataMode::Delayed, "1024");
    exercised(DataMode::Delayed, "4096");
}

#[test]
fn a_file_holds_what_was_written_with_blocks_chosen_at_once() {
    exercised(DataMode::Placed, "1024");
    exercised(DataMode::Placed, "4096");
}

#[test]
fn a_file_holds_what_was_written_through_to_the_device() {
    exercised(DataMode::Through, "1024");
    exercised(DataMode::Through, "4096");
}
