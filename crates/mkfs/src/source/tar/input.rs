//! The bytes of an archive.
//!
//! Either a regular file, read at positions and never copied, or a stream, decompressed if need
//! be, whose member data goes to an unnamed file. Positions count decompressed bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};

use extant_blockdev::Content;
use extant_blockdev::content::{HEAD_LEN, TAIL_LEN};
use flate2::bufread::GzDecoder;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::super::data::Stamp;
use super::super::error::{SourceError, SourceResult};
use super::super::model::DataExtent;
use super::header::BLOCK;
use super::sparse::Map;
use super::{Checked, Problem, TarOptions};

/// Bytes moved at once.
const CHUNK: usize = 256 << 10;
/// Runs of zeros of this length are not written to the spool file.
const ZERO_RUN: usize = 4096;
/// Log2 of the largest zstd window, which bounds the decoder's memory (128 MiB; what
/// `zstd --long` makes).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// An archive being read from front to back.
pub(super) struct Input {
    name: PathBuf,
    position: u64,
    kind: InputKind,
}

enum InputKind {
    /// `base` is where the archive starts in the file.
    Seekable {
        file: File,
        base: u64,
        len: u64,
        stamp: Stamp,
    },
    Stream {
        stream: ReadAhead,
        compressed: bool,
        spool: Spool,
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
        if Format::of(&head) != Format::Plain {
            return Self::from_stream(file, name, options);
        }
        let mut tail = vec![0; TAIL_LEN.min(head.len())];
        let at = base.saturating_add(len - tail.len() as u64);
        let got = read_up_to(&file, &mut tail, at).map_err(fail)?;
        refuse_known(&head, &tail[..got], len, name)?;
        Ok(Self {
            name: name.to_owned(),
            position: 0,
            kind: InputKind::Seekable {
                file,
                base,
                len,
                stamp,
            },
        })
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
        let format = Format::of(&head);
        if format == Format::Plain {
            refuse_known(&head, &[], length_of(&head), name)?;
        }
        let stream = BufReader::with_capacity(CHUNK, Cursor::new(head).chain(stream));
        let stream: Box<dyn Read + Send> = match format {
            Format::Plain => Box::new(stream),
            Format::Gzip => Box::new(Gunzip(Some(GzDecoder::new(stream)))),
            Format::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(stream).map_err(fail)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(fail)?;
                Box::new(decoder)
            }
            Format::Other(what) => {
                let problem = format!(
                    "compressed with {what}; understood are gzip and zstd (decompress it into a \
                     pipe)"
                );
                return Err(fail(io::Error::other(problem)));
            }
        };
        let stream = match format {
            Format::Plain => stream,
            _ => recognised(stream, name)?,
        };
        Ok(Self {
            name: name.to_owned(),
            position: 0,
            kind: InputKind::Stream {
                stream: ReadAhead::start(stream).map_err(fail)?,
                compressed: format != Format::Plain,
                spool: Spool::new(&options.spool_dir)?,
            },
        })
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
                InputKind::Seekable { file, base, .. } => {
                    file.read_at(&mut buf[got..], base.saturating_add(self.position))
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
                // What the system did not say, the decoder does.
                Err(e) if self.is_compressed() && e.raw_os_error().is_none() => {
                    let problem = match e.kind() {
                        io::ErrorKind::UnexpectedEof => "cut short".to_owned(),
                        _ => format!("damaged: {e}"),
                    };
                    return Err(self.corrupt(format!("the compressed data is {problem}")));
                }
                Err(e) => return Err(SourceError::io("read", &self.name, e)),
            }
        }
        Ok(got)
    }

    fn is_compressed(&self) -> bool {
        matches!(
            self.kind,
            InputKind::Stream {
                compressed: true,
                ..
            }
        )
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
        self.skip(len.wrapping_neg() % BLOCK as u64)
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
        let mut buf = vec![0; CHUNK.min(len as usize)];
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
            InputKind::Stream { spool, .. } => spool.end,
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
            InputKind::Stream { spool, .. } => std::mem::take(&mut spool.buffer),
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
        if let InputKind::Stream { spool, .. } = &mut self.kind {
            spool.buffer = buf;
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

    /// The file in which the data of the members is, its name in errors, and its stamp if it is the
    /// archive itself.
    pub(super) fn into_data(self) -> (File, PathBuf, Option<Stamp>) {
        match self.kind {
            InputKind::Seekable { file, stamp, .. } => (file, self.name, Some(stamp)),
            InputKind::Stream { spool, .. } => (spool.file, self.name, None),
        }
    }
}

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Plain,
    Gzip,
    Zstd,
    Other(&'static str),
}

impl Format {
    fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a frame to skip before one.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', ..] => Self::Other("xz"),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Other("bzip2"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Other("lz4"),
            [0x1f, 0x9d, ..] => Self::Other("compress"),
            [b'L', b'Z', b'I', b'P', ..] => Self::Other("lzip"),
            _ => Self::Plain,
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
    const OTHERWISE: &str = "give a directory, or a tar archive (plain, gzip or zstd)";
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
            "turn it into an archive on the way: extant tar OLD | extant mkfs NEW --from -",
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

/// Decompresses all members of a gzip file, one after the other. Zeros may follow the last, and
/// nothing else.
struct Gunzip<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.0 {
            match decoder.read(buf)? {
                0 if !buf.is_empty() => {}
                n => return Ok(n),
            }
            let Some(mut rest) = self.0.take().map(GzDecoder::into_inner) else {
                break;
            };
            if rest.fill_buf()?.first() == Some(&0x1f) {
                self.0 = Some(GzDecoder::new(rest));
                continue;
            }
            loop {
                let bytes = rest.fill_buf()?;
                if bytes.iter().any(|&byte| byte != 0) {
                    let problem = "other data follows what gzip has written";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
                match bytes.len() {
                    0 => return Ok(0),
                    len => rest.consume(len),
                }
            }
        }
        Ok(0)
    }
}

/// An unnamed file for the data of members.
struct Spool {
    file: File,
    dir: PathBuf,
    end: u64,
    buffer: Vec<u8>,
}

impl Spool {
    fn new(dir: &Path) -> SourceResult<Self> {
        let file = tempfile::tempfile_in(dir)
            .map_err(|e| SourceError::io("make a temporary file in", dir, e))?;
        Ok(Self {
            file,
            dir: dir.to_owned(),
            end: 0,
            buffer: vec![0; CHUNK],
        })
    }

    /// Appends, leaving holes for long runs of zeros.
    fn append(&mut self, bytes: &[u8]) -> SourceResult<()> {
        let mut from = 0;
        while from < bytes.len() {
            let is_zero = |chunk: &[u8]| chunk.iter().all(|&b| b == 0);
            let mut chunks = bytes[from..].chunks(ZERO_RUN);
            let zero = chunks.clone().next().is_some_and(is_zero);
            let run: usize = chunks
                .by_ref()
                .take_while(|chunk| is_zero(chunk) == zero)
                .map(<[u8]>::len)
                .sum();
            let at = self.end + from as u64;
            let result = if zero {
                self.file.set_len(at + run as u64)
            } else {
                self.file.write_all_at(&bytes[from..from + run], at)
            };
            result.map_err(|e| SourceError::io("write to a temporary file in", &self.dir, e))?;
            from += run;
        }
        self.end += bytes.len() as u64;
        Ok(())
    }
}
