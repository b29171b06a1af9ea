//! Images of file systems that another one is filled from, read by the engine.

use super::sources::InPlace;
use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome, in_image};
use crate::image_path::{ImagePath, shown};
use extant::{FileFlags, FileType, Filesystem, WalkEntry};
use extant_blockdev::{Content as Marks, OpenSpec};
use extant_core::ops;
use extant_format::Ino;
use extant_image::How;
use extant_mkfs::source::{
    Content, DataExtent, Excludes, ImageFiles, ImageReader, Meta, NodeId, Source, SourceError,
    SourceResult, Stored, Times, Tree, TreeBuilder, Xattr,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Flags of directories and files that mean something and that a new image does not get.
const NOT_KEPT: FileFlags = FileFlags::CASEFOLD.union(FileFlags::DAX);

/// Prefixes of sources of other kinds.
const OTHERS: [&[u8]; 3] = [b"oci:", b"oci-archive:", b"docker-archive:"];

/// The source that a name on the command line stands for, if it is an image or a path in one. It
/// may not lie where `target` is.
pub(in crate::commands) fn named(
    text: &OsStr,
    location: &Whereabouts,
    target: Option<&InPlace>,
) -> Outcome<Option<Source>> {
    let Some(place) = place_of(text)? else {
        return Ok(None);
    };
    let is_beside = target.map(|target| target.refuse(&place.image));
    let is_beside = is_beside.transpose()?.unwrap_or(false);
    let path = match place.image.path() {
        Some(path) => path.to_owned(),
        None => PathBuf::from(place.image.name()),
    };
    let reader = Reader {
        place,
        is_beside,
        location: Whereabouts {
            image_format: location.image_format.clone(),
            ..Whereabouts::default()
        },
    };
    Ok(Some(Source::of_image(path, Arc::new(reader))))
}

/// What a name on the command line is called, without secrets, if it is that of an image which is
/// not on this machine.
pub(in crate::commands) fn remote_name(text: &OsStr) -> Option<String> {
    let place = place_of(text).ok().flatten()?;
    place.image.is_remote().then(|| shown(&place.image))
}

/// The place in an image that a name stands for; `None` of what is another kind of source.
pub(in crate::commands) fn place_of(text: &OsStr) -> Outcome<Option<ImagePath>> {
    let bytes = text.as_bytes();
    if bytes == b"-" || OTHERS.iter().any(|word| bytes.starts_with(word)) {
        return Ok(None);
    }
    let place = match Path::new(text).metadata() {
        Ok(found) => {
            let place = ImagePath::parse(text)?;
            let is_disk = found.is_file() || found.file_type().is_block_device();
            return Ok((is_disk && is_image(&place)).then_some(place));
        }
        Err(_) => ImagePath::parse(text)?,
    };
    let is_meant = place.has_path || place.image.partition().is_some() || place.image.is_address();
    Ok(is_meant.then_some(place))
}

/// Whether a file that is named without a path in it is an image, or a disk with partitions, and no
/// archive.
fn is_image(place: &ImagePath) -> bool {
    let Some(path) = place.image.path() else {
        return false;
    };
    let device = OpenSpec::read_only(path).open();
    let marks = device.ok().and_then(|device| Marks::on(&*device).ok());
    match marks {
        Some(marks) if marks.is_ext() => true,
        Some(Marks::Gpt | Marks::Mbr) => true,
        // A compressed archive is a compressed disk as well, as far as a format goes.
        Some(Marks::Unknown | Marks::Tar | Marks::Empty | Marks::Zeros | Marks::Text) | None => {
            false
        }
        Some(marks) if marks.name().starts_with("compressed") => false,
        Some(_) => {
            let opened = place.image.open_disk(&How::reading());
            opened.is_ok_and(|opened| opened.container.is_some())
        }
    }
}

/// Reads a directory of an image, such as its root.
#[derive(Debug)]
struct Reader {
    place: ImagePath,
    /// Whether another part of the same disk is written, which changes the time of its file.
    is_beside: bool,
    location: Whereabouts,
}

impl Reader {
    /// What errors and warnings call the place.
    fn name(&self) -> PathBuf {
        if self.place.is_root() {
            PathBuf::from(self.place.image.name())
        } else {
            PathBuf::from(self.place.shown())
        }
    }

    fn refused(&self, problem: impl fmt::Display) -> SourceError {
        SourceError::Refused {
            path: self.name(),
            problem: problem.to_string(),
        }
    }

    /// An error of the engine, which names the image and the file itself.
    fn failed(&self, error: &extant::Error) -> SourceError {
        SourceError::NotASource {
            path: PathBuf::from(shown(&self.place.image)),
            what: format!("cannot be read: {}", in_image(&self.place.image, error)),
            advice: "extant check says what is wrong with an image, and extant repair mends it"
                .to_owned(),
        }
    }
}

impl ImageReader for Reader {
    fn scan(&self, excludes: &Excludes) -> SourceResult<Tree> {
        let path = self.place.image.path().filter(|_| !self.is_beside);
        let stamp = path.and_then(Stamp::of);
        let opened = self.place.open(&self.location);
        let fs = opened.map_err(|failure| match failure {
            Failure::Usage(text) | Failure::Failed(text) => self.refused(text),
            Failure::Said | Failure::Code(_) | Failure::PipeClosed => {
                self.refused("it cannot be opened")
            }
        })?;
        let found = fs.metadata(&self.place.path);
        if !found.map_err(|e| self.failed(&e))?.is_dir() {
            return Err(self.refused(
                "is no directory: name one of the image, or copy the file out first (extant cp)",
            ));
        }
        let mut scan = Scan {
            reader: self,
            builder: None,
            above: Vec::new(),
            names: Vec::new(),
            shared: HashMap::new(),
            lost: Lost::default(),
        };
        // A symbolic link at its end is followed.
        let start = self.place.path.join(".");
        let walk = fs.walk(if self.place.is_root() {
            Path::new("/")
        } else {
            &start
        });
        let mut walk = walk.map_err(|e| self.failed(&e))?.whole();
        while let Some(entry) = walk.next() {
            let entry = entry.map_err(|e| self.failed(&e))?;
            if !scan.add(&entry, excludes)? {
                walk.skip_children();
            }
        }
        let warnings = scan.lost.told(&self.name());
        let Some(builder) = scan.builder else {
            return Err(self.refused("has no root directory"));
        };
        drop(walk);
        let files = Files { fs, stamp };
        builder.finish_image(Arc::new(files), self.name(), warnings)
    }
}

/// A directory of an image on its way into a tree.
struct Scan<'r> {
    reader: &'r Reader,
    builder: Option<TreeBuilder>,
    /// The directories down to that whose files come now, the root first.
    above: Vec<NodeId>,
    /// Their names, without the root's.
    names: Vec<Vec<u8>>,
    /// Inodes with several names.
    shared: HashMap<u32, NodeId>,
    lost: Lost,
}

