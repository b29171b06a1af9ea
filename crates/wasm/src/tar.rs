//! Pax archives, piece by piece: the bytes that `extant tar` writes.
//!
//! Kept are modes, owners, nanosecond times, hard links, holes (`GNU.sparse` 1.0), device nodes,
//! access control lists (`SCHILY.acl.*`) and all extended attributes (`SCHILY.xattr.*`).

use crate::failure::{Failure, Told};
use crate::pax::{ELEVEN_DIGITS, Header, NAME_LEN, Records, SEVEN_DIGITS, UNIT};
use crate::walk::{Next, Walk};
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode};
use extant_core::ops::{self, AclKind};
use extant_format::acl::{Acl, AclWho};
use extant_format::features::RoCompat;
use extant_format::inode::Timestamp;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Bytes of a piece, about.
const PIECE: usize = 1 << 20;
/// Bytes of content that are read before the header is written.
const READ_BEFORE: u64 = 4 << 20;
/// Archives end in a multiple of this, filled with zeros.
const RECORD: u64 = 20 * UNIT as u64;
/// Problems that are kept.
const MOST_PROBLEMS: usize = 1000;

/// An archive that is being made.
#[derive(Debug)]
pub struct Tar {
    walk: Walk,
    /// The name of what is archived, where that is no directory.
    name: Vec<u8>,
    /// Names of files with several names, by inode number.
    linked: HashMap<u32, Vec<u8>>,
    /// Bytes that files may still have: a sound file system has each block once.
    data_left: u64,
    content: Option<Content>,
    piece: Vec<u8>,
    /// Bytes of the archive, with those of the piece.
    written: u64,
    is_done: bool,
    problems: Vec<String>,
}

/// A file that is being copied.
#[derive(Debug)]
struct Content {
    path: Vec<u8>,
    inode: Arc<Inode>,
    ranges: std::vec::IntoIter<Range<u64>>,
    now: Range<u64>,
    is_whole: bool,
}

impl Tar {
    pub(crate) fn new(fs: &Fs, start: Arc<Inode>, name: Vec<u8>) -> Self {
        let space = fs.geometry().blocks_count();
        let space = space.saturating_mul(fs.block_size().bytes().into());
        let shares = fs.superblock().has_ro_compat(RoCompat::SHARED_BLOCKS);
        Self {
            walk: Walk::new(start),
            name,
            linked: HashMap::new(),
            data_left: if shares { u64::MAX } else { space },
            content: None,
            piece: Vec::new(),
            written: 0,
            is_done: false,
            problems: Vec::new(),
        }
    }

