//! Temporary files for what memory has no room for.
//!
//! # Invariants
//! - A block of a [`Changes`] lies in memory if it was first written while there was room there,
//!   and else in the file: which of the two never changes.
//! - The file is never used under the lock.

use crate::SharedDevice;
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, FileOptions};
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

static BLOCKS: LockClass = LockClass::new("changes in memory", Rank::Leaf);

/// Bytes of a block of changes.
const BLOCK: u64 = 4096;
/// Blocks that are kept in memory: what a script of some lines changes makes no file.
const MOST_IN_MEMORY: usize = 1024;

/// Names that are tried where files cannot be made without one.
const TRIES: u32 = 100;

/// `FILE_FLAG_DELETE_ON_CLOSE` of the system.
#[cfg(windows)]
const DELETE_ON_CLOSE: u32 = 0x0400_0000;

/// A temporary file of `size` bytes without a name, which takes room for what is written only.
#[cfg(feature = "mend")]
pub(crate) fn spool(size: u64) -> crate::Result<SharedDevice> {
    let folder = std::env::temp_dir();
    spool_in(&folder, size).map_err(|e| crate::Error::host("make a temporary file in", &folder, e))
}

fn spool_in(folder: &Path, size: u64) -> io::Result<SharedDevice> {
    let device = FileOptions::create(size)
        .adopt(unnamed(folder)?, folder.join("changes"))
        .map_err(io::Error::other)?;
    Ok(Arc::new(device))
}

/// A device for changes that reads as zeros: what is written first is kept in memory, and the rest
/// in a temporary file that is made when it comes to that.
pub(crate) struct Changes {
    size: u64,
    blocks: Mutex<BTreeMap<u64, Box<[u8]>>>,
    file: OnceLock<SharedDevice>,
}

impl Changes {
    pub(crate) fn device(size: u64) -> SharedDevice {
        Arc::new(Self {
            size,
            blocks: Mutex::new(&BLOCKS, BTreeMap::new()),
            file: OnceLock::new(),
        })
    }

    /// The file, which is made if there is none.
    fn file(&self) -> DeviceResult<&SharedDevice> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let folder = std::env::temp_dir();
        let made = spool_in(&folder, self.size).map_err(|source| DeviceError::Open {
            op: "make a temporary file in",
            path: folder,
            source,
        })?;
        // Another thread may have been first.
        Ok(self.file.get_or_init(|| made))
    }

    /// Calls `with` with each part of a range that lies in one block in memory, together with
    /// where that part is in the range; a block that was never written is made for it if `makes`,
    /// and there is room. Returns the parts that lie in the file, if anywhere.
    fn in_memory(
        &self,
        range: &Range<u64>,
        makes: bool,
        mut with: impl FnMut(&mut [u8], Range<usize>),
    ) -> Vec<Range<u64>> {
        let mut elsewhere: Vec<Range<u64>> = Vec::new();
        let mut blocks = self.blocks.lock();
        let mut at = range.start;
        while at < range.end {
            let (block, start) = (at / BLOCK, at / BLOCK * BLOCK);
            let part = at..(start + BLOCK).min(range.end);
            at = part.end;
            if makes && blocks.len() < MOST_IN_MEMORY {
                let new = || vec![0; BLOCK as usize].into_boxed_slice();
                blocks.entry(block).or_insert_with(new);
            }
            if let Some(bytes) = blocks.get_mut(&block) {
                let inside = (part.start - start) as usize..(part.end - start) as usize;
                let of_range =
                    (part.start - range.start) as usize..(part.end - range.start) as usize;
                with(&mut bytes[inside], of_range);
                continue;
            }
            match elsewhere.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => elsewhere.push(part),
            }
        }
        elsewhere
    }

    /// Whether nothing of a range is in memory, nor comes there.
    fn is_in_file(&self, range: &Range<u64>) -> bool {
        let blocks = self.blocks.lock();
        let numbers = range.start / BLOCK..range.end.div_ceil(BLOCK);
        blocks.len() >= MOST_IN_MEMORY && blocks.range(numbers).next().is_none()
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("size", &self.size)
            .field("file", &self.file.get())
            .finish_non_exhaustive()
    }
}

