//! The content of a file to standard output, a pipe or a device: byte by byte, holes as zeros.

use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::progress::Bar;
use extant::{Escaped, Filesystem};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

/// Links that lead on to each other, at most; Linux follows as many.
const MOST_LINKS: usize = 40;

/// Whether a file of the host is one that content is written to, and that nothing takes the place
/// of: links are followed, as its user names it. So are names of open files, such as
/// `/dev/stdout`.
pub(super) fn is_stream(dest: &Path) -> bool {
    let Ok(found) = dest.metadata() else {
        return false;
    };
    let kind = found.file_type();
    kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || names_descriptor(dest)
}

/// Whether a path is, or leads to, one of the links in `/proc` that stand for open files.
fn names_descriptor(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = path.read_link() else {
            return false;
        };
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let Ok(dir) = dir.canonicalize() else {
            return false;
        };
        if dir.starts_with("/proc") {
            return true;
        }
        path = dir.join(target);
    }
    false
}

/// Writes the content of the file at `path` to a pipe or a device of the host.
pub(super) fn into_file(
    fs: &Filesystem,
    path: &Path,
    from: &ImagePath,
    dest: &Path,
    verify: bool,
    bar: &Bar,
) -> Outcome {
    let failed = |e: std::io::Error| {
        let dest = Escaped::path(dest);
        Failure::new(format!("cannot write to {dest}: {e}"))
    };
    let kind = dest.metadata().map_err(failed)?.file_type();
    let is_device = kind.is_block_device();
    let mut options = File::options();
    // What is open under a name of a descriptor may be a regular file.
    options.write(true).truncate(true);
    if is_device {
        // Without O_CREAT it means: not while it is mounted.
        options.custom_flags(OFlags::EXCL.bits().cast_signed());
    }
    let mut file = options
        .open(dest)
        .map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::BUSY) => Failure::new(format!(
                "{} is in use, perhaps mounted: unmount it first",
                Escaped::path(dest)
            )),
            _ => failed(e),
        })?;
    each_piece(fs, path, from, verify, bar, |piece| {
        file.write_all(piece).map_err(failed)
    })?;
    if is_device {
        // Errors of writing may come as late as this.
        file.sync_all().map_err(failed)?;
    }
    Ok(())
}

/// Writes the content of the file at `path` to standard output.
pub(super) fn to_output(
    fs: &Filesystem,
    path: &Path,
    from: &ImagePath,
    verify: bool,
    bar: &Bar,
) -> Outcome {
    let mut output = std::io::stdout().lock();
    each_piece(fs, path, from, verify, bar, |piece| {
        Ok(output.write_all(piece)?)
    })?;
    Ok(output.flush()?)
}

fn each_piece(
    fs: &Filesystem,
    path: &Path,
    from: &ImagePath,
    verify: bool,
    bar: &Bar,
    mut put: impl FnMut(&[u8]) -> Outcome,
) -> Outcome {
    let failed = |e: extant::Error| from.failure(&e);
    let file = fs.open_file(path).map_err(failed)?;
    let size = file.metadata().len();
    bar.total(size);
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(CHUNK).clamp(1, CHUNK)];
    let mut sealed = if verify {
        file.fs_verity().map_err(failed)?
    } else {
        None
    };
    let mut at = 0;
    loop {
        let read = match &mut sealed {
            Some(sealed) => sealed.read_at(&mut buffer, at),
            None => file.read_at(&mut buffer, at),
        };
        let read = read.map_err(failed)?;
        let piece = buffer.get(..read).unwrap_or_default();
        if piece.is_empty() && fs.is_in_doubt(file.metadata().ino()) {
            return Err(Failure::new(format!(
                "{}: where its content lies was mended: parts of it may be missing, or another file's",
                from.shown()
            )));
        }
        if piece.is_empty() {
            return Ok(());
        }
        put(piece)?;
        bar.advance(read as u64);
        at += read as u64;
    }
}
