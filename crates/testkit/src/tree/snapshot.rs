//! Reading a tree from a mounted file system.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::{ContentHasher, Digest, Entry, Kind, Time, Tree};

/// Paths handed to the kernel in one call stay below this; deeper ones are walked in parts.
const PATH_PART: usize = 3000;

impl Tree {
    /// Returns everything below `root`: types, owners, modes, times, content, holes, xattrs, links.
    ///
    /// # Panics
    ///
    /// When something cannot be read; the message names it.
    pub fn snapshot(root: &Path) -> Tree {
        Walk::new(root).run().unwrap_or_else(|(path, e)| {
            panic!("reading {}/{}: {e}", root.display(), path.escape_ascii())
        })
    }
}

struct Walk {
    root: OwnedFd,
    tree: Tree,
    // A file with many names is read once.
    contents: HashMap<u64, Kind>,
    buffer: Vec<u8>,
}

type Failure = (Vec<u8>, io::Error);

impl Walk {
    fn new(root: &Path) -> Walk {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())
            .unwrap_or_else(|e| panic!("open {}: {e}", root.display()));
        Walk {
            root,
            tree: Tree::new(),
            contents: HashMap::new(),
            buffer: vec![0; 256 << 10],
        }
    }

    fn run(mut self) -> Result<Tree, Failure> {
        let root_fd = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)
            .map_err(|e| (Vec::new(), io::Error::from(e)))?;
        let root = self
            .entry(root_fd.as_fd(), b".")
            .map_err(|e| (Vec::new(), e))?;
        self.tree.insert(b"", root);
        let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
        while let Some(dir) = pending.pop() {
            let fd = self.open_directory(&dir).map_err(|e| (dir.clone(), e))?;
            for name in names(&fd).map_err(|e| (dir.clone(), e))? {
                let mut path = dir.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&name);
                let entry = self
                    .entry(fd.as_fd(), &name)
                    .map_err(|e| (path.clone(), e))?;
                if entry.kind == Kind::Directory {
                    pending.push(path.clone());
                }
                self.tree.insert(path, entry);
            }
        }
        Ok(self.tree)
    }

    /// Opens a directory whose path may be longer than the kernel takes at once.
    fn open_directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut fd = rustix::fs::openat(&self.root, ".", flags, Mode::empty())?;
        let mut rest = path;
        while !rest.is_empty() {
            let cut = if rest.len() <= PATH_PART {
                rest.len()
            } else {
                rest[..PATH_PART]
                    .iter()
                    .rposition(|&b| b == b'/')
                    .unwrap_or(rest.len())
            };
            fd = rustix::fs::openat(&fd, &rest[..cut], flags, Mode::empty())?;
            rest = rest[cut..].strip_prefix(b"/").unwrap_or(&rest[cut..]);
        }
        Ok(fd)
    }

    fn entry(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Entry> {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        // These are u64 or narrower depending on the architecture.
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
        let (nlink, device) = (stat.st_nlink as u64, stat.st_rdev as u64);
        let numbers = (rustix::fs::major(device), rustix::fs::minor(device));
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => match self.contents.get(&stat.st_ino) {
                Some(known) => known.clone(),
                None => {
                    let kind = self.read_file(dir, name, stat.st_size.cast_unsigned())?;
                    if nlink > 1 {
                        self.contents.insert(stat.st_ino, kind.clone());
                    }
                    kind
                }
            },
            FileType::Symlink => {
                Kind::Symlink(rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes())
            }
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice(numbers.0, numbers.1),
            FileType::BlockDevice => Kind::BlockDevice(numbers.0, numbers.1),
            FileType::Unknown => return Err(io::Error::other("unknown file type")),
        };
        Ok(Entry {
            kind,
            mode: (stat.st_mode & 0o7777) as u16,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink,
            inode: stat.st_ino,
            mtime: Time::new(stat.st_mtime, stat.st_mtime_nsec as u32),
            atime: Some(Time::new(stat.st_atime, stat.st_atime_nsec as u32)),
            ctime: Some(Time::new(stat.st_ctime, stat.st_ctime_nsec as u32)),
            blocks: Some(stat.st_blocks.cast_unsigned()),
            xattrs: xattrs(dir, name)?,
        })
    }

    fn read_file(&mut self, dir: BorrowedFd<'_>, name: &[u8], size: u64) -> io::Result<Kind> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let plain = rustix::fs::openat(dir, name, flags | OFlags::NOATIME, Mode::empty());
        let fd = match plain {
            // Only the owner may leave the access time alone.
            Err(Errno::PERM) => rustix::fs::openat(dir, name, flags, Mode::empty())?,
            other => other?,
        };
        let file = File::from(fd);
        let (digest, data) = self.read_content(&file, size)?;
        Ok(Kind::File {
            size,
            digest,
            data: Some(data),
        })
    }

    fn read_content(&mut self, file: &File, size: u64) -> io::Result<(Digest, Vec<Range<u64>>)> {
        use std::os::unix::fs::FileExt;
        let mut hasher = ContentHasher::new();
        let mut data = Vec::new();
        let mut position = 0;
        while position < size {
            let start = match rustix::fs::seek(file, SeekFrom::Data(position)) {
                Ok(start) => start.min(size),
                // No data up to the end.
                Err(Errno::NXIO) => size,
                Err(e) => return Err(e.into()),
            };
            hasher.skip(start - position);
            if start == size {
                break;
            }
            let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
            let mut at = start;
            while at < end {
                let want = self
                    .buffer
                    .len()
                    .min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let n = file.read_at(&mut self.buffer[..want], at)?;
                if n == 0 {
                    return Err(io::Error::other(format!("ends at byte {at} of {size}")));
                }
                hasher.write(&self.buffer[..n]);
                at += n as u64;
            }
            data.push(start..end);
            position = end;
        }
        Ok((hasher.finish(), data))
    }
}

/// The names in an open directory.
fn names(fd: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for item in rustix::fs::Dir::read_from(fd)? {
        let name = item?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// The extended attributes of `name` itself, symlinks not followed.
fn xattrs(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // There is no lgetxattr relative to a directory: go through its entry in /proc.
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let list = match grow(|buf| rustix::fs::llistxattr(path.as_slice(), buf)) {
        Ok(list) => list,
        Err(Errno::NOTSUP) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e.into()),
    };
    let mut found = BTreeMap::new();
    for key in list.split(|&b| b == 0).filter(|k| !k.is_empty()) {
        let value = grow(|buf| rustix::fs::lgetxattr(path.as_slice(), key, buf))?;
        found.insert(key.to_vec(), value);
    }
    Ok(found)
}

/// Calls with a small buffer first and the largest the kernel knows when that is too small.
fn grow(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    const LARGEST: usize = 64 << 10;
    let mut small = [0u8; 1024];
    match call(&mut small) {
        Ok(n) => Ok(small[..n].to_vec()),
        Err(Errno::RANGE) => {
            let mut large = vec![0; LARGEST];
            let n = call(&mut large)?;
            large.truncate(n);
            Ok(large)
        }
        Err(e) => Err(e),
    }
}
