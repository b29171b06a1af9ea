//! What the system has mounted, and which mount is which.
//!
//! A path names whatever lies on it when it is looked at: another mount, a moment later. So a mount
//! is known by a [`MountId`], and what is done to it goes through a descriptor of its root
//! ([`Held`]), by which it stays what it is.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

/// How the types of our mounts are shown: without a block device, and with one.
const TYPES: [&[u8]; 2] = [b"fuse.extant", b"fuseblk.extant"];
/// `STATX_MNT_ID_UNIQUE` of `linux/stat.h` (Linux 6.8).
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// How long a mount whose process lives may take to say so.
const ALIVE: Duration = Duration::from_secs(2);

/// Tells one mount from all others, also from those that lie on the same directory later.
#[derive(Clone, Copy, Debug)]
pub struct MountId {
    /// The number that no other mount gets, ever. Linux before 6.8 has none.
    unique: Option<u64>,
    /// The number in the mount table, which another mount may get when this one is gone.
    number: u64,
    /// The device number of the file system, which another one may get when this one is gone.
    device: (u32, u32),
}

impl PartialEq for MountId {
    fn eq(&self, other: &Self) -> bool {
        match (self.unique, other.unique) {
            (Some(unique), Some(others)) => unique == others,
            _ => (self.number, self.device) == (other.number, other.device),
        }
    }
}

impl Eq for MountId {}

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.device;
        let unique = self.unique.unwrap_or(0);
        write!(f, "{unique} {} {major}:{minor}", self.number)
    }
}

impl FromStr for MountId {
    type Err = ();

    /// Reads what is displayed.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (unique, number): (u64, u64) = number().zip(number()).ok_or(())?;
        let device = words.next().and_then(numbers).ok_or(())?;
        Ok(Self {
            unique: (unique != 0).then_some(unique),
            number,
            device,
        })
    }
}

/// Parses a device number, as the mount table has it.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A mount that cannot go away, nor its number to another: something of it is open.
#[derive(Debug)]
pub(crate) struct Held {
    root: OwnedFd,
    pub(crate) id: MountId,
    pub(crate) mount: Mount,
}

impl Held {
    /// Finds what lies uppermost on this directory, if it is ours.
    ///
    /// # Errors
    /// When the system does not say.
    pub(crate) fn at(point: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = openat(CWD, point, flags, Mode::empty())?;
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", root.as_raw_fd()))?;
        let number = about
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
            .ok_or_else(|| io::Error::other("the system does not tell mounts apart"))?;
        let table = fs::read("/proc/self/mountinfo")?;
        let found = lines(&table).find(|line| line.number == number);
        Ok(found.and_then(Line::ours).map(|mount| Self {
            id: MountId {
                unique: unique(&root),
                number,
                device: mount.device,
            },
            root,
            mount,
        }))
    }

    /// Finds the mount of this identity, wherever in the tree it is.
    ///
    /// # Errors
    /// When the system does not say.
    pub(crate) fn by_id(id: &MountId) -> io::Result<Option<Self>> {
        let table = fs::read("/proc/self/mountinfo")?;
        let Some(line) = lines(&table).find(|line| line.number == id.number) else {
            return Ok(None);
        };
        match Self::at(&line.point) {
            Ok(found) => Ok(found.filter(|found| found.id == *id)),
            // It went away just now.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns a path to its root that nothing else can come to lie on.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }

    /// Tells whether it is known from all others for certain.
    pub(crate) fn is_certain(&self) -> bool {
        self.id.unique.is_some()
    }

    /// Tells whether what answered for it is gone.
    pub(crate) fn is_dead(&self) -> bool {
        let Ok(root) = self.root.try_clone() else {
            return false;
        };
        let (sender, answer) = mpsc::channel();
        // A process that lives may take its time, which is an answer as well.
        let thread = std::thread::Builder::new().name("extant-alive".to_owned());
        let asks = thread.spawn(move || {
            let _ = sender.send(rustix::fs::fstatfs(&root).err());
        });
        let answer = asks.map(|_| answer.recv_timeout(ALIVE));
        matches!(answer, Ok(Ok(Some(Errno::NOTCONN | Errno::CONNABORTED))))
    }
}

/// Returns the number that no other mount gets. A process that may not use the mount is not told
/// it.
fn unique(root: &OwnedFd) -> Option<u64> {
    // What is known already: nobody is asked.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(root, "", flags, UNIQUE).ok()?;
    let is_told = found.stx_mask & UNIQUE.bits() != 0;
    is_told.then_some(found.stx_mnt_id)
}

/// One of our mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The directory.
    pub(crate) point: PathBuf,
    /// The image.
    pub(crate) image: PathBuf,
    pub(crate) device: (u32, u32),
    pub(crate) read_only: bool,
    /// The user ID that mounted it.
    pub(crate) user: u32,
    /// What the table has for the image.
    source: PathBuf,
}

impl Mount {
    /// Whether it is mounted from a block device: others have no major number.
    pub(crate) fn is_on_device(&self) -> bool {
        self.device.0 != 0
    }
}

/// A file system that `extant mount` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedImage {
    /// The image, or the address of one without its secrets.
    pub image: PathBuf,
    /// The directory.
    pub point: PathBuf,
    /// Whether it is mounted for reading only.
    pub read_only: bool,
    /// The user ID that mounted it.
    pub user: u32,
}

