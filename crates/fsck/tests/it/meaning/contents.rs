//! What can be read of a file system: by the engine, and by Linux.

use extant::{FileType, Filesystem, MountOptions, WalkEntry};
use extant_blockdev::SharedDevice;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

/// Bytes that are told apart.
const PIECE: u64 = 1024;
/// Of longer files so many pieces are read.
const PIECES: u64 = 16_384;
/// Memory for an engine, in bytes.
pub(super) const CACHE: usize = 8 << 20;
/// The flags of inodes whose content or names Linux does not hand out as they lie: encrypted and
/// sealed ones.
const CLOSED: u32 = ENCRYPTED | 0x10_0000;
/// The flag of encrypted inodes.
const ENCRYPTED: u32 = 0x800;

/// What a name leads to, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) ino: u64,
    pub(super) kind: Kind,
    /// Whether Linux does not hand it out as it lies.
    pub(super) closed: bool,
    /// Attributes, where they are asked for.
    pub(super) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Link(Vec<u8>),
    /// Its size, and a sum of each piece that is not all zeros.
    File(u64, BTreeMap<u64, u64>),
    Special,
    /// A file whose content takes a key.
    Encrypted,
}

impl Kind {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Link(_) => "link",
            Self::File(..) => "file",
            Self::Special => "special file",
            Self::Encrypted => "encrypted file",
        }
    }

    /// Whether it can be told from others by what it holds.
    pub(super) fn says_something(&self) -> bool {
        match self {
            Self::Link(_) => true,
            Self::File(_, pieces) => !pieces.is_empty(),
            Self::Directory | Self::Special | Self::Encrypted => false,
        }
    }

    /// Whether this is there in `new`: a file may have become longer behind what it holds, and
    /// shorter by zeros; and where a target ends, the size of the link says or the zero byte behind
    /// it.
    pub(super) fn is_kept_in(&self, new: &Self) -> bool {
        match (self, new) {
            (Self::File(len, old), Self::File(longer, new)) => old.iter().all(|(at, sum)| {
                // Of a file that has become longer, other bytes lie behind those of the piece that
                // was its last one.
                let goes_on = longer > len && (at + 1) * PIECE > *len;
                new.get(at).is_some_and(|new_sum| new_sum == sum || goes_on)
            }),
            // What is encrypted is read as it lies once the flag is gone, and not any more once it
            // is back.
            (Self::Encrypted, _) | (Self::File(..), Self::Encrypted) => true,
            (Self::Link(old), Self::Link(new)) => old.starts_with(new) || new.starts_with(old),
            (old, new) => old == new,
        }
    }
}

/// By path.
pub(super) type Contents = BTreeMap<Vec<u8>, Found>;

fn sum_of(piece: &[u8]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    // Zeros behind the end of a file say nothing.
    let end = piece.iter().rposition(|byte| *byte != 0)? + 1;
    piece[..end].hash(&mut hasher);
    Some(hasher.finish())
}

