//! Pieces that stay on a local disk from run to run, for any number of processes.
//!
//! Each piece is a file: `DIRECTORY/extant-pieces/OBJECT/GROUP/PIECE`, where `OBJECT` is a hash of
//! the URL and of what tells the version of the object. A file appears under its name when it is
//! complete, and begins with its number, its length and a checksum of all of it and of `OBJECT`.
//!
//! # Invariants
//! - Nothing that goes wrong here is an error of a read: the piece is fetched again.
//! - What is not as it was written is not used, and is removed.

use bytes::Bytes;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const MAGIC: [u8; 8] = *b"EXTPIEC1";
/// Magic, number, length, checksum.
const HEAD: usize = 24;
/// Pieces in one folder.
const GROUP: u64 = 4096;
/// Pieces that wait to be written; more are not kept.
const MOST_WAITING: usize = 512;
/// How long a device that is closed waits for them.
const FAREWELL: Duration = Duration::from_secs(5);
/// A file without its name for so long was left by a process that ended.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// How exact the time of the last use is.
const USE: Duration = Duration::from_secs(60);

static WRITES: LockClass = LockClass::new("remote disk cache", Rank::Leaf);

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// Bytes in the directory, as far as this process knows.
    total: Option<u64>,
    /// Bytes written since all processes' were counted.
    since: u64,
    /// A thread counts or makes room.
    is_trimming: bool,
}

/// The pieces of one object on a local disk.
#[derive(Debug)]
pub(crate) struct DiskCache {
    root: PathBuf,
    object: PathBuf,
    key: [u8; 32],
    most: u64,
    state: Mutex<State>,
    written: Condvar,
}

impl DiskCache {
    /// The pieces of the object that `url` and `identity` tell from others. `None` if others may
    /// write to the directory, or it cannot be made.
    pub(crate) fn new(dir: &Path, most: u64, url: &str, identity: &str) -> Option<Self> {
        let root = dir.join("extant-pieces");
        // What is missing then is seen below.
        let _ = folders().create(&root);
        if !is_private(&fs::metadata(dir).ok()?) || !is_private(&fs::symlink_metadata(&root).ok()?)
        {
            return None;
        }
        let mut hash = Sha256::new();
        hash.update((url.len() as u64).to_le_bytes());
        hash.update(url);
        hash.update(identity);
        let key: [u8; 32] = hash.finalize().into();
        let name: String = key[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self {
            object: root.join(name),
            root,
            key,
            most,
            state: Mutex::new(&WRITES, State::default()),
            written: Condvar::new(),
        })
    }

    fn path(&self, piece: u64) -> PathBuf {
        let group = format!("{:x}", piece / GROUP);
        self.object.join(group).join(format!("{piece:x}"))
    }

    fn checksum(&self, piece: u64, bytes: &[u8]) -> u32 {
        let sum = crc32c::crc32c(&self.key);
        let sum = crc32c::crc32c_append(sum, &piece.to_le_bytes());
        crc32c::crc32c_append(sum, bytes)
    }