impl BlockDevice for Changes {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        match self.file.get() {
            Some(file) => file.name(),
            None => "the changes in memory".to_owned(),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let range = offset..offset + buf.len() as u64;
        let elsewhere = self.in_memory(&range, false, |block, at| {
            buf[at].copy_from_slice(block);
        });
        for part in elsewhere {
            let to = &mut buf[(part.start - offset) as usize..(part.end - offset) as usize];
            match self.file.get() {
                Some(file) => file.read_at(part.start, to)?,
                None => to.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        let range = offset..offset + buf.len() as u64;
        let elsewhere = self.in_memory(&range, true, |block, at| {
            block.copy_from_slice(&buf[at]);
        });
        for part in elsewhere {
            let from = &buf[(part.start - offset) as usize..(part.end - offset) as usize];
            self.file()?.write_at(part.start, from)?;
        }
        Ok(())
    }

    /// Does nothing: what is kept here is gone with the process.
    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check_range("read", offset, len)?;
        if let Some(file) = self.file.get()
            && self.is_in_file(&(offset..offset + len))
        {
            return file.read_vectored_at(offset, bufs);
        }
        let mut at = offset;
        for buf in bufs {
            self.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check_writable("write", offset, len)?;
        if self.is_in_file(&(offset..offset + len)) {
            return self.file()?.write_vectored_at(offset, bufs);
        }
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        let range = offset..offset + len;
        let mut blocks = self.blocks.lock();
        let numbers = range.start / BLOCK..range.end.div_ceil(BLOCK);
        for (block, bytes) in blocks.range_mut(numbers) {
            let start = block * BLOCK;
            let (from, to) = (range.start.max(start), range.end.min(start + BLOCK));
            bytes[(from - start) as usize..(to - start) as usize].fill(0);
        }
        drop(blocks);
        // What lies there in the place of a block in memory is not read.
        self.file
            .get()
            .map_or(Ok(()), |file| file.zero(offset, len))
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let range = from..end.min(self.size);
        if range.is_empty() {
            return Ok(None);
        }
        let here = {
            let blocks = self.blocks.lock();
            let numbers = range.start / BLOCK..range.end.div_ceil(BLOCK);
            blocks.range(numbers).next().map(|(block, _)| *block)
        };
        let here = here.map(|block| {
            let start = block * BLOCK;
            range.start.max(start)..range.end.min(start + BLOCK)
        });
        let there = match self.file.get() {
            Some(file) => file.next_data(range.start, range.end)?,
            None => None,
        };
        Ok(match (here, there) {
            (Some(here), Some(there)) if there.start < here.start => Some(there),
            (here, there) => here.or(there),
        })
    }
}

/// Makes a file that is gone when it is closed.
fn unnamed(folder: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags};
        use rustix::io::Errno;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
        match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok(file.into()),
            // Not every file system has files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    named_and_removed(folder)
}

/// Makes a file whose name is taken away at once, or on closing where it cannot be before.
fn named_and_removed(folder: &Path) -> io::Result<File> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let salt = now.map_or(0, |now| now.subsec_nanos());
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, DELETE_ON_CLOSE);
    let mut number = 0;
    loop {
        let name = format!(".extant.{}.{salt}.{number}", std::process::id());
        let path = folder.join(name);
        match options.open(&path) {
            Ok(file) => {
                #[cfg(not(windows))]
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < TRIES => number += 1,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Changes, MOST_IN_MEMORY, named_and_removed, unnamed};
    use extant_blockdev::{BlockDevice, MemoryDevice};
    use extant_testkit::rng::{Rng, seed_from_env};
    use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};

    /// What memory holds and what the file holds is as one device: compared with one in memory.
    #[test]
    fn changes_are_as_they_were_written_in_memory_and_behind_it() {
        let mut rng = Rng::new(seed_from_env("changes"));
        let size = 4 * MOST_IN_MEMORY as u64 * BLOCK + 1234;
        let (changes, model) = (Changes::device(size), MemoryDevice::new(size));
        let (mut bytes, mut there) = (vec![0; 300_000], vec![0; 300_000]);
        let mut zeros = vec![0; 100_000];
        for round in 0..400_u64 {
            let len = 1 + rng.below(if round % 7 == 0 { 300_000 } else { 9000 });
            let offset = rng.below(size - len);
            let (bytes, there) = (&mut bytes[..len as usize], &mut there[..len as usize]);
            match rng.below(5) {
                0 | 1 => {
                    bytes.fill(round as u8 | 1);
                    changes.write_at(offset, bytes).unwrap();
                    model.write_at(offset, bytes).unwrap();
                }
                2 => {
                    bytes.fill(round as u8 | 1);
                    let (one, other) = bytes.split_at(len as usize / 3);
                    let parts = [IoSlice::new(one), IoSlice::new(other)];
                    changes.write_vectored_at(offset, &parts).unwrap();
                    model.write_at(offset, bytes).unwrap();
                }
                3 => {
                    changes.zero(offset, len).unwrap();
                    model.zero(offset, len).unwrap();
                }
                _ => {
                    let (one, other) = bytes.split_at_mut(len as usize / 2);
                    let mut parts = [IoSliceMut::new(one), IoSliceMut::new(other)];
                    changes.read_vectored_at(offset, &mut parts).unwrap();
                    model.read_at(offset, there).unwrap();
                    assert!(bytes == there, "round {round}: {len} bytes at {offset}");
                }
            }
            // What is left out by either has to be zeros.
            let mut from = rng.below(size);
            let end = size.min(from + 100_000);
            while from < end {
                let data = changes.next_data(from, end).unwrap();
                let hole = from..data.as_ref().map_or(end, |data| data.start);
                let bytes = &mut zeros[..(hole.end - hole.start) as usize];
                model.read_at(hole.start, bytes).unwrap();
                assert!(
                    bytes.iter().all(|byte| *byte == 0),
                    "round {round}: {hole:?}"
                );
                from = data.map_or(end, |data| data.end);
            }
        }
        let mut all = vec![0; size as usize];
        changes.read_at(0, &mut all).unwrap();
        let mut expected = vec![0; size as usize];
        model.read_at(0, &mut expected).unwrap();
        assert!(all == expected);
        assert!(changes.write_at(size - 1, &[1, 2]).is_err());
    }

    #[test]
    fn a_few_changes_make_no_file() {
        let changes = Changes::device(1 << 40);
        for block in 0..MOST_IN_MEMORY as u64 {
            changes.write_at(block * 7 * BLOCK + 5, b"changed").unwrap();
        }
        assert!(changes.name().contains("memory"), "{}", changes.name());
        changes.write_at(1 << 39, b"changed").unwrap();
        assert!(!changes.name().contains("memory"), "{}", changes.name());
    }

    #[test]
    fn a_temporary_file_is_in_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        for make in [unnamed, named_and_removed] {
            let mut file = make(dir.path()).unwrap();
            file.write_all(b"kept").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "kept");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        assert!(unnamed(&dir.path().join("none")).is_err());
    }
}