/// The pieces of a file that are not all zeros; nothing when one cannot be read.
fn pieces(
    size: u64,
    mut data_from: impl FnMut(u64) -> Option<Option<u64>>,
    mut read: impl FnMut(&mut [u8], u64) -> Option<usize>,
) -> Option<BTreeMap<u64, u64>> {
    let mut pieces = BTreeMap::new();
    let mut buffer = vec![0; 64 * PIECE as usize];
    let (mut at, mut left) = (0, PIECES);
    while at < size && left > 0 {
        match data_from(at)? {
            Some(data) if data > at => {
                at = data / PIECE * PIECE;
                left -= 1;
            }
            Some(_) => {}
            None => break,
        }
        let len = (buffer.len() as u64).min(size - at) as usize;
        let mut filled = 0;
        while filled < len {
            match read(&mut buffer[filled..len], at + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        for (n, piece) in buffer[..filled].chunks(PIECE as usize).enumerate() {
            if let Some(sum) = sum_of(piece) {
                pieces.insert(at / PIECE + n as u64, sum);
            }
        }
        if filled < len {
            break;
        }
        at += len as u64;
        left = left.saturating_sub(64);
    }
    Some(pieces)
}

/// What the engine reads of the file system on `device`; nothing where it does not open it.
pub(super) fn by_engine(device: SharedDevice, journal: Option<SharedDevice>) -> Option<Contents> {
    let mut options = MountOptions::read_only().memory(CACHE);
    if let Some(journal) = journal {
        options = options.journal_device(journal);
    }
    contents_of(&Filesystem::open_device(device, options).ok()?)
}

/// What the engine reads of an open file system; nothing where its root cannot be walked.
pub(super) fn contents_of(fs: &Filesystem) -> Option<Contents> {
    let mut contents = Contents::new();
    let mut files: HashMap<u32, Option<Kind>> = HashMap::new();
    for entry in fs.walk("/").ok()?.flatten() {
        let metadata = entry.metadata();
        let kind = match metadata.file_type() {
            FileType::Directory => Some(Kind::Directory),
            FileType::Symlink => entry.read_link().ok().map(Kind::Link),
            FileType::Regular if metadata.flags() & ENCRYPTED != 0 => Some(Kind::Encrypted),
            FileType::Regular => files
                .entry(metadata.ino())
                .or_insert_with(|| read_file(&entry, metadata.len()))
                .clone(),
            _ => Some(Kind::Special),
        };
        let Some(kind) = kind else { continue };
        let attributes = entry.xattrs().unwrap_or_default();
        let attributes = attributes.into_iter();
        contents.insert(
            entry.path_bytes().to_vec(),
            Found {
                ino: metadata.ino().into(),
                kind,
                closed: metadata.flags() & CLOSED != 0,
                attributes: attributes
                    .map(|(name, value)| (name.as_bytes().to_vec(), value))
                    .collect(),
            },
        );
    }
    Some(contents)
}

fn read_file(entry: &WalkEntry, size: u64) -> Option<Kind> {
    let file = entry.open().ok()?;
    let pieces = pieces(
        size,
        |at| file.seek_data(at).ok(),
        |buffer, at| file.read_at(buffer, at).ok(),
    )?;
    Some(Kind::File(size, pieces))
}

/// What Linux shows below `root`, and what it could not read.
pub(super) fn by_linux(root: &Path) -> (Contents, Vec<String>) {
    let mut walk = Walk {
        contents: Contents::new(),
        files: HashMap::new(),
        entered: HashSet::new(),
        failures: Vec::new(),
    };
    walk.visit(root, b"/");
    (walk.contents, walk.failures)
}

struct Walk {
    contents: Contents,
    files: HashMap<u64, Option<Kind>>,
    entered: HashSet<u64>,
    failures: Vec<String>,
}

impl Walk {
    fn fail(&mut self, path: &[u8], e: impl std::fmt::Display) {
        self.failures.push(format!("{}: {e}", path.escape_ascii()));
    }

    fn visit(&mut self, at: &Path, path: &[u8]) {
        let metadata = match fs::symlink_metadata(at) {
            Ok(metadata) => metadata,
            Err(e) => return self.fail(path, e),
        };
        let (ino, file_type) = (metadata.ino(), metadata.file_type());
        let kind = if file_type.is_dir() {
            Ok(Kind::Directory)
        } else if file_type.is_symlink() {
            fs::read_link(at).map(|target| Kind::Link(target.as_os_str().as_bytes().to_vec()))
        } else if file_type.is_file() {
            let known = self.files.get(&ino).cloned();
            known
                .flatten()
                .map_or_else(|| read_shown(at, metadata.len()), Ok)
        } else {
            assert!(
                file_type.is_fifo()
                    || file_type.is_socket()
                    || file_type.is_char_device()
                    || file_type.is_block_device()
            );
            Ok(Kind::Special)
        };
        match kind {
            Ok(kind) => {
                if file_type.is_file() {
                    self.files.insert(ino, Some(kind.clone()));
                }
                let found = Found {
                    ino,
                    kind,
                    closed: false,
                    attributes: BTreeMap::new(),
                };
                self.contents.insert(path.to_vec(), found);
            }
            Err(e) => self.fail(path, e),
        }
        if file_type.is_dir() && self.entered.insert(ino) {
            self.list(at, path);
        }
    }

    fn list(&mut self, at: &Path, path: &[u8]) {
        let entries = match fs::read_dir(at) {
            Ok(entries) => entries,
            Err(e) => return self.fail(path, e),
        };
        for entry in entries {
            match entry {
                Ok(entry) => {
                    let mut below = path.to_vec();
                    if below != b"/" {
                        below.push(b'/');
                    }
                    below.extend(entry.file_name().as_bytes());
                    self.visit(&entry.path(), &below);
                }
                Err(e) => return self.fail(path, e),
            }
        }
    }
}

fn read_shown(at: &Path, size: u64) -> std::io::Result<Kind> {
    let file = File::open(at)?;
    let mut failure = None;
    let sought = |at: u64| match rustix::fs::seek(&file, SeekFrom::Data(at)) {
        Ok(data) => Some(Some(data)),
        Err(Errno::NXIO) => Some(None),
        Err(_) => None,
    };
    let read = |buffer: &mut [u8], at: u64| match file.read_at(buffer, at) {
        Ok(n) => Some(n),
        Err(e) => {
            failure = Some(e);
            None
        }
    };
    match pieces(size, sought, read) {
        Some(pieces) => Ok(Kind::File(size, pieces)),
        None => Err(failure.unwrap_or_else(|| std::io::Error::other("seeking data failed"))),
    }
}