/// Lists what `extant mount` has mounted in this mount namespace, of all users, in the order of
/// the mount table.
///
/// # Errors
/// When the system has no mount table to show (`/proc/self/mountinfo`).
pub fn all_mounts() -> io::Result<Vec<MountedImage>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let ours = lines(&table).filter_map(Line::ours);
    let shown = ours.map(|mount| MountedImage {
        image: mount.image,
        point: mount.point,
        read_only: mount.read_only,
        user: mount.user,
    });
    Ok(shown.collect())
}

/// Finds the mount of ours on this directory, which is an absolute path; the newest where several
/// lie on each other.
pub(crate) fn ours_at(point: &Path) -> io::Result<Option<Mount>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(find(&table, point))
}

/// Tells whether a mount of this image is in the tree of directories.
#[must_use]
pub fn is_mounted(image: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let wanted = number(image);
    let mut mounts = lines(&table).filter_map(Line::ours);
    wanted.is_some() && mounts.any(|mount| number(&mount.image) == wanted)
}

/// Tells whether another mount than this one may write the same image.
pub(crate) fn has_other(mount: &Mount) -> bool {
    let number = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let wanted = number(&mount.image);
    let others = lines(&table).filter_map(Line::ours);
    let mut others = others.filter(|other| other.device != mount.device && !other.read_only);
    wanted.is_some() && others.any(|other| number(&other.image) == wanted)
}

/// Where else a file system is mounted that was unmounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// On another directory.
    At(PathBuf),
    /// In the mount namespace of a process of this number and name.
    Of(u32, String),
}

/// Finds a place at which `mount` is mounted, which is no more where it was.
pub(crate) fn elsewhere(mount: &Mount) -> Option<Elsewhere> {
    // The number of a block device that is gone may be another one's by now.
    let is_same = |line: &Line| {
        line.device == mount.device
            && line.source == mount.source
            && behind(&line.source) == mount.image
    };
    let own = fs::read("/proc/self/mountinfo").ok()?;
    if let Some(line) = lines(&own).find(is_same) {
        return Some(Elsewhere::At(line.point));
    }
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let mut seen = Vec::from_iter(namespace(Path::new("/proc/self")));
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let process = process.path();
        match namespace(&process) {
            Some(space) if !seen.contains(&space) => seen.push(space),
            _ => continue,
        }
        let table = fs::read(process.join("mountinfo")).unwrap_or_default();
        if lines(&table).any(|line| is_same(&line)) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            return Some(Elsewhere::Of(number, name.trim().to_owned()));
        }
    }
    None
}

/// How the kernel keeps data of a mount in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Reads so many bytes of a file ahead.
    ReadAhead(u32),
    /// Keeps back what it gathers of writes and mapped memory as long as it is no more than so many
    /// percent of what all file systems together may keep back. 1 for FUSE, unless told otherwise.
    Dirty(u32),
}

/// Sets that for a mount. Only root may, and it goes without.
pub(crate) fn set_keeping(id: &MountId, keeping: Keeping) -> io::Result<()> {
    let (major, minor) = id.device;
    let (name, value) = match keeping {
        Keeping::ReadAhead(bytes) => ("read_ahead_kb", bytes >> 10),
        Keeping::Dirty(percent) => ("max_ratio", percent),
    };
    // The device itself has the plain number, where there is one.
    let own = format!("/sys/class/bdi/{major}:{minor}-fuseblk/{name}");
    match fs::write(own, value.to_string()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let plain = format!("/sys/class/bdi/{major}:{minor}/{name}");
            fs::write(plain, value.to_string())
        }
        written => written,
    }
}

