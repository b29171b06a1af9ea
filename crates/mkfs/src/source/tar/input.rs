//! The bytes of an archive.
//!
//! Either a regular file, read at positions and never copied, or a stream, decompressed if need
//! be, whose member data goes to an unnamed file. Positions count decompressed bytes.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender};

use extant_blockdev::Content;
use extant_blockdev::content::{HEAD_LEN, TAIL_LEN};
use extant_sync::{CountedAtomicU64, RmwClass};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::super::data::{DataStore, Stamp};
use super::super::error::{SourceError, SourceResult};
use super::super::model::DataExtent;
use super::super::packed::Packing;
use super::super::spool::Spool;
use super::header::BLOCK;
use super::layer::Bytes;
use super::sparse::Map;
use super::{Checked, Problem, TarOptions};

/// Bytes moved at once.
const CHUNK: usize = 256 << 10;
/// How many times its size compressed data may become: what gzip can do at most.
const EXPANSION_MAX: u64 = 1100;
/// Bytes that it may become in any case: zstd does more for a large sparse file.
const EXPANSION_FREE: u64 = 16 << 30;

/// An archive being read from front to back.
pub(super) struct Input {
    name: PathBuf,
    position: u64,
    kind: InputKind,
}

enum InputKind {
    /// `base` is where the archive starts in the file.
    Seekable {
        file: Arc<File>,
        base: u64,
        len: u64,
        /// Of the archive itself; what was put into an unnamed file has none.
        stamp: Option<Stamp>,
        /// Whether it is known that nothing is missing.
        is_whole: bool,
    },
    Stream {
        stream: ReadAhead,
        packing: Packing,
        spool: Spool,
        buffer: Vec<u8>,
    },
}

impl Input {
    /// Reads `file` in place if it is a regular file with an uncompressed archive, as a stream
    /// otherwise.
    pub(super) fn from_file(file: File, name: &Path, options: &TarOptions) -> SourceResult<Self> {
        let fail = |e: io::Error| SourceError::io("read", name, e);
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() {
            return Self::from_stream(file, name, options);
        }
        let stamp = Stamp::of(&file).map_err(fail)?;
        let base = rustix::fs::tell(&file).map_err(|e| fail(e.into()))?;
        let len = meta.len().saturating_sub(base);
        let mut head = vec![0; HEAD_LEN.min(usize::try_from(len).unwrap_or(HEAD_LEN))];
        let got = read_up_to(&file, &mut head, base).map_err(fail)?;
        head.truncate(got);
        if Packing::of(&head) != Packing::Plain {
            return Self::from_stream(file, name, options);
        }
        let mut tail = vec![0; TAIL_LEN.min(head.len())];
        let at = base.saturating_add(len - tail.len() as u64);
        let got = read_up_to(&file, &mut tail, at).map_err(fail)?;
        refuse_known(&head, &tail[..got], len, name)?;
        let bytes = Bytes {
            file: Arc::new(file),
            base,
            len,
            stamp: Some(stamp),
            is_whole: false,
        };
        Ok(Self::within(&bytes, name))
    }

    /// Reads these bytes of a file in place, as an archive that is not compressed.
    pub(super) fn within(bytes: &Bytes, name: &Path) -> Self {
        let bytes = bytes.clone();
        Self {
            name: name.to_owned(),
            position: 0,
            kind: InputKind::Seekable {
                file: bytes.file,
                base: bytes.base,
                len: bytes.len,
                stamp: bytes.stamp,
                is_whole: bytes.is_whole,
            },
        }
    }

    /// Reads these bytes of a file, decompressing what is compressed. A layer with nothing but the
    /// mark of its end is one, too.
    pub(super) fn from_part(
        bytes: &Bytes,
        name: &Path,
        options: &TarOptions,
    ) -> SourceResult<Self> {
        let fail = |e: io::Error| SourceError::io("read", name, e);
        let mut part = Part {
            bytes: bytes.clone(),
            taken: 0,
        };
        let packing = Packing::of(&read_head(&mut part).map_err(fail)?);
        if packing == Packing::Plain {
            return Ok(Self::within(bytes, name));
        }
        part.taken = 0;
        let stream = packing.reader(BufReader::with_capacity(CHUNK, part));
        Self::of_stream(stream.map_err(fail)?, packing, name, options)
    }

