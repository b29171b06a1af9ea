//! Putting the files of a tar archive into a file system (feature `tar`).
//!
//! ```
//! use extant::import::from_tar;
//! use extant::{Filesystem, export};
//! use std::io::Cursor;
//!
//! # fn main() -> extant::Result<()> {
//! # let fs = Filesystem::format_device(extant::MemoryDevice::new(16 << 20))?;
//! fs.create_dir_all("/etc/app.d")?;
//! fs.write("/etc/app.d/name", "first\n")?;
//! let mut archive = Vec::new();
//! export::to_tar(&fs, "/etc", &mut archive, None)?;
//! fs.create_dir("/copy-of-etc")?;
//! let report = from_tar(&fs, Cursor::new(archive), "/copy-of-etc")?;
//! assert_eq!((report.files, report.directories), (1, 1));
//! assert_eq!(fs.read_to_string("/copy-of-etc/app.d/name")?, "first\n");
//! # Ok(())
//! # }
//! ```
//!
//! Within [`Filesystem::transaction`] all of an archive is put in, or nothing.

use crate::{Cause, DeviceNumber, Error, FileType, Filesystem, OpenOptions, Result};
use extant_core::Error as EngineError;
use extant_mkfs::source::{Excludes, Node, NodeId, SourceError, TarOptions, Tree, read_tar_stream};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

/// How [`from_tar_with`] works. Made with [`ImportOptions::default`], changed field by field.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    /// Names that stay out, each a pattern as `tar --exclude` takes it.
    pub exclude: Vec<Vec<u8>>,
    /// The directory of the host for content that comes from a stream, until it is in the file
    /// system. By default the one that `TMPDIR` names.
    pub spool_dir: Option<PathBuf>,
}

/// What [`from_tar`] made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportReport {
    /// Regular files.
    pub files: u64,
    /// Directories, without those that were there.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Devices, pipes and sockets.
    pub specials: u64,
    /// Bytes of content, holes not counted.
    pub bytes: u64,
    /// What reading the archive had to say, such as members of unknown kinds, as sentences.
    pub warnings: Vec<String>,
}

/// Puts what a tar archive holds into the directory `into`: with owners, permissions, times, links,
/// holes, devices and extended attributes. The archive may be compressed, by gzip, zstd, bzip2, xz
/// or lz4.
///
/// A directory that is there keeps what it has, as does a symbolic link to one, which is followed.
/// Any other file that is there is replaced. Names never lead out of `into` but by such links, and
/// nothing of the host is touched.
///
/// # Errors
/// When the archive cannot be read, breaks its format or holds whiteouts (then nothing is changed),
/// when a directory would have to make way for a file, or no space is left. What was made by then
/// stays.
pub fn from_tar(
    fs: &Filesystem,
    archive: impl Read + Send + 'static,
    into: impl AsRef<Path>,
) -> Result<ImportReport> {
    from_tar_with(fs, archive, into, &ImportOptions::default())
}

/// Puts what an archive holds into a directory as [`from_tar`] does, with options.
///
/// # Errors
/// As for [`from_tar`], and for a pattern that means nothing.
pub fn from_tar_with(
    fs: &Filesystem,
    archive: impl Read + Send + 'static,
    into: impl AsRef<Path>,
    options: &ImportOptions,
) -> Result<ImportReport> {
    let into = into.as_ref();
    if !fs.metadata(into)?.is_dir() {
        return Err(Error::engine(into, EngineError::NotADirectory));
    }
    let mut how = TarOptions::default();
    let patterns = options.exclude.iter().map(Vec::as_slice);
    how.excludes = Excludes::new(patterns).map_err(|e| {
        Error::host(
            "leave out",
            "",
            std::io::Error::new(std::io::ErrorKind::InvalidInput, e),
        )
    })?;
    if let Some(dir) = &options.spool_dir {
        how.spool_dir.clone_from(dir);
    }
    let tree = read_tar_stream(archive, Path::new("the archive"), &how).map_err(unread)?;
    let mut import = Import {
        fs,
        tree: &tree,
        made: HashMap::new(),
        dirs: Vec::new(),
        report: ImportReport::default(),
        buffer: vec![0; CHUNK],
    };
    import.all(into)?;
    let inode_size = fs.fs().superblock().inode_size();
    import.report.warnings = tree.concerns(inode_size);
    Ok(import.report)
}

