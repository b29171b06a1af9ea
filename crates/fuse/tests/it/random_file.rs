//! One file of a mount, exercised at random.

use crate::support::{Image, Mount};
use extant_testkit::exercise::{Exercise, Seek, Subject};
use extant_testkit::facility::is_full_run;
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use extant_testkit::rng::seed_from_env;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

struct Ours {
    image: Image,
    options: &'static str,
    file: Option<File>,
    mount: Option<Mount>,
}

impl Ours {
    fn new(options: &'static str) -> Ours {
        let mut ours = Ours {
            image: Image::new(16 << 20, &["-b", "1024"]),
            options,
            file: None,
            mount: None,
        };
        ours.open().unwrap();
        ours
    }

    fn open(&mut self) -> io::Result<()> {
        let mount = self.image.mount(self.options);
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(false);
        self.file = Some(how.open(mount.at("file"))?);
        self.mount = Some(mount);
        Ok(())
    }

    fn close(&mut self) {
        self.file = None;
        if let Some(mount) = self.mount.take() {
            mount.unmount();
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
                read => done += read,
            }
        }
        Ok(done)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file().write_all_at(bytes, offset)
    }

    fn set_len(&mut self, size: u64) -> io::Result<()> {
        self.file().set_len(size)
    }

    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        let flags = if keep_size {
            FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::empty()
        };
        Ok(rustix::fs::fallocate(self.file(), flags, offset, len)?)
    }

    fn seek(&mut self, offset: u64, what: Seek) -> io::Result<Option<u64>> {
        let from = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        match rustix::fs::seek(self.file(), from) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.file().metadata()?.len())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().sync_all()
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.close();
        self.open()
    }
}

fn exercise(options: &'static str) {
    let seed = seed_from_env("fuse::exercised");
    let operations = if is_full_run() { 100_000 } else { 1500 };
    let mut ours = Ours::new(options);
    Exercise::new(seed, operations).run(&mut ours);
    ours.close();
    ours.image.assert_clean();
}

#[test]
fn a_file_holds_what_was_written_to_it() {
    require!(Fuse);
    exercise("");
}

#[test]
fn a_file_holds_what_the_kernel_gathered() {
    require!(Fuse);
    exercise("writeback_cache");
}

#[test]
fn a_file_holds_what_was_written_past_both_caches() {
    require!(Fuse);
    exercise("direct_from=4096");
}

#[test]
fn a_file_holds_what_was_written_past_the_kernels_cache() {
    require!(Fuse);
    exercise("direct_io");
    exercise("direct_io,direct_from=4096");
}

#[test]
fn a_file_holds_what_was_written_to_it_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    exercise("io_uring");
    exercise("io_uring,writeback_cache,direct_from=4096");
}
