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

/// How hard xz tries: its own default.
const XZ_LEVEL: u32 = 6;

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
    Xz,
}

impl Packing {
    fn of(path: &Path) -> Outcome<Self> {
        let extension = path.extension().unwrap_or_default().as_bytes();
        Ok(match extension.to_ascii_lowercase().as_slice() {
            b"gz" | b"tgz" => Self::Gzip,
            b"zst" | b"tzst" => Self::Zstd,
            b"xz" | b"txz" => Self::Xz,
            b"bz2" | b"tbz" | b"tbz2" | b"lz4" | b"lz" | b"lzma" => {
                return Err(Failure::usage(format!(
                    "{}: archives are written plain, as .gz, as .zst or as .xz",
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
    Xz(liblzma::write::XzEncoder<W>),
}

impl<W: Write> Packer<W> {
    fn new(packing: Packing, to: W) -> io::Result<Self> {
        Ok(match packing {
            Packing::Plain => Self::Plain(to),
            // Neither a name nor a time gets in: the same archive gives the same bytes.
            Packing::Gzip => Self::Gzip(GzEncoder::new(to, Compression::default())),
            Packing::Zstd => Self::Zstd(zstd::Encoder::new(to, ZSTD_LEVEL)?),
            Packing::Xz => Self::Xz(liblzma::write::XzEncoder::new(to, XZ_LEVEL)),
        })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(to) => Ok(to),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Xz(encoder) => encoder.finish(),
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
            Self::Xz(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            // They would begin another block: all is written at the end.
            Self::Gzip(_) | Self::Zstd(_) | Self::Xz(_) => Ok(()),
        }
    }
}

/// Has an archive written to a file, which appears under its name when it is complete; `-` is
/// standard output.
pub(crate) fn write_archive<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    write_archive_as(None, path, write)
}

/// Has an archive written, as [`write_archive`] does, and compressed in this way, whatever its name
/// says.
pub(crate) fn write_archive_as<T>(
    packing: Option<Packing>,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    if path.as_os_str() == "-" {
        let to = io::stdout().lock();
        if to.is_terminal() {
            return Err(Failure::usage(
                "an archive does not belong on a terminal: send it to a file or program, or name \
                 a file with -o",
            ));
        }
        return pack(packing.unwrap_or(Packing::Plain), to, write);
    }
    let failed = |e: io::Error| {
        let path = Escaped::path(path);
        Failure::new(format!("cannot write {path}: {e}"))
    };
    let packing = match packing {
        Some(packing) => packing,
        None => Packing::of(path)?,
    };
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