    /// Reads a stream, decompressing what is compressed.
    pub(super) fn from_stream(
        stream: impl Read + Send + 'static,
        name: &Path,
        options: &TarOptions,
    ) -> SourceResult<Self> {
        let mut stream = stream;
        let fail = |e: io::Error| SourceError::io("read", name, e);
        let head = read_head(&mut stream).map_err(fail)?;
        let packing = Packing::of(&head);
        if packing == Packing::Plain {
            refuse_known(&head, &[], length_of(&head), name)?;
        }
        let stream = BufReader::with_capacity(CHUNK, Cursor::new(head).chain(stream));
        let stream = packing.reader(stream).map_err(fail)?;
        let stream = match packing {
            Packing::Plain => stream,
            _ => recognised(stream, name)?,
        };
        Self::of_stream(stream, packing, name, options)
    }

    fn of_stream(
        stream: Box<dyn Read + Send>,
        packing: Packing,
        name: &Path,
        options: &TarOptions,
    ) -> SourceResult<Self> {
        let stream = ReadAhead::start(stream).map_err(|e| SourceError::io("read", name, e))?;
        Ok(Self {
            name: name.to_owned(),
            position: 0,
            kind: InputKind::Stream {
                stream,
                packing,
                spool: Spool::new(&options.spool_dir)?,
                buffer: vec![0; CHUNK],
            },
        })
    }

    /// Whether the archive is read where it is.
    pub(super) const fn is_in_place(&self) -> bool {
        matches!(self.kind, InputKind::Seekable { .. })
    }

    /// Gives the archive as bytes that are not compressed: those of the file it is in, or of an
    /// unnamed one. Those that are put there `look` sees, and `allowed` is less by them.
    pub(super) fn settle(
        mut self,
        allowed: &Allowance,
        look: impl FnMut(&[u8]),
    ) -> SourceResult<Bytes> {
        if !self.is_in_place() {
            self.spool_all(allowed, look)?;
        }
        Ok(match self.kind {
            InputKind::Seekable {
                file,
                base,
                len,
                stamp,
                is_whole,
            } => Bytes {
                file,
                base,
                len,
                stamp,
                is_whole,
            },
            InputKind::Stream { spool, .. } => Bytes {
                base: 0,
                len: spool.end(),
                file: Arc::new(spool.into_file()),
                stamp: None,
                is_whole: false,
            },
        })
    }

    fn spool_all(&mut self, allowed: &Allowance, mut look: impl FnMut(&[u8])) -> SourceResult<()> {
        let mut buf = vec![0; CHUNK];
        loop {
            let got = self.read_some(&mut buf)?;
            if got == 0 {
                return Ok(());
            }
            if !allowed.take(got as u64) {
                return Err(self.corrupt(format!(
                    "what is compressed becomes more than {} bytes in all, over {EXPANSION_MAX} \
                     times as many as it was, as in an archive bomb; decompress it first if this \
                     is meant",
                    allowed.all
                )));
            }
            if let InputKind::Stream { spool, .. } = &mut self.kind {
                look(&buf[..got]);
                spool.append(&buf[..got])?;
            }
        }
    }

    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Reads a header; `false` at the end, if it is exactly here.
    pub(super) fn read_block(&mut self, block: &mut [u8; BLOCK]) -> SourceResult<bool> {
        match self.read_some(block)? {
            BLOCK => Ok(true),
            0 => Ok(false),
            got => Err(self.truncated(got as u64, BLOCK as u64)),
        }
    }

    /// Fills `buf`, or says that the archive is cut short.
    pub(super) fn read_exact(&mut self, buf: &mut [u8]) -> SourceResult<()> {
        match self.read_some(buf)? {
            got if got == buf.len() => Ok(()),
            got => Err(self.truncated(got as u64, buf.len() as u64)),
        }
    }

    /// Reads until `buf` is full or the archive ends.
    fn read_some(&mut self, buf: &mut [u8]) -> SourceResult<usize> {
        let mut got = 0;
        while got < buf.len() {
            let result = match &mut self.kind {
                InputKind::Seekable {
                    file, base, len, ..
                } => {
                    let left = len.saturating_sub(self.position);
                    let most = (buf.len() - got).min(usize::try_from(left).unwrap_or(usize::MAX));
                    file.read_at(
                        &mut buf[got..got + most],
                        base.saturating_add(self.position),
                    )
                }
                InputKind::Stream { stream, .. } => stream.read(&mut buf[got..]),
            };
            match result {
                Ok(0) => break,
                Ok(n) => {
                    got += n;
                    self.position = self.position.saturating_add(n as u64);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.read_error(e)),
            }
        }
        Ok(got)
    }

