//! A pax archive of what an image holds.
//!
//! | file | owns |
//! |---|---|
//! | `header` | headers and records, byte by byte |
//! | `sparse` | files with holes |
//! | `layer` | [`to_layer`]: what differs between two trees |
//!
//! The archive depends on the content of the image alone: names come in order, times are those of
//! the files, and nothing of the machine or the moment gets in.

mod header;
mod layer;
mod sparse;

pub use layer::{LayerOptions, to_layer};

use super::{LeaveOut, MadeMember, Progress, data_limit};
use crate::export::gaps::Gaps;
use crate::export::missing::{Attribute, Missing};
use crate::mount::Mount;
use crate::{Cause, Error, FileType, Filesystem, Result, Timestamp, Walk, WalkEntry};
use extant_core::Error as EngineError;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops::{self, AclKind, Ahead};
use extant_format::acl::{Acl, AclWho};
use header::{ELEVEN_DIGITS, Header, NAME_LEN, Records, SEVEN_DIGITS, UNIT, kind};
use sparse::{DataMap, stand_in_name};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;
/// Members whose content is read together, where a request to the device takes a round trip, and
/// bytes of them.
const TOGETHER: usize = 512;
const MOST_TOGETHER: u64 = 8 << 20;
/// Bytes of holes of a file that are written as zeros, where holes are to be.
const MOST_FILLED: u64 = 1 << 30;
/// Bytes of content that are read before the header is written.
const READ_BEFORE: u64 = 4 << 20;
/// Archives end in a multiple of this, filled with zeros.
const RECORD: u64 = 20 * UNIT as u64;

/// What [`to_tar`] did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct TarReport {
    /// Members written.
    pub members: u64,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Files that are not in the archive, the first thousand: sockets, which tar cannot hold, what
    /// has a name that no file may have, or that its directory has twice ([`Cause::BadName`],
    /// [`Cause::NameTwice`]), and what cannot be read ([`Cause::Image`], [`Cause::Unread`]). With a
    /// directory all that is below it is left out.
    pub left_out: Vec<Error>,
    /// How many these are.
    pub left_out_count: u64,
    /// Files that are in the archive and not all of it, the first thousand: parts are zeros that
    /// cannot be read, or in doubt, or attributes are missing ([`Cause::Unread`],
    /// [`Cause::InDoubt`], [`Cause::Incomplete`]).
    pub incomplete: Vec<Error>,
    /// How many these are.
    pub incomplete_count: u64,
}

impl TarReport {
    fn leave_out(&mut self, problem: Error) {
        self.left_out_count += 1;
        if self.left_out.len() < super::MOST_PROBLEMS {
            self.left_out.push(problem);
        }
    }

    fn lacks(&mut self, problem: Error) {
        self.incomplete_count += 1;
        if self.incomplete.len() < super::MOST_PROBLEMS {
            self.incomplete.push(problem);
        }
    }
}

/// Writes what is at and below `path` as a tar archive in the pax format.
///
/// A directory's content is named from that directory on (`./`, `etc/`, `etc/hostname`); any other
/// file by its own name. Kept are modes, owners, nanosecond times, hard links, holes (`GNU.sparse`
/// 1.0), device nodes, access control lists (`SCHILY.acl.*`) and all extended attributes
/// (`SCHILY.xattr.*`).
///
/// What cannot be read does not stop the others: see [`TarReport::left_out`] and
/// [`TarReport::incomplete`]. A file of more than 4 MiB whose content turns out to be unreadable
/// when its header is written already stays, with zeros. Of a file system that was cut short, or
/// was mended, large files are read once before.
///
/// # Errors
/// When `path` does not exist, files claim more data than there is room for, or writing fails. The
/// archive is then without its end, so that no program takes it for a whole one.
pub fn to_tar(
    fs: &Filesystem,
    path: impl AsRef<Path>,
    writer: impl Write,
    progress: Option<&dyn Fn(Progress)>,
) -> Result<TarReport> {
    let options = TarOptions {
        progress,
        ..TarOptions::default()
    };
    to_tar_with(fs, path, writer, &options)
}

