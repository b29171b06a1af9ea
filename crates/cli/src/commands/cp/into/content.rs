//! The content of a file piece by piece, wherever it comes from.

use super::large;
use super::make::Why;
use super::plan::{Node, Origin, Reading, Told, id};
use crate::closed;
use crate::failure::in_image;
use extant::{Error, Escaped, Filesystem};
use extant_image::ImageLocation;
use extant_mkfs::source::{FileData, SourceError};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

/// A file to read.
pub(super) enum Content<'a> {
    Host {
        path: &'a Path,
        file: File,
        size: u64,
        how: Reading,
    },
    Image {
        image: &'a ImageLocation,
        file: extant::File,
    },
    /// What a source of `extant mkfs` holds.
    Tree(FileData<'a>),
}

impl<'a> Content<'a> {
    pub(super) fn open(node: &'a Node) -> Result<Self, Why> {
        match &node.from {
            Origin::Host { path, id: old, how } => {
                let failed = |e| cannot("open", path, &e);
                let file = open_host(path, *how).map_err(failed)?;
                let found = file.metadata().map_err(failed)?;
                if id(&found) != *old {
                    let path = Escaped::path(path);
                    return Err(Why::Source(format!(
                        "{path} was replaced by something else while it was copied"
                    )));
                }
                Ok(Self::Host {
                    path,
                    file,
                    size: found.len(),
                    how: *how,
                })
            }
            Origin::Input => {
                let path = Path::new("standard input");
                if closed::is_input_closed() {
                    return Err(Why::Source(closed::INPUT_IS_CLOSED.to_owned()));
                }
                let input = std::io::stdin().as_fd().try_clone_to_owned();
                Ok(Self::Host {
                    path,
                    file: File::from(input.map_err(|e| cannot("open", path, &e))?),
                    size: 0,
                    how: Reading::Stream,
                })
            }
            Origin::Image { entry, image, .. } => {
                let file = entry.open().map_err(|e| inside(image, &e))?;
                Ok(Self::Image { image, file })
            }
            Origin::Tree(Told { tree, id }) => tree.open(*id).map(Self::Tree).map_err(source),
        }
    }

    /// Has all of a stream in a file of its own, so that it is known what it needs.
    pub(super) fn spooled(self, buffer: &mut Vec<u8>) -> Result<Self, Why> {
        let Self::Host {
            path,
            mut file,
            how: Reading::Stream,
            ..
        } = self
        else {
            return Ok(self);
        };
        let failed = |e| cannot("keep a copy of", path, &e);
        let spool = tempfile::tempfile().map_err(failed)?;
        buffer.resize(CHUNK, 0);
        let size = stream(path, &mut file, buffer, |at, piece| {
            spool.write_all_at(piece, at).map_err(failed)
        })?;
        Ok(Self::Host {
            path,
            file: spool,
            size,
            how: Reading::File,
        })
    }

    /// Blocks of so many bytes that the content takes; of a stream, which has not been read, none.
    pub(super) fn blocks(&self, block: u64) -> Result<u64, Why> {
        let of = |range: Range<u64>| range.end.div_ceil(block) - range.start / block;
        match self {
            Self::Host {
                how: Reading::Stream,
                ..
            } => Ok(0),
            Self::Host {
                path, file, size, ..
            } => {
                let (mut blocks, mut at) = (0, 0);
                while let Some(range) = next_data(path, file, at, *size)? {
                    at = range.end;
                    blocks += of(range);
                }
                Ok(blocks)
            }
            Self::Image { image, file } => {
                let size = file.metadata().len();
                let extents = file.extents().map_err(|e| inside(image, &e))?;
                let data = extents.iter().filter(|extent| !extent.unwritten);
                let ranges = data.map(|extent| {
                    extent.offset..extent.offset.saturating_add(extent.len).min(size)
                });
                Ok(ranges.filter(|range| range.start < range.end).map(of).sum())
            }
            Self::Tree(data) => {
                let extents = data.extents();
                Ok(extents
                    .map(|run| of(run.logical..run.logical + run.len))
                    .sum())
            }
        }
    }

    /// Whether it is better written past the memory of a file system, by one of so many threads.
    pub(super) fn is_large(&self, fs: &Filesystem, threads: usize) -> bool {
        match self {
            Self::Host {
                how: Reading::File | Reading::FollowedFile,
                size,
                ..
            } => large::is_large(fs, *size, threads),
            Self::Host { .. } | Self::Image { .. } | Self::Tree(_) => false,
        }
    }

    /// Bytes of the longest piece: no more memory is touched for a small file than it has.
    fn most_at_once(&self) -> usize {
        let size = match self {
            Self::Host {
                how: Reading::Stream,
                ..
            } => return CHUNK,
            Self::Host { size, .. } => *size,
            Self::Image { file, .. } => file.metadata().len(),
            Self::Tree(data) => data.size(),
        };
        size.clamp(1, CHUNK as u64) as usize
    }