fn unread(e: SourceError) -> Error {
    Error::new("", Cause::NotRead(Arc::new(e)))
}

struct Import<'a> {
    fs: &'a Filesystem,
    tree: &'a Tree,
    /// The first path of each file that has several.
    made: HashMap<NodeId, PathBuf>,
    /// Directories that were made, those above others first.
    dirs: Vec<(NodeId, PathBuf)>,
    report: ImportReport,
    buffer: Vec<u8>,
}

impl Import<'_> {
    fn all(&mut self, into: &Path) -> Result<()> {
        let mut todo = vec![(NodeId::ROOT, into.to_owned())];
        while let Some((dir, at)) = todo.pop() {
            for (name, id) in self.tree.children(dir) {
                let path = at.join(OsStr::from_bytes(name));
                let node = self.tree.node(id);
                if node.is_dir() {
                    self.directory(id, &path)?;
                    todo.push((id, path));
                } else {
                    self.file(id, &node, path)?;
                }
            }
        }
        // Last, as making files in them changes their times, and their permissions may forbid it.
        for (id, path) in std::mem::take(&mut self.dirs).iter().rev() {
            self.describe(*id, path)?;
        }
        Ok(())
    }

    fn directory(&mut self, id: NodeId, path: &Path) -> Result<()> {
        match self.fs.metadata(path) {
            Ok(found) if found.is_dir() => return Ok(()),
            // A file, or a symbolic link to something else.
            Ok(_) => self.fs.remove_file(path)?,
            Err(e) if e.errno() == EngineError::NotFound.errno() => self.make_way(path)?,
            Err(e) => return Err(e),
        }
        self.fs.create_dir_with(path, 0o700)?;
        self.report.directories += 1;
        self.dirs.push((id, path.to_owned()));
        Ok(())
    }

    /// Removes what is at a path, if something is, and is no directory.
    fn make_way(&self, path: &Path) -> Result<()> {
        match self.fs.remove_file(path) {
            Err(e) if e.errno() == EngineError::NotFound.errno() => Ok(()),
            removed => removed,
        }
    }

    fn file(&mut self, id: NodeId, node: &Node, path: PathBuf) -> Result<()> {
        self.make_way(&path)?;
        if let Some(first) = self.made.get(&id) {
            self.fs.hard_link(first, &path)?;
            self.report.hard_links += 1;
            return Ok(());
        }
        match node.kind() {
            FileType::Symlink => {
                let target = self.tree.symlink_target(id).unwrap_or_default();
                self.fs.symlink(OsStr::from_bytes(target), &path)?;
                self.report.symlinks += 1;
            }
            FileType::Regular => {
                self.content(id, node, &path)?;
                self.report.files += 1;
            }
            kind => {
                let (major, minor) = node.rdev().unwrap_or_default();
                let device = DeviceNumber { major, minor };
                self.fs.create_special(&path, kind, device, 0o600)?;
                self.report.specials += 1;
            }
        }
        self.describe(id, &path)?;
        if node.nlink > 1 {
            self.made.insert(id, path);
        }
        Ok(())
    }

    fn content(&mut self, id: NodeId, node: &Node, path: &Path) -> Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.fs, path)?;
        let data = self.tree.open(id).map_err(unread)?;
        for extent in data.extents() {
            let (mut at, end) = (extent.logical, extent.logical + extent.len);
            while at < end {
                let len = (end - at).min(CHUNK as u64) as usize;
                let piece = &mut self.buffer[..len];
                data.read_at(at, piece).map_err(unread)?;
                file.write_all_at(piece, at)?;
                at += len as u64;
            }
            self.report.bytes += extent.len;
        }
        // A hole at the end.
        file.set_len(node.size)
    }

    /// Gives a file what it has besides content. Ownership first, which takes set-ID bits away, and
    /// flags last, some of which forbid every other change.
    fn describe(&self, id: NodeId, path: &Path) -> Result<()> {
        let node = self.tree.node(id);
        self.fs.set_owner(path, Some(node.uid), Some(node.gid))?;
        if node.kind() != FileType::Symlink {
            self.fs.set_permissions(path, node.mode & 0o7777)?;
        }
        for xattr in self.tree.xattrs(id).iter() {
            self.fs
                .set_xattr(path, OsStr::from_bytes(&xattr.name), &xattr.value)?;
        }
        self.fs
            .set_times(path, Some(node.times.atime()), Some(node.times.mtime()))
    }
}