    /// What the system did not say, the decoder does.
    fn read_error(&self, error: io::Error) -> SourceError {
        let packing = match self.kind {
            InputKind::Stream { packing, .. } => packing,
            InputKind::Seekable { .. } => Packing::Plain,
        };
        if packing == Packing::Plain || error.raw_os_error().is_some() {
            return SourceError::io("read", &self.name, error);
        }
        let problem = match error.kind() {
            io::ErrorKind::UnexpectedEof => "cut short".to_owned(),
            _ => format!("damaged: {error}"),
        };
        let packing = packing.name();
        self.corrupt(format!("the compressed data ({packing}) is {problem}"))
    }

    fn corrupt(&self, problem: String) -> SourceError {
        Problem::from(problem).at(self, self.position, None)
    }

    fn truncated(&self, got: u64, wanted: u64) -> SourceError {
        self.corrupt(format!(
            "the archive ends after {got} of {wanted} bytes that must be here"
        ))
    }

    /// Passes over data and its padding.
    pub(super) fn skip_padded(&mut self, len: u64) -> SourceResult<()> {
        self.skip(len)?;
        self.skip_padding(len)
    }

    /// Passes over what fills the last block of data of this length.
    pub(super) fn skip_padding(&mut self, len: u64) -> SourceResult<()> {
        let mut padding = len.wrapping_neg() % BLOCK as u64;
        // Some tools leave it out at the very end.
        if let InputKind::Seekable { len: all, .. } = self.kind
            && self.is_whole()
        {
            padding = padding.min(all.saturating_sub(self.position));
        }
        self.skip(padding)
    }

    /// Whether it is known that nothing is missing at the end.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.kind, InputKind::Seekable { is_whole: true, .. })
    }

    fn skip(&mut self, len: u64) -> SourceResult<()> {
        if let InputKind::Seekable { len: all, .. } = self.kind {
            let left = all.saturating_sub(self.position);
            if len > left {
                return Err(self.truncated(left, len));
            }
            self.position += len;
            return Ok(());
        }
        let mut buf = vec![0; usize::try_from(len).unwrap_or(CHUNK).min(CHUNK)];
        let mut left = len;
        while left > 0 {
            let n = left.min(buf.len() as u64) as usize;
            self.read_exact(&mut buf[..n])?;
            left -= n as u64;
        }
        Ok(())
    }

    /// Passes over the data of a regular file, `len` bytes of it stored as `map` says, and
    /// gives the places where the bytes can be read later.
    pub(super) fn take_data(&mut self, len: u64, map: &Map) -> Checked<Vec<DataExtent>> {
        let mut at = match &self.kind {
            InputKind::Seekable { base, .. } => base.saturating_add(self.position),
            InputKind::Stream { spool, .. } => spool.end(),
        };
        let mut extents = Vec::with_capacity(map.runs.len());
        for &(logical, len) in &map.runs {
            extents.push(DataExtent { logical, len, at });
            at = at.checked_add(len).ok_or("data beyond 2^64 bytes")?;
        }
        if matches!(self.kind, InputKind::Seekable { .. }) {
            self.skip(len)?;
        } else {
            self.spool(len)?;
        }
        self.skip_padding(len)?;
        Ok(extents)
    }

    fn spool(&mut self, len: u64) -> SourceResult<()> {
        let mut buf = match &mut self.kind {
            InputKind::Stream { buffer, .. } => std::mem::take(buffer),
            InputKind::Seekable { .. } => return Ok(()),
        };
        let mut left = len;
        while left > 0 {
            let n = left.min(buf.len() as u64) as usize;
            self.read_exact(&mut buf[..n])?;
            if let InputKind::Stream { spool, .. } = &mut self.kind {
                spool.append(&buf[..n])?;
            }
            left -= n as u64;
        }
        if let InputKind::Stream { buffer, .. } = &mut self.kind {
            *buffer = buf;
        }
        Ok(())
    }

    /// Reads what follows the archive, and gives the first block of it that is not zero, with its
    /// place. A stream is read to its end in any case: a writer on the other end of a pipe is not
    /// killed, and checksums at the end of compressed data are checked.
    pub(super) fn rest(&mut self) -> SourceResult<Option<(u64, [u8; BLOCK])>> {
        let mut found = None;
        let mut buf = vec![0; CHUNK];
        loop {
            if let InputKind::Seekable { file, base, .. } = &self.kind {
                if found.is_some() {
                    return Ok(found);
                }
                // Holes are not read. Where a file system does not know them, they are.
                match rustix::fs::seek(file, SeekFrom::Data(base.saturating_add(self.position))) {
                    Ok(data) => {
                        let blocks = data.saturating_sub(*base) / BLOCK as u64;
                        self.position = self.position.max(blocks * BLOCK as u64);
                    }
                    Err(Errno::NXIO) => return Ok(found),
                    Err(_) => {}
                }
            }
            let at = self.position;
            let got = self.read_some(&mut buf)?;
            if got == 0 {
                return Ok(found);
            }
            let mut blocks = buf[..got].chunks(BLOCK).enumerate();
            if let Some((index, bytes)) = blocks.find(|(_, block)| block.iter().any(|&b| b != 0))
                && found.is_none()
            {
                let mut block = [0; BLOCK];
                block[..bytes.len()].copy_from_slice(bytes);
                found = Some((at + (index * BLOCK) as u64, block));
            }
        }
    }

    /// Where the data of the members is.
    pub(super) fn into_store(self) -> DataStore {
        let path = self.name;
        match self.kind {
            InputKind::Seekable { file, stamp, .. } => DataStore::Archive { file, path, stamp },
            InputKind::Stream { spool, .. } => DataStore::Archive {
                file: Arc::new(spool.into_file()),
                path,
                stamp: None,
            },
        }
    }
}