    /// Gives what is no hole to `put`, as [`large::copy`] does, for a file that is open for direct
    /// I/O. Returns the size of the file. Only for what [`is_large`](Self::is_large).
    pub(super) fn copy_large(
        self,
        buffer: &mut Vec<u8>,
        reserve: impl Fn(Range<u64>) -> bool + Sync,
        put: impl Fn(u64, &[u8]) -> Result<(), Why> + Sync,
    ) -> Result<u64, Why> {
        match self {
            Self::Host {
                path, file, size, ..
            } => large::copy(path, &file, size, reserve, put).map(|()| size),
            Self::Image { .. } | Self::Tree(_) => self.copy(buffer, put),
        }
    }

    /// Gives what is no hole to `put`, ascending. Returns the size of the file.
    pub(super) fn copy(
        mut self,
        buffer: &mut Vec<u8>,
        mut put: impl FnMut(u64, &[u8]) -> Result<(), Why>,
    ) -> Result<u64, Why> {
        let wanted = self.most_at_once();
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        match &mut self {
            Self::Host {
                path,
                file,
                how: Reading::Stream,
                ..
            } => stream(path, file, buffer, put),
            Self::Host {
                path, file, size, ..
            } => {
                let mut at = 0;
                while let Some(range) = next_data(path, file, at, *size)? {
                    at = range.end;
                    pieces(range, buffer, |at, piece| {
                        file.read_exact_at(piece, at)
                            .map_err(|e| cannot_read_all(path, &e))?;
                        put(at, piece)
                    })?;
                }
                Ok(*size)
            }
            Self::Image { image, file } => {
                let size = file.metadata().len();
                let failed = |e| inside(image, &e);
                for extent in file.extents().map_err(failed)? {
                    if extent.unwritten {
                        continue;
                    }
                    let end = extent.offset.saturating_add(extent.len).min(size);
                    pieces(extent.offset..end, buffer, |at, piece| {
                        let read = file.read_at(piece, at).map_err(failed)?;
                        put(at, piece.get(..read).unwrap_or(&[]))
                    })?;
                }
                Ok(size)
            }
            Self::Tree(data) => {
                for run in data.extents() {
                    pieces(run.logical..run.logical + run.len, buffer, |at, piece| {
                        data.read_at(at, piece).map_err(source)?;
                        put(at, piece)
                    })?;
                }
                data.check_unchanged().map_err(source)?;
                Ok(data.size())
            }
        }
    }
}

/// A failure of a source of `extant mkfs`, which names the file itself.
pub(super) fn source(e: SourceError) -> Why {
    Why::Source(e.to_string())
}

fn open_host(path: &Path, how: Reading) -> io::Result<File> {
    let flags = match how {
        // Should a pipe have taken the file's place, opening it does not wait for a writer.
        Reading::File => OFlags::NOFOLLOW | OFlags::NONBLOCK,
        Reading::FollowedFile => OFlags::NONBLOCK,
        Reading::Stream => OFlags::empty(),
    };
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    File::options().read(true).custom_flags(flags).open(path)
}

/// Cuts a range into pieces that fit the buffer.
fn pieces(
    range: Range<u64>,
    buffer: &mut [u8],
    mut each: impl FnMut(u64, &mut [u8]) -> Result<(), Why>,
) -> Result<(), Why> {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(buffer.len() as u64) as usize;
        let Some(piece) = buffer.get_mut(..len) else {
            return Ok(());
        };
        each(at, piece)?;
        at += len as u64;
    }
    Ok(())
}

/// The next piece of a file of the host at or behind `at` that is no hole.
pub(super) fn next_data(
    path: &Path,
    file: &File,
    at: u64,
    size: u64,
) -> Result<Option<Range<u64>>, Why> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) if start < size => start,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        // Some file systems do not know their holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(at..size)),
        Err(errno) => return Err(cannot("read", path, &errno.into())),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    Ok(Some(start..end.clamp(start + 1, size)))
}

/// Reads to the end.
fn stream(
    path: &Path,
    file: &mut File,
    buffer: &mut [u8],
    mut put: impl FnMut(u64, &[u8]) -> Result<(), Why>,
) -> Result<u64, Why> {
    let mut at = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(at),
            Ok(read) => {
                put(at, buffer.get(..read).unwrap_or(&[]))?;
                at += read as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(cannot("read", path, &e)),
        }
    }
}

fn cannot(action: &str, path: &Path, e: &io::Error) -> Why {
    Why::Source(format!("cannot {action} {}: {e}", Escaped::path(path)))
}

pub(super) fn cannot_read_all(path: &Path, e: &io::Error) -> Why {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Why::Source(format!(
            "{} became shorter while it was copied",
            Escaped::path(path)
        )),
        _ => cannot("read", path, e),
    }
}

/// A failure of reading in an image.
pub(super) fn inside(image: &ImageLocation, e: &Error) -> Why {
    Why::Source(in_image(image, e))
}