/// How [`to_tar_with`] works. Made with [`TarOptions::default`], changed field by field.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct TarOptions<'a> {
    /// Whether files that fs-verity protects are compared with their hashes before they are
    /// archived. One that differs ends the archive.
    #[cfg(feature = "verity")]
    pub verify: bool,
    /// Whether files of which a part cannot be read are archived all the same, with zeros there.
    pub partial: bool,
    /// Which files are left out, by the names of their members.
    pub leave_out: Option<&'a LeaveOut<'a>>,
    /// Called for each member that was written.
    pub member: Option<&'a MadeMember<'a>>,
    /// Called as the work goes on.
    pub progress: Option<&'a dyn Fn(Progress)>,
}

impl std::fmt::Debug for TarOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarOptions").finish_non_exhaustive()
    }
}

/// Writes an archive as [`to_tar`] does, with options.
///
/// # Errors
/// Those of [`to_tar`].
pub fn to_tar_with(
    fs: &Filesystem,
    path: impl AsRef<Path>,
    writer: impl Write,
    options: &TarOptions<'_>,
) -> Result<TarReport> {
    let mut archive = Archive::new(fs, writer, options);
    let path = path.as_ref();
    let name_of = |entry: &WalkEntry| member_name(path, entry);
    archive.tree(fs, options, path, &name_of, &|_| false)?;
    archive.finish()
}

/// Writes what is at and below each of several paths as one archive, as [`to_tar`] does for one.
/// Members have their names from the root of the image on. Each path begins with `/` and has no
/// `.` or `..` in it; what is at or below one that came before is not written again.
///
/// # Errors
/// Those of [`to_tar`].
pub fn to_tar_of<P: AsRef<Path>>(
    fs: &Filesystem,
    paths: &[P],
    writer: impl Write,
    options: &TarOptions<'_>,
) -> Result<TarReport> {
    let mut archive = Archive::new(fs, writer, options);
    for (number, path) in paths.iter().enumerate() {
        let path = path.as_ref();
        let before = paths.get(..number).unwrap_or_default();
        if before.iter().any(|above| path.starts_with(above)) {
            continue;
        }
        // One that comes later may be above.
        let is_there = |at: &Path| before.iter().any(|below| at.starts_with(below));
        archive.tree(fs, options, path, &member_name_from_root, &is_there)?;
    }
    archive.finish()
}
/// What a walk comes to.
enum Next {
    Member(WalkEntry),
    /// It has no place in an archive, nor what is below it, or cannot be read.
    LeftOut(Error),
}

fn next_of(walk: &mut Walk) -> Option<Next> {
    next_wanted(walk, &|_| false)
}

/// The next thing that a walk comes to and that is not left out by its member's name.
fn next_wanted(walk: &mut Walk, is_unwanted: &dyn Fn(&WalkEntry) -> bool) -> Option<Next> {
    loop {
        return Some(match walk.next()? {
            Err(e) => Next::LeftOut(e),
            Ok(entry) => match entry.check_name() {
                Err(e) => {
                    walk.skip_children();
                    Next::LeftOut(e)
                }
                Ok(()) if is_unwanted(&entry) => {
                    walk.skip_children();
                    continue;
                }
                Ok(()) => Next::Member(entry),
            },
        });
    }
}

/// Whether nothing is wrong with what lies there, only with the place.
fn is_about_the_name(e: &Error) -> bool {
    matches!(
        e.cause(),
        Cause::BadName | Cause::NameTwice | Cause::DirectoryTwice
    )
}

/// Whether something is wrong with one file, and others may be read.
fn is_of_the_file(e: &Error) -> bool {
    matches!(e.cause(), Cause::Image(_) | Cause::Unread(_))
}

/// The name of a member: relative to the start, a directory's with a `/` behind it.
fn member_name(start: &Path, entry: &WalkEntry) -> Vec<u8> {
    let is_dir = entry.file_type() == FileType::Directory;
    if entry.depth() == 0 && !is_dir {
        return entry.file_name().as_bytes().to_vec();
    }
    let start = start.as_os_str().as_bytes();
    let below = entry.path_bytes().get(start.len()..).unwrap_or(&[]);
    let below = below.strip_prefix(b"/").unwrap_or(below);
    match (below, is_dir) {
        (b"", _) => b"./".to_vec(),
        (below, true) => [below, b"/"].concat(),
        (below, false) => below.to_vec(),
    }
}