    /// The piece of `len` bytes, if it is there as it was written.
    pub(crate) fn get(&self, piece: u64, len: usize) -> Option<Bytes> {
        let path = self.path(piece);
        // Neither a link elsewhere nor a pipe that nobody writes to.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path)
            .ok()?;
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        let found = is_file.then(|| self.read(&mut file, piece, len));
        match found.flatten() {
            Some(bytes) => {
                let age = file.metadata().and_then(|m| m.modified()).ok();
                if age
                    .and_then(|at| at.elapsed().ok())
                    .is_some_and(|age| age > USE)
                {
                    touch(&file);
                }
                Some(bytes)
            }
            None => {
                // If that fails too, it is looked at again next time.
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    fn read(&self, file: &mut File, piece: u64, len: usize) -> Option<Bytes> {
        let mut bytes = vec![0; HEAD + len];
        file.read_exact(&mut bytes).ok()?;
        let is_at_end = matches!(file.read(&mut [0]), Ok(0));
        let (head, body) = bytes.split_at(HEAD);
        let expected = self.head(piece, body);
        (is_at_end && head == expected).then(|| Bytes::from(bytes).slice(HEAD..))
    }

    fn head(&self, piece: u64, body: &[u8]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&piece.to_le_bytes());
        head[16..20].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[20..].copy_from_slice(&self.checksum(piece, body).to_le_bytes());
        head
    }

    /// Announces a piece, and returns whether it is to be written.
    pub(crate) fn may_put(&self) -> bool {
        let mut state = self.state.lock();
        let has_room = state.waiting < MOST_WAITING;
        state.waiting += usize::from(has_room);
        has_room
    }

    /// Writes a piece that was announced.
    pub(crate) fn put(&self, piece: u64, bytes: &[u8]) {
        // A full disk, a directory that is gone: the piece is fetched again.
        if self.write(piece, bytes).is_ok() {
            self.count((HEAD + bytes.len()) as u64);
        }
        self.state.lock().waiting -= 1;
        self.written.notify_all();
    }

    fn write(&self, piece: u64, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(piece);
        let Some(folder) = path.parent() else {
            return Ok(());
        };
        let mut tries = 0;
        let mut file = loop {
            folders().create(folder)?;
            let made = tempfile::Builder::new().prefix(".new").tempfile_in(folder);
            match made {
                // The folder was empty, and a thread that makes room took it away.
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries < 5 => tries += 1,
                made => break made?,
            }
        };
        file.write_all(&self.head(piece, bytes))?;
        file.write_all(bytes)?;
        file.persist(&path).map_err(|e| e.error)?;
        Ok(())
    }

    /// Waits for the pieces that were announced, but not long.
    pub(crate) fn finish(&self) {
        let began = SystemTime::now();
        let mut state = self.state.lock();
        while state.waiting > 0 && began.elapsed().is_ok_and(|waited| waited < FAREWELL) {
            self.written.wait_for(&mut state, FAREWELL / 10);
        }
    }

    /// Counts what was written, and makes room if there is too much.
    fn count(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.since += bytes;
        let total = state.total.map(|total| total + bytes);
        state.total = total;
        let is_over = total.is_none_or(|total| total > self.most) || state.since > self.most / 16;
        if !is_over || state.is_trimming {
            return;
        }
        state.is_trimming = true;
        drop(state);
        let total = self.trim();
        let mut state = self.state.lock();
        state.total = Some(total);
        state.since = 0;
        state.is_trimming = false;
    }

    /// Removes what was not used for longest until nine tenths of the room are left used, if there
    /// is too much. Returns what is left.
    fn trim(&self) -> u64 {
        let mut found = Vec::new();
        list(&self.root, 3, &mut found);
        let mut total: u64 = found.iter().map(|file| file.len).sum();
        if total <= self.most {
            return total;
        }
        found.sort_by_key(|file| file.used);
        for file in found {
            if total <= self.most / 10 * 9 {
                break;
            }
            // Another process may have been quicker.
            let _ = fs::remove_file(&file.path);
            total -= file.len;
        }
        total
    }
}

/// Makes folders for this user.
fn folders() -> DirBuilder {
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700);
    folders
}

/// Whether this is a directory of this user that nobody else may write to.
fn is_private(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
}

struct Found {
    used: SystemTime,
    len: u64,
    path: PathBuf,
}

/// The files of a folder, down to a depth. What cannot be looked at is not there.
fn list(folder: &Path, depth: u32, found: &mut Vec<Found>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else {
            continue;
        };
        if meta.is_dir() && depth > 0 {
            list(&entry.path(), depth - 1, found);
            // Only if nothing is in it.
            let _ = fs::remove_dir(entry.path());
            continue;
        }
        let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_new = entry.file_name().as_encoded_bytes().starts_with(b".new");
        if is_new && used.elapsed().is_ok_and(|age| age > LEFT_BEHIND) {
            let _ = fs::remove_file(entry.path());
        } else if meta.is_file() {
            found.push(Found {
                used,
                len: meta.len(),
                path: entry.path(),
            });
        }
    }
}