    /// Returns the next piece, and `None` behind the last one.
    pub(crate) fn next(&mut self, fs: &Fs) -> Told<Option<Vec<u8>>> {
        while self.piece.len() < PIECE && !self.is_done {
            if self.content.is_some() {
                self.copy(fs);
                continue;
            }
            match self.walk.next(fs) {
                Some(Next::File(path, inode)) => self.member(fs, &path, &inode)?,
                Some(Next::Problem(path, why)) => self.problem(&path, &why),
                None => {
                    self.write(&[0; 2 * UNIT]);
                    self.pad(RECORD);
                    self.is_done = true;
                }
            }
        }
        let piece = std::mem::take(&mut self.piece);
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Returns what is not in the archive, or not whole, as sentences; at most the first thousand.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    fn problem(&mut self, path: &[u8], why: &str) {
        if self.problems.len() < MOST_PROBLEMS {
            let path = String::from_utf8_lossy(path);
            self.problems.push(format!("/{path}: {why}"));
        }
    }

    fn member(&mut self, fs: &Fs, path: &[u8], inode: &Arc<Inode>) -> Told<()> {
        let name = match (path, inode.is_dir()) {
            (b"", true) => b"./".to_vec(),
            (b"", false) => self.name.clone(),
            (path, true) => [path, b"/"].concat(),
            (path, false) => path.to_vec(),
        };
        if !inode.is_dir() && inode.disk().links > 1 {
            if let Some(first) = self.linked.get(&inode.ino().get()) {
                let first = first.clone();
                self.header(inode, &name, b'1', &first, 0, Records::default(), false);
                return Ok(());
            }
            self.linked.insert(inode.ino().get(), name.clone());
        }
        let mut simple = |kind, link: &[u8]| self.simple(fs, path, inode, &name, kind, link);
        let done = match inode.file_type() {
            FileType::Symlink => ops::readlink(fs, inode).map(|target| simple(b'2', &target)),
            kind @ (FileType::Directory
            | FileType::CharDevice
            | FileType::BlockDevice
            | FileType::Fifo) => {
                simple(flag(kind), b"");
                Ok(())
            }
            FileType::Regular => self.regular(fs, path, &name, inode)?,
            FileType::Socket => {
                self.problem(path, "a socket was left out, as tar cannot hold it");
                Ok(())
            }
        };
        if let Err(e) = done {
            self.linked.remove(&inode.ino().get());
            self.problem(path, &format!("it was left out: {e}"));
        }
        Ok(())
    }

    /// A member without content.
    fn simple(&mut self, fs: &Fs, path: &[u8], inode: &Inode, name: &[u8], kind: u8, link: &[u8]) {
        let (records, lacks) = self.attributes(fs, path, inode);
        self.header(inode, name, kind, link, 0, records, lacks);
    }

    fn regular(
        &mut self,
        fs: &Fs,
        path: &[u8],
        name: &[u8],
        inode: &Arc<Inode>,
    ) -> Told<extant_core::Result<()>> {
        // Refused before the header says that there is content.
        if let Err(e) = ops::read(fs, inode, 0, &mut []) {
            return Ok(Err(e));
        }
        let ranges = match data_ranges(fs, inode) {
            Ok(ranges) => ranges,
            Err(e) => return Ok(Err(e)),
        };
        let data = ranges.iter().map(|range| range.end - range.start).sum();
        self.data_left = self.data_left.checked_sub(data).ok_or_else(|| {
            Failure::damaged("files of the file system claim more blocks than there are")
        })?;
        let before = if data <= READ_BEFORE {
            match read_whole(fs, inode, &ranges) {
                Ok(bytes) => Some(bytes),
                Err(e) => return Ok(Err(e)),
            }
        } else {
            None
        };
        let (mut records, lacks) = self.attributes(fs, path, inode);
        if data < inode.size() {
            let front = encode_map(&ranges, inode.size());
            records.push(b"GNU.sparse.major", b"1");
            records.push(b"GNU.sparse.minor", b"0");
            records.push(b"GNU.sparse.name", name);
            records.push(b"GNU.sparse.realsize", inode.size().to_string().as_bytes());
            let size = front.len() as u64 + data;
            self.header(inode, &stand_in_name(name), b'0', b"", size, records, lacks);
            self.write(&front);
        } else {
            self.header(inode, name, b'0', b"", data, records, lacks);
        }
        match before {
            Some(bytes) => {
                self.write(&bytes);
                self.pad(UNIT as u64);
            }
            None => {
                self.content = Some(Content {
                    path: path.to_vec(),
                    inode: Arc::clone(inode),
                    ranges: ranges.into_iter(),
                    now: 0..0,
                    is_whole: true,
                });
            }
        }
        Ok(Ok(()))
    }

    /// Copies a piece of the file that is being copied. Something has to be in its place, as its
    /// header has said so: what cannot be read is zeros, and told.
    fn copy(&mut self, fs: &Fs) {
        let Some(mut content) = self.content.take() else {
            return;
        };
        if content.now.is_empty() {
            match content.ranges.next() {
                Some(range) => content.now = range,
                None => return self.pad(UNIT as u64),
            }
        }
        let len = (content.now.end - content.now.start).min(PIECE as u64);
        let mut bytes = vec![0; len as usize];
        let read = ops::read(fs, &content.inode, content.now.start, &mut bytes);
        let whole = matches!(read, Ok(read) if read == bytes.len());
        if !whole {
            bytes.fill(0);
        }
        if !whole && content.is_whole {
            let why = read.map_or_else(|e| e.to_string(), |_| "it ends early".to_owned());
            let why = format!("parts of it cannot be read and are zeros: {why}");
            self.problem(&content.path, &why);
            content.is_whole = false;
        }
        self.write(&bytes);
        content.now.start += len;
        self.content = Some(content);
    }

    /// Times, extended attributes and access control lists, and whether some could not be read.
    fn attributes(&mut self, fs: &Fs, path: &[u8], inode: &Inode) -> (Records, bool) {
        let mut records = Records::default();
        match all_attributes(fs, inode, &mut records) {
            Ok(()) => (records, false),
            Err(e) => {
                self.problem(path, &format!("its attributes cannot be read: {e}"));
                let mut records = Records::default();
                times(inode, &mut records);
                (records, true)
            }
        }
    }

    /// Writes the header of a member, and an extended one before it for all that does not fit.
    #[expect(clippy::too_many_arguments, reason = "these are what a header has")]
    fn header(
        &mut self,
        inode: &Inode,
        name: &[u8],
        kind: u8,
        link: &[u8],
        size: u64,
        mut records: Records,
        lacks: bool,
    ) {
        let disk = inode.disk();
        if name.len() > NAME_LEN {
            records.push(b"path", name);
        }
        if link.len() > NAME_LEN {
            records.push(b"linkpath", link);
        }
        if size > ELEVEN_DIGITS {
            records.push(b"size", size.to_string().as_bytes());
        }
        for (key, id) in [(&b"uid"[..], disk.uid), (b"gid", disk.gid)] {
            if u64::from(id) > SEVEN_DIGITS {
                records.push(key, id.to_string().as_bytes());
            }
        }
        let number = inode.file_type().is_device().then(|| disk.device());
        let mut mode = disk.mode.permissions();
        if lacks {
            // Of a file with a list the group's bits are its mask, and the list may allow less.
            mode &= !0o6070;
        }
        if !records.bytes().is_empty() {
            let extended = Header {
                path: b"././@PaxHeader",
                kind: b'x',
                mode: 0o644,
                size: records.bytes().len() as u64,
                ..Header::default()
            };
            self.write(&extended.encode());
            self.write(records.bytes());
            self.pad(UNIT as u64);
        }
        let header = Header {
            path: name,
            link,
            kind,
            mode,
            uid: disk.uid,
            gid: disk.gid,
            size,
            mtime: disk.mtime.secs,
            device: number.map_or((0, 0), |number| (number.major, number.minor)),
        };
        self.write(&header.encode());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        self.piece.extend_from_slice(bytes);
    }

    /// Fills up to a multiple of `unit`.
    fn pad(&mut self, unit: u64) {
        let missing = self.written.next_multiple_of(unit) - self.written;
        self.write(&vec![0; missing as usize]);
    }
}

/// The flag of a type without content.
fn flag(kind: FileType) -> u8 {
    match kind {
        FileType::CharDevice => b'3',
        FileType::BlockDevice => b'4',
        FileType::Fifo => b'6',
        _ => b'5',
    }
}

/// Where a file has data: ascending, disjoint, not touching, in bytes. Blocks that were never
/// written count as holes.
fn data_ranges(fs: &Fs, inode: &Inode) -> extant_core::Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for piece in ops::extents(fs, inode) {
        let piece = piece?;
        if piece.unwritten || piece.len == 0 {
            continue;
        }
        let end = piece.offset.saturating_add(piece.len);
        match ranges.last_mut() {
            Some(last) if last.end == piece.offset => last.end = end,
            _ => ranges.push(piece.offset..end),
        }
    }
    Ok(ranges)
}