/// The name of a member from the root of the image on.
fn member_name_from_root(entry: &WalkEntry) -> Vec<u8> {
    let path = entry.path_bytes();
    let below = path.strip_prefix(b"/").unwrap_or(path);
    match (below, entry.file_type() == FileType::Directory) {
        (b"", _) => b"./".to_vec(),
        (below, true) => [below, b"/"].concat(),
        (below, false) => below.to_vec(),
    }
}

struct Archive<'a, W> {
    fs: &'a Fs,
    mount: &'a Mount,
    /// Whether a file is archived of which parts cannot be read.
    partial: bool,
    /// Content that is read before its header is written.
    buffer: Vec<u8>,
    writer: W,
    written: u64,
    /// Names of files with several names, by inode number.
    linked: HashMap<u32, Vec<u8>>,
    /// Content that was read ahead, by inode number.
    ahead: HashMap<u32, Vec<u8>>,
    data_left: u64,
    /// Files whose access control lists cannot be read, by inode number.
    without_list: HashSet<u32>,
    report: TarReport,
    #[cfg(feature = "verity")]
    verify: bool,
    /// Whether holes are written as zeros, if they are not too many.
    fills_holes: bool,
}

impl<'a, W: Write> Archive<'a, W> {
    fn new(fs: &'a Filesystem, writer: W, options: &TarOptions<'_>) -> Self {
        Self {
            fs: fs.fs(),
            mount: fs.mount(),
            partial: options.partial,
            buffer: Vec::new(),
            writer,
            written: 0,
            linked: HashMap::new(),
            ahead: HashMap::new(),
            data_left: data_limit(fs.fs()),
            without_list: HashSet::new(),
            report: TarReport::default(),
            #[cfg(feature = "verity")]
            verify: options.verify,
            fills_holes: false,
        }
    }

    /// Writes what is at and below a path, but for what is at and below places that are passed
    /// over.
    fn tree(
        &mut self,
        whole: &Filesystem,
        options: &TarOptions<'_>,
        path: &Path,
        name_of: &dyn Fn(&WalkEntry) -> Vec<u8>,
        is_passed_over: &dyn Fn(&Path) -> bool,
    ) -> Result<()> {
        whole.check_sees_all(path)?;
        super::write_back(whole, path)?;
        let mut walk = whole.walk(path)?.whole();
        let leave_out = options.leave_out;
        let is_unwanted = |entry: &WalkEntry| {
            let is_left_out = leave_out.is_some_and(|leave_out| {
                let name = name_of(entry);
                let parts = name.split(|byte| *byte == b'/');
                let parts: Vec<&[u8]> = parts
                    .filter(|part| !part.is_empty() && *part != b".")
                    .collect();
                let is_dir = entry.file_type() == FileType::Directory;
                !parts.is_empty() && leave_out(&parts, is_dir)
            });
            is_left_out || is_passed_over(entry.path())
        };
        let together = if ops::in_flight(self.fs) > 1 {
            TOGETHER
        } else {
            1
        };
        let mut some = Vec::with_capacity(together);
        loop {
            some.extend(std::iter::from_fn(|| next_wanted(&mut walk, &is_unwanted)).take(together));
            if some.is_empty() {
                return Ok(());
            }
            if together > 1 {
                self.read_ahead(&some);
            }
            for next in some.drain(..) {
                let entry = match next {
                    Next::Member(entry) => entry,
                    Next::LeftOut(e) => {
                        self.report.leave_out(e);
                        continue;
                    }
                };
                let name = name_of(&entry);
                let before = self.written;
                match self.member(&entry, &name) {
                    // Nothing of it has been written.
                    Err(e) if is_of_the_file(&e) => {
                        self.linked.remove(&entry.inode().ino().get());
                        self.report.leave_out(e);
                    }
                    done => {
                        done?;
                        if let Some(tell) = options.member {
                            tell(&name);
                        }
                    }
                }
                if let Some(tell) = options.progress {
                    tell(Progress::Done {
                        files: 1,
                        bytes: self.written - before,
                    });
                }
            }
        }
    }