/// Notes that a file was used now.
fn touch(file: &File) {
    let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let times = Timestamps {
        last_access: at(UTIME_OMIT),
        last_modification: at(UTIME_NOW),
    };
    // A cache that may not be written to serves as well.
    let _ = futimens(file, &times);
}

#[cfg(test)]
mod tests {
    use super::{DiskCache, HEAD, list};
    use crate::pieces::PIECE;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn put(cache: &DiskCache, piece: u64, bytes: &[u8]) {
        assert!(cache.may_put());
        cache.put(piece, bytes);
    }

    #[test]
    fn what_is_damaged_or_of_another_object_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(dir.path(), 1 << 30, "http://h/a", "etag 1").unwrap();
        let bytes = vec![7; PIECE as usize];
        put(&cache, 5, &bytes);
        assert_eq!(cache.get(5, bytes.len()).unwrap(), bytes);
        assert!(cache.get(6, bytes.len()).is_none());
        let path = cache.path(5);
        let good = fs::read(&path).unwrap();
        for at in [0, 8, 16, 20, HEAD, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).unwrap();
            assert!(cache.get(5, bytes.len()).is_none(), "byte {at}");
            assert!(!path.exists());
        }
        for len in [0, HEAD, good.len() - 1] {
            fs::write(&path, &good[..len]).unwrap();
            assert!(cache.get(5, bytes.len()).is_none(), "{len} bytes");
        }
        // A file of one object under the name of another, or of another piece.
        let other = DiskCache::new(dir.path(), 1 << 30, "http://h/a", "etag 2").unwrap();
        put(&other, 5, &bytes);
        fs::write(other.path(5), &good).unwrap();
        assert!(other.get(5, bytes.len()).is_none());
        put(&cache, 6, &bytes);
        fs::write(cache.path(6), &good).unwrap();
        assert!(cache.get(6, bytes.len()).is_none());
    }

    #[test]
    fn only_directories_of_ones_own_and_files_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let cache = |dir: &Path| DiskCache::new(dir, 1 << 30, "http://h/a", "etag 1");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for bad in [0o770, 0o707, 0o1777] {
            mode(dir.path(), bad);
            assert!(cache(dir.path()).is_none(), "{bad:o}");
            mode(dir.path(), 0o755);
            let one = cache(dir.path()).unwrap();
            mode(&one.root, bad);
            assert!(cache(dir.path()).is_none(), "{bad:o}");
            mode(&one.root, 0o700);
        }
        let below = dir.path().join("new/dir");
        let bytes = vec![7; PIECE as usize];
        let one = cache(&below).unwrap();
        put(&one, 5, &bytes);
        let path = one.path(5);
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(one.get(5, bytes.len()).is_none());
        assert!(elsewhere.exists());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(one.get(5, bytes.len()).is_none());
        fs::remove_dir(&path).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        let all = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, all, 0).unwrap();
        assert!(one.get(5, bytes.len()).is_none());
        put(&one, 5, &bytes);
        assert_eq!(one.get(5, bytes.len()).unwrap(), bytes);
    }

    #[test]
    fn the_directory_keeps_to_its_bound_and_what_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let most = 64 * PIECE;
        let one = DiskCache::new(dir.path(), most, "http://h/a", "etag 1").unwrap();
        let two = DiskCache::new(dir.path(), most, "http://h/b", "etag 1").unwrap();
        for piece in 0..200 {
            put(&one, piece, &vec![1; PIECE as usize]);
            put(&two, piece * 5000, &vec![2; PIECE as usize]);
            let mut found = Vec::new();
            list(&one.root, 3, &mut found);
            let total: u64 = found.iter().map(|file| file.len).sum();
            // Each counts what the other writes after a sixteenth of the bound.
            assert!(total < most / 8 * 9 + 2 * PIECE, "{total} after {piece}");
        }
        assert!(one.get(199, PIECE as usize).is_some());
        assert!(one.get(0, PIECE as usize).is_none());
    }
}