/// The first bytes of a stream. A pipe may give them one at a time.
fn read_head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_LEN);
    stream
        .by_ref()
        .take(HEAD_LEN as u64)
        .read_to_end(&mut head)?;
    Ok(head)
}

/// How much there is of a stream, as far as its first bytes say.
fn length_of(head: &[u8]) -> u64 {
    if head.len() < HEAD_LEN {
        head.len() as u64
    } else {
        u64::MAX
    }
}

/// Reads at a place until the buffer is full or the file ends.
fn read_up_to(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buf.len() {
        match file.read_at(&mut buf[got..], at.saturating_add(got as u64)) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// Looks at what comes out of a decoder, and gives it all back.
fn recognised(mut stream: Box<dyn Read + Send>, name: &Path) -> SourceResult<Box<dyn Read + Send>> {
    let mut head = Vec::with_capacity(HEAD_LEN);
    let read = stream.by_ref().take(HEAD_LEN as u64).read_to_end(&mut head);
    match read {
        Ok(_) => {
            refuse_known(&head, &[], length_of(&head), name)?;
            Ok(Box::new(Cursor::new(head).chain(stream)))
        }
        // Told when the archive is read as far as that.
        Err(error) => Ok(Box::new(Cursor::new(head).chain(Broken(Some(error))))),
    }
}

static TAKEN: RmwClass = RmwClass::new("decompressed bytes");

/// How many bytes what is compressed may become: an archive, or all layers of an image together.
#[derive(Debug)]
pub(in super::super) struct Allowance {
    all: u64,
    taken: CountedAtomicU64,
}

impl Allowance {
    /// What so many compressed bytes may become.
    pub(in super::super) const fn of(packed: u64) -> Self {
        Self::bytes(
            packed
                .saturating_mul(EXPANSION_MAX)
                .saturating_add(EXPANSION_FREE),
        )
    }

    const fn bytes(all: u64) -> Self {
        Self {
            all,
            taken: CountedAtomicU64::new(&TAKEN, 0),
        }
    }

    /// Takes some of what is left, if there is as much.
    fn take(&self, bytes: u64) -> bool {
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= self.all
    }

    #[cfg(test)]
    pub(in super::super) const fn all(&self) -> u64 {
        self.all
    }
}

/// Some bytes of a file, as a stream.
struct Part {
    bytes: Bytes,
    taken: u64,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.len.saturating_sub(self.taken);
        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let at = self.bytes.base.saturating_add(self.taken);
        let got = self.bytes.file.read_at(&mut buf[..most], at)?;
        self.taken += got as u64;
        Ok(got)
    }
}

/// A stream that has failed.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Refuses what is known to be no archive. What is not known is left to the reader of headers,
/// which says where they break.
fn refuse_known(head: &[u8], tail: &[u8], size: u64, name: &Path) -> SourceResult<()> {
    const OTHERWISE: &str =
        "give a directory, a tar archive (plain or compressed), or a container image";
    let content = Content::of(head, tail, size);
    let (what, advice) = match content {
        Content::Tar | Content::Unknown => return Ok(()),
        Content::Empty => ("is empty".to_owned(), OTHERWISE),
        Content::Zeros => (
            "begins with zeros, and no archive with anything in it does".to_owned(),
            OTHERWISE,
        ),
        Content::Ext2 | Content::Ext3 | Content::Ext4 => (
            format!("contains {content}, which is no source"),
            "name the image itself as the source, or turn it into an archive on the way: extant tar OLD | \
             extant mkfs NEW --from -",
        ),
        Content::Gpt | Content::Mbr => (
            format!("contains {content}, which is no source"),
            "turn the file system of one of its partitions into an archive first (extant tar)",
        ),
        other => {
            let what = match other.name() {
                name if name.starts_with("compressed") => format!("is {name}"),
                name => format!("contains {name}, which is no source"),
            };
            (what, other.advice().unwrap_or(OTHERWISE))
        }
    };
    Err(SourceError::NotASource {
        path: name.to_owned(),
        what,
        advice: advice.to_owned(),
    })
}

/// Reads a stream in a thread of its own, so that decompressing it and writing what comes out
/// go on side by side. Memory is bounded by the pieces on the way.
struct ReadAhead {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    taken: usize,
}

impl ReadAhead {
    /// Pieces on the way at once.
    const PIECES: usize = 8;

    fn start(stream: Box<dyn Read + Send>) -> io::Result<Self> {
        let (sender, pieces) = mpsc::sync_channel(Self::PIECES);
        std::thread::Builder::new()
            .name("archive".to_owned())
            .spawn(move || feed(stream, &sender))?;
        Ok(Self {
            pieces,
            piece: Vec::new(),
            taken: 0,
        })
    }
}

/// Sends pieces until the stream ends or fails, or nobody takes them any more.
fn feed(mut stream: Box<dyn Read + Send>, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut piece = vec![0; CHUNK];
        let read = fill(&mut stream, &mut piece);
        let last = !matches!(read, Ok(n) if n > 0);
        let message = read.map(|n| {
            piece.truncate(n);
            piece
        });
        if sender.send(message).is_err() || last {
            return;
        }
    }
}

