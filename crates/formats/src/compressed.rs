//! Raw images that are compressed: decompressed as a whole, and then read at random.
//!
//! # Invariants
//! - What is decompressed lies in memory while it is small, and then in a file without a name in
//!   the folder for temporary files. Zeros take no space there.
//! - Memory is bounded whatever the stream says: windows of Zstandard have at most
//!   2^[`ZSTD_WINDOW_LOG`] bytes, decoders of xz at most [`XZ_MEMORY`].
//! - A stream that ends early, or goes on with something else, is an error, and nothing of it is
//!   returned. Streams that follow each other are one; zeros may
//!   follow the last one of gzip.

use crate::copy::is_zero;
use crate::{Format, FormatError, Notice, OpenHow};
use extant_blockdev::{FileOptions, SharedDevice};
use rustix::fs::MemfdFlags;
use std::fs::File;
#[cfg(feature = "gzip")]
use std::io::BufRead;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of data that are kept in memory.
const IN_MEMORY: u64 = 32 << 20;

/// Bytes of data after which it is said that much is decompressed.
const LARGE: u64 = 256 << 20;

/// Bytes that are read and written at once.
const PIECE: usize = 256 << 10;

/// Bytes that are looked at together for zeros.
const LOOK: usize = 4096;

/// The largest window of Zstandard, as a power of two: what its own tool takes without being asked.
#[cfg(feature = "zstd")]
const ZSTD_WINDOW_LOG: u32 = 27;

/// Most memory for a decoder of xz; the highest of its tool's presets takes 65 MiB.
#[cfg(feature = "xz")]
const XZ_MEMORY: u64 = 256 << 20;

/// Opens the disk.
pub(crate) fn open(
    device: &SharedDevice,
    format: Format,
    how: &OpenHow,
) -> Result<SharedDevice, FormatError> {
    let input = BufReader::with_capacity(
        PIECE,
        Input {
            device: Arc::clone(device),
            at: 0,
        },
    );
    let mut spool = Spool::new(device.name(), how)?;
    match format {
        #[cfg(feature = "gzip")]
        Format::Gzip => spool.take(&mut Gzip::new(input))?,
        #[cfg(feature = "zstd")]
        Format::Zstd => {
            let mut decoder =
                zstd::Decoder::with_buffer(input).map_err(|e| damaged(device, format, &e))?;
            decoder
                .window_log_max(ZSTD_WINDOW_LOG)
                .map_err(|e| damaged(device, format, &e))?;
            spool.take(&mut decoder)?;
        }
        #[cfg(feature = "xz")]
        Format::Xz => {
            use liblzma::stream::{CONCATENATED, Stream};
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)
                .map_err(|e| damaged(device, format, &e.into()))?;
            spool.take(&mut liblzma::bufread::XzDecoder::new_stream(input, stream))?;
        }
        _ => return Err(crate::open::not_built(device, format)),
    }
    let name = PathBuf::from(device.name());
    let file = spool.finish().map_err(|source| FormatError::File {
        op: "decompress",
        path: name.clone(),
        source,
    })?;
    let device = FileOptions::read_only().adopt(file, &name)?;
    Ok(Arc::new(device))
}

fn damaged(device: &SharedDevice, format: Format, error: &io::Error) -> FormatError {
    FormatError::Damaged {
        device: device.name(),
        format: format.word(),
        reason: error.to_string(),
    }
}

/// A device read from the front to the end.
struct Input {
    device: SharedDevice,
    at: u64,
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.device.size() - self.at;
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.device
            .read_at(self.at, &mut buf[..len])
            .map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Whether nothing but zeros is left, which are read then.
#[cfg(feature = "gzip")]
fn only_zeros_left(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let part = input.fill_buf()?;
        if part.is_empty() {
            return Ok(true);
        }
        if !is_zero(part) {
            return Ok(false);
        }
        let len = part.len();
        input.consume(len);
    }
}

/// Members of gzip one after the other.
#[cfg(feature = "gzip")]
struct Gzip<R: BufRead> {
    member: Option<flate2::bufread::GzDecoder<R>>,
}

#[cfg(feature = "gzip")]
impl<R: BufRead> Gzip<R> {
    fn new(input: R) -> Self {
        Self {
            member: Some(flate2::bufread::GzDecoder::new(input)),
        }
    }
}

