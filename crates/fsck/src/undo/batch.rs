//! Batches of records, written and read.

use super::{RECORD_MAX, Sums, sum};
use crate::bytes::{le32, le64};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// How files begin, and how they tell contents apart; the first is the one that is written.
pub(super) const MAGICS: [(&[u8; 8], Sums); 2] =
    [(b"EXTUNDO6", Sums::Sha256), (b"EXTUNDO5", Sums::Crc32c)];
const BATCH: &[u8; 8] = b"EXTBATCH";
/// Bytes at whose multiples batches begin.
const PAGE: usize = 4096;
/// Bytes of a batch before its records.
const HEAD: usize = 40;
/// Records are written once there are so many bytes of them.
pub(super) const FULL: usize = 8 << 20;
/// No batch is longer: one more record fits where it is not full yet.
const LEN_MAX: usize = FULL + RECORD_MAX as usize + 64;

/// What the records of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kept = 1,
    Sums = 2,
    End = 3,
}

/// The first page of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) size: u64,
    pub(super) uuid: [u8; 16],
    pub(super) number: u64,
    pub(super) sums: Sums,
}

impl Page {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PAGE);
        let magic = MAGICS.iter().find(|(_, sums)| *sums == self.sums);
        bytes.extend(magic.map_or(&[][..], |(magic, _)| &magic[..]));
        bytes.extend_from_slice(&self.size.to_le_bytes());
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&sum(&bytes).to_le_bytes());
        bytes.resize(PAGE, 0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let covered = bytes.get(..40)?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(covered.get(16..32)?);
        let (_, sums) = MAGICS
            .iter()
            .find(|(magic, _)| covered.starts_with(*magic))?;
        (sum(covered) == le32(bytes, 40)).then(|| Self {
            sums: *sums,
            size: le64(covered, 8),
            uuid,
            number: le64(covered, 32),
        })
    }
}

/// Writes a file. What fails leaves all batches before it as they are.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    number: u64,
    next: u64,
    /// Where the next batch begins.
    end: u64,
    /// Whether the last batch may not be durable yet.
    is_dirty: bool,
}

impl Writer {
    pub(super) fn begin(mut file: File, page: &Page) -> io::Result<Self> {
        file.write_all(&page.encode())?;
        file.sync_all()?;
        Ok(Self {
            file,
            number: page.number,
            next: 0,
            end: PAGE as u64,
            is_dirty: false,
        })
    }

    /// Writes a batch, which is durable after [`Writer::sync`]. All before it are durable first: a
    /// loss of power never leaves a batch without the one before it.
    pub(super) fn put(&mut self, kind: Kind, records: &[u8]) -> io::Result<()> {
        self.sync()?;
        let mut bytes = Vec::with_capacity((HEAD + records.len()).next_multiple_of(PAGE));
        bytes.extend_from_slice(BATCH);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.next.to_le_bytes());
        bytes.extend_from_slice(&(records.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(kind as u32).to_le_bytes());
        bytes.extend_from_slice(&sum(records).to_le_bytes());
        bytes.extend_from_slice(&sum(&bytes).to_le_bytes());
        bytes.extend_from_slice(records);
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        self.file.seek(SeekFrom::Start(self.end))?;
        self.is_dirty = true;
        self.file.write_all(&bytes)?;
        self.end += bytes.len() as u64;
        self.next += 1;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.file.sync_data()?;
            self.is_dirty = false;
        }
        Ok(())
    }
}

/// The head of a batch.
#[derive(Clone, Copy)]
struct Head {
    file: u64,
    number: u64,
    len: usize,
    kind: Kind,
    sum: u32,
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let covered = bytes.get(..HEAD - 4)?;
        if !covered.starts_with(BATCH) || sum(covered) != le32(bytes, HEAD - 4) {
            return None;
        }
        let kind = match le32(covered, 28) {
            1 => Kind::Kept,
            2 => Kind::Sums,
            3 => Kind::End,
            _ => return None,
        };
        Some(Self {
            file: le64(covered, 8),
            number: le64(covered, 16),
            len: le32(covered, 24) as usize,
            kind,
            sum: le32(covered, 32),
        })
    }
}

pub(super) fn damaged(what: &str) -> Error {
    Error::Undo(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

/// Fills `buf` as far as the file goes.
fn fill(file: &mut dyn Read, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::Undo(e)),
        }
    }
    Ok(done)
}

/// Reads the first page.
pub(super) fn read_page(file: &mut dyn Read) -> Result<Page> {
    let mut bytes = vec![0; PAGE];
    let read = fill(file, &mut bytes)?;
    let page = Page::parse(&bytes).filter(|_| read == PAGE);
    page.ok_or_else(|| damaged("this is no undo file, or its beginning is damaged"))
}

/// Reads a whole file, and hands the records of each batch to `each`. Returns its first page, and
/// whether it has an end. A last batch that was cut off counts for nothing: nothing that is in it
/// was written to the image. `open` opens the file from its start.
pub(super) fn read_all<R: Read>(
    open: &mut dyn FnMut() -> io::Result<R>,
    each: &mut dyn FnMut(Kind, &[u8]) -> Result<()>,
) -> Result<(Page, bool)> {
    let mut file = open().map_err(Error::Undo)?;
    let page = read_page(&mut file)?;
    let mut next = 0;
    let mut pages = 1;
    loop {
        let mut bytes = vec![0; PAGE];
        let read = fill(&mut file, &mut bytes)?;
        let head = Head::parse(&bytes).filter(|head| {
            read == PAGE && head.file == page.number && head.number == next && head.len <= LEN_MAX
        });
        let Some(head) = head else { break };
        let whole = (HEAD + head.len).next_multiple_of(PAGE);
        bytes.resize(whole, 0);
        let rest = bytes.get_mut(PAGE..).unwrap_or_default();
        let is_there = fill(&mut file, rest)? == whole - PAGE;
        let records = bytes.get(HEAD..HEAD + head.len).unwrap_or_default();
        if !is_there || sum(records) != head.sum {
            break;
        }
        each(head.kind, records)?;
        if head.kind == Kind::End {
            return Ok((page, true));
        }
        next += 1;
        pages += whole / PAGE;
    }
    let mut file = open().map_err(Error::Undo)?;
    let mut bytes = vec![0; PAGE];
    for _ in 0..pages {
        fill(&mut file, &mut bytes)?;
    }
    // What was cut off is the last. Where a batch follows, something in the middle is damaged.
    while fill(&mut file, &mut bytes)? == PAGE {
        let later = Head::parse(&bytes);
        if later.is_some_and(|head| head.file == page.number && head.number > next) {
            return Err(damaged("a batch of the undo file is damaged"));
        }
    }
    Ok((page, false))
}