/// Reads until the piece is full. An error takes the place of the piece it came in: an archive
/// that cannot be read to its end is refused whole.
fn fill(stream: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < piece.len() {
        match stream.read(&mut piece[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

impl Read for ReadAhead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            self.piece = match self.pieces.recv() {
                Ok(piece) => piece?,
                // The thread has said what there was to say.
                Err(_) => return Ok(0),
            };
            self.taken = 0;
            if self.piece.is_empty() {
                return Ok(0);
            }
        }
        let n = buf.len().min(self.piece.len() - self.taken);
        buf[..n].copy_from_slice(&self.piece[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_becomes_too_long_is_stopped() {
        let packed = zstd::encode_all(&vec![0; 8 << 20][..], 1).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&packed).unwrap();
        let bytes = Bytes {
            file: Arc::new(file),
            base: 0,
            len: packed.len() as u64,
            stamp: None,
            is_whole: false,
        };
        let settle = |allowed: &Allowance| {
            let input = Input::from_part(&bytes, Path::new("x"), &TarOptions::default()).unwrap();
            let mut seen = 0;
            input
                .settle(allowed, |piece| seen += piece.len())
                .map(|bytes| (bytes.len, seen))
        };
        let allowed = Allowance::bytes((8 << 20) + 100);
        assert_eq!(settle(&allowed).unwrap(), (8 << 20, 8 << 20));
        // What one has taken is gone for the next.
        for allowed in [&allowed, &Allowance::bytes(1 << 20)] {
            let error = settle(allowed).expect_err("a bomb").to_string();
            assert!(error.contains("archive bomb"), "{error}");
        }
        assert_eq!(Allowance::of(u64::MAX).all(), u64::MAX);
        assert_eq!(Allowance::of(100).all(), (16 << 30) + 110_000);
    }
}
