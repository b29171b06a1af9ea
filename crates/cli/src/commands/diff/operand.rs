//! What an operand is: an image, or a path of the host.

use crate::args::Whereabouts;
use crate::commands::mkfs::image_source::place_of;
use crate::failure::{Failure, Outcome, in_image};
use crate::image_path::ImagePath;
use crate::images::Images;
use extant::compare::Side;
use extant::{Error, Escaped, Filesystem};
use std::ffi::OsStr;
use std::path::PathBuf;

/// An operand, as it is written.
pub(in crate::commands) enum Operand {
    Image(ImagePath),
    Host(PathBuf),
}

impl Operand {
    /// Takes an operand for a place in an image if it names one, or a file that holds a file
    /// system; and for a path of the host otherwise.
    pub(in crate::commands) fn parse(text: &OsStr, location: &Whereabouts) -> Outcome<Self> {
        if let Some(place) = place_of(text)? {
            return Ok(Self::Image(place));
        }
        let path = PathBuf::from(text);
        // Where it is said what a file holds, it need not show that itself.
        let is_said = location.offset.is_some()
            || location.partition.is_some()
            || location.superblock.is_some()
            || !location.image_format.is_empty();
        if is_said && path.is_file() {
            return ImagePath::parse(text).map(Self::Image);
        }
        Ok(Self::Host(path))
    }

    /// Opens it for reading.
    pub(in crate::commands) fn open(&self, images: &mut Images<'_>) -> Outcome<Place> {
        match self {
            Self::Host(path) => Ok(Place::Host(path.clone())),
            Self::Image(at) => {
                let fs = images.readable(at)?;
                Ok(Place::Image(at.clone(), fs))
            }
        }
    }
}

/// An operand that is open.
pub(in crate::commands) enum Place {
    Image(ImagePath, Filesystem),
    Host(PathBuf),
}

impl Place {
    pub(in crate::commands) fn side(&self) -> Side {
        match self {
            Self::Image(at, fs) => Side::image(fs, &at.path),
            Self::Host(path) => Side::host(path),
        }
    }

    pub(in crate::commands) fn filesystem(&self) -> Option<&Filesystem> {
        match self {
            Self::Image(_, fs) => Some(fs),
            Self::Host(_) => None,
        }
    }

    /// Bytes of a block, of an image.
    pub(in crate::commands) fn block_size(&self) -> Option<u64> {
        let fs = self.filesystem()?;
        Some(fs.engine().block_size().bytes().into())
    }

    /// What an error is called.
    pub(in crate::commands) fn about(&self, e: &Error) -> String {
        match self {
            Self::Image(at, _) => in_image(&at.image, e),
            Self::Host(_) => e.to_string(),
        }
    }

    /// What it is called.
    pub(in crate::commands) fn shown(&self) -> String {
        match self {
            Self::Image(at, _) => at.shown().to_string(),
            Self::Host(path) => Escaped::path(path).to_string(),
        }
    }

    /// Whether it is a directory.
    pub(in crate::commands) fn is_dir(&self) -> Outcome<bool> {
        match self {
            Self::Image(at, fs) => {
                let found = fs.metadata(&at.path).map_err(|e| at.failure(&e))?;
                Ok(found.is_dir())
            }
            Self::Host(path) => {
                let found = path.metadata().map_err(|e| {
                    let path = Escaped::path(path);
                    Failure::new(format!("cannot look at {path}: {e}"))
                })?;
                Ok(found.is_dir())
            }
        }
    }
}

/// A file and a directory have nothing to compare, and an image that shows no file system is a
/// file.
pub(super) fn refuse_a_file_beside_a_directory(places: &[Place; 2]) -> Outcome {
    let are_dirs = [places[0].is_dir()?, places[1].is_dir()?];
    let (dir, file) = match are_dirs {
        [true, false] => (&places[0], &places[1]),
        [false, true] => (&places[1], &places[0]),
        _ => return Ok(()),
    };
    let what = match file {
        Place::Host(_) => "is a file without a file system",
        Place::Image(..) => "is a file",
    };
    Err(Failure::usage(format!(
        "{} {what}, and {} is a directory: name two directories or images, or two files",
        file.shown(),
        dir.shown()
    )))
}