    /// Reads what the next members need, together.
    fn read_ahead(&mut self, some: &[Next]) {
        let inode = |next: &Next| match next {
            Next::Member(entry) => Some(Arc::clone(entry.inode())),
            Next::LeftOut(_) => None,
        };
        let inodes: Vec<Arc<Inode>> = some.iter().filter_map(inode).collect();
        ops::content_ahead(self.fs, inodes.iter(), Ahead::Attributes);
        let read = ops::read_together(self.fs, &inodes, MOST_TOGETHER);
        let inos = inodes.iter().map(|inode| inode.ino().get());
        self.ahead = inos
            .zip(read)
            .filter_map(|(ino, content)| content.map(|content| (ino, content)))
            .collect();
    }

    fn member(&mut self, entry: &WalkEntry, name: &[u8]) -> Result<()> {
        let inode = entry.inode();
        if inode.is_dir() {
            return self.simple(entry, name, kind::DIRECTORY, b"");
        }
        if inode.disk().links > 1 {
            let ino = inode.ino().get();
            if let Some(first) = self.linked.get(&ino) {
                let first = first.clone();
                return self.simple(entry, name, kind::HARD_LINK, &first);
            }
            self.linked.insert(ino, name.to_vec());
        }
        match inode.file_type() {
            FileType::Regular => self.regular(entry, name),
            FileType::Symlink => {
                let target = entry.read_link()?;
                self.simple(entry, name, kind::SYMLINK, &target)
            }
            FileType::CharDevice => self.simple(entry, name, kind::CHAR_DEVICE, b""),
            FileType::BlockDevice => self.simple(entry, name, kind::BLOCK_DEVICE, b""),
            FileType::Fifo => self.simple(entry, name, kind::FIFO, b""),
            FileType::Directory => Ok(()),
            FileType::Socket => {
                let cause = Cause::NotKept("a socket was left out, as tar cannot hold it");
                self.report.leave_out(Error::new(entry.path(), cause));
                Ok(())
            }
        }
    }

    /// A member without content.
    fn simple(&mut self, entry: &WalkEntry, name: &[u8], kind: u8, link: &[u8]) -> Result<()> {
        // What a hard link stands for has been said at the first name.
        let records = if kind == kind::HARD_LINK {
            Records::default()
        } else {
            self.attributes(entry)
        };
        self.header(entry, name, kind, link, 0, records)
    }

    fn regular(&mut self, entry: &WalkEntry, name: &[u8]) -> Result<()> {
        let inode = entry.inode();
        // Refused before the header says that there is content.
        ops::read(self.fs, inode, 0, &mut []).map_err(|e| Error::engine(entry.path(), e))?;
        #[cfg(feature = "verity")]
        if self.verify {
            let compared = crate::verity::compare(self.fs, inode);
            compared.map_err(|why| Error::new(entry.path(), why.0))?;
        }
        let mut gaps = Gaps::default();
        let map = DataMap::read(self.fs, inode, &mut gaps);
        let data = map.data_len();
        self.data_left = self
            .data_left
            .checked_sub(data)
            .ok_or_else(|| Error::new(entry.path(), Cause::TooMuchData))?;
        let map = if self.fills_holes && inode.size() - data.min(inode.size()) <= MOST_FILLED {
            map.filled()
        } else {
            map
        };
        let data = map.data_len();
        let is_read = self.read_before(inode, &map, &mut gaps);
        if !self.partial
            && let Some(cause) = std::mem::take(&mut gaps).cause(false)
        {
            return Err(Error::new(entry.path(), cause));
        }
        let mut records = self.attributes(entry);
        if map.has_holes() {
            let front = map.encode();
            records.push(b"GNU.sparse.major", b"1");
            records.push(b"GNU.sparse.minor", b"0");
            records.push(b"GNU.sparse.name", name);
            let real = inode.size().to_string();
            records.push(b"GNU.sparse.realsize", real.as_bytes());
            let size = front.len() as u64 + data;
            self.header(entry, &stand_in_name(name), kind::FILE, b"", size, records)?;
            self.write(&front)?;
        } else {
            self.header(entry, name, kind::FILE, b"", data, records)?;
        }
        if is_read {
            self.written += data;
            self.writer.write_all(&self.buffer).map_err(write_failed)?;
        } else {
            // What could not be read a moment ago is found again.
            let mut now = Gaps::default();
            for range in &map.ranges {
                self.content(inode, range.clone(), &mut now)?;
            }
            if gaps.is_empty() {
                gaps = now;
            }
        }
        let in_doubt = self.mount.is_in_doubt(inode.ino());
        let in_doubt = in_doubt.then_some(Cause::InDoubt);
        for cause in gaps.cause(true).into_iter().chain(in_doubt) {
            self.report.lacks(Error::new(entry.path(), cause));
        }
        self.pad(UNIT as u64)
    }