#[cfg(feature = "gzip")]
impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let got = member.read(buf)?;
            if got > 0 || buf.is_empty() {
                return Ok(got);
            }
            let mut rest = self
                .member
                .take()
                .map(flate2::bufread::GzDecoder::into_inner);
            if let Some(mut rest) = rest.take()
                && !only_zeros_left(&mut rest)?
            {
                self.member = Some(flate2::bufread::GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

/// What is decompressed.
struct Spool<'a> {
    name: String,
    how: &'a OpenHow,
    file: File,
    is_in_memory: bool,
    /// Bytes of the disk so far.
    size: u64,
    /// Bytes of it that are no zeros left out.
    kept: u64,
    is_told: bool,
}

impl<'a> Spool<'a> {
    fn new(name: String, how: &'a OpenHow) -> Result<Self, FormatError> {
        let memory = rustix::fs::memfd_create("decompressed", MemfdFlags::CLOEXEC);
        let (file, is_in_memory) = match memory {
            Ok(fd) => (File::from(fd), true),
            // A system without such files, or a confined process.
            Err(_) => (unnamed(how)?, false),
        };
        Ok(Self {
            name,
            how,
            file,
            is_in_memory,
            size: 0,
            kept: 0,
            is_told: false,
        })
    }

    /// Takes all that a decoder has.
    fn take(&mut self, decoder: &mut dyn Read) -> Result<(), FormatError> {
        let mut buf = vec![0; PIECE];
        let mut filled = 0;
        loop {
            let got = match decoder.read(&mut buf[filled..]) {
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.broken(&e)),
            };
            filled += got;
            if got > 0 && filled < buf.len() {
                continue;
            }
            self.put(&buf[..filled])?;
            if got == 0 {
                return Ok(());
            }
            filled = 0;
        }
    }

    fn broken(&self, error: &io::Error) -> FormatError {
        let reason = if error.kind() == io::ErrorKind::UnexpectedEof {
            format!("it ends early, after {} bytes of the disk", self.size)
        } else {
            format!("after {} bytes of the disk: {error}", self.size)
        };
        FormatError::Damaged {
            device: self.name.clone(),
            format: "compressed image",
            reason,
        }
    }

    /// Writes a piece without its zeros.
    fn put(&mut self, piece: &[u8]) -> Result<(), FormatError> {
        let size = self.size + piece.len() as u64;
        if size > self.how.limit {
            return Err(FormatError::TooLarge {
                what: format!("what {} decompresses to", self.name),
                size,
                limit: self.how.limit,
            });
        }
        for (n, part) in piece.chunks(LOOK).enumerate() {
            if is_zero(part) {
                continue;
            }
            self.kept += part.len() as u64;
            if self.is_in_memory && self.kept > IN_MEMORY {
                self.leave_memory()?;
            }
            let at = self.size + (n * LOOK) as u64;
            self.file
                .write_all_at(part, at)
                .map_err(|source| no_room(self.how, source))?;
        }
        self.size = size;
        if self.kept > LARGE && !self.is_told {
            self.is_told = true;
            if let Some(tell) = &self.how.tell {
                tell(&Notice::Decompressing {
                    device: self.name.clone(),
                    bytes: self.kept,
                    folder: folder(self.how),
                });
            }
        }
        Ok(())
    }

    /// Moves what there is to a file.
    fn leave_memory(&mut self) -> Result<(), FormatError> {
        let file = unnamed(self.how)?;
        let mut buf = vec![0; LOOK];
        let mut at = 0;
        loop {
            let start = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
                Ok(start) => start,
                // Nothing but a hole is left.
                Err(rustix::io::Errno::NXIO) => break,
                // Where holes cannot be found, all is copied.
                Err(_) => at,
            };
            let got = self.file.read_at(&mut buf, start);
            let got = got.map_err(|source| no_room(self.how, source))?;
            if got == 0 {
                break;
            }
            file.write_all_at(&buf[..got], start)
                .map_err(|source| no_room(self.how, source))?;
            at = start + got as u64;
        }
        self.file = file;
        self.is_in_memory = false;
        Ok(())
    }

    /// The file, as long as the disk.
    fn finish(self) -> io::Result<File> {
        self.file.set_len(self.size)?;
        Ok(self.file)
    }
}

/// The folder for files that are too large for memory.
fn folder(how: &OpenHow) -> PathBuf {
    how.spool.clone().unwrap_or_else(std::env::temp_dir)
}

/// A file without a name.
fn unnamed(how: &OpenHow) -> Result<File, FormatError> {
    let folder = folder(how);
    tempfile::tempfile_in(&folder).map_err(|source| FormatError::File {
        op: "make a file in",
        path: folder,
        source,
    })
}

fn no_room(how: &OpenHow, source: io::Error) -> FormatError {
    FormatError::File {
        op: "decompress into",
        path: folder(how),
        source,
    }
}
