//! The file system of an image as what sources and tables are put over.

use crate::failure::in_image;
use crate::path::look_at_link;
use extant::{Error, FileType, Filesystem};
use extant_image::ImageLocation;
use extant_mkfs::source::{Base, Meta, Standing, Times, Xattr};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where checkers put what they find. It is no layer's to take away with all else.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The files of an image beneath one of its directories.
#[derive(Debug)]
pub(crate) struct ImageBase {
    fs: Filesystem,
    image: ImageLocation,
    root: PathBuf,
}

impl ImageBase {
    /// Takes the directory `root` of an image for the root.
    pub(crate) fn new(fs: &Filesystem, image: &ImageLocation, root: &Path) -> Self {
        Self {
            fs: fs.clone(),
            image: image.clone(),
            root: root.to_owned(),
        }
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        match path {
            [] => self.root.clone(),
            path => self.root.join(OsStr::from_bytes(path)),
        }
    }

    fn failed(&self, e: &Error) -> String {
        in_image(&self.image, e)
    }
}

impl Base for ImageBase {
    fn find(&self, path: &[u8]) -> Result<Option<Standing>, String> {
        let at = self.at(path);
        let failed = |e: Error| self.failed(&e);
        let Some(found) = look_at_link(&self.fs, &at).map_err(failed)? else {
            return Ok(None);
        };
        let kind = found.file_type();
        let target = match kind {
            FileType::Symlink => self.fs.read_link(&at).map_err(failed)?.into_os_string(),
            _ => std::ffi::OsString::new(),
        };
        let xattrs = self.fs.xattrs(&at).map_err(failed)?;
        let xattrs = xattrs.into_iter().map(|(name, value)| Xattr {
            name: name.into_vec().into_boxed_slice(),
            value: value.into(),
        });
        let device = found.rdev().unwrap_or_default();
        let times = Times::new(
            found.atime(),
            found.mtime(),
            found.ctime(),
            found.crtime().unwrap_or(found.ctime()),
        );
        Ok(Some(Standing {
            number: found.ino().into(),
            kind,
            meta: Meta {
                mode: found.mode().permissions(),
                uid: found.uid(),
                gid: found.gid(),
                times,
                xattrs: xattrs.collect(),
                flags: found.flags(),
            },
            size: found.len(),
            target: target.into_vec(),
            device: (device.major, device.minor),
        }))
    }

    fn names(&self, path: &[u8]) -> Result<Vec<Box<[u8]>>, String> {
        let at = self.at(path);
        let is_top = at == Path::new("/");
        let mut names = Vec::new();
        for entry in self.fs.read_dir(&at).map_err(|e| self.failed(&e))? {
            let entry = entry.map_err(|e| self.failed(&e))?;
            let name = entry.file_name().as_bytes();
            let is_kept = is_top && name == LOST_AND_FOUND;
            if !is_kept && !matches!(name, b"." | b"..") {
                names.push(Box::from(name));
            }
        }
        Ok(names)
    }

    fn content(&self, path: &[u8], most: u64) -> Result<Vec<u8>, String> {
        let at = self.at(path);
        let file = self.fs.open_file(&at).map_err(|e| self.failed(&e))?;
        let mut bytes = vec![0; file.metadata().len().min(most) as usize];
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file
                .read_at(rest, done as u64)
                .map_err(|e| self.failed(&e))?
            {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }
}