    /// Reads the content of a file before its header says that there is some: all of it into
    /// memory, if it is small. A large one is read only where parts are likely to be missing.
    /// Returns whether it is in memory.
    fn read_before(&mut self, inode: &Inode, map: &DataMap, gaps: &mut Gaps) -> bool {
        let is_small = map.data_len() <= READ_BEFORE;
        if self.ahead.contains_key(&inode.ino().get()) || !is_small && !self.mount.is_damaged() {
            return false;
        }
        self.buffer.clear();
        for range in &map.ranges {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(CHUNK as u64) as usize;
                let begin = if is_small { self.buffer.len() } else { 0 };
                self.buffer.resize(begin + len, 0);
                let chunk = self.buffer.get_mut(begin..).unwrap_or_default();
                let read = gaps.read(self.fs, inode, at, chunk);
                chunk.get_mut(read..).unwrap_or_default().fill(0);
                at += len as u64;
                if !gaps.is_empty() && !self.partial {
                    return false;
                }
            }
        }
        is_small
    }

    /// Copies a range of a file, in whose place there has to be something: the header has said so.
    fn content(
        &mut self,
        inode: &Inode,
        range: std::ops::Range<u64>,
        gaps: &mut Gaps,
    ) -> Result<()> {
        if let Some(content) = self.ahead.get(&inode.ino().get())
            && let Some(bytes) = content.get(range.start as usize..range.end as usize)
        {
            self.written += bytes.len() as u64;
            return self.writer.write_all(bytes).map_err(write_failed);
        }
        let longest = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut buffer = vec![0; longest.min(CHUNK)];
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let len = len.min(buffer.len());
            let Some(bytes) = buffer.get_mut(..len) else {
                break;
            };
            let read = gaps.read(self.fs, inode, at, bytes);
            if read < len {
                bytes.get_mut(read..).unwrap_or_default().fill(0);
                gaps.add(at + read as u64..at + len as u64, EngineError::Stale);
            }
            let bytes = buffer.get(..len).unwrap_or(&[]);
            self.written += len as u64;
            self.writer.write_all(bytes).map_err(write_failed)?;
            at += len as u64;
        }
        Ok(())
    }

    /// Times, extended attributes and access control lists. Attributes that cannot be read are
    /// missing, which is told.
    fn attributes(&mut self, entry: &WalkEntry) -> Records {
        let mut records = Records::default();
        if let Err(e) = self.all_attributes(entry, &mut records) {
            records = Records::default();
            times(entry.inode(), &mut records);
            self.without_list.insert(entry.inode().ino().get());
            let e = Error::engine(PathBuf::new(), e);
            let missing = [Missing::new(Attribute::Xattrs, e)];
            let cause = Cause::Incomplete(missing.into());
            self.report.lacks(Error::new(entry.path(), cause));
        }
        records
    }

    fn all_attributes(&self, entry: &WalkEntry, records: &mut Records) -> extant_core::Result<()> {
        let inode = entry.inode();
        times(inode, records);
        for (key, which) in [
            (&b"SCHILY.acl.access"[..], AclKind::Access),
            (b"SCHILY.acl.default", AclKind::Default),
        ] {
            if let Some(acl) = ops::acl(self.fs, inode, which)? {
                records.push(key, acl_text(&acl).as_bytes());
            }
        }
        ops::for_each_xattr(self.fs, inode, |name, value| {
            records.push(&[b"SCHILY.xattr.", &escaped_key(name)[..]].concat(), value);
            ControlFlow::<()>::Continue(())
        })?;
        Ok(())
    }

    /// Writes the header of a member, and an extended one before it for all that does not fit.
    fn header(
        &mut self,
        entry: &WalkEntry,
        name: &[u8],
        kind: u8,
        link: &[u8],
        size: u64,
        mut records: Records,
    ) -> Result<()> {
        let disk = entry.inode().disk();
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
        let device = if entry.file_type().is_device() {
            let number = disk.device();
            (number.major, number.minor)
        } else {
            (0, 0)
        };
        let mut mode = disk.mode.permissions();
        if self.without_list.contains(&entry.inode().ino().get()) {
            // Of a file with a list the group's bits are its mask, and the list may allow less.
            mode &= !0o6070;
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
            device,
        };
        self.member_header(&header, &records)
    }

    /// Writes the header of a member without content that stands for no file.
    fn bare(&mut self, header: &Header<'_>) -> Result<()> {
        let mut records = Records::default();
        if header.path.len() > NAME_LEN {
            records.push(b"path", header.path);
        }
        self.member_header(header, &records)
    }

    fn member_header(&mut self, header: &Header<'_>, records: &Records) -> Result<()> {
        if !records.is_empty() {
            let extended = Header {
                path: b"././@PaxHeader",
                link: b"",
                kind: kind::EXTENDED,
                mode: 0o644,
                uid: 0,
                gid: 0,
                size: records.bytes().len() as u64,
                mtime: 0,
                device: (0, 0),
            };
            self.write(&extended.encode())?;
            self.write(records.bytes())?;
            self.pad(UNIT as u64)?;
        }
        self.report.members += 1;
        self.write(&header.encode())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(write_failed)
    }

    /// Fills up to a multiple of `unit`.
    fn pad(&mut self, unit: u64) -> Result<()> {
        let missing = self.written.next_multiple_of(unit) - self.written;
        let zeros = [0; UNIT];
        let mut left = missing;
        while left > 0 {
            let len = left.min(UNIT as u64);
            self.write(zeros.get(..len as usize).unwrap_or(&zeros))?;
            left -= len;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<TarReport> {
        self.write(&[0; 2 * UNIT])?;
        self.pad(RECORD)?;
        self.writer.flush().map_err(write_failed)?;
        self.report.bytes = self.written;
        Ok(self.report)
    }
}

/// The time of the last change, where the header has no room for it.
fn times(inode: &Inode, records: &mut Records) {
    let mtime = inode.disk().mtime;
    let fits = u64::try_from(mtime.secs).is_ok_and(|secs| secs <= ELEVEN_DIGITS);
    if mtime.nanos != 0 || !fits {
        records.push(b"mtime", decimal(mtime).as_bytes());
    }
}

fn write_failed(e: std::io::Error) -> Error {
    Error::host("write", "the archive", e)
}

/// Seconds with their fraction: `-1.5` is half a second before 1969-12-31 23:59:59.
fn decimal(time: Timestamp) -> String {
    let (sign, secs, nanos) = match (time.secs, time.nanos) {
        (secs, 0) => (if secs < 0 { "-" } else { "" }, secs.unsigned_abs(), 0),
        (secs, nanos) if secs < 0 => ("-", (secs + 1).unsigned_abs(), 1_000_000_000 - nanos),
        (secs, nanos) => ("", secs.unsigned_abs(), nanos),
    };
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
    let mut text = String::new();
    for entry in acl.entries() {
        if !text.is_empty() {
            text.push(',');
        }
        let who = match entry.who {
            AclWho::Owner => "user:".to_owned(),
            AclWho::User(id) => format!("user:{id}"),
            AclWho::Group => "group:".to_owned(),
            AclWho::NamedGroup(id) => format!("group:{id}"),
            AclWho::Mask => "mask:".to_owned(),
            AclWho::Other => "other:".to_owned(),
        };
        let letter = |bit, letter| {
            if entry.permissions & bit != 0 {
                letter
            } else {
                '-'
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{who}:{}{}{}",
            letter(4, 'r'),
            letter(2, 'w'),
            letter(1, 'x')
        );
    }
    text
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