impl Scan<'_> {
    /// Adds a file. Whether what is below it shall come, too.
    fn add(&mut self, entry: &WalkEntry, excludes: &Excludes) -> SourceResult<bool> {
        let depth = entry.depth();
        entry.check_name().map_err(|e| self.reader.failed(&e))?;
        self.above.truncate(depth.max(1));
        self.names.truncate(depth.saturating_sub(1));
        let found = entry.metadata();
        if depth > 0 {
            self.names.push(entry.file_name().as_bytes().to_vec());
            let path: Vec<&[u8]> = self.names.iter().map(Vec::as_slice).collect();
            if excludes.excludes(&path, found.is_dir()) {
                return Ok(false);
            }
        }
        let flags = FileFlags::from_bits_retain(found.flags());
        for (flag, what) in [
            (
                FileFlags::ENCRYPT,
                "is encrypted, and the key stays with it",
            ),
            (
                FileFlags::VERITY,
                "is protected by fs-verity, which a new image does not get",
            ),
        ] {
            if flags.contains(flag) {
                return Err(self.refused(what));
            }
        }
        self.lost
            .note(flags & NOT_KEPT, found.project(), &self.names);
        let meta = self.meta(entry)?;
        let Some(builder) = &mut self.builder else {
            self.builder = Some(TreeBuilder::new(meta)?);
            self.above.push(NodeId::ROOT);
            return Ok(true);
        };
        let parent = self.above.last().copied().unwrap_or(NodeId::ROOT);
        let name = entry.file_name().as_bytes();
        let is_shared = found.nlink() > 1 && !found.is_dir();
        if is_shared && let Some(&node) = self.shared.get(&found.ino()) {
            builder.link(parent, name, node)?;
            return Ok(true);
        }
        let failed = |e: extant::Error| self.reader.failed(&e);
        let extents;
        let target;
        let content = match entry.file_type() {
            FileType::Directory => Content::Directory,
            FileType::Symlink => {
                target = entry.read_link().map_err(failed)?;
                Content::Symlink(&target)
            }
            FileType::Regular => {
                extents = extents_of(entry).map_err(failed)?;
                Content::Stored(Stored::of_image(found.ino(), found.len(), &extents))
            }
            kind @ (FileType::CharDevice | FileType::BlockDevice) => {
                let number = found.rdev().unwrap_or_default();
                let (major, minor) = (number.major, number.minor);
                Content::Device { kind, major, minor }
            }
            FileType::Fifo => Content::Fifo,
            FileType::Socket => Content::Socket,
        };
        let node = builder.add(meta, content).map_err(|e| match e {
            // The builder does not know the path.
            SourceError::SymlinkTarget { found, .. } => SourceError::SymlinkTarget {
                path: self
                    .reader
                    .name()
                    .join(OsStr::from_bytes(&self.names.join(&b'/'))),
                found,
            },
            other => other,
        })?;
        builder.link(parent, name, node)?;
        if is_shared {
            self.shared.insert(found.ino(), node);
        }
        if found.is_dir() {
            self.above.push(node);
        }
        Ok(true)
    }

    fn refused(&self, what: &str) -> SourceError {
        let path = self.names.join(&b'/');
        SourceError::Refused {
            path: self.reader.name().join(OsStr::from_bytes(&path)),
            problem: format!("{what}: leave it out with --exclude"),
        }
    }

    fn meta(&self, entry: &WalkEntry) -> SourceResult<Meta> {
        let found = entry.metadata();
        let all = entry.xattrs().map_err(|e| self.reader.failed(&e))?;
        let xattrs = all.into_iter().map(|(name, value)| Xattr {
            name: name.into_vec().into(),
            value: value.into(),
        });
        let mtime = found.mtime();
        let crtime = found.crtime().unwrap_or(mtime);
        Ok(Meta {
            mode: found.mode().permissions(),
            uid: found.uid(),
            gid: found.gid(),
            times: Times::new(found.atime(), mtime, found.ctime(), crtime),
            xattrs: xattrs.collect(),
            flags: found.flags(),
        })
    }
}