/// Reads all data of a small file.
fn read_whole(fs: &Fs, inode: &Inode, ranges: &[Range<u64>]) -> extant_core::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for range in ranges {
        let begin = bytes.len();
        bytes.resize(begin + (range.end - range.start) as usize, 0);
        let room = bytes.get_mut(begin..).unwrap_or_default();
        if ops::read(fs, inode, range.start, room)? < room.len() {
            return Err(extant_core::Error::Stale);
        }
    }
    Ok(bytes)
}

/// The map of a file with holes as it goes in front of the data: numbers in lines, in whole units.
fn encode_map(ranges: &[Range<u64>], size: u64) -> Vec<u8> {
    let ends_in_hole = ranges.last().is_none_or(|last| last.end < size);
    let end = ends_in_hole.then_some(size..size);
    let mut text = format!("{}\n", ranges.len() + usize::from(ends_in_hole));
    for range in ranges.iter().chain(&end) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}\n{}\n", range.start, range.end - range.start);
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
    bytes
}

/// The name that programs without knowledge of holes will use: `dir/GNUSparseFile.0/name`.
fn stand_in_name(path: &[u8]) -> Vec<u8> {
    let cut = path.iter().rposition(|&byte| byte == b'/');
    let (dir, name) = path.split_at(cut.map_or(0, |at| at + 1));
    let dir = if dir.is_empty() { b"./" } else { dir };
    [dir, b"GNUSparseFile.0/", name].concat()
}