/// Tells whether anything is mounted on this directory.
pub(crate) fn is_mount_point(point: &Path) -> io::Result<bool> {
    let table = fs::read("/proc/self/mountinfo")?;
    let mut points = lines(&table).map(|line| line.point);
    Ok(points.any(|found| found == point))
}

struct Line {
    number: u64,
    device: (u32, u32),
    point: PathBuf,
    kind: Vec<u8>,
    source: PathBuf,
    /// Of the file system.
    options: Vec<u8>,
}

impl Line {
    /// Returns the mount, if it is ours.
    fn ours(self) -> Option<Mount> {
        if !TYPES.contains(&self.kind.as_slice()) {
            return None;
        }
        let mut options = self.options.split(|&byte| byte == b',');
        let user = options.clone().find_map(|o| o.strip_prefix(b"user_id="));
        let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok());
        Some(Mount {
            point: self.point,
            image: behind(&self.source),
            device: self.device,
            read_only: options.any(|o| o == b"ro"),
            user: user?,
            source: self.source,
        })
    }
}

/// Finds the file behind a loop device, or returns what this is itself.
fn behind(source: &Path) -> PathBuf {
    let name = source.strip_prefix("/dev").ok().and_then(Path::to_str);
    let backing = name
        .filter(|name| name.starts_with("loop"))
        .and_then(|name| fs::read(format!("/sys/block/{name}/loop/backing_file")).ok());
    match backing.as_deref() {
        Some([path @ .., b'\n'] | path) => PathBuf::from(OsString::from_vec(path.to_vec())),
        None => source.to_owned(),
    }
}

/// Parses the lines of a mount table, in the form of proc(5).
fn lines(table: &[u8]) -> impl Iterator<Item = Line> {
    table.split(|&byte| byte == b'\n').filter_map(|line| {
        let text = |field| std::str::from_utf8(field).ok();
        let mut fields = line.split(|&byte| byte == b' ');
        let number = text(fields.next()?)?.parse().ok()?;
        let device = numbers(text(fields.nth(1)?)?)?;
        let point = unescaped(fields.nth(1)?);
        // Optional fields end with a dash.
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        Some(Line {
            number,
            device,
            point,
            kind: rest.next()?.to_vec(),
            source: unescaped(rest.next()?),
            options: rest.next()?.to_vec(),
        })
    })
}

fn find(table: &[u8], point: &Path) -> Option<Mount> {
    let line = lines(table).filter(|line| line.point == point).last()?;
    line.ours()
}

/// Blanks and backslashes are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = match (byte, tail.first_chunk::<3>()) {
            (b'\\', Some(digits)) => std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 8).ok()),
            _ => None,
        };
        match code {
            Some(code) => {
                plain.push(code);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:35 / /mnt/a\\040b rw,nosuid shared:3 - fuse.extant /images/my\\040disk.img rw,user_id=0
41 22 0:36 / /mnt/c rw - tmpfs none rw
42 22 7:300 / /mnt/d rw - fuseblk.extant /dev/sdx ro,user_id=1000,group_id=0,blksize=4096
";

    #[test]
    fn our_mounts_are_told_from_others() {
        let found = find(TABLE, Path::new("/mnt/a b")).unwrap();
        assert_eq!(found.image, Path::new("/images/my disk.img"));
        assert!(!found.read_only);
        assert_eq!((found.user, found.device), (0, (0, 35)));
        let found = find(TABLE, Path::new("/mnt/d")).unwrap();
        assert_eq!(found.image, Path::new("/dev/sdx"));
        assert!(found.read_only);
        assert_eq!((found.user, found.device), (1000, (7, 300)));
        assert_eq!(find(TABLE, Path::new("/mnt/c")), None);
        assert_eq!(find(TABLE, Path::new("/mnt")), None);
    }

    #[test]
    fn an_identity_is_read_as_it_is_told() {
        for text in ["0 40 0:35", "4294967301 40 7:300"] {
            let id: MountId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
        }
        for bad in ["", "40 0:35", "0 40 0", "0 x 0:35"] {
            assert!(bad.parse::<MountId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_that_are_given_again_do_not_make_one_mount_of_two() {
        let id = |text: &str| text.parse::<MountId>().unwrap();
        assert_ne!(id("5 40 0:35"), id("6 40 0:35"));
        assert_eq!(id("5 40 0:35"), id("5 40 0:35"));
        // As far as such a kernel tells.
        assert_ne!(id("0 40 0:35"), id("0 40 0:36"));
        assert_ne!(id("0 40 0:35"), id("0 41 0:35"));
        assert_eq!(id("0 40 0:35"), id("0 40 0:35"));
    }
}