/// The pieces of a file that were written, before its end.
fn extents_of(entry: &WalkEntry) -> extant::Result<Vec<DataExtent>> {
    let size = entry.metadata().len();
    if size == 0 {
        return Ok(Vec::new());
    }
    let mut extents: Vec<DataExtent> = Vec::new();
    for piece in entry.open()?.extents()? {
        let len = piece.len.min(size.saturating_sub(piece.offset));
        if piece.unwritten || len == 0 {
            continue;
        }
        match extents.last_mut() {
            Some(last) if last.logical + last.len == piece.offset => last.len += len,
            _ => extents.push(DataExtent {
                logical: piece.offset,
                len,
                at: piece.offset,
            }),
        }
    }
    Ok(extents)
}

/// What files have that a new image does not get.
#[derive(Default)]
struct Lost {
    flags: u64,
    first_flags: Vec<u8>,
    projects: u64,
    first_project: Vec<u8>,
}

impl Lost {
    fn note(&mut self, flags: FileFlags, project: Option<u32>, names: &[Vec<u8>]) {
        if !flags.is_empty() {
            if self.flags == 0 {
                self.first_flags = names.join(&b'/');
            }
            self.flags += 1;
        }
        if project.is_some_and(|project| project != 0) {
            if self.projects == 0 {
                self.first_project = names.join(&b'/');
            }
            self.projects += 1;
        }
    }

    fn told(&self, image: &Path) -> Vec<String> {
        let sentence = |count: u64, first: &[u8], what: &str| {
            let first = image.join(OsStr::from_bytes(first));
            (count > 0).then(|| {
                let files = if count == 1 { "file" } else { "files" };
                format!(
                    "{count} {files} had {what}, which is not kept (one is {})",
                    first.display()
                )
            })
        };
        [
            sentence(
                self.flags,
                &self.first_flags,
                "the flag `casefold` or `dax`",
            ),
            sentence(self.projects, &self.first_project, "a project for quotas"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// What an image's file had when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    size: u64,
    mtime: (i64, i64),
}

impl Stamp {
    /// The stamp of a regular file.
    fn of(path: &Path) -> Option<Self> {
        let found = path.metadata().ok().filter(Metadata::is_file)?;
        Some(Self {
            path: path.to_owned(),
            size: found.len(),
            mtime: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// The open image, for its data.
struct Files {
    fs: Filesystem,
    stamp: Option<Stamp>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("stamp", &self.stamp)
            .finish_non_exhaustive()
    }
}

impl ImageFiles for Files {
    fn read_at(&self, ino: u32, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let fs = self.fs.engine();
        let inode = fs.named_inode(Ino::new(ino)).map_err(io::Error::other)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let read = ops::read(fs, &inode, at, &mut buf[done..]).map_err(io::Error::other)?;
            if read == 0 {
                return Err(io::Error::other("the file is shorter than it was"));
            }
            done += read;
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match &self.stamp {
            Some(stamp) if Stamp::of(&stamp.path).as_ref() != Some(stamp) => Err(io::Error::other(
                "it was changed while it was read, or is another file now",
            )),
            _ => Ok(()),
        }
    }
}
