//! What the other side has: files of the host, or of an image.

use crate::commands::cp::into::plan::Plan;
use crate::commands::diff::operand::Place;
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::images::FileId;
use extant::{Escaped, FileFlags, FileType, Filesystem};
use extant_image::ImageLocation;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory that another one is made like.
pub(super) enum Source {
    Host {
        root: PathBuf,
        /// Files that hold the images in use, which are not copied.
        images: Vec<FileId>,
    },
    Image {
        at: ImagePath,
        fs: Filesystem,
        image: Arc<ImageLocation>,
    },
}

/// A file of it, to be put into a plan.
pub(super) enum File {
    Host(PathBuf, Metadata),
    Image(Box<extant::WalkEntry>, Arc<ImageLocation>),
}

impl File {
    pub(super) fn kind(&self) -> FileType {
        match self {
            Self::Host(_, found) => crate::commands::cp::into::plan::host_type(found),
            Self::Image(entry, _) => entry.file_type(),
        }
    }

    /// The inode number of a directory of an image.
    pub(super) fn directory_number(&self) -> Option<u32> {
        match self {
            Self::Image(entry, _) if entry.file_type() == FileType::Directory => {
                Some(entry.metadata().ino())
            }
            _ => None,
        }
    }

    /// Whether its content, or the names in it, are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        match self {
            Self::Host(..) => false,
            Self::Image(entry, _) => {
                let flags = FileFlags::from_bits_retain(entry.metadata().flags());
                flags.contains(FileFlags::ENCRYPT)
            }
        }
    }

    /// Puts it into a plan. Returns its number there, if it is a directory.
    pub(super) fn add(self, plan: &mut Plan, to: PathBuf, parent: Option<usize>) -> Option<usize> {
        match self {
            Self::Host(path, found) => plan.add_host_node(&path, to, parent, &found),
            Self::Image(entry, image) => plan.add_image_node(*entry, &image, false, to, parent),
        }
    }
}

impl Source {
    pub(super) fn new(place: &Place, images: Vec<FileId>) -> Outcome<Self> {
        Ok(match place {
            Place::Host(root) => Self::Host {
                root: root.clone(),
                images,
            },
            Place::Image(at, fs) => {
                let mut at = at.clone();
                at.path = crate::path::follow(fs, &at.path).map_err(|e| at.failure(&e))?;
                Self::Image {
                    image: Arc::new(at.image.clone()),
                    at,
                    fs: fs.clone(),
                }
            }
        })
    }

    /// The file at a path, as it was compared; `None` if that is an image in use.
    pub(super) fn file(&self, path: &Path) -> Outcome<Option<File>> {
        let below = path.strip_prefix("/").unwrap_or(path);
        match self {
            Self::Host { root, images } => {
                // The root itself may be named by a link.
                let (path, found) = if below.as_os_str().is_empty() {
                    (root.clone(), root.metadata())
                } else {
                    let path = root.join(below);
                    let found = path.symlink_metadata();
                    (path, found)
                };
                let found = found.map_err(|e| cannot("read", &path, &e))?;
                let is_image = images.contains(&(found.dev(), found.ino()));
                Ok((!is_image).then(|| File::Host(path, found)))
            }
            Self::Image { at, fs, image } => {
                let path = if below.as_os_str().is_empty() {
                    at.path.clone()
                } else {
                    at.path.join(below)
                };
                let failed = |e: extant::Error| at.failure(&e);
                let mut walk = fs.walk(&path).map_err(failed)?;
                let Some(entry) = walk.next() else {
                    return Ok(None);
                };
                let entry = Box::new(entry.map_err(failed)?);
                Ok(Some(File::Image(entry, Arc::clone(image))))
            }
        }
    }

    /// Notes that a file with several names, by its number, is at a place of the image already.
    pub(super) fn stays(&self, plan: &mut Plan, number: (u64, u64), at: PathBuf) {
        match self {
            Self::Host { .. } => plan.stays_of_host(number, at),
            Self::Image { image, .. } => {
                // Inode numbers have 32 bits.
                plan.stays_of_image(image, number.1 as u32, at);
            }
        }
    }

    /// The names in the directory at a path, in the order of their bytes.
    pub(super) fn names(&self, path: &Path) -> Outcome<Vec<OsString>> {
        let below = path.strip_prefix("/").unwrap_or(path);
        match self {
            Self::Host { root, .. } => {
                let path = root.join(below);
                let names = crate::commands::cp::into::plan::names_in(&path);
                names.map_err(|e| cannot("read the directory", &path, &e))
            }
            Self::Image { at, fs, .. } => {
                let failed = |e: extant::Error| at.failure(&e);
                let mut names = Vec::new();
                let dir = at.path.join(below);
                for entry in fs.read_dir(&dir).map_err(failed)? {
                    let name = entry.map_err(failed)?.file_name().to_owned();
                    let is_bad = |byte: &u8| matches!(byte, 0 | b'/');
                    if name.as_bytes().iter().any(is_bad) || name == "." || name == ".." {
                        return Err(Failure::new(format!(
                            "{}:{}: the file system is corrupt: {} is no name of a file",
                            shown(&at.image),
                            Escaped::path(&dir),
                            Escaped(name.as_bytes())
                        )));
                    }
                    names.push(name);
                }
                names.sort_unstable();
                names.dedup();
                Ok(names)
            }
        }
    }
}

fn cannot(action: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(format!("cannot {action} {}: {e}", Escaped::path(path)))
}
