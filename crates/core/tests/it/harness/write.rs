//! Everything a writer can do with an image, a bounded amount of each; and whether what is written
//! to files stays out of the file system's own structures.

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_core::data::FallocateMode;
use extant_core::dir::Cookie;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::{Result, ops};
use extant_format::Ino;
use extant_format::inode::{InodeFlags, Timestamp};
use extant_testkit::hostile::Mutant;
use extant_testkit::rng::Rng;
use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

const CACHE_BYTES: usize = 8 << 20;
/// Files and directories that something is done to.
const MAX_TOUCHED: usize = 40;
/// Names looked at in a directory.
const MAX_NAMES: usize = 12;
/// Operations that are done to one of them.
const MAX_OPS: u64 = 6;

/// What is written to files, and is nowhere else.
const PATTERN: &[u8; 16] = b"\xe7hostile data\xe7\xe7\xe7";
/// Bytes before the pattern: what lies in inodes is shorter.
const NEUTRAL: usize = 4096;

/// Opens the image for writing and does everything with it. Returns whether it opened; errors are
/// answers.
///
/// # Panics
/// When what was written to files lies where a structure of the file system has its place.
pub(crate) fn write(mutant: &Mutant, seed: u64) -> bool {
    // A host that may have it open is watched for as long as the block says.
    if mutant.story.iter().any(|line| line.starts_with("Mmp of")) {
        return false;
    }
    let device = Arc::new(MemoryDevice::from_image(&mutant.image));
    let options = MountOptions::read_write()
        .memory(CACHE_BYTES)
        .background(false);
    let Ok(fs) = Fs::open(device.clone(), options) else {
        return false;
    };
    let mut writer = Writer {
        fs: &fs,
        rng: Rng::new(seed),
        kept: Vec::new(),
    };
    writer.everything();
    drop(writer);
    let _ = fs.write_back();
    let _ = ops::syncfs(&fs);
    let _ = fs.checkpoint();
    let _ = fs.close();
    let mut after = vec![0; mutant.image.len()];
    device.read_at(0, &mut after).unwrap();
    for range in &mutant.fixed {
        let bytes = &after[range.clone()];
        let found = bytes.chunks(PATTERN.len()).position(|part| part == PATTERN);
        let at = found.map(|n| range.start + n * PATTERN.len());
        assert_eq!(at, None, "data of a file was written over a structure");
    }
    // And whatever it is by now, it is read.
    super::walk::walk(&after);
    true
}

struct Writer<'a> {
    fs: &'a Fs,
    rng: Rng,
    /// Files that stay open, also without a name.
    kept: Vec<Held>,
}