fn all_attributes(fs: &Fs, inode: &Inode, records: &mut Records) -> extant_core::Result<()> {
    times(inode, records);
    for (key, which) in [
        (&b"SCHILY.acl.access"[..], AclKind::Access),
        (b"SCHILY.acl.default", AclKind::Default),
    ] {
        if let Some(acl) = ops::acl(fs, inode, which)? {
            records.push(key, acl_text(&acl).as_bytes());
        }
    }
    ops::for_each_xattr(fs, inode, |name, value| {
        records.push(&[b"SCHILY.xattr.", &escaped_key(name)[..]].concat(), value);
        ControlFlow::<()>::Continue(())
    })?;
    Ok(())
}

/// The time of the last change, where the header has no room for it.
fn times(inode: &Inode, records: &mut Records) {
    let mtime = inode.disk().mtime;
    let fits = u64::try_from(mtime.secs).is_ok_and(|secs| secs <= ELEVEN_DIGITS);
    if mtime.nanos != 0 || !fits {
        records.push(b"mtime", decimal(mtime).as_bytes());
    }
}

/// Seconds with their fraction: `-1.5` is half a second before 1969-12-31 23:59:59.
fn decimal(time: Timestamp) -> String {
    let all = i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let (secs, nanos) = (
        all.unsigned_abs() / 1_000_000_000,
        all.unsigned_abs() % 1_000_000_000,
    );
    let sign = if all < 0 { "-" } else { "" };
    if nanos == 0 {
        return format!("{sign}{secs}");
    }
    let text = format!("{sign}{secs}.{nanos:09}");
    text.trim_end_matches('0').to_owned()
}

/// The name of an attribute as part of a key, which ends at the first `=`: as GNU tar writes it.
fn escaped_key(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3D"),
            byte => key.push(byte),
        }
    }
    key
}

/// A list in the short text form, with numbers for users and groups.
fn acl_text(acl: &Acl) -> String {
    let mut entries = Vec::new();
    for entry in acl.entries() {
        let class = match entry.who {
            AclWho::Owner => "user:".to_owned(),
            AclWho::User(id) => format!("user:{id}"),
            AclWho::Group => "group:".to_owned(),
            AclWho::NamedGroup(id) => format!("group:{id}"),
            AclWho::Mask => "mask:".to_owned(),
            AclWho::Other => "other:".to_owned(),
        };
        let bits = [(4, 'r'), (2, 'w'), (1, 'x')];
        let letter = |(bit, letter)| {
            if entry.permissions & bit != 0 {
                letter
            } else {
                '-'
            }
        };
        let letters: String = bits.into_iter().map(letter).collect();
        entries.push(format!("{class}:{letters}"));
    }
    entries.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_keep_their_fraction() {
        let time = |secs, nanos| decimal(Timestamp { secs, nanos });
        assert_eq!(time(0, 0), "0");
        assert_eq!(time(10, 500_000_000), "10.5");
        assert_eq!(time(-1, 0), "-1");
        assert_eq!(time(-2, 500_000_000), "-1.5");
        assert_eq!(time(-1, 999_999_999), "-0.000000001");
        assert_eq!(time(100, 1), "100.000000001");
    }
}
