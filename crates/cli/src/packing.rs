//! Archives that are written: compressed as their names say, and under their names when they are
//! complete.

use crate::failure::{Failure, Outcome};
use crate::slip::refuse_over_disk;
use extant::Escaped;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes gathered before they are written.
const BUFFER: usize = 256 << 10;
/// How hard zstd tries: its own default.
const ZSTD_LEVEL: i32 = 3;

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    fn of(path: &Path) -> Outcome<Self> {
        let extension = path.extension().unwrap_or_default().as_bytes();
        Ok(match extension.to_ascii_lowercase().as_slice() {
            b"gz" | b"tgz" => Self::Gzip,
            b"zst" | b"tzst" => Self::Zstd,
            b"xz" | b"txz" | b"bz2" | b"tbz" | b"tbz2" | b"lz4" | b"lzma" => {
                return Err(Failure::usage(format!(
                    "{}: archives are written plain, as .gz or as .zst",
                    Escaped::path(path)
                )));
            }
            _ => Self::Plain,
        })
    }
}

/// Something to write an archive to.
enum Packer<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Packer<W> {
    fn new(packing: Packing, to: W) -> io::Result<Self> {
        Ok(match packing {
            Packing::Plain => Self::Plain(to),
            // Neither a name nor a time gets in: the same archive gives the same bytes.
            Packing::Gzip => Self::Gzip(GzEncoder::new(to, Compression::default())),
            Packing::Zstd => Self::Zstd(zstd::Encoder::new(to, ZSTD_LEVEL)?),
        })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(to) => Ok(to),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }?
        .flush()
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// Has an archive written to a file, which appears under its name when it is complete; `-` is
/// standard output.
pub(crate) fn write_archive<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    if path.as_os_str() == "-" {
        let to = io::stdout().lock();
        if to.is_terminal() {
            return Err(Failure::usage(
                "an archive does not belong on a terminal: send it to a file or program, or name \
                 a file",
            ));
        }
        return pack(Packing::Plain, to, write);
    }
    let failed = |e: io::Error| {
        let path = Escaped::path(path);
        Failure::new(format!("cannot write {path}: {e}"))
    };
    let packing = Packing::of(path)?;
    refuse_over_disk(path, "an archive")?;
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let file = std::fs::File::options().write(true).open(path);
        return pack(packing, file.map_err(failed)?, write);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let file = tempfile::Builder::new()
        .prefix(".extant-tar-")
        .permissions(mode)
        .tempfile_in(parent)
        .map_err(failed)?;
    let written = pack(packing, file.as_file(), write)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(written)
}

fn pack<T>(
    packing: Packing,
    to: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    let mut packer = Packer::new(packing, BufWriter::with_capacity(BUFFER, to))?;
    let written = write(&mut packer)?;
    packer.finish()?;
    Ok(written)
}