impl Writer<'_> {
    fn everything(&mut self) {
        let mut seen: HashSet<Ino> = HashSet::new();
        let mut ahead = VecDeque::from([Ino::ROOT]);
        while let Some(ino) = ahead.pop_front() {
            if seen.len() >= MAX_TOUCHED || !seen.insert(ino) {
                continue;
            }
            let Ok(held) = self.fs.hold(ino) else {
                continue;
            };
            let names = self.names(&held);
            ahead.extend(names.iter().map(|(_, ino)| *ino));
            for _ in 0..self.rng.between(1, MAX_OPS) {
                let _ = self.on_any(&held);
                let _ = if held.snapshot().is_dir() {
                    self.in_dir(&held, &names)
                } else {
                    self.on_file(&held)
                };
            }
            if self.rng.one_in(4) {
                self.kept.push(held);
            }
        }
    }

    fn names(&self, dir: &Held) -> Vec<(Vec<u8>, Ino)> {
        let mut names = Vec::new();
        let mut left = 400;
        let _ = ops::readdir(self.fs, &dir.snapshot(), Cookie::START, |entry| {
            left -= 1;
            if entry.name != b"." && entry.name != b".." && (names.len() < MAX_NAMES || left == 0) {
                names.push((entry.name.to_vec(), entry.ino));
            }
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        names
    }

    fn on_any(&mut self, held: &Held) -> Result<()> {
        let fs = self.fs;
        let value = vec![b'x'; self.rng.between(1, 3000) as usize];
        let time = Timestamp {
            secs: 1_700_000_000,
            nanos: 5,
        };
        match self.rng.below(9) {
            0 => ops::chmod(fs, held, 0o640),
            1 => ops::chown(fs, held, Some(1000), Some(70_000)),
            2 => ops::utimens(fs, held, Some(time), Some(time)),
            3 => ops::setxattr(fs, held, b"user.new", &value, ops::SetXattr::Any),
            4 => ops::setxattr(fs, held, b"trusted.t", &value[..1], ops::SetXattr::Any),
            5 => match ops::listxattr(fs, &held.snapshot())?.first() {
                Some(name) => ops::removexattr(fs, held, name),
                None => Ok(()),
            },
            6 => ops::chattr(fs, held, InodeFlags::NO_DUMP, InodeFlags::SYNC),
            7 => ops::fsync(fs, held),
            _ => ops::syncfs(fs),
        }
    }

    fn on_file(&mut self, held: &Held) -> Result<()> {
        let fs = self.fs;
        let size = held.live_size();
        let places = [0, 512, 4096, 30_000, 100_000, size / 2, size];
        let offset = *self.rng.pick(&places);
        let len = self.rng.between(1, 20_000);
        match self.rng.below(12) {
            0..4 => {
                let mut bytes = vec![0x11; NEUTRAL];
                bytes.extend(PATTERN.iter().cycle().take(len as usize));
                // Patterns begin at multiples of their length.
                ops::pwrite(fs, held, offset & !15, &bytes).map(drop)
            }
            4 => ops::truncate(fs, held, offset),
            5 => ops::truncate(fs, held, size + len),
            6 => ops::punch_hole(fs, held, offset, len),
            7 => ops::zero_range(fs, held, offset, len, self.rng.one_in(2)),
            8 => {
                let keep_size = self.rng.one_in(2);
                ops::fallocate(fs, held, offset, len, FallocateMode { keep_size })
            }
            9 => ops::collapse_range(fs, held, offset & !4095, 4096),
            10 => ops::insert_range(fs, held, offset & !4095, 8192),
            _ => match self.kept.last() {
                Some(from) => ops::copy_range(fs, (from, 0), (held, offset), len).map(drop),
                None => Ok(()),
            },
        }
    }

    fn in_dir(&mut self, dir: &Held, names: &[(Vec<u8>, Ino)]) -> Result<()> {
        let fs = self.fs;
        let number = self.rng.below(1000);
        let new = |file_type| NewInode::new(file_type, 0o755, ops::now());
        let name = format!("made {number} {}", "n".repeat((number % 200) as usize)).into_bytes();
        let old = match names {
            [] => b"missing".to_vec(),
            names => self.rng.pick(names).0.clone(),
        };
        match self.rng.below(12) {
            0..3 => {
                let file = ops::create(fs, dir, &name, &new(FileType::Regular))?;
                let done = self.on_file(&file);
                self.kept.push(file);
                done
            }
            3 => ops::mkdir(fs, dir, &name, &new(FileType::Directory)).map(drop),
            4 => {
                let target = vec![b't'; self.rng.between(1, 200) as usize];
                ops::symlink(fs, dir, &name, &target, &new(FileType::Symlink)).map(drop)
            }
            5 => ops::unlink(fs, dir, &old),
            6 => ops::rmdir(fs, dir, &old),
            7 => ops::rename(fs, dir, &old, dir, &name),
            8 => {
                let other = match names {
                    [] => return Ok(()),
                    names => self.rng.pick(names).0.clone(),
                };
                ops::exchange(fs, (dir, &old), (dir, &other))
            }
            9 => {
                let held = ops::lookup_held(fs, dir, &old)?;
                ops::link(fs, &held, dir, &name)
            }
            10 => {
                let whiteout = ops::RenameFlags {
                    whiteout: true,
                    ..ops::RenameFlags::default()
                };
                ops::rename_with(fs, (dir, &old), (dir, &name), whiteout)
            }
            _ => {
                let file = ops::tmpfile(fs, dir, &new(FileType::Regular))?;
                let _ = self.on_file(&file);
                ops::release(fs, file)
            }
        }
    }
}
